//! Connections for lists, shared fairly between the callers who ask.
//!
//! A list takes as long as its rows are many, and only a few connections read lists. Served in order of arrival, one caller
//! with twenty lists under way would keep everybody else waiting until their time is up.

use crate::failure;
use fairway_domain::{id::TenantId, store::StoreError};
use fairway_fair_queue::{FairSemaphore, Limits, Permit};
use fairway_memory_limit::{Admission, admit};
use std::{
    hash::{BuildHasher as _, Hash, RandomState},
    sync::LazyLock,
    time::Duration,
};
use tokio::time::Instant;

/// Most bytes that the rows of a page take.
pub(crate) const PAGE_BYTES: usize = 1 << 20;

/// Most bytes of a page that is read without memory of the process: a page of the default length whose rows are not weighed
/// ([0057](../../../docs/decisions/0057-pages-end-at-one-mebibyte.md)). The permits bound how many of them are read at a time, so
/// all of them together take a few mebibytes, less than the process keeps above its soft limit.
const MAX_SMALL_PAGE: usize = 256 << 10;

tokio::task_local! {
    static CALLER: CallerKey;
}

/// Whom the lists of a task are counted for: a tenant, where the request names one, and a caller. Callers are told apart by
/// a keyed digest (`SipHash` under a key of this process), so that the key costs no allocation and nobody can choose the
/// key of somebody else.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CallerKey {
    tenant: Option<TenantId>,
    caller: u64,
}

/// Relays and runs, which work for nobody's request.
const BACKGROUND: CallerKey = CallerKey { tenant: None, caller: 0 };

impl CallerKey {
    /// The key of a caller of a tenant, or of no tenant that the request names.
    pub fn of(tenant: Option<TenantId>, caller: impl Hash) -> Self {
        static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        Self { tenant, caller: KEY.hash_one(caller) }
    }

    /// The key of this task, to hand over to a task that it spawns.
    #[must_use]
    pub fn current() -> Self {
        CALLER.try_with(|caller| *caller).unwrap_or(BACKGROUND)
    }
}

/// Counts the lists of some work for a caller. Lists of other tasks count as background work, and so do those of tasks that
/// the work spawns without handing the key over.
pub async fn with_caller_key<F: Future>(caller: CallerKey, work: F) -> F::Output {
    CALLER.scope(caller, work).await
}

/// Permits for the connections that read lists. Tenants take turns, and callers within a tenant. Clones share the permits.
#[derive(Clone, Debug)]
pub(crate) struct ListPermits(FairSemaphore<u64, Option<TenantId>>);

/// A permit, for as long as the list is read.
#[derive(Debug)]
pub(crate) struct ListPermit {
    _permit: Permit<u64, Option<TenantId>>,
    /// None for a small page.
    _memory: Option<Admission>,
}

impl ListPermits {
    /// So many permits. One caller leaves one of them to the others, if there are two.
    pub(crate) fn new(permits: usize) -> Self {
        let permits_per_key = permits.saturating_sub(1).max(1);
        Self(FairSemaphore::new(Limits { permits_per_key, ..Limits::of(permits) }))
    }

    /// A permit for the caller of this task, for a page of at most so many bytes. A small page needs no memory of the process,
    /// so it is served while large work has its turn.
    ///
    /// # Errors
    /// When none becomes free within `wait`, or the process has no memory for a large page by then.
    pub(crate) async fn acquire(&self, bytes: usize, wait: Duration) -> Result<ListPermit, StoreError> {
        let CallerKey { tenant, caller } = CallerKey::current();
        let since = Instant::now();
        let permit = self.0.acquire_in(tenant, caller, wait).await;
        let permit = permit.map_err(|refused| failure::unavailable(Box::new(refused)))?;
        let left = wait.saturating_sub(since.elapsed());
        let memory = match bytes <= MAX_SMALL_PAGE {
            true => None,
            false => Some(admit(bytes, left).await.map_err(|refused| failure::unavailable(Box::new(refused)))?),
        };
        Ok(ListPermit { _permit: permit, _memory: memory })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairway_domain::tenant::DEFAULT_TENANT;

    const AT_ONCE: Duration = Duration::ZERO;

    #[tokio::test]
    async fn one_caller_leaves_a_permit_to_every_other_caller_and_to_background_work() {
        let permits = ListPermits::new(2);
        let [ada, bob] = ["user:ada", "user:bob"].map(|caller| CallerKey::of(None, caller));
        let held = with_caller_key(ada, permits.acquire(PAGE_BYTES, AT_ONCE)).await.unwrap();
        assert!(with_caller_key(ada, permits.acquire(PAGE_BYTES, AT_ONCE)).await.is_err());
        let in_tenant = CallerKey::of(Some(DEFAULT_TENANT.into()), "user:ada");
        for other in [bob, in_tenant] {
            drop(with_caller_key(other, permits.acquire(PAGE_BYTES, AT_ONCE)).await.unwrap());
        }
        drop(permits.acquire(PAGE_BYTES, AT_ONCE).await.unwrap());
        drop(held);
        drop(with_caller_key(ada, permits.acquire(PAGE_BYTES, AT_ONCE)).await.unwrap());
    }

    #[tokio::test]
    async fn a_single_permit_is_for_everybody() {
        let permits = ListPermits::new(1);
        let held =
            with_caller_key(CallerKey::of(None, "user:ada"), permits.acquire(PAGE_BYTES, AT_ONCE)).await.unwrap();
        assert!(permits.acquire(PAGE_BYTES, AT_ONCE).await.is_err());
        drop(held);
        drop(permits.acquire(PAGE_BYTES, AT_ONCE).await.unwrap());
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
        assert!(permits.acquire(PAGE_BYTES, AT_ONCE).await.is_err());
        assert!(permits.acquire(MAX_SMALL_PAGE + 1, AT_ONCE).await.is_err());
        drop(permits.acquire(MAX_SMALL_PAGE, AT_ONCE).await.unwrap());
    }
}
