//! Wakeups of the sequencer, which assigns facts their index, and of the projector, which reads facts with an index.

use tokio::sync::Notify;

/// Wakes the sequencer after a commit of facts, and the projector after these facts have an index. One wakeup may cover
/// several facts.
#[derive(Debug, Default)]
pub struct FactWakeups {
    pending: Notify,
    sequenced: Notify,
}

impl FactWakeups {
    /// Wakes the sequencer, because facts are pending.
    pub fn notify_pending(&self) {
        self.pending.notify_one();
    }

    /// Waits for a wakeup about pending facts. An earlier pass may already have sequenced them.
    pub async fn wait_for_pending(&self) {
        self.pending.notified().await;
    }

    /// Wakes the projector, because facts were sequenced.
    pub fn notify_sequenced(&self) {
        self.sequenced.notify_one();
    }

    /// Waits for a wakeup about sequenced facts. An earlier pass may already have read them.
    pub async fn wait_for_sequenced(&self) {
        self.sequenced.notified().await;
    }
}
