//! Human review: a policy can require a person's verdict on a run's answer.
//!
//! The steps of such a run are complete, and no worker holds its lease. A verdict, a cancellation or the expiry of
//! the review period ends the run. The process that deletes the row of the pending review also stores the end of
//! the run.

use super::{ExecutionOutcome, Payload, RunError, RunRef, Status, digest_text};
use crate::{
    access::ActorRef,
    asset::artifact_store::ArtifactPath,
    audit::{Fact, FactKind, Stamp},
    evidence::{
        EvidenceArtifact, EvidenceRecord,
        run_records::{REVIEW_REQUESTED_MEMBER, RunRecords},
    },
    id::ExecutionId,
    idempotency::KeyedOutcome,
    moment::Moment,
    note::Note,
    notification_category::NotificationCategory,
    policy::Obligation,
    store::{CommitError, StoreError},
    tenant::TenantScope,
    time::Timestamp,
    workload,
};
use async_trait::async_trait;
use serde_json::{Map, Value, json};

/// The code of a run whose answer a reviewer rejected.
pub const REJECTED_CODE: &str = "review_rejected";

/// A reviewer's verdict on an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AnswerVerdict {
    /// The answer may be shown.
    Approved,
    /// The answer may not be shown.
    Rejected,
}

impl AnswerVerdict {
    /// Every verdict.
    pub const ALL: [Self; 2] = [Self::Approved, Self::Rejected];

    /// The wire form.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Approved => "approved",
            Self::Rejected => "rejected",
        }
    }

    /// Parses the wire form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verdict| verdict.as_str() == text)
    }
}

/// The answer under review.
#[derive(Clone, PartialEq, Debug)]
pub struct AnswerUnderReview {
    /// The stored answer: `output`, and the providers' `metadata`.
    pub stored_answer: String,
    /// The start of the review period.
    pub requested_at: Timestamp,
    /// The end of the review period.
    pub expires_at: Timestamp,
}

/// The reason a verdict is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReviewRefusal {
    /// The run does not await a review.
    #[error("the run does not await a review")]
    NotPending,
    /// The reviewer is the run's submitter or delegate.
    #[error("the submitter of a run may not review it")]
    OwnRun,
}

impl ReviewRefusal {
    /// The stable code of the refusal.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::NotPending => "review_not_pending",
            Self::OwnRun => "self_approval_not_allowed",
        }
    }
}

/// Whether the store must refuse the commit after the review deadline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeadlineCheck {
    /// The commit fails after the deadline.
    Required,
    /// The commit ignores the deadline.
    NotRequired,
}

/// The end of a reviewed run, as the commit stores it.
#[derive(Clone, Debug)]
pub struct ReviewEnd {
    /// The reviewed run.
    pub execution_id: ExecutionId,
    /// The new status. If the status is not completed, the commit erases the stored answer.
    pub status: Status,
    /// The outcome of the run.
    pub outcome: ExecutionOutcome,
    /// The error, if the run ends without an answer.
    pub error: Option<RunError>,
    /// The evidence artifact that records the verdict and its author.
    pub artifact: Option<EvidenceArtifact>,
    /// The obligations that the end of the run fulfils.
    pub fulfilled: Vec<Obligation>,
    /// Whether the commit must precede the review deadline.
    pub deadline_check: DeadlineCheck,
    /// The time of the end.
    pub finished_at: Timestamp,
    /// The fact of the end.
    pub fact: Fact,
}

/// A loaded run that awaits a review.
#[derive(Clone, Copy, Debug)]
pub struct PendingReview<'r>(&'r EvidenceRecord);

impl<'r> PendingReview<'r> {
    /// Creates the pending review of a record.
    ///
    /// # Errors
    /// If the run does not await a review.
    pub fn from_record(record: &'r EvidenceRecord) -> Result<Self, ReviewRefusal> {
        match record.execution.status {
            Status::AwaitingReview => Ok(Self(record)),
            Status::Queued
            | Status::Running
            | Status::Completed
            | Status::Failed
            | Status::Denied
            | Status::Cancelled
            | Status::Unknown => Err(ReviewRefusal::NotPending),
        }
    }

