//! Tests with random histories, each determined by a seed: 20,000 histories by default, and a million in the long form.

use crate::{
    env_variable,
    in_memory_store::{Fixtures, InMemoryStore, StaleDecision},
    is_long,
    model::{
        History, LaneSelection, Model, Operation, ReleaseStatuses, RequestOutcome, Step, check_conformance,
        check_invariants, first_seed, history_seed,
    },
};
use std::{
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

const SHORT_HISTORIES: u64 = 20_000;
const LONG_HISTORIES: u64 = 1_000_000;

/// Runs a history in the store and in the model.
///
/// # Errors
/// Describes the first difference between the store and the model.
fn run_history(history: &History, fixtures: &Fixtures) -> Result<(), String> {
    let mut store = fixtures.store_with_drafts(&history.target_lanes);
    let mut model = Model::new(&history.target_lanes);
    for (number, step) in history.steps.iter().enumerate() {
        run_step(step, &mut store, &mut model, fixtures).map_err(|error| format!("step {number}: {error}"))?;
    }
    Ok(())
}

fn run_step(step: &Step, store: &mut InMemoryStore, model: &mut Model, fixtures: &Fixtures) -> Result<(), String> {
    let execute = |store: &mut InMemoryStore, model: &mut Model, operation: &Operation| {
        let before: ReleaseStatuses = store.state.release_statuses();
        store.execute(model, operation, fixtures)?;
        check_conformance(model, &store.state)?;
        check_invariants(&before, &store.state)
    };
    let Step { operation, outcome } = step;
    match outcome {
        RequestOutcome::Answered => execute(store, model, operation),
        RequestOutcome::CrashedBeforeCommit => {
            let (decided, expected) = (store.decide(operation, fixtures).map(|_| ()), model.clone().apply(operation));
            if decided != expected {
                return Err(format!("{operation:?}: expected {expected:?} from the model, got {decided:?}"));
            }
            check_conformance(model, &store.state)
        }
        RequestOutcome::CrashedAfterCommit => {
            execute(store, model, operation)?;
            execute(store, model, operation)
        }
        RequestOutcome::PrecededBy(concurrent) => {
            let (decided, basis) = (store.decide(operation, fixtures), model.decision_basis(operation));
            execute(store, model, concurrent)?;
            let Ok(decision) = decided else { return execute(store, model, operation) };
            let is_current = model.decision_basis(operation) == basis;
            let committed = store.commit(decision);
            if committed != if is_current { Ok(()) } else { Err(StaleDecision) } {
                return Err(format!(
                    "{operation:?} after {concurrent:?}: {committed:?}, but is_current is {is_current}"
                ));
            }
            if is_current {
                model.apply(operation).map_err(|refusal| format!("{operation:?} after {concurrent:?}: {refusal:?}"))?;
            }
            check_conformance(model, &store.state)
        }
    }
}

/// Runs `count` histories on all processors. Returns the number of requests, and of the failed histories the one with
/// the lowest seed.
fn run_histories(start: u64, count: u64) -> (u64, Option<(History, String)>) {
    let (next_index, requests) = (AtomicU64::new(0), AtomicU64::new(0));
    let run_next = || {
        let fixtures = Fixtures::new();
        loop {
            let index = next_index.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return None;
            }
            let history = History::from_seed(history_seed(start, index));
            if let Err(error) = run_history(&history, &fixtures) {
                next_index.store(count, Ordering::Relaxed);
                return Some((history, error));
            }
            requests.fetch_add(u64::try_from(history.request_count()).unwrap(), Ordering::Relaxed);
        }
    };
    let failure = thread::scope(|scope| {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(run_next)).collect();
        workers.into_iter().filter_map(|worker| worker.join().unwrap()).min_by_key(|(history, _)| history.seed)
    });
    (requests.into_inner(), failure)
}

#[test]
fn random_histories_conform_to_the_model() {
    let start = first_seed(env_variable("FAIRWAY_TEST_SEED").as_deref());
    let count = if is_long() { LONG_HISTORIES } else { SHORT_HISTORIES };
    let (requests, failure) = run_histories(start, count);
    if let Some((history, error)) = failure {
        panic!("{error}\n{history}");
    }
    println!("{count} histories from seed {start}, {requests} requests");
    assert!(requests >= count * 12, "{requests} requests in {count} histories");
}

/// If there are no rollbacks, each release that takes all lanes supersedes the release that was activated before it.
#[test]
fn each_activation_of_all_lanes_supersedes_the_previous_release() {
    const RELEASES: usize = 5;
    let fixtures = Fixtures::new();
    let targets = [None; RELEASES];
    let (mut store, mut model) = (fixtures.store_with_drafts(&targets), Model::new(&targets));
    let verdict = fairway_domain::release::review::ReleaseVerdict::Approved;
    // The releases are activated in another order than that of their creation.
    for release in [2, 0, 4, 1, 3] {
        let operations = [Operation::Submit(release), Operation::Review(release, verdict), Operation::Approve(release)];
        for operation in operations.into_iter().chain([Operation::Activate(release, LaneSelection::All)]) {
            store.execute(&mut model, &operation, &fixtures).unwrap();
        }
    }
    let chain: Vec<Option<usize>> = model.releases.iter().map(|record| record.supersedes).collect();
    assert_eq!(chain, [Some(2), Some(4), None, Some(1), Some(0)]);
    assert_eq!(check_conformance(&model, &store.state), Ok(()));
}
