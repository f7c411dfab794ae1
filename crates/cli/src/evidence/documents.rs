//! Lists the documents that a run retrieved, according to the evidence of its retrievals.

use crate::{
    failure::Failure,
    http_client::{ServerClient, required_string, string_or_empty},
    output::{Column, Output},
};
use serde_json::{Value, json};

const COLUMNS: [Column; 5] = [
    ("DOCUMENT", "/document_id"),
    ("KNOWLEDGE BASE", "/knowledge_base"),
    ("REVISION", "/index_revision"),
    ("CHUNKS", "/chunk_count"),
    ("RETRIEVED", "/retrieved_at"),
];

pub(super) fn show(server: &ServerClient, output: Output, run: &str) -> Result<(), Failure> {
    let evidence = server.get(&["executions", run, "evidence-graph"], &[])?;
    let retrievals = evidence.get("retrieval_events").and_then(Value::as_array).into_iter().flatten();
    let mut documents = Vec::new();
    for retrieval in retrievals {
        // The evidence artifact of a retrieval has the identifier of the retrieval event.
        let artifact = required_string(retrieval, "retrieval_event_id")?;
        let artifact = server.get(&["executions", run, "evidence-artifacts", artifact], &[])?;
        documents.extend(retrieved_documents(retrieval, &artifact));
    }
    if output.is_for_people() {
        name_knowledge_bases(server, &mut documents)?;
    }
    output.list(&documents, &COLUMNS)
}

/// The documents of one retrieval, each with its chunks.
fn retrieved_documents(retrieval: &Value, artifact: &Value) -> Vec<Value> {
    let chunks = artifact.pointer("/content/chunks").and_then(Value::as_array).cloned().unwrap_or_default();
    let mut documents: Vec<(String, Vec<Value>)> = Vec::new();
    for chunk in chunks {
        let name = string_or_empty(&chunk, "document_id").to_owned();
        match documents.iter_mut().find(|(known, _)| *known == name) {
            Some((_, chunks)) => chunks.push(chunk),
            None => documents.push((name, vec![chunk])),
        }
    }
    let document = |(name, chunks): (String, Vec<Value>)| {
        json!({
            "document_id": name,
            "retrieval_event_id": retrieval.get("retrieval_event_id"),
            "knowledge_base_asset_id": retrieval.get("knowledge_base_asset_id"),
            "index_revision": artifact.pointer("/content/index_revision"),
            "retrieved_at": retrieval.get("retrieved_at"),
            "chunk_count": chunks.len(),
            "chunks": chunks,
        })
    };
    documents.into_iter().map(document).collect()
}

/// Adds the slug of each knowledge base, or its id if the knowledge base is not visible to the caller.
fn name_knowledge_bases(server: &ServerClient, documents: &mut [Value]) -> Result<(), Failure> {
    if documents.is_empty() {
        return Ok(());
    }
    let query = [("workspace_id", server.workspace_id()?), ("asset_kind", "knowledge_base")];
    let bases = server.list(&["assets"], &query)?;
    for document in documents {
        let id = string_or_empty(document, "knowledge_base_asset_id").to_owned();
        let base = bases.iter().find(|base| string_or_empty(base, "asset_id") == id);
        let name = base.map_or(id.as_str(), |base| string_or_empty(base, "slug"));
        if let Some(members) = document.as_object_mut() {
            members.insert("knowledge_base".to_owned(), json!(name));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_chunks_by_document() {
        let retrieval = json!({ "retrieval_event_id": "e", "knowledge_base_asset_id": "b", "retrieved_at": "t" });
        let chunk = |document: &str, index: u32| json!({ "document_id": document, "index": index });
        let content = json!({ "index_revision": 3, "chunks": [chunk("b", 0), chunk("a", 1), chunk("b", 2)] });
        let documents = retrieved_documents(&retrieval, &json!({ "content": content }));
        let chunk_counts: Vec<_> = documents
            .iter()
            .map(|document| (document["document_id"].clone(), document["chunk_count"].clone()))
            .collect();
        assert_eq!(chunk_counts, [(json!("b"), json!(2)), (json!("a"), json!(1))]);
        assert_eq!((&documents[0]["index_revision"], &documents[0]["chunks"][1]["index"]), (&json!(3), &json!(2)));
        assert_eq!(retrieved_documents(&retrieval, &json!({ "content": {} })), Vec::<Value>::new());
    }
}
