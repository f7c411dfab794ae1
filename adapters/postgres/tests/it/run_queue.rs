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

/// Stores a queued run of a new workload.
async fn queued_run(fixture: &Fixture) -> ExecutionId {
    let (workload, deployed_release) = fixture.active().await;
    let revisions = fixture.expected_revisions(&workload, &deployed_release).await;
    let run = queued(&deployed_release);
    assert_eq!(fixture.store.accept(scope(), &run, revisions, None).await.unwrap(), AcceptOutcome::Accepted);
    run.execution_id
}

async fn claimed(fixture: &Fixture, claim: &Claim) -> Vec<ClaimedRun> {
    fixture.store.claim(claim).await.unwrap()
}

fn lease_ref(claimed: &ClaimedRun) -> LeaseRef {
    LeaseRef { execution_id: claimed.execution.execution_id, lease: claimed.lease }
}

async fn expire_leases(fixture: &Fixture) {
    fixture.run("UPDATE execution_lease SET lapses_at = fairway_now() - interval '1 second'").await;
}

/// Adds queue entries of other tenants. They have no execution rows, because only their order matters.
async fn queue_runs_of(fixture: &Fixture, tenants: &[u128], runs_per_tenant: usize) {
    for tenant in tenants {
        for _ in 0..runs_per_tenant {
            let (tenant, run) = (Uuid::from_u128(*tenant), Uuid::now_v7());
            fixture.run(&format!("INSERT INTO execution_queue VALUES ('{tenant}', '{run}')")).await;
        }
    }
}

const QUEUED_RUNS: &str = "SELECT tenant_id, execution_id FROM execution_queue ORDER BY 1, 2";

/// Claims runs. Returns the tenants of the removed queue entries, in the order of the queue.
async fn dequeued_tenants(fixture: &Fixture, limit: u16, per_tenant_limit: u16, after: Option<u128>) -> Vec<u128> {
    let token = fresh();
    let after = after.map(|tenant| TenantId::from(Uuid::from_u128(tenant)));
    let before = fixture.owner.query(QUEUED_RUNS, &[]).await.unwrap();
    let claim = Claim { lease: token, limit, per_tenant_limit, after_tenant: after, ..claim() };
    // The queue entries have no execution rows, so the claim returns no run.
    assert!(claimed(fixture, &claim).await.is_empty());
    let remaining = fixture.owner.query(QUEUED_RUNS, &[]).await.unwrap();
    let run = |row: &tokio_postgres::Row| (row.get::<_, Uuid>(0), row.get::<_, Uuid>(1));
    let remaining: Vec<(Uuid, Uuid)> = remaining.iter().map(run).collect();
    before.iter().map(run).filter(|run| !remaining.contains(run)).map(|(tenant, _)| tenant.as_u128()).collect()
}

#[tokio::test]
async fn claims_tenants_round_robin_after_the_last_one() {
    let fixture = Fixture::new().await;
    queue_runs_of(&fixture, &[1, 2, 3], 5).await;
    assert_eq!(dequeued_tenants(&fixture, 4, 2, None).await, [1, 1, 2, 2]);
    assert_eq!(
        dequeued_tenants(&fixture, 4, 2, Some(2)).await,
        [1, 1, 3, 3],
        "after the second tenant come the third and then the first"
    );
    assert_eq!(dequeued_tenants(&fixture, 9, 2, Some(1)).await, [1, 2, 2, 3, 3]);
    assert_eq!(dequeued_tenants(&fixture, 9, 9, Some(3)).await, [2, 3]);
    assert_eq!(dequeued_tenants(&fixture, 9, 9, Some(3)).await, [0_u128; 0]);
}

#[tokio::test]
async fn every_claim_serves_a_single_tenant() {
    let fixture = Fixture::new().await;
    queue_runs_of(&fixture, &[7], 5).await;
    for _ in 0..2 {
        assert_eq!(dequeued_tenants(&fixture, 4, 2, Some(7)).await, [7, 7]);
    }
}

#[tokio::test]
async fn saturated_tenants_get_no_queued_and_no_expired_runs() {
    let fixture = Fixture::new().await;
    let run = queued_run(&fixture).await;
    let saturated_claim = Claim { saturated: vec![scope().tenant()], ..claim() };
    assert!(claimed(&fixture, &saturated_claim).await.is_empty());
    assert_eq!(claimed(&fixture, &claim()).await.len(), 1);
    expire_leases(&fixture).await;
    assert!(claimed(&fixture, &saturated_claim).await.is_empty());
    let reclaimed = claimed(&fixture, &claim()).await;
    assert_eq!(reclaimed.iter().map(|claimed_run| claimed_run.execution.execution_id).collect::<Vec<_>>(), [run]);
}

