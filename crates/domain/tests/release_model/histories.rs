//! Tests with random histories that seeds determine: 20,000 histories by default, a million in the long form.

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
/// Describes the first difference between the two.
fn run_history(history: &History, given: &Fixtures) -> Result<(), String> {
    let mut memory = given.store_with_drafts(&history.target_lanes);
    let mut model = Model::new(&history.target_lanes);
    for (number, step) in history.steps.iter().enumerate() {
        run_step(step, &mut memory, &mut model, given).map_err(|why| format!("step {number}: {why}"))?;
    }
    Ok(())
}

fn run_step(step: &Step, memory: &mut InMemoryStore, model: &mut Model, given: &Fixtures) -> Result<(), String> {
    let execute = |memory: &mut InMemoryStore, model: &mut Model, operation: &Operation| {
        let before: ReleaseStatuses = memory.state.release_statuses();
        memory.execute(model, operation, given)?;
        check_conformance(model, &memory.state)?;
        check_invariants(&before, &memory.state)
    };
    let Step { operation, outcome: fate } = step;
    match fate {
        RequestOutcome::Answered => execute(memory, model, operation),
        RequestOutcome::CrashedBeforeCommit => {
            let (decided, expected) = (memory.decide(operation, given).map(|_| ()), model.clone().apply(operation));
            if decided != expected {
                return Err(format!("{operation:?}: expected {expected:?} from the model, got {decided:?}"));
            }
            check_conformance(model, &memory.state)
        }
        RequestOutcome::CrashedAfterCommit => {
            execute(memory, model, operation)?;
            execute(memory, model, operation)
        }
        RequestOutcome::PrecededBy(other) => {
            let (decided, basis) = (memory.decide(operation, given), model.decision_basis(operation));
            execute(memory, model, other)?;
            let Ok(decision) = decided else { return execute(memory, model, operation) };
            let in_time = model.decision_basis(operation) == basis;
            let committed = memory.commit(decision);
            if committed != if in_time { Ok(()) } else { Err(StaleDecision) } {
                return Err(format!("{operation:?} after {other:?}: {committed:?}, but in_time is {in_time}"));
            }
            if in_time {
                model.apply(operation).map_err(|why| format!("{operation:?} after {other:?}: {why:?}"))?;
            }
            check_conformance(model, &memory.state)
        }
    }
}

/// Runs `count` histories on all processors. Returns the number of requests, and the failed history with the
/// lowest seed.
fn run_histories(start: u64, count: u64) -> (u64, Option<(History, String)>) {
    let (next, requests) = (AtomicU64::new(0), AtomicU64::new(0));
    let run_next = || {
        let given = Fixtures::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return None;
            }
            let history = History::from_seed(history_seed(start, index));
            if let Err(why) = run_history(&history, &given) {
                next.store(count, Ordering::Relaxed);
                return Some((history, why));
            }
            requests.fetch_add(u64::try_from(history.request_count()).unwrap(), Ordering::Relaxed);
        }
    };
    let failed = thread::scope(|scope| {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(run_next)).collect();
        workers.into_iter().filter_map(|worker| worker.join().unwrap()).min_by_key(|(history, _)| history.seed)
    });
    (requests.into_inner(), failed)
}

#[test]
fn random_histories_conform_to_the_model() {
    let start = first_seed(env_variable("FAIRWAY_TEST_SEED").as_deref());
    let count = if is_long() { LONG_HISTORIES } else { SHORT_HISTORIES };
    let (requests, failed) = run_histories(start, count);
    if let Some((history, why)) = failed {
        panic!("{why}\n{history}");
    }
    println!("{count} histories from seed {start}, {requests} requests");
    assert!(requests >= count * 12, "{requests} requests in {count} histories");
}

/// Without rollbacks, each release that takes all lanes supersedes the release that was activated before it.
#[test]
fn each_activation_of_all_lanes_supersedes_the_previous_release() {
    const RELEASES: usize = 5;
    let given = Fixtures::new();
    let targets = [None; RELEASES];
    let (mut memory, mut model) = (given.store_with_drafts(&targets), Model::new(&targets));
    let verdict = fairway_domain::release::review::Verdict::Approved;
    // The releases are activated in another order than they were created.
    for release in [2, 0, 4, 1, 3] {
        let operations = [Operation::Submit(release), Operation::Review(release, verdict), Operation::Approve(release)];
        for operation in operations.into_iter().chain([Operation::Activate(release, LaneSelection::All)]) {
            memory.execute(&mut model, &operation, &given).unwrap();
        }
    }
    let chain: Vec<Option<usize>> = model.releases.iter().map(|record| record.supersedes).collect();
    assert_eq!(chain, [Some(2), Some(4), None, Some(1), Some(0)]);
    assert_eq!(check_conformance(&model, &memory.state), Ok(()));
}
