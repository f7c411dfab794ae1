//! The files of one server: data, password, log, and the lock of its owner.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{ClusterLifetime, Options, SUPERUSER, StartError};
use crate::os_account::Account;
use crate::state_directories;

/// The directory of one server. This process owns it while the value lives.
pub(crate) struct Cluster {
    server_directory: PathBuf,
    data_directory: PathBuf,
    account: Account,
    durability: ClusterLifetime,
    password: Option<String>,
    /// INVARIANT: locked while the server may run. The kernel releases the lock when this process ends, for any
    /// reason.
    _lock: File,
}

impl Cluster {
    /// Locks the directory, and creates a cluster if the directory has none.
    pub(crate) fn open(options: &Options, account: Account) -> Result<Cluster, StartError> {
        let server_directory = state_directories::enterable_directory(&options.server_directory, &account)
            .map_err(StartError::io("preparing the directory of the server"))?;
        let data_directory = server_directory.join("cluster");
        let lock = lock(&server_directory)?;
        let mut cluster = Cluster {
            server_directory,
            data_directory,
            account,
            durability: options.durability,
            password: None,
            _lock: lock,
        };
        let existing_major =
            cluster_version(&cluster.data_directory).map_err(StartError::io("reading the version of the data"))?;
        match (existing_major, cluster.durability) {
            (None, _) => cluster.create(options)?,
            (Some(_), ClusterLifetime::Temporary) => return Err(StartError::NotEmpty(cluster.server_directory)),
            (Some(major), ClusterLifetime::Default) if major != options.binaries.major() => {
                let programs = options.binaries.major();
                return Err(StartError::OtherMajor { path: cluster.server_directory, written_by: major, programs });
            }
            (Some(_), ClusterLifetime::Default) => {
                cluster.password = Some(password(&cluster.server_directory)?);
            }
        }
        Ok(cluster)
    }

    pub(crate) fn server_directory(&self) -> &Path {
        &self.server_directory
    }

    pub(crate) fn data_directory(&self) -> &Path {
        &self.data_directory
    }

    pub(crate) fn account(&self) -> &Account {
        &self.account
    }

    pub(crate) fn durability(&self) -> ClusterLifetime {
        self.durability
    }

    pub(crate) fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    pub(crate) fn log_file(&self) -> PathBuf {
        self.server_directory.join("log")
    }

    fn password_file(&self) -> PathBuf {
        password_file(&self.server_directory)
    }

    /// Creates the log file of a new start. The log of the previous start is renamed to `log.before`.
    pub(crate) fn new_log(&self) -> io::Result<File> {
        let path = self.log_file();
        match fs::rename(&path, self.server_directory.join("log.before")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            renamed => renamed?,
        }
        OpenOptions::new().create_new(true).append(true).mode(0o600).open(path)
    }

    /// Creates the cluster in a temporary directory and renames it when it is complete. A killed `initdb` therefore
    /// leaves no incomplete cluster under the final name.
    fn create(&mut self, options: &Options) -> Result<(), StartError> {
        let unfinished = self.server_directory.join("cluster.unfinished");
        match fs::remove_dir_all(&unfinished) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            removed => removed.map_err(StartError::io("removing an unfinished cluster"))?,
        }
        DirBuilder::new()
            .mode(0o700)
            .create(&unfinished)
            .map_err(StartError::io("creating the cluster's directory"))?;
        self.account.take_ownership(&unfinished).map_err(StartError::io("changing the owner of the cluster"))?;

        let mut command = Command::new(options.binaries.initdb());
        command.arg("-D").arg(&unfinished).args(["-U", SUPERUSER, "--encoding=UTF8", "--locale=C"]);
        match self.durability {
            ClusterLifetime::Temporary => {
                command.args(["--auth=trust", "--no-sync"]);
            }
            ClusterLifetime::Default => {
                self.password = Some(self.new_password().map_err(StartError::io("writing the server's password"))?);
                command.arg("--auth=scram-sha-256").arg("--pwfile").arg(self.password_file());
            }
        }
        isolate_environment(&mut command, &self.data_directory);
        self.account.apply(&mut command);
        let output = command.stdin(Stdio::null()).output().map_err(StartError::io("running initdb"))?;
        if !output.status.success() {
            return Err(StartError::Initdb(last_lines(&String::from_utf8_lossy(&output.stderr))));
        }
        fs::rename(&unfinished, &self.data_directory).map_err(StartError::io("moving the new cluster to its place"))
    }

    /// Creates a password of 192 random bits in hexadecimal. Its file is readable by the server's account only;
    /// `initdb` reads it once.
    fn new_password(&self) -> io::Result<String> {
        let mut bytes = [0_u8; 24];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        let password: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let path = self.password_file();
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            removed => removed?,
        }
        let mut file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&path)?;
        file.write_all(password.as_bytes())?;
        file.sync_all()?;
        self.account.take_ownership(&path)?;
        Ok(password)
    }
}

