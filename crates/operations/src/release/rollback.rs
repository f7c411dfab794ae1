//! Taking a release back, the documents that tell it, and the advice to do so.

use crate::{Done, Failure, Services, access::Operation, once::keyed};
use fairway_domain::{
    access::Caller,
    asset::Lifecycle,
    id::{ArtifactId, ReleaseId},
    idempotency::RequestKey,
    release::{
        ReleaseRefusal, State,
        lane::{Lane, LaneMoved},
        ports::PlacedRelease,
        recommendation::Recommendation,
        rollback::{LaneReturned, ReleaseArtifact, RollbackRecord, earlier_holders, lanes_by_age},
    },
    slug::Slug,
    store::{CommitError, Listed, Paging},
    tenant::TenantScope,
};
use std::collections::BTreeSet;

/// Moves of each lane that are looked through for earlier holders.
const LOOKED_THROUGH: u32 = 1_000;
/// How often a rollback is decided again after a lane moved meanwhile.
const LOST_GUARDS: usize = 100;

/// A rollback made.
#[derive(Clone, Debug)]
pub struct RolledBack {
    /// The release that was taken back, and from which lanes.
    pub record: RollbackRecord,
    /// The document that tells it.
    pub artifact_id: ArtifactId,
    /// Archived assets that are in use again.
    pub archived: Vec<Slug>,
}

impl Services {
    /// Takes a release back from one lane, or from all that it holds and that somebody held before it.
    ///
    /// # Errors
    /// When it is not found, the caller may not, it holds no lanes, or there is nobody to go back to.
    pub async fn roll_back_release(
        &self,
        caller: &Caller,
        id: ReleaseId,
        (lane, reason): (Option<Lane>, &str),
        key: Option<&RequestKey>,
    ) -> Result<Done<RolledBack>, Failure> {
        let (scope, _, first) = self.enter_release(caller, Operation::RollBackRelease, id).await?;
        self.once(
            scope,
            key,
            async || {
                let mut seen = first;
                for _ in 0..LOST_GUARDS {
                    let (lanes, holders) = self.way_back(scope, &seen, lane).await?;
                    let superseded: BTreeSet<ReleaseId> = holders
                        .iter()
                        .filter(|holder| matches!(holder.release.state, State::Superseded { .. }))
                        .map(|holder| holder.release.release_id)
                        .collect();
                    let superseded: Vec<ReleaseId> = superseded.into_iter().collect();
                    let artifact_id: ArtifactId = self.id();
                    let stamp = self.stamp(caller);
                    let told = (artifact_id, reason);
                    let change = seen.release.roll_back(&lanes, &superseded, &seen.deployment, told, &stamp)?;
                    let outcome = keyed(key, 200, artifact_id.uuid());
                    match self.stores.releases.commit_deployment(scope, change, outcome.as_ref()).await {
                        Err(CommitError::Stale) => {
                            let found = self.stores.releases.find(scope, id).await?;
                            seen = found.ok_or(Failure::NotFound)?;
                        }
                        committed => {
                            committed?;
                            let record = RollbackRecord { release_id: id, reason: reason.to_owned(), lanes };
                            let archived = self.archived(scope, &holders).await?;
                            return Ok(RolledBack { record, artifact_id, archived });
                        }
                    }
                }
                Err(Failure::Contended)
            },
            async |artifact| {
                let artifact_id: ArtifactId = artifact.into();
                let kept = self.stores.releases.find_artifact(scope, id, artifact_id).await?;
                let kept = kept.ok_or(Failure::NotFound)?;
                let record: RollbackRecord = serde_json::from_str(&kept.content)
                    .map_err(|_| Failure::Corrupt("a document of a rollback that tells none"))?;
                let mut holders = Vec::new();
                for back in &record.lanes {
                    holders.extend(self.stores.releases.find(scope, back.rolled_back_to).await?);
                }
                let archived = self.archived(scope, &holders).await?;
                Ok(RolledBack { record, artifact_id, archived })
            },
        )
        .await
    }

