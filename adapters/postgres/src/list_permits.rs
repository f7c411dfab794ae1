//! Fair sharing of list connections between callers.
//!
//! The duration of a list depends on its rows, and few connections serve lists. If connections were assigned in
//! order of arrival, one caller with twenty concurrent lists would make the requests of all others time out.

use crate::store_error;
use fairway_domain::{id::TenantId, store::StoreError};
use fairway_fair_queue::{FairSemaphore, Limits, Permit};
use fairway_memory_limit::{Admission, admit};
use std::{
    hash::{BuildHasher as _, Hash, RandomState},
    sync::LazyLock,
    time::Duration,
};
use tokio::time::Instant;

/// Maximum memory of the rows of a page, in bytes.
pub(crate) const MAX_PAGE_MEMORY_BYTES: usize = 1 << 20;

/// Maximum bytes of a page that is read without a memory reservation: a page of the default length with unmeasured
/// rows ([0057](../../../docs/decisions/0057-pages-end-at-one-mebibyte.md)). The permits limit concurrent reads, so
/// all small pages together need a few MiB. The process has more headroom than that above its soft memory limit.
const MAX_SMALL_PAGE_BYTES: usize = 256 << 10;

tokio::task_local! {
    static CALLER: CallerKey;
}

/// The key under which a task shares list connections fairly: the tenant, if the request names one, and the caller.
/// The caller is stored as a keyed hash (`SipHash` under a random key of the process). The hash needs no
/// allocation, and a client cannot choose the hash of another client.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CallerKey {
    tenant: Option<TenantId>,
    caller: u64,
}

/// The key of background tasks and of runs, which serve no request.
const BACKGROUND: CallerKey = CallerKey { tenant: None, caller: 0 };

impl CallerKey {
    /// Creates the key of a caller, in a tenant or outside of one.
    pub fn of(tenant: Option<TenantId>, caller: impl Hash) -> Self {
        static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        Self { tenant, caller: KEY.hash_one(caller) }
    }

    /// The key of the current task, to pass it to a task that it spawns.
    #[must_use]
    pub fn current() -> Self {
        CALLER.try_with(|caller| *caller).unwrap_or(BACKGROUND)
    }
}

/// Runs `work` under the key of a caller. A task that `work` spawns counts as background work, unless it also runs
/// under this function.
pub async fn with_caller_key<F: Future>(caller: CallerKey, work: F) -> F::Output {
    CALLER.scope(caller, work).await
}

/// Permits for list connections. Tenants take turns, and callers within a tenant. Clones share the permits.
#[derive(Clone, Debug)]
pub(crate) struct ListPermits(FairSemaphore<u64, Option<TenantId>>);

/// A permit and a memory reservation, held while a list is read.
#[derive(Debug)]
pub(crate) struct ListPermit {
    _permit: Permit<u64, Option<TenantId>>,
    /// `None` for a small page, which needs no reservation.
    _memory: Option<Admission>,
}

impl ListPermits {
    /// Creates this number of permits. If there are two or more, one caller can hold all but one of them.
    pub(crate) fn new(permits: usize) -> Self {
        let permits_per_key = permits.saturating_sub(1).max(1);
        Self(FairSemaphore::new(Limits { permits_per_key, ..Limits::unlimited_per_key(permits) }))
    }

    /// Acquires a permit for the caller of the current task, for a page of at most `bytes`. A small page needs no
    /// memory reservation, so it is not delayed by large work.
    ///
    /// # Errors
    /// `Unavailable` if the permit, and for a large page the memory, are not available within `wait`.
    pub(crate) async fn acquire(&self, bytes: usize, wait: Duration) -> Result<ListPermit, StoreError> {
        let CallerKey { tenant, caller } = CallerKey::current();
        let start = Instant::now();
        let permit = self.0.acquire_in(tenant, caller, wait).await;
        let permit = permit.map_err(|error| store_error::unavailable(Box::new(error)))?;
        let remaining = wait.saturating_sub(start.elapsed());
        let memory = match bytes <= MAX_SMALL_PAGE_BYTES {
            true => None,
            false => Some(admit(bytes, remaining).await.map_err(|error| store_error::unavailable(Box::new(error)))?),
        };
        Ok(ListPermit { _permit: permit, _memory: memory })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairway_domain::tenant::DEFAULT_TENANT_ID;

    const NO_WAIT: Duration = Duration::ZERO;

    #[tokio::test]
    async fn one_caller_leaves_a_permit_to_others_and_to_background_work() {
        let permits = ListPermits::new(2);
        let [ada, bob] = ["user:ada", "user:bob"].map(|caller| CallerKey::of(None, caller));
        let permit = with_caller_key(ada, permits.acquire(MAX_PAGE_MEMORY_BYTES, NO_WAIT)).await.unwrap();
        assert!(with_caller_key(ada, permits.acquire(MAX_PAGE_MEMORY_BYTES, NO_WAIT)).await.is_err());
        let in_tenant = CallerKey::of(Some(DEFAULT_TENANT_ID.into()), "user:ada");
        for other_caller in [bob, in_tenant] {
            drop(with_caller_key(other_caller, permits.acquire(MAX_PAGE_MEMORY_BYTES, NO_WAIT)).await.unwrap());
        }
        drop(permits.acquire(MAX_PAGE_MEMORY_BYTES, NO_WAIT).await.unwrap());
        drop(permit);
        drop(with_caller_key(ada, permits.acquire(MAX_PAGE_MEMORY_BYTES, NO_WAIT)).await.unwrap());
    }

    #[tokio::test]
    async fn all_callers_share_a_single_permit() {
        let permits = ListPermits::new(1);
        let permit = with_caller_key(CallerKey::of(None, "user:ada"), permits.acquire(MAX_PAGE_MEMORY_BYTES, NO_WAIT))
            .await
            .unwrap();
        assert!(permits.acquire(MAX_PAGE_MEMORY_BYTES, NO_WAIT).await.is_err());
        drop(permit);
        drop(permits.acquire(MAX_PAGE_MEMORY_BYTES, NO_WAIT).await.unwrap());
    }

    #[tokio::test]
    async fn a_spawned_task_is_background_work_unless_it_gets_the_key() {
        let ada = CallerKey::of(None, "user:ada");
        assert_eq!(with_caller_key(ada, async { CallerKey::current() }).await, ada);
        assert_eq!(CallerKey::of(None, "user:ada"), ada);
        let spawned = with_caller_key(ada, async { tokio::spawn(async { CallerKey::current() }).await.unwrap() }).await;
        assert_eq!(spawned, BACKGROUND);
    }

    #[tokio::test]
    async fn small_pages_are_read_above_the_memory_limit() {
        let permits = ListPermits::new(2);
        fairway_memory_limit::limit_process(1);
        assert!(permits.acquire(MAX_PAGE_MEMORY_BYTES, NO_WAIT).await.is_err());
        assert!(permits.acquire(MAX_SMALL_PAGE_BYTES + 1, NO_WAIT).await.is_err());
        drop(permits.acquire(MAX_SMALL_PAGE_BYTES, NO_WAIT).await.unwrap());
    }
}
