//! Re-embedding: revisions with vectors of another model, stale changes, and the embedding model of a revision.

use crate::{
    fixture::{
        Fixture, fresh,
        knowledge::{SHORT_CHUNKS, add_vectors, documents, ingest, knowledge_base, local_model, reembedding, within},
        scope, stamp,
    },
    indexes::{MAX_BLOCKS_PER_ROW, TURNS, measure},
};
use fairway_domain::{
    id::AssetId,
    knowledge::{
        IndexRevision,
        ports::{ChunkSearch, DocumentStore, IndexRevisionStore, SameDocumentRevisions},
        reembedding::{NewVector, Reembedding},
        retrieval::IndexEmbeddingModels,
    },
    search_words::WordSet,
    store::CommitError,
};
use fairway_testkit::TestDatabase;

#[tokio::test]
async fn reembedding_adds_a_revision_and_keeps_earlier_ones() {
    let fixture = Fixture::new().await;
    let (asset, _) = knowledge_base(&fixture).await;
    let id = asset.asset_id;
    let first = add_vectors(&fixture, &asset, "old", &[("a", &[1.0, 0.0]), ("b", &[0.0, 1.0])]).await;
    let text_scores = async |revision: IndexRevision| {
        let search_scope = within(id, revision.get());
        fixture
            .store
            .text_search(scope(), &search_scope, &WordSet::from_texts(["leave"]))
            .await
            .unwrap()
            .hits
            .iter()
            .map(|hit| hit.score)
            .collect::<Vec<_>>()
    };
    let scores = text_scores(first).await;
    assert_eq!(fixture.store.stale_chunks(scope(), id, &local_model("old"), 10).await.unwrap(), []);
    // Re-embeds one chunk at a time, so that each creates a revision.
    let mut revision = first;
    for _ in 0..2 {
        let stale = fixture.store.stale_chunks(scope(), id, &local_model("new"), 1).await.unwrap();
        assert_eq!((stale.len(), stale[0].text.as_str()), (1, "Thirty days of leave."));
        let vectors = vec![NewVector { replaces: stale[0].chunk_id, chunk_id: fresh(), vector: vec![0.0, 0.0, 1.0] }];
        let change =
            Reembedding::decide(&asset, fresh(), SHORT_CHUNKS, local_model("new"), vectors, revision, &stamp())
                .unwrap();
        revision = fixture.store.commit_reembedding(scope(), &change, None).await.unwrap();
        let result = fixture.store.find_reembedding(scope(), id, change.next.ingest_id).await.unwrap().unwrap();
        assert_eq!((result.index_revision, result.chunk_count, result.embedded_by), (revision, 1, local_model("new")));
    }
    assert_eq!(revision, IndexRevision::new(3));
    assert_eq!(fixture.store.stale_chunks(scope(), id, &local_model("new"), 10).await.unwrap(), []);
    let embedding_models =
        async |revision| fixture.store.index_embedding(scope(), id, IndexRevision::new(revision)).await.unwrap();
    assert_eq!(embedding_models(0).await, IndexEmbeddingModels::Empty);
    assert_eq!(embedding_models(1).await, IndexEmbeddingModels::Uniform(local_model("old")));
    assert_eq!(embedding_models(2).await, IndexEmbeddingModels::Mixed);
    assert_eq!(embedding_models(3).await, IndexEmbeddingModels::Uniform(local_model("new")));
    let same_documents = async |revision| {
        fixture.store.revisions_with_same_documents(scope(), id, IndexRevision::new(revision)).await.unwrap()
    };
    for revision in 1..=3 {
        assert_eq!(same_documents(revision).await, SameDocumentRevisions { first, last: IndexRevision::new(3) });
    }
    // Each revision has its own vectors. Text search and its scores do not change.
    let old = fixture.store.vector_search(scope(), &within(id, 1), &[1.0, 0.0]).await.unwrap();
    assert!(old.hits.len() == 2 && old.hits[0].score > 0.999, "{old:?}");
    let new = fixture.store.vector_search(scope(), &within(id, 3), &[0.0, 0.0, 1.0]).await.unwrap();
    assert!(new.hits.len() == 2 && new.hits[1].score > 0.999, "{new:?}");
    assert_eq!(text_scores(revision).await, scores);
    // An ingest changes the documents, so it ends the range of revisions with the same documents.
    let added = ingest(&asset, documents(&[("a", "Forty days of leave.")]), revision);
    fixture.store.commit_documents(scope(), &added, None).await.unwrap();
    assert_eq!(same_documents(1).await, SameDocumentRevisions { first, last: IndexRevision::new(3) });
    assert_eq!(
        same_documents(4).await,
        SameDocumentRevisions { first: IndexRevision::new(4), last: IndexRevision::new(4) }
    );
    assert_eq!(fixture.query_number("SELECT count(*) FROM knowledge_chunk WHERE until_revision IS NULL").await, 2);
}

