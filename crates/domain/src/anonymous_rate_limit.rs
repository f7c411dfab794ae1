//! Rate limiting of anonymous requests: a burst, and then a sustained rate.
//!
//! The algorithm is the generic cell rate algorithm. Each request advances the client's theoretical arrival time by one
//! interval. A request is refused if the advanced time would be later than the present by more than the duration of a
//! burst. The theoretical arrival time is the only state that is stored for a client.

use crate::{client_address::ClientAddress, id::WorkloadId, store::StoreError, tenant::TenantScope};
use async_trait::async_trait;
use std::time::Duration;

/// The quota of a rate limit: a sustained rate and a burst.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quota {
    /// The sustained number of requests per minute; at least one.
    pub per_minute: u32,
    /// The number of requests that are allowed at once; at least one.
    pub burst: u32,
}

impl Quota {
    /// The time between two requests at the sustained rate.
    #[must_use]
    pub fn interval(self) -> Duration {
        Duration::from_secs(60) / self.per_minute.max(1)
    }

    /// The time in which the sustained rate allows as many requests as a burst.
    #[must_use]
    pub fn burst_duration(self) -> Duration {
        self.interval() * self.burst.max(1)
    }

    /// The number of requests that are allowed now. `lead` is the time by which the theoretical arrival time is later
    /// than the present.
    #[must_use]
    pub fn available_requests(self, lead: Duration) -> u32 {
        let available = self.burst_duration().saturating_sub(lead).as_nanos() / self.interval().as_nanos().max(1);
        u32::try_from(available).unwrap_or(u32::MAX)
    }
}

/// The requests that a rate limit counts together: those of one client to one resource.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RateLimitKey {
    /// Requests of a client to a public workload.
    PublicWorkload(WorkloadId, ClientAddress),
    /// Requests of a client that present unknown tokens.
    UnknownTokens(ClientAddress),
}

impl RateLimitKey {
    /// The key under which the state is stored. It is a hash, so the client's address can be found only by trying all
    /// addresses.
    #[must_use]
    pub fn storage_key(&self) -> [u8; 32] {
        let (name, address) = match self {
            Self::PublicWorkload(workload, address) => (workload.to_string(), address),
            Self::UnknownTokens(address) => ("guesses".to_owned(), address),
        };
        blake3::derive_key("fairway 2026 throttle bucket", format!("{name} {}", address.ip()).as_bytes())
    }
}

/// The result of a rate limit check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RateLimitDecision {
    /// The request is within the quota and was counted.
    Allowed,
    /// The request exceeds the quota, and was not counted.
    Refused(RateLimitRefusal),
}

/// The details of a refused request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RateLimitRefusal {
    /// The quota that the request exceeded.
    pub quota: Quota,
    /// The time until the next request is allowed.
    pub retry_after: Duration,
}

/// Stores the state of rate limits, shared by all processes.
#[async_trait]
pub trait RateLimitStore: Send + Sync {
    /// Counts a request if the quota allows it, according to the clock of the database.
    async fn try_acquire(
        &self,
        scope: TenantScope,
        key: &RateLimitKey,
        quota: Quota,
    ) -> Result<RateLimitDecision, StoreError>;
    /// Deletes the state of clients that could send a full burst now, because it has no effect; returns their number.
    async fn delete_idle(&self) -> Result<u64, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn client(text: &str) -> ClientAddress {
        ClientAddress::from_ip_truncating_v6(text.parse().unwrap())
    }

    #[test]
    fn storage_keys_differ_by_client_and_resource() {
        let workload = |number| Uuid::from_u128(number).into();
        let buckets = [
            RateLimitKey::PublicWorkload(workload(1), client("192.0.2.1")).storage_key(),
            RateLimitKey::PublicWorkload(workload(2), client("192.0.2.1")).storage_key(),
            RateLimitKey::PublicWorkload(workload(1), client("192.0.2.2")).storage_key(),
            RateLimitKey::UnknownTokens(client("192.0.2.1")).storage_key(),
        ];
        for (index, bucket) in buckets.iter().enumerate() {
            assert!(buckets.iter().skip(index + 1).all(|other| other != bucket));
        }
    }

    #[test]
    fn computes_available_requests() {
        let quota = Quota { per_minute: 60, burst: 10 };
        assert_eq!((quota.interval(), quota.burst_duration()), (Duration::from_secs(1), Duration::from_secs(10)));
        for (lead_millis, expected) in [(0, 10), (1, 9), (1_000, 9), (1_001, 8), (9_999, 0), (10_000, 0), (60_000, 0)] {
            assert_eq!(quota.available_requests(Duration::from_millis(lead_millis)), expected, "{lead_millis}");
        }
        assert_eq!(Quota { per_minute: 0, burst: 0 }.available_requests(Duration::ZERO), 1);
    }
}
