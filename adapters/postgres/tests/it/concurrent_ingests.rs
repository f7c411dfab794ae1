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
    let fixture = Fixture::new().await;
    let (asset, _) = knowledge_base(&fixture).await;
    let (first, second) = (
        ingest(&asset, documents(&[("a", "one")]), IndexRevision::default()),
        ingest(&asset, documents(&[("a", "two")]), IndexRevision::default()),
    );
    let results = tokio::join!(
        fixture.store.commit_documents(scope(), &first, None),
        fixture.store.commit_documents(scope(), &second, None)
    );
    let (revision, error) = match results {
        (Ok(revision), Err(error)) | (Err(error), Ok(revision)) => (revision, error),
        results => panic!("{results:?}"),
    };
    assert_eq!(revision, IndexRevision::new(1));
    assert!(matches!(error, CommitError::Stale), "{error:?}");
    assert_eq!(fixture.query_number("SELECT count(*) FROM knowledge_chunk").await, 1);
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
    let fixture = Fixture::new().await;
    let (first, _) = knowledge_base(&fixture).await;
    let (second, _) = knowledge_base(&fixture).await;
    fixture.run(HOLD).await;
    let mut ingests = Vec::new();
    for asset in [first, second] {
        let change = ingest(&asset, documents(&[("a", "one")]), IndexRevision::default());
        let store = Arc::clone(&fixture.store);
        ingests.push(tokio::spawn(async move { store.commit_documents(scope(), &change, None).await }));
        while fixture.query_number(HELD).await == 0 {
            tokio::task::yield_now().await;
        }
    }
    // The asset belongs to another tenant, so the ingest fails with a stale guard. This still shows that it reached
    // the database.
    let asset = fixture.asset(AssetKind::KnowledgeBase).await;
    let change_of_other_tenant = ingest(&asset, documents(&[("a", "two")]), IndexRevision::default());
    let other_tenant = TenantScope::for_background_task(Uuid::now_v7().into());
    let result = fixture.store.commit_documents(other_tenant, &change_of_other_tenant, None).await;
    assert!(matches!(result, Err(CommitError::Stale)), "{result:?}");
    assert!(ingests.iter().all(|ingest| !ingest.is_finished()));
    assert_eq!(fixture.query_number(HELD).await, 1, "a tenant must use one connection only");
    fixture.run("INSERT INTO go VALUES (true)").await;
    for ingest in ingests {
        assert_eq!(ingest.await.unwrap().unwrap(), IndexRevision::new(1));
    }
}
