//! Flows: assets whose versions are submitted as YAML. The store contains the YAML text, and the content that was
//! parsed from it.

use crate::{
    Failure, MaybeReplayed, Stores,
    access::{Operation, ScopeResolver, authorize},
    asset::{Artifacts, Assets, check_slug_not_reserved, workspace_and_namespace},
    blocking::{ProcessorWait, run_blocking},
    commit_context::CommitContext,
    idempotency::{KeyedRequests, keyed_outcome},
    services::{CommonOperations, SharedState},
};
use fairway_domain::{
    access::{Caller, OwnerRef},
    asset::{
        Asset, AssetVersion, NewAsset, VersionContent, VersionLabel, canonical::Canonical, kind::AssetKind,
        ports::VersionStore,
    },
    flow::{self, FlowProblem},
    id::{AssetId, AssetVersionId, WorkspaceId},
    idempotency::RequestKey,
    note::Note,
    slug::Slug,
    store::PageRequest,
    tenant::TenantScope,
};
use std::sync::Arc;

/// The parameters of a new flow: an asset with its first version.
#[derive(Clone, Debug)]
pub struct NewFlow {
    /// The slug under which the flow's asset is created.
    pub slug: Slug,
    /// The principal that is responsible for the flow.
    pub owner_ref: OwnerRef,
    /// The label of the first version; `None` selects `v1`.
    pub version_label: Option<VersionLabel>,
    /// The author's reason for the first version.
    pub change_note: Option<Note>,
    /// The YAML text of the first version.
    pub content_yaml: String,
    /// The workspace of the flow; `None` selects the workspace that the caller's roles determine.
    pub workspace_id: Option<WorkspaceId>,
}

/// The parameters of a new flow version.
#[derive(Clone, Debug)]
pub struct NewFlowVersion {
    /// The YAML text of the new version.
    pub content_yaml: String,
    /// The label of the version; `None` selects the next `vN`.
    pub label: Option<VersionLabel>,
    /// The author's reason for the version.
    pub change_note: Option<Note>,
}

/// A flow with its newest version.
#[derive(Clone, Debug)]
pub struct FlowView {
    /// The asset of kind `orchestration_flow`.
    pub asset: Asset,
    /// The newest version of the flow; `None` for an asset without a version.
    pub newest: Option<FlowVersion>,
}

/// A flow version with its YAML text.
#[derive(Clone, Debug)]
pub struct FlowVersion {
    /// The asset version with the canonical content.
    pub version: AssetVersion,
    /// The YAML text as submitted; `None` for a version that was submitted as JSON.
    pub content_yaml: Option<String>,
}

/// Parses a YAML text into canonical content; returns the content and the text.
async fn parse_content(scope: TenantScope, text: String) -> Result<(Canonical, String), Failure> {
    // YAML aliases may expand a short text to large content, so parsing takes place on the blocking pool.
    let parsed = run_blocking(scope, ProcessorWait::Request, move || {
        let content = flow::parse_yaml(&text).map_err(Failure::Flow)?.to_content();
        Ok((Canonical::of(&content)?, text))
    });
    parsed.await?
}

/// Creates, validates and reads flows from YAML.
#[derive(Clone)]
pub struct Flows {
    context: CommitContext,
    version_store: Arc<dyn VersionStore>,
    scope_resolver: Arc<ScopeResolver>,
    keyed_requests: Arc<KeyedRequests>,
    artifacts: Arc<Artifacts>,
    assets: Arc<Assets>,
}

impl Flows {
    pub(crate) fn new(stores: &Stores, shared: &SharedState, common: &CommonOperations, assets: &Arc<Assets>) -> Self {
        Self {
            context: shared.context.clone(),
            version_store: Arc::clone(&stores.versions),
            scope_resolver: Arc::clone(&common.scope_resolver),
            keyed_requests: Arc::clone(&common.keyed_requests),
            artifacts: Arc::clone(&common.artifacts),
            assets: Arc::clone(assets),
        }
    }
}

