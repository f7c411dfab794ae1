//! Conformance of the domain: makes its decisions, and compares the stored state with the model.

use super::{LaneIndex, LaneMove, LaneSelection, Model, Operation, Refusal, ReleaseIndex};
use fairway_domain::{
    asset::kind::AssetKind,
    audit::Stamp,
    id::ReleaseId,
    release::recommendation::EndedRuns,
    release::{
        BindableVersion, Release, ReleaseRefusal, StateName,
        activate::{self, ActivationReport, FlowStatus},
        advance_rollout::AdvanceTrigger,
        deployment::{Deployment, DeploymentChange},
        lane::{Lane, LaneHistoryEntry, MoveReason},
        review::{ApprovalRule, ReviewedRelease, SelfApproval},
        rollback::{LaneRollbackTarget, lanes_by_recency, rollback_candidates},
    },
    rollout::{AdvanceMode, Rollout, RolloutPlan, RolloutStatus, SoakStatus},
    store::Change,
};
use std::{collections::BTreeSet, fmt};
use uuid::Uuid;

const APPROVAL_RULE: ApprovalRule = ApprovalRule::new(1, SelfApproval::Allowed);

/// The state that a history has stored.
#[derive(Clone, Debug)]
pub(crate) struct StoredState {
    /// The releases, in the order of their indexes in the model.
    pub(crate) releases: Vec<Release>,
    pub(crate) deployment: Deployment,
    /// The history of the lanes, newest first.
    pub(crate) lane_history: Vec<LaneHistoryEntry>,
}

/// A decision that awaits its commit.
#[derive(Clone)]
pub(crate) enum Decision {
    Binding(Change<Release>),
    Transition(Change<Release>),
    Verdict(Change<ReviewedRelease>),
    Lanes(Box<DeploymentChange>),
}

/// The input of a decision in addition to the stored state.
pub(crate) struct DecisionInput<'a> {
    pub(crate) stamp: Stamp,
    /// The identifier for the item that the decision creates.
    pub(crate) new_id: Uuid,
    /// The version that an operation binds.
    pub(crate) version: &'a BindableVersion,
}

/// Decides an operation on the stored state, as the operations crate does.
pub(crate) fn decide(
    stored: &StoredState,
    operation: &Operation,
    input: &DecisionInput<'_>,
) -> Result<Decision, Refusal> {
    let StoredState { releases, deployment, lane_history } = stored;
    let DecisionInput { stamp, new_id: id, version } = input;
    let report = ActivationReport {
        primary_route: None,
        flow: FlowStatus::Absent,
        tools: Vec::new(),
        unsupported_obligations: Vec::new(),
        undeclared_inputs: Vec::new(),
        unpassed_variables: Vec::new(),
        unsupported_memory: Vec::new(),
        unsupported_controls: Vec::new(),
        unenforced_controls: Vec::new(),
        has_no_route: false,
        route_accounts: Vec::new(),
        is_workload_retired: false,
        is_use_case_inactive: false,
    };
    let decision = match operation {
        Operation::Bind(release) => {
            let bound = releases[*release].bind((*id).into(), AssetKind::KnowledgeBase, version, stamp);
            bound.map(Decision::Binding)
        }
        Operation::Submit(release) => {
            releases[*release].submit(Ok(Vec::new()), deployment, stamp).map(Decision::Transition)
        }
        Operation::Reopen(release) => releases[*release].reopen(deployment, stamp).map(Decision::Transition),
        Operation::Review(release, verdict) => {
            releases[*release].record_verdict((*id).into(), *verdict, None, APPROVAL_RULE, stamp).map(Decision::Verdict)
        }
        Operation::Approve(release) => {
            releases[*release].move_to_approved(APPROVAL_RULE, deployment, stamp).map(Decision::Transition)
        }
        Operation::Activate(release, selection) => releases[*release]
            .activate(&lane_selection(selection), deployment, &report, APPROVAL_RULE, stamp)
            .map(lane_decision),
        Operation::Advance(release) => {
            let soak_status = SoakStatus { soak_seconds_left: 60, runs: EndedRuns { ended: 0, failed: 0 } };
            releases[*release]
                .advance(AdvanceTrigger::Manual(soak_status), deployment, &report, APPROVAL_RULE, stamp)
                .map(lane_decision)
        }
        Operation::Retire(release) => releases[*release].retire(deployment, stamp).map(lane_decision),
        Operation::RollBack(release, lane) => {
            let requested_lane = lane.map(|lane| Lane::ALL[lane]);
            let release_id = releases[*release].release_id;
            let held_lanes = lanes_by_recency(lane_history, deployment, release_id);
            let target = |lane: Lane| -> Option<LaneRollbackTarget<'_>> {
                let earlier_ids = rollback_candidates(lane_history, lane, release_id);
                let find = |id: ReleaseId| releases.iter().find(|release| release.release_id == id);
                earlier_ids
                    .into_iter()
                    .filter_map(find)
                    .find(|target_release| target_release.is_rollback_target())
                    .map(|target_release| (lane, target_release))
            };
            let rollbacks: Vec<LaneRollbackTarget<'_>> = held_lanes
                .into_iter()
                .filter(|held_lane| requested_lane.is_none_or(|lane| lane == *held_lane))
                .filter_map(target)
                .collect();
            releases[*release]
                .roll_back(&rollbacks, deployment, (*id).into(), "It answers in riddles.", stamp)
                .map(lane_decision)
        }
    };
    decision.map_err(|refusal| model_refusal(&refusal))
}

