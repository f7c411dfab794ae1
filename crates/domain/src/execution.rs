//! Executions: runs of a workload, from acceptance to their one end.

pub mod code;
pub mod dispatch;
pub mod outward;
pub mod plan;
pub mod ports;
pub mod progress;
pub mod provider;
pub mod retrieval;
pub mod review;
pub mod routing;
pub mod run;
pub mod settle;
pub mod tool;

use crate::{
    access::ActorRef,
    audit::{Fact, FactKind, Stamp, Subject},
    evidence::{EvidenceArtifact, RecordedDecision, SnapshotDigest, lineage::LineageItem},
    id::{ExecutionId, ReleaseId, ShareLinkId, WorkloadId, WorkspaceId},
    memory::Writeback,
    notification::Category,
    policy::Obligation,
    release::lane::Lane,
    share_link::TokenHash,
    slug::Slug,
    time::Timestamp,
};
use serde::Serialize;
use serde_json::{Value, json};
use std::time::Duration;
use uuid::Uuid;

/// Where an execution is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// It waits for a worker.
    Queued,
    /// It runs under a lease.
    Running,
    /// It waits for a person's verdict.
    AwaitingReview,
    /// It ended with an answer.
    Completed,
    /// It ended without one.
    Failed,
    /// Policy refused it.
    Denied,
    /// It was stopped.
    Cancelled,
    /// Whether it had an effect is not known.
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

    /// The spelling on the wire.
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

    /// The status of that spelling.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }

    /// Whether a run that is there stays there. A run whose outcome nobody knows may still be settled.
    #[must_use]
    pub const fn is_final(self) -> bool {
        match self {
            Self::Completed | Self::Failed | Self::Denied | Self::Cancelled => true,
            Self::Queued | Self::Running | Self::AwaitingReview | Self::Unknown => false,
        }
    }
}

/// How an execution ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// With an answer.
    Success,
    /// Without one.
    Failure,
    /// Refused by policy.
    Denied,
    /// Stopped.
    Cancelled,
    /// Out of time.
    Timeout,
    /// Nobody knows.
    Unknown,
}

impl Outcome {
    /// Every outcome.
    pub const ALL: [Self; 6] =
        [Self::Success, Self::Failure, Self::Denied, Self::Cancelled, Self::Timeout, Self::Unknown];

    /// The spelling on the wire.
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

    /// The outcome of that spelling.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.as_str() == text)
    }
}

/// Why a run has no answer: a code, and a fixed text for people.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RunError {
    /// The stable code, such as `prompt_argument_missing` or `deadline_exceeded`.
    pub code: String,
    /// For people; never the payload.
    pub message: String,
    /// The byte offset of the prompt's token that it is about, if it is about one.
    pub offset: Option<u32>,
}

impl RunError {
    /// An error that is about no token of a prompt.
    #[must_use]
    pub fn new(code: &str, message: &str) -> Self {
        Self { code: code.to_owned(), message: message.to_owned(), offset: None }
    }
}

/// Bytes with a digest that says nothing of them without its salt: the salt is erased with the bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Payload {
    /// Canonical JSON.
    pub body: String,
    /// 16 random bytes.
    pub salt: [u8; 16],
}

impl Payload {
    /// BLAKE3 of salt and body.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.salt);
        hasher.update(self.body.as_bytes());
        hasher.finalize().into()
    }
}

/// A digest as it stands in facts and evidence.
#[must_use]
pub fn digest_text(digest: &[u8; 32]) -> String {
    format!("blake3:{}", blake3::Hash::from_bytes(*digest).to_hex())
}

/// Why a run was started, and under what: what the accept commit stores.
#[derive(Clone, Debug)]
pub struct Acceptance {
    /// The run.
    pub execution_id: ExecutionId,
    /// What runs.
    pub workload_id: WorkloadId,
    /// Where it lives.
    pub workspace_id: WorkspaceId,
    /// Under which release.
    pub release_id: ReleaseId,
    /// In which environment.
    pub environment: Slug,
    /// On which lane.
    pub lane: Lane,
    /// For whom.
    pub submitter: ActorRef,
    /// The governance chain as it stood.
    pub snapshot: SnapshotDigest,
    /// The decision that let it in, or not.
    pub decision: RecordedDecision,
    /// What was sent.
    pub inputs: Payload,
    /// Who sent it, for whoever goes on with it elsewhere.
    pub sender: dispatch::Sender,
    /// When it was accepted.
    pub started_at: Timestamp,
    /// What holds it: a lease, or a denial that ends it at once.
    pub admission: Admission,
    /// What it was let in by, where that was not a right of its submitter.
    pub guest: Guest,
}

