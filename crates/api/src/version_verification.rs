//! `fairway-server verify-artifacts`: compares all asset versions with their artifacts.

use crate::{
    compose::{AdapterError, Adapters, ComposeError, Process},
    config::Settings,
    serve::{DatabaseError, ResolvedDatabase},
};
use fairway_operations::{Failure, asset::VerificationReport};

/// Failure to verify artifacts.
#[derive(Debug, thiserror::Error)]
pub enum VerificationError {
    /// The database cannot be opened or stopped.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// An adapter cannot be created.
    #[error(transparent)]
    Adapter(#[from] AdapterError),
    /// The process cannot be composed.
    #[error(transparent)]
    Compose(#[from] ComposeError),
    /// The versions cannot be read.
    #[error(transparent)]
    Operation(#[from] Failure),
}

/// Compares the row, checksum and artifact of every version, with or without a running server.
///
/// # Errors
/// When the database or the artifact store is missing or unreachable.
pub async fn verify_version_artifacts(settings: &Settings) -> Result<VerificationReport, VerificationError> {
    let database = ResolvedDatabase::join_or_start_existing(settings).await?;
    let report = async {
        let process = Process::new(settings, database.url.clone(), Adapters::of(settings)?)?;
        Ok::<_, VerificationError>(process.background_pool_services().artifacts.verify_version_artifacts().await?)
    };
    let report = report.await;
    database.stop_managed_server().await?;
    report
}
