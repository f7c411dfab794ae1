//! Operations on assets and their versions.

mod artifacts;
mod content_validation;
mod diff;
mod grant;
mod impact;
mod lifecycle;
mod visibility;

pub(crate) use artifacts::RecordedMismatches;
pub use artifacts::{Artifacts, Discrepancy, GarbageCollectionReport, VerificationReport};
pub use impact::{BlastRadius, ImpactedRelease, ImpactedWorkload, ReferenceHop};
pub use lifecycle::LifecycleCommand;

use crate::{
    Failure, MaybeReplayed, Stores,
    access::{Operation, ScopeResolver, authorize},
    commit_context::CommitContext,
    idempotency::{KeyedRequests, keyed_outcome},
    services::{CommonOperations, SharedState},
};
pub(crate) use content_validation::{ValidContent, validate};
use fairway_domain::{
    access::{AccessStore, Caller, OwnerRef, ResourcePosition},
    asset::{
        Asset, AssetVersion, Lifecycle, NewAsset, VersionContent, VersionLabel,
        grant::AssetGrantStore,
        impact::ImpactStore,
        kind::AssetKind,
        ports::{AssetStore, VersionStore},
    },
    generator,
    id::{AssetId, AssetVersionId, NamespaceId, WorkspaceId},
    idempotency::RequestKey,
    note::Note,
    slug::Slug,
    store::{Page, PageRequest},
};
use serde_json::Value;
use std::sync::Arc;

/// The parameters of a new asset.
#[derive(Clone, Debug)]
pub struct CreateAssetParams {
    /// The slug under which content refers to the asset.
    pub slug: Slug,
    /// The kind of the asset, which determines the schema of its contents.
    pub kind: AssetKind,
    /// The principal that is responsible for the asset.
    pub owner_ref: OwnerRef,
    /// The workspace of the asset; `None` selects the workspace that the caller's roles determine.
    pub workspace_id: Option<WorkspaceId>,
}

/// The parameters of a new version.
#[derive(Clone, Debug)]
pub struct CreateVersionParams {
    /// The content to validate and store.
    pub content: Value,
    /// The label of the version; `None` selects the next `vN`.
    pub label: Option<VersionLabel>,
    /// The author's reason for the version.
    pub change_note: Option<Note>,
}

/// Filter of an asset list.
#[derive(Clone, Debug, Default)]
pub struct AssetQuery {
    /// Only assets that are visible from this workspace.
    pub workspace_id: Option<WorkspaceId>,
    /// Only assets of this kind.
    pub kind: Option<AssetKind>,
    /// Only assets in this state.
    pub lifecycle: Option<Lifecycle>,
}

/// Refuses slugs that are reserved for built-in assets.
pub(crate) fn check_slug_not_reserved(slug: &Slug) -> Result<(), Failure> {
    if generator::is_reserved_slug(slug.as_str()) {
        return Err(Failure::invalid_field("slug", "reserved_slug", "this slug is reserved for built-in resources"));
    }
    Ok(())
}

/// Returns the workspace and namespace of a resource position.
pub(crate) fn workspace_and_namespace(position: &ResourcePosition) -> Result<(WorkspaceId, NamespaceId), Failure> {
    position.workspace.zip(position.namespace).ok_or(Failure::Inconsistent("a workspace without a namespace"))
}

/// Operations on assets, their versions, grants and references.
#[derive(Clone)]
pub struct Assets {
    pub(crate) context: CommitContext,
    pub(crate) access_store: Arc<dyn AccessStore>,
    pub(crate) asset_grant_store: Arc<dyn AssetGrantStore>,
    pub(crate) asset_store: Arc<dyn AssetStore>,
    pub(crate) version_store: Arc<dyn VersionStore>,
    pub(crate) impact_store: Arc<dyn ImpactStore>,
    pub(crate) scope_resolver: Arc<ScopeResolver>,
    pub(crate) keyed_requests: Arc<KeyedRequests>,
    pub(crate) artifacts: Arc<Artifacts>,
}

impl Assets {
    pub(crate) fn new(stores: &Stores, shared: &SharedState, common: &CommonOperations) -> Self {
        Self {
            context: shared.context.clone(),
            access_store: Arc::clone(&stores.access),
            asset_grant_store: Arc::clone(&stores.asset_grants),
            asset_store: Arc::clone(&stores.assets),
            version_store: Arc::clone(&stores.versions),
            impact_store: Arc::clone(&stores.impact),
            scope_resolver: Arc::clone(&common.scope_resolver),
            keyed_requests: Arc::clone(&common.keyed_requests),
            artifacts: Arc::clone(&common.artifacts),
        }
    }
}

