//! Verdicts: people approve exactly what they reviewed.

use super::{BindingsDigest, Release, ReleaseRefusal, State, lane::Deployment};
use crate::{
    access::{ActorRef, Role, Roles},
    audit::{Fact, FactKind, Stamp},
    id::ApprovalId,
    notification::Category,
    number,
    store::Change,
    time::Timestamp,
};
use serde_json::{Value, json};

/// Longest note to a verdict, in characters.
pub const MAX_NOTE: usize = 2_000;

/// Most verdicts of one person on a release.
pub const MAX_VERDICTS: usize = 50;

/// Most verdicts on a release after which approvals are refused.
pub const MAX_RELEASE_VERDICTS: usize = 500;

/// Most verdicts on a release, refusals included: each read of it carries them all, without their notes. The newer half of so
/// many holds refusals alone, so what comes beyond is not needed to keep the release back.
pub const MAX_RELEASE_ROWS: usize = 1_000;

/// What a person says of a release.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It may go live.
    Approved,
    /// It may not.
    Rejected,
    /// It may not as it is; back to its author.
    ChangesRequested,
}

impl Verdict {
    /// Every verdict.
    pub const ALL: [Self; 3] = [Self::Approved, Self::Rejected, Self::ChangesRequested];

    /// The spelling on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Approved => "approved",
            Self::Rejected => "rejected",
            Self::ChangesRequested => "changes_requested",
        }
    }

    /// The verdict of that spelling.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verdict| verdict.as_str() == text)
    }
}

/// One person's verdict on one digest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Approval {
    /// Its identifier.
    pub approval_id: ApprovalId,
    /// What was said.
    pub verdict: Verdict,
    /// By whom.
    pub by: ActorRef,
    /// When.
    pub at: Timestamp,
    /// In more words. Kept apart from the record, because it can be erased, and absent where a release was read: only
    /// [`ReleaseStore::approvals`](super::ports::ReleaseStore::approvals) and
    /// [`ReleaseStore::approval`](super::ports::ReleaseStore::approval) read it.
    pub note: Option<String>,
    /// What it was said of.
    pub subject_digest: BindingsDigest,
    /// How long ago it was recorded, in whole seconds by the store's clock, when it was read.
    pub age: u64,
}

/// What an environment asks of approvals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ApprovalRule {
    /// How many people must approve, at least one.
    pub min_approvals: usize,
    /// Whether those who made the release may approve it.
    pub self_approval: SelfApproval,
    /// The roles of which an approver must have one; any, where none are named.
    pub roles: Option<Roles>,
    /// Hours for which an approval counts; for ever, where none are named.
    pub lasts_hours: Option<u64>,
}

/// Whether those who made a release may approve it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SelfApproval {
    /// They may.
    Allowed,
    /// They may not.
    Refused,
}

impl ApprovalRule {
    /// What environments ask: this many people, who made it or not.
    #[must_use]
    pub const fn new(min_approvals: usize, self_approval: SelfApproval) -> Self {
        Self { min_approvals, self_approval, roles: None, lasts_hours: None }
    }

    /// Whether somebody with these roles may give this verdict. What is bound asks for roles, and is part of what is
    /// approved: an approval that was taken once had the roles that it needs.
    ///
    /// # Errors
    /// When none of the roles is among those whose approval counts. Refusals are taken from everybody.
    pub fn admits(&self, verdict: Verdict, roles: Roles) -> Result<(), ReleaseRefusal> {
        match (verdict, self.roles) {
            (Verdict::Approved, Some(needed)) if needed.common(roles).is_empty() => {
                Err(ReleaseRefusal::RoleDoesNotApprove { needed })
            }
            (Verdict::Approved | Verdict::Rejected | Verdict::ChangesRequested, _) => Ok(()),
        }
    }

    fn counts(&self, approval: &Approval) -> bool {
        self.lasts_hours.is_none_or(|hours| approval.age < hours.saturating_mul(3_600))
    }

