//! Commits of connections, use cases and access requests.

use super::{Decision, asset::deletable_workspace, store};
use crate::fixture::{Fixture, fresh, scope, slug, stamp};
use fairway_domain::{
    access::OwnerRef,
    access_request::{AccessRequest, AccessRequestStore, GrantedSettings},
    asset::kind::AssetKind,
    connection::{
        Connection, ConnectionPatch, ConnectionStatus, ConnectionStore, ConnectionTaskStore, ConnectorKind,
        HealthState, NewConnection, SecretBindings,
    },
    store::{Change, ConstraintConflict},
    tenant::{DEFAULT_NAMESPACE_ID, DEFAULT_TENANT_ID, DEFAULT_WORKSPACE_ID},
    use_case::{
        Publication, PublicationContext, PublicationIds, UseCase,
        bundle::BundlePlan,
        ports::{RefinementKey, UseCaseStore},
    },
};
use serde_json::json;
use uuid::Uuid;

fn new_connection(name: &str) -> NewConnection {
    NewConnection {
        name: name.to_owned(),
        kind: ConnectorKind::Other,
        endpoint: None,
        secret_bindings: SecretBindings::default(),
        expires_at: None,
        status: ConnectionStatus::Active,
    }
}

fn creation(name: &str) -> Change<Connection> {
    Connection::create(fresh(), DEFAULT_WORKSPACE_ID.into(), new_connection(name), &stamp()).unwrap()
}

async fn committed_connection(fixture: &Fixture, name: &str) -> Connection {
    let change = creation(name);
    let connection = change.next.clone();
    ConnectionStore::commit_new(&*fixture.store, scope(), change, None).await.unwrap();
    connection
}

/// SQL that creates another connection with this name.
fn other_connection(name: &str) -> String {
    format!(
        "INSERT INTO connection VALUES ('{DEFAULT_TENANT_ID}', '{}', '{DEFAULT_WORKSPACE_ID}', '{name}', 'other', NULL, '{{}}',
         NULL, 'active', 'unchecked', NULL, NULL, 1, now(), 'user:eve', now())",
        Uuid::now_v7()
    )
}

fn increment_revision(table: &str, id: Uuid) -> String {
    format!("UPDATE {table} SET revision = revision + 1 WHERE {table}_id = '{id}'")
}

pub(super) fn connection(fixture: &Fixture) -> Decision {
    let name = slug().to_string();
    let change = creation(&name);
    let store = store(fixture);
    Decision::new(async move |key| ConnectionStore::commit_new(&*store, scope(), change, key.as_ref()).await)
        .conflict_after(ConstraintConflict::DuplicateConnection, other_connection(&name))
}

pub(super) async fn connection_change(fixture: &Fixture) -> Decision {
    let connection = committed_connection(fixture, slug().as_str()).await;
    let name = slug().to_string();
    let patch = ConnectionPatch { name: Some(name.clone()), ..ConnectionPatch::default() };
    let change = connection.apply_patch(patch, &stamp()).unwrap().unwrap();
    let store = store(fixture);
    Decision::new(async move |_| ConnectionStore::commit_change(&*store, scope(), change).await)
        .stale_after(increment_revision("connection", connection.connection_id.uuid()))
        .conflict_after(ConstraintConflict::DuplicateConnection, other_connection(&name))
}

pub(super) async fn connection_deletion(fixture: &Fixture) -> Decision {
    let connection = committed_connection(fixture, slug().as_str()).await;
    let change = connection.delete(&stamp());
    let store = store(fixture);
    Decision::new(async move |_| ConnectionStore::commit_deletion(&*store, scope(), change).await)
        .stale_after(increment_revision("connection", connection.connection_id.uuid()))
}

