//! Text search over chunks.
//!
//! Each index query is a bitmap scan over the word index with a row limit. The conditions on tenant and knowledge
//! base use `IS NOT DISTINCT FROM`, which no other index supports. The planner therefore uses the word index
//! regardless of its estimates, and never scans all chunks of a knowledge base.

use super::{Lexemes, revision_params};
use crate::{
    database::Database,
    guarded_commit::{Input, Query},
    row::require_decoded,
};
use fairway_domain::{
    asset::canonical::Checksum,
    id::{AssetId, ChunkId},
    knowledge::{
        document::{DocumentId, metadata_hashes},
        ports::SearchScope,
        retrieval::{MAX_CANDIDATES, RetrievedChunk, SearchHit, SearchResults, WordSearchPlan},
    },
    search_words::WordSet,
    store::StoreError,
    tenant::TenantScope,
};

/// Maximum number of query words whose chunk counts are read.
const MAX_COUNTED_WORDS: usize = 512;

pub(super) async fn search_words(
    database: &Database,
    scope: TenantScope,
    search_scope: &SearchScope,
    words: &WordSet,
) -> Result<SearchResults, StoreError> {
    // `ts_rank` of one word is 0.06 for one occurrence and approaches 0.1 for more, so scores are scaled by 10. The
    // concatenation with an empty vector makes PostgreSQL detoast `words` once instead of once for each word.
    static SEARCH: Query = Query::new(
        "WITH word AS MATERIALIZED (
            SELECT lexeme::tsquery AS lexeme, share FROM unnest({lexemes}, {shares}) AS word (lexeme, share)
        )
        SELECT chunk_id, max(score) AS score
        FROM unnest({lookups}) AS lookup (query) CROSS JOIN LATERAL (
            SELECT chunk_id, (SELECT sum(share * 10 * ts_rank(words, lexeme)) FROM word) AS score
            FROM (
                SELECT chunk_id, words || ''::tsvector AS words FROM knowledge_chunk
                WHERE words @@ lookup.query::tsquery
                    AND tenant_id IS NOT DISTINCT FROM {tenant_id} AND asset_id IS NOT DISTINCT FROM {asset_id}
                    AND from_revision <= {revision} AND (until_revision IS NULL OR until_revision > {revision})
                LIMIT {max_candidates}
            ) AS candidate
        ) AS found
        GROUP BY chunk_id ORDER BY score DESC, chunk_id LIMIT {limit}",
    );
    let plan = plan_queries(database, scope, search_scope, words).await?;
    if plan.lookups.is_empty() {
        return Ok(SearchResults::default());
    }
    let lexemes = Lexemes::of(scope.tenant(), search_scope.asset);
    let metadata_lexemes: Vec<String> =
        metadata_hashes(&search_scope.filters).iter().map(|hash| lexemes.metadata_hash(hash)).collect();
    let query = |lookup_words: &Vec<String>| {
        lookup_words
            .iter()
            .map(|word| lexemes.word(word))
            .chain(metadata_lexemes.iter().cloned())
            .collect::<Vec<_>>()
            .join(" & ")
    };
    let queries: Vec<String> = plan.lookups.iter().map(query).collect();
    let word_lexemes: Vec<String> = plan.words.iter().map(|word| lexemes.word(&word.word)).collect();
    let shares: Vec<f64> = plan.words.iter().map(|word| word.weight).collect();
    let input = revision_params(scope, search_scope.asset, search_scope.revision)
        .with_list_param("lookups", queries)
        .with_list_param("lexemes", word_lexemes)
        .with_list_param("shares", shares)
        .with_param("max_candidates", i64::from(MAX_CANDIDATES))
        .with_param("limit", i64::from(search_scope.limit));
    let rows = database.fetch(&SEARCH, input).await?;
    let hits = rows.iter().map(|row| Ok(SearchHit { chunk_id: row.id("chunk_id")?, score: row.column("score")? }));
    Ok(SearchResults { hits: hits.collect::<Result<_, StoreError>>()?, is_capped: plan.is_capped })
}

/// Reads how many chunks contain each word, and plans the index queries.
async fn plan_queries(
    database: &Database,
    scope: TenantScope,
    search_scope: &SearchScope,
    words: &WordSet,
) -> Result<WordSearchPlan, StoreError> {
    static COUNT: Query = Query::new(
        "SELECT requested.word, coalesce((
                SELECT counted.chunks FROM knowledge_word AS counted
                WHERE counted.tenant_id = {tenant_id} AND counted.asset_id = {asset_id} AND counted.word = requested.word AND counted.revision <= {revision}
                ORDER BY counted.revision DESC LIMIT 1), 0) AS word_chunks,
            coalesce((
                SELECT chunks FROM knowledge_ingest WHERE tenant_id = {tenant_id} AND asset_id = {asset_id} AND revision = {revision}
            ), 0) AS total
        FROM unnest({words}) AS requested (word)",
    );
    let counted_words: Vec<&str> = words.iter().take(MAX_COUNTED_WORDS).collect();
    if counted_words.is_empty() {
        return Ok(WordSearchPlan::default());
    }
    let input =
        revision_params(scope, search_scope.asset, search_scope.revision).with_list_param("words", counted_words);
    let rows = database.fetch(&COUNT, input).await?;
    let number = |name: &'static str, number: i64| require_decoded(name, u64::try_from(number).ok());
    let mut total = 0;
    let mut word_counts = Vec::with_capacity(rows.len());
    for row in &rows {
        total = number("total", row.column("total")?)?;
        word_counts.push((row.column("word")?, number("word_chunks", row.column("word_chunks")?)?));
    }
    Ok(WordSearchPlan::plan(word_counts, total))
}

pub(super) async fn find_chunks(
    database: &Database,
    scope: TenantScope,
    asset: AssetId,
    ids: &[ChunkId],
) -> Result<Vec<RetrievedChunk>, StoreError> {
    static READ: Query = Query::new(
        "SELECT chunk_id, chunk.entry_id, document_id, document_text.title, position, chunk.body, digest, tokens
        FROM knowledge_chunk AS chunk
        LEFT JOIN knowledge_document_text AS document_text
            ON document_text.tenant_id = chunk.tenant_id AND document_text.entry_id = chunk.entry_id
        WHERE chunk.tenant_id = {tenant_id} AND chunk_id = ANY({chunks}) AND asset_id IS NOT DISTINCT FROM {asset_id}",
    );
    let input = Input::of_params(scope)
        .with_list_param("chunks", ids.iter().map(|id| id.uuid()).collect())
        .with_param("asset_id", asset.uuid());
    let rows = database.fetch(&READ, input).await?;
    rows.iter()
        .map(|row| {
            let count = |name: &'static str| require_decoded(name, u32::try_from(row.column::<i32>(name)?).ok());
            Ok(RetrievedChunk {
                chunk_id: row.id("chunk_id")?,
                entry_id: row.id("entry_id")?,
                document_id: row.parse_column("document_id", DocumentId::parse)?,
                title: row.column("title")?,
                index: count("position")?,
                text: row.column("body")?,
                digest: row.parse_column("digest", Checksum::parse)?,
                tokens: count("tokens")?,
                score: 0.0,
            })
        })
        .collect()
}
