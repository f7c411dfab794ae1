//! Where executions are kept.

use super::{
    Acceptance, Ending, Execution, Payload, Status, StepRow,
    dispatch::{Claim, Claimed, Held, Start, Started, Stopping, Taken},
    progress::Progress,
};
use crate::{
    access::{ActorRef, rights::Reach},
    evidence::{
        ArtifactDocument, EvidenceRecord, Snapshot,
        lineage::{LineageFilter, LineagePage},
    },
    id::{ApprovalId, ArtifactId, ExecutionId, ReleaseId, WorkloadId, WorkspaceId},
    idempotency::{KeyedOutcome, RequestKey},
    release::lane::Deployment,
    slug::Slug,
    store::{CommitError, Listed, Paging, Revision, StoreError},
    tenant::TenantScope,
    time::Timestamp,
    workload::Workload,
};
use async_trait::async_trait;
use uuid::Uuid;

/// What must still be true when a run is accepted, or it is decided again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AcceptedOn {
    /// The deployment's revision: who holds the lanes.
    pub deployment: Revision,
    /// The workload's revision: whether it takes runs.
    pub workload: Revision,
    /// The tenant's access revision: who may do what.
    pub access: Revision,
}

/// A workload with the lanes of one environment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RuntimeEntry {
    /// The workload.
    pub workload: Workload,
    /// Who holds its lanes; `None` before the first release there.
    pub deployment: Option<Deployment>,
}

/// Which runs are ended where their lease has lapsed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lapsed {
    /// Every one: nobody goes on with any.
    All,
    /// Scripts: workers go on with the others.
    Scripts,
}

/// What a lapsed run was doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Doing {
    /// Taking steps.
    Steps,
    /// Waiting for a script, which may have been handed over or not.
    Script,
}

/// A run whose lease has lapsed, and what is needed to end it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LapsedRun {
    /// Whose it is.
    pub scope: TenantScope,
    /// The run.
    pub execution: Execution,
    /// Digest of what was sent.
    pub input_digest: [u8; 32],
    /// The lease that was taken over to end it.
    pub lease: Uuid,
    /// What it was doing.
    pub doing: Doing,
    /// Whether its deadline has passed too.
    pub overdue: bool,
    /// Who asked that it be stopped.
    pub cancelled_by: Option<ActorRef>,
    /// The owner that has to be told of its end, if a decision before it began imposed that.
    pub tells_owner: Option<String>,
}

/// How a lease stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LeaseState {
    /// It is held, and the workload takes runs.
    Held,
    /// It is held, and somebody asked that the run be stopped.
    Cancelled(ActorRef),
    /// It is held, and the workload was suspended or retired meanwhile.
    WorkloadStopped,
    /// Somebody else holds it, or the run has ended.
    Lost,
}

/// What became of an accept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Accepted {
    /// It is stored.
    Yes,
    /// The idempotency key is known already: nothing was stored.
    KeyTaken,
    /// The share link starts no run any more: nothing was stored.
    LinkClosed,
    /// Something it was decided on has moved: nothing was stored.
    Moved,
    /// As many of the tenant's runs wait as may: nothing was stored.
    LineFull,
}

/// Which executions a list shows.
#[derive(Clone, Debug, Default)]
pub struct ExecutionFilter {
    /// Those of this workload.
    pub workload: Option<WorkloadId>,
    /// Those under this release.
    pub release: Option<ReleaseId>,
    /// Those in this status.
    pub status: Option<Status>,
    /// Those whose identifier was made at this moment or later, to the millisecond.
    pub since: Option<Timestamp>,
    /// Those whose identifier was made before this moment, to the millisecond.
    pub until: Option<Timestamp>,
    /// Those that the caller's grants reach; `None` for all of the tenant.
    pub reach: Option<Reach>,
}

/// Where a run is, and whose it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunHome {
    /// The workspace of its workload.
    pub workspace: WorkspaceId,
    /// The workload.
    pub workload: WorkloadId,
    /// Its submitter.
    pub submitter: ActorRef,
}

/// A run as it stands, without a large answer.
#[derive(Clone, PartialEq, Debug)]
pub struct RunState {
    /// The run, with its answer while that is kept, unless it is large.
    pub execution: Execution,
    /// Whether its answer is kept and was left out.
    pub is_output_left_out: bool,
}

/// A part of what a run said of how far it came.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct EventPage {
    /// Pieces, in order.
    pub pieces: Vec<Progress>,
    /// Whether another page may follow.
    pub has_more: bool,
}

