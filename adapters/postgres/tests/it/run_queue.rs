//! Queued runs: the order of claims, fairness between tenants, and the data that a claim returns.

use crate::fixture::{Fixture, actor, claim, connect, fresh, queued, scope};
use fairway_domain::{
    execution::{
        Acceptance, Payload,
        dispatch::{CancelLease, CancelOutcome, Claim, ClaimedInputs, ClaimedRun, LeaseRef},
        ports::{AcceptOutcome, LeaseStore, RunStore},
    },
    id::{ExecutionId, TenantId},
};
use std::time::Duration;
use uuid::Uuid;

/// Stores a queued run.
async fn queued_run(stage: &Fixture) -> ExecutionId {
    let (workload, placed) = stage.active().await;
    let on = stage.accepted_on(&workload, &placed).await;
    let run = queued(&placed);
    assert_eq!(stage.store.accept(scope(), &run, on, None).await.unwrap(), AcceptOutcome::Accepted);
    run.execution_id
}

async fn claimed(stage: &Fixture, claim: &Claim) -> Vec<ClaimedRun> {
    stage.store.claim(claim).await.unwrap()
}

fn held(claimed: &ClaimedRun) -> LeaseRef {
    LeaseRef { execution_id: claimed.execution.execution_id, lease: claimed.lease }
}

/// Expires the leases of all runs.
async fn expire_leases(stage: &Fixture) {
    stage.run("UPDATE execution_lease SET lapses_at = fairway_now() - interval '1 second'").await;
}

/// Adds queue entries of other tenants. They have no execution rows, because only their order matters.
async fn queue_runs_of(stage: &Fixture, tenants: &[u128], each: usize) {
    for tenant in tenants {
        for _ in 0..each {
            let (tenant, run) = (Uuid::from_u128(*tenant), Uuid::now_v7());
            stage.run(&format!("INSERT INTO execution_queue VALUES ('{tenant}', '{run}')")).await;
        }
    }
}

const QUEUED_RUNS: &str = "SELECT tenant_id, execution_id FROM execution_queue ORDER BY 1, 2";

/// Claims runs. Returns the tenants of the removed queue entries, in the order of the queue.
async fn dequeued_tenants(stage: &Fixture, limit: u16, per_tenant_limit: u16, after: Option<u128>) -> Vec<u128> {
    let token = fresh();
    let after = after.map(|tenant| TenantId::from(Uuid::from_u128(tenant)));
    let before = stage.owner.query(QUEUED_RUNS, &[]).await.unwrap();
    let claim = Claim { lease: token, limit, per_tenant_limit, after_tenant: after, ..claim() };
    // The queue entries have no execution rows, so the claim returns no run.
    assert!(claimed(stage, &claim).await.is_empty());
    let left = stage.owner.query(QUEUED_RUNS, &[]).await.unwrap();
    let run = |row: &tokio_postgres::Row| (row.get::<_, Uuid>(0), row.get::<_, Uuid>(1));
    let left: Vec<(Uuid, Uuid)> = left.iter().map(run).collect();
    before.iter().map(run).filter(|run| !left.contains(run)).map(|(tenant, _)| tenant.as_u128()).collect()
}

#[tokio::test]
async fn claims_tenants_round_robin_after_the_last_one() {
    let stage = Fixture::new().await;
    queue_runs_of(&stage, &[1, 2, 3], 5).await;
    assert_eq!(dequeued_tenants(&stage, 4, 2, None).await, [1, 1, 2, 2]);
    assert_eq!(
        dequeued_tenants(&stage, 4, 2, Some(2)).await,
        [1, 1, 3, 3],
        "after the second tenant come the third and then the first"
    );
    assert_eq!(dequeued_tenants(&stage, 9, 2, Some(1)).await, [1, 2, 2, 3, 3]);
    assert_eq!(dequeued_tenants(&stage, 9, 9, Some(3)).await, [2, 3]);
    assert_eq!(dequeued_tenants(&stage, 9, 9, Some(3)).await, [0_u128; 0]);
}

#[tokio::test]
async fn every_claim_serves_a_single_tenant() {
    let stage = Fixture::new().await;
    queue_runs_of(&stage, &[7], 5).await;
    for _ in 0..2 {
        assert_eq!(dequeued_tenants(&stage, 4, 2, Some(7)).await, [7, 7]);
    }
}

