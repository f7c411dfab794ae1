//! A clock that the test sets.

use fairway_domain::time::{Clock, Timestamp};
use std::sync::atomic::{AtomicI64, Ordering};
use time::{Duration, OffsetDateTime};

/// The machine's clock, moved by as much as the test says.
#[derive(Debug, Default)]
pub struct MovableClock(AtomicI64);

impl MovableClock {
    /// Moves it by so many seconds from where the machine's stands.
    pub fn move_to(&self, seconds: i64) {
        self.0.store(seconds, Ordering::Relaxed);
    }
}

impl Clock for MovableClock {
    fn now(&self) -> Timestamp {
        let moved = Duration::seconds(self.0.load(Ordering::Relaxed));
        Timestamp::new(OffsetDateTime::now_utc().saturating_add(moved))
    }
}
