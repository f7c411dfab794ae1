//! The retrieved documents that the result of a run cites, as far as its reader may read them now.

use crate::{Failure, Stores, knowledge::KnowledgeBases};
use fairway_domain::{
    access::Caller,
    execution::{Execution, Status, ports::ExecutionStore},
    id::{AssetId, ChunkId},
    knowledge::{document::DocumentId, retrieval::RetrievedChunk},
    tenant::TenantScope,
};
use serde_json::{Map, Value};
use std::{collections::HashMap, sync::Arc};
use uuid::Uuid;

/// Maximum number of retrievals whose documents are found.
const MAX_RETRIEVALS: usize = 20;
/// Maximum number of passages of one result.
const MAX_PASSAGES: usize = 50;
/// The artifacts of a run that changed texts. A stored passage would show what it masked.
const MASKING_KINDS: [&str; 3] = ["redaction", "guardrail", "hook"];

/// A retrieved document that a result cites.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CitedDocument {
    /// The name of the document.
    pub document_id: String,
    /// Its title; `None` if there is none, it was erased, or it is withheld.
    pub title: Option<String>,
    /// The retrieved passages, in the order of the document; empty if they were erased or are withheld.
    pub passages: Vec<String>,
    /// Whether the reader may not read the document now, or the run masked texts.
    pub is_withheld: bool,
}

/// Reads the citations of results.
pub struct Citations {
    execution_store: Arc<dyn ExecutionStore>,
    knowledge_bases: Arc<KnowledgeBases>,
}

impl Citations {
    pub(crate) fn new(stores: &Stores, knowledge_bases: &Arc<KnowledgeBases>) -> Self {
        Self { execution_store: Arc::clone(&stores.executions), knowledge_bases: Arc::clone(knowledge_bases) }
    }

    /// The documents that a result cites, in the order of their retrieval. `execution` is as the caller may read it:
    /// without an output there are no citations.
    ///
    /// # Errors
    /// When a store fails.
    pub async fn of_result(&self, caller: &Caller, execution: &Execution) -> Result<Vec<CitedDocument>, Failure> {
        let (Some(result), Status::Completed) = (&execution.output, execution.status) else { return Ok(Vec::new()) };
        let scope = TenantScope::for_caller(caller);
        let id = execution.execution_id;
        let Some(record) = self.execution_store.evidence(scope, id).await? else { return Ok(Vec::new()) };
        let is_masked = record.artifacts.iter().any(|one| MASKING_KINDS.contains(&one.artifact_kind.as_str()));
        let mut cited = CitedChunks::default();
        for retrieval in record.retrievals.iter().filter(|one| one.chunks > 0).take(MAX_RETRIEVALS) {
            if let Some((_, artifact)) = self.execution_store.artifact(scope, id, retrieval.artifact_id).await? {
                cited.add(retrieval.asset, &artifact.body, result);
            }
        }
        let mut texts = HashMap::new();
        for (asset, chunks) in cited.by_asset() {
            let read = if is_masked {
                None
            } else {
                self.knowledge_bases.read_chunks(caller, execution.workspace_id, asset, &chunks).await?
            };
            texts.insert(asset, read);
        }
        let document = |(asset, document_id, chunks): (AssetId, String, Vec<ChunkId>)| {
            let texts = texts.get(&asset).and_then(Option::as_ref);
            describe(document_id, &chunks, texts.map(Vec::as_slice))
        };
        Ok(cited.documents.into_iter().map(document).collect())
    }
}

/// The cited documents of a run with their retrieved chunks, in the order of retrieval.
#[derive(Default)]
struct CitedChunks {
    documents: Vec<(AssetId, String, Vec<ChunkId>)>,
    passages: usize,
}

impl CitedChunks {
    /// Adds the chunks of a retrieval whose documents the result names in brackets.
    fn add(&mut self, asset: AssetId, retrieval: &Map<String, Value>, result: &str) {
        let chunks = retrieval.get("chunks").and_then(Value::as_array).into_iter().flatten();
        for chunk in chunks {
            let Some(document) = chunk.get("document_id").and_then(Value::as_str) else { continue };
            if !DocumentId::is_cited(document, result) {
                continue;
            }
            let is_named = |(base, name, _): &(AssetId, String, Vec<ChunkId>)| *base == asset && name == document;
            if !self.documents.iter().any(is_named) {
                self.documents.push((asset, document.to_owned(), Vec::new()));
            }
            let chunk = chunk.get("chunk_id").and_then(Value::as_str).and_then(|id| Uuid::parse_str(id).ok());
            let (Some(chunk), Some((_, _, chunks))) =
                (chunk.map(ChunkId::from), self.documents.iter_mut().find(|one| is_named(one)))
            else {
                continue;
            };
            if self.passages < MAX_PASSAGES && !chunks.contains(&chunk) {
                self.passages += 1;
                chunks.push(chunk);
            }
        }
    }

    fn by_asset(&self) -> HashMap<AssetId, Vec<ChunkId>> {
        let mut all: HashMap<AssetId, Vec<ChunkId>> = HashMap::new();
        for (asset, _, chunks) in &self.documents {
            all.entry(*asset).or_default().extend(chunks);
        }
        all
    }
}

/// A cited document with the texts that the caller may read; `None` if the caller may read none.
fn describe(document_id: String, chunks: &[ChunkId], texts: Option<&[RetrievedChunk]>) -> CitedDocument {
    let Some(texts) = texts else {
        return CitedDocument { document_id, title: None, passages: Vec::new(), is_withheld: true };
    };
    let mut found: Vec<&RetrievedChunk> = texts.iter().filter(|text| chunks.contains(&text.chunk_id)).collect();
    found.sort_by_key(|text| (text.entry_id, text.index));
    let title = found.last().and_then(|text| text.title.clone());
    let passages = found.iter().map(|text| text.text.clone()).collect();
    CitedDocument { document_id, title, passages, is_withheld: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn retrieval(chunks: &[(&str, u128)]) -> Map<String, Value> {
        let chunk =
            |(document, id): &(&str, u128)| json!({ "document_id": document, "chunk_id": Uuid::from_u128(*id) });
        Map::from_iter([("chunks".to_owned(), Value::Array(chunks.iter().map(chunk).collect()))])
    }

    #[test]
    fn collects_each_cited_chunk_once_in_the_order_of_retrieval() {
        let asset = AssetId::from(Uuid::from_u128(1));
        let mut cited = CitedChunks::default();
        cited.add(
            asset,
            &retrieval(&[("travel", 1), ("leave", 2), ("other", 3)]),
            "Thirty [leave], by train [travel].",
        );
        cited.add(asset, &retrieval(&[("leave", 2), ("leave", 4)]), "Thirty [leave], by train [travel].");
        let names: Vec<_> = cited.documents.iter().map(|(_, name, chunks)| (name.as_str(), chunks.len())).collect();
        assert_eq!(names, [("travel", 1), ("leave", 2)]);
    }

    #[test]
    fn an_evidence_without_chunk_identifiers_gives_names_alone() {
        let mut cited = CitedChunks::default();
        let body = Map::from_iter([("chunks".to_owned(), json!([{ "document_id": "leave", "index": 0 }]))]);
        cited.add(AssetId::from(Uuid::from_u128(1)), &body, "[leave]");
        assert_eq!(cited.documents.len(), 1);
        assert_eq!(describe("leave".to_owned(), &[], Some(&[])).passages, Vec::<String>::new());
        assert!(describe("leave".to_owned(), &[], None).is_withheld);
    }
}
