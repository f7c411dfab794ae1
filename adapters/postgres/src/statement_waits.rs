//! The time that a request waits for statements of PostgreSQL, and the number of statements in flight. Load
//! shedding reads the latter.

use std::{
    cell::Cell,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

tokio::task_local! {
    static WAIT_TIME: Cell<WaitTime>;
}

/// The wait time of one task: the total of its finished waits, and the number of its pending statements with the
/// start of their common wait.
#[derive(Clone, Copy, Default)]
struct WaitTime {
    elapsed: Duration,
    pending: Option<(u32, Instant)>,
}

impl WaitTime {
    fn begin(self, at: Instant) -> Self {
        let pending = self.pending.map_or((1, at), |(statements, since)| (statements.saturating_add(1), since));
        Self { pending: Some(pending), ..self }
    }

    fn end(self, at: Instant) -> Self {
        match self.pending {
            Some((1, since)) => {
                Self { elapsed: self.elapsed.saturating_add(at.saturating_duration_since(since)), pending: None }
            }
            Some((statements, since)) => Self { pending: Some((statements.saturating_sub(1), since)), ..self },
            None => self,
        }
    }
}

/// Runs `work`. Returns its output and the time that this task waited for PostgreSQL. The wait of concurrent
/// statements counts once. Waits of tasks that `work` spawns do not count.
pub async fn with_wait_time<F: Future>(work: F) -> (F::Output, Duration) {
    WAIT_TIME.scope(Cell::default(), async { (work.await, WAIT_TIME.with(Cell::get).elapsed) }).await
}

/// Counts the statements of one database whose responses are pending. Clones share the counter.
#[derive(Clone, Default)]
pub struct StatementsInFlight(Arc<AtomicUsize>);

/// A wait that is being counted. Dropping it ends the wait, even if the task is cancelled.
struct InFlightGuard<'a>(&'a AtomicUsize);

impl StatementsInFlight {
    /// The number of statements in flight.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Awaits `statement`, and counts it as in flight meanwhile.
    pub async fn track<F: Future>(&self, statement: F) -> F::Output {
        let _wait = InFlightGuard::begin(&self.0);
        statement.await
    }
}

impl<'a> InFlightGuard<'a> {
    fn begin(counter: &'a AtomicUsize) -> Self {
        counter.fetch_add(1, Ordering::Relaxed);
        let since = Instant::now();
        // The error is ignored, because background tasks measure no wait time.
        let _ = WAIT_TIME.try_with(|wait_time| wait_time.set(wait_time.get().begin(since)));
        Self(counter)
    }
}

impl Drop for InFlightGuard<'_> {
    fn drop(&mut self) {
        let at = Instant::now();
        self.0.fetch_sub(1, Ordering::Relaxed);
        let _ = WAIT_TIME.try_with(|wait_time| wait_time.set(wait_time.get().end(at)));
    }
}

impl fmt::Debug for StatementsInFlight {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "StatementsInFlight({})", self.count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};
    use tokio::time::timeout;

    #[tokio::test]
    async fn counts_waits_and_measures_their_time() {
        let in_flight = StatementsInFlight::default();
        assert_eq!(in_flight.count(), 0);
        let start = Instant::now();
        let (output, wait_time) = with_wait_time(async {
            let long = in_flight.track(tokio::time::sleep(Duration::from_millis(20)));
            let short = in_flight.track(tokio::time::sleep(Duration::from_millis(5)));
            tokio::join!(long, short, async { assert_eq!(in_flight.count(), 2) });
            7
        })
        .await;
        assert_eq!((output, in_flight.count()), (7, 0));
        // The wait of concurrent statements counts once.
        assert!(wait_time >= Duration::from_millis(20) && wait_time <= start.elapsed(), "{wait_time:?}");
    }

    #[tokio::test]
    async fn cancelled_waits_are_not_counted() {
        let in_flight = StatementsInFlight::default();
        timeout(Duration::from_millis(2), in_flight.track(pending::<()>())).await.unwrap_err();
        assert_eq!(in_flight.count(), 0);
        // A wait outside of a request counts as in flight too.
        in_flight.track(ready(())).await;
        assert_eq!(in_flight.count(), 0);
    }
}
