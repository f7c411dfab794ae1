//! Creation of demo data: an author creates a workload, and an approver activates its release. Seeding leaves a demo
//! with a serving release unchanged, and completes a partial demo.

use crate::{
    Failure, Precondition, Stores,
    asset::{Assets, CreateAssetParams, CreateVersionParams},
    flow::{Flows, NewFlow, NewFlowVersion},
    knowledge::KnowledgeBases,
    release::{ReleaseDraft, Releases, Transition},
    workload::{CreateWorkloadParams, Workloads},
};
use fairway_domain::{
    access::{Caller, OwnerRef},
    asset::{Asset, AssetVersion, canonical::Canonical, kind::AssetKind, ports::AssetStore},
    flow,
    id::{AssetId, AssetVersionId, ReleaseId, WorkloadId},
    idempotency::RequestKey,
    knowledge::document::DocumentDraft,
    note::Note,
    release::{
        StateName,
        activate::LaneSelection,
        lane::TargetLane,
        ports::{DeploymentStore, ReleaseFilter, ReleaseStore},
        review::ReleaseVerdict,
    },
    slug::Slug,
    store::{ConstraintConflict, PageRequest},
    tenant::TenantScope,
    workload::{IntendedUse, WorkloadPatch, interface::InterfaceConfig, ports::WorkloadStore},
};
use serde_json::Value;
use std::sync::Arc;

/// Maximum number of releases that the count of served releases reads.
const PAGE: u32 = 200;
/// The approver's note on the release.
const NOTE: &str = "Read and approved as part of the demo.";

/// A workload of the demo, with all resources that its release binds.
#[derive(Clone, Debug)]
pub struct DemoWorkload {
    /// The assets that the release binds, in the order of their creation.
    pub assets: Vec<DemoAsset>,
    /// The workload's slug.
    pub slug: Slug,
    /// The workload's name, if any.
    pub name: Option<String>,
    /// The workload's description, if any.
    pub description: Option<String>,
    /// The principal that is responsible for the workload.
    pub owner_ref: OwnerRef,
    /// The intended invocation mode of the workload.
    pub invocation_mode: IntendedUse,
    /// The runtime interface of the workload, if any.
    pub interface_config: Option<InterfaceConfig>,
    /// The environment of the release.
    pub environment: Slug,
    /// The slug of the asset that is a knowledge base, and the documents to add to it.
    pub documents: Option<(Slug, Vec<DocumentDraft>)>,
}

/// An asset that the demo creates with one version.
#[derive(Clone, Debug)]
pub struct DemoAsset {
    /// The slug under which the demo creates or finds the asset.
    pub slug: Slug,
    /// The principal that is responsible for the asset.
    pub owner_ref: OwnerRef,
    /// The content of the asset's version.
    pub content: DemoAssetContent,
}

/// The content of a demo asset in the form of the demo files.
#[derive(Clone, Debug)]
pub enum DemoAssetContent {
    /// Asset kind and JSON content.
    Document(AssetKind, Value),
    /// YAML text of a flow.
    Flow(String),
}

/// The result of seeding the demo.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SeedOutcome {
    /// Seeding activated the release with this identifier.
    Activated(ReleaseId),
    /// The release with this identifier already serves in the environment, so seeding changed nothing.
    Unchanged(ReleaseId),
}

/// Creates the demo data through the same operations as a client.
#[derive(Clone)]
pub struct DemoSeeder {
    asset_store: Arc<dyn AssetStore>,
    release_store: Arc<dyn ReleaseStore>,
    deployment_store: Arc<dyn DeploymentStore>,
    workload_store: Arc<dyn WorkloadStore>,
    workloads: Arc<Workloads>,
    assets: Arc<Assets>,
    flows: Arc<Flows>,
    releases: Arc<Releases>,
    knowledge_bases: Arc<KnowledgeBases>,
}

impl DemoSeeder {
    pub(crate) fn new(
        stores: &Stores,
        workloads: &Arc<Workloads>,
        assets: &Arc<Assets>,
        flows: &Arc<Flows>,
        releases: &Arc<Releases>,
        knowledge_bases: &Arc<KnowledgeBases>,
    ) -> Self {
        Self {
            asset_store: Arc::clone(&stores.assets),
            release_store: Arc::clone(&stores.releases),
            deployment_store: Arc::clone(&stores.deployments),
            workload_store: Arc::clone(&stores.workloads),
            workloads: Arc::clone(workloads),
            assets: Arc::clone(assets),
            flows: Arc::clone(flows),
            releases: Arc::clone(releases),
            knowledge_bases: Arc::clone(knowledge_bases),
        }
    }
}

