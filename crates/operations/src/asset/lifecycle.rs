//! Lifecycle transitions of assets: activate, retire, archive.

use crate::{
    Failure, MaybeReplayed, Precondition,
    access::Operation,
    asset::Assets,
    idempotency::{MAX_ATTEMPTS, keyed_outcome},
};
use fairway_domain::{
    access::{Caller, Permission, ResourcePosition},
    asset::{Asset, Lifecycle},
    id::{AssetId, WorkspaceId},
    idempotency::RequestKey,
    store::{CommitError, ConstraintConflict},
    tenant::TenantScope,
};

/// Maximum number of blocking releases that a refusal lists.
const MAX_BLOCKING_SHOWN: u32 = 100;

/// A request to change the lifecycle state of an asset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LifecycleCommand {
    /// Activates the asset, so that releases can bind it; also reverses a retirement.
    Activate,
    /// Retires the asset: releases can no longer bind it, and existing releases continue to run.
    Retire,
    /// Archives the asset; its versions remain stored.
    Archive,
}

impl LifecycleCommand {
    const fn operation(self) -> Operation {
        match self {
            Self::Activate => Operation::ActivateAsset,
            Self::Retire => Operation::RetireAsset,
            Self::Archive => Operation::ArchiveAsset,
        }
    }

    const fn target(self) -> Lifecycle {
        match self {
            Self::Activate => Lifecycle::Active,
            Self::Retire => Lifecycle::Retired,
            Self::Archive => Lifecycle::Archived,
        }
    }
}

impl Assets {
    /// Changes the lifecycle state of an asset. An archival is refused while a draft, reviewed or active release binds
    /// a version of the asset.
    ///
    /// # Errors
    /// In these cases: the caller does not see the asset from that workspace or may not edit it; the state of the asset
    /// does not allow the change; the revision of the asset changed.
    pub async fn change_lifecycle(
        &self,
        caller: &Caller,
        command: LifecycleCommand,
        id: AssetId,
        from_workspace: WorkspaceId,
        expected: &Precondition,
        key: Option<&RequestKey>,
    ) -> Result<MaybeReplayed<Asset>, Failure> {
        let (scope, _) = self.authorize_asset_from(caller, command.operation(), id, from_workspace).await?;
        self.keyed_requests
            .idempotent(
                scope,
                key,
                async || {
                    for _ in 0..MAX_ATTEMPTS {
                        let (scope, asset) =
                            self.authorize_asset_from(caller, command.operation(), id, from_workspace).await?;
                        expected.check(asset.revision)?;
                        let change = asset.transition_to(command.target(), &self.context.stamp(caller))?;
                        let changed_asset = change.next.clone();
                        let outcome = keyed_outcome(key, 200, id.uuid());
                        match self.asset_store.commit_lifecycle(scope, change, outcome.as_ref()).await {
                            Err(CommitError::Stale) => {
                                if let Some(failure) = expected.stale_failure() {
                                    return Err(failure);
                                }
                            }
                            Err(CommitError::Conflict(ConstraintConflict::AssetInUse)) => {
                                return Err(self.in_use_failure(caller, scope, id).await?);
                            }
                            committed => {
                                committed?;
                                return Ok(changed_asset);
                            }
                        }
                    }
                    Err(Failure::Contended)
                },
                async |_| self.read_asset(caller, id, from_workspace).await,
            )
            .await
    }

    /// Returns the refusal, with those blocking releases that the caller may see. Releases in workspaces that the
    /// caller does not see may also block the archival.
    async fn in_use_failure(&self, caller: &Caller, scope: TenantScope, id: AssetId) -> Result<Failure, Failure> {
        let blocking = self.asset_store.blocking_releases(scope, id, MAX_BLOCKING_SHOWN).await?;
        let blocking_count = blocking.len();
        let may_view = |position: ResourcePosition| caller.rights.allow(Permission::ReleaseView, &position);
        let visible_releases: Vec<_> = blocking
            .into_iter()
            .filter(|release| {
                let position = ResourcePosition::workspace(caller.tenant, release.namespace_id, release.workspace_id);
                may_view(position.for_workload(release.workload_id))
            })
            .collect();
        let hidden_count = blocking_count.saturating_sub(visible_releases.len());
        Ok(Failure::AssetInUse { visible_releases, hidden_count })
    }
}
