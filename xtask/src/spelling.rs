//! Checks the spelling of documents, comments and names with `typos` and the additional words in `typos.toml`.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::external_tools;
use crate::paths::Paths;
use crate::step::run_checked;

/// The PyPI package with the executable. Its version is pinned, because a newer dictionary can
/// reject text that passed before.
const PACKAGE: &str = "typos==1.52.0";

/// Checks all files that git tracks, except those that `typos.toml` excludes.
///
/// # Errors
/// When a word is misspelled or the tool cannot be installed.
pub(crate) fn check(paths: &Paths) -> Result<()> {
    let mut command = Command::new(ensure(paths)?);
    command.args(["--format", "brief", "--force-exclude"]).current_dir(&paths.root);
    run_checked(command)
}

/// The executable; installs the package when missing.
fn ensure(paths: &Paths) -> Result<PathBuf> {
    let environment = external_tools::install_with_pip(paths, "typos", PACKAGE.as_bytes(), &["--no-deps", PACKAGE])?;
    Ok(environment.interpreter.with_file_name("typos"))
}
