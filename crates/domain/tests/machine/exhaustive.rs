//! Every state that two approved releases reach, and those that three reach in a few moves.

use crate::{
    memory::{Given, Memory},
    model::{Model, Number, Operation, PLACES, Place, Record, Rolling, Taking, difference, unsound},
};
use fairway_domain::release::{StateName, review::Verdict};
use std::collections::{BTreeSet, VecDeque};

/// All that decides what can happen from here on: two histories with one key go on alike.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    releases: Vec<(&'static str, Option<(u8, Vec<Place>)>, Option<Number>, bool)>,
    holders: [Option<Number>; 3],
    /// Who held each lane, and who was taken back from it.
    former: [(Vec<Number>, Vec<Number>); 3],
}

impl Key {
    fn of(model: &Model) -> Self {
        let release = |(number, record): (Number, &Record)| {
            // What of a plan lies behind does not count any more, nor does the plan of a rollout that is over.
            let ahead =
                |it: &Rolling| if it.status == Rolling::IN_PROGRESS { &it.plan[it.index..] } else { &[] }.to_vec();
            let rolling = record.rolling.as_ref().map(|it| (it.status, ahead(it)));
            (record.state.as_str(), rolling, record.supersedes, model.is_approved(number))
        };
        let over = |number: &Number| model.releases[*number].state == StateName::Retired;
        let former = |lane: Place| {
            // Nobody goes back to a release that is over.
            let former = model.former(lane).into_iter().filter(|number| !over(number)).collect();
            let taken_back = |number: &Number| !over(number) && model.taken_back(*number, lane);
            (former, (0..model.releases.len()).filter(taken_back).collect())
        };
        Self {
            releases: model.releases.iter().enumerate().map(release).collect(),
            holders: model.holders,
            former: PLACES.map(former),
        }
    }
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
    let mut plans: Vec<Vec<Place>> = PLACES.map(|lane| vec![lane]).to_vec();
    let mut last = plans.clone();
    for _ in 1..PLACES.len() {
        let longer = |plan: &Vec<Place>| {
            let left = PLACES.into_iter().filter(|lane| !plan.contains(lane));
            left.map(|lane| [plan.as_slice(), &[lane]].concat()).collect::<Vec<_>>()
        };
        last = last.iter().flat_map(longer).collect();
        plans.extend(last.clone());
    }
    plans
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
            let told = moved.follow(&mut model.clone(), operation, &given);
            let told = told.and_then(|()| difference(&next, &moved.seen));
            let told = told.and_then(|()| unsound(&memory.seen.before(), &moved.seen));
            assert_eq!(told, Ok(()), "{operation:?} behind {way:?}");
            explored.moves += 1;
            if known.insert(Key::of(&next)) {
                ahead.push_back((moved, next, [way.as_slice(), &[operation.clone()]].concat()));
            }
        }
    }
    explored.states = known.len();
    explored
}

fn told(releases: usize, Explored { states, moves, refusals, deepest }: &Explored) {
    println!("{releases} releases: {states} states, {moves} moves, {refusals} refusals, {deepest} moves deep");
}

#[test]
fn every_state_of_two_releases_is_as_the_model_tells_it() {
    let explored = explore(2, &plans(), 3);
    told(2, &explored);
}

#[test]
fn every_state_that_three_releases_reach_soon_is_as_the_model_tells_it() {
    let explored = explore(3, &plans(), 2);
    told(3, &explored);
}
