//! Histories from seeds: short of them in every run, a million where somebody asks for it.

use crate::{
    asked, is_long,
    memory::{Given, Memory, Stale},
    model::{Before, Fate, History, Model, Operation, Step, Taking, difference, seed_of, start_of, unsound},
};
use std::{
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

const SHORT: u64 = 20_000;
const LONG: u64 = 1_000_000;

/// Runs a history and says where the product and the model part.
fn run(history: &History, given: &Given) -> Result<(), String> {
    let mut memory = given.memory(&history.targets);
    let mut model = Model::new(&history.targets);
    for (number, step) in history.steps.iter().enumerate() {
        take(step, &mut memory, &mut model, given).map_err(|why| format!("step {number}: {why}"))?;
    }
    Ok(())
}

fn take(step: &Step, memory: &mut Memory, model: &mut Model, given: &Given) -> Result<(), String> {
    let ask = |memory: &mut Memory, model: &mut Model, operation: &Operation| {
        let before: Before = memory.seen.before();
        memory.follow(model, operation, given)?;
        difference(model, &memory.seen)?;
        unsound(&before, &memory.seen)
    };
    let Step { operation, fate } = step;
    match fate {
        Fate::Answered => ask(memory, model, operation),
        Fate::Forgotten => {
            let (decided, expected) = (memory.decide(operation, given).map(|_| ()), model.clone().apply(operation));
            if decided != expected {
                return Err(format!("{operation:?}: the model says {expected:?}, the product {decided:?}"));
            }
            difference(model, &memory.seen)
        }
        Fate::AskedAgain => {
            ask(memory, model, operation)?;
            ask(memory, model, operation)
        }
        Fate::Overtaken(other) => {
            let (decided, ground) = (memory.decide(operation, given), model.ground(operation));
            ask(memory, model, other)?;
            let Ok(decision) = decided else { return ask(memory, model, operation) };
            let in_time = model.ground(operation) == ground;
            let committed = memory.commit(decision);
            if committed != if in_time { Ok(()) } else { Err(Stale) } {
                return Err(format!("{operation:?} behind {other:?}: {committed:?}, and in time is {in_time}"));
            }
            if in_time {
                model.apply(operation).map_err(|why| format!("{operation:?} behind {other:?}: {why:?}"))?;
            }
            difference(model, &memory.seen)
        }
    }
}

/// Threads take histories in turn; of the failures the one of the earliest seed is told.
fn run_all(start: u64, count: u64) -> (u64, Option<(History, String)>) {
    let (next, requests) = (AtomicU64::new(0), AtomicU64::new(0));
    let work = || {
        let given = Given::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return None;
            }
            let history = History::of(seed_of(start, index));
            if let Err(why) = run(&history, &given) {
                next.store(count, Ordering::Relaxed);
                return Some((history, why));
            }
            requests.fetch_add(u64::try_from(history.requests()).unwrap(), Ordering::Relaxed);
        }
    };
    let failed = thread::scope(|scope| {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().filter_map(|worker| worker.join().unwrap()).min_by_key(|(history, _)| history.seed)
    });
    (requests.into_inner(), failed)
}

#[test]
fn histories_go_as_the_model_tells_them() {
    let start = start_of(asked("FAIRWAY_TEST_SEED").as_deref());
    let count = if is_long() { LONG } else { SHORT };
    let (requests, failed) = run_all(start, count);
    if let Some((history, why)) = failed {
        panic!("{why}\n{history}");
    }
    println!("{count} histories from seed {start}, {requests} requests");
    assert!(requests >= count * 12, "{requests} requests in {count} histories");
}

/// Where every release takes all lanes at once and none goes back, who replaced whom is one path.
#[test]
fn releases_that_take_all_lanes_follow_one_another() {
    const RELEASES: usize = 5;
    let given = Given::new();
    let targets = [None; RELEASES];
    let (mut memory, mut model) = (given.memory(&targets), Model::new(&targets));
    let verdict = fairway_domain::release::review::Verdict::Approved;
    // In an order that is not the one in which they were made.
    for release in [2, 0, 4, 1, 3] {
        let way = [Operation::Submit(release), Operation::Say(release, verdict), Operation::Approve(release)];
        for operation in way.into_iter().chain([Operation::Activate(release, Taking::All)]) {
            memory.follow(&mut model, &operation, &given).unwrap();
        }
    }
    let chain: Vec<Option<usize>> = model.releases.iter().map(|record| record.supersedes).collect();
    assert_eq!(chain, [Some(2), Some(4), None, Some(1), Some(0)]);
    assert_eq!(difference(&model, &memory.seen), Ok(()));
}
