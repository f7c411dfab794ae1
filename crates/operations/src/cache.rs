//! Caches with a limit on the bytes of their entries, and the byte limits of the caches in this crate.
//!
//! Callers choose many of the keys and thereby the size of the entries, so a limit on their number would not limit
//! memory. [`CACHE_BYTE_LIMITS`] contains the byte limits. Two caches have entries of fixed size and limit their number
//! instead ([0055](../../../docs/decisions/0055-caches-are-bounded-by-bytes.md)).

use crate::access::IdentityClaims;
use fairway_domain::{access::Caller, execution::ports::WorkloadWithDeployment, workload::interface::InterfaceConfig};
use moka::sync::{Cache, CacheBuilder};
use std::{fmt, hash::Hash, sync::Arc};
use tokio::sync::OnceCell;

/// Byte limits of the caches, one field for each cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheByteLimits {
    /// Compiled run plans by release.
    pub(crate) plans: u64,
    /// Workloads with their deployments. This limit applies separately to the cache by slug and to the workers' cache
    /// by identifier.
    pub(crate) entries: u64,
    /// Callers with their rights.
    pub(crate) callers: u64,
    /// Namespaces by workspace.
    pub(crate) namespaces: u64,
    /// Summaries of versions for the activation checks.
    pub(crate) summaries: u64,
    /// Clients that currently exceed the rate limit.
    pub(crate) refused_clients: u64,
    /// Public workloads whose access mode was read recently, while their clients are refused.
    pub(crate) public_workloads: u64,
    /// Damaged artifacts about which an incident was recorded recently.
    pub(crate) mismatches: u64,
    /// Pinned identities of subjects that sent requests recently.
    pub(crate) pinned_identities: u64,
    /// Subjects about which a fact was recorded recently.
    pub(crate) recorded_identities: u64,
    /// Tenant identifiers by slug.
    pub(crate) tenants_by_slug: u64,
    /// Full tiles of transparency logs.
    pub(crate) log_tiles: u64,
}

/// The byte limits of the caches, 74 MiB in total.
pub(crate) const CACHE_BYTE_LIMITS: CacheByteLimits = CacheByteLimits {
    plans: 40 << 20,
    entries: 6 << 20,
    callers: 5 << 20,
    namespaces: 2 << 20,
    summaries: 2 << 20,
    refused_clients: 3 << 20,
    public_workloads: 1 << 20,
    mismatches: 1 << 20,
    pinned_identities: 2 << 20,
    recorded_identities: 1 << 20,
    tenants_by_slug: 1 << 20,
    log_tiles: 4 << 20,
};

/// Maximum size of a run plan that the cache admits, in bytes. The difference from the cache's limit leaves room for
/// the key and the entry overhead.
pub(crate) const MAX_CACHED_PLAN_BYTES: usize = (40 << 20) - (4 << 10);

/// Memory of a cache entry in addition to its key and value, in bytes: its nodes in the hash table, the access queue
/// and the write queue.
const ENTRY_OVERHEAD: usize = 384;

/// Returns the builder of a cache whose entries occupy at most `max_bytes` in total. `bytes` estimates the heap
/// memory of a key and its value.
pub fn weighted_cache<K, V>(
    max_bytes: u64,
    bytes: impl Fn(&K, &V) -> usize + Send + Sync + 'static,
) -> CacheBuilder<K, V, Cache<K, V>>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    let weigher = move |key: &K, value: &V| {
        let inline = size_of::<K>().saturating_add(size_of::<V>()).saturating_add(ENTRY_OVERHEAD);
        // The cache does not admit an entry that weighs more than its capacity.
        u32::try_from(bytes(key, value).saturating_add(inline)).unwrap_or(u32::MAX)
    };
    Cache::builder().max_capacity(max_bytes).weigher(weigher)
}

/// Single flight: concurrent requests for the same key await one computation. Its value is not kept.
pub(crate) struct PendingLoads<K, V>(Cache<K, Arc<OnceCell<V>>>);

impl<K, V> fmt::Debug for PendingLoads<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PendingLoads")
    }
}

/// Maximum number of keys with a computation in progress. Beyond this number, a value may be computed twice.
const MAX_CONCURRENT: u64 = 1_024;

impl<K, V> PendingLoads<K, V>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    pub(crate) fn new() -> Self {
        Self(Cache::builder().max_capacity(MAX_CONCURRENT).build())
    }

    /// Computes a value, or awaits the current computation of the same key. Only the request that computes receives a
    /// failure; the next waiting request computes again.
    pub(crate) async fn get_or_compute<E>(
        &self,
        key: K,
        computation: impl Future<Output = Result<V, E>>,
    ) -> Result<V, E>
    where
        K: Clone,
    {
        let cell = self.0.get_with(key.clone(), Arc::default);
        let result = cell.get_or_try_init(|| computation).await.cloned();
        if result.is_ok() {
            self.0.invalidate(&key);
        }
        result
    }
}

/// Estimated heap memory of one actor reference, in bytes.
const ACTOR_BYTES: usize = 96;

/// Estimates the heap memory of identity claims, in bytes.
pub const fn claims_bytes(claims: &IdentityClaims) -> usize {
    claims.groups.len().saturating_add(1).saturating_mul(ACTOR_BYTES)
}

/// Estimates the heap memory of a caller, in bytes.
pub(crate) fn caller_bytes(caller: &Caller) -> usize {
    let actors = caller.groups.len().saturating_add(1).saturating_mul(ACTOR_BYTES);
    [size_of::<Caller>(), caller.rights.heap_bytes(), caller.lanes.heap_bytes()]
        .into_iter()
        .fold(actors, usize::saturating_add)
}

/// Estimates the heap memory of a workload with its deployment, in bytes.
pub(crate) fn workload_with_deployment_bytes(entry: &WorkloadWithDeployment) -> usize {
    let workload = &entry.workload;
    let texts = workload.name.len().saturating_add(workload.description.len());
    let interface = workload.interface_config.as_ref().map_or(0, InterfaceConfig::heap_bytes);
    [size_of::<WorkloadWithDeployment>(), 4 * ACTOR_BYTES, texts, interface].into_iter().fold(0, usize::saturating_add)
}

#[cfg(test)]
mod tests;
