//! Load shedding of one worker thread.
//!
//! PostgreSQL is the bottleneck, so the number of waiting statements measures the load. A queue that stays long for a
//! whole observation window is a standing queue, which does not shrink without intervention. Requests beyond the
//! number that keeps PostgreSQL busy are then refused at once, so that admitted requests wait in a short queue.
//! Requests that wait for a provider do not count. A short burst is not an overload.
//!
//! Separately, each worker thread receives a bounded number of request bodies ([`MAX_ARRIVING`]), because each body
//! occupies memory until its client has sent the rest.
//!
//! A client with less than its fair share of requests in flight is still served while others are refused. A client
//! is the tenant that the request names, else the caller. Holders of share links are distinguished by address.

pub(crate) mod middleware;

use fairway_domain::{
    access::{ActorKind, ActorRef},
    client_address::ClientAddress,
    id::TenantId,
};
use fairway_memory_limit::is_hard_limit_reached;
use fairway_postgres::StatementsInFlight;
use std::{
    collections::HashMap,
    hash::Hash,
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

/// Request bodies of any sender that one worker thread receives at a time. Senders below their fair share may exceed
/// it, up to three times this number. In an unoptimized build, each body occupies about 60 KiB in addition to its
/// bytes, until its client has sent the rest.
const MAX_ARRIVING: usize = 512;

/// Requests that one worker thread serves at a time while the process is at its memory limit.
const MAX_IN_FLIGHT_AT_MEMORY_LIMIT: usize = 4;

/// Refusals per second of one worker thread that are sent without delay. Refusals share the thread with admitted
/// requests and delay them.
const REFUSALS_PER_SECOND: u32 = 3_000;
/// Maximum delay of a refusal. It bounds the refusals of one connection to four per second.
const MAX_REFUSAL_DELAY: Duration = Duration::from_millis(250);

/// Load shedder of one worker thread. Clones share state.
#[derive(Clone, Debug)]
pub struct LoadShedder {
    waiting: StatementsInFlight,
    max_waiting: usize,
    state: Arc<Mutex<ShedState>>,
}

/// The client to which a request is attributed. It comes from unverified claims, because a lookup would cost a
/// query.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ClientKey {
    /// The tenant that the request names.
    Tenant(TenantId),
    /// The caller, if the request names no tenant.
    Caller(ActorRef),
    /// The address of a share link holder without an identity.
    LinkHolder(ClientAddress),
}

/// The permit of an admitted request. Dropping it marks the request as ended.
#[derive(Debug)]
#[must_use = "the request counts as answered once this is dropped"]
pub struct AdmissionPermit {
    client: ClientKey,
    state: Arc<Mutex<ShedState>>,
    body_guard: Option<ArrivingBodyGuard>,
}

impl AdmissionPermit {
    /// Takes the guard of the arriving body. The caller drops the guard when the body has arrived.
    pub fn take_body_guard(&mut self) -> Option<ArrivingBodyGuard> {
        self.body_guard.take()
    }
}

/// A request body that arrives. The body counts until this guard is dropped.
#[derive(Debug)]
#[must_use = "the body counts as arrived once this is dropped"]
pub struct ArrivingBodyGuard {
    sender: BodySender,
    state: Arc<Mutex<ShedState>>,
}

/// The client that sends a body. All anonymous callers are one sender, because they can invent tokens and use many
/// addresses. A request without a valid identity counts as anonymous.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct BodySender(Option<ClientKey>);

impl BodySender {
    /// The sender to which a client's bodies are attributed.
    #[must_use]
    pub fn of_client(client: &ClientKey) -> Self {
        Self(match client {
            ClientKey::LinkHolder(_) => None,
            ClientKey::Caller(actor) if actor.kind() == ActorKind::Anonymous => None,
            ClientKey::Tenant(_) | ClientKey::Caller(_) => Some(client.clone()),
        })
    }

    const fn is_named(&self) -> bool {
        self.0.is_some()
    }
}

#[derive(Debug)]
struct ShedState {
    window_start: Instant,
    /// The minimum of waiting statements in this window, sampled at each request.
    min_waiting: usize,
    overloaded_until: Option<Instant>,
    /// Earliest time at which the next refusal may be sent.
    next_refusal: Instant,
    /// Requests in flight by client, without zero entries.
    in_flight: HashMap<ClientKey, usize>,
    /// Arriving bodies by sender, without zero entries.
    arriving: HashMap<BodySender, usize>,
    /// Time of the last log line about refused bodies.
    bodies_logged_at: Option<Instant>,
}

