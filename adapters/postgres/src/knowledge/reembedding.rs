//! The re-embedding of the chunks of an index.

use super::{ingest::INSERT_INGEST, model_name};
use crate::{
    database::Database,
    guarded_commit::{GuardedCommit, Input, Query},
    row::require_decoded,
    schema::{knowledge_chunk, knowledge_ingest},
};
use diesel::{BoolExpressionMethods as _, ExpressionMethods as _, QueryDsl as _};
use fairway_domain::{
    id::{AssetId, IngestId},
    idempotency::KeyedOutcome,
    knowledge::{
        IndexRevision,
        document::MAX_INGEST_BYTES,
        reembedding::{Reembedding, ReembeddingResult, StaleChunk},
        retrieval::EmbeddingModel,
    },
    store::{Change, ChangeRecord, CommitError, Revision, StoreError},
    tenant::TenantScope,
};

pub(super) async fn stale_chunks(
    database: &Database,
    scope: TenantScope,
    asset: AssetId,
    model: &EmbeddingModel,
    limit: u32,
) -> Result<Vec<StaleChunk>, StoreError> {
    // The inner query scans the partial index over current chunks, oldest first. The texts are read only for the
    // rows that it returns.
    static FIND_STALE: Query = Query::new(
        "SELECT chunk_id, body FROM (
            SELECT stale.chunk_id, body, sum(octet_length(body)) OVER (ORDER BY stale.from_revision, stale.chunk_id)
                - octet_length(body) AS bytes_before
            FROM (
                SELECT chunk_id, from_revision FROM knowledge_chunk
                WHERE tenant_id = {tenant_id} AND asset_id = {asset_id} AND until_revision IS NULL AND embedded_by <> {model}
                ORDER BY from_revision, chunk_id LIMIT {limit}
            ) AS stale
            JOIN knowledge_chunk AS chunk ON chunk.tenant_id = {tenant_id} AND chunk.chunk_id = stale.chunk_id
        ) AS read
        WHERE bytes_before < {max_bytes}",
    );
    let model = model_name(Some(model));
    let bytes = require_decoded("bytes", i64::try_from(MAX_INGEST_BYTES).ok())?;
    let input = Input::of_params(scope)
        .with_param("asset_id", asset.uuid())
        .with_param("model", model)
        .with_param("limit", i64::from(limit))
        .with_param("max_bytes", bytes);
    let rows = database.fetch(&FIND_STALE, input).await?;
    rows.iter().map(|row| Ok(StaleChunk { chunk_id: row.id("chunk_id")?, text: row.column("body")? })).collect()
}

/// Replaces chunks by copies with new vectors.
///
/// Words and their chunk counts stay the same, so the scores of text search do not change. The condition
/// `coalesce(until_revision, 0) = 0` keeps the planner on the primary key: with `until_revision IS NULL`, it would
/// use the index over all current chunks. If another commit replaced a chunk meanwhile, the guard fails, so the
/// chunk count in the fact is exact.
static REEMBED: GuardedCommit = GuardedCommit::of_parts(
    &[
        "head AS (
            UPDATE knowledge_index AS existing SET revision = existing.revision + 1
            FROM input JOIN asset USING (tenant_id, asset_id)
            WHERE existing.tenant_id = input.tenant_id AND existing.asset_id = input.asset_id
                AND existing.revision = expected_revision
                AND asset.asset_kind IS NOT DISTINCT FROM 'knowledge_base' AND asset.lifecycle_state <> 'archived'
            RETURNING existing.revision, existing.chunks
         ),
         ingest AS (",
        INSERT_INGEST,
        "),
         replaced AS (
            UPDATE knowledge_chunk AS old SET until_revision = head.revision
            FROM head, input
            WHERE old.tenant_id = input.tenant_id AND old.chunk_id = ANY(replaced_chunks)
                AND old.asset_id IS NOT DISTINCT FROM input.asset_id AND coalesce(old.until_revision, 0) = 0
            RETURNING old.chunk_id, entry_id, document_id, position, starts, ends, tokens, digest, words, body
         ),
         chunk AS (
            INSERT INTO knowledge_chunk (tenant_id, asset_id, from_revision, embedded_by, chunk_id, entry_id,
                document_id, position, starts, ends, tokens, digest, words, body, embedding)
            SELECT tenant_id, asset_id, head.revision, embedded_by, added.chunk_id, entry_id, document_id, position,
                starts, ends, tokens, digest, words, body, added.embedding
            FROM input, head, replaced
            JOIN unnest((SELECT replaced_chunks FROM input), (SELECT chunk_ids FROM input),
                (SELECT embeddings FROM input)) AS added (replaces, chunk_id, embedding)
                ON added.replaces = replaced.chunk_id
         )",
    ],
    "(SELECT count(*) = 1 FROM head)
        AND (SELECT count(*) FROM replaced) = (SELECT cardinality(replaced_chunks) FROM input)",
    "(SELECT revision FROM head) AS index_revision",
);

