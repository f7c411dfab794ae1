//! Human review: a policy can require that a person approves the answer of a run.
//!
//! The steps of such a run are complete, and no worker holds its lease. A verdict, a cancellation or the expiry of the
//! review period ends the run. One process deletes the row of the pending review, and only that process stores the end
//! of the run.

use super::{ExecutionOutcome, Payload, RunError, RunRef, Status, format_digest};
use crate::{
    access::ActorRef,
    asset::artifact_store::ArtifactPath,
    audit::{Fact, FactKind, Stamp},
    evidence::{
        EvidenceArtifact, RunEvidence,
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

/// The error code of a run whose answer a reviewer rejected.
pub const REJECTED_CODE: &str = "review_rejected";

/// The verdict of a reviewer on the answer of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AnswerVerdict {
    /// The reviewer permits that the submitter sees the answer.
    Approved,
    /// The reviewer forbids that the submitter sees the answer.
    Rejected,
}

impl AnswerVerdict {
    /// Every verdict.
    pub const ALL: [Self; 2] = [Self::Approved, Self::Rejected];

    /// The wire form, such as `approved`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Approved => "approved",
            Self::Rejected => "rejected",
        }
    }

    /// Parses the wire form; `None` for an unknown text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verdict| verdict.as_str() == text)
    }
}

/// An answer that awaits the verdict of a reviewer.
#[derive(Clone, PartialEq, Debug)]
pub struct AnswerUnderReview {
    /// The answer as stored JSON with the members `output` and `metadata`.
    pub stored_answer: String,
    /// The time from which the review period runs.
    pub requested_at: Timestamp,
    /// The time at which the review period ends.
    pub expires_at: Timestamp,
}

/// The reason why a verdict is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReviewRefusal {
    /// The run does not await a review.
    #[error("the run does not await a review")]
    NotPending,
    /// The reviewer is the submitter or the delegate of the run.
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

/// Whether the commit of a review's end must precede the end of the review period.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeadlineEnforcement {
    /// The store refuses the commit after the review period.
    Required,
    /// The store accepts the commit at any time.
    NotRequired,
}

/// The end of a run that awaited review, as the commit stores it.
#[derive(Clone, Debug)]
pub struct ReviewedRunEnd {
    /// The identifier of the reviewed run.
    pub execution_id: ExecutionId,
    /// The status of the run after the commit. Unless the status is `completed`, the commit erases the stored answer.
    pub status: Status,
    /// The outcome of the run after the commit.
    pub outcome: ExecutionOutcome,
    /// The error; `None` if the run ends with its answer.
    pub error: Option<RunError>,
    /// The evidence artifact with the verdict and its author; `None` if the run ends without a verdict.
    pub artifact: Option<EvidenceArtifact>,
    /// The obligations that the end of the run fulfils.
    pub fulfilled: Vec<Obligation>,
    /// Whether the store refuses the commit after the review period.
    pub deadline_check: DeadlineEnforcement,
    /// The time at which the run ends.
    pub finished_at: Timestamp,
    /// The audit fact that records the end of the run.
    pub fact: Fact,
}

/// The evidence of a run that awaits review. The type proves that the status was checked.
#[derive(Clone, Copy, Debug)]
pub struct PendingReview<'r>(&'r RunEvidence);

