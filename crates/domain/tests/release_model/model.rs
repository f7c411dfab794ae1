//! A reference model of releases, lanes and rollouts. Its rules come from the documentation and not from the code under
//! test. A difference therefore shows a defect in the model or in the code.
//!
//! The tests of the stores include this file by its path. A shared library such as the testkit would add its
//! dependencies to the tests of the domain.

#[path = "model/conformance.rs"]
mod conformance;
#[path = "model/history.rs"]
mod history;

pub(crate) use conformance::{
    Decision, DecisionInput, ReleaseStatuses, StoredState, check_conformance, check_invariants, decide,
};
use fairway_domain::release::{StateName, lane::MoveReason, review::ReleaseVerdict};
use fairway_domain::rollout::RolloutStatus;
pub(crate) use history::{History, LaneSelection, Operation, RequestOutcome, Step, first_seed, history_seed};
use std::collections::BTreeSet;

/// The index of a release in its history.
pub(crate) type ReleaseIndex = usize;
/// The index of a lane, ordered from the most restrictive to the most general.
pub(crate) type LaneIndex = usize;
pub(crate) const LANES: [LaneIndex; 3] = [0, 1, 2];

/// A refusal, as its code. Only `invalid_transition` also has the current state and the valid next states.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Refusal {
    pub(crate) code: &'static str,
    pub(crate) state_and_successors: Option<(StateName, Vec<StateName>)>,
}

impl Refusal {
    pub(crate) const fn with_code(code: &'static str) -> Self {
        Self { code, state_and_successors: None }
    }
}

/// The rollout of a release in the model.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct RolloutRecord {
    pub(crate) plan: Vec<LaneIndex>,
    pub(crate) index: usize,
    /// The status of the rollout: 0 is in progress, 1 is completed, 2 is rolled back.
    pub(crate) status: u8,
}

impl RolloutRecord {
    pub(crate) const IN_PROGRESS: u8 = 0;
    const COMPLETED: u8 = 1;
    const ROLLED_BACK: u8 = 2;

    pub(crate) const fn rollout_status(&self) -> RolloutStatus {
        match self.status {
            Self::IN_PROGRESS => RolloutStatus::InProgress,
            Self::COMPLETED => RolloutStatus::Completed,
            _ => RolloutStatus::RolledBack,
        }
    }
}

/// A release in the model.
#[derive(Clone, Debug)]
pub(crate) struct ReleaseRecord {
    pub(crate) state: StateName,
    /// The lane that the release targets; `None` targets all lanes.
    pub(crate) target_lane: Option<LaneIndex>,
    pub(crate) rollout: Option<RolloutRecord>,
    pub(crate) supersedes: Option<ReleaseIndex>,
    /// The number of changes of the bindings. A verdict applies only to the edition that it reviewed.
    bindings_edition: u32,
    verdicts: Vec<(ReleaseVerdict, u32)>,
    /// The revision of the release, which increments with each change.
    pub(crate) revision: i64,
}

/// The reassignment of a lane from one holder to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LaneMove {
    pub(crate) lane: LaneIndex,
    pub(crate) from: Option<ReleaseIndex>,
    pub(crate) to: Option<ReleaseIndex>,
    pub(crate) reason: MoveReason,
    pub(crate) revision: i64,
}

/// The model of all releases of one workload in one environment, with the lanes that they hold.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) releases: Vec<ReleaseRecord>,
    pub(crate) holders: [Option<ReleaseIndex>; 3],
    /// The reassignments of lanes, oldest first.
    pub(crate) lane_moves: Vec<LaneMove>,
    /// The revision of the deployment. It increments when a lane changes its holder, or the set of soaking lanes
    /// changes.
    pub(crate) deployment_revision: i64,
}

/// The revisions and states on which a decision depends. If one of them changes before the commit, the decision is
/// stale.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct DecisionBasis {
    release_revision: i64,
    deployment_revision: Option<i64>,
    rollback_targets: Vec<(ReleaseIndex, StateName)>,
}

impl Model {
    /// Creates a model with one draft for each target lane. Each draft has one binding.
    pub(crate) fn new(targets: &[Option<LaneIndex>]) -> Self {
        let draft = |target: &Option<LaneIndex>| ReleaseRecord {
            state: StateName::Draft,
            target_lane: *target,
            rollout: None,
            supersedes: None,
            bindings_edition: 0,
            verdicts: Vec::new(),
            // Creating the draft is the first revision, and its binding is the second.
            revision: 2,
        };
        Self {
            releases: targets.iter().map(draft).collect(),
            holders: [None; 3],
            lane_moves: Vec::new(),
            deployment_revision: 1,
        }
    }

