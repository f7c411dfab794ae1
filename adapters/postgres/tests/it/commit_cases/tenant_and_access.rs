//! Commits of tenants, workspaces and access rights.

use super::{Decision, store};
use crate::fixture::{Fixture, actor, fresh, scope, slug, stamp};
use fairway_domain::{
    access::{
        AccessStore, ActorRef, Grant, GrantScope, ResourcePosition, Rights, Role, RoleBinding,
        principal_binding::{PrincipalBinding, PrincipalBindingStore},
    },
    audit::FactKind,
    release::lane::Lane,
    store::{Change, ConstraintConflict},
    tenant::{
        DEFAULT_TENANT_ID, Tenant, TenantScope, TenantSettings, TenantStore, Workspace, WorkspaceIds, WorkspaceStore,
    },
    workload::Workload,
};
use uuid::Uuid;

pub(super) fn new_tenant(fixture: &Fixture) -> Decision {
    let change = Tenant::create(fresh(), slug().as_str(), "Acme", &stamp()).unwrap();
    let duplicate = other_tenant(change.next.slug.as_str());
    let (store, new_scope) = (store(fixture), TenantScope::for_background_task(change.next.tenant_id));
    Decision::new(async move |key| TenantStore::commit_new(&*store, scope(), new_scope, change, key.as_ref()).await)
        .conflict_after(ConstraintConflict::DuplicateSlug, duplicate)
}

fn other_tenant(slug: &str) -> String {
    format!(
        "INSERT INTO tenant SELECT '{}', '{slug}', 'Other', true, false, '{{}}', 1, 1, now(), 'user:eve'",
        Uuid::now_v7()
    )
}

pub(super) async fn settings(fixture: &Fixture) -> Decision {
    let tenant = TenantStore::find(&*fixture.store, scope()).await.unwrap().unwrap();
    let host = format!("{}.example", slug());
    let settings = TenantSettings { public_hosts: vec![host.clone()], ..tenant.settings.clone() };
    let change = tenant.configure(settings, &[], &stamp()).unwrap();
    let other_slug = slug();
    let host_insert = format!(
        "{}; INSERT INTO tenant_public_host SELECT '{host}', tenant_id FROM tenant WHERE slug = '{other_slug}'",
        other_tenant(other_slug.as_str())
    );
    let store = store(fixture);
    Decision::new(async move |_| TenantStore::commit_settings(&*store, scope(), change).await)
        .stale_after(format!("UPDATE tenant SET revision = revision + 1 WHERE tenant_id = '{DEFAULT_TENANT_ID}'"))
        .conflict_after(ConstraintConflict::HostTaken, host_insert)
}

pub(super) fn new_workspace(fixture: &Fixture) -> Decision {
    let ids = WorkspaceIds { workspace_id: fresh(), namespace_id: fresh(), assistant_id: fresh() };
    let change = Workspace::create(ids, slug().as_str(), "Support", slug().as_str(), &stamp()).unwrap();
    let duplicate = format!(
        "INSERT INTO workspace SELECT tenant_id, '{}', namespace_id, '{}', 'Other', now(), 'user:eve' FROM namespace
         WHERE slug = 'default'",
        Uuid::now_v7(),
        change.next.workspace.slug
    );
    let assistant = format!(
        "INSERT INTO workload SELECT tenant_id, '{}', '{}', 'x', '', 'team:x', 'registered', 'api', workspace_id, 1,
         now(), 'user:eve', now() FROM workspace WHERE slug = 'default'",
        Uuid::now_v7(),
        change.next.assistant.slug
    );
    let store = store(fixture);
    Decision::new(async move |key| WorkspaceStore::commit_new(&*store, scope(), change, key.as_ref()).await.map(|_| ()))
        .conflict_after(ConstraintConflict::DuplicateSlug, duplicate)
        .conflict_after(ConstraintConflict::DuplicateSlug, assistant)
}

fn grant_change() -> Change<RoleBinding> {
    let admin = Rights::new(vec![Grant::of_role(Role::PlatformAdmin, GrantScope::Platform)]);
    let principal = ActorRef::parse(&format!("user:{}", Uuid::now_v7().simple())).unwrap();
    let position = ResourcePosition::tenant(DEFAULT_TENANT_ID.into());
    RoleBinding::grant(
        fresh(),
        principal,
        Role::TenantAdmin,
        GrantScope::Tenant(DEFAULT_TENANT_ID.into()),
        &position,
        &admin,
        &stamp(),
    )
    .unwrap()
}

