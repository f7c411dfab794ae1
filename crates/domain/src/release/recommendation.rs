//! Whether the runs of a release speak for taking it back. It is advice: nothing happens by itself.

use super::Release;
use crate::{
    audit::{Fact, FactKind, Stamp},
    notification::Category,
    store::Change,
    workload::interface::RolloutConfig,
};
use serde_json::json;

/// The newest runs of a release that have ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EndedRuns {
    /// How many were found.
    pub ended: u32,
    /// How many of them failed or took too long.
    pub failed: u32,
}

/// Advice, with what it rests on.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Recommendation {
    /// Whether the release should be taken back.
    pub recommended: bool,
    /// The share of failures, 0 without runs.
    pub error_rate: f64,
    /// Runs that were seen.
    pub sample_size: u32,
    /// The share that is borne.
    pub threshold: f64,
}

impl EndedRuns {
    /// The share of failures, 0 without runs.
    #[must_use]
    pub fn error_rate(self) -> f64 {
        if self.ended == 0 { 0.0 } else { f64::from(self.failed) / f64::from(self.ended) }
    }

    /// What these runs advise. Too few of them advise nothing.
    #[must_use]
    pub fn judge(self, config: &RolloutConfig) -> Recommendation {
        let error_rate = self.error_rate();
        Recommendation {
            recommended: self.ended >= config.sample_size() && error_rate > config.error_threshold(),
            error_rate,
            sample_size: self.ended,
            threshold: config.error_threshold(),
        }
    }
}

impl Release {
    /// Notes that the advice is another one than when somebody last looked; none when it is the same. It is a note and
    /// changes nothing that people decide on, so the release's revision stays.
    #[must_use]
    pub fn advise(&self, recommendation: &Recommendation, stamp: &Stamp) -> Option<Change<Self>> {
        let advised = recommendation.recommended;
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
        let fact = Fact::new(FactKind::RollbackAdvised, self.subject(), Some(self.workspace_id), stamp, detail)
            .concerning(advised.then_some(Category::Incidents));
        Some(Change::replacing(Self { rollback_advised: advised, ..self.clone() }, self.revision, fact))
    }
}
