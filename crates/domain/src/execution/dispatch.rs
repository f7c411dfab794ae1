//! Dispatch of runs: inline in the accepting process, or queued for workers.

use super::{Acceptance, Execution, Payload};
use crate::{
    access::ActorRef,
    evidence::{RecordedDecision, SnapshotDigest},
    execution::{ports::ExpectedRevisions, progress::ProgressRecord},
    id::{ExecutionId, RequestId, ShareLinkId, TenantId},
    memory::SessionId,
    release::lane::Lane,
    tenant::TenantScope,
};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use uuid::Uuid;

/// The maximum number of times that workers reclaim a run after its lease lapses. A run that crashed this many
/// workers would probably crash the next worker too.
pub const MAX_RECLAIMS: u16 = 5;

/// The dispatch setting of a deployment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DispatchPolicy {
    /// The accepting process runs each request. There is no queue.
    Inline,
    /// Workers run all requests.
    Queued,
    /// The accepting process runs requests whose caller waits; workers run the others.
    Hybrid,
}

impl DispatchPolicy {
    /// Every setting.
    pub const ALL: [Self; 3] = [Self::Inline, Self::Queued, Self::Hybrid];

    /// The form in settings.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Inline => "inline",
            Self::Queued => "queued",
            Self::Hybrid => "hybrid",
        }
    }

    /// Parses the form in settings.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dispatch| dispatch.as_str() == text)
    }

    /// Whether workers exist, which execute queued runs.
    #[must_use]
    pub const fn has_workers(self) -> bool {
        match self {
            Self::Inline => false,
            Self::Queued | Self::Hybrid => true,
        }
    }

    /// Whether a run with the requested mode is queued; `None` when the caller requests queueing and this setting
    /// has no queue.
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

/// The context of a request for a run, beyond the columns of the run's own row.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RequestContext {
    /// The request that submitted the run.
    pub request_id: RequestId,
    /// The groups of the submitter.
    #[serde(default)]
    pub groups: Vec<String>,
    /// The requested lane. If that lane has no holder, a more general lane serves the run.
    pub lane: String,
    /// The conversation to which the run belongs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
}

impl RequestContext {
    /// The requested lane, parsed; an unknown text counts as the standard lane.
    #[must_use]
    pub fn requested_lane(&self) -> Lane {
        Lane::parse(&self.lane).unwrap_or(Lane::Standard)
    }

    /// The conversation to which the run belongs, parsed.
    #[must_use]
    pub fn session_id(&self) -> Option<SessionId> {
        self.session.as_deref().and_then(|session| SessionId::parse(session).ok())
    }

    /// The groups as actor references.
    #[must_use]
    pub fn group_actors(&self) -> Vec<ActorRef> {
        self.groups.iter().filter_map(|group| ActorRef::parse(group).ok()).collect()
    }
}

/// A worker's request for runs.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The fencing token of this claim and of each run that the claim returns.
    pub lease: Uuid,
    /// Tokens of earlier claims whose responses did not arrive. The runs of those claims are claimed again first.
    pub lost_leases: Vec<Uuid>,
    /// The duration of the lease; a renewal extends the lease by the same duration.
    pub lease_for: Duration,
    /// The time from now until the deadline of a claimed run.
    pub deadline_after: Duration,
    /// The maximum number of runs to claim.
    pub limit: u16,
    /// The maximum number of runs to claim per tenant.
    pub per_tenant_limit: u16,
    /// The tenant that was served last; the round-robin order of tenants continues after that tenant.
    pub after_tenant: Option<TenantId>,
    /// Tenants whose runs are not claimed, because they reached their share in this process or have too many
    /// paused runs.
    pub saturated: Vec<TenantId>,
    /// The size threshold of large inputs, in bytes of JSON text. Large inputs are not loaded.
    pub max_input_bytes: usize,
    /// Whether to claim queued runs with large inputs.
    pub takes_large: bool,
    /// Tenants whose queued runs with large inputs are not claimed.
    pub no_large_tenants: Vec<TenantId>,
}

/// The inputs of a claimed run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClaimedInputs {
    /// The inputs, which the claim has loaded.
    Loaded(Payload),
    /// Large inputs, which the claim does not load; [`RunStore::inputs`](super::ports::RunStore::inputs) reads
    /// them.
    NotLoaded,
    /// The inputs were erased.
    Erased,
}

/// A run claimed from the queue, or reclaimed after its lease lapsed.
#[derive(Clone, Debug)]
pub struct ClaimedRun {
    /// The tenant of the run.
    pub scope: TenantScope,
    /// The claimed run.
    pub execution: Execution,
    /// The digest of the governance chain at the run's acceptance or start.
    pub snapshot: SnapshotDigest,
    /// The inputs of the run.
    pub inputs: ClaimedInputs,
    /// Digest of the inputs.
    pub input_digest: [u8; 32],
    /// The context of the request that submitted the run.
    pub request_context: Option<RequestContext>,
    /// The share link that admitted the run.
    pub share_link: Option<ShareLinkId>,
    /// The fencing token, which every write of the worker must name.
    pub lease: Uuid,
    /// The remaining time until the run's deadline; zero after the deadline.
    pub time_left: Duration,
    /// The number of times that workers reclaimed the run.
    pub reclaims: u16,
    /// The position of the run's tenant in the round-robin order of this claim; 0 for a reclaimed run.
    pub round_position: u16,
    /// The actor that requested cancellation of the run.
    pub cancelled_by: Option<ActorRef>,
    /// The policy decisions of the run, oldest first.
    pub decisions: Vec<RecordedDecision>,
    /// The stored progress of the run.
    pub progress: Vec<ProgressRecord>,
}

/// The start of a queued run, as the start commit stores it.
#[derive(Clone, Debug)]
pub struct QueuedStart {
    /// The run with a new decision, made as if the run were accepted now.
    pub acceptance: Acceptance,
    /// The revisions on which the decision depends; if one changed, the commit is refused.
    pub expected_revisions: ExpectedRevisions,
    /// The fencing token, which must match the held lease.
    pub lease: Uuid,
    /// The first progress record of the run.
    pub progress: ProgressRecord,
    /// The share link that admitted the run; the commit requires that the link is not revoked.
    pub share_link: Option<ShareLinkId>,
}

/// The result of a start commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StartOutcome {
    /// The run started.
    Started,
    /// A revision changed since the decision.
    Stale,
}

/// The result of a cancel request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CancelOutcome {
    /// The run was queued. The caller now holds the lease under the given token and must end the run.
    LeaseTaken,
    /// The run is active; the worker that executes it is notified.
    WorkerNotified,
    /// The idempotency key already exists.
    DuplicateKey,
    /// The run has ended or cannot be cancelled.
    AlreadyEnded,
}

/// The lease under which a cancelling caller ends a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CancelLease {
    /// The run, and the fencing token under which its lease is acquired.
    pub lease_ref: LeaseRef,
    /// The lease duration until renewal.
    pub lease_for: Duration,
    /// The time from now until the deadline of the run.
    pub deadline_in: Duration,
}

/// A run and the fencing token of its lease.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LeaseRef {
    /// The run whose lease is meant.
    pub execution_id: ExecutionId,
    /// The fencing token.
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