    /// Applies an operation to the model.
    ///
    /// # Errors
    /// Returns the refusal of the operation; the model is then unchanged.
    pub(crate) fn apply(&mut self, operation: &Operation) -> Result<(), Refusal> {
        let before = (self.holders, self.soaking_lanes());
        match operation {
            Operation::Bind(release) => self.bind(*release)?,
            Operation::Submit(release) => self.change_state(*release, StateName::Draft, StateName::ReviewReady)?,
            Operation::Reopen(release) => self.change_state(*release, StateName::ReviewReady, StateName::Draft)?,
            Operation::Review(release, verdict) => self.review(*release, *verdict),
            Operation::Approve(release) => self.approve(*release)?,
            Operation::Activate(release, selection) => self.activate(*release, selection)?,
            Operation::Advance(release) => self.advance(*release)?,
            Operation::Retire(release) => self.retire(*release)?,
            Operation::RollBack(release, lane) => self.roll_back(*release, *lane)?,
        }
        if (self.holders, self.soaking_lanes()) != before {
            self.deployment_revision += 1;
        }
        Ok(())
    }

    /// The current revisions and states on which a decision about this operation depends. The decision is stale once
    /// they differ.
    pub(crate) fn decision_basis(&self, operation: &Operation) -> DecisionBasis {
        let (release, affects_lanes, rollbacks) = match operation {
            Operation::Bind(release)
            | Operation::Submit(release)
            | Operation::Reopen(release)
            | Operation::Review(release, _)
            | Operation::Approve(release) => (*release, false, Vec::new()),
            Operation::Activate(release, _) | Operation::Advance(release) | Operation::Retire(release) => {
                (*release, true, Vec::new())
            }
            Operation::RollBack(release, lane) => (*release, true, self.lane_rollbacks(*release, *lane)),
        };
        let rollbacks = rollbacks.into_iter().map(|(_, to)| (to, self.releases[to].state)).collect();
        DecisionBasis {
            release_revision: self.releases[release].revision,
            deployment_revision: affects_lanes.then_some(self.deployment_revision),
            rollback_targets: rollbacks,
        }
    }

    /// The current lanes of the rollouts in progress.
    pub(crate) fn soaking_lanes(&self) -> BTreeSet<LaneIndex> {
        let rollouts = self.releases.iter().filter_map(|record| record.rollout.as_ref());
        rollouts
            .filter(|rollout| rollout.status == RolloutRecord::IN_PROGRESS)
            .map(|rollout| rollout.plan[rollout.index])
            .collect()
    }

    /// The former and current holders of the lane, the latest last. Releases that were rolled back from the lane are
    /// omitted.
    pub(crate) fn former_holders(&self, lane: LaneIndex) -> Vec<ReleaseIndex> {
        let mut former: Vec<ReleaseIndex> = Vec::new();
        for lane_move in self.lane_moves.iter().filter(|lane_move| lane_move.lane == lane) {
            if let Some(to) = lane_move.to {
                former.retain(|other| *other != to);
                former.push(to);
            }
        }
        former.retain(|other| !self.was_rolled_back_from(*other, lane));
        former
    }

    pub(crate) fn was_rolled_back_from(&self, release: ReleaseIndex, lane: LaneIndex) -> bool {
        let is_rollback =
            |lane_move: &LaneMove| lane_move.reason == MoveReason::Rollback && lane_move.from == Some(release);
        self.lane_moves.iter().any(|lane_move| lane_move.lane == lane && is_rollback(lane_move))
    }

    /// Whether the current bindings have an approval, and no newer verdict objects to them.
    pub(crate) fn is_approved(&self, release: ReleaseIndex) -> bool {
        let ReleaseRecord { bindings_edition: edition, verdicts, .. } = &self.releases[release];
        let is_current = |(verdict, verdict_edition): &&(ReleaseVerdict, u32)| {
            *verdict != ReleaseVerdict::Approved || verdict_edition == edition
        };
        verdicts.iter().rev().find(is_current).is_some_and(|(verdict, _)| *verdict == ReleaseVerdict::Approved)
    }

    fn bind(&mut self, release: ReleaseIndex) -> Result<(), Refusal> {
        let record = &mut self.releases[release];
        if record.state != StateName::Draft {
            return Err(Refusal::with_code("release_not_editable"));
        }
        record.bindings_edition += 1;
        record.revision += 1;
        Ok(())
    }

