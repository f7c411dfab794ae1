//! The statements of all stores: reads by key, and lists.

use crate::{
    knowledge::{base, documents, ingest, reembedding, within},
    stage::{Stage, acceptance, actor, ending, environment, fresh, refused, scope, stamp},
};
use fairway_domain::{
    access::{AccessStore, ActorRef, GrantScope, OwnerRef, principal_binding::PrincipalBindingStore, rights::Reach},
    asset::{
        Lifecycle,
        grant::AssetGrantStore,
        impact::{Bound, ImpactStore, Target},
        kind::AssetKind,
        ledger::ArtifactIndex,
        ports::{ArtifactPath, AssetFilter, AssetVisibility, AssetStore, StoredObject},
    },
    audit::{AuditStore, FactSequencer},
    evidence::lineage::LineageFilter,
    execution::{
        ports::{Accepted, ExecutionStore, LapsedFilter, LeaseState},
        review::ReviewStore,
    },
    id::ReleaseId,
    idempotency::{IdempotencyStore, RequestKey},
    knowledge::{
        IndexRevision,
        contract::ContractState,
        ports::{KnowledgeStore, RevisionRange},
        retrieval::{EmbeddingModel, IndexEmbedding},
        revocation::ContractRevocation,
    },
    release::ports::{ReleaseFilter, ReleaseStore},
    rollout::ports::RolloutStore,
    search::Words,
    store::{PageRequest, Start},
    tenant::{DEFAULT_NAMESPACE, DEFAULT_WORKSPACE, TenantStore, WorkspaceStore},
    time::Timestamp,
    workload::{
        interface::PresentationMode,
        ports::{RuntimeFilter, WorkloadFilter, WorkloadStore},
    },
};
use fairway_postgres::Database;
use std::time::Duration;
use uuid::Uuid;

/// Runs every read and write by key once, as requests do.
pub(super) async fn touch_every_point(stage: &Stage, store: &Database) {
    let (workload, placed) = stage.active().await;
    let release = placed.release;
    let caller = [ActorRef::parse("user:7").unwrap()];
    AccessStore::principal(store, None, &caller).await.unwrap().unwrap();
    AccessStore::principal(store, Some(scope().tenant()), &caller).await.unwrap().unwrap();
    PrincipalBindingStore::find(store, scope(), workload.workload_id, &actor()).await.unwrap();
    AccessStore::place(store, scope(), &GrantScope::Workload(workload.workload_id)).await.unwrap().unwrap();
    AccessStore::find(store, scope(), fresh()).await.unwrap();
    TenantStore::find(store, scope()).await.unwrap().unwrap();
    WorkspaceStore::find(store, scope(), DEFAULT_WORKSPACE.into()).await.unwrap().unwrap();
    let bound = &release.bindings[0];
    AssetStore::find(store, scope(), bound.asset_id).await.unwrap().unwrap();
    AssetStore::find_version(store, scope(), bound.asset_version_id).await.unwrap().unwrap();
    AssetStore::source_text(store, scope(), bound.asset_version_id).await.unwrap().unwrap();
    let (asset, version) = (bound.asset_id, bound.asset_version_id);
    assert!(AssetStore::route_stands(store, scope(), asset, version, "primary").await.unwrap());
    AssetGrantStore::granted(store, scope(), &[asset], &caller, &Reach::default()).await.unwrap();
    for label in [None, Some(&bound.version_label)] {
        AssetStore::find_by_slug(store, scope(), &bound.asset_slug, label).await.unwrap().unwrap().1.unwrap();
    }
    WorkloadStore::find(store, scope(), workload.workload_id).await.unwrap().unwrap();
    WorkloadStore::find_by_slug(store, scope(), &workload.slug).await.unwrap().unwrap();
    ReleaseStore::find(store, scope(), release.release_id).await.unwrap().unwrap();
    let approval = release.approvals[0].approval_id;
    ReleaseStore::approval(store, scope(), release.release_id, approval).await.unwrap().unwrap();
    ReleaseStore::deployment(store, scope(), workload.workload_id, &environment()).await.unwrap().unwrap();
    ReleaseStore::pulse(store, scope(), workload.workload_id, &environment()).await.unwrap().unwrap();
    ReleaseStore::lane_history(store, scope(), workload.workload_id, &environment(), 100).await.unwrap();
    ReleaseStore::ended_runs(store, scope(), release.release_id, 20).await.unwrap();
    RolloutStore::lane_record(store, scope(), release.release_id, 20).await.unwrap();
    RolloutStore::soaked(store, None, 100).await.unwrap();
    ReleaseStore::serving(store, None, 10).await.unwrap();
    ReleaseStore::claim_advice(store).await.unwrap();
    ExecutionStore::runtime_entry(store, scope(), &workload.slug, &environment()).await.unwrap().unwrap();
    let key = RequestKey {
        key: Uuid::now_v7().to_string(),
        caller: actor(),
        route: "POST /v1/assets".to_owned(),
        body_digest: [0; 32],
    };
    IdempotencyStore::look_up(store, scope(), &key).await.unwrap();
    let reserved = RequestKey { key: Uuid::now_v7().to_string(), ..key.clone() };
    let (resource, lease) = (Uuid::now_v7(), Duration::from_secs(30));
    assert!(store.reserve(scope(), &reserved, resource, lease).await.unwrap());
    store.renew_reservation(scope(), &reserved, resource, lease).await.unwrap();
    store.release_reservation(scope(), &reserved, resource).await.unwrap();
    IdempotencyStore::sweep(store).await.unwrap();

    let on = stage.accepted_on(&workload, &stage.placed(&release).await).await;
    let placed = stage.placed(&release).await;
    let run = acceptance(&placed);
    assert_eq!(store.accept(scope(), &run, on, Some(&key)).await.unwrap(), Accepted::Yes);
    store.accept(scope(), &refused(&placed), on, None).await.unwrap();
    let (id, lease) = (run.execution_id, crate::stage::lease_of(&run));
    assert_eq!(store.renew(scope(), id, lease).await.unwrap(), LeaseState::Held);
    store.take_lapsed(fresh(), LapsedFilter::All).await.unwrap();
    assert_eq!(store.overdue().await.unwrap(), []);
    store.finish(scope(), &ending(&run)).await.unwrap();
    ExecutionStore::find(store, scope(), run.execution_id).await.unwrap().unwrap();
    let evidence = store.evidence(scope(), run.execution_id).await.unwrap().unwrap();
    let document = (run.execution_id, evidence.artifacts[0].artifact_id);
    store.artifact(scope(), document).await.unwrap().unwrap();
    store.steps(scope(), run.execution_id).await.unwrap();
    let page = (LineageFilter::default(), 50, 0);
    assert_eq!(store.lineage(scope(), run.execution_id, page).await.unwrap().unwrap().total, 1);
    FactSequencer::sequence(store).await.unwrap();
    touch_documents(stage, store, release.release_id).await;
}