impl LoadShedder {
    /// Creates a load shedder over the statements that wait for PostgreSQL; `max_waiting` is the limit of a standing
    /// queue.
    #[must_use]
    pub fn new(waiting: StatementsInFlight, max_waiting: usize) -> Self {
        let state = ShedState {
            window_start: Instant::now(),
            min_waiting: 0,
            overloaded_until: None,
            next_refusal: Instant::now(),
            in_flight: HashMap::new(),
            arriving: HashMap::new(),
            bodies_logged_at: None,
        };
        Self { waiting, max_waiting, state: Arc::new(Mutex::new(state)) }
    }

    /// A permit for a request of this client, or `None` if the request must be refused.
    pub fn admit(&self, client: ClientKey, has_body: bool, now: Instant) -> Option<AdmissionPermit> {
        self.admit_within(client, has_body, now, is_hard_limit_reached)
    }

    /// Like `admit`, with a replaceable check whether the process is at its memory limit.
    fn admit_within(
        &self,
        client: ClientKey,
        has_body: bool,
        now: Instant,
        is_hard_limit_reached: impl FnOnce() -> bool,
    ) -> Option<AdmissionPermit> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = self.waiting.count();
        state.min_waiting = state.min_waiting.min(waiting);
        if now.saturating_duration_since(state.window_start) >= OBSERVATION_WINDOW {
            let is_standing = mem::replace(&mut state.min_waiting, waiting) >= self.max_waiting;
            if is_standing {
                if state.overloaded_until.is_none_or(|until| now >= until) {
                    tracing::warn!(waiting, "PostgreSQL is overloaded; refusing part of the requests with 503");
                }
                state.overloaded_until = Some(now + OVERLOAD_COOLDOWN);
            }
            state.window_start = now;
        }
        let total: usize = state.in_flight.values().sum();
        if total >= MAX_IN_FLIGHT_AT_MEMORY_LIMIT && is_hard_limit_reached() {
            return None;
        }
        let sender = BodySender::of_client(&client);
        if has_body && !state.has_room_for_body(&sender) {
            if state.bodies_logged_at.is_none_or(|at| now.saturating_duration_since(at) >= OVERLOAD_COOLDOWN) {
                tracing::warn!(
                    limit = MAX_ARRIVING,
                    "too many unfinished request bodies; refusing part of the requests with a body"
                );
                state.bodies_logged_at = Some(now);
            }
            return None;
        }
        let is_overloaded = state.overloaded_until.is_some_and(|until| now < until);
        let burst = self.max_waiting.saturating_mul(BURST_FACTOR);
        let limit = if is_overloaded { self.max_waiting * OVERLOAD_FRACTION.0 / OVERLOAD_FRACTION.1 } else { burst };
        if waiting >= limit && (waiting >= burst.saturating_mul(2) || !is_below_fair_share(&state.in_flight, &client)) {
            if !is_overloaded {
                tracing::warn!(waiting, "PostgreSQL is overloaded; refusing part of the requests with 503");
            }
            state.overloaded_until = Some(now + OVERLOAD_COOLDOWN);
            return None;
        }
        *state.in_flight.entry(client.clone()).or_default() += 1;
        let body_guard = has_body.then(|| {
            *state.arriving.entry(sender.clone()).or_default() += 1;
            ArrivingBodyGuard { sender, state: Arc::clone(&self.state) }
        });
        Some(AdmissionPermit { client, state: Arc::clone(&self.state), body_guard })
    }
}

impl LoadShedder {
    /// Reserves the time to send the refusal of a request that arrived at `now`. Beyond [`REFUSALS_PER_SECOND`],
    /// refusals are delayed by at most [`MAX_REFUSAL_DELAY`]. The server reads nothing from the connection of a
    /// delayed refusal.
    #[must_use]
    pub fn reserve_refusal_time(&self, now: Instant) -> Instant {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let due = state.next_refusal.max(now);
        if due.saturating_duration_since(now) > MAX_REFUSAL_DELAY {
            return now + MAX_REFUSAL_DELAY;
        }
        state.next_refusal = due + Duration::from_secs(1) / REFUSALS_PER_SECOND;
        due
    }
}

