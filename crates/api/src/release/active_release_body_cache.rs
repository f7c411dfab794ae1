//! A cache of response bodies for reads of active releases.

use fairway_domain::{id::WorkloadId, release::lane::Lane, slug::Slug};
use fairway_operations::{
    access::IdentityClaims,
    cache::{claims_bytes, weighted_cache},
    release::{ActiveReleaseQuery, ActiveReleaseRevisions},
};
use moka::sync::Cache;
use std::{fmt, sync::Arc};

/// Maximum memory of the cache, in bytes.
const MAX_BYTES: u64 = 7 << 20;

/// The caller and the query of a request.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct BodyKey {
    claims: IdentityClaims,
    workload: WorkloadId,
    environment: Slug,
    lane: Option<Lane>,
}

impl BodyKey {
    pub(crate) fn new(claims: &IdentityClaims, query: &ActiveReleaseQuery<'_>) -> Self {
        let ActiveReleaseQuery { workload, environment, lane } = *query;
        Self { claims: claims.clone(), workload, environment: environment.clone(), lane }
    }
}

/// A response body, with the state from which its release was read.
#[derive(Clone)]
pub(crate) struct CachedBody {
    pub(crate) text: Arc<str>,
    pub(crate) version: Arc<ActiveReleaseRevisions>,
}

/// Response bodies by caller and query. A body may be outdated; [`CachedBody::version`] must be verified.
#[derive(Clone)]
pub(crate) struct ActiveReleaseBodyCache(Cache<BodyKey, CachedBody>);

impl fmt::Debug for ActiveReleaseBodyCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ActiveReleaseBodyCache")
    }
}

impl ActiveReleaseBodyCache {
    pub(crate) fn new() -> Self {
        let bytes = |key: &BodyKey, body: &CachedBody| {
            // The key and the version contain the environment.
            let environment_bytes = key.environment.as_str().len().saturating_mul(2);
            let version_bytes = size_of::<ActiveReleaseRevisions>();
            claims_bytes(&key.claims).saturating_add(environment_bytes + version_bytes).saturating_add(body.text.len())
        };
        Self(weighted_cache(MAX_BYTES, bytes).build())
    }

    pub(crate) fn get(&self, key: &BodyKey) -> Option<CachedBody> {
        self.0.get(key)
    }

    pub(crate) fn insert(&self, key: BodyKey, body: CachedBody) {
        self.0.insert(key, body);
    }

    pub(crate) fn remove(&self, key: &BodyKey) {
        self.0.invalidate(key);
    }
}