impl<'r> PendingReview<'r> {
    /// Checks that the run awaits review.
    ///
    /// # Errors
    /// If the run does not await a review.
    pub fn require_awaiting_review(record: &'r RunEvidence) -> Result<Self, ReviewRefusal> {
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

    /// Permits an actor to read the answer before the verdict.
    ///
    /// # Errors
    /// If the actor is the submitter or the delegate of the run. A submitter sees the answer only after another person
    /// approves it.
    pub fn authorize_reader(self, actor: &ActorRef) -> Result<(), ReviewRefusal> {
        if self.is_own_run(actor) { Err(ReviewRefusal::OwnRun) } else { Ok(()) }
    }

    /// Ends the run with the verdict of a reviewer. The reviewer's note is stored separately, so that it can be erased.
    ///
    /// # Errors
    /// If the reviewer is the submitter or the delegate of the run.
    pub fn decide(
        self,
        verdict: AnswerVerdict,
        note: Option<&Note>,
        stamp: &Stamp,
        moment: Moment,
    ) -> Result<ReviewedRunEnd, ReviewRefusal> {
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
            "output_digest": self.0.output_digest.as_ref().map(format_digest),
        });
        let fact = self
            .run_ref()
            .fact(FactKind::ExecutionReviewed, detail, stamp)
            .with_notification_categories(categories.iter().copied());
        let artifact = self.verdict_artifact(verdict, note, stamp, moment);
        let fact = fact.with_records_digest(&RunRecords::of_artifact(&artifact));
        let mut end = self.end(status, outcome, error, fact, stamp);
        end.fulfilled.push(Obligation::HumanReview);
        Ok(ReviewedRunEnd { artifact: Some(artifact), deadline_check: DeadlineEnforcement::Required, ..end })
    }

    /// Ends the run without its answer, because an actor cancelled it.
    #[must_use]
    pub fn cancel(self, stamp: &Stamp) -> ReviewedRunEnd {
        self.end_without_answer("cancelled", "the run was cancelled", stamp)
    }

    /// Ends the run without its answer, because its workload no longer accepts runs or the review period is over.
    #[must_use]
    pub fn end_without_verdict(self, workload: workload::WorkloadStatus, stamp: &Stamp) -> ReviewedRunEnd {
        let (code, message) = match workload {
            workload::WorkloadStatus::Registered => ("review_lapsed", "the answer was not reviewed in time"),
            workload::WorkloadStatus::Suspended => ("workload_suspended", "the workload was suspended"),
            workload::WorkloadStatus::Retired => ("workload_retired", "the workload was retired"),
        };
        self.end_without_answer(code, message, stamp)
    }

    /// Builds the fact that an actor tried to review its own run.
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

    fn end_without_answer(self, code: &str, message: &str, stamp: &Stamp) -> ReviewedRunEnd {
        let fact = self.run_ref().ended_fact(ExecutionOutcome::Cancelled, Some(code), None, stamp);
        // A verifier that finds this member also requires the fact of the review request, because that earlier fact
        // names the records of the run.
        let fact = fact.merge_detail(json!({ REVIEW_REQUESTED_MEMBER: true }));
        self.end(Status::Cancelled, ExecutionOutcome::Cancelled, Some(RunError::new(code, message)), fact, stamp)
    }

    /// Builds the end of the run. Its fact notifies the owner of the workload if a policy decision imposed
    /// `notify_owner`.
    fn end(
        self,
        status: Status,
        outcome: ExecutionOutcome,
        error: Option<RunError>,
        fact: Fact,
        stamp: &Stamp,
    ) -> ReviewedRunEnd {
        let imposed = self.0.decisions.iter().flat_map(|decision| &decision.obligations);
        let must_notify_owner = imposed.into_iter().any(|name| name == Obligation::NotifyOwner.as_str());
        let (fact, fulfilled) = if must_notify_owner {
            (fact.notifying_owner(&self.0.chain.workload.owner_ref), vec![Obligation::NotifyOwner])
        } else {
            (fact, Vec::new())
        };
        ReviewedRunEnd {
            execution_id: self.0.execution.execution_id,
            status,
            outcome,
            error,
            artifact: None,
            fulfilled,
            deadline_check: DeadlineEnforcement::NotRequired,
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
        let note = note
            .map(|note| Payload { body: json!({ "note": note.as_str() }).to_string().into(), salt: moment.new_salt() });
        let body = Map::from_iter([
            ("outcome".to_owned(), json!(verdict.as_str())),
            ("reviewed_by".to_owned(), json!(stamp.actor.to_string())),
            ("reviewed_at".to_owned(), json!(stamp.at)),
            ("output_digest".to_owned(), json!(self.0.output_digest.as_ref().map(format_digest))),
            ("note_digest".to_owned(), note.as_ref().map_or(Value::Null, |note| json!(format_digest(&note.digest())))),
        ]);
        let artifact_id = moment.new_id().into();
        EvidenceArtifact {
            artifact_id,
            kind: "review",
            storage_ref: ArtifactPath::of_database_evidence(self.0.execution.execution_id, artifact_id, "review.json"),
            body,
            payload: note,
            created_at: stamp.at,
        }
    }
}

impl RunRef<'_> {
    /// Builds the fact that the answer of the run awaits review.
    #[must_use]
    pub fn review_requested_fact(&self, output: Option<&Payload>, stamp: &Stamp) -> Fact {
        let detail = json!({ "output_digest": output.map(|output| format_digest(&output.digest())) });
        self.fact(FactKind::ExecutionReviewRequested, detail, stamp)
            .with_notification_categories([NotificationCategory::Approvals])
    }
}

/// A run whose review period is over, or whose workload no longer accepts runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReviewDueToEnd {
    /// The tenant to which the run belongs.
    pub scope: TenantScope,
    /// The run that awaited the review.
    pub execution_id: ExecutionId,
    /// The status of the workload, which determines the error of the run.
    pub workload_status: workload::WorkloadStatus,
}

/// Stores pending reviews and their ends.
#[async_trait]
pub trait ReviewStore: Send + Sync {
    /// Finds the answer that awaits review; `None` if the run no longer awaits one.
    async fn find_pending(&self, scope: TenantScope, id: ExecutionId) -> Result<Option<AnswerUnderReview>, StoreError>;
    /// Stores the end of a review in one statement. Fails with `Stale` if the run no longer awaits review, or if a
    /// verdict comes after the review period.
    async fn commit_end(
        &self,
        scope: TenantScope,
        end: &ReviewedRunEnd,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
    /// Lists a batch of expired reviews. The clock of the store decides which are expired.
    async fn list_expired(&self) -> Result<Vec<ReviewDueToEnd>, StoreError>;
}
