//! Starts a server with the demo data, for checks that need a running server.

use std::net::SocketAddr;
use std::process::Command;

use anyhow::{Context, Result, bail};
use fairway_managed_postgres::ManagedServer;
use fairway_managed_postgres::binaries::BIN_VARIABLE;
use fairway_managed_postgres::unused_port::unused_address;
use tempfile::TempDir;

use crate::children::ChildEvent;
use crate::paths::{Paths, Profile};
use crate::signals::Signals;
use crate::step::run_checked;
use crate::up::{self, Server};
use crate::{demo, install_postgres};

/// A running server with the demo data, and its managed PostgreSQL. Both stop on drop.
pub(crate) struct DemoServer {
    pub(crate) address: SocketAddr,
    // Fields are dropped in this order, so the server stops before its database.
    _server: Server,
    _database: ManagedServer,
    _data_directory: TempDir,
}

impl DemoServer {
    /// Starts a server on an unused port with additional settings, and seeds the demo.
    pub(crate) fn start(paths: &Paths, signals: &Signals, settings: &[(&str, String)]) -> Result<Self> {
        // If another process binds the port before the server does, the server reports the conflict.
        let address = unused_address()?;
        let settings: Vec<_> = settings.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        Self::start_at(address, paths, signals, &settings)
    }

    /// Starts a server at this address with additional settings, and seeds the demo.
    pub(crate) fn start_at(
        address: SocketAddr,
        paths: &Paths,
        signals: &Signals,
        settings: &[(String, String)],
    ) -> Result<Self> {
        let binaries = install_postgres::ensure()?;
        let database = ManagedServer::start_temporary(binaries.clone(), Vec::new()).context("starting PostgreSQL")?;
        let data_directory = tempfile::tempdir()?;
        let with_settings = |mut command: Command| {
            command
                // A settings file of the checkout must not change the checks.
                .args(["--config", "/dev/null"])
                .env("FAIRWAY_BIND", address.to_string())
                .env("FAIRWAY_DATABASE_URL", database.url("postgres"))
                .env("FAIRWAY_DATA_DIR", data_directory.path())
                .env("FAIRWAY_LOG", "error")
                // The property-based tests read each response to its end, so event streams must end soon.
                .env("FAIRWAY_INBOX_STREAM_LIFETIME", "1s")
                .env(BIN_VARIABLE, binaries.directory())
                .envs(settings.iter().map(|(name, value)| (name, value)));
            command
        };
        let mut serve = with_settings(up::serve_command(paths, Profile::Dev));
        let mut server = Server { child: serve.spawn().context("starting fairway-server")? };
        match server.wait_until_ready(address, signals)? {
            ChildEvent::Running => {}
            ChildEvent::Exited(status) => bail!("fairway-server exited during startup ({status})"),
            ChildEvent::StopRequested => bail!("stopped"),
        }
        run_checked(with_settings(demo::seed_command(paths, Profile::Dev)))?;
        Ok(Self { address, _server: server, _database: database, _data_directory: data_directory })
    }
}
