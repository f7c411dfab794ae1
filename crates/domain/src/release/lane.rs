//! Lanes, and who holds them.

use super::{Release, State, rollback::ReleaseArtifact};
use crate::{
    id::{ReleaseId, WorkloadId},
    slug::Slug,
    store::Revision,
    time::Timestamp,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// A service lane, from the most careful to the most general.
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
    /// Every lane, the most careful first.
    pub const ALL: [Self; 3] = [Self::Restricted, Self::Guided, Self::Standard];

    /// The spelling on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Restricted => "restricted",
            Self::Guided => "guided",
            Self::Standard => "standard",
        }
    }

    /// The lane of that spelling.
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
        Self::parse(&text).ok_or_else(|| D::Error::custom("this is no lane"))
    }
}

/// The lanes that a release may be activated on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TargetLane {
    /// Any and all.
    All,
    /// This one alone.
    Only(Lane),
}

impl TargetLane {
    /// Every target.
    pub const ALL: [Self; 4] =
        [Self::All, Self::Only(Lane::Restricted), Self::Only(Lane::Guided), Self::Only(Lane::Standard)];

    /// The spelling on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Only(lane) => lane.as_str(),
        }
    }

    /// The target of that spelling.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text == "all" { Some(Self::All) } else { Lane::parse(text).map(Self::Only) }
    }

    /// The lanes that it covers.
    #[must_use]
    pub fn lanes(self) -> Vec<Lane> {
        match self {
            Self::All => Lane::ALL.to_vec(),
            Self::Only(lane) => vec![lane],
        }
    }
}

/// The holder of each lane of one workload in one environment. Whatever moves a lane locks this row first, so a lane
/// never has two holders and no two movers wait for each other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Deployment {
    /// The workload.
    pub workload_id: WorkloadId,
    /// The environment.
    pub environment: Slug,
    /// Who holds `restricted`.
    pub restricted: Option<ReleaseId>,
    /// Who holds `guided`.
    pub guided: Option<ReleaseId>,
    /// Who holds `standard`.
    pub standard: Option<ReleaseId>,
    /// Lanes that soak: their holder's rollout is at them. INVARIANT: a rollout is in progress exactly where its release
    /// holds the lane that the rollout is at, and that lane stands here.
    pub soaking: Vec<Lane>,
    /// Counts the moves.
    pub revision: Revision,
}

impl Deployment {
    /// Of a workload that never had a release there.
    #[must_use]
    pub const fn empty(workload_id: WorkloadId, environment: Slug) -> Self {
        let revision = Revision::FIRST;
        Self { workload_id, environment, restricted: None, guided: None, standard: None, soaking: Vec::new(), revision }
    }

    /// The holder of a lane.
    #[must_use]
    pub const fn holder(&self, lane: Lane) -> Option<ReleaseId> {
        match lane {
            Lane::Restricted => self.restricted,
            Lane::Guided => self.guided,
            Lane::Standard => self.standard,
        }
    }

    /// The release that serves a caller of that lane: its holder, else that of the next more general lane.
    #[must_use]
    pub fn serving(&self, wanted: Lane) -> Option<(Lane, ReleaseId)> {
        Lane::ALL
            .into_iter()
            .filter(|lane| *lane >= wanted)
            .find_map(|lane| self.holder(lane).map(|release| (lane, release)))
    }

    /// The release that answers for the environment where nobody names a lane: the most general holder.
    #[must_use]
    pub fn representative(&self) -> Option<(Lane, ReleaseId)> {
        Lane::ALL.into_iter().rev().find_map(|lane| self.holder(lane).map(|release| (lane, release)))
    }

    /// Whether the release holds some lane.
    #[must_use]
    pub fn is_held_by(&self, release: ReleaseId) -> bool {
        Lane::ALL.into_iter().any(|lane| self.holder(lane) == Some(release))
    }

    /// The lanes that a release may take and does not hold.
    #[must_use]
    pub fn lanes_left_for(&self, release: &Release) -> Vec<Lane> {
        let targets = release.target_lane.lanes();
        targets.into_iter().filter(|lane| self.holder(*lane) != Some(release.release_id)).collect()
    }

    /// The lanes of the next deployment that soak: of those that soaked, the ones that kept their holder and are not
    /// `done`; and the one where a soak begins.
    pub(super) fn soaking_in(&self, next: &Self, done: Option<Lane>, begun: Option<Lane>) -> Vec<Lane> {
        let goes_on = |lane: &Lane| {
            self.soaking.contains(lane) && self.holder(*lane) == next.holder(*lane) && Some(*lane) != done
        };
        Lane::ALL.into_iter().filter(|lane| Some(*lane) == begun || goes_on(lane)).collect()
    }

