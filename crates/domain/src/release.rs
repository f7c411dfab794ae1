//! Releases: exact versions bound to a workload in one environment, reviewed, approved and deployed on lanes.

pub mod activate;
pub mod advance;
mod digest;
pub mod gate;
pub mod lane;
pub mod missing_policy_input;
pub mod ports;
pub mod provider_account_gate;
pub mod recommendation;
pub mod reference;
mod refusal;
pub mod review;
pub mod rollback;
pub mod tool_requirements;
pub mod vector_gate;

use crate::{
    access::ActorRef,
    asset::{Lifecycle, VersionLabel, canonical::Checksum, kind::AssetKind},
    audit::{Fact, FactKind, Stamp, Subject},
    fact_category::FactCategory,
    id::{AssetId, AssetVersionId, BindingId, ReleaseId, WorkloadId, WorkspaceId},
    rollout::Rollout,
    slug::Slug,
    store::{Change, Revision, aggregate},
    time::Timestamp,
};
pub use digest::BindingsDigest;
use lane::{Deployment, TargetLane};
use reference::{FrozenReference, UnresolvedReference};
pub use refusal::{ReleaseRefusal, SELF_APPROVAL_REMEDY};
use review::Approval;
use serde_json::json;

/// The names of the release states.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StateName {
    /// Bindings can change.
    Draft,
    /// Bindings are frozen; the release awaits verdicts.
    ReviewReady,
    /// The release can be activated.
    Approved,
    /// The release holds at least one lane.
    Active,
    /// The release held lanes and was replaced on all of them.
    Superseded,
    /// The release has ended permanently.
    Retired,
}

impl StateName {
    /// Every state.
    pub const ALL: [Self; 6] =
        [Self::Draft, Self::ReviewReady, Self::Approved, Self::Active, Self::Superseded, Self::Retired];

    /// The wire form.
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

    /// Parses the wire form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }
}

/// The state of a release, with the data specific to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum State {
    /// Bindings can change.
    Draft,
    /// Bindings are frozen; the release awaits verdicts.
    ReviewReady {
        /// The digest under review.
        digest: BindingsDigest,
    },
    /// The release can be activated.
    Approved {
        /// The approved digest.
        digest: BindingsDigest,
    },
    /// The release holds at least one lane.
    Active {
        /// The approved and running digest.
        digest: BindingsDigest,
    },
    /// The release held lanes and was replaced on all of them.
    Superseded {
        /// The digest that ran.
        digest: BindingsDigest,
    },
    /// The release has ended permanently.
    Retired {
        /// The digest of the bindings that were frozen before; `None` if it was retired as a draft.
        digest: Option<BindingsDigest>,
    },
}

impl State {
    /// The state's name.
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

    /// The digest of the frozen bindings; `None` for states without frozen bindings.
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

    /// Builds the state from its stored name and digest; `None` if they contradict each other.
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

/// A version bound in a role, with the data that the rules need.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Binding {
    /// Its identifier.
    pub binding_id: BindingId,
    /// The role: the kind of the asset.
    pub role: AssetKind,
    /// The version.
    pub asset_version_id: AssetVersionId,
    /// Its checksum.
    pub checksum: Checksum,
    /// Its label.
    pub version_label: VersionLabel,
    /// The asset.
    pub asset_id: AssetId,
    /// The asset's slug.
    pub asset_slug: Slug,
    /// When it was bound.
    pub created_at: Timestamp,
    /// The actor that bound it.
    pub created_by: ActorRef,
}

/// A version to bind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BindableVersion {
    /// The version.
    pub asset_version_id: AssetVersionId,
    /// Its checksum.
    pub checksum: Checksum,
    /// Its label.
    pub version_label: VersionLabel,
    /// The asset.
    pub asset_id: AssetId,
    /// The asset's slug.
    pub asset_slug: Slug,
    /// The asset's kind.
    pub kind: AssetKind,
    /// The asset's lifecycle state.
    pub lifecycle: Lifecycle,
}

/// The maximum number of bindings of a release. All are read and shown with it, and apply to each run.
pub const MAX_BINDINGS: usize = 100;

/// Exact versions for one workload in one environment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Release(pub(crate) ReleaseRecord);

/// The fields of [`Release`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReleaseRecord {
    /// Its identifier.
    pub release_id: ReleaseId,
    /// The workload.
    pub workload_id: WorkloadId,
    /// The workload's workspace.
    pub workspace_id: WorkspaceId,
    /// The environment: a slug such as `dev`.
    pub environment: Slug,
    /// The lanes that it can be activated on.
    pub target_lane: TargetLane,
    /// Its state.
    pub state: State,
    /// The policy bundle asset that it must bind, if specified.
    pub policy_bundle_id: Option<AssetId>,
    /// The first holder that it replaced.
    pub supersedes_release_id: Option<ReleaseId>,
    /// Its latest rollout, if any.
    pub rollout: Option<Rollout>,
    /// Whether the latest evaluation of its runs recommended a rollback.
    pub rollback_advised: bool,
    /// The bindings, oldest first.
    pub bindings: Vec<Binding>,
    /// The resolved references of the bound contents; empty in drafts, where they are unresolved.
    pub references: Vec<FrozenReference>,
    /// Verdicts on it, oldest first.
    pub approvals: Vec<Approval>,
    /// When it was drafted.
    pub created_at: Timestamp,
    /// The author.
    pub created_by: ActorRef,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// Increments with each change.
    pub revision: Revision,
}

