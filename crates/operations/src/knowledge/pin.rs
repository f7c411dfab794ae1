//! Which revision of a knowledge base a release serves: the one that it was approved with, where its environment wants
//! that, or the present one.

use crate::{Failure, Services};
use fairway_domain::{
    id::{AssetId, ReleaseId, WorkspaceId},
    knowledge::IndexRevision,
    slug::Slug,
    tenant::TenantScope,
};
use std::collections::HashMap;

/// Which revisions runs of a release read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ServedRevisions {
    /// Whatever is there when they read.
    Present,
    /// Those that the release was approved with.
    Pinned(HashMap<AssetId, IndexRevision>),
}

impl ServedRevisions {
    /// The revision of one knowledge base, as [`super::RetrievalRequest::pinned`] takes it. Of one that nothing is known
    /// of, nothing was there when the release was approved.
    #[must_use]
    pub fn of(&self, asset: AssetId) -> Option<IndexRevision> {
        match self {
            Self::Present => None,
            Self::Pinned(pins) => Some(pins.get(&asset).copied().unwrap_or_default()),
        }
    }
}

impl Services {
    /// Which revisions runs of a release read, by what its environment says now. A pin never changes; what the environment
    /// says may.
    ///
    /// # Errors
    /// When a store does not answer.
    pub async fn served_revisions(
        &self,
        scope: TenantScope,
        release: ReleaseId,
        (workspace, environment): (WorkspaceId, &Slug),
    ) -> Result<ServedRevisions, Failure> {
        if !self.settings_of(scope, workspace, environment).await?.pin_documents {
            return Ok(ServedRevisions::Present);
        }
        let pins = self.stores.knowledge.pins(scope, release).await?;
        Ok(ServedRevisions::Pinned(pins.into_iter().map(|pin| (pin.asset, pin.pinned)).collect()))
    }
}
