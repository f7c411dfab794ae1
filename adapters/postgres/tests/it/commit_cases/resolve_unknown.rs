//! The commit that resolves a run with an unknown outcome.

use super::{Decision, execution::accepted, store};
use crate::fixture::{Fixture, acceptance, ending, fresh, run_ref, scope, stamp};
use fairway_domain::{
    asset::artifact_store::ArtifactPath,
    evidence::EvidenceArtifact,
    execution::{
        ExecutionOutcome, FinishRecord, Payload, RunError, Status,
        ports::RunStore,
        resolve_unknown::{RESOLVED_AS_FAILURE, ResolutionStore, ResolvedRun},
    },
};
use serde_json::Map;

/// Resolves a run with an unknown outcome as failed.
pub(super) async fn resolution(fixture: &Fixture) -> Decision {
    let (workload, deployed_release) = fixture.active().await;
    let revisions = fixture.expected_revisions(&workload, &deployed_release).await;
    let run = acceptance(&deployed_release);
    accepted(&fixture.store, &run, revisions, None).await.unwrap();
    let fact = run_ref(&run).ended_fact(ExecutionOutcome::Unknown, Some("gateway_error"), None, &stamp());
    let unknown_ending = FinishRecord {
        status: Status::Unknown,
        outcome: ExecutionOutcome::Unknown,
        output: None,
        fact,
        ..ending(&run)
    };
    fixture.store.finish(scope(), &unknown_ending).await.unwrap();
    let (artifact_id, id, end_stamp) = (fresh(), run.execution_id, stamp());
    let resolved_run = ResolvedRun {
        execution_id: id,
        status: Status::Failed,
        outcome: ExecutionOutcome::Failure,
        error: Some(RunError::new(RESOLVED_AS_FAILURE, "x")),
        artifact: EvidenceArtifact {
            artifact_id,
            kind: "settlement",
            storage_ref: ArtifactPath::of_database_evidence(id, artifact_id, "settlement.json"),
            body: Map::new(),
            payload: Some(Payload { body: r#"{"note":"no"}"#.into(), salt: [4; 16] }),
            created_at: end_stamp.at,
        },
        fact: run_ref(&run).ended_fact(ExecutionOutcome::Failure, Some(RESOLVED_AS_FAILURE), None, &end_stamp),
    };
    let store = store(fixture);
    Decision::new(async move |key| store.commit_resolution(scope(), &resolved_run, key.as_ref()).await)
        .stale_after(format!("UPDATE execution SET status = 'completed' WHERE execution_id = '{id}'"))
        .stale_after(format!("DELETE FROM execution WHERE execution_id = '{id}'"))
}
