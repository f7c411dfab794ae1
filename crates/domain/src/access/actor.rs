//! References to actors, such as `user:ada` or `service:ci`.

use crate::{id::ShareLinkId, slug::Slug};
use serde::{Serialize, Serializer};
use std::fmt;

/// The maximum length of an actor's or owner's name, in bytes.
pub(super) const MAX_NAME: usize = 127;

/// The kind of an actor.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ActorKind {
    /// A person, such as `user:ada`.
    User,
    /// A group of people, such as `group:support`.
    Group,
    /// A program with its own credentials.
    Service,
    /// A component of Fairway, such as `system:sequencer`.
    System,
    /// The holder of a share link.
    ShareLink,
    /// A caller without an identity.
    Anonymous,
}

impl ActorKind {
    /// The prefix of references to actors of this kind, before the colon.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Group => "group",
            Self::Service => "service",
            Self::System => "system",
            Self::ShareLink => "share_link",
            Self::Anonymous => "anonymous",
        }
    }
}

/// A reference to an actor: `user:<name>`, `group:<name>`, `service:<name>`, `system:<name>`, `share_link:<id>` or
/// `anonymous`. Names match `[a-z0-9][a-z0-9._@+-]{0,126}`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ActorRef {
    kind: ActorKind,
    name: String,
}

/// The text is not a reference to an actor or owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected a reference such as `user:ada`")]
pub struct ActorRefusal;

/// Whether the text is a valid name of an actor or owner.
pub(super) fn is_name(text: &str) -> bool {
    let is_first = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_inner = |byte: u8| is_first(byte) || b"._@+-".contains(&byte);
    text.len() <= MAX_NAME && text.bytes().next().is_some_and(is_first) && text.bytes().all(is_inner)
}

impl ActorRef {
    /// The maximum length of a reference to a user, group or service, in characters.
    pub const MAX_PRINCIPAL_CHARS: usize = "service:".len() + MAX_NAME;

    /// The maximum length of a reference to an actor of any kind, in characters.
    pub const MAX_CHARS: usize = "share_link:".len() + MAX_NAME;

    /// Parses an untrusted text as an actor reference.
    ///
    /// # Errors
    /// When the text is not a valid reference.
    pub fn parse(text: &str) -> Result<Self, ActorRefusal> {
        if text == "anonymous" {
            return Ok(Self::anonymous());
        }
        let (kind, name) = text.split_once(':').ok_or(ActorRefusal)?;
        let kind = match kind {
            "user" => ActorKind::User,
            "group" => ActorKind::Group,
            "service" => ActorKind::Service,
            "system" => ActorKind::System,
            "share_link" => ActorKind::ShareLink,
            _ => return Err(ActorRefusal),
        };
        if !is_name(name) {
            return Err(ActorRefusal);
        }
        Ok(Self { kind, name: name.to_owned() })
    }

    /// The actor of callers without an identity.
    #[must_use]
    pub const fn anonymous() -> Self {
        Self { kind: ActorKind::Anonymous, name: String::new() }
    }

    /// The actor of local mode for requests that name no other actor.
    #[must_use]
    pub fn local() -> Self {
        Self { kind: ActorKind::User, name: "local".to_owned() }
    }

    /// The actor for a component of Fairway with this fixed name.
    #[must_use]
    pub fn system(name: &'static str) -> Self {
        Self { kind: ActorKind::System, name: name.to_owned() }
    }

    /// The actor for the holder of this share link.
    #[must_use]
    pub fn share_link(id: ShareLinkId) -> Self {
        Self { kind: ActorKind::ShareLink, name: id.to_string() }
    }

    /// The actor for a subject without a usable name claim. `digest` is a digest of issuer and subject in lower-case
    /// hexadecimal.
    pub(crate) fn of_subject(kind: ActorKind, digest: &str) -> Self {
        Self { kind, name: format!("sub-{digest}") }
    }

    /// The reference to this actor while it works in another tenant: the name, `@`, and the slug of its home tenant,
    /// such as `user:ada@acme`. The suffix is necessary, because actor names are unique only within a tenant. No
    /// identity of the other tenant can have such a name. `None` if the name would be too long.
    #[must_use]
    pub fn visiting_from(&self, home_tenant: &Slug) -> Option<Self> {
        let name = format!("{}@{home_tenant}", self.name);
        is_name(&name).then_some(Self { kind: self.kind, name })
    }

    /// The actor and its home tenant, if [`Self::visiting_from`] built this reference.
    #[must_use]
    pub fn visitor_home(&self) -> Option<(Self, Slug)> {
        let (name, home_tenant) = self.name.rsplit_once('@')?;
        let home_tenant = Slug::parse(home_tenant).ok()?;
        is_name(name).then(|| (Self { kind: self.kind, name: name.to_owned() }, home_tenant))
    }

    /// The kind of the actor, such as user or service.
    #[must_use]
    pub const fn kind(&self) -> ActorKind {
        self.kind
    }
}

impl fmt::Display for ActorRef {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            ActorKind::Anonymous => out.write_str("anonymous"),
            kind @ (ActorKind::User
            | ActorKind::Group
            | ActorKind::Service
            | ActorKind::System
            | ActorKind::ShareLink) => write!(out, "{}:{}", kind.as_str(), self.name),
        }
    }
}

impl Serialize for ActorRef {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_references() {
        for good in ["user:ada", "group:a.b", "service:ci-1", "system:sequencer", "share_link:0", "anonymous"] {
            assert_eq!(ActorRef::parse(good).unwrap().to_string(), good);
        }
        for bad in ["", "ada", "user:", "user:Ada", "user:-a", "robot:a", "user:a b", "user:a:b", "anonymous:x"] {
            assert!(ActorRef::parse(bad).is_err(), "{bad}");
        }
        let (ada, home_tenant) = (ActorRef::parse("user:ada").unwrap(), Slug::parse("acme").unwrap());
        let visitor = ada.visiting_from(&home_tenant).unwrap();
        assert_eq!(visitor.to_string(), "user:ada@acme");
        assert_eq!(visitor.visitor_home(), Some((ada.clone(), home_tenant)));
        assert_eq!(ActorRef::parse("user:ada@corp.example").unwrap().visitor_home(), None);
        assert_eq!(ada.visitor_home(), None);
    }
}
