//! Progress of runs, written under the run's lease. Concurrent writes share one statement.

use crate::{
    database::{Database, Param, commit, commit_batch},
    group_commit::BatchCommitter,
    large_reads::{LargeRead, MAX_SMALL_BYTES},
    row::{RowExt, decode, parse_json},
    store_error,
};
use async_trait::async_trait;
use deadpool_postgres::Pool;
use fairway_domain::{
    execution::{
        dispatch::LeaseRef,
        ports::EventPage,
        progress::{ProgressRecord, RunEvent, StoredAnswer},
    },
    id::ExecutionId,
    store::{CommitError, StoreError},
    tenant::TenantScope,
};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use tokio_postgres::Row;
use uuid::Uuid;

/// The lease is renewed first: its row lock serializes this write with a reclaim of the run, and the later one of both
/// finds no matching token.
const WRITE_PROGRESS: &str = "WITH asked AS MATERIALIZED (
        SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::smallint[], $5::text[], $6::text[])
            AS asked (tenant_id, execution_id, token, position, answer, events)
    ),
    held AS (
        UPDATE execution_lease AS lease SET lapses_at = fairway_now() + lease_for FROM asked
        WHERE lease.tenant_id = asked.tenant_id AND lease.execution_id = asked.execution_id AND lease.token = asked.token
        RETURNING asked.*
    ),
    kept AS (
        INSERT INTO execution_progress (tenant_id, execution_id, position, answer, events)
        SELECT tenant_id, execution_id, position, answer, events FROM held
        ON CONFLICT DO NOTHING
    )
    SELECT execution_id FROM held";

/// A stored progress chunk.
#[derive(Deserialize)]
struct ChunkBody {
    position: u16,
    answer: Option<String>,
    events: String,
}

/// Decodes progress chunks from a JSON aggregate, in order; null means none.
pub(super) fn decode_chunks(text: Option<&str>) -> Result<Vec<ProgressRecord>, StoreError> {
    let bodies: Vec<ChunkBody> = text.map(parse_json).transpose()?.unwrap_or_default();
    let piece = |body: ChunkBody| {
        let answer: Option<StoredAnswer> = body.answer.as_deref().map(parse_json).transpose()?;
        Ok(ProgressRecord { position: body.position, answer, events: parse_json(&body.events)? })
    };
    bodies.into_iter().map(piece).collect()
}

/// Serializes a stored value. Serialization of domain types cannot fail.
pub(super) fn to_json(value: &impl Serialize) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| store_error::broken(Box::new(error)))
}

/// Maximum bytes of the events of a page with several chunks. Rendered as an event stream, they stay below
/// [`MAX_SMALL_BYTES`](crate::large_reads::MAX_SMALL_BYTES), even if each event is short.
const MAX_PAGE_BYTES: i64 = 32 << 10;
/// Maximum number of chunks of a page.
const MAX_PAGE_CHUNKS: i64 = 128;

/// Whether model output of the run is still retained, `$4` seconds after its end.
macro_rules! is_retained_column {
    () => {
        "coalesce((
            SELECT finished_at IS NULL OR finished_at + make_interval(secs => $4) > fairway_now() FROM execution
            WHERE tenant_id = $1 AND execution_id = $2
        ), false) AS kept"
    };
}

/// Reads a page of events after a chunk. Model output expires with the run's output; expired events are blanked and
/// keep their numbers. A large chunk is read alone under a permit.
pub(super) async fn events(
    database: &Database,
    scope: TenantScope,
    id: ExecutionId,
    after: u16,
) -> Result<EventPage, StoreError> {
    // The last row is the first chunk that exceeds the page; its events are null.
    const READ_PAGE: &str = concat!(
        "SELECT position, events, bytes, pieces, ",
        is_retained_column!(),
        " FROM (
            SELECT position, bytes, total, pieces, CASE WHEN total <= $5 OR total = bytes AND bytes <= $6 THEN events END AS events
            FROM (
                SELECT position, events, octet_length(events)::bigint AS bytes,
                    sum(octet_length(events)) OVER (ORDER BY position) AS total, count(*) OVER () AS pieces
                FROM (
                    SELECT position, events FROM execution_progress
                    WHERE tenant_id = $1 AND execution_id = $2 AND position > $3 ORDER BY position LIMIT $7
                ) AS piece
            ) AS summed
        ) AS page WHERE total - bytes <= $5 ORDER BY position"
    );
    let (tenant, run, after) = (scope.tenant().uuid(), id.uuid(), i16::try_from(after).unwrap_or(i16::MAX));
    let kept = database.result_retention.as_secs_f64();
    let params: [Param<'_>; 7] =
        [&tenant, &run, &after, &kept, &MAX_PAGE_BYTES, &i64::from(MAX_SMALL_BYTES), &MAX_PAGE_CHUNKS];
    let rows = database.read(READ_PAGE, &params).await?;
    let mut pieces = Vec::with_capacity(rows.len());
    for row in &rows {
        match row.column("events")? {
            Some(events) => pieces.push(decode_events(row, events)?),
            None if pieces.is_empty() => {
                let (position, bytes) = (row.column("position")?, row.column("bytes")?);
                pieces.extend(read_large_chunk(database, scope, id, position, bytes).await?);
                break;
            }
            None => break,
        }
    }
    let looked_at: i64 = rows.first().map(|row| row.column("pieces")).transpose()?.unwrap_or_default();
    let has_more = looked_at == MAX_PAGE_CHUNKS || usize::try_from(looked_at).is_ok_and(|many| pieces.len() < many);
    Ok(EventPage { records: pieces, has_more })
}

