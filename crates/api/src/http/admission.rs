//! Who is served while more is asked for than can be done.
//!
//! PostgreSQL is what is short, so the line in front of it tells. A line that is never short for a stretch of time does not
//! get shorter by itself, and nothing is won by standing in it: requests beyond what keeps PostgreSQL busy are refused at
//! once, and those that are served wait in a short line. A request that waits for a provider waits for nobody here and counts
//! for nothing there. A crowd that comes at once and is soon served is no overload. Beside that, a bounded number of
//! bodies arrives at a time on each thread (`MAX_ARRIVING`), because each of them holds memory until its client has sent the rest.
//!
//! Whoever has fewer requests under way than an equal share is still served while others are refused, so that nobody is
//! kept out by somebody else's crowd. Parties are tenants where requests name one, else callers, or the clients of those who
//! have nothing but a share link.

use fairway_domain::{
    access::{ActorKind, ActorRef},
    id::TenantId,
    throttle::ClientAddress,
};
use fairway_memory_limit::is_exhausted;
use fairway_postgres::Waiting;
use std::{
    collections::HashMap,
    hash::Hash,
    mem,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// How long a line has to stand.
const STRETCH: Duration = Duration::from_millis(100);
/// How long nobody has to be refused before the line is believed to be gone.
const RELIEF: Duration = Duration::from_secs(1);
/// The part of a line that stands which is let wait from then on: that much keeps PostgreSQL busy, and who is served waits
/// little longer than usual although refusing takes its time too.
const SERVED: (usize, usize) = (1, 2);
/// How many times longer a line may be for a moment.
const CROWD: usize = 3;

/// Requests of one worker thread whose bodies arrive at a time. Each takes some 60 KiB beside its body in a build without
/// optimisations, for as long as its client withholds the rest.
const MAX_ARRIVING: usize = 512;

/// Requests that one worker thread serves at a time while the process is at its memory limit.
const SERVED_AT_MEMORY_LIMIT: usize = 4;

/// How many requests a second one worker thread refuses before the rest have to wait. Refusals share the thread with the
/// requests that are served, so each of them delays every step of those.
const REFUSALS_A_SECOND: u32 = 3_000;
/// The longest that a refusal is delayed. A connection is then refused four times a second at most, however many there are.
const LONGEST_DELAY: Duration = Duration::from_millis(250);

/// Decides for one worker thread. Clones are one.
#[derive(Clone, Debug)]
pub struct Admission {
    waiting: Waiting,
    line: usize,
    books: Arc<Mutex<Books>>,
}

/// Whom a request is counted for. What it says of itself, and nothing that would have to be looked up.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Party {
    /// The tenant that it names.
    Tenant(TenantId),
    /// Its caller, where it names none.
    Caller(ActorRef),
    /// Who holds a share link and has no name, by where it is.
    Holder(ClientAddress),
}

/// A request that is served, until this is dropped.
#[derive(Debug)]
#[must_use = "the request counts as answered once this is dropped"]
pub struct Admitted {
    party: Party,
    books: Arc<Mutex<Books>>,
    arriving: Option<Arriving>,
}

impl Admitted {
    /// The body of the request, to be dropped when it has arrived.
    pub fn take_arriving(&mut self) -> Option<Arriving> {
        self.arriving.take()
    }
}

/// A body that arrives, until this is dropped.
#[derive(Debug)]
#[must_use = "the body counts as arrived once this is dropped"]
pub struct Arriving {
    sender: Sender,
    books: Arc<Mutex<Books>>,
}

/// The party that sends a body. Callers without a name are one: they can make up tokens and come from many addresses.
type Sender = Option<Party>;

#[derive(Debug)]
struct Books {
    stretch_began: Instant,
    /// The fewest that waited in this stretch, whenever a request came.
    fewest: usize,
    overloaded_until: Option<Instant>,
    /// When the next refusal is due.
    next_refusal: Instant,
    /// Requests under way; nobody at zero.
    under_way: HashMap<Party, usize>,
    /// Bodies that arrive; nobody at zero.
    arriving: HashMap<Sender, usize>,
    /// When the log last told that bodies are refused.
    told_of_bodies: Option<Instant>,
}

