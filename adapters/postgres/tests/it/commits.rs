//! Every commit of every port, ready to be sent, with the ways in which it can come too late.

mod knowledge;
pub(crate) mod memory;
mod release;
mod review;
mod settle;
mod share_link;

use crate::stage::{
    Stage, acceptance, actor, claim, ending, fresh, new_asset, new_workload, queued, refused, said, scope, script,
    slug, stamp,
};
use fairway_domain::{
    access::{
        AccessStore, ActorRef, Grant, GrantScope, Place, Rights, Role, RoleBinding,
        principal_binding::{PrincipalBinding, PrincipalBindingStore},
    },
    asset::{
        Asset, Lifecycle, VersionLabel,
        grant::{AssetGrant, AssetGrantStore, Grantee},
        kind::AssetKind,
        ports::AssetStore,
    },
    audit::FactKind,
    environment::{Environment, EnvironmentSettings, EnvironmentStore},
    execution::{
        Acceptance,
        dispatch::{Held, Start, Started},
        ports::{Accepted, AcceptedOn, ExecutionStore},
        progress::Progress,
    },
    id::{NamespaceId, WorkspaceId},
    idempotency::KeyedOutcome,
    release::{lane::Lane, ports::PlacedRelease, review::SelfApproval},
    slug::Slug,
    store::{Change, CommitError, Conflict},
    tenant::{DEFAULT_TENANT, DEFAULT_WORKSPACE, Tenant, TenantSettings, TenantStore, Workspace, WorkspaceStore},
    workload::{Status, Workload, WorkloadPatch, interface::InterfaceConfig, ports::WorkloadStore},
};
use fairway_postgres::Database;
use std::{pin::Pin, sync::Arc};
use uuid::Uuid;

/// One way to commit. The name is the port's and the method's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Commit {
    pub(crate) method: &'static str,
    /// What the commit appends to the log.
    pub(crate) tells: Option<FactKind>,
    pub(crate) takes_key: bool,
}

const fn keyed(method: &'static str, tells: FactKind) -> Commit {
    Commit { method, tells: Some(tells), takes_key: true }
}

const fn keyless(method: &'static str, tells: FactKind) -> Commit {
    Commit { method, tells: Some(tells), takes_key: false }
}

