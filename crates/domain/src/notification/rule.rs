//! The closed table of notification rules. For each kind of fact, it defines the severity, the people who must act, and
//! the permission to see the fact.

use crate::{access::Permission, audit::FactKind, notification::Severity, notification_category::NotificationCategory};

/// The notification rule for all facts of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotificationRule {
    /// The categories that facts of this kind can have. A notification has the first category of its fact. If the
    /// recipient receives that category on no channel, it has the next one.
    pub categories: &'static [NotificationCategory],
    /// The severity of notifications about such a fact.
    pub severity: Severity,
    /// The permission whose holders must act on the fact; `None` if no action is necessary.
    pub acting_permission: Option<Permission>,
    /// The permission that a recipient needs at the position of the fact. The submitter of a run needs none.
    pub view_permission: Permission,
}

use FactKind as K;
use NotificationCategory as C;
use Permission as P;
use Severity as S;

const fn rule(
    categories: &'static [NotificationCategory],
    severity: Severity,
    acting_permission: Permission,
    view_permission: Permission,
) -> Option<NotificationRule> {
    Some(NotificationRule { categories, severity, acting_permission: Some(acting_permission), view_permission })
}

/// The rule for a fact of this kind with these categories. If the end of a run has only the category `reports`, the run
/// succeeded or was cancelled, so no action is necessary.
#[must_use]
pub fn rule_for(kind: FactKind, categories: &[NotificationCategory]) -> Option<NotificationRule> {
    let rule = base_rule_of_kind(kind)?;
    let is_report = kind == K::ExecutionEnded && categories == [C::Reports];
    Some(if is_report { NotificationRule { severity: S::Info, acting_permission: None, ..rule } } else { rule })
}

