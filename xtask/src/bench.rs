//! `cargo xtask bench`: the benchmark on release builds.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use fairway_private_postgres::binaries::BIN_VARIABLE;

use crate::children;
use crate::place::{Place, Profile};
use crate::postgres;
use crate::signals::Signals;

/// Tells the benchmark which program to measure.
const SERVER_VARIABLE: &str = "FAIRWAY_BENCH_SERVER";

#[derive(Args)]
pub(crate) struct Arguments {
    /// Handed to the benchmark
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    benchmark: Vec<String>,
}

pub(crate) fn run(place: &Place, arguments: &Arguments) -> Result<ExitCode> {
    let signals = Signals::catch()?;
    let binaries = postgres::ensure()?;
    let built = children::run(place.build_programs(Profile::Release), &signals)?;
    if !built.success() {
        return Ok(children::exit_code(built));
    }
    let mut command = place.cargo();
    command.args(["run", "--release", "--quiet", "--package", "fairway-bench", "--"]).args(&arguments.benchmark);
    command.env(SERVER_VARIABLE, place.server(Profile::Release)).env(BIN_VARIABLE, binaries.directory());
    Ok(children::exit_code(children::run(command, &signals)?))
}
