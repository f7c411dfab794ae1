//! `cargo xtask bench`: runs the benchmark on release builds.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use fairway_managed_postgres::binaries::BIN_VARIABLE;

use crate::install_postgres;
use crate::paths::{Paths, Profile};
use crate::signals::Signals;
use crate::{children, install_litellm};

/// The environment variable with the path of the server executable to measure.
const SERVER_VARIABLE: &str = "FAIRWAY_BENCH_SERVER";
/// The environment variable with the Python interpreter of the LiteLLM installation, for the scenario with a gateway.
const GATEWAY_VARIABLE: &str = "FAIRWAY_BENCH_GATEWAY_PYTHON";

#[derive(Args)]
pub(crate) struct Arguments {
    /// Arguments for the benchmark
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    benchmark: Vec<String>,
}

pub(crate) fn run(paths: &Paths, arguments: &Arguments) -> Result<ExitCode> {
    let signals = Signals::catch()?;
    let binaries = install_postgres::ensure()?;
    let built = children::run(paths.programs_build_command(Profile::Release), &signals)?;
    if !built.success() {
        return Ok(children::exit_code(built));
    }
    let mut command = paths.cargo();
    command.args(["run", "--release", "--quiet", "--package", "fairway-bench", "--"]).args(&arguments.benchmark);
    command.env(SERVER_VARIABLE, paths.server_executable(Profile::Release)).env(BIN_VARIABLE, binaries.directory());
    match install_litellm::ensure(paths) {
        Ok(python) => {
            command.env(GATEWAY_VARIABLE, python);
        }
        // Without LiteLLM the other scenarios still run, and the report lists the missing scenario.
        Err(error) => println!("xtask: LiteLLM gateway unavailable, skipping its comparison: {error:#}"),
    }
    Ok(children::exit_code(children::run(command, &signals)?))
}
