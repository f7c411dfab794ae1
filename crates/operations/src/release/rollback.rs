//! Rollback of releases, the documents of rollbacks, and the rollback recommendation.

use super::transition::MAX_LANE_CONFLICTS;
use crate::{Failure, MaybeReplayed, Precondition, access::Operation, idempotency::keyed_outcome, release::Releases};
use fairway_domain::{
    access::Caller,
    asset::Lifecycle,
    id::{ArtifactId, ReleaseId, WorkspaceId},
    idempotency::RequestKey,
    release::{
        ReleaseRefusal,
        lane::{Lane, LaneHistoryEntry},
        ports::ReleaseWithDeployment,
        recommendation::RollbackAssessment,
        rollback::{ReleaseEvidenceArtifact, ReturnedLane, RollbackRecord, lanes_by_recency, rollback_candidates},
    },
    slug::Slug,
    store::{CommitError, Page, PageRequest},
    tenant::TenantScope,
};
use std::collections::BTreeSet;

/// Maximum number of lane history entries in which an earlier holder is searched.
const HISTORY_LIMIT: u32 = 1_000;

/// A completed rollback.
#[derive(Clone, Debug)]
pub struct RollbackResult {
    /// The release that was rolled back, the reason, and the lanes with their restored holders.
    pub record: RollbackRecord,
    /// Identifier of the rollback's document.
    pub artifact_id: ArtifactId,
    /// Slugs of archived assets that the restored releases bind.
    pub archived: Vec<Slug>,
}

impl Releases {
    /// Rolls a release back on one lane, or on all of its lanes that have an earlier holder.
    ///
    /// # Errors
    /// In these cases: the release is not found; the caller may not roll it back; the release holds no lane; no earlier
    /// holder exists; the revision differs from the expected one.
    pub async fn roll_back_release(
        &self,
        caller: &Caller,
        id: ReleaseId,
        lane: Option<Lane>,
        reason: &str,
        expected: &Precondition,
        key: Option<&RequestKey>,
    ) -> Result<MaybeReplayed<RollbackResult>, Failure> {
        let (scope, _, release_with_deployment) =
            self.authorize_release(caller, Operation::RollBackRelease, id).await?;
        let workspace = release_with_deployment.release.workspace_id;
        self.keyed_requests
            .idempotent(
                scope,
                key,
                async || {
                    let mut current = release_with_deployment;
                    for _ in 0..MAX_LANE_CONFLICTS {
                        expected.check(current.release.revision)?;
                        // A rollback activates an earlier release, and a retired workload may not have an active
                        // release.
                        if self.is_workload_retired(scope, &current.release).await? {
                            return Err(ReleaseRefusal::WorkloadRetired.into());
                        }
                        if let Some(lane) = lane {
                            current.release.check_lane_if_active(lane, &current.deployment)?;
                        }
                        let holders = self.rollback_targets(scope, &current, lane).await?;
                        let targets: Vec<_> = holders.iter().map(|(lane, holder)| (*lane, &holder.release)).collect();
                        // The archived assets are read before the commit, because no step after the commit may fail the
                        // request.
                        let archived = self.archived_assets(scope, holders.iter().map(|(_, holder)| holder)).await?;
                        let artifact_id: ArtifactId = self.context.new_id();
                        let stamp = self.context.stamp(caller);
                        let change =
                            current.release.roll_back(&targets, &current.deployment, artifact_id, reason, &stamp)?;
                        let outcome = keyed_outcome(key, 200, artifact_id.uuid());
                        match self.deployment_store.commit_lane_change(scope, change, outcome.as_ref()).await {
                            Err(CommitError::Stale) => match expected.stale_failure() {
                                Some(failure) => return Err(failure),
                                None => {
                                    let stored = self.release_store.find(scope, id).await?;
                                    current = stored.ok_or(Failure::NotFound)?;
                                }
                            },
                            committed => {
                                committed?;
                                let returned_lane = |(lane, holder): &(Lane, ReleaseWithDeployment)| ReturnedLane {
                                    lane: *lane,
                                    rolled_back_to: holder.release.release_id,
                                };
                                let lanes = holders.iter().map(returned_lane).collect();
                                let record = RollbackRecord { release_id: id, reason: reason.to_owned(), lanes };
                                return Ok(RollbackResult { record, artifact_id, archived });
                            }
                        }
                    }
                    Err(Failure::Contended)
                },
                async |artifact| {
                    let artifact_id: ArtifactId = artifact.into();
                    let document = self.verified_document(caller, scope, workspace, id, artifact_id).await?;
                    let record: RollbackRecord = serde_json::from_str(&document.content)
                        .map_err(|_| Failure::Inconsistent("a rollback document cannot be parsed"))?;
                    let mut holders = Vec::new();
                    for returned_lane in &record.lanes {
                        holders.extend(self.release_store.find(scope, returned_lane.rolled_back_to).await?);
                    }
                    let archived = self.archived_assets(scope, holders.iter()).await?;
                    Ok(RollbackResult { record, artifact_id, archived })
                },
            )
            .await
    }

