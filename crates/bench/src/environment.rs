//! The environment of a benchmark run: a directory, and a managed PostgreSQL with its databases.

pub(crate) mod start_processes;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use fairway_managed_postgres::{Binaries, ClusterLifetime, ManagedServer, Options, StartError, state_directories};

use crate::baseline_service;
use crate::cost_meter::connect;

/// The database of the measured server.
pub(crate) const DATABASE: &str = "fairway";
/// The database that stays small while [`DATABASE`] is filled with a large history.
pub(crate) const SMALL_DATABASE: &str = "young";
/// The baseline's database.
const BASELINE_DATABASE: &str = "floor";

/// The directory of one run; removed when dropped.
pub(crate) struct RunDirectory {
    path: PathBuf,
    state: PathBuf,
}

impl RunDirectory {
    /// Creates a directory below the state directory. Removes directories that killed benchmark runs left behind.
    pub(crate) fn new() -> Result<RunDirectory> {
        let state = state_directories::directory().context("finding the state directory")?;
        let parent = state.join("bench");
        fs::create_dir_all(&parent).with_context(|| format!("creating {}", parent.display()))?;
        for entry in fs::read_dir(&parent)?.flatten() {
            if !Path::new("/proc").join(entry.file_name()).exists() {
                // The next run retries a failed removal.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        let path = parent.join(std::process::id().to_string());
        fs::create_dir(&path).with_context(|| format!("creating {}", path.display()))?;
        Ok(RunDirectory { path, state })
    }

    /// The path of a file in the directory.
    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for RunDirectory {
    fn drop(&mut self) {
        // The next run retries a failed removal.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// The managed PostgreSQL of a run, with the default durability settings; stopped when dropped.
pub(crate) struct Postgres {
    server: ManagedServer,
    major: u32,
}

impl Postgres {
    /// Starts PostgreSQL with pg_stat_statements, if the build contains this extension.
    pub(crate) fn start(run_directory: &RunDirectory, settings: &[String]) -> Result<Postgres> {
        let binaries = Binaries::find(&run_directory.state)?;
        let major = binaries.major();
        // The library can only be loaded at start. Tracking is enabled later, during counted measurements.
        let counting = [("shared_preload_libraries", "pg_stat_statements")];
        let own: Vec<(&str, &str)> = settings.iter().filter_map(|setting| setting.split_once('=')).collect();
        let options = |counting: &[(&str, &str)]| Options {
            binaries: binaries.clone(),
            server_directory: run_directory.join("postgres"),
            port: None,
            settings: counting
                .iter()
                .chain(&own)
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            durability: ClusterLifetime::Default,
        };
        let server = match ManagedServer::start(options(&counting)) {
            Err(StartError::Ended(log)) if log.contains("pg_stat_statements") => ManagedServer::start(options(&[])),
            started => started,
        }?;
        Ok(Postgres { server, major })
    }

    /// The URL of the administrative database.
    pub(crate) fn url(&self) -> String {
        self.server.url("postgres")
    }

    pub(crate) fn process_id(&self) -> u32 {
        self.server.process_id()
    }

    pub(crate) fn major(&self) -> u32 {
        self.major
    }

    /// Creates all databases, and fills the baseline's database.
    pub(crate) async fn create_databases(&self, admin: &tokio_postgres::Client) -> Result<()> {
        for name in [DATABASE, SMALL_DATABASE, BASELINE_DATABASE] {
            admin.batch_execute(&format!("CREATE DATABASE {name}")).await?;
        }
        baseline_service::create_tables(&connect(&self.server.url(BASELINE_DATABASE)).await?).await
    }

    /// Connections to the given Fairway database and to the baseline's database.
    pub(crate) async fn databases(&self, fairway: &str) -> Result<[tokio_postgres::Client; 2]> {
        Ok([connect(&self.server.url(fairway)).await?, connect(&self.server.url(BASELINE_DATABASE)).await?])
    }
}