/// All of them. `ReleaseStore::commit_deployment` stands there for each sort of decision that it commits, and
/// `ExecutionStore::accept` stands six times: for runs of guests and others, let in at once or into the line, or refused,
/// and for scripts. One that is let in has its fact when it ends; that a script is let in is a fact besides.
pub(crate) const COMMITS: [Commit; 53] = [
    keyed("TenantStore::commit_new", FactKind::TenantCreated),
    keyless("TenantStore::commit_settings", FactKind::TenantConfigured),
    keyed("WorkspaceStore::commit_new", FactKind::WorkspaceCreated),
    keyed("AccessStore::commit_grant", FactKind::RoleBindingCreated),
    keyless("AccessStore::commit_end", FactKind::RoleBindingDeleted),
    keyed("PrincipalBindingStore::commit_principal (first)", FactKind::PrincipalBindingCreated),
    keyed("PrincipalBindingStore::commit_principal", FactKind::PrincipalBindingChanged),
    keyless("PrincipalBindingStore::commit_end", FactKind::PrincipalBindingDeleted),
    keyless("EnvironmentStore::commit_settings (first)", FactKind::EnvironmentConfigured),
    keyless("EnvironmentStore::commit_settings", FactKind::EnvironmentConfigured),
    keyed("AssetStore::commit_new", FactKind::AssetCreated),
    keyed("AssetStore::commit_move", FactKind::AssetMoved),
    keyed("AssetStore::commit_move (archive)", FactKind::AssetMoved),
    keyed("AssetGrantStore::commit_grant", FactKind::AssetGrantCreated),
    keyless("AssetGrantStore::commit_end", FactKind::AssetGrantDeleted),
    keyed("AssetStore::commit_version", FactKind::AssetVersionCreated),
    keyed("AssetStore::commit_flow", FactKind::FlowCreated),
    keyed("KnowledgeStore::commit_documents", FactKind::DocumentsAdded),
    keyed("KnowledgeStore::commit_reembedding", FactKind::DocumentsReembedded),
    keyed("KnowledgeStore::commit_revocation", FactKind::ContractRevoked),
    keyless("MemoryStore::commit_erasure", FactKind::MemoryErased),
    keyed("ShareLinkStore::commit_new", FactKind::ShareLinkCreated),
    keyless("ShareLinkStore::commit_revocation", FactKind::ShareLinkRevoked),
    keyed("WorkloadStore::commit_new", FactKind::WorkloadCreated),
    keyless("WorkloadStore::commit", FactKind::WorkloadChanged),
    keyed("ReleaseStore::commit_new", FactKind::ReleaseCreated),
    keyed("ReleaseStore::commit_binding", FactKind::ReleaseBindingAdded),
    keyless("ReleaseStore::commit_unbinding", FactKind::ReleaseBindingRemoved),
    keyed("ReleaseStore::commit_review", FactKind::ReleaseReviewed),
    keyed("ReleaseStore::commit_review (live)", FactKind::ReleaseReviewed),
    keyed("ReleaseStore::commit_transition", FactKind::ReleaseTransitioned),
    keyed("ReleaseStore::commit_transition (submitted)", FactKind::ReleaseTransitioned),
    keyed("ReleaseStore::commit_deployment", FactKind::ReleaseTransitioned),
    keyed("ReleaseStore::commit_deployment (rollback)", FactKind::ReleaseRolledBack),
    keyed("ReleaseStore::commit_deployment (rollout)", FactKind::ReleaseTransitioned),
    keyed("ReleaseStore::commit_deployment (advance)", FactKind::RolloutAdvanced),
    keyless("RolloutStore::commit_hold", FactKind::RolloutHeld),
    keyless("ReleaseStore::commit_advice", FactKind::RollbackAdvised),
    keyless("AuditStore::commit_alone", FactKind::SelfApprovalRefused),
    Commit { method: "ExecutionStore::accept", tells: None, takes_key: true },
    Commit { method: "ExecutionStore::accept (queued)", tells: None, takes_key: true },
    keyed("ExecutionStore::accept (refused)", FactKind::ExecutionDenied),
    keyed("ExecutionStore::accept (script)", FactKind::CodeAccepted),
    Commit { method: "ExecutionStore::accept (guest)", tells: None, takes_key: true },
    keyed("ExecutionStore::accept (guest, refused)", FactKind::ExecutionDenied),
    keyless("ExecutionStore::finish", FactKind::ExecutionEnded),
    keyless("ExecutionStore::finish (remembered)", FactKind::ExecutionEnded),
    keyless("ExecutionStore::finish (to be reviewed)", FactKind::ExecutionReviewAsked),
    Commit { method: "ExecutionStore::start", tells: None, takes_key: false },
    Commit { method: "ExecutionStore::advance", tells: None, takes_key: false },
    keyed("ReviewStore::commit_end", FactKind::ExecutionEnded),
    keyed("ReviewStore::commit_end (whenever)", FactKind::ExecutionEnded),
    keyed("SettlementStore::commit_settlement", FactKind::ExecutionEnded),
];

/// Why a commit must not happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lost {
    Stale,
    Conflict(Conflict),
}

/// A statement that, run behind the decision's back, makes it come too late.
pub(crate) struct Spoil {
    pub(crate) sql: String,
    pub(crate) lost: Lost,
}

pub(crate) type Sent = Pin<Box<dyn Future<Output = Result<(), CommitError>> + Send>>;

/// A decision that awaits its commit.
pub(crate) struct Decision {
    pub(crate) send: Box<dyn FnOnce(Option<KeyedOutcome>) -> Sent + Send>,
    pub(crate) spoils: Vec<Spoil>,
}

