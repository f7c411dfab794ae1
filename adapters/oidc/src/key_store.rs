//! The keys of an issuer in memory: when they are fetched, and which request waits for that.
//!
//! A fetch runs in a task of its own. A client that disconnects must not cancel it: unknown key identifiers allow one
//! fetch in 30 seconds, which such a client could waste every time.

use crate::{
    fetch::{FetchError, KeySource},
    key::KeySet,
};
use fairway_domain::{
    access::identity::{InvalidToken, TokenRefusal},
    time::{Clock, Timestamp},
};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::watch;

/// Minimum time between two fetches, however many unknown key identifiers arrive.
const MIN_INTERVAL: Duration = Duration::from_secs(30);
/// Age from which keys are fetched again while requests use the old ones.
const REFRESH_AGE: Duration = Duration::from_secs(5 * 60);
/// Age from which requests wait for the fetch. A removed key is refused within this time, and within ten minutes at
/// most.
const MAX_UNCHECKED_AGE: Duration = Duration::from_secs(9 * 60);
/// How long keys are used without a successful fetch. An issuer that fails longer issues no tokens anyway.
const MAX_OUTAGE: Duration = Duration::from_secs(24 * 60 * 60);

/// The keys of an issuer.
pub(crate) struct KeyStore {
    source: KeySource,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The last good keys, and when the fetch of them began.
    keys: Option<(Arc<KeySet>, Timestamp)>,
    /// When the last fetch began.
    started_at: Option<Timestamp>,
    /// When the last finished fetch began, and whether it succeeded.
    finished: Option<(Timestamp, FetchOutcome)>,
    /// Closes at the end of the fetch in progress.
    running: Option<watch::Receiver<()>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FetchOutcome {
    Succeeded,
    Failed,
}

impl KeyStore {
    pub(crate) fn new(source: KeySource, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { source, clock, state: Mutex::default() })
    }

    /// The current keys; `None` before the first successful fetch and after a long outage. Old keys are fetched
    /// again, and very old ones before this returns.
    pub(crate) async fn current(self: &Arc<Self>) -> Option<Arc<KeySet>> {
        let refresh = {
            let mut state = self.state();
            let now = self.clock.now();
            // The first fetch belongs to `with_key`.
            let (_, fetched_at) = state.keys.as_ref()?;
            if has_passed(REFRESH_AGE, *fetched_at, now) {
                let is_checked = state.finished.is_some_and(|(at, _)| !has_passed(MAX_UNCHECKED_AGE, at, now));
                self.fetch_if_due(&mut state, now).filter(|_| !is_checked)
            } else {
                None
            }
        };
        wait(refresh).await;
        self.state().usable_keys(self.clock.now())
    }

    /// Keys that contain one with this identifier. An unknown identifier causes a fetch, at most once in 30 seconds.
    pub(crate) async fn with_key(self: &Arc<Self>, id: &str) -> Result<Arc<KeySet>, TokenRefusal> {
        if let Some(keys) = self.current().await.filter(|keys| keys.has_key(id)) {
            return Ok(keys);
        }
        let fetch = self.fetch_if_due(&mut self.state(), self.clock.now());
        wait(fetch).await;
        let (state, now) = (self.state(), self.clock.now());
        if let Some(keys) = state.usable_keys(now).filter(|keys| keys.has_key(id)) {
            return Ok(keys);
        }
        match state.finished {
            Some((_, FetchOutcome::Succeeded)) => Err(InvalidToken::UnknownKey.into()),
            Some((_, FetchOutcome::Failed)) | None => {
                Err(TokenRefusal::Unavailable { retry_after: state.wait_time(now) })
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a fetch unless one began within the minimum interval, and returns the end of the fetch in progress.
    fn fetch_if_due(self: &Arc<Self>, state: &mut State, now: Timestamp) -> Option<watch::Receiver<()>> {
        // A closed channel without a result is that of a task that panicked.
        if let Some(running) = state.running.as_ref().filter(|running| running.has_changed().is_ok()) {
            return Some(running.clone());
        }
        if state.started_at.is_some_and(|at| !has_passed(MIN_INTERVAL, at, now)) {
            return None;
        }
        let (end, running) = watch::channel(());
        state.started_at = Some(now);
        state.running = Some(running.clone());
        let store = Arc::clone(self);
        tokio::spawn(async move {
            let fetched = store.source.fetch().await;
            store.finish(now, fetched);
            drop(end);
        });
        Some(running)
    }

    /// Records the result of a fetch that began at this time.
    fn finish(&self, started_at: Timestamp, fetched: Result<KeySet, FetchError>) {
        let issuer = self.source.issuer();
        let mut state = self.state();
        state.running = None;
        match fetched {
            Ok(keys) => {
                // Equal keys keep their identity, on which cached tokens depend.
                let kept = state.keys.take().map(|(old, _)| old).filter(|old| **old == keys);
                if kept.is_none() {
                    tracing::info!(issuer, "using new signing keys of an issuer");
                }
                state.keys = Some((kept.unwrap_or_else(|| Arc::new(keys)), started_at));
                state.finished = Some((started_at, FetchOutcome::Succeeded));
            }
            Err(error) => {
                let has_keys = state.keys.is_some();
                state.finished = Some((started_at, FetchOutcome::Failed));
                drop(state);
                tracing::warn!(
                    issuer,
                    code = error.code(),
                    has_keys,
                    "failed to fetch the signing keys of an issuer; keeping the last ones and retrying in 30 seconds"
                );
            }
        }
    }
}

impl State {
    fn usable_keys(&self, now: Timestamp) -> Option<Arc<KeySet>> {
        let (keys, fetched_at) = self.keys.as_ref()?;
        // A clock that was set back proves no age, so the keys stay usable, and `current` fetches them again.
        (fetched_at.duration_until(now) < MAX_OUTAGE).then(|| Arc::clone(keys))
    }

    /// The time until the next fetch, rounded up to seconds.
    fn wait_time(&self, now: Timestamp) -> Duration {
        let passed = self.started_at.map_or(MIN_INTERVAL, |at| at.duration_until(now));
        let left = MIN_INTERVAL.saturating_sub(passed);
        Duration::from_secs(left.as_millis().div_ceil(1_000).try_into().unwrap_or(1).max(1))
    }
}

/// Whether a time has passed since an event; also if the clock was set back, because then nothing is known.
fn has_passed(time: Duration, since: Timestamp, now: Timestamp) -> bool {
    now < since || since.duration_until(now) >= time
}

/// Waits for the end of a fetch.
async fn wait(fetch: Option<watch::Receiver<()>>) {
    if let Some(mut fetch) = fetch {
        // The sender never sends; its drop ends the fetch.
        while fetch.changed().await.is_ok() {}
    }
}
