use super::*;
use tokio::task::{JoinSet, yield_now};

const LONG: Duration = Duration::from_secs(3_600);

/// Queues requests of these keys in order. Each request returns its key and releases its permit as soon as it
/// acquires one.
async fn queue(semaphore: &FairSemaphore<char>, keys: &str) -> JoinSet<char> {
    let mut requests = JoinSet::new();
    for key in keys.chars() {
        let before = semaphore.waiting_count_of(&key);
        let semaphore = semaphore.clone();
        let task_semaphore = semaphore.clone();
        requests.spawn(async move {
            let permit = task_semaphore.acquire(key, LONG).await.unwrap();
            drop(permit);
            key
        });
        while semaphore.waiting_count_of(&key) == before {
            yield_now().await;
        }
    }
    requests
}

async fn order(mut requests: JoinSet<char>) -> String {
    let mut order = String::new();
    while let Some(key) = requests.join_next().await {
        order.push(key.unwrap());
    }
    order
}

#[tokio::test]
async fn serves_waiting_keys_in_turn_and_not_in_order_of_arrival() {
    let semaphore = FairSemaphore::new(Limits::unlimited_per_key(1));
    let permit = semaphore.acquire('a', LONG).await.unwrap();
    let requests = queue(&semaphore, "aaaabbc").await;
    drop(permit);
    assert_eq!(order(requests).await, "bcabaaa");
}

#[tokio::test]
async fn prefers_the_key_that_holds_the_fewest_permits() {
    let semaphore = FairSemaphore::new(Limits::unlimited_per_key(3));
    let mut permits = Vec::new();
    for key in ['a', 'a', 'b'] {
        permits.push(semaphore.acquire(key, LONG).await.unwrap());
    }
    let requests = queue(&semaphore, "bac").await;
    // After `a` releases a permit, `a` and `b` hold one permit each, and `c` holds none.
    drop(permits.remove(0));
    assert!(order(requests).await.starts_with('c'));
}

/// Two keys that request a new permit immediately after each release must not starve a third key.
#[tokio::test]
async fn serves_a_waiting_key_although_others_keep_returning() {
    let semaphore = FairSemaphore::new(Limits::unlimited_per_key(1));
    let mut permit = semaphore.acquire('b', LONG).await.unwrap();
    let mut requests = queue(&semaphore, "aaa").await;
    let mut served = String::new();
    for key in "cbcbcb".chars() {
        let task_semaphore = semaphore.clone();
        let waiting = tokio::spawn(async move { task_semaphore.acquire(key, LONG).await.unwrap() });
        while semaphore.waiting_count_of(&key) == 0 {
            yield_now().await;
        }
        drop(permit);
        permit = waiting.await.unwrap();
        while let Some(key) = requests.try_join_next() {
            served.push(key.unwrap());
        }
    }
    assert!(served.len() >= 2, "{served}");
}

#[tokio::test]
async fn keeps_permits_for_keys_that_hold_none() {
    let semaphore = FairSemaphore::new(Limits { permits_for_idle_keys: 2, ..Limits::unlimited_per_key(4) });
    let mut permits = Vec::new();
    for key in ['a', 'a', 'b'] {
        permits.push(semaphore.acquire(key, LONG).await.unwrap());
    }
    for key in ['a', 'b'] {
        assert_eq!(semaphore.acquire(key, Duration::ZERO).await.unwrap_err(), AcquireError::TimedOut, "{key}");
    }
    permits.push(semaphore.acquire('c', LONG).await.unwrap());
    assert_eq!(semaphore.acquire('d', Duration::ZERO).await.unwrap_err(), AcquireError::TimedOut);
    // A released permit goes to `d`, which holds none, although `a` has waited longer.
    let requests = queue(&semaphore, "ad").await;
    drop(permits.remove(0));
    drop(permits.remove(0));
    assert_eq!(order(requests).await, "da");
}

#[tokio::test]
async fn bounds_what_one_key_holds() {
    let semaphore = FairSemaphore::new(Limits { permits_per_key: 1, ..Limits::unlimited_per_key(2) });
    let _held = semaphore.acquire('a', LONG).await.unwrap();
    assert_eq!(semaphore.acquire('a', Duration::ZERO).await.unwrap_err(), AcquireError::TimedOut);
    // The second permit is available to `b`, although a request of `a` arrived earlier.
    let waiting = queue_one(&semaphore, 'a').await;
    assert!(semaphore.acquire('b', Duration::ZERO).await.is_ok());
    waiting.abort();
}