fn password_file(server_directory: &Path) -> PathBuf {
    server_directory.join("password")
}

fn password(server_directory: &Path) -> Result<String, StartError> {
    fs::read_to_string(password_file(server_directory)).map_err(StartError::io("reading the server's password"))
}

/// An existing cluster, whether or not a process owns its directory.
pub(crate) struct ExistingCluster {
    server_directory: PathBuf,
    data_directory: PathBuf,
}

impl ExistingCluster {
    /// Finds the cluster in this directory of a server; creates nothing.
    pub(crate) fn find(server_directory: &Path, account: &Account) -> Result<ExistingCluster, StartError> {
        let operation = "looking for the directory of the server";
        let no_cluster = || StartError::NoCluster(server_directory.to_owned());
        let server_directory = state_directories::existing_directory(server_directory, account)
            .map_err(StartError::io(operation))?
            .ok_or_else(no_cluster)?;
        let data_directory = server_directory.join("cluster");
        cluster_version(&data_directory).map_err(StartError::io(operation))?.ok_or_else(no_cluster)?;
        Ok(ExistingCluster { server_directory, data_directory })
    }

    pub(crate) fn server_directory(&self) -> &Path {
        &self.server_directory
    }

    pub(crate) fn data_directory(&self) -> &Path {
        &self.data_directory
    }

    pub(crate) fn password(&self) -> Result<String, StartError> {
        password(&self.server_directory)
    }
}

/// Locks the directory for this process. Writes its process id into the lock file, for the error message of a
/// second process.
fn lock(server_directory: &Path) -> Result<File, StartError> {
    let operation = "locking the directory of the server";
    let path = server_directory.join("lock");
    let mut options = OpenOptions::new();
    let file = options.create(true).truncate(false).read(true).write(true).mode(0o600).open(path);
    let mut file = file.map_err(StartError::io(operation))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut owner = String::new();
            let read = file.read_to_string(&mut owner);
            let owner = read.ok().and_then(|_| owner.trim().parse().ok());
            return Err(StartError::InUse { path: server_directory.to_owned(), owner });
        }
        Err(TryLockError::Error(error)) => return Err(StartError::io(operation)(error)),
    }
    let written = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    written.map_err(StartError::io(operation))?;
    Ok(file)
}

/// Reads the major version of the cluster; `None` if the directory has no cluster.
fn cluster_version(data_directory: &Path) -> io::Result<Option<u32>> {
    match fs::read_to_string(data_directory.join("PG_VERSION")) {
        Ok(text) => text.trim().parse().map(Some).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Makes a command independent of the caller's environment: removes its `PG…` variables, and sets locale, time zone
/// and working directory.
pub(crate) fn isolate_environment(command: &mut Command, data_directory: &Path) {
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"PG") {
            command.env_remove(name);
        }
    }
    command.env("LC_ALL", "C").env("TZ", "UTC");
    // The programs print a warning if their account cannot enter the working directory, so they run in the root
    // directory.
    command.current_dir(data_directory.ancestors().last().unwrap_or(data_directory));
}

/// The last lines of a log, joined to one line for an error message.
pub(crate) fn last_lines(log: &str) -> String {
    let lines: Vec<&str> = log.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let skipped = lines.len().saturating_sub(6);
    lines.into_iter().skip(skipped).collect::<Vec<_>>().join(" | ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_the_end_of_the_log_on_one_line() {
        let log = "1\n2\n\n3\n4\n5\n6\n  7\n";
        assert_eq!(last_lines(log), "2 | 3 | 4 | 5 | 6 | 7");
    }

    #[test]
    fn second_owner_is_refused_with_the_first_ones_id() {
        let folder = tempfile::tempdir().unwrap();
        let first = lock(folder.path()).unwrap();
        let refusal = lock(folder.path()).unwrap_err();
        assert!(
            matches!(refusal, StartError::InUse { owner: Some(owner), .. } if owner == std::process::id()),
            "{refusal}"
        );
        drop(first);
        lock(folder.path()).unwrap();
    }
}
