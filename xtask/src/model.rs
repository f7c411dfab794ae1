//! `cargo xtask model`: the long form of every test that has one; most draw what they do from a seed.
//!
//! The selection is complete by construction: a test asks for its long form by `is_long()`, which fails a test that is not in
//! the list (`crates/testkit/src/long_forms.txt`), and the list is what is selected here.

use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use clap::Args;

use crate::fences::long_forms;
use crate::place::Place;
use crate::test;

/// Asks the tests for their long form.
const LONG_VARIABLE: &str = "FAIRWAY_TEST_LONG";
/// Where they start.
const SEED_VARIABLE: &str = "FAIRWAY_TEST_SEED";

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
    let selection = selection(&long_forms::listed(&place.root)?);
    // Their output is shown, and so they run one after another: each takes all processors.
    let nextest = ["--profile", "long", "--no-capture", "-E", &selection];
    let asked = [(LONG_VARIABLE, "1".to_owned()), (SEED_VARIABLE, seed.to_string())];
    test::select(place, &nextest.map(str::to_owned), &asked)
}

/// What nextest is to run: every test that is listed, and nothing else.
fn selection(tests: &[String]) -> String {
    tests.iter().map(|test| format!("test(={test})")).collect::<Vec<_>>().join(" | ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_test_is_selected() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let listed = long_forms::listed(root).unwrap();
        let selection = selection(&listed);
        assert!(listed.len() >= 10, "{listed:?}");
        assert!(listed.iter().all(|test| selection.contains(&format!("test(={test})"))), "{selection}");
        assert!(selection.contains("test(=fleet::"), "{selection}");
    }
}
