//! Wakeups of the sequencer, which assigns facts their index, and of the projector, which reads facts with an index.

use fairway_domain::audit::Fact;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Notify;

/// Wakes the sequencer after a commit of facts, and the projector after these facts have an index. One wakeup may cover
/// several facts.
///
/// Facts without notification categories do not wake the projector, because it would only move its position. Most facts
/// are of this kind: each successful run has one. The projector passes them at its next poll.
#[derive(Debug, Default)]
pub struct FactWakeups {
    pending: Notify,
    sequenced: Notify,
    /// Whether a fact that may have categories was committed since the last pass of the sequencer began.
    has_categorized: AtomicBool,
}

impl FactWakeups {
    /// Wakes the sequencer, because facts are pending that may have notification categories.
    pub fn notify_pending(&self) {
        self.mark_categorized();
        self.pending.notify_one();
    }

    /// Wakes the sequencer, because this fact is pending.
    pub(crate) fn notify_fact(&self, fact: &Fact) {
        if fact.categories.is_empty() {
            self.pending.notify_one();
        } else {
            self.notify_pending();
        }
    }

    /// Waits for a wakeup about pending facts. An earlier pass may already have sequenced them.
    pub async fn wait_for_pending(&self) {
        self.pending.notified().await;
    }

    /// Records that facts with categories are pending.
    pub(crate) fn mark_categorized(&self) {
        self.has_categorized.store(true, Ordering::Release);
    }

    /// Returns whether facts with categories are pending, and resets the record. The sequencer calls this function before
    /// a pass, so that a fact that is committed during the pass wakes the projector after the next one.
    pub(crate) fn take_categorized(&self) -> bool {
        self.has_categorized.swap(false, Ordering::AcqRel)
    }

    /// Wakes the projector, because facts with categories were sequenced.
    pub fn notify_sequenced(&self) {
        self.sequenced.notify_one();
    }

    /// Waits for a wakeup about sequenced facts. An earlier pass may already have read them.
    pub async fn wait_for_sequenced(&self) {
        self.sequenced.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairway_domain::{
        audit::{FactKind, FactSubject, Stamp},
        notification_category::NotificationCategory,
    };

    fn fact(categories: &[NotificationCategory]) -> Fact {
        let subject = FactSubject { kind: "execution", id: uuid::Uuid::nil() };
        let stamp = Stamp {
            fact_id: uuid::Uuid::nil().into(),
            at: fairway_domain::time::Timestamp::from_micros(0).unwrap(),
            actor: fairway_domain::access::ActorRef::parse("user:ada").unwrap(),
            request_id: uuid::Uuid::nil().into(),
        };
        Fact::new(FactKind::ExecutionEnded, subject, None, &stamp, serde_json::json!({}))
            .with_notification_categories(categories.iter().copied())
    }

    #[tokio::test]
    async fn facts_without_categories_wake_only_the_sequencer() {
        let wakeups = FactWakeups::default();
        wakeups.notify_fact(&fact(&[]));
        wakeups.wait_for_pending().await;
        assert!(!wakeups.take_categorized());

        wakeups.notify_fact(&fact(&[NotificationCategory::Executions]));
        wakeups.wait_for_pending().await;
        assert!(wakeups.take_categorized());
        assert!(!wakeups.take_categorized(), "one pass covers the fact");
    }
}
