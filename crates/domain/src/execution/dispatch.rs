//! Dispatch of runs: inline in the accepting process, or queued for workers.

use super::{Acceptance, Execution, Payload};
use crate::{
    access::ActorRef,
    evidence::{RecordedDecision, SnapshotDigest},
    execution::{ports::ExpectedRevisions, progress::ProgressRecord},
    id::{ExecutionId, RequestId, ShareLinkId, TenantId},
    memory::ConversationSessionId,
    release::lane::Lane,
    tenant::TenantScope,
};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use uuid::Uuid;

/// The maximum number of times that workers reclaim a run after its lease expires. A run that crashed this many workers
/// would probably crash the next one too.
pub const MAX_RECLAIMS: u16 = 5;

/// The configured place of execution: the accepting process or a worker. The setting is `FAIRWAY_DISPATCH`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DispatchPolicy {
    /// The accepting process executes every run. There is no queue.
    Inline,
    /// Workers execute every run.
    Queued,
    /// The accepting process executes the runs whose callers wait; workers execute the others.
    Hybrid,
}

impl DispatchPolicy {
    /// Every dispatch policy.
    pub const ALL: [Self; 3] = [Self::Inline, Self::Queued, Self::Hybrid];

    /// The value of the setting, such as `inline`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Inline => "inline",
            Self::Queued => "queued",
            Self::Hybrid => "hybrid",
        }
    }

    /// Parses the value of the setting; `None` for an unknown value.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dispatch| dispatch.as_str() == text)
    }

    /// Whether this policy requires workers, which execute queued runs.
    #[must_use]
    pub const fn has_workers(self) -> bool {
        match self {
            Self::Inline => false,
            Self::Queued | Self::Hybrid => true,
        }
    }

    /// Whether a run is queued under this policy. `None` if the caller requests queueing and the policy has no queue.
    #[must_use]
    pub const fn should_queue(self, requested_dispatch: RequestedDispatch) -> Option<bool> {
        match (self, requested_dispatch) {
            (Self::Inline, RequestedDispatch::Queued) => None,
            (Self::Inline | Self::Hybrid, RequestedDispatch::Synchronous) => Some(false),
            (Self::Queued, RequestedDispatch::Synchronous | RequestedDispatch::Queued)
            | (Self::Hybrid, RequestedDispatch::Queued) => Some(true),
        }
    }
}

/// The dispatch that a caller requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestedDispatch {
    /// Wait for the end of the run, within a time budget.
    Synchronous,
    /// Return as soon as the run is accepted.
    Queued,
}

/// Data of the submitting request that the worker needs and that no column of the run's row stores.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RequestContext {
    /// The identifier of the request that submitted the run.
    pub request_id: RequestId,
    /// The groups of the submitter, such as `group:support`.
    #[serde(default)]
    pub groups: Vec<String>,
    /// The requested lane. If no release holds that lane, a more general lane serves the run.
    pub lane: String,
    /// The identifier of the conversation to which the run belongs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
}

impl RequestContext {
    /// Parses the requested lane. An unknown name counts as the standard lane.
    #[must_use]
    pub fn requested_lane(&self) -> Lane {
        Lane::parse(&self.lane).unwrap_or(Lane::Standard)
    }

    /// Parses the identifier of the run's conversation; `None` without a valid one.
    #[must_use]
    pub fn session_id(&self) -> Option<ConversationSessionId> {
        self.session.as_deref().and_then(|session| ConversationSessionId::parse(session).ok())
    }

    /// Parses the submitter's groups as actor references, and omits malformed ones.
    #[must_use]
    pub fn group_actors(&self) -> Vec<ActorRef> {
        self.groups.iter().filter_map(|group| ActorRef::parse(group).ok()).collect()
    }
}

/// A worker's request for queued runs and for runs with expired leases.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The fencing token for every run that this claim takes.
    pub lease: Uuid,
    /// The tokens of earlier claims whose responses did not arrive. This claim takes the runs of those claims again,
    /// before any others.
    pub lost_leases: Vec<Uuid>,
    /// The duration of the lease. A renewal extends the lease by the same duration.
    pub lease_for: Duration,
    /// The time from now to the deadline of each claimed run.
    pub deadline_after: Duration,
    /// The maximum number of runs that the claim takes.
    pub limit: u16,
    /// The maximum number of runs that the claim takes from one tenant.
    pub per_tenant_limit: u16,
    /// The tenant whose run was claimed last. The round-robin order continues with the next tenant.
    pub after_tenant: Option<TenantId>,
    /// Tenants from which the claim takes no runs, because they reached their share in this process or have too many
    /// paused runs.
    pub saturated: Vec<TenantId>,
    /// The maximum size of inputs that the claim loads, in bytes of JSON text. Longer inputs are large inputs.
    pub max_input_bytes: usize,
    /// Whether the claim takes queued runs with large inputs.
    pub takes_large: bool,
    /// Tenants from which the claim takes no queued runs with large inputs.
    pub no_large_tenants: Vec<TenantId>,
}

