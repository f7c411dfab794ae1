//! Browser sessions: concurrent reads share one statement, an index finds the rows, and renewals are claimed.

use crate::{
    commit_cases::sign_in::{LIFETIME, hash, session_of_pinned_identity},
    fixture::{Fixture, scope, stamp},
    indexes::{MAX_BLOCKS_PER_ROW, assert_no_seq_scans, measure},
};
use fairway_domain::{
    access::session::{self, LogoutTarget, NewSession, RenewalLease, SessionEnd, SessionStore},
    share_link::TokenHash,
};
use fairway_postgres::Database;
use fairway_testkit::TestDatabase;
use futures_util::future::join_all;
use std::{sync::Arc, time::Duration};

/// Stores a session. Returns it with the hash of its secret.
async fn stored_session(fixture: &Fixture) -> (NewSession, TokenHash) {
    let (session, hash) = (session_of_pinned_identity(fixture).await, hash());
    let fact = session.started_fact(&stamp());
    SessionStore::commit_new(&*fixture.store, scope(), &session, &hash, LIFETIME, fact).await.unwrap();
    (session, hash)
}

#[tokio::test]
async fn concurrent_reads_of_sessions_share_a_statement() {
    let fixture = Fixture::new().await;
    let mut hashes = Vec::new();
    for _ in 0..20 {
        hashes.push(stored_session(&fixture).await.1);
    }
    // The first read waits for this table lock, so that the other reads arrive while it is in flight.
    let lock = fixture.database.connect_as_owner().await.unwrap();
    lock.batch_execute("BEGIN; LOCK TABLE session").await.unwrap();
    let store = Arc::clone(&fixture.store);
    let reads = tokio::spawn(async move {
        let read = async |hash: &TokenHash| SessionStore::find(&*store, scope(), hash).await.unwrap().is_some();
        join_all(hashes.iter().map(read)).await
    });
    let waiting_sql =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    while fixture.query_number(waiting_sql).await == 0 {
        tokio::task::yield_now().await;
    }
    // Gives the other reads time to send statements on the seven other connections. They must wait for the first read
    // instead.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(fixture.query_number(waiting_sql).await, 1, "statements that read sessions");
    lock.batch_execute("COMMIT").await.unwrap();
    assert!(reads.await.unwrap().into_iter().all(|is_found| is_found));
}

/// SQL that adds many sessions of other people.
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
    let execute_statements = async |fixture: &Fixture, store: &Database| {
        let (session, hash) = stored_session(fixture).await;
        let id = session.session_id;
        let found = SessionStore::find(store, scope(), &hash).await.unwrap().unwrap();
        store.record_use(scope(), id).await.unwrap();
        let claim = RenewalLease { session_id: id, renewal_id: uuid::Uuid::now_v7().into() };
        assert_eq!(store.claim_renewal(scope(), claim).await.unwrap(), None, "its groups are new");
        store.store_renewed_tokens(scope(), claim, &[2]).await.unwrap();
        SessionStore::complete_renewal(store, scope(), claim, &session.groups, &[2]).await.unwrap();
        store.release_renewal(scope(), claim).await.unwrap();
        for target in [LogoutTarget::IssuerSession("none".to_owned()), LogoutTarget::Subject(found.subject)] {
            store.list_for_logout(&found.issuer, &target).await.unwrap();
        }
        let fact = session::ended_fact(id, &session.actor, SessionEnd::SignedOut, &stamp());
        store.commit_end(scope(), id, fact).await.unwrap();
        assert_eq!(store.delete_expired().await.unwrap(), 0);
    };
    let (_database, counts) = measure(database, execute_statements).await;
    assert_no_seq_scans(&counts);
    for table in ["session", "identity"] {
        let blocks = counts[table].blocks_per_access();
        assert!(blocks <= MAX_BLOCKS_PER_ROW, "{blocks} blocks of {table} were read for each row");
    }
}

