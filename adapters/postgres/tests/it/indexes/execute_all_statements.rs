//! Executes the statements of all stores: reads by key, and lists.

use super::execute_reads_of_absent_rows::execute_reads_of_absent_rows;
use crate::fixture::{
    Fixture, acceptance, actor, denied, ending, environment, fresh,
    knowledge::{documents, ingest, knowledge_base, reembedding, within},
    scope, stamp,
};
use fairway_domain::{
    access::{
        AccessStore, ActorNameScope, ActorRef, GrantScope, OwnerRef, principal_binding::PrincipalBindingStore,
        rights::VisibleScopes,
    },
    asset::{
        Lifecycle,
        artifact_maintenance::ArtifactMaintenanceStore,
        artifact_store::{ArtifactPath, StoredObject},
        grant::AssetGrantStore,
        impact::{BindingTarget, ImpactStore, ReferenceTarget},
        kind::AssetKind,
        ports::{AssetFilter, AssetStore, AssetVisibility, VersionStore},
    },
    audit::{AuditFilter, AuditStore, FactSequencer},
    evidence::lineage::LineageFilter,
    execution::{
        ports::{AcceptOutcome, EventStore, ExecutionReadStore, LapsedFilter, LeaseState, LeaseStore, RunStore},
        review::ReviewStore,
    },
    id::ReleaseId,
    idempotency::{IdempotencyStore, RequestKey},
    knowledge::{
        IndexRevision,
        contract::ContractState,
        contract_revocation::ContractRevocation,
        ports::{ChunkSearch, ContractRevocationStore, DocumentStore, IndexRevisionStore, SameDocumentRevisions},
        retrieval::{EmbeddingModel, IndexEmbeddingModels},
    },
    notification::ports::{SuppressedDecisionStore, SuppressedFilter},
    release::ports::{DeploymentStore, RecommendationStore, ReleaseFilter, ReleaseStore, ServingReleaseStore},
    rollout::ports::RolloutStore,
    search_words::WordSet,
    store::{PageRequest, PageStart},
    tenant::{DEFAULT_NAMESPACE_ID, DEFAULT_WORKSPACE_ID, TenantStore, WorkspaceStore},
    time::Timestamp,
    workload::{
        interface::PresentationMode,
        ports::{RuntimeInterfaceFilter, WorkloadFilter, WorkloadStore},
    },
};
use fairway_postgres::Database;
use std::time::Duration;
use uuid::Uuid;

