//! Memory reservations for runs with large inputs or values. A process has enough memory for only a few such runs at a
//! time.
//!
//! The values of a large run are copied several times on the way to the store and the caller. Runs below
//! [`SMALL_RUN_BYTES`] need no reservation.

use crate::{Failure, execution::worker::RunWorker};
use fairway_domain::{
    execution::{
        Payload,
        dispatch::{ClaimedInputs, ClaimedRun, LeaseRef},
        run::{Interruption, SMALL_RUN_BYTES},
    },
    id::TenantId,
    json::max_heap_bytes,
    tenant::TenantScope,
};
use fairway_fair_queue::{AcquireError, FairSemaphore, Limits, Permit};
use fairway_memory_limit::{Admission, admit, is_soft_limit_reached};
use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};
use tokio::{sync::Notify, time::Instant};

/// Maximum number of concurrent large runs in a process.
const MAX_LARGE_RUNS: usize = 6;
/// Peak memory of one large run, in bytes.
const LARGE_RUN_BYTES: usize = 15 << 20;
/// Maximum number of concurrent large runs of one tenant; the last reservation is free for another tenant.
const MAX_PER_TENANT: usize = MAX_LARGE_RUNS - 1;
/// Maximum number of claimed runs that wait for a reservation. Each of them occupies a run slot of the worker.
const MAX_WAITING_CLAIMS: usize = 32;
/// Number of paused runs of one tenant at which the worker stops claiming the tenant's queued runs. A paused run
/// occupies a run slot, and its inputs do not show in advance that it will pause.
const MAX_PAUSED: usize = 8;
/// Maximum time for which a request waits for the reservation of its run. The run is stored only afterwards.
pub(super) const REQUEST_WAIT: Duration = Duration::from_secs(10);

/// A memory reservation; dropping it releases the memory.
#[derive(Debug)]
pub(super) struct Reservation {
    _permit: Permit<TenantId>,
    _memory: Admission,
}

/// The memory reservations of a process, and the runs that wait for one.
pub(crate) struct LargeRuns {
    permits: FairSemaphore<TenantId>,
    waiting: Waiters,
}

/// Number of waiting runs of each tenant.
type Waiters = Arc<Mutex<HashMap<TenantId, WaitCounts>>>;

/// Numbers of runs of one tenant that wait for a reservation.
#[derive(Clone, Copy, Default)]
struct WaitCounts {
    /// Claimed runs with large inputs that have not started.
    claimed: usize,
    /// Started runs that wait before they create large values.
    paused: usize,
}

impl WaitCounts {
    const fn count(&mut self, stage: WaitStage) -> &mut usize {
        match stage {
            WaitStage::Claimed => &mut self.claimed,
            WaitStage::Paused => &mut self.paused,
        }
    }
}

/// The stage in which a run waits for a reservation.
#[derive(Clone, Copy)]
enum WaitStage {
    Claimed,
    Paused,
}

impl Default for LargeRuns {
    fn default() -> Self {
        let limits = Limits { permits_per_key: MAX_PER_TENANT, ..Limits::unlimited_per_key(MAX_LARGE_RUNS) };
        Self { permits: FairSemaphore::new(limits), waiting: Arc::default() }
    }
}

impl fmt::Debug for LargeRuns {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("LargeRuns")
    }
}

/// Which large runs a worker may claim now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct LargeClaims {
    /// Whether the worker may claim large runs.
    pub(super) is_allowed: bool,
    /// Tenants with a waiting run; the worker claims no further large runs of these tenants.
    pub(super) excluded: Vec<TenantId>,
    /// Tenants with too many paused runs; the worker claims no runs of these tenants.
    pub(super) saturated: Vec<TenantId>,
}

impl LargeRuns {
    /// Acquires a reservation for a run of a tenant.
    ///
    /// # Errors
    /// When no reservation becomes free in time, or the process lacks memory for the run.
    pub(super) async fn reserve(&self, scope: TenantScope, wait: Duration) -> Result<Reservation, AcquireError> {
        let started_at = Instant::now();
        let permit = self.permits.acquire(scope.tenant(), wait).await?;
        let remaining = wait.saturating_sub(started_at.elapsed());
        let memory = admit(LARGE_RUN_BYTES, remaining).await.map_err(|_| AcquireError::TimedOut)?;
        Ok(Reservation { _permit: permit, _memory: memory })
    }