#[tokio::test]
async fn released_leases_do_not_count_as_reclaims() {
    let fixture = Fixture::new().await;
    queued_run(&fixture).await;
    let first = claimed(&fixture, &claim()).await;
    fixture.store.release_lease(scope(), lease_ref(&first[0])).await.unwrap();
    let second = claimed(&fixture, &claim()).await;
    assert_eq!((second.len(), second[0].reclaims, second[0].round_position), (1, 0, 0));
    expire_leases(&fixture).await;
    assert_eq!(claimed(&fixture, &claim()).await[0].reclaims, 1);
    fixture.run("UPDATE execution_lease SET takeovers = 32767").await;
    expire_leases(&fixture).await;
    assert_eq!(claimed(&fixture, &claim()).await[0].reclaims, 1_000, "the reclaim count saturates");
}

#[tokio::test]
async fn next_claim_finds_the_runs_of_a_lost_claim() {
    let fixture = Fixture::new().await;
    let (first, second) = (queued_run(&fixture).await, queued_run(&fixture).await);
    let runs = |claimed: &[ClaimedRun]| {
        claimed.iter().map(|claimed_run| claimed_run.execution.execution_id).collect::<Vec<_>>()
    };
    let lost_claim = Claim { limit: 1, ..claim() };
    assert_eq!(runs(&claimed(&fixture, &lost_claim).await), [first]);
    // The response to the first claim was lost. The next claim names the lost lease and gets the same run.
    let second_claim = Claim { limit: 1, lost_leases: vec![fresh(), lost_claim.lease], ..claim() };
    let found = claimed(&fixture, &second_claim).await;
    assert_eq!(
        (runs(&found), found[0].lease, found[0].reclaims, found[0].round_position),
        (vec![first], second_claim.lease, 0, 0)
    );
    assert_eq!(fixture.query_number("SELECT count(*) FROM execution_queue").await, 1);
    // A run that was returned is not returned again. If its limit permits, the claim continues with the queue.
    let third_claim = Claim { lost_leases: vec![lost_claim.lease], ..claim() };
    assert_eq!(runs(&claimed(&fixture, &third_claim).await), [second]);
    // If the lease of a lost claim has expired, the run is returned once. This does not count as a reclaim.
    expire_leases(&fixture).await;
    let late_claim = Claim { lost_leases: vec![second_claim.lease], ..claim() };
    let claimed_runs = claimed(&fixture, &late_claim).await;
    let mut counts: Vec<_> =
        claimed_runs.iter().map(|claimed_run| (claimed_run.execution.execution_id, claimed_run.reclaims)).collect();
    counts.sort();
    assert_eq!(counts, [(first, 0), (second, 1)]);
}

#[tokio::test]
async fn repeated_cancel_finds_the_run_of_the_lost_attempt() {
    let fixture = Fixture::new().await;
    let run = queued_run(&fixture).await;
    let cancel = CancelLease {
        lease_ref: LeaseRef { execution_id: run, lease: fresh() },
        lease_for: Duration::from_secs(30),
        deadline_in: Duration::from_secs(60),
    };
    for _ in 0..2 {
        assert_eq!(
            fixture.store.request_cancel(scope(), cancel, &actor(), None).await.unwrap(),
            CancelOutcome::LeaseTaken
        );
    }
    let other_cancel = CancelLease { lease_ref: LeaseRef { execution_id: run, lease: fresh() }, ..cancel };
    assert_eq!(
        fixture.store.request_cancel(scope(), other_cancel, &actor(), None).await.unwrap(),
        CancelOutcome::WorkerNotified
    );
}

#[tokio::test]
async fn next_claim_finds_a_claim_that_arrived_late() {
    let fixture = Fixture::new().await;
    let run = queued_run(&fixture).await;
    let late_claim = Claim { limit: 1, ..claim() };
    // The worker names the lost claim before the claim has arrived at the database.
    assert!(claimed(&fixture, &Claim { limit: 0, lost_leases: vec![late_claim.lease], ..claim() }).await.is_empty());
    claimed(&fixture, &late_claim).await;
    let found = claimed(&fixture, &Claim { lost_leases: vec![late_claim.lease], ..claim() }).await;
    assert_eq!(found.iter().map(|claimed_run| claimed_run.execution.execution_id).collect::<Vec<_>>(), [run]);
}

