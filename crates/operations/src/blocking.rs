//! CPU-bound work of a tenant on the blocking pool, with fair shares of the processors.
//!
//! A long computation on a serving thread delays every request on that thread. Content may require a second of
//! computation: test cases of a bundle, patterns to compile, or a YAML text with many aliases (threats T12 and T13 in
//! docs/security.md).

use crate::Failure;
use fairway_domain::{
    id::TenantId,
    store::{StoreError, StoreFault},
    tenant::TenantScope,
};
use fairway_fair_queue::{AcquireError, FairSemaphore, Limits, Permit};
use std::{sync::LazyLock, thread::available_parallelism, time::Duration};

/// Maximum number of waiting work items of one tenant. Each item retains up to 4 MiB of content.
const MAX_WAITING: usize = 64;

/// One permit per processor, because more threads would finish no sooner and would slow down the serving threads.
/// Tenants with waiting work take turns.
static PROCESSOR_PERMITS: LazyLock<FairSemaphore<TenantId>> =
    LazyLock::new(|| FairSemaphore::new(limits(processors())));

fn processors() -> usize {
    available_parallelism().map_or(1, usize::from)
}

/// Limits of one tenant. On a machine with several processors, one tenant leaves one processor to others, because
/// work may take a second and is never interrupted.
const fn limits(processors: usize) -> Limits {
    let permits_per_key = if processors > 1 { processors.saturating_sub(1) } else { 1 };
    Limits { permits_per_key, waiting_per_key: MAX_WAITING, ..Limits::unlimited_per_key(processors) }
}

/// Maximum time for which work waits for a processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ProcessorWait {
    /// 10 seconds: the work belongs to a request, which the caller can retry.
    Request,
    /// 60 seconds: the work belongs to an accepted run, which is not retried and has its own deadline.
    Run,
}

impl ProcessorWait {
    const fn wait(self) -> Duration {
        match self {
            Self::Request => Duration::from_secs(10),
            Self::Run => Duration::from_secs(60),
        }
    }
}

/// A processor permit of a tenant for one work item.
pub(crate) struct ProcessorPermit(Permit<TenantId>);

impl ProcessorPermit {
    /// Waits for a processor. Callers load large data only after this wait, so that waiting work occupies little
    /// memory.
    ///
    /// # Errors
    /// Unavailable when no processor becomes free for this tenant in time, or the tenant's queue is full.
    pub(crate) async fn acquire(scope: TenantScope, deadline: ProcessorWait) -> Result<Self, Failure> {
        PROCESSOR_PERMITS.acquire(scope.tenant(), deadline.wait()).await.map(Self).map_err(permit_failure)
    }

    /// Runs the work on the blocking pool, and releases the permit when the work ends.
    ///
    /// # Errors
    /// When the work panics.
    pub(crate) async fn run<T: Send + 'static>(self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Failure> {
        let task = tokio::task::spawn_blocking(move || {
            // The work owns the permit. The permit is therefore released only when the work ends, even if the caller no
            // longer waits.
            let _permit = self.0;
            work()
        });
        task.await.map_err(|_| Failure::Inconsistent("blocking work panicked"))
    }
}

/// Runs work of a tenant on the blocking pool.
///
/// # Errors
/// Unavailable when no processor becomes free for this tenant in time, or the tenant's queue is full. In both cases
/// the work does not run.
pub(crate) async fn run_blocking<T: Send + 'static>(
    scope: TenantScope,
    deadline: ProcessorWait,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    ProcessorPermit::acquire(scope, deadline).await?.run(work).await
}

