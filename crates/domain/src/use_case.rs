//! Use cases: a description with the bundle plan that was generated from it, and a status from draft to active.
//!
//! The status `active` means that the needed connections are usable. It says nothing about the release, which only
//! operators can approve and activate.

pub mod bundle;
pub mod gaps;
pub mod plan_diff;
pub mod ports;
mod publish;
#[cfg(test)]
mod tests;

use crate::{
    access::ActorRef,
    audit::{Fact, FactKind, FactSubject, Stamp},
    connection::ConnectionWithExpiryState,
    id::{AssetId, ReleaseId, UseCaseId, WorkloadId, WorkspaceId},
    store::{Change, Revision, aggregate},
    time::Timestamp,
};
use bundle::BundlePlan;
pub use publish::{CreatedResources, Publication, PublicationContext, PublicationIds, dev_only_policy_content};
use serde_json::json;

/// The status of a use case, from draft to archived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UseCaseStatus {
    /// The use case can be published, refined or archived.
    Draft,
    /// The use case is published, but needs a connection that is not usable yet.
    PendingAccess,
    /// The use case is published, and all its connections are usable.
    Active,
    /// The use case has ended and cannot be changed.
    Archived,
}

impl UseCaseStatus {
    /// Every status, in the order of declaration.
    pub const ALL: [Self; 4] = [Self::Draft, Self::PendingAccess, Self::Active, Self::Archived];

    /// The wire form, such as `draft`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Draft => "draft",
            Self::PendingAccess => "pending_access",
            Self::Active => "active",
            Self::Archived => "archived",
        }
    }

    /// Parses the wire form; `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|value| value.as_str() == text)
    }
}

impl UseCaseStatus {
    /// The statuses to which a use case in this status can change.
    #[must_use]
    pub const fn valid_transitions(self) -> &'static [Self] {
        match self {
            Self::Draft => &[Self::PendingAccess, Self::Active, Self::Archived],
            Self::PendingAccess => &[Self::Active, Self::Draft, Self::Archived],
            Self::Active => &[Self::Archived],
            Self::Archived => &[],
        }
    }
}

/// A use case: a description and its bundle plan, with a status from draft to active.
#[derive(Clone, PartialEq, Debug)]
pub struct UseCase(pub(crate) UseCaseRecord);

/// The fields of [`UseCase`].
#[derive(Clone, PartialEq, Debug)]
pub struct UseCaseRecord {
    /// The identifier of the use case; a refinement has another one.
    pub use_case_id: UseCaseId,
    /// The workspace in which the use case creates its resources.
    pub workspace_id: WorkspaceId,
    /// Whether the use case is a draft, published or archived.
    pub status: UseCaseStatus,
    /// The description from which the plan was generated.
    pub source_description: String,
    /// The plan of the assets and connections of the use case.
    pub plan: BundlePlan,
    /// The assets of the use case; `None` before its publication.
    pub pieces: Option<UseCaseAssets>,
    /// The draft that this use case refines, if any.
    pub supersedes: Option<UseCaseId>,
    /// The use case that refines this one, if any.
    pub superseded_by: Option<UseCaseId>,
    /// The workload that the publication created; `None` before it.
    pub workload_id: Option<WorkloadId>,
    /// The release draft that the publication created; `None` before it.
    pub release_id: Option<ReleaseId>,
    /// When the use case was created.
    pub created_at: Timestamp,
    /// The actor that created the use case.
    pub created_by: ActorRef,
    /// When the use case last changed.
    pub updated_at: Timestamp,
    /// Increments with each change.
    pub revision: Revision,
}

aggregate!(UseCase, UseCaseRecord);

/// A use case without its plan and its assets, as lists show it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UseCaseSummary {
    /// The identifier by which the use case can be read in full.
    pub use_case_id: UseCaseId,
    /// The workspace in which the use case creates its resources.
    pub workspace_id: WorkspaceId,
    /// The name of the use case in its bundle plan.
    pub name: String,
    /// The summary of the use case in its bundle plan.
    pub summary: String,
    /// Whether the use case is a draft, published or archived.
    pub status: UseCaseStatus,
    /// The description from which the plan was generated.
    pub source_description: String,
    /// The draft that this use case refines, if any.
    pub supersedes: Option<UseCaseId>,
    /// The use case that refines this one, if any.
    pub superseded_by: Option<UseCaseId>,
    /// The workload that the publication created; `None` before it.
    pub workload_id: Option<WorkloadId>,
    /// The release draft that the publication created; `None` before it.
    pub release_id: Option<ReleaseId>,
    /// When the use case was created.
    pub created_at: Timestamp,
    /// The actor that created the use case.
    pub created_by: ActorRef,
    /// When the use case last changed.
    pub updated_at: Timestamp,
}

