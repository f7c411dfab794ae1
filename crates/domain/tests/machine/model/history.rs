//! Histories: what people ask for one after another, drawn from a seed.

use super::{Number, PLACES, Place};
use fairway_domain::release::review::Verdict;
use std::fmt;

/// What one request asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Operation {
    /// Binds one thing more.
    Edit(Number),
    Submit(Number),
    Reopen(Number),
    Say(Number, Verdict),
    Approve(Number),
    Activate(Number, Taking),
    /// By a person.
    Advance(Number),
    Retire(Number),
    /// From one lane or from all.
    RollBack(Number, Option<Place>),
}

/// What an activation takes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Taking {
    All,
    One(Place),
    Plan(Vec<Place>),
}

/// An operation, and what becomes of its request.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) operation: Operation,
    pub(crate) fate: Fate,
}

/// What becomes of a request. A commit is one statement, so a process dies before it or behind it.
#[derive(Clone, Debug)]
pub(crate) enum Fate {
    /// It is decided, committed and answered.
    Answered,
    /// The process dies between decision and commit.
    Forgotten,
    /// The process dies between commit and answer, so it is asked again.
    AskedAgain,
    /// Another request is decided and committed between its decision and its commit.
    Overtaken(Operation),
}

/// A story from a seed.
#[derive(Clone)]
pub(crate) struct History {
    pub(crate) seed: u64,
    /// The lane that each release is meant for; none where it is meant for all.
    pub(crate) targets: Vec<Option<Place>>,
    pub(crate) steps: Vec<Step>,
}

/// Where a run of histories starts, and whose seeds follow one another from there. The default is as good as any.
pub(crate) fn start_of(asked: Option<&str>) -> u64 {
    asked.map_or(20_260_101, |text| text.parse().unwrap_or_else(|_| panic!("`{text}` is no seed")))
}

/// The seed of a history of a run.
pub(crate) const fn seed_of(start: u64, index: u64) -> u64 {
    start.wrapping_add(index)
}

/// SplitMix64. A generator of one's own takes a dozen lines, and a seed that somebody noted down still means the same
/// history when the one of a crate was improved.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`. That low ones come a little more often does not matter here.
    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() >> 33).unwrap_or(0) % bound
    }

    fn lane(&mut self) -> Place {
        self.below(PLACES.len())
    }

    /// One to three lanes in any order.
    fn plan(&mut self) -> Vec<Place> {
        let mut lanes = PLACES.to_vec();
        let mut plan = Vec::new();
        for _ in 0..=self.lane() {
            plan.push(lanes.swap_remove(self.below(lanes.len())));
        }
        plan
    }

    fn taking(&mut self) -> Taking {
        match self.below(10) {
            0..2 => Taking::All,
            2..6 => Taking::One(self.lane()),
            _ => Taking::Plan(self.plan()),
        }
    }

    fn verdict(&mut self) -> Verdict {
        // Whoever is refused takes no lanes until somebody approves, so approvals come more often.
        match self.below(6) {
            0..4 => Verdict::Approved,
            4 => Verdict::Rejected,
            _ => Verdict::ChangesRequested,
        }
    }

    fn operation(&mut self, releases: usize) -> Operation {
        let release = self.below(releases);
        match self.below(100) {
            0..3 => Operation::Edit(release),
            3..6 => Operation::Submit(release),
            6..8 => Operation::Reopen(release),
            8..15 => Operation::Say(release, self.verdict()),
            15..18 => Operation::Approve(release),
            18..55 => Operation::Activate(release, self.taking()),
            55..76 => Operation::Advance(release),
            76..79 => Operation::Retire(release),
            _ => Operation::RollBack(release, (self.below(3) > 0).then(|| self.lane())),
        }
    }

    fn fate(&mut self, operation: &Operation, releases: usize) -> Fate {
        match self.below(20) {
            0 => Fate::Forgotten,
            1 => Fate::AskedAgain,
            2..5 => Fate::Overtaken(self.overtaking(operation, releases)),
            _ => Fate::Answered,
        }
    }

    /// What comes first. Whom a rollback goes back to may be retired meanwhile, which moves no lane and so is told by
    /// nothing but that release itself: it is drawn more often than it would be by chance.
    fn overtaking(&mut self, operation: &Operation, releases: usize) -> Operation {
        let back = matches!(operation, Operation::RollBack(..));
        if back && self.below(3) > 0 { Operation::Retire(self.below(releases)) } else { self.operation(releases) }
    }
}

impl History {
    /// The history of a seed: two to four releases, of which most are approved at once, and 12 to 30 steps.
    pub(crate) fn of(seed: u64) -> Self {
        let mut dice = Dice(seed);
        let releases = 2 + dice.below(3);
        let targets = (0..releases).map(|_| (dice.below(8) == 0).then(|| dice.lane())).collect();
        let mut steps = Vec::new();
        for release in 0..releases {
            if dice.below(8) > 0 {
                let way = [Operation::Submit(release), Operation::Say(release, Verdict::Approved)];
                let way = way.into_iter().chain([Operation::Approve(release)]);
                steps.extend(way.map(|operation| Step { operation, fate: Fate::Answered }));
            }
        }
        for _ in 0..12 + dice.below(19) {
            let operation = dice.operation(releases);
            let fate = dice.fate(&operation, releases);
            steps.push(Step { operation, fate });
        }
        Self { seed, targets, steps }
    }

    /// How many requests it has, those that are asked again or overtake another counted too.
    pub(crate) fn requests(&self) -> usize {
        let extra = self.steps.iter().filter(|step| matches!(step.fate, Fate::AskedAgain | Fate::Overtaken(_)));
        self.steps.len() + extra.count()
    }
}

/// What somebody needs to see the failure of a history again.
impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {0}: FAIRWAY_TEST_SEED={0} runs it first", self.seed)?;
        writeln!(f, "releases are meant for {:?}", self.targets)?;
        for (number, Step { operation, fate }) in self.steps.iter().enumerate() {
            match fate {
                Fate::Answered => writeln!(f, "{number:3} {operation:?}")?,
                Fate::Forgotten | Fate::AskedAgain | Fate::Overtaken(_) => {
                    writeln!(f, "{number:3} {operation:?}, {fate:?}")?;
                }
            }
        }
        Ok(())
    }
}
