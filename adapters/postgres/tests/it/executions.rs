//! Runs: accepted under current revisions, and ended once, by the process that owns the lease.

use crate::fixture::{Fixture, RETENTION, acceptance, actor, denied, ending, fresh, lease_of, run_ref, scope, stamp};
use fairway_domain::{
    evidence::lineage::LineageFilter,
    execution::{
        Acceptance, Execution, ExecutionOutcome, FinishRecord, Payload, RunError, Status,
        dispatch::LeaseRef,
        ports::{
            AcceptOutcome, EventStore, ExecutionStore, ExpectedRevisions, LapsedFilter, LeaseState, LeaseStore,
            RunStore,
        },
    },
    idempotency::{IdempotencyStore, KeyState, RequestKey},
    release::ports::DeploymentStore,
    store::CommitError,
};
use std::sync::Arc;
use tokio::task::JoinSet;
use uuid::Uuid;

/// The duration of leases, in seconds.
const LEASE: i64 = crate::fixture::LEASE.as_secs().cast_signed();
const COUNT_ALL_ROWS: &str = "SELECT (SELECT count(*) FROM execution) + (SELECT count(*) FROM execution_lease)
    + (SELECT count(*) FROM execution_input) + (SELECT count(*) FROM policy_decision)
    + (SELECT count(*) FROM idempotency_key) + (SELECT count(*) FROM fact WHERE kind LIKE 'execution.%')";

fn key() -> RequestKey {
    RequestKey {
        key: Uuid::now_v7().to_string(),
        caller: actor(),
        route: "POST /v1/workloads/by-slug/x/execute".to_owned(),
        body_digest: [9; 32],
    }
}

async fn accepted(stage: &Fixture) -> Acceptance {
    let (workload, placed) = stage.active().await;
    let run = acceptance(&placed);
    let on = stage.accepted_on(&workload, &placed).await;
    assert_eq!(stage.store.accept(scope(), &run, on, None).await.unwrap(), AcceptOutcome::Accepted);
    run
}

async fn read(stage: &Fixture, run: &Acceptance) -> Execution {
    ExecutionStore::find(&*stage.store, scope(), run.execution_id).await.unwrap().unwrap()
}

async fn renewed(stage: &Fixture, run: &Acceptance) -> LeaseState {
    stage.store.renew(scope(), run.execution_id, lease_of(run)).await.unwrap()
}

/// The ending that recovery writes for a run whose expired lease it has reclaimed.
fn interrupted_ending(run: &Acceptance, lease: Uuid) -> FinishRecord {
    FinishRecord {
        lease,
        status: Status::Failed,
        outcome: ExecutionOutcome::Failure,
        error: Some(RunError::new("interrupted", "its process went away")),
        output: None,
        steps: Vec::new(),
        decisions: Vec::new(),
        artifacts: Vec::new(),
        fact: run_ref(run).ended_fact(ExecutionOutcome::Failure, Some("interrupted"), None, &stamp()),
        ..ending(run)
    }
}

async fn terminal_facts(stage: &Fixture, run: &Acceptance) -> i64 {
    let sql = format!(
        "SELECT count(*) FROM fact WHERE kind LIKE 'execution.%'
         AND convert_from(body, 'UTF8')::json -> 'subject' ->> 'id' = '{}'",
        run.execution_id
    );
    stage.query_number(&sql).await
}

