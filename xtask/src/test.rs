//! `cargo xtask test`: runs all tests with a managed PostgreSQL, an S3 server and a LiteLLM gateway.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use clap::Args;
use fairway_managed_postgres::ManagedServer;
use fairway_managed_postgres::binaries::BIN_VARIABLE;

use crate::paths::Paths;
use crate::signals::Signals;
use crate::workspace_packages::{Package, packages};
use crate::{
    cargo_tools, children, external_tools, install_litellm, install_postgres, install_s3_server, postgres_with_vectors,
};

/// Environment variable with the superuser URL of the PostgreSQL that this command starts.
const URL_VARIABLE: &str = "FAIRWAY_TEST_POSTGRES_URL";
/// Environment variable with the Python interpreter that runs the S3 server.
const PYTHON_VARIABLE: &str = "FAIRWAY_TEST_S3_PYTHON";
/// Environment variable with the Python interpreter that runs the LiteLLM gateway.
const GATEWAY_VARIABLE: &str = "FAIRWAY_TEST_GATEWAY_PYTHON";
/// Environment variable with the folder of the executables of a PostgreSQL with pgvector.
const VECTORS_VARIABLE: &str = "FAIRWAY_TEST_VECTORS_BIN";
/// Environment variable with the Node executable.
const NODE_VARIABLE: &str = "FAIRWAY_TEST_NODE";
/// Environment variable with the path of the MCP inspector, an external MCP client.
const INSPECTOR_VARIABLE: &str = "FAIRWAY_TEST_INSPECTOR";
/// The folder of the inspector's lock file.
const INSPECTOR_FOLDER: &str = "tools/mcp";
/// Environment variable with the Python interpreter that has the packages of the SMTP server and of
/// the webhook verifier.
const RECEIVERS_PYTHON_VARIABLE: &str = "FAIRWAY_TEST_RECEIVERS_PYTHON";
/// Environment variable with the folder of the npm packages of the webhook verifier in JavaScript.
const RECEIVERS_MODULES_VARIABLE: &str = "FAIRWAY_TEST_RECEIVERS_MODULES";
/// The folder with the lock files of the SMTP server and the webhook verifiers.
const RECEIVERS_FOLDER: &str = "tools/receivers";

#[derive(Args)]
pub(crate) struct Arguments {
    /// Arguments for nextest, such as a part of a test's name; documentation examples are then skipped
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    nextest: Vec<String>,
}

pub(crate) fn run(paths: &Paths, arguments: &Arguments) -> Result<ExitCode> {
    run_selected(paths, &arguments.nextest, &[])
}

/// Runs the tests that the nextest arguments select, with additional environment variables.
pub(crate) fn run_selected(paths: &Paths, arguments: &[String], variables: &[(&str, String)]) -> Result<ExitCode> {
    let signals = Signals::catch()?;
    cargo_tools::ensure_nextest(paths)?;
    let binaries = install_postgres::ensure()?;
    let python = install_s3_server::ensure(paths)?;
    let gateway = install_litellm::ensure(paths)?;
    let vectors = postgres_with_vectors::ensure(&python)?;
    let inspector = external_tools::install_npm_packages(paths, &paths.root.join(INSPECTOR_FOLDER))?;
    let receivers = paths.root.join(RECEIVERS_FOLDER);
    let receivers_python = external_tools::install_python_packages(paths, &receivers)?.interpreter;
    let receivers_modules = external_tools::install_npm_packages(paths, &receivers)?.modules;
    // Dropping the server stops PostgreSQL and deletes its data, also after an error.
    let server =
        ManagedServer::start_temporary(binaries.clone(), Vec::new()).context("starting the tests' PostgreSQL")?;
    let with_database = |mut command: Command| {
        command.env(URL_VARIABLE, server.url("postgres")).env(BIN_VARIABLE, binaries.directory());
        command.env(PYTHON_VARIABLE, &python).env(GATEWAY_VARIABLE, &gateway).env(VECTORS_VARIABLE, &vectors);
        command.env(RECEIVERS_PYTHON_VARIABLE, &receivers_python);
        command.env(RECEIVERS_MODULES_VARIABLE, &receivers_modules);
        command.env(NODE_VARIABLE, &inspector.node);
        command.env(INSPECTOR_VARIABLE, inspector.modules.join(".bin/mcp-inspector"));
        command
    };

    let mut nextest = paths.cargo();
    // At the workspace root, nextest tests all packages unless the arguments select some.
    nextest.args(["nextest", "run"]).args(arguments).envs(variables.iter().cloned());
    if arguments.is_empty() && !install_postgres::ensure_clients(&binaries) {
        let major = binaries.major();
        println!("xtask: pg_dump {major} is missing: skipping the backup tests (install `postgresql-client-{major}`)");
        nextest.args(["-E", "not test(/^restore::/)"]);
    }
    let status = children::run(with_database(nextest), &signals)?;
    if !status.success() || !arguments.is_empty() {
        return Ok(children::exit_code(status));
    }
    let documented: Vec<Package> = packages(paths)?
        .into_iter()
        .filter(|package| package.is_library && has_example(&package.source_folder()))
        .collect();
    if documented.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let mut examples = paths.cargo();
    examples.args(["test", "--doc", "--quiet"]);
    for package in &documented {
        examples.args(["--package", &package.name]);
    }
    Ok(children::exit_code(children::run(with_database(examples), &signals)?))
}

/// Whether a documentation comment in a source below this folder contains code, so that the package
/// needs a doctest run.
fn has_example(folder: &Path) -> bool {
    let Ok(entries) = fs::read_dir(folder) else { return false };
    entries.flatten().any(|entry| {
        let path = entry.path();
        if path.is_dir() {
            return has_example(&path);
        }
        let is_source = path.extension().is_some_and(|extension| extension == "rs");
        is_source && fs::read_to_string(path).is_ok_and(|text| text.lines().any(is_example_start))
    })
}

fn is_example_start(line: &str) -> bool {
    let line = line.trim_start();
    let comment = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
    comment.is_some_and(|comment| comment.trim_start().starts_with("```"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detects_examples_only_in_documentation_comments() {
        assert!(is_example_start("    /// ```"));
        assert!(is_example_start("//! ```no_run"));
        assert!(!is_example_start("// ```"));
        assert!(!is_example_start("let text = \"/// ```\";"));
    }
}
