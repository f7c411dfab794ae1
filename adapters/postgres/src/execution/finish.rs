//! Ends runs. The statement that deletes a run's lease also writes its end, so a run ends exactly once. If a run
//! requires a human review, the statement instead replaces its lease by a row in `execution_review`. Concurrent
//! ends share one statement.

mod columns;
mod memory;

use super::{
    in_order_of_runs,
    inserts::{INSERT_ARTIFACT, INSERT_DECISION, INSERT_EXCEPTION, INSERT_PAYLOAD},
};
use crate::{
    database::{StatementPool, commit, commit_batch},
    group_commit::BatchCommitter,
    guarded_commit::{GuardedBatchCommit, Input},
    memory::session_row_key,
    row::Row,
};
use async_trait::async_trait;
use fairway_domain::{
    execution::{FinishRecord, Status, progress::RunEvent},
    store::{CommitError, StoreError},
    tenant::TenantScope,
};
use memory::INSERT_TURNS;
use std::collections::HashSet;
use uuid::Uuid;

/// The CTEs that end a batch of runs. For a run that no longer has its lease, nothing is written, and the other
/// runs are not affected. The range of identifiers lets PostgreSQL prune monthly partitions.
const END: &[&str] = &[
    "leased_run AS (
        DELETE FROM execution_lease AS lease USING input
        WHERE lease.tenant_id = input.tenant_id AND lease.execution_id = input.execution_id
            AND lease.token = input.token
        RETURNING input.*
     ),
     ended AS (
        UPDATE execution
        SET status = leased_run.status, outcome = leased_run.outcome, error_code = leased_run.error_code,
            error_message = leased_run.error_message, finished_at = leased_run.finished_at,
            error_offset = leased_run.error_offset, output_digest = leased_run.output_digest, has_stored_usage = true,
            total_tokens_in = leased_run.total_tokens_in, total_tokens_out = leased_run.total_tokens_out,
            total_cost_micros = leased_run.total_cost_micros
        FROM leased_run WHERE execution.tenant_id = leased_run.tenant_id AND execution.execution_id = leased_run.execution_id
            AND execution.execution_id >= {first_execution} AND execution.execution_id <= {last_execution}
        RETURNING leased_run.*, execution.workload_id, execution.workspace_id, execution.release_id
     ),
     result AS (
        INSERT INTO execution_result (tenant_id, execution_id, salt, body)
        SELECT tenant_id, execution_id, salt, output FROM ended WHERE output IS NOT NULL
     ),
     steps AS (
        INSERT INTO execution_step (tenant_id, execution_id, position, step_id, step_type, failure, duration_us)
        SELECT ended.tenant_id, execution_id, position, step_id, step_type, failure, duration_us
        FROM step JOIN ended USING (execution_id)
     ),
     artifacts AS (",
    INSERT_ARTIFACT,
    " FROM artifact JOIN ended USING (execution_id)),
     lineage AS (
        INSERT INTO context_lineage (tenant_id, execution_id, lineage_id, origin, influence_role, action_class,
            ref, digest, size_bytes, untrusted_reason, created_at)
        SELECT ended.tenant_id, execution_id, lineage_id, origin, influence_role, action_class, ref, digest,
            size_bytes, untrusted_reason, created_at
        FROM lineage_item JOIN ended USING (execution_id)
     )",
];

/// The CTE that inserts the last progress events of runs.
const INSERT_EVENTS: &[&str] = &[", events AS (
        INSERT INTO execution_progress (tenant_id, execution_id, position, events)
        SELECT ended.tenant_id, execution_id, position, events
        FROM progress JOIN ended USING (execution_id)
        ON CONFLICT DO NOTHING
     )"];

