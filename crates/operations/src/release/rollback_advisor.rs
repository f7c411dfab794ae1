//! The rollback advisor: a scheduled job that computes the rollback recommendation of serving releases, and records a
//! fact when a recommendation changes.

use crate::{Failure, release::Releases, rollout::rollout_config};
use fairway_domain::{
    access::ActorRef,
    audit::Stamp,
    release::{Release, ports::TenantReleaseKey, recommendation::RollbackAssessment},
    store::CommitError,
    tenant::TenantScope,
};
use std::{sync::Arc, time::Duration};

/// Interval at which a process tries to claim the next evaluation.
const CLAIM_INTERVAL: Duration = Duration::from_secs(5);
/// Number of serving releases that one query returns.
const PAGE: u32 = 200;
/// Name of the system actor that records recommendations.
const ACTOR: &str = "adviser";

/// Evaluates all serving releases in an endless loop. Processes claim each evaluation, so only one of them performs it.
pub async fn run_rollback_advisor(releases: Arc<Releases>) {
    loop {
        tokio::time::sleep(CLAIM_INTERVAL).await;
        if let Err(error) = releases.advise_when_due().await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "failed to evaluate rollback recommendations; retrying in the next evaluation, due within 15 s"
            );
        }
    }
}

impl Releases {
    async fn advise_when_due(&self) -> Result<(), Failure> {
        if self.recommendation_store.claim_recommendation_job().await? { self.advise_rollbacks().await } else { Ok(()) }
    }

    /// Evaluates every serving release once, and records changed recommendations.
    ///
    /// # Errors
    /// When the list of serving releases cannot be read.
    pub async fn advise_rollbacks(&self) -> Result<(), Failure> {
        let mut last_release = None;
        loop {
            let page = self.serving_release_store.list_serving(last_release, PAGE).await?;
            for serving_release in &page {
                if let Err(error) = self.advise_release(*serving_release).await {
                    // A failure must not stop the evaluation of other releases.
                    tracing::warn!(
                        tenant_id = %serving_release.tenant,
                        release_id = %serving_release.release,
                        error = &error as &dyn std::error::Error,
                        "failed to evaluate the rollback recommendation of a release; retrying in the next evaluation, \
                         due within 15 s"
                    );
                }
            }
            last_release = page.last().copied();
            if last_release.is_none() {
                return Ok(());
            }
        }
    }

    async fn advise_release(&self, serving_release: TenantReleaseKey) -> Result<(), Failure> {
        let scope = TenantScope::for_background_task(serving_release.tenant);
        let Some(release_with_deployment) = self.release_store.find(scope, serving_release.release).await? else {
            return Ok(());
        };
        let recommendation = self.recommend(scope, &release_with_deployment.release).await?;
        let (actor, request_id) = (ActorRef::system(ACTOR), self.context.new_id());
        let stamp = Stamp { fact_id: self.context.new_id(), at: self.context.clock.now(), actor, request_id };
        let Some(change) = release_with_deployment.release.record_recommendation(&recommendation, &stamp) else {
            return Ok(());
        };
        match self.recommendation_store.commit_recommendation(scope, change).await {
            // The release no longer serves, or another process recorded the same recommendation.
            Err(CommitError::Stale) => Ok(()),
            committed => {
                committed?;
                self.context.notify_facts();
                Ok(())
            }
        }
    }

    pub(super) async fn recommend(&self, scope: TenantScope, release: &Release) -> Result<RollbackAssessment, Failure> {
        let config = rollout_config(&self.workloads.workload_of(scope, release.workload_id).await?);
        let runs = self.serving_release_store.ended_runs(scope, release.release_id, config.sample_size()).await?;
        Ok(runs.assess_rollback(&config))
    }
}
