//! References to the owners of assets and workloads, such as `team:support` or `user:ada`.

use super::actor::{ActorRefusal, MAX_NAME, is_name};
use serde::{Serialize, Serializer};
use std::fmt;

/// The owner of an asset or a workload: `team:<name>` or `user:<name>`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct OwnerRef(String);

impl OwnerRef {
    /// The maximum length of a reference, in characters.
    pub const MAX_CHARS: usize = "team:".len() + MAX_NAME;

    /// Parses an untrusted text as a reference to a team or a user.
    ///
    /// # Errors
    /// When the text names neither a team nor a user.
    pub fn parse(text: &str) -> Result<Self, ActorRefusal> {
        match text.split_once(':') {
            Some(("team" | "user", name)) if is_name(name) => Ok(Self(text.to_owned())),
            Some(_) | None => Err(ActorRefusal),
        }
    }

    /// The reference as text, such as `team:support`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for OwnerRef {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl Serialize for OwnerRef {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_teams_and_users_only() {
        for good in ["team:support", "user:ada"] {
            assert_eq!(OwnerRef::parse(good).unwrap().as_str(), good);
        }
        for bad in ["group:support", "support", "team:"] {
            assert!(OwnerRef::parse(bad).is_err(), "{bad}");
        }
    }
}
