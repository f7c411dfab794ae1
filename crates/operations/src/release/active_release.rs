//! The active release of a workload. A reader can verify with one point query that an earlier read is still current.

use crate::{
    Failure,
    access::{IdentityClaims, IdentityMode, Operation},
    idempotency::MAX_ATTEMPTS,
    release::Releases,
};
use fairway_domain::{
    access::Caller,
    id::{RequestId, WorkloadId},
    release::{lane::Lane, ports::ReleaseWithDeployment},
    slug::Slug,
    store::Revision,
    tenant::TenantScope,
};

/// A serving release, with the lane on which it was found.
#[derive(Clone, Debug)]
pub struct ActiveRelease {
    /// The release, with all lane holders of its deployment.
    pub release: ReleaseWithDeployment,
    /// The lane that the release holds.
    pub lane: Lane,
}

/// The revisions from which an active release was read. While they are unchanged, the same query of the same caller
/// returns the same release.
#[derive(Clone, Debug)]
pub struct ActiveReleaseRevisions {
    scope: TenantScope,
    workload: WorkloadId,
    environment: Slug,
    deployment: Revision,
    access: Revision,
}

/// Query for the release that serves a workload.
#[derive(Clone, Copy, Debug)]
pub struct ActiveReleaseQuery<'q> {
    /// The workload that the release serves.
    pub workload: WorkloadId,
    /// The environment in which the release serves.
    pub environment: &'q Slug,
    /// The lane that the release must hold; `None` for the most general lane that has a holder.
    pub lane: Option<Lane>,
}

impl Releases {
    /// Returns the release that serves a workload in an environment, and the revisions from which it was read. The
    /// caller may cache the result, and verify it with [`Self::is_active_release_current`].
    ///
    /// # Errors
    /// Not found when the caller does not see the workload's releases, or no release holds the lane.
    pub async fn active_release(
        &self,
        mode: IdentityMode,
        claims: &IdentityClaims,
        request_id: RequestId,
        query: &ActiveReleaseQuery<'_>,
    ) -> Result<(ActiveRelease, ActiveReleaseRevisions), Failure> {
        let &ActiveReleaseQuery { workload, environment, lane } = query;
        let caller = self.identities.resolve_caller(mode, claims, request_id).await?;
        let active = self.find_active(&caller, workload, environment, lane).await?;
        let version = ActiveReleaseRevisions {
            scope: TenantScope::for_caller(&caller),
            workload,
            environment: environment.clone(),
            deployment: active.release.deployment.revision,
            access: caller.access_revision,
        };
        Ok((active, version))
    }

    /// Whether the deployment and the tenant's access revision are unchanged since a read. Because this point query
    /// precedes each use of a cached result, a revoked role or a reassigned lane takes effect with the next request.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn is_active_release_current(&self, version: &ActiveReleaseRevisions) -> Result<bool, Failure> {
        let ActiveReleaseRevisions { scope, workload, environment, deployment, access } = version;
        let revisions = self.deployment_store.current_revisions(*scope, *workload, environment).await?;
        Ok(revisions.is_some_and(|current| current.deployment == *deployment && current.access == *access))
    }

    async fn find_active(
        &self,
        caller: &Caller,
        workload: WorkloadId,
        environment: &Slug,
        lane: Option<Lane>,
    ) -> Result<ActiveRelease, Failure> {
        let (scope, _) = self.workloads.authorize_workload(caller, Operation::ReadActiveRelease, workload).await?;
        for _ in 0..MAX_ATTEMPTS {
            if let Some(active) = self.current_holder(scope, workload, environment, lane).await? {
                return Ok(active);
            }
        }
        Err(Failure::Contended)
    }

    /// Returns the release that holds the lane; `None` if the holder changed between the reads of the lane and the
    /// release.
    async fn current_holder(
        &self,
        scope: TenantScope,
        workload: WorkloadId,
        environment: &Slug,
        lane: Option<Lane>,
    ) -> Result<Option<ActiveRelease>, Failure> {
        let lanes = self.deployment_store.deployment(scope, workload, environment).await?;
        let holder = lanes.and_then(|deployment| match lane {
            Some(lane) => deployment.holder(lane).map(|release| (lane, release)),
            None => deployment.representative_release(),
        });
        let (lane, release) = holder.ok_or(Failure::NotFound)?;
        let release_with_deployment = self.release_store.find(scope, release).await?.ok_or(Failure::NotFound)?;
        let is_holder = release_with_deployment.deployment.holder(lane) == Some(release);
        Ok(is_holder.then_some(ActiveRelease { release: release_with_deployment, lane }))
    }
}
