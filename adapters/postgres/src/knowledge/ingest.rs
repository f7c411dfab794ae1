//! Adds documents to a knowledge base in one statement.

use super::{Lexemes, model_name};
use crate::{
    database::Database,
    guarded_commit::{GuardedCommit, Input},
    row::require_decoded,
    store_error,
};
use fairway_domain::{
    asset::canonical::Canonical,
    idempotency::KeyedOutcome,
    knowledge::{
        IndexRevision,
        document::{Ingest, NewChunk, NewDocument, metadata_hashes},
    },
    store::{Change, ChangeRecord, CommitError, Revision, StoreError},
    tenant::TenantScope,
};
use serde_json::Value;
use std::{collections::BTreeMap, fmt::Write as _};
use uuid::Uuid;

/// Maximum occurrences of a word in a chunk that are counted. Further occurrences do not change the chunk's rank.
const MAX_WORD_COUNT: u32 = 16;

/// Adds documents to an index that still has the revision of the decision. The statement reads word counts from its
/// snapshot, which would be outdated after a concurrent ingest. In that case the guard fails, and the ingest is
/// retried.
static INGEST: GuardedCommit = GuardedCommit::of_parts(
    &[
        "head AS (
            INSERT INTO knowledge_index AS existing (tenant_id, asset_id, revision, chunks)
            SELECT input.tenant_id, input.asset_id, 1, added_chunks FROM input JOIN asset USING (tenant_id, asset_id)
            WHERE asset_kind IS NOT DISTINCT FROM 'knowledge_base' AND lifecycle_state <> 'archived'
                AND (expected_revision = 0 OR EXISTS (
                    SELECT FROM knowledge_index AS present
                    WHERE present.tenant_id = input.tenant_id AND present.asset_id = input.asset_id))
            ON CONFLICT (tenant_id, asset_id) DO UPDATE
            SET revision = existing.revision + 1, chunks = existing.chunks + excluded.chunks
            WHERE existing.revision = (SELECT expected_revision FROM input)
            RETURNING revision, chunks
         ),
         ingest AS (",
        INSERT_INGEST,
        "),
         document AS (
            INSERT INTO knowledge_document (tenant_id, asset_id, revision, entry_id, document_id, digest, text_bytes,
                chunk_count, created_at, created_by)
            SELECT tenant_id, asset_id, head.revision, entry_id, document_id, digest, text_bytes, chunk_count,
                created_at, created_by
            FROM input, head, unnest(entry_ids, document_ids, document_digests, text_lengths, chunk_counts)
                AS added (entry_id, document_id, digest, text_bytes, chunk_count)
         ),
         texts AS (
            INSERT INTO knowledge_document_text (tenant_id, entry_id, title, source_ref, metadata, body)
            SELECT tenant_id, entry_id, title, source_ref, metadata, body
            FROM input, head, unnest(entry_ids, titles, source_refs, metadata_texts, document_texts)
                AS added (entry_id, title, source_ref, metadata, body)
         ),
         replaced AS (
            UPDATE knowledge_chunk AS old SET until_revision = head.revision
            FROM input, head
            WHERE old.tenant_id = input.tenant_id AND old.asset_id = input.asset_id
                AND old.document_id = ANY(document_ids) AND old.until_revision IS NULL
         ),
         chunk AS (
            INSERT INTO knowledge_chunk (tenant_id, asset_id, from_revision, embedded_by, chunk_id, entry_id,
                document_id, position, starts, ends, tokens, digest, words, body, embedding)
            SELECT tenant_id, asset_id, head.revision, embedded_by, chunk_id, entry_id, document_id, position, starts,
                ends, tokens, digest, words::tsvector, body, embedding
            FROM input, head, unnest(chunk_ids, chunk_entries, chunk_documents, positions, starts_at, ends_at,
                token_counts, chunk_digests, chunk_words, chunk_texts, embeddings)
                AS added (chunk_id, entry_id, document_id, position, starts, ends, tokens, digest, words, body,
                    embedding)
         ),
         word AS (
            INSERT INTO knowledge_word (tenant_id, asset_id, revision, word, chunks)
            SELECT tenant_id, asset_id, head.revision, added.word, added.chunks + coalesce((
                SELECT before.chunks FROM knowledge_word AS before
                WHERE before.tenant_id = input.tenant_id AND before.asset_id = input.asset_id
                    AND before.word = added.word
                ORDER BY before.revision DESC LIMIT 1), 0)
            FROM input, head, unnest(distinct_words, word_chunks) AS added (word, chunks)
         )",
    ],
    "(SELECT count(*) = 1 FROM head)",
    "(SELECT revision FROM head) AS index_revision",
);

