//! Load shedding of one worker thread.
//!
//! PostgreSQL is the bottleneck, so the number of waiting statements measures the load. A queue that stays long for a
//! whole observation window is standing: it does not shrink by itself. Requests beyond the number that keeps PostgreSQL
//! busy are then refused at once, so admitted requests wait in a short queue. A request that waits for a provider does
//! not count. A short burst is not an overload.
//!
//! A client with less than its fair share of requests in flight is still served while others are refused. Clients are
//! tenants where requests name one, else callers, or the addresses of share link holders.

use fairway_domain::{access::ActorRef, id::TenantId, throttle::ClientAddress};
use fairway_memory_limit::is_exhausted;
use fairway_postgres::Waiting;
use std::{
    collections::HashMap,
    mem,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Time that a queue must stay long to count as standing.
const OBSERVATION_WINDOW: Duration = Duration::from_millis(100);
/// Time without a refusal after which the overload ends.
const OVERLOAD_COOLDOWN: Duration = Duration::from_secs(1);
/// The fraction of the queue limit that applies under overload, as numerator and denominator. It keeps PostgreSQL busy
/// and leaves time for refusals.
const OVERLOAD_FRACTION: (usize, usize) = (1, 2);
/// Factor by which a burst may exceed the queue limit.
const BURST_FACTOR: usize = 3;

/// Maximum requests in flight of one worker thread, including those whose bodies still arrive. Each takes about 90 KiB
/// besides its body in an unoptimized build.
const MAX_IN_FLIGHT: usize = 512;

/// Requests that one worker thread serves at a time while the process is at its memory limit.
const MAX_IN_FLIGHT_AT_MEMORY_LIMIT: usize = 4;

/// Refusals per second of one worker thread that are sent without delay. Refusals share the thread with admitted
/// requests and delay them.
const REFUSALS_PER_SECOND: u32 = 3_000;
/// Maximum delay of a refusal. It bounds the refusals of one connection to four per second.
const MAX_REFUSAL_DELAY: Duration = Duration::from_millis(250);

/// Load shedder of one worker thread. Clones share state.
#[derive(Clone, Debug)]
pub struct Admission {
    waiting: Waiting,
    line: usize,
    books: Arc<Mutex<ShedState>>,
}

/// The client that a request is counted for, from its unverified claims: a lookup would cost a query.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ClientKey {
    /// The tenant that the request names.
    Tenant(TenantId),
    /// The caller, if the request names no tenant.
    Caller(ActorRef),
    /// The address of an unnamed share link holder.
    Holder(ClientAddress),
}

/// The permit of an admitted request; dropping it ends the request.
#[derive(Debug)]
#[must_use = "the request counts as answered once this is dropped"]
pub struct Admitted {
    party: ClientKey,
    books: Arc<Mutex<ShedState>>,
}

#[derive(Debug)]
struct ShedState {
    stretch_began: Instant,
    /// The minimum of waiting statements in this window, sampled at each request.
    fewest: usize,
    overloaded_until: Option<Instant>,
    /// Time of the next refusal.
    next_refusal: Instant,
    /// Requests in flight by client, without zero entries.
    under_way: HashMap<ClientKey, usize>,
}

impl Admission {
    /// Creates a load shedder over the statements that wait for PostgreSQL; `line` is the limit of a standing queue.
    #[must_use]
    pub fn new(waiting: Waiting, line: usize) -> Self {
        let books = ShedState {
            stretch_began: Instant::now(),
            fewest: 0,
            overloaded_until: None,
            next_refusal: Instant::now(),
            under_way: HashMap::new(),
        };
        Self { waiting, line, books: Arc::new(Mutex::new(books)) }
    }

    /// A permit for a request of this client, or `None` if the request must be refused.
    pub fn admit(&self, party: ClientKey, now: Instant) -> Option<Admitted> {
        self.admit_within(party, now, is_exhausted)
    }

