//! Rollback: lanes return from a release to their earlier holders.

use super::{
    BindingsDigest, Release, ReleaseRefusal, State, StateName,
    deployment::{Deployment, DeploymentChange, DeploymentChangeRecord, SoakEffect},
    lane::{Lane, LaneHistoryEntry, LaneMove, MoveReason},
};
use crate::{
    access::ActorRef,
    asset::{
        artifact_integrity::{ArtifactOwner, IntegrityDefect, IntegrityMismatch},
        canonical::{Canonical, CanonicalRefusal, Checksum},
    },
    audit::{Fact, FactKind, Stamp},
    id::{ArtifactId, ReleaseId},
    note::MAX_NOTE_CHARS,
    notification_category::NotificationCategory,
    rollout::Rollout,
    text::{is_blank, is_blank_or_prose},
    time::Timestamp,
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::{cmp::Reverse, collections::BTreeSet};

/// A document about a change of a release, such as a rollback.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReleaseEvidenceArtifact {
    /// The identifier of the artifact.
    pub artifact_id: ArtifactId,
    /// The release that the document is about.
    pub release_id: ReleaseId,
    /// The kind of the document: `rollback`.
    pub kind: String,
    /// The content of the document, as canonical JSON.
    pub content: String,
    /// The BLAKE3 checksum of the content.
    pub checksum: Checksum,
    /// The time at which the artifact was created.
    pub created_at: Timestamp,
    /// The actor that made the change.
    pub created_by: ActorRef,
}

impl ReleaseEvidenceArtifact {
    /// Returns the artifact if its content matches its stored checksum.
    ///
    /// # Errors
    /// If the checksum does not match. The content must then not be shown.
    pub fn verify(self) -> Result<Self, IntegrityMismatch> {
        if Checksum::blake3_of(self.content.as_bytes()) == self.checksum {
            return Ok(self);
        }
        Err(IntegrityMismatch {
            owner: ArtifactOwner::Release { release_id: self.release_id, artifact_id: self.artifact_id },
            expected: self.checksum,
            defect: IntegrityDefect::Different,
        })
    }

    /// A path that names the document in responses. The artifact store has no object at this path.
    #[must_use]
    pub fn storage_ref_for_display(&self) -> String {
        format!("evidence/releases/{}/{}/{}.json", self.release_id, self.artifact_id, self.kind)
    }
}

/// A lane that a rollback returned to an earlier holder.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReturnedLane {
    /// The lane that changed its holder.
    pub lane: Lane,
    /// The earlier holder, which received the lane again.
    pub rolled_back_to: ReleaseId,
}

/// The content of the document about a rollback.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RollbackRecord {
    /// The release that was rolled back.
    pub release_id: ReleaseId,
    /// The reason that the caller of the rollback gave.
    pub reason: String,
    /// The returned lanes. The lane that the release took last is first.
    pub lanes: Vec<ReturnedLane>,
}

/// The earlier holders of a lane, latest first. The current holder is excluded, and so is each release that was rolled
/// back from the lane. `history` must be ordered newest first.
#[must_use]
pub fn rollback_candidates(history: &[LaneHistoryEntry], lane: Lane, holder: ReleaseId) -> Vec<ReleaseId> {
    let of_lane = || history.iter().filter(|entry| entry.lane == lane);
    let mut skipped: BTreeSet<ReleaseId> =
        of_lane().filter(|entry| entry.reason == MoveReason::Rollback).filter_map(|entry| entry.from).collect();
    skipped.insert(holder);
    of_lane().filter_map(|entry| entry.to).filter(|release| skipped.insert(*release)).collect()
}

/// Checks the text that gives the reason of a rollback.
///
/// # Errors
/// If the reason is blank, too long, or contains invisible characters.
pub fn check_reason(reason: &str) -> Result<(), ReleaseRefusal> {
    if is_blank(reason) || !is_blank_or_prose(reason, MAX_NOTE_CHARS) {
        Err(ReleaseRefusal::InvalidReason)
    } else {
        Ok(())
    }
}

/// The lanes that a release holds. The lane that it took last is first; among lanes taken together, the most general is
/// first. `history` must be ordered newest first.
#[must_use]
pub fn lanes_by_recency(history: &[LaneHistoryEntry], deployment: &Deployment, release: ReleaseId) -> Vec<Lane> {
    let acquisition = |lane: Lane| history.iter().find(|entry| entry.lane == lane && entry.to == Some(release));
    let mut held_lanes: Vec<Lane> =
        Lane::ALL.into_iter().filter(|lane| deployment.holder(*lane) == Some(release)).collect();
    held_lanes.sort_by_key(|lane| Reverse((acquisition(*lane).map(|entry| entry.revision), *lane)));
    held_lanes
}

/// A lane, and the earlier holder to which a rollback returns it.
pub type LaneRollbackTarget<'a> = (Lane, &'a Release);

