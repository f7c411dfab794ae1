//! A clock that a test can move.

use fairway_domain::{clock::Clock, time::Timestamp};
use std::sync::atomic::{AtomicI64, Ordering};
use time::{Duration, OffsetDateTime};

/// The machine's clock with an offset.
#[derive(Debug, Default)]
pub struct MovableClock(AtomicI64);

impl MovableClock {
    /// Sets the offset from the machine's clock in seconds.
    pub fn set_offset(&self, seconds: i64) {
        self.0.store(seconds, Ordering::Relaxed);
    }
}

impl Clock for MovableClock {
    fn now(&self) -> Timestamp {
        let offset = Duration::seconds(self.0.load(Ordering::Relaxed));
        Timestamp::new(OffsetDateTime::now_utc().saturating_add(offset))
    }
}
