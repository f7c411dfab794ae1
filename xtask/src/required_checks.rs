//! `cargo xtask check` and `cargo xtask ci`: the required checks of every change.

use std::fs;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use crate::paths::Paths;
use crate::step::{Steps, run_checked};
use crate::{
    arch_lints, browser, cargo_tools, check_api, docs, npm_audit, portal, rustsec_audit, schema, sign_in, spelling,
    threat_tests, verifiers,
};

/// The test command in the README.
const TEST_COMMAND: &str = "cargo xtask test";

pub(crate) fn run(paths: &Paths) -> Result<ExitCode> {
    let mut steps = Steps::default();
    check(paths, &mut steps);
    Ok(steps.finish())
}

/// Runs the checks, then the tests with the command of the README. The tests also check that generated documents are
/// current.
pub(crate) fn ci(paths: &Paths) -> Result<ExitCode> {
    let mut steps = Steps::default();
    // The portal is built first, because every later build of the server embeds it.
    steps.run("portal", || portal::ensure_built(paths));
    check(paths, &mut steps);
    steps.run("README test command", || {
        let readme = fs::read_to_string(paths.root.join("README.md")).context("reading README.md")?;
        if !shows_command(&readme, TEST_COMMAND) {
            bail!("README.md does not show the line `{TEST_COMMAND}`");
        }
        // The command runs in the caller's environment, like that of a reader of the README.
        let mut words = TEST_COMMAND.split(' ');
        let mut command = Command::new(words.next().context("the command has a program")?);
        command.args(words).current_dir(&paths.root);
        run_checked(command)
    });
    // The following checks use external tools against a server of this build.
    let check_api =
        |steps: &mut Steps| check_api::check(paths, &check_api::Arguments::for_required_checks(paths)?, steps);
    if let Err(error) = check_api(&mut steps) {
        steps.run("external tools", || Err(error));
    }
    if let Err(error) = browser::check(paths, &mut steps, browser::Selection::Required) {
        steps.run("browser tests", || Err(error));
    }
    if let Err(error) = sign_in::check(paths, &[], &mut steps) {
        steps.run("sign-in tests", || Err(error));
    }
    if let Err(error) = verifiers::check(paths, &mut steps) {
        steps.run("tests of the verifiers", || Err(error));
    }
    Ok(steps.finish())
}

fn check(paths: &Paths, steps: &mut Steps) {
    let cargo = |arguments: &[&str]| {
        let mut command = paths.cargo();
        command.args(arguments);
        run_checked(command)
    };
    steps.run("format", || cargo(&["fmt", "--all", "--check"]));
    steps.run("architecture lints", || arch_lints::run(paths));
    steps.run("spelling", || spelling::check(paths));
    steps.run("document tables", || docs::check(paths));
    steps.run("evidence of docs/security.md", || threat_tests::check(paths));
    steps.run("domain in isolation", || cargo(&["check", "--quiet", "--package", "fairway-domain"]));
    steps.run("lints", || cargo(&["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"]));
    steps.run("tables of typed queries", || schema::check(paths));
    steps.run("dependencies", || {
        cargo_tools::ensure_deny(paths)?;
        cargo(&["deny", "--log-level", "warn", "check", "--hide-inclusion-graph", "licenses", "bans", "sources"])?;
        // If `cargo deny fetch db` downloaded the advisory database, cargo-deny checks it too, because it is newer
        // than the copy in the repository.
        if cargo_tools::has_advisory_database() {
            cargo(&["deny", "--log-level", "warn", "--offline", "check", "advisories"])?;
        }
        Ok(())
    });
    steps.run("advisories", || rustsec_audit::check(paths));
    steps.run("npm audit", || npm_audit::check(paths));
}

/// Whether a document contains this command on a separate line.
fn shows_command(document: &str, command: &str) -> bool {
    document.lines().any(|line| line.split(" #").next().is_some_and(|line| line.trim() == command))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_must_be_on_a_separate_line() {
        assert!(shows_command("```sh\ncargo xtask test   # every test\n```\n", TEST_COMMAND));
        assert!(!shows_command("Do not run `cargo xtask test`.\n", TEST_COMMAND));
        assert!(!shows_command("cargo xtask test --fast\n", TEST_COMMAND));
    }
}