impl Flows {
    /// Authorizes the creation of a flow before its body is read. If the query names no workspace, the unread body may
    /// name one. The caller then needs the permission in at least one workspace.
    ///
    /// # Errors
    /// When the caller may not create flows in the workspace, or in any workspace if the query names none.
    pub async fn preauthorize_new_flow(&self, caller: &Caller, workspace: Option<WorkspaceId>) -> Result<(), Failure> {
        match workspace {
            Some(workspace) => self
                .scope_resolver
                .position_for_new_resource(caller, Operation::CreateFlow, Some(workspace))
                .await
                .map(|_| ()),
            None => authorize::authorize_list(caller, Operation::CreateFlow).map(|_| ()),
        }
    }

    /// Creates a flow from YAML: an asset and its first version.
    ///
    /// # Errors
    /// When the caller may not create assets in the workspace, the flow is invalid, or the slug is taken.
    pub async fn create_flow(
        &self,
        caller: &Caller,
        new_flow: NewFlow,
        key: Option<&RequestKey>,
    ) -> Result<MaybeReplayed<FlowView>, Failure> {
        let position =
            self.scope_resolver.position_for_new_resource(caller, Operation::CreateFlow, new_flow.workspace_id).await?;
        let scope = authorize::authorize(caller, Operation::CreateFlow, &position)?;
        let (workspace_id, namespace_id) = workspace_and_namespace(&position)?;
        self.keyed_requests
            .idempotent(
                scope,
                key,
                async || {
                    let NewFlow { slug, owner_ref, version_label, change_note, content_yaml, workspace_id: _ } =
                        new_flow;
                    check_slug_not_reserved(&slug)?;
                    let (canonical, content_yaml) = parse_content(scope, content_yaml).await?;
                    let (asset_id, id) = (self.context.new_id::<AssetId>(), self.context.new_id::<AssetVersionId>());
                    let kind = AssetKind::OrchestrationFlow;
                    let new_asset = NewAsset { asset_id, slug, kind, owner_ref, workspace_id, namespace_id };
                    let version_content = VersionContent { change_note, ..with_source(canonical, &content_yaml) };
                    let change =
                        Asset::create_flow(new_asset, id, version_label, version_content, &self.context.stamp(caller));
                    let asset = change.next.0.clone();
                    self.artifacts.put_artifact(caller, scope, workspace_id, &change.next.1).await?;
                    let outcome = keyed_outcome(key, 201, asset_id.uuid());
                    let version = self.version_store.commit_flow(scope, change, outcome.as_ref()).await?;
                    Ok(FlowView { asset, newest: Some(FlowVersion { version, content_yaml: Some(content_yaml) }) })
                },
                async |id| {
                    let (scope, asset) =
                        self.assets.authorize_asset_from_anywhere(caller, Operation::ReadFlow, id.into()).await?;
                    self.flow_view(scope, asset).await
                },
            )
            .await
    }

    /// Adds a version to a flow. The flow must be visible from `from_workspace`, or from any workspace if this argument
    /// is `None`. Returns the version with the flow's asset.
    ///
    /// # Errors
    /// Not found when the caller does not see the flow; also when it may not edit the flow, the flow is invalid, or the
    /// label is taken.
    pub async fn create_flow_version(
        &self,
        caller: &Caller,
        id: AssetId,
        from_workspace: Option<WorkspaceId>,
        new_version: NewFlowVersion,
        key: Option<&RequestKey>,
    ) -> Result<(Asset, MaybeReplayed<FlowVersion>), Failure> {
        let (scope, asset) = self.flow_from_optional(caller, Operation::CreateFlowVersion, id, from_workspace).await?;
        let outcome = self.keyed_requests.idempotent(
            scope,
            key,
            async || {
                let NewFlowVersion { content_yaml, label, change_note } = new_version;
                let (canonical, content_yaml) = parse_content(scope, content_yaml).await?;
                let version_id: AssetVersionId = self.context.new_id();
                let version_content = VersionContent { change_note, ..with_source(canonical, &content_yaml) };
                let change = asset.add_version(version_id, label, version_content, &self.context.stamp(caller))?;
                self.artifacts.put_artifact(caller, scope, asset.workspace_id, &change.next).await?;
                let outcome = keyed_outcome(key, 201, version_id.uuid());
                let version = self.version_store.commit_version(scope, change, outcome.as_ref()).await?;
                Ok(FlowVersion { version, content_yaml: Some(content_yaml) })
            },
            async |version| {
                let version = self.assets.read_created_version(caller, id, version.into()).await?;
                self.flow_version(scope, version).await
            },
        );
        let outcome = outcome.await?;
        Ok((asset, outcome))
    }

