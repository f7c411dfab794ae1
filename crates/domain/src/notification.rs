//! Notifications: what people are told, and may choose not to be.

use serde::Serialize;

/// What a fact is about for the people whom it concerns. Preferences are by category.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    /// Runs that failed, were denied or took too long.
    Executions,
    /// Verdicts that are asked for or were given.
    Approvals,
    /// Something that serves people went wrong, or was stopped.
    Incidents,
    /// Somebody or something met a rule and was refused.
    ComplianceFindings,
    /// A document is there to be read.
    Reports,
    /// What decides about others changed.
    PolicyChanges,
}
