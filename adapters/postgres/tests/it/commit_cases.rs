//! A case for every commit method of the ports: a decision that is ready to commit, and statements that invalidate its guard.

mod asset;
mod erasure;
mod execution;
mod knowledge;
pub(crate) mod memory;
pub(crate) mod notification;
mod release;
mod resolve_unknown;
mod review;
mod share_link;
pub(crate) mod sign_in;
mod tenant_and_access;
mod use_case;

use crate::fixture::{Fixture, acceptance, denied, new_workload, queued, scope, script, slug, stamp};
use asset::{archive, asset, asset_grant, deletable_workspace, end_of_asset_grant, flow, lifecycle_move, version};
use execution::{accept, advance, finish, start};
use fairway_domain::{
    asset::Lifecycle,
    audit::FactKind,
    environment::{Environment, EnvironmentSettings, EnvironmentStore},
    idempotency::KeyedOutcome,
    release::review::SelfApproval,
    slug::Slug,
    store::{CommitError, Conflict},
    tenant::{DEFAULT_TENANT, DEFAULT_WORKSPACE},
    workload::{Status, Workload, WorkloadPatch, interface::InterfaceConfig, ports::WorkloadStore},
};
use fairway_postgres::Database;
use std::{pin::Pin, sync::Arc};
use tenant_and_access::{
    end_of_grant, end_of_principal_binding, first_principal_binding, grant, new_tenant, new_workspace,
    principal_binding, settings,
};
use uuid::Uuid;

/// A commit method. `method` names the port and its method.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CommitMethod {
    pub(crate) method: &'static str,
    /// The kind of the fact that the commit writes; `None` if it writes none.
    pub(crate) fact_kind: Option<FactKind>,
    pub(crate) takes_key: bool,
}

const fn keyed(method: &'static str, tells: FactKind) -> CommitMethod {
    CommitMethod { method, fact_kind: Some(tells), takes_key: true }
}

const fn keyless(method: &'static str, tells: FactKind) -> CommitMethod {
    CommitMethod { method, fact_kind: Some(tells), takes_key: false }
}