/// Executes every read by key and every write by key once, as requests do.
pub(super) async fn execute_point_statements(fixture: &Fixture, store: &Database) {
    let (workload, deployed_release) = fixture.active().await;
    let release = deployed_release.release;
    let caller = [ActorRef::parse("user:7").unwrap()];
    AccessStore::load_principal(store, None, &caller, ActorNameScope::Installation).await.unwrap().unwrap();
    AccessStore::load_principal(store, Some(scope().tenant()), &caller, ActorNameScope::Tenant).await.unwrap().unwrap();
    PrincipalBindingStore::find(store, scope(), workload.workload_id, &actor()).await.unwrap();
    AccessStore::resolve_scope(store, scope(), &GrantScope::Workload(workload.workload_id)).await.unwrap().unwrap();
    AccessStore::find(store, scope(), fresh()).await.unwrap();
    TenantStore::find(store, scope()).await.unwrap().unwrap();
    WorkspaceStore::find(store, scope(), DEFAULT_WORKSPACE_ID.into()).await.unwrap().unwrap();
    let binding = &release.bindings[0];
    AssetStore::find(store, scope(), binding.asset_id).await.unwrap().unwrap();
    VersionStore::find_version(store, scope(), binding.asset_version_id).await.unwrap().unwrap();
    VersionStore::source_text(store, scope(), binding.asset_version_id).await.unwrap().unwrap();
    let (asset, version) = (binding.asset_id, binding.asset_version_id);
    assert!(VersionStore::is_route_effective(store, scope(), asset, version, "primary").await.unwrap());
    AssetGrantStore::select_granted_assets(store, scope(), &[asset], &caller, &VisibleScopes::default()).await.unwrap();
    for label in [None, Some(&binding.version_label)] {
        AssetStore::find_by_slug(store, scope(), &binding.asset_slug, label).await.unwrap().unwrap().1.unwrap();
    }
    WorkloadStore::find(store, scope(), workload.workload_id).await.unwrap().unwrap();
    WorkloadStore::find_by_slug(store, scope(), &workload.slug).await.unwrap().unwrap();
    ReleaseStore::find(store, scope(), release.release_id).await.unwrap().unwrap();
    let approval = release.approvals[0].approval_id;
    ReleaseStore::approval(store, scope(), release.release_id, approval).await.unwrap().unwrap();
    DeploymentStore::deployment(store, scope(), workload.workload_id, &environment()).await.unwrap().unwrap();
    DeploymentStore::current_revisions(store, scope(), workload.workload_id, &environment()).await.unwrap().unwrap();
    DeploymentStore::lane_history(store, scope(), workload.workload_id, &environment(), 100).await.unwrap();
    ServingReleaseStore::ended_runs(store, scope(), release.release_id, 20).await.unwrap();
    RolloutStore::soak_status(store, scope(), release.release_id, 20).await.unwrap();
    RolloutStore::list_soaked(store, None, 100).await.unwrap();
    ServingReleaseStore::list_serving(store, None, 10).await.unwrap();
    RecommendationStore::claim_recommendation_job(store).await.unwrap();
    RunStore::find_workload_with_deployment(store, scope(), &workload.slug, &environment()).await.unwrap().unwrap();
    let key = RequestKey {
        key: Uuid::now_v7().to_string(),
        caller: actor(),
        route: "POST /v1/assets".to_owned(),
        body_digest: [0; 32],
    };
    IdempotencyStore::key_state(store, scope(), &key).await.unwrap();
    let reserved = RequestKey { key: Uuid::now_v7().to_string(), ..key.clone() };
    let (resource, lease) = (Uuid::now_v7(), Duration::from_secs(30));
    assert!(store.reserve(scope(), &reserved, resource, lease).await.unwrap());
    store.renew_reservation(scope(), &reserved, resource, lease).await.unwrap();
    store.release_reservation(scope(), &reserved, resource).await.unwrap();
    IdempotencyStore::delete_expired(store).await.unwrap();

    let revisions = fixture.expected_revisions(&workload, &fixture.current_release(&release).await).await;
    let deployed_release = fixture.current_release(&release).await;
    let run = acceptance(&deployed_release);
    assert_eq!(store.accept(scope(), &run, revisions, Some(&key)).await.unwrap(), AcceptOutcome::Accepted);
    store.accept(scope(), &denied(&deployed_release), revisions, None).await.unwrap();
    let (id, lease) = (run.execution_id, crate::fixture::lease_of(&run));
    assert_eq!(store.renew(scope(), id, lease).await.unwrap(), LeaseState::Held);
    store.claim_lapsed(fresh(), LapsedFilter::All).await.unwrap();
    assert_eq!(store.list_expired().await.unwrap(), []);
    store.finish(scope(), &ending(&run)).await.unwrap();
    ExecutionReadStore::find(store, scope(), run.execution_id).await.unwrap().unwrap();
    let evidence = store.evidence(scope(), run.execution_id).await.unwrap().unwrap();
    store.artifact(scope(), run.execution_id, evidence.artifacts[0].artifact_id).await.unwrap().unwrap();
    store.steps(scope(), run.execution_id).await.unwrap();
    assert_eq!(
        store.lineage(scope(), run.execution_id, LineageFilter::default(), 50, 0).await.unwrap().unwrap().total,
        1
    );
    FactSequencer::sequence(store).await.unwrap();
    execute_document_statements(fixture, store, release.release_id).await;
    execute_reads_of_absent_rows(store).await;
}

