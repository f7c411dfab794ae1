//! Resolves runs with status `unknown`. Only the first resolution of a run is stored.

use crate::{
    database::Database,
    guarded_commit::{GuardedCommit, Input},
};
use async_trait::async_trait;
use fairway_domain::{
    execution::{
        ExecutionOutcome, Status,
        resolve_unknown::{ResolutionStore, ResolvedRun},
    },
    idempotency::KeyedOutcome,
    store::CommitError,
    tenant::TenantScope,
};

/// Stores a resolution. `finished_at` stays unchanged: it is the time at which the outcome became unknown.
static RESOLVE: GuardedCommit = GuardedCommit::new(
    "resolved AS (
        UPDATE execution AS run SET status = input.status, outcome = input.outcome, error_code = input.error_code,
            error_message = input.error_message
        FROM input
        WHERE run.tenant_id = input.tenant_id AND run.execution_id = input.execution_id AND run.status = 'unknown'
        RETURNING run.workload_id, run.workspace_id, run.release_id
     ),
     former_exception AS (
        DELETE FROM execution_exception AS exception USING resolved, input
        WHERE exception.tenant_id = input.tenant_id AND exception.execution_id = input.execution_id
            AND exception.status = 'unknown'
     ),
     exceptions AS (
        INSERT INTO execution_exception (tenant_id, status, execution_id, workload_id, workspace_id, release_id)
        SELECT tenant_id, status, execution_id, workload_id, workspace_id, release_id
        FROM input, resolved WHERE status <> 'completed'
     ),
     document AS (
        INSERT INTO evidence_artifact (tenant_id, execution_id, artifact_id, artifact_kind, storage_ref, body, created_at)
        SELECT tenant_id, execution_id, artifact_id, artifact_kind, storage_ref, artifact_body, artifact_created_at
        FROM input, resolved
     ),
     note AS (
        INSERT INTO evidence_payload (tenant_id, execution_id, artifact_id, salt, body)
        SELECT tenant_id, execution_id, artifact_id, note_salt, note_body FROM input, resolved WHERE note_salt IS NOT NULL
     )",
    "(SELECT count(*) = 1 FROM resolved)",
);

#[async_trait]
impl ResolutionStore for Database {
    async fn commit_resolution(
        &self,
        scope: TenantScope,
        resolved_run: &ResolvedRun,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError> {
        let error = resolved_run.error.as_ref();
        let document = &resolved_run.artifact;
        let note = document.payload.as_ref();
        let input = Input::new(scope)
            .with("execution_id", resolved_run.execution_id.uuid())
            .with("status", Status::as_str(resolved_run.status))
            .with("outcome", ExecutionOutcome::as_str(resolved_run.outcome))
            .with("error_code", error.map(|error| error.code.as_str()))
            .with("error_message", error.map(|error| error.message.as_str()))
            .with("artifact_id", document.artifact_id.uuid())
            .with("artifact_kind", document.kind)
            .with("storage_ref", document.storage_ref.as_str())
            .with("artifact_body", document.body_text())
            .with("artifact_created_at", document.created_at.to_datetime())
            .with("note_salt", note.map(|note| note.salt.as_slice()))
            .with("note_body", note.map(|note| &*note.body));
        self.commit_guarded(&RESOLVE, scope, &resolved_run.fact, key, input).await.map(|_| ())
    }
}