async fn queue_one(semaphore: &FairSemaphore<char>, key: char) -> tokio::task::JoinHandle<()> {
    let task_semaphore = semaphore.clone();
    let waiting = tokio::spawn(async move { drop(task_semaphore.acquire(key, LONG).await) });
    while semaphore.waiting_count_of(&key) == 0 {
        yield_now().await;
    }
    waiting
}

#[tokio::test]
async fn bounds_how_many_requests_of_one_key_wait() {
    let semaphore = FairSemaphore::new(Limits { waiting_per_key: 1, ..Limits::unlimited_per_key(1) });
    let _held = semaphore.acquire('a', LONG).await.unwrap();
    let waiting = queue_one(&semaphore, 'a').await;
    assert_eq!(semaphore.acquire('a', LONG).await.unwrap_err(), AcquireError::QueueFull);
    // Another key has its own queue.
    assert_eq!(semaphore.acquire('b', Duration::ZERO).await.unwrap_err(), AcquireError::TimedOut);
    waiting.abort();
}

#[tokio::test(start_paused = true)]
async fn refuses_request_after_its_wait_time() {
    let semaphore = FairSemaphore::new(Limits::unlimited_per_key(1));
    let permit = semaphore.acquire('a', LONG).await.unwrap();
    let refused = semaphore.acquire('b', Duration::from_secs(5)).await;
    assert_eq!(refused.unwrap_err(), AcquireError::TimedOut);
    assert_eq!(semaphore.waiting_count_of(&'b'), 0, "a refused request leaves the queue");
    drop(permit);
    assert!(semaphore.acquire('b', Duration::ZERO).await.is_ok());
}

#[tokio::test]
async fn passes_on_the_permit_of_a_cancelled_request() {
    let semaphore = FairSemaphore::new(Limits::unlimited_per_key(1));
    let permit = semaphore.acquire('a', LONG).await.unwrap();
    // The first poll queues the request. The request is granted the permit, and dropped before its second poll.
    let mut cancelled = Box::pin(semaphore.acquire('b', LONG));
    assert!(is_pending(&mut cancelled).await);
    drop(permit);
    drop(cancelled);
    assert!(semaphore.acquire('c', Duration::ZERO).await.is_ok());
}

/// Polls a future once, and returns whether it is pending.
async fn is_pending<F: Future + Unpin>(future: &mut F) -> bool {
    tokio::select! {
        biased;
        _ = future => false,
        () = std::future::ready(()) => true,
    }
}

#[tokio::test]
async fn forgets_keys_that_neither_hold_nor_wait() {
    let semaphore = FairSemaphore::new(Limits::unlimited_per_key(2));
    let permit = semaphore.acquire(0, LONG).await.unwrap();
    for key in 1..1_000 {
        drop(semaphore.acquire(key, LONG).await.unwrap());
        drop(semaphore.acquire(key, LONG).await.unwrap());
    }
    let key_count = semaphore.lock().key_count();
    assert!(key_count < 10, "{key_count} keys are known");
    drop(permit);
    assert_eq!(semaphore.lock().key_count(), 0);
}

#[tokio::test]
async fn serves_groups_in_turn_and_the_keys_within_a_group_in_turn() {
    let semaphore: FairSemaphore<char, u8> = FairSemaphore::new(Limits::unlimited_per_key(1));
    let permit = semaphore.acquire_in(0, 'z', LONG).await.unwrap();
    let mut requests = JoinSet::new();
    // Group 1 has three keys and arrives first; its key `a` has three requests.
    for (group, key) in [(1, 'a'), (1, 'a'), (1, 'a'), (1, 'b'), (1, 'c'), (2, 'd'), (2, 'd')] {
        let before = semaphore.waiting_count_in(&group, &key);
        let task_semaphore = semaphore.clone();
        requests.spawn(async move {
            drop(task_semaphore.acquire_in(group, key, LONG).await.unwrap());
            key
        });
        while semaphore.waiting_count_in(&group, &key) == before {
            yield_now().await;
        }
    }
    drop(permit);
    assert_eq!(order(requests).await, "adbdcaa");
}
