//! Bytes of requests that have not begun: heads that clients send slowly, or never end.
//!
//! Each connection may hold a usual head. What all connections hold beyond that has a bound for the whole process, and the
//! connection that goes beyond it is closed.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that each connection may hold, whatever others do: more than usual heads have.
const FREE: usize = 16 << 10;
/// Bytes that all connections hold beyond that.
const MAX_UNREAD: usize = 24 << 20;

/// What all connections of this process hold beyond [`FREE`].
static TOTAL: AtomicUsize = AtomicUsize::new(0);

/// Bytes that were read from a connection and belong to no request yet.
#[derive(Debug)]
pub(super) struct Unread<'t> {
    bytes: usize,
    total: &'t AtomicUsize,
}

impl Default for Unread<'static> {
    fn default() -> Self {
        Self { bytes: 0, total: &TOTAL }
    }
}

impl Unread<'_> {
    const fn counted(&self) -> usize {
        self.bytes.saturating_sub(FREE)
    }

    /// Notes that bytes were read; the answer is whether all connections hold too many, and this one is part of it.
    pub(super) fn add(&mut self, bytes: usize) -> bool {
        let before = self.counted();
        self.bytes = self.bytes.saturating_add(bytes);
        let more = self.counted().saturating_sub(before);
        more > 0 && self.total.fetch_add(more, Ordering::Relaxed).saturating_add(more) > MAX_UNREAD
    }

    /// Notes that a request has begun.
    pub(super) fn clear(&mut self) {
        self.total.fetch_sub(self.counted(), Ordering::Relaxed);
        self.bytes = 0;
    }
}

impl Drop for Unread<'_> {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_heads_are_free_and_long_ones_have_a_bound_together() {
        let total = AtomicUsize::new(0);
        let connection = || Unread { bytes: 0, total: &total };
        let mut usual: Vec<_> = (0..10_000).map(|_| connection()).collect();
        assert!(usual.iter_mut().all(|connection| !connection.add(FREE)));
        let mut long: Vec<_> = (0..MAX_UNREAD / FREE).map(|_| connection()).collect();
        assert!(long.iter_mut().all(|connection| !connection.add(2 * FREE)));
        assert!(long[0].add(1), "this one is one byte too many");
        assert!(!usual[0].add(0));
        long.truncate(10);
        assert!(!long[0].add(1));
        long[1].clear();
        drop((usual, long));
        assert_eq!(total.load(Ordering::Relaxed), 0);
    }
}
