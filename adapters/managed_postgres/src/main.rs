//! Runs one managed server in the foreground until its standard input ends.
//!
//! `managed-postgres DIRECTORY` prints the server's URL and process id on one line. Tests kill this program to
//! check how the next owner takes over the directory. People can run it to inspect a data directory with
//! PostgreSQL.

use std::error::Error;
use std::io::{Read, Write, stdin, stdout};
use std::path::PathBuf;

use fairway_managed_postgres::{Binaries, ClusterLifetime, ManagedServer, Options, state_directories};

fn main() -> Result<(), Box<dyn Error>> {
    let server_directory = std::env::args_os().nth(1).map(PathBuf::from).ok_or("usage: managed-postgres DIRECTORY")?;
    let binaries = Binaries::find(&state_directories::directory()?)?;
    let options =
        Options { binaries, server_directory, port: None, settings: Vec::new(), durability: ClusterLifetime::Default };
    let server = ManagedServer::start(options)?;
    writeln!(stdout(), "{} {}", server.url("postgres"), server.process_id())?;
    stdin().read_to_end(&mut Vec::new())?;
    server.stop()?;
    Ok(())
}