impl Admission {
    /// Over those who wait for PostgreSQL; `line` of them are let wait while the line does not get shorter.
    #[must_use]
    pub fn new(waiting: Waiting, line: usize) -> Self {
        let books = Books {
            stretch_began: Instant::now(),
            fewest: 0,
            overloaded_until: None,
            next_refusal: Instant::now(),
            under_way: HashMap::new(),
            arriving: HashMap::new(),
            told_of_bodies: None,
        };
        Self { waiting, line, books: Arc::new(Mutex::new(books)) }
    }

    /// A place for a request of this party, with or without a body, if there is one at this moment.
    pub fn admit(&self, party: Party, has_body: bool, now: Instant) -> Option<Admitted> {
        self.admit_within((party, has_body), now, is_exhausted)
    }

    /// The same with a question whether the process is at its memory limit.
    fn admit_within(
        &self,
        (party, has_body): (Party, bool),
        now: Instant,
        is_exhausted: impl FnOnce() -> bool,
    ) -> Option<Admitted> {
        let mut books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = self.waiting.now();
        books.fewest = books.fewest.min(waiting);
        if now.saturating_duration_since(books.stretch_began) >= STRETCH {
            let stands = mem::replace(&mut books.fewest, waiting) >= self.line;
            if stands {
                if books.overloaded_until.is_none_or(|until| now >= until) {
                    tracing::warn!(waiting, "PostgreSQL is overloaded; part of the requests is refused with 503");
                }
                books.overloaded_until = Some(now + RELIEF);
            }
            books.stretch_began = now;
        }
        let all: usize = books.under_way.values().sum();
        if all >= SERVED_AT_MEMORY_LIMIT && is_exhausted() {
            return None;
        }
        let sender = sender(&party);
        if has_body && !books.has_room_for_body(&sender) {
            if books.told_of_bodies.is_none_or(|told| now.saturating_duration_since(told) >= RELIEF) {
                tracing::warn!(
                    arriving = MAX_ARRIVING,
                    "too many unfinished request bodies; refusing requests with a body"
                );
                books.told_of_bodies = Some(now);
            }
            return None;
        }
        let overloaded = books.overloaded_until.is_some_and(|until| now < until);
        let crowd = self.line.saturating_mul(CROWD);
        let most = if overloaded { self.line * SERVED.0 / SERVED.1 } else { crowd };
        if waiting >= most && (waiting >= crowd.saturating_mul(2) || !is_owed(&books.under_way, &party)) {
            if !overloaded {
                tracing::warn!(waiting, "PostgreSQL is overloaded; part of the requests is refused with 503");
            }
            books.overloaded_until = Some(now + RELIEF);
            return None;
        }
        *books.under_way.entry(party.clone()).or_default() += 1;
        let arriving = has_body.then(|| {
            *books.arriving.entry(sender.clone()).or_default() += 1;
            Arriving { sender, books: Arc::clone(&self.books) }
        });
        Some(Admitted { party, books: Arc::clone(&self.books), arriving })
    }
}

impl Admission {
    /// When to send the refusal of a request that came at `now`: at once while there are few of them, and later, by
    /// [`LONGEST_DELAY`] at most, while there are more than [`REFUSALS_A_SECOND`]. Nothing else is read meanwhile from the
    /// connection of a delayed refusal.
    #[must_use]
    pub fn refusal_due(&self, now: Instant) -> Instant {
        let mut books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
        let due = books.next_refusal.max(now);
        if due.saturating_duration_since(now) > LONGEST_DELAY {
            return now + LONGEST_DELAY;
        }
        books.next_refusal = due + Duration::from_secs(1) / REFUSALS_A_SECOND;
        due
    }
}