#[tokio::test]
async fn reads_back_an_accepted_run_and_ends_it_once() {
    let stage = Fixture::new().await;
    let run = accepted(&stage).await;
    assert_eq!(read(&stage, &run).await.status, Status::Running);
    let end = ending(&run);
    stage.store.finish(scope(), &end).await.unwrap();
    let found = read(&stage, &run).await;
    assert_eq!((found.status, found.outcome), (Status::Completed, Some(ExecutionOutcome::Success)));
    assert_eq!(found.output, end.output.as_ref().map(|output| output.body.clone()));
    assert_eq!(found.finished_at, Some(end.finished_at));
    assert_eq!(found.reason_code, "a_rule");
    let evidence = stage.store.evidence(scope(), run.execution_id).await.unwrap().unwrap();
    assert_eq!(evidence.chain.release.release_id, run.release_id);
    assert_eq!(evidence.artifacts.len(), 1);
    assert_eq!(
        (evidence.effective_decision().unwrap().outcome.as_str(), evidence.decisions.len(), evidence.has_notes),
        ("allow", 2, true)
    );
    // Evidence does not contain the output, because the output has its own access check.
    let found = Execution { output: None, ..found };
    assert_eq!(evidence.execution, found);
    assert_eq!(evidence.input_digest, run.inputs.digest());
    assert_eq!(evidence.output_digest, end.output.as_ref().map(Payload::digest));
    assert_eq!(evidence.fulfilled, [("record_transcript".to_owned(), end.fulfilled[0].1)]);
    let (of, document) =
        stage.store.artifact(scope(), run.execution_id, end.artifacts[0].artifact_id).await.unwrap().unwrap();
    // The run is returned only for its scope, so its reason code is not loaded.
    let placed = Execution { reason_code: String::new(), ..found.clone() };
    assert_eq!((of, document.body["tokens"].as_u64()), (placed.clone(), Some(3)));
    assert_eq!(document.payload, Some(serde_json::json!({ "calls": [] })));
    let lineage =
        stage.store.lineage(scope(), run.execution_id, LineageFilter::default(), 50, 0).await.unwrap().unwrap();
    assert_eq!((lineage.execution, lineage.total, lineage.items.len()), (placed, 1, 1));
    assert_eq!(lineage.items[0].digest, fairway_domain::execution::digest_text(&run.inputs.digest()));
    assert!(!lineage.items[0].redacted);
    assert_eq!(stage.store.steps(scope(), run.execution_id).await.unwrap().len(), 1);
    let again = stage.store.finish(scope(), &end).await.unwrap_err();
    assert!(matches!(again, CommitError::Stale));
    assert_eq!(terminal_facts(&stage, &run).await, 1);
    assert_eq!(stage.query_number("SELECT count(*) FROM execution_lease").await, 0);
}

#[tokio::test]
async fn does_not_find_or_end_runs_of_another_tenant() {
    let stage = Fixture::new().await;
    let run = accepted(&stage).await;
    let stranger = fairway_domain::tenant::TenantScope::for_background_task(fresh());
    assert_eq!(ExecutionStore::find(&*stage.store, stranger, run.execution_id).await.unwrap(), None);
    let lost = stage.store.finish(stranger, &ending(&run)).await.unwrap_err();
    assert!(matches!(lost, CommitError::Stale));
    let renewed = stage.store.renew(stranger, run.execution_id, lease_of(&run)).await.unwrap();
    assert_eq!(renewed, LeaseState::Lost);
    assert_eq!(read(&stage, &run).await.status, Status::Running);
}

#[tokio::test]
async fn one_of_concurrent_accepts_with_one_key_succeeds() {
    let stage = Arc::new(Fixture::new().await);
    let (workload, placed) = stage.active().await;
    let on = stage.accepted_on(&workload, &placed).await;
    let key = key();
    let mut racers = JoinSet::new();
    for number in 0..12 {
        let (stage, key) = (Arc::clone(&stage), key.clone());
        let run = if number % 3 == 0 { denied(&placed) } else { acceptance(&placed) };
        racers.spawn(async move {
            let accepted = stage.store.accept(scope(), &run, on, Some(&key)).await.unwrap();
            (run.execution_id, accepted)
        });
    }
    let results = racers.join_all().await;
    let winners: Vec<_> = results.iter().filter(|(_, accepted)| *accepted == AcceptOutcome::Accepted).collect();
    assert_eq!(winners.len(), 1, "{results:?}");
    assert!(results.iter().all(|(_, accepted)| *accepted != AcceptOutcome::Stale));
    assert_eq!(stage.query_number("SELECT count(*) FROM execution").await, 1);
    assert_eq!(stage.query_number("SELECT count(*) FROM policy_decision").await, 1);
    let known = stage.store.key_state(scope(), &key).await.unwrap();
    assert_eq!(known, KeyState::InUse(winners[0].0.uuid()));
    let other = RequestKey { body_digest: [8; 32], ..key };
    assert_eq!(stage.store.key_state(scope(), &other).await.unwrap(), KeyState::DifferentBody);
}

