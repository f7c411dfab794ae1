//! Adds documents in one statement.

use super::{Lexemes, model_name};
use crate::{
    commit_tail::{CommitParams, commit_tail},
    database::{Database, Param},
    row::{RowExt, decode},
    store_error,
};
use fairway_domain::{
    asset::canonical::Canonical,
    idempotency::KeyedOutcome,
    knowledge::{
        IndexRevision,
        document::{Ingest, NewChunk, NewDocument, metadata_hashes},
    },
    store::{Change, ChangeRecord, CommitError, StoreError},
    tenant::TenantScope,
};
use serde_json::Value;
use std::{collections::BTreeMap, fmt::Write as _};
use uuid::Uuid;

/// Maximum counted occurrences of a word in a chunk. More occurrences do not change its rank.
const MAX_WORD_COUNT: u32 = 16;

/// Adds documents under the index revision that the decision used. Word counts come from the snapshot at statement
/// start, so a concurrent ingest into the same index makes this one fail and retry.
const INGEST: &str = concat!(
    "WITH head AS (
        INSERT INTO knowledge_index AS known (tenant_id, asset_id, revision, chunks)
        SELECT $1, asset_id, 1, $15 FROM asset
        WHERE tenant_id = $1 AND asset_id = $13 AND asset_kind IS NOT DISTINCT FROM 'knowledge_base'
            AND lifecycle_state <> 'archived' AND ($14::bigint = 0 OR EXISTS (
                SELECT FROM knowledge_index WHERE tenant_id = $1 AND asset_id = $13))
        ON CONFLICT (tenant_id, asset_id) DO UPDATE
        SET revision = known.revision + 1, chunks = known.chunks + excluded.chunks
        WHERE known.revision = $14
        RETURNING revision, chunks
     ),
     ingest AS (
        INSERT INTO knowledge_ingest (tenant_id, asset_id, revision, ingest_id, chunk_strategy, chunk_tokens,
            embedding_account, embedding_model, chunks, created_at, created_by)
        SELECT $1, $13, revision, $16, $17, $18, $19, $20, chunks, $21, $22 FROM head
     ),
     document AS (
        INSERT INTO knowledge_document (tenant_id, asset_id, revision, entry_id, document_id, digest, text_bytes,
            chunk_count, created_at, created_by)
        SELECT $1, $13, revision, entry_id, document_id, digest, text_bytes, chunk_count, $21, $22
        FROM head, unnest($23::uuid[], $24::text[], $25::text[], $26::integer[], $27::integer[])
            AS asked (entry_id, document_id, digest, text_bytes, chunk_count)
     ),
     said AS (
        INSERT INTO knowledge_document_text (tenant_id, entry_id, title, source_ref, metadata, body)
        SELECT $1, entry_id, title, source_ref, metadata, body
        FROM head, unnest($23::uuid[], $28::text[], $29::text[], $30::text[], $31::text[])
            AS asked (entry_id, title, source_ref, metadata, body)
     ),
     replaced AS (
        UPDATE knowledge_chunk SET until_revision = revision FROM head
        WHERE tenant_id = $1 AND asset_id = $13 AND document_id = ANY($24::text[]) AND until_revision IS NULL
     ),
     chunk AS (
        INSERT INTO knowledge_chunk (tenant_id, asset_id, from_revision, embedded_by, chunk_id, entry_id, document_id,
            position, starts, ends, tokens, digest, words, body, embedding)
        SELECT $1, $13, revision, $32, chunk_id, entry_id, document_id, position, starts, ends, tokens, digest,
            words::tsvector, body, embedding
        FROM head, unnest($33::uuid[], $34::uuid[], $35::text[], $36::integer[], $37::integer[], $38::integer[],
            $39::integer[], $40::text[], $41::text[], $42::text[], $43::bytea[])
            AS asked (chunk_id, entry_id, document_id, position, starts, ends, tokens, digest, words, body, embedding)
     ),
     word AS (
        INSERT INTO knowledge_word (tenant_id, asset_id, revision, word, chunks)
        SELECT $1, $13, revision, asked.word, asked.chunks + coalesce((
            SELECT before.chunks FROM knowledge_word AS before
            WHERE before.tenant_id = $1 AND before.asset_id = $13 AND before.word = asked.word
            ORDER BY before.revision DESC LIMIT 1), 0)
        FROM head, unnest($44::text[], $45::bigint[]) AS asked (word, chunks)
     ),
     done AS (SELECT fairway_commit((SELECT count(*) = 1 FROM head), ",
    commit_tail!(),
    "))
     SELECT revision FROM done LEFT JOIN head ON true"
);

pub(super) async fn commit_documents(
    database: &Database,
    scope: TenantScope,
    change: &Change<Ingest>,
    key: Option<&KeyedOutcome>,
) -> Result<IndexRevision, CommitError> {
    let ChangeRecord { next, decided_on, fact } = &**change;
    let tail = CommitParams::new(scope, fact, key);
    let lexemes = Lexemes::of(scope.tenant(), next.asset_id);
    let (mut documents, mut chunks) = (DocumentColumns::default(), ChunkColumns::default());
    for document in &next.documents {
        documents.push(document)?;
        let marks: String =
            metadata_hashes(&document.metadata).iter().fold(String::new(), |all, mark| all + " " + &lexemes.mark(mark));
        for (position, chunk) in document.chunks.iter().enumerate() {
            chunks.push(&lexemes, document, chunk, position, &marks)?;
        }
    }
    let asset = next.asset_id.uuid();
    let seen = decided_on.map_or(0, fairway_domain::store::Revision::get);
    let added = decode("chunks", i64::try_from(chunks.ids.len()).ok())?;
    let ingest = next.ingest_id.uuid();
    let strategy = next.chunking.strategy.as_str();
    let tokens = decode("chunk_tokens", i32::try_from(next.chunking.chunk_tokens).ok())?;
    let account = next.embedded_by.as_ref().map(|model| model.account.as_str());
    let model = next.embedded_by.as_ref().map(|model| model.model.as_str());
    let (at, by) = (next.created_at.to_datetime(), next.created_by.to_string());
    let embedded_by = model_name(next.embedded_by.as_ref());
    let (words, counts): (Vec<&str>, Vec<i64>) = chunks.words.iter().map(|(word, count)| (*word, *count)).unzip();
    let own: [Param<'_>; 33] = [
        &asset,
        &seen,
        &added,
        &ingest,
        &strategy,
        &tokens,
        &account,
        &model,
        &at,
        &by,
        &documents.entries,
        &documents.names,
        &documents.digests,
        &documents.lengths,
        &documents.chunk_counts,
        &documents.titles,
        &documents.sources,
        &documents.metadata,
        &documents.texts,
        &embedded_by,
        &chunks.ids,
        &chunks.entries,
        &chunks.names,
        &chunks.positions,
        &chunks.starts,
        &chunks.ends,
        &chunks.tokens,
        &chunks.digests,
        &chunks.lexemes,
        &chunks.texts,
        &chunks.vectors,
        &words,
        &counts,
    ];
    let rows = database.commit_ingest(scope, INGEST, &tail.with(&own)).await?;
    let revision = decode("revision", rows.first())?.column::<Option<i64>>("revision")?;
    Ok(IndexRevision::new(decode("revision", revision)?))
}

fn integer(name: &'static str, number: usize) -> Result<i32, StoreError> {
    decode(name, i32::try_from(number).ok())
}

/// The documents of an ingest, one vector for each column.
#[derive(Default)]
struct DocumentColumns<'a> {
    entries: Vec<Uuid>,
    names: Vec<&'a str>,
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
        let metadata = metadata.map_err(|refusal| store_error::broken(Box::new(refusal)))?;
        self.entries.push(document.entry_id.uuid());
        self.names.push(document.document_id.as_str());
        self.digests.push(document.digest.as_str());
        self.lengths.push(integer("text_bytes", document.text.len())?);
        self.chunk_counts.push(integer("chunk_count", document.chunks.len())?);
        self.titles.push(document.title.as_deref());
        self.sources.push(document.source_ref.as_deref());
        self.metadata.push(metadata.text().to_owned());
        self.texts.push(&document.text);
        Ok(())
    }
}

