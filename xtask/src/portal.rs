//! `cargo xtask portal`: builds the pages that the server embeds.
//!
//! Each build is stored in the tools folder under a hash of its sources, so that unchanged sources are not built
//! again. The build of the current sources is copied to `portal/dist`, where the server's build script reads it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::external_tools::{self, NpmInstallation};
use crate::paths::Paths;
use crate::step::run_checked;

/// The folder of the portal's sources.
const FOLDER: &str = "portal";
/// The OpenAPI document, from which the build generates TypeScript types.
const API_DOCUMENT: &str = "docs/openapi.json";
/// Schemas and example contents of the asset kinds, which unit tests of the portal read.
const TEST_INPUTS: [&str; 2] = ["crates/domain/src/asset/schemas", "examples/assets"];
/// Entries that are not sources: build results and browser tests.
const NO_SOURCES: [&str; 5] = ["node_modules", "dist", "build-output", "schema.d.ts", "browser"];
/// The file in `portal/dist` with the name of the copied build.
const BUILD_NAME_FILE: &str = ".build";

pub(crate) fn run(paths: &Paths) -> Result<ExitCode> {
    ensure_built(paths)?;
    println!("{} contains the portal; the next build of the server embeds it", dist(paths).display());
    Ok(ExitCode::SUCCESS)
}

/// Builds the portal if its sources changed, and copies it to `portal/dist`.
pub(crate) fn ensure_built(paths: &Paths) -> Result<()> {
    let sources = Sources::collect(paths)?;
    let built = external_tools::ensure_installed(paths, "portal", &sources.content, |folder| {
        let npm = install_packages(paths)?;
        build(paths, &npm, &sources, folder)
    })?;
    publish(&built, &dist(paths))
}

/// Installs the packages of the portal and of its browser tests.
pub(crate) fn install_packages(paths: &Paths) -> Result<NpmInstallation> {
    external_tools::install_npm_packages(paths, &paths.root.join(FOLDER))
}

fn dist(paths: &Paths) -> PathBuf {
    paths.root.join(FOLDER).join("dist")
}

/// The source files of a build.
struct Sources {
    /// Paths in the checkout, sorted.
    files: Vec<PathBuf>,
    /// Concatenated paths and contents of all files, which identify the build.
    content: Vec<u8>,
}

impl Sources {
    fn collect(paths: &Paths) -> Result<Sources> {
        let mut files = vec![PathBuf::from(API_DOCUMENT)];
        let mut folders: Vec<_> = [FOLDER].into_iter().chain(TEST_INPUTS).map(PathBuf::from).collect();
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(paths.root.join(&folder)).context("reading the portal's sources")? {
                let name = entry?.file_name();
                if NO_SOURCES.iter().any(|excluded| *name == **excluded) {
                    continue;
                }
                let path = folder.join(name);
                if paths.root.join(&path).is_dir() { folders.push(path) } else { files.push(path) }
            }
        }
        files.sort();
        let mut content = Vec::new();
        for file in &files {
            content.extend(file.as_os_str().as_encoded_bytes());
            content.push(0);
            content.extend(fs::read(paths.root.join(file)).with_context(|| format!("reading {}", file.display()))?);
            content.push(0);
        }
        Ok(Sources { files, content })
    }
}

/// Builds a copy of the sources, so that the checkout stays free of generated files.
fn build(paths: &Paths, npm: &NpmInstallation, sources: &Sources, result: &Path) -> Result<()> {
    let work = tempfile::tempdir().context("creating the build directory")?;
    for file in &sources.files {
        let copy = work.path().join(file);
        fs::create_dir_all(copy.parent().context("a file has a parent")?)?;
        fs::copy(paths.root.join(file), copy).with_context(|| format!("copying {}", file.display()))?;
    }
    let folder = work.path().join(FOLDER);
    std::os::unix::fs::symlink(&npm.modules, folder.join("node_modules")).context("linking the packages")?;
    let step = |program: &str, arguments: &[&str]| {
        let mut command = npm.program(program);
        command.args(arguments).current_dir(&folder);
        run_checked(command)
    };
    step("openapi-typescript", &["../docs/openapi.json", "--output", "src/api/schema.d.ts"])?;
    step("tsc", &["--noEmit"])?;
    step("vitest", &["run"])?;
    // Vite builds each entry separately. The build of the console adds its files to those of the runtime pages.
    step("vite", &["build", "--logLevel", "warn"])?;
    step("vite", &["build", "--mode", "console", "--logLevel", "warn"])?;
    let mut finish = Command::new(&npm.node);
    finish.arg("build/finish.mjs").current_dir(&folder);
    run_checked(finish)?;
    copy_files(&folder.join("build-output"), result)
}

/// Replaces the files of `portal/dist`, unless they already are a copy of this build.
fn publish(built: &Path, dist: &Path) -> Result<()> {
    let name = built.file_name().context("a build has a name")?.as_encoded_bytes();
    if fs::read(dist.join(BUILD_NAME_FILE)).is_ok_and(|published_name| published_name == name) {
        return Ok(());
    }
    for entry in fs::read_dir(dist).context("reading portal/dist")? {
        let entry = entry?;
        if entry.file_name() != ".gitignore" {
            fs::remove_file(entry.path()).context("removing an old file of the portal")?;
        }
    }
    copy_files(built, dist)?;
    fs::write(dist.join(BUILD_NAME_FILE), name).context("writing the name of the build")
}

fn copy_files(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| format!("reading {}", from.display()))? {
        let entry = entry?;
        fs::copy(entry.path(), to.join(entry.file_name())).context("copying a built file")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn publishes_a_build_once_and_removes_the_files_of_the_last_one() {
        let folder = tempfile::tempdir().unwrap();
        let (built, dist) = (folder.path().join("portal-1"), folder.path().join("dist"));
        fs::create_dir_all(&built).unwrap();
        fs::create_dir_all(&dist).unwrap();
        fs::write(built.join("new.js"), "new").unwrap();
        fs::write(dist.join("old.js"), "old").unwrap();
        fs::write(dist.join(".gitignore"), "*").unwrap();
        publish(&built, &dist).unwrap();
        assert!(!dist.join("old.js").exists() && dist.join(".gitignore").exists());
        fs::remove_file(dist.join("new.js")).unwrap();
        publish(&built, &dist).unwrap();
        assert!(!dist.join("new.js").exists(), "the same build is not copied again");
    }
}