impl Decision {
    fn new<F>(send: impl FnOnce(Option<KeyedOutcome>) -> F + Send + 'static) -> Self
    where
        F: Future<Output = Result<(), CommitError>> + Send + 'static,
    {
        Self { send: Box::new(|key| Box::pin(send(key))), spoils: Vec::new() }
    }

    fn stale(mut self, sql: String) -> Self {
        self.spoils.push(Spoil { sql, lost: Lost::Stale });
        self
    }

    fn conflict(mut self, conflict: Conflict, sql: String) -> Self {
        self.spoils.push(Spoil { sql, lost: Lost::Conflict(conflict) });
        self
    }
}

impl Commit {
    /// Decides afresh on what is there now.
    pub(crate) async fn decide(self, stage: &Stage) -> Decision {
        match self.method {
            "TenantStore::commit_new" => new_tenant(stage),
            "TenantStore::commit_settings" => settings(stage).await,
            "WorkspaceStore::commit_new" => new_workspace(stage),
            "AccessStore::commit_grant" => grant(stage),
            "AccessStore::commit_end" => end_of_grant(stage).await,
            "PrincipalBindingStore::commit_principal (first)" => first_principal_binding(stage).await,
            "PrincipalBindingStore::commit_principal" => principal_binding(stage).await,
            "PrincipalBindingStore::commit_end" => end_of_principal_binding(stage).await,
            "AssetStore::commit_new" => asset(stage).await,
            "AssetStore::commit_move" => life(stage, Lifecycle::Retired).await,
            "AssetStore::commit_move (archive)" => archive(stage).await,
            "AssetGrantStore::commit_grant" => asset_grant(stage).await,
            "AssetGrantStore::commit_end" => end_of_asset_grant(stage).await,
            "AssetStore::commit_version" => version(stage).await,
            "AssetStore::commit_flow" => flow(stage),
            "KnowledgeStore::commit_documents" => knowledge::addition(stage).await,
            "KnowledgeStore::commit_reembedding" => knowledge::reembedding(stage).await,
            "KnowledgeStore::commit_revocation" => knowledge::revocation(stage).await,
            "ShareLinkStore::commit_new" => share_link::creation(stage).await,
            "ShareLinkStore::commit_revocation" => share_link::revocation(stage).await,
            "WorkloadStore::commit_new" => workload(stage).await,
            "WorkloadStore::commit" => workload_change(stage).await,
            "ReleaseStore::commit_new" => release::release(stage).await,
            "EnvironmentStore::commit_settings (first)" => environment(stage, 0).await,
            "EnvironmentStore::commit_settings" => environment(stage, 1).await,
            "ReleaseStore::commit_binding" => release::binding(stage).await,
            "ReleaseStore::commit_unbinding" => release::unbinding(stage).await,
            "ReleaseStore::commit_review" => release::review(stage).await,
            "ReleaseStore::commit_review (live)" => release::review_of_live(stage).await,
            "ReleaseStore::commit_transition" => release::transition(stage).await,
            "ReleaseStore::commit_transition (submitted)" => release::submission(stage).await,
            "ReleaseStore::commit_deployment" => release::deployment(stage).await,
            "ReleaseStore::commit_deployment (rollback)" => release::rollback(stage).await,
            "ReleaseStore::commit_deployment (rollout)" => release::rollout(stage).await,
            "ReleaseStore::commit_deployment (advance)" => release::advance(stage).await,
            "ReleaseStore::commit_advice" => release::advice(stage).await,
            "AuditStore::commit_alone" => release::refusal(stage).await,
            "RolloutStore::commit_hold" => release::hold(stage).await,
            "ExecutionStore::accept" => accept(stage, acceptance).await,
            "ExecutionStore::accept (queued)" => accept(stage, queued).await,
            "ExecutionStore::start" => start(stage).await,
            "ExecutionStore::advance" => advance(stage).await,
            "ExecutionStore::accept (script)" => accept(stage, script).await,
            "ExecutionStore::accept (refused)" => accept(stage, refused).await,
            "ExecutionStore::accept (guest)" => share_link::use_of_link(stage, acceptance).await,
            "ExecutionStore::accept (guest, refused)" => share_link::use_of_link(stage, refused).await,
            "ExecutionStore::finish" => finish(stage).await,
            "ExecutionStore::finish (remembered)" => memory::end(stage).await,
            "MemoryStore::commit_erasure" => memory::erasure(stage).await,
            "ExecutionStore::finish (to be reviewed)" => review::asked(stage).await,
            "SettlementStore::commit_settlement" => settle::settled(stage).await,
            "ReviewStore::commit_end" => review::judged(stage).await,
            "ReviewStore::commit_end (whenever)" => review::lapsed(stage).await,
            other => panic!("nobody knows how to decide {other}"),
        }
    }
}

fn store(stage: &Stage) -> Arc<Database> {
    Arc::clone(&stage.store)
}

fn new_tenant(stage: &Stage) -> Decision {
    let change = Tenant::create(fresh(), slug().as_str(), "Acme", &stamp()).unwrap();
    let taken = other_tenant(change.next.slug.as_str());
    let store = store(stage);
    Decision::new(async move |key| TenantStore::commit_new(&*store, scope(), change, key.as_ref()).await)
        .conflict(Conflict::DuplicateSlug, taken)
}

fn other_tenant(slug: &str) -> String {
    format!(
        "INSERT INTO tenant SELECT '{}', '{slug}', 'Other', true, false, '{{}}', 1, 1, now(), 'user:eve'",
        Uuid::now_v7()
    )
}

async fn settings(stage: &Stage) -> Decision {
    let tenant = TenantStore::find(&*stage.store, scope()).await.unwrap().unwrap();
    let host = format!("{}.example", slug());
    let settings = TenantSettings { public_hosts: vec![host.clone()], ..tenant.settings.clone() };
    let change = tenant.configure(settings, &[], &stamp()).unwrap();
    let other = slug();
    let taken = format!(
        "{}; INSERT INTO tenant_public_host SELECT '{host}', tenant_id FROM tenant WHERE slug = '{other}'",
        other_tenant(other.as_str())
    );
    let store = store(stage);
    Decision::new(async move |_| TenantStore::commit_settings(&*store, scope(), change).await)
        .stale(format!("UPDATE tenant SET revision = revision + 1 WHERE tenant_id = '{DEFAULT_TENANT}'"))
        .conflict(Conflict::HostTaken, taken)
}

fn new_workspace(stage: &Stage) -> Decision {
    let ids = (fresh(), fresh(), fresh());
    let change = Workspace::create(ids, slug().as_str(), "Support", slug().as_str(), &stamp()).unwrap();
    let taken = format!(
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
    let store = store(stage);
    Decision::new(async move |key| WorkspaceStore::commit_new(&*store, scope(), change, key.as_ref()).await.map(|_| ()))
        .conflict(Conflict::DuplicateSlug, taken)
        .conflict(Conflict::DuplicateSlug, assistant)
}

fn grant_change() -> Change<RoleBinding> {
    let admin = Rights::new(vec![Grant::of(Role::PlatformAdmin, GrantScope::Platform)]);
    let principal = ActorRef::parse(&format!("user:{}", Uuid::now_v7().simple())).unwrap();
    let place = Place::tenant(DEFAULT_TENANT.into());
    let there = (GrantScope::Tenant(DEFAULT_TENANT.into()), &place);
    RoleBinding::grant(fresh(), principal, Role::TenantAdmin, there, &admin, &stamp()).unwrap()
}

fn grant(stage: &Stage) -> Decision {
    let change = grant_change();
    let taken = format!(
        "INSERT INTO role_binding VALUES ('{DEFAULT_TENANT}', '{}', '{}', '{}', 'tenant', '{DEFAULT_TENANT}', now(),
         'user:eve')",
        Uuid::now_v7(),
        change.next.principal,
        change.next.role.as_str()
    );
    let store = store(stage);
    Decision::new(async move |key| AccessStore::commit_grant(&*store, scope(), change, key.as_ref()).await)
        .conflict(Conflict::DuplicateRoleBinding, taken)
}

async fn end_of_grant(stage: &Stage) -> Decision {
    let change = grant_change();
    let held = change.next.clone();
    AccessStore::commit_grant(&*stage.store, scope(), change, None).await.unwrap();
    let (id, fact) = (held.role_binding_id, held.fact(FactKind::RoleBindingDeleted, &stamp()));
    let store = store(stage);
    Decision::new(async move |_| AccessStore::commit_end(&*store, scope(), id, fact).await)
        .stale(format!("DELETE FROM role_binding WHERE role_binding_id = '{id}'"))
}

async fn first_principal_binding(stage: &Stage) -> Decision {
    let workload = stage.workload().await;
    let change = PrincipalBinding::bind(fresh(), &workload, (actor(), Some(Lane::Guided)), &stamp()).unwrap();
    let (id, principal) = (workload.workload_id, &change.next.principal);
    let other = format!(
        "INSERT INTO principal_binding VALUES ('{DEFAULT_TENANT}', '{id}', '{principal}', '{}', NULL, 1, now(),
         'user:eve', now(), 'user:eve')",
        Uuid::now_v7()
    );
    // By its whole key, as above.
    let gone = format!("DELETE FROM workload WHERE tenant_id = '{DEFAULT_TENANT}' AND workload_id = '{id}'");
    let store = store(stage);
    Decision::new(async move |key| store.commit_principal(scope(), change, key.as_ref()).await)
        .stale(other)
        .conflict(Conflict::MissingReference, gone)
}

