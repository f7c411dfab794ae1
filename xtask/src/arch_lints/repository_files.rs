//! Lists the source files and Markdown documents of the repository.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// All Rust source files below `crates`, `adapters` and `xtask`.
///
/// # Errors
/// When no source file exists, or a folder cannot be read.
pub(crate) fn sources(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for folder in ["crates", "adapters", "xtask"] {
        walk(&root.join(folder), &mut |path| {
            found.push(path.to_owned());
            Ok(())
        })?;
    }
    if found.is_empty() {
        bail!("no source file was found below {}", root.display());
    }
    Ok(found)
}

/// All Markdown documents in the root and below `docs`, except the changelog.
///
/// # Errors
/// When no document exists, or a folder cannot be read.
pub(crate) fn documents(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root).with_context(|| format!("reading {}", root.display()))? {
        let path = entry?.path();
        let is_document = path.extension().is_some_and(|extension| extension == "md");
        if is_document && !path.ends_with("CHANGELOG.md") {
            found.push(path);
        }
    }
    walk_for("md", &root.join("docs"), &mut |path| {
        found.push(path.to_owned());
        Ok(())
    })?;
    if found.is_empty() {
        bail!("no document was found in {}", root.display());
    }
    Ok(found)
}

fn walk(folder: &Path, visit: &mut impl FnMut(&Path) -> Result<()>) -> Result<()> {
    walk_for("rs", folder, visit)
}

fn walk_for(extension: &str, folder: &Path, visit: &mut impl FnMut(&Path) -> Result<()>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            walk_for(extension, &path, visit)?;
        } else if path.extension().is_some_and(|found| found == extension) {
            visit(&path)?;
        }
    }
    Ok(())
}
