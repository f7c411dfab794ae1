//! Directories for persistent state: installed programs, and the data of servers whose own directory cannot be
//! used.

use std::env;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

#[cfg(target_os = "linux")]
use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use nix::unistd::geteuid;

use crate::os_account::Account;

/// Environment variable that names the state directory.
pub const STATE_VARIABLE: &str = "FAIRWAY_STATE_DIR";
/// The mount point of Linux's file system in memory.
const MEMORY_FILE_SYSTEM: &str = "/dev/shm";
/// The bytes that temporary servers may need: databases of parallel tests, and the write-ahead log between two
/// checkpoints.
const MEMORY_BYTES: u64 = 8 << 30;

/// The state directory of this user. It is created if it is missing. The first applicable location is used:
///
/// 1. `FAIRWAY_STATE_DIR`;
/// 2. for root, `/var/lib/fairway`, because the server's unprivileged account cannot enter root's home;
/// 3. for other users, `$XDG_STATE_HOME/fairway` or `~/.local/state/fairway`;
/// 4. a folder in `/tmp` that belongs to this user.
///
/// # Errors
/// When no location can be created, or another user owns the folder in `/tmp`.
pub fn directory() -> io::Result<PathBuf> {
    if let Some(state_directory) = env::var_os(STATE_VARIABLE).filter(|value| !value.is_empty()) {
        return create(&std::path::absolute(PathBuf::from(state_directory))?);
    }
    if let Some(default_path) = default_directory()
        && let Ok(created) = create(&default_path)
    {
        return Ok(created);
    }
    user_directory(Path::new("/tmp"))
}

/// This user's folder in the file system in memory. `None` if the machine has no such file system, or if
/// `FAIRWAY_STATE_DIR` names the directory for all state.
pub(crate) fn memory_directory() -> Option<PathBuf> {
    let is_named = env::var_os(STATE_VARIABLE).is_some_and(|value| !value.is_empty());
    if is_named || free_memory_file_system().is_none() {
        return None;
    }
    user_directory(Path::new(MEMORY_FILE_SYSTEM)).ok()
}

/// Whether both the file system in memory and the machine's memory have [`MEMORY_BYTES`] available.
pub(crate) fn memory_has_room() -> bool {
    let available = || {
        let memory = available_memory(&fs::read_to_string("/proc/meminfo").ok()?)?;
        Some(free_memory_file_system()?.min(memory))
    };
    available().is_some_and(|bytes| bytes >= MEMORY_BYTES)
}

/// The available bytes of the file system in memory.
#[cfg(target_os = "linux")]
fn free_memory_file_system() -> Option<u64> {
    let status = statfs(MEMORY_FILE_SYSTEM).ok().filter(|status| status.filesystem_type() == TMPFS_MAGIC)?;
    status.blocks_available().checked_mul(u64::try_from(status.block_size()).ok()?)
}

#[cfg(not(target_os = "linux"))]
fn free_memory_file_system() -> Option<u64> {
    None
}

/// Parses the available bytes from the text of `/proc/meminfo`.
fn available_memory(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

fn default_directory() -> Option<PathBuf> {
    if geteuid().is_root() {
        return Some(PathBuf::from("/var/lib/fairway"));
    }
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
        .map(|state| state.join("fairway"))
}

/// Creates this user's folder in a directory that all users share. If another user already created a folder of that
/// name, it is refused.
fn user_directory(shared: &Path) -> io::Result<PathBuf> {
    let path = shared.join(format!("fairway-{}", geteuid()));
    match DirBuilder::new().mode(0o711).create(&path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        // The process's umask may have removed the permission of the server's account to enter the folder.
        result => result.and_then(|()| fs::set_permissions(&path, Permissions::from_mode(0o711)))?,
    }
    let metadata = path.symlink_metadata()?;
    if metadata.is_dir() && metadata.uid() == geteuid().as_raw() && metadata.mode() & 0o022 == 0 {
        Ok(path)
    } else {
        Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("{} belongs to another user", path.display())))
    }
}

/// Creates a folder that other users may enter but not list, and returns its canonical path.
pub(crate) fn create(path: &Path) -> io::Result<PathBuf> {
    if !path.is_dir() {
        DirBuilder::new().recursive(true).mode(0o755).create(path)?;
        fs::set_permissions(path, Permissions::from_mode(0o711))?;
    }
    path.canonicalize()
}

/// The folder to use: `requested` if the server's account can enter it, otherwise a fixed substitute below the state
/// directory.
///
/// A substitute is needed when root's checkout is below a home directory that no other user may enter.
pub(crate) fn enterable_directory(requested: &Path, account: &Account) -> io::Result<PathBuf> {
    let requested = create(requested)?;
    if account.can_enter(&requested) {
        return Ok(requested);
    }
    let substitute = create(&substitute(&directory()?, &requested))?;
    if account.can_enter(&substitute) {
        return Ok(substitute);
    }
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        format!("the account of the server can enter neither {} nor {}", requested.display(), substitute.display()),
    ))
}

/// The folder that [`enterable_directory`] would return for this path, if it exists. Creates nothing.
pub(crate) fn existing_directory(requested: &Path, account: &Account) -> io::Result<Option<PathBuf>> {
    let Some(requested) = canonical_path(requested)? else { return Ok(None) };
    if account.can_enter(&requested) {
        return Ok(Some(requested));
    }
    canonical_path(&substitute(&directory()?, &requested))
}

/// The canonical path of a folder; `None` if it does not exist.
fn canonical_path(path: &Path) -> io::Result<Option<PathBuf>> {
    match path.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        path => path.map(Some),
    }
}

fn substitute(state: &Path, requested: &Path) -> PathBuf {
    let key = fnv1a(requested.as_os_str().as_encoded_bytes());
    state.join("servers").join(format!("{key:016x}"))
}

/// The 64-bit FNV-1a hash. The name of a data directory contains it and must not change, but the standard library's
/// hashers may change between releases.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_available_memory() {
        let meminfo = "MemTotal:       24684096 kB\nMemFree:        1 kB\nMemAvailable:   2048 kB\n";
        assert_eq!(available_memory(meminfo), Some(2 << 20));
        assert_eq!(available_memory("MemTotal: 1 kB\n"), None);
    }

    #[test]
    fn folder_in_a_shared_one_belongs_to_its_user() {
        let shared = tempfile::tempdir().unwrap();
        let user_folder = user_directory(shared.path()).unwrap();
        assert_eq!(user_directory(shared.path()).unwrap(), user_folder);
        fs::set_permissions(&user_folder, Permissions::from_mode(0o777)).unwrap();
        assert_eq!(user_directory(shared.path()).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        fs::remove_dir(&user_folder).unwrap();
        std::os::unix::fs::symlink("/", &user_folder).unwrap();
        assert_eq!(user_directory(shared.path()).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn hash_matches_the_published_vectors() {
        // Test vectors published by the algorithm's authors.
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn uses_an_enterable_folder_directly() {
        let folder = tempfile::tempdir().unwrap();
        let requested = folder.path().join("data");
        assert_eq!(enterable_directory(&requested, &Account::Caller).unwrap(), requested.canonicalize().unwrap());
    }
}