impl From<&UseCase> for UseCaseSummary {
    fn from(use_case: &UseCase) -> Self {
        Self {
            use_case_id: use_case.use_case_id,
            workspace_id: use_case.workspace_id,
            name: use_case.plan.name().to_owned(),
            summary: use_case.plan.summary().to_owned(),
            status: use_case.status,
            source_description: use_case.source_description.clone(),
            supersedes: use_case.supersedes,
            superseded_by: use_case.superseded_by,
            workload_id: use_case.workload_id,
            release_id: use_case.release_id,
            created_at: use_case.created_at,
            created_by: use_case.created_by.clone(),
            updated_at: use_case.updated_at,
        }
    }
}

/// The assets of a published use case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UseCaseAssets {
    /// The flow asset that the publication created.
    pub flow: AssetId,
    /// The identifier of the prompt template.
    pub prompt: AssetId,
    /// The identifier of the model policy that the plan names.
    pub model_policy: AssetId,
    /// The policy bundle asset, created or reused.
    pub policy_bundle: AssetId,
}

/// The reason why a change of a use case is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UseCaseRefusal {
    /// The current status does not permit the operation.
    #[error("the status does not allow this operation")]
    InvalidTransition {
        /// The status in which the use case is.
        from: UseCaseStatus,
    },
    /// Connections are not usable, and the caller itself may create or change them; contains their names.
    #[error("connections are missing, expired or disabled, and you may create or change them")]
    ConnectionsMissing(Vec<String>),
    /// Connections are not usable yet; contains their names.
    #[error("not all connections are resolved")]
    ConnectionsUnresolved(Vec<String>),
    /// The model policy is no longer approved, or no approved route has an account.
    #[error("the model policy is not approved, or cannot be reached")]
    ModelPolicyUnavailable,
    /// The plan was accepted by an older server, and publication cannot create its assets.
    #[error("publication cannot make the pieces of this bundle; refine the use case")]
    PlanNotPublishable,
    /// The description of a refinement differs from the description of the use case.
    #[error("a refinement repeats the original description unchanged")]
    DescriptionChanged,
    /// The refinement key was already used with another use case or another request body.
    #[error("an earlier refinement used this key with another use case or another body")]
    RefinementKeyConflict,
}

impl UseCaseRefusal {
    /// The stable code of the refusal.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::InvalidTransition { .. } => "invalid_transition",
            Self::ConnectionsMissing(_) => "connections_missing",
            Self::ConnectionsUnresolved(_) => "connections_unresolved",
            Self::ModelPolicyUnavailable => "model_policy_unavailable",
            Self::PlanNotPublishable => "bundle_not_publishable",
            Self::DescriptionChanged => "description_changed",
            Self::RefinementKeyConflict => "idempotency_key_conflict",
        }
    }
}

/// The result of a refinement: the successor, and the archived predecessor.
#[derive(Clone, PartialEq, Debug)]
pub struct RefinedUseCase {
    /// The new draft, which replaces the predecessor.
    pub successor: UseCase,
    /// The refined use case, which is now archived.
    pub predecessor: UseCase,
}

impl UseCase {
    /// Creates a use case as a draft.
    pub fn create(
        use_case_id: UseCaseId,
        workspace_id: WorkspaceId,
        source_description: String,
        plan: BundlePlan,
        stamp: &Stamp,
    ) -> Change<Self> {
        let next = Self::draft(use_case_id, workspace_id, source_description, plan, None, stamp);
        let fact = next.fact(FactKind::UseCaseCreated, stamp, json!({ "connections": next.plan.connections().len() }));
        Change::create(next, fact)
    }

    fn draft(
        use_case_id: UseCaseId,
        workspace_id: WorkspaceId,
        source_description: String,
        plan: BundlePlan,
        supersedes: Option<UseCaseId>,
        stamp: &Stamp,
    ) -> Self {
        Self(UseCaseRecord {
            use_case_id,
            workspace_id,
            status: UseCaseStatus::Draft,
            source_description,
            plan,
            pieces: None,
            supersedes,
            superseded_by: None,
            workload_id: None,
            release_id: None,
            created_at: stamp.at,
            created_by: stamp.actor.clone(),
            updated_at: stamp.at,
            revision: Revision::FIRST,
        })
    }

    /// Checks that the use case can be refined.
    ///
    /// # Errors
    /// When the use case is not a draft.
    pub fn check_refinable(&self) -> Result<(), UseCaseRefusal> {
        self.require(&[UseCaseStatus::Draft])
    }

    /// Checks that the use case can be published. The caller loads the data that publication needs only after this
    /// check.
    ///
    /// # Errors
    /// When the use case is not a draft.
    pub fn check_publishable(&self) -> Result<(), UseCaseRefusal> {
        self.require(&[UseCaseStatus::Draft])
    }

