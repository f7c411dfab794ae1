//! Runs: accepted under current revisions, and ended once, by the process that owns the lease.

use crate::fixture::{Fixture, RETENTION, acceptance, actor, denied, ending, fresh, lease_of, run_ref, scope, stamp};
use fairway_domain::{
    evidence::lineage::LineageFilter,
    execution::{
        Acceptance, Execution, ExecutionOutcome, FinishRecord, Payload, RunError, Status,
        dispatch::LeaseRef,
        ports::{
            AcceptOutcome, EventStore, ExecutionReadStore, ExpectedRevisions, LapsedFilter, LeaseState, LeaseStore,
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

/// An accepted run of a new workload.
pub(crate) async fn accepted(fixture: &Fixture) -> Acceptance {
    let (workload, deployed_release) = fixture.active().await;
    let run = acceptance(&deployed_release);
    let revisions = fixture.expected_revisions(&workload, &deployed_release).await;
    assert_eq!(fixture.store.accept(scope(), &run, revisions, None).await.unwrap(), AcceptOutcome::Accepted);
    run
}

async fn read(fixture: &Fixture, run: &Acceptance) -> Execution {
    ExecutionReadStore::find(&*fixture.store, scope(), run.execution_id).await.unwrap().unwrap()
}

async fn renewed(fixture: &Fixture, run: &Acceptance) -> LeaseState {
    fixture.store.renew(scope(), run.execution_id, lease_of(run)).await.unwrap()
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

async fn terminal_facts(fixture: &Fixture, run: &Acceptance) -> i64 {
    let sql = format!(
        "SELECT count(*) FROM fact WHERE kind LIKE 'execution.%'
         AND convert_from(body, 'UTF8')::json -> 'subject' ->> 'id' = '{}'",
        run.execution_id
    );
    fixture.query_number(&sql).await
}

#[tokio::test]
async fn reads_back_an_accepted_run_and_ends_it_once() {
    let fixture = Fixture::new().await;
    let run = accepted(&fixture).await;
    assert_eq!(read(&fixture, &run).await.status, Status::Running);
    let end = ending(&run);
    fixture.store.finish(scope(), &end).await.unwrap();
    let found = read(&fixture, &run).await;
    assert_eq!((found.status, found.outcome), (Status::Completed, Some(ExecutionOutcome::Success)));
    assert_eq!(found.output, end.output.as_ref().map(|output| output.body.clone()));
    assert_eq!(found.finished_at, Some(end.finished_at));
    assert_eq!(found.reason_code, "a_rule");
    let evidence = fixture.store.evidence(scope(), run.execution_id).await.unwrap().unwrap();
    assert_eq!(evidence.chain.release.release_id, run.release_id);
    assert_eq!(evidence.artifacts.len(), 1);
    assert_eq!(
        (evidence.strictest_decision().unwrap().outcome.as_str(), evidence.decisions.len(), evidence.has_notes),
        ("allow", 2, true)
    );
    assert_eq!(evidence.decisions[0].rules, run.decision.rules);
    assert_eq!(evidence.decisions[0].failed_rules, run.decision.failed_rules);
    // Evidence does not contain the output, because the output has its own access check.
    let found = Execution { output: None, ..found };
    assert_eq!(evidence.execution, found);
    assert_eq!(evidence.input_digest, run.inputs.digest());
    assert_eq!(evidence.output_digest, end.output.as_ref().map(Payload::digest));
    assert_eq!(evidence.fulfilled, [("record_transcript".to_owned(), end.fulfilled[0].1)]);
    let (document_run, document) =
        fixture.store.artifact(scope(), run.execution_id, end.artifacts[0].artifact_id).await.unwrap().unwrap();
    // The caller needs this run only to authorize access to the document, so the run's reason code is not loaded.
    let expected_execution = Execution { reason_code: String::new(), ..found.clone() };
    assert_eq!((document_run, document.body["tokens"].as_u64()), (expected_execution.clone(), Some(3)));
    assert_eq!(document.payload, Some(serde_json::json!({ "calls": [] })));
    let lineage =
        fixture.store.lineage(scope(), run.execution_id, LineageFilter::default(), 50, 0).await.unwrap().unwrap();
    assert_eq!((lineage.execution, lineage.total, lineage.items.len()), (expected_execution, 1, 1));
    assert_eq!(lineage.items[0].digest, fairway_domain::execution::format_digest(&run.inputs.digest()));
    assert!(!lineage.items[0].redacted);
    assert_eq!(fixture.store.steps(scope(), run.execution_id).await.unwrap().len(), 1);
    let second_end = fixture.store.finish(scope(), &end).await.unwrap_err();
    assert!(matches!(second_end, CommitError::Stale));
    assert_eq!(terminal_facts(&fixture, &run).await, 1);
    assert_eq!(fixture.query_number("SELECT count(*) FROM execution_lease").await, 0);
}

#[tokio::test]
async fn does_not_find_or_end_runs_of_another_tenant() {
    let fixture = Fixture::new().await;
    let run = accepted(&fixture).await;
    let other_tenant = fairway_domain::tenant::TenantScope::for_background_task(fresh());
    assert_eq!(ExecutionReadStore::find(&*fixture.store, other_tenant, run.execution_id).await.unwrap(), None);
    let error = fixture.store.finish(other_tenant, &ending(&run)).await.unwrap_err();
    assert!(matches!(error, CommitError::Stale));
    let renewed = fixture.store.renew(other_tenant, run.execution_id, lease_of(&run)).await.unwrap();
    assert_eq!(renewed, LeaseState::Lost);
    assert_eq!(read(&fixture, &run).await.status, Status::Running);
}

#[tokio::test]
async fn one_of_concurrent_accepts_with_one_key_succeeds() {
    let fixture = Arc::new(Fixture::new().await);
    let (workload, deployed_release) = fixture.active().await;
    let revisions = fixture.expected_revisions(&workload, &deployed_release).await;
    let key = key();
    let mut tasks = JoinSet::new();
    for number in 0..12 {
        let (fixture, key) = (Arc::clone(&fixture), key.clone());
        let run = if number % 3 == 0 { denied(&deployed_release) } else { acceptance(&deployed_release) };
        tasks.spawn(async move {
            let accepted = fixture.store.accept(scope(), &run, revisions, Some(&key)).await.unwrap();
            (run.execution_id, accepted)
        });
    }
    let results = tasks.join_all().await;
    let winners: Vec<_> = results.iter().filter(|(_, accepted)| *accepted == AcceptOutcome::Accepted).collect();
    assert_eq!(winners.len(), 1, "{results:?}");
    assert!(results.iter().all(|(_, accepted)| *accepted != AcceptOutcome::Stale));
    assert_eq!(fixture.query_number("SELECT count(*) FROM execution").await, 1);
    assert_eq!(fixture.query_number("SELECT count(*) FROM policy_decision").await, 1);
    let key_state = fixture.store.key_state(scope(), &key).await.unwrap();
    assert_eq!(key_state, KeyState::InUse(winners[0].0.uuid()));
    let other = RequestKey { body_digest: [8; 32], ..key };
    assert_eq!(fixture.store.key_state(scope(), &other).await.unwrap(), KeyState::DifferentBody);
}

/// Concurrent accepts and ends share statements. Each still gets its own result.
#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one scenario, read from its start to its end")]
async fn batched_accepts_and_ends_return_independent_results() {
    let fixture = Arc::new(Fixture::new().await);
    let (workload, deployed_release) = fixture.active().await;
    let revisions = fixture.expected_revisions(&workload, &deployed_release).await;
    let stale = ExpectedRevisions { workload: revisions.workload.next(), ..revisions };
    let shared = key();
    fixture.store.accept(scope(), &acceptance(&deployed_release), revisions, Some(&shared)).await.unwrap();
    let mut accept_tasks = JoinSet::new();
    for number in 0..40 {
        let (fixture, deployed_release, shared) = (Arc::clone(&fixture), deployed_release.clone(), shared.clone());
        accept_tasks.spawn(async move {
            let run = acceptance(&deployed_release);
            let (revisions, key) = match number % 5 {
                0 => (stale, None),
                1 => (revisions, Some(shared)),
                2 => (revisions, Some(key())),
                _ => (revisions, None),
            };
            let accepted = fixture.store.accept(scope(), &run, revisions, key.as_ref()).await.unwrap();
            (number, run, accepted)
        });
    }
    let mut accepted = Vec::new();
    for (number, run, outcome) in accept_tasks.join_all().await {
        let expected = match number % 5 {
            0 => AcceptOutcome::Stale,
            1 => AcceptOutcome::DuplicateKey,
            _ => AcceptOutcome::Accepted,
        };
        assert_eq!(outcome, expected, "{number}");
        let found = ExecutionReadStore::find(&*fixture.store, scope(), run.execution_id).await.unwrap();
        assert_eq!(found.is_some(), outcome == AcceptOutcome::Accepted);
        if outcome == AcceptOutcome::Accepted {
            accepted.push(run);
        }
    }
    assert_eq!(accepted.len(), 24);
    assert_eq!(fixture.query_number("SELECT count(*) FROM execution_lease").await, 25);
    assert_eq!(fixture.query_number("SELECT count(*) FROM idempotency_key").await, 9);
    let mut end_tasks = JoinSet::new();
    for (number, run) in accepted.into_iter().enumerate() {
        let fixture = Arc::clone(&fixture);
        end_tasks.spawn(async move {
            let mut ended = ending(&run);
            if number % 2 == 0 {
                ended.decisions = Vec::new();
            }
            if number % 3 == 0 {
                ended.lease = Uuid::now_v7();
            }
            let outcome = fixture.store.finish(scope(), &ended).await;
            (number % 3 == 0, run, ended, outcome)
        });
    }
    for (has_foreign_lease, run, ended, outcome) in end_tasks.join_all().await {
        let now = read(&fixture, &run).await;
        if has_foreign_lease {
            assert!(matches!(outcome, Err(CommitError::Stale)), "{outcome:?}");
            assert_eq!((now.status, now.output), (Status::Running, None));
        } else {
            outcome.unwrap();
            assert_eq!(now.status, ended.status);
            assert_eq!(now.output, ended.output.map(|output| output.body));
        }
    }
    assert_eq!(fixture.query_number("SELECT count(*) FROM execution_lease").await, 9);
    assert_eq!(fixture.query_number("SELECT count(*) FROM execution_result").await, 16);
    for source in ["fact WHERE kind LIKE 'execution.%'", "execution_step", "evidence_artifact"] {
        assert_eq!(fixture.query_number(&format!("SELECT count(*) FROM {source}")).await, 16, "{source}");
    }
    // `xmin` identifies the transaction that wrote a row. Of 25 accepted runs, 16 have ended, half of them in a
    // transaction of their own.
    let transactions = |table: &str| format!("SELECT count(DISTINCT xmin::text) FROM {table}");
    assert!(fixture.query_number(&transactions("execution_input")).await < 15);
    assert!(fixture.query_number(&transactions("execution_result")).await < 14);
}

#[tokio::test]
async fn second_of_two_concurrent_ends_is_stale() {
    let fixture = Fixture::new().await;
    let (run, other_run) = (accepted(&fixture).await, accepted(&fixture).await);
    let end = |run: &Acceptance| interrupted_ending(run, lease_of(run));
    let (first, second, between) = (end(&run), end(&run), end(&other_run));
    let store = &fixture.store;
    let (first, between, second) =
        tokio::join!(store.finish(scope(), &first), store.finish(scope(), &between), store.finish(scope(), &second));
    between.unwrap();
    first.unwrap();
    assert!(matches!(second, Err(CommitError::Stale)), "{second:?}");
    assert_eq!(terminal_facts(&fixture, &run).await, 1);
}

#[tokio::test]
async fn rejects_accepts_after_the_release_lost_its_lanes() {
    let fixture = Arc::new(Fixture::new().await);
    let (workload, deployed_release) = fixture.active().await;
    let revisions = fixture.expected_revisions(&workload, &deployed_release).await;
    let (sender, mut receiver) = tokio::sync::watch::channel(false);
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let (fixture, deployed_release, receiver) = (Arc::clone(&fixture), deployed_release.clone(), receiver.clone());
        tasks.spawn(async move {
            let (mut before, mut after) = (0, 0);
            while after < 3 {
                let is_retired = *receiver.borrow();
                match fixture.store.accept(scope(), &acceptance(&deployed_release), revisions, None).await.unwrap() {
                    AcceptOutcome::Accepted => {
                        assert!(!is_retired, "a run was accepted after the retirement was committed");
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
    let retirement = deployed_release.release.retire(&deployed_release.deployment, &stamp()).unwrap();
    fixture.store.commit_lane_change(scope(), retirement, None).await.unwrap();
    sender.send(true).unwrap();
    receiver.changed().await.unwrap();
    let accepted: i64 = tasks.join_all().await.into_iter().sum();
    assert_eq!(fixture.query_number("SELECT count(*) FROM execution").await, accepted);
}

#[tokio::test]
async fn rejected_accepts_write_no_rows() {
    let fixture = Fixture::new().await;
    let (workload, deployed_release) = fixture.active().await;
    let revisions = fixture.expected_revisions(&workload, &deployed_release).await;
    let before = fixture.query_number(COUNT_ALL_ROWS).await;
    let outdated = |revisions: ExpectedRevisions| {
        [
            ExpectedRevisions { deployment: revisions.deployment.next(), ..revisions },
            ExpectedRevisions { workload: revisions.workload.next(), ..revisions },
            ExpectedRevisions { access: revisions.access.next(), ..revisions },
        ]
    };
    for revisions in outdated(revisions) {
        for run in [acceptance(&deployed_release), denied(&deployed_release)] {
            assert_eq!(
                fixture.store.accept(scope(), &run, revisions, Some(&key())).await.unwrap(),
                AcceptOutcome::Stale
            );
        }
    }
    fixture.run("UPDATE workload SET status = 'suspended'").await;
    assert_eq!(
        fixture.store.accept(scope(), &acceptance(&deployed_release), revisions, Some(&key())).await.unwrap(),
        AcceptOutcome::Stale
    );
    assert_eq!(fixture.query_number(COUNT_ALL_ROWS).await, before);
}

#[tokio::test]
async fn end_of_a_reclaimed_run_by_its_former_worker_writes_nothing() {
    let fixture = Fixture::new().await;
    let run = accepted(&fixture).await;
    let recovery = Uuid::now_v7();
    assert_eq!(fixture.store.claim_lapsed(recovery, LapsedFilter::All).await.unwrap(), []);
    fixture.database.set_clock_offset(LEASE + 1).await.unwrap();
    let reclaimed = fixture.store.claim_lapsed(recovery, LapsedFilter::All).await.unwrap();
    assert_eq!(reclaimed.len(), 1);
    assert_eq!(reclaimed[0].execution.execution_id, run.execution_id);
    assert_eq!(reclaimed[0].input_digest, run.inputs.digest());
    assert!(!reclaimed[0].is_past_deadline);
    assert_eq!(
        fixture.store.claim_lapsed(Uuid::now_v7(), LapsedFilter::All).await.unwrap(),
        [],
        "the new lease has not expired"
    );
    assert_eq!(renewed(&fixture, &run).await, LeaseState::Lost);

    let late = fixture.store.finish(scope(), &ending(&run)).await.unwrap_err();
    assert!(matches!(late, CommitError::Stale));
    assert_eq!(read(&fixture, &run).await.status, Status::Running);
    assert_eq!(fixture.query_number("SELECT count(*) FROM execution_result").await, 0);
    assert_eq!(terminal_facts(&fixture, &run).await, 0);

    fixture.store.finish(scope(), &interrupted_ending(&run, recovery)).await.unwrap();
    let late = fixture.store.finish(scope(), &ending(&run)).await.unwrap_err();
    assert!(matches!(late, CommitError::Stale));
    let found = read(&fixture, &run).await;
    assert_eq!((found.status, found.outcome, found.output), (Status::Failed, Some(ExecutionOutcome::Failure), None));
    assert_eq!(found.error.map(|error| error.code), Some("interrupted".to_owned()));
    assert_eq!(terminal_facts(&fixture, &run).await, 1);
    assert_eq!(fixture.query_number("SELECT count(*) FROM evidence_artifact").await, 0);
}

#[tokio::test]
async fn renewed_leases_are_not_reclaimed_and_deadlines_are_reported() {
    let fixture = Fixture::new().await;
    let run = accepted(&fixture).await;
    fixture.database.set_clock_offset(LEASE - 1).await.unwrap();
    assert_eq!(renewed(&fixture, &run).await, LeaseState::Held);
    fixture.database.set_clock_offset(LEASE + 5).await.unwrap();
    assert_eq!(fixture.store.claim_lapsed(Uuid::now_v7(), LapsedFilter::All).await.unwrap(), []);
    fixture.database.set_clock_offset(2 * LEASE).await.unwrap();
    assert_eq!(fixture.store.claim_lapsed(Uuid::now_v7(), LapsedFilter::All).await.unwrap().len(), 1);
    fixture.database.set_clock_offset(3 * LEASE + 1).await.unwrap();
    let reclaimed = fixture.store.claim_lapsed(Uuid::now_v7(), LapsedFilter::All).await.unwrap();
    assert_eq!(reclaimed.len(), 1, "the lease of a dead recovery expires too");
    assert!(reclaimed[0].is_past_deadline);
}

#[tokio::test]
async fn renewal_reports_a_stopped_workload() {
    let fixture = Fixture::new().await;
    let run = accepted(&fixture).await;
    fixture.run("UPDATE workload SET status = 'suspended'").await;
    assert_eq!(renewed(&fixture, &run).await, LeaseState::WorkloadStopped);
    fixture.run("UPDATE workload SET status = 'registered'").await;
    assert_eq!(renewed(&fixture, &run).await, LeaseState::Held);
}

#[tokio::test]
async fn only_the_holder_releases_a_lease_and_the_reclaimer_ends_the_run() {
    let fixture = Fixture::new().await;
    let run = accepted(&fixture).await;
    fixture
        .store
        .release_lease(scope(), LeaseRef { execution_id: run.execution_id, lease: Uuid::now_v7() })
        .await
        .unwrap();
    assert_eq!(fixture.store.claim_lapsed(Uuid::now_v7(), LapsedFilter::All).await.unwrap(), []);
    fixture
        .store
        .release_lease(scope(), LeaseRef { execution_id: run.execution_id, lease: lease_of(&run) })
        .await
        .unwrap();
    assert_eq!(renewed(&fixture, &run).await, LeaseState::Lost, "the former holder must lose its lease");
    let recovery = Uuid::now_v7();
    assert_eq!(fixture.store.claim_lapsed(recovery, LapsedFilter::All).await.unwrap().len(), 1);
    fixture
        .store
        .release_lease(scope(), LeaseRef { execution_id: run.execution_id, lease: lease_of(&run) })
        .await
        .unwrap();
    assert_eq!(
        fixture.store.claim_lapsed(Uuid::now_v7(), LapsedFilter::All).await.unwrap(),
        [],
        "the former holder must not release the new lease"
    );
    fixture.store.finish(scope(), &interrupted_ending(&run, recovery)).await.unwrap();
    assert_eq!(terminal_facts(&fixture, &run).await, 1);
}

#[tokio::test]
async fn concurrent_recoveries_end_each_expired_run_once() {
    let fixture = Arc::new(Fixture::new().await);
    let (workload, deployed_release) = fixture.active().await;
    let revisions = fixture.expected_revisions(&workload, &deployed_release).await;
    let mut runs = Vec::new();
    for _ in 0..50 {
        let run = acceptance(&deployed_release);
        fixture.store.accept(scope(), &run, revisions, None).await.unwrap();
        runs.push(run);
    }
    fixture.database.set_clock_offset(LEASE + 1).await.unwrap();
    let runs = Arc::new(runs);
    let mut recoveries = JoinSet::new();
    for _ in 0..4 {
        let (fixture, runs) = (Arc::clone(&fixture), Arc::clone(&runs));
        recoveries.spawn(async move {
            let mut ended = 0;
            loop {
                let reclaimed = fixture.store.claim_lapsed(Uuid::now_v7(), LapsedFilter::All).await.unwrap();
                if reclaimed.is_empty() {
                    return ended;
                }
                for lapsed in reclaimed {
                    let mut all = runs.iter();
                    let run = all.find(|run| run.execution_id == lapsed.execution.execution_id).unwrap();
                    fixture.store.finish(scope(), &interrupted_ending(run, lapsed.lease)).await.unwrap();
                    ended += 1;
                }
            }
        });
    }
    assert_eq!(recoveries.join_all().await.into_iter().sum::<usize>(), runs.len());
    let ended = "SELECT count(*) FROM fact WHERE kind = 'execution.ended'";
    assert_eq!(fixture.query_number(ended).await, 50);
    assert_eq!(fixture.query_number("SELECT count(*) FROM execution WHERE outcome IS NULL").await, 0);
}

#[tokio::test]
async fn revisions_change_with_lanes_and_access_rights() {
    let fixture = Fixture::new().await;
    let (workload, deployed_release) = fixture.active().await;
    let environment = crate::fixture::environment();
    let first = fixture.store.current_revisions(scope(), workload.workload_id, &environment).await.unwrap().unwrap();
    assert_eq!(first.deployment, deployed_release.deployment.revision);
    let retirement = deployed_release.release.retire(&deployed_release.deployment, &stamp()).unwrap();
    fixture.store.commit_lane_change(scope(), retirement, None).await.unwrap();
    let second = fixture.store.current_revisions(scope(), workload.workload_id, &environment).await.unwrap().unwrap();
    assert_eq!((second.deployment, second.access), (first.deployment.next(), first.access));
    let grant = crate::commit_cases::COMMITS.into_iter().find(|commit| commit.method == "AccessStore::commit_grant");
    (grant.unwrap().decide(&fixture).await.send)(None).await.unwrap();
    let third = fixture.store.current_revisions(scope(), workload.workload_id, &environment).await.unwrap().unwrap();
    assert_eq!((third.deployment, third.access), (second.deployment, second.access.next()));
}

#[tokio::test]
async fn output_expires_by_the_database_clock() {
    let fixture = Fixture::new().await;
    let run = accepted(&fixture).await;
    fixture.store.finish(scope(), &ending(&run)).await.unwrap();
    let retention_seconds = i64::try_from(RETENTION.as_secs()).unwrap();
    for (seconds, is_readable) in
        [(0, true), (retention_seconds - 60, true), (retention_seconds + 1, false), (10 * retention_seconds, false)]
    {
        fixture.database.set_clock_offset(seconds).await.unwrap();
        let found = read(&fixture, &run).await;
        assert_eq!(found.output.is_some(), is_readable, "{seconds} s later");
        assert_eq!((found.status, found.outcome), (Status::Completed, Some(ExecutionOutcome::Success)));
    }
}
