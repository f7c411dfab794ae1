//! Rate limits of anonymous clients. The store counts requests for all processes. This process caches refusals until
//! they expire, so that a refused client causes no further queries.

use crate::{
    Failure, Settings, Stores,
    access::IdentityMode,
    cache::{CACHE_BYTE_LIMITS, weighted_cache},
    services::SharedState,
};
use fairway_domain::{
    access::Caller,
    anonymous_rate_limit::{Quota, RateLimitDecision, RateLimitKey, RateLimitRefusal, RateLimitStore},
    client_address::ClientAddress,
    id::WorkloadId,
    share_link::is_guest,
    tenant::TenantScope,
    workload::{Workload, interface::AccessMode},
};
use moka::sync::Cache;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// Maximum lifetime of a cached refusal. The longest wait is 60 seconds, for a quota of one request per minute.
const MAX_REFUSAL: Duration = Duration::from_secs(61);

/// Minimum interval between two reads of a workload's access mode while its clients are refused.
const ACCESS_CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Cached refusals with their expiry. The store would refuse the same requests, so the cache only saves queries.
#[derive(Clone, Debug)]
pub(crate) struct RateLimitCache {
    refusals: Cache<RateLimitKey, (Instant, Quota)>,
    /// Workloads whose access mode was read recently.
    checked_workloads: Cache<WorkloadId, ()>,
}

impl RateLimitCache {
    pub(crate) fn new() -> Self {
        Self {
            // If the cache is full, it may evict refusals. The store then decides about the client.
            refusals: weighted_cache(CACHE_BYTE_LIMITS.refused_clients, |_, _| 0).time_to_live(MAX_REFUSAL).build(),
            checked_workloads: weighted_cache(CACHE_BYTE_LIMITS.public_workloads, |_, ()| 0)
                .time_to_live(ACCESS_CHECK_INTERVAL)
                .build(),
        }
    }

    /// Returns whether the access mode of a workload must be read again, and marks it as read. A burst of refused
    /// requests therefore causes one read per interval.
    pub(crate) fn is_access_check_due(&self, workload: WorkloadId) -> bool {
        self.checked_workloads.entry(workload).or_insert(()).is_fresh()
    }

    fn check(&self, key: &RateLimitKey) -> Result<(), RateLimitRefusal> {
        let Some((expires_at, quota)) = self.refusals.get(key) else { return Ok(()) };
        match expires_at.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Ok(()),
            wait => Err(RateLimitRefusal { quota, retry_after: wait }),
        }
    }

    fn insert(&self, key: RateLimitKey, refusal: RateLimitRefusal) {
        self.refusals.insert(key, (Instant::now() + refusal.retry_after.min(MAX_REFUSAL), refusal.quota));
    }
}

/// Counts the requests of anonymous clients and of share link holders against their quotas.
#[derive(Clone)]
pub struct RateLimits {
    refusals: RateLimitCache,
    settings: Arc<Settings>,
    rate_limit_store: Arc<dyn RateLimitStore>,
}

impl RateLimits {
    pub(crate) fn new(stores: &Stores, shared: &SharedState) -> Self {
        Self {
            refusals: shared.refusals.clone(),
            settings: Arc::clone(&shared.settings),
            rate_limit_store: Arc::clone(&stores.rate_limits),
        }
    }
}

impl RateLimits {
    /// Returns whether the access mode of a workload must be read again while its clients are refused.
    pub(crate) fn is_access_check_due(&self, workload: WorkloadId) -> bool {
        self.refusals.is_access_check_due(workload)
    }

    /// Counts a request against its quota.
    ///
    /// # Errors
    /// When the quota is exceeded.
    pub(crate) async fn count_request(
        &self,
        scope: TenantScope,
        key: RateLimitKey,
        quota: Quota,
    ) -> Result<(), Failure> {
        self.check_cached_refusal(&key)?;
        match self.rate_limit_store.try_acquire(scope, &key, quota).await? {
            RateLimitDecision::Allowed => Ok(()),
            RateLimitDecision::Refused(refusal) => {
                self.refusals.insert(key, refusal);
                Err(Failure::Throttled(refusal))
            }
        }
    }

    /// Checks the cached refusals without counting a request.
    ///
    /// # Errors
    /// When a cached refusal applies.
    pub(crate) fn check_cached_refusal(&self, key: &RateLimitKey) -> Result<(), Failure> {
        self.refusals.check(key).map_err(Failure::Throttled)
    }

    /// Deletes the counters of clients that could send a full burst now; returns their number.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn delete_idle_clients(&self) -> Result<u64, Failure> {
        Ok(self.rate_limit_store.delete_idle().await?)
    }

    /// Counts a request to a public workload. In OIDC mode, callers with a verified identity are not counted. In
    /// local mode, every request is counted, because requests can invent names.
    ///
    /// # Errors
    /// When the client exceeds its rate limit.
    pub(crate) async fn count_workload_request(
        &self,
        caller: &Caller,
        workload: &Workload,
        address: Option<ClientAddress>,
    ) -> Result<(), Failure> {
        let is_verified = self.settings.identity == IdentityMode::Oidc && !is_guest(caller.actor.kind());
        let (AccessMode::Public, Some(address)) = (workload.effective_access_mode(), address) else { return Ok(()) };
        if is_verified {
            return Ok(());
        }
        let scope = TenantScope::for_caller(caller);
        self.count_request(
            scope,
            RateLimitKey::PublicWorkload(workload.workload_id, address),
            self.settings.public_rate,
        )
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairway_domain::client_address::ClientAddress;

    #[test]
    fn cached_refusals_expire_with_their_wait() {
        let cache = RateLimitCache::new();
        let key =
            |address: &str| RateLimitKey::UnknownTokens(ClientAddress::from_ip_truncating_v6(address.parse().unwrap()));
        let refusal = |wait| RateLimitRefusal { quota: Quota { per_minute: 60, burst: 1 }, retry_after: wait };
        cache.insert(key("192.0.2.1"), refusal(Duration::from_secs(50)));
        cache.insert(key("192.0.2.2"), refusal(Duration::ZERO));
        assert!(cache.check(&key("192.0.2.1")).is_err_and(|refusal| refusal.retry_after > Duration::from_secs(40)));
        assert_eq!(cache.check(&key("192.0.2.2")), Ok(()));
        assert_eq!(cache.check(&key("192.0.2.3")), Ok(()));
    }
}
