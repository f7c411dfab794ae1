//! Search in the documents of knowledge bases: index revisions, ranking, and isolation of tenants.

use crate::{
    fixture::{
        Fixture, fresh,
        knowledge::{SHORT_CHUNKS, document, document_names, documents, ingest, knowledge_base, local_model, within},
        scope, stamp,
    },
    indexes::{TURNS, measure},
};
use fairway_domain::{
    asset::Asset,
    id::{AssetId, TenantId},
    knowledge::{
        IndexRevision,
        document::{Ingest, NewDocument},
        ports::{ChunkSearch, DocumentStore, IndexRevisionStore, SearchScope},
        retrieval::{IndexEmbeddingModels, MAX_CANDIDATES, SearchResults, normalize_vector},
    },
    search_words::WordSet,
    store::{PageRequest, PageStart},
    tenant::TenantScope,
};
use fairway_testkit::TestDatabase;
use serde_json::json;
use uuid::Uuid;

async fn add(fixture: &Fixture, asset: &Asset, documents: Vec<NewDocument>) -> IndexRevision {
    let revision = fixture.store.current_revision(scope(), asset.asset_id).await.unwrap();
    fixture.store.commit_documents(scope(), &ingest(asset, documents, revision), None).await.unwrap()
}

/// The names of the documents that match a query, best match first.
async fn found(fixture: &Fixture, search_scope: &SearchScope, query: &str) -> Vec<String> {
    let found = fixture.store.text_search(scope(), search_scope, &WordSet::from_texts([query])).await.unwrap();
    document_names(fixture, search_scope.asset, &found).await
}

#[tokio::test]
async fn search_in_a_revision_returns_its_documents_permanently() {
    let fixture = Fixture::new().await;
    let (asset, _) = knowledge_base(&fixture).await;
    let id = asset.asset_id;
    assert_eq!(fixture.store.current_revision(scope(), id).await.unwrap(), IndexRevision::default());
    let first = documents(&[("leave", "Thirty days of leave a year."), ("travel", "Trains before planes.")]);
    assert_eq!(add(&fixture, &asset, first).await, IndexRevision::new(1));
    assert_eq!(add(&fixture, &asset, documents(&[("leave", "Forty days of leave.")])).await, IndexRevision::new(2));
    assert_eq!(found(&fixture, &within(id, 1), "leave").await, ["leave"]);
    let text = async |revision| {
        let found =
            fixture.store.text_search(scope(), &within(id, revision), &WordSet::from_texts(["LEAVE!"])).await.unwrap();
        assert_eq!(found.hits.len(), 1);
        assert!(found.hits[0].score > 0.5 && found.hits[0].score <= 1.0, "{found:?}");
        fixture.store.find_chunks(scope(), id, &[found.hits[0].chunk_id]).await.unwrap()[0].text.clone()
    };
    assert_eq!(
        (text(1).await.as_str(), text(2).await.as_str()),
        ("Thirty days of leave a year.", "Forty days of leave.")
    );
    assert_eq!(found(&fixture, &within(id, 0), "leave").await, [""; 0]);
    assert_eq!(found(&fixture, &within(id, 2), "thirty").await, [""; 0]);
    assert_eq!(found(&fixture, &within(id, 2), "trains").await, ["travel"]);
    let document_page =
        fixture.store.list_documents(scope(), id, PageRequest { limit: 10, start: PageStart::Skip(0) }).await.unwrap();
    let rows: Vec<(&str, i64, bool)> = document_page
        .rows
        .iter()
        .map(|row| (row.document_id.as_str(), row.index_revision.get(), row.is_current))
        .collect();
    assert_eq!(rows, [("leave", 2, true), ("travel", 1, true), ("leave", 1, false)]);
    // Later ingests do not change the scores of an earlier revision.
    let score = async || {
        fixture.store.text_search(scope(), &within(id, 1), &WordSet::from_texts(["leave trains"])).await.unwrap()
    };
    let before = score().await;
    add(&fixture, &asset, (0..20).map(|number| document(&format!("more-{number}"), &["leave leave"])).collect()).await;
    assert_eq!(score().await, before);
}

