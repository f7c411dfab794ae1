//! Budgets for client-controlled memory: arriving bodies, parsed documents, and large unread responses
//! ([0056](../../../../docs/decisions/0056-memory-budgets.md)).
//!
//! A budget belongs to the whole process. One client address gets at most half of it, so that it cannot exhaust the
//! budget of all others. One sender at an address gets at most three quarters of that address's memory for arriving
//! bodies, so that other senders there are still served. A request waits up to [`MAX_WAIT`] for memory and then
//! gets a 503.

use super::load_shedding::BodySender;
use fairway_domain::client_address::ClientAddress;
use fairway_memory_limit::{admit, try_admit};
use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

/// Bytes of one request that count as small. Small requests have a separate budget, so that large requests cannot block
/// them.
pub(super) const SMALL_REQUEST_BYTES: usize = 64 << 10;
/// Maximum bytes of all small requests together.
const MAX_SMALL_REQUESTS: usize = 24 << 20;
/// Maximum bytes of all large requests together.
const MAX_LARGE_REQUESTS: usize = 64 << 20;
/// Maximum bytes of all large unread responses together.
const MAX_RESPONSES: usize = 64 << 20;
/// Maximum bytes of a document while it is parsed. Arriving bodies leave this much of the budget, and of each
/// client's half, free for complete bodies. Otherwise bodies that wait for the memory of their values could reserve
/// the whole budget and deadlock.
const MAX_DOCUMENT_BYTES: usize = 16 << 20;
/// The fraction of an address's memory for arriving bodies that one sender gets, as numerator and denominator. The rest
/// remains for other senders behind the same address.
const SENDER_FRACTION: (usize, usize) = (3, 4);
/// Time that a request waits for memory.
const MAX_WAIT: Duration = Duration::from_secs(2);

/// The memory budget is exhausted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the memory budget is exhausted")]
pub struct BudgetExhausted;

/// A memory budget that the reservations of all clients share; each client gets at most half. Clones share the
/// budget.
#[derive(Clone, Debug)]
pub struct ClientMemoryBudget(Arc<BudgetState>);

#[derive(Debug)]
struct BudgetState {
    max: usize,
    max_per_client: usize,
    /// Maximum bytes of one sender: its fraction of the bytes for arriving bodies, plus the bytes that arriving bodies
    /// leave free. Because of these free bytes, a complete body proceeds even if the sender's other bodies never end.
    max_per_sender: usize,
    /// Bytes that arriving bodies leave free.
    reserved_for_values: usize,
    usage: Mutex<Usage>,
    released: Notify,
}

#[derive(Debug, Default)]
struct Usage {
    total: usize,
    /// Bytes by client, without zero entries.
    by_client: HashMap<ClientAddress, usize>,
    /// Bytes by sender, without zero entries.
    by_sender: HashMap<SenderKey, usize>,
}

/// Key of the bytes that one sender at one client address has reserved.
type SenderKey = (ClientAddress, BodySender);

/// The purpose of a reservation, which determines how much of the budget it may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Purpose {
    /// An arriving body.
    Arrival,
    /// The parsed values of a complete body, or a response.
    Values,
}

/// Reserved bytes of a budget; dropping it releases them.
#[derive(Debug)]
pub struct Reservation {
    budget: ClientMemoryBudget,
    client: ClientAddress,
    /// Sender of a request; a response counts for its address only.
    sender: Option<SenderKey>,
    bytes: usize,
}

