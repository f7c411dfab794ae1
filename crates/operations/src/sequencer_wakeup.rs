//! The wakeups of the sequencer, which numbers committed facts, and of the projector, which reads numbered ones.

use tokio::sync::Notify;

/// Wakes the sequencer when facts are pending, and the projector when facts were sequenced. One wakeup covers any number of
/// facts.
#[derive(Debug, Default)]
pub struct SequencerWakeup {
    pending: Notify,
    sequenced: Notify,
}

impl SequencerWakeup {
    /// Reports that facts are pending.
    pub fn notify_facts(&self) {
        self.pending.notify_one();
    }

    /// Waits until facts are pending.
    pub async fn wait(&self) {
        self.pending.notified().await;
    }

    /// Reports that facts were sequenced.
    pub fn notify_sequenced(&self) {
        self.sequenced.notify_one();
    }

    /// Waits until facts were sequenced.
    pub async fn wait_for_sequenced(&self) {
        self.sequenced.notified().await;
    }
}
