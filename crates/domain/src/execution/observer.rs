//! The port through which a process observes the runs that it ends, for its metrics.

use super::{Status, usage::ModelUsage};
use crate::id::WorkloadId;
use std::time::Duration;

/// The workload of an observed run.
#[derive(Clone, Copy, Debug)]
pub struct ObservedWorkload<'r> {
    /// Its identifier.
    pub id: WorkloadId,
    /// Its slug; `None` where the process ends a run without having loaded its workload.
    pub slug: Option<&'r str>,
}

/// Observes the runs whose ends this process stores. Each end is stored by one process, so each run is observed once,
/// whichever process its caller waits at.
pub trait RunObserver: Send + Sync {
    /// The end of a run is stored. The duration is the time from acceptance to the end.
    fn run_ended(&self, workload: ObservedWorkload<'_>, status: Status, duration: Duration);
    /// The steps of a run have ended, and their model calls are stored. The run may still await a review.
    fn models_called(&self, workload: ObservedWorkload<'_>, usage: ModelUsage);
}