impl DemoSeeder {
    /// Seeds the demo: the author creates and submits the release, and the approver approves and activates it. If a
    /// release of the workload already serves in the environment, nothing changes.
    ///
    /// # Errors
    /// When another resource has a slug of the demo, or a step is refused. Created resources remain, and the next
    /// attempt continues from them.
    pub async fn seed(&self, author: &Caller, approver: &Caller, demo: &DemoWorkload) -> Result<SeedOutcome, Failure> {
        let scope = TenantScope::for_caller(author);
        let workload_id = self.demo_workload(author, demo).await?;
        let deployment = self.deployment_store.deployment(scope, workload_id, &demo.environment).await?;
        if let Some((_, serving_release)) = deployment.and_then(|deployment| deployment.representative_release()) {
            return Ok(SeedOutcome::Unchanged(serving_release));
        }
        let mut bound_versions = Vec::new();
        for asset in &demo.assets {
            bound_versions.push(self.demo_version(author, asset).await?);
        }
        self.add_demo_documents(author, demo).await?;
        let policy_bundle = bound_versions.iter().find(|(_, _, kind)| *kind == AssetKind::PolicyBundle);
        let draft = ReleaseDraft {
            workload_id,
            environment: demo.environment.clone(),
            target_lane: TargetLane::All,
            policy_bundle_id: policy_bundle.map(|(asset, _, _)| *asset),
        };
        // The idempotency key depends only on the bound versions and on the number of releases that have served.
        // Concurrent and repeated attempts therefore share one draft.
        let versions: Vec<String> =
            bound_versions.iter().map(|(_, version, _)| version.uuid().simple().to_string()).collect();
        let served_count = self.count_served_releases(scope, workload_id).await?;
        let key = step_key(author, &format!("draft {served_count} {}", versions.join(" ")));
        let release = self.releases.create_release(author, draft, Some(&key)).await?.value.release;
        for (_, version, kind) in &bound_versions {
            let key = step_key(author, &format!("bind {} {kind}", release.release_id));
            self.releases.bind_version(author, release.release_id, *version, *kind, Some(&key)).await?;
        }
        self.activate_demo(author, approver, release.release_id).await?;
        Ok(SeedOutcome::Activated(release.release_id))
    }

    /// Returns the number of a workload's releases that have served, counted up to one page.
    async fn count_served_releases(&self, scope: TenantScope, workload: WorkloadId) -> Result<usize, Failure> {
        let filter = ReleaseFilter { workload: Some(workload), ..ReleaseFilter::default() };
        let releases = self.release_store.list(scope, &filter, PageRequest::first(PAGE)).await?;
        let has_served = |state: StateName| match state {
            StateName::Active | StateName::Superseded | StateName::Retired => true,
            StateName::Draft | StateName::ReviewReady | StateName::Approved => false,
        };
        Ok(releases.rows.iter().filter(|release| has_served(release.state.name())).count())
    }

    async fn demo_workload(&self, author: &Caller, demo: &DemoWorkload) -> Result<WorkloadId, Failure> {
        let scope = TenantScope::for_caller(author);
        let stored = self.workload_store.find_by_slug(scope, &demo.slug).await?;
        let workload = match stored {
            Some(workload) => workload,
            None => {
                let draft = CreateWorkloadParams {
                    slug: demo.slug.clone(),
                    name: demo.name.clone(),
                    description: demo.description.clone(),
                    owner_ref: demo.owner_ref.clone(),
                    invocation_mode: demo.invocation_mode,
                    workspace_id: None,
                };
                let key = step_key(author, &format!("workload {}", demo.slug.as_str()));
                self.workloads.create_workload(author, draft, Some(&key)).await?.value
            }
        };
        // An interrupted attempt may have created the workload without its interface. If its times of creation and
        // change are equal, the workload was not changed since, and this attempt adds the interface.
        let is_incomplete = workload.interface_config.is_none() && workload.updated_at == workload.created_at;
        if is_incomplete && demo.interface_config.is_some() {
            let patch =
                WorkloadPatch { interface_config: Some(demo.interface_config.clone()), ..WorkloadPatch::default() };
            self.workloads.change_workload(author, workload.workload_id, &patch, &Precondition::Any).await?;
        }
        Ok(workload.workload_id)
    }

    /// Returns the newest version of an asset if it has the demo's content; otherwise creates a version.
    async fn demo_version(
        &self,
        author: &Caller,
        demo_asset: &DemoAsset,
    ) -> Result<(AssetId, AssetVersionId, AssetKind), Failure> {
        let DemoAsset { slug, owner_ref, content } = demo_asset;
        let (kind, canonical) = match content {
            DemoAssetContent::Document(kind, content) => (*kind, Canonical::of(content)?),
            DemoAssetContent::Flow(yaml) => {
                let content = flow::parse_yaml(yaml).map_err(Failure::Flow)?.to_content();
                (AssetKind::OrchestrationFlow, Canonical::of(&content)?)
            }
        };
        let mut stored = self.asset_store.find_by_slug(TenantScope::for_caller(author), slug, None).await?;
        if stored.is_none() {
            stored = self.create_demo_asset(author, slug, owner_ref, content).await?;
        }
        let (asset, newest) = stored.ok_or(Failure::Inconsistent("a created asset is missing"))?;
        if asset.kind != kind {
            return Err(Failure::Conflict(ConstraintConflict::DuplicateSlug));
        }
        let version = match newest.filter(|version| version.checksum == *canonical.checksum()) {
            Some(version) => version,
            None => self.add_demo_version(author, asset.asset_id, content).await?,
        };
        Ok((asset.asset_id, version.asset_version_id, kind))
    }

