//! Resolution of a run with an unknown outcome: a person states whether the run succeeded.

use super::{ExecutionOutcome, Payload, RunError, RunRef, Status, format_digest};
use crate::{
    asset::artifact_store::ArtifactPath,
    audit::{Fact, FactKind, Stamp},
    evidence::{EvidenceArtifact, RunEvidence, run_records::RunRecords},
    id::ExecutionId,
    idempotency::KeyedOutcome,
    moment::Moment,
    note::Note,
    notification_category::NotificationCategory,
    store::CommitError,
    tenant::TenantScope,
};
use async_trait::async_trait;
use serde_json::{Map, Value, json};

/// The error code of a run that a person resolved as a failure.
pub const RESOLVED_AS_FAILURE: &str = "settled_as_failure";

/// The outcome that a person states.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resolution {
    /// The person states that the run succeeded.
    Success,
    /// The person states that the run failed.
    Failure,
}

impl Resolution {
    /// Every resolution.
    pub const ALL: [Self; 2] = [Self::Success, Self::Failure];

    /// The wire form, such as `success`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failure => "failure",
        }
    }

    /// Parses the wire form; `None` for an unknown text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|resolution| resolution.as_str() == text)
    }
}

/// The reason why a resolution is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ResolveRefusal {
    /// The outcome of the run is known, or the run has not ended.
    #[error("the run is not unknown")]
    NotUnknown,
}

impl ResolveRefusal {
    /// The stable code of the refusal.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::NotUnknown => "execution_not_unknown",
        }
    }
}

/// A run after its resolution, as the commit stores it.
#[derive(Clone, Debug)]
pub struct ResolvedRun {
    /// The identifier of the resolved run.
    pub execution_id: ExecutionId,
    /// The status of the run after the resolution.
    pub status: Status,
    /// The outcome of the run after the resolution.
    pub outcome: ExecutionOutcome,
    /// The error of the run; `None` if the run was resolved as a success.
    pub error: Option<RunError>,
    /// The evidence artifact that records the resolution and its author.
    pub artifact: EvidenceArtifact,
    /// The audit fact that records the resolution.
    pub fact: Fact,
}

/// Resolves a run with an unknown outcome. The note of the person is stored separately, so that it can be erased.
///
/// # Errors
/// If the outcome of the run is known or still pending.
pub fn resolve(
    record: &RunEvidence,
    resolution: Resolution,
    note: Option<&Note>,
    stamp: &Stamp,
    mut moment: Moment,
) -> Result<ResolvedRun, ResolveRefusal> {
    let run = &record.execution;
    match run.status {
        Status::Unknown => {}
        Status::Queued
        | Status::Running
        | Status::AwaitingReview
        | Status::Completed
        | Status::Failed
        | Status::Denied
        | Status::Cancelled => return Err(ResolveRefusal::NotUnknown),
    }
    let (status, outcome, error, categories): (_, _, _, &[NotificationCategory]) = match resolution {
        Resolution::Success => (Status::Completed, ExecutionOutcome::Success, None, &[]),
        Resolution::Failure => {
            let error = RunError::new(RESOLVED_AS_FAILURE, "a person resolved the run as failed");
            (Status::Failed, ExecutionOutcome::Failure, Some(error), &[NotificationCategory::Executions])
        }
    };
    let run_ref = RunRef {
        execution_id: run.execution_id,
        workload_id: run.workload_id,
        workspace_id: run.workspace_id,
        release_id: run.release_id,
        environment: &run.environment,
        input_digest: record.input_digest,
    };
    let note =
        note.map(|note| Payload { body: json!({ "note": note.as_str() }).to_string().into(), salt: moment.new_salt() });
    let note_digest = note.as_ref().map(|note| format_digest(&note.digest()));
    let detail = json!({ "outcome": outcome.as_str(), "note_digest": note_digest });
    let fact = run_ref
        .fact(FactKind::ExecutionResolved, detail, stamp)
        .with_notification_categories(categories.iter().copied());
    let artifact_id = moment.new_id().into();
    let artifact = EvidenceArtifact {
        artifact_id,
        kind: "settlement",
        storage_ref: ArtifactPath::of_database_evidence(run.execution_id, artifact_id, "settlement.json"),
        body: Map::from_iter([
            ("outcome".to_owned(), json!(outcome.as_str())),
            ("settled_by".to_owned(), json!(stamp.actor.to_string())),
            ("settled_at".to_owned(), json!(stamp.at)),
            ("note_digest".to_owned(), note_digest.map_or(Value::Null, Value::String)),
        ]),
        payload: note,
        created_at: stamp.at,
    };
    let fact = fact.with_records_digest(&RunRecords::of_artifact(&artifact));
    Ok(ResolvedRun { execution_id: run.execution_id, status, outcome, error, artifact, fact })
}

/// Stores the resolutions of runs.
#[async_trait]
pub trait ResolutionStore: Send + Sync {
    /// Resolves a run in one statement. Fails with `Stale` if the run's outcome is no longer unknown.
    async fn commit_resolution(
        &self,
        scope: TenantScope,
        resolved_run: &ResolvedRun,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
}
