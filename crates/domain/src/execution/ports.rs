//! The execution store port.

use super::{
    Acceptance, Execution, FinishRecord, Payload, Status, StepRow,
    dispatch::{CancelLease, CancelOutcome, Claim, ClaimedRun, LeaseRef, QueuedStart, StartOutcome},
    progress::ProgressRecord,
    usage::{ListedExecution, RunSummary},
};
use crate::{
    access::{ActorRef, rights::VisibleScopes},
    evidence::{
        ArtifactWithContent, EvidenceRecord, EvidenceSnapshot, StoredEvidenceArtifact,
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

/// A workload and its lanes in one environment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkloadWithDeployment {
    /// The workload.
    pub workload: Workload,
    /// The lane holders; `None` before the first release in the environment.
    pub deployment: Option<Deployment>,
}

/// Selects the runs with lapsed leases to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LapsedFilter {
    /// All runs, because no worker exists to resume them.
    All,
    /// Only runs that await a script, because workers resume all other runs.
    Scripts,
}

/// The work of a run whose lease lapsed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LapsedWork {
    /// The run executed steps.
    Steps,
    /// The run awaited a script, which may or may not have been handed over to the runtime gateway.
    Script,
}

/// A run with a lapsed lease, and the data needed to end it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LapsedRun {
    /// The tenant of the run.
    pub scope: TenantScope,
    /// The run whose lease lapsed.
    pub execution: Execution,
    /// Digest of the inputs.
    pub input_digest: [u8; 32],
    /// The fencing token under which the lease was acquired to end the run.
    pub lease: Uuid,
    /// The work of the run.
    pub work: LapsedWork,
    /// Whether its deadline has passed.
    pub is_past_deadline: bool,
    /// The actor that requested cancellation of the run.
    pub cancelled_by: Option<ActorRef>,
    /// The owner of the workload, if a policy decision imposed `notify_owner` on the run.
    pub owner_to_notify: Option<String>,
}

/// The state of a lease.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LeaseState {
    /// The caller holds the lease, and the workload accepts runs.
    Held,
    /// The caller holds the lease, and an actor requested cancellation.
    Cancelled(ActorRef),
    /// The caller holds the lease, and the workload was suspended or retired.
    WorkloadStopped,
    /// The caller no longer holds the lease, because another holder acquired it or the run has ended.
    Lost,
}

/// The result of an accept commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AcceptOutcome {
    /// The run was stored.
    Accepted,
    /// The idempotency key already exists; nothing was stored.
    DuplicateKey,
    /// The share link no longer admits runs; nothing was stored.
    LinkClosed,
    /// A revision changed since the decision; nothing was stored.
    Stale,
    /// The tenant's queue is full; nothing was stored.
    QueueFull,
}

/// The filter of an execution listing.
#[derive(Clone, Debug, Default)]
pub struct ExecutionFilter {
    /// Runs of this workload.
    pub workload: Option<WorkloadId>,
    /// Runs of this release.
    pub release: Option<ReleaseId>,
    /// Runs with this status.
    pub status: Option<Status>,
    /// Runs in this environment.
    pub environment: Option<Slug>,
    /// Runs on this lane.
    pub lane: Option<Lane>,
    /// Runs that ended with this error code.
    pub error_code: Option<String>,
    /// Runs of this submitter.
    pub submitter: Option<ActorRef>,
    /// Runs whose identifier was created at or after this time, to the millisecond.
    pub since: Option<Timestamp>,
    /// Runs whose identifier was created before this time, to the millisecond.
    pub until: Option<Timestamp>,
    /// Runs within the caller's visible scopes; `None` covers the whole tenant.
    pub visible_scopes: Option<VisibleScopes>,
}

/// The location of a run and its submitter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunLocation {
    /// The workspace of its workload.
    pub workspace: WorkspaceId,
    /// The workload that the run executes.
    pub workload: WorkloadId,
    /// The submitter of the run.
    pub submitter: ActorRef,
}

/// The state of a run, without its answer if the answer is large.
#[derive(Clone, PartialEq, Debug)]
pub struct RunState {
    /// The run, with its answer if the answer is retained and not large.
    pub execution: Execution,
    /// Whether a retained answer was left out because it is large.
    pub is_output_omitted: bool,
}

/// A page of a run's progress records.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct EventPage {
    /// The records, in order.
    pub records: Vec<ProgressRecord>,
    /// Whether more records may follow.
    pub has_more: bool,
}

