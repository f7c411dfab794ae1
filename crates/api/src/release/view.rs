//! Wire representations of releases.

use crate::rollout::RolloutView;
use fairway_domain::{
    access::ActorRef,
    id::{AssetId, ReleaseId, UseCaseId},
    release::{
        Binding, Release, StateName,
        frozen_reference::FrozenReference,
        gate::Gate,
        lane::{Lane, LaneTenure},
        ports::ReleaseWithDeployment,
        review::ReviewerVerdict,
    },
};
use fairway_operations::release::{LaneHistory, TransitionResult};
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

/// A release without its bindings.
#[derive(Serialize, ToSchema)]
#[schema(as = Release)]
pub(crate) struct ReleaseView {
    release_id: Uuid,
    workload_id: Uuid,
    environment: String,
    /// `all`, `restricted`, `guided` or `standard`.
    target_lane: &'static str,
    /// `draft`, `review_ready`, `approved`, `active`, `superseded` or `retired`.
    state: &'static str,
    policy_bundle_id: Option<Uuid>,
    supersedes_release_id: Option<Uuid>,
    /// Present if the release was activated with a rollout plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    rollout_state: Option<RolloutView>,
    #[schema(format = DateTime)]
    created_at: String,
    created_by: String,
    #[schema(format = DateTime)]
    updated_at: String,
}

impl ReleaseView {
    pub(super) fn of(release: &Release) -> Self {
        Self {
            release_id: release.release_id.uuid(),
            workload_id: release.workload_id.uuid(),
            environment: release.environment.to_string(),
            target_lane: release.target_lane.as_str(),
            state: release.state.name().as_str(),
            policy_bundle_id: release.policy_bundle_id.map(AssetId::uuid),
            supersedes_release_id: release.supersedes_release_id.map(ReleaseId::uuid),
            rollout_state: release.rollout.as_ref().map(RolloutView::of),
            created_at: release.created_at.to_string(),
            created_by: release.created_by.to_string(),
            updated_at: release.updated_at.to_string(),
        }
    }
}

/// A release with its bindings and possible transitions.
#[derive(Serialize, ToSchema)]
pub(crate) struct ReleaseDetail {
    #[serde(flatten)]
    release: ReleaseView,
    bindings: Vec<BindingView>,
    /// The resolved references of the bound contents; empty in a draft, where references are unresolved.
    references: Vec<FrozenReferenceView>,
    /// The states to which the release can change next.
    valid_transitions: Vec<&'static str>,
    /// The use case that created the workload. Present only if such a use case exists and the release is read by
    /// its identifier.
    #[serde(skip_serializing_if = "Option::is_none")]
    use_case_id: Option<Uuid>,
}

impl ReleaseDetail {
    pub(super) fn of(release_with_deployment: &ReleaseWithDeployment) -> Self {
        let release = &release_with_deployment.release;
        Self {
            release: ReleaseView::of(release),
            bindings: release.bindings.iter().map(|binding| BindingView::of(release.release_id, binding)).collect(),
            references: release.references.iter().map(FrozenReferenceView::of).collect(),
            valid_transitions: release
                .valid_transitions(&release_with_deployment.deployment)
                .into_iter()
                .map(StateName::as_str)
                .collect(),
            use_case_id: None,
        }
    }

    pub(super) fn with_use_case(mut self, use_case: Option<UseCaseId>) -> Self {
        self.use_case_id = use_case.map(UseCaseId::uuid);
        self
    }
}

/// A version that is bound in a role.
#[derive(Serialize, ToSchema)]
#[schema(as = Binding)]
pub(crate) struct BindingView {
    binding_id: Uuid,
    release_id: Uuid,
    asset_version_id: Uuid,
    role: &'static str,
    #[schema(format = DateTime)]
    created_at: String,
    created_by: String,
}

impl BindingView {
    pub(super) fn of(release: ReleaseId, binding: &Binding) -> Self {
        Self {
            binding_id: binding.binding_id.uuid(),
            release_id: release.uuid(),
            asset_version_id: binding.asset_version_id.uuid(),
            role: binding.role.as_str(),
            created_at: binding.created_at.to_string(),
            created_by: binding.created_by.to_string(),
        }
    }
}

/// A reference inside a content, with its resolved version for the release.
#[derive(Serialize, ToSchema)]
#[schema(as = FrozenReference)]
pub(crate) struct FrozenReferenceView {
    /// The version whose content contains the reference.
    from_asset_version_id: Uuid,
    asset_slug: String,
    asset_id: Uuid,
    asset_version_id: Uuid,
    version_label: String,
    /// Whether the content names the version explicitly.
    pinned: bool,
}