/// What lets somebody in who has no right of its own to a run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Guest {
    /// The share link; the accept counts a use of it.
    pub share_link: Option<ShareLinkId>,
    /// The hash of the token that reads the run, where its submitter has no name.
    pub result_token: Option<TokenHash>,
    /// The service by whose word the run is its submitter's.
    pub delegate: Option<ActorRef>,
}

impl Guest {
    /// Whether nothing was needed but the submitter's own rights.
    #[must_use]
    pub const fn is_nobody(&self) -> bool {
        self.share_link.is_none() && self.result_token.is_none() && self.delegate.is_none()
    }
}

impl Acceptance {
    /// The same without the text of its inputs, for a statement that does not store them.
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
            inputs: Payload { body: String::new(), salt: self.inputs.salt },
            sender: self.sender.clone(),
            guest: self.guest.clone(),
            started_at: self.started_at,
            admission: self.admission.clone(),
        }
    }
}

/// What an accepted run gets.
#[derive(Clone, Debug)]
pub enum Admission {
    /// A lease to run under.
    Run {
        /// The fencing token: only its holder may end the run.
        lease: Uuid,
        /// How long the lease lasts unless renewed, by the database's clock.
        lease_for: Duration,
        /// How long the run may take, by the database's clock.
        deadline_in: Duration,
    },
    /// The same for a script. Nobody goes on with it elsewhere, and the fact that it was let in is stored before anybody is
    /// handed it.
    Script {
        /// The fencing token: only its holder may end the run.
        lease: Uuid,
        /// How long the lease lasts unless renewed, by the database's clock.
        lease_for: Duration,
        /// How long the run may take, by the database's clock.
        deadline_in: Duration,
        /// What tells it.
        fact: Box<Fact>,
    },
    /// A place in line.
    Queue {
        /// Most runs of the tenant that may stand there.
        most: u32,
    },
    /// A refusal, with the fact that tells it.
    Deny(Box<Fact>),
}

impl Admission {
    /// Whether the process that lets it in works on it.
    #[must_use]
    pub const fn is_run_here(&self) -> bool {
        match self {
            Self::Run { .. } | Self::Script { .. } => true,
            Self::Queue { .. } | Self::Deny(_) => false,
        }
    }
}

/// How a run ended: what the finish commit stores.
#[derive(Clone, Debug)]
pub struct Ending {
    /// The run.
    pub execution_id: ExecutionId,
    /// The fencing token of the lease that it ran under.
    pub lease: Uuid,
    /// Where it is now.
    pub status: Status,
    /// How it ended, or how its steps did where a person has to look at its answer first.
    pub outcome: Outcome,
    /// How long a person may take to look at its answer, where one has to: then it has not ended yet.
    pub review_within: Option<Duration>,
    /// Why it has no answer, if it has none.
    pub error: Option<RunError>,
    /// The answer, if there is one.
    pub output: Option<Payload>,
    /// What its steps did, in order.
    pub steps: Vec<StepRecord>,
    /// Decisions taken on the way.
    pub decisions: Vec<RecordedDecision>,
    /// Documents kept as evidence.
    pub artifacts: Vec<EvidenceArtifact>,
    /// What its steps read.
    pub lineage: Vec<LineageItem>,
    /// Obligations that it fulfilled, and when.
    pub fulfilled: Vec<(Obligation, Timestamp)>,
    /// What happened since it last said how far it came; `None` where it never did.
    pub progress: Option<progress::Progress>,
    /// The turn of its conversation, where that is kept.
    pub memory: Option<Writeback>,
    /// When it ended.
    pub finished_at: Timestamp,
    /// The one fact of it.
    pub fact: Fact,
}

