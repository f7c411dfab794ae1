//! Parameters and result of an execution request.

use super::{plan::WorkloadCacheKey, run_payload::RunPayload};
use crate::share_link::VerifiedLink;
use fairway_domain::{
    access::{ActorRef, Caller},
    client_address::ClientAddress,
    execution::{Execution, dispatch::RequestedDispatch},
    memory::ConversationSessionId,
    release::lane::Lane,
    share_link::ResultToken,
    slug::Slug,
};
use std::time::Duration;

/// The parameters of a request to execute a workload.
#[derive(Clone, Debug)]
pub struct ExecuteRequest {
    /// The slug of the workload.
    pub slug: Slug,
    /// The environment whose deployment serves the run.
    pub environment: Slug,
    /// The payload of the run: inputs, form input or a script.
    pub payload: RunPayload,
    /// The lane that the caller requests; `None` for the lane of its binding.
    pub lane: Option<Lane>,
    /// The principal on whose behalf a service submits the run; `None` without delegation.
    pub on_behalf_of: Option<ActorRef>,
    /// The verified share link that the request presents, if any.
    pub link: Option<VerifiedLink>,
    /// The client's address; `None` for an internal request.
    pub address: Option<ClientAddress>,
    /// The conversation to which the run belongs, if any.
    pub session: Option<ConversationSessionId>,
    /// How long the caller waits for the run.
    pub wait: WaitMode,
}

impl ExecuteRequest {
    pub(super) fn workload_cache_key(&self, caller: &Caller) -> WorkloadCacheKey {
        WorkloadCacheKey { tenant: caller.tenant, slug: self.slug.clone(), environment: self.environment.clone() }
    }
}

/// How long the caller of a run waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitMode {
    /// Until the end of the run, at most for this duration and at most for the limit of the installation.
    End(Option<Duration>),
    /// Until the acceptance of the run; the caller reads its events afterwards.
    Acceptance,
    /// Until the run is queued; a worker executes it later.
    Queued,
}

impl WaitMode {
    pub(super) const fn requested_dispatch(self) -> RequestedDispatch {
        match self {
            Self::End(_) | Self::Acceptance => RequestedDispatch::Synchronous,
            Self::Queued => RequestedDispatch::Queued,
        }
    }
}

/// The state of a run, for the response to its caller.
#[derive(Clone, Debug)]
pub struct ExecuteResponse {
    /// The run; it may have ended or still be active.
    pub execution: Execution,
    /// Whether an earlier request with the same idempotency key started the run.
    pub replayed: bool,
    /// The token with which an anonymous submitter reads its run. The server stores only its hash, so no later response
    /// contains it.
    pub result_token: Option<ResultToken>,
    /// Whether the caller waits only until the run is queued. The response then shows the run as queued, even if it has
    /// started.
    pub is_queued_only: bool,
}