#[tokio::test]
async fn unreadable_run_does_not_block_the_claim_of_others() {
    let fixture = Fixture::new().await;
    let (unreadable, readable) = (queued_run(&fixture).await, queued_run(&fixture).await);
    fixture
        .run(&format!("UPDATE execution_input SET sender = 'from another version' WHERE execution_id = '{unreadable}'"))
        .await;
    let all = claimed(&fixture, &claim()).await;
    let find = |id| all.iter().find(|claimed_run| claimed_run.execution.execution_id == id).unwrap();
    assert!(find(readable).request_context.is_some());
    assert!(
        find(unreadable).request_context.is_none(),
        "an unreadable run is returned without its data, so that the worker ends it"
    );
}

#[tokio::test]
async fn cancel_during_a_concurrent_claim_can_be_retried() {
    let fixture = Fixture::new().await;
    let run = queued_run(&fixture).await;
    let cancel = CancelLease {
        lease_ref: LeaseRef { execution_id: run, lease: fresh() },
        lease_for: Duration::from_secs(30),
        deadline_in: Duration::from_secs(60),
    };
    // Another transaction removes the run from the queue and inserts its lease, both after the snapshot of the
    // cancel statement.
    let owner = connect(&fixture.database.url_for_owner()).await;
    owner.batch_execute("BEGIN; DELETE FROM execution_queue").await.unwrap();
    let lease = format!(
        "INSERT INTO execution_lease (tenant_id, execution_id, token, lease_for, lapses_at, deadline_at)
         VALUES ('{}', '{run}', gen_random_uuid(), '30 seconds', now() + interval '30 seconds', now() + interval '1 hour')",
        scope().tenant()
    );
    owner.batch_execute(&lease).await.unwrap();
    let (store, canceller) = (fixture.store.clone(), actor());
    let cancel_task = tokio::spawn(async move { store.request_cancel(scope(), cancel, &canceller, None).await });
    let waiting_sql =
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
    while fixture.query_number(waiting_sql).await == 0 {
        tokio::task::yield_now().await;
    }
    owner.batch_execute("COMMIT").await.unwrap();
    assert_eq!(cancel_task.await.unwrap().unwrap(), CancelOutcome::AlreadyEnded, "the caller retries");
    assert_eq!(
        fixture.store.request_cancel(scope(), cancel, &actor(), None).await.unwrap(),
        CancelOutcome::WorkerNotified
    );
}

/// Inputs whose JSON text has `bytes` bytes.
fn inputs_of_size(bytes: usize) -> Payload {
    Payload { body: format!("\"{}\"", "x".repeat(bytes - 2)).into(), salt: [7; 16] }
}

/// Stores a queued run with these inputs.
async fn queued_run_with(fixture: &Fixture, inputs: Payload) -> ExecutionId {
    let (workload, deployed_release) = fixture.active().await;
    let revisions = fixture.expected_revisions(&workload, &deployed_release).await;
    let run = Acceptance { inputs, ..queued(&deployed_release) };
    assert_eq!(fixture.store.accept(scope(), &run, revisions, None).await.unwrap(), AcceptOutcome::Accepted);
    run.execution_id
}

fn ids(claimed: &[ClaimedRun]) -> Vec<ExecutionId> {
    claimed.iter().map(|claimed_run| claimed_run.execution.execution_id).collect()
}

fn inputs_of(claimed: &[ClaimedRun], id: ExecutionId) -> &ClaimedInputs {
    &claimed.iter().find(|claimed_run| claimed_run.execution.execution_id == id).unwrap().inputs
}

#[tokio::test]
async fn claim_reads_small_inputs_and_leaves_large_ones_to_be_read_later() {
    let fixture = Fixture::new().await;
    let max_bytes = claim().max_input_bytes;
    let (small, large) = (
        queued_run_with(&fixture, inputs_of_size(max_bytes)).await,
        queued_run_with(&fixture, inputs_of_size(max_bytes + 1)).await,
    );
    let erased = queued_run_with(&fixture, inputs_of_size(max_bytes + 1)).await;
    fixture.run(&format!("DELETE FROM execution_input WHERE execution_id = '{erased}'")).await;
    let all = claimed(&fixture, &claim()).await;
    assert_eq!(inputs_of(&all, small), &ClaimedInputs::Loaded(inputs_of_size(max_bytes)));
    assert_eq!(inputs_of(&all, large), &ClaimedInputs::NotLoaded);
    assert_eq!(inputs_of(&all, erased), &ClaimedInputs::Erased);
    let read = async |id| fixture.store.inputs(scope(), id).await.unwrap();
    assert_eq!(read(large).await, Some(inputs_of_size(max_bytes + 1)));
    assert_eq!(read(erased).await, None);
    // A reclaim of an expired lease loads the inputs in the same way.
    expire_leases(&fixture).await;
    let reclaimed = claimed(&fixture, &claim()).await;
    assert_eq!(inputs_of(&reclaimed, small), &ClaimedInputs::Loaded(inputs_of_size(max_bytes)));
    assert_eq!(inputs_of(&reclaimed, large), &ClaimedInputs::NotLoaded);
}