impl Assets {
    /// Creates an asset, which is active at once.
    ///
    /// # Errors
    /// When the caller may not create assets in the workspace, or the slug is taken.
    pub async fn create_asset(
        &self,
        caller: &Caller,
        draft: CreateAssetParams,
        key: Option<&RequestKey>,
    ) -> Result<MaybeReplayed<Asset>, Failure> {
        let position =
            self.scope_resolver.position_for_new_resource(caller, Operation::CreateAsset, draft.workspace_id).await?;
        let scope = authorize::authorize(caller, Operation::CreateAsset, &position)?;
        let (workspace_id, namespace_id) = workspace_and_namespace(&position)?;
        self.keyed_requests
            .idempotent(
                scope,
                key,
                async || {
                    let asset_id: AssetId = self.context.new_id();
                    let CreateAssetParams { slug, kind, owner_ref, workspace_id: _ } = draft;
                    check_slug_not_reserved(&slug)?;
                    let new_asset = NewAsset { asset_id, slug, kind, owner_ref, workspace_id, namespace_id };
                    let change = Asset::create(new_asset, &self.context.stamp(caller));
                    let asset = change.next.clone();
                    let outcome = keyed_outcome(key, 201, asset_id.uuid());
                    self.asset_store.commit_new(scope, change, outcome.as_ref()).await?;
                    Ok(asset)
                },
                async |id| {
                    self.authorize_asset_from_anywhere(caller, Operation::ReadAsset, id.into())
                        .await
                        .map(|(_, asset)| asset)
                },
            )
            .await
    }

    /// Returns an asset that is visible from a workspace.
    ///
    /// # Errors
    /// Not found when the caller does not see the asset from that workspace.
    pub async fn read_asset(
        &self,
        caller: &Caller,
        id: AssetId,
        from_workspace: WorkspaceId,
    ) -> Result<Asset, Failure> {
        self.authorize_asset_from(caller, Operation::ReadAsset, id, from_workspace).await.map(|(_, asset)| asset)
    }

    /// Adds a version: validates the content, and stores its artifact and then its row. The asset must be visible from
    /// `from_workspace`, or from any workspace if this argument is `None`. Returns the version with its asset.
    ///
    /// # Errors
    /// When the caller may not edit the asset, the content is invalid, or the label is taken.
    pub async fn create_asset_version(
        &self,
        caller: &Caller,
        asset_id: AssetId,
        from_workspace: Option<WorkspaceId>,
        draft: CreateVersionParams,
        key: Option<&RequestKey>,
    ) -> Result<(Asset, MaybeReplayed<AssetVersion>), Failure> {
        let (scope, asset) =
            self.authorize_asset_from_optional(caller, Operation::CreateAssetVersion, asset_id, from_workspace).await?;
        let CreateVersionParams { content, label, change_note } = draft;
        let outcome = self.keyed_requests.idempotent(
            scope,
            key,
            async || {
                let ValidContent { prompt, canonical, references } = validate(scope, asset.kind, content).await?;
                if let Some(prompt) = prompt {
                    self.check_includes(caller, &asset, &prompt).await?;
                }
                let id: AssetVersionId = self.context.new_id();
                let version_content = VersionContent { canonical, source_text: None, change_note, references };
                let change = asset.add_version(id, label, version_content, &self.context.stamp(caller))?;
                self.artifacts.put_artifact(caller, scope, asset.workspace_id, &change.next).await?;
                let outcome = keyed_outcome(key, 201, id.uuid());
                Ok(self.version_store.commit_version(scope, change, outcome.as_ref()).await?)
            },
            async |id| self.read_created_version(caller, asset_id, id.into()).await,
        );
        let outcome = outcome.await?;
        Ok((asset, outcome))
    }

    /// Lists the versions of an asset, newest first. The asset must be visible from the given workspace.
    ///
    /// # Errors
    /// Not found when the caller does not see the asset from that workspace.
    pub async fn list_asset_versions(
        &self,
        caller: &Caller,
        id: AssetId,
        from_workspace: WorkspaceId,
        page: PageRequest,
    ) -> Result<Page<AssetVersion>, Failure> {
        let (scope, _) = self.authorize_asset_from(caller, Operation::ListAssetVersions, id, from_workspace).await?;
        Ok(self.version_store.list_versions(scope, id, page).await?)
    }

    /// Returns one version with its asset's kind, and its source text if one is stored. The asset must be visible
    /// from the given workspace.
    ///
    /// # Errors
    /// Not found when the caller does not see the asset from that workspace.
    pub async fn read_asset_version(
        &self,
        caller: &Caller,
        asset: AssetId,
        version: AssetVersionId,
        from_workspace: WorkspaceId,
    ) -> Result<(AssetKind, AssetVersion, Option<String>), Failure> {
        let (scope, _) = self.authorize_asset_from(caller, Operation::ReadAssetVersion, asset, from_workspace).await?;
        let stored = self.version_store.find_version(scope, version).await?;
        let stored = stored.filter(|(parent, _)| parent.asset_id == asset);
        let (parent, version) = stored.ok_or(Failure::NotFound)?;
        let source = if parent.kind == AssetKind::OrchestrationFlow {
            self.version_store.source_text(scope, version.asset_version_id).await?
        } else {
            None
        };
        Ok((parent.kind, version, source))
    }

    pub(crate) async fn read_created_version(
        &self,
        caller: &Caller,
        asset: AssetId,
        id: AssetVersionId,
    ) -> Result<AssetVersion, Failure> {
        let (scope, _) = self.authorize_asset_from_anywhere(caller, Operation::ReadAssetVersion, asset).await?;
        let stored = self.version_store.find_version(scope, id).await?;
        stored.map(|(_, version)| version).ok_or(Failure::NotFound)
    }
}
