//! Reservations for runs with large inputs or values: a process has memory for a few of them at a time.
//!
//! Each end of such a run is copied a few times on its way to the store and to the caller. Runs below
//! [`SMALL_RUN_BYTES`] need no reservation, and never wait for one.

use crate::{Failure, Services};
use fairway_domain::{
    execution::{
        Payload,
        dispatch::{Claimed, ClaimedInputs, Held},
        run::{Cut, SMALL_RUN_BYTES},
    },
    id::TenantId,
    json::max_heap_bytes,
    tenant::TenantScope,
};
use fairway_fair_queue::{AcquireError, FairSemaphore, Limits, Permit};
use fairway_memory_limit::{Admission, admit, is_reached};
use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};
use tokio::{sync::Notify, time::Instant};

/// Large runs that a process has under way at the same time.
const MAX_LARGE_RUNS: usize = 6;
/// What one of them takes at its height.
const LARGE_RUN_BYTES: usize = 15 << 20;
/// Most of them that one tenant has, so that another one's large run begins at once.
const MAX_PER_TENANT: usize = MAX_LARGE_RUNS - 1;
/// Claimed runs that wait for a reservation before no more large ones are claimed. They take places of the worker.
const MAX_WAITING: usize = 32;
/// Runs of one tenant that pause for a reservation before no more queued runs of that tenant are claimed. They take places
/// of the worker too, and small inputs do not show which run will pause.
const MAX_PAUSED: usize = 8;
/// How long a request waits for the reservation of its run, before anything of the run is stored.
pub(super) const REQUEST_WAIT: Duration = Duration::from_secs(10);

/// A reservation, until it is dropped.
#[derive(Debug)]
pub(super) struct Reservation {
    _permit: Permit<TenantId>,
    _memory: Admission,
}

/// The reservations of a process.
pub(crate) struct LargeRuns {
    permits: FairSemaphore<TenantId>,
    waiting: Waiters,
}

/// The runs of each tenant that wait for a reservation.
type Waiters = Arc<Mutex<HashMap<TenantId, Waits>>>;

/// Runs of one tenant that wait for a reservation.
#[derive(Clone, Copy, Default)]
struct Waits {
    /// Claimed runs with large inputs that have not begun.
    claimed: usize,
    /// Runs that have begun and are about to make large values.
    paused: usize,
}

impl Waits {
    const fn count(&mut self, stage: Stage) -> &mut usize {
        match stage {
            Stage::Claimed => &mut self.claimed,
            Stage::Paused => &mut self.paused,
        }
    }
}

/// Where a run is that waits.
#[derive(Clone, Copy)]
enum Stage {
    Claimed,
    Paused,
}

impl Default for LargeRuns {
    fn default() -> Self {
        let limits = Limits { permits_per_key: MAX_PER_TENANT, ..Limits::of(MAX_LARGE_RUNS) };
        Self { permits: FairSemaphore::new(limits), waiting: Arc::default() }
    }
}

impl fmt::Debug for LargeRuns {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("LargeRuns")
    }
}

/// Which tenants' large runs a worker claims.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct LargeClaims {
    /// Whether it claims large runs at all.
    pub(super) any: bool,
    /// Tenants whose runs wait for a reservation already.
    pub(super) except: Vec<TenantId>,
    /// Tenants of whose queued runs none is claimed, large or small: too many of their runs pause.
    pub(super) saturated: Vec<TenantId>,
}

impl LargeRuns {
    /// A reservation for a run of a tenant.
    ///
    /// # Errors
    /// When none becomes free in time, or the process has no memory for the run by then.
    pub(super) async fn reserve(&self, scope: TenantScope, wait: Duration) -> Result<Reservation, AcquireError> {
        let since = Instant::now();
        let permit = self.permits.acquire(scope.tenant(), wait).await?;
        let left = wait.saturating_sub(since.elapsed());
        let memory = admit(LARGE_RUN_BYTES, left).await.map_err(|_| AcquireError::TimedOut)?;
        Ok(Reservation { _permit: permit, _memory: memory })
    }

