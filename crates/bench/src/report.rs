//! The results of a run, as Markdown and as JSON.

mod json;
mod machine;
mod markdown;

pub(crate) use machine::Machine;

use crate::benchmark_run::BenchmarkResults;
use crate::known_misses::{BenchmarkOutcome, KNOWN_MISSES, outcome};
use crate::thresholds::{self, TargetResult};

/// The measurements with their verdicts.
pub(crate) struct Report {
    results: BenchmarkResults,
    targets: Vec<TargetResult>,
}

impl Report {
    pub(crate) fn of(results: BenchmarkResults) -> Report {
        let targets = thresholds::judge(&results);
        Report { results, targets }
    }

    /// Renders the Markdown tables.
    pub(crate) fn markdown(&self) -> String {
        markdown::render(&self.results, &self.targets)
    }

    /// Compares the verdicts with the known misses.
    pub(crate) fn outcome(&self) -> BenchmarkOutcome {
        outcome(&self.targets, KNOWN_MISSES)
    }

    /// All measurements as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        json::to_json(&self.results, &self.targets)
    }
}
