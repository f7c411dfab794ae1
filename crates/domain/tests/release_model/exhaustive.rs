//! Exhaustive exploration: all states that two approved releases can reach, and the states that three approved
//! releases can reach in a few operations.
//!
//! This exploration includes no verdicts; the random histories cover them.

use crate::{
    in_memory_store::{Fixtures, InMemoryStore, StaleDecision},
    is_long,
    model::{
        LANES, LaneIndex, LaneSelection, Model, Operation, ReleaseIndex, ReleaseRecord, RolloutRecord,
        check_conformance, check_invariants,
    },
};
use fairway_domain::release::{StateName, review::Verdict};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A release's state, its rollout status with the remaining lanes, the release that it superseded, and whether it
/// is approved.
type ReleaseKey = (&'static str, Option<(u8, Vec<LaneIndex>)>, Option<ReleaseIndex>, bool);

/// The part of a state that determines all later transitions. States with equal keys behave in the same way.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct StateKey {
    releases: Vec<ReleaseKey>,
    holders: [Option<ReleaseIndex>; 3],
    /// The former holders of each lane in order, and the releases that were rolled back from the lane.
    former_holders: [(Vec<ReleaseIndex>, BTreeSet<ReleaseIndex>); 3],
}

impl StateKey {
    /// The canonical key of a model. It is the minimum over all permutations of the releases, because releases are
    /// interchangeable.
    fn canonical(model: &Model) -> Option<Self> {
        permutations(model.releases.len()).iter().map(|names| Self::with_order(model, names)).min()
    }

    fn with_order(model: &Model, names: &[ReleaseIndex]) -> Self {
        let renamed = |number: Option<ReleaseIndex>| number.map(|number| names[number]);
        let release = |(number, record): (ReleaseIndex, &ReleaseRecord)| {
            // Completed lanes do not affect later transitions, and neither does the plan of a finished rollout.
            let remaining = |it: &RolloutRecord| {
                if it.status == RolloutRecord::IN_PROGRESS { &it.plan[it.index..] } else { &[] }.to_vec()
            };
            let rolling = record.rollout.as_ref().map(|it| (it.status, remaining(it)));
            (names[number], (record.state.as_str(), rolling, renamed(record.supersedes), model.is_approved(number)))
        };
        let is_retired = |number: &ReleaseIndex| model.releases[*number].state == StateName::Retired;
        let former = |lane: LaneIndex| {
            // Retired releases are left out, because a rollback never targets them.
            let former =
                model.former_holders(lane).into_iter().filter(|number| !is_retired(number)).map(|number| names[number]);
            let taken_back = |number: &ReleaseIndex| !is_retired(number) && model.was_rolled_back_from(*number, lane);
            let taken_back = (0..model.releases.len()).filter(taken_back).map(|number| names[number]);
            (former.collect(), taken_back.collect())
        };
        let releases: BTreeMap<ReleaseIndex, _> = model.releases.iter().enumerate().map(release).collect();
        Self {
            releases: releases.into_values().collect(),
            holders: model.holders.map(renamed),
            former_holders: LANES.map(former),
        }
    }
}

/// All permutations of the numbers below `count`.
fn permutations(count: usize) -> Vec<Vec<ReleaseIndex>> {
    let mut orders = vec![Vec::new()];
    for _ in 0..count {
        orders = orders.iter().flat_map(|order| extensions(order, count)).collect();
    }
    orders
}

/// The sequences that extend `sequence` by one number below `count` which it does not contain.
fn extensions(sequence: &[usize], count: usize) -> Vec<Vec<usize>> {
    let missing = (0..count).filter(|number| !sequence.contains(number));
    missing.map(|number| [sequence, &[number]].concat()).collect()
}

/// All operations that can be requested for an approved release.
fn operations_on(release: ReleaseIndex, plans: &[Vec<LaneIndex>]) -> Vec<Operation> {
    let mut selections = vec![LaneSelection::All];
    selections.extend(LANES.map(LaneSelection::One));
    selections.extend(plans.iter().cloned().map(LaneSelection::Plan));
    let mut requests: Vec<Operation> =
        selections.into_iter().map(|selection| Operation::Activate(release, selection)).collect();
    requests.extend([Operation::Advance(release), Operation::Retire(release), Operation::RollBack(release, None)]);
    requests.extend(LANES.map(|lane| Operation::RollBack(release, Some(lane))));
    requests
}

