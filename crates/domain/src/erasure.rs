//! Erasure of a person's texts: one administrator requests the erasure, another administrator approves it, and a
//! background task erases the texts in batches.
//!
//! An erasure covers the runs that its subject started before the approval, with their conversation turns. It also
//! covers the documents that the subject added before the approval. It waits until the runs have ended. Digests, facts
//! and governance chains are kept, so that evidence remains verifiable.

use crate::{
    access::{ActorKind, ActorRef},
    audit::{Fact, FactKind, FactSubject, Stamp},
    id::ErasureId,
    idempotency::KeyedOutcome,
    notification_category::NotificationCategory,
    store::{Change, CommitError, Page, PageRequest, Revision, StoreError, aggregate},
    tenant::TenantScope,
    time::Timestamp,
};
use async_trait::async_trait;
use serde_json::{Value, json};
use std::time::Duration;
use uuid::Uuid;

/// The status of an erasure, from its request to its completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErasureStatus {
    /// The request awaits a decision.
    Requested,
    /// The request is approved, and the background task erases the texts.
    Approved,
    /// The request was refused or withdrawn, and no text is erased.
    Refused,
    /// All texts are erased.
    Completed,
}

impl ErasureStatus {
    /// Every status, in the order of declaration.
    pub const ALL: [Self; 4] = [Self::Requested, Self::Approved, Self::Refused, Self::Completed];

    /// The wire form, such as `requested`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Approved => "approved",
            Self::Refused => "refused",
            Self::Completed => "completed",
        }
    }

    /// Parses the wire form; `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|value| value.as_str() == text)
    }
}

/// The numbers of erased items so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ErasureCounts {
    /// Number of runs whose texts are erased.
    pub runs: u64,
    /// Number of erased conversation turns.
    pub turns: u64,
    /// Number of erased documents of knowledge bases.
    pub documents: u64,
}

/// The erasure of the texts of one subject in one tenant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SubjectErasure(pub(crate) ErasureRecord);

/// The fields of [`SubjectErasure`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ErasureRecord {
    /// The identifier by which the erasure is decided and read.
    pub erasure_id: ErasureId,
    /// The actor whose texts are erased.
    pub subject: ActorRef,
    /// Whether the erasure is requested, decided or completed.
    pub status: ErasureStatus,
    /// The actor that requested the erasure.
    pub requested_by: ActorRef,
    /// When the erasure was requested.
    pub requested_at: Timestamp,
    /// The actor that approved, refused or withdrew the erasure; `None` until then.
    pub decided_by: Option<ActorRef>,
    /// When the erasure was approved, refused or withdrawn; `None` until then.
    pub decided_at: Option<Timestamp>,
    /// The identifier of the approval's fact; `None` without an approval. Identifiers contain the time, so the erasure
    /// covers the runs and documents with a lower identifier.
    pub covers_before: Option<Uuid>,
    /// When the erasure was completed; `None` until then.
    pub completed_at: Option<Timestamp>,
    /// The numbers of erased items so far.
    pub counts: ErasureCounts,
    /// Increments with each decision and each batch.
    pub revision: Revision,
}

aggregate!(SubjectErasure, ErasureRecord);

/// The reason why a change of an erasure is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ErasureRefusal {
    /// The subject is not a user, a service or a share link.
    #[error("must be a `user:`, `service:` or `share_link:` reference")]
    Subject,
    /// The requester of an erasure tried to approve it.
    #[error("an erasure is approved by another person than the one who requested it")]
    SelfApproval,
    /// The erasure was already approved, refused or withdrawn.
    #[error("the erasure was decided before")]
    NotRequested {
        /// The status in which the erasure already is.
        status: ErasureStatus,
    },
    /// The erasure is not in the status `approved`.
    #[error("the erasure is not approved")]
    NotApproved,
}

impl SubjectErasure {
    /// The maximum length of a subject, in characters.
    pub const MAX_SUBJECT_CHARS: usize = ActorRef::MAX_CHARS;
    /// Time after the approval until every run and ingest with an earlier identifier has been committed or has failed.
    /// An ingest can wait a minute for embeddings, half a minute for a database connection, and half a minute for its
    /// statement.
    pub const SETTLING_PERIOD: Duration = Duration::from_secs(180);

    /// Whether an actor can be the subject of an erasure: a user, a service or the holder of a share link.
    #[must_use]
    pub const fn can_be_subject(actor: &ActorRef) -> bool {
        match actor.kind() {
            ActorKind::User | ActorKind::Service | ActorKind::ShareLink => true,
            ActorKind::Group | ActorKind::System | ActorKind::Anonymous => false,
        }
    }