impl ClientMemoryBudget {
    /// Creates a budget of `max` bytes, without a reserve for values.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self::with_reserve(max, 0)
    }

    /// Creates a budget of `max` bytes, of which arriving bodies leave `reserved_for_values` bytes free.
    fn with_reserve(max: usize, reserved_for_values: usize) -> Self {
        let (usage, released) = (Mutex::default(), Notify::new());
        let max_per_client = max / 2;
        let arrival_bytes = max_per_client.saturating_sub(reserved_for_values);
        Self(Arc::new(BudgetState {
            max,
            max_per_client,
            max_per_sender: (arrival_bytes / SENDER_FRACTION.1 * SENDER_FRACTION.0).saturating_add(reserved_for_values),
            reserved_for_values,
            usage,
            released,
        }))
    }

    /// An empty reservation, which can grow.
    #[must_use]
    pub fn empty_reservation(&self, client: ClientAddress) -> Reservation {
        Reservation { budget: self.clone(), client, sender: None, bytes: 0 }
    }

    /// An empty reservation for a request of this sender.
    fn reserve_for_sender(&self, client: ClientAddress, sender: BodySender) -> Reservation {
        Reservation { budget: self.clone(), client, sender: Some((client, sender)), bytes: 0 }
    }

    fn usage(&self) -> MutexGuard<'_, Usage> {
        // A panic elsewhere leaves the sums consistent, because no call between their updates panics.
        self.0.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reservation {
    /// Resizes the reservation to `bytes`.
    ///
    /// # Errors
    /// When growth would exceed the budget. The reservation then keeps its size.
    pub fn try_resize(&mut self, bytes: usize) -> Result<(), BudgetExhausted> {
        self.try_resize_at(Purpose::Values, bytes)
    }

    fn try_resize_at(&mut self, purpose: Purpose, bytes: usize) -> Result<(), BudgetExhausted> {
        let (shared, previous_bytes) = (&*self.budget.0, self.bytes);
        let reserved = match purpose {
            Purpose::Arrival => shared.reserved_for_values,
            Purpose::Values => 0,
        };
        let resized = |used: usize| used.saturating_sub(previous_bytes).saturating_add(bytes);
        let mut usage = self.budget.usage();
        let total = resized(usage.total);
        let client_bytes = resized(usage.by_client.get(&self.client).copied().unwrap_or_default());
        let sender_bytes = self.sender.as_ref().map(|sender| {
            let used = usage.by_sender.get(sender).copied().unwrap_or_default();
            (sender, resized(used))
        });
        let exceeds = |used: usize, max: usize| used > max.saturating_sub(reserved);
        if bytes > previous_bytes
            && (exceeds(total, shared.max)
                || exceeds(client_bytes, shared.max_per_client)
                || sender_bytes.is_some_and(|(_, used)| exceeds(used, shared.max_per_sender)))
        {
            return Err(BudgetExhausted);
        }
        usage.total = total;
        set_or_remove(&mut usage.by_client, &self.client, client_bytes);
        if let Some((sender, used)) = sender_bytes {
            set_or_remove(&mut usage.by_sender, sender, used);
        }
        drop(usage);
        self.bytes = bytes;
        if bytes < previous_bytes {
            shared.released.notify_waiters();
        }
        Ok(())
    }

    /// Resizes the reservation, and waits for memory if necessary.
    ///
    /// # Errors
    /// When the budget is still exhausted after [`MAX_WAIT`].
    async fn resize_at(&mut self, purpose: Purpose, bytes: usize) -> Result<(), BudgetExhausted> {
        let until = Instant::now() + MAX_WAIT;
        let shared = Arc::clone(&self.budget.0);
        loop {
            // Registered before the attempt, so a release between the attempt and the wait is not lost.
            let released = shared.released.notified();
            if self.try_resize_at(purpose, bytes).is_ok() {
                return Ok(());
            }
            timeout_at(until, released).await.map_err(|_| BudgetExhausted)?;
        }
    }
}

/// Sets the bytes of a client or sender, and removes an entry of zero bytes.
fn set_or_remove<K: Clone + Eq + Hash>(used: &mut HashMap<K, usize>, key: &K, bytes: usize) {
    if bytes == 0 {
        used.remove(key);
    } else if let Some(used) = used.get_mut(key) {
        *used = bytes;
    } else {
        used.insert(key.clone(), bytes);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // A reservation can always shrink, so the result contains no error.
        let _ = self.try_resize(0);
    }
}

/// The budgets of a process: one for small requests, one for large requests, and one for responses.
#[derive(Clone, Debug)]
pub struct MemoryBudgets {
    small_requests: ClientMemoryBudget,
    large_requests: ClientMemoryBudget,
    responses: ClientMemoryBudget,
}

impl Default for MemoryBudgets {
    fn default() -> Self {
        Self {
            small_requests: ClientMemoryBudget::with_reserve(MAX_SMALL_REQUESTS, SMALL_REQUEST_BYTES),
            large_requests: ClientMemoryBudget::with_reserve(MAX_LARGE_REQUESTS, MAX_DOCUMENT_BYTES),
            responses: ClientMemoryBudget::new(MAX_RESPONSES),
        }
    }
}

impl MemoryBudgets {
    /// Creates the empty reservation of a request whose body starts to arrive.
    #[must_use]
    pub fn empty_request_reservation(&self, client: ClientAddress, sender: BodySender) -> RequestMemory {
        let small = self.small_requests.reserve_for_sender(client, sender.clone());
        RequestMemory { small, large: self.large_requests.reserve_for_sender(client, sender) }
    }

