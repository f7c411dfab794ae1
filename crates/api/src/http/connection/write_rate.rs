//! The least throughput of clients that read answers.
//!
//! What counts is the time during which bytes wait because the client's receive window is full. A stream whose server is
//! silent does not wait for its client, and that time does not count.

use std::{io, task::Poll, time::Duration};
use tokio::time::Instant;

/// Bytes that a client takes each second at least, on average over the time that an answer waits for it.
const MIN_BYTES_PER_SECOND: u64 = 16 << 10;

/// How fast the client of a connection takes what is written to it.
#[derive(Debug)]
pub(super) struct WriteRate {
    /// How long an answer may wait for its client besides.
    grace: Duration,
    /// The request whose answer is measured.
    request: u64,
    blocked_since: Option<Instant>,
    /// How long the answer waited before that.
    blocked: Duration,
    /// Bytes that the client took since the answer waited first.
    taken: u64,
}

impl WriteRate {
    pub(super) const fn new(grace: Duration) -> Self {
        Self { grace, request: 0, blocked_since: None, blocked: Duration::ZERO, taken: 0 }
    }

    /// Notes what became of a write of the answer to a request; the answer is whether the client is too slow.
    pub(super) fn observe(&mut self, written: &Poll<io::Result<usize>>, request: u64, now: Instant) -> bool {
        // Bytes that wait belong to one answer, until the client has taken its last one.
        if self.request != request && self.blocked_since.is_none() {
            *self = Self { request, ..Self::new(self.grace) };
        }
        match written {
            Poll::Pending => {
                self.blocked_since.get_or_insert(now);
            }
            Poll::Ready(Ok(bytes)) => {
                if let Some(since) = self.blocked_since.take() {
                    self.blocked = self.blocked.saturating_add(now.saturating_duration_since(since));
                }
                if !self.blocked.is_zero() {
                    self.taken = self.taken.saturating_add(*bytes as u64);
                }
            }
            Poll::Ready(Err(_)) => {}
        }
        self.is_too_slow(now)
    }

    /// Whether an answer waits, and has waited longer than the bytes that the client took allow.
    pub(super) fn is_too_slow(&self, now: Instant) -> bool {
        let Some(since) = self.blocked_since else { return false };
        let blocked = self.blocked.saturating_add(now.saturating_duration_since(since));
        let allowed = Duration::from_millis(self.taken.saturating_mul(1_000) / MIN_BYTES_PER_SECOND);
        blocked > self.grace.saturating_add(allowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(15);
    const SECOND: Duration = Duration::from_secs(1);

    /// A client that takes so many bytes each second, until it is too slow or `seconds` are over.
    fn lasts(bytes: usize, seconds: u32) -> u32 {
        let (mut rate, start) = (WriteRate::new(GRACE), Instant::now());
        for second in 0..seconds {
            let now = start + SECOND * second;
            if rate.observe(&Poll::Ready(Ok(bytes)), 1, now) || rate.observe(&Poll::Pending, 1, now) {
                return second;
            }
        }
        seconds
    }

    #[test]
    fn cuts_a_client_below_the_least_throughput() {
        assert_eq!(lasts(1, 1_000), 16);
        assert_eq!(lasts(8 << 10, 1_000), 31);
        assert_eq!(lasts(16 << 10, 1_000), 1_000);
    }

    #[test]
    fn silence_of_the_server_does_not_count() {
        let (mut rate, start) = (WriteRate::new(GRACE), Instant::now());
        for event in 0..100 {
            let now = start + GRACE * event;
            assert!(!rate.observe(&Poll::Pending, 1, now));
            assert!(!rate.observe(&Poll::Ready(Ok(10)), 1, now + Duration::from_millis(100)));
            assert!(!rate.is_too_slow(now + GRACE));
        }
    }

    #[test]
    fn each_answer_is_measured_by_itself() {
        let (mut rate, start) = (WriteRate::new(GRACE), Instant::now());
        assert!(!rate.observe(&Poll::Pending, 1, start));
        assert!(!rate.observe(&Poll::Ready(Ok(1)), 1, start + GRACE));
        assert!(!rate.observe(&Poll::Pending, 2, start + GRACE));
        assert!(!rate.is_too_slow(start + GRACE * 2));
        assert!(rate.is_too_slow(start + GRACE * 2 + SECOND));
    }
}