/// Runs the statements of a knowledge base.
async fn touch_documents(stage: &Stage, store: &Database, release: ReleaseId) {
    let (asset, contract) = base(stage).await;
    let id = asset.asset_id;
    let added = ingest(&asset, documents(&[("d", "a word")]), IndexRevision::default());
    assert_eq!(store.commit_documents(scope(), &added, None).await.unwrap(), IndexRevision::new(1));
    assert_eq!(store.present_revision(scope(), id).await.unwrap(), IndexRevision::new(1));
    store.find_ingest(scope(), id, added.next.ingest_id).await.unwrap().unwrap();
    assert_eq!(store.list_documents(scope(), id, PageRequest::first(2)).await.unwrap().rows.len(), 1);
    let found = store.by_words(scope(), &within(id, 1), &Words::of(["word"])).await.unwrap();
    assert_eq!(store.chunks(scope(), id, &[found.hits[0].chunk_id]).await.unwrap().len(), 1);
    let model = EmbeddingModel { account: "local".to_owned(), model: "m".to_owned() };
    let first = IndexRevision::new(1);
    assert_eq!(store.embedding_of(scope(), id, first).await.unwrap(), IndexEmbedding::Partial);
    assert_eq!(store.same_documents(scope(), id, first).await.unwrap(), RevisionRange { first, last: first });
    assert!(store.vector_coverage(scope(), &within(id, 1)).await.unwrap().is_complete);
    let stale = store.stale_chunks(scope(), id, &model, 10).await.unwrap();
    let again = reembedding(&asset, (&stale, &model), first);
    assert_eq!(store.commit_reembedding(scope(), &again, None).await.unwrap(), IndexRevision::new(2));
    store.find_reembedding(scope(), id, again.next.ingest_id).await.unwrap().unwrap();
    assert_eq!(store.by_meaning(scope(), &within(id, 1), &[1.0]).await.unwrap().hits, []);
    assert_eq!(store.pins(scope(), release).await.unwrap(), []);
    assert_eq!(store.standings(scope(), &[(id, contract.clone())]).await.unwrap(), [ContractState::InForce]);
    let over = ContractRevocation::say(fresh(), &asset, (&contract, "It is over."), &stamp()).unwrap();
    store.commit_revocation(scope(), over, None).await.unwrap();
    store.find_revocation(scope(), id, &contract).await.unwrap().unwrap();
}

