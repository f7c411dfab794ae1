//! `cargo xtask`: the project's commands, one module for each.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program prints to its standard streams")]

mod apt;
mod arch_lints;
mod bench;
mod browser;
mod cargo_tools;
mod check_api;
mod children;
mod db;
mod demo;
mod demo_server;
mod docs;
mod external_tools;
mod install_litellm;
mod install_postgres;
mod install_s3_server;
mod model;
mod node;
mod npm_audit;
mod openapi;
mod package;
mod paths;
mod portal;
mod postgres_with_vectors;
mod required_checks;
mod rustsec_audit;
mod schema;
mod sign_in;
mod signals;
mod spelling;
mod step;
mod test;
mod threat_tests;
mod up;
mod upgrade;
mod verifiers;
mod workspace_packages;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::paths::Paths;

/// Builds, runs, tests and checks Fairway.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct CommandLine {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Build and start Fairway with a managed PostgreSQL and the demo; Ctrl-C stops both
    Up(up::Arguments),
    /// Run all tests, or those selected by nextest arguments, with a managed PostgreSQL and an S3 server
    Test(test::Arguments),
    /// Run the long forms of tests: histories compared with their model, lanes under load, the matrix of the runtime
    /// pages
    Model(model::Arguments),
    /// Run everything that a change must pass: `check`, the README's test command, `check-api`, `browser`, `sign-in`
    /// and `verifiers`
    Ci,
    /// Check formatting, lints, architecture and dependencies
    Check,
    /// Check the API with a linter, a property-based testing tool and two generated clients
    CheckApi(check_api::Arguments),
    /// Build the portal, which the next build of the server embeds
    Portal,
    /// Test the portal in Chromium against a server with the demo
    Browser(browser::Arguments),
    /// Test sign-in in Chromium, by the command line, by a service and by an MCP client, with a certified provider
    SignIn {
        /// Names of tests (states); without names, all tests run
        states: Vec<String>,
    },
    /// Change evidence bundles, and compare the verdicts of `fairway verify`, docs/verify.html and a Python program on
    /// each bundle
    Verifiers,
    /// Write docs/verify.html from tools/verify
    VerifyPage,
    /// Write docs/openapi.json
    Openapi,
    /// Write the document tables that are copied from snapshots
    Docs,
    /// Write adapters/postgres/src/schema.rs from a migrated database
    Schema,
    /// Run the benchmark on release builds; arguments go to the benchmark
    Bench(bench::Arguments),
    /// Upgrade from the server of an earlier commit to this one, with both under load on one database
    Upgrade(upgrade::Arguments),
    /// Seed the demo into the database of a running server
    Demo,
    /// Build the `fairway` distribution, with completions and manual pages
    Package,
    /// Run the managed PostgreSQL of the data directory in the foreground and print its URL
    Db,
}

fn main() -> ExitCode {
    let verb = CommandLine::parse().verb;
    let result = Paths::discover().and_then(|paths| match verb {
        Verb::Up(arguments) => up::run(&paths, &arguments),
        Verb::Test(arguments) => test::run(&paths, &arguments),
        Verb::Model(arguments) => model::run(&paths, &arguments),
        Verb::Ci => required_checks::ci(&paths),
        Verb::Check => required_checks::run(&paths),
        Verb::CheckApi(arguments) => check_api::run(&paths, &arguments),
        Verb::Portal => portal::run(&paths),
        Verb::Browser(arguments) => browser::run(&paths, &arguments),
        Verb::SignIn { states } => sign_in::run(&paths, &states),
        Verb::Verifiers => verifiers::run(&paths),
        Verb::VerifyPage => verifiers::write_page(&paths),
        Verb::Openapi => openapi::run(&paths),
        Verb::Docs => docs::run(&paths),
        Verb::Schema => schema::run(&paths),
        Verb::Bench(arguments) => bench::run(&paths, &arguments),
        Verb::Upgrade(arguments) => upgrade::run(&paths, &arguments),
        Verb::Demo => demo::run(&paths),
        Verb::Package => package::run(&paths),
        Verb::Db => db::run(&paths),
    });
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