    /// Refines a draft: the new plan becomes a new draft, and this draft is archived.
    ///
    /// # Errors
    /// When the use case is not a draft.
    pub fn refine(
        &self,
        successor_id: UseCaseId,
        plan: BundlePlan,
        stamp: &Stamp,
    ) -> Result<Change<RefinedUseCase>, UseCaseRefusal> {
        self.check_refinable()?;
        let description = self.source_description.clone();
        let successor = Self::draft(successor_id, self.workspace_id, description, plan, Some(self.use_case_id), stamp);
        let mut predecessor = self.with_status(UseCaseStatus::Archived, stamp);
        predecessor.0.superseded_by = Some(successor_id);
        let fact = successor.fact(FactKind::UseCaseRefined, stamp, json!({ "predecessor_id": self.use_case_id }));
        Ok(Change::replace(RefinedUseCase { successor, predecessor }, self.revision, fact))
    }

    /// Archives the use case. The commit also withdraws its pending access requests.
    ///
    /// # Errors
    /// When the use case is already archived.
    pub fn archive(&self, stamp: &Stamp) -> Result<Change<Self>, UseCaseRefusal> {
        self.require(&[UseCaseStatus::Draft, UseCaseStatus::PendingAccess, UseCaseStatus::Active])?;
        Ok(self.transition(UseCaseStatus::Archived, FactKind::UseCaseArchived, stamp))
    }

    /// Returns a use case that awaits access to the status draft. The commit also withdraws its pending access
    /// requests.
    ///
    /// # Errors
    /// When the use case does not await access.
    pub fn reopen(&self, stamp: &Stamp) -> Result<Change<Self>, UseCaseRefusal> {
        self.require(&[UseCaseStatus::PendingAccess])?;
        Ok(self.transition(UseCaseStatus::Draft, FactKind::UseCaseReopened, stamp))
    }

    /// Activates a use case that awaits access, if all its connections are usable.
    ///
    /// # Errors
    /// When the use case does not await access, or a connection is not usable.
    pub fn activate(
        &self,
        connections: &[ConnectionWithExpiryState],
        stamp: &Stamp,
    ) -> Result<Change<Self>, UseCaseRefusal> {
        self.require(&[UseCaseStatus::PendingAccess])?;
        let unresolved = self.unresolved_connections(connections);
        if !unresolved.is_empty() {
            return Err(UseCaseRefusal::ConnectionsUnresolved(unresolved));
        }
        Ok(self.transition(UseCaseStatus::Active, FactKind::UseCaseActivated, stamp))
    }

    /// The use case after the grant of one of its access requests, and whether the grant activates it. Each grant
    /// increments the revision, so that concurrent grants conflict.
    pub(crate) fn after_grant(&self, connections: &[ConnectionWithExpiryState], stamp: &Stamp) -> (Self, bool) {
        let is_last =
            self.status == UseCaseStatus::PendingAccess && self.unresolved_connections(connections).is_empty();
        let status = if is_last { UseCaseStatus::Active } else { self.status };
        (self.with_status(status, stamp), is_last)
    }

    /// The names of the needed connections that do not exist or are not usable, in the order of the plan.
    #[must_use]
    pub fn unresolved_connections(&self, connections: &[ConnectionWithExpiryState]) -> Vec<String> {
        let is_usable = |name: &String| {
            connections.iter().any(|snapshot| snapshot.connection.name == *name && snapshot.is_usable())
        };
        self.plan.connections().iter().filter(|name| !is_usable(name)).cloned().collect()
    }

    fn require(&self, allowed: &[UseCaseStatus]) -> Result<(), UseCaseRefusal> {
        if allowed.contains(&self.status) {
            Ok(())
        } else {
            Err(UseCaseRefusal::InvalidTransition { from: self.status })
        }
    }

    fn with_status(&self, status: UseCaseStatus, stamp: &Stamp) -> Self {
        Self(UseCaseRecord { status, updated_at: stamp.at, revision: self.revision.next(), ..self.0.clone() })
    }

    fn transition(&self, target: UseCaseStatus, kind: FactKind, stamp: &Stamp) -> Change<Self> {
        let detail = json!({ "from": self.status.as_str(), "to": target.as_str(), "workload_id": self.workload_id });
        Change::replace(self.with_status(target, stamp), self.revision, self.fact(kind, stamp, detail))
    }

    fn fact(&self, kind: FactKind, stamp: &Stamp, detail: serde_json::Value) -> Fact {
        let subject = FactSubject { kind: "use_case", id: self.use_case_id.uuid() };
        Fact::new(kind, subject, Some(self.workspace_id), stamp, detail)
    }
}