#[tokio::test]
async fn ranks_rare_words_and_more_matches_higher() {
    let fixture = Fixture::new().await;
    let (asset, _) = knowledge_base(&fixture).await;
    let texts = [
        ("both", "The policy on parental leave."),
        ("rare", "Parental matters."),
        ("common", "The policy of the house."),
        ("other", "The policy again."),
        ("none", "Nothing at all."),
    ];
    add(&fixture, &asset, documents(&texts)).await;
    assert_eq!(
        found(&fixture, &within(asset.asset_id, 1), "parental policy").await,
        ["both", "rare", "common", "other"]
    );
    assert_eq!(
        found(&fixture, &SearchScope { limit: 1, ..within(asset.asset_id, 1) }, "parental policy").await,
        ["both"]
    );
}

#[tokio::test]
async fn search_is_isolated_by_knowledge_base_and_tenant() {
    let fixture = Fixture::new().await;
    let ((base, _), (other_base, _)) = (knowledge_base(&fixture).await, knowledge_base(&fixture).await);
    add(&fixture, &base, documents(&[("mine", "A secret word.")])).await;
    add(&fixture, &other_base, documents(&[("other", "A secret word.")])).await;
    assert_eq!(found(&fixture, &within(base.asset_id, 1), "secret").await, ["mine"]);
    let other_tenant = TenantScope::for_background_task(TenantId::from(Uuid::now_v7()));
    let search_scope = within(base.asset_id, 1);
    assert_eq!(
        fixture.store.text_search(other_tenant, &search_scope, &WordSet::from_texts(["secret"])).await.unwrap(),
        SearchResults::default()
    );
    let results = fixture.store.text_search(scope(), &search_scope, &WordSet::from_texts(["secret"])).await.unwrap();
    let ids: Vec<_> = results.hits.iter().map(|hit| hit.chunk_id).collect();
    assert_eq!(fixture.store.find_chunks(other_tenant, base.asset_id, &ids).await.unwrap(), []);
    assert_eq!(fixture.store.find_chunks(scope(), other_base.asset_id, &ids).await.unwrap(), []);
}

/// Threat T19 of docs/security.md: the tenant prefix of indexed words is an optimization and not an isolation boundary,
/// because its eight digits can collide. In this test, all prefixes are equal.
#[tokio::test]
async fn search_is_isolated_when_word_prefixes_collide() {
    let fixture = Fixture::new().await;
    let ((base, _), (other_base, _)) = (knowledge_base(&fixture).await, knowledge_base(&fixture).await);
    add(&fixture, &base, documents(&[("mine", "A secret word.")])).await;
    add(&fixture, &other_base, documents(&[("other", "A secret word.")])).await;
    let prefix = |asset: AssetId| IndexRevision::index_term_prefix(scope().tenant(), asset);
    let other_tenant = Uuid::now_v7();
    fixture
        .run(&format!(
            "UPDATE knowledge_chunk SET words = replace(words::text, '{}', '{}')::tsvector;
             INSERT INTO knowledge_chunk (tenant_id, chunk_id, asset_id, entry_id, document_id, position, starts, ends,
                tokens, digest, from_revision, embedded_by, words, body)
             SELECT '{other_tenant}', gen_random_uuid(), asset_id, entry_id, 'abroad', position, starts, ends, tokens, digest,
                from_revision, embedded_by, words, body FROM knowledge_chunk WHERE document_id = 'mine'",
            prefix(other_base.asset_id),
            prefix(base.asset_id)
        ))
        .await;
    let hits = fixture
        .store
        .text_search(scope(), &within(base.asset_id, 1), &WordSet::from_texts(["secret"]))
        .await
        .unwrap()
        .hits;
    assert_eq!(hits.len(), 1, "{hits:?}");
    assert_eq!(found(&fixture, &within(base.asset_id, 1), "secret").await, ["mine"]);
}

