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
    findings: BenchmarkResults,
    judged: Vec<TargetResult>,
}

impl Report {
    pub(crate) fn of(findings: BenchmarkResults) -> Report {
        let judged = thresholds::judge(&findings);
        Report { findings, judged }
    }

    /// Renders the Markdown tables.
    pub(crate) fn markdown(&self) -> String {
        markdown::render(&self.findings, &self.judged)
    }

    /// Compares the verdicts with the known misses.
    pub(crate) fn outcome(&self) -> BenchmarkOutcome {
        outcome(&self.judged, KNOWN_MISSES)
    }

    /// All measurements as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        json::to_json(&self.findings, &self.judged)
    }
}
