//! Rollouts: a release takes its lanes one after another, and each of them soaks before the next is taken.

mod hold;
pub mod ports;

use crate::{release::lane::Lane, store::Revision, time::Timestamp};
pub use hold::{Hold, LaneRecord, NextLane, Observed};
use serde_json::{Value, json};
use std::time::Duration;

/// Longest soak: thirty days.
pub const MAX_SOAK_MINUTES: u32 = 43_200;

/// Which lanes are taken, in which order, and how long each of them soaks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RolloutPlan {
    first: Lane,
    later: Vec<Lane>,
    soak_minutes: u32,
    pace: Pace,
}

/// Who takes the next lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pace {
    /// A person does.
    Manual,
    /// The rollout pilot does, once the lane has soaked and its runs went well.
    Automatic,
}

/// Why a plan is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PlanRefusal {
    /// One lane at least, and each of them once.
    #[error("a plan names one to three lanes, each of them once")]
    Lanes,
    /// The soak is out of bounds.
    #[error("a soak lasts from 0 to 43200 minutes")]
    Soak,
}

impl RolloutPlan {
    /// A plan.
    ///
    /// # Errors
    /// When no lane is named, one is named twice, or the soak is too long.
    pub fn new(lanes: &[Lane], soak_minutes: u32, pace: Pace) -> Result<Self, PlanRefusal> {
        let (first, later) = lanes.split_first().ok_or(PlanRefusal::Lanes)?;
        let once = |lane: &Lane| lanes.iter().filter(|other| *other == lane).count() == 1;
        if !lanes.iter().all(once) {
            return Err(PlanRefusal::Lanes);
        }
        if soak_minutes > MAX_SOAK_MINUTES {
            return Err(PlanRefusal::Soak);
        }
        Ok(Self { first: *first, later: later.to_vec(), soak_minutes, pace })
    }

    /// The lanes, in the order in which they are taken.
    pub fn lanes(&self) -> impl Iterator<Item = Lane> + '_ {
        std::iter::once(self.first).chain(self.later.iter().copied())
    }

    /// The lane that is taken at once.
    #[must_use]
    pub const fn first(&self) -> Lane {
        self.first
    }

    /// How long each lane soaks, in minutes.
    #[must_use]
    pub const fn soak_minutes(&self) -> u32 {
        self.soak_minutes
    }

    /// The plan, as facts tell it.
    pub(crate) fn told(&self) -> Value {
        json!({
            "lane_sequence": self.lanes().collect::<Vec<_>>(),
            "soak_duration_minutes": self.soak_minutes,
            "auto_advance": self.pace == Pace::Automatic,
        })
    }

    /// Who takes the next lane.
    #[must_use]
    pub const fn pace(&self) -> Pace {
        self.pace
    }

    /// The lane at a place of the sequence; the last one beyond it.
    fn lane(&self, index: u8) -> Lane {
        self.lanes().nth(index.into()).unwrap_or_else(|| self.later.last().copied().unwrap_or(self.first))
    }

    fn next(&self, index: u8) -> Option<Lane> {
        self.lanes().nth(usize::from(index).saturating_add(1))
    }
}

/// Where a rollout is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RolloutStatus {
    /// Some lane soaks.
    InProgress,
    /// All lanes were traversed.
    Completed,
    /// The release lost the lane that it was at, or was taken back.
    RolledBack,
}

impl RolloutStatus {
    /// Every status.
    pub const ALL: [Self; 3] = [Self::InProgress, Self::Completed, Self::RolledBack];

    /// The spelling on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::RolledBack => "rolled_back",
        }
    }

    /// The status of that spelling.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }
}

/// The rollout of a release: the newest, where it had several.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rollout {
    /// What was planned.
    pub plan: RolloutPlan,
    /// Where it is.
    pub status: RolloutStatus,
    /// The place in the sequence of the lane that was taken last, from zero.
    pub current: u8,
    /// The deployment's revision under which that lane began to soak: runs that were accepted under it or a later one
    /// tell how the release fares there.
    pub since: Revision,
    /// When that lane began to soak, by the database's clock.
    pub soak_started_at: Timestamp,
    /// Why the pilot said that it holds at the present lane: each reason once.
    pub held: Vec<Hold>,
}

