//! `cargo xtask bench`: the benchmark on release builds.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use fairway_private_postgres::binaries::BIN_VARIABLE;

use crate::place::{Place, Profile};
use crate::postgres;
use crate::signals::Signals;
use crate::{children, gateway};

/// Tells the benchmark which program to measure.
const SERVER_VARIABLE: &str = "FAIRWAY_BENCH_SERVER";
/// The Python that runs a gateway of models, for the row that has one beside it.
const GATEWAY_VARIABLE: &str = "FAIRWAY_BENCH_GATEWAY_PYTHON";

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
    match gateway::ensure(place) {
        Ok(python) => {
            command.env(GATEWAY_VARIABLE, python);
        }
        // Where nothing can be installed, the rest is worth measuring; the report says what is missing.
        Err(error) => println!("xtask: no gateway of models to measure beside ours: {error:#}"),
    }
    Ok(children::exit_code(children::run(command, &signals)?))
}