    /// The same for a claimed run: until it has its reservation, no further large run of its tenant is claimed.
    pub(super) async fn reserve_claimed(
        &self,
        scope: TenantScope,
        wait: Duration,
    ) -> Result<Reservation, AcquireError> {
        let _waiting = Waiting::of(scope.tenant(), Stage::Claimed, &self.waiting);
        self.reserve(scope, wait).await
    }

    /// The same for a run that pauses in the middle. Its deadline bounds the wait.
    pub(super) async fn reserve_paused(&self, scope: TenantScope) -> Result<Reservation, AcquireError> {
        let _waiting = Waiting::of(scope.tenant(), Stage::Paused, &self.waiting);
        self.reserve(scope, Duration::MAX).await
    }

    /// Which large runs a worker may claim now, and of which tenants it claims nothing.
    pub(super) fn claimable(&self) -> LargeClaims {
        let waiting = lock(&self.waiting);
        // Paused runs of some tenants are no reason to pass over the large runs of the others.
        let claimed: usize = waiting.values().map(|waits| waits.claimed).sum();
        // At the memory limit one claimed run waits at a time.
        let any = claimed < if is_reached() { 1 } else { MAX_WAITING };
        let saturated = waiting.iter().filter(|(_, waits)| waits.paused >= MAX_PAUSED);
        LargeClaims {
            any,
            except: waiting.keys().copied().collect(),
            saturated: saturated.map(|(tenant, _)| *tenant).collect(),
        }
    }
}

impl Services {
    /// A reservation for a claimed run with large inputs, which are not read yet; none for other runs. The lease is kept
    /// while the run waits.
    ///
    /// # Errors
    /// Why the run stops before it has its reservation.
    pub(super) async fn reserve_claimed(
        &self,
        claimed: &mut Claimed,
        look: &Notify,
    ) -> Result<Option<Arc<Reservation>>, Cut> {
        let is_large = match &claimed.inputs {
            ClaimedInputs::Read(inputs) => is_large(&inputs.body),
            ClaimedInputs::Unread => true,
            ClaimedInputs::Erased => false,
        };
        if !is_large {
            return Ok(None);
        }
        let (since, cancelled_by) = (Instant::now(), OnceLock::new());
        let held = Held { execution_id: claimed.execution.execution_id, lease: claimed.lease };
        let reserved = tokio::select! {
            reserved = self.large_runs.reserve_claimed(claimed.scope, claimed.time_left) => {
                reserved.map_err(|_| Cut::Overdue)
            }
            cut = self.keep_lease((claimed.scope, held), look, &cancelled_by) => Err(cut),
        };
        claimed.time_left = claimed.time_left.saturating_sub(since.elapsed());
        claimed.cancelled_by = cancelled_by.into_inner().or(claimed.cancelled_by.take());
        reserved.map(|reservation| Some(Arc::new(reservation)))
    }

    /// What was sent with a claimed run; `None` once it is erased.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(super) async fn read_inputs(&self, claimed: &mut Claimed) -> Result<Option<Payload>, Failure> {
        match std::mem::replace(&mut claimed.inputs, ClaimedInputs::Erased) {
            ClaimedInputs::Read(inputs) => Ok(Some(inputs)),
            ClaimedInputs::Unread => {
                Ok(self.stores.executions.inputs(claimed.scope, claimed.execution.execution_id).await?)
            }
            ClaimedInputs::Erased => Ok(None),
        }
    }
}

/// Whether inputs need a reservation: their JSON text, or what it takes once it is read.
pub(super) fn is_large(inputs: &str) -> bool {
    inputs.len() > SMALL_RUN_BYTES || max_heap_bytes(inputs.as_bytes()) > SMALL_RUN_BYTES
}

fn lock(waiting: &Mutex<HashMap<TenantId, Waits>>) -> MutexGuard<'_, HashMap<TenantId, Waits>> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A run that waits, until it is dropped.
struct Waiting {
    tenant: TenantId,
    stage: Stage,
    waiting: Waiters,
}

