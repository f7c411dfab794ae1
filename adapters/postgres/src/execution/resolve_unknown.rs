//! Resolves runs with status `unknown`. The first resolution wins.

use crate::{
    commit_tail::{CommitParams, commit_tail},
    database::{Database, Param},
};
use async_trait::async_trait;
use fairway_domain::{
    execution::{
        Outcome, Status,
        resolve_unknown::{ResolutionStore, ResolvedRun},
    },
    idempotency::KeyedOutcome,
    store::CommitError,
    tenant::TenantScope,
};
use serde_json::Value;

/// `finished_at` is unchanged: it is the time at which the run became unknown.
const RESOLVE: &str = concat!(
    "WITH settled AS (
        UPDATE execution SET status = $14, outcome = $15, error_code = $16, error_message = $17
        WHERE tenant_id = $1 AND execution_id = $13 AND status = 'unknown'
        RETURNING workload_id, workspace_id, release_id
     ),
     known AS (
        DELETE FROM execution_exception USING settled
        WHERE tenant_id = $1 AND execution_id = $13 AND status = 'unknown'
     ),
     exceptions AS (
        INSERT INTO execution_exception (tenant_id, status, execution_id, workload_id, workspace_id, release_id)
        SELECT $1, $14, $13, workload_id, workspace_id, release_id FROM settled WHERE $14 <> 'completed'
     ),
     document AS (
        INSERT INTO evidence_artifact (tenant_id, execution_id, artifact_id, artifact_kind, storage_ref, body, created_at)
        SELECT $1, $13, $18::uuid, $19::text, $20::text, $21::text, $22::timestamptz FROM settled
     ),
     note AS (
        INSERT INTO evidence_payload (tenant_id, execution_id, artifact_id, salt, body)
        SELECT $1, $13, $18::uuid, $23::bytea, $24::text FROM settled WHERE $23::bytea IS NOT NULL
     )
     SELECT fairway_commit((SELECT count(*) = 1 FROM settled), ",
    commit_tail!(),
    ")"
);

#[async_trait]
impl ResolutionStore for Database {
    async fn commit_resolution(
        &self,
        scope: TenantScope,
        settlement: &ResolvedRun,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError> {
        let tail = CommitParams::new(scope, &settlement.fact, key);
        let run = settlement.execution_id.uuid();
        let (status, outcome) = (Status::as_str(settlement.status), Outcome::as_str(settlement.outcome));
        let error = settlement.error.as_ref();
        let (code, message) = (error.map(|error| &error.code), error.map(|error| &error.message));
        let document = &settlement.artifact;
        let (id, kind, path) = (document.artifact_id.uuid(), document.kind, document.storage_ref.as_str());
        let body = Value::Object(document.body.clone()).to_string();
        let at = document.created_at.to_datetime();
        let note = document.payload.as_ref();
        let (salt, said) = (note.map(|note| note.salt.as_slice()), note.map(|note| &note.body));
        let own: [Param<'_>; 12] =
            [&run, &status, &outcome, &code, &message, &id, &kind, &path, &body, &at, &salt, &said];
        self.commit(RESOLVE, &tail.with(&own)).await.map(|_| ())
    }
}
