//! Progress of runs, written under the run's lease. Concurrent writes share a statement.

use super::in_order_of_runs;
use crate::{
    database::{Database, StatementPool, commit, commit_batch},
    group_commit::BatchCommitter,
    guarded_commit::{Input, Query},
    large_reads::{LargeRead, MAX_SMALL_TEXT_BYTES},
    row::{Row, parse_json, require_decoded},
    store_error,
};
use async_trait::async_trait;
use fairway_domain::{
    execution::{
        dispatch::LeaseRef,
        ports::EventPage,
        progress::{ProgressRecord, RunEvent, StoredStepResponse},
    },
    id::ExecutionId,
    store::{CommitError, StoreError},
    tenant::TenantScope,
};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use uuid::Uuid;

/// Stores progress chunks. The statement renews the lease first. The lock on the lease's row serializes the write with
/// a reclaim of the run. A write after the reclaim finds another token and writes nothing. A reclaim after the write
/// finds a renewed lease.
static WRITE_PROGRESS: Query = Query::new(
    "leased_run AS (
        UPDATE execution_lease AS lease SET lapses_at = fairway_now() + lease_for FROM input
        WHERE lease.tenant_id = input.tenant_id AND lease.execution_id = input.execution_id
            AND lease.token = input.token
        RETURNING input.*
     ),
     stored AS (
        INSERT INTO execution_progress (tenant_id, execution_id, position, answer, events)
        SELECT tenant_id, execution_id, position, answer, events FROM leased_run
        ON CONFLICT DO NOTHING
     )
     SELECT execution_id FROM leased_run",
);

#[derive(Deserialize)]
struct ChunkBody {
    position: u16,
    answer: Option<String>,
    events: String,
}

/// Decodes progress chunks from a JSON aggregate, in order. Null means no chunks.
pub(super) fn decode_progress(text: Option<&str>) -> Result<Vec<ProgressRecord>, StoreError> {
    let bodies: Vec<ChunkBody> = text.map(parse_json).transpose()?.unwrap_or_default();
    let record = |body: ChunkBody| {
        let answer: Option<StoredStepResponse> = body.answer.as_deref().map(parse_json).transpose()?;
        Ok(ProgressRecord { position: body.position, answer, events: parse_json(&body.events)? })
    };
    bodies.into_iter().map(record).collect()
}

/// Serializes a domain value to JSON. Serialization of domain types does not fail, so an error means an
/// inconsistent store.
pub(super) fn to_json(value: &impl Serialize) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| store_error::inconsistent(Box::new(error)))
}

/// Maximum bytes of events in a page with several chunks. Rendered as an event stream, the events stay below
/// [`MAX_SMALL_TEXT_BYTES`](crate::large_reads::MAX_SMALL_TEXT_BYTES), even if each event is short.
const MAX_PAGE_BYTES: i64 = 32 << 10;
/// Maximum number of chunks of a page.
const MAX_PAGE_CHUNKS: i64 = 128;

/// The column that states whether the model output of the run has not expired.
const IS_RETAINED: &str = "coalesce((
        SELECT finished_at IS NULL OR finished_at + make_interval(secs => {retention}) > fairway_now() FROM execution
        WHERE tenant_id = {tenant_id} AND execution_id = {execution_id}
    ), false) AS is_retained";

/// Reads a page of the events after the chunk `after`. Model output in events expires with the run's output.
/// Expired events keep their numbers but have no text. A large chunk is read alone under a permit.
pub(super) async fn events(
    database: &Database,
    scope: TenantScope,
    id: ExecutionId,
    after: u16,
) -> Result<EventPage, StoreError> {
    // The last row of the page may be a chunk that exceeds its byte limit; the events of that row are null.
    static READ_PAGE: Query = Query::of_parts(&[
        "SELECT position, events, bytes, chunk_count, ",
        IS_RETAINED,
        " FROM (
            SELECT position, bytes, total, chunk_count,
                CASE WHEN total <= {max_page_bytes} OR total = bytes AND bytes <= {max_small_bytes} THEN events END AS events
            FROM (
                SELECT position, events, octet_length(events)::bigint AS bytes,
                    sum(octet_length(events)) OVER (ORDER BY position) AS total, count(*) OVER () AS chunk_count
                FROM (
                    SELECT position, events FROM execution_progress
                    WHERE tenant_id = {tenant_id} AND execution_id = {execution_id} AND position > {after}
                    ORDER BY position LIMIT {max_chunks}
                ) AS chunk
            ) AS summed
        ) AS page WHERE total - bytes <= {max_page_bytes} ORDER BY position",
    ]);
    let input = Input::of_params(scope)
        .with_param("execution_id", id.uuid())
        .with_param("after", i16::try_from(after).unwrap_or(i16::MAX))
        .with_param("retention", database.result_retention.as_secs_f64())
        .with_param("max_page_bytes", MAX_PAGE_BYTES)
        .with_param("max_small_bytes", i64::from(MAX_SMALL_TEXT_BYTES))
        .with_param("max_chunks", MAX_PAGE_CHUNKS);
    let rows = database.fetch(&READ_PAGE, input).await?;
    let mut records = Vec::with_capacity(rows.len());
    for row in &rows {
        match row.column("events")? {
            Some(events) => records.push(decode_events(row, events)?),
            None if records.is_empty() => {
                let (position, bytes) = (row.column("position")?, row.column("bytes")?);
                records.extend(read_large_chunk(database, scope, id, position, bytes).await?);
                break;
            }
            None => break,
        }
    }
    let chunk_count: i64 = rows.first().map(|row| row.column("chunk_count")).transpose()?.unwrap_or_default();
    let has_more =
        chunk_count == MAX_PAGE_CHUNKS || usize::try_from(chunk_count).is_ok_and(|count| records.len() < count);
    Ok(EventPage { records, has_more })
}

