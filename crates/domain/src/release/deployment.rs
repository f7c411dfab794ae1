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

/// The lane holders of a workload in one environment. Every reassignment updates this one row, so a lane has at most
/// one holder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Deployment(pub(crate) DeploymentRecord);

/// The fields of [`Deployment`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeploymentRecord {
    /// The workload to which the lanes belong.
    pub workload_id: WorkloadId,
    /// The slug of the environment.
    pub environment: Slug,
    /// The release that holds the lane `restricted`.
    pub restricted: Option<ReleaseId>,
    /// The release that holds the lane `guided`.
    pub guided: Option<ReleaseId>,
    /// The release that holds the lane `standard`.
    pub standard: Option<ReleaseId>,
    /// The lanes on which the rollout of their holder soaks. INVARIANT: a rollout is in progress if and only if its
    /// release holds the rollout's current lane and this list contains that lane.
    pub soaking: Vec<Lane>,
    /// The change counter, which increments with each reassignment.
    pub revision: Revision,
}

aggregate!(Deployment, DeploymentRecord);

impl Deployment {
    /// The deployment without any lane holder, before the first activation.
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

    /// The release that holds this lane, if any.
    #[must_use]
    pub const fn holder(&self, lane: Lane) -> Option<ReleaseId> {
        match lane {
            Lane::Restricted => self.0.restricted,
            Lane::Guided => self.0.guided,
            Lane::Standard => self.0.standard,
        }
    }

    /// The release that serves a caller on the requested lane: its holder, or the holder of the next more general lane
    /// that has one.
    #[must_use]
    pub fn serving_release(&self, requested: Lane) -> Option<(Lane, ReleaseId)> {
        Lane::ALL
            .into_iter()
            .filter(|lane| *lane >= requested)
            .find_map(|lane| self.holder(lane).map(|release| (lane, release)))
    }

    /// The release that stands for the environment if a request names no lane: the holder of the most general held
    /// lane.
    #[must_use]
    pub fn representative_release(&self) -> Option<(Lane, ReleaseId)> {
        Lane::ALL.into_iter().rev().find_map(|lane| self.holder(lane).map(|release| (lane, release)))
    }

    /// Whether the release holds at least one lane.
    #[must_use]
    pub fn is_held_by(&self, release: ReleaseId) -> bool {
        Lane::ALL.into_iter().any(|lane| self.holder(lane) == Some(release))
    }

    /// The target lanes of the release that it does not hold.
    #[must_use]
    pub fn target_lanes_not_held(&self, release: &Release) -> Vec<Lane> {
        let targets = release.target_lane.lanes();
        targets.into_iter().filter(|lane| self.holder(*lane) != Some(release.release_id)).collect()
    }

    /// The lanes that soak in the deployment `next`. A lane continues to soak if its holder stays the same, unless it
    /// is `ended_lane`. The lane `started_lane` is added.
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

    /// The releases whose rollouts stop with the deployment `next`, because they lose the rollout's current lane.
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

    /// The releases that hold a lane now, and no lane in the deployment `next`.
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

/// A change of a release and its deployment, which one commit stores. Only this crate can create a value, so each
/// change is a decision of the domain.
#[derive(Clone, Debug)]
#[must_use = "a decision changes nothing until a store commits it"]
pub struct DeploymentChange(DeploymentChangeRecord);

impl DeploymentChange {
    pub(super) const fn new(record: DeploymentChangeRecord) -> Self {
        Self(record)
    }

    /// The data of the change, for the store that commits it.
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

/// The data that the commit of a lane reassignment writes.
#[derive(Clone, Debug)]
pub struct DeploymentChangeRecord {
    /// The release as the commit stores it.
    pub release: Release,
    /// The release revision on which the decision is based.
    pub expected_release_revision: Revision,
    /// The deployment as the commit stores it.
    pub deployment: Deployment,
    /// The deployment revision on which the decision is based.
    pub expected_deployment_revision: Revision,
    /// The releases that lose their last lane and become superseded.
    pub superseded: Vec<ReleaseId>,
    /// The other releases whose rollouts end, because they lose the rollout's current lane.
    pub stopped_rollouts: Vec<ReleaseId>,
    /// Whether the soak time of the release's rollout starts anew.
    pub soak: SoakEffect,
    /// Whether the commit must verify that the soak has ended by the database's clock.
    pub requires_ended_soak: bool,
    /// The superseded releases that hold a lane again and become active.
    pub reinstated: Vec<ReleaseId>,
    /// The changes of lane holders.
    pub moves: Vec<LaneMove>,
    /// The reason that the lane history records.
    pub reason: MoveReason,
    /// The rollback document to store, if the change is a rollback.
    pub evidence: Option<ReleaseEvidenceArtifact>,
    /// The audit fact that records the change.
    pub fact: Fact,
}

/// Whether a change starts the soak time of a rollout. The clock of the database measures this time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SoakEffect {
    /// The soak time continues.
    Kept,
    /// The soak time starts with the commit.
    Begun,
}
