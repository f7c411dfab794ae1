//! The runs that this process works on at present, so that a stop can hand them back and a word about one reaches who works
//! on it.

use fairway_domain::{id::ExecutionId, tenant::TenantScope};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::Notify;
use uuid::Uuid;

#[derive(Debug)]
struct Live {
    scope: TenantScope,
    lease: Uuid,
    look: Arc<Notify>,
}

/// Runs under way in this process, with their leases.
#[derive(Debug, Default)]
pub(crate) struct LiveRuns(Mutex<Book>);

#[derive(Debug, Default)]
struct Book {
    runs: HashMap<ExecutionId, Live>,
    /// Those who are about to take runs at this moment.
    taking: usize,
    /// Whether nobody takes any more.
    closed: bool,
}

/// Work on a run, until it is dropped.
#[derive(Debug)]
pub(crate) struct AtWork {
    of: Arc<LiveRuns>,
    id: ExecutionId,
    lease: Uuid,
    /// Says that the run's lease should be looked at.
    pub(crate) look: Arc<Notify>,
}

impl Drop for AtWork {
    fn drop(&mut self) {
        let mut book = self.of.book();
        if book.runs.get(&self.id).is_some_and(|live| live.lease == self.lease) {
            book.runs.remove(&self.id);
        }
    }
}

/// Somebody who takes runs: what was taken is not known here yet.
#[derive(Debug)]
pub(crate) struct Taking(Arc<LiveRuns>);

impl Drop for Taking {
    fn drop(&mut self) {
        let mut book = self.0.book();
        book.taking = book.taking.saturating_sub(1);
    }
}

impl LiveRuns {
    fn book(&self) -> MutexGuard<'_, Book> {
        // A panic elsewhere leaves the book whole: each change of it is one call.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Work on a run begins, or is about to.
    pub(crate) fn enter(self: &Arc<Self>, scope: TenantScope, id: ExecutionId, lease: Uuid) -> AtWork {
        let look = Arc::new(Notify::new());
        self.book().runs.insert(id, Live { scope, lease, look: Arc::clone(&look) });
        AtWork { of: Arc::clone(self), id, lease, look }
    }

    /// Somebody is about to take runs; nobody where this process stops.
    pub(crate) fn take(self: &Arc<Self>) -> Option<Taking> {
        let mut book = self.book();
        if book.closed {
            return None;
        }
        book.taking += 1;
        Some(Taking(Arc::clone(self)))
    }

    /// From now on nobody takes runs.
    pub(crate) fn close(&self) {
        self.book().closed = true;
    }

    pub(crate) fn look(&self, id: ExecutionId) {
        if let Some(live) = self.book().runs.get(&id) {
            live.look.notify_one();
        }
    }

    pub(crate) fn look_at_all(&self) {
        self.book().runs.values().for_each(|live| live.look.notify_one());
    }

    /// Whether nothing is worked on, and nothing about to be.
    pub(crate) fn is_idle(&self) -> bool {
        let book = self.book();
        book.runs.is_empty() && book.taking == 0
    }

    pub(crate) fn take_all(&self) -> Vec<(TenantScope, ExecutionId, Uuid)> {
        self.book().runs.drain().map(|(id, live)| (live.scope, id, live.lease)).collect()
    }
}
