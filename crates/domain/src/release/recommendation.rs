//! Whether the runs of a release speak for taking it back. It is advice: nothing happens by itself.

use crate::workload::interface::RolloutConfig;

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