/// Concurrent accepts and ends share statements. Each still gets its own result.
#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one scenario, read from its start to its end")]
async fn batched_accepts_and_ends_return_independent_results() {
    let stage = Arc::new(Fixture::new().await);
    let (workload, placed) = stage.active().await;
    let on = stage.accepted_on(&workload, &placed).await;
    let stale = ExpectedRevisions { workload: on.workload.next(), ..on };
    let shared = key();
    stage.store.accept(scope(), &acceptance(&placed), on, Some(&shared)).await.unwrap();
    let mut runners = JoinSet::new();
    for number in 0..40 {
        let (stage, placed, shared) = (Arc::clone(&stage), placed.clone(), shared.clone());
        runners.spawn(async move {
            let run = acceptance(&placed);
            let (on, key) = match number % 5 {
                0 => (stale, None),
                1 => (on, Some(shared)),
                2 => (on, Some(key())),
                _ => (on, None),
            };
            let accepted = stage.store.accept(scope(), &run, on, key.as_ref()).await.unwrap();
            (number, run, accepted)
        });
    }
    let mut accepted = Vec::new();
    for (number, run, answer) in runners.join_all().await {
        let expected = match number % 5 {
            0 => AcceptOutcome::Stale,
            1 => AcceptOutcome::DuplicateKey,
            _ => AcceptOutcome::Accepted,
        };
        assert_eq!(answer, expected, "{number}");
        let there = ExecutionStore::find(&*stage.store, scope(), run.execution_id).await.unwrap();
        assert_eq!(there.is_some(), answer == AcceptOutcome::Accepted);
        if answer == AcceptOutcome::Accepted {
            accepted.push(run);
        }
    }
    assert_eq!(accepted.len(), 24);
    assert_eq!(stage.query_number("SELECT count(*) FROM execution_lease").await, 25);
    assert_eq!(stage.query_number("SELECT count(*) FROM idempotency_key").await, 9);
    let mut enders = JoinSet::new();
    for (number, run) in accepted.into_iter().enumerate() {
        let stage = Arc::clone(&stage);
        enders.spawn(async move {
            let mut ended = ending(&run);
            if number % 2 == 0 {
                ended.decisions = Vec::new();
            }
            if number % 3 == 0 {
                ended.lease = Uuid::now_v7();
            }
            let answer = stage.store.finish(scope(), &ended).await;
            (number % 3 == 0, run, ended, answer)
        });
    }
    for (foreign, run, ended, answer) in enders.join_all().await {
        let now = read(&stage, &run).await;
        if foreign {
            assert!(matches!(answer, Err(CommitError::Stale)), "{answer:?}");
            assert_eq!((now.status, now.output), (Status::Running, None));
        } else {
            answer.unwrap();
            assert_eq!(now.status, ended.status);
            assert_eq!(now.output, ended.output.map(|output| output.body));
        }
    }
    assert_eq!(stage.query_number("SELECT count(*) FROM execution_lease").await, 9);
    assert_eq!(stage.query_number("SELECT count(*) FROM execution_result").await, 16);
    for told in ["fact WHERE kind LIKE 'execution.%'", "execution_step", "evidence_artifact"] {
        assert_eq!(stage.query_number(&format!("SELECT count(*) FROM {told}")).await, 16, "{told}");
    }
    // `xmin` identifies the transaction that wrote a row. Of 25 accepted runs, 16 have ended, half of them in a
    // transaction of their own.
    let transactions = |table: &str| format!("SELECT count(DISTINCT xmin::text) FROM {table}");
    assert!(stage.query_number(&transactions("execution_input")).await < 15);
    assert!(stage.query_number(&transactions("execution_result")).await < 14);
}

