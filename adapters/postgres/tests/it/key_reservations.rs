//! Reservations of idempotency keys. Only one request at a time has a key reserved, until it commits, releases the
//! key, or its lease expires.

use crate::fixture::{
    Fixture, acceptance, actor,
    knowledge::{documents, ingest, knowledge_base},
    scope,
};
use fairway_domain::{
    asset::Asset,
    execution::ports::{AcceptOutcome, RunStore},
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

async fn reserve(fixture: &Fixture, key: &RequestKey, resource: Uuid) -> bool {
    fixture.store.reserve(scope(), key, resource, LEASE).await.unwrap()
}

async fn key_state(fixture: &Fixture, key: &RequestKey) -> KeyState {
    fixture.store.key_state(scope(), key).await.unwrap()
}

/// Adds a document with a key that a request has reserved for this resource.
async fn commit(
    fixture: &Fixture,
    asset: &Asset,
    revision: i64,
    key: &RequestKey,
    resource: Uuid,
) -> Result<IndexRevision, CommitError> {
    let change = ingest(asset, documents(&[("a", "one")]), IndexRevision::new(revision));
    let keyed = KeyedOutcome { key: key.clone(), outcome: StoredOutcome { status: 201, resource } };
    fixture.store.commit_documents(scope(), &change, Some(&keyed)).await
}

#[tokio::test]
async fn key_is_reserved_until_the_commit_of_its_request() {
    let fixture = Fixture::new().await;
    let (asset, _) = knowledge_base(&fixture).await;
    let (key, resource, other_resource) = (key(), Uuid::now_v7(), Uuid::now_v7());
    assert!(reserve(&fixture, &key, resource).await);
    assert_eq!(key_state(&fixture, &key).await, KeyState::Reserved);
    let other = RequestKey { body_digest: [4; 32], ..key.clone() };
    assert_eq!(key_state(&fixture, &other).await, KeyState::DifferentBody);
    assert!(!reserve(&fixture, &key, other_resource).await, "two requests reserved one key");
    assert!(reserve(&fixture, &key, resource).await, "a repeated reservation succeeds");
    let result = commit(&fixture, &asset, 0, &key, other_resource).await;
    assert!(matches!(result, Err(CommitError::DuplicateKey)), "{result:?}");
    commit(&fixture, &asset, 0, &key, resource).await.unwrap();
    let outcome = KeyState::Completed(StoredOutcome { status: 201, resource });
    assert_eq!(key_state(&fixture, &key).await, outcome);
    // After the commit, renewing or releasing the reservation has no effect.
    fixture.store.renew_reservation(scope(), &key, resource, LEASE).await.unwrap();
    fixture.store.release_reservation(scope(), &key, resource).await.unwrap();
    assert!(!reserve(&fixture, &key, resource).await && !reserve(&fixture, &key, other_resource).await);
    fixture.database.set_clock_offset(DAY - 60).await.unwrap();
    assert_eq!(key_state(&fixture, &key).await, outcome, "an outcome is kept for one day");
}

/// The batched claim of a run's key follows the same rules as the claim of other commits.
#[tokio::test]
async fn runs_claim_their_own_and_lapsed_reservations() {
    let fixture = Fixture::new().await;
    let (workload, deployed_release) = fixture.active().await;
    let revisions = fixture.expected_revisions(&workload, &deployed_release).await;
    for (is_own, lease, expected) in [
        (true, LEASE, AcceptOutcome::Accepted),
        (false, LEASE, AcceptOutcome::DuplicateKey),
        (false, Duration::ZERO, AcceptOutcome::Accepted),
    ] {
        let (key, run) = (key(), acceptance(&deployed_release));
        let resource = if is_own { run.execution_id.uuid() } else { Uuid::now_v7() };
        assert!(fixture.store.reserve(scope(), &key, resource, lease).await.unwrap());
        assert_eq!(fixture.store.accept(scope(), &run, revisions, Some(&key)).await.unwrap(), expected, "{is_own}");
    }
}

#[tokio::test]
async fn released_key_can_be_reserved_again() {
    let fixture = Fixture::new().await;
    let (asset, _) = knowledge_base(&fixture).await;
    let (key, resource, other_resource) = (key(), Uuid::now_v7(), Uuid::now_v7());
    assert!(reserve(&fixture, &key, resource).await);
    fixture.store.release_reservation(scope(), &key, other_resource).await.unwrap();
    assert_eq!(key_state(&fixture, &key).await, KeyState::Reserved, "another request released the reservation");
    fixture.store.release_reservation(scope(), &key, resource).await.unwrap();
    assert_eq!(key_state(&fixture, &key).await, KeyState::Unknown);
    // A renewal that arrives after the release does not reserve the key again.
    fixture.store.renew_reservation(scope(), &key, resource, LEASE).await.unwrap();
    assert_eq!(key_state(&fixture, &key).await, KeyState::Unknown);
    assert!(reserve(&fixture, &key, other_resource).await);
    let late = commit(&fixture, &asset, 0, &key, resource).await;
    assert!(matches!(late, Err(CommitError::DuplicateKey)), "{late:?}");
    commit(&fixture, &asset, 0, &key, other_resource).await.unwrap();
}

#[tokio::test]
async fn expired_reservation_can_be_taken_over() {
    let fixture = Fixture::new().await;
    let (asset, _) = knowledge_base(&fixture).await;
    let (key, first, second) = (key(), Uuid::now_v7(), Uuid::now_v7());
    assert!(reserve(&fixture, &key, first).await);
    fixture.database.set_clock_offset(20).await.unwrap();
    fixture.store.renew_reservation(scope(), &key, first, LEASE).await.unwrap();
    fixture.database.set_clock_offset(40).await.unwrap();
    assert!(!reserve(&fixture, &key, second).await, "the lease was renewed");
    fixture.database.set_clock_offset(60).await.unwrap();
    assert_eq!(key_state(&fixture, &key).await, KeyState::Unknown);
    let other = RequestKey { body_digest: [4; 32], ..key.clone() };
    assert!(reserve(&fixture, &other, second).await, "an expired key accepts another body");
    fixture.store.renew_reservation(scope(), &key, first, LEASE).await.unwrap();
    fixture.store.release_reservation(scope(), &key, first).await.unwrap();
    assert_eq!(key_state(&fixture, &other).await, KeyState::Reserved);
    let late = commit(&fixture, &asset, 0, &key, first).await;
    assert!(matches!(late, Err(CommitError::DuplicateKey)), "{late:?}");
    // A commit after the lease has expired succeeds if no other request has reserved the key.
    fixture.database.set_clock_offset(120).await.unwrap();
    commit(&fixture, &asset, 0, &other, second).await.unwrap();
    assert_eq!(key_state(&fixture, &other).await, KeyState::Completed(StoredOutcome { status: 201, resource: second }));
}

#[tokio::test]
async fn sweep_deletes_old_reservations() {
    let fixture = Fixture::new().await;
    assert!(reserve(&fixture, &key(), Uuid::now_v7()).await);
    fixture.database.set_clock_offset(DAY + 60).await.unwrap();
    assert_eq!(fixture.store.delete_expired().await.unwrap(), 1);
}
