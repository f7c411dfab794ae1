//! `cargo xtask model`: the long form of the tests that have one; most draw what they do from a seed.

use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use clap::Args;

use crate::place::Place;
use crate::test;

/// Asks the tests for their long form.
const LONG_VARIABLE: &str = "FAIRWAY_TEST_LONG";
/// Where they start.
const SEED_VARIABLE: &str = "FAIRWAY_TEST_SEED";

/// The tests that have one: releases, lanes and rollouts beside their model, the same kept by PostgreSQL, many clients
/// over HTTP, everything that writes over a line to the database that breaks, counting up against each other, and restarts
/// under load. Their output is shown, and so they run
/// one after another: each takes all processors.
const SELECTED: &str = "binary_id(fairway-domain::machine) | test(/^lockstep::/) | test(/^lanes_under_load::/) \
    | test(/^faulty_line::what_was/) | test(/^concurrency::no_increment/) | test(/^rolling::/)";

#[derive(Args)]
pub(crate) struct Arguments {
    /// Where to start; a failure says which seed shows it again. Default: another one each time
    #[arg(long)]
    seed: Option<u64>,
}

pub(crate) fn run(place: &Place, arguments: &Arguments) -> Result<ExitCode> {
    let seed = match arguments.seed {
        Some(seed) => seed,
        None => SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs(),
    };
    println!("from seed {seed}");
    let nextest = ["--profile", "long", "--no-capture", "-E", SELECTED];
    let asked = [(LONG_VARIABLE, "1".to_owned()), (SEED_VARIABLE, seed.to_string())];
    test::select(place, &nextest.map(str::to_owned), &asked)
}
