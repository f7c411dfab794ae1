//! The context of commits that write facts: the clock, the identifier source and the fact wakeups of the process.

use crate::fact_wakeups::FactWakeups;
use fairway_domain::{
    access::Caller,
    audit::{Fact, Stamp},
    clock::Clock,
    id::IdSource,
    moment::Moment,
    time::Timestamp,
};
use std::sync::Arc;

/// The clock, the identifier source and the fact wakeups of the process. The context contains no data of a request;
/// methods that need the caller receive it as an argument.
#[derive(Clone)]
pub(crate) struct CommitContext {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Arc<dyn IdSource>,
    pub(crate) fact_wakeups: Arc<FactWakeups>,
}

impl CommitContext {
    pub(crate) fn new(clock: Arc<dyn Clock>, ids: Arc<dyn IdSource>) -> Self {
        Self { clock, ids, fact_wakeups: Arc::default() }
    }

    pub(crate) fn new_id<T: From<uuid::Uuid>>(&self) -> T {
        T::from(self.ids.new_id())
    }

    /// Returns the current time with fresh identifiers and salt, for one input of a state machine.
    pub(crate) fn moment(&self) -> Moment {
        self.moment_at(self.clock.now())
    }

    /// Returns fresh identifiers and salt with a time that was read before.
    pub(crate) fn moment_at(&self, at: Timestamp) -> Moment {
        Moment::new(at, self.ids.new_id(), self.ids.salt())
    }

    /// Creates the stamp of a fact that the caller's request causes.
    pub(crate) fn stamp(&self, caller: &Caller) -> Stamp {
        Stamp {
            fact_id: self.new_id(),
            at: self.clock.now(),
            actor: caller.actor.clone(),
            request_id: caller.request_id,
        }
    }

    /// Wakes the sequencer after a commit of facts.
    pub(crate) fn notify_facts(&self) {
        self.fact_wakeups.notify_pending();
    }

    /// Wakes the sequencer after the commit of this fact, for commits of runs. Their facts rarely produce notifications.
    pub(crate) fn notify_fact(&self, fact: &Fact) {
        self.fact_wakeups.notify_fact(fact);
    }
}