/// Threat T44 of docs/security.md: operators in a query have no effect, because every query is treated as plain words.
#[tokio::test]
async fn queries_are_interpreted_as_plain_words() {
    let fixture = Fixture::new().await;
    let (asset, _) = knowledge_base(&fixture).await;
    add(&fixture, &asset, documents(&[("a", "O'Brien's rate is 5 % of <all> & more \\ or less.")])).await;
    let search_scope = within(asset.asset_id, 1);
    for query in ["'", "' | 'x", "rate & !all", "a:*", "% _ \\", "'; DROP TABLE fact; --", "<->", "(((", "\u{0}"] {
        fixture.store.text_search(scope(), &search_scope, &WordSet::from_texts([query])).await.unwrap();
    }
    assert_eq!(found(&fixture, &search_scope, "o'brien & !!").await, ["a"]);
    assert_eq!(found(&fixture, &search_scope, "!rate").await, ["a"]);
    assert_eq!(found(&fixture, &search_scope, "rat:*").await, [""; 0]);
    let long_query = (0..4_000).map(|number| format!("w{number} ")).collect::<String>() + "a0rate rate";
    fixture.store.text_search(scope(), &search_scope, &WordSet::from_texts([long_query.as_str()])).await.unwrap();
}

#[tokio::test]
async fn metadata_filters_restrict_results() {
    let fixture = Fixture::new().await;
    let (asset, _) = knowledge_base(&fixture).await;
    let mut new_documents = documents(&[("de", "leave"), ("en", "leave")]);
    new_documents[0].metadata = json!({ "language": "de", "years": [2025, 2026] }).as_object().unwrap().clone();
    new_documents[1].metadata = json!({ "language": "en" }).as_object().unwrap().clone();
    add(&fixture, &asset, new_documents).await;
    for (filters, expected) in [
        (json!({}), vec!["de", "en"]),
        (json!({ "language": "de" }), vec!["de"]),
        (json!({ "language": "de", "years": [2025, 2026] }), vec!["de"]),
        (json!({ "language": "de", "years": [2025] }), vec![]),
        (json!({ "lang": "de" }), vec![]),
    ] {
        let filtered_scope = SearchScope { filters: filters.as_object().unwrap().clone(), ..within(asset.asset_id, 1) };
        let mut names = found(&fixture, &filtered_scope, "leave").await;
        names.sort();
        assert_eq!(names, expected, "{filters}");
    }
}

#[tokio::test]
async fn caps_candidates_of_frequent_words() {
    let fixture = Fixture::new().await;
    let (asset, _) = knowledge_base(&fixture).await;
    let frequent_chunks = usize::try_from(MAX_CANDIDATES).unwrap() + 200;
    let mut chunk_texts = vec!["the common word and many others"; frequent_chunks];
    chunk_texts.push("the common word, and one needle");
    add(&fixture, &asset, vec![document("hay", &chunk_texts), document("apart", &["nothing of it"])]).await;
    let search_scope = within(asset.asset_id, 1);
    let found =
        fixture.store.text_search(scope(), &search_scope, &WordSet::from_texts(["common needle"])).await.unwrap();
    assert!(found.is_capped, "the result must be capped: {found:?}");
    let best_chunks = fixture.store.find_chunks(scope(), asset.asset_id, &[found.hits[0].chunk_id]).await.unwrap();
    assert!(best_chunks[0].text.contains("needle"), "{best_chunks:?}");
    let found = fixture.store.text_search(scope(), &search_scope, &WordSet::from_texts(["common word"])).await.unwrap();
    assert!(found.is_capped);
    assert_eq!(found.hits.len(), 10);
}