/// A principal that is bound to a workload of its own, and what makes that another binding.
async fn bound(stage: &Stage) -> (Workload, PrincipalBinding, [String; 3]) {
    let workload = stage.workload().await;
    let change = PrincipalBinding::bind(fresh(), &workload, (actor(), None), &stamp()).unwrap();
    let held = change.next.clone();
    PrincipalBindingStore::commit_principal(&*stage.store, scope(), change, None).await.unwrap();
    let (id, which) = (Uuid::now_v7(), format!("WHERE workload_id = '{}'", workload.workload_id));
    let otherwise = [
        format!("DELETE FROM principal_binding {which}"),
        format!("UPDATE principal_binding SET revision = revision + 1 {which}"),
        format!("UPDATE principal_binding SET principal_binding_id = '{id}' {which}"),
    ];
    (workload, held, otherwise)
}

async fn principal_binding(stage: &Stage) -> Decision {
    let (workload, held, otherwise) = bound(stage).await;
    let change = held.rebind(&workload, Some(Lane::Restricted), &stamp());
    let store = store(stage);
    let decision = Decision::new(async move |key| store.commit_principal(scope(), change, key.as_ref()).await);
    otherwise.into_iter().fold(decision, Decision::stale)
}

async fn end_of_principal_binding(stage: &Stage) -> Decision {
    let (workload, held, otherwise) = bound(stage).await;
    let fact = held.fact(FactKind::PrincipalBindingDeleted, &workload, &stamp());
    let store = store(stage);
    let decision = Decision::new(async move |_| PrincipalBindingStore::commit_end(&*store, scope(), &held, fact).await);
    otherwise.into_iter().fold(decision, Decision::stale)
}