#[tokio::test]
async fn second_of_two_concurrent_ends_is_stale() {
    let stage = Fixture::new().await;
    let (one, other) = (accepted(&stage).await, accepted(&stage).await);
    let end = |run: &Acceptance| interrupted_ending(run, lease_of(run));
    let (first, second, between) = (end(&one), end(&one), end(&other));
    let store = &stage.store;
    let (first, between, second) =
        tokio::join!(store.finish(scope(), &first), store.finish(scope(), &between), store.finish(scope(), &second));
    between.unwrap();
    first.unwrap();
    assert!(matches!(second, Err(CommitError::Stale)), "{second:?}");
    assert_eq!(terminal_facts(&stage, &one).await, 1);
}

#[tokio::test]
async fn rejects_accepts_after_the_release_lost_its_lanes() {
    let stage = Arc::new(Fixture::new().await);
    let (workload, placed) = stage.active().await;
    let on = stage.accepted_on(&workload, &placed).await;
    let (sender, mut receiver) = tokio::sync::watch::channel(false);
    let mut runners = JoinSet::new();
    for _ in 0..4 {
        let (stage, placed, receiver) = (Arc::clone(&stage), placed.clone(), receiver.clone());
        runners.spawn(async move {
            let (mut before, mut after) = (0, 0);
            while after < 3 {
                let late = *receiver.borrow();
                match stage.store.accept(scope(), &acceptance(&placed), on, None).await.unwrap() {
                    AcceptOutcome::Accepted => {
                        assert!(!late, "a run was accepted after the retirement was committed");
                        before += 1;
                    }
                    AcceptOutcome::Stale => after += 1,
                    AcceptOutcome::DuplicateKey | AcceptOutcome::QueueFull | AcceptOutcome::LinkClosed => {
                        panic!("unexpected result of an accept")
                    }
                }
            }
            before
        });
    }
    let retirement = placed.release.retire(&placed.deployment, &stamp()).unwrap();
    stage.store.commit_lane_change(scope(), retirement, None).await.unwrap();
    sender.send(true).unwrap();
    receiver.changed().await.unwrap();
    let accepted: i64 = runners.join_all().await.into_iter().sum();
    assert_eq!(stage.query_number("SELECT count(*) FROM execution").await, accepted);
}

#[tokio::test]
async fn rejected_accepts_write_no_rows() {
    let stage = Fixture::new().await;
    let (workload, placed) = stage.active().await;
    let on = stage.accepted_on(&workload, &placed).await;
    let before = stage.query_number(COUNT_ALL_ROWS).await;
    let moved = |on: ExpectedRevisions| {
        [
            ExpectedRevisions { deployment: on.deployment.next(), ..on },
            ExpectedRevisions { workload: on.workload.next(), ..on },
            ExpectedRevisions { access: on.access.next(), ..on },
        ]
    };
    for on in moved(on) {
        for run in [acceptance(&placed), denied(&placed)] {
            assert_eq!(stage.store.accept(scope(), &run, on, Some(&key())).await.unwrap(), AcceptOutcome::Stale);
        }
    }
    stage.run("UPDATE workload SET status = 'suspended'").await;
    assert_eq!(
        stage.store.accept(scope(), &acceptance(&placed), on, Some(&key())).await.unwrap(),
        AcceptOutcome::Stale
    );
    assert_eq!(stage.query_number(COUNT_ALL_ROWS).await, before);
}