pub(super) async fn connection_check(fixture: &Fixture) -> Decision {
    let connection = committed_connection(fixture, slug().as_str()).await;
    let change = connection.record_check(fresh(), HealthState::NotCheckable, Some("not_checkable"), &stamp());
    let store = store(fixture);
    Decision::new(async move |key| ConnectionStore::commit_check(&*store, scope(), change, key.as_ref()).await)
        .stale_after(increment_revision("connection", connection.connection_id.uuid()))
}

pub(super) async fn expiry_notice(fixture: &Fixture) -> Decision {
    let new = NewConnection { expires_at: Some(stamp().at), ..new_connection(slug().as_str()) };
    let creation = Connection::create(fresh(), DEFAULT_WORKSPACE_ID.into(), new, &stamp()).unwrap();
    let connection = creation.next.clone();
    ConnectionStore::commit_new(&*fixture.store, scope(), creation, None).await.unwrap();
    let change = connection.record_expiry_notice(3, &stamp()).unwrap();
    let id = connection.connection_id.uuid();
    let notice_insert = format!(
        "INSERT INTO connection_expiry_notice
         SELECT tenant_id, connection_id, expires_at, 3, now() FROM connection WHERE connection_id = '{id}'"
    );
    let store = store(fixture);
    Decision::new(async move |_| ConnectionTaskStore::commit_expiry_notice(&*store, scope(), change).await)
        .stale_after(increment_revision("connection", id))
        .stale_after(notice_insert)
}

fn draft(connections: &[&str]) -> Change<UseCase> {
    let plan = json!({
        "name": "Triage", "summary": "",
        "flow": { "entry_step": "done", "steps": [{ "id": "done", "type": "return", "output": "{{trigger.ticket}}" }] },
        "prompt_template": { "template": "Sort $arg:ticket" }, "model_policy_ref": "main-model",
        "connections": connections,
    });
    let plan = BundlePlan::parse(&plan).unwrap();
    UseCase::create(fresh(), DEFAULT_WORKSPACE_ID.into(), "Sort tickets".to_owned(), plan, &stamp())
}

async fn committed_draft(fixture: &Fixture, connections: &[&str]) -> UseCase {
    let change = draft(connections);
    let use_case = change.next.clone();
    UseCaseStore::commit_new(&*fixture.store, scope(), change, None).await.unwrap();
    use_case
}

async fn publication(fixture: &Fixture, use_case: &UseCase) -> Change<Publication> {
    let new = PublicationContext {
        namespace_id: DEFAULT_NAMESPACE_ID.into(),
        owner_ref: OwnerRef::parse("team:support").unwrap(),
        model_policy: fixture.bindable_as(AssetKind::ModelPolicy).await,
        policy_bundle: None,
        connections: Vec::new(),
        may_create_connections: false,
    };
    let ids = PublicationIds {
        flow: (fresh(), fresh()),
        prompt: (fresh(), fresh()),
        policy: (fresh(), fresh()),
        workload: fresh(),
        release: fresh(),
        bindings: std::array::from_fn(|_| fresh()),
        requests: use_case.plan.connections().iter().map(|_| fresh()).collect(),
    };
    use_case.publish(ids, &new, &stamp()).unwrap()
}

/// A stored use case that waits for access to a connection of this name, and its access request.
async fn pending(fixture: &Fixture, name: &str) -> (UseCase, AccessRequest) {
    let draft = committed_draft(fixture, &[name]).await;
    let change = publication(fixture, &draft).await;
    let Publication { use_case, requests, .. } = change.next.clone();
    fixture.store.commit_publication(scope(), change, None).await.unwrap();
    (use_case, requests.into_iter().next().unwrap())
}

pub(super) async fn use_case(fixture: &Fixture) -> Decision {
    let (workspace, _) = deletable_workspace(fixture).await;
    let deletion = format!("DELETE FROM workspace WHERE workspace_id = '{workspace}'");
    let plan = draft(&[]).next.plan.clone();
    let change = UseCase::create(fresh(), workspace, "Sort tickets".to_owned(), plan, &stamp());
    let store = store(fixture);
    Decision::new(async move |key| UseCaseStore::commit_new(&*store, scope(), change, key.as_ref()).await)
        .conflict_after(ConstraintConflict::MissingReference, deletion)
}