    /// Like `admit`, with a replaceable check whether the process is at its memory limit.
    fn admit_within(&self, party: ClientKey, now: Instant, is_exhausted: impl FnOnce() -> bool) -> Option<Admitted> {
        let mut books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = self.waiting.now();
        books.fewest = books.fewest.min(waiting);
        if now.saturating_duration_since(books.stretch_began) >= OBSERVATION_WINDOW {
            let is_standing = mem::replace(&mut books.fewest, waiting) >= self.line;
            if is_standing {
                if books.overloaded_until.is_none_or(|until| now >= until) {
                    tracing::warn!(waiting, "PostgreSQL is overloaded; refusing part of the requests with 503");
                }
                books.overloaded_until = Some(now + OVERLOAD_COOLDOWN);
            }
            books.stretch_began = now;
        }
        let all: usize = books.under_way.values().sum();
        if all >= MAX_IN_FLIGHT_AT_MEMORY_LIMIT && is_exhausted() {
            return None;
        }
        // A client with few requests in flight is still served, up to twice the limit.
        if all >= MAX_IN_FLIGHT && (all >= MAX_IN_FLIGHT.saturating_mul(2) || !books.is_below_fair_share(&party)) {
            return None;
        }
        let overloaded = books.overloaded_until.is_some_and(|until| now < until);
        let burst = self.line.saturating_mul(BURST_FACTOR);
        let limit = if overloaded { self.line * OVERLOAD_FRACTION.0 / OVERLOAD_FRACTION.1 } else { burst };
        if waiting >= limit && (waiting >= burst.saturating_mul(2) || !books.is_below_fair_share(&party)) {
            if !overloaded {
                tracing::warn!(waiting, "PostgreSQL is overloaded; refusing part of the requests with 503");
            }
            books.overloaded_until = Some(now + OVERLOAD_COOLDOWN);
            return None;
        }
        *books.under_way.entry(party.clone()).or_default() += 1;
        Some(Admitted { party, books: Arc::clone(&self.books) })
    }
}

impl Admission {
    /// The time to send the refusal of a request that arrived at `now`. Beyond [`REFUSALS_PER_SECOND`] refusals are
    /// delayed, by at most [`MAX_REFUSAL_DELAY`]. The server reads nothing from the connection of a delayed refusal.
    #[must_use]
    pub fn refusal_due(&self, now: Instant) -> Instant {
        let mut books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
        let due = books.next_refusal.max(now);
        if due.saturating_duration_since(now) > MAX_REFUSAL_DELAY {
            return now + MAX_REFUSAL_DELAY;
        }
        books.next_refusal = due + Duration::from_secs(1) / REFUSALS_PER_SECOND;
        due
    }
}