impl Waiting {
    fn of(tenant: TenantId, stage: Stage, waiting: &Waiters) -> Self {
        *lock(waiting).entry(tenant).or_default().count(stage) += 1;
        Self { tenant, stage, waiting: Arc::clone(waiting) }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut waiting = lock(&self.waiting);
        if let Some(waits) = waiting.get_mut(&self.tenant) {
            let count = waits.count(self.stage);
            *count = count.saturating_sub(1);
            if waits.claimed == 0 && waits.paused == 0 {
                waiting.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    const LONG: Duration = Duration::from_secs(3_600);

    fn tenant(number: u128) -> TenantScope {
        TenantScope::for_relay(Uuid::from_u128(number).into())
    }

    #[test]
    fn measures_inputs_by_their_text_and_by_their_values() {
        assert!(!is_large(&format!("{{\"t\":\"{}\"}}", "x".repeat(SMALL_RUN_BYTES / 2))));
        assert!(is_large(&format!("{{\"t\":\"{}\"}}", "x".repeat(SMALL_RUN_BYTES))));
        // 16 KiB of small objects take more than a megabyte.
        assert!(is_large(&format!("[{}]", vec!["{\"a\":1}"; 2_000].join(","))));
    }

    #[tokio::test]
    async fn one_tenant_leaves_a_reservation_for_another() {
        let runs = LargeRuns::default();
        let mut held = Vec::new();
        for _ in 0..MAX_PER_TENANT {
            held.push(runs.reserve(tenant(1), LONG).await.unwrap());
        }
        assert_eq!(runs.reserve(tenant(1), Duration::ZERO).await.unwrap_err(), AcquireError::TimedOut);
        assert!(runs.reserve(tenant(2), Duration::ZERO).await.is_ok());
        drop(held.pop());
        assert!(runs.reserve(tenant(1), Duration::ZERO).await.is_ok());
    }

    #[tokio::test]
    async fn claims_no_more_large_runs_of_a_tenant_whose_claimed_run_waits() {
        let runs = Arc::new(LargeRuns::default());
        let mut held = Vec::new();
        for _ in 0..MAX_PER_TENANT {
            held.push(runs.reserve(tenant(1), LONG).await.unwrap());
        }
        assert_eq!(runs.claimable(), LargeClaims { any: true, except: Vec::new(), saturated: Vec::new() });
        let own = Arc::clone(&runs);
        let waiting = tokio::spawn(async move { own.reserve_claimed(tenant(1), LONG).await.map(|_| ()) });
        while runs.permits.waiting(&tenant(1).tenant()) == 0 {
            tokio::task::yield_now().await;
        }
        let expected = LargeClaims { any: true, except: vec![tenant(1).tenant()], saturated: Vec::new() };
        assert_eq!(runs.claimable(), expected);
        // A run that is cancelled waits no more.
        waiting.abort();
        assert!(waiting.await.unwrap_err().is_cancelled());
        assert_eq!(runs.claimable(), LargeClaims { any: true, except: Vec::new(), saturated: Vec::new() });
        drop(held);
    }

    #[tokio::test]
    async fn claims_nothing_of_tenant_whose_runs_pause() {
        let runs = Arc::new(LargeRuns::default());
        let mut held = Vec::new();
        for _ in 0..MAX_PER_TENANT {
            held.push(runs.reserve(tenant(1), LONG).await.unwrap());
        }
        let mut paused = Vec::new();
        for count in 1..=4 * MAX_WAITING {
            let own = Arc::clone(&runs);
            paused.push(tokio::spawn(async move { own.reserve_paused(tenant(1)).await.map(|_| ()) }));
            while runs.permits.waiting(&tenant(1).tenant()) < count {
                tokio::task::yield_now().await;
            }
            let own = vec![tenant(1).tenant()];
            let saturated = if count < MAX_PAUSED { Vec::new() } else { own.clone() };
            // Another tenant's large runs are claimed, however many of this one pause.
            assert_eq!(runs.claimable(), LargeClaims { any: true, except: own, saturated }, "{count} paused runs");
        }
        for run in paused {
            run.abort();
            assert!(run.await.unwrap_err().is_cancelled());
        }
        assert_eq!(runs.claimable(), LargeClaims { any: true, except: Vec::new(), saturated: Vec::new() });
        drop(held);
    }
}