pub(super) async fn transition(fixture: &Fixture) -> Decision {
    let (use_case, _) = pending(fixture, slug().as_str()).await;
    let change = use_case.reopen(&stamp()).unwrap();
    let store = store(fixture);
    Decision::new(async move |key| UseCaseStore::commit_transition(&*store, scope(), change, key.as_ref()).await)
        .stale_after(increment_revision("use_case", use_case.use_case_id.uuid()))
}

pub(super) async fn first_publication(fixture: &Fixture) -> Decision {
    let use_case = committed_draft(fixture, &[slug().as_str()]).await;
    let change = publication(fixture, &use_case).await;
    let model = change.next.created.as_ref().unwrap().reused_assets.first().unwrap().uuid();
    let store = store(fixture);
    Decision::new(async move |key| store.commit_publication(scope(), change, key.as_ref()).await)
        .stale_after(increment_revision("use_case", use_case.use_case_id.uuid()))
        .stale_after(format!("UPDATE asset SET lifecycle_state = 'retired' WHERE asset_id = '{model}'"))
}

pub(super) async fn second_publication(fixture: &Fixture) -> Decision {
    let (use_case, _) = pending(fixture, slug().as_str()).await;
    let change = use_case.reopen(&stamp()).unwrap();
    let reopened = change.next.clone();
    UseCaseStore::commit_transition(&*fixture.store, scope(), change, None).await.unwrap();
    let change = publication(fixture, &reopened).await;
    let store = store(fixture);
    Decision::new(async move |key| store.commit_publication(scope(), change, key.as_ref()).await)
        .stale_after(increment_revision("use_case", use_case.use_case_id.uuid()))
}

pub(super) async fn refinement(fixture: &Fixture) -> Decision {
    let use_case = committed_draft(fixture, &[]).await;
    let change = use_case.refine(fresh(), use_case.plan.clone(), &stamp()).unwrap();
    let key = RefinementKey { key: slug().to_string(), body_digest: [7; 32] };
    let duplicate = format!(
        "INSERT INTO use_case_refinement VALUES ('{DEFAULT_TENANT_ID}', '{DEFAULT_WORKSPACE_ID}', '{}', '{}', '{}',
         decode(repeat('07', 32), 'hex'))",
        key.key,
        Uuid::now_v7(),
        Uuid::now_v7()
    );
    let store = store(fixture);
    Decision::new(async move |_| store.commit_refinement(scope(), change, &key).await)
        .stale_after(increment_revision("use_case", use_case.use_case_id.uuid()))
        .conflict_after(ConstraintConflict::RefinementKeyTaken, duplicate)
}

pub(super) async fn grant(fixture: &Fixture) -> Decision {
    let name = slug().to_string();
    let (use_case, request) = pending(fixture, &name).await;
    let change = request.grant(fresh(), GrantedSettings::default(), &[], &use_case, &stamp()).unwrap();
    let store = store(fixture);
    Decision::new(async move |key| store.commit_grant(scope(), change, key.as_ref()).await)
        .stale_after(increment_revision("use_case", use_case.use_case_id.uuid()))
        .stale_after(increment_revision("access_request", request.access_request_id.uuid()))
        .conflict_after(ConstraintConflict::DuplicateConnection, other_connection(&name))
}

pub(super) async fn denial(fixture: &Fixture) -> Decision {
    let (_, request) = pending(fixture, slug().as_str()).await;
    let change = request.deny(None, &stamp()).unwrap();
    let store = store(fixture);
    Decision::new(async move |key| store.commit_denial(scope(), change, key.as_ref()).await)
        .stale_after(increment_revision("access_request", request.access_request_id.uuid()))
}