/// A workspace that nothing refers to yet, so that it can go away.
async fn passing_workspace(stage: &Stage) -> (WorkspaceId, NamespaceId) {
    let ids = (fresh(), fresh(), fresh());
    let change = Workspace::create(ids, slug().as_str(), "Passing", "default", &stamp()).unwrap();
    let assistant = change.next.assistant.workload_id;
    let made = WorkspaceStore::commit_new(&*stage.store, scope(), change, None).await.unwrap();
    // By its whole key: somebody counts how tables are read meanwhile.
    let gone = format!("DELETE FROM workload WHERE tenant_id = '{DEFAULT_TENANT}' AND workload_id = '{assistant}'");
    stage.run(&gone).await;
    (made.workspace_id, made.namespace_id)
}

async fn asset(stage: &Stage) -> Decision {
    let mut new = new_asset(AssetKind::PolicyBundle);
    (new.workspace_id, new.namespace_id) = passing_workspace(stage).await;
    let gone = format!("DELETE FROM workspace WHERE workspace_id = '{}'", new.workspace_id);
    let change = Asset::create(new, &stamp());
    let taken = other_asset(change.next.slug.as_str());
    let store = store(stage);
    Decision::new(async move |key| AssetStore::commit_new(&*store, scope(), change, key.as_ref()).await)
        .conflict(Conflict::DuplicateSlug, taken)
        .conflict(Conflict::MissingReference, gone)
}

fn other_asset(slug: &str) -> String {
    format!(
        "INSERT INTO asset SELECT tenant_id, '{}', '{slug}', 'skill', 'team:x', 'active', 'workspace', workspace_id,
         namespace_id, 0, 1, now(), 'user:eve' FROM workspace WHERE slug = 'default'",
        Uuid::now_v7()
    )
}

