//! `cargo xtask db`: runs the managed PostgreSQL of the data directory, so that clients such as `psql` can connect.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use fairway_managed_postgres::{ManagedServer, Options};

use crate::install_postgres;
use crate::paths::Paths;
use crate::signals::Signals;

pub(crate) fn run(paths: &Paths) -> Result<ExitCode> {
    let signals = Signals::catch()?;
    let options = Options::of_data_directory(install_postgres::ensure()?, &paths.data_directory());
    let mut server = ManagedServer::start(options)?;
    println!("{}", server.url("postgres"));
    eprintln!("xtask: data in {}; Ctrl-C stops the server", server.server_directory().display());
    while signals.recv_timeout(Duration::from_millis(200)).is_none() {
        if !server.is_running() {
            bail!("PostgreSQL exited unexpectedly; its log is {}", server.server_directory().join("log").display());
        }
    }
    server.stop()?;
    Ok(ExitCode::SUCCESS)
}
