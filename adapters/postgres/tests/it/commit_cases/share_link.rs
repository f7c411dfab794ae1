//! Commits of share links: creation, revocation, and use by an accepted run.

use super::{Decision, execution::accepted, store};
use crate::fixture::{Fixture, fresh, scope, stamp};
use fairway_domain::{
    execution::{Acceptance, AdditionalAccess},
    release::ports::ReleaseWithDeployment,
    share_link::{NewShareLink, ShareLink, ShareLinkStore, ShareTerms, ShareToken, TokenHash},
    store::{Change, ConstraintConflict},
    workload::Workload,
};
use uuid::Uuid;

fn hash() -> TokenHash {
    let secret = [Uuid::now_v7().into_bytes(), Uuid::now_v7().into_bytes()].concat();
    ShareToken::from_random_bytes(scope().tenant(), secret.try_into().unwrap()).hash()
}

fn change(workload: &Workload, max_uses: u32) -> Change<NewShareLink> {
    let terms = ShareTerms { ttl_hours: 1, max_uses, label: Some("a label".to_owned()), lane: None };
    NewShareLink::create(fresh(), workload, terms, &stamp()).unwrap()
}

/// A stored link of the workload that allows `max_uses` runs.
async fn committed_link(fixture: &Fixture, workload: &Workload, max_uses: u32) -> ShareLink {
    let change = change(workload, max_uses);
    let new = change.next.clone();
    let expires_at = fixture.store.commit_new(scope(), change, &hash(), None).await.unwrap();
    new.into_stored(expires_at)
}

pub(super) async fn creation(fixture: &Fixture) -> Decision {
    let workload = fixture.workload().await;
    let change = change(&workload, 1);
    let deletion = format!("DELETE FROM workload WHERE workload_id = '{}'", workload.workload_id);
    let store = store(fixture);
    Decision::new(async move |key| {
        ShareLinkStore::commit_new(&*store, scope(), change, &hash(), key.as_ref()).await.map(|_| ())
    })
    .stale_after(format!("UPDATE workload SET status = 'retired' WHERE workload_id = '{}'", workload.workload_id))
    .stale_after(deletion)
}

pub(super) async fn revocation(fixture: &Fixture) -> Decision {
    let workload = fixture.workload().await;
    let link = committed_link(fixture, &workload, 1).await;
    let fact = link.revocation_fact(&workload, &stamp());
    let id = link.share_link_id;
    let store = store(fixture);
    Decision::new(async move |_| store.commit_revocation(scope(), &link, fact).await).stale_after(revoke_sql(id))
}

/// A stored link of a workload, and the SQL statement that revokes it.
pub(super) async fn link_and_revocation(
    fixture: &Fixture,
    workload: &Workload,
) -> (fairway_domain::id::ShareLinkId, String) {
    let link = committed_link(fixture, workload, 1).await;
    (link.share_link_id, revoke_sql(link.share_link_id))
}

fn revoke_sql(id: impl std::fmt::Display) -> String {
    format!("UPDATE share_link SET revoked_at = now(), revoked_by = 'user:eve' WHERE share_link_id = '{id}'")
}

/// Accepts a run through a link. Each statement that makes the link unusable must cause a rejection.
pub(super) async fn use_of_link(fixture: &Fixture, run: fn(&ReleaseWithDeployment) -> Acceptance) -> Decision {
    let (workload, deployed_release) = fixture.active().await;
    let revisions = fixture.expected_revisions(&workload, &deployed_release).await;
    let link = committed_link(fixture, &workload, 2).await;
    let (id, workload_id) = (link.share_link_id, workload.workload_id);
    let delegated_access = AdditionalAccess { share_link: Some(id), result_token: Some(hash()), delegate: None };
    let run = Acceptance { delegated_access, ..run(&deployed_release) };
    let starts_run = matches!(run.admission, fairway_domain::execution::AdmissionDecision::Run { .. });
    let store = store(fixture);
    let decision = Decision::new(async move |key| accepted(&store, &run, revisions, key).await)
        .stale_after(format!("UPDATE workload SET revision = revision + 1 WHERE workload_id = '{workload_id}'"));
    if !starts_run {
        return decision;
    }
    let set = |assignment: &str| format!("UPDATE share_link SET {assignment} WHERE share_link_id = '{id}'");
    decision
        .conflict_after(ConstraintConflict::ShareLinkClosed, revoke_sql(id))
        .conflict_after(ConstraintConflict::ShareLinkClosed, set("expires_at = fairway_now()"))
        .conflict_after(ConstraintConflict::ShareLinkClosed, set("use_count = max_uses"))
        .conflict_after(
            ConstraintConflict::ShareLinkClosed,
            format!("DELETE FROM share_link WHERE share_link_id = '{id}'"),
        )
}