    /// Authorizes an actor to read the answer before a verdict.
    ///
    /// # Errors
    /// If the actor is the submitter or the delegate of the run. A submitter sees the answer only after another person
    /// approves it.
    pub fn authorize_reader(self, actor: &ActorRef) -> Result<(), ReviewRefusal> {
        if self.is_own_run(actor) { Err(ReviewRefusal::OwnRun) } else { Ok(()) }
    }

    /// Ends the run with a reviewer's verdict. The note is stored separately, so that it can be erased.
    ///
    /// # Errors
    /// If the reviewer is the submitter or the delegate of the run.
    pub fn decide(
        self,
        verdict: AnswerVerdict,
        note: Option<&Note>,
        stamp: &Stamp,
        moment: Moment,
    ) -> Result<ReviewEnd, ReviewRefusal> {
        if self.is_own_run(&stamp.actor) {
            return Err(ReviewRefusal::OwnRun);
        }
        let (status, outcome, error) = match verdict {
            AnswerVerdict::Approved => (Status::Completed, ExecutionOutcome::Success, None),
            AnswerVerdict::Rejected => {
                let error = RunError::new(REJECTED_CODE, "a reviewer rejected the answer");
                (Status::Denied, ExecutionOutcome::Denied, Some(error))
            }
        };
        let categories: &[NotificationCategory] = match verdict {
            AnswerVerdict::Approved => &[NotificationCategory::Approvals],
            AnswerVerdict::Rejected => &[NotificationCategory::Approvals, NotificationCategory::Executions],
        };
        let detail = json!({
            "verdict": verdict.as_str(),
            "outcome": outcome.as_str(),
            "error_code": error.as_ref().map(|error| &error.code),
            "output_digest": self.0.output_digest.as_ref().map(digest_text),
        });
        let fact = self
            .run_ref()
            .fact(FactKind::ExecutionReviewed, detail, stamp)
            .with_notification_categories(categories.iter().copied());
        let artifact = self.verdict_artifact(verdict, note, stamp, moment);
        let fact = fact.with_records_digest(&RunRecords::of_artifact(&artifact));
        let mut end = self.end(status, outcome, error, fact, stamp);
        end.fulfilled.push(Obligation::HumanReview);
        Ok(ReviewEnd { artifact: Some(artifact), deadline_check: DeadlineCheck::Required, ..end })
    }

    /// Ends the run because of a cancellation.
    #[must_use]
    pub fn cancel(self, stamp: &Stamp) -> ReviewEnd {
        self.end_without_answer("cancelled", "the run was cancelled", stamp)
    }

    /// Ends the run because its workload no longer accepts runs, or because the review period expired.
    #[must_use]
    pub fn end_without_verdict(self, workload: workload::Status, stamp: &Stamp) -> ReviewEnd {
        let (code, message) = match workload {
            workload::Status::Registered => ("review_lapsed", "the answer was not reviewed in time"),
            workload::Status::Suspended => ("workload_suspended", "the workload was suspended"),
            workload::Status::Retired => ("workload_retired", "the workload was retired"),
        };
        self.end_without_answer(code, message, stamp)
    }

    /// The fact that an actor tried to review its own run and was refused.
    #[must_use]
    pub fn self_review_refused_fact(self, stamp: &Stamp) -> Fact {
        let fact = self.run_ref().fact(FactKind::SelfReviewRefused, json!({}), stamp);
        fact.with_notification_categories([NotificationCategory::ComplianceFindings])
    }

    fn is_own_run(self, actor: &ActorRef) -> bool {
        let run = &self.0.execution;
        run.submitter == *actor || run.delegate.as_ref() == Some(actor)
    }

