//! The LiteLLM gateway for tests, installed from PyPI into a separate environment.

use std::path::PathBuf;

use anyhow::Result;

use crate::foreign;
use crate::place::Place;

/// The folder of its requirements. They omit a non-free package of the `proxy` extra, which the gateway does not
/// need.
const FOLDER: &str = "tools/gateway";

/// The Python interpreter that runs the gateway; installs the packages when missing.
pub(crate) fn ensure(place: &Place) -> Result<PathBuf> {
    Ok(foreign::python(place, &place.root.join(FOLDER))?.interpreter)
}
