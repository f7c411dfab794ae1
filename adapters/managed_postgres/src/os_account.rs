//! The operating system account under which PostgreSQL's programs run.

use std::fs::Metadata;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use nix::unistd::{User, geteuid};

/// The account that runs PostgreSQL: the caller's account, or an unprivileged one if the caller is root, because
/// PostgreSQL refuses to run as root.
#[derive(Debug, Clone)]
pub(crate) enum Account {
    /// The caller's account. Files keep their owner.
    Caller,
    /// An unprivileged account, identified by its user and group ids.
    Unprivileged { uid: u32, gid: u32 },
}

/// The caller is root, and the machine has no unprivileged account that can run PostgreSQL.
#[derive(Debug, thiserror::Error)]
#[error("root cannot run PostgreSQL, and this machine has neither a `postgres` nor a `nobody` account")]
pub(crate) struct NoAccount;

impl Account {
    /// Chooses the account. For root, this is `postgres` if it exists, else `nobody`; for other users, their own
    /// account.
    pub(crate) fn choose() -> Result<Account, NoAccount> {
        if !geteuid().is_root() {
            return Ok(Account::Caller);
        }
        ["postgres", "nobody"]
            .into_iter()
            .filter_map(|name| User::from_name(name).ok().flatten())
            .find(|user| !user.uid.is_root())
            .map(|user| Account::Unprivileged { uid: user.uid.as_raw(), gid: user.gid.as_raw() })
            .ok_or(NoAccount)
    }

    /// Makes `command` run under this account. The standard library clears the supplementary groups.
    pub(crate) fn apply(&self, command: &mut Command) {
        match self {
            Account::Caller => {}
            Account::Unprivileged { uid, gid } => {
                command.uid(*uid).gid(*gid);
            }
        }
    }

    /// Makes this account the owner of `path`.
    pub(crate) fn take_ownership(&self, path: &Path) -> std::io::Result<()> {
        match self {
            Account::Caller => Ok(()),
            Account::Unprivileged { uid, gid } => chown(path, Some(*uid), Some(*gid)),
        }
    }

    /// Whether this account may enter `directory` and all its parents.
    ///
    /// For the caller's account the result is always true: a later operation reports the precise error.
    pub(crate) fn can_enter(&self, directory: &Path) -> bool {
        match self {
            Account::Caller => true,
            Account::Unprivileged { uid, gid } => match directory.canonicalize() {
                Ok(canonical_path) => canonical_path.ancestors().all(|folder| {
                    folder.metadata().is_ok_and(|metadata| metadata.is_dir() && may_enter(&metadata, *uid, *gid))
                }),
                Err(_) => false,
            },
        }
    }
}

/// Whether the permission bits allow this user and group to enter a folder. The rules are those of the kernel.
fn may_enter(metadata: &Metadata, uid: u32, gid: u32) -> bool {
    let mode = metadata.permissions().mode();
    let bit = if metadata.uid() == uid {
        0o100
    } else if metadata.gid() == gid {
        0o010
    } else {
        0o001
    };
    mode & bit != 0
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, create_dir, set_permissions};

    use super::*;

    #[test]
    fn closed_folder_admits_only_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        set_permissions(folder.path(), Permissions::from_mode(0o700)).unwrap();
        let metadata = folder.path().metadata().unwrap();
        assert!(may_enter(&metadata, metadata.uid(), metadata.gid()));
        assert!(!may_enter(&metadata, metadata.uid() + 1, metadata.gid() + 1));
    }

    #[test]
    fn folder_below_a_closed_one_cannot_be_entered() {
        let closed_folder = tempfile::tempdir().unwrap();
        let subfolder = closed_folder.path().join("below");
        create_dir(&subfolder).unwrap();
        set_permissions(closed_folder.path(), Permissions::from_mode(0o700)).unwrap();
        let other_account = Account::Unprivileged { uid: u32::MAX - 7, gid: u32::MAX - 7 };
        assert!(!other_account.can_enter(&subfolder));
        set_permissions(closed_folder.path(), Permissions::from_mode(0o711)).unwrap();
        assert!(other_account.can_enter(&subfolder));
    }
}
