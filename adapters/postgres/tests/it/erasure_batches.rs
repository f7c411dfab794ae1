//! Batches of an erasure: one process executes them at a time, they affect one tenant only, and they can be repeated.

use crate::fixture::{Fixture, acceptance, actor, ending, fresh, scope, stamp};
use fairway_domain::{
    access::ActorRef,
    audit::Stamp,
    erasure::{ErasureBatchOutcome, ErasureStore, SubjectErasure},
    execution::ports::RunStore,
    id::ErasureId,
};
use uuid::Uuid;

/// Creates a finished run of the actor, and a copy of the run in another tenant.
async fn fixture_with_runs() -> Fixture {
    let fixture = Fixture::new().await;
    let (workload, deployed_release) = fixture.active().await;
    let revisions = fixture.expected_revisions(&workload, &deployed_release).await;
    let run = acceptance(&deployed_release);
    fixture.store.accept(scope(), &run, revisions, None).await.unwrap();
    fixture.store.finish(scope(), &ending(&run)).await.unwrap();
    let other = Uuid::now_v7();
    for table in ["execution", "execution_input", "execution_result"] {
        fixture
            .run(&format!(
                "INSERT INTO {table} SELECT (jsonb_populate_record(run, '{{\"tenant_id\": \"{other}\"}}')).* FROM {table} AS run"
            ))
            .await;
    }
    fixture
}

/// Creates an approved erasure of the actor's texts.
async fn approved(fixture: &Fixture) -> ErasureId {
    let change = SubjectErasure::request(fresh(), actor(), &stamp()).unwrap();
    let erasure = change.next.clone();
    fixture.store.commit_request(scope(), change, None).await.unwrap();
    let by_another = Stamp { actor: ActorRef::parse("user:grace").unwrap(), ..stamp() };
    fixture.store.commit_decision(scope(), erasure.approve(&by_another).unwrap(), None).await.unwrap();
    erasure.erasure_id
}

/// Erases batches until nothing is left to do for now. Returns the outcome of each batch.
async fn batches(fixture: &Fixture, erasure: ErasureId) -> Vec<ErasureBatchOutcome> {
    let mut outcomes = Vec::new();
    while outcomes.last().is_none_or(|last| *last == ErasureBatchOutcome::More) {
        outcomes.push(fixture.store.erase_batch(scope(), erasure).await.unwrap());
    }
    outcomes
}

/// A run gets its identifier before its commit. It can therefore appear at a position that the scan has already passed.
#[tokio::test]
async fn run_that_commits_behind_the_scan_is_erased_too() {
    let fixture = Fixture::new().await;
    let (workload, deployed_release) = fixture.active().await;
    let revisions = fixture.expected_revisions(&workload, &deployed_release).await;
    let late_run = acceptance(&deployed_release);
    let erasure = approved(&fixture).await;
    assert_eq!(batches(&fixture, erasure).await.last(), Some(&ErasureBatchOutcome::Waiting));
    fixture.store.accept(scope(), &late_run, revisions, None).await.unwrap();
    fixture.store.finish(scope(), &ending(&late_run)).await.unwrap();
    assert_eq!(batches(&fixture, erasure).await, [ErasureBatchOutcome::Waiting], "it may not be the last one");
    assert_eq!(fixture.query_number("SELECT count(*) FROM execution_input").await, 1);
    fixture.database.set_clock_offset(200).await.unwrap();
    assert_eq!(batches(&fixture, erasure).await.last(), Some(&ErasureBatchOutcome::Done));
    assert_eq!(fixture.query_number("SELECT count(*) FROM execution_input").await, 0);
    assert_eq!(fixture.query_number("SELECT runs FROM subject_erasure").await, 1);
}

/// Each tenant is listed once, so that a tenant with many erasures does not delay the erasures of others.
#[tokio::test]
async fn lists_each_tenant_once() {
    let fixture = Fixture::new().await;
    for _ in 0..30 {
        approved(&fixture).await;
    }
    let other = Uuid::now_v7();
    let copy = format!(
        "INSERT INTO subject_erasure SELECT (jsonb_populate_record(made, '{{\"tenant_id\": \"{other}\"}}')).*
         FROM subject_erasure AS made LIMIT 1"
    );
    fixture.run(&copy).await;
    let mut listed_tenants: Vec<_> =
        fixture.store.list_approved().await.unwrap().iter().map(|(scope, _)| scope.tenant().uuid()).collect();
    listed_tenants.sort_unstable();
    let mut expected = [scope().tenant().uuid(), other];
    expected.sort_unstable();
    assert_eq!(listed_tenants, expected);
}

#[tokio::test]
async fn erasure_stays_in_its_tenant_and_marks_runs_once() {
    let fixture = fixture_with_runs().await;
    let (first, second) = (approved(&fixture).await, approved(&fixture).await);
    for erasure in [first, second] {
        assert_eq!(batches(&fixture, erasure).await, [ErasureBatchOutcome::More, ErasureBatchOutcome::Waiting]);
        fixture.database.set_clock_offset(200).await.unwrap();
        let repeated = [ErasureBatchOutcome::More, ErasureBatchOutcome::More, ErasureBatchOutcome::Done];
        assert_eq!(batches(&fixture, erasure).await, repeated);
        fixture.database.set_clock_offset(0).await.unwrap();
        // A process could be killed after its last batch, before it records the completion. Another batch then
        // changes nothing.
        assert_eq!(fixture.store.erase_batch(scope(), erasure).await.unwrap(), ErasureBatchOutcome::Done);
    }
    let counts = [first, second].map(|id| format!("SELECT runs FROM subject_erasure WHERE erasure_id = '{id}'"));
    assert_eq!((fixture.query_number(&counts[0]).await, fixture.query_number(&counts[1]).await), (1, 0));
    for table in ["execution_input", "execution_result"] {
        assert_eq!(
            fixture.query_number(&format!("SELECT count(*) FROM {table}")).await,
            1,
            "{table} of the other tenant"
        );
    }
    let marked = format!("SELECT count(*) FROM execution WHERE erasure_id = '{first}' AND erased_at IS NOT NULL");
    assert_eq!(fixture.query_number(&marked).await, 1);
}

#[tokio::test]
async fn one_process_at_a_time_executes_an_erasure() {
    let fixture = fixture_with_runs().await;
    let erasure = approved(&fixture).await;
    let other = crate::fixture::connect(&fixture.database.url_for_owner()).await;
    other.batch_execute("BEGIN; SELECT FROM subject_erasure FOR UPDATE").await.unwrap();
    assert_eq!(fixture.store.erase_batch(scope(), erasure).await.unwrap(), ErasureBatchOutcome::Taken);
    assert_eq!(fixture.query_number("SELECT count(*) FROM execution_input").await, 2);
    other.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(fixture.store.erase_batch(scope(), erasure).await.unwrap(), ErasureBatchOutcome::More);
    assert_eq!(fixture.query_number("SELECT count(*) FROM execution_input").await, 1);
    // An erasure that is only requested, and not approved, is not executed.
    let requested = SubjectErasure::request(fresh(), actor(), &stamp()).unwrap();
    let id = requested.next.erasure_id;
    fixture.store.commit_request(scope(), requested, None).await.unwrap();
    assert_eq!(fixture.store.erase_batch(scope(), id).await.unwrap(), ErasureBatchOutcome::Taken);
}
