//! A gateway of models for the tests, installed from PyPI into an environment of its own.

use std::path::PathBuf;

use anyhow::Result;

use crate::foreign;
use crate::place::Place;

/// Where its packages are listed. Its `proxy` extra names one that is not free; the gateway runs without it.
const FOLDER: &str = "tools/gateway";

/// The Python that runs the gateway, installed when it is not there.
pub(crate) fn ensure(place: &Place) -> Result<PathBuf> {
    Ok(foreign::python(place, &place.root.join(FOLDER))?.interpreter)
}
