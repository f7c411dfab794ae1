//! The parameters and the result of an execution.

use super::{plan::WorkloadCacheKey, script::RunPayload};
use crate::share_link::VerifiedLink;
use fairway_domain::{
    access::{ActorRef, Caller},
    execution::{Execution, dispatch::DispatchMode},
    memory::SessionId,
    rate_limit::ClientAddress,
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
    /// The payload: form inputs, inputs or a script.
    pub payload: RunPayload,
    /// The lane, if the caller chooses it.
    pub lane: Option<Lane>,
    /// The principal of the run, if a service submits it on behalf of another.
    pub on_behalf_of: Option<ActorRef>,
    /// The verified share link of the request.
    pub link: Option<VerifiedLink>,
    /// The client's address; `None` for an internal request.
    pub address: Option<ClientAddress>,
    /// The conversation of the run.
    pub session: Option<SessionId>,
    /// The event that the caller waits for.
    pub wait: WaitMode,
}

impl ExecuteRequest {
    pub(super) fn workload_cache_key(&self, caller: &Caller) -> WorkloadCacheKey {
        WorkloadCacheKey { tenant: caller.tenant, slug: self.slug.clone(), environment: self.environment.clone() }
    }
}

/// The event that the caller waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitMode {
    /// The end of the run, at most this long and at most the deployment's limit.
    End(Option<Duration>),
    /// The acceptance of the run: the caller follows its events.
    Acceptance,
    /// The queueing of the run.
    Queued,
}

impl WaitMode {
    pub(super) const fn dispatch_mode(self) -> DispatchMode {
        match self {
            Self::End(_) | Self::Acceptance => DispatchMode::Synchronous,
            Self::Queued => DispatchMode::Queued,
        }
    }
}

/// The state of a run in the response to its caller.
#[derive(Clone, Debug)]
pub struct ExecuteResult {
    /// The run, ended or in progress.
    pub execution: Execution,
    /// Whether an earlier request with the same key started it.
    pub replayed: bool,
    /// The token that reads the run of an anonymous submitter. Shown once.
    pub result_token: Option<ResultToken>,
    /// Whether the caller waits only for queueing; the response then shows no later state.
    pub is_queued_only: bool,
}
