//! The keys of an issuer in memory. This module decides when keys are fetched, and which requests wait for a fetch.
//!
//! A fetch runs in its own task, so that a client that disconnects does not cancel it. Otherwise a client could
//! send unknown key identifiers and disconnect, and so waste the one fetch that is permitted in 30 seconds.

use crate::{
    issuer_fetcher::{FetchError, IssuerFetcher},
    key_set::KeySet,
};
use fairway_domain::{
    access::identity::{InvalidToken, TokenRefusal},
    clock::Clock,
    time::Timestamp,
};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::watch;

/// Minimum time between two fetches, regardless of the number of unknown key identifiers.
const MIN_INTERVAL: Duration = Duration::from_secs(30);
/// Age at which keys are fetched again. Meanwhile requests use the existing keys.
const REFRESH_AGE: Duration = Duration::from_secs(5 * 60);
/// Time since the start of the last finished fetch after which requests wait for the next fetch. As long as fetches
/// succeed, a key that the issuer removed is therefore refused after ten minutes at the latest.
const MAX_UNCHECKED_AGE: Duration = Duration::from_secs(9 * 60);
/// How long keys are used without a successful fetch. After this time, no token of the issuer is accepted until a fetch
/// succeeds.
const MAX_OUTAGE: Duration = Duration::from_secs(24 * 60 * 60);

/// The keys of an issuer, fetched on demand and kept in memory.
pub(crate) struct KeyCache {
    source: IssuerFetcher,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The keys of the last successful fetch, and the time at which that fetch began.
    keys: Option<(Arc<KeySet>, Timestamp)>,
    /// When the last fetch began.
    started_at: Option<Timestamp>,
    /// When the last finished fetch began, and whether it succeeded.
    finished: Option<(Timestamp, FetchOutcome)>,
    /// Set while a fetch runs; the channel closes when the fetch ends.
    running: Option<watch::Receiver<()>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FetchOutcome {
    Succeeded,
    Failed,
}

impl KeyCache {
    pub(crate) fn new(source: IssuerFetcher, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { source, clock, state: Mutex::default() })
    }

    /// The current keys; `None` before the first successful fetch and after a long outage. Keys past
    /// [`REFRESH_AGE`] start a fetch. If no fetch finished within [`MAX_UNCHECKED_AGE`], this call waits for the
    /// fetch.
    pub(crate) async fn current(self: &Arc<Self>) -> Option<Arc<KeySet>> {
        let refresh = {
            let mut state = self.state();
            let now = self.clock.now();
            // Only `key_set_containing` starts the first fetch.
            let (_, fetched_at) = state.keys.as_ref()?;
            if has_passed(REFRESH_AGE, *fetched_at, now) {
                let is_checked =
                    state.finished.is_some_and(|(started_at, _)| !has_passed(MAX_UNCHECKED_AGE, started_at, now));
                self.fetch_if_due(&mut state, now).filter(|_| !is_checked)
            } else {
                None
            }
        };
        wait(refresh).await;
        self.state().usable_keys(self.clock.now())
    }

    /// Returns a key set that contains the key `id`. An unknown identifier causes a fetch, at most once in 30
    /// seconds.
    pub(crate) async fn key_set_containing(self: &Arc<Self>, id: &str) -> Result<Arc<KeySet>, TokenRefusal> {
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

    /// Starts a fetch, unless one runs or began within the minimum interval. Returns a receiver that closes when
    /// the running fetch ends.
    fn fetch_if_due(self: &Arc<Self>, state: &mut State, now: Timestamp) -> Option<watch::Receiver<()>> {
        // A closed channel in `running` means that the task of the fetch panicked.
        if let Some(running) = state.running.as_ref().filter(|running| running.has_changed().is_ok()) {
            return Some(running.clone());
        }
        if state.started_at.is_some_and(|started_at| !has_passed(MIN_INTERVAL, started_at, now)) {
            return None;
        }
        let (end, running) = watch::channel(());
        state.started_at = Some(now);
        state.running = Some(running.clone());
        let store = Arc::clone(self);
        tokio::spawn(async move {
            let result = store.source.fetch().await;
            store.finish(now, result);
            drop(end);
        });
        Some(running)
    }

    /// Records the result of a fetch that began at `started_at`.
    fn finish(&self, started_at: Timestamp, result: Result<KeySet, FetchError>) {
        let issuer = self.source.issuer();
        let mut state = self.state();
        state.running = None;
        match result {
            Ok(keys) => {
                // If the keys did not change, the old allocation is kept: cached tokens refer to it.
                let unchanged_keys =
                    state.keys.take().map(|(old_keys, _)| old_keys).filter(|old_keys| **old_keys == keys);
                if unchanged_keys.is_none() {
                    tracing::info!(issuer, "using new signing keys of an issuer");
                }
                state.keys = Some((unchanged_keys.unwrap_or_else(|| Arc::new(keys)), started_at));
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
                    "failed to fetch the signing keys of an issuer; the next token that needs them retries, at most \
                     once in 30 s"
                );
            }
        }
    }
}

impl State {
    fn usable_keys(&self, now: Timestamp) -> Option<Arc<KeySet>> {
        let (keys, fetched_at) = self.keys.as_ref()?;
        // After the clock was set back, the age of the keys is unknown. They stay usable, and `current` fetches
        // them again.
        (fetched_at.duration_until(now) < MAX_OUTAGE).then(|| Arc::clone(keys))
    }

    /// The time until the next fetch is permitted, rounded up to seconds.
    fn wait_time(&self, now: Timestamp) -> Duration {
        let passed = self.started_at.map_or(MIN_INTERVAL, |started_at| started_at.duration_until(now));
        let remaining = MIN_INTERVAL.saturating_sub(passed);
        Duration::from_secs(remaining.as_millis().div_ceil(1_000).try_into().unwrap_or(1).max(1))
    }
}

/// Whether `time` has passed since an event. Also true if the clock was set back, because the elapsed time is then
/// unknown.
fn has_passed(time: Duration, since: Timestamp, now: Timestamp) -> bool {
    now < since || since.duration_until(now) >= time
}

/// Waits until a fetch ends.
async fn wait(fetch: Option<watch::Receiver<()>>) {
    if let Some(mut fetch) = fetch {
        // The sender sends no values; the receiver fails when the sender is dropped at the end of the fetch.
        while fetch.changed().await.is_ok() {}
    }
}
