//! Interruptions: external reasons that end a run.

use crate::execution::{Outcome, Status};

/// The reason a run is interrupted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cut {
    /// Its deadline passed.
    Overdue,
    /// Another process took its lease.
    LeaseLost,
    /// Its workload was suspended or retired.
    Suspended,
    /// An actor cancelled it.
    Cancelled,
}

impl Cut {
    /// The resulting status, outcome, error code and message.
    #[must_use]
    pub const fn told(self) -> (Status, Outcome, &'static str, &'static str) {
        match self {
            Self::Overdue => (Status::Failed, Outcome::Timeout, "deadline_exceeded", "the run exceeded its deadline"),
            Self::LeaseLost => (Status::Failed, Outcome::Failure, "interrupted", "the run lost its lease"),
            Self::Suspended => {
                (Status::Cancelled, Outcome::Cancelled, "workload_suspended", "the workload was suspended")
            }
            Self::Cancelled => (Status::Cancelled, Outcome::Cancelled, "cancelled", "the run was cancelled"),
        }
    }
}
