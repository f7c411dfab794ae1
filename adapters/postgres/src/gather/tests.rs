use super::*;
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};
use tokio::sync::Semaphore;

/// Returns the number of the batch and the item. Each batch needs one permit from the test.
struct NumberedBatches {
    statements: AtomicU64,
    permits: Semaphore,
}

fn numbered() -> Arc<Coalescer<NumberedBatches>> {
    Coalescer::over(NumberedBatches { statements: AtomicU64::new(0), permits: Semaphore::new(0) }, &Waiting::default())
}

#[async_trait]
impl Batch for NumberedBatches {
    type Item = u64;
    type Answer = (u64, u64);
    const WHAT: &'static str = "numbers";

    async fn together(&self, items: Vec<u64>) -> Vec<(u64, u64)> {
        let number = self.statements.fetch_add(1, Ordering::SeqCst) + 1;
        self.permits.acquire().await.unwrap().forget();
        assert!(!items.contains(&u64::MAX), "the test item fails its batch");
        items.into_iter().map(|item| (number, item)).collect()
    }
}

fn ask(gather: &Arc<Coalescer<NumberedBatches>>, item: u64) -> tokio::task::JoinHandle<Option<(u64, u64)>> {
    let gather = Arc::clone(gather);
    tokio::spawn(async move { gather.ask(item).await })
}

/// Yields until every task that needs no permit has run.
async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn batch_starts_after_all_its_requests_arrived() {
    let gather = numbered();
    let first = ask(&gather, 1);
    settle().await;
    // The first batch is in flight, so its reads may be older than these requests.
    let later: Vec<_> = (2..5).map(|item| ask(&gather, item)).collect();
    settle().await;
    assert_eq!(gather.batch.statements.load(Ordering::SeqCst), 1);
    gather.batch.permits.add_permits(2);
    assert_eq!(first.await.unwrap(), Some((1, 1)));
    for (asked, item) in later.into_iter().zip(2..) {
        assert_eq!(asked.await.unwrap(), Some((2, item)));
    }
    gather.batch.permits.add_permits(1);
    assert_eq!(ask(&gather, 9).await.unwrap(), Some((3, 9)));
}

#[tokio::test]
async fn splits_more_than_the_maximum_into_several_batches() {
    let gather = numbered();
    let first = ask(&gather, 0);
    settle().await;
    let many = u64::try_from(MOST).unwrap() + 1;
    let later: Vec<_> = (0..many).map(|item| ask(&gather, item)).collect();
    settle().await;
    gather.batch.permits.add_permits(3);
    first.await.unwrap().unwrap();
    let mut numbers = Vec::new();
    for asked in later {
        numbers.push(asked.await.unwrap().unwrap().0);
    }
    assert_eq!((numbers.first(), numbers.last()), (Some(&2), Some(&3)));
}

#[tokio::test]
async fn cancelled_leader_leaves_followers_their_results() {
    let gather = numbered();
    let first = ask(&gather, 1);
    settle().await;
    let second = ask(&gather, 2);
    settle().await;
    first.abort();
    gather.batch.permits.add_permits(2);
    assert_eq!(second.await.unwrap(), Some((2, 2)));
}

#[tokio::test]
async fn cancelled_requests_are_not_executed() {
    let gather = numbered();
    let first = ask(&gather, 1);
    settle().await;
    // Running this item would panic and fail its whole batch.
    let second = ask(&gather, u64::MAX);
    let third = ask(&gather, 3);
    settle().await;
    second.abort();
    settle().await;
    gather.batch.permits.add_permits(2);
    assert_eq!((first.await.unwrap(), third.await.unwrap()), (Some((1, 1)), Some((2, 3))));
}

#[test]
fn fails_requests_whose_batch_task_never_ran() {
    let gather = numbered();
    let (ended, lives) = (runtime(), runtime());
    let handle = ended.handle().clone();
    ended.shutdown_background();
    for item in 0..2 {
        // The batch task is spawned on a runtime that drops it at once.
        let asked = gather.ask(item);
        let answer = lives.block_on(async {
            let mut asked = std::pin::pin!(asked);
            let there = std::future::poll_fn(|context| {
                let _there = handle.enter();
                asked.as_mut().poll(context)
            });
            tokio::time::timeout(Duration::from_secs(5), there).await
        });
        assert_eq!(answer, Ok(None), "a request whose batch task was dropped must fail at once");
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[tokio::test]
async fn fails_queued_requests_when_the_batch_task_panics() {
    let gather = numbered();
    let first = ask(&gather, u64::MAX);
    settle().await;
    let second = ask(&gather, 2);
    settle().await;
    gather.batch.permits.add_permits(1);
    assert_eq!((first.await.unwrap(), second.await.unwrap()), (None, None));
    gather.batch.permits.add_permits(1);
    assert_eq!(ask(&gather, 3).await.unwrap(), Some((2, 3)));
}
