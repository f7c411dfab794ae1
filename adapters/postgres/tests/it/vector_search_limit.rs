//! Vector search over more chunks than one query compares.

use crate::fixture::{
    Fixture,
    knowledge::{add_vectors, knowledge_base, within},
    scope,
};
use fairway_domain::knowledge::{
    ports::{ChunkSearch, IndexRevisionStore},
    retrieval::{VectorCoverage, max_compared_vectors},
};

/// The largest possible UUID.
const MAX_UUID: &str = "ffffffff-ffff-ffff-ffff-ffffffffffff";
/// The maximum number of dimensions. With it, the search limit covers only few vectors.
const DIMENSIONS: usize = 8_192;

/// The table and its primary key contain the chunks in the reverse of their insertion order, and no other index
/// exists. Only the statement's `ORDER BY` therefore decides which chunks are compared.
#[tokio::test]
async fn compares_the_oldest_chunks_when_there_are_too_many() {
    let stage = Fixture::new().await;
    let (asset, _) = knowledge_base(&stage).await;
    let (mut near, mut far) = (vec![0.0_f32; DIMENSIONS], vec![0.0_f32; DIMENSIONS]);
    (near[0], far[1]) = (1.0, 1.0);
    add_vectors(&stage, &asset, "m", &[("first", &near)]).await;
    let limit = max_compared_vectors(DIMENSIONS);
    let asked = within(asset.asset_id, 2);
    assert_eq!(
        stage.store.vector_coverage(scope(), &asked).await.unwrap(),
        VectorCoverage { limit, is_complete: true }
    );
    add_vectors(&stage, &asset, "m", &[("later", &far)]).await;
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
    stage.run(&copies).await;
    let found = stage.store.vector_search(scope(), &asked, &near).await.unwrap();
    assert!(found.is_capped, "{found:?}");
    assert!(found.hits[0].score > 0.999, "the chunk that was added first is compared");
    assert_eq!(stage.store.vector_search(scope(), &asked, &near).await.unwrap(), found, "the result is deterministic");
    assert_eq!(
        stage.store.vector_coverage(scope(), &asked).await.unwrap(),
        VectorCoverage { limit, is_complete: false }
    );
    // Chunks that do not match the filter are not counted.
    let mut narrow = asked.clone();
    narrow.filters.insert("language".to_owned(), "de".into());
    assert!(stage.store.vector_coverage(scope(), &narrow).await.unwrap().is_complete);
}