#[tokio::test]
async fn end_of_a_reclaimed_run_by_its_former_worker_writes_nothing() {
    let stage = Fixture::new().await;
    let run = accepted(&stage).await;
    let recovery = Uuid::now_v7();
    assert_eq!(stage.store.claim_lapsed(recovery, LapsedFilter::All).await.unwrap(), []);
    stage.database.move_clock(LEASE + 1).await.unwrap();
    let taken = stage.store.claim_lapsed(recovery, LapsedFilter::All).await.unwrap();
    assert_eq!(taken.len(), 1);
    assert_eq!(taken[0].execution.execution_id, run.execution_id);
    assert_eq!(taken[0].input_digest, run.inputs.digest());
    assert!(!taken[0].is_past_deadline);
    assert_eq!(
        stage.store.claim_lapsed(Uuid::now_v7(), LapsedFilter::All).await.unwrap(),
        [],
        "the new lease has not expired"
    );
    assert_eq!(renewed(&stage, &run).await, LeaseState::Lost);

    let late = stage.store.finish(scope(), &ending(&run)).await.unwrap_err();
    assert!(matches!(late, CommitError::Stale));
    assert_eq!(read(&stage, &run).await.status, Status::Running);
    assert_eq!(stage.query_number("SELECT count(*) FROM execution_result").await, 0);
    assert_eq!(terminal_facts(&stage, &run).await, 0);

    stage.store.finish(scope(), &interrupted_ending(&run, recovery)).await.unwrap();
    let late = stage.store.finish(scope(), &ending(&run)).await.unwrap_err();
    assert!(matches!(late, CommitError::Stale));
    let found = read(&stage, &run).await;
    assert_eq!((found.status, found.outcome, found.output), (Status::Failed, Some(ExecutionOutcome::Failure), None));
    assert_eq!(found.error.map(|error| error.code), Some("interrupted".to_owned()));
    assert_eq!(terminal_facts(&stage, &run).await, 1);
    assert_eq!(stage.query_number("SELECT count(*) FROM evidence_artifact").await, 0);
}

#[tokio::test]
async fn renewed_leases_are_not_reclaimed_and_deadlines_are_reported() {
    let stage = Fixture::new().await;
    let run = accepted(&stage).await;
    stage.database.move_clock(LEASE - 1).await.unwrap();
    assert_eq!(renewed(&stage, &run).await, LeaseState::Held);
    stage.database.move_clock(LEASE + 5).await.unwrap();
    assert_eq!(stage.store.claim_lapsed(Uuid::now_v7(), LapsedFilter::All).await.unwrap(), []);
    stage.database.move_clock(2 * LEASE).await.unwrap();
    assert_eq!(stage.store.claim_lapsed(Uuid::now_v7(), LapsedFilter::All).await.unwrap().len(), 1);
    stage.database.move_clock(3 * LEASE + 1).await.unwrap();
    let again = stage.store.claim_lapsed(Uuid::now_v7(), LapsedFilter::All).await.unwrap();
    assert_eq!(again.len(), 1, "the lease of a dead recovery expires too");
    assert!(again[0].is_past_deadline);
}

#[tokio::test]
async fn renewal_reports_a_stopped_workload() {
    let stage = Fixture::new().await;
    let run = accepted(&stage).await;
    stage.run("UPDATE workload SET status = 'suspended'").await;
    assert_eq!(renewed(&stage, &run).await, LeaseState::WorkloadStopped);
    stage.run("UPDATE workload SET status = 'registered'").await;
    assert_eq!(renewed(&stage, &run).await, LeaseState::Held);
}

#[tokio::test]
async fn only_the_holder_releases_a_lease_and_the_reclaimer_ends_the_run() {
    let stage = Fixture::new().await;
    let run = accepted(&stage).await;
    stage
        .store
        .release_lease(scope(), LeaseRef { execution_id: run.execution_id, lease: Uuid::now_v7() })
        .await
        .unwrap();
    assert_eq!(stage.store.claim_lapsed(Uuid::now_v7(), LapsedFilter::All).await.unwrap(), []);
    stage
        .store
        .release_lease(scope(), LeaseRef { execution_id: run.execution_id, lease: lease_of(&run) })
        .await
        .unwrap();
    assert_eq!(renewed(&stage, &run).await, LeaseState::Lost, "the former holder must lose its lease");
    let recovery = Uuid::now_v7();
    assert_eq!(stage.store.claim_lapsed(recovery, LapsedFilter::All).await.unwrap().len(), 1);
    stage
        .store
        .release_lease(scope(), LeaseRef { execution_id: run.execution_id, lease: lease_of(&run) })
        .await
        .unwrap();
    assert_eq!(
        stage.store.claim_lapsed(Uuid::now_v7(), LapsedFilter::All).await.unwrap(),
        [],
        "the former holder must not release the new lease"
    );
    stage.store.finish(scope(), &interrupted_ending(&run, recovery)).await.unwrap();
    assert_eq!(terminal_facts(&stage, &run).await, 1);
}

