//! The tree builder: a background task that appends sequenced facts to the tree of each log, and publishes checkpoints.
//!
//! A step writes in this order: full tiles, the checkpoint in the archive, the tree in the database. The order of facts
//! in a log is fixed, so the result of a step depends only on the log. If a builder is killed between two writes, the
//! next builder repeats the same writes. Concurrent builders write equal bytes, or prefixes of each other's trees. A
//! step holds no lock and blocks no other task. The commit of a step is refused if the stored tree has another size
//! than expected.
//!
//! A builder executes steps of several logs concurrently, and steps of the same log one after another. A step that
//! waits for a store occupies one of [`MAX_STEPS`] slots, while steps of other logs continue.

mod log_step;

use super::LogAccessError;
use crate::services::SharedState;
use fairway_domain::{id::TenantId, transparency_log::TreeStore};
use log_step::LogStepper;
use std::{collections::HashMap, sync::Arc, time::Duration};
use tokio::{
    task::{Id, JoinSet},
    time::{Instant, sleep_until, timeout_at},
};

/// Maximum number of logs that one query lists.
const MAX_LOGS: u32 = 50;
/// Maximum number of concurrent steps. Steps mostly wait for the archive. More steps would delay the sequencer, because
/// their statements use the same connections of background tasks.
pub(super) const MAX_STEPS: usize = 8;
/// Interval between passes. While fewer than [`MAX_STEPS`] logs are slow, a checkpoint lags its log by at most this
/// interval and the duration of one step.
const PUBLISH_INTERVAL: Duration = Duration::from_secs(2);
/// Delay between passes while a log has more facts than one step appends. The delay leaves capacity for requests during
/// a long backlog.
const BACKLOG_DELAY: Duration = Duration::from_millis(25);

/// Builds the trees of all logs. Several processes may each run a builder.
pub struct TreeBuilder {
    stepper: Arc<LogStepper>,
    /// The active steps; dropping the set aborts them.
    steps: JoinSet<Progress>,
    /// The tenant of each active step, by task.
    in_progress: HashMap<Id, TenantId>,
    /// The tenant after which the next pass starts.
    start_after: Option<TenantId>,
}

/// Builds trees in an endless loop.
pub async fn run_tree_builder(mut builder: TreeBuilder) {
    loop {
        let progress = builder.start_pass().await.unwrap_or_else(|error| {
            tracing::warn!(
                code = error.code(),
                error = &error as &dyn std::error::Error,
                "failed to find the audit logs that need a checkpoint; retrying in 2 s"
            );
            Progress::UpToDate
        });
        builder.wait_for_next_pass(progress).await;
    }
}

/// Whether a log has more facts than the step appended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Progress {
    /// The step appended all facts, or failed.
    UpToDate,
    /// The log has further facts to append.
    Backlog,
}

impl Progress {
    const fn delay(self) -> Duration {
        match self {
            Self::UpToDate => PUBLISH_INTERVAL,
            Self::Backlog => BACKLOG_DELAY,
        }
    }
}

impl TreeBuilder {
    pub(crate) fn new(tree_store: Arc<dyn TreeStore>, shared: &SharedState) -> Self {
        Self::with_stepper(LogStepper::new(tree_store, shared))
    }

    fn with_stepper(stepper: LogStepper) -> Self {
        Self { stepper: Arc::new(stepper), steps: JoinSet::new(), in_progress: HashMap::new(), start_after: None }
    }

    /// Starts a step for each log whose tree lags, except logs whose previous step is still active. Returns the
    /// progress of steps that ended meanwhile. A failed step does not stop the others.
    ///
    /// The next pass begins after the log of the [`MAX_STEPS`]th step that this pass starts, if there is such a step.
    /// If every pass began with the same log, the witnesses' time budget might never suffice for the last logs.
    ///
    /// # Errors
    /// When the list of logs or the public keys cannot be read. Active steps continue.
    async fn start_pass(&mut self) -> Result<Progress, LogAccessError> {
        let stepper = Arc::clone(&self.stepper);
        let signed_by: Arc<str> = stepper.key_fingerprint().await?.into();
        stepper.witnesses.begin_pass();
        let complete_fingerprint = format!("{signed_by}{}", stepper.witnesses.fingerprint());
        let start_after = self.start_after;
        let (mut last_tenant, mut is_second_part) = (start_after, start_after.is_none());
        let (mut progress, mut started_count) = (Progress::UpToDate, 0);
        loop {
            let mut logs = stepper.tree_store.pending_logs(&complete_fingerprint, last_tenant, MAX_LOGS).await?;
            if is_second_part && let Some(first) = start_after {
                logs.retain(|log| log.tenant <= first);
            }
            match logs.last() {
                Some(last) => last_tenant = Some(last.tenant),
                None if is_second_part => return Ok(progress),
                None => (last_tenant, is_second_part) = (None, true),
            }
            // The active steps are removed from the list before any of them ends. Later, the list could contain a log
            // whose step has ended since the list was read.
            logs.retain(|log| !self.in_progress.values().any(|tenant| *tenant == log.tenant));
            for log in logs {
                if self.steps.len() >= MAX_STEPS {
                    progress = progress.max(self.join_step().await.unwrap_or(Progress::UpToDate));
                }
                started_count += 1;
                if started_count == MAX_STEPS {
                    self.start_after = Some(log.tenant);
                }
                let (tenant, stepper, signed_by) = (log.tenant, Arc::clone(&stepper), Arc::clone(&signed_by));
                let step = self.steps.spawn(async move { stepper.step_and_log_failure(log, &signed_by).await });
                self.in_progress.insert(step.id(), tenant);
            }
        }
    }

    /// Waits until the next pass is due. Steps that are still active do not delay it.
    async fn wait_for_next_pass(&mut self, progress: Progress) {
        let mut due_at = Instant::now() + progress.delay();
        while let Ok(joined) = timeout_at(due_at, self.join_step()).await {
            match joined {
                Some(progress) => due_at = due_at.min(Instant::now() + progress.delay()),
                None => return sleep_until(due_at).await,
            }
        }
    }

    /// Returns the progress of the next step that ends; `None` if no step is active.
    async fn join_step(&mut self) -> Option<Progress> {
        let (id, progress) = match self.steps.join_next_with_id().await? {
            Ok(ended) => ended,
            Err(error) => {
                // The error is not logged, because it repeats the panic's message, which may contain a value.
                tracing::error!(
                    tenant_id = self.in_progress.get(&error.id()).map(tracing::field::display),
                    "the publication of a checkpoint of an audit log panicked; retrying in 2 s"
                );
                (error.id(), Progress::UpToDate)
            }
        };
        self.in_progress.remove(&id);
        Some(progress)
    }
}

#[cfg(test)]
mod tests;