/// The CTEs that few runs need. They insert later policy decisions, fulfilled obligations, evidence payloads, requested
/// reviews, and the entries of the list of runs that ended without completing.
const INSERT_RARE_PARTS: &[&str] = &[
    ", decisions AS (",
    INSERT_DECISION,
    " FROM decision JOIN ended USING (execution_id)),
     fulfilments AS (
        INSERT INTO obligation_fulfilment (tenant_id, execution_id, obligation, fulfilled_at)
        SELECT ended.tenant_id, execution_id, obligation, fulfilled_at
        FROM fulfilment JOIN ended USING (execution_id)
     ),
     payloads AS (",
    INSERT_PAYLOAD,
    " FROM payload JOIN ended USING (execution_id)),
     exceptions AS (",
    INSERT_EXCEPTION,
    " FROM ended WHERE status NOT IN ('completed', 'awaiting_review')),
     reviews AS (
        INSERT INTO execution_review (tenant_id, execution_id, workload_id, workspace_id, release_id, asked_at, lapses_at)
        SELECT ended.tenant_id, execution_id, workload_id, workspace_id, release_id, fairway_now(),
            fairway_now() + make_interval(secs => timeout_seconds)
        FROM review JOIN ended USING (execution_id)
     )",
];

const RESULT: &str = "SELECT execution_id FROM ended";

/// The statement for runs that completed without obligations and without further policy decisions. Each additional
/// CTE costs time for the whole batch, so other runs have other statements.
static FINISH: GuardedBatchCommit = GuardedBatchCommit::from_fn(|| END.concat(), "ended", RESULT);
/// Like [`FINISH`], for runs with progress events.
static FINISH_WITH_EVENTS: GuardedBatchCommit =
    GuardedBatchCommit::from_fn(|| [END, INSERT_EVENTS].concat().concat(), "ended", RESULT);
/// Like [`FINISH_WITH_EVENTS`], for runs that also need the CTEs of [`INSERT_RARE_PARTS`] but write no conversation
/// turn.
static FINISH_WITH_RARE_PARTS: GuardedBatchCommit =
    GuardedBatchCommit::from_fn(|| [END, INSERT_EVENTS, INSERT_RARE_PARTS].concat().concat(), "ended", RESULT);
/// The statement for runs that write a conversation turn.
static FINISH_WITH_ALL_PARTS: GuardedBatchCommit = GuardedBatchCommit::from_fn(
    || [END, INSERT_EVENTS, INSERT_RARE_PARTS, &[INSERT_TURNS]].concat().concat(),
    "ended",
    RESULT,
);

/// Group commit of the ends of runs.
pub(crate) struct FinishCommitter(pub(crate) StatementPool);

/// A run that waits for the group commit of its end.
pub(crate) struct PendingFinish {
    pub(super) scope: TenantScope,
    pub(super) ending: FinishRecord,
}

impl PendingFinish {
    /// The key of the `memory_session` row that the statement locks to write a turn, if any.
    fn session_key(&self) -> Option<(Uuid, Uuid, String, &str)> {
        let writeback = self.ending.writeback.as_ref()?;
        Some(session_row_key(self.scope.tenant().uuid(), writeback.turn.memory.config.scope, &writeback.conversation))
    }

    /// Whether the run needs the CTEs of [`INSERT_RARE_PARTS`].
    fn has_rare_parts(&self) -> bool {
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

    /// A second end of the same run must see the result of the first, otherwise both would report success. A second
    /// turn of the same conversation must see the session row that the first one wrote.
    fn is_batchable(pending: &PendingFinish, batch: &[&PendingFinish]) -> bool {
        let (run, conversation) = (pending.ending.execution_id, pending.session_key());
        batch.iter().all(|other| {
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
        let (statement, input) = prepare(&in_order_of_runs(pending, |pending| pending.ending.execution_id));
        let Some(rows) = commit_batch(&self.0, statement.text(&input)?, &input.params()).await? else {
            return Ok(None);
        };
        let ended: HashSet<Uuid> = rows.iter().map(|row| row.column("execution_id")).collect::<Result<_, _>>()?;
        let stored = |pending: &&PendingFinish| ended.contains(&pending.ending.execution_id.uuid());
        Ok(Some(pending.iter().map(|pending| stored(pending).then_some(()).ok_or(CommitError::Stale)).collect()))
    }

    async fn commit_one(&self, pending: &PendingFinish) -> Result<(), CommitError> {
        let (statement, input) = prepare(&[pending]);
        let rows: Vec<Row> = commit(&self.0, statement.text(&input)?, &input.params()).await?;
        rows.first().map(|_| ()).ok_or(CommitError::Stale)
    }
}

/// Total bytes of the outputs, payloads, events and memory turn of a run's end, which can be large.
pub(super) fn payload_bytes(ending: &FinishRecord) -> usize {
    let FinishRecord { output, artifacts, writeback: memory, progress, .. } = ending;
    let payloads = artifacts.iter().filter_map(|artifact| artifact.payload.as_ref());
    let turn_bytes = memory.as_ref().map_or(0, |writeback| writeback.turn.bytes());
    let event_bytes = progress.iter().flat_map(|record| &record.events).map(RunEvent::delta_bytes);
    output
        .iter()
        .chain(payloads)
        .map(|payload| payload.body.len())
        .chain(event_bytes)
        .fold(turn_bytes, usize::saturating_add)
}

/// Selects the statement that has all parts that the `pending` runs need, and builds its input.
fn prepare<'v>(pending: &[&'v PendingFinish]) -> (&'static GuardedBatchCommit, Input<'v>) {
    let endings = || pending.iter().map(|pending| &pending.ending);
    let input = columns::finish_input(pending);
    let has_turns = endings().any(|ending| ending.writeback.is_some());
    let has_rare_parts = has_turns || pending.iter().any(|pending| pending.has_rare_parts());
    if !has_rare_parts && endings().all(|ending| ending.progress.is_none()) {
        return (&FINISH, input);
    }
    let input = columns::add_event_rows(input, endings());
    match (has_rare_parts, has_turns) {
        (false, _) => (&FINISH_WITH_EVENTS, input),
        (true, false) => (&FINISH_WITH_RARE_PARTS, columns::add_rare_rows(input, endings())),
        (true, true) => {
            let input = columns::add_rare_rows(input, endings());
            (&FINISH_WITH_ALL_PARTS, memory::add_turn_rows(input, endings()))
        }
    }
}