/// Two re-embeddings of the same chunks are based on one revision. The second finds no current chunks and is stale.
#[tokio::test]
async fn reembedding_of_a_replaced_chunk_is_stale() {
    let fixture = Fixture::new().await;
    let (asset, _) = knowledge_base(&fixture).await;
    let id = asset.asset_id;
    let first = add_vectors(&fixture, &asset, "old", &[("a", &[1.0, 0.0]), ("b", &[0.0, 1.0])]).await;
    let stale = fixture.store.stale_chunks(scope(), id, &local_model("new"), 10).await.unwrap();
    let all = reembedding(&asset, &stale, &local_model("new"), first);
    let one = reembedding(&asset, &stale[..1], &local_model("new"), first);
    let second = fixture.store.commit_reembedding(scope(), &one, None).await.unwrap();
    for (stale, revision) in [(&stale[..], second), (&stale[..1], second), (&[], first)] {
        let change = reembedding(&asset, stale, &local_model("new"), revision);
        let result = fixture.store.commit_reembedding(scope(), &change, None).await;
        assert!(matches!(result, Err(CommitError::Stale)), "{result:?}");
    }
    assert!(matches!(fixture.store.commit_reembedding(scope(), &all, None).await, Err(CommitError::Stale)));
    assert_eq!(fixture.store.current_revision(scope(), id).await.unwrap(), second);
    let facts = "SELECT count(*) FROM fact WHERE kind = 'knowledge.documents_reembedded'";
    assert_eq!(fixture.query_number(facts).await, 1);
}

/// SQL that adds 30,000 chunks of one model, all of which one chunk of another model replaces.
const REPLACED: &str = "
    INSERT INTO knowledge_index VALUES ('<tenant>', '<asset>', 2, 30001);
    INSERT INTO knowledge_ingest (tenant_id, asset_id, revision, ingest_id, chunk_strategy, chunk_tokens,
        embedding_account, embedding_model, chunks, created_at, created_by)
    SELECT '<tenant>', '<asset>', n, gen_random_uuid(), 'sentence', 512, 'local', 'm' || n, 1, now(), 'user:eve'
    FROM generate_series(1, 2) AS n;
    INSERT INTO knowledge_chunk (tenant_id, chunk_id, asset_id, entry_id, document_id, position, starts, ends, tokens,
        digest, from_revision, embedded_by, words, body, embedding)
    SELECT '<tenant>', gen_random_uuid(), '<asset>', gen_random_uuid(), 'd' || n, 0, 0, 1, 1, 'x', 1, 'local/m1', '', 'x',
        '\\x00000000'
    FROM generate_series(1, 30000) AS n;
    UPDATE knowledge_chunk SET until_revision = 2 WHERE asset_id = '<asset>';
    INSERT INTO knowledge_chunk (tenant_id, chunk_id, asset_id, entry_id, document_id, position, starts, ends, tokens,
        digest, from_revision, embedded_by, words, body, embedding)
    SELECT '<tenant>', gen_random_uuid(), '<asset>', gen_random_uuid(), 'd', 0, 0, 1, 1, 'x', 2, 'local/m2', '', 'x',
        '\\x00000000';
    VACUUM ANALYZE knowledge_chunk;
    ANALYZE;";

#[tokio::test]
async fn finds_the_model_of_a_revision_without_reading_replaced_chunks() {
    let asset: AssetId = fresh();
    let fill = REPLACED.replace("<tenant>", &scope().tenant().to_string()).replace("<asset>", &asset.to_string());
    let database = TestDatabase::create().await.unwrap();
    let owner = database.connect_as_owner().await.unwrap();
    owner
        .batch_execute(
            "ALTER TABLE knowledge_index DISABLE TRIGGER ALL; ALTER TABLE knowledge_ingest DISABLE TRIGGER ALL",
        )
        .await
        .unwrap();
    for statement in fill.split(';') {
        owner.batch_execute(statement).await.unwrap();
    }
    drop(owner);
    let (_database, counts) = measure(database, async |_, store| {
        let embedding_models =
            async |revision| store.index_embedding(scope(), asset, IndexRevision::new(revision)).await.unwrap();
        assert_eq!(embedding_models(2).await, IndexEmbeddingModels::Uniform(local_model("m2")));
        assert_eq!(embedding_models(1).await, IndexEmbeddingModels::Uniform(local_model("m1")));
        assert_eq!(store.stale_chunks(scope(), asset, &local_model("m2"), 10).await.unwrap(), []);
    })
    .await;
    let blocks = counts["knowledge_chunk"].blocks / i64::try_from(TURNS).unwrap();
    assert!(blocks <= MAX_BLOCKS_PER_ROW, "{blocks} blocks were read of chunks and their indexes");
}