/// Converts the failure to acquire a permit. The work did not run, and a later attempt may succeed.
pub(crate) fn permit_failure(error: AcquireError) -> Failure {
    StoreError { source: Box::new(error), fault: StoreFault::Unavailable }.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use uuid::Uuid;

    const LONG: Duration = Duration::from_secs(600);

    fn tenant(number: u128) -> TenantScope {
        TenantScope::for_background_task(Uuid::from_u128(number).into())
    }

    #[tokio::test]
    async fn blocking_work_leaves_its_thread_free() {
        let (sender, receiver) = mpsc::channel();
        // The work ends only if this thread polls the second future meanwhile, so the work must run on another thread.
        let work = run_blocking(tenant(1), ProcessorWait::Request, move || receiver.recv_timeout(LONG));
        let (output, ()) = tokio::join!(work, async { sender.send("on").unwrap() });
        assert_eq!(output.unwrap(), Ok("on"));
    }

    #[tokio::test]
    async fn panicking_work_fails_and_releases_its_permit() {
        for _ in 0..=processors() {
            let output: Result<(), _> = run_blocking(tenant(1), ProcessorWait::Request, || panic!("canary")).await;
            assert!(output.is_err());
        }
    }

    /// Acquires every processor. One tenant cannot hold all of several processors, so another tenant holds the first
    /// one.
    async fn all_processors(scope: TenantScope) -> Vec<Permit<TenantId>> {
        let mut permits = Vec::new();
        for index in 0..processors() {
            let holder = if index == 0 && processors() > 1 { tenant(100) } else { scope };
            permits.push(PROCESSOR_PERMITS.acquire(holder.tenant(), LONG).await.unwrap());
        }
        permits
    }

    #[tokio::test(start_paused = true)]
    async fn one_tenant_leaves_one_of_several_processors_free() {
        for (processors, limit) in [(1, 1), (2, 1), (8, 7)] {
            let permits = FairSemaphore::new(limits(processors));
            let mut acquired = Vec::new();
            while let Ok(permit) = permits.acquire(1, Duration::from_secs(1)).await {
                acquired.push(permit);
            }
            assert_eq!(acquired.len(), limit, "{processors} processors");
            assert_eq!(permits.acquire(2, Duration::from_secs(1)).await.is_ok(), processors > 1);
        }
    }

    #[tokio::test]
    async fn refuses_work_beyond_the_queue_of_a_tenant() {
        let _permits = all_processors(tenant(1)).await;
        for waiting in 1..=MAX_WAITING {
            tokio::spawn(run_blocking(tenant(1), ProcessorWait::Request, || ()));
            while PROCESSOR_PERMITS.waiting_count_of(&tenant(1).tenant()) < waiting {
                tokio::task::yield_now().await;
            }
        }
        let failure = run_blocking(tenant(1), ProcessorWait::Request, || ()).await.unwrap_err();
        let Failure::Store(StoreError { fault: StoreFault::Unavailable, source }) = failure else {
            panic!("{failure:?}")
        };
        assert_eq!(source.downcast_ref(), Some(&AcquireError::QueueFull));
        assert_eq!(PROCESSOR_PERMITS.waiting_count_of(&tenant(1).tenant()), MAX_WAITING);
    }

    #[tokio::test]
    async fn tenants_with_waiting_work_take_turns() {
        let mut permits = all_processors(tenant(1)).await;
        let (sender, mut completions) = tokio::sync::mpsc::unbounded_channel();
        for number in [1, 1, 1, 1, 1, 1, 1, 1, 2] {
            let sender = sender.clone();
            let scope = tenant(number);
            let waiting_count = PROCESSOR_PERMITS.waiting_count_of(&scope.tenant());
            tokio::spawn(run_blocking(scope, ProcessorWait::Run, move || sender.send(number).unwrap()));
            while PROCESSOR_PERMITS.waiting_count_of(&scope.tenant()) == waiting_count {
                tokio::task::yield_now().await;
            }
        }
        drop(permits.remove(0));
        assert_eq!(completions.recv().await, Some(2), "the tenant without a processor is next");
    }

    #[tokio::test(start_paused = true)]
    async fn work_waits_no_longer_than_its_deadline() {
        let _permits = all_processors(tenant(1)).await;
        let failure = run_blocking(tenant(2), ProcessorWait::Request, || ()).await.unwrap_err();
        let Failure::Store(StoreError { fault: StoreFault::Unavailable, .. }) = failure else { panic!("{failure:?}") };
    }
}
