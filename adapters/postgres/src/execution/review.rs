//! Runs that await a human review. The statement that deletes the review row also writes the end of the run, so a
//! review ends exactly once.

use super::inserts::{INSERT_ARTIFACT, INSERT_EXCEPTION, INSERT_PAYLOAD};
use crate::{
    clock_and_length_functions::{database_now, octet_length},
    database::Database,
    guarded_commit::{GuardedCommit, Input, Query},
    large_reads::{LargeRead, MAX_SMALL_TEXT_BYTES},
    schema::{execution_result, execution_review},
};
use async_trait::async_trait;
use diesel::{BoolExpressionMethods as _, ExpressionMethods as _, JoinOnDsl as _, QueryDsl as _, dsl::case_when};
use fairway_domain::{
    asset::artifact_store::ArtifactPath,
    evidence::EvidenceArtifact,
    execution::{
        Status,
        review::{AnswerUnderReview, DeadlineEnforcement, ReviewDueToEnd, ReviewStore, ReviewedRunEnd},
    },
    id::ExecutionId,
    idempotency::KeyedOutcome,
    policy::Obligation,
    store::{CommitError, StoreError},
    tenant::TenantScope,
    time::Timestamp,
    workload,
};
use time::OffsetDateTime;

/// Maximum number of expired reviews that one pass of the background task ends.
const MAX_OVERDUE: i64 = 20;

