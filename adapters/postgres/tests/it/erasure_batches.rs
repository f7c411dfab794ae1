//! Batches of an erasure: one process executes them at a time, they affect one tenant only, and they can be repeated.

use crate::fixture::{Fixture, acceptance, actor, ending, fresh, scope, stamp};
use fairway_domain::{
    access::ActorRef,
    audit::Stamp,
    erasure::{BatchOutcome, ErasureStore, SubjectErasure},
    execution::ports::RunStore,
    id::ErasureId,
};
use uuid::Uuid;

/// Creates a finished run of the actor, and a copy of the run in another tenant.
async fn stage_with_runs() -> Fixture {
    let stage = Fixture::new().await;
    let (workload, placed) = stage.active().await;
    let on = stage.accepted_on(&workload, &placed).await;
    let run = acceptance(&placed);
    stage.store.accept(scope(), &run, on, None).await.unwrap();
    stage.store.finish(scope(), &ending(&run)).await.unwrap();
    let other = Uuid::now_v7();
    for table in ["execution", "execution_input", "execution_result"] {
        stage
            .run(&format!(
                "INSERT INTO {table} SELECT (jsonb_populate_record(run, '{{\"tenant_id\": \"{other}\"}}')).* FROM {table} AS run"
            ))
            .await;
    }
    stage
}

/// Creates an approved erasure of the actor's texts.
async fn approved(stage: &Fixture) -> ErasureId {
    let change = SubjectErasure::request(fresh(), actor(), &stamp()).unwrap();
    let erasure = change.next.clone();
    stage.store.commit_request(scope(), change, None).await.unwrap();
    let by_another = Stamp { actor: ActorRef::parse("user:grace").unwrap(), ..stamp() };
    stage.store.commit_decision(scope(), erasure.approve(&by_another).unwrap(), None).await.unwrap();
    erasure.erasure_id
}

/// Erases batches until nothing is left to do for now. Returns the outcome of each batch.
async fn batches(stage: &Fixture, erasure: ErasureId) -> Vec<BatchOutcome> {
    let mut outcomes = Vec::new();
    while outcomes.last().is_none_or(|last| *last == BatchOutcome::More) {
        outcomes.push(stage.store.erase_batch(scope(), erasure).await.unwrap());
    }
    outcomes
}

/// A run gets its identifier before its commit. It can therefore appear at a position that the scan has already passed.
#[tokio::test]
async fn run_that_commits_behind_the_scan_is_erased_too() {
    let stage = Fixture::new().await;
    let (workload, placed) = stage.active().await;
    let on = stage.accepted_on(&workload, &placed).await;
    let late = acceptance(&placed);
    let erasure = approved(&stage).await;
    assert_eq!(batches(&stage, erasure).await.last(), Some(&BatchOutcome::Waiting));
    stage.store.accept(scope(), &late, on, None).await.unwrap();
    stage.store.finish(scope(), &ending(&late)).await.unwrap();
    assert_eq!(batches(&stage, erasure).await, [BatchOutcome::Waiting], "it may not be the last one");
    assert_eq!(stage.query_number("SELECT count(*) FROM execution_input").await, 1);
    stage.database.move_clock(200).await.unwrap();
    assert_eq!(batches(&stage, erasure).await.last(), Some(&BatchOutcome::Done));
    assert_eq!(stage.query_number("SELECT count(*) FROM execution_input").await, 0);
    assert_eq!(stage.query_number("SELECT runs FROM subject_erasure").await, 1);
}

/// However many erasures one tenant has, each tenant is listed once, so no other tenant waits for them.
#[tokio::test]
async fn each_tenant_is_drawn_once() {
    let stage = Fixture::new().await;
    for _ in 0..30 {
        approved(&stage).await;
    }
    let other = Uuid::now_v7();
    let copy = format!(
        "INSERT INTO subject_erasure SELECT (jsonb_populate_record(made, '{{\"tenant_id\": \"{other}\"}}')).*
         FROM subject_erasure AS made LIMIT 1"
    );
    stage.run(&copy).await;
    let mut drawn: Vec<_> =
        stage.store.list_approved().await.unwrap().iter().map(|one| one.0.tenant().uuid()).collect();
    drawn.sort_unstable();
    let mut expected = [scope().tenant().uuid(), other];
    expected.sort_unstable();
    assert_eq!(drawn, expected);
}

#[tokio::test]
async fn erasure_stays_in_its_tenant_and_marks_runs_once() {
    let stage = stage_with_runs().await;
    let (first, second) = (approved(&stage).await, approved(&stage).await);
    for erasure in [first, second] {
        assert_eq!(batches(&stage, erasure).await, [BatchOutcome::More, BatchOutcome::Waiting]);
        stage.database.move_clock(200).await.unwrap();
        let repeated = [BatchOutcome::More, BatchOutcome::More, BatchOutcome::Done];
        assert_eq!(batches(&stage, erasure).await, repeated);
        stage.database.move_clock(0).await.unwrap();
        // A process could be killed after its last batch, before it records the completion. Another batch then
        // changes nothing.
        assert_eq!(stage.store.erase_batch(scope(), erasure).await.unwrap(), BatchOutcome::Done);
    }
    let counts = [first, second].map(|id| format!("SELECT runs FROM subject_erasure WHERE erasure_id = '{id}'"));
    assert_eq!((stage.query_number(&counts[0]).await, stage.query_number(&counts[1]).await), (1, 0));
    for table in ["execution_input", "execution_result"] {
        assert_eq!(
            stage.query_number(&format!("SELECT count(*) FROM {table}")).await,
            1,
            "{table} of the other tenant"
        );
    }
    let marked = format!("SELECT count(*) FROM execution WHERE erasure_id = '{first}' AND erased_at IS NOT NULL");
    assert_eq!(stage.query_number(&marked).await, 1);
}

#[tokio::test]
async fn one_process_at_a_time_carries_an_erasure_out() {
    let stage = stage_with_runs().await;
    let erasure = approved(&stage).await;
    let other = crate::fixture::connect(&stage.database.url()).await;
    other.batch_execute("BEGIN; SELECT FROM subject_erasure FOR UPDATE").await.unwrap();
    assert_eq!(stage.store.erase_batch(scope(), erasure).await.unwrap(), BatchOutcome::Taken);
    assert_eq!(stage.query_number("SELECT count(*) FROM execution_input").await, 2);
    other.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(stage.store.erase_batch(scope(), erasure).await.unwrap(), BatchOutcome::More);
    assert_eq!(stage.query_number("SELECT count(*) FROM execution_input").await, 1);
    // An erasure that is only requested, and not approved, is not executed.
    let requested = SubjectErasure::request(fresh(), actor(), &stamp()).unwrap();
    let id = requested.next.erasure_id;
    stage.store.commit_request(scope(), requested, None).await.unwrap();
    assert_eq!(stage.store.erase_batch(scope(), id).await.unwrap(), BatchOutcome::Taken);
}