#[tokio::test]
async fn saturated_tenants_get_no_queued_and_no_expired_runs() {
    let stage = Fixture::new().await;
    let run = queued_run(&stage).await;
    let sated = Claim { saturated: vec![scope().tenant()], ..claim() };
    assert!(claimed(&stage, &sated).await.is_empty());
    assert_eq!(claimed(&stage, &claim()).await.len(), 1);
    expire_leases(&stage).await;
    assert!(claimed(&stage, &sated).await.is_empty());
    let again = claimed(&stage, &claim()).await;
    assert_eq!(again.iter().map(|taken| taken.execution.execution_id).collect::<Vec<_>>(), [run]);
}

#[tokio::test]
async fn released_leases_do_not_count_as_reclaims() {
    let stage = Fixture::new().await;
    queued_run(&stage).await;
    let first = claimed(&stage, &claim()).await;
    stage.store.release_lease(scope(), held(&first[0])).await.unwrap();
    let second = claimed(&stage, &claim()).await;
    assert_eq!((second.len(), second[0].reclaims, second[0].round_position), (1, 0, 0));
    expire_leases(&stage).await;
    assert_eq!(claimed(&stage, &claim()).await[0].reclaims, 1);
    stage.run("UPDATE execution_lease SET takeovers = 32767").await;
    expire_leases(&stage).await;
    assert_eq!(claimed(&stage, &claim()).await[0].reclaims, 1_000, "the reclaim count saturates");
}

#[tokio::test]
async fn next_claim_finds_the_runs_of_a_lost_claim() {
    let stage = Fixture::new().await;
    let (first, second) = (queued_run(&stage).await, queued_run(&stage).await);
    let runs = |claimed: &[ClaimedRun]| claimed.iter().map(|one| one.execution.execution_id).collect::<Vec<_>>();
    let lost = Claim { limit: 1, ..claim() };
    assert_eq!(runs(&claimed(&stage, &lost).await), [first]);
    // The response to the first claim was lost. The next claim names the lost lease and gets the same run.
    let again = Claim { limit: 1, lost_leases: vec![fresh(), lost.lease], ..claim() };
    let found = claimed(&stage, &again).await;
    assert_eq!(
        (runs(&found), found[0].lease, found[0].reclaims, found[0].round_position),
        (vec![first], again.lease, 0, 0)
    );
    assert_eq!(stage.query_number("SELECT count(*) FROM execution_queue").await, 1);
    // A run that was returned is not returned again. If its limit permits, the claim continues with the queue.
    let next = Claim { lost_leases: vec![lost.lease], ..claim() };
    assert_eq!(runs(&claimed(&stage, &next).await), [second]);
    // If the lease of a lost claim has expired, the run is returned once. This does not count as a reclaim.
    expire_leases(&stage).await;
    let late = Claim { lost_leases: vec![again.lease], ..claim() };
    let all = claimed(&stage, &late).await;
    let mut counts: Vec<_> = all.iter().map(|one| (one.execution.execution_id, one.reclaims)).collect();
    counts.sort();
    assert_eq!(counts, [(first, 0), (second, 1)]);
}

#[tokio::test]
async fn repeated_cancel_finds_the_run_of_the_lost_attempt() {
    let stage = Fixture::new().await;
    let run = queued_run(&stage).await;
    let stop = CancelLease {
        lease_ref: LeaseRef { execution_id: run, lease: fresh() },
        lease_for: Duration::from_secs(30),
        deadline_in: Duration::from_secs(60),
    };
    for _ in 0..2 {
        assert_eq!(stage.store.request_cancel(scope(), stop, &actor(), None).await.unwrap(), CancelOutcome::LeaseTaken);
    }
    let other = CancelLease { lease_ref: LeaseRef { execution_id: run, lease: fresh() }, ..stop };
    assert_eq!(
        stage.store.request_cancel(scope(), other, &actor(), None).await.unwrap(),
        CancelOutcome::WorkerNotified
    );
}

#[tokio::test]
async fn next_claim_finds_a_claim_that_arrived_late() {
    let stage = Fixture::new().await;
    let run = queued_run(&stage).await;
    let late = Claim { limit: 1, ..claim() };
    // The worker names the lost claim before the claim has arrived at the database.
    assert!(claimed(&stage, &Claim { limit: 0, lost_leases: vec![late.lease], ..claim() }).await.is_empty());
    claimed(&stage, &late).await;
    let found = claimed(&stage, &Claim { lost_leases: vec![late.lease], ..claim() }).await;
    assert_eq!(found.iter().map(|one| one.execution.execution_id).collect::<Vec<_>>(), [run]);
}