/// The inputs of a claimed run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClaimedInputs {
    /// The claim loaded the inputs.
    Loaded(Payload),
    /// The claim does not load large inputs; [`RunStore::inputs`](super::ports::RunStore::inputs) reads them.
    NotLoaded,
    /// The inputs were erased.
    Erased,
}

/// A run that a worker took from the queue, or reclaimed after its lease expired.
#[derive(Clone, Debug)]
pub struct ClaimedRun {
    /// The tenant to which the run belongs.
    pub scope: TenantScope,
    /// The stored record of the run.
    pub execution: Execution,
    /// The digest of the governance chain at the run's acceptance or start.
    pub snapshot: SnapshotDigest,
    /// The inputs of the run.
    pub inputs: ClaimedInputs,
    /// The salted BLAKE3 digest of the inputs.
    pub input_digest: [u8; 32],
    /// The context of the request that submitted the run, if it is stored.
    pub request_context: Option<RequestContext>,
    /// The share link that admitted the run, if any.
    pub share_link: Option<ShareLinkId>,
    /// The fencing token of the lease. Every write of the worker must name it.
    pub lease: Uuid,
    /// The remaining time until the run's deadline; zero after the deadline.
    pub time_left: Duration,
    /// The number of times that workers reclaimed the run.
    pub reclaims: u16,
    /// The position of the run's tenant in the round-robin order of this claim; 0 for a reclaimed run.
    pub round_position: u16,
    /// The actor that requested cancellation of the run, if any.
    pub cancelled_by: Option<ActorRef>,
    /// The policy decisions of the run, oldest first.
    pub decisions: Vec<RecordedDecision>,
    /// The stored progress records, from which the worker resumes the run.
    pub progress: Vec<ProgressRecord>,
}

/// The start of a queued run, as the commit stores it.
#[derive(Clone, Debug)]
pub struct QueuedStart {
    /// The run with a new policy decision, made as if the run were accepted now.
    pub acceptance: Acceptance,
    /// The revisions on which the new decision is based. If one of them changed, the commit stores nothing.
    pub expected_revisions: ExpectedRevisions,
    /// The fencing token of the worker. The commit stores nothing unless it matches the run's lease.
    pub lease: Uuid,
    /// The first progress record of the run.
    pub progress: ProgressRecord,
    /// The share link that admitted the run; the commit requires that the link is not revoked.
    pub share_link: Option<ShareLinkId>,
}

/// The result of a commit that starts a queued run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StartOutcome {
    /// The commit stored the start of the run.
    Started,
    /// A revision changed since the decision, so the commit stored nothing.
    Stale,
}

/// The result of a request to cancel a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CancelOutcome {
    /// The run was queued. The caller now holds the lease under the given token and must end the run.
    LeaseTaken,
    /// The run is active. The process that executes it is notified and must end it.
    WorkerNotified,
    /// A request with the same idempotency key was already committed.
    DuplicateKey,
    /// The run has ended, or its status does not permit cancellation.
    AlreadyEnded,
}

/// The lease that a caller acquires to end a queued run that it cancels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CancelLease {
    /// The run, and the fencing token under which its lease is acquired.
    pub lease_ref: LeaseRef,
    /// The lifetime of the lease without renewal.
    pub lease_for: Duration,
    /// The time from now until the deadline of the run.
    pub deadline_in: Duration,
}

/// A run, and a fencing token that identifies one lease of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LeaseRef {
    /// The run to which the lease belongs.
    pub execution_id: ExecutionId,
    /// The token that changes with each holder of the lease, so that writes of former holders are refused.
    pub lease: Uuid,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_policies_with_workers_queue_runs() {
        let all = DispatchPolicy::ALL.map(|dispatch| {
            (dispatch.should_queue(RequestedDispatch::Synchronous), dispatch.should_queue(RequestedDispatch::Queued))
        });
        assert_eq!(all, [(Some(false), None), (Some(true), Some(true)), (Some(false), Some(true))]);
        for dispatch in DispatchPolicy::ALL {
            assert_eq!(DispatchPolicy::parse(dispatch.as_str()), Some(dispatch));
            assert_eq!(dispatch.has_workers(), dispatch.should_queue(RequestedDispatch::Queued).is_some());
        }
    }
}
