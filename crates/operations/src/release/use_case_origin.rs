//! The use case from which the workload of a release was created.

use crate::{Failure, access::Operation, release::Releases};
use fairway_domain::{
    access::Caller,
    id::{ReleaseId, UseCaseId},
    release::{Release, ports::ReleaseWithDeployment},
    tenant::TenantScope,
    use_case::UseCaseStatus,
};

impl Releases {
    /// Returns a release with the use case from which its workload was created.
    ///
    /// # Errors
    /// Not found when the caller does not see the release.
    pub async fn read_release_with_origin(
        &self,
        caller: &Caller,
        id: ReleaseId,
    ) -> Result<(ReleaseWithDeployment, Option<UseCaseId>), Failure> {
        let (scope, _, release_with_deployment) = self.authorize_release(caller, Operation::ReadRelease, id).await?;
        let origin = self.use_case_store.find_by_workload(scope, release_with_deployment.release.workload_id).await?;
        Ok((release_with_deployment, origin.map(|origin| origin.use_case_id)))
    }

    /// Whether the workload was created from a use case that is not active. This read may miss a concurrent archiving.
    /// The result then equals an activation shortly before the archiving, which is allowed.
    pub(super) async fn is_use_case_inactive(&self, scope: TenantScope, release: &Release) -> Result<bool, Failure> {
        let origin = self.use_case_store.find_by_workload(scope, release.workload_id).await?;
        Ok(origin.is_some_and(|origin| origin.status != UseCaseStatus::Active))
    }
}
