//! Who holds permits, who waits, and who is next.

use super::Limits;
use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
};
use tokio::sync::oneshot;

/// What becomes of a request for a permit.
pub(crate) enum Entry {
    /// It has one.
    Admitted,
    /// It waits until `granted` says that it has one.
    Queued {
        /// Its place in the queue.
        ticket: u64,
        /// Tells that it has a permit.
        granted: oneshot::Receiver<()>,
    },
    /// Too many requests of its key wait.
    QueueFull,
}

/// All keys that hold permits or wait for one.
pub(crate) struct State<K> {
    limits: Limits,
    free: usize,
    waiting: usize,
    /// Virtual time: the start tag of the permit that was granted last.
    now: u64,
    tickets: u64,
    shares: HashMap<K, Share>,
}

/// One key.
#[derive(Default)]
struct Share {
    held: usize,
    /// The start tag of its next permit: each permit costs one.
    due: u64,
    queue: VecDeque<Request>,
}

struct Request {
    ticket: u64,
    grant: oneshot::Sender<()>,
}

impl<K: Clone + Eq + Hash> State<K> {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, free: limits.permits, waiting: 0, now: 0, tickets: 0, shares: HashMap::new() }
    }

    /// Takes a request in.
    pub(crate) fn enter(&mut self, key: &K) -> Entry {
        let now = self.now;
        let share = self.shares.entry(key.clone()).or_default();
        // A key that was away does not save up permits.
        share.due = share.due.max(now);
        if share.queue.len() >= self.limits.waiting_per_key && !can_enter(self.free, self.limits, share) {
            return Entry::QueueFull;
        }
        // While a permit is free, those who wait wait for permits of their own key.
        if can_enter(self.free, self.limits, share) {
            self.grant(key);
            return Entry::Admitted;
        }
        let (grant, granted) = oneshot::channel();
        self.tickets = self.tickets.wrapping_add(1);
        share.queue.push_back(Request { ticket: self.tickets, grant });
        self.waiting = self.waiting.saturating_add(1);
        Entry::Queued { ticket: self.tickets, granted }
    }

    /// Takes a request out of its queue; whether it was there.
    pub(crate) fn leave(&mut self, key: &K, ticket: u64) -> bool {
        let Some(share) = self.shares.get_mut(key) else { return false };
        let before = share.queue.len();
        share.queue.retain(|request| request.ticket != ticket);
        let left = before != share.queue.len();
        self.waiting = self.waiting.saturating_sub(usize::from(left));
        left
    }

    /// Takes a permit back, and passes it on.
    pub(crate) fn release(&mut self, key: &K) {
        if let Some(share) = self.shares.get_mut(key) {
            share.held = share.held.saturating_sub(1);
            self.free = self.free.saturating_add(1);
        }
        while let Some(next) = self.next() {
            let request = self.shares.get_mut(&next).and_then(|share| share.queue.pop_front());
            self.waiting = self.waiting.saturating_sub(usize::from(request.is_some()));
            if request.is_some_and(|request| request.grant.send(()).is_ok()) {
                self.grant(&next);
            }
        }
        self.forget();
    }

    pub(crate) fn waiting(&self, key: &K) -> usize {
        self.shares.get(key).map_or(0, |share| share.queue.len())
    }

    /// The key whose first request is next; `None` while no permit is free for anybody who waits.
    fn next(&self) -> Option<K> {
        let waiting = self.shares.iter().filter_map(|(key, share)| {
            let first = share.queue.front().filter(|_| can_enter(self.free, self.limits, share))?;
            Some(((share.held, share.due, first.ticket), key))
        });
        waiting.min_by_key(|(rank, _)| *rank).map(|(_, key)| key.clone())
    }

    fn grant(&mut self, key: &K) {
        if let Some(share) = self.shares.get_mut(key) {
            share.held = share.held.saturating_add(1);
            self.free = self.free.saturating_sub(1);
            self.now = self.now.max(share.due);
            share.due = share.due.saturating_add(1);
        }
    }

    /// Forgets keys that nothing is owed to: they neither hold nor wait, and would begin again where they are.
    fn forget(&mut self) {
        if self.free == self.limits.permits && self.waiting == 0 {
            self.shares.clear();
            return;
        }
        let now = self.now;
        self.shares.retain(|_, share| share.held > 0 || !share.queue.is_empty() || share.due > now);
    }

    #[cfg(test)]
    pub(crate) fn keys(&self) -> usize {
        self.shares.len()
    }
}

const fn can_enter(free: usize, limits: Limits, share: &Share) -> bool {
    free > 0 && share.held < limits.permits_per_key
}
