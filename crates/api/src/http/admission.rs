//! Who is served while more is asked for than can be done.
//!
//! PostgreSQL is what is short, so the line in front of it tells. While even the shortest wait of a stretch of time is
//! long, the line does not get shorter by itself, and nothing is won by standing in it: requests beyond what keeps
//! PostgreSQL busy are refused at once, and those that are served keep their time. A request that waits for a provider
//! waits for nobody here and counts for nothing. A crowd that comes at once and is soon served is no overload.
//!
//! Tenants that have fewer requests under way than their equal share are still served while others are refused, so that
//! nobody is kept out by somebody else's crowd.

use fairway_domain::id::TenantId;
use fairway_postgres::Waiting;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
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
    books: Arc<Mutex<Books>>,
}

/// A request that is served, until this is dropped.
#[derive(Debug)]
#[must_use = "the request counts as answered once this is dropped"]
pub struct Admitted {
    tenant: Option<TenantId>,
    books: Arc<Mutex<Books>>,
}

#[derive(Debug)]
struct Books {
    stretch_began: Instant,
    overloaded_until: Option<Instant>,
    /// Requests under way by the tenant that they name; none at zero.
    under_way: HashMap<Option<TenantId>, usize>,
}

impl Admission {
    /// Over those who wait for PostgreSQL; `line` of them are let wait while the line does not get shorter.
    #[must_use]
    pub fn new(waiting: Waiting, line: usize) -> Self {
        let books = Books { stretch_began: Instant::now(), overloaded_until: None, under_way: HashMap::new() };
        Self { waiting, line, books: Arc::new(Mutex::new(books)) }
    }

    /// A place for a request of the tenant that it names, if there is one at this moment.
    pub fn admit(&self, tenant: Option<TenantId>, now: Instant) -> Option<Admitted> {
        let mut books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_duration_since(books.stretch_began) >= STRETCH {
            books.stretch_began = now;
            let stuck = match self.waiting.shortest_since() {
                Some(shortest) => shortest > SHORT,
                None => self.waiting.now() >= self.line,
            };
            if stuck {
                books.overloaded_until = Some(now + RELIEF);
            }
        }
        let overloaded = books.overloaded_until.is_some_and(|until| now < until);
        let most = if overloaded { self.line } else { self.line.saturating_mul(CROWD) };
        let waiting = self.waiting.now();
        if waiting >= most && (waiting >= most.saturating_mul(2) || !books.is_owed(tenant)) {
            books.overloaded_until = Some(now + RELIEF);
            return None;
        }
        *books.under_way.entry(tenant).or_default() += 1;
        Some(Admitted { tenant, books: Arc::clone(&self.books) })
    }
}

impl Books {
    /// Whether a tenant has less than its equal share, others being there.
    fn is_owed(&self, tenant: Option<TenantId>) -> bool {
        let own = self.under_way.get(&tenant).copied().unwrap_or_default();
        let all: usize = self.under_way.values().sum();
        let tenants = self.under_way.len() + usize::from(own == 0);
        tenants > 1 && (own + 1).saturating_mul(tenants) <= all
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = books.under_way.get_mut(&self.tenant) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                books.under_way.remove(&self.tenant);
            }
        }
    }
}
