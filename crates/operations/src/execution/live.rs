//! The runs that this process works on at present, so that a stop can hand them back and a word about one reaches who works
//! on it.

use fairway_domain::{id::ExecutionId, tenant::TenantScope};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::Notify;
use uuid::Uuid;

#[derive(Debug)]
struct Live {
    scope: TenantScope,
    lease: Uuid,
    look: Arc<Notify>,
}

/// Runs under way in this process, with their leases.
#[derive(Debug, Default)]
pub(crate) struct LiveRuns(Mutex<HashMap<ExecutionId, Live>>);

impl LiveRuns {
    fn runs(&self) -> MutexGuard<'_, HashMap<ExecutionId, Live>> {
        // A panic elsewhere leaves the map whole: each change of it is one call.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Work on a run begins. Answers with what says that its lease should be looked at.
    pub(crate) fn enter(&self, scope: TenantScope, id: ExecutionId, lease: Uuid) -> Arc<Notify> {
        let look = Arc::new(Notify::new());
        self.runs().insert(id, Live { scope, lease, look: Arc::clone(&look) });
        look
    }

    /// Work on a run under that lease is over.
    pub(crate) fn leave(&self, id: ExecutionId, lease: Uuid) {
        let mut runs = self.runs();
        if runs.get(&id).is_some_and(|live| live.lease == lease) {
            runs.remove(&id);
        }
    }

    pub(crate) fn look(&self, id: ExecutionId) {
        if let Some(live) = self.runs().get(&id) {
            live.look.notify_one();
        }
    }

    pub(crate) fn look_at_all(&self) {
        self.runs().values().for_each(|live| live.look.notify_one());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.runs().is_empty()
    }

    pub(crate) fn take_all(&self) -> Vec<(TenantScope, ExecutionId, Uuid)> {
        self.runs().drain().map(|(id, live)| (live.scope, id, live.lease)).collect()
    }
}
