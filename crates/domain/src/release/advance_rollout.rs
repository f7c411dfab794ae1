//! The advance of a rollout to its next lane, and the record of the reason why it holds.

use super::{
    Release, ReleaseRecord, ReleaseRefusal, State,
    activate::{ActivationReport, LaneReassignment},
    deployment::{Deployment, DeploymentChange, SoakEffect},
    lane::{Lane, MoveReason},
    review::ApprovalRule,
};
use crate::{
    audit::{Fact, FactKind, Stamp},
    rollout::{HoldReason, NextLaneGates, Rollout, SoakStatus},
    store::Change,
};
use serde_json::json;

/// The initiator of an advance. Its value is the soak status of the rollout's current lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AdvanceTrigger {
    /// A person, who may advance before the soak has ended.
    Manual(SoakStatus),
    /// The rollout controller, which advances only after the soak of the current lane.
    Automatic(SoakStatus),
}

impl Release {
    /// Takes the next lane of the rollout, or ends the rollout after its last lane.
    ///
    /// # Errors
    /// If no rollout is in progress, or the release no longer meets the requirements.
    pub fn advance(
        &self,
        trigger: AdvanceTrigger,
        deployment: &Deployment,
        report: &ActivationReport,
        rule: ApprovalRule,
        stamp: &Stamp,
    ) -> Result<DeploymentChange, ReleaseRefusal> {
        let rollout = self.rollout.as_ref().filter(|rollout| rollout.is_in_progress());
        let (State::Active { digest }, Some(rollout)) = (&self.state, rollout) else {
            return Err(ReleaseRefusal::RolloutNotInProgress);
        };
        let next_lane = rollout.next_lane();
        if next_lane.is_some() {
            self.check_requirements(digest, report, rule)?;
        }
        // A lane that the release already holds is not reassigned, but it also soaks.
        let lanes_to_take: Vec<Lane> =
            next_lane.into_iter().filter(|lane| deployment.holder(*lane) != Some(self.release_id)).collect();
        let advanced = rollout.advance(deployment.revision.next(), stamp.at);
        let mut release = self.with_state(self.state.clone(), stamp);
        release.record_superseded(&lanes_to_take, deployment);
        release.0.rollout = Some(advanced);
        let (soak_status, requires_ended_soak) = match trigger {
            AdvanceTrigger::Manual(soak_status) => (soak_status, false),
            AdvanceTrigger::Automatic(soak_status) => (soak_status, true),
        };
        let reassignment = LaneReassignment {
            lanes: &lanes_to_take,
            holder: Some(self.release_id),
            reason: MoveReason::Advance,
            soaked_lane: Some(rollout.current_lane()),
            soaking_lane: next_lane,
            soak: if next_lane.is_some() { SoakEffect::Begun } else { SoakEffect::Kept },
            requires_ended_soak,
        };
        let detail = json!({ "to_lane": next_lane, "soak_left_seconds": soak_status.soak_seconds_left });
        let fact = self.rollout_fact(FactKind::RolloutAdvanced, rollout, stamp).merge_detail(detail);
        Ok(self.reassign_lanes(release, &reassignment, deployment, fact))
    }

    /// Whether the requirements of activation permit that the rollout takes its next lane.
    #[must_use]
    pub fn evaluate_next_lane_gates(&self, report: &ActivationReport, rule: ApprovalRule) -> NextLaneGates {
        let next = self.rollout.as_ref().and_then(Rollout::next_lane);
        match (next, self.state.digest()) {
            (Some(_), Some(digest)) if self.check_requirements(digest, report, rule).is_err() => NextLaneGates::Blocked,
            (Some(_) | None, _) => NextLaneGates::Open,
        }
    }

    /// Records the reason why the rollout controller holds. Returns `None` if this reason is already recorded for the
    /// lane, or no rollout is in progress. The revision of the release stays unchanged, because decisions of people do
    /// not depend on this record.
    #[must_use]
    pub fn record_hold(&self, hold: HoldReason, stamp: &Stamp) -> Option<Change<Self>> {
        let rollout = self
            .rollout
            .as_ref()
            .filter(|rollout| rollout.is_in_progress() && !rollout.hold_reasons.contains(&hold))?;
        let mut updated = rollout.clone();
        updated.0.hold_reasons.push(hold);
        let next = Self(ReleaseRecord { rollout: Some(updated), ..self.0.clone() });
        let detail = json!({ "hold_reason": hold.as_str() });
        let fact = self.rollout_fact(FactKind::RolloutHeld, rollout, stamp).merge_detail(detail);
        Some(Change::replace(next, self.revision, fact))
    }

    fn rollout_fact(&self, kind: FactKind, rollout: &Rollout, stamp: &Stamp) -> Fact {
        let detail = json!({
            "workload_id": self.workload_id,
            "environment": self.environment.as_str(),
            "from_lane": rollout.current_lane(),
        });
        Fact::new(kind, self.subject(), Some(self.workspace_id), stamp, detail)
    }
}