    fn change_state(&mut self, release: ReleaseIndex, from: StateName, to: StateName) -> Result<(), Refusal> {
        if self.releases[release].state != from {
            return Err(self.invalid_transition(release));
        }
        self.releases[release].state = to;
        self.releases[release].revision += 1;
        Ok(())
    }

    fn review(&mut self, release: ReleaseIndex, verdict: ReleaseVerdict) {
        let record = &mut self.releases[release];
        record.verdicts.push((verdict, record.bindings_edition));
        record.revision += 1;
        if record.state == StateName::ReviewReady && verdict == ReleaseVerdict::ChangesRequested {
            record.state = StateName::Draft;
        }
        // A verdict on an active release also increments the revision of its deployment, because responses about lanes
        // contain the verdict.
        if record.state == StateName::Active {
            self.deployment_revision += 1;
        }
    }

    fn approve(&mut self, release: ReleaseIndex) -> Result<(), Refusal> {
        if self.releases[release].state == StateName::ReviewReady && !self.is_approved(release) {
            return Err(Refusal::with_code("approval_required"));
        }
        self.change_state(release, StateName::ReviewReady, StateName::Approved)
    }

    fn activate(&mut self, release: ReleaseIndex, selection: &LaneSelection) -> Result<(), Refusal> {
        let ReleaseRecord { state, target_lane: target, rollout: current_rollout, .. } = &self.releases[release];
        if ![StateName::Approved, StateName::Active].contains(state) {
            return Err(self.invalid_transition(release));
        }
        let is_targeted = |lane: &LaneIndex| target.is_none_or(|target| target == *lane);
        let (selected_lanes, lanes): (&[LaneIndex], Vec<LaneIndex>) = match selection {
            LaneSelection::All => (&[], LANES.into_iter().filter(is_targeted).collect()),
            LaneSelection::One(lane) => (std::slice::from_ref(lane), vec![*lane]),
            LaneSelection::Plan(plan) => (plan, vec![plan[0]]),
        };
        if !selected_lanes.iter().all(is_targeted) {
            return Err(Refusal::with_code("lane_not_targeted"));
        }
        let lanes: Vec<LaneIndex> = lanes.into_iter().filter(|lane| self.holders[*lane] != Some(release)).collect();
        if lanes.is_empty() {
            return Err(self.invalid_transition(release));
        }
        let is_rollout = matches!(selection, LaneSelection::Plan(_));
        if is_rollout && current_rollout.as_ref().is_some_and(|rollout| rollout.status == RolloutRecord::IN_PROGRESS) {
            return Err(Refusal::with_code("rollout_in_progress"));
        }
        if !self.is_approved(release) {
            return Err(Refusal::with_code("approval_required"));
        }
        if let LaneSelection::Plan(plan) = selection {
            let new_rollout = RolloutRecord { plan: plan.clone(), index: 0, status: RolloutRecord::IN_PROGRESS };
            self.releases[release].rollout = Some(new_rollout);
        }
        self.assign_lanes(release, &lanes, MoveReason::Activation);
        Ok(())
    }

    fn advance(&mut self, release: ReleaseIndex) -> Result<(), Refusal> {
        let rollout = self.releases[release].rollout.as_ref();
        let Some(current) = rollout.filter(|rollout| rollout.status == RolloutRecord::IN_PROGRESS) else {
            return Err(Refusal::with_code("rollout_not_in_progress"));
        };
        let Some(next) = current.plan.get(current.index + 1).copied() else {
            self.set_rollout_status(release, RolloutRecord::COMPLETED);
            self.releases[release].revision += 1;
            return Ok(());
        };
        if !self.is_approved(release) {
            return Err(Refusal::with_code("approval_required"));
        }
        if let Some(rollout) = &mut self.releases[release].rollout {
            rollout.index += 1;
        }
        let lanes: &[LaneIndex] = if self.holders[next] == Some(release) { &[] } else { &[next] };
        self.assign_lanes(release, lanes, MoveReason::Advance);
        Ok(())
    }

    fn retire(&mut self, release: ReleaseIndex) -> Result<(), Refusal> {
        if self.releases[release].state == StateName::Retired {
            return Err(self.invalid_transition(release));
        }
        for lane in LANES.into_iter().filter(|lane| self.holders[*lane] == Some(release)).collect::<Vec<_>>() {
            self.move_lane(lane, None, MoveReason::Retirement);
        }
        self.releases[release].state = StateName::Retired;
        self.derive_states(release);
        Ok(())
    }

