//! The ports that store runs, their leases, events and evidence.

use super::{
    Acceptance, Execution, FinishRecord, Payload, Status, StepRow,
    dispatch::{CancelLease, CancelOutcome, Claim, ClaimedRun, LeaseRef, QueuedStart, StartOutcome},
    progress::ProgressRecord,
    usage::{ListedExecution, RunUsageSummary},
};
use crate::{
    access::{ActorRef, rights::VisibleScopes},
    evidence::{
        EvidenceArtifactWithContent, EvidenceSnapshot, RunEvidence, StoredEvidenceArtifact,
        lineage::{LineageFilter, LineagePage},
    },
    id::{ApprovalId, ArtifactId, ExecutionId, ReleaseId, WorkloadId, WorkspaceId},
    idempotency::{KeyedOutcome, RequestKey},
    release::{deployment::Deployment, lane::Lane},
    slug::Slug,
    store::{CommitError, Page, PageRequest, Revision, StoreError},
    tenant::TenantScope,
    time::Timestamp,
    workload::Workload,
};
use async_trait::async_trait;
use uuid::Uuid;

/// The revisions on which the decision to accept a run depends. If one of them changed, the caller decides again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExpectedRevisions {
    /// The deployment's revision, which covers the lane holders.
    pub deployment: Revision,
    /// The workload's revision, which covers its status.
    pub workload: Revision,
    /// The tenant's access revision, which covers roles and bindings.
    pub access: Revision,
}

/// A workload, and the releases that hold its lanes in one environment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkloadWithDeployment {
    /// The workload that the caller named.
    pub workload: Workload,
    /// The lane holders in the environment; `None` if no release was ever activated there.
    pub deployment: Option<Deployment>,
}

/// Selects the runs with expired leases that this process ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LapsedFilter {
    /// All such runs, because no worker exists that could resume them.
    All,
    /// Only scripts, because workers resume all other runs.
    Scripts,
}

/// The work that a run did when its lease expired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LapsedWork {
    /// The run executed steps.
    Steps,
    /// The run awaited a script. The runtime gateway may have received the script or not.
    Script,
}

/// A run with an expired lease, and the data that its end requires.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LapsedRun {
    /// The tenant to which the run belongs.
    pub scope: TenantScope,
    /// The stored record of the run.
    pub execution: Execution,
    /// The salted BLAKE3 digest of the run's inputs.
    pub input_digest: [u8; 32],
    /// The fencing token under which this process now holds the lease.
    pub lease: Uuid,
    /// The work that the run did when its lease expired.
    pub work: LapsedWork,
    /// Whether the deadline of the run has passed.
    pub is_past_deadline: bool,
    /// The actor that requested cancellation of the run, if any.
    pub cancelled_by: Option<ActorRef>,
    /// The owner of the workload, if a policy decision imposed `notify_owner` on the run.
    pub owner_to_notify: Option<String>,
}

/// The state of a lease, as its renewal returns it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LeaseState {
    /// The caller holds the lease, and the workload accepts runs.
    Held,
    /// The caller holds the lease, and an actor requested cancellation.
    Cancelled(ActorRef),
    /// The caller holds the lease, and the workload was suspended or retired.
    WorkloadStopped,
    /// The caller no longer holds the lease: another holder acquired it, or the run ended.
    Lost,
}

/// The result of a commit that accepts a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AcceptOutcome {
    /// The commit stored the run.
    Accepted,
    /// A request with the same idempotency key was already committed, so nothing was stored.
    DuplicateKey,
    /// The share link no longer admits runs, so nothing was stored.
    LinkClosed,
    /// A revision changed since the decision, so nothing was stored.
    Stale,
    /// The tenant has its maximum number of queued runs, so nothing was stored.
    QueueFull,
}

