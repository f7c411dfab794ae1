use super::*;

#[test]
fn weighed_cache_keeps_no_more_bytes_than_its_capacity() {
    const CAPACITY: u64 = 1 << 20;
    const VALUE: usize = 10_000;
    let cache: Cache<u64, Vec<u8>> = weighed(CAPACITY, |_: &u64, value: &Vec<u8>| value.capacity()).build();
    for key in 0..2_000 {
        cache.insert(key, vec![0; VALUE]);
    }
    cache.run_pending_tasks();
    assert!(cache.weighted_size() <= CAPACITY);
    assert!(cache.entry_count() <= CAPACITY / VALUE as u64);
}

#[test]
fn weighed_cache_refuses_an_entry_beyond_its_capacity() {
    let cache: Cache<u64, Vec<u8>> = weighed(1 << 10, |_: &u64, _: &Vec<u8>| usize::MAX).build();
    cache.insert(1, Vec::new());
    cache.run_pending_tasks();
    assert_eq!(cache.entry_count(), 0);
}
