//! `cargo xtask schema`: writes the table definitions that typed queries use (`schema.rs`) from a migrated database.

use std::fs;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use fairway_managed_postgres::ManagedServer;

use crate::install_postgres;
use crate::paths::Paths;
use crate::step::{run_checked, run_for_output};

const PATH: &str = "adapters/postgres/src/schema.rs";

pub(crate) fn run(paths: &Paths) -> Result<ExitCode> {
    fs::write(paths.root.join(PATH), printed_schema(paths)?).with_context(|| format!("writing {PATH}"))?;
    println!("wrote {PATH}");
    Ok(ExitCode::SUCCESS)
}

/// Checks that the committed table definitions equal those of a migrated database.
pub(crate) fn check(paths: &Paths) -> Result<()> {
    let committed = fs::read_to_string(paths.root.join(PATH)).with_context(|| format!("reading {PATH}"))?;
    if committed != printed_schema(paths)? {
        bail!("{PATH} differs from a migrated database: run `cargo xtask schema`");
    }
    Ok(())
}

fn printed_schema(paths: &Paths) -> Result<String> {
    // Dropping the server stops PostgreSQL and deletes its data, also after an error.
    let server =
        ManagedServer::start_temporary(install_postgres::ensure()?, Vec::new()).context("starting PostgreSQL")?;
    let mut build = paths.checked_programs_build_command();
    build.arg("--quiet");
    run_checked(build)?;
    let mut command = Command::new(paths.print_schema_executable());
    command.arg(server.url("postgres"));
    run_for_output(command)
}