/// The conditions of a list of runs. A run must meet all that are set.
#[derive(Clone, Debug, Default)]
pub struct ExecutionFilter {
    /// Only runs of this workload.
    pub workload: Option<WorkloadId>,
    /// Only runs that this release serves.
    pub release: Option<ReleaseId>,
    /// Only runs with this status.
    pub status: Option<Status>,
    /// Only runs in this environment.
    pub environment: Option<Slug>,
    /// Only runs on this lane.
    pub lane: Option<Lane>,
    /// Only runs that ended with this error code.
    pub error_code: Option<String>,
    /// Only runs of this submitter.
    pub submitter: Option<ActorRef>,
    /// Only runs whose identifier was created at or after this time, to the millisecond.
    pub since: Option<Timestamp>,
    /// Only runs whose identifier was created before this time, to the millisecond.
    pub until: Option<Timestamp>,
    /// Only runs within these scopes, which the caller may see; `None` covers the whole tenant.
    pub visible_scopes: Option<VisibleScopes>,
}

/// The position of a run in the tenant, and its submitter. Access checks need only these.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunLocation {
    /// The workspace of the run's workload.
    pub workspace: WorkspaceId,
    /// The workload that the run executes.
    pub workload: WorkloadId,
    /// The actor to whom the run is attributed.
    pub submitter: ActorRef,
}

/// A stored run, without its answer if the answer is large.
#[derive(Clone, PartialEq, Debug)]
pub struct StoredRun {
    /// The stored run. It contains the answer if that is still stored and not large.
    pub execution: Execution,
    /// Whether a stored answer was left out because it is large.
    pub is_output_omitted: bool,
}

/// One page of the progress records of a run.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct EventPage {
    /// The records of the page, by position.
    pub records: Vec<ProgressRecord>,
    /// Whether a further page may contain records.
    pub has_more: bool,
}

/// Reads stored runs and their evidence.
#[async_trait]
pub trait ExecutionReadStore: Send + Sync {
    /// Finds a run, with its answer while that is stored.
    async fn find(&self, scope: TenantScope, id: ExecutionId) -> Result<Option<Execution>, StoreError>;
    /// Finds a run, without its answer if the answer is large.
    async fn find_state(&self, scope: TenantScope, id: ExecutionId) -> Result<Option<StoredRun>, StoreError>;
    /// Finds the workspace, the workload and the submitter of a run.
    async fn location(&self, scope: TenantScope, id: ExecutionId) -> Result<Option<RunLocation>, StoreError>;
    /// Lists one page of the lineage of a run, newest item first.
    async fn lineage(
        &self,
        scope: TenantScope,
        id: ExecutionId,
        filter: LineageFilter,
        limit: u32,
        offset: u32,
    ) -> Result<Option<LineagePage>, StoreError>;
    /// Finds one evidence artifact of a run.
    async fn artifact(
        &self,
        scope: TenantScope,
        id: ExecutionId,
        artifact: ArtifactId,
    ) -> Result<Option<(Execution, EvidenceArtifactWithContent)>, StoreError>;
    /// Lists the evidence documents of a run as stored texts, ordered by identifier. Payloads are left out.
    async fn evidence_documents(
        &self,
        scope: TenantScope,
        id: ExecutionId,
    ) -> Result<Vec<StoredEvidenceArtifact>, StoreError>;
    /// Lists one page of runs without their answers, newest first.
    async fn list(
        &self,
        scope: TenantScope,
        filter: &ExecutionFilter,
        page: PageRequest,
    ) -> Result<Page<ListedExecution>, StoreError>;
    /// Loads the summary of a run; `None` if it does not exist.
    async fn summary(&self, scope: TenantScope, id: ExecutionId) -> Result<Option<RunUsageSummary>, StoreError>;
    /// Loads the evidence of a run, without the notes of the approvals.
    async fn evidence(&self, scope: TenantScope, id: ExecutionId) -> Result<Option<RunEvidence>, StoreError>;
    /// Loads the notes of these approvals in no particular order. The result omits erased notes.
    async fn approval_notes(
        &self,
        scope: TenantScope,
        approvals: &[ApprovalId],
    ) -> Result<Vec<(ApprovalId, String)>, StoreError>;
}