aggregate!(Release, ReleaseRecord);

/// The data of a new release.
#[derive(Clone, Debug)]
pub struct NewRelease {
    /// Its identifier.
    pub release_id: ReleaseId,
    /// The workload.
    pub workload_id: WorkloadId,
    /// The workload's workspace.
    pub workspace_id: WorkspaceId,
    /// The environment.
    pub environment: Slug,
    /// The lanes that it can be activated on.
    pub target_lane: TargetLane,
    /// The policy bundle asset that it must bind, if any.
    pub policy_bundle_id: Option<AssetId>,
}

impl Release {
    /// Creates a draft.
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

    /// Binds a version.
    ///
    /// # Errors
    /// When the release is not a draft, the role does not match or is already bound, the asset is not active, or the
    /// release has the maximum number of bindings.
    pub fn bind(
        &self,
        binding_id: BindingId,
        role: AssetKind,
        version: &BindableVersion,
        stamp: &Stamp,
    ) -> Result<Change<Self>, ReleaseRefusal> {
        let state = self.state.name();
        if state != StateName::Draft {
            return Err(ReleaseRefusal::NotEditable { state });
        }
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

    /// Removes a binding.
    ///
    /// # Errors
    /// When the release is not a draft, or has no such binding.
    pub fn unbind(&self, binding: BindingId, stamp: &Stamp) -> Result<Change<Self>, ReleaseRefusal> {
        let state = self.state.name();
        let bound = self.bindings.iter().find(|bound| bound.binding_id == binding).ok_or(ReleaseRefusal::NotBound)?;
        if state != StateName::Draft {
            return Err(ReleaseRefusal::NotEditable { state });
        }
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

    /// The valid next states. An active release can be activated on lanes that it does not hold.
    #[must_use]
    pub fn valid_transitions(&self, deployment: &Deployment) -> Vec<StateName> {
        match self.state.name() {
            StateName::Draft => vec![StateName::ReviewReady, StateName::Retired],
            StateName::ReviewReady => vec![StateName::Approved, StateName::Draft, StateName::Retired],
            StateName::Approved => vec![StateName::Active, StateName::Retired],
            StateName::Active if deployment.untaken_lanes(self).is_empty() => vec![StateName::Retired],
            StateName::Active => vec![StateName::Active, StateName::Retired],
            StateName::Superseded => vec![StateName::Retired],
            StateName::Retired => Vec::new(),
        }
    }

    /// The same release with these references frozen, as its review would see it. It measures the plan before a decision.
    #[must_use]
    pub fn with_frozen(&self, references: Vec<FrozenReference>) -> Self {
        Self(ReleaseRecord { references, ..self.0.clone() })
    }

    /// Submits the draft for review, and freezes its bindings and resolved references.
    ///
    /// # Errors
    /// When the release is not a draft, or a reference is unresolved.
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
                let frozen = self.with_frozen(references);
                Ok(frozen.transition(State::ReviewReady { digest: frozen.bindings_digest() }, stamp))
            }
            State::ReviewReady { .. }
            | State::Approved { .. }
            | State::Active { .. }
            | State::Superseded { .. }
            | State::Retired { .. } => Err(self.invalid_transition(deployment)),
        }
    }

    /// Returns the release to draft. Its references are unresolved again.
    ///
    /// # Errors
    /// When the release does not await verdicts.
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

    fn invalid_transition(&self, deployment: &Deployment) -> ReleaseRefusal {
        ReleaseRefusal::InvalidTransition { from: self.state.name(), valid: self.valid_transitions(deployment) }
    }

    fn with_state(&self, state: State, stamp: &Stamp) -> Self {
        let references = match state {
            // INVARIANT: references are resolved exactly while bindings are frozen.
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

    fn transition_fact(&self, to: &State, stamp: &Stamp) -> Fact {
        let detail = json!({
            "workload_id": self.workload_id,
            "environment": self.environment.as_str(),
            "from": self.state.name().as_str(),
            "to": to.name().as_str(),
            "bindings_digest": to.digest().or_else(|| self.state.digest()).map(BindingsDigest::as_str),
        });
        // Submitting a release requests verdicts.
        let category = matches!(to, State::ReviewReady { .. }).then_some(FactCategory::Approvals);
        let fact = Fact::new(FactKind::ReleaseTransitioned, self.subject(), Some(self.workspace_id), stamp, detail);
        fact.with_categories(category)
    }

    const fn subject(&self) -> Subject {
        Subject { kind: "release", id: self.0.release_id.uuid() }
    }
}

#[cfg(test)]
mod tests;
