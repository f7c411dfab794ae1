//! Installs external tools from npm and PyPI into separate folders next to the installed cargo tools.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::apt;
use crate::node::Node;
use crate::paths::{Paths, find_on_path};
use crate::step::run_checked;

/// Node, and a folder of installed npm packages.
pub(crate) struct NpmInstallation {
    pub(crate) node: PathBuf,
    pub(crate) modules: PathBuf,
}

/// A Python environment with PyPI packages.
pub(crate) struct PythonEnvironment {
    pub(crate) interpreter: PathBuf,
}

impl NpmInstallation {
    /// A command for a program of an installed package.
    pub(crate) fn program(&self, name: &str) -> Command {
        let mut command = Command::new(&self.node);
        // The entry in `.bin` links to a script, which Node must run.
        command.arg(self.modules.join(".bin").join(name));
        command
    }
}

impl PythonEnvironment {
    /// A command for a program of an installed package.
    pub(crate) fn program(&self, name: &str) -> Command {
        let mut command = Command::new(&self.interpreter);
        // The interpreter starts the script, because its `#!` line contains the temporary folder where the environment
        // was created before it was moved.
        command.arg(self.interpreter.with_file_name(name));
        command
    }
}

/// Returns an installation, and creates it when missing. A hash of `content` identifies it.
pub(crate) fn ensure_installed(
    paths: &Paths,
    name: &str,
    content: &[u8],
    install: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    let name = format!("{name}-{:016x}", hasher.finish());
    let folder = paths.tools.join(&name);
    if folder.is_dir() {
        return Ok(folder);
    }
    println!("xtask: installing {name} (once)");
    // Installs into a temporary folder and moves it when complete, so that the next run repeats an
    // interrupted installation.
    let unfinished = paths.tools.join(format!("{name}.{}", std::process::id()));
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished).context("removing an unfinished installation")?;
    }
    fs::create_dir_all(&paths.tools).context("creating the tools folder")?;
    install(&unfinished)?;
    match fs::rename(&unfinished, &folder) {
        // A concurrent run completed the same installation first, so this one is removed.
        Err(_) if folder.is_dir() => fs::remove_dir_all(&unfinished).context("removing a second installation")?,
        moved => moved.context("moving the installation")?,
    }
    Ok(folder)
}

/// Installs the packages of `package-lock.json` in this folder.
pub(crate) fn install_npm_packages(paths: &Paths, files: &Path) -> Result<NpmInstallation> {
    let lock = fs::read(files.join("package-lock.json")).context("reading package-lock.json")?;
    let node = Node::ensure(paths)?;
    let folder = ensure_installed(paths, "npm", &lock, |folder| {
        fs::create_dir_all(folder)?;
        for name in ["package.json", "package-lock.json"] {
            fs::copy(files.join(name), folder.join(name)).with_context(|| format!("copying {name}"))?;
        }
        let mut install = node.npm()?;
        // Packages must not run install scripts.
        install.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel", "error"]).current_dir(folder);
        run_checked(install)
    })?;
    Ok(NpmInstallation { node: node.program, modules: folder.join("node_modules") })
}

/// Installs the packages of `requirements.txt` in this folder.
pub(crate) fn install_python_packages(paths: &Paths, files: &Path) -> Result<PythonEnvironment> {
    let requirements = files.join("requirements.txt");
    let content = fs::read(&requirements).context("reading requirements.txt")?;
    let requirements = requirements.to_str().context("the checkout's path is not valid UTF-8")?;
    // The file lists all packages, including indirect dependencies.
    install_with_pip(paths, "python", &content, &["--no-deps", "--requirement", requirements])
}

/// Returns a Python environment with the packages that `pip install` installs for these arguments.
pub(crate) fn install_with_pip(
    paths: &Paths,
    name: &str,
    content: &[u8],
    arguments: &[&str],
) -> Result<PythonEnvironment> {
    let folder = ensure_installed(paths, name, content, |folder| {
        create_environment(folder)
            .context("Python 3 with `venv` is missing: install your distribution's `python3-venv`")?;
        let mut install = Command::new(folder.join("bin/python"));
        install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(arguments);
        run_checked(install)
    })?;
    Ok(PythonEnvironment { interpreter: folder.join("bin/python") })
}

/// Creates an empty Python environment; installs the distribution's venv package when missing.
fn create_environment(folder: &Path) -> Result<()> {
    let create = || -> Result<()> {
        let python = find_on_path("python3").context("python3 is not installed")?;
        let mut command = Command::new(python);
        command.args(["-m", "venv"]).arg(folder);
        run_checked(command)
    };
    create().or_else(|error| {
        println!("xtask: {error:#}; installing python3-venv");
        apt::install("python3-venv")?;
        if folder.exists() {
            fs::remove_dir_all(folder).context("removing an incomplete environment")?;
        }
        create()
    })
}