/// Reads the events of one large chunk under a permit.
async fn read_large_chunk(
    database: &Database,
    scope: TenantScope,
    id: ExecutionId,
    position: i16,
    bytes: i64,
) -> Result<Option<ProgressRecord>, StoreError> {
    static READ_CHUNK: Query = Query::of_parts(&[
        "SELECT position, events, ",
        IS_RETAINED,
        " FROM execution_progress
          WHERE tenant_id = {tenant_id} AND execution_id = {execution_id} AND position = {position}",
    ]);
    let large = LargeRead::acquire(scope, bytes).await?;
    let input = Input::of_params(scope)
        .with_param("execution_id", id.uuid())
        .with_param("position", position)
        .with_param("retention", database.result_retention.as_secs_f64());
    let (rows, _permit) = large.rows(database, READ_CHUNK.text(&input)?, &input.params()).await?;
    rows.first().map(|row| decode_events(row, row.column("events")?)).transpose()
}

fn decode_events(row: &Row, events: &str) -> Result<ProgressRecord, StoreError> {
    let mut events: Vec<RunEvent> = parse_json(events)?;
    if !row.column("is_retained")? {
        events.iter_mut().filter(|event| event.kind.is_model_output()).for_each(RunEvent::withhold_delta);
    }
    let position = require_decoded("position", u16::try_from(row.column::<i16>("position")?).ok())?;
    Ok(ProgressRecord { position, answer: None, events })
}

/// Group commit of progress chunks.
pub(crate) struct ProgressCommitter(pub(crate) StatementPool);

/// A progress chunk that waits for its group commit.
pub(crate) struct PendingProgress {
    pub(super) scope: TenantScope,
    pub(super) lease_ref: LeaseRef,
    pub(super) position: i16,
    pub(super) answer: Option<String>,
    pub(super) events: String,
}

impl PendingProgress {
    pub(super) fn of(scope: TenantScope, lease_ref: LeaseRef, progress: &ProgressRecord) -> Result<Self, StoreError> {
        Ok(Self {
            scope,
            lease_ref,
            position: i16::try_from(progress.position).unwrap_or(i16::MAX),
            answer: progress.answer.as_ref().map(to_json).transpose()?,
            events: to_json(&progress.events)?,
        })
    }
}

#[async_trait]
impl BatchCommitter for ProgressCommitter {
    type Item = PendingProgress;
    type Output = ();
    const LABEL: &'static str = "progress of runs";

    /// Each run may occur once in a batch, because a statement can update a lease row only once.
    fn is_batchable(pending: &PendingProgress, batch: &[&PendingProgress]) -> bool {
        batch.iter().all(|other| other.lease_ref.execution_id != pending.lease_ref.execution_id)
    }

    fn payload_bytes(pending: &PendingProgress) -> usize {
        pending.events.len() + pending.answer.as_ref().map_or(0, String::len)
    }

    async fn commit_batch(
        &self,
        pending: &[&PendingProgress],
    ) -> Result<Option<Vec<Result<(), CommitError>>>, StoreError> {
        let input = batch_input(&in_order_of_runs(pending, |pending| pending.lease_ref.execution_id));
        let Some(rows) = commit_batch(&self.0, WRITE_PROGRESS.text(&input)?, &input.params()).await? else {
            return Ok(None);
        };
        let written: HashSet<Uuid> = rows.iter().map(|row| row.column("execution_id")).collect::<Result<_, _>>()?;
        let is_written = |pending: &&PendingProgress| written.contains(&pending.lease_ref.execution_id.uuid());
        Ok(Some(pending.iter().map(|pending| is_written(pending).then_some(()).ok_or(CommitError::Stale)).collect()))
    }

    async fn commit_one(&self, pending: &PendingProgress) -> Result<(), CommitError> {
        let input = batch_input(&[pending]);
        let rows: Vec<Row> = commit(&self.0, WRITE_PROGRESS.text(&input)?, &input.params()).await?;
        rows.first().map(|_| ()).ok_or(CommitError::Stale)
    }
}

/// Builds the input columns of a batch of progress chunks.
fn batch_input<'v>(pending: &[&'v PendingProgress]) -> Input<'v> {
    let leases = || pending.iter().map(|pending| pending.lease_ref);
    Input::many()
        .with_column("tenant_id", pending.iter().map(|pending| pending.scope.tenant().uuid()))
        .with_column("execution_id", leases().map(|lease| lease.execution_id.uuid()))
        .with_column("token", leases().map(|lease| lease.lease))
        .with_column("position", pending.iter().map(|pending| pending.position))
        .with_column("answer", pending.iter().map(|pending| pending.answer.as_deref()))
        .with_column("events", pending.iter().map(|pending| pending.events.as_str()))
}
