//! The notification category of a fact. People subscribe to categories.

use serde::Serialize;

/// A notification category of a fact. A fact has any number of them; preferences are per category.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FactCategory {
    /// Failed, denied or timed-out runs.
    Executions,
    /// Requested and given verdicts.
    Approvals,
    /// Failures and interruptions of services.
    Incidents,
    /// Refusals by a governance rule.
    ComplianceFindings,
    /// Documents that are available to read.
    Reports,
    /// Changes of governing settings.
    PolicyChanges,
}
