//! Executions: the stored records of runs of a workload. Each run is accepted once and ends once.

pub mod dispatch;
pub mod http_call;
pub mod plan;
pub mod ports;
pub mod progress;
pub mod provider;
pub mod provider_check;
pub mod resolve_unknown;
pub mod retrieval;
pub mod review;
pub mod routing;
pub mod run;
pub mod run_metrics_observer;
pub mod script;
pub mod tool;
pub mod usage;

use crate::{
    access::ActorRef,
    audit::{Fact, FactKind, FactSubject, Stamp},
    evidence::{EvidenceArtifact, RecordedDecision, SnapshotDigest, lineage::LineageItem},
    id::{ExecutionId, ReleaseId, ShareLinkId, WorkloadId, WorkspaceId},
    memory::Writeback,
    notification_category::NotificationCategory,
    policy::Obligation,
    release::lane::Lane,
    share_link::TokenHash,
    slug::Slug,
    time::Timestamp,
};
use serde::Serialize;
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use uuid::Uuid;

/// The status of an execution, from the queue to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// The run is queued for a worker.
    Queued,
    /// A process executes the run under a lease.
    Running,
    /// The steps of the run finished, and its answer awaits human review.
    AwaitingReview,
    /// The run ended with an answer.
    Completed,
    /// The run ended without an answer, because of an error.
    Failed,
    /// A policy denied the run.
    Denied,
    /// An actor cancelled the run, or its workload was stopped.
    Cancelled,
    /// It is unknown whether an external effect of the run took place.
    Unknown,
}

impl Status {
    /// Every status.
    pub const ALL: [Self; 8] = [
        Self::Queued,
        Self::Running,
        Self::AwaitingReview,
        Self::Completed,
        Self::Failed,
        Self::Denied,
        Self::Cancelled,
        Self::Unknown,
    ];

    /// The wire form, such as `queued`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::AwaitingReview => "awaiting_review",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Denied => "denied",
            Self::Cancelled => "cancelled",
            Self::Unknown => "unknown",
        }
    }

    /// Parses the wire form; `None` for an unknown text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }

    /// Whether the status is final. `Unknown` is not final, because a person can still resolve the outcome of the run.
    #[must_use]
    pub const fn is_final(self) -> bool {
        match self {
            Self::Completed | Self::Failed | Self::Denied | Self::Cancelled => true,
            Self::Queued | Self::Running | Self::AwaitingReview | Self::Unknown => false,
        }
    }
}

/// The outcome of an ended execution. It distinguishes a timeout from other failures, which the status does not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExecutionOutcome {
    /// The run ended with an answer.
    Success,
    /// The run ended without an answer, because of an error.
    Failure,
    /// A policy denied the run.
    Denied,
    /// An actor cancelled the run, or its workload was stopped.
    Cancelled,
    /// The run exceeded its deadline.
    Timeout,
    /// The outcome cannot be determined.
    Unknown,
}

impl ExecutionOutcome {
    /// Every outcome.
    pub const ALL: [Self; 6] =
        [Self::Success, Self::Failure, Self::Denied, Self::Cancelled, Self::Timeout, Self::Unknown];

    /// The wire form, such as `success`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failure => "failure",
            Self::Denied => "denied",
            Self::Cancelled => "cancelled",
            Self::Timeout => "timeout",
            Self::Unknown => "unknown",
        }
    }

    /// Parses the wire form; `None` for an unknown text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.as_str() == text)
    }
}

/// The error of a run: a stable code and a fixed text for people.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RunError {
    /// The stable code, such as `prompt_argument_missing` or `deadline_exceeded`.
    pub code: String,
    /// The text for people. It never contains inputs or outputs of the run.
    pub message: String,
    /// The byte offset of the affected prompt token, if any.
    pub offset: Option<u32>,
}

impl RunError {
    /// Creates an error that refers to no position in the prompt.
    #[must_use]
    pub fn new(code: &str, message: &str) -> Self {
        Self { code: code.to_owned(), message: message.to_owned(), offset: None }
    }