impl Rollout {
    /// A rollout that begins with the first lane of its plan. The store says when, by its own clock.
    #[must_use]
    pub const fn begin(plan: RolloutPlan, since: Revision, now: Timestamp) -> Self {
        Self { plan, status: RolloutStatus::InProgress, current: 0, since, soak_started_at: now, held: Vec::new() }
    }

    /// The same, with the moment at which its present lane began to soak, where the store tells one.
    #[must_use]
    pub fn soaking_since(self, moment: Option<Timestamp>) -> Self {
        Self { soak_started_at: moment.unwrap_or(self.soak_started_at), ..self }
    }

    /// Whether some lane soaks.
    #[must_use]
    pub fn in_progress(&self) -> bool {
        self.status == RolloutStatus::InProgress
    }

    /// The lane that was taken last.
    #[must_use]
    pub fn current_lane(&self) -> Lane {
        self.plan.lane(self.current)
    }

    /// The lane that an advance would take; none when it would complete the rollout, or there is nothing to advance.
    #[must_use]
    pub fn next_lane(&self) -> Option<Lane> {
        if self.in_progress() { self.plan.next(self.current) } else { None }
    }

    /// When the soak of the current lane ends, by the database's clock.
    #[must_use]
    pub fn soak_ends_at(&self) -> Timestamp {
        self.soak_started_at.after(Duration::from_secs(u64::from(self.plan.soak_minutes) * 60))
    }

    /// One lane further, or complete after the last. The store says when the next soak begins, by its own clock.
    #[must_use]
    pub(crate) fn advanced(&self, since: Revision, now: Timestamp) -> Self {
        let next = Self { held: Vec::new(), ..self.clone() };
        match self.next_lane() {
            Some(_) => Self { current: self.current.saturating_add(1), since, soak_started_at: now, ..next },
            None => Self { status: RolloutStatus::Completed, ..next },
        }
    }

    /// The same, stopped if it was in progress.
    #[must_use]
    pub(crate) fn stopped(&self) -> Self {
        let status = match self.status {
            RolloutStatus::InProgress | RolloutStatus::RolledBack => RolloutStatus::RolledBack,
            RolloutStatus::Completed => RolloutStatus::Completed,
        };
        Self { status, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_names_each_lane_once_and_soaks_for_a_month_at_most() {
        use Lane::{Guided, Restricted, Standard};
        assert!(RolloutPlan::new(&[Standard, Restricted, Guided], MAX_SOAK_MINUTES, Pace::Manual).is_ok());
        assert_eq!(RolloutPlan::new(&[], 0, Pace::Manual), Err(PlanRefusal::Lanes));
        assert_eq!(RolloutPlan::new(&[Guided, Standard, Guided], 0, Pace::Manual), Err(PlanRefusal::Lanes));
        assert_eq!(RolloutPlan::new(&[Guided], MAX_SOAK_MINUTES + 1, Pace::Manual), Err(PlanRefusal::Soak));
    }

    #[test]
    fn a_rollout_goes_through_its_lanes_and_completes() {
        let now = Timestamp::new(::time::OffsetDateTime::UNIX_EPOCH);
        let plan = RolloutPlan::new(&[Lane::Restricted, Lane::Standard], 5, Pace::Manual).unwrap();
        let begun = Rollout::begin(plan, Revision::FIRST, now);
        assert_eq!((begun.current_lane(), begun.next_lane()), (Lane::Restricted, Some(Lane::Standard)));
        assert_eq!(begun.soak_ends_at().micros(), 300_000_000);
        let last = begun.advanced(Revision::new(7), now);
        assert_eq!((last.current_lane(), last.next_lane(), last.since), (Lane::Standard, None, Revision::new(7)));
        assert!(last.in_progress());
        let complete = last.advanced(Revision::new(8), now);
        assert_eq!((complete.status, complete.current), (RolloutStatus::Completed, 1));
        assert_eq!(complete.stopped(), complete, "what is complete stays so");
        assert_eq!(begun.stopped().status, RolloutStatus::RolledBack);
    }
}
