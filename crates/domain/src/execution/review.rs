//! Reviews: where a policy wants it, a person looks at the answer of a run before it counts.
//!
//! The steps of such a run are over and nobody works on it. It ends by a verdict, by being stopped, or when nobody gave a
//! verdict in time; whoever takes its row out of the waiting ones writes the end.

use super::{Outcome, Payload, RunError, RunRef, Status, digest_text};
use crate::{
    access::ActorRef,
    asset::ports::ArtifactPath,
    audit::{Fact, FactKind, Stamp},
    evidence::{EvidenceArtifact, EvidenceRecord},
    id::{ExecutionId, Ids},
    idempotency::KeyedOutcome,
    notification::Category,
    policy::Obligation,
    store::{CommitError, StoreError},
    tenant::TenantScope,
    time::Timestamp,
    workload,
};
use async_trait::async_trait;
use serde_json::{Map, Value, json};

/// Longest note to a verdict, in characters.
pub const MAX_NOTE: usize = 2_000;

/// The code of a run whose answer a person refused.
pub const REJECTED: &str = "review_rejected";

/// What a person says of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It may be shown.
    Approved,
    /// It may not.
    Rejected,
}

impl Verdict {
    /// Every verdict.
    pub const ALL: [Self; 2] = [Self::Approved, Self::Rejected];

    /// The spelling on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Approved => "approved",
            Self::Rejected => "rejected",
        }
    }

    /// The verdict of that spelling.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verdict| verdict.as_str() == text)
    }
}

/// What whoever gives a verdict looks at.
#[derive(Clone, PartialEq, Debug)]
pub struct AwaitingAnswer {
    /// The answer as it is kept: `output`, and `metadata` by which providers told of it.
    pub kept: String,
    /// Since when it waits.
    pub asked_at: Timestamp,
    /// Until when.
    pub lapses_at: Timestamp,
}

/// Why a verdict is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReviewRefusal {
    /// The run does not wait for one, or not any more.
    #[error("the run waits for no verdict")]
    NotPending,
    /// The run is the reviewer's own, or was sent by it.
    #[error("who sent a run may not review it")]
    Own,
}

impl ReviewRefusal {
    /// The stable code of the refusal.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::NotPending => "review_not_pending",
            Self::Own => "self_approval_not_allowed",
        }
    }
}

/// Whether an end has to come before the time for a verdict is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InTime {
    /// It has to.
    Needed,
    /// It comes when it comes.
    Unneeded,
}

/// The end of a run that waited: what its commit stores.
#[derive(Clone, Debug)]
pub struct ReviewEnd {
    /// The run.
    pub execution_id: ExecutionId,
    /// Where it is now. Whatever is not completed has no answer, and the one that was kept is erased.
    pub status: Status,
    /// How it ended.
    pub outcome: Outcome,
    /// Why it has no answer.
    pub error: Option<RunError>,
    /// What was said of the answer, and by whom.
    pub artifact: Option<EvidenceArtifact>,
    /// Obligations that were fulfilled by it.
    pub fulfilled: Vec<Obligation>,
    /// Whether it is in time.
    pub in_time: InTime,
    /// When.
    pub finished_at: Timestamp,
    /// The one fact of it.
    pub fact: Fact,
}

/// A run that waits for a person, as it was read.
#[derive(Clone, Copy, Debug)]
pub struct PendingReview<'r>(&'r EvidenceRecord);