    /// The error code, if the caller can avoid the error with a different request; otherwise `None`.
    #[must_use]
    pub fn caller_fixable_code(&self) -> Option<&'static str> {
        const CODES: [&str; 8] = [
            "prompt_argument_missing",
            "prompt_argument_type",
            "prompt_too_large",
            "messages_malformed",
            "no_compliant_route",
            "contract_refused",
            "guardrail_blocked",
            "hook_denied",
        ];
        CODES.into_iter().find(|code| *code == self.code)
    }
}

/// JSON text with a random salt. After both are erased, the stored digest reveals nothing about the text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Payload {
    /// The canonical JSON text, shared between the run and the statements that store it.
    pub body: Arc<str>,
    /// The random salt, which prevents guessing the text from its digest.
    pub salt: [u8; 16],
}

impl Payload {
    /// The BLAKE3 hash of the salt followed by the JSON text.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.salt);
        hasher.update(self.body.as_bytes());
        hasher.finalize().into()
    }
}

/// The text form of a digest in facts and evidence: `blake3:` and 64 hexadecimal digits.
#[must_use]
pub fn format_digest(digest: &[u8; 32]) -> String {
    format!("blake3:{}", blake3::Hash::from_bytes(*digest).to_hex())
}

/// An accepted or denied run, as the accept commit stores it.
#[derive(Clone, Debug)]
pub struct Acceptance {
    /// The identifier of the new run.
    pub execution_id: ExecutionId,
    /// The workload that the run executes.
    pub workload_id: WorkloadId,
    /// The workspace to which the workload belongs.
    pub workspace_id: WorkspaceId,
    /// The release that serves the run.
    pub release_id: ReleaseId,
    /// The environment in which the release serves.
    pub environment: Slug,
    /// The lane on which the release serves the run.
    pub lane: Lane,
    /// The actor to whom the run is attributed.
    pub submitter: ActorRef,
    /// The digest of the governance chain at the time of acceptance.
    pub snapshot: SnapshotDigest,
    /// The policy decision that admits or denies the run.
    pub decision: RecordedDecision,
    /// The inputs of the run, as JSON with a salt.
    pub inputs: Payload,
    /// The request context for the worker that executes the run.
    pub request_context: dispatch::RequestContext,
    /// The time at which the run was accepted.
    pub started_at: Timestamp,
    /// The lease, the queue slot, or the denial that ends the run at once.
    pub admission: AdmissionDecision,
    /// A share link, result token or trusted service that gives access in addition to the submitter's own rights.
    pub delegated_access: AdditionalAccess,
}

/// Access to a run by other means than the submitter's own rights: a share link, a result token or a trusted service.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AdditionalAccess {
    /// The share link that admits the run. The accept commit counts one use of the link.
    pub share_link: Option<ShareLinkId>,
    /// The hash of the token with which an anonymous submitter reads the run.
    pub result_token: Option<TokenHash>,
    /// The service that acts on the submitter's behalf.
    pub delegate: Option<ActorRef>,
}

impl Acceptance {
    /// Copies the acceptance without the text of the inputs, for a statement that does not store the inputs.
    #[must_use]
    pub fn without_inputs(&self) -> Self {
        Self {
            execution_id: self.execution_id,
            workload_id: self.workload_id,
            workspace_id: self.workspace_id,
            release_id: self.release_id,
            environment: self.environment.clone(),
            lane: self.lane,
            submitter: self.submitter.clone(),
            snapshot: self.snapshot,
            decision: self.decision.clone(),
            inputs: Payload { body: "".into(), salt: self.inputs.salt },
            request_context: self.request_context.clone(),
            delegated_access: self.delegated_access.clone(),
            started_at: self.started_at,
            admission: self.admission.clone(),
        }
    }
}

