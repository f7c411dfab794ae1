//! Rollback recommendations. They follow from the results of a release's runs and trigger no action.

use super::{Release, ReleaseRecord};
use crate::{
    audit::{Fact, FactKind, Stamp},
    notification_category::NotificationCategory,
    store::Change,
    workload::interface::RollbackThresholds,
};
use serde_json::json;

/// The results of the latest ended runs of a release.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EndedRuns {
    /// The number of ended runs.
    pub ended: u32,
    /// The number of these runs that failed or exceeded their deadline.
    pub failed: u32,
}

/// The recommendation for a release, with the numbers from which it follows.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RollbackAssessment {
    /// Whether a rollback is recommended.
    pub is_recommended: bool,
    /// The share of failed runs, from 0 to 1; 0 without runs.
    pub error_rate: f64,
    /// The number of ended runs that were evaluated.
    pub sample_size: u32,
    /// The share of failed runs above which a rollback is recommended.
    pub threshold: f64,
}

impl EndedRuns {
    /// The share of failed runs, from 0 to 1; 0 without runs.
    #[must_use]
    pub fn error_rate(self) -> f64 {
        if self.ended == 0 { 0.0 } else { f64::from(self.failed) / f64::from(self.ended) }
    }

    /// The recommendation that follows from these runs. A rollback is never recommended for fewer runs than the
    /// configured sample size.
    #[must_use]
    pub fn assess_rollback(self, config: &RollbackThresholds) -> RollbackAssessment {
        let error_rate = self.error_rate();
        RollbackAssessment {
            is_recommended: self.ended >= config.sample_size() && error_rate > config.error_threshold(),
            error_rate,
            sample_size: self.ended,
            threshold: config.error_threshold(),
        }
    }
}

impl Release {
    /// Records the recommendation; `None` if it is the same as before. The revision of the release stays unchanged,
    /// because decisions of people do not depend on this record.
    #[must_use]
    pub fn record_recommendation(&self, recommendation: &RollbackAssessment, stamp: &Stamp) -> Option<Change<Self>> {
        let advised = recommendation.is_recommended;
        if advised == self.rollback_advised {
            return None;
        }
        let detail = json!({
            "workload_id": self.workload_id,
            "environment": self.environment.as_str(),
            "recommended": advised,
            "error_rate": recommendation.error_rate,
            "sample_size": recommendation.sample_size,
            "threshold": recommendation.threshold,
        });
        let fact =
            Fact::new(FactKind::RollbackRecommendationChanged, self.subject(), Some(self.workspace_id), stamp, detail)
                .with_notification_categories(advised.then_some(NotificationCategory::Incidents));
        Some(Change::replace(Self(ReleaseRecord { rollback_advised: advised, ..self.0.clone() }), self.revision, fact))
    }
}
