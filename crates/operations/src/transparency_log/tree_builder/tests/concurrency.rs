//! Concurrency of steps: their total number is bounded, each log has at most one, and a blocked archive of one log
//! delays no other log.

use super::{TestStores, origin};
use crate::transparency_log::tree_builder::{MAX_STEPS, TreeBuilder, run_tree_builder};
use async_trait::async_trait;
use fairway_domain::{
    id::{FactId, TenantId},
    store::StoreError,
    tenant::TenantScope,
    transparency_log::{
        ArchiveError, Checkpoint, CheckpointArchive, LoggedFact, PendingLog, SignedNote, StoredEntry, TreeAdvance,
        TreeHash, TreeStore,
    },
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep, timeout},
};
use uuid::Uuid;

/// Calls that the test archive has received.
#[derive(Default)]
struct ObservedCalls {
    /// The number of active archive calls of each tenant that has any.
    active: BTreeMap<TenantId, usize>,
    /// The maximum number of concurrent calls of one tenant; `max_total` counts all tenants.
    max_per_tenant: usize,
    max_total: usize,
    /// The tenants of archived checkpoints, in order.
    archived: Vec<TenantId>,
}

/// Logs of several tenants. Archive calls of blocked tenants wait for permits of `gate`.
#[derive(Clone)]
struct Logs {
    stores_by_tenant: Arc<BTreeMap<TenantId, TestStores>>,
    blocked: Arc<BTreeSet<TenantId>>,
    gate: Arc<Semaphore>,
    observed: Arc<Mutex<ObservedCalls>>,
}

fn number(tenant: usize) -> TenantId {
    Uuid::from_u128(u128::try_from(tenant).unwrap()).into()
}

impl Logs {
    /// Creates logs with one fact each for the tenants 1 to `count`.
    fn new(count: usize, blocked: &[usize]) -> Self {
        Self {
            stores_by_tenant: Arc::new((1..=count).map(|tenant| (number(tenant), TestStores::with_facts(1))).collect()),
            blocked: Arc::new(blocked.iter().map(|tenant| number(*tenant)).collect()),
            gate: Arc::new(Semaphore::new(0)),
            observed: Arc::default(),
        }
    }

    fn builder(&self) -> TreeBuilder {
        // Tiles and keys are equal for all tenants, so the stores of one log provide them.
        let mut stepper = TestStores::with_facts(0).stepper_with(&[]);
        stepper.tree_store = Arc::new(self.clone());
        stepper.archive = Arc::new(self.clone());
        TreeBuilder::with_stepper(stepper)
    }

    fn stores(&self, tenant: TenantId) -> &TestStores {
        &self.stores_by_tenant[&tenant]
    }

    fn observed(&self) -> MutexGuard<'_, ObservedCalls> {
        self.observed.lock().unwrap()
    }

    /// Returns the number of facts that the published checkpoint of a tenant covers.
    fn covered(&self, tenant: usize) -> u64 {
        let tree = self.stores(number(tenant)).state().tree.clone();
        tree.and_then(|tree| tree.parse_checkpoint()).map_or(0, |checkpoint| checkpoint.size)
    }

    /// Waits for a condition. The clock is paused and advances only while all tasks wait.
    async fn wait_until(&self, condition: &str, is_reached: impl Fn(&Self) -> bool) {
        let wait = async {
            while !is_reached(self) {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(Duration::from_secs(60), wait).await.unwrap_or_else(|_| panic!("never: {condition}"));
    }

    /// Counts an archive call, and waits for a permit if the tenant is blocked.
    async fn record_call(&self, tenant: TenantId) {
        {
            let mut observed = self.observed();
            *observed.active.entry(tenant).or_default() += 1;
            observed.max_per_tenant = observed.max_per_tenant.max(observed.active[&tenant]);
            observed.max_total = observed.max_total.max(observed.active.values().sum());
        }
        if self.blocked.contains(&tenant) {
            self.gate.acquire().await.unwrap().forget();
        }
        tokio::task::yield_now().await;
        *self.observed().active.get_mut(&tenant).unwrap() -= 1;
    }
}

#[async_trait]
impl CheckpointArchive for Logs {
    async fn store_if_absent(&self, tenant: TenantId, size: u64, note: &str) -> Result<Vec<u8>, ArchiveError> {
        self.record_call(tenant).await;
        let parsed = SignedNote::parse(note.as_bytes()).unwrap();
        assert_eq!(Checkpoint::parse(parsed.text()).unwrap().origin, origin().origin_of_tenant(tenant));
        self.observed().archived.push(tenant);
        self.stores(tenant).store_if_absent(tenant, size, note).await
    }

    async fn newest_from(&self, tenant: TenantId, size: u64) -> Result<Option<Vec<u8>>, ArchiveError> {
        self.stores(tenant).newest_from(tenant, size).await
    }

    async fn tenants(&self) -> Result<Vec<TenantId>, ArchiveError> {
        Ok(self.stores_by_tenant.keys().copied().collect())
    }
}

#[async_trait]
impl TreeStore for Logs {
    async fn pending_logs(
        &self,
        signed_by: &str,
        after: Option<TenantId>,
        limit: u32,
    ) -> Result<Vec<PendingLog>, StoreError> {
        let mut pending = Vec::new();
        for (tenant, stores) in
            self.stores_by_tenant.iter().filter(|(tenant, _)| after.is_none_or(|after| **tenant > after))
        {
            let logs = stores.pending_logs(signed_by, None, limit).await?;
            pending.extend(logs.into_iter().map(|log| PendingLog { tenant: *tenant, ..log }));
        }
        // Short pages make a pass over few logs read several pages.
        pending.truncate(3);
        Ok(pending)
    }

    async fn find_log(&self, scope: TenantScope) -> Result<Option<PendingLog>, StoreError> {
        let log = self.stores(scope.tenant()).find_log(scope).await?;
        Ok(log.map(|log| PendingLog { tenant: scope.tenant(), ..log }))
    }

    async fn leaves(&self, scope: TenantScope, from: u64, limit: u32) -> Result<Vec<TreeHash>, StoreError> {
        self.stores(scope.tenant()).leaves(scope, from, limit).await
    }

    async fn advance_tree(&self, scope: TenantScope, advance: TreeAdvance) -> Result<bool, StoreError> {
        self.stores(scope.tenant()).advance_tree(scope, advance).await
    }

    async fn entries(&self, _: TenantScope, _: u64, _: u32) -> Result<Vec<StoredEntry>, StoreError> {
        unreachable!("the builder reads no entries")
    }

    async fn logged_tenants(&self, _: Option<TenantId>, _: u32) -> Result<Vec<TenantId>, StoreError> {
        unreachable!("the builder lists pending logs only")
    }

    async fn facts_about(
        &self,
        _: TenantScope,
        _: &[Uuid],
        _: &'static [&'static str],
        _: u32,
    ) -> Result<Vec<LoggedFact>, StoreError> {
        unreachable!("the builder reads no facts")
    }

    async fn find_logged_fact(&self, _: TenantScope, _: FactId) -> Result<Option<LoggedFact>, StoreError> {
        unreachable!("the builder reads no facts")
    }
}

