//! Who is served while more is asked for than can be done.
//!
//! What is short is PostgreSQL, or the thread itself: the lines in front of both tell. While even the shortest wait of a
//! stretch of time is long, a line does not get shorter by itself, and nothing is won by standing in it: requests beyond
//! what keeps PostgreSQL and the thread busy are refused at once, and those that are served keep their time. A request
//! that waits for a provider waits for nobody here and counts for nothing. A crowd that comes at once and is soon served
//! is no overload.
//!
//! Whoever has fewer requests under way than an equal share is still served while others are refused, so that nobody is
//! kept out by somebody else's crowd. Parties are tenants where requests name one, else callers.

use fairway_domain::{access::ActorRef, id::TenantId};
use fairway_postgres::Waiting;
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// Over which time the shortest wait is looked for.
const STRETCH: Duration = Duration::from_millis(50);
/// The longest that the shortest wait of a stretch may be.
const SHORT: Duration = Duration::from_millis(10);
/// How long nobody has to be refused before the line is believed to be gone.
const RELIEF: Duration = Duration::from_secs(1);
/// How many times longer a line may be for a moment.
const CROWD: usize = 5;

/// Decides for one worker thread. Clones are one.
#[derive(Clone, Debug)]
pub struct Admission {
    waiting: Waiting,
    line: usize,
    turns: Turns,
    books: Arc<Mutex<Books>>,
}

/// Whom a request is counted for. What it says of itself, and nothing that would have to be looked up.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Party {
    /// The tenant that it names.
    Tenant(TenantId),
    /// Its caller, where it names none.
    Caller(ActorRef),
}

/// A request that is served, until this is dropped.
#[derive(Debug)]
#[must_use = "the request counts as answered once this is dropped"]
pub struct Admitted {
    party: Party,
    books: Arc<Mutex<Books>>,
}

/// How long tasks of a thread wait for their turn: each request has several.
#[derive(Clone, Debug, Default)]
struct Turns {
    looks: Waiting,
    is_looking: Arc<AtomicBool>,
    /// In microseconds.
    last: Arc<AtomicU64>,
}

impl Turns {
    async fn look(self) {
        let since = Instant::now();
        self.looks.during(tokio::task::yield_now()).await;
        let micros = u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.last.store(micros, Ordering::Relaxed);
        self.is_looking.store(false, Ordering::Relaxed);
    }

    fn last(&self) -> Duration {
        Duration::from_micros(self.last.load(Ordering::Relaxed))
    }
}

#[derive(Debug)]
struct Books {
    stretch_began: Instant,
    overloaded_until: Option<Instant>,
    /// Requests under way; nobody at zero.
    under_way: HashMap<Party, usize>,
}

impl Admission {
    /// Over those who wait for PostgreSQL; `line` of them are let wait while the line does not get shorter.
    #[must_use]
    pub fn new(waiting: Waiting, line: usize) -> Self {
        let books = Books { stretch_began: Instant::now(), overloaded_until: None, under_way: HashMap::new() };
        Self { waiting, line, turns: Turns::default(), books: Arc::new(Mutex::new(books)) }
    }

    /// Finds out, beside what else this thread does, how long its tasks wait for their turn. Tasks of the framework's
    /// thread alone may call it.
    pub fn look_around(&self) {
        let turns = self.turns.clone();
        if !turns.is_looking.swap(true, Ordering::Relaxed) {
            tokio::task::spawn_local(turns.look());
        }
    }

    /// A place for a request of this party, if there is one at this moment.
    pub fn admit(&self, party: Party, now: Instant) -> Option<Admitted> {
        let mut books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_duration_since(books.stretch_began) >= STRETCH {
            books.stretch_began = now;
            let stuck = match self.waiting.shortest_since() {
                Some(shortest) => shortest > SHORT,
                None => self.waiting.now() >= self.line,
            };
            let late = self.turns.looks.shortest_since().is_some_and(|shortest| shortest > SHORT);
            if stuck || late {
                books.overloaded_until = Some(now + RELIEF);
            }
        }
        let overloaded = books.overloaded_until.is_some_and(|until| now < until);
        let crowd = self.line.saturating_mul(CROWD);
        let most = if overloaded { self.line } else { crowd };
        let waiting = self.waiting.now();
        let full = waiting >= most || (overloaded && self.turns.last() > SHORT);
        if full && (waiting >= crowd.saturating_mul(2) || !books.is_owed(&party)) {
            books.overloaded_until = Some(now + RELIEF);
            return None;
        }
        *books.under_way.entry(party.clone()).or_default() += 1;
        Some(Admitted { party, books: Arc::clone(&self.books) })
    }
}

impl Books {
    /// Whether a party has less than its equal share, others being there.
    fn is_owed(&self, party: &Party) -> bool {
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

    const LINE: usize = 4;

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
        // Nobody knows yet whether they are served soon.
        assert!(admission.admit(ada.clone(), start).is_some());
        // Nobody was, for a whole stretch.
        let later = start + STRETCH;
        assert!(admission.admit(ada.clone(), later).is_none());
        drop(line);
        tokio::task::yield_now().await;
        // As many as keep PostgreSQL busy are let in at once, and no more until there is relief.
        let line = waits(&waiting, LINE - 1).await;
        assert!(admission.admit(ada.clone(), later).is_some());
        drop(line);
        let _line = waits(&waiting, LINE).await;
        assert!(admission.admit(ada.clone(), later).is_none());
        let _short = waiting.shortest_since();
        waiting.during(async {}).await;
        assert!(admission.admit(ada, later + RELIEF).is_some());
    }

    #[tokio::test]
    async fn a_thread_that_comes_to_nobody_in_time_takes_nobody_more() {
        let admission = Admission::new(Waiting::default(), LINE);
        let (ada, start) = (party("user:ada"), Instant::now());
        let busy = |time: Duration| async move { std::thread::sleep(time) };
        let tasks = tokio::task::LocalSet::new();
        let look = async |time: Duration| {
            admission.look_around();
            tokio::task::spawn_local(busy(time)).await.unwrap();
            while admission.turns.is_looking.load(Ordering::Relaxed) {
                tokio::task::yield_now().await;
            }
        };
        tasks
            .run_until(async {
                look(SHORT * 2).await;
                assert!(admission.admit(ada.clone(), start + STRETCH).is_none());
                look(Duration::ZERO).await;
                // As soon as its turns are short again, and not when the second of relief is over.
                assert!(admission.admit(ada.clone(), start + STRETCH).is_some());
            })
            .await;
    }

    #[tokio::test]
    async fn who_has_little_under_way_is_served_beside_a_crowd() {
        let waiting = Waiting::default();
        let admission = Admission::new(waiting.clone(), LINE);
        let (crowd, other, start) = (party("user:crowd"), party("user:other"), Instant::now());
        let mut places: Vec<Admitted> = (0..LINE).map(|_| admission.admit(crowd.clone(), start).unwrap()).collect();
        let _line = waits(&waiting, LINE).await;
        let later = start + STRETCH;
        assert!(admission.admit(crowd.clone(), later).is_none());
        // Two of them: half is each one's share.
        places.push(admission.admit(other.clone(), later).unwrap());
        places.push(admission.admit(other.clone(), later).unwrap());
        assert!(admission.admit(other.clone(), later).is_some());
        assert!(admission.admit(crowd.clone(), later).is_none());
        // And nobody where nothing moves any more.
        let _more = waits(&waiting, LINE * CROWD * 2).await;
        assert!(admission.admit(other, later).is_none());
        drop(places);
        assert!(admission.books.lock().unwrap().under_way.is_empty());
    }
}
