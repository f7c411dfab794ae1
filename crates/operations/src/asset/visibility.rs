//! Visibility of assets.
//!
//! An asset is visible from every workspace of its namespace, to principals that may view assets in at least one of
//! these workspaces. Grants make an asset visible to further principals, and from further workspaces. Built-in assets
//! are visible from every workspace. A caller that does not see an asset receives not found. A change requires a
//! permission in the asset's own workspace.

use super::AssetQuery;
use crate::{
    Failure,
    access::{Operation, authorize},
    asset::Assets,
};
use fairway_domain::{
    access::{Caller, Permission, ResourcePosition, rights::VisibleScopes},
    asset::{
        Asset, OwnershipTier,
        ports::{AssetFilter, AssetVisibility},
    },
    id::{AssetId, NamespaceId, WorkspaceId},
    store::{Page, PageRequest},
    tenant::TenantScope,
};
use std::collections::HashSet;

impl Assets {
    /// Lists assets, newest first. The query can select one kind, one lifecycle state, and the assets that are visible
    /// from one workspace.
    ///
    /// # Errors
    /// When the caller sees no assets at all, or the named workspace is not found.
    pub async fn list_assets(
        &self,
        caller: &Caller,
        operation: Operation,
        query: &AssetQuery,
        page: PageRequest,
    ) -> Result<Page<Asset>, Failure> {
        let (scope, visibility) = self.asset_visibility(caller, operation, query.workspace_id).await?;
        let filter = AssetFilter { visibility, kind: query.kind, lifecycle: query.lifecycle };
        Ok(self.asset_store.list(scope, &filter, page).await?)
    }

    async fn asset_visibility(
        &self,
        caller: &Caller,
        operation: Operation,
        from_workspace: Option<WorkspaceId>,
    ) -> Result<(TenantScope, AssetVisibility), Failure> {
        let tenant_scope = TenantScope::for_caller(caller);
        let principals = caller.principals();
        let (scope, scopes) = match authorize::authorize_list(caller, operation) {
            // A caller without view permissions may still have grants.
            Err(refusal) => {
                if !self.asset_grant_store.has_any_grant(tenant_scope, &principals).await? {
                    return Err(refusal);
                }
                (tenant_scope, Some(VisibleScopes::default()))
            }
            Ok(authorized_list) => authorized_list,
        };
        let Some(from_workspace) = from_workspace else {
            let visibility = match scopes {
                None => AssetVisibility::Tenant,
                Some(scopes) => AssetVisibility::InScopes { scopes, principals },
            };
            return Ok((scope, visibility));
        };
        let position = self.scope_resolver.workspace_position_unchecked(caller, from_workspace).await?;
        let namespace = position.namespace.ok_or(Failure::Inconsistent("a workspace without a namespace"))?;
        if self.views_namespace(caller, namespace).await? {
            let workspace = caller.rights.allow(Permission::AssetView, &position).then_some(from_workspace);
            return Ok((scope, AssetVisibility::FromWorkspace { namespace, workspace, principals }));
        }
        if self.asset_grant_store.has_any_grant(scope, &principals).await? {
            return Ok((scope, AssetVisibility::InScopes { scopes: VisibleScopes::default(), principals }));
        }
        Err(Failure::NotFound)
    }

    /// Returns the asset if it is visible from a workspace.
    pub(crate) async fn authorize_asset_from(
        &self,
        caller: &Caller,
        operation: Operation,
        id: AssetId,
        from_workspace: WorkspaceId,
    ) -> Result<(TenantScope, Asset), Failure> {
        let position = self.scope_resolver.workspace_position_unchecked(caller, from_workspace).await?;
        self.authorize_visible_asset(caller, operation, id, Some(&position)).await
    }

    /// Returns the asset if it is visible from any workspace.
    pub(crate) async fn authorize_asset_from_anywhere(
        &self,
        caller: &Caller,
        operation: Operation,
        id: AssetId,
    ) -> Result<(TenantScope, Asset), Failure> {
        self.authorize_visible_asset(caller, operation, id, None).await
    }

    /// Returns the asset if it is visible from the given workspace, or from any workspace if none is given.
    pub(crate) async fn authorize_asset_from_optional(
        &self,
        caller: &Caller,
        operation: Operation,
        id: AssetId,
        from_workspace: Option<WorkspaceId>,
    ) -> Result<(TenantScope, Asset), Failure> {
        match from_workspace {
            Some(from_workspace) => self.authorize_asset_from(caller, operation, id, from_workspace).await,
            None => self.authorize_asset_from_anywhere(caller, operation, id).await,
        }
    }

    /// Authorizes a large write to an asset before its body is read. `from_workspace` is `None` if only the unread body
    /// names the workspace. The caller then needs the permission at the asset's home position, as for the write itself.
    ///
    /// # Errors
    /// The errors of the operation itself.
    pub async fn preauthorize_asset_write(
        &self,
        caller: &Caller,
        operation: Operation,
        id: AssetId,
        from_workspace: Option<WorkspaceId>,
    ) -> Result<(), Failure> {
        self.authorize_asset_from_optional(caller, operation, id, from_workspace).await.map(|_| ())
    }

