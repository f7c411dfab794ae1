//! A semaphore whose permits are shared fairly between keys, such as tenants.
//!
//! A plain semaphore serves waiters in arrival order, so one tenant with a hundred waiters delays all others. In this
//! semaphore, each key has its own queue. A free permit goes to the waiting key that holds the fewest permits. Ties
//! are broken by start-time fair queueing (Goyal, Vin and Cheng 1996), then by arrival. A request that exceeds its
//! wait time is refused.
//!
//! Keys may belong to groups; for example, the keys are callers and the groups are tenants. The semaphore first
//! selects the group and then the key within the group, both by this rule. A group with many keys therefore receives
//! no larger share.

mod state;

use state::{AcquireOutcome, State};
use std::{
    fmt,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{sync::oneshot, time::timeout};

/// Reason why a request received no permit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AcquireError {
    /// No permit became free for the key within the wait time.
    #[error("no permit became free within the wait time")]
    TimedOut,
    /// The queue of the key is full.
    #[error("the queue of the key is full")]
    QueueFull,
}

/// The limits of a semaphore.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Total number of permits.
    pub permits: usize,
    /// Maximum number of permits that one key may hold.
    pub permits_per_key: usize,
    /// Number of permits that only keys without a permit may acquire, so that a few keys with long-held permits
    /// cannot block all others.
    pub permits_for_idle_keys: usize,
    /// Maximum number of waiting requests of one key.
    pub waiting_per_key: usize,
}

impl Limits {
    /// Creates limits with only a total. One key may hold all permits, and its queue is unbounded.
    #[must_use]
    pub const fn unlimited_per_key(permits: usize) -> Self {
        Self { permits, permits_per_key: permits, permits_for_idle_keys: 0, waiting_per_key: usize::MAX }
    }
}

/// A semaphore that shares its permits fairly between groups, and between the keys of a group. Clones share the
/// permits.
pub struct FairSemaphore<K, G = ()> {
    state: Arc<Mutex<State<K, G>>>,
}

impl<K, G> Clone for FairSemaphore<K, G> {
    fn clone(&self) -> Self {
        Self { state: Arc::clone(&self.state) }
    }
}

impl<K, G> fmt::Debug for FairSemaphore<K, G> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("FairSemaphore").finish_non_exhaustive()
    }
}

impl<K: Clone + Eq + Hash> FairSemaphore<K> {
    /// Acquires a permit for a key; dropping the permit releases it.
    ///
    /// # Errors
    /// When no permit becomes free within `wait`, or the queue of the key is full.
    pub async fn acquire(&self, key: K, wait: Duration) -> Result<Permit<K>, AcquireError> {
        self.acquire_in((), key, wait).await
    }

    /// Returns the number of waiting requests of a key.
    #[must_use]
    pub fn waiting_count_of(&self, key: &K) -> usize {
        self.waiting_count_in(&(), key)
    }
}

impl<K: Clone + Eq + Hash, G: Clone + Eq + Hash> FairSemaphore<K, G> {
    /// Creates a semaphore with these limits. A semaphore with zero permits grants none.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { state: Arc::new(Mutex::new(State::new(limits))) }
    }

    /// Acquires a permit for a key of a group; dropping the permit releases it. The same key in two groups counts as
    /// two keys.
    ///
    /// # Errors
    /// When no permit becomes free within `wait`, or the queue of the key is full.
    pub async fn acquire_in(&self, group: G, key: K, wait: Duration) -> Result<Permit<K, G>, AcquireError> {
        let entry = self.lock().request(&group, &key);
        match entry {
            AcquireOutcome::Admitted => Ok(Permit { semaphore: self.clone(), group, key }),
            AcquireOutcome::QueueFull => Err(AcquireError::QueueFull),
            AcquireOutcome::Queued { ticket, granted } => {
                let mut waiter = Waiter { semaphore: self, owner: Some((group, key)), ticket, granted };
                match timeout(wait, &mut waiter.granted).await {
                    Ok(Ok(())) => waiter.owner.take().map_or(Err(AcquireError::TimedOut), |(group, key)| {
                        Ok(Permit { semaphore: self.clone(), group, key })
                    }),
                    // Dropping the waiter removes it from the queue, or releases a permit that was granted in the
                    // meantime.
                    Ok(Err(_)) | Err(_) => Err(AcquireError::TimedOut),
                }
            }
        }
    }

    /// Returns the number of waiting requests of a key in a group.
    #[must_use]
    pub fn waiting_count_in(&self, group: &G, key: &K) -> usize {
        self.lock().waiting_count(group, key)
    }

    fn lock(&self) -> MutexGuard<'_, State<K, G>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An acquired permit; dropping it releases the permit.
#[must_use = "the permit is free again once this is dropped"]
pub struct Permit<K: Clone + Eq + Hash, G: Clone + Eq + Hash = ()> {
    semaphore: FairSemaphore<K, G>,
    group: G,
    key: K,
}

impl<K: Clone + Eq + Hash, G: Clone + Eq + Hash> fmt::Debug for Permit<K, G> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Permit").finish_non_exhaustive()
    }
}

impl<K: Clone + Eq + Hash, G: Clone + Eq + Hash> Drop for Permit<K, G> {
    fn drop(&mut self) {
        self.semaphore.lock().release(&self.group, &self.key);
    }
}

/// A queued request. Dropping a cancelled request removes it from the queue, or releases the permit that it was
/// granted.
struct Waiter<'s, K: Clone + Eq + Hash, G: Clone + Eq + Hash> {
    semaphore: &'s FairSemaphore<K, G>,
    /// Group and key of the request; `None` once a [`Permit`] owns the granted permit.
    owner: Option<(G, K)>,
    ticket: u64,
    granted: oneshot::Receiver<()>,
}

impl<K: Clone + Eq + Hash, G: Clone + Eq + Hash> Drop for Waiter<'_, K, G> {
    fn drop(&mut self) {
        let Some((group, key)) = self.owner.take() else { return };
        let mut state = self.semaphore.lock();
        if !state.remove(&group, &key, self.ticket) {
            // The request is no longer in the queue, so a permit was granted that no [`Permit`] owns yet.
            state.release(&group, &key);
        }
    }
}

#[cfg(test)]
mod tests;
