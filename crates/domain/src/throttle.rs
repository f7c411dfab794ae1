//! How often somebody without a name may ask: so much at once, and then at a steady rate.
//!
//! The rule is the generic cell rate algorithm: each request moves the moment at which its client has nothing left to
//! wait for by one interval, and is refused where that moment would lie further ahead than a burst takes. One moment is
//! all that is kept of a client.

use crate::{id::WorkloadId, store::StoreError, tenant::TenantScope};
use async_trait::async_trait;
use std::{
    net::{IpAddr, Ipv6Addr},
    time::Duration,
};

/// Bits of an IPv6 address that tell clients apart: whoever has one address of a network of this size has all of them.
const NETWORK: u32 = 64;

/// Where a request comes from, as far as clients are told apart by it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ClientAddress(IpAddr);

impl ClientAddress {
    /// The client of this address: itself for IPv4 in either spelling, its network for IPv6.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V4(address) => IpAddr::V4(address),
            IpAddr::V6(address) => {
                let network = u128::from(address) & (u128::MAX << (u128::BITS - NETWORK));
                IpAddr::V6(Ipv6Addr::from(network))
            }
        })
    }
}

/// How much is allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quota {
    /// Requests a minute, over time; at least one.
    pub per_minute: u32,
    /// Requests at once; at least one.
    pub burst: u32,
}

impl Quota {
    /// The time between two requests at the steady rate.
    #[must_use]
    pub fn interval(self) -> Duration {
        Duration::from_secs(60) / self.per_minute.max(1)
    }

    /// The time that a burst takes at the steady rate.
    #[must_use]
    pub fn span(self) -> Duration {
        self.interval() * self.burst.max(1)
    }

    /// How many requests are left at once to a client whose last one is paid for after `ahead`.
    #[must_use]
    pub fn left(self, ahead: Duration) -> u32 {
        let free = self.span().saturating_sub(ahead).as_nanos() / self.interval().as_nanos().max(1);
        u32::try_from(free).unwrap_or(u32::MAX)
    }
}

/// What is counted: requests of one client to one thing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Counted {
    /// Requests to a public workload.
    Visits(WorkloadId, ClientAddress),
    /// Tokens that no link has.
    Guesses(ClientAddress),
}

impl Counted {
    /// What it is kept under: no address can be read out of a table of these without trying all of them.
    #[must_use]
    pub fn bucket(&self) -> [u8; 32] {
        let (name, ClientAddress(address)) = match self {
            Self::Visits(workload, address) => (workload.to_string(), address),
            Self::Guesses(address) => ("guesses".to_owned(), address),
        };
        blake3::derive_key("fairway 2026 throttle bucket", format!("{name} {address}").as_bytes())
    }
}

/// A request was counted, or refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    /// It was counted.
    Yes,
    /// It was one too many, and not counted.
    No(Throttled),
}

/// What who asks too often is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Throttled {
    /// The quota.
    pub quota: Quota,
    /// After which time one more is allowed.
    pub wait: Duration,
}

/// Counts for all processes.
#[async_trait]
pub trait ThrottleStore: Send + Sync {
    /// Counts one request, if the quota allows it, by the database's clock.
    async fn take(&self, scope: TenantScope, counted: &Counted, quota: Quota) -> Result<Taken, StoreError>;
    /// Forgets clients that have nothing to wait for; answers how many.
    async fn sweep(&self) -> Result<u64, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn client(text: &str) -> ClientAddress {
        ClientAddress::of(text.parse().unwrap())
    }

    #[test]
    fn clients_are_told_apart_by_address_and_by_network() {
        assert_eq!(client("::ffff:192.0.2.1"), client("192.0.2.1"));
        assert_ne!(client("192.0.2.1"), client("192.0.2.2"));
        assert_eq!(client("2001:db8:1:2::1"), client("2001:db8:1:2:ffff:ffff:ffff:ffff"));
        assert_ne!(client("2001:db8:1:2::1"), client("2001:db8:1:3::1"));
        let workload = |number| Uuid::from_u128(number).into();
        let buckets = [
            Counted::Visits(workload(1), client("192.0.2.1")).bucket(),
            Counted::Visits(workload(2), client("192.0.2.1")).bucket(),
            Counted::Visits(workload(1), client("192.0.2.2")).bucket(),
            Counted::Guesses(client("192.0.2.1")).bucket(),
        ];
        for (index, bucket) in buckets.iter().enumerate() {
            assert!(buckets.iter().skip(index + 1).all(|other| other != bucket));
        }
    }

    #[test]
    fn a_burst_is_what_is_left_at_once() {
        let quota = Quota { per_minute: 60, burst: 10 };
        assert_eq!((quota.interval(), quota.span()), (Duration::from_secs(1), Duration::from_secs(10)));
        for (ahead, left) in [(0, 10), (1, 9), (1_000, 9), (1_001, 8), (9_999, 0), (10_000, 0), (60_000, 0)] {
            assert_eq!(quota.left(Duration::from_millis(ahead)), left, "{ahead}");
        }
        assert_eq!(Quota { per_minute: 0, burst: 0 }.left(Duration::ZERO), 1);
    }
}