#[tokio::test]
async fn one_server_claims_a_renewal_until_it_ends() {
    let fixture = Fixture::new().await;
    let (session, hash) = stored_session(&fixture).await;
    let (id, store) = (session.session_id, &*fixture.store);
    let [claim, other_claim] =
        [(); 2].map(|()| RenewalLease { session_id: id, renewal_id: uuid::Uuid::now_v7().into() });
    let owner = fixture.database.connect_as_owner().await.unwrap();
    let update_sessions =
        async |columns: &str| owner.batch_execute(&format!("UPDATE session SET {columns}")).await.unwrap();
    let older_groups = "groups_read_at = groups_read_at - interval '10 minutes'";
    update_sessions(older_groups).await;
    assert_eq!(store.claim_renewal(scope(), claim).await.unwrap(), Some(session.sealed_tokens.clone()));
    // A repeated statement of the same server finds the claim that this server already has.
    assert_eq!(store.claim_renewal(scope(), claim).await.unwrap(), Some(session.sealed_tokens));
    assert_eq!(store.claim_renewal(scope(), other_claim).await.unwrap(), None);
    store.release_renewal(scope(), other_claim).await.unwrap();
    assert_eq!(store.claim_renewal(scope(), other_claim).await.unwrap(), None, "only its holder releases a claim");
    store.store_renewed_tokens(scope(), claim, &[7]).await.unwrap();
    store.release_renewal(scope(), claim).await.unwrap();
    assert_eq!(store.claim_renewal(scope(), other_claim).await.unwrap(), Some(vec![7]));
    update_sessions("renewal_until = renewal_until - interval '90 seconds'").await;
    assert_eq!(store.claim_renewal(scope(), claim).await.unwrap(), Some(vec![7]), "a claim ends by itself");
    // A server whose claim has ended may still have older tokens in memory. It must not store them.
    store.store_renewed_tokens(scope(), other_claim, &[6]).await.unwrap();
    SessionStore::complete_renewal(store, scope(), other_claim, &session.groups, &[6]).await.unwrap();
    assert_eq!(store.claim_renewal(scope(), claim).await.unwrap(), Some(vec![7]), "only the holder stores tokens");
    SessionStore::complete_renewal(store, scope(), claim, &session.groups, &[8]).await.unwrap();
    assert_eq!(store.claim_renewal(scope(), other_claim).await.unwrap(), None, "its groups are new");
    update_sessions(older_groups).await;
    assert_eq!(store.claim_renewal(scope(), other_claim).await.unwrap(), Some(vec![8]));
    let snapshot = SessionStore::find(store, scope(), &hash).await.unwrap().unwrap();
    let fact = snapshot.ended_fact(SessionEnd::SignedOut, &stamp());
    store.commit_end(scope(), id, fact).await.unwrap();
    store.store_renewed_tokens(scope(), other_claim, &[9]).await.unwrap();
    assert_eq!(store.claim_renewal(scope(), other_claim).await.unwrap(), None, "it has ended");
    let row = owner.query_one("SELECT sealed_tokens FROM session", &[]).await.unwrap();
    assert!(row.get::<_, Vec<u8>>(0).is_empty(), "an ended session has no tokens");
}

#[tokio::test]
async fn deletes_every_old_session_in_batches() {
    let fixture = Fixture::new().await;
    stored_session(&fixture).await;
    // One session more than a single statement deletes.
    let insert =
        "INSERT INTO session SELECT tenant_id, gen_random_uuid(), sha256(n::text::bytea), identity_id, NULL, 'x', '{}',
            now(), '\\x01', now(), now(), now() - interval '2 days' FROM identity, generate_series(1, 10001) AS n";
    fixture.database.connect_as_owner().await.unwrap().batch_execute(insert).await.unwrap();
    assert_eq!(fixture.store.delete_expired().await.unwrap(), 10_001);
    assert_eq!(fixture.query_number("SELECT count(*) FROM session").await, 1);
}
