//! Installs cargo subcommands that the machine lacks.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::paths::{Paths, find_on_path};
use crate::step::run_checked;

/// Ensures that `cargo nextest` is installed.
pub(crate) fn ensure_nextest(paths: &Paths) -> Result<()> {
    ensure(paths, "cargo-nextest")
}

/// Ensures that `cargo deny` is installed.
pub(crate) fn ensure_deny(paths: &Paths) -> Result<()> {
    ensure(paths, "cargo-deny")
}

fn ensure(paths: &Paths, tool: &str) -> Result<()> {
    if paths.tools.join("bin").join(tool).is_file() || find_on_path(tool).is_some() {
        return Ok(());
    }
    println!("xtask: installing {tool} (once, takes some minutes)");
    let build = paths.tools.join("build");
    let mut install = paths.cargo();
    // An unoptimized tool is fast enough, and compiling it takes half the time.
    install.args(["install", tool, "--locked", "--debug", "--quiet", "--root"]).arg(&paths.tools);
    install.env("CARGO_TARGET_DIR", &build).env("CARGO_PROFILE_DEV_DEBUG", "false");
    run_checked(install)
        .with_context(|| format!("{tool} is missing: install it with `cargo install {tool} --locked`"))?;
    std::fs::remove_dir_all(build).context("removing the tool's build directory")
}

/// Whether cargo-deny has a local copy of the advisory database.
pub(crate) fn has_advisory_database() -> bool {
    let home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo")));
    // Only a subfolder is a copy. The folder itself also contains a lock file, even after a failed fetch.
    let copies = home.and_then(|home| home.join("advisory-dbs").read_dir().ok());
    copies.is_some_and(|entries| entries.flatten().any(|entry| entry.path().is_dir()))
}
