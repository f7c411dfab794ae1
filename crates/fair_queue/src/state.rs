//! State of the semaphore: held permits, queues, and the selection of the next request.

use super::Limits;
use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
};
use tokio::sync::oneshot;

/// Result of a request for a permit.
pub(crate) enum AcquireOutcome {
    /// The request has a permit.
    Admitted,
    /// The request waits until `granted` resolves.
    Queued {
        /// Number of the request in arrival order.
        ticket: u64,
        /// Resolves when the permit is granted.
        granted: oneshot::Receiver<()>,
    },
    /// The queue of the key is full.
    QueueFull,
}

/// State of all groups and keys.
pub(crate) struct State<K, G> {
    limits: Limits,
    free: usize,
    waiting: usize,
    /// Virtual time of the groups: the start tag of the group that received the last permit.
    virtual_time: u64,
    last_ticket: u64,
    groups: HashMap<G, Group<K>>,
}

/// A group of keys with its share of the permits.
struct Group<K> {
    share: Share,
    /// Virtual time of the keys: the start tag of the key that received the last permit of the group.
    virtual_time: u64,
    keys: HashMap<K, Key>,
}

/// A key with its queue.
#[derive(Default)]
struct Key {
    share: Share,
    queue: VecDeque<Request>,
}

/// Permits and virtual time of a group, or of a key within its group.
#[derive(Default)]
struct Share {
    held_permits: usize,
    /// Start tag of the next permit. Each granted permit advances it by 1.
    start_tag: u64,
}

struct Request {
    ticket: u64,
    grant: oneshot::Sender<()>,
}

impl Share {
    const fn rank(&self) -> (usize, u64) {
        (self.held_permits, self.start_tag)
    }

    /// Advances the start tag to the virtual time, so that an idle share accumulates no credit.
    fn catch_up(&mut self, now: u64) {
        self.start_tag = self.start_tag.max(now);
    }

    /// Counts a granted permit, and returns the new virtual time.
    fn take(&mut self, now: u64) -> u64 {
        self.held_permits = self.held_permits.saturating_add(1);
        let now = now.max(self.start_tag);
        self.start_tag = self.start_tag.saturating_add(1);
        now
    }

    fn release(&mut self) {
        self.held_permits = self.held_permits.saturating_sub(1);
    }
}

impl<K> Default for Group<K> {
    fn default() -> Self {
        Self { share: Share::default(), virtual_time: 0, keys: HashMap::new() }
    }
}

impl<K: Clone + Eq + Hash, G: Clone + Eq + Hash> State<K, G> {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, free: limits.permits, waiting: 0, virtual_time: 0, last_ticket: 0, groups: HashMap::new() }
    }

    /// Admits or queues a request.
    pub(crate) fn request(&mut self, group: &G, key: &K) -> AcquireOutcome {
        let group_state = self.groups.entry(group.clone()).or_default();
        group_state.share.catch_up(self.virtual_time);
        let key_state = group_state.keys.entry(key.clone()).or_default();
        key_state.share.catch_up(group_state.virtual_time);
        // If a permit is free, every waiting request is blocked by the limits of its own key, so this request
        // overtakes none.
        if can_admit(self.free, self.limits, key_state) {
            self.grant(group, key);
            return AcquireOutcome::Admitted;
        }
        if key_state.queue.len() >= self.limits.waiting_per_key {
            return AcquireOutcome::QueueFull;
        }
        let (grant, granted) = oneshot::channel();
        self.last_ticket = self.last_ticket.wrapping_add(1);
        key_state.queue.push_back(Request { ticket: self.last_ticket, grant });
        self.waiting = self.waiting.saturating_add(1);
        AcquireOutcome::Queued { ticket: self.last_ticket, granted }
    }

    /// Removes a request from its queue. Returns whether the queue contained the request.
    pub(crate) fn remove(&mut self, group: &G, key: &K, ticket: u64) -> bool {
        let Some(key) = self.key(group, key) else { return false };
        let before = key.queue.len();
        key.queue.retain(|request| request.ticket != ticket);
        let was_queued = before != key.queue.len();
        self.waiting = self.waiting.saturating_sub(usize::from(was_queued));
        was_queued
    }

    /// Releases a permit, and grants free permits to waiting requests.
    pub(crate) fn release(&mut self, group: &G, key: &K) {
        if let Some(group_state) = self.groups.get_mut(group)
            && let Some(key_state) = group_state.keys.get_mut(key)
        {
            group_state.share.release();
            key_state.share.release();
            self.free = self.free.saturating_add(1);
        }
        while let Some((group, key)) = self.next_key() {
            let request = self.key(&group, &key).and_then(|key| key.queue.pop_front());
            self.waiting = self.waiting.saturating_sub(usize::from(request.is_some()));
            if request.is_some_and(|request| request.grant.send(()).is_ok()) {
                self.grant(&group, &key);
            }
        }
        self.remove_idle();
    }

    pub(crate) fn waiting_count(&self, group: &G, key: &K) -> usize {
        let key = self.groups.get(group).and_then(|group| group.keys.get(key));
        key.map_or(0, |key| key.queue.len())
    }

    fn key(&mut self, group: &G, key: &K) -> Option<&mut Key> {
        self.groups.get_mut(group)?.keys.get_mut(key)
    }

    /// Returns the key of the next request; `None` if no waiting request can be granted a permit.
    fn next_key(&self) -> Option<(G, K)> {
        let waiting = self.groups.iter().flat_map(|(group, group_state)| {
            group_state.keys.iter().filter_map(move |(key, key_state)| {
                let first = key_state.queue.front().filter(|_| can_admit(self.free, self.limits, key_state))?;
                Some(((group_state.share.rank(), key_state.share.rank(), first.ticket), (group, key)))
            })
        });
        waiting.min_by_key(|(rank, _)| *rank).map(|(_, (group, key))| (group.clone(), key.clone()))
    }

    fn grant(&mut self, group: &G, key: &K) {
        if let Some(group_state) = self.groups.get_mut(group)
            && let Some(key_state) = group_state.keys.get_mut(key)
        {
            self.free = self.free.saturating_sub(1);
            self.virtual_time = group_state.share.take(self.virtual_time);
            group_state.virtual_time = key_state.share.take(group_state.virtual_time);
        }
    }

    /// Removes idle keys and groups whose start tag is not ahead of the virtual time. A new entry would have the same
    /// state.
    fn remove_idle(&mut self) {
        if self.free == self.limits.permits && self.waiting == 0 {
            self.groups.clear();
            return;
        }
        let now = self.virtual_time;
        self.groups.retain(|_, group| {
            let group_now = group.virtual_time;
            group.keys.retain(|_, key| {
                key.share.held_permits > 0 || !key.queue.is_empty() || key.share.start_tag > group_now
            });
            !group.keys.is_empty() || group.share.start_tag > now
        });
    }

    #[cfg(test)]
    pub(crate) fn key_count(&self) -> usize {
        self.groups.values().map(|group| group.keys.len()).sum()
    }
}

const fn can_admit(free: usize, limits: Limits, key: &Key) -> bool {
    let held_permits = key.share.held_permits;
    let reserved_permits = if held_permits == 0 { 0 } else { limits.permits_for_idle_keys };
    free > reserved_permits && held_permits < limits.permits_per_key
}