/// The `INSERT` of an ingest, for an input with its columns. It follows the CTE `head`, which has the new revision of
/// the index and its number of chunks.
pub(super) const INSERT_INGEST: &str = "
    INSERT INTO knowledge_ingest (tenant_id, asset_id, revision, ingest_id, chunk_strategy, chunk_tokens,
        embedding_account, embedding_model, chunks, created_at, created_by, reembeds)
    SELECT tenant_id, asset_id, head.revision, ingest_id, chunk_strategy, chunk_tokens, embedding_account,
        embedding_model, head.chunks, created_at, created_by, reembeds
    FROM input, head";

pub(super) async fn commit_documents(
    database: &Database,
    scope: TenantScope,
    change: &Change<Ingest>,
    key: Option<&KeyedOutcome>,
) -> Result<IndexRevision, CommitError> {
    let ChangeRecord { next, expected_revision, fact } = &**change;
    let lexemes = Lexemes::of(scope.tenant(), next.asset_id);
    let (mut documents, mut chunks) = (DocumentColumns::default(), ChunkColumns::default());
    for document in &next.documents {
        documents.push(document)?;
        let metadata_lexemes: String = metadata_hashes(&document.metadata)
            .iter()
            .fold(String::new(), |text, hash| text + " " + &lexemes.metadata_hash(hash));
        for (position, chunk) in document.chunks.iter().enumerate() {
            chunks.push(&lexemes, document, chunk, position, &metadata_lexemes)?;
        }
    }
    let input = Input::new(scope)
        .with("asset_id", next.asset_id.uuid())
        .with("expected_revision", expected_revision.map_or(0, Revision::get))
        .with("added_chunks", require_decoded("chunks", i64::try_from(chunks.ids.len()).ok())?)
        .with("ingest_id", next.ingest_id.uuid())
        .with("chunk_strategy", next.chunking.strategy.as_str())
        .with("chunk_tokens", require_decoded("chunk_tokens", i32::try_from(next.chunking.chunk_tokens).ok())?)
        .with("embedding_account", next.embedded_by.as_ref().map(|model| model.account.as_str()))
        .with("embedding_model", next.embedded_by.as_ref().map(|model| model.model.as_str()))
        .with("embedded_by", model_name(next.embedded_by.as_ref()))
        .with("reembeds", false)
        .with("created_at", next.created_at.to_datetime())
        .with("created_by", next.created_by.to_string());
    let (sql, input) = INGEST.prepare(scope, fact, key, chunks.add_to_input(documents.add_to_input(input)))?;
    let rows = database.commit_ingest(scope, sql, &input.params()).await?;
    let revision = require_decoded("index_revision", rows.first())?.column::<Option<i64>>("index_revision")?;
    Ok(IndexRevision::new(require_decoded("index_revision", revision)?))
}

fn integer(name: &'static str, number: usize) -> Result<i32, StoreError> {
    require_decoded(name, i32::try_from(number).ok())
}

/// The documents of an ingest, one vector for each column.
#[derive(Default)]
struct DocumentColumns<'a> {
    entries: Vec<Uuid>,
    document_ids: Vec<&'a str>,
    digests: Vec<&'a str>,
    lengths: Vec<i32>,
    chunk_counts: Vec<i32>,
    titles: Vec<Option<&'a str>>,
    sources: Vec<Option<&'a str>>,
    metadata: Vec<String>,
    texts: Vec<&'a str>,
}

impl<'a> DocumentColumns<'a> {
    fn push(&mut self, document: &'a NewDocument) -> Result<(), StoreError> {
        let metadata = Canonical::of(&Value::Object(document.metadata.clone()));
        let metadata = metadata.map_err(|refusal| store_error::inconsistent(Box::new(refusal)))?;
        self.entries.push(document.entry_id.uuid());
        self.document_ids.push(document.document_id.as_str());
        self.digests.push(document.digest.as_str());
        self.lengths.push(integer("text_bytes", document.text.len())?);
        self.chunk_counts.push(integer("chunk_count", document.chunks.len())?);
        self.titles.push(document.title.as_deref());
        self.sources.push(document.source_ref.as_deref());
        self.metadata.push(metadata.text().to_owned());
        self.texts.push(&document.text);
        Ok(())
    }