#[tokio::test]
async fn concurrent_recoveries_end_each_expired_run_once() {
    let stage = Arc::new(Fixture::new().await);
    let (workload, placed) = stage.active().await;
    let on = stage.accepted_on(&workload, &placed).await;
    let mut runs = Vec::new();
    for _ in 0..50 {
        let run = acceptance(&placed);
        stage.store.accept(scope(), &run, on, None).await.unwrap();
        runs.push(run);
    }
    stage.database.move_clock(LEASE + 1).await.unwrap();
    let runs = Arc::new(runs);
    let mut recoveries = JoinSet::new();
    for _ in 0..4 {
        let (stage, runs) = (Arc::clone(&stage), Arc::clone(&runs));
        recoveries.spawn(async move {
            let mut ended = 0;
            loop {
                let taken = stage.store.claim_lapsed(Uuid::now_v7(), LapsedFilter::All).await.unwrap();
                if taken.is_empty() {
                    return ended;
                }
                for lapsed in taken {
                    let mut all = runs.iter();
                    let run = all.find(|run| run.execution_id == lapsed.execution.execution_id).unwrap();
                    stage.store.finish(scope(), &interrupted_ending(run, lapsed.lease)).await.unwrap();
                    ended += 1;
                }
            }
        });
    }
    assert_eq!(recoveries.join_all().await.into_iter().sum::<usize>(), runs.len());
    let ended = "SELECT count(*) FROM fact WHERE kind = 'execution.ended'";
    assert_eq!(stage.query_number(ended).await, 50);
    assert_eq!(stage.query_number("SELECT count(*) FROM execution WHERE outcome IS NULL").await, 0);
}

#[tokio::test]
async fn revisions_change_with_lanes_and_access_rights() {
    let stage = Fixture::new().await;
    let (workload, placed) = stage.active().await;
    let environment = crate::fixture::environment();
    let first = stage.store.current_revisions(scope(), workload.workload_id, &environment).await.unwrap().unwrap();
    assert_eq!(first.deployment, placed.deployment.revision);
    let retirement = placed.release.retire(&placed.deployment, &stamp()).unwrap();
    stage.store.commit_lane_change(scope(), retirement, None).await.unwrap();
    let second = stage.store.current_revisions(scope(), workload.workload_id, &environment).await.unwrap().unwrap();
    assert_eq!((second.deployment, second.access), (first.deployment.next(), first.access));
    let grant = crate::commit_cases::COMMITS.into_iter().find(|commit| commit.method == "AccessStore::commit_grant");
    (grant.unwrap().decide(&stage).await.send)(None).await.unwrap();
    let third = stage.store.current_revisions(scope(), workload.workload_id, &environment).await.unwrap().unwrap();
    assert_eq!((third.deployment, third.access), (second.deployment, second.access.next()));
}

#[tokio::test]
async fn output_expires_by_the_database_clock() {
    let stage = Fixture::new().await;
    let run = accepted(&stage).await;
    stage.store.finish(scope(), &ending(&run)).await.unwrap();
    let kept = i64::try_from(RETENTION.as_secs()).unwrap();
    for (seconds, shown) in [(0, true), (kept - 60, true), (kept + 1, false), (10 * kept, false)] {
        stage.database.move_clock(seconds).await.unwrap();
        let found = read(&stage, &run).await;
        assert_eq!(found.output.is_some(), shown, "{seconds} s later");
        assert_eq!((found.status, found.outcome), (Status::Completed, Some(ExecutionOutcome::Success)));
    }
}
