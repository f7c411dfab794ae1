//! Reservations of idempotency keys. Only one request at a time has a key reserved, until it commits, releases the
//! key, or its lease expires.

use crate::fixture::{
    Fixture, actor,
    knowledge::{documents, ingest, knowledge_base},
    scope,
};
use fairway_domain::{
    asset::Asset,
    idempotency::{IdempotencyStore, KeyState, KeyedOutcome, RequestKey, StoredOutcome},
    knowledge::{IndexRevision, ports::DocumentStore},
    store::CommitError,
};
use std::time::Duration;
use uuid::Uuid;

const LEASE: Duration = Duration::from_secs(30);
const DAY: i64 = 24 * 60 * 60;

fn key() -> RequestKey {
    RequestKey {
        key: Uuid::now_v7().to_string(),
        caller: actor(),
        route: "POST /v1/things".to_owned(),
        body_digest: [3; 32],
    }
}

async fn reserve(stage: &Fixture, key: &RequestKey, resource: Uuid) -> bool {
    stage.store.reserve(scope(), key, resource, LEASE).await.unwrap()
}

async fn known(stage: &Fixture, key: &RequestKey) -> KeyState {
    stage.store.key_state(scope(), key).await.unwrap()
}

/// Adds a document with a key that a request has reserved for this resource.
async fn commit(
    stage: &Fixture,
    asset: &Asset,
    seen: i64,
    key: &RequestKey,
    resource: Uuid,
) -> Result<IndexRevision, CommitError> {
    let change = ingest(asset, documents(&[("a", "one")]), IndexRevision::new(seen));
    let keyed = KeyedOutcome { key: key.clone(), outcome: StoredOutcome { status: 201, resource } };
    stage.store.commit_documents(scope(), &change, Some(&keyed)).await
}

#[tokio::test]
async fn key_is_reserved_until_the_commit_of_its_request() {
    let stage = Fixture::new().await;
    let (asset, _) = knowledge_base(&stage).await;
    let (key, mine, theirs) = (key(), Uuid::now_v7(), Uuid::now_v7());
    assert!(reserve(&stage, &key, mine).await);
    assert_eq!(known(&stage, &key).await, KeyState::Reserved);
    let other = RequestKey { body_digest: [4; 32], ..key.clone() };
    assert_eq!(known(&stage, &other).await, KeyState::DifferentBody);
    assert!(!reserve(&stage, &key, theirs).await, "two requests reserved one key");
    assert!(reserve(&stage, &key, mine).await, "a repeated reservation succeeds");
    let refused = commit(&stage, &asset, 0, &key, theirs).await;
    assert!(matches!(refused, Err(CommitError::DuplicateKey)), "{refused:?}");
    commit(&stage, &asset, 0, &key, mine).await.unwrap();
    let outcome = KeyState::Completed(StoredOutcome { status: 201, resource: mine });
    assert_eq!(known(&stage, &key).await, outcome);
    // After the commit, renewing or releasing the reservation has no effect.
    stage.store.renew_reservation(scope(), &key, mine, LEASE).await.unwrap();
    stage.store.release_reservation(scope(), &key, mine).await.unwrap();
    assert!(!reserve(&stage, &key, mine).await && !reserve(&stage, &key, theirs).await);
    stage.database.move_clock(DAY - 60).await.unwrap();
    assert_eq!(known(&stage, &key).await, outcome, "an outcome is kept for one day");
}

#[tokio::test]
async fn released_key_can_be_reserved_again() {
    let stage = Fixture::new().await;
    let (asset, _) = knowledge_base(&stage).await;
    let (key, mine, theirs) = (key(), Uuid::now_v7(), Uuid::now_v7());
    assert!(reserve(&stage, &key, mine).await);
    stage.store.release_reservation(scope(), &key, theirs).await.unwrap();
    assert_eq!(known(&stage, &key).await, KeyState::Reserved, "another request released the reservation");
    stage.store.release_reservation(scope(), &key, mine).await.unwrap();
    assert_eq!(known(&stage, &key).await, KeyState::Unknown);
    // A renewal that arrives after the release does not reserve the key again.
    stage.store.renew_reservation(scope(), &key, mine, LEASE).await.unwrap();
    assert_eq!(known(&stage, &key).await, KeyState::Unknown);
    assert!(reserve(&stage, &key, theirs).await);
    let late = commit(&stage, &asset, 0, &key, mine).await;
    assert!(matches!(late, Err(CommitError::DuplicateKey)), "{late:?}");
    commit(&stage, &asset, 0, &key, theirs).await.unwrap();
}

#[tokio::test]
async fn expired_reservation_can_be_taken_over() {
    let stage = Fixture::new().await;
    let (asset, _) = knowledge_base(&stage).await;
    let (key, first, second) = (key(), Uuid::now_v7(), Uuid::now_v7());
    assert!(reserve(&stage, &key, first).await);
    stage.database.move_clock(20).await.unwrap();
    stage.store.renew_reservation(scope(), &key, first, LEASE).await.unwrap();
    stage.database.move_clock(40).await.unwrap();
    assert!(!reserve(&stage, &key, second).await, "the lease was renewed");
    stage.database.move_clock(60).await.unwrap();
    assert_eq!(known(&stage, &key).await, KeyState::Unknown);
    let other = RequestKey { body_digest: [4; 32], ..key.clone() };
    assert!(reserve(&stage, &other, second).await, "an expired key accepts another body");
    stage.store.renew_reservation(scope(), &key, first, LEASE).await.unwrap();
    stage.store.release_reservation(scope(), &key, first).await.unwrap();
    assert_eq!(known(&stage, &other).await, KeyState::Reserved);
    let late = commit(&stage, &asset, 0, &key, first).await;
    assert!(matches!(late, Err(CommitError::DuplicateKey)), "{late:?}");
    // A commit after the lease has expired succeeds if no other request has reserved the key.
    stage.database.move_clock(120).await.unwrap();
    commit(&stage, &asset, 0, &other, second).await.unwrap();
    assert_eq!(known(&stage, &other).await, KeyState::Completed(StoredOutcome { status: 201, resource: second }));
}

#[tokio::test]
async fn sweep_deletes_old_reservations() {
    let stage = Fixture::new().await;
    assert!(reserve(&stage, &key(), Uuid::now_v7()).await);
    stage.database.move_clock(DAY + 60).await.unwrap();
    assert_eq!(stage.store.delete_expired().await.unwrap(), 1);
}
