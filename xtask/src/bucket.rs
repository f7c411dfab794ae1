//! An S3 server for the tests, installed from PyPI into an environment of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::apt;
use crate::place::{Place, on_path};
use crate::step::succeed;

/// What is installed. Pinned: the tests count on how it keeps put-if-absent.
const SERVER: &str = "moto[server]==5.2.5";
/// The folder of this very installation; another version gets another.
const FOLDER: &str = "moto-5.2.5";

/// The Python that runs the server, installed when it is not there.
pub(crate) fn ensure(place: &Place) -> Result<PathBuf> {
    let folder = place.tools.join(FOLDER);
    let python = folder.join("bin/python");
    if python.is_file() {
        return Ok(python);
    }
    println!("xtask: installing {SERVER} (once)");
    // Made beside its place and moved there when it is whole: an installation that broke off is begun anew.
    let unfinished = place.tools.join(format!("{FOLDER}.{}", std::process::id()));
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished).context("removing an unfinished installation")?;
    }
    fs::create_dir_all(&place.tools).context("making the folder of tools")?;
    environment(&unfinished).context("Python 3 with `venv` is missing: install your distribution's `python3-venv`")?;
    let mut install = Command::new(unfinished.join("bin/python"));
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", SERVER]);
    succeed(install)?;
    match fs::rename(&unfinished, &folder) {
        // Another run was faster; its installation is as good.
        Err(_) if python.is_file() => fs::remove_dir_all(&unfinished).context("removing a second installation")?,
        moved => moved.context("moving the installation to its place")?,
    }
    Ok(python)
}

/// Makes an environment, with the distribution's package where Python came without what that takes.
fn environment(folder: &Path) -> Result<()> {
    let make = || -> Result<()> {
        let python = on_path("python3").context("python3 is not here")?;
        let mut command = Command::new(python);
        command.args(["-m", "venv"]).arg(folder);
        succeed(command)
    };
    make().or_else(|missing| {
        println!("xtask: {missing:#}; installing python3-venv");
        apt::install("python3-venv")?;
        if folder.exists() {
            fs::remove_dir_all(folder).context("removing half an environment")?;
        }
        make()
    })
}
