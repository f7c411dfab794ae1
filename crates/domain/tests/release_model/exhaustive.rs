//! Exhaustive exploration. It covers all states that two approved releases can reach, and the states that three
//! approved releases can reach in a few operations.
//!
//! It includes no verdicts, because the random histories cover these.

use crate::{
    in_memory_store::{Fixtures, InMemoryStore, StaleDecision},
    is_long,
    model::{
        LANES, LaneIndex, LaneSelection, Model, Operation, ReleaseIndex, ReleaseRecord, RolloutRecord,
        check_conformance, check_invariants,
    },
};
use fairway_domain::release::{StateName, review::ReleaseVerdict};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A release as a part of a state's key: its state, the status and remaining lanes of its rollout, the release that it
/// superseded, and whether it is approved.
type ReleaseKey = (&'static str, Option<(u8, Vec<LaneIndex>)>, Option<ReleaseIndex>, bool);

/// The part of a state that determines all later transitions. States with equal keys behave alike.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct StateKey {
    releases: Vec<ReleaseKey>,
    holders: [Option<ReleaseIndex>; 3],
    /// For each lane, its former holders in order, and the releases that were rolled back from it.
    former_holders: [(Vec<ReleaseIndex>, BTreeSet<ReleaseIndex>); 3],
}

impl StateKey {
    /// The canonical key of a model: the minimum over all permutations of the releases, because releases are
    /// interchangeable.
    fn canonical(model: &Model) -> Option<Self> {
        permutations(model.releases.len()).iter().map(|new_indexes| Self::with_order(model, new_indexes)).min()
    }

    fn with_order(model: &Model, new_indexes: &[ReleaseIndex]) -> Self {
        let new_index = |number: Option<ReleaseIndex>| number.map(|number| new_indexes[number]);
        let release = |(number, record): (ReleaseIndex, &ReleaseRecord)| {
            // Lanes that the rollout has completed do not affect later transitions; neither does the plan of an ended
            // rollout.
            let remaining = |rollout: &RolloutRecord| {
                if rollout.status == RolloutRecord::IN_PROGRESS { &rollout.plan[rollout.index..] } else { &[] }.to_vec()
            };
            let rollout_key = record.rollout.as_ref().map(|rollout| (rollout.status, remaining(rollout)));
            (
                new_indexes[number],
                (record.state.as_str(), rollout_key, new_index(record.supersedes), model.is_approved(number)),
            )
        };
        let is_retired = |number: &ReleaseIndex| model.releases[*number].state == StateName::Retired;
        let former_of_lane = |lane: LaneIndex| {
            // Retired releases are omitted, because no rollback targets them.
            let former_holders = model
                .former_holders(lane)
                .into_iter()
                .filter(|number| !is_retired(number))
                .map(|number| new_indexes[number]);
            let rolled_back = |number: &ReleaseIndex| !is_retired(number) && model.was_rolled_back_from(*number, lane);
            let rolled_back = (0..model.releases.len()).filter(rolled_back).map(|number| new_indexes[number]);
            (former_holders.collect(), rolled_back.collect())
        };
        let releases: BTreeMap<ReleaseIndex, _> = model.releases.iter().enumerate().map(release).collect();
        Self {
            releases: releases.into_values().collect(),
            holders: model.holders.map(new_index),
            former_holders: LANES.map(former_of_lane),
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

/// All sequences that extend `sequence` by one number below `count` that it does not contain.
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
    let one_lane: Vec<Vec<LaneIndex>> = extensions(&[], LANES.len());
    let two_lanes: Vec<Vec<LaneIndex>> = one_lane.iter().flat_map(|plan| extensions(plan, LANES.len())).collect();
    let three_lanes = two_lanes.iter().flat_map(|plan| extensions(plan, LANES.len())).collect();
    [one_lane, two_lanes, three_lanes].concat()
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
    let fixtures = Fixtures::new();
    let targets = vec![None; releases];
    let (mut store, mut model) = (fixtures.store_with_drafts(&targets), Model::new(&targets));
    for release in 0..releases {
        let verdict = Operation::Review(release, ReleaseVerdict::Approved);
        for operation in [Operation::Submit(release), verdict, Operation::Approve(release)] {
            store.execute(&mut model, &operation, &fixtures).unwrap();
        }
    }
    let requests: Vec<Operation> = (0..releases).flat_map(|release| operations_on(release, plans)).collect();
    let mut visited = BTreeSet::from([StateKey::canonical(&model)]);
    let mut queue: VecDeque<(InMemoryStore, Model, Vec<Operation>)> = VecDeque::from([(store, model, Vec::new())]);
    let mut counts = ExplorationCounts { states: 1, transitions: 0, refusals: 0, max_depth: 0 };
    while let Some((store, model, path)) = queue.pop_front() {
        counts.max_depth = path.len();
        if path.len() == depth {
            continue;
        }
        for operation in &requests {
            let mut next_model = model.clone();
            if let Err(refusal) = next_model.apply(operation) {
                let actual = store.decide(operation, &fixtures).map(|_| ());
                assert_eq!(actual, Err(refusal), "{operation:?} after {path:?}");
                counts.refusals += 1;
                continue;
            }
            let mut next_store = store.clone();
            let decided = store.decide(operation, &fixtures).map_err(|refusal| format!("refused: {refusal:?}"));
            let comparison =
                decided.and_then(|decision| next_store.commit(decision).map_err(|StaleDecision| "stale".to_owned()));
            let comparison = comparison.and_then(|()| check_conformance(&next_model, &next_store.state));
            let comparison =
                comparison.and_then(|()| check_invariants(&store.state.release_statuses(), &next_store.state));
            assert_eq!(comparison, Ok(()), "{operation:?} after {path:?}");
            counts.transitions += 1;
            if visited.insert(StateKey::canonical(&next_model)) {
                queue.push_back((next_store, next_model, [path.as_slice(), std::slice::from_ref(operation)].concat()));
            }
        }
    }
    counts.states = visited.len();
    counts
}

fn print_counts(releases: usize, counts: &ExplorationCounts) {
    let ExplorationCounts { states, transitions, refusals, max_depth } = counts;
    println!("{releases} releases: {states} states, {transitions} transitions, {refusals} refusals, depth {max_depth}");
}

/// Explores all states of two releases. The short form uses a single plan, because each further plan multiplies the
/// number of states.
#[test]
fn all_states_of_two_releases_conform_to_the_model() {
    let (plans, min_states) = if is_long() { (all_plans(), 30_000) } else { (vec![vec![0, 2]], 5_000) };
    let counts = explore(2, &plans, usize::MAX);
    print_counts(2, &counts);
    assert!(counts.states > min_states && counts.transitions > counts.states && counts.refusals > counts.transitions);
    assert!(counts.max_depth > 10, "the exploration ended too early");
}

#[test]
fn two_releases_conform_to_the_model_for_four_operations_with_any_plan() {
    let counts = explore(2, &all_plans(), 4);
    print_counts(2, &counts);
    assert!(counts.states > 3_000, "{} states", counts.states);
}

#[test]
fn three_releases_conform_to_the_model_for_few_operations() {
    let (depth, min_states) = if is_long() { (5, 50_000) } else { (3, 2_000) };
    let counts = explore(3, &all_plans(), depth);
    print_counts(3, &counts);
    assert!(counts.states > min_states, "{} states", counts.states);
}
