//! Limit on the concurrent runs that a process executes for requests.
//!
//! A run occupies memory while it waits for a model or tool, even after its caller received 202. At the limit,
//! further runs are queued, or refused if they cannot be queued. Runs that a worker claims have a separate limit.

use super::execute_request::ExecuteRequest;
use crate::{Failure, blocking::permit_failure, execution::execute::Executions};
use fairway_domain::{execution::dispatch::RequestedDispatch, id::TenantId, tenant::TenantScope};
use fairway_fair_queue::{AcquireError, FairSemaphore, Limits, Permit};
use std::{fmt, time::Duration};

/// Maximum number of concurrent runs for requests. Each run occupies the memory of a prompt and up to 128 KiB of
/// values.
const MAX_RUNS: usize = 256;
/// Maximum number of runs of one tenant; the other slots remain free for other tenants.
const MAX_PER_TENANT: usize = MAX_RUNS / 4 * 3;

/// An inline run slot; dropping it frees the slot.
pub(super) type InlineRunSlot = Permit<TenantId>;

/// Where an accepted run executes.
pub(super) enum Placement {
    /// In this process, which reserves a slot for it.
    Inline(InlineRunSlot),
    /// In the worker that claims the run from the queue.
    Queue,
}

impl Executions {
    /// Selects where a run executes, according to the dispatch policy of the installation. Script runs are never
    /// queued.
    ///
    /// # Errors
    /// Unavailable when this process is at its limit and the run cannot be queued.
    pub(super) async fn placement(&self, scope: TenantScope, request: &ExecuteRequest) -> Result<Placement, Failure> {
        let is_queued = |requested_dispatch| {
            request.payload.has_steps() && self.settings.dispatch.should_queue(requested_dispatch).unwrap_or_default()
        };
        if is_queued(request.wait.requested_dispatch()) {
            return Ok(Placement::Queue);
        }
        match self.run_limit.acquire(scope).await {
            Some(permit) => Ok(Placement::Inline(permit)),
            None if is_queued(RequestedDispatch::Queued) => Ok(Placement::Queue),
            None => Err(permit_failure(AcquireError::TimedOut)),
        }
    }
}

/// The slots for runs that a process executes for requests.
pub(crate) struct InlineRunSlots(FairSemaphore<TenantId>);

impl Default for InlineRunSlots {
    fn default() -> Self {
        Self(FairSemaphore::new(Limits { permits_per_key: MAX_PER_TENANT, ..Limits::unlimited_per_key(MAX_RUNS) }))
    }
}

impl fmt::Debug for InlineRunSlots {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("InlineRunSlots")
    }
}

impl InlineRunSlots {
    /// Acquires an inline run slot for a tenant; returns `None` if no slot is free.
    pub(super) async fn acquire(&self, scope: TenantScope) -> Option<InlineRunSlot> {
        self.0.acquire(scope.tenant(), Duration::ZERO).await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[tokio::test]
    async fn one_tenant_leaves_run_slots_to_others() {
        let (limit, tenant) =
            (InlineRunSlots::default(), |number| TenantScope::for_background_task(Uuid::from_u128(number).into()));
        let mut acquired = Vec::new();
        while let Some(permit) = limit.acquire(tenant(1)).await {
            acquired.push(permit);
        }
        assert_eq!(acquired.len(), MAX_PER_TENANT);
        while let Some(permit) = limit.acquire(tenant(2)).await {
            acquired.push(permit);
        }
        assert_eq!(acquired.len(), MAX_RUNS);
        drop(acquired.pop());
        assert!(limit.acquire(tenant(1)).await.is_none(), "the tenant has its share");
        assert!(limit.acquire(tenant(3)).await.is_some());
    }
}
