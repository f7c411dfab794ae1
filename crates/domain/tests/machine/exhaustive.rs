//! Exhaustive exploration: all states that two approved releases can reach, and the states that three can reach in few
//! operations.
//!
//! Verdicts are not explored here; random histories cover them.

use crate::{
    is_long,
    memory::{Given, Memory, Stale},
    model::{Model, Number, Operation, PLACES, Place, ReleaseRecord, RolloutRecord, Taking, difference, unsound},
};
use fairway_domain::release::{StateName, review::Verdict};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A release's state, its rollout status with the remaining lanes, its predecessor, and whether it is approved.
type ReleaseKey = (&'static str, Option<(u8, Vec<Place>)>, Option<Number>, bool);

/// The part of a state that determines all later transitions. Equal keys have equal continuations.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct StateKey {
    releases: Vec<ReleaseKey>,
    holders: [Option<Number>; 3],
    /// Holders of each lane in order, and the releases rolled back from it.
    former: [(Vec<Number>, BTreeSet<Number>); 3],
}

impl StateKey {
    /// The canonical key of the model: the minimum over all permutations of the releases, which are interchangeable.
    fn of(model: &Model) -> Option<Self> {
        orders(model.releases.len()).iter().map(|names| Self::under(model, names)).min()
    }

    fn under(model: &Model, names: &[Number]) -> Self {
        let renamed = |number: Option<Number>| number.map(|number| names[number]);
        let release = |(number, record): (Number, &ReleaseRecord)| {
            // Completed lanes have no effect, nor does the plan of a finished rollout.
            let remaining =
                |it: &RolloutRecord| if it.status == RolloutRecord::IN_PROGRESS { &it.plan[it.index..] } else { &[] }.to_vec();
            let rolling = record.rolling.as_ref().map(|it| (it.status, remaining(it)));
            (names[number], (record.state.as_str(), rolling, renamed(record.supersedes), model.is_approved(number)))
        };
        let is_retired = |number: &Number| model.releases[*number].state == StateName::Retired;
        let former = |lane: Place| {
            // A rollback never targets a retired release.
            let former =
                model.former(lane).into_iter().filter(|number| !is_retired(number)).map(|number| names[number]);
            let taken_back = |number: &Number| !is_retired(number) && model.taken_back(*number, lane);
            let taken_back = (0..model.releases.len()).filter(taken_back).map(|number| names[number]);
            (former.collect(), taken_back.collect())
        };
        let releases: BTreeMap<Number, _> = model.releases.iter().enumerate().map(release).collect();
        Self {
            releases: releases.into_values().collect(),
            holders: model.holders.map(renamed),
            former: PLACES.map(former),
        }
    }
}

/// All permutations of the numbers below `count`.
fn orders(count: usize) -> Vec<Vec<Number>> {
    let mut orders = vec![Vec::new()];
    for _ in 0..count {
        orders = orders.iter().flat_map(|order| extensions(order, count)).collect();
    }
    orders
}

/// The sequence extended by each number below `count` that it does not contain.
fn extensions(sequence: &[usize], count: usize) -> Vec<Vec<usize>> {
    let missing = (0..count).filter(|number| !sequence.contains(number));
    missing.map(|number| [sequence, &[number]].concat()).collect()
}

/// All operations on an approved release.
fn requests(release: Number, plans: &[Vec<Place>]) -> Vec<Operation> {
    let mut selections = vec![Taking::All];
    selections.extend(PLACES.map(Taking::One));
    selections.extend(plans.iter().cloned().map(Taking::Plan));
    let mut requests: Vec<Operation> =
        selections.into_iter().map(|selection| Operation::Activate(release, selection)).collect();
    requests.extend([Operation::Advance(release), Operation::Retire(release), Operation::RollBack(release, None)]);
    requests.extend(PLACES.map(|lane| Operation::RollBack(release, Some(lane))));
    requests
}