pub(super) fn grant(fixture: &Fixture) -> Decision {
    let change = grant_change();
    let duplicate = format!(
        "INSERT INTO role_binding VALUES ('{DEFAULT_TENANT_ID}', '{}', '{}', '{}', 'tenant', '{DEFAULT_TENANT_ID}', now(),
         'user:eve')",
        Uuid::now_v7(),
        change.next.principal,
        change.next.role.as_str()
    );
    let store = store(fixture);
    Decision::new(async move |key| AccessStore::commit_grant(&*store, scope(), change, key.as_ref()).await)
        .conflict_after(ConstraintConflict::DuplicateRoleBinding, duplicate)
}

pub(super) async fn end_of_grant(fixture: &Fixture) -> Decision {
    let change = grant_change();
    let binding = change.next.clone();
    AccessStore::commit_grant(&*fixture.store, scope(), change, None).await.unwrap();
    let (id, fact) = (binding.role_binding_id, binding.fact(FactKind::RoleBindingDeleted, &stamp()));
    let store = store(fixture);
    Decision::new(async move |_| AccessStore::commit_revocation(&*store, scope(), id, fact).await)
        .stale_after(format!("DELETE FROM role_binding WHERE role_binding_id = '{id}'"))
}

pub(super) async fn first_principal_binding(fixture: &Fixture) -> Decision {
    let workload = fixture.workload().await;
    let change = PrincipalBinding::bind(fresh(), &workload, actor(), Some(Lane::Guided), &stamp()).unwrap();
    let (id, principal) = (workload.workload_id, &change.next.principal);
    let concurrent_binding = format!(
        "INSERT INTO principal_binding VALUES ('{DEFAULT_TENANT_ID}', '{id}', '{principal}', '{}', NULL, 1, now(),
         'user:eve', now(), 'user:eve')",
        Uuid::now_v7()
    );
    // The statement uses the full key, because a test asserts that no table is scanned.
    let deletion = format!("DELETE FROM workload WHERE tenant_id = '{DEFAULT_TENANT_ID}' AND workload_id = '{id}'");
    let store = store(fixture);
    Decision::new(async move |key| store.commit_binding(scope(), change, key.as_ref()).await)
        .stale_after(concurrent_binding)
        .conflict_after(ConstraintConflict::MissingReference, deletion)
}

/// A stored principal binding of a new workload, and SQL statements that change the binding.
pub(super) async fn committed_binding(fixture: &Fixture) -> (Workload, PrincipalBinding, [String; 3]) {
    let workload = fixture.workload().await;
    let change = PrincipalBinding::bind(fresh(), &workload, actor(), None, &stamp()).unwrap();
    let binding = change.next.clone();
    PrincipalBindingStore::commit_binding(&*fixture.store, scope(), change, None).await.unwrap();
    let (id, condition) = (Uuid::now_v7(), format!("WHERE workload_id = '{}'", workload.workload_id));
    let changes = [
        format!("DELETE FROM principal_binding {condition}"),
        format!("UPDATE principal_binding SET revision = revision + 1 {condition}"),
        format!("UPDATE principal_binding SET principal_binding_id = '{id}' {condition}"),
    ];
    (workload, binding, changes)
}

pub(super) async fn principal_binding(fixture: &Fixture) -> Decision {
    let (workload, binding, changes) = committed_binding(fixture).await;
    let change = binding.change_lane(&workload, Some(Lane::Restricted), &stamp());
    let store = store(fixture);
    let decision = Decision::new(async move |key| store.commit_binding(scope(), change, key.as_ref()).await);
    changes.into_iter().fold(decision, Decision::stale_after)
}

pub(super) async fn end_of_principal_binding(fixture: &Fixture) -> Decision {
    let (workload, binding, changes) = committed_binding(fixture).await;
    let fact = binding.fact(FactKind::PrincipalBindingDeleted, &workload, &stamp());
    let store = store(fixture);
    let decision =
        Decision::new(async move |_| PrincipalBindingStore::commit_removal(&*store, scope(), &binding, fact).await);
    changes.into_iter().fold(decision, Decision::stale_after)
}