/// How the accept commit admits or denies a run.
#[derive(Clone, Debug)]
pub enum AdmissionDecision {
    /// The accepting process executes the run at once, under a lease.
    Run {
        /// The fencing token of the lease: only a process with this token may end the run.
        lease: Uuid,
        /// The lifetime of the lease without renewal, by the database's clock.
        lease_for: Duration,
        /// The time until the run's deadline, by the database's clock.
        deadline_in: Duration,
    },
    /// The accepting process executes a script at once. Workers never resume scripts. The acceptance fact is stored
    /// before the script starts.
    Script {
        /// The fencing token of the lease: only a process with this token may end the run.
        lease: Uuid,
        /// The lifetime of the lease without renewal, by the database's clock.
        lease_for: Duration,
        /// The time until the run's deadline, by the database's clock.
        deadline_in: Duration,
        /// The fact that the run was accepted.
        fact: Box<Fact>,
    },
    /// The run is queued for a worker.
    Queue {
        /// The maximum number of queued runs of the tenant.
        limit: u32,
    },
    /// A policy denied the run, which the fact records.
    Deny(Box<Fact>),
}

/// The end of a run, as the finish commit stores it.
#[derive(Clone, Debug)]
pub struct FinishRecord {
    /// The identifier of the run that ends.
    pub execution_id: ExecutionId,
    /// The fencing token of the run's lease.
    pub lease: Uuid,
    /// The status of the run after the commit.
    pub status: Status,
    /// The outcome of the run, or the outcome of its steps if the answer awaits review.
    pub outcome: ExecutionOutcome,
    /// The period in which a required review must take place. With a review, the run has not ended yet.
    pub review_timeout: Option<Duration>,
    /// The error of the run; `None` if the run has an answer.
    pub error: Option<RunError>,
    /// The answer of the run; `None` if it ends without one.
    pub output: Option<Payload>,
    /// The records of the run's steps, in order.
    pub steps: Vec<StepRecord>,
    /// The policy decisions that were made during the run.
    pub decisions: Vec<RecordedDecision>,
    /// The evidence artifacts that the steps of the run produced.
    pub artifacts: Vec<EvidenceArtifact>,
    /// The items that the steps of the run read, with their origins.
    pub lineage: Vec<LineageItem>,
    /// The fulfilled obligations, each with the time of its fulfilment.
    pub fulfilled: Vec<(Obligation, Timestamp)>,
    /// The last progress record, with the events that no earlier record contains; `None` without such events.
    pub progress: Option<progress::ProgressRecord>,
    /// The conversation turn to store, if memory is enabled.
    pub writeback: Option<Writeback>,
    /// When the run ended.
    pub finished_at: Timestamp,
    /// The audit fact that records the end of the run.
    pub fact: Fact,
}

/// The record of one ended step of a run. It contains names, codes and times, never payloads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StepRecord {
    /// The identifier of the step in the flow.
    pub step_id: String,
    /// The type of the step, such as `llm_call`.
    pub step_type: &'static str,
    /// The error code, if the step failed.
    pub failure: Option<String>,
    /// The duration of the step.
    pub duration: Duration,
}

/// The record of one ended step, as read from the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StepRow {
    /// The identifier of the step in the flow.
    pub step_id: String,
    /// The type of the step, such as `llm_call`.
    pub step_type: String,
    /// The error code, if the step failed.
    pub failure: Option<String>,
    /// The duration of the step.
    pub duration: Duration,
}

/// The identifiers of a run that its facts contain.
#[derive(Clone, Copy, Debug)]
pub struct RunRef<'a> {
    /// The identifier of the run.
    pub execution_id: ExecutionId,
    /// The workload that the run executes.
    pub workload_id: WorkloadId,
    /// The workspace to which the workload belongs.
    pub workspace_id: WorkspaceId,
    /// The release that serves the run.
    pub release_id: ReleaseId,
    /// The environment in which the release serves.
    pub environment: &'a Slug,
    /// The salted BLAKE3 digest of the run's inputs.
    pub input_digest: [u8; 32],
}

