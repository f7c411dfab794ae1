//! A case for every commit method of the ports: a decision that is ready to commit, and statements that invalidate its
//! guard.

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
use asset::{
    archive, asset, asset_grant, deletable_workspace, end_of_asset_grant, flow, lifecycle_transition, version,
};
use execution::{accept, advance, finish, start};
use fairway_domain::{
    asset::Lifecycle,
    audit::FactKind,
    environment::{Environment, EnvironmentSettings, EnvironmentStore},
    idempotency::KeyedOutcome,
    release::review::SelfApproval,
    slug::Slug,
    store::{CommitError, ConstraintConflict},
    tenant::{DEFAULT_TENANT_ID, DEFAULT_WORKSPACE_ID},
    workload::{Workload, WorkloadPatch, WorkloadStatus, interface::InterfaceConfig, ports::WorkloadStore},
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

const fn keyed(method: &'static str, fact_kind: FactKind) -> CommitMethod {
    CommitMethod { method, fact_kind: Some(fact_kind), takes_key: true }
}

const fn keyless(method: &'static str, fact_kind: FactKind) -> CommitMethod {
    CommitMethod { method, fact_kind: Some(fact_kind), takes_key: false }
}

/// All commits. `DeploymentStore::commit_lane_change` appears once for each kind of decision. `RunStore::accept`
/// appears six times: for a running, a queued and a denied run, for a script, and for a running and a denied run of a
/// guest. An admitted run writes its fact when it ends. An admitted script additionally writes a fact at once.
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
    keyless("PreferenceStore::commit_default_profiles (first)", FactKind::DefaultProfilesChanged),
    keyless("PreferenceStore::commit_default_profiles", FactKind::DefaultProfilesChanged),
    keyed("ConnectionStore::commit_new", FactKind::ConnectionCreated),
    keyless("ConnectionStore::commit_change", FactKind::ConnectionChanged),
    keyless("ConnectionStore::commit_deletion", FactKind::ConnectionDeleted),
    keyed("ConnectionStore::commit_check", FactKind::ConnectionChecked),
    keyless("ConnectionTaskStore::commit_expiry_notice", FactKind::ConnectionExpiring),
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
    Conflict(ConstraintConflict),
}

/// A statement that is executed between a decision and its commit, and invalidates the decision.
pub(crate) struct Invalidation {
    pub(crate) sql: String,
    pub(crate) rejection: Rejection,
}

pub(crate) type CommitFuture = Pin<Box<dyn Future<Output = Result<(), CommitError>> + Send>>;

/// A decision that is ready to commit, with the statements that invalidate it.
pub(crate) struct Decision {
    pub(crate) send: Box<dyn FnOnce(Option<KeyedOutcome>) -> CommitFuture + Send>,
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

    fn conflict_after(mut self, conflict: ConstraintConflict, sql: String) -> Self {
        self.invalidations.push(Invalidation { sql, rejection: Rejection::Conflict(conflict) });
        self
    }
}