    /// Validates a YAML text as a version of a flow without storing it, and returns every problem. The flow must be
    /// visible from `from_workspace`, or from its own workspace if this argument is `None`.
    ///
    /// # Errors
    /// Not found when the caller does not see the flow.
    pub async fn validate_flow(
        &self,
        caller: &Caller,
        id: AssetId,
        from_workspace: Option<WorkspaceId>,
        content_yaml: String,
    ) -> Result<Vec<FlowProblem>, Failure> {
        let (scope, _) = self.flow_from_optional(caller, Operation::ValidateFlow, id, from_workspace).await?;
        let validate = move || flow::parse_yaml(&content_yaml).err().unwrap_or_default();
        run_blocking(scope, ProcessorWait::Request, validate).await
    }

    /// Returns a flow with its newest version and the YAML text of that version.
    ///
    /// # Errors
    /// Not found when the caller does not see the asset, or the asset is not a flow.
    pub async fn read_flow(
        &self,
        caller: &Caller,
        id: AssetId,
        from_workspace: WorkspaceId,
    ) -> Result<FlowView, Failure> {
        let (scope, asset) = self.flow_from(caller, Operation::ReadFlow, id, from_workspace).await?;
        self.flow_view(scope, asset).await
    }

    async fn flow_from(
        &self,
        caller: &Caller,
        operation: Operation,
        id: AssetId,
        from_workspace: WorkspaceId,
    ) -> Result<(TenantScope, Asset), Failure> {
        self.assets
            .authorize_asset_from(caller, operation, id, from_workspace)
            .await
            .and_then(|(scope, asset)| ensure_flow(scope, asset))
    }

    async fn flow_from_optional(
        &self,
        caller: &Caller,
        operation: Operation,
        id: AssetId,
        from_workspace: Option<WorkspaceId>,
    ) -> Result<(TenantScope, Asset), Failure> {
        self.assets
            .authorize_asset_from_optional(caller, operation, id, from_workspace)
            .await
            .and_then(|(scope, asset)| ensure_flow(scope, asset))
    }

    async fn flow_view(&self, scope: TenantScope, asset: Asset) -> Result<FlowView, Failure> {
        let mut newest = self.version_store.list_versions(scope, asset.asset_id, PageRequest::first(1)).await?;
        let newest = match newest.rows.pop() {
            Some(version) => Some(self.flow_version(scope, version).await?),
            None => None,
        };
        Ok(FlowView { asset, newest })
    }

    async fn flow_version(&self, scope: TenantScope, version: AssetVersion) -> Result<FlowVersion, Failure> {
        let content_yaml = self.version_store.source_text(scope, version.asset_version_id).await?;
        Ok(FlowVersion { version, content_yaml })
    }
}

/// Returns the content of a flow version with its source text. The content has no references, because flows name
/// bindings by role and never by slug.
fn with_source(canonical: Canonical, content_yaml: &str) -> VersionContent {
    VersionContent { source_text: Some(content_yaml.to_owned()), ..canonical.into() }
}

fn ensure_flow(scope: TenantScope, asset: Asset) -> Result<(TenantScope, Asset), Failure> {
    if asset.kind == AssetKind::OrchestrationFlow { Ok((scope, asset)) } else { Err(Failure::NotFound) }
}