/// Executes the statements for a knowledge base.
async fn execute_document_statements(fixture: &Fixture, store: &Database, release: ReleaseId) {
    let (asset, contract) = knowledge_base(fixture).await;
    let id = asset.asset_id;
    let added = ingest(&asset, documents(&[("d", "a word")]), IndexRevision::default());
    assert_eq!(store.commit_documents(scope(), &added, None).await.unwrap(), IndexRevision::new(1));
    assert_eq!(store.current_revision(scope(), id).await.unwrap(), IndexRevision::new(1));
    store.find_ingest(scope(), id, added.next.ingest_id).await.unwrap().unwrap();
    assert_eq!(store.list_documents(scope(), id, PageRequest::first(2)).await.unwrap().rows.len(), 1);
    let found = store.text_search(scope(), &within(id, 1), &WordSet::from_texts(["word"])).await.unwrap();
    assert_eq!(store.find_chunks(scope(), id, &[found.hits[0].chunk_id]).await.unwrap().len(), 1);
    let model = EmbeddingModel { account: "local".to_owned(), model: "m".to_owned() };
    let first = IndexRevision::new(1);
    assert_eq!(store.index_embedding(scope(), id, first).await.unwrap(), IndexEmbeddingModels::Mixed);
    assert_eq!(
        store.revisions_with_same_documents(scope(), id, first).await.unwrap(),
        SameDocumentRevisions { first, last: first }
    );
    assert!(store.vector_coverage(scope(), &within(id, 1)).await.unwrap().is_complete);
    let stale = store.stale_chunks(scope(), id, &model, 10).await.unwrap();
    let change = reembedding(&asset, &stale, &model, first);
    assert_eq!(store.commit_reembedding(scope(), &change, None).await.unwrap(), IndexRevision::new(2));
    store.find_reembedding(scope(), id, change.next.ingest_id).await.unwrap().unwrap();
    assert_eq!(store.vector_search(scope(), &within(id, 1), &[1.0]).await.unwrap().hits, []);
    assert_eq!(store.release_pins(scope(), release).await.unwrap(), []);
    assert_eq!(store.contract_states(scope(), &[(id, contract.clone())]).await.unwrap(), [ContractState::InForce]);
    let revocation = ContractRevocation::create(fresh(), &asset, &contract, "It is over.", &stamp()).unwrap();
    store.commit_contract_revocation(scope(), revocation, None).await.unwrap();
    store.find_revocation(scope(), id, &contract).await.unwrap().unwrap();
}

/// Lists assets with every combination of visibility and filters, from the first page on and after a cursor.
async fn list_assets(store: &Database) {
    let visible_scopes = VisibleScopes {
        namespaces: vec![DEFAULT_NAMESPACE_ID.into()],
        workspaces: vec![DEFAULT_WORKSPACE_ID.into()],
        workloads: Vec::new(),
    };
    let (namespace, workspace) = (DEFAULT_NAMESPACE_ID.into(), Some(DEFAULT_WORKSPACE_ID.into()));
    for visibility in [
        AssetVisibility::Tenant,
        AssetVisibility::FromWorkspace { namespace, workspace, principals: vec![actor()] },
        AssetVisibility::InScopes { scopes: visible_scopes, principals: vec![actor()] },
    ] {
        for kind in [None, Some(AssetKind::PolicyBundle), Some(AssetKind::Skill)] {
            for lifecycle in [None, Some(Lifecycle::Active), Some(Lifecycle::Archived)] {
                let filter = AssetFilter { visibility: visibility.clone(), kind, lifecycle };
                let first = AssetStore::list(store, scope(), &filter, PageRequest::first(2)).await.unwrap();
                if let Some(next) = first.next {
                    let page = PageRequest { limit: 2, start: PageStart::After(next) };
                    AssetStore::list(store, scope(), &filter, page).await.unwrap();
                }
            }
        }
    }
}

