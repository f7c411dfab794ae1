use super::*;

#[test]
fn bounds_compared_vectors_by_memory() {
    assert_eq!((comparable(2), comparable(256), comparable(8_192)), (COMPARED, 16_384, 512));
    assert_eq!((comparable(0), comparable(usize::MAX)), (COMPARED, 0));
}
use crate::knowledge::RetrievalStrategy;
use serde_json::Map;
use uuid::Uuid;

fn words(counts: &[(&str, u64)]) -> Vec<(String, u64)> {
    counts.iter().map(|(word, pieces)| ((*word).to_owned(), *pieces)).collect()
}

fn hit(id: u128, score: f64) -> Hit {
    Hit { chunk_id: Uuid::from_u128(id).into(), score }
}

#[test]
fn plans_all_chunks_of_rare_words_and_some_of_frequent_words() {
    let plan = Looks::plan(words(&[("often", 400_000), ("rare", 3), ("common", 100_000), ("never", 0)]), 1_000_000);
    assert_eq!(plan.looks, [vec!["rare"], vec!["common"], vec!["common", "often"]]);
    assert!(plan.capped);
    let weights: Vec<(&str, f64)> = plan.words.iter().map(|word| (word.word.as_str(), word.weight)).collect();
    assert_eq!(weights.iter().map(|(word, _)| *word).collect::<Vec<_>>(), ["never", "rare", "common", "often"]);
    assert!(weights.windows(2).all(|pair| pair[0].1 > pair[1].1), "rarer words weigh more: {weights:?}");
    assert!((weights.iter().map(|(_, weight)| weight).sum::<f64>() - 1.0).abs() < 1e-9);
}

#[test]
fn ranks_all_chunks_below_the_candidate_limit() {
    let plan = Looks::plan(words(&[("a", 10), ("b", 20)]), 100);
    assert_eq!((plan.looks, plan.capped), (vec![vec!["a".to_owned()], vec!["b".to_owned()]], false));
    // A word with exactly the limit of chunks is not capped.
    let plan = Looks::plan(words(&[("a", u64::from(MAX_CANDIDATES))]), 10_000);
    assert_eq!((plan.looks.len(), plan.capped), (1, false));
    let plan = Looks::plan(words(&[("a", u64::from(MAX_CANDIDATES) + 1)]), 10_000);
    assert_eq!((plan.looks.len(), plan.capped), (1, true));
    let plan = Looks::plan(words(&[("a", 0)]), 100);
    assert_eq!((plan.looks.len(), plan.capped), (0, false));
    assert_eq!(Looks::plan(Vec::new(), 100), Looks::default());
}

#[test]
fn bounds_lookups_for_any_query() {
    let many: Vec<(String, u64)> = (0..500).map(|number| (format!("w{number}"), 50_000)).collect();
    let plan = Looks::plan(many, 1_000_000);
    assert_eq!(plan.words.len(), MAX_QUERY_WORDS);
    assert_eq!(plan.looks.len(), 3);
    let rare: Vec<(String, u64)> = (0..500).map(|number| (format!("w{number}"), 1)).collect();
    assert_eq!(Looks::plan(rare, 1_000_000).looks.len(), MAX_QUERY_WORDS);
}

#[test]
fn orders_by_score_then_identifier() {
    let found = Found { hits: vec![hit(3, 0.5), hit(2, 0.9), hit(1, 0.5)], capped: true };
    let best = found.best(2);
    assert_eq!((best.hits, best.capped), (vec![hit(2, 0.9), hit(1, 0.5)], true));
}

#[test]
fn fuses_ranks_of_both_searches() {
    let by_words = Found { hits: vec![hit(1, 0.9), hit(2, 0.1)], capped: false };
    let by_meaning = Found { hits: vec![hit(2, 0.8), hit(3, 0.7)], capped: true };
    let fused = Found::fused(&by_words, &by_meaning, 0.5);
    let order: Vec<u128> = fused.hits.iter().map(|hit| hit.chunk_id.uuid().as_u128()).collect();
    assert_eq!((order, fused.capped), (vec![2, 1, 3], true));
    assert!(fused.hits.iter().all(|hit| hit.score > 0.0 && hit.score <= 1.0));
    let only = Found::fused(&by_words, &by_meaning, 0.0);
    assert_eq!(only.hits[0], hit(1, 1.0));
    assert_eq!(Found::fused(&by_words, &by_words, 0.3).hits[0].chunk_id, hit(1, 0.0).chunk_id);
}

fn chunk(score: f64, tokens: u32) -> RetrievedChunk {
    RetrievedChunk {
        chunk_id: Uuid::nil().into(),
        entry_id: Uuid::nil().into(),
        document_id: DocumentId::parse("a").unwrap(),
        title: None,
        index: 0,
        text: "x".to_owned(),
        digest: Checksum::of(b"x"),
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
    assert_eq!(used(chunks(), &settings(0.0, None)).len(), 3);
    assert_eq!(used(chunks(), &settings(0.8, None)).len(), 2);
    assert_eq!(used(chunks(), &settings(0.0, Some(110))).len(), 2);
    assert_eq!(used(chunks(), &settings(0.0, Some(10))).len(), 1, "the first chunk is used regardless of its length");
    assert_eq!(used(chunks(), &settings(1.0, Some(10))).len(), 0);
}

#[test]
fn normalizes_vectors_or_rejects_them() {
    assert_eq!(direction(&[3.0, 4.0]), Some(vec![0.6, 0.8]));
    for none in [&[][..], &[0.0, 0.0], &[f32::NAN, 1.0], &[f32::INFINITY]] {
        assert_eq!(direction(none), None, "{none:?}");
    }
    assert!((likeness(&[0.6, 0.8], &[0.6, 0.8]) - 1.0).abs() < 1e-6);
    assert_eq!((likeness(&[1.0, 0.0], &[0.0, 1.0]), likeness(&[1.0], &[-1.0])), (0.0, 0.0));
}

#[test]
fn truncates_queries_at_a_character_boundary() {
    let long = "é".repeat(MAX_QUERY_BYTES);
    assert!(readable(&long).len() <= MAX_QUERY_BYTES && readable(&long).chars().all(|character| character == 'é'));
    assert_eq!(readable("short"), "short");
}
