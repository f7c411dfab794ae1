use super::*;
use std::sync::atomic::{AtomicU32, Ordering};

#[test]
fn weighted_cache_stays_within_its_capacity() {
    const CAPACITY: u64 = 1 << 20;
    const VALUE: usize = 10_000;
    let cache: Cache<u64, Vec<u8>> = weighted_cache(CAPACITY, |_: &u64, value: &Vec<u8>| value.capacity()).build();
    for key in 0..2_000 {
        cache.insert(key, vec![0; VALUE]);
    }
    cache.run_pending_tasks();
    assert!(cache.weighted_size() <= CAPACITY);
    assert!(cache.entry_count() <= CAPACITY / VALUE as u64);
}

#[test]
fn weighted_cache_refuses_entry_above_its_capacity() {
    let cache: Cache<u64, Vec<u8>> = weighted_cache(1 << 10, |_: &u64, _: &Vec<u8>| usize::MAX).build();
    cache.insert(1, Vec::new());
    cache.run_pending_tasks();
    assert_eq!(cache.entry_count(), 0);
}

#[tokio::test]
async fn concurrent_requests_share_one_computation() {
    let (in_flight, computations) = (PendingLoads::new(), AtomicU32::new(0));
    let compute = || async {
        tokio::task::yield_now().await;
        Ok::<_, ()>(computations.fetch_add(1, Ordering::Relaxed))
    };
    let outputs = tokio::join!(in_flight.get_or_compute("a", compute()), in_flight.get_or_compute("a", compute()));
    assert_eq!((outputs, computations.load(Ordering::Relaxed)), ((Ok(0), Ok(0)), 1));
    // After a computation, neither its value nor its failure remains stored, so each call computes again.
    assert_eq!(in_flight.get_or_compute("a", compute()).await, Ok(1));
    assert_eq!(in_flight.get_or_compute("b", async { Err::<u32, _>("no") }).await, Err("no"));
    assert_eq!(in_flight.get_or_compute("b", async { Ok::<_, &str>(7) }).await, Ok(7));
}
