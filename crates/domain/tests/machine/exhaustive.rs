//! Every state that two approved releases reach, and those that three reach in a few moves.
//!
//! Verdicts play no part here: histories have them.

use crate::{
    is_long,
    memory::{Given, Memory, Stale},
    model::{Model, Number, Operation, PLACES, Place, Record, Rolling, Taking, difference, unsound},
};
use fairway_domain::release::{StateName, review::Verdict};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A release's state, its rollout with the lanes ahead, whom it replaced, and whether it is approved.
type ReleaseKey = (&'static str, Option<(u8, Vec<Place>)>, Option<Number>, bool);

/// All that decides what can happen from here on: two histories with one key go on alike.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    releases: Vec<ReleaseKey>,
    holders: [Option<Number>; 3],
    /// Who held each lane, and who was taken back from it.
    former: [(Vec<Number>, BTreeSet<Number>); 3],
}

impl Key {
    /// The key of the model. Which release was made first plays no part, so of the keys under all names one counts.
    fn of(model: &Model) -> Option<Self> {
        orders(model.releases.len()).iter().map(|names| Self::under(model, names)).min()
    }

    fn under(model: &Model, names: &[Number]) -> Self {
        let named = |number: Option<Number>| number.map(|number| names[number]);
        let release = |(number, record): (Number, &Record)| {
            // What of a plan lies behind does not count any more, nor does the plan of a rollout that is over.
            let ahead =
                |it: &Rolling| if it.status == Rolling::IN_PROGRESS { &it.plan[it.index..] } else { &[] }.to_vec();
            let rolling = record.rolling.as_ref().map(|it| (it.status, ahead(it)));
            (names[number], (record.state.as_str(), rolling, named(record.supersedes), model.is_approved(number)))
        };
        let over = |number: &Number| model.releases[*number].state == StateName::Retired;
        let former = |lane: Place| {
            // Nobody goes back to a release that is over.
            let former = model.former(lane).into_iter().filter(|number| !over(number)).map(|number| names[number]);
            let taken_back = |number: &Number| !over(number) && model.taken_back(*number, lane);
            let taken_back = (0..model.releases.len()).filter(taken_back).map(|number| names[number]);
            (former.collect(), taken_back.collect())
        };
        let releases: BTreeMap<Number, _> = model.releases.iter().enumerate().map(release).collect();
        Self {
            releases: releases.into_values().collect(),
            holders: model.holders.map(named),
            former: PLACES.map(former),
        }
    }
}

/// The numbers below `count` in every order.
fn orders(count: usize) -> Vec<Vec<Number>> {
    let mut orders = vec![Vec::new()];
    for _ in 0..count {
        orders = orders.iter().flat_map(|order| longer(order, count)).collect();
    }
    orders
}

/// The sequence with each number below `count` that is not in it behind it.
fn longer(sequence: &[usize], count: usize) -> Vec<Vec<usize>> {
    let left = (0..count).filter(|number| !sequence.contains(number));
    left.map(|number| [sequence, &[number]].concat()).collect()
}

/// What can be asked of a release that is approved.
fn requests(release: Number, plans: &[Vec<Place>]) -> Vec<Operation> {
    let mut takings = vec![Taking::All];
    takings.extend(PLACES.map(Taking::One));
    takings.extend(plans.iter().cloned().map(Taking::Plan));
    let mut requests: Vec<Operation> = takings.into_iter().map(|taking| Operation::Activate(release, taking)).collect();
    requests.extend([Operation::Advance(release), Operation::Retire(release), Operation::RollBack(release, None)]);
    requests.extend(PLACES.map(|lane| Operation::RollBack(release, Some(lane))));
    requests
}

/// One, two or three lanes in every order.
fn plans() -> Vec<Vec<Place>> {
    let one: Vec<Vec<Place>> = longer(&[], PLACES.len());
    let two: Vec<Vec<Place>> = one.iter().flat_map(|plan| longer(plan, PLACES.len())).collect();
    let three = two.iter().flat_map(|plan| longer(plan, PLACES.len())).collect();
    [one, two, three].concat()
}

struct Explored {
    states: usize,
    moves: usize,
    refusals: usize,
    deepest: usize,
}

/// Goes breadth first through the states that this many approved releases reach in at most `depth` moves.
fn explore(releases: usize, plans: &[Vec<Place>], depth: usize) -> Explored {
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
    let mut known = BTreeSet::from([Key::of(&model)]);
    let mut ahead: VecDeque<(Memory, Model, Vec<Operation>)> = VecDeque::from([(memory, model, Vec::new())]);
    let mut explored = Explored { states: 1, moves: 0, refusals: 0, deepest: 0 };
    while let Some((memory, model, way)) = ahead.pop_front() {
        explored.deepest = way.len();
        if way.len() == depth {
            continue;
        }
        for operation in &requests {
            let mut next = model.clone();
            if let Err(refused) = next.apply(operation) {
                let product = memory.decide(operation, &given).map(|_| ());
                assert_eq!(product, Err(refused), "{operation:?} behind {way:?}");
                explored.refusals += 1;
                continue;
            }
            let mut moved = memory.clone();
            let decided = memory.decide(operation, &given).map_err(|refused| format!("refused: {refused:?}"));
            let told = decided.and_then(|decision| moved.commit(decision).map_err(|Stale| "stale".to_owned()));
            let told = told.and_then(|()| difference(&next, &moved.seen));
            let told = told.and_then(|()| unsound(&memory.seen.before(), &moved.seen));
            assert_eq!(told, Ok(()), "{operation:?} behind {way:?}");
            explored.moves += 1;
            if known.insert(Key::of(&next)) {
                ahead.push_back((moved, next, [way.as_slice(), std::slice::from_ref(operation)].concat()));
            }
        }
    }
    explored.states = known.len();
    explored
}

fn told(releases: usize, Explored { states, moves, refusals, deepest }: &Explored) {
    println!("{releases} releases: {states} states, {moves} moves, {refusals} refusals, {deepest} moves deep");
}

/// Two releases, whatever they do. With one plan in the short form: each further one multiplies the states.
#[test]
fn all_that_two_releases_can_do_is_as_the_model_tells_it() {
    let (plans, least) = if is_long() { (plans(), 30_000) } else { (vec![vec![0, 2]], 5_000) };
    let explored = explore(2, &plans, usize::MAX);
    told(2, &explored);
    assert!(explored.states > least && explored.moves > explored.states && explored.refusals > explored.moves);
    assert!(explored.deepest > 10, "it goes on until nothing new comes");
}

#[test]
fn all_that_two_releases_can_do_soon_with_any_plan_is_as_the_model_tells_it() {
    let explored = explore(2, &plans(), 4);
    told(2, &explored);
    assert!(explored.states > 3_000, "{} states", explored.states);
}

#[test]
fn all_that_three_releases_can_do_soon_is_as_the_model_tells_it() {
    let (depth, least) = if is_long() { (5, 50_000) } else { (3, 2_000) };
    let explored = explore(3, &plans(), depth);
    told(3, &explored);
    assert!(explored.states > least, "{} states", explored.states);
}
