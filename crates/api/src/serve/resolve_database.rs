//! The database of the settings: a configured one, or a managed PostgreSQL server that this process may start.

use crate::config::{DatabaseLocation, Settings};
use fairway_managed_postgres::{Binaries, FindError, ManagedServer, Options, StartError, StopError, state_directories};
use fairway_postgres::MigrationError;
use std::{io, path::Path};
use tokio::task::JoinError;

/// Name of the database on a managed PostgreSQL server.
const DATABASE_NAME: &str = "fairway";
/// Hint that follows the error for a missing database.
const LOCATION_HINT: &str = "run this on the server's host, or set FAIRWAY_DATA_DIR or FAIRWAY_DATABASE_URL";

/// Failure to resolve, start or stop the database of the settings.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// No directory can hold the state of managed servers.
    #[error("no state directory for managed PostgreSQL servers")]
    StateDirectory(#[source] io::Error),
    /// No PostgreSQL binaries for a managed server were found.
    #[error("no PostgreSQL was found; `cargo xtask up` installs one")]
    Binaries(#[source] FindError),
    /// The managed server cannot be started or found.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The managed server does not stop.
    #[error(transparent)]
    Stop(#[from] StopError),
    /// The database cannot be created.
    #[error("failed to create the database on the managed PostgreSQL server")]
    Create(#[source] MigrationError),
    /// The database cannot be reached.
    #[error("failed to reach the database")]
    Unreachable(#[source] MigrationError),
    /// The database has no Fairway schema.
    #[error("the database holds nothing of Fairway: {LOCATION_HINT}")]
    NoSchema,
    /// The data directory has no usable managed server.
    #[error("{LOCATION_HINT}")]
    Missing(#[source] Box<Self>),
    /// No managed server runs in the data directory.
    #[error("{LOCATION_HINT}: no server runs here")]
    NotRunning(#[source] Box<Self>),
    /// The task that starts, finds or stops the managed server panicked.
    #[error(transparent)]
    Task(#[from] JoinError),
}

impl DatabaseError {
    fn missing(self) -> Self {
        Self::Missing(Box::new(self))
    }

    fn not_running(self) -> Self {
        Self::NotRunning(Box::new(self))
    }
}

/// The resolved database: its two URLs, and the managed PostgreSQL server if this process started it.
pub struct ResolvedDatabase {
    /// URL of the service role.
    pub url: String,
    /// URL of the owner role, for migrations.
    pub owner_url: String,
    managed_server: Option<ManagedServer>,
}

impl ResolvedDatabase {
    /// Resolves the database of the settings, and starts the server if it is a managed one.
    ///
    /// # Errors
    /// When a managed server cannot be found or started.
    pub async fn resolve_or_start(settings: &Settings) -> Result<Self, DatabaseError> {
        match (&settings.database, &settings.migrate_database) {
            (DatabaseLocation::Url(url), owner) => {
                let url = url.expose().to_owned();
                let owner_url = match owner {
                    DatabaseLocation::Url(owner) => owner.expose().to_owned(),
                    DatabaseLocation::Embedded => url.clone(),
                };
                Ok(Self { url, owner_url, managed_server: None })
            }
            (DatabaseLocation::Embedded, _) => {
                let data_dir = settings.data_dir.clone();
                let server = tokio::task::spawn_blocking(move || start_managed_server(&data_dir)).await??;
                let url = server.url(DATABASE_NAME);
                fairway_postgres::create_database(&server.url("postgres"), DATABASE_NAME)
                    .await
                    .map_err(DatabaseError::Create)?;
                Ok(Self { owner_url: url.clone(), url, managed_server: Some(server) })
            }
        }
    }

    /// As [`resolve_or_start`](Self::resolve_or_start), but also accepts a managed server that another process runs.
    ///
    /// # Errors
    /// When a managed server cannot be found or started, or is starting or stopping at the moment.
    pub async fn join_or_start(settings: &Settings) -> Result<Self, DatabaseError> {
        if settings.database == DatabaseLocation::Embedded
            && let Ok(url) = Self::resolve_running_service_url(settings).await
        {
            return Ok(Self { owner_url: url.clone(), url, managed_server: None });
        }
        Self::resolve_or_start(settings).await
    }

    /// Whether another process runs the database's server.
    pub(crate) const fn is_joined(&self) -> bool {
        self.managed_server.is_none()
    }

    /// Resolves the existing database of the settings, with or without a running Fairway server. Creates and migrates
    /// nothing.
    ///
    /// # Errors
    /// When the database cannot be found or started, or has no Fairway schema.
    pub async fn join_or_start_existing(settings: &Settings) -> Result<Self, DatabaseError> {
        let database = match &settings.database {
            DatabaseLocation::Url(_) => Self::resolve_or_start(settings).await?,
            DatabaseLocation::Embedded => {
                let data_dir = settings.data_dir.clone();
                tokio::task::spawn_blocking(move || find_managed_server(&data_dir))
                    .await?
                    .map_err(DatabaseError::missing)?
            }
        };
        match fairway_postgres::has_schema(&database.url).await {
            Ok(true) => Ok(database),
            result => {
                database.stop_managed_server().await?;
                result.map_err(DatabaseError::Unreachable)?;
                Err(DatabaseError::NoSchema)
            }
        }
    }

    /// The service URL of the configured database. A managed server must already run: `fairway-server serve` starts it.
    ///
    /// # Errors
    /// When no managed server runs in the data directory.
    pub async fn resolve_running_service_url(settings: &Settings) -> Result<String, DatabaseError> {
        match &settings.database {
            DatabaseLocation::Url(url) => Ok(url.expose().to_owned()),
            DatabaseLocation::Embedded => {
                let data_dir = settings.data_dir.clone();
                let find = move || {
                    let options = managed_server_options(&data_dir)?;
                    Ok::<_, DatabaseError>(ManagedServer::url_of_running(&options.server_directory, DATABASE_NAME)?)
                };
                tokio::task::spawn_blocking(find).await?.map_err(DatabaseError::not_running)
            }
        }
    }

    /// Stops the managed server that this process started, if there is one.
    ///
    /// # Errors
    /// When the server does not stop.
    pub async fn stop_managed_server(self) -> Result<(), DatabaseError> {
        let Some(server) = self.managed_server else { return Ok(()) };
        tokio::task::spawn_blocking(move || server.stop()).await??;
        Ok(())
    }
}

fn start_managed_server(data_dir: &Path) -> Result<ManagedServer, DatabaseError> {
    Ok(ManagedServer::start(managed_server_options(data_dir)?)?)
}

/// Finds the managed server that another process runs on this directory, or starts an existing cluster.
fn find_managed_server(data_dir: &Path) -> Result<ResolvedDatabase, DatabaseError> {
    let options = managed_server_options(data_dir)?;
    let directory = options.server_directory.clone();
    let (url, managed_server) = match ManagedServer::start_existing(options) {
        Ok(server) => (server.url(DATABASE_NAME), Some(server)),
        Err(StartError::InUse { .. }) => (ManagedServer::url_of_running(&directory, DATABASE_NAME)?, None),
        Err(error) => return Err(error.into()),
    };
    Ok(ResolvedDatabase { owner_url: url.clone(), url, managed_server })
}

fn managed_server_options(data_dir: &Path) -> Result<Options, DatabaseError> {
    let state = state_directories::directory().map_err(DatabaseError::StateDirectory)?;
    let binaries = Binaries::find(&state).map_err(DatabaseError::Binaries)?;
    Ok(Options::of_data_directory(binaries, data_dir))
}