impl FrozenReferenceView {
    fn of(reference: &FrozenReference) -> Self {
        Self {
            from_asset_version_id: reference.from_version_id.uuid(),
            asset_slug: reference.slug.to_string(),
            asset_id: reference.asset_id.uuid(),
            asset_version_id: reference.asset_version_id.uuid(),
            version_label: reference.version_label.to_string(),
            pinned: reference.label.is_some(),
        }
    }
}

/// A release in its new state, with its transition.
#[derive(Serialize, ToSchema)]
#[schema(as = Transition)]
pub(crate) struct TransitionView {
    #[serde(flatten)]
    release: ReleaseDetail,
    /// The state before the transition. A repeated request returns the same state; null if the record of the first
    /// request has expired.
    previous_state: Option<&'static str>,
    /// The lane that the release took, if the request named one; null for all lanes.
    lane: Option<&'static str>,
    transitioned_by: String,
    /// Time of the transition. A repeated request returns the time of the first request's transition.
    #[schema(format = DateTime)]
    transitioned_at: String,
}

impl TransitionView {
    pub(super) fn of(result: &TransitionResult, actor: &ActorRef) -> Self {
        Self {
            release: ReleaseDetail::of(&result.release),
            previous_state: result.previous.map(StateName::as_str),
            lane: result.lane.map(Lane::as_str),
            transitioned_by: actor.to_string(),
            transitioned_at: result.at.to_string(),
        }
    }
}

/// A person's verdict on the bindings of a release.
#[derive(Serialize, ToSchema)]
#[schema(as = Approval)]
pub(crate) struct ApprovalView {
    approval_id: Uuid,
    subject_kind: &'static str,
    subject_ref: Uuid,
    /// `approved`, `rejected` or `changes_requested`.
    outcome: &'static str,
    approved_by: String,
    #[schema(format = DateTime)]
    approved_at: String,
    note: Option<String>,
    /// BLAKE3 digest of the reviewed bindings. The verdict applies to these bindings only.
    subject_digest: String,
}

impl ApprovalView {
    pub(super) fn of(release: ReleaseId, approval: &ReviewerVerdict) -> Self {
        Self {
            approval_id: approval.approval_id.uuid(),
            subject_kind: "release",
            subject_ref: release.uuid(),
            outcome: approval.verdict.as_str(),
            approved_by: approval.by.to_string(),
            approved_at: approval.at.to_string(),
            note: approval.note.clone(),
            subject_digest: approval.subject_digest.as_str().to_owned(),
        }
    }
}

/// A condition of a release transition.
#[derive(Serialize, ToSchema)]
#[schema(as = Gate)]
pub(crate) struct GateView {
    /// The state that the gate guards.
    to_state: &'static str,
    /// The lane that the gate guards, if it guards only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    lane: Option<&'static str>,
    gate: &'static str,
    /// `pass`, `warn` or `blocked`; `warn` does not block.
    verdict: &'static str,
    /// The name of the gate if it passes, else the code of the problem.
    code: &'static str,
    message: String,
}

impl GateView {
    pub(super) fn of(gate: &Gate) -> Self {
        Self {
            to_state: gate.to.as_str(),
            lane: gate.lane.map(Lane::as_str),
            gate: gate.name,
            verdict: gate.verdict.as_str(),
            code: gate.code,
            message: gate.message.clone(),
        }
    }
}

/// A lane with its history of holders.
#[derive(Serialize, ToSchema)]
#[schema(as = Lane)]
pub(crate) struct LaneView {
    /// `restricted`, `guided` or `standard`.
    lane: &'static str,
    /// The release that holds the lane; null for none.
    holder: Option<Uuid>,
    /// The newest tenures, newest first.
    history: Vec<LaneTenureView>,
}

/// The period in which a release held a lane.
#[derive(Serialize, ToSchema)]
#[schema(as = Holding)]
pub(crate) struct LaneTenureView {
    release_id: Uuid,
    #[schema(format = DateTime)]
    from: String,
    /// End of the tenure; null while the release holds the lane.
    #[schema(format = DateTime)]
    to: Option<String>,
    /// Cause of the tenure: `activation`, `advance` or `rollback`.
    reason: &'static str,
}

impl LaneView {
    pub(super) fn of(lane_history: &LaneHistory) -> Self {
        let history: Vec<LaneTenureView> = lane_history.tenures.iter().map(LaneTenureView::of).collect();
        let holder = lane_history.tenures.first().filter(|tenure| tenure.to.is_none());
        Self { lane: lane_history.lane.as_str(), holder: holder.map(|tenure| tenure.release.uuid()), history }
    }
}

impl LaneTenureView {
    fn of(tenure: &LaneTenure) -> Self {
        Self {
            release_id: tenure.release.uuid(),
            from: tenure.from.to_string(),
            to: tenure.to.map(|to| to.to_string()),
            reason: tenure.reason.as_str(),
        }
    }
}
