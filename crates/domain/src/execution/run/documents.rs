//! Documents in a run: checks of access contracts before the first step, knowledge base queries, and citations.

use super::{Run, RunEffect, StepFailure, StepProgress, model_call::as_micros};
use crate::{
    asset::artifact_store::ArtifactPath,
    evidence::EvidenceArtifact,
    execution::{
        Payload, RunError,
        retrieval::{BoundKnowledgeBase, RetrievalError, RetrievalQuery, RetrievalResult, contract_decision_members},
        routing::EmbeddingPermission,
    },
    flow::Step,
    id::AssetId,
    knowledge::{
        contract::ContractDecision,
        retrieval::{QueryEmbeddingCall, RetrievedChunk},
    },
    moment::Moment,
    policy::Obligation,
};
use serde_json::{Map, Value, json};

/// The error code if the account that embedded the index may not receive the query.
const NO_ROUTE: &str = "no_compliant_route";

impl<'a> Run<'a> {
    /// Resumes with the decisions of the access contracts, one for each bound knowledge base in binding order; `None`
    /// if the decisions could not be loaded.
    pub fn on_contract_decisions(&mut self, moment: Moment, decisions: Option<Vec<ContractDecision>>) -> RunEffect {
        self.moment = moment;
        let knowledge_bases = &self.run_input.plan.knowledge;
        let Some(decisions) = decisions.filter(|decisions| decisions.len() == knowledge_bases.len()) else {
            let message = "the access contracts of the bound knowledge bases are unavailable";
            return self.fail(RunError::new("contract_unavailable", message));
        };
        let mut allowed = true;
        for (knowledge, decision) in knowledge_bases.iter().zip(decisions) {
            allowed = allowed && decision.is_allowed();
            let mut body = Map::new();
            body.insert("knowledge_base_asset_id".to_owned(), json!(knowledge.asset));
            body.insert("knowledge_base".to_owned(), json!(knowledge.slug));
            body.extend(contract_decision_members(&decision));
            self.record_evidence("contract_decision", "contract-decision.json", body);
        }
        if allowed { self.load_history_or_start() } else { self.fail_by_contract() }
    }

    pub(super) fn fail_by_contract(&mut self) -> RunEffect {
        let message = "the access contract of a knowledge base does not allow this";
        self.fail(RunError::new(ContractDecision::REFUSED_CODE, message))
    }

    /// Builds the knowledge base query of a step.
    pub(super) fn start_retrieval(
        &mut self,
        step: &Step,
        inputs: &Map<String, Value>,
    ) -> Result<StepProgress, StepFailure> {
        self.record_inputs(step);
        self.build_query(inputs).map(|lookup| StepProgress::NeedsDocuments(Box::new(lookup)))
    }

    /// Builds a query from the step inputs `query`, `knowledge_base` and `top_k`.
    pub(super) fn build_query(&self, inputs: &Map<String, Value>) -> Result<RetrievalQuery, StepFailure> {
        let knowledge_bases = &self.run_input.plan.knowledge;
        let requested_slug = inputs.get("knowledge_base").and_then(Value::as_str);
        let index = match (requested_slug, knowledge_bases.as_slice()) {
            (Some(name), _) => knowledge_bases.iter().position(|knowledge_base| knowledge_base.slug == name),
            (None, [_]) => Some(0),
            (None, _) => None,
        };
        let Some(index) = index else {
            return Err(StepFailure::failed(
                "knowledge_base_unknown",
                "the release binds no knowledge base of that name",
            ));
        };
        let query = match inputs.get("query") {
            Some(Value::String(query)) => query.clone(),
            Some(other) => other.to_string(),
            None => return Err(StepFailure::failed("reference_missing", "the step has no query")),
        };
        let top_k = inputs.get("top_k").and_then(Value::as_u64).and_then(|limit| u32::try_from(limit).ok());
        Ok(RetrievalQuery { knowledge_index: index, query, top_k })
    }

