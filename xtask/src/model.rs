//! `cargo xtask model`: runs the long form of every test that has one. Most are driven by a seed.
//!
//! The selection is complete by construction: `is_long()` fails a test that is missing from the list
//! (`crates/testkit/src/long_forms.txt`), and this command selects that list. The matrix of the runtime pages in Chromium
//! follows, unless a seed asks for a repetition.

use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use clap::Args;

use crate::arch_lints::long_forms;
use crate::paths::Paths;
use crate::step::Steps;
use crate::{browser, test};

/// Requests the long form of tests.
const LONG_VARIABLE: &str = "FAIRWAY_TEST_LONG";
/// The seed of the tests.
const SEED_VARIABLE: &str = "FAIRWAY_TEST_SEED";

#[derive(Args)]
pub(crate) struct Arguments {
    /// The seed; a failure prints the seed that reproduces it. Without it a new seed each time
    #[arg(long)]
    seed: Option<u64>,
}

pub(crate) fn run(place: &Paths, arguments: &Arguments) -> Result<ExitCode> {
    let seed = match arguments.seed {
        Some(seed) => seed,
        None => SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs(),
    };
    println!("seed {seed}");
    let selection = nextest_filter(&long_forms::listed_tests(&place.root)?);
    // Without output capture, tests run sequentially; each uses all processors.
    let nextest = ["--profile", "long", "--no-capture", "-E", &selection];
    let asked = [(LONG_VARIABLE, "1".to_owned()), (SEED_VARIABLE, seed.to_string())];
    let code = test::run_selected(place, &nextest.map(str::to_owned), &asked)?;
    if code != ExitCode::SUCCESS || arguments.seed.is_some() {
        return Ok(code);
    }
    let mut steps = Steps::default();
    browser::check(place, &mut steps, browser::Selection::Long)?;
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
        assert!(selection.contains("test(=fleet::"), "{selection}");
    }
}
