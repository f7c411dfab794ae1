//! The port through which a process observes the runs that it ends, for its metrics.

use super::{Status, usage::ModelUsage};
use crate::id::WorkloadId;
use std::time::Duration;

/// The workload of an observed run.
#[derive(Clone, Copy, Debug)]
pub struct ObservedWorkload<'r> {
    /// The identifier of the workload.
    pub id: WorkloadId,
    /// The slug of the workload; `None` when the process ends a run without loading its workload.
    pub slug: Option<&'r str>,
}

/// Observes the runs whose ends this process stores. Exactly one process stores the end of a run, so each run is
/// observed at most once, even if its caller waits at another process.
pub trait RunEndObserver: Send + Sync {
    /// Called after the end of a run is stored. The duration is the time from acceptance to the end.
    fn run_ended(&self, workload: ObservedWorkload<'_>, status: Status, duration: Duration);
    /// Called after the steps of a run have ended and their model calls are stored. The run may still await a
    /// review.
    fn models_called(&self, workload: ObservedWorkload<'_>, usage: ModelUsage);
}