    /// Records the retrieval of a step, and returns the documents as the value of the step.
    pub(super) fn accept_documents(
        &mut self,
        step: &Step,
        lookup: &RetrievalQuery,
        result: Result<RetrievalResult, RetrievalError>,
    ) -> Result<Value, StepFailure> {
        let plan = self.run_input.plan;
        let Some(knowledge) = plan.knowledge.get(lookup.knowledge_index) else {
            return Err(StepFailure::failed(
                "knowledge_base_unknown",
                "the release binds no knowledge base of that name",
            ));
        };
        let result = match result {
            Ok(result) => result,
            Err(RetrievalError::Refused(decision)) => {
                self.record_retrieval(step, knowledge, lookup, contract_decision_members(&decision), &[]);
                return Err(StepFailure::RefusedByContract);
            }
            Err(RetrievalError::NoRoute(refused)) => {
                self.record_refused_embedding(step, &refused);
                let body = Map::from_iter([("failure".to_owned(), json!(NO_ROUTE))]);
                self.record_retrieval(step, knowledge, lookup, body, &[]);
                return Err(StepFailure::failed(NO_ROUTE, "the embedding account may not receive the query"));
            }
            Err(RetrievalError::Failed(code)) => {
                let body = Map::from_iter([("failure".to_owned(), json!(code))]);
                self.record_retrieval(step, knowledge, lookup, body, &[]);
                return Err(StepFailure::failed(code, "the knowledge base could not be searched"));
            }
        };
        let mut body = contract_decision_members(&result.decision);
        body.insert("index_revision".to_owned(), json!(result.index_revision));
        body.insert("strategy".to_owned(), json!(result.strategy.as_str()));
        body.insert("candidates_capped".to_owned(), json!(result.is_capped));
        if result.is_capped {
            self.capped_steps.insert(step.id.clone());
        }
        if let Some(embedded) = &result.query_embedding {
            body.insert("embedding".to_owned(), embedding_evidence(embedded));
        }
        self.record_retrieval(step, knowledge, lookup, body, &result.chunks);
        self.record_documents(&knowledge.slug, &result.chunks);
        if result.decision.citation_required {
            self.add_obligation(Obligation::RequireCitation);
        }
        let documents: Vec<Value> = result.chunks.iter().map(document_value).collect();
        let documents = Value::Array(documents);
        self.budget.charge(&documents)?;
        for chunk in &result.chunks {
            self.citable_documents.insert(chunk.document_id.to_string());
        }
        Ok(documents)
    }

    /// Records as evidence that the embedding route was refused. A run records this once.
    fn record_refused_embedding(&mut self, step: &Step, refused: &EmbeddingPermission) {
        let EmbeddingPermission::Refused { route, residency, reasons } = refused else { return };
        if std::mem::replace(&mut self.refused_embedding_recorded, true) {
            return;
        }
        let reasons: Vec<&str> = reasons.iter().map(|reason| reason.code()).collect();
        let body = Map::from_iter([
            ("step_id".to_owned(), json!(step.id)),
            ("route_id".to_owned(), json!(route.route_id)),
            ("provider".to_owned(), json!(route.provider)),
            ("region".to_owned(), Value::Null),
            ("residency".to_owned(), json!(residency)),
            ("reasons".to_owned(), json!(reasons)),
        ]);
        self.record_evidence("route_refused", "route-refused.json", body);
    }

    /// Marks each step whose search was capped in the metadata of the answer.
    pub(super) fn add_capped_search_metadata(&mut self) {
        for step in std::mem::take(&mut self.capped_steps) {
            let metadata = self.metadata.entry(step).or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(metadata) = metadata {
                metadata.insert("candidates_capped".to_owned(), Value::Bool(true));
            }
        }
    }

