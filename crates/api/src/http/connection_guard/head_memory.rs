//! Memory limit for incomplete request heads, which clients can send slowly or never finish.
//!
//! Each connection may buffer a head of usual size. The excess of all connections has a process-wide limit. A
//! connection that grows while this limit is exceeded is closed.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that each connection may buffer in any case: more than a usual head.
const FREE_BYTES: usize = 16 << 10;
/// Maximum bytes that all connections together buffer beyond [`FREE_BYTES`].
const MAX_EXCESS_BYTES: usize = 24 << 20;

/// Bytes that all connections of this process buffer beyond [`FREE_BYTES`].
static TOTAL_EXCESS: AtomicUsize = AtomicUsize::new(0);

/// Bytes that were read from a connection before the start of a request.
#[derive(Debug)]
pub(super) struct HeadMemory<'t> {
    bytes: usize,
    total: &'t AtomicUsize,
}

impl Default for HeadMemory<'static> {
    fn default() -> Self {
        Self { bytes: 0, total: &TOTAL_EXCESS }
    }
}

impl HeadMemory<'_> {
    const fn excess(&self) -> usize {
        self.bytes.saturating_sub(FREE_BYTES)
    }

    /// Records bytes. Returns true if this connection grew beyond [`FREE_BYTES`] and all connections exceed the limit.
    pub(super) fn add(&mut self, bytes: usize) -> bool {
        let previous_excess = self.excess();
        self.bytes = self.bytes.saturating_add(bytes);
        let growth = self.excess().saturating_sub(previous_excess);
        growth > 0 && self.total.fetch_add(growth, Ordering::Relaxed).saturating_add(growth) > MAX_EXCESS_BYTES
    }

    /// Releases the bytes at the start of a request.
    pub(super) fn clear(&mut self) {
        self.total.fetch_sub(self.excess(), Ordering::Relaxed);
        self.bytes = 0;
    }
}

impl Drop for HeadMemory<'_> {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_total_excess_of_long_heads() {
        let total = AtomicUsize::new(0);
        let connection = || HeadMemory { bytes: 0, total: &total };
        let mut usual: Vec<_> = (0..10_000).map(|_| connection()).collect();
        assert!(usual.iter_mut().all(|connection| !connection.add(FREE_BYTES)));
        let mut long: Vec<_> = (0..MAX_EXCESS_BYTES / FREE_BYTES).map(|_| connection()).collect();
        assert!(long.iter_mut().all(|connection| !connection.add(2 * FREE_BYTES)));
        assert!(long[0].add(1), "one byte exceeds the limit");
        assert!(!usual[0].add(0));
        long.truncate(10);
        assert!(!long[0].add(1));
        long[1].clear();
        drop((usual, long));
        assert_eq!(total.load(Ordering::Relaxed), 0);
    }
}
