//! Ends runs. The statement that deletes a run's lease writes its end, so a run ends once. A run that needs a human
//! review exchanges its lease for a row in `execution_review`. Concurrent ends share one statement.

mod columns;
mod facts;
mod memory;

use crate::{
    database::{Param, commit, commit_batch},
    group_commit::BatchCommitter,
    memory::session_row_key,
    row::RowExt,
};
use async_trait::async_trait;
use columns::BatchColumns;
use deadpool_postgres::Pool;
use facts::{fact_column_names, fact_placeholders, insert_facts};
use fairway_domain::{
    execution::{FinishRecord, Status, progress::RunEvent},
    store::{CommitError, StoreError},
    tenant::TenantScope,
};
use memory::insert_turns;
use std::collections::HashSet;
use tokio_postgres::Row;
use uuid::Uuid;

/// Ends a batch of runs. `$more` adds the parts that only some runs have, because each additional CTE costs time for
/// the whole batch. The range of identifiers (`$40`, `$41`) lets PostgreSQL prune monthly partitions.
///
/// The statement writes the facts itself and does not call `fairway_commit`: it claims no idempotency key, and all
/// inserts read from `ended`. A run without its lease writes nothing and does not affect the others.
macro_rules! finish_sql {
    ($more:expr) => {
        concat!(
            "WITH asked AS MATERIALIZED (
                SELECT * FROM unnest(",
            fact_placeholders!(),
            ",
                    $7::uuid[], $8::uuid[], $9::text[], $10::text[], $11::text[], $12::text[], $13::timestamptz[],
                    $14::bigint[], $15::bytea[], $16::text[], $17::bytea[])
                    AS asked (",
            fact_column_names!(),
            ", execution_id, token, status, outcome, error_code, error_message, finished_at, error_offset, salt, output,
                    output_digest)
             ),
             held AS (
                DELETE FROM execution_lease AS lease USING asked
                WHERE lease.tenant_id = asked.tenant_id AND lease.execution_id = asked.execution_id
                    AND lease.token = asked.token
                RETURNING asked.*
             ),
             ended AS (
                UPDATE execution
                SET status = held.status, outcome = held.outcome, error_code = held.error_code,
                    error_message = held.error_message, finished_at = held.finished_at,
                    error_offset = held.error_offset, output_digest = held.output_digest
                FROM held WHERE execution.tenant_id = held.tenant_id AND execution.execution_id = held.execution_id
                    AND execution.execution_id >= $40 AND execution.execution_id <= $41
                RETURNING held.*, execution.workload_id, execution.workspace_id, execution.release_id
             ),
             answer AS (
                INSERT INTO execution_result (tenant_id, execution_id, salt, body)
                SELECT tenant_id, execution_id, salt, output FROM ended WHERE output IS NOT NULL
             ),
             steps AS (
                INSERT INTO execution_step (tenant_id, execution_id, position, step_id, step_type, failure, duration_us)
                SELECT ended.tenant_id, execution_id, position, step_id, step_type, failure, duration_us
                FROM unnest($18::uuid[], $19::smallint[], $20::text[], $21::text[], $22::text[], $23::bigint[])
                    AS step (execution_id, position, step_id, step_type, failure, duration_us)
                JOIN ended USING (execution_id)
             ),
             artifacts AS (
                INSERT INTO evidence_artifact (tenant_id, execution_id, artifact_id, artifact_kind, storage_ref, body,
                    created_at)
                SELECT ended.tenant_id, execution_id, artifact_id, kept.kind, storage_ref, kept.body, created_at
                FROM unnest($24::uuid[], $25::uuid[], $26::text[], $27::text[], $28::text[], $29::timestamptz[])
                    AS kept (execution_id, artifact_id, kind, storage_ref, body, created_at)
                JOIN ended USING (execution_id)
             ),
             lineage AS (
                INSERT INTO context_lineage (tenant_id, execution_id, lineage_id, origin, influence_role, action_class,
                    ref, digest, size_bytes, untrusted_reason, created_at)
                SELECT ended.tenant_id, execution_id, lineage_id, origin, influence_role, action_class, ref, digest,
                    size_bytes, untrusted_reason, created_at
                FROM unnest($30::uuid[], $31::uuid[], $32::text[], $33::text[], $34::text[], $35::text[], $36::bytea[],
                    $37::bigint[], $38::text[], $39::timestamptz[])
                    AS item (execution_id, lineage_id, origin, influence_role, action_class, ref, digest, size_bytes,
                    untrusted_reason, created_at)
                JOIN ended USING (execution_id)
             ),",
            $more,
            insert_facts!("ended"),
            " SELECT execution_id FROM ended"
        )
    };
}