/// The rule for a kind of fact; `None` if facts of that kind cause no notifications. A fact of a kind with a rule still
/// causes none if it has no category, which depends on the transition, change or end.
#[must_use]
pub const fn base_rule_of_kind(kind: FactKind) -> Option<NotificationRule> {
    match kind {
        K::ExecutionEnded => {
            rule(&[C::Executions, C::ComplianceFindings, C::Reports], S::Warning, P::ExecutionKill, P::ExecutionView)
        }
        K::ExecutionDenied => {
            rule(&[C::Executions, C::ComplianceFindings, C::Reports], S::Warning, P::ExecutionKill, P::ExecutionView)
        }
        K::ExecutionResolved => rule(&[C::Executions], S::Warning, P::ExecutionKill, P::ExecutionView),
        K::ExecutionReviewRequested => rule(&[C::Approvals, C::Reports], S::Info, P::ReleaseApprove, P::ExecutionView),
        K::ExecutionReviewed => {
            rule(&[C::Approvals, C::Executions, C::Reports], S::Info, P::ReleaseApprove, P::ExecutionView)
        }
        K::SelfReviewRefused => rule(&[C::ComplianceFindings], S::Warning, P::AuditView, P::ExecutionView),
        K::ReleaseTransitioned => rule(&[C::Approvals], S::Info, P::ReleaseApprove, P::ReleaseView),
        K::ReleaseReviewed => rule(&[C::Approvals], S::Info, P::ReleaseTransition, P::ReleaseView),
        K::SelfApprovalRefused => rule(&[C::ComplianceFindings], S::Warning, P::AuditView, P::ReleaseView),
        K::ReleaseRolledBack => rule(&[C::Incidents, C::Reports], S::Critical, P::ReleaseRollback, P::ReleaseView),
        K::RollbackRecommendationChanged => rule(&[C::Incidents], S::Critical, P::ReleaseRollback, P::ReleaseView),
        K::WorkloadChanged => rule(&[C::Incidents], S::Critical, P::WorkloadSuspend, P::WorkloadView),
        K::IntegrityMismatch => {
            rule(&[C::Incidents, C::ComplianceFindings], S::Critical, P::WorkspaceManage, P::AssetView)
        }
        K::ReleaseIntegrityMismatch => {
            rule(&[C::Incidents, C::ComplianceFindings], S::Critical, P::WorkspaceManage, P::ReleaseView)
        }
        K::KnowledgeSearchRefused => rule(&[C::ComplianceFindings], S::Warning, P::AuditView, P::AssetView),
        K::ToolDrifted => rule(&[C::ComplianceFindings], S::Warning, P::AuditView, P::AssetView),
        K::ContractRevoked => rule(&[C::ComplianceFindings, C::PolicyChanges], S::Warning, P::AuditView, P::AssetView),
        K::AssetVersionCreated => rule(&[C::PolicyChanges], S::Info, P::ReleaseApprove, P::AssetView),
        K::TenantConfigured => rule(&[C::PolicyChanges], S::Info, P::TenantManage, P::TenantManage),
        K::IdentityRefused => rule(&[C::ComplianceFindings], S::Warning, P::TenantManage, P::TenantManage),
        K::BootstrapAdminSeen => rule(&[C::PolicyChanges], S::Warning, P::TenantManage, P::TenantManage),
        K::EnvironmentConfigured => rule(&[C::PolicyChanges], S::Info, P::WorkspaceManage, P::WorkspaceManage),
        K::DefaultProfilesChanged | K::DestinationCreated | K::DestinationChanged | K::DestinationDeleted => {
            rule(&[C::PolicyChanges], S::Info, P::NotificationDestinationManage, P::NotificationDestinationManage)
        }
        // The audience determines the recipients of an announcement, so this permission has no effect (see
        // `recipient`).
        K::AnnouncementMade => rule(&[C::Reports], S::Info, P::NotificationDestinationManage, P::NotificationRead),
        K::ConnectionChecked => rule(&[C::ConnectorHealth], S::Warning, P::ConnectionManage, P::ConnectionRead),
        K::ConnectionExpiring => rule(&[C::CredentialExpiry], S::Warning, P::ConnectionManage, P::ConnectionRead),
        K::UseCasePublished => rule(&[C::Approvals], S::Info, P::AccessRequestGrant, P::ConnectionRead),
        K::AccessRequestGranted | K::AccessRequestDenied => {
            rule(&[C::Approvals], S::Info, P::UseCasePublish, P::ConnectionRead)
        }
        K::ErasureRequested | K::ErasureApproved | K::ErasureRefused => {
            rule(&[C::Approvals], S::Info, P::TenantManage, P::TenantManage)
        }
        K::ErasureSelfApprovalRefused => rule(&[C::ComplianceFindings], S::Warning, P::TenantManage, P::TenantManage),
        K::ErasureCompleted => rule(&[C::Reports], S::Info, P::TenantManage, P::TenantManage),
        K::ConnectionCreated
        | K::ConnectionChanged
        | K::ConnectionDeleted
        | K::UseCaseCreated
        | K::UseCaseRefined
        | K::UseCaseActivated
        | K::UseCaseArchived
        | K::UseCaseReopened
        | K::TenantCreated
        | K::WorkspaceCreated
        | K::IdentityPinned
        | K::SessionStarted
        | K::SessionEnded
        | K::RoleBindingCreated
        | K::RoleBindingDeleted
        | K::PrincipalBindingCreated
        | K::PrincipalBindingChanged
        | K::PrincipalBindingDeleted
        | K::ShareLinkCreated
        | K::ShareLinkRevoked
        | K::AssetCreated
        | K::AssetLifecycleChanged
        | K::AssetGrantCreated
        | K::AssetGrantDeleted
        | K::DocumentsAdded
        | K::DocumentsReembedded
        | K::MemoryErased
        | K::KnowledgeQueryEmbedded
        | K::KnowledgeSearched
        | K::FlowCreated
        | K::WorkloadCreated
        | K::ReleaseCreated
        | K::ReleaseBindingAdded
        | K::ReleaseBindingRemoved
        | K::RolloutAdvanced
        | K::RolloutHeld
        | K::CodeAccepted
        | K::DestinationTested
        | K::DeliveryRetried
        | K::NotificationProfileChanged
        | K::PreferencesChanged
        | K::NotificationMarked
        | K::InboxRead
        | K::NotificationSuppressed => None,
    }
}
