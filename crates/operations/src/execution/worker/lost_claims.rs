//! Claims of a worker whose response was lost.

use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

/// Maximum number of lost claims that a worker remembers; older ones are discarded.
const MAX_LOST_CLAIMS: usize = 64;

/// Claims of a worker that received no response. Their statements may have been committed, or may still be committed.
#[derive(Default)]
pub(super) struct LostClaims(Vec<(Uuid, Instant)>);

impl LostClaims {
    /// Remembers a claim until the leases that it may have created expire. Afterwards any worker can claim the runs.
    pub(super) fn add(&mut self, lease: Uuid, lease_for: Duration) {
        self.0.push((lease, Instant::now() + lease_for));
        let excess = self.0.len().saturating_sub(MAX_LOST_CLAIMS);
        self.0.drain(..excess);
    }

    /// Returns the lease tokens of the remembered claims whose leases may not have expired.
    pub(super) fn tokens(&mut self) -> Vec<Uuid> {
        let now = Instant::now();
        self.0.retain(|(_, expires_at)| *expires_at > now);
        self.0.iter().map(|(lease, _)| *lease).collect()
    }
}
