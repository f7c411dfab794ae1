//! Commits of assets, versions and grants.

use super::{Decision, store};
use crate::fixture::{Fixture, content_with_attachments, fresh, new_asset, scope, slug, stamp};
use fairway_domain::{
    access::ActorRef,
    asset::{
        Asset, Lifecycle, VersionLabel,
        grant::{AssetGrant, AssetGrantStore, Grantee},
        kind::AssetKind,
        ports::{AssetStore, VersionStore},
    },
    audit::FactKind,
    id::{NamespaceId, WorkspaceId},
    store::{Change, ConstraintConflict},
    tenant::{DEFAULT_TENANT_ID, Workspace, WorkspaceIds, WorkspaceStore},
};
use uuid::Uuid;

/// A workspace to which nothing refers, so that the test can delete it.
pub(super) async fn deletable_workspace(fixture: &Fixture) -> (WorkspaceId, NamespaceId) {
    let ids = WorkspaceIds { workspace_id: fresh(), namespace_id: fresh(), assistant_id: fresh() };
    let change = Workspace::create(ids, slug().as_str(), "Passing", "default", &stamp()).unwrap();
    let assistant = change.next.assistant.workload_id;
    let workspace = WorkspaceStore::commit_new(&*fixture.store, scope(), change, None).await.unwrap();
    // The statement uses the full key, because a test asserts that no table is scanned.
    let workload_deletion =
        format!("DELETE FROM workload WHERE tenant_id = '{DEFAULT_TENANT_ID}' AND workload_id = '{assistant}'");
    fixture.run(&workload_deletion).await;
    (workspace.workspace_id, workspace.namespace_id)
}

pub(super) async fn asset(fixture: &Fixture) -> Decision {
    let mut new = new_asset(AssetKind::PolicyBundle);
    (new.workspace_id, new.namespace_id) = deletable_workspace(fixture).await;
    let workspace_deletion = format!("DELETE FROM workspace WHERE workspace_id = '{}'", new.workspace_id);
    let change = Asset::create(new, &stamp());
    let duplicate = other_asset(change.next.slug.as_str());
    let store = store(fixture);
    Decision::new(async move |key| AssetStore::commit_new(&*store, scope(), change, key.as_ref()).await)
        .conflict_after(ConstraintConflict::DuplicateSlug, duplicate)
        .conflict_after(ConstraintConflict::MissingReference, workspace_deletion)
}

fn other_asset(slug: &str) -> String {
    format!(
        "INSERT INTO asset (tenant_id, asset_id, slug, asset_kind, owner_ref, lifecycle_state, ownership_tier,
            workspace_id, namespace_id, last_label, revision, created_at, created_by)
         SELECT tenant_id, '{}', '{slug}', 'skill', 'team:x', 'active', 'workspace', workspace_id,
         namespace_id, 0, 1, now(), 'user:eve' FROM workspace WHERE slug = 'default'",
        Uuid::now_v7()
    )
}

pub(super) async fn lifecycle_transition(fixture: &Fixture, target: Lifecycle) -> Decision {
    let asset = fixture.asset(AssetKind::PolicyBundle).await;
    let change = asset.transition_to(target, &stamp()).unwrap();
    let store = store(fixture);
    Decision::new(async move |key| store.commit_lifecycle(scope(), change, key.as_ref()).await)
        .stale_after(format!("UPDATE asset SET revision = revision + 1 WHERE asset_id = '{}'", asset.asset_id))
}

