//! Vector search over more chunks than one query compares.

use crate::fixture::{
    Fixture,
    knowledge::{add_vectors, knowledge_base, within},
    scope,
};
use fairway_domain::knowledge::{
    ports::{ChunkSearch, IndexRevisionStore},
    retrieval::{VectorSearchCoverage, max_compared_vectors},
};

const MAX_UUID: &str = "ffffffff-ffff-ffff-ffff-ffffffffffff";
/// The maximum number of dimensions. With it, the search limit covers only few vectors.
const DIMENSIONS: usize = 8_192;

/// The table and its primary key contain the chunks in the reverse of their insertion order, and no other index
/// exists. Only the statement's `ORDER BY` therefore decides which chunks are compared.
#[tokio::test]
async fn compares_the_oldest_chunks_when_there_are_too_many() {
    let fixture = Fixture::new().await;
    let (asset, _) = knowledge_base(&fixture).await;
    let (mut near, mut far) = (vec![0.0_f32; DIMENSIONS], vec![0.0_f32; DIMENSIONS]);
    (near[0], far[1]) = (1.0, 1.0);
    add_vectors(&fixture, &asset, "m", &[("first", &near)]).await;
    let limit = max_compared_vectors(DIMENSIONS);
    let search_scope = within(asset.asset_id, 2);
    assert_eq!(
        fixture.store.vector_coverage(scope(), &search_scope).await.unwrap(),
        VectorSearchCoverage { limit, is_complete: true }
    );
    add_vectors(&fixture, &asset, "m", &[("later", &far)]).await;
    let copies = format!(
        "INSERT INTO knowledge_chunk (tenant_id, chunk_id, asset_id, entry_id, document_id, position, starts, ends, tokens,
            digest, from_revision, embedded_by, words, body, embedding)
         SELECT tenant_id, gen_random_uuid(), asset_id, entry_id, document_id, position, starts, ends, tokens, digest,
            from_revision, embedded_by, words, body, embedding
         FROM knowledge_chunk, generate_series(1, {limit}) WHERE document_id = 'later';
         WITH moved AS (DELETE FROM knowledge_chunk WHERE document_id = 'first' RETURNING *)
         INSERT INTO knowledge_chunk (tenant_id, chunk_id, asset_id, entry_id, document_id, position, starts, ends, tokens,
            digest, from_revision, embedded_by, words, body, embedding)
         SELECT tenant_id, '{MAX_UUID}', asset_id, entry_id, document_id, position, starts, ends, tokens, digest,
            from_revision, embedded_by, words, body, embedding FROM moved;
         DROP INDEX knowledge_chunk_by_age"
    );
    fixture.run(&copies).await;
    let found = fixture.store.vector_search(scope(), &search_scope, &near).await.unwrap();
    assert!(found.is_capped, "{found:?}");
    assert!(found.hits[0].score > 0.999, "the chunk that was added first is compared");
    assert_eq!(
        fixture.store.vector_search(scope(), &search_scope, &near).await.unwrap(),
        found,
        "the result is deterministic"
    );
    assert_eq!(
        fixture.store.vector_coverage(scope(), &search_scope).await.unwrap(),
        VectorSearchCoverage { limit, is_complete: false }
    );
    // Chunks that do not match the filter are not counted.
    let mut filtered_scope = search_scope.clone();
    filtered_scope.filters.insert("language".to_owned(), "de".into());
    assert!(fixture.store.vector_coverage(scope(), &filtered_scope).await.unwrap().is_complete);
}
