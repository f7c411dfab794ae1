//! Directories of temporary servers. Directories whose owner was killed are removed.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;

use crate::server;
use crate::state_directories;

/// Name of the directory that contains the directories of all temporary servers.
const PARENT: &str = "throwaway";

/// The path of a new directory: in memory if enough is free, otherwise below the state directory. Removes abandoned
/// directories first.
pub(crate) fn fresh_directory() -> io::Result<PathBuf> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let (on_disk, in_memory) = (state_directories::directory()?, state_directories::memory_directory());
    for parent in [Some(&on_disk), in_memory.as_ref()].into_iter().flatten() {
        sweep(&parent.join(PARENT));
    }
    // Memory is preferred, because a clone of a template database has a thousand files, which a disk creates
    // several times slower.
    let base = in_memory.filter(|_| state_directories::memory_has_room()).unwrap_or(on_disk);
    let parent = state_directories::create(&base.join(PARENT))?;
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    Ok(parent.join(format!("{}-{number}", std::process::id())))
}

/// Removes every directory without a live owner. A failure is ignored, because the next call tries again.
fn sweep(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let directory = entry.path();
        if creator(&directory).is_some_and(is_alive) {
            continue;
        }
        let Ok(lock) = File::options().read(true).write(true).open(directory.join("lock")) else { continue };
        if lock.try_lock().is_ok() && server::stop_leftover_server(&directory.join("cluster")).is_ok() {
            let _ = fs::remove_dir_all(&directory);
        }
    }
}

/// The id of the process that created the directory, which is part of the directory's name.
fn creator(directory: &Path) -> Option<i32> {
    directory.file_name()?.to_str()?.split('-').next()?.parse().ok()
}

/// Whether a process is alive. The lock file alone is not sufficient, because the creator locks its directory some
/// time after choosing the name.
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
