//! Reviews of releases. A verdict applies only to the bindings digest that its reviewer saw.

use super::{BindingsDigest, Release, ReleaseRefusal, State, deployment::Deployment};
use crate::{
    access::{ActorRef, Role, Roles},
    audit::{Fact, FactKind, Stamp},
    id::ApprovalId,
    note::Note,
    notification_category::NotificationCategory,
    number,
    store::Change,
    time::Timestamp,
};
use serde_json::{Value, json};

/// The maximum number of verdicts of one person on a release.
pub const MAX_VERDICTS_PER_PERSON: usize = 50;

/// The number of verdicts on a release at which further approvals are refused.
pub const VERDICT_SOFT_LIMIT: usize = 500;

/// The maximum number of verdicts on a release, including objections. It is bounded, because each read of the release
/// loads all verdicts without notes. At this number, at least the newer half are objections, which already block the
/// release.
pub const MAX_STORED_VERDICTS: usize = 1_000;

/// The decision of a reviewer about a release.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReleaseVerdict {
    /// The reviewer permits the activation of the release.
    Approved,
    /// The reviewer forbids the activation of the release.
    Rejected,
    /// The reviewer returns the release to its author for changes.
    ChangesRequested,
}

impl ReleaseVerdict {
    /// Every verdict.
    pub const ALL: [Self; 3] = [Self::Approved, Self::Rejected, Self::ChangesRequested];

    /// The wire form, such as `approved`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Approved => "approved",
            Self::Rejected => "rejected",
            Self::ChangesRequested => "changes_requested",
        }
    }

    /// Parses the wire form; `None` for an unknown text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verdict| verdict.as_str() == text)
    }
}

/// A recorded verdict of a reviewer, which applies to one bindings digest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReviewerVerdict {
    /// The identifier of the verdict.
    pub approval_id: ApprovalId,
    /// The decision of the reviewer.
    pub verdict: ReleaseVerdict,
    /// The actor that reviewed the release.
    pub by: ActorRef,
    /// The time of the verdict.
    pub at: Timestamp,
    /// The note of the reviewer. It is stored separately, so that it can be erased. Only
    /// [`ReleaseStore::approvals`](super::ports::ReleaseStore::approvals) and
    /// [`ReleaseStore::approval`](super::ports::ReleaseStore::approval) load it.
    pub note: Option<String>,
    /// The bindings digest to which the verdict applies.
    pub subject_digest: BindingsDigest,
    /// The time since the verdict in whole seconds, as the store's clock measured it at the read.
    pub age_seconds: u64,
}

/// The requirements that the approvals of a release must meet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ApprovalRule {
    /// The number of people who must approve; at least one.
    pub min_approvals: usize,
    /// Whether authors of the release may approve it.
    pub self_approval: SelfApproval,
    /// The roles of which an approver needs at least one; `None` permits every role.
    pub roles: Option<Roles>,
    /// The number of hours after which an approval no longer counts; `None` means never.
    pub valid_hours: Option<u64>,
}

/// Whether authors of a release may approve it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SelfApproval {
    /// Authors may approve their release.
    Allowed,
    /// Authors may not approve their release.
    Refused,
}

impl ApprovalRule {
    /// The rule of an environment. It restricts neither roles nor the age of approvals.
    #[must_use]
    pub const fn new(min_approvals: usize, self_approval: SelfApproval) -> Self {
        Self { min_approvals, self_approval, roles: None, valid_hours: None }
    }

    /// Checks whether an actor with these roles may give this verdict. Recorded approvals are not checked again,
    /// because the rule is part of the bindings that they approve.
    ///
    /// # Errors
    /// If the verdict is an approval and none of the roles can approve. An objection requires no role.
    pub fn check_reviewer_roles(&self, verdict: ReleaseVerdict, roles: Roles) -> Result<(), ReleaseRefusal> {
        match (verdict, self.roles) {
            (ReleaseVerdict::Approved, Some(needed)) if needed.intersection(roles).is_empty() => {
                Err(ReleaseRefusal::RoleDoesNotApprove { needed })
            }
            (ReleaseVerdict::Approved | ReleaseVerdict::Rejected | ReleaseVerdict::ChangesRequested, _) => Ok(()),
        }
    }

