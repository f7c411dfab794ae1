//! A semaphore whose permits are shared fairly between keys, such as tenants.
//!
//! A plain semaphore serves waiters in the order of their arrival, so one tenant with a hundred waiters delays everybody
//! else by a hundred turns. Here each key has a queue of its own. A free permit goes to the waiting key that holds the fewest
//! permits; among those, to the key that is due by start-time fair queueing (Goyal, Vin and Cheng 1996); among those, to the
//! waiter that came first. Whoever waits longer than it is ready to is refused.
//!
//! Keys may belong to groups, such as the callers of a tenant. Groups take turns by the same rule first, then the keys within
//! the group, so that a group with many keys gets no more than one with few.

mod state;

use state::{Entry, State};
use std::{
    fmt,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{sync::oneshot, time::timeout};

/// Why a key got no permit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AcquireError {
    /// No permit became free for the key within the wait that it was ready for.
    #[error("no permit became free in time")]
    TimedOut,
    /// As many of the key's requests wait as may.
    #[error("too many requests of this key wait")]
    QueueFull,
}

/// How many permits there are, and how many of them and of the waiting places one key may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// All permits.
    pub permits: usize,
    /// Most permits that one key holds at the same time.
    pub permits_per_key: usize,
    /// The last of these permits go to keys that hold none. So a few keys that keep their permits for long do not keep all
    /// others out.
    pub permits_for_idle_keys: usize,
    /// Most requests of one key that wait at the same time.
    pub waiting_per_key: usize,
}

impl Limits {
    /// So many permits. One key may hold all of them while no other key waits, and any number of its requests may wait.
    #[must_use]
    pub const fn of(permits: usize) -> Self {
        Self { permits, permits_per_key: permits, permits_for_idle_keys: 0, waiting_per_key: usize::MAX }
    }
}

/// A semaphore whose permits are shared fairly between keys, and before that between the groups that these belong to.
/// Clones share the permits.
pub struct FairSemaphore<K, G = ()> {
    state: Arc<Mutex<State<K, G>>>,
}

impl<K, G> Clone for FairSemaphore<K, G> {
    fn clone(&self) -> Self {
        Self { state: Arc::clone(&self.state) }
    }
}

impl<K, G> fmt::Debug for FairSemaphore<K, G> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("FairSemaphore").finish_non_exhaustive()
    }
}

impl<K: Clone + Eq + Hash> FairSemaphore<K> {
    /// A permit for a key, which gives it back when it is dropped.
    ///
    /// # Errors
    /// When no permit becomes free within `wait`, or too many requests of this key wait already.
    pub async fn acquire(&self, key: K, wait: Duration) -> Result<Permit<K>, AcquireError> {
        self.acquire_in((), key, wait).await
    }

    /// How many requests of a key wait at this moment.
    #[must_use]
    pub fn waiting(&self, key: &K) -> usize {
        self.waiting_in(&(), key)
    }
}

impl<K: Clone + Eq + Hash, G: Clone + Eq + Hash> FairSemaphore<K, G> {
    /// A semaphore with these limits. Nobody gets a permit where there are none.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { state: Arc::new(Mutex::new(State::new(limits))) }
    }

    /// A permit for a key of a group, which gives it back when it is dropped. The same key in two groups is two keys.
    ///
    /// # Errors
    /// When no permit becomes free within `wait`, or too many requests of this key wait already.
    pub async fn acquire_in(&self, group: G, key: K, wait: Duration) -> Result<Permit<K, G>, AcquireError> {
        let entry = self.lock().enter(&group, &key);
        match entry {
            Entry::Admitted => Ok(Permit { semaphore: self.clone(), group, key }),
            Entry::QueueFull => Err(AcquireError::QueueFull),
            Entry::Queued { ticket, granted } => {
                let mut waiter = Waiter { semaphore: self, owner: Some((group, key)), ticket, granted };
                match timeout(wait, &mut waiter.granted).await {
                    Ok(Ok(())) => waiter.owner.take().map_or(Err(AcquireError::TimedOut), |(group, key)| {
                        Ok(Permit { semaphore: self.clone(), group, key })
                    }),
                    // The waiter leaves the queue as it is dropped, and passes on a permit that came at the last moment.
                    Ok(Err(_)) | Err(_) => Err(AcquireError::TimedOut),
                }
            }
        }
    }

    /// How many requests of a key wait at this moment.
    #[must_use]
    pub fn waiting_in(&self, group: &G, key: &K) -> usize {
        self.lock().waiting(group, key)
    }

    fn lock(&self) -> MutexGuard<'_, State<K, G>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A permit. It is free again when this is dropped.
#[must_use = "the permit is free again once this is dropped"]
pub struct Permit<K: Clone + Eq + Hash, G: Clone + Eq + Hash = ()> {
    semaphore: FairSemaphore<K, G>,
    group: G,
    key: K,
}

impl<K: Clone + Eq + Hash, G: Clone + Eq + Hash> fmt::Debug for Permit<K, G> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Permit").finish_non_exhaustive()
    }
}

impl<K: Clone + Eq + Hash, G: Clone + Eq + Hash> Drop for Permit<K, G> {
    fn drop(&mut self) {
        self.semaphore.lock().release(&self.group, &self.key);
    }
}

/// A request in a queue. Without it a request that is cancelled would keep its place, or the permit that it was just given.
struct Waiter<'s, K: Clone + Eq + Hash, G: Clone + Eq + Hash> {
    semaphore: &'s FairSemaphore<K, G>,
    /// Whose request it is, until it has its permit.
    owner: Option<(G, K)>,
    ticket: u64,
    granted: oneshot::Receiver<()>,
}

impl<K: Clone + Eq + Hash, G: Clone + Eq + Hash> Drop for Waiter<'_, K, G> {
    fn drop(&mut self) {
        let Some((group, key)) = self.owner.take() else { return };
        let mut state = self.semaphore.lock();
        if !state.leave(&group, &key, self.ticket) {
            // It is not in the queue any more: a permit was granted that nobody took.
            state.release(&group, &key);
        }
    }
}

#[cfg(test)]
mod tests;
