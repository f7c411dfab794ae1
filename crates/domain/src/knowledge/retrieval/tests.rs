use super::*;

#[test]
fn bounds_compared_vectors_by_memory() {
    assert_eq!(
        (max_compared_vectors(2), max_compared_vectors(256), max_compared_vectors(8_192)),
        (MAX_COMPARED_VECTORS, 16_384, 512)
    );
    assert_eq!((max_compared_vectors(0), max_compared_vectors(usize::MAX)), (MAX_COMPARED_VECTORS, 0));
}
use crate::knowledge::RetrievalStrategy;
use serde_json::Map;
use uuid::Uuid;

fn words(counts: &[(&str, u64)]) -> Vec<(String, u64)> {
    counts.iter().map(|(word, chunk_count)| ((*word).to_owned(), *chunk_count)).collect()
}

fn hit(id: u128, score: f64) -> SearchHit {
    SearchHit { chunk_id: Uuid::from_u128(id).into(), score }
}

#[test]
fn plans_all_chunks_of_rare_words_and_some_of_frequent_words() {
    let plan =
        WordSearchPlan::plan(words(&[("often", 400_000), ("rare", 3), ("common", 100_000), ("never", 0)]), 1_000_000);
    assert_eq!(plan.lookups, [vec!["rare"], vec!["common"], vec!["common", "often"]]);
    assert!(plan.is_capped);
    let weights: Vec<(&str, f64)> = plan.words.iter().map(|word| (word.word.as_str(), word.weight)).collect();
    assert_eq!(weights.iter().map(|(word, _)| *word).collect::<Vec<_>>(), ["never", "rare", "common", "often"]);
    assert!(weights.windows(2).all(|pair| pair[0].1 > pair[1].1), "rarer words weigh more: {weights:?}");
    assert!((weights.iter().map(|(_, weight)| weight).sum::<f64>() - 1.0).abs() < 1e-9);
}

#[test]
fn ranks_all_chunks_below_the_candidate_limit() {
    let plan = WordSearchPlan::plan(words(&[("a", 10), ("b", 20)]), 100);
    assert_eq!((plan.lookups, plan.is_capped), (vec![vec!["a".to_owned()], vec!["b".to_owned()]], false));
    // A word that occurs in exactly as many chunks as the limit does not cap the search.
    let plan = WordSearchPlan::plan(words(&[("a", u64::from(MAX_CANDIDATES))]), 10_000);
    assert_eq!((plan.lookups.len(), plan.is_capped), (1, false));
    let plan = WordSearchPlan::plan(words(&[("a", u64::from(MAX_CANDIDATES) + 1)]), 10_000);
    assert_eq!((plan.lookups.len(), plan.is_capped), (1, true));
    let plan = WordSearchPlan::plan(words(&[("a", 0)]), 100);
    assert_eq!((plan.lookups.len(), plan.is_capped), (0, false));
    assert_eq!(WordSearchPlan::plan(Vec::new(), 100), WordSearchPlan::default());
}

#[test]
fn bounds_lookups_for_any_query() {
    let frequent_words: Vec<(String, u64)> = (0..500).map(|number| (format!("w{number}"), 50_000)).collect();
    let plan = WordSearchPlan::plan(frequent_words, 1_000_000);
    assert_eq!(plan.words.len(), MAX_QUERY_WORDS);
    assert_eq!(plan.lookups.len(), 3);
    let rare_words: Vec<(String, u64)> = (0..500).map(|number| (format!("w{number}"), 1)).collect();
    assert_eq!(WordSearchPlan::plan(rare_words, 1_000_000).lookups.len(), MAX_QUERY_WORDS);
}

#[test]
fn orders_by_score_then_identifier() {
    let results = SearchResults { hits: vec![hit(3, 0.5), hit(2, 0.9), hit(1, 0.5)], is_capped: true };
    let top = results.top(2);
    assert_eq!((top.hits, top.is_capped), (vec![hit(2, 0.9), hit(1, 0.5)], true));
}

#[test]
fn fuses_ranks_of_both_searches() {
    let text_results = SearchResults { hits: vec![hit(1, 0.9), hit(2, 0.1)], is_capped: false };
    let vector_results = SearchResults { hits: vec![hit(2, 0.8), hit(3, 0.7)], is_capped: true };
    let fused = SearchResults::fuse(&text_results, &vector_results, 0.5);
    let order: Vec<u128> = fused.hits.iter().map(|hit| hit.chunk_id.uuid().as_u128()).collect();
    assert_eq!((order, fused.is_capped), (vec![2, 1, 3], true));
    assert!(fused.hits.iter().all(|hit| hit.score > 0.0 && hit.score <= 1.0));
    let text_only = SearchResults::fuse(&text_results, &vector_results, 0.0);
    assert_eq!(text_only.hits[0], hit(1, 1.0));
    assert_eq!(SearchResults::fuse(&text_results, &text_results, 0.3).hits[0].chunk_id, hit(1, 0.0).chunk_id);
}

fn chunk(score: f64, tokens: u32) -> RetrievedChunk {
    RetrievedChunk {
        chunk_id: Uuid::nil().into(),
        entry_id: Uuid::nil().into(),
        document_id: DocumentId::parse("a").unwrap(),
        title: None,
        index: 0,
        text: "x".to_owned(),
        digest: Checksum::blake3_of(b"x"),
        tokens,
        score,
    }
}

#[test]
fn selects_chunks_by_score_and_token_limit() {
    let settings = |score_threshold, max_context_tokens| RetrievalSettings {
        strategy: RetrievalStrategy::Lexical,
        top_k: 5,
        score_threshold,
        filters: Map::new(),
        hybrid_weight: 0.5,
        max_context_tokens,
    };
    let chunks = || vec![chunk(0.9, 60), chunk(0.8, 50), chunk(0.2, 10)];
    assert_eq!(select_chunks(chunks(), &settings(0.0, None)).len(), 3);
    assert_eq!(select_chunks(chunks(), &settings(0.8, None)).len(), 2);
    assert_eq!(select_chunks(chunks(), &settings(0.0, Some(110))).len(), 2);
    assert_eq!(
        select_chunks(chunks(), &settings(0.0, Some(10))).len(),
        1,
        "the first chunk is used regardless of its length"
    );
    assert_eq!(select_chunks(chunks(), &settings(1.0, Some(10))).len(), 0);
}

#[test]
fn normalizes_vectors_or_rejects_them() {
    assert_eq!(normalize_vector(&[3.0, 4.0]), Some(vec![0.6, 0.8]));
    for vector in [&[][..], &[0.0, 0.0], &[f32::NAN, 1.0], &[f32::INFINITY]] {
        assert_eq!(normalize_vector(vector), None, "{vector:?}");
    }
    assert!((unit_vector_similarity(&[0.6, 0.8], &[0.6, 0.8]) - 1.0).abs() < 1e-6);
    assert_eq!((unit_vector_similarity(&[1.0, 0.0], &[0.0, 1.0]), unit_vector_similarity(&[1.0], &[-1.0])), (0.0, 0.0));
}

#[test]
fn truncates_queries_at_a_character_boundary() {
    let long = "é".repeat(MAX_QUERY_BYTES);
    assert!(
        truncate_query(&long).len() <= MAX_QUERY_BYTES
            && truncate_query(&long).chars().all(|character| character == 'é')
    );
    assert_eq!(truncate_query("short"), "short");
}