async fn life(stage: &Stage, to: Lifecycle) -> Decision {
    let asset = stage.asset(AssetKind::PolicyBundle).await;
    let change = asset.move_to(to, &stamp()).unwrap();
    let store = store(stage);
    Decision::new(async move |key| store.commit_move(scope(), change, key.as_ref()).await)
        .stale(format!("UPDATE asset SET revision = revision + 1 WHERE asset_id = '{}'", asset.asset_id))
}

/// Archiving asks for releases in the way besides.
async fn archive(stage: &Stage) -> Decision {
    let version = stage.bindable().await;
    let asset = AssetStore::find(&*stage.store, scope(), version.asset_id).await.unwrap().unwrap();
    let draft = stage.draft(&stage.workload().await).await;
    let bound = format!(
        "INSERT INTO release_binding VALUES ('{DEFAULT_TENANT}', '{}', '{}', 'policy_bundle', '{}', now(), 'user:eve')",
        Uuid::now_v7(),
        draft.release_id,
        version.asset_version_id
    );
    let change = asset.move_to(Lifecycle::Archived, &stamp()).unwrap();
    let id = asset.asset_id;
    let store = store(stage);
    Decision::new(async move |key| store.commit_move(scope(), change, key.as_ref()).await)
        .stale(format!("UPDATE asset SET revision = revision + 1 WHERE asset_id = '{id}'"))
        .stale(format!("UPDATE asset SET lifecycle_state = 'archived' WHERE asset_id = '{id}'"))
        .conflict(Conflict::AssetInUse, bound)
}

fn asset_grant_of(asset: &Asset) -> Change<AssetGrant> {
    let principal = ActorRef::parse("user:guest").unwrap();
    AssetGrant::create(fresh(), asset, Grantee::Principal(principal), &stamp()).unwrap()
}

async fn asset_grant(stage: &Stage) -> Decision {
    let asset = stage.asset(AssetKind::PolicyBundle).await;
    let id = asset.asset_id;
    let change = asset_grant_of(&asset);
    let taken = format!(
        "INSERT INTO asset_grant VALUES ('{DEFAULT_TENANT}', '{}', '{id}', 'user:guest', NULL, now(), 'user:eve')",
        Uuid::now_v7(),
    );
    let store = store(stage);
    Decision::new(async move |key| AssetGrantStore::commit_grant(&*store, scope(), change, key.as_ref()).await)
        .conflict(Conflict::DuplicateGrant, taken)
        .conflict(Conflict::MissingReference, format!("DELETE FROM asset WHERE asset_id = '{id}'"))
}

async fn end_of_asset_grant(stage: &Stage) -> Decision {
    let asset = stage.asset(AssetKind::PolicyBundle).await;
    let change = asset_grant_of(&asset);
    let held = change.next.clone();
    AssetGrantStore::commit_grant(&*stage.store, scope(), change, None).await.unwrap();
    let (id, fact) = (held.grant_id, held.fact(FactKind::AssetGrantDeleted, &asset, &stamp()));
    let store = store(stage);
    Decision::new(async move |_| AssetGrantStore::commit_end(&*store, scope(), id, fact).await)
        .stale(format!("DELETE FROM asset_grant WHERE grant_id = '{id}'"))
}

async fn version(stage: &Stage) -> Decision {
    let asset = stage.asset(AssetKind::PolicyBundle).await;
    let label = VersionLabel::parse("spring").unwrap();
    let change = asset.add_version(fresh(), Some(label), said(), &stamp()).unwrap();
    let id = asset.asset_id;
    let taken = format!(
        "INSERT INTO asset_version SELECT tenant_id, '{}', '{id}', 'spring', '{{}}', 'x', 'blake3:{}', now(),
         'user:eve' FROM asset WHERE asset_id = '{id}'",
        Uuid::now_v7(),
        "0".repeat(64)
    );
    let store = store(stage);
    Decision::new(async move |key| store.commit_version(scope(), change, key.as_ref()).await.map(|_| ()))
        .stale(format!("UPDATE asset SET lifecycle_state = 'archived' WHERE asset_id = '{id}'"))
        .conflict(Conflict::DuplicateVersionLabel, taken)
}

