//! The artifact store against the books: verified reads and writes, verifying every version, and taking away what no row
//! names.

use crate::{
    Failure, Services,
    cache::{MAX_BYTES, weighed},
};
use fairway_domain::{
    access::Caller,
    asset::{
        AssetVersion, NewVersion,
        canonical::Checksum,
        integrity::{ArtifactOwner, IntegrityMismatch},
        ledger::{BookedVersion, VersionRow},
        ports::{ArtifactError, ArtifactPath, StoredObject},
    },
    id::{TenantId, WorkspaceId},
    tenant::TenantScope,
    time::Timestamp,
};
use moka::{
    ops::compute::{CompResult, Op},
    policy::EvictionPolicy,
    sync::Cache,
};
use std::time::Duration;

/// Versions that are looked up at once. Contents are read one by one: they can be large.
const PORTION: u32 = 500;
/// Stored objects that are looked up at once.
const OBJECTS: usize = 1_000;

/// What is wrong with a version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Discrepancy {
    /// The row names another place than the version's.
    WrongPath,
    /// The row's checksum is not that of its content.
    WrongChecksum,
    /// Nothing lies where the artifact should.
    ArtifactMissing,
    /// Other bytes lie there than the row's content.
    ArtifactDiffers,
}

impl Discrepancy {
    /// The same for people.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::WrongPath => "the row names another path",
            Self::WrongChecksum => "the row's checksum is not that of its content",
            Self::ArtifactMissing => "the artifact is missing",
            Self::ArtifactDiffers => "the artifact holds other bytes than the row",
        }
    }
}

/// What verifying found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Verified {
    /// Versions that were compared.
    pub versions: u64,
    /// Those of them with something wrong, each with everything that is.
    pub wrong: Vec<(BookedVersion, Vec<Discrepancy>)>,
}

/// What a sweep did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Swept {
    /// Objects that were looked at.
    pub seen: u64,
    /// Those that were taken away.
    pub removed: u64,
}

/// How long a mismatch of an artifact is not recorded again. A damaged artifact is read as often as its readers like, and each
/// fact is an incident and stays for ever.
const RECORDED_FOR: Duration = Duration::from_secs(60 * 60);

/// When this process last recorded the mismatch of each damaged artifact. Each server counts for itself: no statement is sent
/// for a read whose mismatch is known, and an installation records each at most once per server and hour.
#[derive(Clone, Debug)]
pub(crate) struct RecordedMismatches(Cache<(TenantId, ArtifactOwner), Timestamp>);

impl RecordedMismatches {
    pub(crate) fn new() -> Self {
        // By age: one that is read for the first time must not be refused its place, or each read of it would be recorded.
        let cache = weighed(MAX_BYTES.mismatches, |_, _| 0).eviction_policy(EvictionPolicy::lru());
        Self(cache.build())
    }

    /// Whether a mismatch is to be recorded now. It counts as recorded from then on.
    fn is_due(&self, (scope, owner): (TenantScope, ArtifactOwner), now: Timestamp) -> bool {
        let noted = self.0.entry((scope.tenant(), owner)).and_compute_with(|last| match last {
            Some(last) if now < last.value().after(RECORDED_FOR) => Op::Nop,
            Some(_) | None => Op::Put(now),
        });
        matches!(noted, CompResult::Inserted(_) | CompResult::ReplacedWith(_))
    }

    /// Lets the next read record a mismatch that could not be stored.
    fn forget(&self, (scope, owner): (TenantScope, ArtifactOwner)) {
        self.0.invalidate(&(scope.tenant(), owner));
    }
}

