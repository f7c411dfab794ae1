//! Installs packages of a Debian-based distribution.

use std::process::Command;

use anyhow::{Context, Result};
use nix::unistd::geteuid;

use crate::paths::find_on_path;
use crate::step::run_checked;

/// Installs a package with `apt-get`, as root or with a passwordless sudo.
pub(crate) fn install(package: &str) -> Result<()> {
    let apt = find_on_path("apt-get").context("apt-get is not installed")?;
    let privileged = || -> Result<Command> {
        if geteuid().is_root() {
            return Ok(Command::new(&apt));
        }
        let sudo = find_on_path("sudo").context("installing from apt needs root")?;
        let mut command = Command::new(sudo);
        command.arg("--non-interactive").arg(&apt);
        Ok(command)
    };
    let mut update = privileged()?;
    update.args(["update", "--quiet"]);
    run_checked(update)?;
    let mut install = privileged()?;
    install.args(["install", "--yes", "--quiet", "--no-install-recommends", package]);
    install.env("DEBIAN_FRONTEND", "noninteractive");
    run_checked(install)
}
