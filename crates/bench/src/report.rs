//! What a run found out, as Markdown for people and as JSON for programs.

mod json;
mod machine;
mod markdown;

pub(crate) use machine::Machine;

use crate::bar::{self, Judged};
use crate::known_misses::{KNOWN_MISSES, Outcome, outcome};
use crate::run::Findings;

/// Findings with the verdicts on them.
pub(crate) struct Report {
    findings: Findings,
    judged: Vec<Judged>,
}

impl Report {
    pub(crate) fn of(findings: Findings) -> Report {
        let judged = bar::judge(&findings);
        Report { findings, judged }
    }

    /// A few Markdown tables.
    pub(crate) fn markdown(&self) -> String {
        markdown::write(&self.findings, &self.judged)
    }

    /// Which targets were missed.
    pub(crate) fn outcome(&self) -> Outcome {
        outcome(&self.judged, KNOWN_MISSES)
    }

    /// Everything that was measured.
    pub(crate) fn json(&self) -> serde_json::Value {
        json::value(&self.findings, &self.judged)
    }
}
