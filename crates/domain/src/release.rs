//! Releases: exact versions, bound to a workload in one environment. A release is reviewed, approved and then activated
//! on lanes.

pub mod activate;
pub mod advance_rollout;
pub mod deployment;
mod digest;
pub mod frozen_reference;
pub mod gate;
pub mod lane;
pub mod missing_policy_input;
pub mod ports;
pub mod provider_account_gate;
pub mod recommendation;
mod refusal;
pub mod review;
pub mod rollback;
pub mod tool_requirements;
pub mod unpassed_prompt_variable;
pub mod vector_search_warnings;

use crate::{
    access::ActorRef,
    asset::{Lifecycle, VersionLabel, canonical::Checksum, kind::AssetKind},
    audit::{Fact, FactKind, FactSubject, Stamp},
    id::{AssetId, AssetVersionId, BindingId, ReleaseId, WorkloadId, WorkspaceId},
    notification_category::NotificationCategory,
    rollout::Rollout,
    slug::Slug,
    store::{Change, Revision, aggregate},
    time::Timestamp,
};
use deployment::Deployment;
pub use digest::BindingsDigest;
use frozen_reference::{FrozenReference, UnresolvedReference};
use lane::TargetLane;
pub use refusal::{ReleaseRefusal, SELF_APPROVAL_REMEDY};
use review::ReviewerVerdict;
use serde_json::json;

/// The states of a release, without their data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StateName {
    /// The bindings of the release can change.
    Draft,
    /// The bindings are frozen, and the release awaits the verdicts of reviewers.
    ReviewReady,
    /// Enough reviewers approved the release, so it can be activated.
    Approved,
    /// The release holds at least one lane.
    Active,
    /// The release lost its last lane to another release or by a rollback. A rollback can return lanes to it.
    Superseded,
    /// The release has ended permanently and can take no lane.
    Retired,
}

impl StateName {
    /// Every state.
    pub const ALL: [Self; 6] =
        [Self::Draft, Self::ReviewReady, Self::Approved, Self::Active, Self::Superseded, Self::Retired];

    /// The wire form, such as `draft`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Draft => "draft",
            Self::ReviewReady => "review_ready",
            Self::Approved => "approved",
            Self::Active => "active",
            Self::Superseded => "superseded",
            Self::Retired => "retired",
        }
    }

    /// Parses the wire form; `None` for an unknown text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }
}

/// The state of a release, with the bindings digest to which it applies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum State {
    /// The bindings of the release can change.
    Draft,
    /// The bindings are frozen, and the release awaits the verdicts of reviewers.
    ReviewReady {
        /// The bindings digest that reviewers see.
        digest: BindingsDigest,
    },
    /// Enough reviewers approved the release, so it can be activated.
    Approved {
        /// The bindings digest that reviewers approved.
        digest: BindingsDigest,
    },
    /// The release holds at least one lane.
    Active {
        /// The bindings digest that reviewers approved, and under which the release serves.
        digest: BindingsDigest,
    },
    /// The release lost its last lane to another release or by a rollback. A rollback can return lanes to it.
    Superseded {
        /// The bindings digest under which the release served.
        digest: BindingsDigest,
    },
    /// The release has ended permanently and can take no lane.
    Retired {
        /// The bindings digest; `None` if the release was retired as a draft.
        digest: Option<BindingsDigest>,
    },
}

impl State {
    /// The name of the state, without its data.
    #[must_use]
    pub const fn name(&self) -> StateName {
        match self {
            Self::Draft => StateName::Draft,
            Self::ReviewReady { .. } => StateName::ReviewReady,
            Self::Approved { .. } => StateName::Approved,
            Self::Active { .. } => StateName::Active,
            Self::Superseded { .. } => StateName::Superseded,
            Self::Retired { .. } => StateName::Retired,
        }
    }

    /// The bindings digest of the state; `None` if the bindings are not frozen.
    #[must_use]
    pub const fn digest(&self) -> Option<&BindingsDigest> {
        match self {
            Self::Draft => None,
            Self::Retired { digest } => digest.as_ref(),
            Self::ReviewReady { digest }
            | Self::Approved { digest }
            | Self::Active { digest }
            | Self::Superseded { digest } => Some(digest),
        }
    }