/// Ends a review. If the run does not complete, the statement erases its output and everything that may repeat the
/// output: evidence payloads (transcripts, tool calls, queries) and stored provider responses. Their salts are
/// erased too, so the remaining digests reveal nothing.
static END_REVIEW: GuardedCommit = GuardedCommit::of_parts(
    &[
        "deleted_review AS (
            DELETE FROM execution_review AS review USING input
            WHERE review.tenant_id = input.tenant_id AND review.execution_id = input.execution_id
                AND (ignores_deadline OR lapses_at > fairway_now())
            RETURNING 1
         ),
         ended AS (
            UPDATE execution AS run SET status = input.status, outcome = input.outcome, error_code = input.error_code,
                error_message = input.error_message, finished_at = input.finished_at
            FROM deleted_review, input
            WHERE run.tenant_id = input.tenant_id AND run.execution_id = input.execution_id
                AND run.status = 'awaiting_review'
            RETURNING run.workload_id, run.workspace_id, run.release_id
         ),
         not_completed AS (
            SELECT input.tenant_id, input.execution_id, input.status, ended.workload_id, ended.workspace_id,
                ended.release_id
            FROM input, ended WHERE input.status <> 'completed'
         ),
         exceptions AS (",
        INSERT_EXCEPTION,
        " FROM not_completed),
         erased_result AS (
            DELETE FROM execution_result AS result USING not_completed
            WHERE result.tenant_id = not_completed.tenant_id AND result.execution_id = not_completed.execution_id
         ),
         erased_payload AS (
            DELETE FROM evidence_payload AS payload USING not_completed
            WHERE payload.tenant_id = not_completed.tenant_id AND payload.execution_id = not_completed.execution_id
         ),
         erased_answer AS (
            UPDATE execution_progress AS progress SET answer = NULL FROM not_completed
            WHERE progress.tenant_id = not_completed.tenant_id AND progress.execution_id = not_completed.execution_id
                AND answer IS NOT NULL
         ),
         fulfilled AS (
            INSERT INTO obligation_fulfilment (tenant_id, execution_id, obligation, fulfilled_at)
            SELECT tenant_id, execution_id, obligation, finished_at FROM input, ended, unnest(obligations) AS obligation
         ),
         document AS (",
        INSERT_ARTIFACT,
        " FROM input, ended WHERE artifact_id IS NOT NULL),
         note AS (",
        INSERT_PAYLOAD,
        " FROM input, ended WHERE payload_salt IS NOT NULL)",
    ],
    "(SELECT count(*) = 1 FROM ended)",
    "",
);

/// The output if it is small, the length of the output if it is large, the time of the request, and the time of
/// expiry.
type PendingRow = (Option<String>, Option<i32>, OffsetDateTime, OffsetDateTime);

/// Reviews that must end: expired ones, oldest first, and recent ones of stopped workloads. The second group covers
/// runs whose last step ended while the workload was being stopped, so that neither transaction saw the other.
static OVERDUE: Query = Query::new(
    "overdue AS (
        (SELECT tenant_id, execution_id, workload_id FROM execution_review
         WHERE lapses_at < fairway_now() ORDER BY lapses_at LIMIT (SELECT max_reviews FROM input))
        UNION
        (SELECT review.tenant_id, review.execution_id, review.workload_id FROM execution_review AS review
         JOIN workload USING (tenant_id, workload_id)
         WHERE review.asked_at > fairway_now() - interval '1 minute' AND workload.status <> 'registered'
         LIMIT (SELECT max_reviews FROM input))
    )
    SELECT overdue.tenant_id, overdue.execution_id, workload.status FROM overdue JOIN workload USING (tenant_id, workload_id)",
);

#[async_trait]
impl ReviewStore for Database {
    async fn commit_end(
        &self,
        scope: TenantScope,
        end: &ReviewedRunEnd,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError> {
        let ignores_deadline = match end.deadline_check {
            DeadlineEnforcement::Required => false,
            DeadlineEnforcement::NotRequired => true,
        };
        let (error, document) = (end.error.as_ref(), end.artifact.as_ref());
        let note = document.and_then(|document| document.payload.as_ref());
        let obligations = end.fulfilled.iter().map(|obligation| Obligation::as_str(*obligation)).collect();
        let input = Input::new(scope)
            .with("execution_id", end.execution_id.uuid())
            .with("ignores_deadline", ignores_deadline)
            .with("status", Status::as_str(end.status))
            .with("outcome", end.outcome.as_str())
            .with("error_code", error.map(|error| error.code.as_str()))
            .with("error_message", error.map(|error| error.message.as_str()))
            .with("finished_at", end.finished_at.to_datetime())
            .with_list("obligations", obligations)
            .with("artifact_id", document.map(|document| document.artifact_id.uuid()))
            .with("artifact_kind", document.map(|document| document.kind))
            .with("storage_ref", document.map(|document| ArtifactPath::as_str(&document.storage_ref)))
            .with("artifact_body", document.map(EvidenceArtifact::body_text))
            .with("artifact_created_at", document.map(|document| document.created_at.to_datetime()))
            .with("payload_salt", note.map(|note| note.salt.as_slice()))
            .with("payload_body", note.map(|note| &*note.body));
        self.commit_guarded(&END_REVIEW, scope, &end.fact, key, input).await.map(|_| ())
    }

    async fn find_pending(&self, scope: TenantScope, id: ExecutionId) -> Result<Option<AnswerUnderReview>, StoreError> {
        // An expired review is not returned, even before the background task ends it.
        static READ: Query = Query::new(
            "SELECT result.body FROM input JOIN execution_review AS review USING (tenant_id, execution_id)
                JOIN execution_result AS result USING (tenant_id, execution_id)
             WHERE result.execution_id = input.execution_id AND review.lapses_at > fairway_now()",
        );
        let (tenant, run) = (scope.tenant().uuid(), id.uuid());
        let pending = || {
            let is_result = execution_result::tenant_id
                .eq(execution_review::tenant_id)
                .and(execution_result::execution_id.eq(execution_review::execution_id));
            let bytes = octet_length(execution_result::body);
            execution_review::table
                .inner_join(execution_result::table.on(is_result))
                .filter(execution_review::tenant_id.eq(tenant).and(execution_review::execution_id.eq(run)))
                // The condition on the identifier lets PostgreSQL prune the partitions of `execution_result`.
                .filter(execution_result::execution_id.eq(run))
                .filter(execution_review::lapses_at.gt(database_now()))
                .select((
                    case_when(bytes.le(MAX_SMALL_TEXT_BYTES), execution_result::body),
                    case_when(bytes.gt(MAX_SMALL_TEXT_BYTES), bytes),
                    execution_review::asked_at,
                    execution_review::lapses_at,
                ))
        };
        let found: Option<PendingRow> = self.first("run under review", pending).await?;
        let Some((small, bytes, requested_at, expires_at)) = found else { return Ok(None) };
        let answer: Option<String> = match bytes {
            Some(bytes) => {
                let large = LargeRead::acquire(scope, i64::from(bytes)).await?;
                let input = Input::new(scope).with("execution_id", run);
                let (rows, _permit) = large.rows(self, READ.text(&input)?, &input.params()).await?;
                rows.first().map(|row| row.column("body")).transpose()?
            }
            None => small,
        };
        Ok(answer.map(|stored_answer| AnswerUnderReview {
            stored_answer,
            requested_at: Timestamp::new(requested_at),
            expires_at: Timestamp::new(expires_at),
        }))
    }

    async fn list_expired(&self) -> Result<Vec<ReviewDueToEnd>, StoreError> {
        let rows = self.fetch(&OVERDUE, Input::one().with("max_reviews", MAX_OVERDUE)).await?;
        rows.iter()
            .map(|row| {
                Ok(ReviewDueToEnd {
                    scope: TenantScope::for_background_task(row.id("tenant_id")?),
                    execution_id: row.id("execution_id")?,
                    workload_status: row.parse_column("status", workload::WorkloadStatus::parse)?,
                })
            })
            .collect()
    }
}
