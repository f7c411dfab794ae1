//! The notification category of a fact. People subscribe to categories.

use serde::{Serialize, Serializer};

/// A notification category of a fact. A fact can have several categories. People set notification preferences for
/// each category.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum NotificationCategory {
    /// Runs that failed, were denied, timed out, or have an unknown outcome.
    Executions,
    /// Requests for verdicts, and verdicts.
    Approvals,
    /// Suspended workloads, rollbacks, recommended rollbacks, and damaged artifacts.
    Incidents,
    /// Refusals by a governance rule, revoked access contracts, and damaged artifacts.
    ComplianceFindings,
    /// Announcements, rollbacks, completed erasures, and runs about which a policy notifies the owner.
    Reports,
    /// Changed results of connection checks.
    ConnectorHealth,
    /// Credentials that expire soon or have expired.
    CredentialExpiry,
    /// Changes of policies, settings and notification destinations, and uses of rights that the configuration grants.
    PolicyChanges,
}

impl NotificationCategory {
    /// Every category, in the order of declaration.
    pub const ALL: [Self; 8] = [
        Self::Executions,
        Self::Approvals,
        Self::Incidents,
        Self::ComplianceFindings,
        Self::Reports,
        Self::ConnectorHealth,
        Self::CredentialExpiry,
        Self::PolicyChanges,
    ];

    /// The wire form, such as `compliance_findings`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Executions => "executions",
            Self::Approvals => "approvals",
            Self::Incidents => "incidents",
            Self::ComplianceFindings => "compliance_findings",
            Self::Reports => "reports",
            Self::ConnectorHealth => "connector_health",
            Self::CredentialExpiry => "credential_expiry",
            Self::PolicyChanges => "policy_changes",
        }
    }

    /// Parses the wire form; `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|category| category.as_str() == text)
    }

    /// Whether the audit log must record each notification of this category that a person opted out of, with the
    /// deciding setting.
    #[must_use]
    pub const fn is_suppression_recorded(self) -> bool {
        match self {
            Self::Reports | Self::ConnectorHealth => false,
            Self::Executions
            | Self::Approvals
            | Self::Incidents
            | Self::ComplianceFindings
            | Self::CredentialExpiry
            | Self::PolicyChanges => true,
        }
    }
}

impl Serialize for NotificationCategory {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}
