//! An S3 server for the tests, installed from PyPI into an environment of its own.

use std::path::PathBuf;

use anyhow::Result;

use crate::foreign;
use crate::place::Place;

/// What is installed. Pinned: the tests count on how it keeps put-if-absent.
const SERVER: &str = "moto[server]==5.2.5";

/// The Python that runs the server, installed when it is not there.
pub(crate) fn ensure(place: &Place) -> Result<PathBuf> {
    Ok(foreign::packages(place, "moto", SERVER.as_bytes(), &[SERVER])?.interpreter)
}