    fn run_ref(&self) -> RunRef<'r> {
        let run = &self.0.execution;
        RunRef {
            execution_id: run.execution_id,
            workload_id: run.workload_id,
            workspace_id: run.workspace_id,
            release_id: run.release_id,
            environment: &run.environment,
            input_digest: self.0.input_digest,
        }
    }

    fn end_without_answer(self, code: &str, message: &str, stamp: &Stamp) -> ReviewEnd {
        let fact = self.run_ref().ended_fact(ExecutionOutcome::Cancelled, Some(code), None, stamp);
        // This member tells a verifier to require the fact of the review request, because that fact names the
        // run's records.
        let fact = fact.merge_detail(json!({ REVIEW_REQUESTED_MEMBER: true }));
        self.end(Status::Cancelled, ExecutionOutcome::Cancelled, Some(RunError::new(code, message)), fact, stamp)
    }

    /// Builds the record that ends the run. Its fact notifies the workload's owner if a decision imposed
    /// `notify_owner`.
    fn end(
        self,
        status: Status,
        outcome: ExecutionOutcome,
        error: Option<RunError>,
        fact: Fact,
        stamp: &Stamp,
    ) -> ReviewEnd {
        let imposed = self.0.decisions.iter().flat_map(|decision| &decision.obligations);
        let must_notify_owner = imposed.into_iter().any(|name| name == Obligation::NotifyOwner.as_str());
        let (fact, fulfilled) = if must_notify_owner {
            (fact.notifying_owner(&self.0.chain.workload.owner_ref), vec![Obligation::NotifyOwner])
        } else {
            (fact, Vec::new())
        };
        ReviewEnd {
            execution_id: self.0.execution.execution_id,
            status,
            outcome,
            error,
            artifact: None,
            fulfilled,
            deadline_check: DeadlineCheck::NotRequired,
            finished_at: stamp.at,
            fact,
        }
    }

    fn verdict_artifact(
        self,
        verdict: AnswerVerdict,
        note: Option<&Note>,
        stamp: &Stamp,
        mut moment: Moment,
    ) -> EvidenceArtifact {
        let note =
            note.map(|note| Payload { body: json!({ "note": note.as_str() }).to_string().into(), salt: moment.salt() });
        let body = Map::from_iter([
            ("outcome".to_owned(), json!(verdict.as_str())),
            ("reviewed_by".to_owned(), json!(stamp.actor.to_string())),
            ("reviewed_at".to_owned(), json!(stamp.at)),
            ("output_digest".to_owned(), json!(self.0.output_digest.as_ref().map(digest_text))),
            ("note_digest".to_owned(), note.as_ref().map_or(Value::Null, |note| json!(digest_text(&note.digest())))),
        ]);
        let artifact_id = moment.new_id().into();
        EvidenceArtifact {
            artifact_id,
            kind: "review",
            storage_ref: ArtifactPath::of_evidence(self.0.execution.execution_id, artifact_id, "review.json"),
            body,
            payload: note,
            created_at: stamp.at,
        }
    }
}

impl RunRef<'_> {
    /// The fact that the answer of the run awaits review.
    #[must_use]
    pub fn review_requested_fact(&self, output: Option<&Payload>, stamp: &Stamp) -> Fact {
        let detail = json!({ "output_digest": output.map(|output| digest_text(&output.digest())) });
        self.fact(FactKind::ExecutionReviewRequested, detail, stamp)
            .with_notification_categories([NotificationCategory::Approvals])
    }
}

/// A pending review whose period expired, or whose workload no longer accepts runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExpiredReview {
    /// The tenant of the run.
    pub scope: TenantScope,
    /// The run that awaited the review.
    pub execution_id: ExecutionId,
    /// The status of its workload.
    pub workload_status: workload::Status,
}

/// Stores pending reviews.
#[async_trait]
pub trait ReviewStore: Send + Sync {
    /// Finds the answer under review; `None` when the run no longer awaits a review.
    async fn find_pending(&self, scope: TenantScope, id: ExecutionId) -> Result<Option<AnswerUnderReview>, StoreError>;
    /// Ends a review in one statement. Fails with `Stale` if the run no longer awaits a review, or if a verdict
    /// comes after the review deadline.
    async fn commit_end(
        &self,
        scope: TenantScope,
        end: &ReviewEnd,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
    /// Lists a batch of expired reviews, by the clock of the store.
    async fn list_expired(&self) -> Result<Vec<ExpiredReview>, StoreError>;
}
