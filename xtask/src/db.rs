//! `cargo xtask db`: runs the private PostgreSQL of the data directory for other clients.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use fairway_private_postgres::{Options, ManagedServer};

use crate::place::Place;
use crate::postgres;
use crate::signals::Signals;

pub(crate) fn run(place: &Place) -> Result<ExitCode> {
    let signals = Signals::catch()?;
    let options = Options::of_data_directory(postgres::ensure()?, &place.data_directory());
    let mut server = ManagedServer::start(options)?;
    println!("{}", server.url("postgres"));
    eprintln!("xtask: data in {}; Ctrl-C stops the server", server.data_dir().display());
    while signals.within(Duration::from_millis(200)).is_none() {
        if !server.is_running() {
            bail!("PostgreSQL exited unexpectedly; its log is {}", server.data_dir().join("log").display());
        }
    }
    server.stop()?;
    Ok(ExitCode::SUCCESS)
}
