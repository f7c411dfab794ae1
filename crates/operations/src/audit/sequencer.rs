//! The sequencer, a background task that assigns each fact its index in the audit log.

use crate::FactWakeups;
use fairway_domain::audit::FactSequencer;
use std::{sync::Arc, time::Duration};

/// Delay between a wakeup and the commit, so that one commit sequences all facts of this interval.
const BATCH_WINDOW: Duration = Duration::from_millis(25);
/// Poll interval if no wakeup arrives. It bounds the delay of facts that other processes commit.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Delay of the next attempt after a failure.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Assigns pending facts their index in an endless loop. Several processes may run this task concurrently.
pub async fn run_sequencer(log: Arc<dyn FactSequencer>, wakeups: Arc<FactWakeups>) {
    loop {
        let has_categorized = wakeups.take_categorized();
        match log.sequence().await {
            Ok(sequenced_count) => {
                // Another process may have sequenced the facts that were committed in this one.
                if has_categorized {
                    wakeups.notify_sequenced();
                }
                if sequenced_count == 0 {
                    // After the timeout, the loop polls without a wakeup.
                    let _ = tokio::time::timeout(POLL_INTERVAL, wakeups.wait_for_pending()).await;
                }
                tokio::time::sleep(BATCH_WINDOW).await;
            }
            Err(error) => {
                if has_categorized {
                    wakeups.mark_categorized();
                }
                tracing::warn!(error = &error as &dyn std::error::Error, "failed to sequence facts; retrying in 1 s");
                tokio::time::sleep(RETRY_DELAY).await;
            }
        }
    }
}