#[tokio::test]
async fn claim_without_large_runs_takes_later_small_ones() {
    let fixture = Fixture::new().await;
    let max_bytes = claim().max_input_bytes;
    let large = queued_run_with(&fixture, inputs_of_size(max_bytes + 1)).await;
    let small = [queued_run_with(&fixture, inputs_of_size(max_bytes)).await, queued_run(&fixture).await];
    // The large run is the oldest. It is skipped, and does not count towards the limit of the claim.
    let small_claim = Claim { takes_large: false, limit: 2, per_tenant_limit: 2, ..claim() };
    assert_eq!(ids(&claimed(&fixture, &small_claim).await), small);
    assert!(claimed(&fixture, &small_claim).await.is_empty());
    assert_eq!(fixture.query_number("SELECT count(*) FROM execution_queue").await, 1, "the large run stays queued");
    assert_eq!(ids(&claimed(&fixture, &claim()).await), [large]);
}

#[tokio::test]
async fn claim_skips_large_runs_of_named_tenants_only() {
    let fixture = Fixture::new().await;
    let max_bytes = claim().max_input_bytes;
    let large = queued_run_with(&fixture, inputs_of_size(max_bytes + 1)).await;
    let small = queued_run(&fixture).await;
    // Adds a large run of another tenant, without an execution row.
    queue_runs_of(&fixture, &[9], 1).await;
    fixture
        .run(&format!(
            "INSERT INTO execution_input SELECT (jsonb_populate_record(input, jsonb_build_object('tenant_id', queued.tenant_id,
                'execution_id', queued.execution_id))).*
             FROM execution_input AS input, execution_queue AS queued
             WHERE input.execution_id = '{large}' AND queued.tenant_id = '{}'",
            Uuid::from_u128(9)
        ))
        .await;
    let queue_sql = "SELECT tenant_id FROM execution_queue";
    let other_tenant = TenantId::from(Uuid::from_u128(9));
    let claims = |no_large_tenants| Claim { no_large_tenants, ..claim() };
    // If `takes_large` is false, the claim skips large runs of all tenants.
    let small_claim = Claim { takes_large: false, ..claims(Vec::new()) };
    assert_eq!(ids(&claimed(&fixture, &small_claim).await), [small]);
    assert_eq!(fixture.owner.query(queue_sql, &[]).await.unwrap().len(), 2);
    assert!(claimed(&fixture, &claims(vec![scope().tenant(), other_tenant])).await.is_empty());
    assert_eq!(fixture.owner.query(queue_sql, &[]).await.unwrap().len(), 2);
    // The claim removes the large run of the tenant that is not listed in `no_large_tenants`.
    assert!(claimed(&fixture, &claims(vec![scope().tenant()])).await.is_empty());
    let [row] = &fixture.owner.query(queue_sql, &[]).await.unwrap()[..] else { panic!("one run is left in the queue") };
    assert_eq!(row.get::<_, Uuid>(0), scope().tenant().uuid());
    assert_eq!(ids(&claimed(&fixture, &claims(vec![other_tenant])).await), [large]);
}

/// A claim without large runs still reclaims expired leases of large runs, because those runs were claimed before.
#[tokio::test]
async fn claim_without_large_runs_reclaims_expired_large_runs() {
    let fixture = Fixture::new().await;
    let large = queued_run_with(&fixture, inputs_of_size(claim().max_input_bytes + 1)).await;
    assert_eq!(ids(&claimed(&fixture, &claim()).await), [large]);
    expire_leases(&fixture).await;
    let small_claim = Claim { takes_large: false, no_large_tenants: vec![scope().tenant()], ..claim() };
    let reclaimed = claimed(&fixture, &small_claim).await;
    assert_eq!((ids(&reclaimed), &reclaimed[0].inputs), (vec![large], &ClaimedInputs::NotLoaded));
}
