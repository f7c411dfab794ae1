//! Rollouts: the advance of a release to its next lane, and the observations that decide whether it advances.

mod rollout_controller;

use crate::{
    Failure, MaybeReplayed, Precondition, Stores,
    access::Operation,
    commit_context::CommitContext,
    idempotency::{KeyedRequests, keyed_outcome},
    release::{CheckScope, MAX_LANE_CONFLICTS, Releases},
    services::{CommonOperations, SharedState},
    workload::Workloads,
};
use fairway_domain::{
    access::Caller,
    audit::Stamp,
    id::ReleaseId,
    idempotency::{KeyedOutcome, RequestKey},
    release::{
        ReleaseRefusal,
        advance_rollout::AdvanceTrigger,
        lane::Lane,
        ports::{DeploymentStore, ReleaseStore, ReleaseWithDeployment, ServingReleaseStore},
    },
    rollout::{AdvanceInputs, Rollout, SoakStatus, ports::RolloutStore},
    store::{CommitError, Revision},
    tenant::TenantScope,
    workload::{Workload, interface::RollbackThresholds},
};
pub use rollout_controller::{RoundResult, StopReason, run_rollout_controller};
use std::sync::Arc;

/// Result of an advance of a rollout.
#[derive(Clone, Debug)]
pub struct AdvanceResult {
    /// The rollout after the step.
    pub rollout: Rollout,
    /// The lane on which the release now soaks; `None` when the rollout is completed.
    pub to: Option<Lane>,
    /// The revision of the release after the step.
    pub revision: Revision,
}

/// A rollout with the observations about it.
#[derive(Clone, Debug)]
pub struct RolloutReport {
    /// The release that the rollout advances.
    pub release_id: ReleaseId,
    /// The state of the rollout.
    pub rollout: Rollout,
    /// The observations that the rollout controller would evaluate now; `None` if the rollout is no longer in progress.
    pub observed: Option<AdvanceInputs>,
}

impl AdvanceResult {
    fn of(rollout: Option<Rollout>, revision: Revision) -> Result<Self, Failure> {
        let rollout = rollout.ok_or(Failure::Inconsistent("a rollout that advanced is missing"))?;
        let to = rollout.is_in_progress().then(|| rollout.current_lane());
        Ok(Self { rollout, to, revision })
    }
}

/// Operations on rollouts, including those of the rollout controller.
#[derive(Clone)]
pub struct Rollouts {
    context: CommitContext,
    release_store: Arc<dyn ReleaseStore>,
    deployment_store: Arc<dyn DeploymentStore>,
    serving_release_store: Arc<dyn ServingReleaseStore>,
    rollout_store: Arc<dyn RolloutStore>,
    keyed_requests: Arc<KeyedRequests>,
    workloads: Arc<Workloads>,
    releases: Arc<Releases>,
}

impl Rollouts {
    pub(crate) fn new(
        stores: &Stores,
        shared: &SharedState,
        common: &CommonOperations,
        workloads: &Arc<Workloads>,
        releases: &Arc<Releases>,
    ) -> Self {
        Self {
            context: shared.context.clone(),
            release_store: Arc::clone(&stores.releases),
            deployment_store: Arc::clone(&stores.deployments),
            serving_release_store: Arc::clone(&stores.serving_releases),
            rollout_store: Arc::clone(&stores.rollouts),
            keyed_requests: Arc::clone(&common.keyed_requests),
            workloads: Arc::clone(workloads),
            releases: Arc::clone(releases),
        }
    }
}

impl Rollouts {
    /// Takes the next lane of a rollout, or completes the rollout. A person may do this before the soak of the current
    /// lane has ended.
    ///
    /// # Errors
    /// In these cases: the release is not found; the caller may not advance it; the revision differs from the expected
    /// one; the rollout is not in progress; the release may take no further lane. One of two concurrent requests is
    /// refused, so that no lane is skipped.
    pub async fn advance_rollout(
        &self,
        caller: &Caller,
        id: ReleaseId,
        expected: &Precondition,
        key: Option<&RequestKey>,
    ) -> Result<MaybeReplayed<AdvanceResult>, Failure> {
        let (scope, _, release_with_deployment) =
            self.releases.authorize_release(caller, Operation::AdvanceRollout, id).await?;
        self.keyed_requests
            .idempotent(
                scope,
                key,
                async || {
                    let requested = release_with_deployment.release.rollout.clone();
                    let mut current = release_with_deployment;
                    for _ in 0..MAX_LANE_CONFLICTS {
                        expected.check(current.release.revision)?;
                        let record = self.read_soak_status(scope, &current).await?;
                        let outcome = keyed_outcome(key, 200, id.uuid());
                        let stamp = self.context.stamp(caller);
                        match self
                            .advance(scope, &current, AdvanceTrigger::Manual(record), &stamp, outcome.as_ref())
                            .await?
                        {
                            Some(advanced) => return Ok(advanced),
                            None => match expected.stale_failure() {
                                Some(failure) => return Err(failure),
                                None => current = self.reload_at_step(scope, id, requested.as_ref()).await?,
                            },
                        }
                    }
                    Err(Failure::Contended)
                },
                async |_| {
                    let release = self.releases.read_release(caller, id).await?.release;
                    AdvanceResult::of(release.rollout.clone(), release.revision)
                },
            )
            .await
    }

