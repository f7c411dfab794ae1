//! The decision of the rollout controller to advance a rollout or to hold it.

use super::{AdvanceMode, Rollout};
use crate::{
    release::recommendation::{EndedRuns, RollbackAssessment},
    workload::{WorkloadStatus, interface::RollbackThresholds},
};

/// The minimum number of ended runs on a lane before an advance. If the workload configures a smaller sample size, that
/// size is the minimum.
const MIN_RUNS: u32 = 5;

/// The reason why the rollout controller does not advance after the soak.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HoldReason {
    /// A rollback is recommended for the release.
    RollbackRecommended,
    /// Too few runs have ended on the lane since the soak started.
    TooFewRuns,
    /// The error rate of the runs on the lane since the soak started is too high.
    ErrorRate,
    /// The next lane is blocked by missing verdicts or unmet requirements.
    GateBlocked,
    /// The workload is suspended or retired, so its lane receives no runs to judge.
    WorkloadStopped,
}

impl HoldReason {
    /// Every reason, in the order of declaration.
    pub const ALL: [Self; 5] =
        [Self::RollbackRecommended, Self::TooFewRuns, Self::ErrorRate, Self::GateBlocked, Self::WorkloadStopped];

    /// The wire form, such as `rollback_recommended`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RollbackRecommended => "rollback_recommended",
            Self::TooFewRuns => "too_few_runs",
            Self::ErrorRate => "error_rate_exceeded",
            Self::GateBlocked => "gate_blocked",
            Self::WorkloadStopped => "workload_stopped",
        }
    }

    /// Parses the wire form; `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|hold| hold.as_str() == text)
    }
}

/// Whether the gates permit the rollout to take its next lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NextLaneGates {
    /// The gates permit the next lane, or there is no next lane.
    Open,
    /// Verdicts are missing, or requirements are unmet.
    Blocked,
}

/// How far the soak of a rollout's current lane has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SoakStatus {
    /// The remaining soak in whole seconds, rounded up, by the clock of the database.
    pub soak_seconds_left: u64,
    /// The latest runs of the release on the lane that were accepted since the soak started and have ended.
    pub runs: EndedRuns,
}

/// The observations from which the rollout controller decides whether to advance.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct AdvanceInputs {
    /// The soak status of the current lane.
    pub soak_status: SoakStatus,
    /// The rollback recommendation for the release, based on its latest runs on all lanes.
    pub recommendation: RollbackAssessment,
    /// Whether the gates permit the rollout to take its next lane.
    pub next_lane_gates: NextLaneGates,
    /// Whether the workload accepts runs.
    pub workload_status: WorkloadStatus,
    /// The number of runs on the lane that must have ended before an advance.
    pub required_runs: u32,
}

impl AdvanceInputs {
    /// Combines the observations with the workload's rollout configuration.
    #[must_use]
    pub fn new(
        soak_status: SoakStatus,
        recommendation: RollbackAssessment,
        next_lane_gates: NextLaneGates,
        workload_status: WorkloadStatus,
        config: &RollbackThresholds,
    ) -> Self {
        Self {
            soak_status,
            recommendation,
            next_lane_gates,
            workload_status,
            required_runs: config.sample_size().min(MIN_RUNS),
        }
    }
}

impl Rollout {
    /// Whether the rollout controller should advance the rollout now.
    #[must_use]
    pub fn is_due(&self, inputs: &AdvanceInputs) -> bool {
        self.is_automatic() && inputs.soak_status.soak_seconds_left == 0 && self.hold_reason(inputs).is_none()
    }

