//! Caches of these operations, each bounded by the bytes of its entries.
//!
//! A caller chooses many of the keys, so a bound on the number of entries bounds no memory. [`MAX_BYTES`] lists every cache
//! with its share of the process's memory ([0055](../../../docs/decisions/0055-caches-are-bounded-by-bytes.md)).

use crate::access::Claims;
use fairway_domain::{access::Caller, execution::ports::RuntimeEntry, workload::interface::InterfaceConfig};
use moka::sync::{Cache, CacheBuilder};
use std::{fmt, hash::Hash, sync::Arc};
use tokio::sync::OnceCell;

/// Bytes that a cache may hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MaxBytes {
    /// Compiled run plans.
    pub(crate) plans: u64,
    /// Workloads with their deployment, by slug and, for workers, by identifier: each of the two.
    pub(crate) entries: u64,
    /// Callers with their rights.
    pub(crate) callers: u64,
    /// Rendered active releases.
    pub(crate) active_releases: u64,
    /// Tenants of the callers that read active releases.
    pub(crate) active_release_tenants: u64,
    /// Namespaces of workspaces.
    pub(crate) namespaces: u64,
    /// Summaries of versions for the activation checks.
    pub(crate) summaries: u64,
    /// Clients that the rate limit refuses.
    pub(crate) refused_clients: u64,
    /// Public workloads that were looked up lately.
    pub(crate) public_workloads: u64,
    /// Damaged artifacts whose mismatch was recorded lately.
    pub(crate) mismatches: u64,
}

/// 73 MiB together.
pub(crate) const MAX_BYTES: MaxBytes = MaxBytes {
    plans: 40 << 20,
    entries: 6 << 20,
    callers: 5 << 20,
    active_releases: 6 << 20,
    active_release_tenants: 1 << 20,
    namespaces: 2 << 20,
    summaries: 2 << 20,
    refused_clients: 3 << 20,
    public_workloads: 1 << 20,
    mismatches: 1 << 20,
};

/// The largest run plan that its cache keeps, in bytes: the cache counts the key and the entry beside it.
pub(crate) const MAX_PLAN_BYTES: usize = (40 << 20) - (4 << 10);

/// Memory of an entry beside its key and its value, in bytes: the node of the hash table and those of the access and write
/// queues.
const ENTRY_OVERHEAD: usize = 384;

/// A builder of a cache that holds entries of at most `max_bytes` together. `bytes` estimates the memory of a key and its
/// value, what they point to included.
pub(crate) fn weighed<K, V>(
    max_bytes: u64,
    bytes: impl Fn(&K, &V) -> usize + Send + Sync + 'static,
) -> CacheBuilder<K, V, Cache<K, V>>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    let weigher = move |key: &K, value: &V| {
        let inline = size_of::<K>().saturating_add(size_of::<V>()).saturating_add(ENTRY_OVERHEAD);
        // moka refuses an entry that weighs more than its capacity.
        u32::try_from(bytes(key, value).saturating_add(inline)).unwrap_or(u32::MAX)
    };
    Cache::builder().max_capacity(max_bytes).weigher(weigher)
}

/// Values that are being made: whoever wants one meanwhile waits for it and makes no second one.
pub(crate) struct InFlight<K, V>(Cache<K, Arc<OnceCell<V>>>);

impl<K, V> fmt::Debug for InFlight<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InFlight")
    }
}

/// Most values that are being made at once. Beyond, a value may be made twice.
const MAX_IN_FLIGHT: u64 = 1_024;

impl<K, V> InFlight<K, V>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    pub(crate) fn new() -> Self {
        Self(Cache::builder().max_capacity(MAX_IN_FLIGHT).build())
    }

    /// Makes a value, or waits for the one that is being made. A failure is of the request that made it alone: the next one
    /// tries again.
    pub(crate) async fn make<E>(&self, key: K, make: impl Future<Output = Result<V, E>>) -> Result<V, E>
    where
        K: Clone,
    {
        let cell = self.0.get_with(key.clone(), Arc::default);
        let made = cell.get_or_try_init(|| make).await.cloned();
        if made.is_ok() {
            self.0.invalidate(&key);
        }
        made
    }
}

/// A rough mean of what a reference to an actor takes on the heap, in bytes; its name has at most 127.
const ACTOR_BYTES: usize = 96;

/// The heap memory of what a request claims, in bytes.
pub(crate) const fn claims_bytes(claims: &Claims) -> usize {
    claims.groups.len().saturating_add(1).saturating_mul(ACTOR_BYTES)
}

/// The heap memory of a caller, in bytes.
pub(crate) fn caller_bytes(caller: &Caller) -> usize {
    let actors = caller.groups.len().saturating_add(1).saturating_mul(ACTOR_BYTES);
    [size_of::<Caller>(), caller.rights.heap_bytes(), caller.lanes.heap_bytes()]
        .into_iter()
        .fold(actors, usize::saturating_add)
}

/// The heap memory of a workload with its deployment, in bytes.
pub(crate) fn entry_bytes(entry: &RuntimeEntry) -> usize {
    let workload = &entry.workload;
    let texts = workload.name.len().saturating_add(workload.description.len());
    let interface = workload.interface_config.as_ref().map_or(0, InterfaceConfig::heap_bytes);
    [size_of::<RuntimeEntry>(), 4 * ACTOR_BYTES, texts, interface].into_iter().fold(0, usize::saturating_add)
}

#[cfg(test)]
mod tests;
