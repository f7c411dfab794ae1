//! Environments of a workspace, such as `dev`, and their requirements for releases.

use crate::{
    access::ActorRef,
    audit::{Fact, FactKind, FactSubject, Stamp},
    id::WorkspaceId,
    notification_category::NotificationCategory,
    release::review::{ApprovalRule, SelfApproval},
    slug::Slug,
    store::{Change, CommitError, Revision, StoreError, aggregate},
    tenant::TenantScope,
    time::Timestamp,
};
use async_trait::async_trait;
use serde_json::json;

/// Whether this is the `production` environment, which has stricter defaults.
#[must_use]
pub fn is_production(environment: &Slug) -> bool {
    environment.as_str() == "production"
}

/// Whether this is the `dev` environment, whose default may permit self-approval.
#[must_use]
pub fn is_development(environment: &Slug) -> bool {
    environment.as_str() == "dev"
}

/// The maximum number of approvals that an environment can require.
pub const MAX_APPROVALS: u16 = 10;

/// The requirements of an environment for its releases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EnvironmentSettings {
    /// The number of approvals that a release requires.
    pub min_approvals: u16,
    /// Whether the authors of a release may approve their own release.
    pub self_approval: SelfApproval,
    /// Whether runs retrieve the documents that the knowledge bases contained when the release was approved, instead of
    /// the current documents.
    pub pin_documents: bool,
}

impl EnvironmentSettings {
    /// The defaults for an environment that is not configured. In `dev`, `dev_default` decides on self-approval;
    /// elsewhere, authors may not approve their own releases.
    #[must_use]
    pub fn defaults_for(environment: &Slug, dev_default: SelfApproval) -> Self {
        let self_approval = if is_development(environment) { dev_default } else { SelfApproval::Refused };
        Self { min_approvals: 1, self_approval, pin_documents: is_production(environment) }
    }

    /// The approval rule for releases in this environment.
    #[must_use]
    pub const fn approval_rule(self) -> ApprovalRule {
        ApprovalRule::new(self.min_approvals as usize, self.self_approval)
    }
}

/// The number of approvals is out of range.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("an environment requires 1 to {MAX_APPROVALS} approvals")]
pub struct EnvironmentRefusal;

/// A configured environment of a workspace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Environment(pub(crate) EnvironmentRecord);

/// The fields of [`Environment`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EnvironmentRecord {
    /// The workspace that contains the environment.
    pub workspace_id: WorkspaceId,
    /// The name of the environment, such as `dev`.
    pub environment: Slug,
    /// The requirements for releases in this environment.
    pub settings: EnvironmentSettings,
    /// When the settings last changed.
    pub updated_at: Timestamp,
    /// The actor that last changed the settings.
    pub updated_by: ActorRef,
    /// Increments with each change.
    pub revision: Revision,
}

aggregate!(Environment, EnvironmentRecord);

impl Environment {
    /// Replaces the settings of an environment. `previous` is the environment as stored; `None` if it was not
    /// configured.
    ///
    /// # Errors
    /// When the settings are out of range.
    pub fn configure(
        workspace_id: WorkspaceId,
        environment: Slug,
        previous: Option<&Self>,
        settings: EnvironmentSettings,
        stamp: &Stamp,
    ) -> Result<Change<Self>, EnvironmentRefusal> {
        if !(1..=MAX_APPROVALS).contains(&settings.min_approvals) {
            return Err(EnvironmentRefusal);
        }
        let subject = FactSubject { kind: "workspace", id: workspace_id.uuid() };
        let detail = json!({
            "environment": environment.as_str(),
            "min_approvals": settings.min_approvals,
            "allow_self_approval": settings.self_approval == SelfApproval::Allowed,
            "pin_documents": settings.pin_documents,
        });
        let fact = Fact::new(FactKind::EnvironmentConfigured, subject, Some(workspace_id), stamp, detail);
        let fact = fact.with_notification_categories([NotificationCategory::PolicyChanges]);
        let revision = previous.map_or(Revision::FIRST, |previous| previous.revision.next());
        let (updated_at, updated_by) = (stamp.at, stamp.actor.clone());
        let next = Self(EnvironmentRecord { workspace_id, environment, settings, updated_at, updated_by, revision });
        Ok(match previous {
            None => Change::create(next, fact),
            Some(previous) => Change::replace(next, previous.revision, fact),
        })
    }
}

/// Stores the settings of environments.
#[async_trait]
pub trait EnvironmentStore: Send + Sync {
    /// The stored environment; `None` if it is not configured.
    async fn find_settings(
        &self,
        scope: TenantScope,
        workspace: WorkspaceId,
        environment: &Slug,
    ) -> Result<Option<Environment>, StoreError>;
    /// Stores new settings; [`CommitError::Stale`] when the settings changed since the decision.
    async fn commit_settings(&self, scope: TenantScope, change: Change<Environment>) -> Result<(), CommitError>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn only_dev_may_allow_self_approval_by_default() {
        for (environment, expected) in [
            ("dev", SelfApproval::Allowed),
            ("production", SelfApproval::Refused),
            ("staging", SelfApproval::Refused),
            ("dev-2", SelfApproval::Refused),
        ] {
            let settings = EnvironmentSettings::defaults_for(&Slug::parse(environment).unwrap(), SelfApproval::Allowed);
            assert_eq!(settings.self_approval, expected, "{environment}");
        }
        let dev = Slug::parse("dev").unwrap();
        let strict = EnvironmentSettings::defaults_for(&dev, SelfApproval::Refused);
        assert_eq!(strict.self_approval, SelfApproval::Refused);
    }

    #[test]
    fn rejects_out_of_range_approvals_and_increments_revision() {
        let stamp = Stamp {
            fact_id: Uuid::nil().into(),
            at: Timestamp::new(time::OffsetDateTime::UNIX_EPOCH),
            actor: ActorRef::parse("user:ada").unwrap(),
            request_id: Uuid::nil().into(),
        };
        let workspace = WorkspaceId::from(Uuid::nil());
        let dev = Slug::parse("dev").unwrap();
        let settings_with = |min_approvals| EnvironmentSettings {
            min_approvals,
            ..EnvironmentSettings::defaults_for(&dev, SelfApproval::Refused)
        };
        for allowed in [1, MAX_APPROVALS] {
            let first = Environment::configure(workspace, dev.clone(), None, settings_with(allowed), &stamp).unwrap();
            assert_eq!((first.expected_revision, first.next.revision), (None, Revision::FIRST));
            let second =
                Environment::configure(workspace, dev.clone(), Some(&first.next), settings_with(1), &stamp).unwrap();
            assert_eq!(
                (second.expected_revision, second.next.revision),
                (Some(Revision::FIRST), Revision::FIRST.next())
            );
        }
        for refused in [0, MAX_APPROVALS + 1] {
            assert_eq!(
                Environment::configure(workspace, dev.clone(), None, settings_with(refused), &stamp).unwrap_err(),
                EnvironmentRefusal
            );
        }
    }
}