    /// What two rules ask for together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let refused = [self.self_approval, other.self_approval].contains(&SelfApproval::Refused);
        Self {
            min_approvals: self.min_approvals.max(other.min_approvals),
            self_approval: if refused { SelfApproval::Refused } else { SelfApproval::Allowed },
            roles: match (self.roles, other.roles) {
                (Some(ours), Some(theirs)) => Some(ours.common(theirs)),
                (ours, theirs) => ours.or(theirs),
            },
            lasts_hours: [self.lasts_hours, other.lasts_hours].into_iter().flatten().min(),
        }
    }

    /// What a workload profile asks for (`approval_policy`); what it leaves out, it does not ask for.
    #[must_use]
    pub fn of_profile(profile: &Value) -> Self {
        let asked = profile.get("approval_policy");
        let whole = |name| asked.and_then(|asked| asked.get(name)).and_then(Value::as_number).and_then(number::whole);
        let roles = asked.and_then(|asked| asked.get("roles")).and_then(Value::as_array);
        let apart = asked.and_then(|asked| asked.get("separation_of_duties")).and_then(Value::as_bool);
        Self {
            min_approvals: whole("min_approvals").and_then(|number| usize::try_from(number).ok()).unwrap_or(1),
            self_approval: if apart == Some(true) { SelfApproval::Refused } else { SelfApproval::Allowed },
            // A list that names nobody asks for nobody in particular.
            roles: roles
                .filter(|roles| !roles.is_empty())
                .map(|roles| roles.iter().filter_map(Value::as_str).filter_map(Role::parse).collect()),
            lasts_hours: whole("expires_hours"),
        }
    }
}

/// A verdict with its effect on the release.
#[derive(Clone, Debug)]
pub struct Reviewed {
    /// The release as it will be.
    pub release: Release,
    /// The verdict to record.
    pub approval: Approval,
}

impl Release {
    /// Records a verdict. `changes_requested` takes a waiting release back to draft; nothing else moves it.
    ///
    /// Approvals end at [`MAX_VERDICTS`] of a person and [`MAX_RELEASE_VERDICTS`] of all. A refusal is recorded beyond these numbers
    /// where the newest verdict of its author on what is bound is none: whoever approved early can still object.
    ///
    /// # Errors
    /// When the environment does not let makers approve their own releases, or enough was said of this one.
    pub fn review(
        &self,
        approval_id: ApprovalId,
        (verdict, note): (Verdict, Option<String>),
        rule: ApprovalRule,
        stamp: &Stamp,
    ) -> Result<Change<Reviewed>, ReleaseRefusal> {
        if rule.self_approval == SelfApproval::Refused && verdict == Verdict::Approved && self.was_made_by(&stamp.actor)
        {
            return Err(ReleaseRefusal::SelfApproval);
        }
        let subject_digest = self.bindings_digest();
        self.check_room(verdict, &subject_digest, &stamp.actor)?;
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
        let fact = fact.concerning([Category::Approvals]);
        let approval =
            Approval { approval_id, verdict, by: stamp.actor.clone(), at: stamp.at, note, subject_digest, age: 0 };
        let mut release = self.moved(state, stamp);
        release.approvals.push(approval.clone());
        Ok(Change::replacing(Reviewed { release, approval }, self.revision, fact))
    }

    fn check_room(&self, verdict: Verdict, digest: &BindingsDigest, by: &ActorRef) -> Result<(), ReleaseRefusal> {
        let own = || self.approvals.iter().filter(|approval| approval.by == *by);
        let is_within_limits = own().count() < MAX_VERDICTS && self.approvals.len() < MAX_RELEASE_VERDICTS;
        let is_new_objection = || {
            let newest = own().rfind(|approval| approval.subject_digest == *digest);
            verdict != Verdict::Approved && newest.is_none_or(|newest| newest.verdict == Verdict::Approved)
        };
        if is_within_limits || (self.approvals.len() < MAX_RELEASE_ROWS && is_new_objection()) {
            return Ok(());
        }
        Err(ReleaseRefusal::TooManyVerdicts)
    }

    /// The fact that one of its makers wanted to approve it, where that is not allowed.
    #[must_use]
    pub fn self_approval_refused(&self, stamp: &Stamp) -> Fact {
        let detail = json!({
            "workload_id": self.workload_id,
            "environment": self.environment.as_str(),
            "bindings_digest": self.bindings_digest().as_str(),
        });
        let fact = Fact::new(FactKind::SelfApprovalRefused, self.subject(), Some(self.workspace_id), stamp, detail);
        fact.concerning([Category::ComplianceFindings])
    }

    /// Opens the way to activation.
    ///
    /// # Errors
    /// When the release does not wait for verdicts, or too few people approved what is bound now, or the newest
    /// verdict is a refusal.
    pub fn approve(
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
            | State::Retired => return Err(self.no_way_from(deployment)),
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
                    let own = rule.self_approval == SelfApproval::Refused && self.was_made_by(&approval.by);
                    // What does not count outweighs no refusal either.
                    if own || !rule.counts(approval) {
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
            return Err(ReleaseRefusal::ApprovalRequired { counted: approvers.len(), needed, refused });
        }
        Ok(())
    }

    fn was_made_by(&self, actor: &ActorRef) -> bool {
        self.created_by == *actor || self.bindings.iter().any(|binding| binding.created_by == *actor)
    }
}
