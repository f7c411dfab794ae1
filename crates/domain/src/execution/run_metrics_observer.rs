//! The port that reports the end of each run to the metrics of the process.

use super::{Status, usage::ModelUsage};
use crate::id::WorkloadId;
use std::time::Duration;

/// The workload of a reported run.
#[derive(Clone, Copy, Debug)]
pub struct ObservedWorkload<'r> {
    /// The identifier of the workload.
    pub id: WorkloadId,
    /// The slug of the workload; `None` if the process ended the run without loading the workload.
    pub slug: Option<&'r str>,
}

/// Receives the ends of the runs that this process stores. One process stores the end of a run, so each run is reported
/// at most once, even if its caller waits at another process.
pub trait RunMetricsObserver: Send + Sync {
    /// Called after the end of a run is stored. The duration is the time from acceptance to the end.
    fn run_ended(&self, workload: ObservedWorkload<'_>, status: Status, duration: Duration);
    /// Called after the steps of a run have ended and their model calls are stored. The run may still await human
    /// review.
    fn models_called(&self, workload: ObservedWorkload<'_>, usage: ModelUsage);
}