/// All rollout plans with one, two or three lanes.
fn all_plans() -> Vec<Vec<LaneIndex>> {
    let one: Vec<Vec<LaneIndex>> = extensions(&[], LANES.len());
    let two: Vec<Vec<LaneIndex>> = one.iter().flat_map(|plan| extensions(plan, LANES.len())).collect();
    let three = two.iter().flat_map(|plan| extensions(plan, LANES.len())).collect();
    [one, two, three].concat()
}

struct ExplorationCounts {
    states: usize,
    transitions: usize,
    refusals: usize,
    max_depth: usize,
}

/// Explores, breadth first, the states that `releases` approved releases reach in at most `depth` operations.
///
/// # Panics
/// At the first difference between the domain and the model.
fn explore(releases: usize, plans: &[Vec<LaneIndex>], depth: usize) -> ExplorationCounts {
    let given = Fixtures::new();
    let targets = vec![None; releases];
    let (mut memory, mut model) = (given.store_with_drafts(&targets), Model::new(&targets));
    for release in 0..releases {
        let verdict = Operation::Review(release, Verdict::Approved);
        for operation in [Operation::Submit(release), verdict, Operation::Approve(release)] {
            memory.execute(&mut model, &operation, &given).unwrap();
        }
    }
    let requests: Vec<Operation> = (0..releases).flat_map(|release| operations_on(release, plans)).collect();
    let mut visited = BTreeSet::from([StateKey::canonical(&model)]);
    let mut queue: VecDeque<(InMemoryStore, Model, Vec<Operation>)> = VecDeque::from([(memory, model, Vec::new())]);
    let mut explored = ExplorationCounts { states: 1, transitions: 0, refusals: 0, max_depth: 0 };
    while let Some((memory, model, path)) = queue.pop_front() {
        explored.max_depth = path.len();
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
            let compared =
                decided.and_then(|decision| next_store.commit(decision).map_err(|StaleDecision| "stale".to_owned()));
            let compared = compared.and_then(|()| check_conformance(&next, &next_store.state));
            let compared =
                compared.and_then(|()| check_invariants(&memory.state.release_statuses(), &next_store.state));
            assert_eq!(compared, Ok(()), "{operation:?} after {path:?}");
            explored.transitions += 1;
            if visited.insert(StateKey::canonical(&next)) {
                queue.push_back((next_store, next, [path.as_slice(), std::slice::from_ref(operation)].concat()));
            }
        }
    }
    explored.states = visited.len();
    explored
}

fn print_counts(
    releases: usize,
    ExplorationCounts { states, transitions: moves, refusals, max_depth: deepest }: &ExplorationCounts,
) {
    println!("{releases} releases: {states} states, {moves} transitions, {refusals} refusals, depth {deepest}");
}

/// All states of two releases. The short form uses a single plan, because each further plan multiplies the number
/// of states.
#[test]
fn all_states_of_two_releases_conform_to_the_model() {
    let (plans, least) = if is_long() { (all_plans(), 30_000) } else { (vec![vec![0, 2]], 5_000) };
    let explored = explore(2, &plans, usize::MAX);
    print_counts(2, &explored);
    assert!(
        explored.states > least && explored.transitions > explored.states && explored.refusals > explored.transitions
    );
    assert!(explored.max_depth > 10, "the exploration ended too early");
}

#[test]
fn two_releases_conform_to_the_model_for_four_operations_with_any_plan() {
    let explored = explore(2, &all_plans(), 4);
    print_counts(2, &explored);
    assert!(explored.states > 3_000, "{} states", explored.states);
}

#[test]
fn three_releases_conform_to_the_model_for_few_operations() {
    let (depth, least) = if is_long() { (5, 50_000) } else { (3, 2_000) };
    let explored = explore(3, &all_plans(), depth);
    print_counts(3, &explored);
    assert!(explored.states > least, "{} states", explored.states);
}
