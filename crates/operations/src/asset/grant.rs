//! Asset grants: granting and revoking access to assets.

use crate::{Failure, MaybeReplayed, access::Operation, asset::Assets, idempotency::keyed_outcome};
use fairway_domain::{
    access::{Caller, GrantScope},
    asset::grant::{AssetGrant, Grantee},
    audit::FactKind,
    id::{AssetGrantId, AssetId, WorkspaceId},
    idempotency::RequestKey,
    store::{CommitError, Page, PageRequest},
};

impl Assets {
    /// Lists the grants of an asset, newest first.
    ///
    /// # Errors
    /// When the caller does not see the asset from that workspace, or may not edit it.
    pub async fn list_asset_grants(
        &self,
        caller: &Caller,
        id: AssetId,
        from_workspace: WorkspaceId,
        page: PageRequest,
    ) -> Result<Page<AssetGrant>, Failure> {
        let (scope, asset) = self.authorize_asset_from(caller, Operation::ListAssetGrants, id, from_workspace).await?;
        Ok(self.asset_grant_store.list(scope, asset.asset_id, page).await?)
    }

    /// Grants an asset to a principal or to a workspace of the tenant.
    ///
    /// # Errors
    /// In these cases: the caller does not see the asset from that workspace or may not edit it; the workspace is not
    /// found; the principal cannot hold grants; the grant exists.
    pub async fn create_asset_grant(
        &self,
        caller: &Caller,
        id: AssetId,
        from_workspace: WorkspaceId,
        grantee: Grantee,
        key: Option<&RequestKey>,
    ) -> Result<MaybeReplayed<AssetGrant>, Failure> {
        let (scope, asset) = self.authorize_asset_from(caller, Operation::CreateAssetGrant, id, from_workspace).await?;
        self.keyed_requests
            .idempotent(
                scope,
                key,
                async || {
                    if let Grantee::Workspace(workspace) = grantee {
                        let position =
                            self.access_store.resolve_scope(scope, &GrantScope::Workspace(workspace)).await?;
                        position.ok_or(Failure::NotFound)?;
                    }
                    let grant_id: AssetGrantId = self.context.new_id();
                    let change = AssetGrant::create(grant_id, &asset, grantee, &self.context.stamp(caller))?;
                    let grant = change.next.clone();
                    let outcome = keyed_outcome(key, 201, grant_id.uuid());
                    self.asset_grant_store.commit_grant(scope, change, outcome.as_ref()).await?;
                    Ok(grant)
                },
                async |grant| self.asset_grant_store.find(scope, id, grant.into()).await?.ok_or(Failure::NotFound),
            )
            .await
    }

    /// Revokes a grant. The revocation applies to the next request.
    ///
    /// # Errors
    /// When the caller does not see the asset from that workspace or may not edit it, or the grant does not exist.
    pub async fn delete_asset_grant(
        &self,
        caller: &Caller,
        id: AssetId,
        from_workspace: WorkspaceId,
        grant: AssetGrantId,
    ) -> Result<(), Failure> {
        let (scope, asset) = self.authorize_asset_from(caller, Operation::DeleteAssetGrant, id, from_workspace).await?;
        let asset_grant = self.asset_grant_store.find(scope, id, grant).await?.ok_or(Failure::NotFound)?;
        let fact = asset_grant.fact(FactKind::AssetGrantDeleted, &asset, &self.context.stamp(caller));
        match self.asset_grant_store.commit_revocation(scope, grant, fact).await {
            // A concurrent request has revoked the grant.
            Err(CommitError::Stale) => return Err(Failure::NotFound),
            committed => committed?,
        }
        self.context.notify_facts();
        Ok(())
    }
}