    /// Returns the rollout of a release with the observations about it.
    ///
    /// # Errors
    /// Not found when the caller does not see the release, or the release never had a rollout.
    pub async fn read_rollout(&self, caller: &Caller, id: ReleaseId) -> Result<RolloutReport, Failure> {
        let (scope, _, release_with_deployment) =
            self.releases.authorize_release(caller, Operation::ReadRollout, id).await?;
        let rollout = release_with_deployment.release.rollout.clone().ok_or(Failure::NotFound)?;
        let observed =
            if rollout.is_in_progress() { self.advance_inputs(scope, &release_with_deployment).await? } else { None };
        Ok(RolloutReport { release_id: id, rollout, observed })
    }

    /// Attempts once to advance; returns `None` if the lanes or the release changed concurrently.
    async fn advance(
        &self,
        scope: TenantScope,
        current: &ReleaseWithDeployment,
        advance: AdvanceTrigger,
        stamp: &Stamp,
        key: Option<&KeyedOutcome>,
    ) -> Result<Option<AdvanceResult>, Failure> {
        let report = self.releases.activation_report(scope, &current.release, CheckScope::Decisive).await?;
        let rule = self.releases.approval_rule(scope, &current.release).await?;
        let change = current.release.advance(advance, &current.deployment, &report, rule, stamp)?;
        let (rollout, revision) = (change.release.rollout.clone(), change.release.revision);
        match self.deployment_store.commit_lane_change(scope, change, key).await {
            Err(CommitError::Stale) => Ok(None),
            committed => {
                let soak_start = committed?;
                AdvanceResult::of(rollout.map(|rollout| rollout.with_soak_start(soak_start)), revision).map(Some)
            }
        }
    }

    /// Returns the current release if its rollout is still at the requested step; otherwise refuses.
    async fn reload_at_step(
        &self,
        scope: TenantScope,
        id: ReleaseId,
        requested: Option<&Rollout>,
    ) -> Result<ReleaseWithDeployment, Failure> {
        let release_with_deployment = self.release_store.find(scope, id).await?.ok_or(Failure::NotFound)?;
        let progress = |rollout: &Rollout| (rollout.status, rollout.since_revision);
        let current_rollout = release_with_deployment.release.rollout.as_ref();
        if current_rollout.is_some_and(Rollout::is_in_progress)
            && current_rollout.map(progress) != requested.map(progress)
        {
            let (from, valid) = (
                release_with_deployment.release.state.name(),
                release_with_deployment.release.valid_transitions(&release_with_deployment.deployment),
            );
            return Err(ReleaseRefusal::InvalidTransition { from, valid }.into());
        }
        Ok(release_with_deployment)
    }

    async fn read_soak_status(
        &self,
        scope: TenantScope,
        current: &ReleaseWithDeployment,
    ) -> Result<SoakStatus, Failure> {
        let sample_size =
            rollout_config(&self.workloads.workload_of(scope, current.release.workload_id).await?).sample_size();
        let record = self.rollout_store.soak_status(scope, current.release.release_id, sample_size).await?;
        record.ok_or_else(|| ReleaseRefusal::RolloutNotInProgress.into())
    }

    /// Returns the observations of a rollout; `None` if the rollout is no longer in progress.
    async fn advance_inputs(
        &self,
        scope: TenantScope,
        current: &ReleaseWithDeployment,
    ) -> Result<Option<AdvanceInputs>, Failure> {
        let release = &current.release;
        let workload = self.workloads.workload_of(scope, release.workload_id).await?;
        let config = rollout_config(&workload);
        let sample_size = config.sample_size();
        let Some(soak_status) = self.rollout_store.soak_status(scope, release.release_id, sample_size).await? else {
            return Ok(None);
        };
        let runs = self.serving_release_store.ended_runs(scope, release.release_id, sample_size).await?;
        let report = self.releases.activation_report(scope, release, CheckScope::Decisive).await?;
        let rule = self.releases.approval_rule(scope, release).await?;
        let gates = release.evaluate_next_lane_gates(&report, rule);
        Ok(Some(AdvanceInputs::new(soak_status, runs.assess_rollback(&config), gates, workload.status, &config)))
    }
}

/// Returns the rollout settings of a workload; defaults replace settings that it lacks.
pub(crate) fn rollout_config(workload: &Workload) -> RollbackThresholds {
    workload.interface_config.as_ref().map(|interface| interface.rollback_thresholds()).unwrap_or_default()
}