#[tokio::test]
async fn unreadable_run_does_not_block_the_claim_of_others() {
    let stage = Fixture::new().await;
    let (bad, good) = (queued_run(&stage).await, queued_run(&stage).await);
    stage
        .run(&format!("UPDATE execution_input SET sender = 'from another version' WHERE execution_id = '{bad}'"))
        .await;
    let all = claimed(&stage, &claim()).await;
    let of = |id| all.iter().find(|taken| taken.execution.execution_id == id).unwrap();
    assert!(of(good).request_context.is_some());
    assert!(
        of(bad).request_context.is_none(),
        "an unreadable run is returned without its data, so that the worker ends it"
    );
}

#[tokio::test]
async fn cancel_during_a_concurrent_claim_can_be_retried() {
    let stage = Fixture::new().await;
    let run = queued_run(&stage).await;
    let stop = CancelLease {
        lease_ref: LeaseRef { execution_id: run, lease: fresh() },
        lease_for: Duration::from_secs(30),
        deadline_in: Duration::from_secs(60),
    };
    // Another transaction removes the run from the queue and inserts its lease, both after the snapshot of the
    // cancel statement.
    let owner = connect(&stage.database.url()).await;
    owner.batch_execute("BEGIN; DELETE FROM execution_queue").await.unwrap();
    let lease = format!(
        "INSERT INTO execution_lease (tenant_id, execution_id, token, lease_for, lapses_at, deadline_at)
         VALUES ('{}', '{run}', gen_random_uuid(), '30 seconds', now() + interval '30 seconds', now() + interval '1 hour')",
        scope().tenant()
    );
    owner.batch_execute(&lease).await.unwrap();
    let (store, by) = (stage.store.clone(), actor());
    let stopping = tokio::spawn(async move { store.request_cancel(scope(), stop, &by, None).await });
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
    while stage.query_number(waits).await == 0 {
        tokio::task::yield_now().await;
    }
    owner.batch_execute("COMMIT").await.unwrap();
    assert_eq!(stopping.await.unwrap().unwrap(), CancelOutcome::AlreadyEnded, "the caller retries");
    assert_eq!(stage.store.request_cancel(scope(), stop, &actor(), None).await.unwrap(), CancelOutcome::WorkerNotified);
}

/// Inputs whose JSON text has `bytes` bytes.
fn inputs_of_size(bytes: usize) -> Payload {
    Payload { body: format!("\"{}\"", "x".repeat(bytes - 2)).into(), salt: [7; 16] }
}

/// Stores a queued run with these inputs.
async fn queued_run_with(stage: &Fixture, inputs: Payload) -> ExecutionId {
    let (workload, placed) = stage.active().await;
    let on = stage.accepted_on(&workload, &placed).await;
    let run = Acceptance { inputs, ..queued(&placed) };
    assert_eq!(stage.store.accept(scope(), &run, on, None).await.unwrap(), AcceptOutcome::Accepted);
    run.execution_id
}

fn ids(claimed: &[ClaimedRun]) -> Vec<ExecutionId> {
    claimed.iter().map(|one| one.execution.execution_id).collect()
}

fn inputs_of(claimed: &[ClaimedRun], id: ExecutionId) -> &ClaimedInputs {
    &claimed.iter().find(|one| one.execution.execution_id == id).unwrap().inputs
}