impl Services {
    /// Stores a version's artifact before its row, so that a reader never meets a row without its artifact. An artifact
    /// without a row is swept.
    ///
    /// # Errors
    /// When the store does not answer, or the path holds other bytes, which is recorded as [`Self::read_artifact`] does.
    /// Another attempt makes another version with a path of its own.
    pub(crate) async fn put_artifact(
        &self,
        caller: &Caller,
        (scope, workspace): (TenantScope, WorkspaceId),
        version: &NewVersion,
    ) -> Result<(), Failure> {
        match self.artifacts.put_if_absent(&version.artifact_ref, version.canonical.bytes().to_vec()).await {
            Ok(_) => Ok(()),
            Err(ArtifactError::Conflict) => {
                Err(self.record_mismatch(caller, (scope, workspace), version.occupied()).await)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The bytes of a version's artifact, verified against the checksum of its row. A mismatch becomes a fact, which is an
    /// incident, before the caller gets its refusal.
    ///
    /// # Errors
    /// When the store does not answer, or its bytes are not those of the version.
    pub(crate) async fn read_artifact(
        &self,
        caller: &Caller,
        (scope, workspace): (TenantScope, WorkspaceId),
        version: &AssetVersion,
    ) -> Result<Vec<u8>, Failure> {
        match version.verify_artifact(self.artifacts.read(&version.artifact_ref, version.artifact_len()).await?) {
            Ok(bytes) => Ok(bytes),
            Err(mismatch) => Err(self.record_mismatch(caller, (scope, workspace), mismatch).await),
        }
    }

    /// Records a mismatch, unless this process did so within the hour; answers with the failure to return. The bytes are withheld
    /// even if the fact cannot be stored.
    pub(crate) async fn record_mismatch(
        &self,
        caller: &Caller,
        (scope, workspace): (TenantScope, WorkspaceId),
        mismatch: IntegrityMismatch,
    ) -> Failure {
        tracing::error!(
            tenant_id = %scope.tenant(),
            owner = ?mismatch.owner,
            defect = mismatch.defect.as_str(),
            "artifact integrity mismatch; withholding the bytes and recording an incident",
        );
        let stamp = self.stamp(caller);
        if !self.mismatches.is_due((scope, mismatch.owner), stamp.at) {
            return mismatch.into();
        }
        match self.stores.audit.commit_alone(scope, mismatch.fact(workspace, &stamp)).await {
            Ok(()) => {
                self.wake.facts();
                mismatch.into()
            }
            Err(error) => {
                self.mismatches.forget((scope, mismatch.owner));
                error.into()
            }
        }
    }

    /// Compares every version's row, checksum and artifact, over all tenants.
    ///
    /// # Errors
    /// When a store does not answer; what could not be read is never called sound.
    pub async fn verify_artifacts(&self) -> Result<Verified, Failure> {
        let mut verified = Verified::default();
        let mut behind = None;
        loop {
            let portion = self.stores.ledger.versions(behind, PORTION).await?;
            let Some(last) = portion.last() else { return Ok(verified) };
            behind = Some(*last);
            for booked in portion {
                let scope = TenantScope::for_relay(booked.tenant_id);
                // Versions never go away, but a whole database may be restored meanwhile.
                let Some(row) = self.stores.ledger.row(scope, booked.asset_version_id).await? else { continue };
                let wrong = self.discrepancies(booked, &row).await?;
                verified.versions = verified.versions.saturating_add(1);
                if !wrong.is_empty() {
                    verified.wrong.push((booked, wrong));
                }
            }
        }
    }

    async fn discrepancies(&self, booked: BookedVersion, row: &VersionRow) -> Result<Vec<Discrepancy>, Failure> {
        let path = ArtifactPath::of_version(row.asset_id.into(), booked.asset_version_id);
        let mut wrong = Vec::new();
        if row.artifact_ref != path.as_str() {
            wrong.push(Discrepancy::WrongPath);
        }
        if Checksum::of(row.content.as_bytes()).as_str() != row.checksum {
            wrong.push(Discrepancy::WrongChecksum);
        }
        match self.artifacts.read(&path, row.content.len()).await? {
            None => wrong.push(Discrepancy::ArtifactMissing),
            Some(stored) if !stored.is_equal_to(row.content.as_bytes()) => wrong.push(Discrepancy::ArtifactDiffers),
            Some(_) => {}
        }
        Ok(wrong)
    }

    /// Sweeps if no process has lately.
    ///
    /// # Errors
    /// As [`Self::sweep_artifacts`].
    pub async fn sweep_when_due(&self) -> Result<Option<Swept>, Failure> {
        if self.stores.ledger.claim_sweep().await? { self.sweep_artifacts().await.map(Some) } else { Ok(None) }
    }

    /// Takes contents of versions away that no row names and that have lain for more than a day: what is left of
    /// requests that ended between their two stores.
    ///
    /// # Errors
    /// When a store does not answer, or the artifact store belongs to another installation: by these books everything
    /// in it would be waste.
    pub async fn sweep_artifacts(&self) -> Result<Swept, Failure> {
        self.claim_store().await?;
        let mut swept = Swept::default();
        let mut walk = self.artifacts.walk(ArtifactPath::VERSIONS);
        loop {
            let portion = walk.next(OBJECTS).await?;
            if portion.is_empty() {
                return Ok(swept);
            }
            swept.seen = swept.seen.saturating_add(u64::try_from(portion.len()).unwrap_or(0));
            for StoredObject { path, .. } in self.stores.ledger.orphans(portion).await? {
                let Some((asset, version)) = ArtifactPath::version_at(&path) else { continue };
                self.artifacts.remove(&ArtifactPath::of_version(asset, version)).await?;
                swept.removed = swept.removed.saturating_add(1);
            }
        }
    }

    /// Writes this installation's name into the store, or finds it there.
    async fn claim_store(&self) -> Result<(), Failure> {
        let name = self.stores.ledger.installation().await?.to_string();
        match self.artifacts.put_if_absent(&ArtifactPath::of_owner(), name.into_bytes()).await {
            Ok(_) => Ok(()),
            Err(ArtifactError::Conflict) => {
                Err(Failure::Corrupt("the artifact store belongs to another installation; nothing is swept"))
            }
            Err(error) => Err(error.into()),
        }
    }
}
