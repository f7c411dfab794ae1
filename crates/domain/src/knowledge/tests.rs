use super::*;
use serde_json::json;
use uuid::Uuid;

fn content() -> Value {
    json!({ "source_type": "inline", "access_contract": {
        "contract_id": "handbook", "version": "1", "default_decision": "deny", "allowed_workspaces": [],
        "allowed_access_modes": [],
    } })
}

#[test]
fn applies_defaults() {
    let base = KnowledgeBase::parse(&content()).unwrap();
    assert_eq!(base.chunking, ChunkingSettings { strategy: ChunkStrategy::Sentence, chunk_tokens: 512 });
    let expected = RetrievalSettings {
        strategy: RetrievalStrategy::Lexical,
        top_k: 5,
        score_threshold: 0.0,
        filters: Map::new(),
        hybrid_weight: 0.5,
        max_context_tokens: None,
    };
    assert_eq!(base.retrieval, expected);
    assert_eq!(base.contract_id(), Some("handbook"));
}

#[test]
fn reads_explicit_settings() {
    let mut content_with_values = content();
    content_with_values["source_type"] = json!("http");
    content_with_values["chunk_strategy"] = json!("heading");
    content_with_values["retrieval"] = json!({
        "strategy": "hybrid", "top_k": 7.0, "chunk_size_tokens": 64, "score_threshold": 0.25,
        "filters": { "language": "de" }, "hybrid_weight": 1, "max_context_tokens": 900, "rerank": true,
    });
    let base = KnowledgeBase::parse(&content_with_values).unwrap();
    assert_eq!((base.source_type, base.chunking.strategy), (SourceType::Http, ChunkStrategy::Heading));
    assert_eq!((base.chunking.chunk_tokens, base.retrieval.top_k), (64, 7));
    assert_eq!((base.retrieval.score_threshold, base.retrieval.hybrid_weight), (0.25, 1.0));
    assert_eq!(base.retrieval.filters, *json!({ "language": "de" }).as_object().unwrap());
    assert_eq!(base.retrieval.max_context_tokens, Some(900));
    for (field, value) in
        [("top_k", json!(0.5)), ("top_k", json!(-1)), ("score_threshold", json!(2)), ("filters", json!([]))]
    {
        let mut invalid = content_with_values.clone();
        invalid["retrieval"][field] = value;
        assert_eq!(KnowledgeBase::parse(&invalid), Err(MalformedKnowledgeBase), "{field}");
    }
}

#[test]
fn spellings_match_the_schema() {
    let schema: Value = serde_json::from_str(include_str!("../asset/schemas/knowledge_base.json")).unwrap();
    let values = |pointer: &str| schema.pointer(pointer).unwrap()["enum"].clone();
    assert_eq!(values("/properties/source_type"), json!(SourceType::ALL.map(SourceType::as_str)));
    assert_eq!(values("/properties/chunk_strategy"), json!(ChunkStrategy::ALL.map(ChunkStrategy::as_str)));
    let retrieval = "/properties/retrieval/properties";
    assert_eq!(values(&format!("{retrieval}/strategy")), json!(RetrievalStrategy::ALL.map(RetrievalStrategy::as_str)));
    let modes = "/properties/access_contract/properties/allowed_access_modes/items";
    assert_eq!(values(modes), json!(contract::AccessMode::ALL.map(contract::AccessMode::as_str)));
}

#[test]
fn term_prefixes_differ_between_knowledge_bases() {
    let prefix =
        |tenant, asset| IndexRevision::index_term_prefix(Uuid::from_u128(tenant).into(), Uuid::from_u128(asset).into());
    assert_eq!(prefix(1, 2), prefix(1, 2));
    assert_ne!(prefix(1, 2), prefix(2, 1));
    assert_eq!(prefix(1, 2).len(), 8);
}
