//! Commits of sign-ins: pinned identities and sessions.

use super::{Decision, store};
use crate::fixture::{Fixture, fresh, scope, stamp};
use fairway_domain::{
    access::{
        ActorRef,
        identity::{IdentityStore, PinnedIdentity},
        session::{self, NewSession, SessionEnd, SessionLifetime, SessionStore, SessionToken},
    },
    share_link::TokenHash,
    store::ConstraintConflict,
    tenant::DEFAULT_TENANT_ID,
};
use std::time::Duration;
use uuid::Uuid;

fn identity() -> PinnedIdentity {
    let name = Uuid::now_v7().simple();
    PinnedIdentity {
        identity_id: fresh(),
        issuer: "https://idp.example".to_owned(),
        subject: name.to_string(),
        actor: ActorRef::parse(&format!("user:{name}")).unwrap(),
        groups: vec![ActorRef::parse("group:ops").unwrap()],
        email: None,
    }
}

fn insert_sql(subject: &str, actor: &ActorRef) -> String {
    format!(
        "INSERT INTO identity VALUES ('{DEFAULT_TENANT_ID}', '{}', 'https://idp.example', '{subject}', '{actor}', '{{}}', \
         NULL, now(), now())",
        Uuid::now_v7()
    )
}

pub(super) fn pin(fixture: &Fixture) -> Decision {
    let pin = identity();
    let fact = pin.pinned_fact(&stamp());
    let other_name = ActorRef::parse(&format!("user:{}", Uuid::now_v7().simple())).unwrap();
    let same_subject = insert_sql(&pin.subject, &other_name);
    let same_name = insert_sql("another", &pin.actor);
    let store = store(fixture);
    Decision::new(async move |_| store.commit_pin(scope(), &pin, fact).await)
        .stale_after(same_subject)
        .conflict_after(ConstraintConflict::ActorNameTaken, same_name)
}

pub(crate) fn hash() -> TokenHash {
    let secret = [Uuid::now_v7().into_bytes(), Uuid::now_v7().into_bytes()].concat();
    SessionToken::from_random_bytes(scope().tenant(), secret.try_into().unwrap()).hash()
}

pub(crate) async fn session_of_pinned_identity(fixture: &Fixture) -> NewSession {
    let pin = identity();
    fixture.store.commit_pin(scope(), &pin, pin.pinned_fact(&stamp())).await.unwrap();
    NewSession {
        session_id: fresh(),
        identity_id: pin.identity_id,
        actor: pin.actor,
        display_name: "Ada".to_owned(),
        groups: pin.groups,
        issuer_session: None,
        sealed_tokens: vec![1],
    }
}

pub(crate) const LIFETIME: SessionLifetime =
    SessionLifetime { idle: Duration::from_secs(60), total: Duration::from_secs(60) };

pub(super) async fn session(fixture: &Fixture) -> Decision {
    let session = session_of_pinned_identity(fixture).await;
    let fact = session.started_fact(&stamp());
    let deletion = format!("DELETE FROM identity WHERE identity_id = '{}'", session.identity_id);
    let store = store(fixture);
    Decision::new(async move |_| SessionStore::commit_new(&*store, scope(), &session, &hash(), LIFETIME, fact).await)
        .conflict_after(ConstraintConflict::MissingReference, deletion)
}

pub(super) async fn end_of_session(fixture: &Fixture) -> Decision {
    let session = session_of_pinned_identity(fixture).await;
    let started = session.started_fact(&stamp());
    SessionStore::commit_new(&*fixture.store, scope(), &session, &hash(), LIFETIME, started).await.unwrap();
    let (id, actor) = (session.session_id, session.actor);
    let fact = session::ended_fact(id, &actor, SessionEnd::SignedOut, &stamp());
    let store = store(fixture);
    Decision::new(async move |_| store.commit_end(scope(), id, fact).await)
        .stale_after(format!("UPDATE session SET ended_at = now() WHERE session_id = '{id}'"))
}
