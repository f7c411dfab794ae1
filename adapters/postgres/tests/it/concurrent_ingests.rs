//! Concurrent ingests: two into one knowledge base, and slow ones of several tenants, which share few database
//! connections.

use crate::fixture::{
    Fixture,
    knowledge::{documents, ingest, knowledge_base},
    scope,
};
use fairway_domain::{
    asset::kind::AssetKind,
    knowledge::{IndexRevision, ports::DocumentStore},
    store::CommitError,
    tenant::TenantScope,
};
use std::sync::Arc;
use uuid::Uuid;

#[tokio::test]
async fn second_of_two_concurrent_ingests_is_stale() {
    let stage = Fixture::new().await;
    let (asset, _) = knowledge_base(&stage).await;
    let (one, other) = (
        ingest(&asset, documents(&[("a", "one")]), IndexRevision::default()),
        ingest(&asset, documents(&[("a", "two")]), IndexRevision::default()),
    );
    let both = tokio::join!(
        stage.store.commit_documents(scope(), &one, None),
        stage.store.commit_documents(scope(), &other, None)
    );
    let (won, lost) = match both {
        (Ok(revision), Err(error)) | (Err(error), Ok(revision)) => (revision, error),
        both => panic!("{both:?}"),
    };
    assert_eq!(won, IndexRevision::new(1));
    assert!(matches!(lost, CommitError::Stale), "{lost:?}");
    assert_eq!(stage.query_number("SELECT count(*) FROM knowledge_chunk").await, 1);
}

/// SQL for a trigger that blocks ingests until the table `go` has a row.
const HOLD: &str = "
    CREATE TABLE go (now boolean);
    GRANT SELECT ON go TO fairway_service;
    CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_advisory_xact_lock_shared(1);
        WHILE NOT EXISTS (SELECT FROM go) LOOP
            PERFORM pg_sleep(0.01);
        END LOOP;
        RETURN NEW;
    END
    $$;
    CREATE TRIGGER hold BEFORE INSERT ON knowledge_ingest FOR EACH ROW EXECUTE FUNCTION hold();";
const HELD: &str = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 1
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

#[tokio::test]
async fn a_slow_ingest_of_one_tenant_leaves_a_connection_for_another() {
    let stage = Fixture::new().await;
    let (first, _) = knowledge_base(&stage).await;
    let (second, _) = knowledge_base(&stage).await;
    stage.run(HOLD).await;
    let mut mine = Vec::new();
    for asset in [first, second] {
        let change = ingest(&asset, documents(&[("a", "one")]), IndexRevision::default());
        let store = Arc::clone(&stage.store);
        mine.push(tokio::spawn(async move { store.commit_documents(scope(), &change, None).await }));
        while stage.query_number(HELD).await == 0 {
            tokio::task::yield_now().await;
        }
    }
    // The asset belongs to another tenant, so the ingest fails with a stale guard. This still shows that it reached
    // the database.
    let asset = stage.asset(AssetKind::KnowledgeBase).await;
    let theirs = ingest(&asset, documents(&[("a", "two")]), IndexRevision::default());
    let abroad = TenantScope::for_background_task(Uuid::now_v7().into());
    let refused = stage.store.commit_documents(abroad, &theirs, None).await;
    assert!(matches!(refused, Err(CommitError::Stale)), "{refused:?}");
    assert!(mine.iter().all(|ingest| !ingest.is_finished()));
    assert_eq!(stage.query_number(HELD).await, 1, "a tenant must use one connection only");
    stage.run("INSERT INTO go VALUES (true)").await;
    for ingest in mine {
        assert_eq!(ingest.await.unwrap().unwrap(), IndexRevision::new(1));
    }
}