    /// Acquires a reservation for a claimed run. During the wait, no further large run of the same tenant is claimed.
    pub(super) async fn reserve_claimed(
        &self,
        scope: TenantScope,
        wait: Duration,
    ) -> Result<Reservation, AcquireError> {
        let _wait_guard = WaitGuard::of(scope.tenant(), WaitStage::Claimed, &self.waiting);
        self.reserve(scope, wait).await
    }

    /// Acquires a reservation for a started run. The deadline of the run limits the wait.
    pub(super) async fn reserve_paused(&self, scope: TenantScope) -> Result<Reservation, AcquireError> {
        let _wait_guard = WaitGuard::of(scope.tenant(), WaitStage::Paused, &self.waiting);
        self.reserve(scope, Duration::MAX).await
    }

    /// Returns which large runs a worker may claim now, and which tenants it must skip.
    pub(super) fn allowed_claims(&self) -> LargeClaims {
        let waiting = lock(&self.waiting);
        // Only claimed runs count. Otherwise the paused runs of one tenant would exclude the large runs of other
        // tenants.
        let claimed: usize = waiting.values().map(|counts| counts.claimed).sum();
        // When the process reaches its soft memory limit, only one claimed run may wait.
        let is_allowed = claimed < if is_soft_limit_reached() { 1 } else { MAX_WAITING_CLAIMS };
        let saturated = waiting.iter().filter(|(_, counts)| counts.paused >= MAX_PAUSED);
        LargeClaims {
            is_allowed,
            excluded: waiting.keys().copied().collect(),
            saturated: saturated.map(|(tenant, _)| *tenant).collect(),
        }
    }
}

impl RunWorker {
    /// Acquires a reservation for a claimed run with large inputs; returns `None` if its inputs are small or erased.
    /// Inputs that are not loaded yet count as large. The lease is renewed during the wait.
    ///
    /// # Errors
    /// The interruption, when it ends the wait.
    pub(super) async fn reserve_claimed(
        &self,
        claimed: &mut ClaimedRun,
        recheck: &Notify,
    ) -> Result<Option<Arc<Reservation>>, Interruption> {
        let is_large = match &claimed.inputs {
            ClaimedInputs::Loaded(inputs) => is_large(&inputs.body),
            ClaimedInputs::NotLoaded => true,
            ClaimedInputs::Erased => false,
        };
        if !is_large {
            return Ok(None);
        }
        let (started_at, cancelled_by) = (Instant::now(), OnceLock::new());
        let lease_ref = LeaseRef { execution_id: claimed.execution.execution_id, lease: claimed.lease };
        let reserved = tokio::select! {
            reserved = self.large_runs.reserve_claimed(claimed.scope, claimed.time_left) => {
                reserved.map_err(|_| Interruption::DeadlineExceeded)
            }
            interruption = self.run_engine.renew_lease(claimed.scope, lease_ref, recheck, &cancelled_by) => {
                Err(interruption)
            }
        };
        claimed.time_left = claimed.time_left.saturating_sub(started_at.elapsed());
        claimed.cancelled_by = cancelled_by.into_inner().or(claimed.cancelled_by.take());
        reserved.map(|reservation| Some(Arc::new(reservation)))
    }

    /// Returns the inputs of a claimed run; `None` if they are erased.
    ///
    /// # Errors
    /// When the store fails.
    pub(super) async fn read_inputs(&self, claimed: &mut ClaimedRun) -> Result<Option<Payload>, Failure> {
        match std::mem::replace(&mut claimed.inputs, ClaimedInputs::Erased) {
            ClaimedInputs::Loaded(inputs) => Ok(Some(inputs)),
            ClaimedInputs::NotLoaded => {
                Ok(self.run_store.inputs(claimed.scope, claimed.execution.execution_id).await?)
            }
            ClaimedInputs::Erased => Ok(None),
        }
    }
}

/// Whether inputs need a reservation, because of the size of their JSON text or the memory of their parsed form.
pub(super) fn is_large(inputs: &str) -> bool {
    inputs.len() > SMALL_RUN_BYTES || max_heap_bytes(inputs.as_bytes()) > SMALL_RUN_BYTES
}

fn lock(waiting: &Mutex<HashMap<TenantId, WaitCounts>>) -> MutexGuard<'_, HashMap<TenantId, WaitCounts>> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts a run as waiting until the guard is dropped.
struct WaitGuard {
    tenant: TenantId,
    stage: WaitStage,
    waiting: Waiters,
}

impl WaitGuard {
    fn of(tenant: TenantId, stage: WaitStage, waiting: &Waiters) -> Self {
        *lock(waiting).entry(tenant).or_default().count(stage) += 1;
        Self { tenant, stage, waiting: Arc::clone(waiting) }
    }
}