    /// The lanes that go back, the one that the release took last first, and the releases that hold them again.
    async fn way_back(
        &self,
        scope: TenantScope,
        seen: &PlacedRelease,
        lane: Option<Lane>,
    ) -> Result<(Vec<LaneReturned>, Vec<PlacedRelease>), Failure> {
        let PlacedRelease { release, deployment } = seen;
        let (workload, environment) = (release.workload_id, &release.environment);
        let moves = self.stores.releases.lane_history(scope, workload, environment, LOOKED_THROUGH).await?;
        let (mut lanes, mut holders) = (Vec::new(), Vec::new());
        for held in lanes_by_age(&moves, deployment, release.release_id) {
            if lane.is_some_and(|lane| lane != held) {
                continue;
            }
            if let Some(holder) = self.earlier_holder(scope, &moves, held, release.release_id).await? {
                lanes.push(LaneReturned { lane: held, rolled_back_to: holder.release.release_id });
                holders.push(holder);
            }
        }
        Ok((lanes, holders))
    }

    async fn earlier_holder(
        &self,
        scope: TenantScope,
        moves: &[LaneMoved],
        lane: Lane,
        holder: ReleaseId,
    ) -> Result<Option<PlacedRelease>, Failure> {
        for earlier in earlier_holders(moves, lane, holder) {
            let found = self.stores.releases.find(scope, earlier).await?;
            let able = |placed: &PlacedRelease| {
                matches!(placed.release.state, State::Superseded { .. } | State::Active { .. })
            };
            if let Some(placed) = found.filter(able) {
                return Ok(Some(placed));
            }
        }
        Ok(None)
    }

    /// Archived assets that these releases bind. They stop no way back.
    async fn archived(&self, scope: TenantScope, releases: &[PlacedRelease]) -> Result<Vec<Slug>, Failure> {
        let mut archived = BTreeSet::new();
        let bound: BTreeSet<_> =
            releases.iter().flat_map(|placed| placed.release.bindings.iter().map(|binding| binding.asset_id)).collect();
        for asset in bound {
            let found = self.stores.assets.find(scope, asset).await?;
            archived.extend(found.filter(|asset| asset.lifecycle == Lifecycle::Archived).map(|asset| asset.slug));
        }
        Ok(archived.into_iter().collect())
    }

    /// Documents that stand behind moves of a release, newest first.
    ///
    /// # Errors
    /// Not found when the caller does not see the release.
    pub async fn list_release_artifacts(
        &self,
        caller: &Caller,
        id: ReleaseId,
        page: Paging,
    ) -> Result<Listed<ReleaseArtifact>, Failure> {
        let (scope, _, _) = self.enter_release(caller, Operation::ListReleaseArtifacts, id).await?;
        Ok(self.stores.releases.list_artifacts(scope, id, page).await?)
    }

    /// One such document.
    ///
    /// # Errors
    /// Not found when the caller does not see the release, or it has no such document.
    pub async fn read_release_artifact(
        &self,
        caller: &Caller,
        id: ReleaseId,
        artifact: ArtifactId,
    ) -> Result<ReleaseArtifact, Failure> {
        let (scope, _, _) = self.enter_release(caller, Operation::ReadReleaseArtifact, id).await?;
        self.stores.releases.find_artifact(scope, id, artifact).await?.ok_or(Failure::NotFound)
    }

    /// Whether the newest runs of a release speak for taking it back.
    ///
    /// # Errors
    /// Not found when the caller does not see the release.
    pub async fn rollback_recommendation(&self, caller: &Caller, id: ReleaseId) -> Result<Recommendation, Failure> {
        let (scope, _, placed) = self.enter_release(caller, Operation::ReadRollbackRecommendation, id).await?;
        let workload = self.stores.workloads.find(scope, placed.release.workload_id).await?;
        let workload = workload.ok_or(Failure::Corrupt("a release without a workload"))?;
        let config = workload.interface_config.map(|interface| interface.rollout_config()).unwrap_or_default();
        let runs = self.stores.releases.ended_runs(scope, id, config.sample_size()).await?;
        Ok(runs.judge(&config))
    }
}

impl RolledBack {
    /// The lane that the release took last, and who holds it again.
    ///
    /// # Errors
    /// Never for a rollback that was made: it has a lane.
    pub fn newest(&self) -> Result<LaneReturned, Failure> {
        self.record.lanes.first().copied().ok_or_else(|| ReleaseRefusal::NoPreviousRelease.into())
    }
}
