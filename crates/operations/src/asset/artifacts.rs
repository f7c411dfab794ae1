//! Maintenance of the artifact store: verified reads and writes, verification of every version against its artifact,
//! and garbage collection of unreferenced artifacts.

use crate::{
    Failure, Stores,
    cache::{CACHE_BYTE_LIMITS, weighted_cache},
    commit_context::CommitContext,
    services::SharedState,
};
use fairway_domain::{
    access::Caller,
    asset::{
        AssetVersion, NewVersion,
        artifact_integrity::{ArtifactOwner, IntegrityMismatch},
        artifact_maintenance::{ArtifactMaintenanceStore, VersionKey, VersionRow},
        artifact_store::{ArtifactPath, ArtifactStore, ArtifactStoreError, StoredObject},
        canonical::Checksum,
    },
    audit::AuditStore,
    id::{TenantId, WorkspaceId},
    tenant::TenantScope,
    time::Timestamp,
};
use moka::{
    ops::compute::{CompResult, Op},
    policy::EvictionPolicy,
    sync::Cache,
};
use std::{sync::Arc, time::Duration};

/// Number of version keys that one query returns. Contents are read one by one, because they can be large.
const VERSION_PAGE: u32 = 500;
/// Number of stored objects that one listing returns.
const OBJECT_PAGE: usize = 1_000;

/// A discrepancy between the row of a version, its checksum and its artifact.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Discrepancy {
    /// The row names a path that is not the version's artifact path.
    WrongPath,
    /// The row's checksum does not match its content.
    WrongChecksum,
    /// The artifact store contains no object at the path of the version.
    ArtifactMissing,
    /// The artifact differs from the content in the row.
    ArtifactDiffers,
}

impl Discrepancy {
    /// A human-readable description.
    #[must_use]
    pub const fn description(self) -> &'static str {
        match self {
            Self::WrongPath => "the row names another path",
            Self::WrongChecksum => "the row's checksum is not that of its content",
            Self::ArtifactMissing => "the artifact is missing",
            Self::ArtifactDiffers => "the artifact holds other bytes than the row",
        }
    }
}

/// The result of verifying all versions against their artifacts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VerificationReport {
    /// Number of versions that were compared.
    pub versions: u64,
    /// Each version that has discrepancies, with all of them.
    pub discrepancies: Vec<(VersionKey, Vec<Discrepancy>)>,
}

/// The result of a garbage collection in the artifact store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GarbageCollectionReport {
    /// Number of objects examined.
    pub listed: u64,
    /// Number of objects deleted.
    pub deleted: u64,
}

/// Minimum interval between two incidents about the same artifact. Each incident is a permanent fact, and a damaged
/// artifact may be read often.
const RECORD_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// The time of the last incident of each damaged artifact in this process. Other processes keep their own times, so
/// each process records at most one incident per artifact and hour.
#[derive(Clone, Debug)]
pub(crate) struct RecordedMismatches(Cache<(TenantId, ArtifactOwner), Timestamp>);

impl RecordedMismatches {
    pub(crate) fn new() -> Self {
        // LRU eviction always admits a new entry. Under a policy that rejects entries, each read of a damaged artifact
        // would record another incident.
        let cache = weighted_cache(CACHE_BYTE_LIMITS.mismatches, |_, _| 0).eviction_policy(EvictionPolicy::lru());
        Self(cache.build())
    }

    /// Returns whether a mismatch must be recorded now, and marks it as recorded.
    fn is_due(&self, scope: TenantScope, owner: ArtifactOwner, now: Timestamp) -> bool {
        let result = self.0.entry((scope.tenant(), owner)).and_compute_with(|last| match last {
            Some(last) if now < last.value().plus(RECORD_INTERVAL) => Op::Nop,
            Some(_) | None => Op::Put(now),
        });
        matches!(result, CompResult::Inserted(_) | CompResult::ReplacedWith(_))
    }

    /// Allows the next read to record the mismatch, because its fact could not be stored.
    fn forget(&self, scope: TenantScope, owner: ArtifactOwner) {
        self.0.invalidate(&(scope.tenant(), owner));
    }
}

