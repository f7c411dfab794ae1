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
pub(super) async fn resolution(stage: &Fixture) -> Decision {
    let (workload, placed) = stage.active().await;
    let on = stage.accepted_on(&workload, &placed).await;
    let run = acceptance(&placed);
    accepted(&stage.store, &run, on, None).await.unwrap();
    let fact = run_ref(&run).ended_fact(ExecutionOutcome::Unknown, Some("gateway_error"), None, &stamp());
    let lost = FinishRecord {
        status: Status::Unknown,
        outcome: ExecutionOutcome::Unknown,
        output: None,
        fact,
        ..ending(&run)
    };
    stage.store.finish(scope(), &lost).await.unwrap();
    let (artifact_id, id, at) = (fresh(), run.execution_id, stamp());
    let settlement = ResolvedRun {
        execution_id: id,
        status: Status::Failed,
        outcome: ExecutionOutcome::Failure,
        error: Some(RunError::new(RESOLVED_AS_FAILURE, "x")),
        artifact: EvidenceArtifact {
            artifact_id,
            kind: "settlement",
            storage_ref: ArtifactPath::of_evidence(id, artifact_id, "settlement.json"),
            body: Map::new(),
            payload: Some(Payload { body: r#"{"note":"no"}"#.into(), salt: [4; 16] }),
            created_at: at.at,
        },
        fact: run_ref(&run).ended_fact(ExecutionOutcome::Failure, Some(RESOLVED_AS_FAILURE), None, &at),
    };
    let store = store(stage);
    Decision::new(async move |key| store.commit_resolution(scope(), &settlement, key.as_ref()).await)
        .stale_after(format!("UPDATE execution SET status = 'completed' WHERE execution_id = '{id}'"))
        .stale_after(format!("DELETE FROM execution WHERE execution_id = '{id}'"))
}
