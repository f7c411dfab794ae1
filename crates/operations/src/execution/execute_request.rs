//! Parameters and result of an execution request.

use super::{plan::WorkloadCacheKey, script::RunPayload};
use crate::share_link::VerifiedLink;
use fairway_domain::{
    access::{ActorRef, Caller},
    client_address::ClientAddress,
    execution::{Execution, dispatch::RequestedDispatch},
    memory::SessionId,
    release::lane::Lane,
    share_link::ResultToken,
    slug::Slug,
};
use std::time::Duration;

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct ExecuteRequest {
    /// The workload.
    pub slug: Slug,
    /// The environment.
    pub environment: Slug,
    /// The payload: inputs, form input or a script.
    pub payload: RunPayload,
    /// The lane that the caller requests; `None` for the lane of its binding.
    pub lane: Option<Lane>,
    /// The principal on whose behalf a service submits the run.
    pub on_behalf_of: Option<ActorRef>,
    /// The share link that the request presents, after verification.
    pub link: Option<VerifiedLink>,
    /// The client's address; `None` for an internal request.
    pub address: Option<ClientAddress>,
    /// The conversation of the run.
    pub session: Option<SessionId>,
    /// The event for which the caller waits.
    pub wait: WaitMode,
}

impl ExecuteRequest {
    pub(super) fn workload_cache_key(&self, caller: &Caller) -> WorkloadCacheKey {
        WorkloadCacheKey { tenant: caller.tenant, slug: self.slug.clone(), environment: self.environment.clone() }
    }
}

/// The event for which the caller of a run waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitMode {
    /// The end of the run, at most for this duration and at most for the deployment's limit.
    End(Option<Duration>),
    /// The acceptance of the run, whose events the caller reads afterwards.
    Acceptance,
    /// The queueing of the run, which a worker executes later.
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

/// The state of a run in the response to its caller.
#[derive(Clone, Debug)]
pub struct ExecuteResult {
    /// The run, ended or active.
    pub execution: Execution,
    /// Whether an earlier request with the same idempotency key started the run.
    pub replayed: bool,
    /// The token with which an anonymous submitter reads its run. Only this response contains it.
    pub result_token: Option<ResultToken>,
    /// Whether the caller waits only for the queueing. The response then shows no later state of the run.
    pub is_queued_only: bool,
}
