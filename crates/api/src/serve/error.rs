//! Failures of the long-running commands.

use super::DatabaseError;
use crate::compose::{AdapterError, ComposeError};
use fairway_operations::Failure;
use fairway_postgres::MigrationError;
use std::{io, net::SocketAddr};
use tokio::task::JoinError;

/// Failure of a long-running command.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The configured address cannot be bound.
    #[error("failed to listen on {address}")]
    Listen {
        /// The address that cannot be bound.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The address for the worker's metrics cannot be bound.
    #[error("failed to listen on {address} for the worker's metrics")]
    WorkerMetrics {
        /// The address that cannot be bound.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The database cannot be opened or stopped.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The database cannot be migrated.
    #[error("failed to migrate the database")]
    Migrate(#[source] MigrationError),
    /// The version of the schema cannot be read.
    #[error("failed to read the schema version")]
    SchemaVersion(#[source] MigrationError),
    /// The schema belongs to another version of the program.
    #[error("the database schema belongs to another version; run the {process} of the servers' version")]
    SchemaMismatch {
        /// The kind of process that was started, such as `worker`.
        process: &'static str,
    },
    /// The deployment dispatches no runs to workers.
    #[error("this deployment has no workers: `dispatch` is `{0}`")]
    NoWorkers(&'static str),
    /// An adapter cannot be created.
    #[error(transparent)]
    Adapter(#[from] AdapterError),
    /// The process cannot be composed.
    #[error(transparent)]
    Compose(#[from] ComposeError),
    /// An operation that the command performs failed.
    #[error(transparent)]
    Operation(#[from] Failure),
    /// The server or a signal handler failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The task of the server panicked.
    #[error(transparent)]
    Task(#[from] JoinError),
}