fn lane_decision(change: DeploymentChange) -> Decision {
    Decision::Lanes(Box::new(change))
}

fn lane_selection(selection: &LaneSelection) -> activate::LaneSelection {
    match selection {
        LaneSelection::All => activate::LaneSelection::All,
        LaneSelection::One(lane) => activate::LaneSelection::One(Lane::ALL[*lane]),
        LaneSelection::Plan(plan) => {
            let lanes: Vec<Lane> = plan.iter().map(|lane| Lane::ALL[*lane]).collect();
            activate::LaneSelection::Planned(RolloutPlan::new(&lanes, 1, AdvanceMode::Manual).unwrap())
        }
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "only one refusal carries more than its code")]
fn model_refusal(refusal: &ReleaseRefusal) -> Refusal {
    match refusal {
        ReleaseRefusal::InvalidTransition { from, valid } => {
            Refusal { code: refusal.code(), state_and_successors: Some((*from, valid.clone())) }
        }
        _ => Refusal::with_code(refusal.code()),
    }
}

impl StoredState {
    pub(crate) fn release_statuses(&self) -> ReleaseStatuses {
        let status = |release: &Release| release.rollout.as_ref().map(|rollout| rollout.status);
        self.releases.iter().map(|release| (release.state.name(), status(release))).collect()
    }

    fn release_index(&self, id: Option<ReleaseId>) -> Option<ReleaseIndex> {
        id.map(|id| self.releases.iter().position(|release| release.release_id == id).unwrap())
    }

    fn lane_move(&self, entry: &LaneHistoryEntry) -> LaneMove {
        LaneMove {
            lane: lane_index(entry.lane),
            from: self.release_index(entry.from),
            to: self.release_index(entry.to),
            reason: entry.reason,
            revision: entry.revision.get(),
        }
    }
}

fn lane_index(lane: Lane) -> LaneIndex {
    Lane::ALL.into_iter().position(|other| other == lane).unwrap()
}

/// Compares the stored state with the model.
///
/// # Errors
/// Describes the first difference between the stored state and the model.
pub(crate) fn check_conformance(model: &Model, stored: &StoredState) -> Result<(), String> {
    for (number, (record, release)) in model.releases.iter().zip(&stored.releases).enumerate() {
        check_equal(|| format!("state of {number}"), &record.state, &release.state.name())?;
        let rollout =
            record.rollout.as_ref().map(|rollout| (rollout.rollout_status(), rollout.index, rollout.plan.clone()));
        let actual_rollout = |rollout: &Rollout| {
            (
                rollout.status,
                usize::from(rollout.current_index),
                rollout.plan.lanes().map(lane_index).collect::<Vec<_>>(),
            )
        };
        check_equal(|| format!("rollout of {number}"), &rollout, &release.rollout.as_ref().map(actual_rollout))?;
        let supersedes = stored.release_index(release.supersedes_release_id);
        check_equal(|| format!("predecessor of {number}"), &record.supersedes, &supersedes)?;
        check_equal(|| format!("revision of {number}"), &record.revision, &release.revision.get())?;
    }
    let deployment = &stored.deployment;
    let holders = Lane::ALL.map(|lane| stored.release_index(deployment.holder(lane)));
    check_equal(|| "holders".to_owned(), &model.holders, &holders)?;
    let soaking: BTreeSet<LaneIndex> = deployment.soaking.iter().copied().map(lane_index).collect();
    check_equal(|| "soaking".to_owned(), &model.soaking_lanes(), &soaking)?;
    check_equal(|| "deployment revision".to_owned(), &model.deployment_revision, &deployment.revision.get())?;
    for lane in super::LANES {
        let expected = model.lane_moves.iter().rev().filter(|entry| entry.lane == lane);
        let actual = stored
            .lane_history
            .iter()
            .filter(|entry| lane_index(entry.lane) == lane)
            .map(|entry| stored.lane_move(entry));
        let (expected, actual): (Vec<LaneMove>, Vec<LaneMove>) = (expected.copied().collect(), actual.collect());
        check_equal(|| format!("history of lane {lane}"), &expected, &actual)?;
    }
    Ok(())
}