pub(super) async fn commit_reembedding(
    database: &Database,
    scope: TenantScope,
    change: &Change<Reembedding>,
    key: Option<&KeyedOutcome>,
) -> Result<IndexRevision, CommitError> {
    let ChangeRecord { next, expected_revision, fact } = &**change;
    let EmbeddingModel { account, model } = &next.embedded_by;
    let bytes = |vector: &[f32]| vector.iter().flat_map(|part| part.to_le_bytes()).collect::<Vec<u8>>();
    let input = Input::new(scope)
        .with("asset_id", next.asset_id.uuid())
        .with("expected_revision", expected_revision.map_or(0, Revision::get))
        .with("ingest_id", next.ingest_id.uuid())
        .with("chunk_strategy", next.chunking.strategy.as_str())
        .with("chunk_tokens", require_decoded("chunk_tokens", i32::try_from(next.chunking.chunk_tokens).ok())?)
        .with("embedding_account", account.as_str())
        .with("embedding_model", model.as_str())
        .with("embedded_by", model_name(Some(&next.embedded_by)))
        .with("reembeds", true)
        .with("created_at", next.created_at.to_datetime())
        .with("created_by", next.created_by.to_string())
        .with_list("replaced_chunks", next.vectors.iter().map(|new| new.replaces.uuid()).collect())
        .with_list("chunk_ids", next.vectors.iter().map(|new| new.chunk_id.uuid()).collect())
        .with_list("embeddings", next.vectors.iter().map(|new| bytes(&new.vector)).collect());
    let (sql, input) = REEMBED.prepare(scope, fact, key, input)?;
    let rows = database.commit_ingest(scope, sql, &input.params()).await?;
    let revision = require_decoded("index_revision", rows.first())?.column::<Option<i64>>("index_revision")?;
    Ok(IndexRevision::new(require_decoded("index_revision", revision)?))
}

pub(super) async fn find_reembedding(
    database: &Database,
    scope: TenantScope,
    asset: AssetId,
    id: IngestId,
) -> Result<Option<ReembeddingResult>, StoreError> {
    let (tenant, asset, ingest) = (scope.tenant().uuid(), asset.uuid(), id.uuid());
    let find = || {
        let chunks = knowledge_chunk::table
            .filter(knowledge_chunk::tenant_id.eq(tenant).and(knowledge_chunk::asset_id.eq(asset)))
            .filter(knowledge_chunk::from_revision.eq(knowledge_ingest::revision))
            .count()
            .single_value();
        knowledge_ingest::table
            .filter(knowledge_ingest::tenant_id.eq(tenant).and(knowledge_ingest::ingest_id.eq(ingest)))
            .filter(knowledge_ingest::asset_id.eq(asset).and(knowledge_ingest::reembeds))
            .select((
                knowledge_ingest::revision,
                knowledge_ingest::embedding_account,
                knowledge_ingest::embedding_model,
                chunks,
            ))
    };
    let found: Option<ReembeddingRow> = database.first("re-embedding of an index", find).await?;
    let Some((revision, account, model, chunks)) = found else { return Ok(None) };
    Ok(Some(ReembeddingResult {
        ingest_id: id,
        index_revision: IndexRevision::new(revision),
        embedded_by: EmbeddingModel {
            account: require_decoded("embedding_account", account)?,
            model: require_decoded("embedding_model", model)?,
        },
        chunk_count: require_decoded("chunks", chunks.and_then(|count| u32::try_from(count).ok()))?,
    }))
}

/// Columns of a re-embedding: revision, account, model, and number of chunks.
type ReembeddingRow = (i64, Option<String>, Option<String>, Option<i64>);
