//! Minimum throughput of clients that read responses.
//!
//! Only the time counts during which bytes wait because the client's TCP receive window is full. Idle time of a silent
//! stream does not count.

use std::{io, task::Poll, time::Duration};
use tokio::time::Instant;

/// Minimum bytes per second that a client must read, on average over the blocked time of a response.
const MIN_BYTES_PER_SECOND: u64 = 16 << 10;

/// The read rate of the client of a connection.
#[derive(Debug)]
pub(super) struct WriteRate {
    /// Additional time that a response may wait for its client.
    grace: Duration,
    /// The request whose response is measured.
    request: u64,
    blocked_since: Option<Instant>,
    /// Blocked time of the current response before `blocked_since`.
    blocked: Duration,
    /// Bytes that the client has read since the response first blocked.
    read_bytes: u64,
}

impl WriteRate {
    pub(super) const fn new(grace: Duration) -> Self {
        Self { grace, request: 0, blocked_since: None, blocked: Duration::ZERO, read_bytes: 0 }
    }

    /// Records the outcome of a write for a request's response. Returns whether the client is too slow.
    pub(super) fn observe(&mut self, written: &Poll<io::Result<usize>>, request: u64, now: Instant) -> bool {
        // Blocked bytes belong to one response until the client has read its last byte.
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
                    self.read_bytes = self.read_bytes.saturating_add(*bytes as u64);
                }
            }
            Poll::Ready(Err(_)) => {}
        }
        self.is_too_slow(now)
    }

    /// Whether a response has been blocked for longer than the bytes read and the grace time allow.
    pub(super) fn is_too_slow(&self, now: Instant) -> bool {
        let Some(since) = self.blocked_since else { return false };
        let blocked = self.blocked.saturating_add(now.saturating_duration_since(since));
        let allowed = Duration::from_millis(self.read_bytes.saturating_mul(1_000) / MIN_BYTES_PER_SECOND);
        blocked > self.grace.saturating_add(allowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(15);
    const SECOND: Duration = Duration::from_secs(1);

    /// The second at which a client that reads `bytes` per second counts as too slow; `seconds` if it never does.
    fn seconds_until_slow(bytes: usize, seconds: u32) -> u32 {
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
    fn reports_client_below_minimum_throughput() {
        assert_eq!(seconds_until_slow(1, 1_000), 16);
        assert_eq!(seconds_until_slow(8 << 10, 1_000), 31);
        assert_eq!(seconds_until_slow(16 << 10, 1_000), 1_000);
    }

    #[test]
    fn excludes_server_idle_time() {
        let (mut rate, start) = (WriteRate::new(GRACE), Instant::now());
        for event in 0..100 {
            let now = start + GRACE * event;
            assert!(!rate.observe(&Poll::Pending, 1, now));
            assert!(!rate.observe(&Poll::Ready(Ok(10)), 1, now + Duration::from_millis(100)));
            assert!(!rate.is_too_slow(now + GRACE));
        }
    }

    #[test]
    fn measures_each_response_separately() {
        let (mut rate, start) = (WriteRate::new(GRACE), Instant::now());
        assert!(!rate.observe(&Poll::Pending, 1, start));
        assert!(!rate.observe(&Poll::Ready(Ok(1)), 1, start + GRACE));
        assert!(!rate.observe(&Poll::Pending, 2, start + GRACE));
        assert!(!rate.is_too_slow(start + GRACE * 2));
        assert!(rate.is_too_slow(start + GRACE * 2 + SECOND));
    }
}