impl Books {
    /// Whether one more body may arrive: any up to [`MAX_ARRIVING`], those of senders with less than their equal share up to
    /// twice as many, and the first one of a caller with a name up to three times as many.
    fn has_room_for_body(&self, sender: &Sender) -> bool {
        let all: usize = self.arriving.values().sum();
        let is_first = sender.is_some() && !self.arriving.contains_key(sender);
        all < MAX_ARRIVING
            || all < MAX_ARRIVING.saturating_mul(2) && is_owed(&self.arriving, sender)
            || all < MAX_ARRIVING.saturating_mul(3) && is_first
    }
}

/// The party as the sender of a body.
fn sender(party: &Party) -> Sender {
    match party {
        Party::Holder(_) => None,
        Party::Caller(actor) if actor.kind() == ActorKind::Anonymous => None,
        Party::Tenant(_) | Party::Caller(_) => Some(party.clone()),
    }
}

/// Whether a party has less than its equal share, others being there.
fn is_owed<P: Eq + Hash>(counts: &HashMap<P, usize>, party: &P) -> bool {
    let own = counts.get(party).copied().unwrap_or_default();
    let all: usize = counts.values().sum();
    let parties = counts.len() + usize::from(own == 0);
    parties > 1 && (own + 1).saturating_mul(parties) <= all
}

