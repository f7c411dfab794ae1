//! Paths of the checkout, the build directory and the installed tools.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

/// The directories that commands use.
pub(crate) struct Paths {
    /// The root of the checkout.
    pub(crate) root: PathBuf,
    /// Cargo's target directory: `CARGO_TARGET_DIR`, or a directory outside the checkout, so that all clones share
    /// compiled dependencies.
    pub(crate) target: PathBuf,
    /// The folder of tools that xtask installs; executables are in its `bin`.
    pub(crate) tools: PathBuf,
}

impl Paths {
    pub(crate) fn discover() -> Result<Paths> {
        // `cargo run` sets this variable. The value from compile time is used when the executable is started directly.
        let package =
            env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
        let root = package.parent().context("xtask has no parent directory")?.to_owned();
        let cache = cache_directory().context("neither XDG_CACHE_HOME nor HOME is set to a directory")?.join("fairway");
        let target = match env::var_os("CARGO_TARGET_DIR").filter(|value| !value.is_empty()) {
            Some(path) => std::path::absolute(PathBuf::from(path))?,
            None => cache.join("target"),
        };
        Ok(Paths { root, target, tools: cache.join("tools") })
    }

    /// A cargo command in the checkout, with the target directory and the installed tools.
    pub(crate) fn cargo(&self) -> Command {
        let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.current_dir(&self.root).env("CARGO_TARGET_DIR", &self.target).env("PATH", self.path());
        command
    }

    /// The path of the server executable.
    pub(crate) fn server_executable(&self, profile: Profile) -> PathBuf {
        self.target.join(profile.folder()).join("fairway-server")
    }

    /// The path of the command line's executable.
    pub(crate) fn command_line_executable(&self, profile: Profile) -> PathBuf {
        self.target.join(profile.folder()).join("fairway")
    }

    /// A command that builds the server and the command line.
    pub(crate) fn programs_build_command(&self, profile: Profile) -> Command {
        let mut command = self.cargo();
        command.args([
            "build",
            "--package",
            "fairway-api",
            "--bin",
            "fairway-server",
            "--package",
            "fairway-cli",
            "--bin",
            "fairway",
        ]);
        match profile {
            Profile::Dev => {}
            Profile::Release => {
                command.arg("--release");
            }
        }
        command
    }

    /// A command that builds the server, the command line and `print_schema` with the features of the test build.
    ///
    /// A package that is built alone has fewer features of its dependencies than the test build, and cargo compiles
    /// the dependencies once for each set of features. The checks use the features of the test build, so that CI
    /// compiles the dependencies once. Cargo includes the features of tests because `print_schema` is an example.
    pub(crate) fn checked_programs_build_command(&self) -> Command {
        let mut command = self.cargo();
        command.args(["build", "--workspace", "--bin", "fairway-server", "--bin", "fairway"]);
        command.args(["--example", "print_schema"]);
        command
    }

    /// The path of the executable that prints the table definitions of a database.
    pub(crate) fn print_schema_executable(&self) -> PathBuf {
        self.target.join(Profile::Dev.folder()).join("examples/print_schema")
    }

    /// Fairway's data directory, which xtask determines by the same rules as the server.
    pub(crate) fn data_directory(&self) -> PathBuf {
        let configured = env::var_os("FAIRWAY_DATA_DIR").filter(|value| !value.is_empty());
        self.root.join(configured.unwrap_or_else(|| ".fairway".into()))
    }

    /// The value of `PATH` for commands: the installed tools, then the caller's path.
    fn path(&self) -> OsString {
        let installed_tools = self.tools.join("bin");
        let caller_path = env::var_os("PATH").unwrap_or_default();
        let folders = std::iter::once(installed_tools).chain(env::split_paths(&caller_path));
        // Joining fails only for a folder with a colon in its name; then the installed tools are omitted.
        env::join_paths(folders).unwrap_or(caller_path)
    }
}

/// A cargo build profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Profile {
    Dev,
    Release,
}

impl Profile {
    pub(crate) fn folder(self) -> &'static str {
        match self {
            Profile::Dev => "debug",
            Profile::Release => "release",
        }
    }
}

fn cache_directory() -> Option<PathBuf> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")))
}

/// The first executable with this name on the search path.
pub(crate) fn find_on_path(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(program)).find(|file: &PathBuf| Path::is_file(file))
}
