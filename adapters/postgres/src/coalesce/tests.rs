use super::*;
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};
use tokio::sync::Semaphore;

/// A batch operation that returns the number of the batch and the item. Each batch waits for a permit from the
/// test.
struct NumberedBatches {
    statements: AtomicU64,
    permits: Semaphore,
}

fn new_coalescer() -> Arc<Coalescer<NumberedBatches>> {
    Coalescer::new(
        NumberedBatches { statements: AtomicU64::new(0), permits: Semaphore::new(0) },
        &StatementsInFlight::default(),
    )
}

#[async_trait]
impl BatchOperation for NumberedBatches {
    type Item = u64;
    type Output = (u64, u64);
    const LABEL: &'static str = "numbers";

    async fn run_batch(&self, items: Vec<u64>) -> Vec<(u64, u64)> {
        let number = self.statements.fetch_add(1, Ordering::SeqCst) + 1;
        self.permits.acquire().await.unwrap().forget();
        assert!(!items.contains(&u64::MAX), "the test item fails its batch");
        items.into_iter().map(|item| (number, item)).collect()
    }
}

fn spawn_submit(
    coalescer: &Arc<Coalescer<NumberedBatches>>,
    item: u64,
) -> tokio::task::JoinHandle<Result<(u64, u64), NoResult>> {
    let coalescer = Arc::clone(coalescer);
    tokio::spawn(async move { coalescer.submit(item).await })
}

/// Yields until every task that does not wait for a permit has run.
async fn run_until_idle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn batch_starts_after_all_its_requests_arrived() {
    let coalescer = new_coalescer();
    let first = spawn_submit(&coalescer, 1);
    run_until_idle().await;
    // The first batch is in flight and may have read an older state, so these requests must form a new batch.
    let later: Vec<_> = (2..5).map(|item| spawn_submit(&coalescer, item)).collect();
    run_until_idle().await;
    assert_eq!(coalescer.operation.statements.load(Ordering::SeqCst), 1);
    coalescer.operation.permits.add_permits(2);
    assert_eq!(first.await.unwrap(), Ok((1, 1)));
    for (request, item) in later.into_iter().zip(2..) {
        assert_eq!(request.await.unwrap(), Ok((2, item)));
    }
    coalescer.operation.permits.add_permits(1);
    assert_eq!(spawn_submit(&coalescer, 9).await.unwrap(), Ok((3, 9)));
}

#[tokio::test]
async fn splits_more_than_the_maximum_into_several_batches() {
    let coalescer = new_coalescer();
    let first = spawn_submit(&coalescer, 0);
    run_until_idle().await;
    let item_count = u64::try_from(MAX_BATCH).unwrap() + 1;
    let later: Vec<_> = (0..item_count).map(|item| spawn_submit(&coalescer, item)).collect();
    run_until_idle().await;
    coalescer.operation.permits.add_permits(3);
    first.await.unwrap().unwrap();
    let mut numbers = Vec::new();
    for request in later {
        numbers.push(request.await.unwrap().unwrap().0);
    }
    assert_eq!((numbers.first(), numbers.last()), (Some(&2), Some(&3)));
}

#[tokio::test]
async fn cancelled_leader_leaves_followers_their_results() {
    let coalescer = new_coalescer();
    let first = spawn_submit(&coalescer, 1);
    run_until_idle().await;
    let second = spawn_submit(&coalescer, 2);
    run_until_idle().await;
    first.abort();
    coalescer.operation.permits.add_permits(2);
    assert_eq!(second.await.unwrap(), Ok((2, 2)));
}

#[tokio::test]
async fn cancelled_requests_are_not_executed() {
    let coalescer = new_coalescer();
    let first = spawn_submit(&coalescer, 1);
    run_until_idle().await;
    // This item makes the operation panic, which would fail its whole batch if the item ran.
    let second = spawn_submit(&coalescer, u64::MAX);
    let third = spawn_submit(&coalescer, 3);
    run_until_idle().await;
    second.abort();
    run_until_idle().await;
    coalescer.operation.permits.add_permits(2);
    assert_eq!((first.await.unwrap(), third.await.unwrap()), (Ok((1, 1)), Ok((2, 3))));
}

#[test]
fn fails_requests_whose_batch_task_never_ran() {
    let coalescer = new_coalescer();
    let (stopped_runtime, live_runtime) = (runtime(), runtime());
    let handle = stopped_runtime.handle().clone();
    stopped_runtime.shutdown_background();
    for item in 0..2 {
        // The request spawns the batch task on a runtime that drops the task at once.
        let request = coalescer.submit(item);
        let result = live_runtime.block_on(async {
            let mut request = std::pin::pin!(request);
            let polled_in_stopped_runtime = std::future::poll_fn(|context| {
                let _guard = handle.enter();
                request.as_mut().poll(context)
            });
            tokio::time::timeout(Duration::from_secs(5), polled_in_stopped_runtime).await
        });
        assert_eq!(result, Ok(Err(NoResult::NotStarted)), "a request whose batch task was dropped must fail at once");
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[tokio::test]
async fn fails_queued_requests_when_the_batch_task_panics() {
    let coalescer = new_coalescer();
    let first = spawn_submit(&coalescer, u64::MAX);
    run_until_idle().await;
    let second = spawn_submit(&coalescer, 2);
    run_until_idle().await;
    coalescer.operation.permits.add_permits(1);
    assert_eq!((first.await.unwrap(), second.await.unwrap()), (Err(NoResult::Started), Err(NoResult::NotStarted)));
    coalescer.operation.permits.add_permits(1);
    assert_eq!(spawn_submit(&coalescer, 3).await.unwrap(), Ok((2, 3)));
}

#[tokio::test(start_paused = true)]
async fn timed_out_request_knows_whether_its_batch_started() {
    let coalescer = new_coalescer();
    let first = spawn_submit(&coalescer, 1);
    run_until_idle().await;
    let second = spawn_submit(&coalescer, 2);
    // The first batch never receives a permit, so both requests time out.
    assert_eq!((first.await.unwrap(), second.await.unwrap()), (Err(NoResult::Started), Err(NoResult::NotStarted)));
    let third = spawn_submit(&coalescer, 3);
    run_until_idle().await;
    coalescer.operation.permits.add_permits(2);
    assert_eq!(third.await.unwrap(), Ok((2, 3)), "the second item joins no batch");
}