#[tokio::test(start_paused = true)]
async fn blocked_archive_of_one_log_delays_no_other_checkpoint() {
    let logs = Logs::new(3, &[1]);
    let builder = tokio::spawn(run_tree_builder(logs.builder()));
    for facts in 1..=5 {
        let started_at = Instant::now();
        logs.wait_until("the other logs are covered", |logs| [2, 3].iter().all(|other| logs.covered(*other) == facts))
            .await;
        assert!(started_at.elapsed() < Duration::from_secs(5), "{:?}", started_at.elapsed());
        for tenant in 1..=3 {
            logs.stores(number(tenant)).add_facts(1);
        }
    }
    assert_eq!(logs.covered(1), 0);
    assert_eq!(logs.observed().max_per_tenant, 1, "a log has one step at a time");
    // After the blocked step ends, the log continues.
    logs.gate.add_permits(1_000);
    logs.wait_until("the blocked log is covered", |logs| logs.covered(1) == 6).await;
    assert_eq!(logs.observed().max_per_tenant, 1);
    builder.abort();
}

/// A log with a backlog continues at once, even while the step in another log is blocked.
#[tokio::test(start_paused = true)]
async fn blocked_archive_of_one_log_delays_no_backlog() {
    let logs = Logs::new(2, &[1]);
    logs.stores(number(2)).add_facts(40_000);
    let builder = tokio::spawn(run_tree_builder(logs.builder()));
    let started_at = Instant::now();
    logs.wait_until("the backlog is covered", |logs| logs.covered(2) == 40_001).await;
    assert!(started_at.elapsed() < Duration::from_secs(1), "{:?}", started_at.elapsed());
    builder.abort();
}

#[tokio::test(start_paused = true)]
async fn steps_of_many_logs_are_bounded() {
    let tenants: Vec<usize> = (1..=20).collect();
    let logs = Logs::new(20, &tenants);
    let builder = tokio::spawn(run_tree_builder(logs.builder()));
    logs.wait_until("every step slot is in use", |logs| logs.observed().max_total == MAX_STEPS).await;
    sleep(Duration::from_secs(30)).await;
    assert_eq!(logs.observed().max_total, MAX_STEPS);
    logs.gate.add_permits(1_000);
    logs.wait_until("all logs are covered", |logs| tenants.iter().all(|tenant| logs.covered(*tenant) == 1)).await;
    let observed = logs.observed();
    assert_eq!((observed.max_total, observed.max_per_tenant), (MAX_STEPS, 1));
    builder.abort();
}

/// The first logs of a pass use up the time budget of the witnesses. Each log must therefore be among the first in some
/// pass.
#[tokio::test(start_paused = true)]
async fn passes_begin_at_different_logs() {
    let logs = Logs::new(20, &[]);
    let mut builder = logs.builder();
    let mut first_tenants = BTreeSet::new();
    for _ in 0..3 {
        builder.build_once().await.unwrap();
        let archived = std::mem::take(&mut logs.observed().archived);
        let distinct: BTreeSet<TenantId> = archived.iter().copied().collect();
        assert!(archived.len() == 20 && distinct.len() == 20, "a pass takes a step in each log: {archived:?}");
        first_tenants.extend(archived[..MAX_STEPS].iter().copied());
        for stores in logs.stores_by_tenant.values() {
            stores.add_facts(1);
        }
    }
    assert_eq!(first_tenants.len(), 20, "each log is among the first of a pass: {first_tenants:?}");
}