impl Drop for WaitGuard {
    fn drop(&mut self) {
        let mut waiting = lock(&self.waiting);
        if let Some(counts) = waiting.get_mut(&self.tenant) {
            let count = counts.count(self.stage);
            *count = count.saturating_sub(1);
            if counts.claimed == 0 && counts.paused == 0 {
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
        TenantScope::for_background_task(Uuid::from_u128(number).into())
    }

    #[test]
    fn measures_inputs_by_their_text_and_by_their_values() {
        assert!(!is_large(&format!("{{\"t\":\"{}\"}}", "x".repeat(SMALL_RUN_BYTES / 2))));
        assert!(is_large(&format!("{{\"t\":\"{}\"}}", "x".repeat(SMALL_RUN_BYTES))));
        // The parsed form of 16 KiB of small objects occupies more than a megabyte.
        assert!(is_large(&format!("[{}]", vec!["{\"a\":1}"; 2_000].join(","))));
    }

    #[tokio::test]
    async fn one_tenant_leaves_a_reservation_free() {
        let runs = LargeRuns::default();
        let mut reservations = Vec::new();
        for _ in 0..MAX_PER_TENANT {
            reservations.push(runs.reserve(tenant(1), LONG).await.unwrap());
        }
        assert_eq!(runs.reserve(tenant(1), Duration::ZERO).await.unwrap_err(), AcquireError::TimedOut);
        assert!(runs.reserve(tenant(2), Duration::ZERO).await.is_ok());
        drop(reservations.pop());
        assert!(runs.reserve(tenant(1), Duration::ZERO).await.is_ok());
    }

    #[tokio::test]
    async fn waiting_claimed_run_excludes_large_runs_of_its_tenant() {
        let runs = Arc::new(LargeRuns::default());
        let mut reservations = Vec::new();
        for _ in 0..MAX_PER_TENANT {
            reservations.push(runs.reserve(tenant(1), LONG).await.unwrap());
        }
        assert_eq!(
            runs.allowed_claims(),
            LargeClaims { is_allowed: true, excluded: Vec::new(), saturated: Vec::new() }
        );
        let shared_runs = Arc::clone(&runs);
        let waiting_task = tokio::spawn(async move { shared_runs.reserve_claimed(tenant(1), LONG).await.map(|_| ()) });
        while runs.permits.waiting_count_of(&tenant(1).tenant()) == 0 {
            tokio::task::yield_now().await;
        }
        let expected = LargeClaims { is_allowed: true, excluded: vec![tenant(1).tenant()], saturated: Vec::new() };
        assert_eq!(runs.allowed_claims(), expected);
        // After the cancellation of its task, the run is no longer counted as waiting.
        waiting_task.abort();
        assert!(waiting_task.await.unwrap_err().is_cancelled());
        assert_eq!(
            runs.allowed_claims(),
            LargeClaims { is_allowed: true, excluded: Vec::new(), saturated: Vec::new() }
        );
        drop(reservations);
    }

    #[tokio::test]
    async fn too_many_paused_runs_exclude_their_tenant() {
        let runs = Arc::new(LargeRuns::default());
        let mut reservations = Vec::new();
        for _ in 0..MAX_PER_TENANT {
            reservations.push(runs.reserve(tenant(1), LONG).await.unwrap());
        }
        let mut paused = Vec::new();
        for count in 1..=4 * MAX_WAITING_CLAIMS {
            let shared_runs = Arc::clone(&runs);
            paused.push(tokio::spawn(async move { shared_runs.reserve_paused(tenant(1)).await.map(|_| ()) }));
            while runs.permits.waiting_count_of(&tenant(1).tenant()) < count {
                tokio::task::yield_now().await;
            }
            let excluded_tenants = vec![tenant(1).tenant()];
            let saturated = if count < MAX_PAUSED { Vec::new() } else { excluded_tenants.clone() };
            // The paused runs of this tenant do not exclude large runs of other tenants.
            assert_eq!(
                runs.allowed_claims(),
                LargeClaims { is_allowed: true, excluded: excluded_tenants, saturated },
                "{count} paused runs"
            );
        }
        for run in paused {
            run.abort();
            assert!(run.await.unwrap_err().is_cancelled());
        }
        assert_eq!(
            runs.allowed_claims(),
            LargeClaims { is_allowed: true, excluded: Vec::new(), saturated: Vec::new() }
        );
        drop(reservations);
    }
}