/// The chunks of an ingest, one vector for each column, and the number of chunks that contain each word.
#[derive(Default)]
struct ChunkColumns<'a> {
    ids: Vec<Uuid>,
    entries: Vec<Uuid>,
    names: Vec<&'a str>,
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
        marks: &str,
    ) -> Result<(), StoreError> {
        self.ids.push(chunk.chunk_id.uuid());
        self.entries.push(document.entry_id.uuid());
        self.names.push(document.document_id.as_str());
        self.positions.push(integer("position", position)?);
        self.starts.push(integer("starts", chunk.start)?);
        self.ends.push(integer("ends", chunk.end)?);
        self.tokens.push(decode("tokens", i32::try_from(chunk.tokens).ok())?);
        self.digests.push(chunk.digest.as_str());
        self.lexemes.push(tsvector_text(lexemes, &chunk.term_frequencies, marks));
        self.texts.push(document.text.get(chunk.start..chunk.end).unwrap_or_default());
        self.vectors
            .push(chunk.vector.as_ref().map(|vector| vector.iter().flat_map(|part| part.to_le_bytes()).collect()));
        for word in chunk.term_frequencies.keys() {
            let count = self.words.entry(word).or_default();
            *count = count.saturating_add(1);
        }
        Ok(())
    }
}

/// Renders a `tsvector` as text. The positions of a word only encode its number of occurrences.
fn tsvector_text(lexemes: &Lexemes, words: &BTreeMap<String, u32>, marks: &str) -> String {
    let mut text = marks.to_owned();
    for (word, count) in words {
        text.push(' ');
        text.push_str(&lexemes.word(word));
        for place in 1..=(*count).min(MAX_WORD_COUNT) {
            let before = if place == 1 { ':' } else { ',' };
            // Writing to a string cannot fail.
            let _ = write!(text, "{before}{place}");
        }
    }
    text
}
