//! Pinned index revisions: a release serves the revision that it was approved with if its environment requires that,
//! else the current one.

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
    /// The current revision at the time of the read.
    Current,
    /// The revisions that the release was approved with.
    Pinned(HashMap<AssetId, IndexRevision>),
}

impl ServedRevisions {
    /// The revision of one knowledge base, as [`super::RetrievalRequest::pinned`] takes it. A knowledge base without
    /// a pin had no documents at approval.
    #[must_use]
    pub fn of(&self, asset: AssetId) -> Option<IndexRevision> {
        match self {
            Self::Current => None,
            Self::Pinned(pins) => Some(pins.get(&asset).copied().unwrap_or_default()),
        }
    }
}

impl KnowledgeBases {
    /// The index revisions for runs of a release, by the current settings of its environment. Pins never change; the
    /// settings may.
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
