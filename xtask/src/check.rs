//! `cargo xtask check` and `cargo xtask ci`: what every change must pass.

use std::fs;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use crate::place::Place;
use crate::step::{Steps, succeed};
use crate::{advisories, check_api, docs, fences, npm_audit, security, tools};

/// The command that the README tells people to test with.
const TEST_COMMAND: &str = "cargo xtask test";

pub(crate) fn run(place: &Place) -> Result<ExitCode> {
    let mut steps = Steps::default();
    check(place, &mut steps);
    Ok(steps.finish())
}

/// The checks, then the tests as a newcomer starts them. That the documents generated from the code are current is
/// among the tests.
pub(crate) fn ci(place: &Place) -> Result<ExitCode> {
    let mut steps = Steps::default();
    check(place, &mut steps);
    steps.step("test, as the README says", || {
        let readme = fs::read_to_string(place.root.join("README.md")).context("reading README.md")?;
        if !tells(&readme, TEST_COMMAND) {
            bail!("README.md does not show the line `{TEST_COMMAND}`");
        }
        // The caller's own environment, not that of the other steps: this is the command as it is written down.
        let mut words = TEST_COMMAND.split(' ');
        let mut command = Command::new(words.next().context("the command has a program")?);
        command.args(words).current_dir(&place.root);
        succeed(command)
    });
    // Programs of others, over a server of this build.
    if let Err(error) = check_api::check(place, &check_api::Arguments::default(), &mut steps) {
        steps.step("foreign programs", || Err(error));
    }
    Ok(steps.finish())
}

fn check(place: &Place, steps: &mut Steps) {
    let cargo = |arguments: &[&str]| {
        let mut command = place.cargo();
        command.args(arguments);
        succeed(command)
    };
    steps.step("format", || cargo(&["fmt", "--all", "--check"]));
    steps.step("fences", || fences::run(place));
    steps.step("tables of documents", || docs::check(place));
    steps.step("evidence of docs/security.md", || security::check(place));
    steps.step("domain on its own", || cargo(&["check", "--quiet", "--package", "fairway-domain"]));
    steps.step("lints", || cargo(&["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"]));
    steps.step("dependencies", || {
        tools::ensure_deny(place)?;
        cargo(&["deny", "--log-level", "warn", "check", "--hide-inclusion-graph", "licenses", "bans", "sources"])?;
        // A database that `cargo deny fetch db` brought is newer than the copy in the repository.
        if tools::advisories_are_here() {
            cargo(&["deny", "--log-level", "warn", "--offline", "check", "advisories"])?;
        }
        Ok(())
    });
    steps.step("advisories", || advisories::check(place));
    steps.step("npm audit", || npm_audit::check(place));
}

/// Whether a document shows this command on a line of its own.
fn tells(document: &str, command: &str) -> bool {
    document.lines().any(|line| line.split(" #").next().is_some_and(|line| line.trim() == command))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_told_by_a_line_of_its_own() {
        assert!(tells("```sh\ncargo xtask test   # every test\n```\n", TEST_COMMAND));
        assert!(!tells("Do not run `cargo xtask test`.\n", TEST_COMMAND));
        assert!(!tells("cargo xtask test --fast\n", TEST_COMMAND));
    }
}