    /// Returns the lanes to roll back, the most recently taken first, each with the earlier release that receives the
    /// lane.
    async fn rollback_targets(
        &self,
        scope: TenantScope,
        current: &ReleaseWithDeployment,
        lane: Option<Lane>,
    ) -> Result<Vec<(Lane, ReleaseWithDeployment)>, Failure> {
        let ReleaseWithDeployment { release, deployment } = current;
        let (workload, environment) = (release.workload_id, &release.environment);
        let history = self.deployment_store.lane_history(scope, workload, environment, HISTORY_LIMIT).await?;
        let mut targets = Vec::new();
        for held_lane in lanes_by_recency(&history, deployment, release.release_id) {
            if lane.is_some_and(|lane| lane != held_lane) {
                continue;
            }
            if let Some(holder) = self.earlier_holder(scope, &history, held_lane, release.release_id).await? {
                targets.push((held_lane, holder));
            }
        }
        Ok(targets)
    }

    async fn earlier_holder(
        &self,
        scope: TenantScope,
        history: &[LaneHistoryEntry],
        lane: Lane,
        holder: ReleaseId,
    ) -> Result<Option<ReleaseWithDeployment>, Failure> {
        for earlier_release in rollback_candidates(history, lane, holder) {
            let stored = self.release_store.find(scope, earlier_release).await?;
            if let Some(target) = stored.filter(|stored| stored.release.is_rollback_target()) {
                return Ok(Some(target));
            }
        }
        Ok(None)
    }

    /// Returns the slugs of the archived assets that these releases bind. Archived assets do not prevent a rollback,
    /// but the response names them.
    async fn archived_assets(
        &self,
        scope: TenantScope,
        releases: impl Iterator<Item = &ReleaseWithDeployment>,
    ) -> Result<Vec<Slug>, Failure> {
        let mut archived_slugs = BTreeSet::new();
        let bound_assets: BTreeSet<_> =
            releases.flat_map(|restored| restored.release.bindings.iter().map(|binding| binding.asset_id)).collect();
        for asset in bound_assets {
            let stored = self.asset_store.find(scope, asset).await?;
            archived_slugs.extend(
                stored.filter(|asset| asset.lifecycle == Lifecycle::Archived).map(|asset| asset.into_record().slug),
            );
        }
        Ok(archived_slugs.into_iter().collect())
    }

    /// Lists the documents of a release's transitions, newest first.
    ///
    /// # Errors
    /// Not found when the caller does not see the release.
    pub async fn list_release_artifacts(
        &self,
        caller: &Caller,
        id: ReleaseId,
        page: PageRequest,
    ) -> Result<Page<ReleaseEvidenceArtifact>, Failure> {
        let (scope, _, _) = self.authorize_release(caller, Operation::ListReleaseArtifacts, id).await?;
        Ok(self.evidence_store.list_artifacts(scope, id, page).await?)
    }

    /// Returns one document of a release.
    ///
    /// # Errors
    /// Not found when the caller does not see the release, or the release has no such document; an integrity mismatch
    /// when the bytes do not match their checksum.
    pub async fn read_release_artifact(
        &self,
        caller: &Caller,
        id: ReleaseId,
        artifact: ArtifactId,
    ) -> Result<ReleaseEvidenceArtifact, Failure> {
        let (scope, _, release_with_deployment) =
            self.authorize_release(caller, Operation::ReadReleaseArtifact, id).await?;
        self.verified_document(caller, scope, release_with_deployment.release.workspace_id, id, artifact).await
    }

    /// Returns one document of a release, verified against its checksum. A mismatch is recorded as an incident before
    /// the caller receives the refusal.
    async fn verified_document(
        &self,
        caller: &Caller,
        scope: TenantScope,
        workspace: WorkspaceId,
        id: ReleaseId,
        artifact: ArtifactId,
    ) -> Result<ReleaseEvidenceArtifact, Failure> {
        let stored = self.evidence_store.find_artifact(scope, id, artifact).await?.ok_or(Failure::NotFound)?;
        match stored.verify() {
            Ok(document) => Ok(document),
            Err(mismatch) => Err(self.artifacts.record_mismatch(caller, scope, workspace, mismatch).await),
        }
    }

    /// Returns the rollback recommendation of a release, which is computed from its newest runs.
    ///
    /// # Errors
    /// Not found when the caller does not see the release.
    pub async fn rollback_recommendation(&self, caller: &Caller, id: ReleaseId) -> Result<RollbackAssessment, Failure> {
        let (scope, _, release_with_deployment) =
            self.authorize_release(caller, Operation::ReadRollbackRecommendation, id).await?;
        self.recommend(scope, &release_with_deployment.release).await
    }
}

impl RollbackResult {
    /// Returns the lane that the rolled-back release took most recently, with the release that received this lane.
    ///
    /// # Errors
    /// Never for a completed rollback, because it contains at least one lane.
    pub fn last_taken_lane(&self) -> Result<ReturnedLane, Failure> {
        self.record.lanes.first().copied().ok_or_else(|| ReleaseRefusal::NoPreviousRelease.into())
    }
}