/// All commits. `DeploymentStore::commit_lane_change` appears once for each kind of decision. `RunStore::accept`
/// appears six times: for delegated and other runs; for running, queued and denied runs; and for scripts. An
/// admitted run writes its fact when it ends. An admitted script additionally writes a fact at once.
pub(crate) const COMMITS: [CommitMethod; 86] = [
    keyed("TenantStore::commit_new", FactKind::TenantCreated),
    keyless("TenantStore::commit_settings", FactKind::TenantConfigured),
    keyed("WorkspaceStore::commit_new", FactKind::WorkspaceCreated),
    keyed("AccessStore::commit_grant", FactKind::RoleBindingCreated),
    keyless("AccessStore::commit_revocation", FactKind::RoleBindingDeleted),
    keyed("PrincipalBindingStore::commit_binding (first)", FactKind::PrincipalBindingCreated),
    keyed("PrincipalBindingStore::commit_binding", FactKind::PrincipalBindingChanged),
    keyless("PrincipalBindingStore::commit_removal", FactKind::PrincipalBindingDeleted),
    keyless("EnvironmentStore::commit_settings (first)", FactKind::EnvironmentConfigured),
    keyless("EnvironmentStore::commit_settings", FactKind::EnvironmentConfigured),
    keyed("AssetStore::commit_new", FactKind::AssetCreated),
    keyed("AssetStore::commit_lifecycle", FactKind::AssetLifecycleChanged),
    keyed("AssetStore::commit_lifecycle (archive)", FactKind::AssetLifecycleChanged),
    keyed("AssetGrantStore::commit_grant", FactKind::AssetGrantCreated),
    keyless("AssetGrantStore::commit_revocation", FactKind::AssetGrantDeleted),
    keyed("VersionStore::commit_version", FactKind::AssetVersionCreated),
    keyed("VersionStore::commit_flow", FactKind::FlowCreated),
    keyed("DocumentStore::commit_documents", FactKind::DocumentsAdded),
    keyed("DocumentStore::commit_reembedding", FactKind::DocumentsReembedded),
    keyed("ContractRevocationStore::commit_contract_revocation", FactKind::ContractRevoked),
    keyless("MemoryStore::commit_erasure", FactKind::MemoryErased),
    keyed("ErasureStore::commit_request", FactKind::ErasureRequested),
    keyed("ErasureStore::commit_decision", FactKind::ErasureApproved),
    keyless("ErasureStore::commit_completion", FactKind::ErasureCompleted),
    keyless("IdentityStore::commit_pin", FactKind::IdentityPinned),
    keyless("SessionStore::commit_new", FactKind::SessionStarted),
    keyless("SessionStore::commit_end", FactKind::SessionEnded),
    keyed("ShareLinkStore::commit_new", FactKind::ShareLinkCreated),
    keyless("ShareLinkStore::commit_revocation", FactKind::ShareLinkRevoked),
    keyed("WorkloadStore::commit_new", FactKind::WorkloadCreated),
    keyless("WorkloadStore::commit_change", FactKind::WorkloadChanged),
    keyed("ReleaseStore::commit_draft", FactKind::ReleaseCreated),
    keyed("ReleaseStore::commit_binding", FactKind::ReleaseBindingAdded),
    keyless("ReleaseStore::commit_binding_removal", FactKind::ReleaseBindingRemoved),
    keyed("ReleaseStore::commit_review", FactKind::ReleaseReviewed),
    keyed("ReleaseStore::commit_review (live)", FactKind::ReleaseReviewed),
    keyed("ReleaseStore::commit_transition", FactKind::ReleaseTransitioned),
    keyed("ReleaseStore::commit_transition (submitted)", FactKind::ReleaseTransitioned),
    keyed("DeploymentStore::commit_lane_change", FactKind::ReleaseTransitioned),
    keyed("DeploymentStore::commit_lane_change (rollback)", FactKind::ReleaseRolledBack),
    keyed("DeploymentStore::commit_lane_change (rollout)", FactKind::ReleaseTransitioned),
    keyed("DeploymentStore::commit_lane_change (advance)", FactKind::RolloutAdvanced),
    keyless("RolloutStore::commit_hold", FactKind::RolloutHeld),
    keyless("RecommendationStore::commit_recommendation", FactKind::RollbackRecommendationChanged),
    keyless("AuditStore::commit_fact", FactKind::SelfApprovalRefused),
    CommitMethod { method: "RunStore::accept", fact_kind: None, takes_key: true },
    CommitMethod { method: "RunStore::accept (queued)", fact_kind: None, takes_key: true },
    keyed("RunStore::accept (refused)", FactKind::ExecutionDenied),
    keyed("RunStore::accept (script)", FactKind::CodeAccepted),
    CommitMethod { method: "RunStore::accept (guest)", fact_kind: None, takes_key: true },
    keyed("RunStore::accept (guest, refused)", FactKind::ExecutionDenied),
    keyless("RunStore::finish", FactKind::ExecutionEnded),
    keyless("RunStore::finish (remembered)", FactKind::ExecutionEnded),
    keyless("RunStore::finish (to be reviewed)", FactKind::ExecutionReviewRequested),
    CommitMethod { method: "RunStore::start", fact_kind: None, takes_key: false },
    CommitMethod { method: "RunStore::record_progress", fact_kind: None, takes_key: false },
    keyed("ReviewStore::commit_end", FactKind::ExecutionEnded),
    keyed("ReviewStore::commit_end (whenever)", FactKind::ExecutionEnded),
    keyed("ResolutionStore::commit_resolution", FactKind::ExecutionEnded),
    keyless("ProjectionStore::commit_batch", FactKind::NotificationSuppressed),
    keyless("InboxStore::commit_status", FactKind::NotificationMarked),
    keyed("InboxStore::commit_all_read", FactKind::InboxRead),
    keyless("PreferenceStore::commit_set (first)", FactKind::PreferencesChanged),
    keyless("PreferenceStore::commit_set", FactKind::PreferencesChanged),
    keyless("PreferenceStore::commit_profiles (first)", FactKind::DefaultProfilesChanged),
    keyless("PreferenceStore::commit_profiles", FactKind::DefaultProfilesChanged),
    keyed("ConnectionStore::commit_new", FactKind::ConnectionCreated),
    keyless("ConnectionStore::commit_change", FactKind::ConnectionChanged),
    keyless("ConnectionStore::commit_deletion", FactKind::ConnectionDeleted),
    keyed("ConnectionStore::commit_check", FactKind::ConnectionChecked),
    keyless("ConnectionStore::commit_expiry_notice", FactKind::ConnectionExpiring),
    keyed("UseCaseStore::commit_new", FactKind::UseCaseCreated),
    keyed("UseCaseStore::commit_transition", FactKind::UseCaseReopened),
    keyed("UseCaseStore::commit_publication", FactKind::UseCasePublished),
    keyed("UseCaseStore::commit_publication (again)", FactKind::UseCasePublished),
    keyless("UseCaseStore::commit_refinement", FactKind::UseCaseRefined),
    keyed("AccessRequestStore::commit_grant", FactKind::AccessRequestGranted),
    keyed("AccessRequestStore::commit_denial", FactKind::AccessRequestDenied),
    keyed("DestinationStore::commit_new", FactKind::DestinationCreated),
    keyless("DestinationStore::commit_change", FactKind::DestinationChanged),
    keyless("DestinationStore::commit_deletion", FactKind::DestinationDeleted),
    keyless("DestinationStore::commit_test", FactKind::DestinationTested),
    keyed("DeliveryStore::commit_retry", FactKind::DeliveryRetried),
    keyless("ProfileStore::commit (first)", FactKind::NotificationProfileChanged),
    keyless("ProfileStore::commit", FactKind::NotificationProfileChanged),
    keyed("AnnouncementStore::commit", FactKind::AnnouncementMade),
];