impl ShedState {
    /// Whether one more body may arrive. Below [`MAX_ARRIVING`] bodies, any body may. Below twice that number, only
    /// bodies of senders below their fair share may. Below three times that number, only the first body of a named
    /// caller may.
    fn has_room_for_body(&self, sender: &BodySender) -> bool {
        let total: usize = self.arriving.values().sum();
        let is_first = sender.is_named() && !self.arriving.contains_key(sender);
        total < MAX_ARRIVING
            || total < MAX_ARRIVING.saturating_mul(2) && is_below_fair_share(&self.arriving, sender)
            || total < MAX_ARRIVING.saturating_mul(3) && is_first
    }
}

/// Whether a client has less than its fair share of the counted requests, and other clients exist.
fn is_below_fair_share<P: Eq + Hash>(counts: &HashMap<P, usize>, client: &P) -> bool {
    let own_count = counts.get(client).copied().unwrap_or_default();
    let total: usize = counts.values().sum();
    let clients = counts.len() + usize::from(own_count == 0);
    clients > 1 && (own_count + 1).saturating_mul(clients) <= total
}

/// Decrements the count of a client and removes a zero entry.
fn count_down<P: Eq + Hash>(counts: &mut HashMap<P, usize>, client: &P) {
    if let Some(count) = counts.get_mut(client) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(client);
        }
    }
}

impl Drop for ArrivingBodyGuard {
    fn drop(&mut self) {
        count_down(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner).arriving, &self.sender);
    }
}

impl Drop for AdmissionPermit {
    fn drop(&mut self) {
        count_down(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner).in_flight, &self.client);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;
    use tokio::task::JoinSet;

    const MAX_WAITING: usize = 6;

    fn client(name: &str) -> ClientKey {
        ClientKey::Caller(ActorRef::parse(name).unwrap())
    }

    /// Spawns `count` waiting statements that end when the set is dropped.
    async fn spawn_waiting(waiting: &StatementsInFlight, count: usize) -> JoinSet<()> {
        let mut statements = JoinSet::new();
        for _ in 0..count {
            let waiting = waiting.clone();
            statements.spawn(async move { waiting.track(pending()).await });
        }
        while waiting.count() < count {
            tokio::task::yield_now().await;
        }
        statements
    }

    #[tokio::test]
    async fn serves_bursts_and_bounds_standing_queues() {
        let waiting = StatementsInFlight::default();
        let shedder = LoadShedder::new(waiting.clone(), MAX_WAITING);
        let (ada, start) = (client("user:ada"), Instant::now());
        let statements = spawn_waiting(&waiting, MAX_WAITING * BURST_FACTOR - 1).await;
        // The queue was empty when the window began, so it is not standing yet.
        assert!(shedder.admit(ada.clone(), false, start).is_some());
        assert!(shedder.admit(ada.clone(), false, start + OBSERVATION_WINDOW).is_some());
        // The queue was standing for a whole window.
        let later = start + OBSERVATION_WINDOW * 2;
        assert!(shedder.admit(ada.clone(), false, later).is_none());
        drop(statements);
        tokio::task::yield_now().await;
        // The shedder admits the number of requests that keeps PostgreSQL busy, and no more until the overload ends.
        let statements = spawn_waiting(&waiting, MAX_WAITING / 2 - 1).await;
        assert!(shedder.admit(ada.clone(), false, later).is_some());
        drop(statements);
        let statements = spawn_waiting(&waiting, MAX_WAITING / 2).await;
        assert!(shedder.admit(ada.clone(), false, later).is_none());
        drop(statements);
        tokio::task::yield_now().await;
        assert!(shedder.admit(ada.clone(), false, later).is_some());
        let _statements = spawn_waiting(&waiting, MAX_WAITING).await;
        assert!(shedder.admit(ada, false, later + OVERLOAD_COOLDOWN).is_some());
    }

    #[tokio::test]
    async fn serves_few_requests_at_a_time_at_the_memory_limit() {
        let shedder = LoadShedder::new(StatementsInFlight::default(), MAX_WAITING);
        let (ada, now) = (client("user:ada"), Instant::now());
        let admit =
            |is_hard_limit_reached: bool| shedder.admit_within(ada.clone(), false, now, move || is_hard_limit_reached);
        let mut permits: Vec<AdmissionPermit> =
            (0..MAX_IN_FLIGHT_AT_MEMORY_LIMIT).map(|_| admit(true).unwrap()).collect();
        assert!(admit(true).is_none());
        assert!(admit(false).is_some());
        drop(permits.pop());
        assert!(admit(true).is_some());
    }

