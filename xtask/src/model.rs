//! `cargo xtask model`: runs the long forms (extended variants) of tests. A seed determines the input of most of them.
//!
//! The command selects the tests in `crates/testkit/src/long_forms.txt`. The list is complete, because `is_long_form_requested()`
//! fails a test that is missing from it. Without `--seed` the command also tests the matrix of the runtime pages in
//! Chromium; with `--seed` it only repeats the failed run.

use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use clap::Args;

use crate::arch_lints::long_forms;
use crate::paths::Paths;
use crate::step::Steps;
use crate::{browser, test};

/// The environment variable that requests the long forms of tests.
const LONG_VARIABLE: &str = "FAIRWAY_TEST_LONG";
/// The environment variable with the seed of the tests.
const SEED_VARIABLE: &str = "FAIRWAY_TEST_SEED";

#[derive(Args)]
pub(crate) struct Arguments {
    /// The seed; a failure prints the seed that reproduces it. Without it a new seed each time
    #[arg(long)]
    seed: Option<u64>,
}

pub(crate) fn run(paths: &Paths, arguments: &Arguments) -> Result<ExitCode> {
    let seed = match arguments.seed {
        Some(seed) => seed,
        None => SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs(),
    };
    println!("seed {seed}");
    let selection = nextest_filter(&long_forms::listed_tests(&paths.root)?);
    // Without output capture nextest runs the tests sequentially, because each test uses all processors.
    let nextest = ["--profile", "long", "--no-capture", "-E", &selection];
    let variables = [(LONG_VARIABLE, "1".to_owned()), (SEED_VARIABLE, seed.to_string())];
    let code = test::run_selected(paths, &nextest.map(str::to_owned), &variables)?;
    if code != ExitCode::SUCCESS || arguments.seed.is_some() {
        return Ok(code);
    }
    let mut steps = Steps::default();
    browser::check(paths, &mut steps, browser::Selection::Long)?;
    Ok(steps.finish())
}

/// The nextest filter for exactly the listed tests.
fn nextest_filter(tests: &[String]) -> String {
    tests.iter().map(|test| format!("test(={test})")).collect::<Vec<_>>().join(" | ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selects_every_listed_test() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let listed = long_forms::listed_tests(root).unwrap();
        let selection = nextest_filter(&listed);
        assert!(listed.len() >= 10, "{listed:?}");
        assert!(listed.iter().all(|test| selection.contains(&format!("test(={test})"))), "{selection}");
        assert!(selection.contains("test(=multi_server_faults::"), "{selection}");
    }
}
