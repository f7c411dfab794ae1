//! Failures of the stores and keys that reading and signing a log require.

use fairway_domain::{
    asset::artifact_store::ArtifactStoreError,
    store::{StoreError, StoreFault},
    transparency_log::{ArchiveError, SigningError},
};

/// A store of a log, or its key, is unavailable. The error says nothing about the integrity of the log.
#[derive(Debug, thiserror::Error)]
pub enum LogAccessError {
    /// The database failed, or a row cannot be decoded.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The artifact store failed.
    #[error(transparent)]
    Artifact(#[from] ArtifactStoreError),
    /// The checkpoint archive failed.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// The checkpoint keys cannot be read.
    #[error(transparent)]
    Signing(#[from] SigningError),
}

impl LogAccessError {
    /// The stable code of the failure.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Store(error) => match error.fault {
                StoreFault::Unavailable | StoreFault::OutcomeUnknown => "database_unavailable",
                StoreFault::Inconsistent => "database_inconsistent",
            },
            Self::Artifact(ArtifactStoreError::Unavailable(_)) => "artifact_store_unavailable",
            Self::Artifact(ArtifactStoreError::Conflict) => "artifact_conflict",
            Self::Archive(ArchiveError::Unavailable(_)) => "checkpoint_archive_unavailable",
            Self::Signing(SigningError::Unavailable(_)) => "checkpoint_key_unavailable",
            Self::Signing(SigningError::Malformed) => "checkpoint_key_malformed",
        }
    }
}
