//! The background task that folds sequenced facts into the tree of each log, and publishes checkpoints.
//!
//! A step writes in this order: full tiles, the checkpoint in the archive, the tree in the database. The facts of a log
//! have one order, so each step is a function of the log. A builder that dies between two writes has written what the
//! next builder writes again, and two concurrent builders write the same bytes or prefixes of each other. No step holds a
//! lock, and nothing waits for a step: a lost step is refused by the size of the stored tree.
//!
//! A builder takes steps in several logs concurrently, and in each log one after the other. A step that waits for a store
//! occupies one of these places, and the passes over the other logs continue.

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

/// Logs that one read returns.
const MAX_LOGS: u32 = 50;
/// Maximum number of concurrent steps. A step mostly waits for the archive, and its statements share the connections of the
/// background tasks, so that more steps would delay the sequencer.
pub(super) const MAX_STEPS: usize = 8;
/// Interval between passes. A checkpoint is at most this and the duration of its step behind its log, while fewer logs than
/// [`MAX_STEPS`] are slow.
const PUBLISH_INTERVAL: Duration = Duration::from_secs(2);
/// Delay between passes while logs are longer than a step, so that a long backlog leaves time for requests.
const BACKLOG_DELAY: Duration = Duration::from_millis(25);

/// Builds the trees of all logs. Any number of processes may run one.
pub struct TreeBuilder {
    stepper: Arc<LogStepper>,
    /// The running steps; dropping the set aborts them.
    steps: JoinSet<Progress>,
    /// The logs of these steps.
    in_progress: HashMap<Id, TenantId>,
    /// The next pass begins after this tenant.
    start_after: Option<TenantId>,
}

/// Builds trees, forever.
pub async fn run_tree_builder(mut builder: TreeBuilder) {
    loop {
        let progress = builder.start_pass().await.unwrap_or_else(|error| {
            tracing::warn!(
                code = error.code(),
                error = &error as &dyn std::error::Error,
                "failed to list logs for checkpoints; retrying in 2 s"
            );
            Progress::UpToDate
        });
        builder.wait_for_next_pass(progress).await;
    }
}

/// Whether a log has more facts than a step appended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Progress {
    /// It has not, or the step failed.
    UpToDate,
    /// It has.
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

    /// Starts a step in each log that is behind, except logs whose previous step still runs. Returns the progress of the
    /// steps that ended meanwhile. The failure of a step does not stop the others.
    ///
    /// Each pass begins [`MAX_STEPS`] logs after the beginning of the previous one, so that no log is always last, nor
    /// always behind the time that witnesses have in a pass.
    ///
    /// # Errors
    /// When the logs or the public keys cannot be read. Running steps continue.
    async fn start_pass(&mut self) -> Result<Progress, LogAccessError> {
        let stepper = Arc::clone(&self.stepper);
        let signed_by: Arc<str> = stepper.key_fingerprint().await?.into();
        stepper.witnesses.begin_pass();
        let complete = format!("{signed_by}{}", stepper.witnesses.fingerprint());
        let start_after = self.start_after;
        let (mut after, mut is_second_part) = (start_after, start_after.is_none());
        let (mut progress, mut started) = (Progress::UpToDate, 0);
        loop {
            let mut logs = stepper.tree_store.pending_logs(&complete, after, MAX_LOGS).await?;
            if is_second_part && let Some(first) = start_after {
                logs.retain(|log| log.tenant <= first);
            }
            match logs.last() {
                Some(last) => after = Some(last.tenant),
                None if is_second_part => return Ok(progress),
                None => (after, is_second_part) = (None, true),
            }
            // Filtered before a step ends, because the list may lack the result of that step.
            logs.retain(|log| !self.in_progress.values().any(|tenant| *tenant == log.tenant));
            for log in logs {
                if self.steps.len() >= MAX_STEPS {
                    progress = progress.max(self.join_step().await.unwrap_or(Progress::UpToDate));
                }
                started += 1;
                if started == MAX_STEPS {
                    self.start_after = Some(log.tenant);
                }
                let (tenant, stepper, signed_by) = (log.tenant, Arc::clone(&stepper), Arc::clone(&signed_by));
                let step = self.steps.spawn(async move { stepper.step_or_log(log, &signed_by).await });
                self.in_progress.insert(step.id(), tenant);
            }
        }
    }

    /// Waits until the next pass is due. Steps that still run do not delay it.
    async fn wait_for_next_pass(&mut self, progress: Progress) {
        let mut due_at = Instant::now() + progress.delay();
        while let Ok(ended) = timeout_at(due_at, self.join_step()).await {
            match ended {
                Some(progress) => due_at = due_at.min(Instant::now() + progress.delay()),
                None => return sleep_until(due_at).await,
            }
        }
    }

    /// The progress of the next step that ends; `None` if no step runs.
    async fn join_step(&mut self) -> Option<Progress> {
        let (id, progress) = match self.steps.join_next_with_id().await? {
            Ok(ended) => ended,
            Err(error) => {
                tracing::error!(
                    tenant_id = self.in_progress.get(&error.id()).map(tracing::field::display),
                    error = &error as &dyn std::error::Error,
                    "a step in an audit log panicked; retrying in 2 s"
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