/// Takes one from the count of a party; nobody stays at zero.
fn count_down<P: Eq + Hash>(counts: &mut HashMap<P, usize>, party: &P) {
    if let Some(count) = counts.get_mut(party) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(party);
        }
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        count_down(&mut self.books.lock().unwrap_or_else(PoisonError::into_inner).arriving, &self.sender);
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        count_down(&mut self.books.lock().unwrap_or_else(PoisonError::into_inner).under_way, &self.party);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;
    use tokio::task::JoinSet;

    const LINE: usize = 6;

    fn party(name: &str) -> Party {
        Party::Caller(ActorRef::parse(name).unwrap())
    }

    /// Somebody in a line of so many, who waits until the set goes.
    async fn waits(waiting: &Waiting, many: usize) -> JoinSet<()> {
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
    async fn a_crowd_is_served_and_a_line_that_stands_still_is_kept_short() {
        let waiting = Waiting::default();
        let admission = Admission::new(waiting.clone(), LINE);
        let (ada, start) = (party("user:ada"), Instant::now());
        let line = waits(&waiting, LINE * CROWD - 1).await;
        // Nobody knows yet whether they are served soon: at the beginning there was no line.
        assert!(admission.admit(ada.clone(), false, start).is_some());
        assert!(admission.admit(ada.clone(), false, start + STRETCH).is_some());
        // It stands for a whole stretch.
        let later = start + STRETCH * 2;
        assert!(admission.admit(ada.clone(), false, later).is_none());
        drop(line);
        tokio::task::yield_now().await;
        // As many as keep PostgreSQL busy are let in at once, and no more until there is relief.
        let line = waits(&waiting, LINE / 2 - 1).await;
        assert!(admission.admit(ada.clone(), false, later).is_some());
        drop(line);
        let line = waits(&waiting, LINE / 2).await;
        assert!(admission.admit(ada.clone(), false, later).is_none());
        drop(line);
        tokio::task::yield_now().await;
        assert!(admission.admit(ada.clone(), false, later).is_some());
        let _line = waits(&waiting, LINE).await;
        assert!(admission.admit(ada, false, later + RELIEF).is_some());
    }

    #[tokio::test]
    async fn serves_few_requests_at_a_time_at_the_memory_limit() {
        let admission = Admission::new(Waiting::default(), LINE);
        let (ada, now) = (party("user:ada"), Instant::now());
        let admit = |is_exhausted: bool| admission.admit_within((ada.clone(), false), now, move || is_exhausted);
        let mut served: Vec<Admitted> = (0..SERVED_AT_MEMORY_LIMIT).map(|_| admit(true).unwrap()).collect();
        assert!(admit(true).is_none());
        assert!(admit(false).is_some());
        drop(served.pop());
        assert!(admit(true).is_some());
    }

    #[tokio::test]
    async fn bounds_bodies_that_arrive_and_serves_other_senders_beside_them() {
        let admission = Admission::new(Waiting::default(), LINE);
        let holder = Party::Holder(ClientAddress::of([192, 0, 2, 7].into()));
        let (crowd, now) = (party("anonymous"), Instant::now());
        let admit = |party: &Party| admission.admit(party.clone(), true, now);
        let mut held: Vec<Admitted> = (0..MAX_ARRIVING).map(|_| admit(&crowd).unwrap()).collect();
        assert!(admit(&crowd).is_none());
        // Holders of share links are no other sender, and requests without a body need no room.
        assert!(admit(&holder).is_none());
        assert!(admission.admit(crowd.clone(), false, now).is_some());
        // A second crowd gets its share, and a third sender one body beyond it.
        let second = party("user:second");
        while let Some(place) = admit(&second) {
            held.push(place);
        }
        assert!(held.len() > MAX_ARRIVING + MAX_ARRIVING / 2, "{}", held.len());
        for other in 0.. {
            let Some(place) = admit(&party(&format!("user:other-{}", other % 5))) else { break };
            held.push(place);
        }
        // A caller with a name and no body finds room for one beyond all shares.
        let first = admit(&party("user:third"));
        assert!(first.is_some());
        assert!(admit(&party("user:third")).is_none());
        // A body that has arrived leaves its place, although its request is still served.
        drop(held.iter_mut().map(|place| place.take_arriving().unwrap()).collect::<Vec<_>>());
        assert!(admit(&crowd).is_some());
        drop((held, first));
        assert!(admission.books.lock().unwrap().arriving.is_empty());
    }

    #[test]
    fn spreads_refusals_over_time_and_bounds_their_delay() {
        let admission = Admission::new(Waiting::default(), LINE);
        let now = Instant::now();
        let interval = Duration::from_secs(1) / REFUSALS_A_SECOND;
        assert_eq!(admission.refusal_due(now), now);
        assert_eq!(admission.refusal_due(now), now + interval);
        assert_eq!(admission.refusal_due(now), now + interval * 2);
        // After a pause the first refusal is sent at once again.
        let later = now + Duration::from_secs(1);
        assert_eq!(admission.refusal_due(later), later);
        let delays: Vec<Duration> = (0..REFUSALS_A_SECOND).map(|_| admission.refusal_due(later) - later).collect();
        assert!(delays.iter().all(|delay| (interval..=LONGEST_DELAY).contains(delay)));
        assert_eq!(delays.last(), Some(&LONGEST_DELAY), "however many wait, none waits longer");
    }

    #[tokio::test]
    async fn who_has_little_under_way_is_served_beside_a_crowd() {
        let waiting = Waiting::default();
        let admission = Admission::new(waiting.clone(), LINE);
        let (crowd, other, start) = (party("user:crowd"), party("user:other"), Instant::now());
        let mut places: Vec<Admitted> =
            (0..LINE).map(|_| admission.admit(crowd.clone(), false, start).unwrap()).collect();
        let _line = waits(&waiting, LINE).await;
        assert!(admission.admit(crowd.clone(), false, start + STRETCH).is_some());
        let later = start + STRETCH * 2;
        assert!(admission.admit(crowd.clone(), false, later).is_none());
        // Two of them: half is each one's share.
        places.push(admission.admit(other.clone(), false, later).unwrap());
        places.push(admission.admit(other.clone(), false, later).unwrap());
        assert!(admission.admit(other.clone(), false, later).is_some());
        assert!(admission.admit(crowd.clone(), false, later).is_none());
        // And nobody where nothing moves any more.
        let _more = waits(&waiting, LINE * CROWD * 2).await;
        assert!(admission.admit(other, false, later).is_none());
        drop(places);
        assert!(admission.books.lock().unwrap().under_way.is_empty());
    }
}