    fn add_to_input<'v>(self, input: Input<'v>) -> Input<'v>
    where
        'a: 'v,
    {
        input
            .with_list("entry_ids", self.entries)
            .with_list("document_ids", self.document_ids)
            .with_list("document_digests", self.digests)
            .with_list("text_lengths", self.lengths)
            .with_list("chunk_counts", self.chunk_counts)
            .with_list("titles", self.titles)
            .with_list("source_refs", self.sources)
            .with_list("metadata_texts", self.metadata)
            .with_list("document_texts", self.texts)
    }
}

/// The chunks of an ingest, one vector for each column, and the number of chunks that contain each word.
#[derive(Default)]
struct ChunkColumns<'a> {
    ids: Vec<Uuid>,
    entries: Vec<Uuid>,
    document_ids: Vec<&'a str>,
    positions: Vec<i32>,
    starts: Vec<i32>,
    ends: Vec<i32>,
    tokens: Vec<i32>,
    digests: Vec<&'a str>,
    lexemes: Vec<String>,
    texts: Vec<&'a str>,
    vectors: Vec<Option<Vec<u8>>>,
    words: BTreeMap<&'a str, i64>,
}

impl<'a> ChunkColumns<'a> {
    fn push(
        &mut self,
        lexemes: &Lexemes,
        document: &'a NewDocument,
        chunk: &'a NewChunk,
        position: usize,
        metadata_lexemes: &str,
    ) -> Result<(), StoreError> {
        self.ids.push(chunk.chunk_id.uuid());
        self.entries.push(document.entry_id.uuid());
        self.document_ids.push(document.document_id.as_str());
        self.positions.push(integer("position", position)?);
        self.starts.push(integer("starts", chunk.start)?);
        self.ends.push(integer("ends", chunk.end)?);
        self.tokens.push(require_decoded("tokens", i32::try_from(chunk.tokens).ok())?);
        self.digests.push(chunk.digest.as_str());
        self.lexemes.push(tsvector_text(lexemes, &chunk.term_frequencies, metadata_lexemes));
        self.texts.push(document.text.get(chunk.start..chunk.end).unwrap_or_default());
        self.vectors
            .push(chunk.vector.as_ref().map(|vector| vector.iter().flat_map(|part| part.to_le_bytes()).collect()));
        for word in chunk.term_frequencies.keys() {
            let count = self.words.entry(word).or_default();
            *count = count.saturating_add(1);
        }
        Ok(())
    }

    fn add_to_input<'v>(self, input: Input<'v>) -> Input<'v>
    where
        'a: 'v,
    {
        let (words, counts): (Vec<&str>, Vec<i64>) = self.words.into_iter().unzip();
        input
            .with_list("chunk_ids", self.ids)
            .with_list("chunk_entries", self.entries)
            .with_list("chunk_documents", self.document_ids)
            .with_list("positions", self.positions)
            .with_list("starts_at", self.starts)
            .with_list("ends_at", self.ends)
            .with_list("token_counts", self.tokens)
            .with_list("chunk_digests", self.digests)
            .with_list("chunk_words", self.lexemes)
            .with_list("chunk_texts", self.texts)
            .with_list("embeddings", self.vectors)
            .with_list("distinct_words", words)
            .with_list("word_chunks", counts)
    }
}

/// Renders a `tsvector` as text. A word has one position for each occurrence; the positions have no other meaning.
fn tsvector_text(lexemes: &Lexemes, words: &BTreeMap<String, u32>, metadata_lexemes: &str) -> String {
    let mut text = metadata_lexemes.to_owned();
    for (word, count) in words {
        text.push(' ');
        text.push_str(&lexemes.word(word));
        for position in 1..=(*count).min(MAX_WORD_COUNT) {
            let separator = if position == 1 { ':' } else { ',' };
            // Errors are ignored, because writing to a string cannot fail.
            let _ = write!(text, "{separator}{position}");
        }
    }
    text
}
