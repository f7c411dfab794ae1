//! Citations: the retrieved documents that the result of a run cites, as far as the reader of the result may
//! currently read them.

use crate::{
    Failure, Stores,
    knowledge::{KnowledgeBases, RetrievedChunksRequest},
};
use fairway_domain::{
    access::Caller,
    evidence::RETRIEVAL_EVENT,
    execution::{Execution, Status, ports::ExecutionReadStore},
    id::{AssetId, ChunkId},
    knowledge::{document::DocumentId, retrieval::RetrievedChunk},
    tenant::TenantScope,
};
use serde::Deserialize;
use serde_json::Value;
use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

/// Maximum number of retrievals of a run whose documents are considered.
const MAX_RETRIEVALS: usize = 20;
/// Maximum number of passages of one result. A passage is the text of a retrieved chunk.
const MAX_PASSAGES: usize = 50;
/// Kinds of evidence documents that cause passages to be withheld. After a redaction, guardrail or hook changed a text,
/// a passage could show the masked part. After a review, a passage could show more than the reviewer saw.
const WITHHOLDING_KINDS: [&str; 4] = ["redaction", "guardrail", "hook", "review"];

/// A retrieved document that a result cites.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CitedDocument {
    /// The identifier of the document in its knowledge base.
    pub document_id: String,
    /// The document's title; `None` if it has no title, or its title was erased or is withheld.
    pub title: Option<String>,
    /// The retrieved passages, in the order of the document; empty if they were erased or are withheld.
    pub passages: Vec<String>,
    /// Whether the passages are withheld. The reason is that the reader may not read the document now, the run
    /// changed texts, or a person reviewed the result.
    pub is_withheld: bool,
}

/// Reads the citations of results, with the passages that the reader may see.
pub struct Citations {
    execution_store: Arc<dyn ExecutionReadStore>,
    knowledge_bases: Arc<KnowledgeBases>,
}

impl Citations {
    pub(crate) fn new(stores: &Stores, knowledge_bases: &Arc<KnowledgeBases>) -> Self {
        Self { execution_store: Arc::clone(&stores.executions), knowledge_bases: Arc::clone(knowledge_bases) }
    }

    /// Returns the documents that a result cites, in the order of their retrieval. `execution` is the run as the
    /// caller may read it; without an output it has no citations.
    ///
    /// # Errors
    /// When a store fails.
    pub async fn of_result(&self, caller: &Caller, execution: &Execution) -> Result<Vec<CitedDocument>, Failure> {
        let (Some(result), Status::Completed) = (&execution.output, execution.status) else { return Ok(Vec::new()) };
        let scope = TenantScope::for_caller(caller);
        let id = execution.execution_id;
        let Some(answer) = answer_of(result).filter(|answer| answer.contains('[')) else { return Ok(Vec::new()) };
        let bracketed_names = DocumentId::bracketed_texts(&answer);
        let documents = self.execution_store.evidence_documents(scope, id).await?;
        let is_withheld = documents.iter().any(|document| WITHHOLDING_KINDS.contains(&document.artifact_kind.as_str()));
        let mut cited_chunks = CitedChunks::default();
        let retrievals =
            documents.iter().filter(|document| document.artifact_kind == RETRIEVAL_EVENT).take(MAX_RETRIEVALS);
        for retrieval in retrievals.filter_map(|document| serde_json::from_str(&document.body).ok()) {
            cited_chunks.add(&retrieval, &bracketed_names);
        }
        let mut texts = HashMap::new();
        for (asset, CitedBase { chunks, contracts }) in cited_chunks.by_asset() {
            let readable_chunks = if is_withheld {
                None
            } else {
                let request = RetrievedChunksRequest { asset, contracts: &contracts, chunks: &chunks };
                self.knowledge_bases.read_chunks(caller, execution.workspace_id, request).await?
            };
            texts.insert(asset, readable_chunks);
        }
        let describe_document = |(asset, document_id, chunks): (AssetId, String, Vec<ChunkId>)| {
            let texts = texts.get(&asset).and_then(Option::as_ref);
            describe(document_id, &chunks, texts.map(Vec::as_slice))
        };
        Ok(cited_chunks.documents.into_iter().map(describe_document).collect())
    }
}

/// Returns the text of the answer in a stored result.
fn answer_of(result: &str) -> Option<String> {
    let result: Value = serde_json::from_str(result).ok()?;
    let output = result.get("output")?;
    Some(output.as_str().map_or_else(|| output.to_string(), str::to_owned))
}

/// The cited documents of a run with the identifiers of their retrieved chunks, in the order of retrieval.
#[derive(Default)]
struct CitedChunks {
    documents: Vec<(AssetId, String, Vec<ChunkId>)>,
    /// The identifiers of the access contracts that allowed the retrievals, by knowledge base.
    contracts: HashMap<AssetId, BTreeSet<String>>,
    passages: usize,
}

/// The cited chunks of one knowledge base, and the contracts that allowed their retrieval.
#[derive(Default)]
struct CitedBase {
    chunks: Vec<ChunkId>,
    contracts: BTreeSet<String>,
}

