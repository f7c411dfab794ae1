//! Claims whose response a worker did not receive.

use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

/// Maximum number of lost claims that a worker remembers; older claims are forgotten.
const MAX_LOST_CLAIMS: usize = 64;

/// Lease tokens of claims without a response, with the time at which their leases expire. Their statements may have
/// been committed, or may still be committed.
#[derive(Default)]
pub(super) struct LostClaims(Vec<(Uuid, Instant)>);

impl LostClaims {
    /// Remembers a claim until the leases that it may have created expire. Afterwards any worker can claim these runs.
    pub(super) fn add(&mut self, lease: Uuid, lease_for: Duration) {
        self.0.push((lease, Instant::now() + lease_for));
        let excess = self.0.len().saturating_sub(MAX_LOST_CLAIMS);
        self.0.drain(..excess);
    }

    /// Returns the tokens of those remembered claims whose leases may still be valid.
    pub(super) fn tokens(&mut self) -> Vec<Uuid> {
        let now = Instant::now();
        self.0.retain(|(_, expires_at)| *expires_at > now);
        self.0.iter().map(|(lease, _)| *lease).collect()
    }
}
