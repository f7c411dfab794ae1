//! Registry of the runs that this process executes. A shutdown releases their leases, and wakeups reach them through
//! it.

use fairway_domain::{id::ExecutionId, tenant::TenantScope};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::Notify;
use uuid::Uuid;

#[derive(Debug)]
struct Entry {
    scope: TenantScope,
    lease: Uuid,
    recheck: Arc<Notify>,
}

/// The active runs of this process with their leases.
#[derive(Debug, Default)]
pub(crate) struct ActiveRuns(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    runs: HashMap<ExecutionId, Entry>,
    /// Number of claims in flight.
    claims: usize,
    /// Whether new claims are refused.
    is_closed: bool,
}

/// The registration of an active run; dropping it deregisters the run.
#[derive(Debug)]
pub(crate) struct ActiveGuard {
    runs: Arc<ActiveRuns>,
    id: ExecutionId,
    lease: Uuid,
    /// Notified when the run must check that it still holds its lease.
    pub(crate) recheck: Arc<Notify>,
}

impl Drop for ActiveGuard {
    fn drop(&mut self) {
        let mut state = self.runs.state();
        if state.runs.get(&self.id).is_some_and(|entry| entry.lease == self.lease) {
            state.runs.remove(&self.id);
        }
    }
}

/// A claim in flight; its runs are not registered yet. Dropping it ends the claim.
#[derive(Debug)]
pub(crate) struct ClaimInFlight(Arc<ActiveRuns>);

impl Drop for ClaimInFlight {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.claims = state.claims.saturating_sub(1);
    }
}

impl ActiveRuns {
    fn state(&self) -> MutexGuard<'_, State> {
        // A panic leaves the state consistent, because each change is a single call. A poisoned lock can therefore be
        // used.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a run before or during its execution.
    pub(crate) fn register(self: &Arc<Self>, scope: TenantScope, id: ExecutionId, lease: Uuid) -> ActiveGuard {
        let recheck = Arc::new(Notify::new());
        self.state().runs.insert(id, Entry { scope, lease, recheck: Arc::clone(&recheck) });
        ActiveGuard { runs: Arc::clone(self), id, lease, recheck }
    }

    /// Registers a claim in flight; returns `None` during shutdown.
    pub(crate) fn begin_claim(self: &Arc<Self>) -> Option<ClaimInFlight> {
        let mut state = self.state();
        if state.is_closed {
            return None;
        }
        state.claims += 1;
        Some(ClaimInFlight(Arc::clone(self)))
    }

    /// Refuses all further claims, because the process shuts down.
    pub(crate) fn close(&self) {
        self.state().is_closed = true;
    }

    pub(crate) fn recheck(&self, id: ExecutionId) {
        if let Some(entry) = self.state().runs.get(&id) {
            entry.recheck.notify_one();
        }
    }

    pub(crate) fn recheck_all(&self) {
        self.state().runs.values().for_each(|entry| entry.recheck.notify_one());
    }

    /// Whether no run is active and no claim is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.state();
        state.runs.is_empty() && state.claims == 0
    }

    pub(crate) fn take_all(&self) -> Vec<(TenantScope, ExecutionId, Uuid)> {
        self.state().runs.drain().map(|(id, entry)| (entry.scope, id, entry.lease)).collect()
    }
}