impl<'r> PendingReview<'r> {
    /// The run of that record.
    ///
    /// # Errors
    /// When it does not wait.
    pub fn of(record: &'r EvidenceRecord) -> Result<Self, ReviewRefusal> {
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

    /// Whether somebody may look at the answer before giving a verdict on it.
    ///
    /// # Errors
    /// When the run is its own: its submitter sees the answer when somebody else has approved it.
    pub fn show_to(self, actor: &ActorRef) -> Result<(), ReviewRefusal> {
        if self.is_own(actor) { Err(ReviewRefusal::Own) } else { Ok(()) }
    }

    /// Ends it by a person's verdict. Its note is kept apart from the rest, where it can be erased.
    ///
    /// # Errors
    /// When the run is the reviewer's own.
    pub fn judge(
        self,
        (verdict, note): (Verdict, Option<&str>),
        stamp: &Stamp,
        ids: &dyn Ids,
    ) -> Result<ReviewEnd, ReviewRefusal> {
        if self.is_own(&stamp.actor) {
            return Err(ReviewRefusal::Own);
        }
        let (status, outcome, error) = match verdict {
            Verdict::Approved => (Status::Completed, Outcome::Success, None),
            Verdict::Rejected => {
                let error = RunError::new(REJECTED, "a person looked at the answer and refused it");
                (Status::Denied, Outcome::Denied, Some(error))
            }
        };
        let categories: &[Category] = match verdict {
            Verdict::Approved => &[Category::Approvals],
            Verdict::Rejected => &[Category::Approvals, Category::Executions],
        };
        let detail = json!({
            "verdict": verdict.as_str(),
            "outcome": outcome.as_str(),
            "error_code": error.as_ref().map(|error| &error.code),
            "output_digest": self.0.output_digest.as_ref().map(digest_text),
        });
        let fact = self.run().fact(FactKind::ExecutionReviewed, detail, stamp).concerning(categories.iter().copied());
        let artifact = Some(self.document(verdict, note, stamp, ids));
        let mut end = self.end((status, outcome, error), fact, stamp);
        end.fulfilled.push(Obligation::HumanReview);
        Ok(ReviewEnd { artifact, in_time: InTime::Needed, ..end })
    }

    /// Ends it because somebody stops it.
    #[must_use]
    pub fn cancel(self, stamp: &Stamp) -> ReviewEnd {
        self.without_answer("cancelled", "the run was cancelled", stamp)
    }

    /// Ends it because its workload takes no runs any more, or because nobody gave a verdict in time.
    #[must_use]
    pub fn lapse(self, workload: workload::Status, stamp: &Stamp) -> ReviewEnd {
        let (code, message) = match workload {
            workload::Status::Registered => ("review_lapsed", "nobody reviewed the answer in time"),
            workload::Status::Suspended => ("workload_suspended", "the workload was suspended"),
            workload::Status::Retired => ("workload_retired", "the workload was retired"),
        };
        self.without_answer(code, message, stamp)
    }

    /// The fact that somebody wanted to review a run of its own.
    #[must_use]
    pub fn self_review_refused(self, stamp: &Stamp) -> Fact {
        let fact = self.run().fact(FactKind::SelfReviewRefused, json!({}), stamp);
        fact.concerning([Category::ComplianceFindings])
    }

    fn is_own(self, actor: &ActorRef) -> bool {
        let run = &self.0.execution;
        run.submitter == *actor || run.delegate.as_ref() == Some(actor)
    }

    fn run(&self) -> RunRef<'r> {
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

    fn without_answer(self, code: &str, message: &str, stamp: &Stamp) -> ReviewEnd {
        let fact = self.run().ended(Outcome::Cancelled, Some(code), None, stamp);
        self.end((Status::Cancelled, Outcome::Cancelled, Some(RunError::new(code, message))), fact, stamp)
    }

    /// The owner is told of the end by its fact, where any decision imposed that.
    fn end(
        self,
        (status, outcome, error): (Status, Outcome, Option<RunError>),
        fact: Fact,
        stamp: &Stamp,
    ) -> ReviewEnd {
        let imposed = self.0.decisions.iter().flat_map(|decision| &decision.obligations);
        let owes_owner = imposed.into_iter().any(|name| name == Obligation::NotifyOwner.as_str());
        let (fact, fulfilled) = if owes_owner {
            (fact.notifying(&self.0.chain.workload.owner_ref), vec![Obligation::NotifyOwner])
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
            in_time: InTime::Unneeded,
            finished_at: stamp.at,
            fact,
        }
    }

    fn document(self, verdict: Verdict, note: Option<&str>, stamp: &Stamp, ids: &dyn Ids) -> EvidenceArtifact {
        let note = note.map(|note| Payload { body: json!({ "note": note }).to_string(), salt: ids.salt() });
        let body = Map::from_iter([
            ("outcome".to_owned(), json!(verdict.as_str())),
            ("reviewed_by".to_owned(), json!(stamp.actor.to_string())),
            ("reviewed_at".to_owned(), json!(stamp.at)),
            ("output_digest".to_owned(), json!(self.0.output_digest.as_ref().map(digest_text))),
            ("note_digest".to_owned(), note.as_ref().map_or(Value::Null, |note| json!(digest_text(&note.digest())))),
        ]);
        let artifact_id = ids.fresh().into();
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
    /// The fact that the answer of the run waits for a person.
    #[must_use]
    pub fn review_asked(&self, output: Option<&Payload>, stamp: &Stamp) -> Fact {
        let detail = json!({ "output_digest": output.map(|output| digest_text(&output.digest())) });
        self.fact(FactKind::ExecutionReviewAsked, detail, stamp).concerning([Category::Approvals])
    }
}

/// A run that waited long enough, or whose workload takes no runs any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overdue {
    /// Whose it is.
    pub scope: TenantScope,
    /// The run.
    pub execution_id: ExecutionId,
    /// How its workload stands.
    pub workload: workload::Status,
}

/// Keeps the runs that wait for a person.
#[async_trait]
pub trait ReviewStore: Send + Sync {
    /// The answer of a run that waits; `None` where it does not wait any more.
    async fn awaiting(&self, scope: TenantScope, id: ExecutionId) -> Result<Option<AwaitingAnswer>, StoreError>;
    /// Ends one in one statement. Stale when it does not wait any more, or when it is too late for a verdict.
    async fn commit_end(
        &self,
        scope: TenantScope,
        end: &ReviewEnd,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
    /// A few of those whose time is over, by the store's clock.
    async fn overdue(&self) -> Result<Vec<Overdue>, StoreError>;
}
