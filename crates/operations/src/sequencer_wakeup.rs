//! The wakeup of the sequencer, which numbers committed facts.

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