/// Reads the events of active runs and the steps of ended ones.
#[async_trait]
pub trait EventStore: Send + Sync {
    /// Lists the progress records after this position in order, without provider responses. A page has at most 32 KiB,
    /// or one larger record. Model output is present while the answer of the run is stored.
    async fn events(&self, scope: TenantScope, id: ExecutionId, after: u16) -> Result<EventPage, StoreError>;
    /// Lists the records of a run's steps, in order.
    async fn steps(&self, scope: TenantScope, id: ExecutionId) -> Result<Vec<StepRow>, StoreError>;
}

/// Stores runs from their acceptance to their end.
#[async_trait]
pub trait RunStore: Send + Sync {
    /// Finds a workload by its slug, with the lane holders in an environment.
    async fn find_workload_with_deployment(
        &self,
        scope: TenantScope,
        slug: &Slug,
        environment: &Slug,
    ) -> Result<Option<WorkloadWithDeployment>, StoreError>;
    /// Stores a governance chain, to which runs refer by digest. Storing a chain again has no effect.
    async fn store_evidence_snapshot(&self, scope: TenantScope, snapshot: &EvidenceSnapshot) -> Result<(), StoreError>;
    /// Stores a run, its policy decision, its inputs and the idempotency key in one statement. It stores nothing if an
    /// expected revision changed.
    async fn accept(
        &self,
        scope: TenantScope,
        acceptance: &Acceptance,
        expected_revisions: ExpectedRevisions,
        key: Option<&RequestKey>,
    ) -> Result<AcceptOutcome, CommitError>;
    /// Stores the end of a run in one statement. Fails with `Stale` if the caller no longer holds the lease.
    async fn finish(&self, scope: TenantScope, record: &FinishRecord) -> Result<(), CommitError>;
    /// Loads the inputs of a run; `None` after their erasure.
    async fn inputs(&self, scope: TenantScope, id: ExecutionId) -> Result<Option<Payload>, StoreError>;
    /// Stores the start of a claimed run if the expected revisions are current. Fails with `Stale` if the caller no
    /// longer holds the lease.
    async fn start(&self, scope: TenantScope, start: &QueuedStart) -> Result<StartOutcome, CommitError>;
    /// Stores a progress record and extends the lease. Fails with `Stale` if the caller no longer holds the lease.
    async fn record_progress(
        &self,
        scope: TenantScope,
        lease_ref: LeaseRef,
        progress: &ProgressRecord,
    ) -> Result<(), CommitError>;
}

/// Acquires, renews and releases the leases of runs, and requests cancellations.
#[async_trait]
pub trait LeaseStore: Send + Sync {
    /// Extends a lease by its duration, and returns the state of the lease and the workload.
    async fn renew(&self, scope: TenantScope, id: ExecutionId, lease: Uuid) -> Result<LeaseState, StoreError>;
    /// Releases a held lease. The lease lapses immediately, and writes of its former holder are refused.
    async fn release_lease(&self, scope: TenantScope, lease_ref: LeaseRef) -> Result<(), StoreError>;
    /// Acquires a batch of expired leases, so that the caller can end their runs.
    async fn claim_lapsed(&self, lease: Uuid, filter: LapsedFilter) -> Result<Vec<LapsedRun>, StoreError>;
    /// Takes queued runs, and runs whose leases expired, under one fencing token.
    async fn claim(&self, claim: &Claim) -> Result<Vec<ClaimedRun>, StoreError>;
    /// Requests the cancellation of a run. If the run is queued, the caller acquires its lease under the given token.
    async fn request_cancel(
        &self,
        scope: TenantScope,
        cancel_lease: CancelLease,
        requested_by: &ActorRef,
        key: Option<&KeyedOutcome>,
    ) -> Result<CancelOutcome, StoreError>;
    /// Acquires the lease of a run regardless of its holder. Returns `false` if the run does not exist or has ended.
    async fn take_over_lease(&self, scope: TenantScope, lease_ref: LeaseRef) -> Result<bool, StoreError>;
}