#[tokio::test]
async fn compares_vectors_of_one_model_only() {
    let fixture = Fixture::new().await;
    let (asset, _) = knowledge_base(&fixture).await;
    let mut new_documents = documents(&[("x", "one"), ("y", "two"), ("xy", "three")]);
    for (document, vector) in new_documents.iter_mut().zip([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]) {
        document.chunks[0].vector = normalize_vector(&vector);
    }
    let change = Ingest::decide_addition(
        &asset,
        fresh(),
        SHORT_CHUNKS,
        Some(local_model("m")),
        new_documents,
        IndexRevision::default(),
        &stamp(),
    )
    .unwrap();
    fixture.store.commit_documents(scope(), &change, None).await.unwrap();
    let search_scope = within(asset.asset_id, 1);
    let nearest = fixture.store.vector_search(scope(), &search_scope, &[1.0, 0.0]).await.unwrap();
    assert_eq!(document_names(&fixture, asset.asset_id, &nearest).await, ["x", "xy", "y"]);
    assert!(!nearest.is_capped && (nearest.hits[1].score - 0.5_f64.sqrt()).abs() < 1e-6, "{nearest:?}");
    let is_uniform = async |revision, name| {
        let revision = IndexRevision::new(revision);
        let embedding = fixture.store.index_embedding(scope(), asset.asset_id, revision).await.unwrap();
        embedding == IndexEmbeddingModels::Uniform(local_model(name))
    };
    assert!(is_uniform(1, "m").await && !is_uniform(1, "n").await);
    // A chunk without a vector, or with a vector of another model, makes a revision incomplete until the chunk is
    // replaced.
    add(&fixture, &asset, documents(&[("y", "two, without")])).await;
    assert!(is_uniform(1, "m").await && !is_uniform(2, "m").await);
    let mut replacement = documents(&[("y", "two again")]);
    replacement[0].chunks[0].vector = normalize_vector(&[0.0, 1.0]);
    let change = Ingest::decide_addition(
        &asset,
        fresh(),
        SHORT_CHUNKS,
        Some(local_model("m")),
        replacement,
        IndexRevision::new(2),
        &stamp(),
    )
    .unwrap();
    fixture.store.commit_documents(scope(), &change, None).await.unwrap();
    assert!(is_uniform(3, "m").await && !is_uniform(2, "m").await);
}

/// SQL that fills a knowledge base with chunks. Each chunk has a unique word, and every tenth has the word `common`.
const FILL: &str = "
    INSERT INTO knowledge_chunk (tenant_id, chunk_id, asset_id, entry_id, document_id, position, starts, ends, tokens,
        digest, from_revision, embedded_by, words, body)
    SELECT '<tenant>', gen_random_uuid(), '<asset>', gen_random_uuid(), 'd' || n, 0, 0, 1, 1, 'x', 1, '',
        array_to_tsvector(ARRAY['<prefix>/w' || n] || CASE WHEN n % 10 = 0 THEN ARRAY['<prefix>/common'] ELSE '{}' END),
        repeat('x', 300)
    FROM generate_series(1, 30000) AS n;
    INSERT INTO knowledge_word SELECT '<tenant>', '<asset>', 'w' || n, 1, 1 FROM generate_series(1, 30000) AS n;
    INSERT INTO knowledge_word VALUES ('<tenant>', '<asset>', 'common', 1, 3000);
    ANALYZE;";

/// Whatever the planner estimates, it must use the word index, and must never scan the whole knowledge base.
#[tokio::test]
async fn text_search_cost_is_bounded_for_rare_and_frequent_words() {
    let asset: AssetId = fresh();
    let fill = FILL
        .replace("<tenant>", &scope().tenant().to_string())
        .replace("<asset>", &asset.to_string())
        .replace("<prefix>", &IndexRevision::index_term_prefix(scope().tenant(), asset));
    let mut database = TestDatabase::create().await.unwrap();
    database.connect_as_owner().await.unwrap().batch_execute(&fill).await.unwrap();
    let pages = "SELECT relpages::bigint FROM pg_class WHERE relname = 'knowledge_chunk'";
    let pages: i64 = database.connect_as_owner().await.unwrap().query_one(pages, &[]).await.unwrap().get(0);
    for (query, hits, is_capped, max_blocks) in
        [("w777", 1, false, 20), ("common", 10, true, pages / 2), ("common w777", 10, true, pages / 2)]
    {
        let (returned_database, counts) = measure(database, async |_, store| {
            let found = store.text_search(scope(), &within(asset, 1), &WordSet::from_texts([query])).await.unwrap();
            assert_eq!((found.hits.len(), found.is_capped), (hits, is_capped), "{query}");
        })
        .await;
        database = returned_database;
        let blocks = counts["knowledge_chunk"].blocks / i64::try_from(TURNS).unwrap();
        assert!(blocks <= max_blocks, "`{query}` read {blocks} blocks of {pages}");
    }
}