/// Reads executions and their evidence.
#[async_trait]
pub trait ExecutionStore: Send + Sync {
    /// Finds an execution, with its answer while it is retained.
    async fn find(&self, scope: TenantScope, id: ExecutionId) -> Result<Option<Execution>, StoreError>;
    /// Finds an execution, without its answer if the answer is large.
    async fn find_state(&self, scope: TenantScope, id: ExecutionId) -> Result<Option<RunState>, StoreError>;
    /// Finds the location and the submitter of an execution.
    async fn location(&self, scope: TenantScope, id: ExecutionId) -> Result<Option<RunLocation>, StoreError>;
    /// Lists a page of an execution's lineage, newest first.
    async fn lineage(
        &self,
        scope: TenantScope,
        id: ExecutionId,
        filter: LineageFilter,
        limit: u32,
        offset: u32,
    ) -> Result<Option<LineagePage>, StoreError>;
    /// Finds an evidence artifact, with its execution.
    async fn artifact(
        &self,
        scope: TenantScope,
        id: ExecutionId,
        artifact: ArtifactId,
    ) -> Result<Option<(Execution, ArtifactWithContent)>, StoreError>;
    /// Lists the evidence documents of an execution with their stored texts, ordered by identifier and without
    /// payloads.
    async fn evidence_documents(
        &self,
        scope: TenantScope,
        id: ExecutionId,
    ) -> Result<Vec<StoredEvidenceArtifact>, StoreError>;
    /// Lists a page of executions without their answers, newest first.
    async fn list(
        &self,
        scope: TenantScope,
        filter: &ExecutionFilter,
        page: PageRequest,
    ) -> Result<Page<ListedExecution>, StoreError>;
    /// Loads the summary of an execution; `None` if it does not exist.
    async fn summary(&self, scope: TenantScope, id: ExecutionId) -> Result<Option<RunSummary>, StoreError>;
    /// Loads the evidence of an execution, without the notes of approvals.
    async fn evidence(&self, scope: TenantScope, id: ExecutionId) -> Result<Option<EvidenceRecord>, StoreError>;
    /// Loads the notes of these approvals, unordered; erased notes are absent.
    async fn approval_notes(
        &self,
        scope: TenantScope,
        approvals: &[ApprovalId],
    ) -> Result<Vec<(ApprovalId, String)>, StoreError>;
}

/// Reads the progress of executions: the events of active runs, and the steps of ended ones.
#[async_trait]
pub trait EventStore: Send + Sync {
    /// Lists the progress records after the given position in order, without provider answers. A page has at most
    /// 32 KiB, or a single larger record. Model output is included while the answer of the run is retained.
    async fn events(&self, scope: TenantScope, id: ExecutionId, after: u16) -> Result<EventPage, StoreError>;
    /// Lists the steps of an execution, in order.
    async fn steps(&self, scope: TenantScope, id: ExecutionId) -> Result<Vec<StepRow>, StoreError>;
}

/// Stores runs from their acceptance to their end.
#[async_trait]
pub trait RunStore: Send + Sync {
    /// Loads a workload by slug with the lanes of an environment.
    async fn find_workload_with_deployment(
        &self,
        scope: TenantScope,
        slug: &Slug,
        environment: &Slug,
    ) -> Result<Option<WorkloadWithDeployment>, StoreError>;
    /// Stores a governance chain to which runs refer. Storing the same chain again has no effect.
    async fn store_evidence_snapshot(&self, scope: TenantScope, snapshot: &EvidenceSnapshot) -> Result<(), StoreError>;
    /// Stores the run, its decision, its inputs and the idempotency key in one statement, if the expected
    /// revisions are current.
    async fn accept(
        &self,
        scope: TenantScope,
        acceptance: &Acceptance,
        expected_revisions: ExpectedRevisions,
        key: Option<&RequestKey>,
    ) -> Result<AcceptOutcome, CommitError>;
    /// Ends a run in one statement. Fails with `Stale` if the caller no longer holds the lease.
    async fn finish(&self, scope: TenantScope, record: &FinishRecord) -> Result<(), CommitError>;
    /// Loads the inputs of a run; `None` after their erasure.
    async fn inputs(&self, scope: TenantScope, id: ExecutionId) -> Result<Option<Payload>, StoreError>;
    /// Starts a claimed run if the expected revisions are current. Fails with `Stale` if the caller no longer
    /// holds the lease.
    async fn start(&self, scope: TenantScope, start: &QueuedStart) -> Result<StartOutcome, CommitError>;
    /// Stores a progress record and extends the lease. Fails with `Stale` if the caller no longer holds the lease.
    async fn record_progress(
        &self,
        scope: TenantScope,
        lease_ref: LeaseRef,
        progress: &ProgressRecord,
    ) -> Result<(), CommitError>;
}

/// Leases of runs: claims, renewals, takeovers and requests to cancel.
#[async_trait]
pub trait LeaseStore: Send + Sync {
    /// Extends a lease by its duration, and returns the state of the lease and the workload.
    async fn renew(&self, scope: TenantScope, id: ExecutionId, lease: Uuid) -> Result<LeaseState, StoreError>;
    /// Releases a held lease. The lease lapses immediately, and writes of its former holder are refused.
    async fn release_lease(&self, scope: TenantScope, lease_ref: LeaseRef) -> Result<(), StoreError>;
    /// Claims a batch of lapsed leases so that their runs can be ended.
    async fn claim_lapsed(&self, lease: Uuid, filter: LapsedFilter) -> Result<Vec<LapsedRun>, StoreError>;
    /// Claims queued runs, and reclaims runs whose leases lapsed.
    async fn claim(&self, claim: &Claim) -> Result<Vec<ClaimedRun>, StoreError>;
    /// Requests cancellation of a run. If the run is queued, the caller acquires its lease under the given token.
    async fn request_cancel(
        &self,
        scope: TenantScope,
        cancel_lease: CancelLease,
        requested_by: &ActorRef,
        key: Option<&KeyedOutcome>,
    ) -> Result<CancelOutcome, StoreError>;
    /// Acquires a run's lease regardless of its current holder, and returns whether the run exists and has not
    /// ended.
    async fn take_over_lease(&self, scope: TenantScope, lease_ref: LeaseRef) -> Result<bool, StoreError>;
}
