//! Checkpoints (C2SP `tlog-checkpoint`): the size and the root hash of a log, as the text of a signed note.

use super::{TreeHash, signed_note::is_key_name};
use crate::id::TenantId;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use std::fmt;

/// The common part of the origins of all logs of an installation. The log of a tenant has the origin `<base>/<tenant
/// id>`, which is also the name of its keys. A checkpoint of one tenant can therefore not be used for the log of
/// another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogOriginBase(String);

/// The text cannot be the base of log origins.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("must be 1 to 200 characters of a URL without scheme, without spaces and `+`")]
pub struct LogOriginRefusal;

impl LogOriginBase {
    /// The maximum length of a base, in bytes. With a tenant identifier, it must fit into the name of a key.
    const MAX_BYTES: usize = 200;

    /// Parses the base of log origins.
    ///
    /// # Errors
    /// When the text cannot be a part of the name of a key.
    pub fn parse(text: &str) -> Result<Self, LogOriginRefusal> {
        let is_valid = is_key_name(text)
            && text.len() <= Self::MAX_BYTES
            && !text.ends_with('/')
            && !text.chars().any(char::is_control);
        if is_valid { Ok(Self(text.to_owned())) } else { Err(LogOriginRefusal) }
    }

    /// The origin of this tenant's log: `<base>/<tenant id>`.
    #[must_use]
    pub fn origin_of_tenant(&self, tenant: TenantId) -> String {
        format!("{}/{tenant}", self.0)
    }
}

/// A statement about a log: the tree over its first `size` entries has this root hash.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checkpoint {
    /// The origin, which identifies the log.
    pub origin: String,
    /// The number of leaves of the tree.
    pub size: u64,
    /// The root hash of the tree over these leaves.
    pub root: TreeHash,
}

/// The text does not have the form of a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a checkpoint has the lines origin, tree size and base64 of the root")]
pub struct CheckpointRefusal;

impl Checkpoint {
    /// Parses the text of a signed note. Extension lines are ignored.
    ///
    /// # Errors
    /// When the text does not have the form of a checkpoint.
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
    /// Writes the text that the log and its witnesses sign.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { origin, size, root } = self;
        write!(formatter, "{origin}\n{size}\n{}\n", BASE64_STANDARD.encode(root.as_bytes()))
    }
}