    /// Builds a state from its stored name and digest. Returns `None` if the state requires a digest and none is
    /// given, or if the state is a draft and a digest is given.
    #[must_use]
    pub fn from_parts(name: StateName, digest: Option<BindingsDigest>) -> Option<Self> {
        match (name, digest) {
            (StateName::Draft, None) => Some(Self::Draft),
            (StateName::Retired, digest) => Some(Self::Retired { digest }),
            (StateName::ReviewReady, Some(digest)) => Some(Self::ReviewReady { digest }),
            (StateName::Approved, Some(digest)) => Some(Self::Approved { digest }),
            (StateName::Active, Some(digest)) => Some(Self::Active { digest }),
            (StateName::Superseded, Some(digest)) => Some(Self::Superseded { digest }),
            (StateName::Draft, Some(_))
            | (StateName::ReviewReady | StateName::Approved | StateName::Active | StateName::Superseded, None) => None,
        }
    }
}

/// A version that a release binds, with the data that the rules of releases read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Binding {
    /// The identifier of the binding.
    pub binding_id: BindingId,
    /// The role of the version, which is the kind of its asset.
    pub role: AssetKind,
    /// The identifier of the bound version.
    pub asset_version_id: AssetVersionId,
    /// The checksum of the bound version.
    pub checksum: Checksum,
    /// The label of the bound version, such as `v2`.
    pub version_label: VersionLabel,
    /// The asset to which the version belongs.
    pub asset_id: AssetId,
    /// The slug of the asset.
    pub asset_slug: Slug,
    /// The time at which the version was bound.
    pub created_at: Timestamp,
    /// The actor that bound the version.
    pub created_by: ActorRef,
}

/// A version that a draft may bind, with the data that the rules of bindings read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BindableVersion {
    /// The identifier of the version.
    pub asset_version_id: AssetVersionId,
    /// The checksum of the version.
    pub checksum: Checksum,
    /// The label of the version, such as `v2`.
    pub version_label: VersionLabel,
    /// The asset to which the version belongs.
    pub asset_id: AssetId,
    /// The slug of the asset.
    pub asset_slug: Slug,
    /// The kind of the asset, which is the role of the binding.
    pub kind: AssetKind,
    /// The lifecycle of the asset, which must permit new bindings.
    pub lifecycle: Lifecycle,
}

/// The maximum number of bindings of a release. It is bounded, because each read of a release loads all bindings.
pub const MAX_BINDINGS: usize = 100;

/// Exact versions for one workload in one environment, with the verdicts on them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Release(pub(crate) ReleaseRecord);

/// The fields of [`Release`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReleaseRecord {
    /// The identifier of the release.
    pub release_id: ReleaseId,
    /// The workload that the release serves.
    pub workload_id: WorkloadId,
    /// The workspace of the workload.
    pub workspace_id: WorkspaceId,
    /// The slug of the environment, such as `dev`.
    pub environment: Slug,
    /// The lanes on which the release can be activated.
    pub target_lane: TargetLane,
    /// The current state, with its bindings digest.
    pub state: State,
    /// The policy bundle asset that the release must bind, if the author named one.
    pub policy_bundle_id: Option<AssetId>,
    /// The release whose lane this release took first, if any.
    pub supersedes_release_id: Option<ReleaseId>,
    /// The latest rollout of the release, if any.
    pub rollout: Option<Rollout>,
    /// Whether the latest evaluation of the release's runs recommended a rollback.
    pub rollback_advised: bool,
    /// The bindings, oldest first.
    pub bindings: Vec<Binding>,
    /// The resolved references of the bound contents; empty in a draft, whose references are not resolved yet.
    pub references: Vec<FrozenReference>,
    /// The verdicts on the release, oldest first.
    pub approvals: Vec<ReviewerVerdict>,
    /// The time at which the draft was created.
    pub created_at: Timestamp,
    /// The author of the release.
    pub created_by: ActorRef,
    /// The time of the last change.
    pub updated_at: Timestamp,
    /// The change counter, which increments with each change.
    pub revision: Revision,
}

aggregate!(Release, ReleaseRecord);

/// The data from which a release draft is created.
#[derive(Clone, Debug)]
pub struct NewRelease {
    /// The identifier of the release.
    pub release_id: ReleaseId,
    /// The workload that the release will serve.
    pub workload_id: WorkloadId,
    /// The workspace of the workload.
    pub workspace_id: WorkspaceId,
    /// The slug of the environment.
    pub environment: Slug,
    /// The lanes on which the release can be activated.
    pub target_lane: TargetLane,
    /// The policy bundle asset that the release must bind, if any.
    pub policy_bundle_id: Option<AssetId>,
}

