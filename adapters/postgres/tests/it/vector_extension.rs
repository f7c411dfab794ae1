//! Vector search in a PostgreSQL with the extension `vector` returns the same results as without the extension.

use crate::fixture::{
    StoreFixture, fresh,
    knowledge::{SHORT_CHUNKS, document_names, documents, knowledge_base, local_model, within},
    scope, stamp,
};
use fairway_domain::{
    asset::Asset,
    knowledge::{
        document::Ingest,
        ports::{ChunkSearch, DocumentStore, IndexRevisionStore},
        retrieval::{MAX_COMPARED_VECTORS, SearchResults, normalize_vector},
    },
};
use fairway_managed_postgres::{Binaries, ManagedServer};
use fairway_postgres::{create_database, migrate};
use std::{env, path::PathBuf};

/// The environment variable with the directory of PostgreSQL's programs, which `cargo xtask test` installs.
const PROGRAMS_VARIABLE: &str = "FAIRWAY_TEST_VECTORS_BIN";
/// A unit vector with several non-zero dimensions, so that rounding affects the results.
const QUERY: [f32; 3] = [0.6, 0.0, -0.8];

fn server() -> ManagedServer {
    let programs = PathBuf::from(env::var_os(PROGRAMS_VARIABLE).expect("run the tests with `cargo xtask test`"));
    ManagedServer::start_temporary(Binaries::at(&programs).expect("programs of PostgreSQL"), Vec::new()).unwrap()
}

async fn migrated(server: &ManagedServer, name: &str) -> String {
    create_database(&server.url("postgres"), name).await.unwrap();
    let url = server.url(name);
    migrate(&url).await.unwrap();
    url
}

/// Adds documents with one chunk each, as pairs of name and vector.
async fn add(fixture: &StoreFixture, asset: &Asset, directions: &[(&str, [f32; 3])]) {
    let texts: Vec<(&str, &str)> = directions.iter().map(|(name, _)| (*name, *name)).collect();
    let mut new_documents = documents(&texts);
    for (document, (_, vector)) in new_documents.iter_mut().zip(directions) {
        document.chunks[0].vector = normalize_vector(vector);
    }
    let revision = fixture.store.current_revision(scope(), asset.asset_id).await.unwrap();
    let change = Ingest::decide_addition(
        asset,
        fresh(),
        SHORT_CHUNKS,
        Some(local_model("m")),
        new_documents,
        revision,
        &stamp(),
    )
    .unwrap();
    fixture.store.commit_documents(scope(), &change, None).await.unwrap();
}

async fn nearest(fixture: &StoreFixture, asset: &Asset) -> SearchResults {
    fixture.store.vector_search(scope(), &within(asset.asset_id, 1), &QUERY).await.unwrap()
}

const HAS_VECTORS: &str = "SELECT count(*) FROM pg_attribute
    WHERE attrelid = 'knowledge_chunk'::regclass AND attname = 'meaning' AND NOT attisdropped";

#[tokio::test]
async fn search_in_the_database_returns_the_same_results() {
    let server = server();
    let url = migrated(&server, "vectors").await;
    let first_fixture = StoreFixture::new(&url, 2).await;
    assert_eq!(first_fixture.query_number(HAS_VECTORS).await, 1);
    // Removes the extension, to simulate one that is installed only after the documents were added.
    first_fixture
        .run("ALTER TABLE knowledge_chunk DROP COLUMN meaning; DROP FUNCTION fairway_vector; DROP EXTENSION vector")
        .await;
    let (asset, _) = knowledge_base(&first_fixture).await;
    let directions = [
        ("same", QUERY),
        ("close", [0.59, 0.1, -0.81]),
        ("across", [0.8, 0.0, 0.6]),
        ("opposite", [-0.6, 0.0, 0.8]),
        ("tiny", [1e-30, 1.0, -1e-41]),
    ];
    add(&first_fixture, &asset, &directions).await;
    let found = nearest(&first_fixture, &asset).await;
    assert_eq!(document_names(&first_fixture, asset.asset_id, &found).await[..2], ["same", "close"]);

    migrate(&url).await.unwrap();
    let fixture = StoreFixture::new(&url, 2).await;
    assert_eq!(fixture.query_number(HAS_VECTORS).await, 1);
    let database_results = nearest(&fixture, &asset).await;
    assert_eq!(database_results.hits.len(), found.hits.len());
    for (hit, expected) in database_results.hits.iter().zip(&found.hits) {
        assert_eq!(hit.chunk_id, expected.chunk_id);
        assert!((hit.score - expected.score).abs() < 1e-6, "{hit:?} {expected:?}");
    }
    // Each value must be bit-identical. PostgreSQL prints the shortest text that parses to the same value.
    for (name, vector) in directions {
        let sql = format!("SELECT meaning::text FROM knowledge_chunk WHERE document_id = '{name}'");
        let text: String = fixture.owner.query_one(&sql, &[]).await.unwrap().get(0);
        let components: Vec<f32> =
            text.trim_matches(['[', ']']).split(',').map(|component| component.parse().unwrap()).collect();
        assert_eq!(components, normalize_vector(&vector).unwrap(), "{name}");
    }
}

/// The memory of the server process limits how many vectors it compares itself. Comparison in PostgreSQL has no such
/// limit.
#[tokio::test]
async fn the_database_compares_more_vectors_than_the_process() {
    let server = server();
    let url = migrated(&server, "many").await;
    let fixture = StoreFixture::new(&url, 2).await;
    let (asset, _) = knowledge_base(&fixture).await;
    add(&fixture, &asset, &[("far", [-1.0, 0.0, 0.0])]).await;
    let copies = format!(
        "INSERT INTO knowledge_chunk (tenant_id, chunk_id, asset_id, entry_id, document_id, position, starts, ends, tokens,
            digest, from_revision, embedded_by, words, body, embedding)
         SELECT tenant_id, gen_random_uuid(), asset_id, entry_id, document_id, position, starts, ends, tokens, digest,
            from_revision, embedded_by, words, body, embedding
         FROM knowledge_chunk, generate_series(1, {MAX_COMPARED_VECTORS})"
    );
    fixture.run(&copies).await;
    // The nearest chunk is the last in the table, so a limited comparison would miss it.
    fixture
        .run(
            "UPDATE knowledge_chunk SET embedding = decode('9a99193f00000000cdcc4cbf', 'hex'), document_id = 'near'
            WHERE ctid = (SELECT max(ctid) FROM knowledge_chunk)",
        )
        .await;
    let found = nearest(&fixture, &asset).await;
    assert!(!found.is_capped && found.hits[0].score > 0.999_999, "{found:?}");
    assert_eq!(document_names(&fixture, asset.asset_id, &found).await[0], "near");
    fixture.run("ALTER TABLE knowledge_chunk DROP COLUMN meaning").await;
    let fixture_without_column = StoreFixture::new(&url, 2).await;
    assert!(nearest(&fixture_without_column, &asset).await.is_capped);
}