/// Operations on the artifact store: reads, writes, verification and garbage collection.
#[derive(Clone)]
pub struct Artifacts {
    context: CommitContext,
    artifact_store: Arc<dyn ArtifactStore>,
    mismatches: RecordedMismatches,
    artifact_maintenance: Arc<dyn ArtifactMaintenanceStore>,
    audit_store: Arc<dyn AuditStore>,
}

impl Artifacts {
    /// Checks the availability of the artifact store.
    ///
    /// # Errors
    /// When the artifact store does not respond.
    pub async fn ready(&self) -> Result<(), ArtifactStoreError> {
        self.artifact_store.ready().await
    }

    pub(crate) fn new(stores: &Stores, shared: &SharedState) -> Self {
        Self {
            context: shared.context.clone(),
            artifact_store: Arc::clone(&shared.artifact_store),
            mismatches: shared.mismatches.clone(),
            artifact_maintenance: Arc::clone(&stores.artifact_maintenance),
            audit_store: Arc::clone(&stores.audit),
        }
    }
}

impl Artifacts {
    /// Stores a version's artifact. The caller stores the row afterwards, so that every row has its artifact. Garbage
    /// collection deletes an artifact whose row was never stored.
    ///
    /// # Errors
    /// When the store fails, or the path already contains other bytes. Other bytes are recorded as an incident. A retry
    /// creates another version with its own path.
    pub(crate) async fn put_artifact(
        &self,
        caller: &Caller,
        scope: TenantScope,
        workspace: WorkspaceId,
        version: &NewVersion,
    ) -> Result<(), Failure> {
        match self.artifact_store.put_if_absent(&version.artifact_ref, version.canonical.bytes().to_vec()).await {
            Ok(_) => Ok(()),
            Err(ArtifactStoreError::Conflict) => {
                Err(self.record_mismatch(caller, scope, workspace, version.path_conflict()).await)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the bytes of a version's artifact, verified against the checksum of its row. A mismatch is recorded as
    /// an incident before the caller receives the refusal.
    ///
    /// # Errors
    /// When the store fails, or the bytes do not match the checksum of the version.
    pub(crate) async fn read_artifact(
        &self,
        caller: &Caller,
        scope: TenantScope,
        workspace: WorkspaceId,
        version: &AssetVersion,
    ) -> Result<Vec<u8>, Failure> {
        match version.verify_artifact(self.artifact_store.read(&version.artifact_ref, version.artifact_len()).await?) {
            Ok(bytes) => Ok(bytes),
            Err(mismatch) => Err(self.record_mismatch(caller, scope, workspace, mismatch).await),
        }
    }

    /// Records a mismatch as an incident, at most once per hour in this process, and returns the failure for the
    /// caller. The caller never receives the bytes, even if the fact cannot be stored.
    pub(crate) async fn record_mismatch(
        &self,
        caller: &Caller,
        scope: TenantScope,
        workspace: WorkspaceId,
        mismatch: IntegrityMismatch,
    ) -> Failure {
        let (asset_id, asset_version_id, release_id, artifact_id) = match mismatch.owner {
            ArtifactOwner::Version { asset_id, asset_version_id } => {
                (Some(asset_id), Some(asset_version_id), None, None)
            }
            ArtifactOwner::Release { release_id, artifact_id } => (None, None, Some(release_id), Some(artifact_id)),
        };
        tracing::error!(
            tenant_id = %scope.tenant(),
            asset_id = asset_id.map(tracing::field::display),
            asset_version_id = asset_version_id.map(tracing::field::display),
            release_id = release_id.map(tracing::field::display),
            artifact_id = artifact_id.map(tracing::field::display),
            defect = mismatch.defect.as_str(),
            "artifact integrity mismatch; withholding the bytes and recording at most one incident per hour for this \
             artifact",
        );
        let stamp = self.context.stamp(caller);
        if !self.mismatches.is_due(scope, mismatch.owner, stamp.at) {
            return mismatch.into();
        }
        match self.audit_store.commit_fact(scope, mismatch.fact(workspace, &stamp)).await {
            Ok(()) => {
                self.context.notify_facts();
                mismatch.into()
            }
            Err(error) => {
                self.mismatches.forget(scope, mismatch.owner);
                error.into()
            }
        }
    }

    /// Compares row, checksum and artifact of every version of all tenants.
    ///
    /// # Errors
    /// When a store fails; an unreadable version never counts as verified.
    pub async fn verify_version_artifacts(&self) -> Result<VerificationReport, Failure> {
        let mut report = VerificationReport::default();
        let mut last_key = None;
        loop {
            let page = self.artifact_maintenance.versions_after(last_key, VERSION_PAGE).await?;
            let Some(last) = page.last() else { return Ok(report) };
            last_key = Some(*last);
            for version_key in page {
                let scope = TenantScope::for_background_task(version_key.tenant_id);
                // Versions are never deleted. The row can be missing only if an operator restores the database at the
                // same time.
                let Some(row) = self.artifact_maintenance.find_row(scope, version_key.asset_version_id).await? else {
                    continue;
                };
                let discrepancies = self.discrepancies(version_key, &row).await?;
                report.versions = report.versions.saturating_add(1);
                if !discrepancies.is_empty() {
                    report.discrepancies.push((version_key, discrepancies));
                }
            }
        }
    }

    async fn discrepancies(&self, version_key: VersionKey, row: &VersionRow) -> Result<Vec<Discrepancy>, Failure> {
        let path = ArtifactPath::of_version(row.asset_id.into(), version_key.asset_version_id);
        let mut discrepancies = Vec::new();
        if row.artifact_ref != path.as_str() {
            discrepancies.push(Discrepancy::WrongPath);
        }
        if Checksum::blake3_of(row.content.as_bytes()).as_str() != row.checksum {
            discrepancies.push(Discrepancy::WrongChecksum);
        }
        match self.artifact_store.read(&path, row.content.len()).await? {
            None => discrepancies.push(Discrepancy::ArtifactMissing),
            Some(stored) if !stored.is_equal_to(row.content.as_bytes()) => {
                discrepancies.push(Discrepancy::ArtifactDiffers)
            }
            Some(_) => {}
        }
        Ok(discrepancies)
    }

    /// Collects garbage unless another process did so recently.
    ///
    /// # Errors
    /// As [`Self::collect_garbage`].
    pub async fn collect_garbage_when_due(&self) -> Result<Option<GarbageCollectionReport>, Failure> {
        if self.artifact_maintenance.claim_sweep().await? { self.collect_garbage().await.map(Some) } else { Ok(None) }
    }

    /// Deletes unreferenced version contents that are older than a day. They remain from requests that stored an
    /// artifact but did not store its row.
    ///
    /// # Errors
    /// When a store fails, or when the artifact store belongs to another installation. Collection would then delete all
    /// its objects, because this database references none of them.
    pub async fn collect_garbage(&self) -> Result<GarbageCollectionReport, Failure> {
        self.verify_installation().await?;
        let mut report = GarbageCollectionReport::default();
        let mut listing = self.artifact_store.list(ArtifactPath::VERSION_PREFIX);
        loop {
            let page = listing.next(OBJECT_PAGE).await?;
            if page.is_empty() {
                return Ok(report);
            }
            report.listed = report.listed.saturating_add(u64::try_from(page.len()).unwrap_or(0));
            for StoredObject { path, .. } in self.artifact_maintenance.find_orphans(page).await? {
                let Some((asset, version)) = ArtifactPath::parse_version(&path) else { continue };
                self.artifact_store.remove(&ArtifactPath::of_version(asset, version)).await?;
                report.deleted = report.deleted.saturating_add(1);
            }
        }
    }

    /// Writes this installation's identifier into the artifact store, or compares it with the stored identifier.
    async fn verify_installation(&self) -> Result<(), Failure> {
        let installation_id = self.artifact_maintenance.installation_id().await?.to_string();
        match self.artifact_store.put_if_absent(&ArtifactPath::of_installation(), installation_id.into_bytes()).await {
            Ok(_) => Ok(()),
            Err(ArtifactStoreError::Conflict) => {
                Err(Failure::Inconsistent("the artifact store belongs to another installation; nothing is deleted"))
            }
            Err(error) => Err(error.into()),
        }
    }
}
