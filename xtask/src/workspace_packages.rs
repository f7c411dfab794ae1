//! Lists the packages of the workspace.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::paths::Paths;
use crate::step::run_for_output;

/// A package of the cargo workspace.
#[derive(Debug, Clone)]
pub(crate) struct Package {
    pub(crate) name: String,
    /// The package's folder relative to the checkout, such as `adapters/postgres`.
    pub(crate) folder: PathBuf,
    pub(crate) is_library: bool,
    root: PathBuf,
}

impl Package {
    pub(crate) fn source_folder(&self) -> PathBuf {
        self.root.join(&self.folder).join("src")
    }

    /// Whether the package is in `adapters/`.
    pub(crate) fn is_adapter(&self) -> bool {
        self.folder.starts_with("adapters")
    }

    #[cfg(test)]
    pub(crate) fn fake(name: &str, folder: &str) -> Package {
        Package { name: name.to_owned(), folder: folder.into(), is_library: true, root: PathBuf::new() }
    }
}

/// All packages, from cargo's metadata.
pub(crate) fn packages(paths: &Paths) -> Result<Vec<Package>> {
    let mut command = paths.cargo();
    command.args(["metadata", "--no-deps", "--format-version", "1"]);
    let metadata: Value = serde_json::from_str(&run_for_output(command)?).context("reading cargo's metadata")?;
    let entries = metadata.get("packages").and_then(Value::as_array).context("the metadata lists no packages")?;
    entries.iter().map(|entry| package(entry, &paths.root)).collect()
}

fn package(entry: &Value, root: &Path) -> Result<Package> {
    let text = |name: &str| entry.get(name).and_then(Value::as_str).with_context(|| format!("a package has no {name}"));
    let manifest = PathBuf::from(text("manifest_path")?);
    let folder = manifest.parent().and_then(|folder| folder.strip_prefix(root).ok());
    let is_library = entry
        .get("targets")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|target| target.get("kind").and_then(Value::as_array))
        .flatten()
        .any(|kind| kind == "lib");
    Ok(Package {
        name: text("name")?.to_owned(),
        folder: folder.context("a package lies outside the checkout")?.to_owned(),
        is_library,
        root: root.to_owned(),
    })
}