    /// Those whose rollout ends in `next`, because the lane that it was at has another holder there.
    pub(super) fn stopped_by(&self, next: &Self) -> Vec<ReleaseId> {
        let lost = self.soaking.iter().filter(|lane| self.holder(**lane) != next.holder(**lane));
        let mut stopped: Vec<ReleaseId> = lost.filter_map(|lane| self.holder(*lane)).collect();
        stopped.sort_unstable();
        stopped
    }

    pub(super) fn with_holder(mut self, lane: Lane, holder: Option<ReleaseId>) -> Self {
        match lane {
            Lane::Restricted => self.restricted = holder,
            Lane::Guided => self.guided = holder,
            Lane::Standard => self.standard = holder,
        }
        self
    }

    /// Those who hold a lane here and none in `next`.
    pub(super) fn displaced_by(&self, next: &Self) -> Vec<ReleaseId> {
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

/// One lane that changed hands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LaneMove {
    /// The lane.
    pub lane: Lane,
    /// Who held it.
    pub from: Option<ReleaseId>,
    /// Who holds it now.
    pub to: Option<ReleaseId>,
}

/// One lane that changed hands, as the history tells it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LaneMoved {
    /// The deployment's revision that the move made.
    pub revision: Revision,
    /// The lane.
    pub lane: Lane,
    /// Who held it.
    pub from: Option<ReleaseId>,
    /// Who holds it from then on.
    pub to: Option<ReleaseId>,
    /// Why.
    pub reason: MoveReason,
    /// When.
    pub at: Timestamp,
}

/// A time in which a release held a lane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holding {
    /// The release.
    pub release: ReleaseId,
    /// Since when.
    pub from: Timestamp,
    /// Until when; `None` while it holds the lane.
    pub to: Option<Timestamp>,
    /// Why it got the lane.
    pub reason: MoveReason,
}

/// The times in which one lane was held, newest first, from its moves, newest first.
#[must_use]
pub fn holdings(moves: &[LaneMoved], lane: Lane) -> Vec<Holding> {
    let mut until = None;
    let mut holdings = Vec::new();
    for moved in moves.iter().filter(|moved| moved.lane == lane) {
        if let Some(release) = moved.to {
            holdings.push(Holding { release, from: moved.at, to: until, reason: moved.reason });
        }
        until = Some(moved.at);
    }
    holdings
}

/// A release and its deployment, moved together in one commit.
#[derive(Clone, Debug)]
#[must_use = "a decision changes nothing until a store commits it"]
pub struct DeploymentChange {
    /// The release as it will be.
    pub release: Release,
    /// The release's revision that the decision saw.
    pub release_decided_on: Revision,
    /// The deployment as it will be.
    pub deployment: Deployment,
    /// The deployment's revision that the decision saw.
    pub deployment_decided_on: Revision,
    /// Releases that lose their last lane and become superseded.
    pub superseded: Vec<ReleaseId>,
    /// Other releases whose rollout ends, because they lose the lane that it was at.
    pub stopped: Vec<ReleaseId>,
    /// What becomes of the time that the release's rollout has soaked.
    pub soak: Soak,
    /// Whether the commit stands only if the soak of the release's rollout is over, by the database's clock.
    pub only_soaked: bool,
    /// Superseded releases that hold lanes again and become active.
    pub returned: Vec<ReleaseId>,
    /// The lanes that change hands.
    pub moves: Vec<LaneMove>,
    /// Why, as the history tells it.
    pub reason: MoveReason,
    /// The document that tells it, where one does.
    pub evidence: Option<ReleaseArtifact>,
    /// The one fact of it all.
    pub fact: crate::audit::Fact,
}

/// What becomes of the time that a rollout has soaked. It is told by the database's clock alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Soak {
    /// Nothing.
    Kept,
    /// It begins with the commit.
    Begun,
}

/// Why a lane changed hands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MoveReason {
    /// A release was activated.
    Activation,
    /// A rollout went on to it.
    Advance,
    /// The holder was retired.
    Retirement,
    /// Its holder was taken back, and the one before holds it again.
    Rollback,
}

impl MoveReason {
    /// Every reason.
    pub const ALL: [Self; 4] = [Self::Activation, Self::Advance, Self::Retirement, Self::Rollback];

    /// The reason of that spelling.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == text)
    }

    /// The spelling in the history.
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
    pub const fn holds_lanes(&self) -> bool {
        match self {
            Self::Active { .. } => true,
            Self::Draft
            | Self::ReviewReady { .. }
            | Self::Approved { .. }
            | Self::Superseded { .. }
            | Self::Retired => false,
        }
    }
}
