//! Shutdown of a process: drains its active runs, and releases their leases.

use super::recovery::RunRecovery;
use crate::Failure;
use fairway_domain::{execution::dispatch::LeaseRef, wakeup::Wakeup};
use std::time::Duration;
use tokio::time::Instant;

/// Interval at which a shutdown checks whether active runs remain.
const DRAIN_POLL_INTERVAL: Duration = Duration::from_millis(20);

impl RunRecovery {
    /// Drains the process: it claims no more runs, and waits at most the given time for its active runs.
    pub async fn drain(&self, max_wait: Duration) {
        self.active_runs.close();
        let deadline = Instant::now() + max_wait;
        while !self.active_runs.is_idle() && Instant::now() < deadline {
            tokio::time::sleep(DRAIN_POLL_INTERVAL).await;
        }
    }

    /// Releases the leases of the active runs at shutdown, so that workers of other processes resume these runs. If the
    /// installation has no workers, this method ends the runs. Returns the number of released or ended runs.
    ///
    /// # Errors
    /// When the store fails. The remaining leases then expire.
    pub async fn release_leases(&self) -> Result<usize, Failure> {
        let leases = self.active_runs.take_all();
        for (scope, id, lease) in &leases {
            self.lease_store.release_lease(*scope, LeaseRef { execution_id: *id, lease: *lease }).await?;
        }
        if self.settings.dispatch.has_workers() {
            self.wakeup_sender.publish(Wakeup::RunQueued);
        }
        let mut ended = 0;
        while !leases.is_empty() {
            match self.end_lapsed_runs().await? {
                0 => break,
                count => ended += count,
            }
        }
        // Workers of other processes resume the runs that were not ended here.
        Ok(if self.settings.dispatch.has_workers() { leases.len() } else { ended })
    }
}