/// Reads the events of one large chunk.
async fn read_large_chunk(
    database: &Database,
    scope: TenantScope,
    id: ExecutionId,
    position: i16,
    bytes: i64,
) -> Result<Option<ProgressRecord>, StoreError> {
    const READ_CHUNK: &str = concat!(
        "SELECT position, events, ",
        is_retained_column!(),
        " FROM execution_progress WHERE tenant_id = $1 AND execution_id = $2 AND position = $3"
    );
    let kept = database.result_retention.as_secs_f64();
    let large = LargeRead::acquire(scope, bytes).await?;
    let params: [Param<'_>; 4] = [&scope.tenant().uuid(), &id.uuid(), &position, &kept];
    let (rows, _permit) = large.rows(database, READ_CHUNK, &params).await?;
    rows.first().map(|row| decode_events(row, row.column("events")?)).transpose()
}

fn decode_events(row: &Row, events: &str) -> Result<ProgressRecord, StoreError> {
    let mut events: Vec<RunEvent> = parse_json(events)?;
    if !row.column("kept")? {
        events.iter_mut().filter(|event| event.kind.is_model_output()).for_each(RunEvent::withhold_delta);
    }
    let position = decode("position", u16::try_from(row.column::<i16>("position")?).ok())?;
    Ok(ProgressRecord { position, answer: None, events })
}

/// Group commit of progress.
pub(crate) struct ProgressCommitter(pub(crate) Pool);

/// A progress chunk to write.
pub(crate) struct PendingProgress {
    pub(super) scope: TenantScope,
    pub(super) lease_ref: LeaseRef,
    pub(super) position: i16,
    pub(super) answer: Option<String>,
    pub(super) events: String,
}

impl PendingProgress {
    pub(super) fn of(scope: TenantScope, held: LeaseRef, progress: &ProgressRecord) -> Result<Self, StoreError> {
        Ok(Self {
            scope,
            lease_ref: held,
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

    /// A statement can update a lease row once only.
    fn is_batchable(pending: &PendingProgress, in_front: &[&PendingProgress]) -> bool {
        in_front.iter().all(|other| other.lease_ref.execution_id != pending.lease_ref.execution_id)
    }

    fn payload_bytes(pending: &PendingProgress) -> usize {
        pending.events.len() + pending.answer.as_ref().map_or(0, String::len)
    }

    async fn commit_batch(
        &self,
        pending: &[&PendingProgress],
    ) -> Result<Option<Vec<Result<(), CommitError>>>, StoreError> {
        let batch = BatchColumns::of(pending);
        let Some(rows) = commit_batch(&self.0, WRITE_PROGRESS, &batch.params()).await? else { return Ok(None) };
        let held: HashSet<Uuid> = rows.iter().map(|row| row.column("execution_id")).collect::<Result<_, _>>()?;
        let kept = |pending: &&PendingProgress| held.contains(&pending.lease_ref.execution_id.uuid());
        Ok(Some(pending.iter().map(|pending| kept(pending).then_some(()).ok_or(CommitError::Stale)).collect()))
    }

    async fn commit_one(&self, pending: &PendingProgress) -> Result<(), CommitError> {
        let rows: Vec<Row> = commit(&self.0, WRITE_PROGRESS, &BatchColumns::of(&[pending]).params()).await?;
        rows.first().map(|_| ()).ok_or(CommitError::Stale)
    }
}

/// A batch of progress chunks, one vector for each column.
#[derive(Default)]
struct BatchColumns<'a> {
    tenants: Vec<Uuid>,
    executions: Vec<Uuid>,
    tokens: Vec<Uuid>,
    positions: Vec<i16>,
    answers: Vec<Option<&'a str>>,
    events: Vec<&'a str>,
}

impl<'a> BatchColumns<'a> {
    fn of(pending: &[&'a PendingProgress]) -> Self {
        let mut batch = Self::default();
        for pending in pending {
            batch.tenants.push(pending.scope.tenant().uuid());
            batch.executions.push(pending.lease_ref.execution_id.uuid());
            batch.tokens.push(pending.lease_ref.lease);
            batch.positions.push(pending.position);
            batch.answers.push(pending.answer.as_deref());
            batch.events.push(&pending.events);
        }
        batch
    }

    fn params(&self) -> [Param<'_>; 6] {
        [&self.tenants, &self.executions, &self.tokens, &self.positions, &self.answers, &self.events]
    }
}
