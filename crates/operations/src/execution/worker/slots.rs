//! The slots of a worker, and the number of active runs of each tenant.

use fairway_domain::id::TenantId;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};
use tokio::sync::OwnedSemaphorePermit;

/// Number of runs that this worker executes for each tenant.
pub(super) type RunCounts = Arc<Mutex<HashMap<TenantId, u16>>>;

/// A slot for one run; dropping it frees the slot.
pub(super) struct WorkerSlot {
    pub(super) counts: RunCounts,
    pub(super) tenant: TenantId,
    pub(super) _permit: OwnedSemaphorePermit,
}

impl Drop for WorkerSlot {
    fn drop(&mut self) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.tenant) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                counts.remove(&self.tenant);
            }
        }
    }
}