    /// Requests an erasure. An unknown subject is accepted, because a refusal would reveal who uses the tenant.
    ///
    /// # Errors
    /// When the subject is `anonymous`, a group or a component, whose texts belong to no single person.
    pub fn request(erasure_id: ErasureId, subject: ActorRef, stamp: &Stamp) -> Result<Change<Self>, ErasureRefusal> {
        if !Self::can_be_subject(&subject) {
            return Err(ErasureRefusal::Subject);
        }
        let next = Self(ErasureRecord {
            erasure_id,
            subject,
            status: ErasureStatus::Requested,
            requested_by: stamp.actor.clone(),
            requested_at: stamp.at,
            decided_by: None,
            decided_at: None,
            covers_before: None,
            completed_at: None,
            counts: ErasureCounts::default(),
            revision: Revision::FIRST,
        });
        let detail = json!({ "erased_actor": next.subject });
        let fact = next
            .fact(FactKind::ErasureRequested, stamp, detail)
            .with_notification_categories([NotificationCategory::Approvals]);
        Ok(Change::create(next, fact))
    }

    /// Approves the erasure. It then covers the runs that the subject started, and the documents that it added, before
    /// the approval.
    ///
    /// # Errors
    /// When the erasure was decided before, or the approver requested it.
    pub fn approve(&self, stamp: &Stamp) -> Result<Change<Self>, ErasureRefusal> {
        self.check_requested()?;
        if stamp.actor == self.requested_by {
            return Err(ErasureRefusal::SelfApproval);
        }
        let next = Self(ErasureRecord {
            status: ErasureStatus::Approved,
            covers_before: Some(stamp.fact_id.uuid()),
            ..self.decided_record(stamp)
        });
        Ok(self.decision_change(next, FactKind::ErasureApproved, stamp))
    }

    /// Refuses the erasure. A refusal by the requester withdraws it.
    ///
    /// # Errors
    /// When the erasure was decided before.
    pub fn refuse(&self, stamp: &Stamp) -> Result<Change<Self>, ErasureRefusal> {
        self.check_requested()?;
        let next = Self(ErasureRecord { status: ErasureStatus::Refused, ..self.decided_record(stamp) });
        Ok(self.decision_change(next, FactKind::ErasureRefused, stamp))
    }

    /// Completes the erasure after its last batch. The fact contains the counts.
    ///
    /// # Errors
    /// When the erasure is not in the status `approved`.
    pub fn complete(&self, stamp: &Stamp) -> Result<Change<Self>, ErasureRefusal> {
        if self.status != ErasureStatus::Approved {
            return Err(ErasureRefusal::NotApproved);
        }
        let next = Self(ErasureRecord {
            status: ErasureStatus::Completed,
            completed_at: Some(stamp.at),
            revision: self.revision.next(),
            ..self.0.clone()
        });
        let ErasureCounts { runs, turns, documents } = self.counts;
        let detail = json!({ "erased_actor": self.subject, "runs": runs, "turns": turns, "documents": documents });
        let fact = self
            .fact(FactKind::ErasureCompleted, stamp, detail)
            .with_notification_categories([NotificationCategory::Reports]);
        Ok(Change::replace(next, self.revision, fact))
    }

    /// The fact that a requester tried to approve its own erasure.
    #[must_use]
    pub fn self_approval_refused_fact(&self, stamp: &Stamp) -> Fact {
        self.fact(FactKind::ErasureSelfApprovalRefused, stamp, json!({ "erased_actor": self.subject }))
            .with_notification_categories([NotificationCategory::ComplianceFindings])
    }

    const fn check_requested(&self) -> Result<(), ErasureRefusal> {
        match self.0.status {
            ErasureStatus::Requested => Ok(()),
            ErasureStatus::Approved | ErasureStatus::Refused | ErasureStatus::Completed => {
                Err(ErasureRefusal::NotRequested { status: self.0.status })
            }
        }
    }

    fn decided_record(&self, stamp: &Stamp) -> ErasureRecord {
        ErasureRecord {
            decided_by: Some(stamp.actor.clone()),
            decided_at: Some(stamp.at),
            revision: self.revision.next(),
            ..self.0.clone()
        }
    }

    fn decision_change(&self, next: Self, kind: FactKind, stamp: &Stamp) -> Change<Self> {
        let detail = json!({ "erased_actor": self.subject, "requested_by": self.requested_by });
        let fact = self.fact(kind, stamp, detail).with_notification_categories([NotificationCategory::Approvals]);
        Change::replace(next, self.revision, fact)
    }

    fn fact(&self, kind: FactKind, stamp: &Stamp, detail: Value) -> Fact {
        Fact::new(kind, FactSubject { kind: "erasure", id: self.erasure_id.uuid() }, None, stamp, detail)
    }
}

/// The erasure that removed the texts of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CoveringErasure {
    /// The erasure that covers the run.
    pub erasure_id: ErasureId,
    /// When the texts were erased.
    pub erased_at: Timestamp,
}

/// The state of an erasure after one of its batches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErasureBatchOutcome {
    /// More texts remain, so another batch must follow.
    More,
    /// The erasure must wait. Either a run of the subject is active, or an operation that began before the approval may
    /// still be in progress.
    Waiting,
    /// No text of the erasure remains.
    Done,
    /// Another process is executing the erasure or has completed it, so this process must leave it.
    Taken,
}

