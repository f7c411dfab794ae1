//! Resolves runs with status `unknown`. Only the first resolution of a run is stored.

use super::inserts::{INSERT_ARTIFACT, INSERT_EXCEPTION, INSERT_PAYLOAD};
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
static RESOLVE: GuardedCommit = GuardedCommit::of_parts(
    &[
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
         exceptions AS (",
        INSERT_EXCEPTION,
        " FROM input, resolved WHERE status <> 'completed'),
         document AS (",
        INSERT_ARTIFACT,
        " FROM input, resolved),
         note AS (",
        INSERT_PAYLOAD,
        " FROM input, resolved WHERE payload_salt IS NOT NULL)",
    ],
    "(SELECT count(*) = 1 FROM resolved)",
    "",
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
            .with("payload_salt", note.map(|note| note.salt.as_slice()))
            .with("payload_body", note.map(|note| &*note.body));
        self.commit_guarded(&RESOLVE, scope, &resolved_run.fact, key, input).await.map(|_| ())
    }
}