    /// Reserves the memory of a response of `bytes` bytes.
    ///
    /// # Errors
    /// When the budget is exhausted.
    pub fn reserve_response(&self, client: ClientAddress, bytes: usize) -> Result<Reservation, BudgetExhausted> {
        let mut reservation = self.responses.empty_reservation(client);
        reservation.try_resize(bytes)?;
        Ok(reservation)
    }
}

/// The reservation of a request. Its first bytes count in the budget of small requests, the rest in that of large
/// requests.
#[derive(Debug)]
pub struct RequestMemory {
    small: Reservation,
    large: Reservation,
}

impl RequestMemory {
    /// Reserves `bytes` bytes of a body before they are buffered, and waits for memory. While it waits, the request has
    /// reserved nothing in the budget of large requests, so large bodies cannot deadlock.
    ///
    /// # Errors
    /// When the budget is exhausted.
    pub async fn reserve_arriving(&mut self, bytes: usize) -> Result<(), BudgetExhausted> {
        self.small.resize_at(Purpose::Arrival, bytes.min(SMALL_REQUEST_BYTES)).await?;
        self.resize_large(Purpose::Arrival, bytes).await
    }

    /// Grows to the received bytes of a body of unknown length. Such a body already has reserved memory when it needs
    /// more. It does not wait, because two such bodies could deadlock.
    ///
    /// # Errors
    /// When the budget is exhausted.
    pub fn try_grow_to(&mut self, bytes: usize) -> Result<(), BudgetExhausted> {
        if bytes <= self.bytes() {
            return Ok(());
        }
        self.small.try_resize_at(Purpose::Arrival, bytes.min(SMALL_REQUEST_BYTES))?;
        let growth = self.large_growth(bytes);
        if growth > 0 {
            try_admit(growth).map_err(|_| BudgetExhausted)?.detach();
        }
        self.large.try_resize_at(Purpose::Arrival, bytes.saturating_sub(SMALL_REQUEST_BYTES))
    }

    /// Resizes the reservation, and waits for memory. Arriving bodies leave memory for the largest document, so one of
    /// the waiting requests always proceeds.
    ///
    /// # Errors
    /// When the budget is exhausted.
    pub async fn resize_for_values(&mut self, bytes: usize) -> Result<(), BudgetExhausted> {
        self.small.resize_at(Purpose::Values, bytes.min(SMALL_REQUEST_BYTES)).await?;
        self.resize_large(Purpose::Values, bytes).await
    }

    /// Resizes the part in the budget of large requests. Growth also needs admission by the process memory limit.
    async fn resize_large(&mut self, purpose: Purpose, bytes: usize) -> Result<(), BudgetExhausted> {
        let growth = self.large_growth(bytes);
        self.large.resize_at(purpose, bytes.saturating_sub(SMALL_REQUEST_BYTES)).await?;
        if growth > 0 {
            admit(growth, MAX_WAIT).await.map_err(|_| BudgetExhausted)?.detach();
        }
        Ok(())
    }

    /// Bytes by which the part in the budget of large requests grows.
    const fn large_growth(&self, bytes: usize) -> usize {
        bytes.saturating_sub(SMALL_REQUEST_BYTES).saturating_sub(self.large.bytes)
    }

    /// Bytes that the request has reserved.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.small.bytes.saturating_add(self.large.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::load_shedding::ClientKey;
    use fairway_domain::access::ActorRef;

    fn client(address: &str) -> ClientAddress {
        ClientAddress::from_ip_truncating_v6(address.parse().unwrap())
    }

    fn sender(name: &str) -> BodySender {
        BodySender::of_client(&ClientKey::Caller(ActorRef::parse(name).unwrap()))
    }

    #[test]
    fn limits_one_client_to_half_of_a_budget() {
        let budget = ClientMemoryBudget::new(100);
        let (mut first, mut second) =
            (budget.empty_reservation(client("192.0.2.1")), budget.empty_reservation(client("192.0.2.1")));
        assert_eq!(first.try_resize(30), Ok(()));
        assert_eq!(second.try_resize(21), Err(BudgetExhausted));
        assert_eq!(second.try_resize(20), Ok(()));
        let mut other_client = budget.empty_reservation(client("192.0.2.2"));
        assert_eq!(other_client.try_resize(50), Ok(()));
        let mut third_client = budget.empty_reservation(client("192.0.2.3"));
        assert_eq!(third_client.try_resize(1), Err(BudgetExhausted));
        drop((first, second, other_client));
        assert_eq!(budget.usage().total, 0);
        assert!(budget.usage().by_client.is_empty());
        assert_eq!(third_client.try_resize(50), Ok(()));
    }