    #[tokio::test]
    async fn bounds_arriving_bodies_and_serves_other_senders() {
        let shedder = LoadShedder::new(StatementsInFlight::default(), MAX_WAITING);
        let holder = ClientKey::LinkHolder(ClientAddress::from_ip_truncating_v6([192, 0, 2, 7].into()));
        let (anonymous, now) = (client("anonymous"), Instant::now());
        let admit = |client: &ClientKey| shedder.admit(client.clone(), true, now);
        let mut permits: Vec<AdmissionPermit> = (0..MAX_ARRIVING).map(|_| admit(&anonymous).unwrap()).collect();
        assert!(admit(&anonymous).is_none());
        // Holders of share links count as the same sender, and requests without a body are admitted.
        assert!(admit(&holder).is_none());
        assert!(shedder.admit(anonymous.clone(), false, now).is_some());
        // A second sender gets its fair share, and other senders the rest up to 2 * MAX_ARRIVING.
        let second = client("user:second");
        while let Some(permit) = admit(&second) {
            permits.push(permit);
        }
        assert!(permits.len() > MAX_ARRIVING + MAX_ARRIVING / 2, "{}", permits.len());
        for index in 0.. {
            let Some(permit) = admit(&client(&format!("user:other-{}", index % 5))) else { break };
            permits.push(permit);
        }
        // Above 2 * MAX_ARRIVING, a named caller may send one body if none of its bodies is arriving.
        let third_permit = admit(&client("user:third"));
        assert!(third_permit.is_some());
        assert!(admit(&client("user:third")).is_none());
        // A body that has arrived no longer counts, although its request is still served.
        drop(permits.iter_mut().map(|permit| permit.take_body_guard().unwrap()).collect::<Vec<_>>());
        assert!(admit(&anonymous).is_some());
        drop((permits, third_permit));
        assert!(shedder.state.lock().unwrap().arriving.is_empty());
    }

    #[test]
    fn spreads_refusals_over_time_and_bounds_their_delay() {
        let shedder = LoadShedder::new(StatementsInFlight::default(), MAX_WAITING);
        let now = Instant::now();
        let interval = Duration::from_secs(1) / REFUSALS_PER_SECOND;
        assert_eq!(shedder.reserve_refusal_time(now), now);
        assert_eq!(shedder.reserve_refusal_time(now), now + interval);
        assert_eq!(shedder.reserve_refusal_time(now), now + interval * 2);
        // After a pause the first refusal is sent at once.
        let later = now + Duration::from_secs(1);
        assert_eq!(shedder.reserve_refusal_time(later), later);
        let delays: Vec<Duration> =
            (0..REFUSALS_PER_SECOND).map(|_| shedder.reserve_refusal_time(later) - later).collect();
        assert!(delays.iter().all(|delay| (interval..=MAX_REFUSAL_DELAY).contains(delay)));
        assert_eq!(delays.last(), Some(&MAX_REFUSAL_DELAY), "the delay is bounded for any number of refusals");
    }

    #[tokio::test]
    async fn serves_client_below_fair_share_under_overload() {
        let waiting = StatementsInFlight::default();
        let shedder = LoadShedder::new(waiting.clone(), MAX_WAITING);
        let (busy, other, start) = (client("user:busy"), client("user:other"), Instant::now());
        let mut permits: Vec<AdmissionPermit> =
            (0..MAX_WAITING).map(|_| shedder.admit(busy.clone(), false, start).unwrap()).collect();
        let _statements = spawn_waiting(&waiting, MAX_WAITING).await;
        assert!(shedder.admit(busy.clone(), false, start + OBSERVATION_WINDOW).is_some());
        let later = start + OBSERVATION_WINDOW * 2;
        assert!(shedder.admit(busy.clone(), false, later).is_none());
        // Two clients: the fair share of each is one half.
        permits.push(shedder.admit(other.clone(), false, later).unwrap());
        permits.push(shedder.admit(other.clone(), false, later).unwrap());
        assert!(shedder.admit(other.clone(), false, later).is_some());
        assert!(shedder.admit(busy.clone(), false, later).is_none());
        // Beyond twice the burst limit every request is refused.
        let _more_statements = spawn_waiting(&waiting, MAX_WAITING * BURST_FACTOR * 2).await;
        assert!(shedder.admit(other, false, later).is_none());
        drop(permits);
        assert!(shedder.state.lock().unwrap().in_flight.is_empty());
    }
}