impl CommitMethod {
    /// Makes a new decision on the current stored state.
    #[expect(clippy::too_many_lines, reason = "a table of commits")]
    pub(crate) async fn decide(self, fixture: &Fixture) -> Decision {
        match self.method {
            "TenantStore::commit_new" => new_tenant(fixture),
            "TenantStore::commit_settings" => settings(fixture).await,
            "WorkspaceStore::commit_new" => new_workspace(fixture),
            "AccessStore::commit_grant" => grant(fixture),
            "AccessStore::commit_revocation" => end_of_grant(fixture).await,
            "PrincipalBindingStore::commit_binding (first)" => first_principal_binding(fixture).await,
            "PrincipalBindingStore::commit_binding" => principal_binding(fixture).await,
            "PrincipalBindingStore::commit_removal" => end_of_principal_binding(fixture).await,
            "AssetStore::commit_new" => asset(fixture).await,
            "AssetStore::commit_lifecycle" => lifecycle_transition(fixture, Lifecycle::Retired).await,
            "AssetStore::commit_lifecycle (archive)" => archive(fixture).await,
            "AssetGrantStore::commit_grant" => asset_grant(fixture).await,
            "AssetGrantStore::commit_revocation" => end_of_asset_grant(fixture).await,
            "VersionStore::commit_version" => version(fixture).await,
            "VersionStore::commit_flow" => flow(fixture),
            "DocumentStore::commit_documents" => knowledge::addition(fixture).await,
            "DocumentStore::commit_reembedding" => knowledge::reembedding(fixture).await,
            "ContractRevocationStore::commit_contract_revocation" => knowledge::revocation(fixture).await,
            "IdentityStore::commit_pin" => sign_in::pin(fixture),
            "SessionStore::commit_new" => sign_in::session(fixture).await,
            "SessionStore::commit_end" => sign_in::end_of_session(fixture).await,
            "ShareLinkStore::commit_new" => share_link::creation(fixture).await,
            "ShareLinkStore::commit_revocation" => share_link::revocation(fixture).await,
            "WorkloadStore::commit_new" => workload(fixture).await,
            "WorkloadStore::commit_change" => workload_change(fixture).await,
            "ReleaseStore::commit_draft" => release::release(fixture).await,
            "EnvironmentStore::commit_settings (first)" => environment(fixture, 0).await,
            "EnvironmentStore::commit_settings" => environment(fixture, 1).await,
            "ReleaseStore::commit_binding" => release::binding(fixture).await,
            "ReleaseStore::commit_binding_removal" => release::unbinding(fixture).await,
            "ReleaseStore::commit_review" => release::review(fixture).await,
            "ReleaseStore::commit_review (live)" => release::review_of_live(fixture).await,
            "ReleaseStore::commit_transition" => release::transition(fixture).await,
            "ReleaseStore::commit_transition (submitted)" => release::submission(fixture).await,
            "DeploymentStore::commit_lane_change" => release::deployment(fixture).await,
            "DeploymentStore::commit_lane_change (rollback)" => release::rollback(fixture).await,
            "DeploymentStore::commit_lane_change (rollout)" => release::rollout(fixture).await,
            "DeploymentStore::commit_lane_change (advance)" => release::advance(fixture).await,
            "RecommendationStore::commit_recommendation" => release::advice(fixture).await,
            "AuditStore::commit_fact" => release::refusal(fixture).await,
            "RolloutStore::commit_hold" => release::hold(fixture).await,
            "RunStore::accept" => accept(fixture, acceptance).await,
            "RunStore::accept (queued)" => accept(fixture, queued).await,
            "RunStore::start" => start(fixture).await,
            "RunStore::record_progress" => advance(fixture).await,
            "RunStore::accept (script)" => accept(fixture, script).await,
            "RunStore::accept (refused)" => accept(fixture, denied).await,
            "RunStore::accept (guest)" => share_link::use_of_link(fixture, acceptance).await,
            "RunStore::accept (guest, refused)" => share_link::use_of_link(fixture, denied).await,
            "RunStore::finish" => finish(fixture).await,
            "RunStore::finish (remembered)" => memory::end(fixture).await,
            "MemoryStore::commit_erasure" => memory::erasure(fixture).await,
            "RunStore::finish (to be reviewed)" => review::review_request(fixture).await,
            "ResolutionStore::commit_resolution" => resolve_unknown::resolution(fixture).await,
            "ProjectionStore::commit_batch" => notification::batch(fixture).await,
            "InboxStore::commit_status" => notification::status(fixture).await,
            "InboxStore::commit_all_read" => notification::all_read(fixture).await,
            "PreferenceStore::commit_set (first)" => notification::preferences(fixture, 0).await,
            "PreferenceStore::commit_set" => notification::preferences(fixture, 1).await,
            "PreferenceStore::commit_default_profiles (first)" => notification::profiles(fixture, 0).await,
            "PreferenceStore::commit_default_profiles" => notification::profiles(fixture, 1).await,
            "ConnectionStore::commit_new" => use_case::connection(fixture),
            "ConnectionStore::commit_change" => use_case::connection_change(fixture).await,
            "ConnectionStore::commit_deletion" => use_case::connection_deletion(fixture).await,
            "ConnectionStore::commit_check" => use_case::connection_check(fixture).await,
            "ConnectionTaskStore::commit_expiry_notice" => use_case::expiry_notice(fixture).await,
            "UseCaseStore::commit_new" => use_case::use_case(fixture).await,
            "UseCaseStore::commit_transition" => use_case::transition(fixture).await,
            "UseCaseStore::commit_publication" => use_case::first_publication(fixture).await,
            "UseCaseStore::commit_publication (again)" => use_case::second_publication(fixture).await,
            "UseCaseStore::commit_refinement" => use_case::refinement(fixture).await,
            "AccessRequestStore::commit_grant" => use_case::grant(fixture).await,
            "AccessRequestStore::commit_denial" => use_case::denial(fixture).await,
            "DestinationStore::commit_new" => notification::destination(fixture).await,
            "DestinationStore::commit_change" => notification::changed_destination(fixture).await,
            "DestinationStore::commit_deletion" => notification::deleted_destination(fixture).await,
            "DestinationStore::commit_test" => notification::test(fixture).await,
            "DeliveryStore::commit_retry" => notification::retry(fixture).await,
            "ProfileStore::commit (first)" => notification::profile(fixture, 0).await,
            "ProfileStore::commit" => notification::profile(fixture, 1).await,
            "ErasureStore::commit_request" => erasure::request(fixture),
            "ErasureStore::commit_decision" => erasure::decision(fixture).await,
            "ErasureStore::commit_completion" => erasure::completion(fixture).await,
            "AnnouncementStore::commit" => notification::announcement(fixture).await,
            "ReviewStore::commit_end" => review::rejected_review(fixture).await,
            "ReviewStore::commit_end (whenever)" => review::expired_review(fixture).await,
            other => panic!("no decision is defined for {other}"),
        }
    }
}