/// The reason why a commit must fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rejection {
    Stale,
    Conflict(Conflict),
}

/// A statement that is executed between a decision and its commit, and invalidates the decision.
pub(crate) struct Invalidation {
    pub(crate) sql: String,
    pub(crate) rejection: Rejection,
}

pub(crate) type Sent = Pin<Box<dyn Future<Output = Result<(), CommitError>> + Send>>;

/// A decision that is ready to commit, with the statements that invalidate it.
pub(crate) struct Decision {
    pub(crate) send: Box<dyn FnOnce(Option<KeyedOutcome>) -> Sent + Send>,
    pub(crate) invalidations: Vec<Invalidation>,
}

impl Decision {
    fn new<F>(send: impl FnOnce(Option<KeyedOutcome>) -> F + Send + 'static) -> Self
    where
        F: Future<Output = Result<(), CommitError>> + Send + 'static,
    {
        Self { send: Box::new(|key| Box::pin(send(key))), invalidations: Vec::new() }
    }

    fn stale_after(mut self, sql: String) -> Self {
        self.invalidations.push(Invalidation { sql, rejection: Rejection::Stale });
        self
    }

    fn conflict_after(mut self, conflict: Conflict, sql: String) -> Self {
        self.invalidations.push(Invalidation { sql, rejection: Rejection::Conflict(conflict) });
        self
    }
}

impl CommitMethod {
    /// Makes a new decision on the current stored state.
    #[expect(clippy::too_many_lines, reason = "a table of commits")]
    pub(crate) async fn decide(self, stage: &Fixture) -> Decision {
        match self.method {
            "TenantStore::commit_new" => new_tenant(stage),
            "TenantStore::commit_settings" => settings(stage).await,
            "WorkspaceStore::commit_new" => new_workspace(stage),
            "AccessStore::commit_grant" => grant(stage),
            "AccessStore::commit_revocation" => end_of_grant(stage).await,
            "PrincipalBindingStore::commit_binding (first)" => first_principal_binding(stage).await,
            "PrincipalBindingStore::commit_binding" => principal_binding(stage).await,
            "PrincipalBindingStore::commit_removal" => end_of_principal_binding(stage).await,
            "AssetStore::commit_new" => asset(stage).await,
            "AssetStore::commit_lifecycle" => lifecycle_move(stage, Lifecycle::Retired).await,
            "AssetStore::commit_lifecycle (archive)" => archive(stage).await,
            "AssetGrantStore::commit_grant" => asset_grant(stage).await,
            "AssetGrantStore::commit_revocation" => end_of_asset_grant(stage).await,
            "VersionStore::commit_version" => version(stage).await,
            "VersionStore::commit_flow" => flow(stage),
            "DocumentStore::commit_documents" => knowledge::addition(stage).await,
            "DocumentStore::commit_reembedding" => knowledge::reembedding(stage).await,
            "ContractRevocationStore::commit_contract_revocation" => knowledge::revocation(stage).await,
            "IdentityStore::commit_pin" => sign_in::pin(stage),
            "SessionStore::commit_new" => sign_in::session(stage).await,
            "SessionStore::commit_end" => sign_in::end_of_session(stage).await,
            "ShareLinkStore::commit_new" => share_link::creation(stage).await,
            "ShareLinkStore::commit_revocation" => share_link::revocation(stage).await,
            "WorkloadStore::commit_new" => workload(stage).await,
            "WorkloadStore::commit_change" => workload_change(stage).await,
            "ReleaseStore::commit_draft" => release::release(stage).await,
            "EnvironmentStore::commit_settings (first)" => environment(stage, 0).await,
            "EnvironmentStore::commit_settings" => environment(stage, 1).await,
            "ReleaseStore::commit_binding" => release::binding(stage).await,
            "ReleaseStore::commit_binding_removal" => release::unbinding(stage).await,
            "ReleaseStore::commit_review" => release::review(stage).await,
            "ReleaseStore::commit_review (live)" => release::review_of_live(stage).await,
            "ReleaseStore::commit_transition" => release::transition(stage).await,
            "ReleaseStore::commit_transition (submitted)" => release::submission(stage).await,
            "DeploymentStore::commit_lane_change" => release::deployment(stage).await,
            "DeploymentStore::commit_lane_change (rollback)" => release::rollback(stage).await,
            "DeploymentStore::commit_lane_change (rollout)" => release::rollout(stage).await,
            "DeploymentStore::commit_lane_change (advance)" => release::advance(stage).await,
            "RecommendationStore::commit_recommendation" => release::advice(stage).await,
            "AuditStore::commit_fact" => release::refusal(stage).await,
            "RolloutStore::commit_hold" => release::hold(stage).await,
            "RunStore::accept" => accept(stage, acceptance).await,
            "RunStore::accept (queued)" => accept(stage, queued).await,
            "RunStore::start" => start(stage).await,
            "RunStore::record_progress" => advance(stage).await,
            "RunStore::accept (script)" => accept(stage, script).await,
            "RunStore::accept (refused)" => accept(stage, denied).await,
            "RunStore::accept (guest)" => share_link::use_of_link(stage, acceptance).await,
            "RunStore::accept (guest, refused)" => share_link::use_of_link(stage, denied).await,
            "RunStore::finish" => finish(stage).await,
            "RunStore::finish (remembered)" => memory::end(stage).await,
            "MemoryStore::commit_erasure" => memory::erasure(stage).await,
            "RunStore::finish (to be reviewed)" => review::review_request(stage).await,
            "ResolutionStore::commit_resolution" => resolve_unknown::resolution(stage).await,
            "ProjectionStore::commit_batch" => notification::batch(stage).await,
            "InboxStore::commit_status" => notification::status(stage).await,
            "InboxStore::commit_all_read" => notification::all_read(stage).await,
            "PreferenceStore::commit_set (first)" => notification::preferences(stage, 0).await,
            "PreferenceStore::commit_set" => notification::preferences(stage, 1).await,
            "PreferenceStore::commit_profiles (first)" => notification::profiles(stage, 0).await,
            "PreferenceStore::commit_profiles" => notification::profiles(stage, 1).await,
            "ConnectionStore::commit_new" => use_case::connection(stage),
            "ConnectionStore::commit_change" => use_case::connection_change(stage).await,
            "ConnectionStore::commit_deletion" => use_case::connection_deletion(stage).await,
            "ConnectionStore::commit_check" => use_case::connection_check(stage).await,
            "ConnectionStore::commit_expiry_notice" => use_case::expiry_notice(stage).await,
            "UseCaseStore::commit_new" => use_case::use_case(stage).await,
            "UseCaseStore::commit_transition" => use_case::transition(stage).await,
            "UseCaseStore::commit_publication" => use_case::first_publication(stage).await,
            "UseCaseStore::commit_publication (again)" => use_case::second_publication(stage).await,
            "UseCaseStore::commit_refinement" => use_case::refinement(stage).await,
            "AccessRequestStore::commit_grant" => use_case::grant(stage).await,
            "AccessRequestStore::commit_denial" => use_case::denial(stage).await,
            "DestinationStore::commit_new" => notification::destination(stage).await,
            "DestinationStore::commit_change" => notification::changed_destination(stage).await,
            "DestinationStore::commit_deletion" => notification::deleted_destination(stage).await,
            "DestinationStore::commit_test" => notification::test(stage).await,
            "DeliveryStore::commit_retry" => notification::retry(stage).await,
            "ProfileStore::commit (first)" => notification::profile(stage, 0).await,
            "ProfileStore::commit" => notification::profile(stage, 1).await,
            "ErasureStore::commit_request" => erasure::request(stage),
            "ErasureStore::commit_decision" => erasure::decision(stage).await,
            "ErasureStore::commit_completion" => erasure::completion(stage).await,
            "AnnouncementStore::commit" => notification::announcement(stage).await,
            "ReviewStore::commit_end" => review::rejected_review(stage).await,
            "ReviewStore::commit_end (whenever)" => review::expired_review(stage).await,
            other => panic!("no decision is defined for {other}"),
        }
    }
}

fn store(stage: &Fixture) -> Arc<Database> {
    Arc::clone(&stage.store)
}

async fn workload(stage: &Fixture) -> Decision {
    let mut new = new_workload();
    (new.workspace_id, new.namespace_id) = deletable_workspace(stage).await;
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
        .conflict_after(Conflict::DuplicateSlug, taken)
        .conflict_after(Conflict::MissingReference, gone)
}

async fn workload_change(stage: &Fixture) -> Decision {
    let workload = stage.workload().await;
    let interface = InterfaceConfig::parse(&serde_json::json!({ "presentation_mode": "chat" })).unwrap();
    let patch = WorkloadPatch {
        status: Some(Status::Suspended),
        interface_config: Some(Some(interface)),
        ..WorkloadPatch::default()
    };
    let change = workload.amend(patch, &stamp()).unwrap().unwrap();
    let id = workload.workload_id;
    let store = store(stage);
    Decision::new(async move |_| WorkloadStore::commit_change(&*store, scope(), change).await)
        .stale_after(format!("UPDATE workload SET revision = revision + 1 WHERE workload_id = '{id}'"))
}

/// Configures a new environment. `earlier` is the number of preceding changes of this environment.
async fn environment(stage: &Fixture, earlier: u16) -> Decision {
    let name = Slug::parse(&format!("e-{}", Uuid::now_v7().simple())).unwrap();
    let requiring = |min_approvals| EnvironmentSettings {
        min_approvals,
        ..EnvironmentSettings::defaults_for(&slug(), SelfApproval::Refused)
    };
    let mut before = None;
    for number in 0..earlier {
        let change = Environment::configure(
            DEFAULT_WORKSPACE.into(),
            name.clone(),
            before.as_ref(),
            requiring(number + 3),
            &stamp(),
        )
        .unwrap();
        before = Some(change.next.clone());
        EnvironmentStore::commit_settings(&*stage.store, scope(), change).await.unwrap();
    }
    let change =
        Environment::configure(DEFAULT_WORKSPACE.into(), name.clone(), before.as_ref(), requiring(2), &stamp())
            .unwrap();
    let other = format!(
        "INSERT INTO environment_settings VALUES ('{DEFAULT_TENANT}', '{}', '{name}', 1, true, false, 1, now(),
         'user:eve') ON CONFLICT (tenant_id, workspace_id, environment)
         DO UPDATE SET revision = environment_settings.revision + 1",
        DEFAULT_WORKSPACE
    );
    let store = store(stage);
    Decision::new(async move |_| EnvironmentStore::commit_settings(&*store, scope(), change).await).stale_after(other)
}