/// Lists assets with every visibility and filter combination, from the first page and after a cursor.
async fn list_assets(store: &Database) {
    let reach = Reach {
        namespaces: vec![DEFAULT_NAMESPACE.into()],
        workspaces: vec![DEFAULT_WORKSPACE.into()],
        workloads: Vec::new(),
    };
    let (namespace, workspace) = (DEFAULT_NAMESPACE.into(), Some(DEFAULT_WORKSPACE.into()));
    for sight in [
        AssetVisibility::Tenant,
        AssetVisibility::From { namespace, workspace, principals: vec![actor()] },
        AssetVisibility::Within { reach, principals: vec![actor()] },
    ] {
        for kind in [None, Some(AssetKind::PolicyBundle), Some(AssetKind::Skill)] {
            for lifecycle in [None, Some(Lifecycle::Active), Some(Lifecycle::Archived)] {
                let filter = AssetFilter { sight: sight.clone(), kind, lifecycle };
                let first = AssetStore::list(store, scope(), &filter, PageRequest::first(2)).await.unwrap();
                if let Some(next) = first.next {
                    let page = PageRequest { limit: 2, start: Start::Behind(next) };
                    AssetStore::list(store, scope(), &filter, page).await.unwrap();
                }
            }
        }
    }
}

/// Runs every list once.
pub(super) async fn list_everything(stage: &Stage, store: &Database) {
    let page = PageRequest::first(20);
    let (workload, placed) = stage.active().await;
    let bound = &placed.release.bindings[0];
    AccessStore::list(store, scope(), None, page).await.unwrap();
    AccessStore::list(store, scope(), Some(DEFAULT_WORKSPACE.into()), page).await.unwrap();
    PrincipalBindingStore::list(store, scope(), workload.workload_id, page).await.unwrap();
    WorkspaceStore::list(store, scope(), page).await.unwrap();
    list_assets(store).await;
    AssetGrantStore::list(store, scope(), bound.asset_id, page).await.unwrap();
    AssetStore::blocking_releases(store, scope(), bound.asset_id, 10).await.unwrap();
    ImpactStore::binding_releases(store, scope(), Bound::Asset(bound.asset_id), 10).await.unwrap();
    ImpactStore::binding_releases(store, scope(), Bound::Versions(&[bound.asset_version_id]), 10).await.unwrap();
    let labels = Some(vec![bound.version_label.clone()]);
    for labels in [None, labels] {
        let target = Target { slug: bound.asset_slug.clone(), labels };
        ImpactStore::referrers(store, scope(), &[target], &[bound.asset_version_id], 10).await.unwrap();
    }
    let known = ArtifactIndex::versions(store, None, 3).await.unwrap();
    ArtifactIndex::versions(store, known.last().copied(), 3).await.unwrap();
    let path = ArtifactPath::of_version(bound.asset_id, bound.asset_version_id).to_string();
    let stored = StoredObject { path, put_at: Timestamp::new(time::OffsetDateTime::UNIX_EPOCH) };
    assert_eq!(ArtifactIndex::orphans(store, vec![stored]).await.unwrap(), []);
    AssetStore::list_versions(store, scope(), bound.asset_id, page).await.unwrap();
    WorkloadStore::list(store, scope(), &WorkloadFilter::default(), page).await.unwrap();
    let words = |text: &str| Some(Words::of([text]));
    for filter in [
        RuntimeFilter::default(),
        RuntimeFilter { presentation_mode: Some(PresentationMode::Form), ..RuntimeFilter::default() },
        RuntimeFilter { owner: Some(OwnerRef::parse("team:x").unwrap()), ..RuntimeFilter::default() },
        RuntimeFilter { words: words("all"), ..RuntimeFilter::default() },
        RuntimeFilter { words: words("all word7"), ..RuntimeFilter::default() },
    ] {
        WorkloadStore::list_runtime(store, scope(), &filter, page).await.unwrap();
    }
    ReleaseStore::list(store, scope(), &ReleaseFilter::default(), page).await.unwrap();
    let of_one = ReleaseFilter { workload: Some(workload.workload_id), ..ReleaseFilter::default() };
    ReleaseStore::list(store, scope(), &of_one, page).await.unwrap();
    assert_eq!(ReleaseStore::approvals(store, scope(), placed.release.release_id, page).await.unwrap().rows.len(), 1);
    let reach = Reach { workspaces: vec![DEFAULT_WORKSPACE.into()], ..Reach::default() };
    let within = ReleaseFilter { reach: Some(reach.clone()), ..ReleaseFilter::default() };
    ReleaseStore::list(store, scope(), &within, page).await.unwrap();
    let within = WorkloadFilter { reach: Some(reach.clone()), ..WorkloadFilter::default() };
    WorkloadStore::list(store, scope(), &within, page).await.unwrap();
    AuditStore::list(store, scope(), None, None, page).await.unwrap();
    AuditStore::list(store, scope(), Some(DEFAULT_WORKSPACE.into()), None, page).await.unwrap();
    let of_workload = Reach { workloads: vec![workload.workload_id], ..Reach::default() };
    for reach in [reach, of_workload] {
        AuditStore::list(store, scope(), None, Some(&reach), page).await.unwrap();
    }
}