impl Release {
    /// Whether a rollback can return a lane to this release: the release held lanes before, and is not retired.
    #[must_use]
    pub const fn is_rollback_target(&self) -> bool {
        match self.0.state {
            State::Active { .. } | State::Superseded { .. } => true,
            State::Draft | State::ReviewReady { .. } | State::Approved { .. } | State::Retired { .. } => false,
        }
    }

    /// Checks that the release holds this lane. A release that is not active passes, because its state then determines
    /// the refusal.
    ///
    /// # Errors
    /// When the release is active and another one holds the lane.
    pub fn check_lane_if_active(&self, lane: Lane, deployment: &Deployment) -> Result<(), ReleaseRefusal> {
        let is_active = matches!(self.state, State::Active { .. });
        if is_active && deployment.holder(lane) != Some(self.release_id) {
            return Err(ReleaseRefusal::LaneNotHeld);
        }
        Ok(())
    }

    /// Rolls the release back from these lanes. Each lane returns to the given earlier holder.
    ///
    /// # Errors
    /// If the release does not hold the lanes, an earlier holder is not eligible, or the reason is invalid.
    pub fn roll_back(
        &self,
        rollbacks: &[LaneRollbackTarget<'_>],
        deployment: &Deployment,
        artifact_id: ArtifactId,
        reason: &str,
        stamp: &Stamp,
    ) -> Result<DeploymentChange, ReleaseRefusal> {
        let digest = self.check_rollback(rollbacks, deployment)?;
        let lanes: Vec<ReturnedLane> = rollbacks
            .iter()
            .map(|(lane, target)| ReturnedLane { lane: *lane, rolled_back_to: target.release_id })
            .collect();
        let reinstated: BTreeSet<ReleaseId> = rollbacks
            .iter()
            .filter(|(_, target)| matches!(target.state, State::Superseded { .. }))
            .map(|(_, target)| target.release_id)
            .collect();
        check_reason(reason)?;
        let holders = |next: Deployment, returned_lane: &ReturnedLane| {
            next.with_holder(returned_lane.lane, Some(returned_lane.rolled_back_to))
        };
        let mut next = lanes.iter().fold(deployment.clone(), holders);
        let stopped_lane = self.rollout.as_ref().filter(|rollout| rollout.is_in_progress()).map(Rollout::current_lane);
        next.0.soaking = deployment.next_soaking_lanes(&next, stopped_lane, None);
        next.0.revision = deployment.revision.next();
        let state =
            if next.is_held_by(self.release_id) { State::Active { digest } } else { State::Superseded { digest } };
        let mut release = self.with_state(state, stamp);
        release.0.rollout = self.rollout.as_ref().map(Rollout::stop);
        let record = RollbackRecord { release_id: self.release_id, reason: reason.to_owned(), lanes: lanes.clone() };
        let evidence =
            self.rollback_artifact(artifact_id, &record, stamp).map_err(|_| ReleaseRefusal::InvalidReason)?;
        let fact = self.rolled_back_fact(release.state.name(), &lanes, &evidence, stamp);
        let moves = lanes
            .iter()
            .map(|returned_lane| LaneMove {
                lane: returned_lane.lane,
                from: Some(self.release_id),
                to: Some(returned_lane.rolled_back_to),
            })
            .collect();
        Ok(DeploymentChange::new(DeploymentChangeRecord {
            release,
            expected_release_revision: self.revision,
            deployment: next,
            expected_deployment_revision: deployment.revision,
            // This list omits the release itself, because the change contains it with its new state.
            superseded: Vec::new(),
            // Only this release held the lanes, so the rollout of no other release is affected.
            stopped_rollouts: Vec::new(),
            soak: SoakEffect::Kept,
            requires_ended_soak: false,
            reinstated: reinstated.into_iter().collect(),
            moves,
            reason: MoveReason::Rollback,
            evidence: Some(evidence),
            fact,
        }))
    }

    /// Checks that the release is active and holds each lane, and that each target can receive its lane. Returns the
    /// bindings digest of the release.
    fn check_rollback(
        &self,
        rollbacks: &[LaneRollbackTarget<'_>],
        deployment: &Deployment,
    ) -> Result<BindingsDigest, ReleaseRefusal> {
        let digest = match &self.state {
            State::Active { digest } => digest.clone(),
            State::Draft
            | State::ReviewReady { .. }
            | State::Approved { .. }
            | State::Superseded { .. }
            | State::Retired { .. } => return Err(self.invalid_transition(deployment)),
        };
        let is_possible = |(lane, target): &LaneRollbackTarget<'_>| {
            deployment.holder(*lane) == Some(self.release_id)
                && target.is_rollback_target()
                && target.release_id != self.release_id
        };
        if rollbacks.is_empty() || !rollbacks.iter().all(is_possible) {
            return Err(ReleaseRefusal::NoPreviousRelease);
        }
        Ok(digest)
    }

    fn rolled_back_fact(
        &self,
        next_state: StateName,
        lanes: &[ReturnedLane],
        evidence: &ReleaseEvidenceArtifact,
        stamp: &Stamp,
    ) -> Fact {
        let detail = json!({
            "workload_id": self.workload_id,
            "environment": self.environment.as_str(),
            "to": next_state.as_str(),
            "lanes": lanes,
            "artifact_id": evidence.artifact_id,
            "artifact_checksum": evidence.checksum.as_str(),
        });
        let fact = Fact::new(FactKind::ReleaseRolledBack, self.subject(), Some(self.workspace_id), stamp, detail);
        fact.with_notification_categories([NotificationCategory::Incidents, NotificationCategory::Reports])
    }

    fn rollback_artifact(
        &self,
        artifact_id: ArtifactId,
        record: &RollbackRecord,
        stamp: &Stamp,
    ) -> Result<ReleaseEvidenceArtifact, CanonicalRefusal> {
        let content = Canonical::of(&json!(record))?;
        Ok(ReleaseEvidenceArtifact {
            artifact_id,
            release_id: self.release_id,
            kind: MoveReason::Rollback.as_str().to_owned(),
            content: content.text().to_owned(),
            checksum: content.checksum().clone(),
            created_at: stamp.at,
            created_by: stamp.actor.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{release::deployment::DeploymentRecord, slug::Slug, store::Revision};
    use uuid::Uuid;

    fn release(number: u128) -> ReleaseId {
        Uuid::from_u128(number).into()
    }

    /// One reassignment of a lane: the previous holder, the next holder (0 for none), and whether a rollback caused it.
    type HistoryStep = (u128, u128, bool);

    /// The history of one lane, from steps that are ordered oldest first.
    fn history(steps: &[HistoryStep]) -> Vec<LaneHistoryEntry> {
        let holder = |number| (number != 0).then(|| release(number));
        let entries = steps.iter().zip(2..).map(|((from, to, is_rollback), revision)| LaneHistoryEntry {
            revision: Revision::new(revision),
            lane: Lane::Guided,
            from: holder(*from),
            to: holder(*to),
            reason: if *is_rollback { MoveReason::Rollback } else { MoveReason::Activation },
            at: Timestamp::new(time::OffsetDateTime::UNIX_EPOCH),
        });
        let mut entries: Vec<LaneHistoryEntry> = entries.collect();
        entries.reverse();
        entries
    }

    #[test]
    fn prefers_latest_holder_not_rolled_back() {
        let cases: [(&[HistoryStep], u128, &[u128]); 6] = [
            (&[(0, 1, false)], 1, &[]),
            (&[(0, 1, false), (1, 2, false), (2, 3, false)], 3, &[2, 1]),
            // Release 3 was rolled back from this lane, so it cannot receive the lane again.
            (&[(0, 1, false), (1, 2, false), (2, 3, false), (3, 2, true)], 2, &[1]),
            (&[(0, 1, false), (1, 2, false), (2, 1, true)], 1, &[]),
            // The lane had no holder between releases 1 and 2.
            (&[(0, 1, false), (1, 0, false), (0, 2, false)], 2, &[1]),
            // A release that was activated after a rollback can be rolled back too.
            (&[(0, 1, false), (1, 2, false), (2, 1, true), (1, 3, false)], 3, &[1]),
        ];
        for (steps, holder, expected) in cases {
            let expected: Vec<ReleaseId> = expected.iter().map(|number| release(*number)).collect();
            assert_eq!(rollback_candidates(&history(steps), Lane::Guided, release(holder)), expected, "{steps:?}");
            assert!(rollback_candidates(&history(steps), Lane::Standard, release(holder)).is_empty());
        }
    }

    #[test]
    fn orders_lanes_most_recently_taken_first() {
        let entry = |revision, lane| LaneHistoryEntry {
            revision: Revision::new(revision),
            lane,
            from: None,
            to: Some(release(1)),
            reason: MoveReason::Activation,
            at: Timestamp::new(time::OffsetDateTime::UNIX_EPOCH),
        };
        let deployment = Deployment(DeploymentRecord {
            workload_id: Uuid::nil().into(),
            environment: Slug::parse("dev").unwrap(),
            restricted: Some(release(1)),
            guided: Some(release(1)),
            standard: Some(release(2)),
            soaking: Vec::new(),
            revision: Revision::new(9),
        });
        let one_by_one = [entry(5, Lane::Restricted), entry(4, Lane::Guided), entry(3, Lane::Restricted)];
        assert_eq!(lanes_by_recency(&one_by_one, &deployment, release(1)), [Lane::Restricted, Lane::Guided]);
        let at_once = [entry(4, Lane::Restricted), entry(4, Lane::Guided)];
        assert_eq!(lanes_by_recency(&at_once, &deployment, release(1)), [Lane::Guided, Lane::Restricted]);
        assert!(lanes_by_recency(&at_once, &deployment, release(3)).is_empty());
    }
}
