//! Wakeups of the sequencer, which assigns facts their index, and of the projector, which reads facts with an index.

use tokio::sync::Notify;

/// Wakes the sequencer after a commit of facts, and the projector after their sequencing. One wakeup may stand for
/// several facts.
#[derive(Debug, Default)]
pub struct FactWakeups {
    pending: Notify,
    sequenced: Notify,
}

impl FactWakeups {
    /// Wakes the sequencer, because facts are pending.
    pub fn notify_facts(&self) {
        self.pending.notify_one();
    }

    /// Waits until facts may be pending.
    pub async fn wait_for_pending(&self) {
        self.pending.notified().await;
    }

    /// Wakes the projector, because facts were sequenced.
    pub fn notify_sequenced(&self) {
        self.sequenced.notify_one();
    }

    /// Waits until facts may have been sequenced.
    pub async fn wait_for_sequenced(&self) {
        self.sequenced.notified().await;
    }
}
