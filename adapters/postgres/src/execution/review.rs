//! Runs that await a human review. The statement that deletes the review row writes the end of the run, so a review
//! ends once.

use crate::{
    commit_tail::{CommitParams, commit_tail},
    database::{Database, Param},
    large_reads::{LargeRead, small_text_columns},
    row::RowExt,
};
use async_trait::async_trait;
use fairway_domain::{
    asset::ports::ArtifactPath,
    execution::{
        Status,
        review::{AnswerUnderReview, DeadlineCheck, ExpiredReview, ReviewEnd, ReviewStore},
    },
    id::ExecutionId,
    idempotency::KeyedOutcome,
    policy::Obligation,
    store::{CommitError, StoreError},
    tenant::TenantScope,
    workload,
};
use serde_json::Value;
use uuid::Uuid;

/// Maximum number of overdue reviews per pass.
const MAX_OVERDUE: i64 = 20;

/// Ends a review. For a run that does not complete, it erases the output and everything that may repeat it: evidence
/// payloads (transcripts, tool calls, queries) and stored provider responses. Their salts are erased too, so the
/// remaining digests reveal nothing.
const END_REVIEW: &str = concat!(
    "WITH taken AS (
        DELETE FROM execution_review
        WHERE tenant_id = $1 AND execution_id = $13 AND ($14 OR lapses_at > fairway_now())
        RETURNING 1
     ),
     ended AS (
        UPDATE execution SET status = $15, outcome = $16, error_code = $17, error_message = $18, finished_at = $19
        FROM taken WHERE tenant_id = $1 AND execution_id = $13 AND status = 'awaiting_review'
        RETURNING workload_id, workspace_id, release_id
     ),
     exceptions AS (
        INSERT INTO execution_exception (tenant_id, status, execution_id, workload_id, workspace_id, release_id)
        SELECT $1, $15, $13, workload_id, workspace_id, release_id FROM ended WHERE $15 <> 'completed'
     ),
     erased AS (
        DELETE FROM execution_result USING ended WHERE tenant_id = $1 AND execution_id = $13 AND $15 <> 'completed'
     ),
     words AS (
        DELETE FROM evidence_payload USING ended WHERE tenant_id = $1 AND execution_id = $13 AND $15 <> 'completed'
     ),
     kept AS (
        UPDATE execution_progress SET answer = NULL FROM ended
        WHERE tenant_id = $1 AND execution_id = $13 AND answer IS NOT NULL AND $15 <> 'completed'
     ),
     fulfilled AS (
        INSERT INTO obligation_fulfilment (tenant_id, execution_id, obligation, fulfilled_at)
        SELECT $1, $13, obligation, $19 FROM ended, unnest($20::text[]) AS obligation
     ),
     document AS (
        INSERT INTO evidence_artifact (tenant_id, execution_id, artifact_id, artifact_kind, storage_ref, body, created_at)
        SELECT $1, $13, $21::uuid, $22::text, $23::text, $24::text, $19 FROM ended WHERE $21::uuid IS NOT NULL
     ),
     note AS (
        INSERT INTO evidence_payload (tenant_id, execution_id, artifact_id, salt, body)
        SELECT $1, $13, $21::uuid, $25::bytea, $26::text FROM ended WHERE $25::bytea IS NOT NULL
     )
     SELECT fairway_commit((SELECT count(*) = 1 FROM ended), ",
    commit_tail!(),
    ")"
);

/// The pending output of a review. An expired review is hidden, even before a job ends it.
const PENDING_OUTPUT: &str = "FROM execution_review AS review
    JOIN execution_result AS result USING (tenant_id, execution_id)
    WHERE review.tenant_id = $1 AND review.execution_id = $2 AND result.execution_id = $2
        AND review.lapses_at > fairway_now()";

