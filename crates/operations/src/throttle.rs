//! Rate limits of anonymous clients. The store counts for all processes. This process caches refusals until they
//! expire, so that a refused client costs the store nothing.

use crate::{
    Failure, Services,
    cache::{MAX_BYTES, weighed},
};
use fairway_domain::{
    id::WorkloadId,
    tenant::TenantScope,
    throttle::{Counted, Quota, Taken, Throttled},
};
use moka::sync::Cache;
use std::time::{Duration, Instant};

/// Maximum lifetime of a cached refusal: longer than the wait of a quota of one request per minute.
const MAX_REFUSAL: Duration = Duration::from_secs(61);

/// How often the access mode of a workload is read again while its clients are refused.
const ACCESS_CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Cached refusals with their expiry. The cache refuses no request that the store would admit.
#[derive(Clone, Debug)]
pub(crate) struct Refused {
    clients: Cache<Counted, (Instant, Quota)>,
    /// Workloads whose access mode was read recently.
    looked: Cache<WorkloadId, ()>,
}

impl Refused {
    pub(crate) fn new() -> Self {
        Self {
            // For a client beyond the capacity, the store decides.
            clients: weighed(MAX_BYTES.refused_clients, |_, _| 0).time_to_live(MAX_REFUSAL).build(),
            looked: weighed(MAX_BYTES.public_workloads, |_, ()| 0).time_to_live(ACCESS_CHECK_INTERVAL).build(),
        }
    }

    /// Whether the access mode of a workload is due to be read again. A burst of refused requests reads it once per
    /// interval.
    pub(crate) fn is_due(&self, workload: WorkloadId) -> bool {
        self.looked.entry(workload).or_insert(()).is_fresh()
    }

    fn still(&self, counted: &Counted) -> Result<(), Throttled> {
        let Some((until, quota)) = self.clients.get(counted) else { return Ok(()) };
        match until.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Ok(()),
            wait => Err(Throttled { quota, wait }),
        }
    }

    fn remember(&self, counted: Counted, throttled: Throttled) {
        self.clients.insert(counted, (Instant::now() + throttled.wait.min(MAX_REFUSAL), throttled.quota));
    }
}

impl Services {
    /// Counts a request against its quota.
    ///
    /// # Errors
    /// When the quota is exceeded.
    pub(crate) async fn count(&self, scope: TenantScope, counted: Counted, quota: Quota) -> Result<(), Failure> {
        self.check_cached_refusal(&counted)?;
        match self.stores.throttle.take(scope, &counted, quota).await? {
            Taken::Yes => Ok(()),
            Taken::No(throttled) => {
                self.refused.remember(counted, throttled);
                Err(Failure::Throttled(throttled))
            }
        }
    }

    /// Checks the cached refusals without counting a request.
    ///
    /// # Errors
    /// When a cached refusal applies.
    pub(crate) fn check_cached_refusal(&self, counted: &Counted) -> Result<(), Failure> {
        self.refused.still(counted).map_err(Failure::Throttled)
    }

    /// Deletes expired counters of clients; returns their number.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn sweep_rate_limits(&self) -> Result<u64, Failure> {
        Ok(self.stores.throttle.sweep().await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairway_domain::throttle::ClientAddress;

    #[test]
    fn cached_refusals_expire_with_their_wait() {
        let refused = Refused::new();
        let of = |address: &str| Counted::Guesses(ClientAddress::of(address.parse().unwrap()));
        let throttled = |wait| Throttled { quota: Quota { per_minute: 60, burst: 1 }, wait };
        refused.remember(of("192.0.2.1"), throttled(Duration::from_secs(50)));
        refused.remember(of("192.0.2.2"), throttled(Duration::ZERO));
        assert!(refused.still(&of("192.0.2.1")).is_err_and(|still| still.wait > Duration::from_secs(40)));
        assert_eq!(refused.still(&of("192.0.2.2")), Ok(()));
        assert_eq!(refused.still(&of("192.0.2.3")), Ok(()));
    }
}
