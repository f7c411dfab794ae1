//! Rollouts: a release takes its lanes in sequence, and each lane soaks before the next one.

mod hold;
pub mod ports;

use crate::{
    release::lane::Lane,
    store::{Revision, aggregate},
    time::Timestamp,
};
pub use hold::{AdvanceInputs, HoldReason, NextLaneGates, SoakStatus};
use serde_json::{Value, json};
use std::time::Duration;

/// The maximum soak in minutes: thirty days.
pub const MAX_SOAK_MINUTES: u32 = 43_200;

/// The plan of a rollout: its lanes in sequence, the soak of each lane, and how it advances.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RolloutPlan {
    first: Lane,
    later: Vec<Lane>,
    soak_minutes: u32,
    advance_mode: AdvanceMode,
}

/// Whether a person or the rollout controller advances a rollout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AdvanceMode {
    /// A person advances the rollout.
    Manual,
    /// The rollout controller advances the rollout after the soak, unless a hold reason applies.
    Automatic,
}

/// The reason why a rollout plan is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PlanRefusal {
    /// The plan has no lane, or a lane occurs twice.
    #[error("a plan has one to three distinct lanes")]
    Lanes,
    /// The soak is longer than [`MAX_SOAK_MINUTES`].
    #[error("a soak lasts from 0 to 43200 minutes")]
    Soak,
}

impl RolloutPlan {
    /// Creates a plan.
    ///
    /// # Errors
    /// When lanes are missing or repeated, or the soak is too long.
    pub fn new(lanes: &[Lane], soak_minutes: u32, advance_mode: AdvanceMode) -> Result<Self, PlanRefusal> {
        let (first, later) = lanes.split_first().ok_or(PlanRefusal::Lanes)?;
        let is_distinct = |lane: &Lane| lanes.iter().filter(|other| *other == lane).count() == 1;
        if !lanes.iter().all(is_distinct) {
            return Err(PlanRefusal::Lanes);
        }
        if soak_minutes > MAX_SOAK_MINUTES {
            return Err(PlanRefusal::Soak);
        }
        Ok(Self { first: *first, later: later.to_vec(), soak_minutes, advance_mode })
    }

    /// The lanes in the order in which the release takes them.
    pub fn lanes(&self) -> impl Iterator<Item = Lane> + '_ {
        std::iter::once(self.first).chain(self.later.iter().copied())
    }

    /// The lane on which the rollout starts.
    #[must_use]
    pub const fn first_lane(&self) -> Lane {
        self.first
    }

    /// The soak of each lane, in minutes.
    #[must_use]
    pub const fn soak_minutes(&self) -> u32 {
        self.soak_minutes
    }

    /// The plan as JSON, for facts about the rollout.
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "lane_sequence": self.lanes().collect::<Vec<_>>(),
            "soak_duration_minutes": self.soak_minutes,
            "auto_advance": self.advance_mode == AdvanceMode::Automatic,
        })
    }

    /// Whether a person or the rollout controller advances the rollout.
    #[must_use]
    pub const fn advance_mode(&self) -> AdvanceMode {
        self.advance_mode
    }

    /// The lane at an index of the sequence; for an index beyond the sequence, the last lane.
    fn lane(&self, index: u8) -> Lane {
        self.lanes().nth(index.into()).unwrap_or_else(|| self.later.last().copied().unwrap_or(self.first))
    }

    fn lane_after(&self, index: u8) -> Option<Lane> {
        self.lanes().nth(usize::from(index).saturating_add(1))
    }
}

/// Whether a rollout is in progress, or how it ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RolloutStatus {
    /// The current lane soaks, or the soak has ended and the rollout waits for its next advance.
    InProgress,
    /// The release has taken all lanes of the plan.
    Completed,
    /// The release lost the current lane or was rolled back, so the rollout ended.
    RolledBack,
}

impl RolloutStatus {
    /// Every status, in the order of declaration.
    pub const ALL: [Self; 3] = [Self::InProgress, Self::Completed, Self::RolledBack];

    /// The wire form, such as `in_progress`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::RolledBack => "rolled_back",
        }
    }

    /// Parses the wire form; `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }
}

/// The latest rollout of a release.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rollout(pub(crate) RolloutRecord);

/// The fields of [`Rollout`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RolloutRecord {
    /// The plan by which the rollout advances.
    pub plan: RolloutPlan,
    /// Whether the rollout is in progress, or how it ended.
    pub status: RolloutStatus,
    /// The index of the current lane in the plan's sequence, from zero.
    pub current_index: u8,
    /// The deployment revision at which the soak of the current lane started. Only runs that were accepted at this
    /// revision or later count for the soak.
    pub since_revision: Revision,
    /// The start of the current lane's soak, by the clock of the database.
    pub soak_started_at: Timestamp,
    /// The hold reasons that were recorded for the current lane, without duplicates.
    pub hold_reasons: Vec<HoldReason>,
}