impl Release {
    /// Creates a release draft without bindings.
    pub fn draft(new: NewRelease, stamp: &Stamp) -> Change<Self> {
        let next = Self(ReleaseRecord {
            release_id: new.release_id,
            workload_id: new.workload_id,
            workspace_id: new.workspace_id,
            environment: new.environment,
            target_lane: new.target_lane,
            state: State::Draft,
            policy_bundle_id: new.policy_bundle_id,
            supersedes_release_id: None,
            rollout: None,
            rollback_advised: false,
            bindings: Vec::new(),
            references: Vec::new(),
            approvals: Vec::new(),
            created_at: stamp.at,
            created_by: stamp.actor.clone(),
            updated_at: stamp.at,
            revision: Revision::FIRST,
        });
        let detail = json!({ "workload_id": next.workload_id, "environment": next.environment.as_str() });
        let fact = Fact::new(FactKind::ReleaseCreated, next.subject(), Some(next.workspace_id), stamp, detail);
        Change::create(next, fact)
    }

    /// Binds a version to the draft in its role.
    ///
    /// # Errors
    /// If the release is not a draft, the role does not match or is already bound, or the asset is not active. Also if
    /// the release has the maximum number of bindings.
    pub fn bind(
        &self,
        binding_id: BindingId,
        role: AssetKind,
        version: &BindableVersion,
        stamp: &Stamp,
    ) -> Result<Change<Self>, ReleaseRefusal> {
        self.require_draft()?;
        if role != version.kind {
            return Err(ReleaseRefusal::RoleKindMismatch);
        }
        if version.lifecycle != Lifecycle::Active {
            return Err(ReleaseRefusal::AssetNotActive);
        }
        if !role.allows_many_bindings() && self.bindings.iter().any(|binding| binding.role == role) {
            return Err(ReleaseRefusal::DuplicateRole);
        }
        if self.bindings.len() >= MAX_BINDINGS {
            return Err(ReleaseRefusal::TooManyBindings);
        }
        let mut next = self.with_state(State::Draft, stamp);
        next.0.bindings.push(Binding {
            binding_id,
            role,
            asset_version_id: version.asset_version_id,
            checksum: version.checksum.clone(),
            version_label: version.version_label.clone(),
            asset_id: version.asset_id,
            asset_slug: version.asset_slug.clone(),
            created_at: stamp.at,
            created_by: stamp.actor.clone(),
        });
        let detail = json!({
            "binding_id": binding_id,
            "role": role.as_str(),
            "asset_version_id": version.asset_version_id,
            "checksum": version.checksum.as_str(),
        });
        let fact = Fact::new(FactKind::ReleaseBindingAdded, self.subject(), Some(self.workspace_id), stamp, detail);
        Ok(Change::replace(next, self.revision, fact))
    }

    /// Removes a binding from the draft.
    ///
    /// # Errors
    /// If the release is not a draft, or has no such binding.
    pub fn unbind(&self, binding: BindingId, stamp: &Stamp) -> Result<Change<Self>, ReleaseRefusal> {
        let bound = self.bindings.iter().find(|bound| bound.binding_id == binding).ok_or(ReleaseRefusal::NotBound)?;
        self.require_draft()?;
        let mut next = self.with_state(State::Draft, stamp);
        next.0.bindings.retain(|bound| bound.binding_id != binding);
        let detail = json!({
            "binding_id": binding,
            "role": bound.role.as_str(),
            "asset_version_id": bound.asset_version_id,
            "checksum": bound.checksum.as_str(),
        });
        let fact = Fact::new(FactKind::ReleaseBindingRemoved, self.subject(), Some(self.workspace_id), stamp, detail);
        Ok(Change::replace(next, self.revision, fact))
    }

    /// The states to which the release can change. An active release can be activated again, on target lanes that it
    /// does not hold.
    #[must_use]
    pub fn valid_transitions(&self, deployment: &Deployment) -> Vec<StateName> {
        match self.state.name() {
            StateName::Draft => vec![StateName::ReviewReady, StateName::Retired],
            StateName::ReviewReady => vec![StateName::Approved, StateName::Draft, StateName::Retired],
            StateName::Approved => vec![StateName::Active, StateName::Retired],
            StateName::Active if deployment.target_lanes_not_held(self).is_empty() => vec![StateName::Retired],
            StateName::Active => vec![StateName::Active, StateName::Retired],
            StateName::Superseded => vec![StateName::Retired],
            StateName::Retired => Vec::new(),
        }
    }

