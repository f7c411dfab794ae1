//! Grants: an asset shown to somebody who would not see it.

use super::{Asset, AssetRefusal};
use crate::{
    access::{ActorKind, ActorRef, rights::Reach},
    audit::{Fact, FactKind, Stamp, Subject},
    id::{AssetGrantId, AssetId, WorkspaceId},
    idempotency::KeyedOutcome,
    store::{Change, CommitError, Listed, Paging, StoreError},
    tenant::TenantScope,
    time::Timestamp,
};
use async_trait::async_trait;
use serde_json::{Value, json};

/// Whom an asset is shown to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Grantee {
    /// A user, a group or a service, wherever they look from.
    Principal(ActorRef),
    /// Whoever may view the assets of this workspace, and the releases of its workloads.
    Workspace(WorkspaceId),
}

/// An asset shown to somebody who would not see it. It lets them view it and never change it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AssetGrant {
    /// Its identifier.
    pub grant_id: AssetGrantId,
    /// The asset.
    pub asset_id: AssetId,
    /// Whom it is shown to.
    pub grantee: Grantee,
    /// When it was granted.
    pub created_at: Timestamp,
    /// By whom.
    pub created_by: ActorRef,
}

impl AssetGrant {
    /// Shows an asset to somebody.
    ///
    /// # Errors
    /// When a principal is none that can hold anything.
    pub fn create(
        grant_id: AssetGrantId,
        asset: &Asset,
        grantee: Grantee,
        stamp: &Stamp,
    ) -> Result<Change<Self>, AssetRefusal> {
        if let Grantee::Principal(principal) = &grantee {
            match principal.kind() {
                ActorKind::User | ActorKind::Group | ActorKind::Service => {}
                ActorKind::System | ActorKind::ShareLink | ActorKind::Anonymous => return Err(AssetRefusal::Principal),
            }
        }
        let next =
            Self { grant_id, asset_id: asset.asset_id, grantee, created_at: stamp.at, created_by: stamp.actor.clone() };
        let fact = next.fact(FactKind::AssetGrantCreated, asset, stamp);
        Ok(Change::creating(next, fact))
    }

    /// The fact of this grant or of its end.
    #[must_use]
    pub fn fact(&self, kind: FactKind, asset: &Asset, stamp: &Stamp) -> Fact {
        let subject = Subject { kind: "asset_grant", id: self.grant_id.uuid() };
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

/// Keeps grants.
#[async_trait]
pub trait AssetGrantStore: Send + Sync {
    /// One grant of an asset.
    async fn find(
        &self,
        scope: TenantScope,
        asset: AssetId,
        id: AssetGrantId,
    ) -> Result<Option<AssetGrant>, StoreError>;
    /// A page of an asset's grants, newest first.
    async fn list(&self, scope: TenantScope, asset: AssetId, page: Paging) -> Result<Listed<AssetGrant>, StoreError>;
    /// Whether the asset is granted to one of the principals, or to a workspace of the reach.
    async fn is_granted(
        &self,
        scope: TenantScope,
        asset: AssetId,
        principals: &[ActorRef],
        reach: &Reach,
    ) -> Result<bool, StoreError> {
        Ok(!self.granted(scope, &[asset], principals, reach).await?.is_empty())
    }
    /// Those of the assets that are granted to one of the principals, or to a workspace of the reach.
    async fn granted(
        &self,
        scope: TenantScope,
        assets: &[AssetId],
        principals: &[ActorRef],
        reach: &Reach,
    ) -> Result<Vec<AssetId>, StoreError>;
    /// Whether anything at all is granted to one of the principals.
    async fn holds_any(&self, scope: TenantScope, principals: &[ActorRef]) -> Result<bool, StoreError>;
    /// Stores a grant.
    async fn commit_grant(
        &self,
        scope: TenantScope,
        change: Change<AssetGrant>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
    /// Takes a grant back.
    async fn commit_end(&self, scope: TenantScope, id: AssetGrantId, fact: Fact) -> Result<(), CommitError>;
}
