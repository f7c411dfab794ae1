//! Interruptions: external reasons that end a run before it is complete.

use crate::execution::{ExecutionOutcome, Status};

/// The external reason that ends a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interruption {
    /// The deadline of the run passed.
    DeadlineExceeded,
    /// Another process acquired the run's lease.
    LeaseLost,
    /// The workload was suspended or retired.
    WorkloadStopped,
    /// An actor cancelled the run.
    Cancelled,
}

impl Interruption {
    /// The status, outcome, error code and message of a run that ends by this interruption.
    #[must_use]
    pub const fn ending(self) -> (Status, ExecutionOutcome, &'static str, &'static str) {
        match self {
            Self::DeadlineExceeded => {
                (Status::Failed, ExecutionOutcome::Timeout, "deadline_exceeded", "the run exceeded its deadline")
            }
            Self::LeaseLost => (Status::Failed, ExecutionOutcome::Failure, "interrupted", "the run lost its lease"),
            Self::WorkloadStopped => {
                (Status::Cancelled, ExecutionOutcome::Cancelled, "workload_suspended", "the workload was suspended")
            }
            Self::Cancelled => (Status::Cancelled, ExecutionOutcome::Cancelled, "cancelled", "the run was cancelled"),
        }
    }
}