    fn is_current(&self, approval: &ReviewerVerdict) -> bool {
        self.valid_hours.is_none_or(|hours| approval.age_seconds < hours.saturating_mul(3_600))
    }

    /// Combines two rules. For each requirement, the stricter one applies.
    #[must_use]
    pub fn combine(self, other: Self) -> Self {
        let refused = [self.self_approval, other.self_approval].contains(&SelfApproval::Refused);
        Self {
            min_approvals: self.min_approvals.max(other.min_approvals),
            self_approval: if refused { SelfApproval::Refused } else { SelfApproval::Allowed },
            roles: match (self.roles, other.roles) {
                (Some(left), Some(right)) => Some(left.intersection(right)),
                (left, right) => left.or(right),
            },
            valid_hours: [self.valid_hours, other.valid_hours].into_iter().flatten().min(),
        }
    }

    /// Reads the rule in a workload profile (`approval_policy`). Members that the profile omits add no requirement.
    #[must_use]
    pub fn from_profile(profile: &Value) -> Self {
        let policy = profile.get("approval_policy");
        let read_whole =
            |name| policy.and_then(|policy| policy.get(name)).and_then(Value::as_number).and_then(number::as_whole);
        let roles = policy.and_then(|policy| policy.get("roles")).and_then(Value::as_array);
        let separation = policy.and_then(|policy| policy.get("separation_of_duties")).and_then(Value::as_bool);
        Self {
            min_approvals: read_whole("min_approvals").and_then(|number| usize::try_from(number).ok()).unwrap_or(1),
            self_approval: if separation == Some(true) { SelfApproval::Refused } else { SelfApproval::Allowed },
            // A profile with an empty list of roles does not restrict roles.
            roles: roles
                .filter(|roles| !roles.is_empty())
                .map(|roles| roles.iter().filter_map(Value::as_str).filter_map(Role::parse).collect()),
            valid_hours: read_whole("expires_hours"),
        }
    }
}

/// A new verdict, and the release after it.
#[derive(Clone, Debug)]
pub struct ReviewedRelease {
    /// The release with the new verdict.
    pub release: Release,
    /// The new verdict to store.
    pub approval: ReviewerVerdict,
}

impl Release {
    /// Records a verdict. `changes_requested` returns a release under review to draft. The other verdicts do not change
    /// the state.
    ///
    /// The limits are [`MAX_VERDICTS_PER_PERSON`] and [`VERDICT_SOFT_LIMIT`]. A person may exceed them with one
    /// objection, unless that person's latest verdict on the digest already is an objection. Therefore a person who
    /// approved early can still object.
    ///
    /// # Errors
    /// If the environment does not permit authors to approve, or the limits are reached.
    pub fn record_verdict(
        &self,
        approval_id: ApprovalId,
        verdict: ReleaseVerdict,
        note: Option<Note>,
        rule: ApprovalRule,
        stamp: &Stamp,
    ) -> Result<Change<ReviewedRelease>, ReleaseRefusal> {
        if rule.self_approval == SelfApproval::Refused
            && verdict == ReleaseVerdict::Approved
            && self.is_author(&stamp.actor)
        {
            return Err(ReleaseRefusal::SelfApprovalNotAllowed);
        }
        let subject_digest = self.bindings_digest();
        self.check_verdict_limits(verdict, &subject_digest, &stamp.actor)?;
        let state = match &self.state {
            State::ReviewReady { .. } if verdict == ReleaseVerdict::ChangesRequested => State::Draft,
            state @ (State::Draft
            | State::ReviewReady { .. }
            | State::Approved { .. }
            | State::Active { .. }
            | State::Superseded { .. }
            | State::Retired { .. }) => state.clone(),
        };
        let detail = json!({
            "approval_id": approval_id,
            "outcome": verdict.as_str(),
            "bindings_digest": subject_digest.as_str(),
            "state": state.name().as_str(),
        });
        let fact = Fact::new(FactKind::ReleaseReviewed, self.subject(), Some(self.workspace_id), stamp, detail);
        let fact = fact.with_notification_categories([NotificationCategory::Approvals]);
        let approval = ReviewerVerdict {
            approval_id,
            verdict,
            by: stamp.actor.clone(),
            at: stamp.at,
            note: note.map(Note::into_string),
            subject_digest,
            age_seconds: 0,
        };
        let mut release = self.with_state(state, stamp);
        release.0.approvals.push(approval.clone());
        Ok(Change::replace(ReviewedRelease { release, approval }, self.revision, fact))
    }