/// Archives an asset. The guard also checks that no release uses the asset.
pub(super) async fn archive(fixture: &Fixture) -> Decision {
    let version = fixture.bindable().await;
    let asset = AssetStore::find(&*fixture.store, scope(), version.asset_id).await.unwrap().unwrap();
    let draft = fixture.draft(&fixture.workload().await).await;
    let binding_insert = format!(
        "INSERT INTO release_binding VALUES ('{DEFAULT_TENANT_ID}', '{}', '{}', 'policy_bundle', '{}', now(), 'user:eve')",
        Uuid::now_v7(),
        draft.release_id,
        version.asset_version_id
    );
    let change = asset.transition_to(Lifecycle::Archived, &stamp()).unwrap();
    let id = asset.asset_id;
    let store = store(fixture);
    Decision::new(async move |key| store.commit_lifecycle(scope(), change, key.as_ref()).await)
        .stale_after(format!("UPDATE asset SET revision = revision + 1 WHERE asset_id = '{id}'"))
        .stale_after(format!("UPDATE asset SET lifecycle_state = 'archived' WHERE asset_id = '{id}'"))
        .conflict_after(ConstraintConflict::AssetInUse, binding_insert)
}

fn asset_grant_of(asset: &Asset) -> Change<AssetGrant> {
    let principal = ActorRef::parse("user:guest").unwrap();
    AssetGrant::create(fresh(), asset, Grantee::Principal(principal), &stamp()).unwrap()
}

pub(super) async fn asset_grant(fixture: &Fixture) -> Decision {
    let asset = fixture.asset(AssetKind::PolicyBundle).await;
    let id = asset.asset_id;
    let change = asset_grant_of(&asset);
    let duplicate = format!(
        "INSERT INTO asset_grant VALUES ('{DEFAULT_TENANT_ID}', '{}', '{id}', 'user:guest', NULL, now(), 'user:eve')",
        Uuid::now_v7(),
    );
    let store = store(fixture);
    Decision::new(async move |key| AssetGrantStore::commit_grant(&*store, scope(), change, key.as_ref()).await)
        .conflict_after(ConstraintConflict::DuplicateGrant, duplicate)
        .conflict_after(ConstraintConflict::MissingReference, format!("DELETE FROM asset WHERE asset_id = '{id}'"))
}

pub(super) async fn end_of_asset_grant(fixture: &Fixture) -> Decision {
    let asset = fixture.asset(AssetKind::PolicyBundle).await;
    let change = asset_grant_of(&asset);
    let grant = change.next.clone();
    AssetGrantStore::commit_grant(&*fixture.store, scope(), change, None).await.unwrap();
    let (id, fact) = (grant.grant_id, grant.fact(FactKind::AssetGrantDeleted, &asset, &stamp()));
    let store = store(fixture);
    Decision::new(async move |_| AssetGrantStore::commit_revocation(&*store, scope(), id, fact).await)
        .stale_after(format!("DELETE FROM asset_grant WHERE grant_id = '{id}'"))
}

pub(super) async fn version(fixture: &Fixture) -> Decision {
    let asset = fixture.asset(AssetKind::PolicyBundle).await;
    let label = VersionLabel::parse("spring").unwrap();
    let change = asset.add_version(fresh(), Some(label), content_with_attachments(), &stamp()).unwrap();
    let id = asset.asset_id;
    let duplicate = format!(
        "INSERT INTO asset_version SELECT tenant_id, '{}', '{id}', 'spring', last_ordinal + 1, '{{}}', 'x', 'blake3:{}', now(),
         'user:eve' FROM asset WHERE asset_id = '{id}'",
        Uuid::now_v7(),
        "0".repeat(64)
    );
    let store = store(fixture);
    Decision::new(async move |key| store.commit_version(scope(), change, key.as_ref()).await.map(|_| ()))
        .stale_after(format!("UPDATE asset SET lifecycle_state = 'archived' WHERE asset_id = '{id}'"))
        .conflict_after(ConstraintConflict::DuplicateVersionLabel, duplicate)
}

pub(super) fn flow(fixture: &Fixture) -> Decision {
    let new = new_asset(AssetKind::OrchestrationFlow);
    let change = Asset::create_flow(new, fresh(), None, content_with_attachments(), &stamp());
    let duplicate = other_asset(change.next.0.slug.as_str());
    let store = store(fixture);
    Decision::new(async move |key| store.commit_flow(scope(), change, key.as_ref()).await.map(|_| ()))
        .conflict_after(ConstraintConflict::DuplicateSlug, duplicate)
}
