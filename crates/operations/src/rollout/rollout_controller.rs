//! The rollout controller: a background process that advances each rollout whose soak has ended and whose observations
//! meet the criteria.

use crate::{Failure, idempotency::MAX_ATTEMPTS, rollout::Rollouts};
use fairway_domain::{
    access::ActorRef,
    audit::Stamp,
    release::{
        advance_rollout::AdvanceTrigger,
        ports::{ReleaseWithDeployment, TenantReleaseKey},
    },
    rollout::{AdvanceInputs, HoldReason, Rollout},
    store::CommitError,
    tenant::TenantScope,
};
use std::{
    pin::{Pin, pin},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

/// Interval between two rounds over the rollouts.
const ROUND_INTERVAL: Duration = Duration::from_secs(1);
/// Number of rollouts that one query returns.
const PAGE: u32 = 100;
/// Name of the system actor that advances rollouts.
const ACTOR: &str = "rollout-pilot";

/// The result of one round over the rollouts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RoundResult {
    /// Number of rollouts that advanced.
    pub advanced: u64,
    /// Number of rollouts that the controller did not advance, because of a hold reason.
    pub held: u64,
}

/// Number of consecutive failed rounds after which the controller stops. Its restart opens new database connections.
const MAX_FAILED_ROUNDS: u32 = 5;

/// Reason why the controller process stops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StopReason {
    /// A shutdown was requested.
    Shutdown,
    /// Several consecutive rounds failed, so the database counts as lost.
    DatabaseLost,
}

/// Runs the controller until a shutdown or repeated failures. A round in progress is completed first. Several
/// controllers may run concurrently, because each step is committed only once.
pub async fn run_rollout_controller(
    rollouts: &Rollouts,
    mut shutdown: Pin<&mut impl Future<Output = ()>>,
) -> StopReason {
    let mut failed_rounds = 0_u32;
    let is_stopping = AtomicBool::new(false);
    loop {
        let mut round = pin!(rollouts.control_round(&is_stopping));
        let (result, is_shutdown) = tokio::select! {
            result = &mut round => (result, false),
            () = &mut shutdown => {
                is_stopping.store(true, Ordering::Relaxed);
                (round.await, true)
            }
        };
        match result {
            Ok(RoundResult { advanced: 0, .. }) => {}
            Ok(RoundResult { advanced, held }) => tracing::info!(advanced, held, "advanced rollouts"),
            Err(ref error) => {
                tracing::warn!(
                    error = error as &dyn std::error::Error,
                    "failed to process rollouts; retrying in the next round, or stopping after repeated failures"
                );
            }
        }
        failed_rounds = if result.is_ok() { 0 } else { failed_rounds.saturating_add(1) };
        if is_shutdown {
            return StopReason::Shutdown;
        }
        if failed_rounds >= MAX_FAILED_ROUNDS {
            return StopReason::DatabaseLost;
        }
        tokio::select! {
            () = &mut shutdown => return StopReason::Shutdown,
            () = tokio::time::sleep(ROUND_INTERVAL) => {}
        }
    }
}

impl Rollouts {
    /// Processes once every rollout whose soak has ended.
    ///
    /// # Errors
    /// When the list of rollouts cannot be read. The failure of one rollout does not affect the others.
    pub async fn control_rollouts(&self) -> Result<RoundResult, Failure> {
        self.control_round(&AtomicBool::new(false)).await
    }

    async fn control_round(&self, is_stopping: &AtomicBool) -> Result<RoundResult, Failure> {
        let (mut result, mut last_rollout) = (RoundResult::default(), None);
        loop {
            let page = self.rollout_store.list_soaked(last_rollout, PAGE).await?;
            for due_rollout in &page {
                if is_stopping.load(Ordering::Relaxed) {
                    return Ok(result);
                }
                match self.control_rollout(*due_rollout).await {
                    Ok(StepResult::Advanced) => result.advanced += 1,
                    Ok(StepResult::Held) => result.held += 1,
                    Ok(StepResult::Skipped) => {}
                    Err(error @ Failure::Store(_)) => return Err(error),
                    Err(error) => {
                        tracing::warn!(
                            tenant_id = %due_rollout.tenant,
                            release_id = %due_rollout.release,
                            error = &error as &dyn std::error::Error,
                            "failed to process a rollout; retrying it in the next round"
                        );
                    }
                }
            }
            last_rollout = page.last().copied();
            if last_rollout.is_none() {
                return Ok(result);
            }
        }
    }

    async fn control_rollout(&self, due_rollout: TenantReleaseKey) -> Result<StepResult, Failure> {
        let scope = TenantScope::for_background_task(due_rollout.tenant);
        for _ in 0..MAX_ATTEMPTS {
            let Some(current) = self.release_store.find(scope, due_rollout.release).await? else {
                return Ok(StepResult::Skipped);
            };
            let (Some(rollout), Some(observed)) =
                (&current.release.rollout, self.advance_inputs(scope, &current).await?)
            else {
                return Ok(StepResult::Skipped);
            };
            if let Some(step_result) = self.try_step(scope, &current, rollout, &observed).await? {
                return Ok(step_result);
            }
        }
        // Concurrent changes made every attempt stale; the next round retries.
        Ok(StepResult::Skipped)
    }

    /// Attempts one step of a rollout; returns `None` if the release changed concurrently.
    async fn try_step(
        &self,
        scope: TenantScope,
        current: &ReleaseWithDeployment,
        rollout: &Rollout,
        observed: &AdvanceInputs,
    ) -> Result<Option<StepResult>, Failure> {
        if let Some(hold) = rollout.hold_reason(observed) {
            return self.record_hold(scope, current, hold).await;
        }
        if !rollout.is_due(observed) {
            return Ok(Some(StepResult::Skipped));
        }
        let trigger = AdvanceTrigger::Automatic(observed.soak_status);
        let advanced = self.advance(scope, current, trigger, &self.controller_stamp(), None).await?;
        Ok(advanced.map(|_| StepResult::Advanced))
    }

    async fn record_hold(
        &self,
        scope: TenantScope,
        current: &ReleaseWithDeployment,
        hold: HoldReason,
    ) -> Result<Option<StepResult>, Failure> {
        let Some(change) = current.release.record_hold(hold, &self.controller_stamp()) else {
            return Ok(Some(StepResult::Held));
        };
        match self.rollout_store.commit_hold(scope, change).await {
            Err(CommitError::Stale) => Ok(None),
            committed => {
                committed?;
                Ok(Some(StepResult::Held))
            }
        }
    }

    fn controller_stamp(&self) -> Stamp {
        Stamp {
            fact_id: self.context.new_id(),
            at: self.context.clock.now(),
            actor: ActorRef::system(ACTOR),
            request_id: self.context.new_id(),
        }
    }
}

/// Result of one attempt to advance a rollout.
enum StepResult {
    Advanced,
    Held,
    Skipped,
}
