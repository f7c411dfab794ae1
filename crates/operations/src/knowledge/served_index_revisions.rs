//! Pinned index revisions. If an environment requires pinning, a release serves the index revisions with which it was
//! approved; otherwise it serves the current ones.

use crate::{Failure, knowledge::KnowledgeBases};
use fairway_domain::{
    id::{AssetId, ReleaseId, WorkspaceId},
    knowledge::IndexRevision,
    slug::Slug,
    tenant::TenantScope,
};
use std::collections::HashMap;

/// The index revisions that runs of a release read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ServedRevisions {
    /// The revision that is current when the run searches.
    Current,
    /// The revisions with which the release was approved, by knowledge base.
    Pinned(HashMap<AssetId, IndexRevision>),
}

impl ServedRevisions {
    /// Returns the pinned revision of one knowledge base, for [`super::RetrievalRequest::pinned`]; `None` means the
    /// current revision. A knowledge base without a pin had no documents at approval, so its revision is the empty one.
    #[must_use]
    pub fn pinned_revision_of(&self, asset: AssetId) -> Option<IndexRevision> {
        match self {
            Self::Current => None,
            Self::Pinned(pins) => Some(pins.get(&asset).copied().unwrap_or_default()),
        }
    }
}

impl KnowledgeBases {
    /// Returns the index revisions that runs of a release read, by the current settings of the environment. Pins never
    /// change, but the settings may.
    ///
    /// # Errors
    /// When a store fails.
    pub async fn served_revisions(
        &self,
        scope: TenantScope,
        release: ReleaseId,
        workspace: WorkspaceId,
        environment: &Slug,
    ) -> Result<ServedRevisions, Failure> {
        if !self.environments.settings_of(scope, workspace, environment).await?.pin_documents {
            return Ok(ServedRevisions::Current);
        }
        let pins = self.index_revision_store.release_pins(scope, release).await?;
        Ok(ServedRevisions::Pinned(pins.into_iter().map(|pin| (pin.asset, pin.pinned)).collect()))
    }
}
