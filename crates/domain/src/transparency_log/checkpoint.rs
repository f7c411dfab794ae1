//! Checkpoints (C2SP `tlog-checkpoint`): the size and root of a log, as the text of a signed note.

use super::{TreeHash, signed_note::is_key_name};
use crate::id::TenantId;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use std::fmt;

/// The common part of the origins of an installation's logs. The log of a tenant has the origin `<base>/<tenant id>`,
/// which is also the name of its keys, so a checkpoint of one tenant never passes for that of another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogOriginBase(String);

/// The text is not the origin of logs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("must be 1 to 200 characters of a URL without scheme, without spaces and `+`")]
pub struct LogOriginRefusal;

impl LogOriginBase {
    /// The maximum length, in bytes. With the tenant's identifier it fits the name of a key.
    const MAX_BYTES: usize = 200;

    /// Parses the base of the origins.
    ///
    /// # Errors
    /// When no key can have the name.
    pub fn parse(text: &str) -> Result<Self, LogOriginRefusal> {
        let is_valid = is_key_name(text)
            && text.len() <= Self::MAX_BYTES
            && !text.ends_with('/')
            && !text.chars().any(char::is_control);
        if is_valid { Ok(Self(text.to_owned())) } else { Err(LogOriginRefusal) }
    }

    /// The origin of a tenant's log.
    #[must_use]
    pub fn of_tenant(&self, tenant: TenantId) -> String {
        format!("{}/{tenant}", self.0)
    }
}

/// A statement about a log: its first `size` leaves have this root.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checkpoint {
    /// The identity of the log.
    pub origin: String,
    /// The number of leaves.
    pub size: u64,
    /// The root of the tree.
    pub root: TreeHash,
}

/// The text is not a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a checkpoint has the lines origin, tree size and base64 of the root")]
pub struct CheckpointRefusal;

impl Checkpoint {
    /// Parses the text of a note. Extension lines are accepted and ignored.
    ///
    /// # Errors
    /// When the text has another form.
    pub fn parse(text: &str) -> Result<Self, CheckpointRefusal> {
        let text = text.strip_suffix('\n').ok_or(CheckpointRefusal)?;
        let mut lines = text.split('\n');
        let (origin, size, root) = (lines.next(), lines.next(), lines.next());
        let (Some(origin), Some(size), Some(root)) = (origin, size, root) else { return Err(CheckpointRefusal) };
        let is_decimal = size.bytes().all(|byte| byte.is_ascii_digit()) && (size == "0" || !size.starts_with('0'));
        if origin.is_empty() || !is_decimal || lines.any(str::is_empty) {
            return Err(CheckpointRefusal);
        }
        let root = BASE64_STANDARD.decode(root).ok().and_then(|root| TreeHash::from_slice(&root));
        Ok(Self {
            origin: origin.to_owned(),
            size: size.parse().map_err(|_| CheckpointRefusal)?,
            root: root.ok_or(CheckpointRefusal)?,
        })
    }
}

impl fmt::Display for Checkpoint {
    /// The text that is signed.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { origin, size, root } = self;
        write!(out, "{origin}\n{size}\n{}\n", BASE64_STANDARD.encode(root.as_bytes()))
    }
}
