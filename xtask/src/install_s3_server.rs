//! The S3 server for tests, installed from PyPI into a separate environment.

use std::path::PathBuf;

use anyhow::Result;

use crate::external_tools;
use crate::paths::Paths;

/// The PyPI package. Its version is pinned, because the tests rely on its implementation of
/// conditional writes (put-if-absent).
const SERVER: &str = "moto[server]==5.2.5";

/// The Python interpreter that runs the server; installs the package when missing.
pub(crate) fn ensure(paths: &Paths) -> Result<PathBuf> {
    Ok(external_tools::install_with_pip(paths, "moto", SERVER.as_bytes(), &[SERVER])?.interpreter)
}