/// For runs that completed, had no obligations, and made no further policy decision.
const FINISH: &str = finish_sql!("");

/// The last events of runs.
macro_rules! insert_events {
    () => {
        "kept AS (
            INSERT INTO execution_progress (tenant_id, execution_id, position, events)
            SELECT ended.tenant_id, execution_id, position, events
            FROM unnest($42::uuid[], $43::smallint[], $44::text[]) AS told (execution_id, position, events)
            JOIN ended USING (execution_id)
            ON CONFLICT DO NOTHING
         ),"
    };
}

/// The same for runs with progress events.
const FINISH_WITH_EVENTS: &str = finish_sql!(insert_events!());

/// Parts that few runs have.
macro_rules! insert_rare_parts {
    () => {
        concat!(
            insert_events!(),
            "decisions AS (
                INSERT INTO policy_decision (tenant_id, execution_id, decision_id, outcome, reason_code, obligations, rules,
                    evaluated_at)
                SELECT ended.tenant_id, execution_id, decision_id, taken.outcome, reason_code,
                    ARRAY(SELECT jsonb_array_elements_text(lists -> 'obligations')),
                    ARRAY(SELECT jsonb_array_elements_text(lists -> 'rules')), evaluated_at
                FROM unnest($45::uuid[], $46::uuid[], $47::text[], $48::text[], $49::jsonb[], $50::timestamptz[])
                    AS taken (execution_id, decision_id, outcome, reason_code, lists, evaluated_at)
                JOIN ended USING (execution_id)
             ),
             fulfilled AS (
                INSERT INTO obligation_fulfilment (tenant_id, execution_id, obligation, fulfilled_at)
                SELECT ended.tenant_id, execution_id, obligation, fulfilled_at
                FROM unnest($51::uuid[], $52::text[], $53::timestamptz[]) AS owed (execution_id, obligation, fulfilled_at)
                JOIN ended USING (execution_id)
             ),
             payloads AS (
                INSERT INTO evidence_payload (tenant_id, execution_id, artifact_id, salt, body)
                SELECT ended.tenant_id, execution_id, artifact_id, said.salt, said.body
                FROM unnest($54::uuid[], $55::uuid[], $56::bytea[], $57::text[]) AS said (execution_id, artifact_id, salt, body)
                JOIN ended USING (execution_id)
             ),
             exceptions AS (
                INSERT INTO execution_exception (tenant_id, status, execution_id, workload_id, workspace_id, release_id)
                SELECT tenant_id, status, execution_id, workload_id, workspace_id, release_id FROM ended
                WHERE status NOT IN ('completed', 'awaiting_review')
             ),
             reviews AS (
                INSERT INTO execution_review (tenant_id, execution_id, workload_id, workspace_id, release_id, asked_at, lapses_at)
                SELECT ended.tenant_id, execution_id, workload_id, workspace_id, release_id, fairway_now(),
                    fairway_now() + make_interval(secs => within)
                FROM unnest($58::uuid[], $59::float8[]) AS asked_for (execution_id, within)
                JOIN ended USING (execution_id)
             ),"
        )
    };
}

/// For all other runs.
const FINISH_WITH_RARE_PARTS: &str = finish_sql!(insert_rare_parts!());

/// The same for runs of a conversation with memory.
const FINISH_WITH_MEMORY: &str = finish_sql!(concat!(insert_rare_parts!(), insert_turns!()));

