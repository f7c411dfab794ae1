//! Lanes of a workload, and the history of their holders.

use super::State;
use crate::{id::ReleaseId, store::Revision, time::Timestamp};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// A service level of a workload. The order is from the most restrictive to the most general lane.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Lane {
    /// The lane for canary or internal traffic.
    Restricted,
    /// The lane for a limited audience.
    Guided,
    /// The lane for general traffic.
    Standard,
}

impl Lane {
    /// Every lane, most restrictive first.
    pub const ALL: [Self; 3] = [Self::Restricted, Self::Guided, Self::Standard];

    /// The wire form, such as `restricted`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Restricted => "restricted",
            Self::Guided => "guided",
            Self::Standard => "standard",
        }
    }

    /// Parses the wire form; `None` for an unknown text.
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

/// The lanes that a release is meant to hold.
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

    /// The wire form, such as `all`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::One(lane) => lane.as_str(),
        }
    }

    /// Parses the wire form; `None` for an unknown text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text == "all" { Some(Self::All) } else { Lane::parse(text).map(Self::One) }
    }

    /// The lanes that the target includes.
    #[must_use]
    pub fn lanes(self) -> Vec<Lane> {
        match self {
            Self::All => Lane::ALL.to_vec(),
            Self::One(lane) => vec![lane],
        }
    }
}

/// The change of a lane's holder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LaneMove {
    /// The lane whose holder changed.
    pub lane: Lane,
    /// The previous holder, if the lane had one.
    pub from: Option<ReleaseId>,
    /// The new holder; `None` if the lane has none now.
    pub to: Option<ReleaseId>,
}

/// One reassignment in the lane history of a deployment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LaneHistoryEntry {
    /// The deployment revision that the commit of the reassignment created.
    pub revision: Revision,
    /// The reassigned lane.
    pub lane: Lane,
    /// The previous holder, if the lane had one.
    pub from: Option<ReleaseId>,
    /// The new holder; `None` if the lane had none afterwards.
    pub to: Option<ReleaseId>,
    /// The reason for the reassignment.
    pub reason: MoveReason,
    /// The time of the reassignment.
    pub at: Timestamp,
}

/// A period in which a release held a lane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LaneTenure {
    /// The release that held the lane.
    pub release: ReleaseId,
    /// The time at which the release took the lane.
    pub from: Timestamp,
    /// The time at which the release lost the lane; `None` while it holds the lane.
    pub to: Option<Timestamp>,
    /// The reason why the release received the lane.
    pub reason: MoveReason,
}

/// The periods in which releases held the lane, newest first. `history` must also be ordered newest first.
#[must_use]
pub fn lane_tenures(history: &[LaneHistoryEntry], lane: Lane) -> Vec<LaneTenure> {
    let mut end = None;
    let mut tenures = Vec::new();
    for entry in history.iter().filter(|entry| entry.lane == lane) {
        if let Some(release) = entry.to {
            tenures.push(LaneTenure { release, from: entry.at, to: end, reason: entry.reason });
        }
        end = Some(entry.at);
    }
    tenures
}

/// The reason why a lane changed its holder, as the lane history records it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MoveReason {
    /// A release was activated on the lane.
    Activation,
    /// A rollout advanced to the lane.
    Advance,
    /// The holder of the lane was retired.
    Retirement,
    /// The holder was rolled back, and an earlier holder received the lane again.
    Rollback,
}

impl MoveReason {
    /// Every reason.
    pub const ALL: [Self; 4] = [Self::Activation, Self::Advance, Self::Retirement, Self::Rollback];

    /// Parses the name in the lane history; `None` for an unknown name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == text)
    }

    /// The name in the lane history, such as `activation`.
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
    /// Whether a release in this state can hold a lane.
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