impl RunRef<'_> {
    /// Builds the fact that the run ended, with its outcome and error code.
    #[must_use]
    pub fn ended_fact(
        &self,
        outcome: ExecutionOutcome,
        error_code: Option<&str>,
        output: Option<&Payload>,
        stamp: &Stamp,
    ) -> Fact {
        let output_digest = output.map(|output| format_digest(&output.digest()));
        let detail = json!({
            "outcome": outcome.as_str(),
            "error_code": error_code,
            "output_digest": output_digest,
        });
        let categories: &[NotificationCategory] = match outcome {
            // This fact notifies people, because a person must resolve an unknown outcome.
            ExecutionOutcome::Failure | ExecutionOutcome::Timeout | ExecutionOutcome::Unknown => {
                &[NotificationCategory::Executions]
            }
            ExecutionOutcome::Denied => &[NotificationCategory::Executions, NotificationCategory::ComplianceFindings],
            ExecutionOutcome::Success | ExecutionOutcome::Cancelled => &[],
        };
        self.fact(FactKind::ExecutionEnded, detail, stamp).with_notification_categories(categories.iter().copied())
    }

    /// Builds the fact that a policy denied the run.
    #[must_use]
    pub fn denied_fact(&self, decision: &RecordedDecision, stamp: &Stamp) -> Fact {
        let detail = json!({ "outcome": ExecutionOutcome::Denied.as_str(), "reason_code": decision.reason_code });
        let categories = [NotificationCategory::Executions, NotificationCategory::ComplianceFindings];
        self.fact(FactKind::ExecutionDenied, detail, stamp).with_notification_categories(categories)
    }

    fn fact(&self, kind: FactKind, mut detail: Value, stamp: &Stamp) -> Fact {
        if let Some(detail) = detail.as_object_mut() {
            detail.insert("workload_id".to_owned(), json!(self.workload_id));
            detail.insert("release_id".to_owned(), json!(self.release_id));
            detail.insert("environment".to_owned(), json!(self.environment.as_str()));
            detail.insert("input_digest".to_owned(), json!(format_digest(&self.input_digest)));
        }
        let subject = FactSubject { kind: "execution", id: self.execution_id.uuid() };
        Fact::new(kind, subject, Some(self.workspace_id), stamp, detail)
    }
}

/// A stored run with its status, outcome and answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Execution {
    /// The identifier of the execution.
    pub execution_id: ExecutionId,
    /// The workload that the run executes.
    pub workload_id: WorkloadId,
    /// The workspace to which the workload belongs.
    pub workspace_id: WorkspaceId,
    /// The release that serves the run.
    pub release_id: ReleaseId,
    /// The environment in which the release serves.
    pub environment: Slug,
    /// The lane on which the release serves the run.
    pub lane: Lane,
    /// The actor to whom the run is attributed.
    pub submitter: ActorRef,
    /// The service that acts on the submitter's behalf.
    pub delegate: Option<ActorRef>,
    /// The current status of the run.
    pub status: Status,
    /// The outcome of the run; `None` until it is known.
    pub outcome: Option<ExecutionOutcome>,
    /// The error of the run; `None` if the run has an answer or has not ended.
    pub error: Option<RunError>,
    /// The answer as JSON text; `None` if the run has no answer or the answer was erased.
    pub output: Option<Arc<str>>,
    /// The reason code of the policy decision that admitted or denied the run.
    pub reason_code: String,
    /// When the run was accepted.
    pub started_at: Timestamp,
    /// When the run ended; `None` until its end.
    pub finished_at: Option<Timestamp>,
}

impl Execution {
    /// Whether the run is queued or running. A run that awaits review is not active.
    #[must_use]
    pub const fn is_active(&self) -> bool {
        match self.status {
            Status::Queued | Status::Running => true,
            Status::AwaitingReview
            | Status::Completed
            | Status::Failed
            | Status::Denied
            | Status::Cancelled
            | Status::Unknown => false,
        }
    }
}