/// Group commit of ends of runs.
pub(crate) struct FinishCommitter(pub(crate) Pool);

/// A run to end.
pub(crate) struct PendingFinish {
    pub(super) scope: TenantScope,
    pub(super) ending: FinishRecord,
}

impl PendingFinish {
    /// The key of the `memory_session` row that the end locks.
    fn session_key(&self) -> Option<(Uuid, Uuid, String, &str)> {
        let written = self.ending.writeback.as_ref()?;
        Some(session_row_key(self.scope.tenant().uuid(), written.turn.memory.config.scope, &written.conversation))
    }

    /// Whether the run needs the parts that few runs have.
    fn needs_rare_parts(&self) -> bool {
        let FinishRecord { status, decisions, fulfilled, artifacts, .. } = &self.ending;
        *status != Status::Completed
            || !decisions.is_empty()
            || !fulfilled.is_empty()
            || artifacts.iter().any(|artifact| artifact.payload.is_some())
    }
}

#[async_trait]
impl BatchCommitter for FinishCommitter {
    type Item = PendingFinish;
    type Output = ();
    const LABEL: &'static str = "ends of runs";

    /// A second end of the same run must see the first one's result, or both would report success. A second turn of
    /// the same conversation must see the session row that the first one wrote.
    fn is_batchable(pending: &PendingFinish, in_front: &[&PendingFinish]) -> bool {
        let (run, conversation) = (pending.ending.execution_id, pending.session_key());
        in_front.iter().all(|other| {
            other.ending.execution_id != run && (conversation.is_none() || other.session_key() != conversation)
        })
    }

    fn payload_bytes(pending: &PendingFinish) -> usize {
        payload_bytes(&pending.ending)
    }

    async fn commit_batch(
        &self,
        pending: &[&PendingFinish],
    ) -> Result<Option<Vec<Result<(), CommitError>>>, StoreError> {
        let batch = BatchColumns::of(pending);
        let (sql, params) = select_statement(pending, &batch);
        let Some(rows) = commit_batch(&self.0, sql, &params).await? else { return Ok(None) };
        let ended: HashSet<Uuid> = rows.iter().map(|row| row.column("execution_id")).collect::<Result<_, _>>()?;
        let stored = |pending: &&PendingFinish| ended.contains(&pending.ending.execution_id.uuid());
        Ok(Some(pending.iter().map(|pending| stored(pending).then_some(()).ok_or(CommitError::Stale)).collect()))
    }

    async fn commit_one(&self, pending: &PendingFinish) -> Result<(), CommitError> {
        let batch = BatchColumns::of(&[pending]);
        let (sql, params) = select_statement(&[pending], &batch);
        let rows: Vec<Row> = commit(&self.0, sql, &params).await?;
        rows.first().map(|_| ()).ok_or(CommitError::Stale)
    }
}

/// Bytes of the unbounded texts of an end.
pub(super) fn payload_bytes(ending: &FinishRecord) -> usize {
    let FinishRecord { output, artifacts, writeback: memory, progress, .. } = ending;
    let said = artifacts.iter().filter_map(|artifact| artifact.payload.as_ref());
    let turn = memory.as_ref().map_or(0, |written| written.turn.bytes());
    let told = progress.iter().flat_map(|piece| &piece.events).map(RunEvent::delta_bytes);
    output.iter().chain(said).map(|payload| payload.body.len()).chain(told).fold(turn, usize::saturating_add)
}

fn select_statement<'m>(pending: &[&PendingFinish], batch: &'m BatchColumns<'_>) -> (&'static str, Vec<Param<'m>>) {
    if pending.iter().any(|pending| pending.ending.writeback.is_some()) {
        (FINISH_WITH_MEMORY, batch.with_memory())
    } else if pending.iter().any(|pending| pending.needs_rare_parts()) {
        (FINISH_WITH_RARE_PARTS, batch.with_rare_parts())
    } else if pending.iter().any(|pending| pending.ending.progress.is_some()) {
        (FINISH_WITH_EVENTS, batch.with_events())
    } else {
        (FINISH, batch.params())
    }
}