/// Executes every list once.
pub(super) async fn execute_lists(fixture: &Fixture, store: &Database) {
    let page = PageRequest::first(20);
    let (workload, deployed_release) = fixture.active().await;
    let binding = &deployed_release.release.bindings[0];
    AccessStore::list(store, scope(), None, page).await.unwrap();
    AccessStore::list(store, scope(), Some(DEFAULT_WORKSPACE_ID.into()), page).await.unwrap();
    PrincipalBindingStore::list(store, scope(), workload.workload_id, page).await.unwrap();
    WorkspaceStore::list(store, scope(), page).await.unwrap();
    list_assets(store).await;
    AssetGrantStore::list(store, scope(), binding.asset_id, page).await.unwrap();
    AssetStore::blocking_releases(store, scope(), binding.asset_id, 10).await.unwrap();
    ImpactStore::binding_releases(store, scope(), BindingTarget::Asset(binding.asset_id), 10).await.unwrap();
    ImpactStore::binding_releases(store, scope(), BindingTarget::Versions(&[binding.asset_version_id]), 10)
        .await
        .unwrap();
    let labels = Some(vec![binding.version_label.clone()]);
    for labels in [None, labels] {
        let target = ReferenceTarget { slug: binding.asset_slug.clone(), labels };
        ImpactStore::referrers(store, scope(), &[target], &[binding.asset_version_id], 10).await.unwrap();
    }
    let first_page = ArtifactMaintenanceStore::versions_after(store, None, 3).await.unwrap();
    ArtifactMaintenanceStore::versions_after(store, first_page.last().copied(), 3).await.unwrap();
    let path = ArtifactPath::of_version(binding.asset_id, binding.asset_version_id).to_string();
    let object = StoredObject { path, put_at: Timestamp::new(time::OffsetDateTime::UNIX_EPOCH) };
    assert_eq!(ArtifactMaintenanceStore::find_orphans(store, vec![object]).await.unwrap(), []);
    VersionStore::list_versions(store, scope(), binding.asset_id, page).await.unwrap();
    WorkloadStore::list(store, scope(), &WorkloadFilter::default(), page).await.unwrap();
    let words = |text: &str| Some(WordSet::from_texts([text]));
    for filter in [
        RuntimeInterfaceFilter::default(),
        RuntimeInterfaceFilter { presentation_mode: Some(PresentationMode::Form), ..RuntimeInterfaceFilter::default() },
        RuntimeInterfaceFilter { owner: Some(OwnerRef::parse("team:x").unwrap()), ..RuntimeInterfaceFilter::default() },
        RuntimeInterfaceFilter { words: words("all"), ..RuntimeInterfaceFilter::default() },
        RuntimeInterfaceFilter { words: words("all word7"), ..RuntimeInterfaceFilter::default() },
    ] {
        WorkloadStore::list_runtime(store, scope(), &filter, page).await.unwrap();
    }
    ReleaseStore::list(store, scope(), &ReleaseFilter::default(), page).await.unwrap();
    let by_workload = ReleaseFilter { workload: Some(workload.workload_id), ..ReleaseFilter::default() };
    ReleaseStore::list(store, scope(), &by_workload, page).await.unwrap();
    assert_eq!(
        ReleaseStore::approvals(store, scope(), deployed_release.release.release_id, page).await.unwrap().rows.len(),
        1
    );
    let visible_scopes = VisibleScopes { workspaces: vec![DEFAULT_WORKSPACE_ID.into()], ..VisibleScopes::default() };
    let in_workspace = ReleaseFilter { visible_scopes: Some(visible_scopes.clone()), ..ReleaseFilter::default() };
    ReleaseStore::list(store, scope(), &in_workspace, page).await.unwrap();
    let in_workspace = WorkloadFilter { visible_scopes: Some(visible_scopes.clone()), ..WorkloadFilter::default() };
    WorkloadStore::list(store, scope(), &in_workspace, page).await.unwrap();
    let default_workspace = Some(DEFAULT_WORKSPACE_ID.into());
    for workspace in [None, default_workspace] {
        for subject in [None, Some(workload.workload_id.uuid())] {
            let filter = AuditFilter { workspace, subject };
            AuditStore::list(store, scope(), filter, None, page).await.unwrap();
        }
        for (recipient, source_event) in [
            (None, None),
            (Some(ActorRef::local()), None),
            (None, Some(deployed_release.release.release_id.uuid().into())),
        ] {
            let filter = SuppressedFilter { workspace, recipient, source_event };
            SuppressedDecisionStore::list(store, scope(), &filter, None, page).await.unwrap();
            SuppressedDecisionStore::list(store, scope(), &filter, Some(&visible_scopes), page).await.unwrap();
        }
    }
    let of_workload = VisibleScopes { workloads: vec![workload.workload_id], ..VisibleScopes::default() };
    for visible_scopes in [visible_scopes, of_workload] {
        AuditStore::list(store, scope(), AuditFilter::default(), Some(&visible_scopes), page).await.unwrap();
    }
}