    #[test]
    fn failed_growth_keeps_reservation() {
        let budget = ClientMemoryBudget::new(100);
        let mut reservation = budget.empty_reservation(client("192.0.2.1"));
        assert_eq!(reservation.try_resize(40), Ok(()));
        assert_eq!(reservation.try_resize(51), Err(BudgetExhausted));
        assert_eq!(budget.usage().total, 40);
        assert_eq!(reservation.try_resize(10), Ok(()));
        assert_eq!(budget.usage().total, 10);
    }

    #[tokio::test(start_paused = true)]
    async fn waits_for_memory_up_to_the_limit() {
        let budget = ClientMemoryBudget::new(100);
        let mut holder = budget.empty_reservation(client("192.0.2.1"));
        assert_eq!(holder.try_resize(50), Ok(()));
        let mut waiter = budget.empty_reservation(client("192.0.2.1"));
        assert_eq!(waiter.resize_at(Purpose::Values, 10).await, Err(BudgetExhausted));
        let task = tokio::spawn(async move { waiter.resize_at(Purpose::Values, 10).await });
        tokio::task::yield_now().await;
        drop(holder);
        assert_eq!(task.await.unwrap(), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn large_requests_leave_memory_for_small_ones() {
        let budgets = MemoryBudgets::default();
        let client = client("192.0.2.1");
        let mut large_requests = Vec::new();
        for name in ["user:ada", "user:bob"].into_iter().cycle() {
            let mut memory = budgets.empty_request_reservation(client, sender(name));
            if memory.resize_for_values(8 << 20).await.is_err() {
                break;
            }
            large_requests.push(memory);
        }
        assert_eq!(large_requests.len(), 4);
        let mut small = budgets.empty_request_reservation(client, sender("user:ada"));
        assert_eq!(small.resize_for_values(SMALL_REQUEST_BYTES).await, Ok(()));
        assert_eq!(small.bytes(), SMALL_REQUEST_BYTES);
    }

    #[tokio::test(start_paused = true)]
    async fn arriving_bodies_leave_memory_for_largest_document() {
        let budgets = MemoryBudgets::default();
        for clients in [["192.0.2.1"; 4], ["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"]] {
            let mut arriving = Vec::new();
            for address in clients.into_iter().cycle().take(40) {
                let mut memory = budgets.empty_request_reservation(client(address), BodySender::default());
                if memory.reserve_arriving(4 << 20).await.is_ok() {
                    arriving.push(memory);
                }
            }
            let last = arriving.last_mut().unwrap();
            assert_eq!(last.resize_for_values(MAX_DOCUMENT_BYTES).await, Ok(()), "{clients:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_sender_leaves_memory_for_others_at_its_address() {
        let budgets = MemoryBudgets::default();
        let address = client("192.0.2.1");
        for bytes in [SMALL_REQUEST_BYTES, 900_000, 4 << 20] {
            let mut arriving = Vec::new();
            loop {
                let mut memory = budgets.empty_request_reservation(address, BodySender::default());
                if memory.reserve_arriving(bytes).await.is_err() {
                    break;
                }
                arriving.push(memory);
            }
            let mut other = budgets.empty_request_reservation(address, sender("user:ada"));
            assert_eq!(other.reserve_arriving(bytes).await, Ok(()), "{bytes} bytes, {} arriving", arriving.len());
            assert_eq!(other.resize_for_values(MAX_DOCUMENT_BYTES).await, Ok(()), "{bytes} bytes");
            drop(other);
            // A complete body of the same sender gets memory for its values, too.
            let complete_body = arriving.last_mut().unwrap();
            assert_eq!(complete_body.resize_for_values(MAX_DOCUMENT_BYTES).await, Ok(()), "{bytes} bytes");
        }
        for budget in [&budgets.small_requests, &budgets.large_requests] {
            assert!(budget.usage().by_sender.is_empty());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn body_of_unknown_length_does_not_wait() {
        let budgets = MemoryBudgets::default();
        let [mut first, mut second] =
            ["user:ada", "user:bob"].map(|name| budgets.empty_request_reservation(client("192.0.2.1"), sender(name)));
        assert_eq!(first.try_grow_to(12 << 20), Ok(()));
        assert_eq!(second.try_grow_to(3 << 20), Ok(()));
        let start = Instant::now();
        assert_eq!(second.try_grow_to(5 << 20), Err(BudgetExhausted));
        assert_eq!(start.elapsed(), Duration::ZERO);
        drop(first);
        assert_eq!(second.try_grow_to(5 << 20), Ok(()));
    }
}
