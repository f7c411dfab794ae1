//! Lanes and their holders.

use super::{Release, State, rollback::ReleaseEvidenceDocument};
use crate::{
    id::{ReleaseId, WorkloadId},
    slug::Slug,
    store::{Revision, aggregate},
    time::Timestamp,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::ops::Deref;

/// A service lane, from the most restrictive to the most general.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Lane {
    /// Canary or internal traffic.
    Restricted,
    /// A limited audience.
    Guided,
    /// General traffic.
    Standard,
}

impl Lane {
    /// Every lane, most restrictive first.
    pub const ALL: [Self; 3] = [Self::Restricted, Self::Guided, Self::Standard];

    /// The wire form.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Restricted => "restricted",
            Self::Guided => "guided",
            Self::Standard => "standard",
        }
    }

    /// Parses the wire form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|lane| lane.as_str() == text)
    }
}

impl Serialize for Lane {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Lane {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| D::Error::custom("this is not a lane"))
    }
}

/// The lanes that a release can be activated on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TargetLane {
    /// Every lane.
    All,
    /// This lane only.
    One(Lane),
}

impl TargetLane {
    /// Every target.
    pub const ALL: [Self; 4] =
        [Self::All, Self::One(Lane::Restricted), Self::One(Lane::Guided), Self::One(Lane::Standard)];

    /// The wire form.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::One(lane) => lane.as_str(),
        }
    }

    /// Parses the wire form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text == "all" { Some(Self::All) } else { Lane::parse(text).map(Self::One) }
    }

    /// The covered lanes.
    #[must_use]
    pub fn lanes(self) -> Vec<Lane> {
        match self {
            Self::All => Lane::ALL.to_vec(),
            Self::One(lane) => vec![lane],
        }
    }
}

/// The lane holders of a workload in one environment. Each reassignment updates this row, so a lane has at most one
/// holder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Deployment(pub(crate) DeploymentRecord);

/// The fields of [`Deployment`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeploymentRecord {
    /// The workload.
    pub workload_id: WorkloadId,
    /// The environment.
    pub environment: Slug,
    /// The holder of `restricted`.
    pub restricted: Option<ReleaseId>,
    /// The holder of `guided`.
    pub guided: Option<ReleaseId>,
    /// The holder of `standard`.
    pub standard: Option<ReleaseId>,
    /// Lanes whose holder's rollout is soaking there. INVARIANT: a rollout is in progress exactly if its release holds
    /// the rollout's current lane and that lane is listed here.
    pub soaking: Vec<Lane>,
    /// Increments with each reassignment.
    pub revision: Revision,
}

aggregate!(Deployment, DeploymentRecord);

impl Deployment {
    /// The deployment of a workload without releases in the environment.
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

    /// The holder of a lane.
    #[must_use]
    pub const fn holder(&self, lane: Lane) -> Option<ReleaseId> {
        match lane {
            Lane::Restricted => self.0.restricted,
            Lane::Guided => self.0.guided,
            Lane::Standard => self.0.standard,
        }
    }

    /// The release that serves a caller on a lane: its holder, else that of the next more general lane.
    #[must_use]
    pub fn serving_release(&self, requested: Lane) -> Option<(Lane, ReleaseId)> {
        Lane::ALL
            .into_iter()
            .filter(|lane| *lane >= requested)
            .find_map(|lane| self.holder(lane).map(|release| (lane, release)))
    }

    /// The release that represents the environment without a lane choice: the most general holder.
    #[must_use]
    pub fn representative_release(&self) -> Option<(Lane, ReleaseId)> {
        Lane::ALL.into_iter().rev().find_map(|lane| self.holder(lane).map(|release| (lane, release)))
    }

    /// Whether the release holds any lane.
    #[must_use]
    pub fn is_held_by(&self, release: ReleaseId) -> bool {
        Lane::ALL.into_iter().any(|lane| self.holder(lane) == Some(release))
    }

    /// The target lanes of a release that it does not hold.
    #[must_use]
    pub fn untaken_lanes(&self, release: &Release) -> Vec<Lane> {
        let targets = release.target_lane.lanes();
        targets.into_iter().filter(|lane| self.holder(*lane) != Some(release.release_id)).collect()
    }

    /// The soaking lanes of the next deployment: those that keep their holder and are not `ended`, plus the lane that
    /// starts to soak.
    pub(super) fn next_soaking(&self, next: &Self, ended: Option<Lane>, started: Option<Lane>) -> Vec<Lane> {
        let keeps_soaking = |lane: &Lane| {
            self.soaking.contains(lane) && self.holder(*lane) == next.holder(*lane) && Some(*lane) != ended
        };
        Lane::ALL.into_iter().filter(|lane| Some(*lane) == started || keeps_soaking(lane)).collect()
    }

