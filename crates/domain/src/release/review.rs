//! Release reviews: a verdict applies exactly to the digest that was reviewed.

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

/// The maximum number of verdicts per person and release.
pub const MAX_VERDICTS_PER_PERSON: usize = 50;

/// The number of verdicts on a release from which on approvals are refused.
pub const MAX_VERDICTS_FOR_APPROVAL: usize = 500;

/// The maximum number of verdicts on a release, including objections. Each read of the release loads all verdicts
/// without notes. When this number is reached, at least the newer half consists of objections. Further objections
/// are then unnecessary to block the release.
pub const MAX_STORED_VERDICTS: usize = 1_000;

/// The verdict of a reviewer on a release.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The release may be activated.
    Approved,
    /// The release may not be activated.
    Rejected,
    /// The release needs changes and returns to its author.
    ChangesRequested,
}

impl Verdict {
    /// Every verdict.
    pub const ALL: [Self; 3] = [Self::Approved, Self::Rejected, Self::ChangesRequested];

    /// The wire form.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Approved => "approved",
            Self::Rejected => "rejected",
            Self::ChangesRequested => "changes_requested",
        }
    }

    /// Parses the wire form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verdict| verdict.as_str() == text)
    }
}

/// The verdict of a reviewer on a bindings digest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReviewerVerdict {
    /// The identifier of the verdict.
    pub approval_id: ApprovalId,
    /// Whether the reviewer approves or objects.
    pub verdict: Verdict,
    /// The reviewer who gave the verdict.
    pub by: ActorRef,
    /// The time of the verdict.
    pub at: Timestamp,
    /// The note of the reviewer. It is stored separately, because it can be erased. Only
    /// [`ReleaseStore::approvals`](super::ports::ReleaseStore::approvals) and
    /// [`ReleaseStore::approval`](super::ports::ReleaseStore::approval) load it.
    pub note: Option<String>,
    /// The bindings digest that was reviewed.
    pub subject_digest: BindingsDigest,
    /// The age of the verdict when it was read, in whole seconds by the clock of the store.
    pub age_seconds: u64,
}

/// The approval requirements of an environment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ApprovalRule {
    /// The number of people who must approve; at least one.
    pub min_approvals: usize,
    /// Whether authors of the release may approve it.
    pub self_approval: SelfApproval,
    /// The roles of which an approver must have at least one; `None` permits any role.
    pub roles: Option<Roles>,
    /// The number of hours for which an approval is valid; `None` is unlimited.
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
    /// The rule of an environment, which does not restrict roles or validity.
    #[must_use]
    pub const fn new(min_approvals: usize, self_approval: SelfApproval) -> Self {
        Self { min_approvals, self_approval, roles: None, valid_hours: None }
    }

    /// Checks whether an actor with these roles may give this verdict. Recorded approvals are not checked again,
    /// because the rule is part of the bindings that they approve.
    ///
    /// # Errors
    /// If the verdict is an approval and none of the roles can approve. An objection requires no role.
    pub fn check_roles(&self, verdict: Verdict, roles: Roles) -> Result<(), ReleaseRefusal> {
        match (verdict, self.roles) {
            (Verdict::Approved, Some(needed)) if needed.intersection(roles).is_empty() => {
                Err(ReleaseRefusal::RoleDoesNotApprove { needed })
            }
            (Verdict::Approved | Verdict::Rejected | Verdict::ChangesRequested, _) => Ok(()),
        }
    }

    fn is_current(&self, approval: &ReviewerVerdict) -> bool {
        self.valid_hours.is_none_or(|hours| approval.age_seconds < hours.saturating_mul(3_600))
    }

    /// Combines two rules, so that the stricter of both applies to each requirement.
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

    /// The rule in a workload profile (`approval_policy`). Members that the profile omits add no requirement.
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
            // An empty list of roles adds no requirement.
            roles: roles
                .filter(|roles| !roles.is_empty())
                .map(|roles| roles.iter().filter_map(Value::as_str).filter_map(Role::parse).collect()),
            valid_hours: read_whole("expires_hours"),
        }
    }
}

/// A verdict, and the release after the verdict.
#[derive(Clone, Debug)]
pub struct ReviewedRelease {
    /// The release after the verdict.
    pub release: Release,
    /// The verdict to record.
    pub approval: ReviewerVerdict,
}

impl Release {
    /// Records a verdict. `changes_requested` returns a release under review to draft. Other verdicts do not
    /// change the state.
    ///
    /// The limits are [`MAX_VERDICTS_PER_PERSON`] per person and [`MAX_VERDICTS_FOR_APPROVAL`] in total. An
    /// objection is recorded beyond these limits unless the latest verdict of its author on the digest is one already.
    /// Therefore an early approver can still object.
    ///
    /// # Errors
    /// If the environment does not permit authors to approve, or the limits are reached.
    pub fn record_verdict(
        &self,
        approval_id: ApprovalId,
        verdict: Verdict,
        note: Option<Note>,
        rule: ApprovalRule,
        stamp: &Stamp,
    ) -> Result<Change<ReviewedRelease>, ReleaseRefusal> {
        if rule.self_approval == SelfApproval::Refused && verdict == Verdict::Approved && self.is_author(&stamp.actor) {
            return Err(ReleaseRefusal::SelfApprovalNotAllowed);
        }
        let subject_digest = self.bindings_digest();
        self.check_verdict_limits(verdict, &subject_digest, &stamp.actor)?;
        let state = match (verdict, &self.state) {
            (Verdict::ChangesRequested, State::ReviewReady { .. }) => State::Draft,
            (Verdict::Approved | Verdict::Rejected | Verdict::ChangesRequested, state) => state.clone(),
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
        verdict: Verdict,
        digest: &BindingsDigest,
        reviewer: &ActorRef,
    ) -> Result<(), ReleaseRefusal> {
        let own_verdicts = || self.approvals.iter().filter(|approval| approval.by == *reviewer);
        let is_within_limits =
            own_verdicts().count() < MAX_VERDICTS_PER_PERSON && self.approvals.len() < MAX_VERDICTS_FOR_APPROVAL;
        let is_new_objection = || {
            let newest = own_verdicts().rfind(|approval| approval.subject_digest == *digest);
            verdict != Verdict::Approved && newest.is_none_or(|newest| newest.verdict == Verdict::Approved)
        };
        if is_within_limits || (self.approvals.len() < MAX_STORED_VERDICTS && is_new_objection()) {
            return Ok(());
        }
        Err(ReleaseRefusal::TooManyVerdicts)
    }

    /// The fact that an author tried to approve the release and was refused.
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
                Verdict::Approved if approval.subject_digest == *digest => {
                    let is_excluded_author =
                        rule.self_approval == SelfApproval::Refused && self.is_author(&approval.by);
                    // An approval that does not count also does not override an earlier objection.
                    if is_excluded_author || !rule.is_current(approval) {
                        continue;
                    }
                    refused = false;
                    if !approvers.contains(&&approval.by) {
                        approvers.push(&approval.by);
                    }
                }
                Verdict::Approved => {}
                Verdict::Rejected | Verdict::ChangesRequested => refused = true,
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