/// A retrieval in the form of its evidence document.
#[derive(Deserialize)]
struct RecordedRetrieval {
    knowledge_base_asset_id: AssetId,
    contract_id: Option<String>,
    chunks: Vec<RecordedChunk>,
}

#[derive(Deserialize)]
struct RecordedChunk {
    document_id: String,
    /// The identifier of the chunk; `None` for runs of older versions, which did not record it.
    chunk_id: Option<ChunkId>,
}

impl CitedChunks {
    /// Adds the chunks of a retrieval that belong to documents that the answer names in brackets.
    fn add(&mut self, retrieval: &RecordedRetrieval, bracketed_names: &BTreeSet<&str>) {
        let asset = retrieval.knowledge_base_asset_id;
        for RecordedChunk { document_id: document, chunk_id } in &retrieval.chunks {
            if !bracketed_names.contains(document.as_str()) {
                continue;
            }
            self.contracts.entry(asset).or_default().extend(retrieval.contract_id.clone());
            let is_same_document =
                |(base, name, _): &(AssetId, String, Vec<ChunkId>)| *base == asset && name == document;
            if !self.documents.iter().any(is_same_document) {
                self.documents.push((asset, document.clone(), Vec::new()));
            }
            let cited_document = self.documents.iter_mut().find(|document| is_same_document(document));
            let (Some(chunk), Some((_, _, chunks))) = (chunk_id, cited_document) else { continue };
            if self.passages < MAX_PASSAGES && !chunks.contains(chunk) {
                self.passages += 1;
                chunks.push(*chunk);
            }
        }
    }

    fn by_asset(&self) -> HashMap<AssetId, CitedBase> {
        let mut bases: HashMap<AssetId, CitedBase> = HashMap::new();
        for (asset, _, chunks) in &self.documents {
            let base = bases.entry(*asset).or_default();
            base.chunks.extend(chunks);
            base.contracts.extend(self.contracts.get(asset).into_iter().flatten().cloned());
        }
        bases
    }
}

/// Describes a cited document with the texts that the caller may read. `readable_chunks` is `None` if the caller may
/// not read the document at all.
fn describe(document_id: String, chunk_ids: &[ChunkId], readable_chunks: Option<&[RetrievedChunk]>) -> CitedDocument {
    let Some(readable_chunks) = readable_chunks else {
        return CitedDocument { document_id, title: None, passages: Vec::new(), is_withheld: true };
    };
    let mut retrieved: Vec<&RetrievedChunk> =
        readable_chunks.iter().filter(|chunk| chunk_ids.contains(&chunk.chunk_id)).collect();
    retrieved.sort_by_key(|chunk| (chunk.entry_id, chunk.index));
    let title = retrieved.last().and_then(|chunk| chunk.title.clone());
    let passages = retrieved.iter().map(|chunk| chunk.text.clone()).collect();
    CitedDocument { document_id, title, passages, is_withheld: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use uuid::Uuid;

    fn retrieval(chunks: &[(&str, Option<u128>)]) -> RecordedRetrieval {
        let chunk = |(document, id): &(&str, Option<u128>)| RecordedChunk {
            document_id: (*document).to_owned(),
            chunk_id: id.map(|id| Uuid::from_u128(id).into()),
        };
        RecordedRetrieval {
            knowledge_base_asset_id: Uuid::from_u128(1).into(),
            contract_id: Some("handbook".to_owned()),
            chunks: chunks.iter().map(chunk).collect(),
        }
    }

    #[test]
    fn collects_each_cited_chunk_once_in_the_order_of_retrieval() {
        let bracketed_names = DocumentId::bracketed_texts("Thirty [leave], by train [travel].");
        let mut cited_chunks = CitedChunks::default();
        cited_chunks.add(&retrieval(&[("travel", Some(1)), ("leave", Some(2)), ("other", Some(3))]), &bracketed_names);
        cited_chunks.add(&retrieval(&[("leave", Some(2)), ("leave", Some(4))]), &bracketed_names);
        let names: Vec<_> =
            cited_chunks.documents.iter().map(|(_, name, chunks)| (name.as_str(), chunks.len())).collect();
        assert_eq!(names, [("travel", 1), ("leave", 2)]);
        let [(_, base)] = cited_chunks.by_asset().into_iter().collect::<Vec<_>>().try_into().ok().unwrap();
        assert_eq!((base.chunks.len(), base.contracts), (3, BTreeSet::from(["handbook".to_owned()])));
    }

    #[test]
    fn evidence_without_chunk_identifiers_yields_no_passages() {
        let mut cited_chunks = CitedChunks::default();
        cited_chunks.add(&retrieval(&[("leave", None)]), &DocumentId::bracketed_texts("[leave]"));
        assert_eq!(cited_chunks.documents.len(), 1);
        assert_eq!(describe("leave".to_owned(), &[], Some(&[])).passages, Vec::<String>::new());
        assert!(describe("leave".to_owned(), &[], None).is_withheld);
    }

    #[test]
    fn reads_the_answer_and_not_its_metadata() {
        let result = json!({ "output": "See [leave].", "metadata": { "step": ["[travel]"] } }).to_string();
        assert_eq!(answer_of(&result).unwrap(), "See [leave].");
        assert_eq!(answer_of("{}"), None);
    }
}