    /// A copy of the release with these frozen references, as a review would show it. Callers measure the run plan of
    /// the copy before the submission.
    #[must_use]
    pub fn with_frozen_references(&self, references: Vec<FrozenReference>) -> Self {
        Self(ReleaseRecord { references, ..self.0.clone() })
    }

    /// Submits the draft for review, and freezes its bindings and resolved references.
    ///
    /// # Errors
    /// If the release is not a draft, or a reference is unresolved.
    pub fn submit(
        &self,
        references: Result<Vec<FrozenReference>, Vec<UnresolvedReference>>,
        deployment: &Deployment,
        stamp: &Stamp,
    ) -> Result<Change<Self>, ReleaseRefusal> {
        match self.state {
            State::Draft => {
                let mut references = references.map_err(ReleaseRefusal::UnresolvedReferences)?;
                references.sort_unstable();
                references.dedup();
                let frozen = self.with_frozen_references(references);
                Ok(frozen.transition(State::ReviewReady { digest: frozen.bindings_digest() }, stamp))
            }
            State::ReviewReady { .. }
            | State::Approved { .. }
            | State::Active { .. }
            | State::Superseded { .. }
            | State::Retired { .. } => Err(self.invalid_transition(deployment)),
        }
    }

    /// Returns the release to draft, and discards its resolved references.
    ///
    /// # Errors
    /// If the release does not await verdicts.
    pub fn reopen(&self, deployment: &Deployment, stamp: &Stamp) -> Result<Change<Self>, ReleaseRefusal> {
        match self.state {
            State::ReviewReady { .. } => Ok(self.transition(State::Draft, stamp)),
            State::Draft
            | State::Approved { .. }
            | State::Active { .. }
            | State::Superseded { .. }
            | State::Retired { .. } => Err(self.invalid_transition(deployment)),
        }
    }

    /// Only the bindings of a draft can change.
    fn require_draft(&self) -> Result<(), ReleaseRefusal> {
        match self.state {
            State::Draft => Ok(()),
            State::ReviewReady { .. }
            | State::Approved { .. }
            | State::Active { .. }
            | State::Superseded { .. }
            | State::Retired { .. } => Err(ReleaseRefusal::NotEditable { state: self.state.name() }),
        }
    }

    fn invalid_transition(&self, deployment: &Deployment) -> ReleaseRefusal {
        ReleaseRefusal::InvalidTransition { from: self.state.name(), valid: self.valid_transitions(deployment) }
    }

    fn with_state(&self, state: State, stamp: &Stamp) -> Self {
        let references = match state {
            // INVARIANT: a release has resolved references only while its bindings are frozen.
            State::Draft => Vec::new(),
            State::ReviewReady { .. }
            | State::Approved { .. }
            | State::Active { .. }
            | State::Superseded { .. }
            | State::Retired { .. } => self.references.clone(),
        };
        Self(ReleaseRecord {
            state,
            references,
            updated_at: stamp.at,
            revision: self.revision.next(),
            ..self.0.clone()
        })
    }

    fn transition(&self, state: State, stamp: &Stamp) -> Change<Self> {
        let fact = self.transition_fact(&state, stamp);
        Change::replace(self.with_state(state, stamp), self.revision, fact)
    }

    fn transition_fact(&self, target: &State, stamp: &Stamp) -> Fact {
        let detail = json!({
            "workload_id": self.workload_id,
            "environment": self.environment.as_str(),
            "from": self.state.name().as_str(),
            "to": target.name().as_str(),
            "bindings_digest": target.digest().or_else(|| self.state.digest()).map(BindingsDigest::as_str),
        });
        // The submission of a release asks for verdicts, so its fact notifies reviewers.
        let category = matches!(target, State::ReviewReady { .. }).then_some(NotificationCategory::Approvals);
        let fact = Fact::new(FactKind::ReleaseTransitioned, self.subject(), Some(self.workspace_id), stamp, detail);
        fact.with_notification_categories(category)
    }

    const fn subject(&self) -> FactSubject {
        FactSubject { kind: "release", id: self.0.release_id.uuid() }
    }
}

#[cfg(test)]
mod tests;
