//! The LiteLLM gateway for tests, installed from PyPI into a separate environment.

use std::path::PathBuf;

use anyhow::Result;

use crate::external_tools;
use crate::paths::Paths;

/// The folder with `requirements.txt`. The file omits a non-free package of LiteLLM's extra `proxy`, which the gateway
/// does not need.
const FOLDER: &str = "tools/gateway";

/// The Python interpreter that runs the gateway; installs the packages when missing.
pub(crate) fn ensure(paths: &Paths) -> Result<PathBuf> {
    Ok(external_tools::install_python_packages(paths, &paths.root.join(FOLDER))?.interpreter)
}