    async fn authorize_visible_asset(
        &self,
        caller: &Caller,
        operation: Operation,
        id: AssetId,
        from_position: Option<&ResourcePosition>,
    ) -> Result<(TenantScope, Asset), Failure> {
        let scope = TenantScope::for_caller(caller);
        let Some(asset) = self.asset_store.find(scope, id).await? else {
            if caller.rights.scope_restriction(Permission::AssetView).is_some() {
                return Err(self.refuse_unknown_asset(caller, id).await);
            }
            return Err(Failure::NotFound);
        };
        if !self.sees_asset(caller, &asset, from_position).await? {
            return Err(Failure::NotFound);
        }
        let home_position = match asset.ownership_tier {
            OwnershipTier::Workspace => {
                ResourcePosition::workspace(caller.tenant, asset.namespace_id, asset.workspace_id)
            }
            // Only platform operators change built-in assets.
            OwnershipTier::PlatformBuiltin => ResourcePosition::INSTALLATION,
        };
        Ok((authorize::authorize_visible(caller, operation, &home_position)?, asset))
    }

    /// Returns the refusal for an unknown asset. The refusal for a hidden asset takes a lookup of grants. An unknown
    /// asset makes an equal lookup, so that the response time does not reveal whether an asset exists.
    pub(crate) async fn refuse_unknown_asset(&self, caller: &Caller, id: AssetId) -> Failure {
        let (scope, principals) = (TenantScope::for_caller(caller), caller.principals());
        match self.asset_grant_store.is_granted(scope, id, &principals, &VisibleScopes::default()).await {
            Ok(_) => Failure::NotFound,
            Err(error) => error.into(),
        }
    }

    /// Whether the caller sees an asset from a resource position, or from any workspace if `from_position` is `None`.
    pub(crate) async fn sees_asset(
        &self,
        caller: &Caller,
        asset: &Asset,
        from_position: Option<&ResourcePosition>,
    ) -> Result<bool, Failure> {
        let scopes = match from_position {
            None => {
                if self.sees_without_grant(caller, asset).await? {
                    return Ok(true);
                }
                caller.rights.scope_restriction(Permission::AssetView).unwrap_or_default()
            }
            Some(position) => {
                let is_visible_in_namespace = asset.ownership_tier == OwnershipTier::PlatformBuiltin
                    || position.namespace == Some(asset.namespace_id);
                if let Some(namespace) = position.namespace
                    && is_visible_in_namespace
                    && self.views_namespace(caller, namespace).await?
                {
                    return Ok(true);
                }
                let may_view = caller.rights.allow(Permission::AssetView, position);
                VisibleScopes {
                    workspaces: position.workspace.filter(|_| may_view).into_iter().collect(),
                    ..VisibleScopes::default()
                }
            }
        };
        let scope = TenantScope::for_caller(caller);
        Ok(self.asset_grant_store.is_granted(scope, asset.asset_id, &caller.principals(), &scopes).await?)
    }

    /// Returns those assets that the caller sees from any workspace. One query reads all their grants.
    pub(super) async fn visible_assets<'a>(
        &self,
        caller: &Caller,
        assets: impl Iterator<Item = &'a Asset> + Send,
    ) -> Result<HashSet<AssetId>, Failure> {
        let (mut visible_ids, mut other_ids) = (HashSet::new(), HashSet::new());
        for asset in assets {
            let id = asset.asset_id;
            if visible_ids.contains(&id) || other_ids.contains(&id) {
                continue;
            }
            if self.sees_without_grant(caller, asset).await? {
                visible_ids.insert(id)
            } else {
                other_ids.insert(id)
            };
        }
        if !other_ids.is_empty() {
            let (scope, other_ids) = (TenantScope::for_caller(caller), Vec::from_iter(other_ids));
            let scopes = caller.rights.scope_restriction(Permission::AssetView).unwrap_or_default();
            visible_ids.extend(
                self.asset_grant_store.select_granted_assets(scope, &other_ids, &caller.principals(), &scopes).await?,
            );
        }
        Ok(visible_ids)
    }

    /// Whether the caller sees an asset from any workspace without a grant.
    async fn sees_without_grant(&self, caller: &Caller, asset: &Asset) -> Result<bool, Failure> {
        let is_builtin = asset.ownership_tier == OwnershipTier::PlatformBuiltin;
        let views_any_asset = caller.rights.scope_restriction(Permission::AssetView) != Some(VisibleScopes::default());
        Ok(is_builtin && views_any_asset || self.views_namespace(caller, asset.namespace_id).await?)
    }

    /// Whether releases of workloads in a workspace may bind an asset, that is, whether the asset is visible from that
    /// workspace. The rights of the caller do not matter.
    pub(crate) async fn is_visible_in(
        &self,
        caller: &Caller,
        asset: &Asset,
        position: &ResourcePosition,
    ) -> Result<bool, Failure> {
        if asset.is_visible_without_grant(position.namespace) {
            return Ok(true);
        }
        let workspace_scope =
            VisibleScopes { workspaces: position.workspace.into_iter().collect(), ..VisibleScopes::default() };
        let scope = TenantScope::for_caller(caller);
        Ok(self.asset_grant_store.is_granted(scope, asset.asset_id, &[], &workspace_scope).await?)
    }

    /// Whether the caller may view the assets of at least one workspace of a namespace.
    pub(super) async fn views_namespace(&self, caller: &Caller, namespace: NamespaceId) -> Result<bool, Failure> {
        let Some(scopes) = caller.rights.scope_restriction(Permission::AssetView) else {
            return Ok(true);
        };
        if scopes.namespaces.contains(&namespace) {
            return Ok(true);
        }
        for workspace in scopes.workspaces {
            if self.scope_resolver.namespace_of(caller, workspace).await? == Some(namespace) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