    async fn create_demo_asset(
        &self,
        author: &Caller,
        slug: &Slug,
        owner_ref: &OwnerRef,
        content: &DemoAssetContent,
    ) -> Result<Option<(Asset, Option<AssetVersion>)>, Failure> {
        let key = step_key(author, &format!("asset {}", slug.as_str()));
        match content {
            DemoAssetContent::Document(kind, _) => {
                let draft = CreateAssetParams {
                    slug: slug.clone(),
                    kind: *kind,
                    owner_ref: owner_ref.clone(),
                    workspace_id: None,
                };
                let asset = self.assets.create_asset(author, draft, Some(&key)).await?.value;
                Ok(Some((asset, None)))
            }
            DemoAssetContent::Flow(yaml) => {
                let new_flow = NewFlow {
                    slug: slug.clone(),
                    owner_ref: owner_ref.clone(),
                    version_label: None,
                    change_note: None,
                    content_yaml: yaml.clone(),
                    workspace_id: None,
                };
                let flow = self.flows.create_flow(author, new_flow, Some(&key)).await?.value;
                Ok(Some((flow.asset, flow.newest.map(|newest| newest.version))))
            }
        }
    }

    async fn add_demo_version(
        &self,
        author: &Caller,
        asset: AssetId,
        content: &DemoAssetContent,
    ) -> Result<AssetVersion, Failure> {
        match content {
            DemoAssetContent::Document(_, content) => {
                let draft = CreateVersionParams { content: content.clone(), label: None, change_note: None };
                Ok(self.assets.create_asset_version(author, asset, None, draft, None).await?.1.value)
            }
            DemoAssetContent::Flow(yaml) => {
                let new_version = NewFlowVersion { content_yaml: yaml.clone(), label: None, change_note: None };
                Ok(self.flows.create_flow_version(author, asset, None, new_version, None).await?.1.value.version)
            }
        }
    }

    /// Adds the documents of the demo. The step has an idempotency key, so a repeated attempt adds them only once.
    async fn add_demo_documents(&self, author: &Caller, demo: &DemoWorkload) -> Result<(), Failure> {
        let Some((slug, documents)) = &demo.documents else { return Ok(()) };
        let stored = self.asset_store.find_by_slug(TenantScope::for_caller(author), slug, None).await?;
        let (base, _) = stored.ok_or(Failure::Inconsistent("the knowledge base of the demo is missing"))?;
        let key = step_key(author, &format!("documents {}", slug.as_str()));
        let drafts = documents.clone();
        self.knowledge_bases.add_documents(author, base.asset_id, base.workspace_id, drafts, Some(&key)).await?;
        Ok(())
    }

    /// Performs the transitions that remain until the release serves.
    async fn activate_demo(&self, author: &Caller, approver: &Caller, id: ReleaseId) -> Result<(), Failure> {
        loop {
            let release = self.releases.read_release(author, id).await?.release;
            let (caller, target_state) = match release.state.name() {
                StateName::Draft => (author, StateName::ReviewReady),
                StateName::ReviewReady => {
                    let key = step_key(approver, &format!("approve {id}"));
                    self.releases
                        .review_release(
                            approver,
                            id,
                            ReleaseVerdict::Approved,
                            Note::parse(NOTE),
                            &Precondition::Any,
                            Some(&key),
                        )
                        .await?;
                    (approver, StateName::Approved)
                }
                StateName::Approved => (approver, StateName::Active),
                StateName::Active => return Ok(()),
                // A concurrent request changed the state of the release.
                StateName::Superseded | StateName::Retired => return Err(Failure::Contended),
            };
            let transition = Transition { to: target_state, lanes: LaneSelection::All };
            let key = step_key(caller, &format!("{} {id}", target_state.as_str()));
            self.releases.transition_release(caller, id, transition, &Precondition::Any, Some(&key)).await?;
        }
    }
}

/// Returns the idempotency key of a step, so that a concurrent or repeated attempt finds the resource that the step
/// created.
fn step_key(caller: &Caller, step: &str) -> RequestKey {
    RequestKey {
        key: step.to_owned(),
        caller: caller.actor.clone(),
        route: "seed demo".to_owned(),
        body_digest: [0; 32],
    }
}
