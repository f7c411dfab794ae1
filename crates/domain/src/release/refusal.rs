//! Why a release stays as it is.

use super::{
    StateName,
    activate::Missing,
    reference::{REFERENCE_UNRESOLVED, UnresolvedReference},
};
use crate::access::Roles;

/// Why a release cannot move or change as asked.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReleaseRefusal {
    /// Bindings change in drafts alone.
    #[error("bindings change in drafts alone")]
    NotEditable {
        /// The present state.
        state: StateName,
    },
    /// The release has no such binding.
    #[error("the release has no such binding")]
    NotBound,
    /// The role is not the asset's kind.
    #[error("the role is not the asset's kind")]
    RoleKindMismatch,
    /// The role is taken.
    #[error("the role is taken")]
    DuplicateRole,
    /// The release has as many bindings as it may.
    #[error("a release takes {} bindings", super::MAX_BINDINGS)]
    TooManyBindings,
    /// The texts and compiled contents take more memory than a run plan may.
    #[error("the run plan of the release takes too much memory")]
    TooLarge,
    /// The asset takes no new bindings.
    #[error("the asset takes no new bindings")]
    AssetNotActive,
    /// The present state does not lead there.
    #[error("the present state does not lead there")]
    InvalidTransition {
        /// The present state.
        from: StateName,
        /// Where it leads.
        valid: Vec<StateName>,
    },
    /// Verdicts are missing or speak against it.
    #[error("{}", missing_approvals(*counted, *needed, *refused))]
    ApprovalRequired {
        /// How many people approved what is bound now.
        counted: usize,
        /// How many must.
        needed: usize,
        /// Whether a refusal is newer than the last approval.
        refused: bool,
    },
    /// Those who made a release may not approve it here.
    #[error("those who made a release may not approve it here")]
    SelfApproval,
    /// It has as many verdicts, of the person or of all, as it takes.
    #[error("a release takes 50 verdicts of one person and 500 of all, and one objection of each person beyond")]
    TooManyVerdicts,
    /// The approval of none of the caller's roles counts.
    #[error("the approval of none of these roles counts")]
    RoleDoesNotApprove {
        /// The roles whose approval does.
        needed: Roles,
    },
    /// Something that an active release needs is missing.
    #[error("{} things are missing", .0.len())]
    ActivationBlocked(Vec<Missing>),
    /// The workload is retired, so no release of it takes lanes.
    #[error("the workload is retired")]
    WorkloadRetired,
    /// The release is meant for another lane.
    #[error("the release is meant for another lane")]
    LaneNotTargeted,
    /// The release is being rolled out already.
    #[error("a rollout of the release is in progress")]
    RolloutInProgress,
    /// There is no rollout to advance.
    #[error("no rollout of the release is in progress")]
    RolloutNotInProgress,
    /// A reason is needed, and people read it.
    #[error("a reason has 1 to 2000 characters, and none but line breaks and tabs that do not show")]
    Reason,
    /// Nobody to go back to.
    #[error("no release held the lane before that could hold it again")]
    NoPreviousRelease,
    /// What is bound refers to something that is not there.
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
            Self::SelfApproval => "self_approval_not_allowed",
            Self::TooManyVerdicts => "too_many_verdicts",
            Self::RoleDoesNotApprove { .. } => "approver_role_required",
            Self::ActivationBlocked(_) => "activation_blocked",
            Self::WorkloadRetired => "workload_retired",
            Self::LaneNotTargeted => "lane_not_targeted",
            Self::RolloutInProgress => "rollout_in_progress",
            Self::RolloutNotInProgress => "rollout_not_in_progress",
            Self::NoPreviousRelease => "no_previous_release",
            Self::Reason => "invalid_text",
            // A prompt's reference keeps the code that it has when the prompt is made.
            Self::UnresolvedReferences(unresolved) => {
                unresolved.first().map_or(REFERENCE_UNRESOLVED, |first| first.code)
            }
        }
    }
}

fn missing_approvals(counted: usize, needed: usize, refused: bool) -> String {
    if refused {
        return "the newest verdict is a refusal".to_owned();
    }
    format!("{counted} of {needed} people have approved what is bound now")
}