    /// The reason why the rollout controller does not advance. `None` if no reason applies, the lane still soaks, or a
    /// person advances the rollout.
    #[must_use]
    pub fn hold_reason(&self, inputs: &AdvanceInputs) -> Option<HoldReason> {
        if !self.is_automatic() || inputs.soak_status.soak_seconds_left > 0 {
            return None;
        }
        let AdvanceInputs { soak_status, recommendation, next_lane_gates, workload_status, required_runs } = inputs;
        if *workload_status != WorkloadStatus::Registered {
            return Some(HoldReason::WorkloadStopped);
        }
        if recommendation.is_recommended {
            return Some(HoldReason::RollbackRecommended);
        }
        if soak_status.runs.ended < *required_runs {
            return Some(HoldReason::TooFewRuns);
        }
        if soak_status.runs.error_rate() > recommendation.threshold {
            return Some(HoldReason::ErrorRate);
        }
        (*next_lane_gates == NextLaneGates::Blocked).then_some(HoldReason::GateBlocked)
    }

    fn is_automatic(&self) -> bool {
        match self.plan.advance_mode() {
            AdvanceMode::Automatic => self.is_in_progress(),
            AdvanceMode::Manual => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{release::lane::Lane, rollout::RolloutPlan, store::Revision, time::Timestamp};

    fn rollout(advance_mode: AdvanceMode) -> Rollout {
        let plan = RolloutPlan::new(&[Lane::Restricted, Lane::Standard], 5, advance_mode).unwrap();
        Rollout::start(plan, Revision::FIRST, Timestamp::new(::time::OffsetDateTime::UNIX_EPOCH))
    }

    fn advance_inputs(soak_left: u64, ended: u32, failed: u32, recommended: bool) -> AdvanceInputs {
        let recommendation =
            RollbackAssessment { is_recommended: recommended, error_rate: 0.0, sample_size: 20, threshold: 0.3 };
        let soak_status = SoakStatus { soak_seconds_left: soak_left, runs: EndedRuns { ended, failed } };
        AdvanceInputs {
            soak_status,
            recommendation,
            next_lane_gates: NextLaneGates::Open,
            workload_status: WorkloadStatus::Registered,
            required_runs: 5,
        }
    }

    #[test]
    fn advances_after_soak_with_enough_successful_runs() {
        let cases = [
            (advance_inputs(0, 5, 1, false), true, None),
            (advance_inputs(1, 5, 0, false), false, None),
            (advance_inputs(0, 4, 0, false), false, Some(HoldReason::TooFewRuns)),
            (advance_inputs(0, 10, 4, false), false, Some(HoldReason::ErrorRate)),
            // The error rate may equal the threshold.
            (advance_inputs(0, 10, 3, false), true, None),
            (advance_inputs(0, 10, 0, true), false, Some(HoldReason::RollbackRecommended)),
            (
                AdvanceInputs { workload_status: WorkloadStatus::Suspended, ..advance_inputs(0, 10, 0, false) },
                false,
                Some(HoldReason::WorkloadStopped),
            ),
            (
                AdvanceInputs { next_lane_gates: NextLaneGates::Blocked, ..advance_inputs(0, 10, 0, false) },
                false,
                Some(HoldReason::GateBlocked),
            ),
        ];
        for (inputs, due, hold) in cases {
            let automatic = rollout(AdvanceMode::Automatic);
            assert_eq!((automatic.is_due(&inputs), automatic.hold_reason(&inputs)), (due, hold), "{inputs:?}");
            let manual = rollout(AdvanceMode::Manual);
            assert_eq!((manual.is_due(&inputs), manual.hold_reason(&inputs)), (false, None));
            let stopped = automatic.stop();
            assert_eq!((stopped.is_due(&inputs), stopped.hold_reason(&inputs)), (false, None));
        }
    }

    #[test]
    fn small_sample_size_lowers_required_runs() {
        let soak_status = SoakStatus { soak_seconds_left: 0, runs: EndedRuns { ended: 0, failed: 0 } };
        let required_runs = |sample_size: u32| {
            let config: RollbackThresholds =
                serde_json::from_value(serde_json::json!({ "sample_size": sample_size })).unwrap();
            let runs = EndedRuns { ended: 0, failed: 0 };
            AdvanceInputs::new(
                soak_status,
                runs.assess_rollback(&config),
                NextLaneGates::Open,
                WorkloadStatus::Registered,
                &config,
            )
            .required_runs
        };
        assert_eq!((required_runs(20), required_runs(5), required_runs(2)), (5, 5, 2));
    }
}
