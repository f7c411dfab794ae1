//! The results of a run, as Markdown and as JSON.

mod json;
mod machine;
mod markdown;

pub(crate) use machine::Machine;

use crate::benchmark_run::Findings;
use crate::known_misses::{KNOWN_MISSES, Outcome, outcome};
use crate::thresholds::{self, TargetResult};

/// The measurements with their verdicts.
pub(crate) struct Report {
    findings: Findings,
    judged: Vec<TargetResult>,
}

impl Report {
    pub(crate) fn of(findings: Findings) -> Report {
        let judged = thresholds::judge(&findings);
        Report { findings, judged }
    }

    /// Renders the Markdown tables.
    pub(crate) fn markdown(&self) -> String {
        markdown::write(&self.findings, &self.judged)
    }

    /// Compares the verdicts with the known misses.
    pub(crate) fn outcome(&self) -> Outcome {
        outcome(&self.judged, KNOWN_MISSES)
    }

    /// All measurements as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        json::to_json(&self.findings, &self.judged)
    }
}
