//! Lanes, and the history of their holders.

use super::State;
use crate::{id::ReleaseId, store::Revision, time::Timestamp};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// A service lane, ordered from the most restrictive to the most general.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Lane {
    /// For canary or internal traffic.
    Restricted,
    /// For a limited audience.
    Guided,
    /// For general traffic.
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

/// The lanes on which a release can be activated.
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

    /// The lanes that the target includes.
    #[must_use]
    pub fn lanes(self) -> Vec<Lane> {
        match self {
            Self::All => Lane::ALL.to_vec(),
            Self::One(lane) => vec![lane],
        }
    }
}

/// The reassignment of a lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LaneMove {
    /// The reassigned lane.
    pub lane: Lane,
    /// The previous holder.
    pub from: Option<ReleaseId>,
    /// The new holder.
    pub to: Option<ReleaseId>,
}

/// The reassignment of a lane, as the history records it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LaneHistoryEntry {
    /// The deployment revision that the reassignment created.
    pub revision: Revision,
    /// The reassigned lane.
    pub lane: Lane,
    /// The previous holder.
    pub from: Option<ReleaseId>,
    /// The new holder.
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
    /// The start of the period.
    pub from: Timestamp,
    /// The end; `None` while the release holds the lane.
    pub to: Option<Timestamp>,
    /// The reason for the assignment.
    pub reason: MoveReason,
}

/// The tenures of a lane, newest first. The history entries must also be ordered newest first.
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

/// The reason for a lane reassignment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MoveReason {
    /// A release was activated.
    Activation,
    /// A rollout advanced to the lane.
    Advance,
    /// The holder was retired.
    Retirement,
    /// The holder was rolled back, and the previous holder holds the lane again.
    Rollback,
}

impl MoveReason {
    /// Every reason.
    pub const ALL: [Self; 4] = [Self::Activation, Self::Advance, Self::Retirement, Self::Rollback];

    /// Parses the form in the history.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == text)
    }

    /// The form in the history.
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
