//! Asset grants: read access to an asset for principals and workspaces outside its namespace.

use super::{Asset, AssetRefusal};
use crate::{
    access::{ActorKind, ActorRef, rights::VisibleScopes},
    audit::{Fact, FactKind, FactSubject, Stamp},
    id::{AssetGrantId, AssetId, WorkspaceId},
    idempotency::KeyedOutcome,
    store::{Change, CommitError, Page, PageRequest, StoreError, aggregate},
    tenant::TenantScope,
    time::Timestamp,
};
use async_trait::async_trait;
use serde_json::{Value, json};

/// The principal or workspace that receives a grant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Grantee {
    /// A user, group or service, in whichever workspace it works.
    Principal(ActorRef),
    /// Every principal that may view the assets of this workspace, and every release of a workload in it.
    Workspace(WorkspaceId),
}

/// Read access to an asset for a principal or workspace outside its namespace. A grant never permits changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AssetGrant(pub(crate) AssetGrantRecord);

/// The fields of [`AssetGrant`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AssetGrantRecord {
    /// The identifier of the grant.
    pub grant_id: AssetGrantId,
    /// The asset that becomes visible.
    pub asset_id: AssetId,
    /// The principal or workspace that receives the access.
    pub grantee: Grantee,
    /// The time at which the grant was created.
    pub created_at: Timestamp,
    /// The actor that created the grant.
    pub created_by: ActorRef,
}

aggregate!(AssetGrant, AssetGrantRecord);

impl AssetGrant {
    /// Creates a grant of read access to an asset.
    ///
    /// # Errors
    /// Returns [`AssetRefusal::InvalidPrincipal`] when the principal is not a user, a group or a service.
    pub fn create(
        grant_id: AssetGrantId,
        asset: &Asset,
        grantee: Grantee,
        stamp: &Stamp,
    ) -> Result<Change<Self>, AssetRefusal> {
        if let Grantee::Principal(principal) = &grantee {
            match principal.kind() {
                ActorKind::User | ActorKind::Group | ActorKind::Service => {}
                ActorKind::System | ActorKind::ShareLink | ActorKind::Anonymous => {
                    return Err(AssetRefusal::InvalidPrincipal);
                }
            }
        }
        let next = Self(AssetGrantRecord {
            grant_id,
            asset_id: asset.asset_id,
            grantee,
            created_at: stamp.at,
            created_by: stamp.actor.clone(),
        });
        let fact = next.fact(FactKind::AssetGrantCreated, asset, stamp);
        Ok(Change::create(next, fact))
    }

    /// Builds the fact that this grant was created or revoked. `kind` says which.
    #[must_use]
    pub fn fact(&self, kind: FactKind, asset: &Asset, stamp: &Stamp) -> Fact {
        let subject = FactSubject { kind: "asset_grant", id: self.grant_id.uuid() };
        let (principal, workspace) = match &self.grantee {
            Grantee::Principal(principal) => (json!(principal.to_string()), Value::Null),
            Grantee::Workspace(id) => (Value::Null, json!(id)),
        };
        let detail = json!({
            "asset_id": self.asset_id, "principal": principal, "grantee_workspace_id": workspace,
        });
        Fact::new(kind, subject, Some(asset.workspace_id), stamp, detail)
    }
}

/// Stores asset grants.
#[async_trait]
pub trait AssetGrantStore: Send + Sync {
    /// Finds one grant of an asset.
    async fn find(
        &self,
        scope: TenantScope,
        asset: AssetId,
        id: AssetGrantId,
    ) -> Result<Option<AssetGrant>, StoreError>;
    /// Lists one page of an asset's grants, newest first.
    async fn list(&self, scope: TenantScope, asset: AssetId, page: PageRequest)
    -> Result<Page<AssetGrant>, StoreError>;
    /// Whether a grant of the asset names one of these principals, or a workspace within these scopes.
    async fn is_granted(
        &self,
        scope: TenantScope,
        asset: AssetId,
        principals: &[ActorRef],
        visible_scopes: &VisibleScopes,
    ) -> Result<bool, StoreError> {
        Ok(!self.select_granted_assets(scope, &[asset], principals, visible_scopes).await?.is_empty())
    }
    /// Selects the assets for which a grant names one of these principals, or a workspace within these scopes.
    async fn select_granted_assets(
        &self,
        scope: TenantScope,
        assets: &[AssetId],
        principals: &[ActorRef],
        visible_scopes: &VisibleScopes,
    ) -> Result<Vec<AssetId>, StoreError>;
    /// Whether a grant of any asset names one of these principals.
    async fn has_any_grant(&self, scope: TenantScope, principals: &[ActorRef]) -> Result<bool, StoreError>;
    /// Stores a new grant.
    async fn commit_grant(
        &self,
        scope: TenantScope,
        change: Change<AssetGrant>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
    /// Deletes a grant.
    async fn commit_revocation(&self, scope: TenantScope, id: AssetGrantId, fact: Fact) -> Result<(), CommitError>;
}