fn store(fixture: &Fixture) -> Arc<Database> {
    Arc::clone(&fixture.store)
}

async fn workload(fixture: &Fixture) -> Decision {
    let mut new = new_workload();
    (new.workspace_id, new.namespace_id) = deletable_workspace(fixture).await;
    let workspace_deletion = format!("DELETE FROM workspace WHERE workspace_id = '{}'", new.workspace_id);
    let change = Workload::create(new, &stamp()).unwrap();
    let duplicate = format!(
        "INSERT INTO workload SELECT tenant_id, '{}', '{}', 'x', '', 'team:x', 'registered', 'api', workspace_id, 1,
         now(), 'user:eve', now() FROM workspace WHERE slug = 'default'",
        Uuid::now_v7(),
        change.next.slug
    );
    let store = store(fixture);
    Decision::new(async move |key| WorkloadStore::commit_new(&*store, scope(), change, key.as_ref()).await)
        .conflict_after(ConstraintConflict::DuplicateSlug, duplicate)
        .conflict_after(ConstraintConflict::MissingReference, workspace_deletion)
}

async fn workload_change(fixture: &Fixture) -> Decision {
    let workload = fixture.workload().await;
    let interface = InterfaceConfig::parse(&serde_json::json!({ "presentation_mode": "chat" })).unwrap();
    let patch = WorkloadPatch {
        status: Some(WorkloadStatus::Suspended),
        interface_config: Some(Some(interface)),
        ..WorkloadPatch::default()
    };
    let change = workload.apply_patch(patch, &stamp()).unwrap().unwrap();
    let id = workload.workload_id;
    let store = store(fixture);
    Decision::new(async move |_| WorkloadStore::commit_change(&*store, scope(), change).await)
        .stale_after(format!("UPDATE workload SET revision = revision + 1 WHERE workload_id = '{id}'"))
}

/// Configures a new environment. `earlier_changes` is the number of preceding changes of this environment.
async fn environment(fixture: &Fixture, earlier_changes: u16) -> Decision {
    let name = Slug::parse(&format!("e-{}", Uuid::now_v7().simple())).unwrap();
    let settings_with = |min_approvals| EnvironmentSettings {
        min_approvals,
        ..EnvironmentSettings::defaults_for(&slug(), SelfApproval::Refused)
    };
    let mut previous = None;
    for number in 0..earlier_changes {
        let change = Environment::configure(
            DEFAULT_WORKSPACE_ID.into(),
            name.clone(),
            previous.as_ref(),
            settings_with(number + 3),
            &stamp(),
        )
        .unwrap();
        previous = Some(change.next.clone());
        EnvironmentStore::commit_settings(&*fixture.store, scope(), change).await.unwrap();
    }
    let change = Environment::configure(
        DEFAULT_WORKSPACE_ID.into(),
        name.clone(),
        previous.as_ref(),
        settings_with(2),
        &stamp(),
    )
    .unwrap();
    let concurrent_change = format!(
        "INSERT INTO environment_settings VALUES ('{DEFAULT_TENANT_ID}', '{}', '{name}', 1, true, false, 1, now(),
         'user:eve') ON CONFLICT (tenant_id, workspace_id, environment)
         DO UPDATE SET revision = environment_settings.revision + 1",
        DEFAULT_WORKSPACE_ID
    );
    let store = store(fixture);
    Decision::new(async move |_| EnvironmentStore::commit_settings(&*store, scope(), change).await)
        .stale_after(concurrent_change)
}