#[tokio::test]
async fn claim_reads_small_inputs_and_leaves_large_ones_to_be_read_later() {
    let stage = Fixture::new().await;
    let max = claim().max_input_bytes;
    let (small, large) =
        (queued_run_with(&stage, inputs_of_size(max)).await, queued_run_with(&stage, inputs_of_size(max + 1)).await);
    let erased = queued_run_with(&stage, inputs_of_size(max + 1)).await;
    stage.run(&format!("DELETE FROM execution_input WHERE execution_id = '{erased}'")).await;
    let all = claimed(&stage, &claim()).await;
    assert_eq!(inputs_of(&all, small), &ClaimedInputs::Loaded(inputs_of_size(max)));
    assert_eq!(inputs_of(&all, large), &ClaimedInputs::NotLoaded);
    assert_eq!(inputs_of(&all, erased), &ClaimedInputs::Erased);
    let read = async |id| stage.store.inputs(scope(), id).await.unwrap();
    assert_eq!(read(large).await, Some(inputs_of_size(max + 1)));
    assert_eq!(read(erased).await, None);
    // A reclaim of an expired lease loads the inputs in the same way.
    expire_leases(&stage).await;
    let again = claimed(&stage, &claim()).await;
    assert_eq!(inputs_of(&again, small), &ClaimedInputs::Loaded(inputs_of_size(max)));
    assert_eq!(inputs_of(&again, large), &ClaimedInputs::NotLoaded);
}

#[tokio::test]
async fn claim_without_large_runs_takes_later_small_ones() {
    let stage = Fixture::new().await;
    let max = claim().max_input_bytes;
    let large = queued_run_with(&stage, inputs_of_size(max + 1)).await;
    let small = [queued_run_with(&stage, inputs_of_size(max)).await, queued_run(&stage).await];
    // The large run is the oldest. It is skipped, and does not count towards the limit of the claim.
    let without = Claim { takes_large: false, limit: 2, per_tenant_limit: 2, ..claim() };
    assert_eq!(ids(&claimed(&stage, &without).await), small);
    assert!(claimed(&stage, &without).await.is_empty());
    assert_eq!(stage.query_number("SELECT count(*) FROM execution_queue").await, 1, "the large run stays queued");
    assert_eq!(ids(&claimed(&stage, &claim()).await), [large]);
}

#[tokio::test]
async fn claim_skips_large_runs_of_named_tenants_only() {
    let stage = Fixture::new().await;
    let max = claim().max_input_bytes;
    let large = queued_run_with(&stage, inputs_of_size(max + 1)).await;
    let small = queued_run(&stage).await;
    // Adds a large run of another tenant, without an execution row.
    queue_runs_of(&stage, &[9], 1).await;
    stage
        .run(&format!(
            "INSERT INTO execution_input SELECT (jsonb_populate_record(input, jsonb_build_object('tenant_id', line.tenant_id,
                'execution_id', line.execution_id))).*
             FROM execution_input AS input, execution_queue AS line
             WHERE input.execution_id = '{large}' AND line.tenant_id = '{}'",
            Uuid::from_u128(9)
        ))
        .await;
    let left = "SELECT tenant_id FROM execution_queue";
    let other = TenantId::from(Uuid::from_u128(9));
    let claims = |no_large_tenants| Claim { no_large_tenants, ..claim() };
    // If `takes_large` is false, the claim skips large runs of all tenants.
    let none = Claim { takes_large: false, ..claims(Vec::new()) };
    assert_eq!(ids(&claimed(&stage, &none).await), [small]);
    assert_eq!(stage.owner.query(left, &[]).await.unwrap().len(), 2);
    assert!(claimed(&stage, &claims(vec![scope().tenant(), other])).await.is_empty());
    assert_eq!(stage.owner.query(left, &[]).await.unwrap().len(), 2);
    // The claim removes the large run of the tenant that is not listed in `no_large_tenants`.
    assert!(claimed(&stage, &claims(vec![scope().tenant()])).await.is_empty());
    let [row] = &stage.owner.query(left, &[]).await.unwrap()[..] else { panic!("one run is left in the queue") };
    assert_eq!(row.get::<_, Uuid>(0), scope().tenant().uuid());
    assert_eq!(ids(&claimed(&stage, &claims(vec![other])).await), [large]);
}

/// A claim without large runs still reclaims expired leases of large runs, because those runs were claimed before.
#[tokio::test]
async fn claim_without_large_runs_reclaims_expired_large_runs() {
    let stage = Fixture::new().await;
    let large = queued_run_with(&stage, inputs_of_size(claim().max_input_bytes + 1)).await;
    assert_eq!(ids(&claimed(&stage, &claim()).await), [large]);
    expire_leases(&stage).await;
    let without = Claim { takes_large: false, no_large_tenants: vec![scope().tenant()], ..claim() };
    let again = claimed(&stage, &without).await;
    assert_eq!((ids(&again), &again[0].inputs), (vec![large], &ClaimedInputs::NotLoaded));
}