impl ErasureBatchOutcome {
    /// Every outcome, in the order of declaration.
    pub const ALL: [Self; 4] = [Self::More, Self::Waiting, Self::Done, Self::Taken];

    /// The stored form, such as `more`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::More => "more",
            Self::Waiting => "waiting",
            Self::Done => "done",
            Self::Taken => "taken",
        }
    }

    /// Parses the stored form; `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|value| value.as_str() == text)
    }
}

/// Stores erasures and executes them.
#[async_trait]
pub trait ErasureStore: Send + Sync {
    /// Finds an erasure by its identifier; `None` if the tenant does not have it.
    async fn find(&self, scope: TenantScope, id: ErasureId) -> Result<Option<SubjectErasure>, StoreError>;
    /// A page of a tenant's erasures, newest first.
    async fn list(
        &self,
        scope: TenantScope,
        status: Option<ErasureStatus>,
        page: PageRequest,
    ) -> Result<Page<SubjectErasure>, StoreError>;
    /// Stores a requested erasure.
    async fn commit_request(
        &self,
        scope: TenantScope,
        change: Change<SubjectErasure>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
    /// Stores a decision; [`CommitError::Stale`] when the erasure changed since it was read. An approved erasure cannot
    /// complete before [`SubjectErasure::SETTLING_PERIOD`] has passed, by the database's clock.
    async fn commit_decision(
        &self,
        scope: TenantScope,
        change: Change<SubjectErasure>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
    /// Stores the completion; [`CommitError::Stale`] when the erasure changed since it was read.
    async fn commit_completion(&self, scope: TenantScope, change: Change<SubjectErasure>) -> Result<(), CommitError>;
    /// The approved erasures that are not completed: at most one for each tenant, and up to a limit of the store.
    /// Erasures that wait for a run come last.
    async fn list_approved(&self) -> Result<Vec<(TenantScope, ErasureId)>, StoreError>;
    /// Erases the next batch of texts. The same transaction stores the progress of the erasure.
    async fn erase_batch(&self, scope: TenantScope, id: ErasureId) -> Result<ErasureBatchOutcome, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(number: u128, actor: &str) -> Stamp {
        Stamp {
            fact_id: Uuid::from_u128(number).into(),
            at: Timestamp::parse("2026-11-28T07:00:00Z").unwrap(),
            actor: ActorRef::parse(actor).unwrap(),
            request_id: Uuid::from_u128(2).into(),
        }
    }

    fn request_erasure(subject: &str) -> Result<SubjectErasure, ErasureRefusal> {
        let subject = ActorRef::parse(subject).unwrap();
        SubjectErasure::request(Uuid::from_u128(9).into(), subject, &stamp(1, "user:ada"))
            .map(|change| change.next.clone())
    }

    #[test]
    fn subjects_are_single_actors_that_start_runs() {
        for subject in ["user:eve", "service:ci", "share_link:0190"] {
            assert!(request_erasure(subject).is_ok(), "{subject}");
        }
        for subject in ["anonymous", "group:staff", "system:sequencer"] {
            assert_eq!(request_erasure(subject).unwrap_err(), ErasureRefusal::Subject, "{subject}");
        }
    }

    #[test]
    fn requester_cannot_approve_erasure() {
        let erasure = request_erasure("user:eve").unwrap();
        assert_eq!(erasure.approve(&stamp(3, "user:ada")).unwrap_err(), ErasureRefusal::SelfApproval);
        assert!(erasure.refuse(&stamp(3, "user:ada")).is_ok(), "the requester withdraws");
        let approved = erasure.approve(&stamp(4, "user:grace")).unwrap();
        assert_eq!(approved.next.covers_before, Some(Uuid::from_u128(4)));
        assert_eq!(approved.expected_revision, Some(Revision::FIRST));
    }

    #[test]
    fn each_erasure_is_decided_and_completed_once() {
        let erasure = request_erasure("user:eve").unwrap();
        assert_eq!(erasure.complete(&stamp(5, "system:eraser")).unwrap_err(), ErasureRefusal::NotApproved);
        let approved = erasure.approve(&stamp(4, "user:grace")).unwrap().next.clone();
        let completed = approved.complete(&stamp(5, "system:eraser")).unwrap().next.clone();
        let refused = erasure.refuse(&stamp(6, "user:grace")).unwrap().next.clone();
        for decided in [&approved, &completed, &refused] {
            let expected = ErasureRefusal::NotRequested { status: decided.status };
            assert_eq!(decided.approve(&stamp(7, "user:joan")).unwrap_err(), expected);
            assert_eq!(decided.refuse(&stamp(7, "user:joan")).unwrap_err(), expected);
        }
        assert_eq!(completed.complete(&stamp(8, "system:eraser")).unwrap_err(), ErasureRefusal::NotApproved);
    }
}
