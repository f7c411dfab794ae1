//! `cargo xtask`: the project's own commands, each in a file of its name.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command line speaks on its standard streams")]

mod advisories;
mod apt;
mod bench;
mod bucket;
mod check;
mod check_api;
mod children;
mod db;
mod demo;
mod docs;
mod fences;
mod foreign;
mod gateway;
mod model;
mod npm_audit;
mod openapi;
mod package;
mod place;
mod postgres;
mod security;
mod signals;
mod step;
mod test;
mod tools;
mod up;
mod vectors;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::place::Place;

/// Builds, runs, tests and checks Fairway.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct CommandLine {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Build and start Fairway with a private PostgreSQL and the demo; Ctrl-C stops all of it
    Up(up::Arguments),
    /// Run every test, or those that the arguments (handed to nextest) select, with a private PostgreSQL and an S3 server
    Test(test::Arguments),
    /// Run the tests that draw from a seed at their full length: histories beside their model, and lanes under load
    Model(model::Arguments),
    /// All that a change must pass: `check`, then the test command of the README, then `check-api`
    Ci,
    /// Format, lints, fences and dependencies
    Check,
    /// Let a linter, a property-testing tool and two generated clients loose on the API
    CheckApi(check_api::Arguments),
    /// Write docs/openapi.json
    Openapi,
    /// Write the tables of documents that are copied from snapshots
    Docs,
    /// Measure, in release builds; arguments go to the benchmark
    Bench(bench::Arguments),
    /// Seed the demo into the database of a running server
    Demo,
    /// Build `fairway` as it is handed out, with its completions and manual pages
    Package,
    /// Hold the private PostgreSQL of the data directory in the foreground and print its URL
    Db,
}

fn main() -> ExitCode {
    let verb = CommandLine::parse().verb;
    let result = Place::find().and_then(|place| match verb {
        Verb::Up(arguments) => up::run(&place, &arguments),
        Verb::Test(arguments) => test::run(&place, &arguments),
        Verb::Model(arguments) => model::run(&place, &arguments),
        Verb::Ci => check::ci(&place),
        Verb::Check => check::run(&place),
        Verb::CheckApi(arguments) => check_api::run(&place, &arguments),
        Verb::Openapi => openapi::run(&place),
        Verb::Docs => docs::run(&place),
        Verb::Bench(arguments) => bench::run(&place, &arguments),
        Verb::Demo => demo::run(&place),
        Verb::Package => package::run(&place),
        Verb::Db => db::run(&place),
    });
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
