//! The runs that this process works on at present, so that a stop can hand them back.

use fairway_domain::{id::ExecutionId, tenant::TenantScope};
use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};
use uuid::Uuid;

/// Runs under way in this process, with their leases.
#[derive(Debug, Default)]
pub(crate) struct LiveRuns(Mutex<HashMap<ExecutionId, (TenantScope, Uuid)>>);

impl LiveRuns {
    pub(crate) fn enter(&self, scope: TenantScope, id: ExecutionId, lease: Uuid) {
        // A panic elsewhere leaves the map whole: each change of it is one call.
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id, (scope, lease));
    }

    pub(crate) fn leave(&self, id: ExecutionId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }

    pub(crate) fn take_all(&self) -> Vec<(TenantScope, ExecutionId, Uuid)> {
        let mut live = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        live.drain().map(|(id, (scope, lease))| (scope, id, lease)).collect()
    }
}
