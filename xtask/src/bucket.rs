//! The S3 server for tests, installed from PyPI into a separate environment.

use std::path::PathBuf;

use anyhow::Result;

use crate::foreign;
use crate::place::Place;

/// The package. Pinned, because the tests rely on its implementation of put-if-absent.
const SERVER: &str = "moto[server]==5.2.5";

/// The Python interpreter that runs the server; installs the package when missing.
pub(crate) fn ensure(place: &Place) -> Result<PathBuf> {
    Ok(foreign::packages(place, "moto", SERVER.as_bytes(), &[SERVER])?.interpreter)
}
