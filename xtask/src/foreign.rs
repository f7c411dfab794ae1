//! Tools from other registries: packages of npm and PyPI, in folders of their own beside cargo's tools.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::apt;
use crate::place::{Place, on_path};
use crate::step::succeed;

/// An installation of npm packages.
pub(crate) struct Npm {
    pub(crate) node: PathBuf,
    pub(crate) modules: PathBuf,
}

/// An environment with packages of PyPI.
pub(crate) struct Python {
    pub(crate) interpreter: PathBuf,
}

impl Npm {
    /// A command for a program of one of the packages.
    pub(crate) fn program(&self, name: &str) -> Command {
        let mut command = Command::new(&self.node);
        // What lies there is a link to a script.
        command.arg(self.modules.join(".bin").join(name));
        command
    }
}

impl Python {
    /// A command for a program of one of the packages.
    pub(crate) fn program(&self, name: &str) -> Command {
        let mut command = Command::new(&self.interpreter);
        // The script's own first line names the place where the environment was made, which is not where it lies.
        command.arg(self.interpreter.with_file_name(name));
        command
    }
}

/// An installation that was made before, or is made now; another content of `said` is another installation.
pub(crate) fn installed(
    place: &Place,
    name: &str,
    said: &[u8],
    make: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    said.hash(&mut hasher);
    let name = format!("{name}-{:016x}", hasher.finish());
    let folder = place.tools.join(&name);
    if folder.is_dir() {
        return Ok(folder);
    }
    println!("xtask: installing {name} (once)");
    // Made beside its place and moved there when it is whole: an installation that broke off is begun anew.
    let unfinished = place.tools.join(format!("{name}.{}", std::process::id()));
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished).context("removing an unfinished installation")?;
    }
    fs::create_dir_all(&place.tools).context("making the folder of tools")?;
    make(&unfinished)?;
    match fs::rename(&unfinished, &folder) {
        // Another run was faster; its installation is as good.
        Err(_) if folder.is_dir() => fs::remove_dir_all(&unfinished).context("removing a second installation")?,
        moved => moved.context("moving the installation to its place")?,
    }
    Ok(folder)
}

/// The packages that `package-lock.json` in this folder names.
pub(crate) fn npm(place: &Place, files: &Path) -> Result<Npm> {
    let lock = fs::read(files.join("package-lock.json")).context("reading package-lock.json")?;
    let node = match on_path("node") {
        Some(node) if on_path("npm").is_some() => node,
        Some(_) | None => {
            println!("xtask: installing nodejs and npm");
            apt::install("nodejs")?;
            apt::install("npm")?;
            on_path("node").context("node is not here: install your distribution's `nodejs` and `npm`")?
        }
    };
    let folder = installed(place, "npm", &lock, |folder| {
        fs::create_dir_all(folder)?;
        for name in ["package.json", "package-lock.json"] {
            fs::copy(files.join(name), folder.join(name)).with_context(|| format!("copying {name}"))?;
        }
        let mut install = Command::new(on_path("npm").context("npm is not here")?);
        // No package may run anything of its own.
        install.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel", "error"]).current_dir(folder);
        succeed(install)
    })?;
    Ok(Npm { node, modules: folder.join("node_modules") })
}

/// The packages that `requirements.txt` in this folder names.
pub(crate) fn python(place: &Place, files: &Path) -> Result<Python> {
    let requirements = files.join("requirements.txt");
    let said = fs::read(&requirements).context("reading requirements.txt")?;
    let requirements = requirements.to_str().context("the checkout's path is no text")?;
    // All of them stand there, those that others need too.
    packages(place, "python", &said, &["--no-deps", "--requirement", requirements])
}

/// An environment with what pip installs for these arguments.
pub(crate) fn packages(place: &Place, name: &str, said: &[u8], arguments: &[&str]) -> Result<Python> {
    let folder = installed(place, name, said, |folder| {
        environment(folder).context("Python 3 with `venv` is missing: install your distribution's `python3-venv`")?;
        let mut install = Command::new(folder.join("bin/python"));
        install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(arguments);
        succeed(install)
    })?;
    Ok(Python { interpreter: folder.join("bin/python") })
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