impl ShedState {
    /// Whether a client has less than its fair share of the requests in flight, and other clients exist.
    fn is_below_fair_share(&self, party: &ClientKey) -> bool {
        let own = self.under_way.get(party).copied().unwrap_or_default();
        let all: usize = self.under_way.values().sum();
        let parties = self.under_way.len() + usize::from(own == 0);
        parties > 1 && (own + 1).saturating_mul(parties) <= all
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = books.under_way.get_mut(&self.party) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                books.under_way.remove(&self.party);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;
    use tokio::task::JoinSet;

    const MAX_WAITING: usize = 6;

    fn party(name: &str) -> ClientKey {
        ClientKey::Caller(ActorRef::parse(name).unwrap())
    }

    /// Spawns `many` waiting statements that end when the set is dropped.
    async fn spawn_waiting(waiting: &Waiting, many: usize) -> JoinSet<()> {
        let mut line = JoinSet::new();
        for _ in 0..many {
            let waiting = waiting.clone();
            line.spawn(async move { waiting.during(pending()).await });
        }
        while waiting.now() < many {
            tokio::task::yield_now().await;
        }
        line
    }

    #[tokio::test]
    async fn serves_bursts_and_bounds_standing_queues() {
        let waiting = Waiting::default();
        let admission = Admission::new(waiting.clone(), MAX_WAITING);
        let (ada, start) = (party("user:ada"), Instant::now());
        let line = spawn_waiting(&waiting, MAX_WAITING * BURST_FACTOR - 1).await;
        // The queue was empty when the window began, so it is not standing yet.
        assert!(admission.admit(ada.clone(), start).is_some());
        assert!(admission.admit(ada.clone(), start + OBSERVATION_WINDOW).is_some());
        // The queue was standing for a whole window.
        let later = start + OBSERVATION_WINDOW * 2;
        assert!(admission.admit(ada.clone(), later).is_none());
        drop(line);
        tokio::task::yield_now().await;
        // Admits the number that keeps PostgreSQL busy, and no more until the overload ends.
        let line = spawn_waiting(&waiting, MAX_WAITING / 2 - 1).await;
        assert!(admission.admit(ada.clone(), later).is_some());
        drop(line);
        let line = spawn_waiting(&waiting, MAX_WAITING / 2).await;
        assert!(admission.admit(ada.clone(), later).is_none());
        drop(line);
        tokio::task::yield_now().await;
        assert!(admission.admit(ada.clone(), later).is_some());
        let _line = spawn_waiting(&waiting, MAX_WAITING).await;
        assert!(admission.admit(ada, later + OVERLOAD_COOLDOWN).is_some());
    }

    #[tokio::test]
    async fn serves_few_requests_at_a_time_at_the_memory_limit() {
        let admission = Admission::new(Waiting::default(), MAX_WAITING);
        let (ada, now) = (party("user:ada"), Instant::now());
        let admit = |is_exhausted: bool| admission.admit_within(ada.clone(), now, move || is_exhausted);
        let mut served: Vec<Admitted> = (0..MAX_IN_FLIGHT_AT_MEMORY_LIMIT).map(|_| admit(true).unwrap()).collect();
        assert!(admit(true).is_none());
        assert!(admit(false).is_some());
        drop(served.pop());
        assert!(admit(true).is_some());
    }

    #[tokio::test]
    async fn bounds_requests_in_flight_and_serves_other_clients() {
        let admission = Admission::new(Waiting::default(), MAX_WAITING);
        let (crowd, other, now) = (party("anonymous"), party("user:other"), Instant::now());
        let held: Vec<Admitted> = (0..MAX_IN_FLIGHT).map(|_| admission.admit(crowd.clone(), now).unwrap()).collect();
        assert!(admission.admit(crowd.clone(), now).is_none());
        assert!(admission.admit(other, now).is_some());
        drop(held);
        assert!(admission.admit(crowd, now).is_some());
    }

    #[test]
    fn spreads_refusals_over_time_and_bounds_their_delay() {
        let admission = Admission::new(Waiting::default(), MAX_WAITING);
        let now = Instant::now();
        let interval = Duration::from_secs(1) / REFUSALS_PER_SECOND;
        assert_eq!(admission.refusal_due(now), now);
        assert_eq!(admission.refusal_due(now), now + interval);
        assert_eq!(admission.refusal_due(now), now + interval * 2);
        // After a pause the first refusal is sent at once.
        let later = now + Duration::from_secs(1);
        assert_eq!(admission.refusal_due(later), later);
        let delays: Vec<Duration> = (0..REFUSALS_PER_SECOND).map(|_| admission.refusal_due(later) - later).collect();
        assert!(delays.iter().all(|delay| (interval..=MAX_REFUSAL_DELAY).contains(delay)));
        assert_eq!(delays.last(), Some(&MAX_REFUSAL_DELAY), "the delay is bounded for any number of refusals");
    }

    #[tokio::test]
    async fn serves_client_below_fair_share_under_overload() {
        let waiting = Waiting::default();
        let admission = Admission::new(waiting.clone(), MAX_WAITING);
        let (crowd, other, start) = (party("user:crowd"), party("user:other"), Instant::now());
        let mut places: Vec<Admitted> = (0..MAX_WAITING).map(|_| admission.admit(crowd.clone(), start).unwrap()).collect();
        let _line = spawn_waiting(&waiting, MAX_WAITING).await;
        assert!(admission.admit(crowd.clone(), start + OBSERVATION_WINDOW).is_some());
        let later = start + OBSERVATION_WINDOW * 2;
        assert!(admission.admit(crowd.clone(), later).is_none());
        // Two clients: the fair share of each is one half.
        places.push(admission.admit(other.clone(), later).unwrap());
        places.push(admission.admit(other.clone(), later).unwrap());
        assert!(admission.admit(other.clone(), later).is_some());
        assert!(admission.admit(crowd.clone(), later).is_none());
        // Beyond twice the burst limit every request is refused.
        let _more = spawn_waiting(&waiting, MAX_WAITING * BURST_FACTOR * 2).await;
        assert!(admission.admit(other, later).is_none());
        drop(places);
        assert!(admission.books.lock().unwrap().under_way.is_empty());
    }
}