    /// The releases whose rollout ends in `next`, because they lose its current lane.
    pub(super) fn rollouts_stopped_by(&self, next: &Self) -> Vec<ReleaseId> {
        let lost = self.soaking.iter().filter(|lane| self.holder(**lane) != next.holder(**lane));
        let mut stopped: Vec<ReleaseId> = lost.filter_map(|lane| self.holder(*lane)).collect();
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

    /// The releases that hold a lane here and none in `next`.
    pub(super) fn superseded_by(&self, next: &Self) -> Vec<ReleaseId> {
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

/// A lane reassignment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LaneMove {
    /// The lane.
    pub lane: Lane,
    /// The previous holder.
    pub from: Option<ReleaseId>,
    /// The new holder.
    pub to: Option<ReleaseId>,
}

/// A lane reassignment in the history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LaneHistoryEntry {
    /// The deployment revision of the reassignment.
    pub revision: Revision,
    /// The lane.
    pub lane: Lane,
    /// The previous holder.
    pub from: Option<ReleaseId>,
    /// The new holder.
    pub to: Option<ReleaseId>,
    /// The reason.
    pub reason: MoveReason,
    /// The time.
    pub at: Timestamp,
}

/// A period in which a release held a lane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LaneTenure {
    /// The release.
    pub release: ReleaseId,
    /// The start.
    pub from: Timestamp,
    /// The end; `None` while it holds the lane.
    pub to: Option<Timestamp>,
    /// The reason for the assignment.
    pub reason: MoveReason,
}

/// The tenures of a lane, newest first, from its history entries, newest first.
#[must_use]
pub fn lane_tenures(moves: &[LaneHistoryEntry], lane: Lane) -> Vec<LaneTenure> {
    let mut until = None;
    let mut holdings = Vec::new();
    for moved in moves.iter().filter(|moved| moved.lane == lane) {
        if let Some(release) = moved.to {
            holdings.push(LaneTenure { release, from: moved.at, to: until, reason: moved.reason });
        }
        until = Some(moved.at);
    }
    holdings
}

/// A change of a release and its deployment in one commit. Only the domain makes one; others read its record.
#[derive(Clone, Debug)]
#[must_use = "a decision changes nothing until a store commits it"]
pub struct DeploymentChange(DeploymentChangeRecord);

impl DeploymentChange {
    pub(super) const fn new(record: DeploymentChangeRecord) -> Self {
        Self(record)
    }

    /// The record, for a store that commits it.
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

/// What a change of a release and its deployment writes.
#[derive(Clone, Debug)]
pub struct DeploymentChangeRecord {
    /// The next release.
    pub release: Release,
    /// The release revision on which the decision is based.
    pub release_decided_on: Revision,
    /// The next deployment.
    pub deployment: Deployment,
    /// The deployment revision on which the decision is based.
    pub deployment_decided_on: Revision,
    /// Releases that lose their last lane and become superseded.
    pub superseded: Vec<ReleaseId>,
    /// Other releases whose rollout ends, because they lose its current lane.
    pub stopped_rollouts: Vec<ReleaseId>,
    /// The effect on the soak time of the release's rollout.
    pub soak: SoakEffect,
    /// Whether the commit requires a completed soak, by the database's clock.
    pub requires_ended_soak: bool,
    /// Superseded releases that hold lanes again and become active.
    pub reinstated: Vec<ReleaseId>,
    /// The reassigned lanes.
    pub moves: Vec<LaneMove>,
    /// The reason, for the history.
    pub reason: MoveReason,
    /// The evidence document, if any.
    pub evidence: Option<ReleaseEvidenceDocument>,
    /// The fact of the change.
    pub fact: crate::audit::Fact,
}

/// The effect of a change on a rollout's soak time, which only the database's clock measures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SoakEffect {
    /// It is unchanged.
    Kept,
    /// It starts with the commit.
    Begun,
}

/// The reason for a lane reassignment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MoveReason {
    /// A release was activated.
    Activation,
    /// A rollout advanced to the lane.
    Advance,
    /// The holder was retired.
    Retirement,
    /// The holder was rolled back; the previous one holds the lane again.
    Rollback,
}

impl MoveReason {
    /// Every reason.
    pub const ALL: [Self; 4] = [Self::Activation, Self::Advance, Self::Retirement, Self::Rollback];

    /// Parses the history form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == text)
    }

    /// The history form.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Activation => "activation",
            Self::Advance => "advance",
            Self::Retirement => "retirement",
            Self::Rollback => "rollback",
        }
    }
}

impl State {
    /// Whether a release in this state can hold lanes.
    #[must_use]
    pub const fn can_hold_lanes(&self) -> bool {
        match self {
            Self::Active { .. } => true,
            Self::Draft
            | Self::ReviewReady { .. }
            | Self::Approved { .. }
            | Self::Superseded { .. }
            | Self::Retired { .. } => false,
        }
    }
}
