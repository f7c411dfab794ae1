//! Text search over chunks.
//!
//! Each index query is a bitmap scan over the words with a row limit. The conditions on tenant and knowledge base use
//! `IS NOT DISTINCT FROM`, which no other index supports. So the planner uses the word index whatever its estimates,
//! and never scans all chunks of a knowledge base.

use super::Lexemes;
use crate::{
    database::{Database, Param},
    row::{RowExt, decode},
};
use fairway_domain::{
    asset::canonical::Checksum,
    id::{AssetId, ChunkId},
    knowledge::{
        document::{DocumentId, metadata_hashes},
        ports::SearchScope,
        retrieval::{MAX_CANDIDATES, RetrievedChunk, SearchHit, SearchPlan, SearchResults},
    },
    search::WordSet,
    store::StoreError,
    tenant::TenantScope,
};
use uuid::Uuid;

/// Maximum number of query words whose chunk counts are read.
const MAX_COUNTED_WORDS: usize = 512;

pub(super) async fn search_words(
    database: &Database,
    scope: TenantScope,
    within: &SearchScope,
    words: &WordSet,
) -> Result<SearchResults, StoreError> {
    // `ts_rank` of one word is 0.06 for one occurrence and approaches 0.1 for more. Concatenation with an empty vector
    // detoasts `words` once instead of once for each word.
    const SQL: &str = "WITH asked AS MATERIALIZED (
            SELECT lexeme::tsquery AS lexeme, share FROM unnest($5::text[], $6::float8[]) AS asked (lexeme, share)
        )
        SELECT chunk_id, max(score) AS score
        FROM unnest($4::text[]) AS look (query) CROSS JOIN LATERAL (
            SELECT chunk_id, (SELECT sum(share * 10 * ts_rank(words, lexeme)) FROM asked) AS score
            FROM (
                SELECT chunk_id, words || ''::tsvector AS words FROM knowledge_chunk
                WHERE words @@ look.query::tsquery
                    AND tenant_id IS NOT DISTINCT FROM $1::uuid AND asset_id IS NOT DISTINCT FROM $2::uuid
                    AND from_revision <= $3 AND (until_revision IS NULL OR until_revision > $3)
                LIMIT $7
            ) AS few
        ) AS found
        GROUP BY chunk_id ORDER BY score DESC, chunk_id LIMIT $8";
    let looks = plan_queries(database, scope, within, words).await?;
    if looks.lookups.is_empty() {
        return Ok(SearchResults::default());
    }
    let lexemes = Lexemes::of(scope.tenant(), within.asset);
    let marks: Vec<String> = metadata_hashes(&within.filters).iter().map(|mark| lexemes.mark(mark)).collect();
    let query = |look: &Vec<String>| {
        look.iter().map(|word| lexemes.word(word)).chain(marks.iter().cloned()).collect::<Vec<_>>().join(" & ")
    };
    let queries: Vec<String> = looks.lookups.iter().map(query).collect();
    let asked: Vec<String> = looks.words.iter().map(|word| lexemes.word(&word.word)).collect();
    let shares: Vec<f64> = looks.words.iter().map(|word| word.weight).collect();
    let params: [Param<'_>; 8] = [
        &scope.tenant().uuid(),
        &within.asset.uuid(),
        &within.revision.get(),
        &queries,
        &asked,
        &shares,
        &i64::from(MAX_CANDIDATES),
        &i64::from(within.limit),
    ];
    let rows = database.read(SQL, &params).await?;
    let hits = rows.iter().map(|row| Ok(SearchHit { chunk_id: row.id("chunk_id")?, score: row.column("score")? }));
    Ok(SearchResults { hits: hits.collect::<Result<_, StoreError>>()?, is_capped: looks.is_capped })
}

/// Plans the index queries for the words.
async fn plan_queries(
    database: &Database,
    scope: TenantScope,
    within: &SearchScope,
    words: &WordSet,
) -> Result<SearchPlan, StoreError> {
    const SQL: &str = "SELECT asked.word, coalesce((
                SELECT held.chunks FROM knowledge_word AS held
                WHERE held.tenant_id = $1 AND held.asset_id = $2 AND held.word = asked.word AND held.revision <= $3
                ORDER BY held.revision DESC LIMIT 1), 0) AS held,
            coalesce((
                SELECT chunks FROM knowledge_ingest WHERE tenant_id = $1 AND asset_id = $2 AND revision = $3
            ), 0) AS total
        FROM unnest($4::text[]) AS asked (word)";
    let asked: Vec<&str> = words.iter().take(MAX_COUNTED_WORDS).collect();
    if asked.is_empty() {
        return Ok(SearchPlan::default());
    }
    let params: [Param<'_>; 4] = [&scope.tenant().uuid(), &within.asset.uuid(), &within.revision.get(), &asked];
    let rows = database.read(SQL, &params).await?;
    let number = |name: &'static str, number: i64| decode(name, u64::try_from(number).ok());
    let mut total = 0;
    let mut held = Vec::with_capacity(rows.len());
    for row in &rows {
        total = number("total", row.column("total")?)?;
        held.push((row.column("word")?, number("held", row.column("held")?)?));
    }
    Ok(SearchPlan::plan(held, total))
}

pub(super) async fn chunks(
    database: &Database,
    scope: TenantScope,
    asset: AssetId,
    ids: &[ChunkId],
) -> Result<Vec<RetrievedChunk>, StoreError> {
    const SQL: &str = "SELECT chunk_id, chunk.entry_id, document_id, said.title, position, chunk.body, digest, tokens
        FROM knowledge_chunk AS chunk
        LEFT JOIN knowledge_document_text AS said
            ON said.tenant_id = chunk.tenant_id AND said.entry_id = chunk.entry_id
        WHERE chunk.tenant_id = $1 AND chunk_id = ANY($2) AND asset_id IS NOT DISTINCT FROM $3::uuid";
    let ids: Vec<Uuid> = ids.iter().map(|id| id.uuid()).collect();
    let rows = database.read(SQL, &[&scope.tenant().uuid(), &ids, &asset.uuid()]).await?;
    rows.iter()
        .map(|row| {
            let count = |name: &'static str| decode(name, u32::try_from(row.column::<i32>(name)?).ok());
            Ok(RetrievedChunk {
                chunk_id: row.id("chunk_id")?,
                entry_id: row.id("entry_id")?,
                document_id: row.parsed("document_id", DocumentId::parse)?,
                title: row.column("title")?,
                index: count("position")?,
                text: row.column("body")?,
                digest: row.parsed("digest", Checksum::parse)?,
                tokens: count("tokens")?,
                score: 0.0,
            })
        })
        .collect()
}