fn flow(stage: &Stage) -> Decision {
    let new = new_asset(AssetKind::OrchestrationFlow);
    let change = Asset::create_flow(new, fresh(), None, said(), &stamp());
    let taken = other_asset(change.next.0.slug.as_str());
    let store = store(stage);
    Decision::new(async move |key| store.commit_flow(scope(), change, key.as_ref()).await.map(|_| ()))
        .conflict(Conflict::DuplicateSlug, taken)
}

async fn workload(stage: &Stage) -> Decision {
    let mut new = new_workload();
    (new.workspace_id, new.namespace_id) = passing_workspace(stage).await;
    let gone = format!("DELETE FROM workspace WHERE workspace_id = '{}'", new.workspace_id);
    let change = Workload::create(new, &stamp()).unwrap();
    let taken = format!(
        "INSERT INTO workload SELECT tenant_id, '{}', '{}', 'x', '', 'team:x', 'registered', 'api', workspace_id, 1,
         now(), 'user:eve', now() FROM workspace WHERE slug = 'default'",
        Uuid::now_v7(),
        change.next.slug
    );
    let store = store(stage);
    Decision::new(async move |key| WorkloadStore::commit_new(&*store, scope(), change, key.as_ref()).await)
        .conflict(Conflict::DuplicateSlug, taken)
        .conflict(Conflict::MissingReference, gone)
}

async fn workload_change(stage: &Stage) -> Decision {
    let workload = stage.workload().await;
    let interface = InterfaceConfig::read(&serde_json::json!({ "presentation_mode": "chat" })).unwrap();
    let patch = WorkloadPatch {
        status: Some(Status::Suspended),
        interface_config: Some(Some(interface)),
        ..WorkloadPatch::default()
    };
    let change = workload.amend(patch, &stamp()).unwrap().unwrap();
    let id = workload.workload_id;
    let store = store(stage);
    Decision::new(async move |_| WorkloadStore::commit(&*store, scope(), change).await)
        .stale(format!("UPDATE workload SET revision = revision + 1 WHERE workload_id = '{id}'"))
}

/// Settles what an environment of its own asks for, after so many who did before.
async fn environment(stage: &Stage, earlier: u16) -> Decision {
    let name = Slug::parse(&format!("e-{}", Uuid::now_v7().simple())).unwrap();
    let place = || (DEFAULT_WORKSPACE.into(), name.clone());
    let asking = |min_approvals| EnvironmentSettings {
        min_approvals,
        ..EnvironmentSettings::unsaid(&slug(), SelfApproval::Refused)
    };
    let mut before = None;
    for number in 0..earlier {
        let change = Environment::configure(place(), before.as_ref(), asking(number + 3), &stamp()).unwrap();
        before = Some(change.next.clone());
        EnvironmentStore::commit_settings(&*stage.store, scope(), change).await.unwrap();
    }
    let change = Environment::configure(place(), before.as_ref(), asking(2), &stamp()).unwrap();
    let other = format!(
        "INSERT INTO environment_settings VALUES ('{DEFAULT_TENANT}', '{}', '{name}', 1, true, false, 1, now(),
         'user:eve') ON CONFLICT (tenant_id, workspace_id, environment)
         DO UPDATE SET revision = environment_settings.revision + 1",
        DEFAULT_WORKSPACE
    );
    let store = store(stage);
    Decision::new(async move |_| EnvironmentStore::commit_settings(&*store, scope(), change).await).stale(other)
}

async fn accept(stage: &Stage, run: fn(&PlacedRelease) -> Acceptance) -> Decision {
    let (workload, placed) = stage.active().await;
    let on = stage.accepted_on(&workload, &placed).await;
    let run = run(&placed);
    let id = workload.workload_id;
    let store = store(stage);
    Decision::new(async move |key| accepted(&store, &run, on, key).await)
        .stale(format!("UPDATE deployment SET revision = revision + 1 WHERE workload_id = '{id}'"))
        .stale(format!("UPDATE workload SET revision = revision + 1 WHERE workload_id = '{id}'"))
        .stale(format!("UPDATE workload SET status = 'suspended' WHERE workload_id = '{id}'"))
        .stale(format!("UPDATE tenant SET access_revision = access_revision + 1 WHERE tenant_id = '{DEFAULT_TENANT}'"))
}

