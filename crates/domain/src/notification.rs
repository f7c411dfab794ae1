//! Notifications: the categories of events that people can subscribe to.

use serde::Serialize;

/// The notification category of a fact. Preferences are per category.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Category {
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
