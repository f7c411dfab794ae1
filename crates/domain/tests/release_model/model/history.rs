//! Random histories: sequences of operations that a seed determines.

use super::{LANES, LaneIndex, ReleaseIndex};
use fairway_domain::release::review::ReleaseVerdict;
use std::fmt;

/// The operation that a request performs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Operation {
    /// Adds a binding to this release.
    Bind(ReleaseIndex),
    Submit(ReleaseIndex),
    Reopen(ReleaseIndex),
    Review(ReleaseIndex, ReleaseVerdict),
    Approve(ReleaseIndex),
    Activate(ReleaseIndex, LaneSelection),
    /// Advances the rollout of this release, as a person would.
    Advance(ReleaseIndex),
    Retire(ReleaseIndex),
    /// Rolls this release back from one lane, or for `None` from all its lanes.
    RollBack(ReleaseIndex, Option<LaneIndex>),
}

/// The lanes that an activation takes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum LaneSelection {
    All,
    One(LaneIndex),
    Plan(Vec<LaneIndex>),
}

/// A step of a history: an operation, and the outcome of the request for it.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) operation: Operation,
    pub(crate) outcome: RequestOutcome,
}

/// The outcome of a request. A commit is a single statement, so a crash happens before or after it.
#[derive(Clone, Debug)]
pub(crate) enum RequestOutcome {
    /// The request is decided and committed, and the client receives the response.
    Answered,
    /// The process crashes between decision and commit.
    CrashedBeforeCommit,
    /// The process crashes between commit and response. The client repeats the request.
    CrashedAfterCommit,
    /// Another operation commits between the decision and the commit of this request.
    PrecededBy(Operation),
}

/// A sequence of steps, which a seed determines.
#[derive(Clone)]
pub(crate) struct History {
    pub(crate) seed: u64,
    /// The target lane of each release; `None` targets all lanes.
    pub(crate) target_lanes: Vec<Option<LaneIndex>>,
    pub(crate) steps: Vec<Step>,
}

/// The first seed of a test run, which `FAIRWAY_TEST_SEED` can set. Consecutive histories use consecutive seeds.
pub(crate) fn first_seed(seed_text: Option<&str>) -> u64 {
    seed_text.map_or(20_260_101, |text| text.parse().unwrap_or_else(|_| panic!("`{text}` is not a valid seed")))
}

/// The seed of the history with this index in a test run.
pub(crate) const fn history_seed(start: u64, index: u64) -> u64 {
    start.wrapping_add(index)
}

/// The SplitMix64 generator. A crate could change its algorithm, so the tests implement it: a recorded seed must always
/// reproduce the same history.
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A random number below `bound`. Low numbers are slightly more frequent, but the tests do not need equal
    /// frequencies.
    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() >> 33).unwrap_or(0) % bound
    }

    fn random_lane(&mut self) -> LaneIndex {
        self.below(LANES.len())
    }

    /// A plan of one to three distinct lanes in random order.
    fn random_plan(&mut self) -> Vec<LaneIndex> {
        let mut lanes = LANES.to_vec();
        let mut plan = Vec::new();
        for _ in 0..=self.random_lane() {
            plan.push(lanes.swap_remove(self.below(lanes.len())));
        }
        plan
    }

    fn random_lane_selection(&mut self) -> LaneSelection {
        match self.below(10) {
            0..2 => LaneSelection::All,
            2..6 => LaneSelection::One(self.random_lane()),
            _ => LaneSelection::Plan(self.random_plan()),
        }
    }

    fn random_verdict(&mut self) -> ReleaseVerdict {
        // Approvals are more frequent, because a release without approval cannot take lanes.
        match self.below(6) {
            0..4 => ReleaseVerdict::Approved,
            4 => ReleaseVerdict::Rejected,
            _ => ReleaseVerdict::ChangesRequested,
        }
    }

    fn random_operation(&mut self, releases: usize) -> Operation {
        let release = self.below(releases);
        match self.below(100) {
            0..3 => Operation::Bind(release),
            3..6 => Operation::Submit(release),
            6..8 => Operation::Reopen(release),
            8..15 => Operation::Review(release, self.random_verdict()),
            15..18 => Operation::Approve(release),
            18..55 => Operation::Activate(release, self.random_lane_selection()),
            55..76 => Operation::Advance(release),
            76..79 => Operation::Retire(release),
            _ => Operation::RollBack(release, (self.below(3) > 0).then(|| self.random_lane())),
        }
    }

    fn random_outcome(&mut self, operation: &Operation, releases: usize) -> RequestOutcome {
        match self.below(20) {
            0 => RequestOutcome::CrashedBeforeCommit,
            1 => RequestOutcome::CrashedAfterCommit,
            2..5 => RequestOutcome::PrecededBy(self.concurrent_operation(operation, releases)),
            _ => RequestOutcome::Answered,
        }
    }

    /// The concurrent operation that commits first. During a rollback, it is usually the retirement of a release. If
    /// this release is the rollback's target, no lane changes, and only the revision of the target reveals the
    /// conflict.
    fn concurrent_operation(&mut self, operation: &Operation, releases: usize) -> Operation {
        let is_rollback = matches!(operation, Operation::RollBack(..));
        if is_rollback && self.below(3) > 0 {
            Operation::Retire(self.below(releases))
        } else {
            self.random_operation(releases)
        }
    }
}

impl History {
    /// Creates the history of a seed. It has two to four releases, and most of them are approved first. Another 12 to
    /// 30 steps follow.
    pub(crate) fn from_seed(seed: u64) -> Self {
        let mut random = SplitMix64(seed);
        let releases = 2 + random.below(3);
        let target_lanes = (0..releases).map(|_| (random.below(8) == 0).then(|| random.random_lane())).collect();
        let mut steps = Vec::new();
        for release in 0..releases {
            if random.below(8) > 0 {
                let operations = [Operation::Submit(release), Operation::Review(release, ReleaseVerdict::Approved)];
                let operations = operations.into_iter().chain([Operation::Approve(release)]);
                steps.extend(operations.map(|operation| Step { operation, outcome: RequestOutcome::Answered }));
            }
        }
        for _ in 0..12 + random.below(19) {
            let operation = random.random_operation(releases);
            let outcome = random.random_outcome(&operation, releases);
            steps.push(Step { operation, outcome });
        }
        Self { seed, target_lanes, steps }
    }

    /// The number of requests, including repeated and concurrent requests.
    pub(crate) fn request_count(&self) -> usize {
        let extra_requests = self
            .steps
            .iter()
            .filter(|step| matches!(step.outcome, RequestOutcome::CrashedAfterCommit | RequestOutcome::PrecededBy(_)));
        self.steps.len() + extra_requests.count()
    }
}

/// Writes the seed, the target lanes and the steps, from which a failure can be reproduced.
impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {0}: set FAIRWAY_TEST_SEED={0} to run it first", self.seed)?;
        writeln!(f, "target lanes: {:?}", self.target_lanes)?;
        for (number, Step { operation, outcome }) in self.steps.iter().enumerate() {
            match outcome {
                RequestOutcome::Answered => writeln!(f, "{number:3} {operation:?}")?,
                RequestOutcome::CrashedBeforeCommit
                | RequestOutcome::CrashedAfterCommit
                | RequestOutcome::PrecededBy(_) => {
                    writeln!(f, "{number:3} {operation:?}, {outcome:?}")?;
                }
            }
        }
        Ok(())
    }
}