/// What one step did: names, codes and times, never payloads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StepRecord {
    /// The step's id in the flow.
    pub step_id: String,
    /// Its type.
    pub step_type: &'static str,
    /// Whether it succeeded, and with which code it failed.
    pub failure: Option<String>,
    /// How long it took.
    pub duration: Duration,
}

/// What one step did, as it is read back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StepRow {
    /// The step's id in the flow.
    pub step_id: String,
    /// Its type.
    pub step_type: String,
    /// With which code it failed, if it did.
    pub failure: Option<String>,
    /// How long it took.
    pub duration: Duration,
}

/// What a run's facts name.
#[derive(Clone, Copy, Debug)]
pub struct RunRef<'a> {
    /// The run.
    pub execution_id: ExecutionId,
    /// What runs.
    pub workload_id: WorkloadId,
    /// Where it lives.
    pub workspace_id: WorkspaceId,
    /// Under which release.
    pub release_id: ReleaseId,
    /// In which environment.
    pub environment: &'a Slug,
    /// Digest of what was sent.
    pub input_digest: [u8; 32],
}

impl RunRef<'_> {
    /// The fact that the run ended.
    #[must_use]
    pub fn ended(&self, outcome: Outcome, error_code: Option<&str>, output: Option<&Payload>, stamp: &Stamp) -> Fact {
        let output_digest = output.map(|output| digest_text(&output.digest()));
        let detail = json!({
            "outcome": outcome.as_str(),
            "error_code": error_code,
            "output_digest": output_digest,
        });
        let categories: &[Category] = match outcome {
            // One that is unknown waits for a person who settles it.
            Outcome::Failure | Outcome::Timeout | Outcome::Unknown => &[Category::Executions],
            Outcome::Denied => &[Category::Executions, Category::ComplianceFindings],
            Outcome::Success | Outcome::Cancelled => &[],
        };
        self.fact(FactKind::ExecutionEnded, detail, stamp).concerning(categories.iter().copied())
    }

    /// The fact that policy refused the run.
    #[must_use]
    pub fn denied(&self, decision: &RecordedDecision, stamp: &Stamp) -> Fact {
        let detail = json!({ "outcome": Outcome::Denied.as_str(), "reason_code": decision.reason_code });
        let categories = [Category::Executions, Category::ComplianceFindings];
        self.fact(FactKind::ExecutionDenied, detail, stamp).concerning(categories)
    }

    fn fact(&self, kind: FactKind, mut detail: Value, stamp: &Stamp) -> Fact {
        if let Some(detail) = detail.as_object_mut() {
            detail.insert("workload_id".to_owned(), json!(self.workload_id));
            detail.insert("release_id".to_owned(), json!(self.release_id));
            detail.insert("environment".to_owned(), json!(self.environment.as_str()));
            detail.insert("input_digest".to_owned(), json!(digest_text(&self.input_digest)));
        }
        let subject = Subject { kind: "execution", id: self.execution_id.uuid() };
        Fact::new(kind, subject, Some(self.workspace_id), stamp, detail)
    }
}

/// An execution as it is read back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Execution {
    /// Its identifier.
    pub execution_id: ExecutionId,
    /// What ran.
    pub workload_id: WorkloadId,
    /// Where that lives.
    pub workspace_id: WorkspaceId,
    /// Under which release.
    pub release_id: ReleaseId,
    /// In which environment.
    pub environment: Slug,
    /// On which lane.
    pub lane: Lane,
    /// For whom.
    pub submitter: ActorRef,
    /// The service by whose word the run is its submitter's.
    pub delegate: Option<ActorRef>,
    /// Where it is.
    pub status: Status,
    /// How it ended.
    pub outcome: Option<Outcome>,
    /// Why it has no answer.
    pub error: Option<RunError>,
    /// The answer, while it is kept.
    pub output: Option<String>,
    /// The reason code of the decision that let it in or not.
    pub reason_code: String,
    /// When it was accepted.
    pub started_at: Timestamp,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
}

impl Execution {
    /// Whether somebody works on it, or will. Nobody does on one that waits for a person.
    #[must_use]
    pub const fn is_under_way(&self) -> bool {
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
