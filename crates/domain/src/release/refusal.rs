//! The reasons why operations on releases are refused.

use super::{
    StateName,
    activate::UnmetRequirement,
    frozen_reference::{REFERENCE_UNRESOLVED, UnresolvedReference},
};
use crate::access::Roles;

/// The reason why a release operation is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReleaseRefusal {
    /// The release is not a draft, so its bindings cannot change.
    #[error("bindings can change only in drafts")]
    NotEditable {
        /// The current state of the release.
        state: StateName,
    },
    /// The release has no such binding.
    #[error("the release has no such binding")]
    NotBound,
    /// The requested role differs from the kind of the asset.
    #[error("the role is not the asset's kind")]
    RoleKindMismatch,
    /// The release already binds a version in this role.
    #[error("the role is already bound")]
    DuplicateRole,
    /// The release has the maximum number of bindings.
    #[error("a release has at most {} bindings", super::MAX_BINDINGS)]
    TooManyBindings,
    /// The texts and compiled contents of the release exceed the memory limit of a run plan.
    #[error("the run plan of the release exceeds its memory limit")]
    TooLarge,
    /// The lifecycle of the asset does not permit new bindings.
    #[error("the asset accepts no new bindings")]
    AssetNotActive,
    /// The current state does not permit the transition.
    #[error("the current state does not allow this transition")]
    InvalidTransition {
        /// The current state of the release.
        from: StateName,
        /// The states to which the release can change.
        valid: Vec<StateName>,
    },
    /// Not enough approvals count, or a newer verdict is a rejection.
    #[error("{}", missing_approvals(*counted, *needed, *refused, *excludes_authors))]
    ApprovalRequired {
        /// The number of people who approved the current bindings.
        counted: usize,
        /// The required number of approvals.
        needed: usize,
        /// Whether a rejection is newer than the last approval that counts.
        refused: bool,
        /// Whether approvals by the authors of the release do not count.
        excludes_authors: bool,
    },
    /// An author of the release tried to approve it, and the environment or the workload profile forbids that.
    #[error("authors of a release may not approve it in this environment: {SELF_APPROVAL_REMEDY}")]
    SelfApprovalNotAllowed,
    /// The number of verdicts on the release has reached a limit, per person or in total.
    #[error("a release accepts 50 verdicts per person and 500 in total, plus one objection per person")]
    TooManyVerdicts,
    /// The reviewer has none of the roles that can approve the release.
    #[error("none of the caller's roles can approve this release")]
    RoleDoesNotApprove {
        /// The roles of which a reviewer needs at least one.
        needed: Roles,
    },
    /// The release does not meet these requirements of activation.
    #[error("{} activation requirements are unmet", .0.len())]
    ActivationBlocked(Vec<UnmetRequirement>),
    /// The workload is retired. A release of a retired workload can take no lane.
    #[error("the workload is retired")]
    WorkloadRetired,
    /// The lane is not a target lane of the release.
    #[error("the release does not target this lane")]
    LaneNotTargeted,
    /// A rollout of the release is in progress, which the operation would disturb.
    #[error("a rollout of the release is in progress")]
    RolloutInProgress,
    /// The release has no rollout in progress.
    #[error("no rollout of the release is in progress")]
    RolloutNotInProgress,
    /// The reason in the request is missing, too long, or has invisible characters.
    #[error("a reason has 1 to 2000 characters, and no invisible ones except line breaks and tabs")]
    InvalidReason,
    /// The release does not hold the lane from which it would be rolled back.
    #[error("the release does not hold this lane")]
    LaneNotHeld,
    /// No earlier holder of the lane can receive it again.
    #[error("no earlier release can hold the lane again: each is retired or was rolled back from it, or there is none")]
    NoPreviousRelease,
    /// These references in the bound contents cannot be resolved.
    #[error("{} references are unresolved", .0.len())]
    UnresolvedReferences(Vec<UnresolvedReference>),
}

impl ReleaseRefusal {
    /// The stable code of the refusal.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotEditable { .. } => "release_not_editable",
            Self::NotBound => "not_found",
            Self::RoleKindMismatch => "role_kind_mismatch",
            Self::DuplicateRole => "duplicate_role",
            Self::TooManyBindings => "too_many_bindings",
            Self::TooLarge => "release_too_large",
            Self::AssetNotActive => "asset_not_active",
            Self::InvalidTransition { .. } => "invalid_transition",
            Self::ApprovalRequired { .. } => "approval_required",
            Self::SelfApprovalNotAllowed => "self_approval_not_allowed",
            Self::TooManyVerdicts => "too_many_verdicts",
            Self::RoleDoesNotApprove { .. } => "approver_role_required",
            Self::ActivationBlocked(_) => "activation_blocked",
            Self::WorkloadRetired => "workload_retired",
            Self::LaneNotTargeted => "lane_not_targeted",
            Self::RolloutInProgress => "rollout_in_progress",
            Self::RolloutNotInProgress => "rollout_not_in_progress",
            Self::LaneNotHeld | Self::NoPreviousRelease => "no_previous_release",
            Self::InvalidReason => "invalid_text",
            // An unresolved prompt include has its own code, which the prompt grammar defines.
            Self::UnresolvedReferences(unresolved) => {
                unresolved.first().map_or(REFERENCE_UNRESOLVED, |first| first.code)
            }
        }
    }
}

/// Tells people which settings exclude authors from approval, and how to change them.
pub const SELF_APPROVAL_REMEDY: &str = "another person approves, or an administrator of the workspace sets \
    `allow_self_approval` in the settings of the environment (a bound workload profile with `separation_of_duties` \
    excludes authors too)";

fn missing_approvals(counted: usize, needed: usize, refused: bool, excludes_authors: bool) -> String {
    if refused {
        return "the latest verdict is not an approval".to_owned();
    }
    let count = format!("{counted} of {needed} required people approved the current bindings");
    if excludes_authors { format!("{count}; authors do not count: {SELF_APPROVAL_REMEDY}") } else { count }
}
