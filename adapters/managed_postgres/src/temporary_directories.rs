//! Directories of temporary servers, and the cleanup of those whose owner was killed.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;

use crate::server;
use crate::state_directories;

/// The directory of temporary servers' directories.
const PARENT: &str = "throwaway";

/// A new directory in memory if it has room, else below the state directory. Cleans up abandoned ones first.
pub(crate) fn fresh_directory() -> io::Result<PathBuf> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let (on_disk, in_memory) = (state_directories::directory()?, state_directories::memory_directory());
    for parent in [Some(&on_disk), in_memory.as_ref()].into_iter().flatten() {
        sweep(&parent.join(PARENT));
    }
    // A clone of a template database is a thousand files, which a disk creates several times slower.
    let chosen = in_memory.filter(|_| state_directories::memory_has_room()).unwrap_or(on_disk);
    let parent = state_directories::create(&chosen.join(PARENT))?;
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    Ok(parent.join(format!("{}-{number}", std::process::id())))
}

/// Removes every directory without an owner. The next call retries failures.
fn sweep(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let home = entry.path();
        if creator(&home).is_some_and(is_alive) {
            continue;
        }
        let Ok(lock) = File::options().read(true).write(true).open(home.join("lock")) else { continue };
        if lock.try_lock().is_ok() && server::stop_leftover_server(&home.join("cluster")).is_ok() {
            let _ = fs::remove_dir_all(&home);
        }
    }
}

/// The process that created the directory, from its name.
fn creator(home: &Path) -> Option<i32> {
    home.file_name()?.to_str()?.split('-').next()?.parse().ok()
}

/// Whether a process is alive. The lock alone is not sufficient: the creator may not have locked its directory yet.
fn is_alive(process: i32) -> bool {
    kill(Pid::from_raw(process), None) != Err(Errno::ESRCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removes_only_directories_without_an_owner() {
        let parent = tempfile::tempdir().unwrap();
        let new = format!("{}-0", std::process::id());
        for name in ["owned", "abandoned", "stranger", &new] {
            fs::create_dir(parent.path().join(name)).unwrap();
        }
        for name in ["abandoned", &new] {
            File::create(parent.path().join(name).join("lock")).unwrap();
        }
        let owned = File::create(parent.path().join("owned/lock")).unwrap();
        owned.lock().unwrap();
        sweep(parent.path());
        let exists = |name: &str| parent.path().join(name).exists();
        assert!(exists("owned") && exists("stranger") && exists(&new));
        assert!(!exists("abandoned"));
    }
}