/// An accept says by its value what other commits say by an error.
async fn accepted(
    store: &Database,
    run: &Acceptance,
    on: AcceptedOn,
    key: Option<KeyedOutcome>,
) -> Result<(), CommitError> {
    match store.accept(scope(), run, on, key.as_ref().map(|keyed| &keyed.key)).await? {
        Accepted::Yes => Ok(()),
        Accepted::KeyTaken => Err(CommitError::KeyTaken),
        Accepted::Moved => Err(CommitError::Stale),
        Accepted::LineFull => panic!("the line has room"),
        Accepted::LinkClosed => Err(CommitError::Conflict(Conflict::ShareLinkClosed)),
    }
}

/// A run that a worker took out of the line.
async fn claimed(stage: &Stage) -> (Workload, PlacedRelease, Acceptance, Held) {
    let (workload, placed) = stage.active().await;
    let on = stage.accepted_on(&workload, &placed).await;
    let run = queued(&placed);
    accepted(&stage.store, &run, on, None).await.unwrap();
    let taken = stage.store.claim(&claim()).await.unwrap();
    let lease = taken.iter().find(|taken| taken.execution.execution_id == run.execution_id).unwrap().lease;
    let held = Held { execution_id: run.execution_id, lease };
    (workload, placed, run, held)
}

async fn start(stage: &Stage) -> Decision {
    let (workload, placed, run, held) = claimed(stage).await;
    let on = stage.accepted_on(&workload, &placed).await;
    let mut acceptance = run;
    acceptance.decision.decision_id = fresh();
    let progress = Progress { position: 1, ..Progress::default() };
    let (link, revoke) = share_link::kept(stage, &workload).await;
    let start = Start { acceptance, on, lease: held.lease, progress, share_link: Some(link) };
    let (store, id, run) = (store(stage), workload.workload_id, held.execution_id);
    Decision::new(async move |_| match store.start(scope(), &start).await? {
        Started::Yes => Ok(()),
        Started::Moved => Err(CommitError::Stale),
    })
    .stale(format!("UPDATE deployment SET revision = revision + 1 WHERE workload_id = '{id}'"))
    .stale(format!("UPDATE workload SET revision = revision + 1 WHERE workload_id = '{id}'"))
    .stale(format!("UPDATE workload SET status = 'suspended' WHERE workload_id = '{id}'"))
    .stale(format!("UPDATE tenant SET access_revision = access_revision + 1 WHERE tenant_id = '{DEFAULT_TENANT}'"))
    .stale(revoke)
    .stale(format!("UPDATE execution_lease SET token = gen_random_uuid() WHERE execution_id = '{run}'"))
    .stale(format!("DELETE FROM execution_lease WHERE execution_id = '{run}'"))
}

async fn advance(stage: &Stage) -> Decision {
    let (_, _, _, held) = claimed(stage).await;
    let progress = Progress { position: 1, ..Progress::default() };
    let (store, run) = (store(stage), held.execution_id);
    Decision::new(async move |_| store.advance(scope(), held, &progress).await)
        .stale(format!("UPDATE execution_lease SET token = gen_random_uuid() WHERE execution_id = '{run}'"))
        .stale(format!("DELETE FROM execution_lease WHERE execution_id = '{run}'"))
}

async fn finish(stage: &Stage) -> Decision {
    let (workload, placed) = stage.active().await;
    let on = stage.accepted_on(&workload, &placed).await;
    let run = acceptance(&placed);
    accepted(&stage.store, &run, on, None).await.unwrap();
    let ending = ending(&run);
    let id = run.execution_id;
    let store = store(stage);
    Decision::new(async move |_| store.finish(scope(), &ending).await)
        .stale(format!("UPDATE execution_lease SET token = gen_random_uuid() WHERE execution_id = '{id}'"))
        .stale(format!("DELETE FROM execution_lease WHERE execution_id = '{id}'"))
}
