//! Deployments: the lane holders of a workload in one environment, and the changes of these holders.

use super::{
    Release,
    lane::{Lane, LaneMove, MoveReason},
    rollback::ReleaseEvidenceArtifact,
};
use crate::{
    audit::Fact,
    id::{ReleaseId, WorkloadId},
    slug::Slug,
    store::{Revision, aggregate},
};
use std::ops::Deref;

/// The lane holders of a workload in one environment. Each reassignment updates this single row, so that a lane
/// has at most one holder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Deployment(pub(crate) DeploymentRecord);

/// The fields of [`Deployment`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeploymentRecord {
    /// The workload whose lanes are held.
    pub workload_id: WorkloadId,
    /// The environment of the deployment.
    pub environment: Slug,
    /// The release that holds the lane `restricted`.
    pub restricted: Option<ReleaseId>,
    /// The release that holds the lane `guided`.
    pub guided: Option<ReleaseId>,
    /// The release that holds the lane `standard`.
    pub standard: Option<ReleaseId>,
    /// The lanes on which the rollout of the holder is soaking. INVARIANT: a rollout is in progress if and only if
    /// its release holds the rollout's current lane and this list contains that lane.
    pub soaking: Vec<Lane>,
    /// The change counter, which increments with each reassignment.
    pub revision: Revision,
}

aggregate!(Deployment, DeploymentRecord);

impl Deployment {
    /// The deployment of a workload that has no release in the environment.
    #[must_use]
    pub const fn empty(workload_id: WorkloadId, environment: Slug) -> Self {
        let revision = Revision::FIRST;
        Self(DeploymentRecord {
            workload_id,
            environment,
            restricted: None,
            guided: None,
            standard: None,
            soaking: Vec::new(),
            revision,
        })
    }

    /// The release that holds a lane.
    #[must_use]
    pub const fn holder(&self, lane: Lane) -> Option<ReleaseId> {
        match lane {
            Lane::Restricted => self.0.restricted,
            Lane::Guided => self.0.guided,
            Lane::Standard => self.0.standard,
        }
    }

    /// The release that serves a caller on a lane: the holder of the lane, or the holder of the next more general
    /// lane.
    #[must_use]
    pub fn serving_release(&self, requested: Lane) -> Option<(Lane, ReleaseId)> {
        Lane::ALL
            .into_iter()
            .filter(|lane| *lane >= requested)
            .find_map(|lane| self.holder(lane).map(|release| (lane, release)))
    }

    /// The release that represents the environment when no lane is given: the holder of the most general held
    /// lane.
    #[must_use]
    pub fn representative_release(&self) -> Option<(Lane, ReleaseId)> {
        Lane::ALL.into_iter().rev().find_map(|lane| self.holder(lane).map(|release| (lane, release)))
    }

    /// Whether the release holds any lane.
    #[must_use]
    pub fn is_held_by(&self, release: ReleaseId) -> bool {
        Lane::ALL.into_iter().any(|lane| self.holder(lane) == Some(release))
    }

    /// The target lanes of the release that the release does not hold.
    #[must_use]
    pub fn untaken_lanes(&self, release: &Release) -> Vec<Lane> {
        let targets = release.target_lane.lanes();
        targets.into_iter().filter(|lane| self.holder(*lane) != Some(release.release_id)).collect()
    }

    /// The soaking lanes of the deployment `next`. Lanes continue to soak if their holder stays the same and they
    /// are not `ended_lane`. The lane `started_lane` is added.
    pub(super) fn next_soaking_lanes(
        &self,
        next: &Self,
        ended_lane: Option<Lane>,
        started_lane: Option<Lane>,
    ) -> Vec<Lane> {
        let keeps_soaking = |lane: &Lane| {
            self.soaking.contains(lane) && self.holder(*lane) == next.holder(*lane) && Some(*lane) != ended_lane
        };
        Lane::ALL.into_iter().filter(|lane| Some(*lane) == started_lane || keeps_soaking(lane)).collect()
    }

    /// The releases whose rollout stops in the deployment `next`, because they lose the rollout's current lane.
    pub(super) fn rollouts_stopped_by(&self, next: &Self) -> Vec<ReleaseId> {
        let lost_lanes = self.soaking.iter().filter(|lane| self.holder(**lane) != next.holder(**lane));
        let mut stopped: Vec<ReleaseId> = lost_lanes.filter_map(|lane| self.holder(*lane)).collect();
        stopped.sort_unstable();
        stopped
    }

    pub(super) fn with_holder(mut self, lane: Lane, holder: Option<ReleaseId>) -> Self {
        match lane {
            Lane::Restricted => self.0.restricted = holder,
            Lane::Guided => self.0.guided = holder,
            Lane::Standard => self.0.standard = holder,
        }
        self
    }

    /// The releases that hold a lane in this deployment and no lane in the deployment `next`.
    pub(super) fn releases_superseded_by(&self, next: &Self) -> Vec<ReleaseId> {
        let mut displaced: Vec<ReleaseId> = Lane::ALL
            .into_iter()
            .filter_map(|lane| self.holder(lane))
            .filter(|holder| !next.is_held_by(*holder))
            .collect();
        displaced.dedup();
        displaced.sort_unstable();
        displaced.dedup();
        displaced
    }
}

/// A change of a release and its deployment in one commit. Only the domain creates such a change; other crates can
/// only read it.
#[derive(Clone, Debug)]
#[must_use = "a decision changes nothing until a store commits it"]
pub struct DeploymentChange(DeploymentChangeRecord);

impl DeploymentChange {
    pub(super) const fn new(record: DeploymentChangeRecord) -> Self {
        Self(record)
    }

    /// The record of the change, for the store that commits it.
    #[must_use]
    pub fn into_record(self) -> DeploymentChangeRecord {
        self.0
    }
}

impl Deref for DeploymentChange {
    type Target = DeploymentChangeRecord;

    fn deref(&self) -> &DeploymentChangeRecord {
        &self.0
    }
}

/// The data of a change of a release and its deployment, which the commit writes.
#[derive(Clone, Debug)]
pub struct DeploymentChangeRecord {
    /// The release after the change.
    pub release: Release,
    /// The release revision on which the decision is based.
    pub expected_release_revision: Revision,
    /// The deployment after the change.
    pub deployment: Deployment,
    /// The deployment revision on which the decision is based.
    pub expected_deployment_revision: Revision,
    /// The releases that lose their last lane, and become superseded.
    pub superseded: Vec<ReleaseId>,
    /// The other releases whose rollout ends, because they lose the rollout's current lane.
    pub stopped_rollouts: Vec<ReleaseId>,
    /// The effect on the soak time of the release's rollout.
    pub soak: SoakEffect,
    /// Whether the commit must verify that the soak is complete, by the clock of the database.
    pub requires_ended_soak: bool,
    /// The superseded releases that hold lanes again, and become active.
    pub reinstated: Vec<ReleaseId>,
    /// The reassigned lanes.
    pub moves: Vec<LaneMove>,
    /// The reason for the history of lanes.
    pub reason: MoveReason,
    /// The evidence document to store, if any.
    pub evidence: Option<ReleaseEvidenceArtifact>,
    /// The fact of the change.
    pub fact: Fact,
}

/// The effect of a change on the soak time of a rollout. Only the clock of the database measures this time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SoakEffect {
    /// The soak time is unchanged.
    Kept,
    /// The soak time starts with the commit.
    Begun,
}