    fn roll_back(&mut self, release: ReleaseIndex, lane: Option<LaneIndex>) -> Result<(), Refusal> {
        if self.releases[release].state != StateName::Active {
            return Err(self.invalid_transition(release));
        }
        let rollbacks = self.lane_rollbacks(release, lane);
        if rollbacks.is_empty() {
            return Err(Refusal::with_code("no_previous_release"));
        }
        for (lane, to) in rollbacks {
            self.move_lane(lane, Some(to), MoveReason::Rollback);
        }
        // A rollback on any lane stops the rollout of the release.
        self.stop_rollout(release);
        self.derive_states(release);
        Ok(())
    }

    /// The lanes that a rollback changes, each with its next holder. The next holder is the latest former holder that
    /// is not retired and was not rolled back from the lane.
    fn lane_rollbacks(&self, release: ReleaseIndex, lane: Option<LaneIndex>) -> Vec<(LaneIndex, ReleaseIndex)> {
        let held_lanes = LANES.into_iter().filter(|held_lane| lane.is_none_or(|lane| lane == *held_lane));
        let held_lanes = held_lanes.filter(|held_lane| self.holders[*held_lane] == Some(release));
        let next_holder = |lane: LaneIndex| {
            let is_candidate = |to: &ReleaseIndex| *to != release && self.releases[*to].state != StateName::Retired;
            self.former_holders(lane).into_iter().rev().find(is_candidate).map(|to| (lane, to))
        };
        held_lanes.filter_map(next_holder).collect()
    }

    fn assign_lanes(&mut self, release: ReleaseIndex, lanes: &[LaneIndex], reason: MoveReason) {
        for lane in lanes {
            let previous_holder = self.holders[*lane];
            self.releases[release].supersedes = self.releases[release].supersedes.or(previous_holder);
            self.move_lane(*lane, Some(release), reason);
        }
        self.derive_states(release);
    }

    fn move_lane(&mut self, lane: LaneIndex, to: Option<ReleaseIndex>, reason: MoveReason) {
        let from = std::mem::replace(&mut self.holders[lane], to);
        self.lane_moves.push(LaneMove { lane, from, to, reason, revision: self.deployment_revision + 1 });
    }

    /// Derives the states of releases from the lane holders. A holder is active. An active release that lost all
    /// its lanes is superseded. A rollout that lost its current lane is stopped.
    fn derive_states(&mut self, acting: ReleaseIndex) {
        for number in 0..self.releases.len() {
            let holds_lane = self.holders.contains(&Some(number));
            let record = &self.releases[number];
            let state = match record.state {
                StateName::Retired => StateName::Retired,
                _ if holds_lane => StateName::Active,
                StateName::Active => StateName::Superseded,
                StateName::Draft | StateName::ReviewReady | StateName::Approved | StateName::Superseded => record.state,
            };
            let current_rollout =
                record.rollout.as_ref().filter(|rollout| rollout.status == RolloutRecord::IN_PROGRESS);
            let is_lane_lost =
                current_rollout.is_some_and(|rollout| self.holders[rollout.plan[rollout.index]] != Some(number));
            if state != record.state || is_lane_lost || number == acting {
                self.releases[number].revision += 1;
            }
            self.releases[number].state = state;
            if is_lane_lost {
                self.stop_rollout(number);
            }
        }
    }

    fn stop_rollout(&mut self, release: ReleaseIndex) {
        if self.releases[release].rollout.as_ref().is_some_and(|rollout| rollout.status == RolloutRecord::IN_PROGRESS) {
            self.set_rollout_status(release, RolloutRecord::ROLLED_BACK);
        }
    }

    fn set_rollout_status(&mut self, release: ReleaseIndex, status: u8) {
        if let Some(rollout) = &mut self.releases[release].rollout {
            rollout.status = status;
        }
    }

    fn invalid_transition(&self, release: ReleaseIndex) -> Refusal {
        let ReleaseRecord { state, target_lane: target, .. } = &self.releases[release];
        let is_held = |lane: &LaneIndex| self.holders[*lane] == Some(release);
        let holds_all = LANES.iter().filter(|lane| target.is_none_or(|target_lane| target_lane == **lane)).all(is_held);
        let successors = match state {
            StateName::Draft => vec![StateName::ReviewReady, StateName::Retired],
            StateName::ReviewReady => vec![StateName::Approved, StateName::Draft, StateName::Retired],
            StateName::Approved => vec![StateName::Active, StateName::Retired],
            StateName::Active if holds_all => vec![StateName::Retired],
            StateName::Active => vec![StateName::Active, StateName::Retired],
            StateName::Superseded => vec![StateName::Retired],
            StateName::Retired => Vec::new(),
        };
        Refusal { code: "invalid_transition", state_and_successors: Some((*state, successors)) }
    }
}