    /// Records a query and its results as evidence. The query text is an erasable payload.
    fn record_retrieval(
        &mut self,
        step: &Step,
        knowledge: &BoundKnowledgeBase,
        lookup: &RetrievalQuery,
        mut body: Map<String, Value>,
        chunks: &[RetrievedChunk],
    ) {
        let payload =
            Payload { body: json!({ "query": lookup.query }).to_string().into(), salt: self.moment.new_salt() };
        let asset: AssetId = knowledge.asset;
        body.insert("step_id".to_owned(), json!(step.id));
        body.insert("knowledge_base_asset_id".to_owned(), json!(asset));
        body.insert("knowledge_base".to_owned(), json!(knowledge.slug));
        body.insert("retrieved_chunk_count".to_owned(), json!(chunks.len()));
        let chunk_json = |chunk: &RetrievedChunk| {
            json!({ "document_id": chunk.document_id.to_string(), "chunk_id": chunk.chunk_id, "index": chunk.index,
                "digest": chunk.digest.to_string(), "score": chunk.score })
        };
        body.insert("chunks".to_owned(), Value::Array(chunks.iter().map(chunk_json).collect()));
        body.insert("query_digest".to_owned(), json!(crate::execution::format_digest(&payload.digest())));
        let artifact_id = self.moment.new_id().into();
        self.run_outcome.artifacts.push(EvidenceArtifact {
            artifact_id,
            kind: crate::evidence::RETRIEVAL_EVENT,
            storage_ref: ArtifactPath::of_database_evidence(
                self.run_input.execution_id,
                artifact_id,
                "retrieval-event.json",
            ),
            body,
            payload: Some(payload),
            created_at: self.moment.now(),
        });
    }
}

/// The evidence of a query embedding: numbers and names, but no text. An embedding has exactly one attempt.
fn embedding_evidence(embedded: &QueryEmbeddingCall) -> Value {
    let latency_us = as_micros(embedded.latency);
    json!({
        "account_slot": embedded.model.account,
        "model": embedded.model.model,
        "tokens_in": embedded.tokens_in,
        "cost_micros": embedded.cost_micros,
        "latency_us": latency_us,
        "attempts": [{ "route_id": "embedding", "result": "answered", "latency_us": latency_us }],
    })
}

/// Converts a retrieved chunk into the JSON value that steps read.
fn document_value(chunk: &RetrievedChunk) -> Value {
    json!({ "document_id": chunk.document_id.to_string(), "title": chunk.title, "index": chunk.index, "text": chunk.text,
        "score": chunk.score })
}

/// Extracts the texts that guardrails evaluate: titles and texts of the documents, but no identifiers.
pub(super) fn guardrail_texts(documents: &Value) -> Value {
    let texts = documents.as_array().into_iter().flatten();
    Value::Array(
        texts.map(|document| json!({ "title": document.get("title"), "text": document.get("text") })).collect(),
    )
}

/// Replaces the titles and texts of the documents by the ones that guardrails returned.
pub(super) fn with_texts(mut documents: Value, texts: Value) -> Value {
    let (Value::Array(list), Value::Array(texts)) = (&mut documents, texts) else { return documents };
    for (document, text) in list.iter_mut().zip(texts) {
        if let (Value::Object(document), Value::Object(text)) = (document, text) {
            document.extend(text);
        }
    }
    documents
}

/// Formats documents as a model message. Returns `None` for an empty or malformed list, because a heading without
/// documents would ask the model for citations that it cannot make.
pub(super) fn documents_message(documents: &Value) -> Option<String> {
    let documents = documents.as_array().filter(|documents| !documents.is_empty())?;
    let mut message = "Documents to answer from. Cite a document by its name in brackets, as in [name].".to_owned();
    for entry in documents {
        let text = |name: &str| entry.get(name).and_then(Value::as_str);
        let (id, body) = (text("document_id")?, text("text")?);
        let title = text("title").map(|title| format!(" {title}")).unwrap_or_default();
        message.push_str(&format!("\n\n[{id}]{title}\n{body}"));
    }
    Some(message)
}
