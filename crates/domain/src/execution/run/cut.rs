//! What stops runs from outside.

use crate::execution::{Outcome, Status};

/// Why a run is stopped before its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cut {
    /// It took longer than a run may.
    Overdue,
    /// Somebody else ends it.
    LeaseLost,
    /// Its workload was suspended or retired.
    Suspended,
    /// Somebody asked for it.
    Cancelled,
}

impl Cut {
    /// Where the run is then, how it ended, and what is said of it.
    #[must_use]
    pub const fn told(self) -> (Status, Outcome, &'static str, &'static str) {
        match self {
            Self::Overdue => {
                (Status::Failed, Outcome::Timeout, "deadline_exceeded", "the run took longer than a run may")
            }
            Self::LeaseLost => (Status::Failed, Outcome::Failure, "interrupted", "the run lost its lease"),
            Self::Suspended => {
                (Status::Cancelled, Outcome::Cancelled, "workload_suspended", "the workload was suspended")
            }
            Self::Cancelled => (Status::Cancelled, Outcome::Cancelled, "cancelled", "the run was cancelled"),
        }
    }
}
