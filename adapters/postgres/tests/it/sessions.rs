//! Reads of browser sessions: one statement for all requests that arrive together, and rows found by an index.

use crate::{
    commits::sign_in::{LIFETIME, hash, session_of_pinned_identity},
    fixture::{Fixture, scope, stamp},
    indexes::{MAX_BLOCKS_PER_ROW, assert_no_seq_scans, measure},
};
use fairway_domain::{
    access::session::{self, LogoutTarget, NewSession, SessionEnd, SessionStore},
    share_link::TokenHash,
};
use fairway_postgres::Database;
use fairway_testkit::TestDatabase;
use futures_util::future::join_all;
use std::{sync::Arc, time::Duration};

/// A stored session, and the hash of its secret.
async fn stored_session(stage: &Fixture) -> (NewSession, TokenHash) {
    let (session, hash) = (session_of_pinned_identity(stage).await, hash());
    let fact = session.started_fact(&stamp());
    SessionStore::commit_new(&*stage.store, scope(), &session, &hash, LIFETIME, fact).await.unwrap();
    (session, hash)
}

#[tokio::test]
async fn concurrent_reads_of_sessions_share_a_statement() {
    let stage = Fixture::new().await;
    let mut hashes = Vec::new();
    for _ in 0..20 {
        hashes.push(stored_session(&stage).await.1);
    }
    // The first read waits for this lock, so that the others arrive while it is in flight.
    let lock = stage.database.connect_as_owner().await.unwrap();
    lock.batch_execute("BEGIN; LOCK TABLE session").await.unwrap();
    let store = Arc::clone(&stage.store);
    let reads = tokio::spawn(async move {
        let read = async |hash: &TokenHash| SessionStore::find(&*store, scope(), hash).await.unwrap().is_some();
        join_all(hashes.iter().map(read)).await
    });
    let waiting =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    while stage.query_number(waiting).await == 0 {
        tokio::task::yield_now().await;
    }
    // Time for reads of their own on the other connections, of which there are seven.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(stage.query_number(waiting).await, 1, "statements that read sessions");
    lock.batch_execute("COMMIT").await.unwrap();
    assert!(reads.await.unwrap().into_iter().all(|is_found| is_found));
}

/// Many sessions of other people.
const FILL: &str = "
    INSERT INTO identity SELECT tenant_id, gen_random_uuid(), 'https://idp.example', 'subject-' || n, 'user:person-' || n,
        '{}', NULL, now(), now() FROM tenant, generate_series(1, 6000) AS n WHERE slug = 'default';
    INSERT INTO session SELECT tenant_id, gen_random_uuid(), sha256(identity_id::text::bytea), identity_id,
        'sid-' || identity_id, 'x', '{}', now(), '\\x01', now(), now(), now() + interval '1 day' FROM identity;
    ANALYZE;";

#[tokio::test]
async fn statements_of_sessions_find_their_rows_by_an_index() {
    let database = TestDatabase::create().await.unwrap();
    database.connect_as_owner().await.unwrap().batch_execute(FILL).await.unwrap();
    let touch = async |stage: &Fixture, store: &Database| {
        let (session, hash) = stored_session(stage).await;
        let id = session.session_id;
        let found = SessionStore::find(store, scope(), &hash).await.unwrap().unwrap();
        store.record_use(scope(), id).await.unwrap();
        SessionStore::renew(store, scope(), id, &session.groups, &[2]).await.unwrap();
        for target in [LogoutTarget::IssuerSession("none".to_owned()), LogoutTarget::Subject(found.subject)] {
            store.list_for_logout(&found.issuer, &target).await.unwrap();
        }
        let fact = session::ended_fact(id, &session.actor, SessionEnd::SignedOut, &stamp());
        store.commit_end(scope(), id, fact).await.unwrap();
    };
    let (_database, counts) = measure(database, touch).await;
    assert_no_seq_scans(&counts);
    for table in ["session", "identity"] {
        let blocks = counts[table].blocks_per_access();
        assert!(blocks <= MAX_BLOCKS_PER_ROW, "{blocks} blocks of {table} were read for each row");
    }
}