fn check_equal<T: PartialEq + fmt::Debug>(label: impl Fn() -> String, model: &T, actual: &T) -> Result<(), String> {
    if model == actual {
        Ok(())
    } else {
        Err(format!("{}: expected {model:?} from the model, got {actual:?}", label()))
    }
}

/// The state and the rollout status of each release before a step.
pub(crate) type ReleaseStatuses = Vec<(StateName, Option<RolloutStatus>)>;

/// Checks invariants after a step without using the model.
///
/// # Errors
/// Describes the first violated invariant.
pub(crate) fn check_invariants(before: &ReleaseStatuses, after: &StoredState) -> Result<(), String> {
    let deployment = &after.deployment;
    for (number, release) in after.releases.iter().enumerate() {
        let holds_lane = deployment.is_held_by(release.release_id);
        if holds_lane != (release.state.name() == StateName::Active) {
            return Err(format!("{number} is {:?}, but holds_lane is {holds_lane}", release.state.name()));
        }
        let first_replaced = first_replaced_holder(after, release.release_id);
        if release.supersedes_release_id != first_replaced || first_replaced == Some(release.release_id) {
            let supersedes = release.supersedes_release_id;
            return Err(format!("{number} first replaced {first_replaced:?}, but names {supersedes:?}"));
        }
        let (state_before, status_before) = before[number];
        if state_before == StateName::Retired && release.state.name() != state_before {
            return Err(format!("{number} was retired, but is {:?}", release.state.name()));
        }
        let status = release.rollout.as_ref().map(|rollout| rollout.status);
        let is_restarted =
            release.rollout.as_ref().is_some_and(|rollout| rollout.is_in_progress() && rollout.current_index == 0);
        if status_before == Some(RolloutStatus::Completed) && status != status_before && !is_restarted {
            return Err(format!("the rollout of {number} was completed, but is {status:?}"));
        }
    }
    for lane in Lane::ALL {
        let holder = after.releases.iter().find(|release| deployment.holder(lane) == Some(release.release_id));
        let is_soaking = |rollout: &Rollout| rollout.is_in_progress() && rollout.current_lane() == lane;
        let is_holder_soaking = holder.is_some_and(|holder| holder.rollout.as_ref().is_some_and(is_soaking));
        if is_holder_soaking != deployment.soaking.contains(&lane) {
            return Err(format!("{lane:?} should be soaking by its holder's rollout: {is_holder_soaking}"));
        }
        check_lane_history(after, lane)?;
    }
    let lost_lane = |release: &&Release| {
        let rollout = release.rollout.as_ref().filter(|rollout| rollout.is_in_progress());
        rollout.is_some_and(|rollout| deployment.holder(rollout.current_lane()) != Some(release.release_id))
    };
    let lost_lane = after.releases.iter().find(lost_lane);
    lost_lane
        .map_or(Ok(()), |release| Err(format!("{} does not hold the current lane of its rollout", release.release_id)))
}

/// The holder that the release replaced first, according to the lane history.
fn first_replaced_holder(stored: &StoredState, release: ReleaseId) -> Option<ReleaseId> {
    let is_replacement = |entry: &&LaneHistoryEntry| {
        entry.to == Some(release)
            && entry.from.is_some()
            && [MoveReason::Activation, MoveReason::Advance].contains(&entry.reason)
    };
    stored
        .lane_history
        .iter()
        .filter(is_replacement)
        .min_by_key(|entry| (entry.revision, entry.lane))
        .and_then(|entry| entry.from)
}

/// Checks the history of a lane. Each reassignment starts with the previous holder, and the last one ends with the
/// current holder. No rollback targets a release that was rolled back from the lane.
fn check_lane_history(stored: &StoredState, lane: Lane) -> Result<(), String> {
    let mut holder = None;
    let mut rolled_back = BTreeSet::new();
    for entry in stored.lane_history.iter().rev().filter(|entry| entry.lane == lane) {
        if entry.from != holder {
            return Err(format!("{lane:?} moved from {:?} to {:?}, but {holder:?} held it", entry.from, entry.to));
        }
        if entry.reason == MoveReason::Rollback {
            rolled_back.extend(entry.from);
            if entry.to.is_none_or(|to| rolled_back.contains(&to)) {
                return Err(format!("{lane:?} was rolled back to {:?}, a release rolled back earlier", entry.to));
            }
        }
        holder = entry.to;
    }
    if holder == stored.deployment.holder(lane) {
        Ok(())
    } else {
        Err(format!("the history of {lane:?} does not end at its holder"))
    }
}
