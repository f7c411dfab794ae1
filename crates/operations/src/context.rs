//! Time, identifiers and the sequencer's wakeup, which every operation that changes something needs.

use fairway_domain::{
    access::Caller,
    audit::Stamp,
    id::IdSource,
    moment::Moment,
    time::{Clock, Timestamp},
};
use std::sync::Arc;
use tokio::sync::Notify;

/// Wakes the sequencer when facts are pending. One wakeup covers any number of facts.
#[derive(Debug, Default)]
pub struct SequencerWakeup(Notify);

impl SequencerWakeup {
    /// Reports that facts are pending.
    pub fn notify_facts(&self) {
        self.0.notify_one();
    }

    /// Waits until facts are pending.
    pub async fn wait(&self) {
        self.0.notified().await;
    }
}

/// The time and identifiers of an operation, and the wakeup for the facts that it commits.
#[derive(Clone)]
pub(crate) struct OperationContext {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Arc<dyn IdSource>,
    pub(crate) sequencer: Arc<SequencerWakeup>,
}

impl OperationContext {
    pub(crate) fn new(clock: Arc<dyn Clock>, ids: Arc<dyn IdSource>) -> Self {
        Self { clock, ids, sequencer: Arc::default() }
    }

    pub(crate) fn new_id<T: From<uuid::Uuid>>(&self) -> T {
        T::from(self.ids.new_id())
    }

    /// The current moment, for one input of a state machine.
    pub(crate) fn moment(&self) -> Moment {
        self.moment_at(self.clock.now())
    }

    /// A moment at a time that was read before.
    pub(crate) fn moment_at(&self, at: Timestamp) -> Moment {
        Moment::new(at, self.ids.new_id(), self.ids.salt())
    }

    /// The stamp of a fact that the caller's request causes.
    pub(crate) fn stamp(&self, caller: &Caller) -> Stamp {
        Stamp {
            fact_id: self.new_id(),
            at: self.clock.now(),
            actor: caller.actor.clone(),
            request_id: caller.request_id,
        }
    }

    /// Wakes the sequencer after a commit.
    pub(crate) fn notify_facts(&self) {
        self.sequencer.notify_facts();
    }
}