    fn check_verdict_limits(
        &self,
        verdict: ReleaseVerdict,
        digest: &BindingsDigest,
        reviewer: &ActorRef,
    ) -> Result<(), ReleaseRefusal> {
        let own_verdicts = || self.approvals.iter().filter(|approval| approval.by == *reviewer);
        let is_within_limits =
            own_verdicts().count() < MAX_VERDICTS_PER_PERSON && self.approvals.len() < VERDICT_SOFT_LIMIT;
        let is_new_objection = || {
            let newest = own_verdicts().rfind(|approval| approval.subject_digest == *digest);
            verdict != ReleaseVerdict::Approved
                && newest.is_none_or(|newest| newest.verdict == ReleaseVerdict::Approved)
        };
        if is_within_limits || (self.approvals.len() < MAX_STORED_VERDICTS && is_new_objection()) {
            return Ok(());
        }
        Err(ReleaseRefusal::TooManyVerdicts)
    }

    /// Builds the fact that an author tried to approve the release.
    #[must_use]
    pub fn self_approval_refused_fact(&self, stamp: &Stamp) -> Fact {
        let detail = json!({
            "workload_id": self.workload_id,
            "environment": self.environment.as_str(),
            "bindings_digest": self.bindings_digest().as_str(),
        });
        let fact = Fact::new(FactKind::SelfApprovalRefused, self.subject(), Some(self.workspace_id), stamp, detail);
        fact.with_notification_categories([NotificationCategory::ComplianceFindings])
    }

    /// Changes the state of the release to approved.
    ///
    /// # Errors
    /// If the release does not await verdicts, too few people approved the current digest, or the latest verdict
    /// is not an approval.
    pub fn move_to_approved(
        &self,
        rule: ApprovalRule,
        deployment: &Deployment,
        stamp: &Stamp,
    ) -> Result<Change<Self>, ReleaseRefusal> {
        let digest = match &self.state {
            State::ReviewReady { digest } => digest.clone(),
            State::Draft
            | State::Approved { .. }
            | State::Active { .. }
            | State::Superseded { .. }
            | State::Retired { .. } => return Err(self.invalid_transition(deployment)),
        };
        self.check_approvals(&digest, rule)?;
        Ok(self.transition(State::Approved { digest }, stamp))
    }

    pub(super) fn check_approvals(&self, digest: &BindingsDigest, rule: ApprovalRule) -> Result<(), ReleaseRefusal> {
        let mut approvers: Vec<&ActorRef> = Vec::new();
        let mut refused = false;
        for approval in &self.approvals {
            match approval.verdict {
                ReleaseVerdict::Approved if approval.subject_digest == *digest => {
                    let is_excluded_author =
                        rule.self_approval == SelfApproval::Refused && self.is_author(&approval.by);
                    // An approval that does not count does not override an earlier objection either.
                    if is_excluded_author || !rule.is_current(approval) {
                        continue;
                    }
                    refused = false;
                    if !approvers.contains(&&approval.by) {
                        approvers.push(&approval.by);
                    }
                }
                ReleaseVerdict::Approved => {}
                ReleaseVerdict::Rejected | ReleaseVerdict::ChangesRequested => refused = true,
            }
        }
        let needed = rule.min_approvals.max(1);
        if refused || approvers.len() < needed {
            let excludes_authors = rule.self_approval == SelfApproval::Refused;
            return Err(ReleaseRefusal::ApprovalRequired {
                counted: approvers.len(),
                needed,
                refused,
                excludes_authors,
            });
        }
        Ok(())
    }

    fn is_author(&self, actor: &ActorRef) -> bool {
        self.created_by == *actor || self.bindings.iter().any(|binding| binding.created_by == *actor)
    }
}