aggregate!(Rollout, RolloutRecord);

impl Rollout {
    /// Starts a rollout at the first lane of its plan. The store replaces `now` by its own clock.
    #[must_use]
    pub const fn start(plan: RolloutPlan, since_revision: Revision, now: Timestamp) -> Self {
        Self(RolloutRecord {
            plan,
            status: RolloutStatus::InProgress,
            current_index: 0,
            since_revision,
            soak_started_at: now,
            hold_reasons: Vec::new(),
        })
    }

    /// Sets the start of the current lane's soak, if the store reports one.
    #[must_use]
    pub fn with_soak_start(self, soak_start: Option<Timestamp>) -> Self {
        Self(RolloutRecord { soak_started_at: soak_start.unwrap_or(self.soak_started_at), ..self.0 })
    }

    /// Whether the rollout is in progress.
    #[must_use]
    pub fn is_in_progress(&self) -> bool {
        self.status == RolloutStatus::InProgress
    }

    /// The lane that the rollout took last, on which it soaks.
    #[must_use]
    pub fn current_lane(&self) -> Lane {
        self.plan.lane(self.current_index)
    }

    /// The lane that the next advance would take. `None` if the next advance completes the rollout, or the rollout is
    /// not in progress.
    #[must_use]
    pub fn next_lane(&self) -> Option<Lane> {
        if self.is_in_progress() { self.plan.lane_after(self.current_index) } else { None }
    }

    /// The end of the current lane's soak, by the clock of the database.
    #[must_use]
    pub fn soak_ends_at(&self) -> Timestamp {
        self.soak_started_at.plus(Duration::from_secs(u64::from(self.plan.soak_minutes) * 60))
    }

    /// Advances to the next lane, or completes the rollout after the last lane. The store replaces `now` by its own
    /// clock.
    #[must_use]
    pub(crate) fn advance(&self, since_revision: Revision, now: Timestamp) -> Self {
        let next = Self(RolloutRecord { hold_reasons: Vec::new(), ..self.0.clone() });
        match self.next_lane() {
            Some(_) => Self(RolloutRecord {
                current_index: self.current_index.saturating_add(1),
                since_revision,
                soak_started_at: now,
                ..next.0
            }),
            None => Self(RolloutRecord { status: RolloutStatus::Completed, ..next.0 }),
        }
    }

    /// Stops the rollout if it is in progress; an ended rollout stays as it is.
    #[must_use]
    pub(crate) fn stop(&self) -> Self {
        let status = match self.status {
            RolloutStatus::InProgress | RolloutStatus::RolledBack => RolloutStatus::RolledBack,
            RolloutStatus::Completed => RolloutStatus::Completed,
        };
        Self(RolloutRecord { status, ..self.0.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_requires_distinct_lanes_and_bounded_soak() {
        use Lane::{Guided, Restricted, Standard};
        assert!(RolloutPlan::new(&[Standard, Restricted, Guided], MAX_SOAK_MINUTES, AdvanceMode::Manual).is_ok());
        assert_eq!(RolloutPlan::new(&[], 0, AdvanceMode::Manual), Err(PlanRefusal::Lanes));
        assert_eq!(RolloutPlan::new(&[Guided, Standard, Guided], 0, AdvanceMode::Manual), Err(PlanRefusal::Lanes));
        assert_eq!(RolloutPlan::new(&[Guided], MAX_SOAK_MINUTES + 1, AdvanceMode::Manual), Err(PlanRefusal::Soak));
    }

    #[test]
    fn rollout_advances_through_lanes_and_completes() {
        let now = Timestamp::new(::time::OffsetDateTime::UNIX_EPOCH);
        let plan = RolloutPlan::new(&[Lane::Restricted, Lane::Standard], 5, AdvanceMode::Manual).unwrap();
        let rollout = Rollout::start(plan, Revision::FIRST, now);
        assert_eq!((rollout.current_lane(), rollout.next_lane()), (Lane::Restricted, Some(Lane::Standard)));
        assert_eq!(rollout.soak_ends_at().micros(), 300_000_000);
        let last = rollout.advance(Revision::new(7), now);
        assert_eq!(
            (last.current_lane(), last.next_lane(), last.since_revision),
            (Lane::Standard, None, Revision::new(7))
        );
        assert!(last.is_in_progress());
        let complete = last.advance(Revision::new(8), now);
        assert_eq!((complete.status, complete.current_index), (RolloutStatus::Completed, 1));
        assert_eq!(complete.stop(), complete, "a completed rollout stays completed");
        assert_eq!(rollout.stop().status, RolloutStatus::RolledBack);
    }
}
