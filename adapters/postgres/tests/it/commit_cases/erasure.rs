//! Commits of erasures.

use super::{Decision, store};
use crate::fixture::{Fixture, fresh, scope, stamp};
use fairway_domain::{
    access::ActorRef,
    audit::Stamp,
    erasure::{ErasureStore, SubjectErasure},
    store::Change,
};

fn requested() -> Change<SubjectErasure> {
    SubjectErasure::request(fresh(), ActorRef::parse("user:eve").unwrap(), &stamp()).unwrap()
}

/// A stored erasure request, and its approval by another person as a decision.
async fn approved(fixture: &Fixture) -> Change<SubjectErasure> {
    let change = requested();
    let erasure = change.next.clone();
    fixture.store.commit_request(scope(), change, None).await.unwrap();
    erasure.approve(&Stamp { actor: ActorRef::parse("user:grace").unwrap(), ..stamp() }).unwrap()
}

/// SQL that simulates a batch which another process committed.
fn concurrent_batch(erasure: &SubjectErasure) -> String {
    format!("UPDATE subject_erasure SET revision = revision + 1 WHERE erasure_id = '{}'", erasure.erasure_id)
}

pub(super) fn request(fixture: &Fixture) -> Decision {
    let (change, store) = (requested(), store(fixture));
    Decision::new(async move |key| store.commit_request(scope(), change, key.as_ref()).await)
}

pub(super) async fn decision(fixture: &Fixture) -> Decision {
    let (change, store) = (approved(fixture).await, store(fixture));
    let stale = concurrent_batch(&change.next);
    Decision::new(async move |key| store.commit_decision(scope(), change, key.as_ref()).await).stale_after(stale)
}

pub(super) async fn completion(fixture: &Fixture) -> Decision {
    let change = approved(fixture).await;
    let erasure = change.next.clone();
    fixture.store.commit_decision(scope(), change, None).await.unwrap();
    let (change, store) = (erasure.complete(&stamp()).unwrap(), store(fixture));
    let stale = concurrent_batch(&erasure);
    Decision::new(async move |_| store.commit_completion(scope(), change).await).stale_after(stale)
}
