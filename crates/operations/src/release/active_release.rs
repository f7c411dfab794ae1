//! The active release of a workload. Its rendered response is cached, and one point query verifies the revisions of
//! the cached response.

use crate::{
    Failure,
    access::{Claims, IdentityMode, Operation},
    cache::{CACHE_BYTE_LIMITS, claims_bytes, weighted_cache},
    idempotency::MAX_ATTEMPTS,
    release::Releases,
};
use fairway_domain::{
    access::Caller,
    id::{RequestId, TenantId, WorkloadId},
    release::{lane::Lane, ports::ReleaseWithDeployment},
    slug::Slug,
    store::Revision,
    tenant::TenantScope,
};
use moka::sync::Cache;
use std::sync::Arc;

/// The release that serves, with the lane on which it was found.
#[derive(Clone, Debug)]
pub struct ActiveRelease {
    /// The release with the lane holders of its deployment.
    pub release: ReleaseWithDeployment,
    /// The lane whose holder is the release.
    pub lane: Lane,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct ActiveReleaseKey {
    claims: Claims,
    tenant: TenantId,
    workload: WorkloadId,
    environment: Slug,
    lane: Option<Lane>,
}

/// A rendered response with the two revisions on which it depends. While both revisions are unchanged, the same
/// caller receives the same response.
#[derive(Clone)]
struct CachedResponse {
    deployment: Revision,
    access: Revision,
    body: Arc<str>,
}

/// Rendered responses by caller and query.
pub struct ActiveReleaseResponseCache {
    responses: Cache<ActiveReleaseKey, CachedResponse>,
    scopes: Cache<Claims, TenantScope>,
}

impl ActiveReleaseResponseCache {
    pub(crate) fn new() -> Self {
        let response_bytes = |key: &ActiveReleaseKey, response: &CachedResponse| {
            let key_bytes = claims_bytes(&key.claims).saturating_add(key.environment.as_str().len());
            key_bytes.saturating_add(response.body.len())
        };
        let scope_bytes = |claims: &Claims, _: &TenantScope| claims_bytes(claims);
        Self {
            responses: weighted_cache(CACHE_BYTE_LIMITS.active_releases, response_bytes).build(),
            scopes: weighted_cache(CACHE_BYTE_LIMITS.active_release_tenants, scope_bytes).build(),
        }
    }
}

/// Query for the release that serves a workload.
#[derive(Clone, Copy, Debug)]
pub struct ActiveReleaseQuery<'q> {
    /// The workload.
    pub workload: WorkloadId,
    /// The environment.
    pub environment: &'q Slug,
    /// The lane; `None` for the most general lane that has a holder.
    pub lane: Option<Lane>,
}

impl Releases {
    /// Returns the release that serves a workload in an environment, rendered by `render`.
    ///
    /// The response is cached with the revisions of the deployment and of the tenant's access. One point query
    /// verifies both. After a change, the rights of the caller and the response are read again. A revoked role or a
    /// reassigned lane therefore takes effect with the next request.
    ///
    /// # Errors
    /// Not found when the caller does not see the workload's releases, or no release holds a requested lane.
    pub async fn active_release(
        &self,
        mode: IdentityMode,
        claims: &Claims,
        request_id: RequestId,
        query: &ActiveReleaseQuery<'_>,
        render: impl FnOnce(&ActiveRelease) -> Result<String, Failure>,
    ) -> Result<Arc<str>, Failure> {
        let &ActiveReleaseQuery { workload, environment, lane } = query;
        if let Some(scope) = self.active_releases.scopes.get(claims) {
            let tenant = scope.tenant();
            let key =
                ActiveReleaseKey { claims: claims.clone(), tenant, workload, environment: environment.clone(), lane };
            if let Some(cached) = self.active_releases.responses.get(&key) {
                let revisions = self.deployment_store.current_revisions(scope, workload, environment).await?;
                if revisions
                    .is_some_and(|current| current.deployment == cached.deployment && current.access == cached.access)
                {
                    return Ok(cached.body);
                }
                self.active_releases.responses.invalidate(&key);
            }
        }
        let caller = self.identities.resolve_caller(mode, claims, request_id).await?;
        let active = self.find_active(&caller, workload, environment, lane).await?;
        let body: Arc<str> = render(&active)?.into();
        let cached = CachedResponse {
            deployment: active.release.deployment.revision,
            access: caller.access_revision,
            body: Arc::clone(&body),
        };
        self.active_releases.scopes.insert(claims.clone(), TenantScope::for_caller(&caller));
        let key = ActiveReleaseKey {
            claims: claims.clone(),
            tenant: caller.tenant,
            workload,
            environment: environment.clone(),
            lane,
        };
        self.active_releases.responses.insert(key, cached);
        Ok(body)
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

    /// Returns the holder of the lane; `None` if the holder changed between the two reads.
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
