//! Pinned index revisions. A release serves the revision with which it was approved if its environment requires
//! pinning, else the current revision.

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
    /// The revisions with which the release was approved.
    Pinned(HashMap<AssetId, IndexRevision>),
}

impl ServedRevisions {
    /// Returns the pinned revision of one knowledge base for [`super::RetrievalRequest::pinned`]; `None` for the
    /// current one. A knowledge base without a pin had no documents at approval.
    #[must_use]
    pub fn of(&self, asset: AssetId) -> Option<IndexRevision> {
        match self {
            Self::Current => None,
            Self::Pinned(pins) => Some(pins.get(&asset).copied().unwrap_or_default()),
        }
    }
}

impl KnowledgeBases {
    /// Returns the index revisions for runs of a release, according to the current settings of its environment. Pins
    /// never change, but the settings may.
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