/// All plans of one, two or three lanes.
fn plans() -> Vec<Vec<Place>> {
    let one: Vec<Vec<Place>> = extensions(&[], PLACES.len());
    let two: Vec<Vec<Place>> = one.iter().flat_map(|plan| extensions(plan, PLACES.len())).collect();
    let three = two.iter().flat_map(|plan| extensions(plan, PLACES.len())).collect();
    [one, two, three].concat()
}

struct ExplorationCounts {
    states: usize,
    moves: usize,
    refusals: usize,
    deepest: usize,
}

/// Explores breadth first the states that `releases` approved releases reach in at most `depth` operations.
///
/// # Panics
/// At the first difference from the model.
fn explore(releases: usize, plans: &[Vec<Place>], depth: usize) -> ExplorationCounts {
    let given = Given::new();
    let targets = vec![None; releases];
    let (mut memory, mut model) = (given.memory(&targets), Model::new(&targets));
    for release in 0..releases {
        let verdict = Operation::Say(release, Verdict::Approved);
        for operation in [Operation::Submit(release), verdict, Operation::Approve(release)] {
            memory.follow(&mut model, &operation, &given).unwrap();
        }
    }
    let requests: Vec<Operation> = (0..releases).flat_map(|release| requests(release, plans)).collect();
    let mut visited = BTreeSet::from([StateKey::of(&model)]);
    let mut queue: VecDeque<(Memory, Model, Vec<Operation>)> = VecDeque::from([(memory, model, Vec::new())]);
    let mut explored = ExplorationCounts { states: 1, moves: 0, refusals: 0, deepest: 0 };
    while let Some((memory, model, path)) = queue.pop_front() {
        explored.deepest = path.len();
        if path.len() == depth {
            continue;
        }
        for operation in &requests {
            let mut next = model.clone();
            if let Err(refused) = next.apply(operation) {
                let product = memory.decide(operation, &given).map(|_| ());
                assert_eq!(product, Err(refused), "{operation:?} after {path:?}");
                explored.refusals += 1;
                continue;
            }
            let mut next_store = memory.clone();
            let decided = memory.decide(operation, &given).map_err(|refused| format!("refused: {refused:?}"));
            let compared = decided.and_then(|decision| next_store.commit(decision).map_err(|Stale| "stale".to_owned()));
            let compared = compared.and_then(|()| difference(&next, &next_store.seen));
            let compared = compared.and_then(|()| unsound(&memory.seen.before(), &next_store.seen));
            assert_eq!(compared, Ok(()), "{operation:?} after {path:?}");
            explored.moves += 1;
            if visited.insert(StateKey::of(&next)) {
                queue.push_back((next_store, next, [path.as_slice(), std::slice::from_ref(operation)].concat()));
            }
        }
    }
    explored.states = visited.len();
    explored
}

fn print_counts(releases: usize, ExplorationCounts { states, moves, refusals, deepest }: &ExplorationCounts) {
    println!("{releases} releases: {states} states, {moves} transitions, {refusals} refusals, depth {deepest}");
}

/// All states of two releases. The short form has one plan, because each further plan multiplies the states.
#[test]
fn all_states_of_two_releases_conform_to_the_model() {
    let (plans, least) = if is_long() { (plans(), 30_000) } else { (vec![vec![0, 2]], 5_000) };
    let explored = explore(2, &plans, usize::MAX);
    print_counts(2, &explored);
    assert!(explored.states > least && explored.moves > explored.states && explored.refusals > explored.moves);
    assert!(explored.deepest > 10, "the exploration ended too early");
}

#[test]
fn two_releases_conform_to_the_model_for_four_operations_with_any_plan() {
    let explored = explore(2, &plans(), 4);
    print_counts(2, &explored);
    assert!(explored.states > 3_000, "{} states", explored.states);
}

#[test]
fn three_releases_conform_to_the_model_for_few_operations() {
    let (depth, least) = if is_long() { (5, 50_000) } else { (3, 2_000) };
    let explored = explore(3, &plans(), depth);
    print_counts(3, &explored);
    assert!(explored.states > least, "{} states", explored.states);
}