/// Keeps executions.
#[async_trait]
pub trait ExecutionStore: Send + Sync {
    /// A workload by slug, with the lanes of an environment.
    async fn runtime_entry(
        &self,
        scope: TenantScope,
        slug: &Slug,
        environment: &Slug,
    ) -> Result<Option<RuntimeEntry>, StoreError>;
    /// Keeps a governance chain that runs will refer to; the same one again changes nothing.
    async fn keep_snapshot(&self, scope: TenantScope, snapshot: &Snapshot) -> Result<(), StoreError>;
    /// Stores run, decision, inputs and key in one statement, if what it was decided on still holds.
    async fn accept(
        &self,
        scope: TenantScope,
        acceptance: &Acceptance,
        on: AcceptedOn,
        key: Option<&RequestKey>,
    ) -> Result<Accepted, CommitError>;
    /// Ends a run in one statement. Stale when the lease is not held any more.
    async fn finish(&self, scope: TenantScope, ending: &Ending) -> Result<(), CommitError>;
    /// Prolongs a lease by the time it was taken for, and says how it and the workload stand.
    async fn renew(&self, scope: TenantScope, id: ExecutionId, lease: Uuid) -> Result<LeaseState, StoreError>;
    /// Hands back a lease that is held: it lapses at once, and whoever held it writes nothing any more.
    async fn hand_back(&self, scope: TenantScope, held: Held) -> Result<(), StoreError>;
    /// Takes over lapsed leases, a few at a time, so that their runs can be ended.
    async fn take_lapsed(&self, lease: Uuid, whose: Lapsed) -> Result<Vec<LapsedRun>, StoreError>;
    /// Takes runs out of the line, and over from those who fell silent.
    async fn claim(&self, claim: &Claim) -> Result<Vec<Claimed>, StoreError>;
    /// What was sent with a run; `None` once it is erased.
    async fn inputs(&self, scope: TenantScope, id: ExecutionId) -> Result<Option<Payload>, StoreError>;
    /// Starts a run that was taken out of the line, if what that was decided on still holds. Stale when the lease is not
    /// held any more.
    async fn start(&self, scope: TenantScope, start: &Start) -> Result<Started, CommitError>;
    /// Keeps how far a run came, and prolongs its lease. Stale when that is not held any more.
    async fn advance(&self, scope: TenantScope, held: Held, progress: &Progress) -> Result<(), CommitError>;
    /// Asks that a run be stopped. One that waits in line is taken out of it under the token.
    async fn stop(
        &self,
        scope: TenantScope,
        taken: Taken,
        by: &ActorRef,
        key: Option<&KeyedOutcome>,
    ) -> Result<Stopping, StoreError>;
    /// Takes a run over, whoever works on it; whether there was one to take.
    async fn take_over(&self, scope: TenantScope, held: Held) -> Result<bool, StoreError>;
    /// What a run said of how far it came since this piece, in order and without the answers that it got: 32 KiB at most,
    /// or one piece. What models say is told for as long as the run's own answer is kept.
    async fn events(&self, scope: TenantScope, id: ExecutionId, after: u16) -> Result<EventPage, StoreError>;
    /// One execution, with its answer while that is kept.
    async fn find(&self, scope: TenantScope, id: ExecutionId) -> Result<Option<Execution>, StoreError>;
    /// The same without a large answer.
    async fn state(&self, scope: TenantScope, id: ExecutionId) -> Result<Option<RunState>, StoreError>;
    /// Where one execution is, and nothing of what it did.
    async fn home(&self, scope: TenantScope, id: ExecutionId) -> Result<Option<RunHome>, StoreError>;
    /// What the steps of one execution did, in order.
    async fn steps(&self, scope: TenantScope, id: ExecutionId) -> Result<Vec<StepRow>, StoreError>;
    /// A page of what the steps of one execution read, newest first.
    async fn lineage(
        &self,
        scope: TenantScope,
        id: ExecutionId,
        page: (LineageFilter, u32, u32),
    ) -> Result<Option<LineagePage>, StoreError>;
    /// One document of an execution's evidence, with the execution.
    async fn artifact(
        &self,
        scope: TenantScope,
        document: (ExecutionId, ArtifactId),
    ) -> Result<Option<(Execution, ArtifactDocument)>, StoreError>;
    /// A page of executions without their answers, newest first.
    async fn list(
        &self,
        scope: TenantScope,
        filter: &ExecutionFilter,
        page: Paging,
    ) -> Result<Listed<Execution>, StoreError>;
    /// All that stands behind one execution, without the notes to approvals.
    async fn evidence(&self, scope: TenantScope, id: ExecutionId) -> Result<Option<EvidenceRecord>, StoreError>;
    /// The notes to these approvals that still exist, in no order.
    async fn approval_notes(
        &self,
        scope: TenantScope,
        approvals: &[ApprovalId],
    ) -> Result<Vec<(ApprovalId, String)>, StoreError>;
}