/// Reviews to end: expired ones, oldest first, and recent ones of stopped workloads. The second part covers a run
/// whose last step ended while the workload was being stopped, so that neither transaction saw the other.
const OVERDUE: &str = "WITH over AS (
        (SELECT tenant_id, execution_id, workload_id FROM execution_review
         WHERE lapses_at < fairway_now() ORDER BY lapses_at LIMIT $1)
        UNION
        (SELECT review.tenant_id, review.execution_id, review.workload_id FROM execution_review AS review
         JOIN workload USING (tenant_id, workload_id)
         WHERE review.asked_at > fairway_now() - interval '1 minute' AND workload.status <> 'registered' LIMIT $1)
    )
    SELECT over.tenant_id, over.execution_id, workload.status FROM over JOIN workload USING (tenant_id, workload_id)";

#[async_trait]
impl ReviewStore for Database {
    async fn commit_end(
        &self,
        scope: TenantScope,
        end: &ReviewEnd,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError> {
        let tail = CommitParams::new(scope, &end.fact, key);
        let (run, at) = (end.execution_id.uuid(), end.finished_at.to_datetime());
        let whenever = match end.deadline_check {
            DeadlineCheck::Required => false,
            DeadlineCheck::NotRequired => true,
        };
        let (status, outcome) = (Status::as_str(end.status), end.outcome.as_str());
        let error = end.error.as_ref();
        let (code, message) = (error.map(|error| &error.code), error.map(|error| &error.message));
        let fulfilled: Vec<&str> = end.fulfilled.iter().map(|obligation| Obligation::as_str(*obligation)).collect();
        let document = end.artifact.as_ref();
        let id: Option<Uuid> = document.map(|document| document.artifact_id.uuid());
        let kind = document.map(|document| document.kind);
        let path = document.map(|document| ArtifactPath::as_str(&document.storage_ref));
        let body = document.map(|document| Value::Object(document.body.clone()).to_string());
        let note = document.and_then(|document| document.payload.as_ref());
        let (salt, said) = (note.map(|note| note.salt.as_slice()), note.map(|note| &note.body));
        let own: [Param<'_>; 14] = [
            &run, &whenever, &status, &outcome, &code, &message, &at, &fulfilled, &id, &kind, &path, &body, &salt,
            &said,
        ];
        self.commit(END_REVIEW, &tail.with(&own)).await.map(|_| ())
    }

    async fn find_pending(&self, scope: TenantScope, id: ExecutionId) -> Result<Option<AnswerUnderReview>, StoreError> {
        let params: [Param<'_>; 2] = [&scope.tenant().uuid(), &id.uuid()];
        let sql = format!(
            "SELECT {}, review.asked_at, review.lapses_at {PENDING_OUTPUT}",
            small_text_columns("result.body", "body")
        );
        let Some(row) = self.read_one(&sql, &params).await? else { return Ok(None) };
        let kept: Option<String> = match row.column("body_bytes")? {
            Some(bytes) => {
                let large = LargeRead::acquire(scope, bytes).await?;
                let (rows, _permit) =
                    large.rows(self, &format!("SELECT result.body {PENDING_OUTPUT}"), &params).await?;
                rows.first().map(|row| row.column("body")).transpose()?
            }
            None => row.column("body")?,
        };
        let answer = |stored_answer| {
            Ok(AnswerUnderReview {
                stored_answer,
                requested_at: row.timestamp("asked_at")?,
                expires_at: row.timestamp("lapses_at")?,
            })
        };
        kept.map(answer).transpose()
    }

    async fn list_expired(&self) -> Result<Vec<ExpiredReview>, StoreError> {
        let rows = self.read(OVERDUE, &[&MAX_OVERDUE]).await?;
        rows.iter()
            .map(|row| {
                Ok(ExpiredReview {
                    scope: TenantScope::for_background_task(row.id("tenant_id")?),
                    execution_id: row.id("execution_id")?,
                    workload_status: row.parsed("status", workload::Status::parse)?,
                })
            })
            .collect()
    }
}
