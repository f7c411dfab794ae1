//! Slugs: the names of resources in URLs and commands.

use serde::{Serialize, Serializer};
use std::fmt;

/// The maximum length of a slug, in characters.
pub const MAX_SLUG: usize = 63;

/// Words that occur in routes. A resource with such a slug would be ambiguous.
const RESERVED: [&str; 12] = [
    "v1",
    "healthz",
    "readyz",
    "metrics",
    "docs",
    "mcp",
    "workload-runtime",
    "runtime-enabled",
    "by-slug",
    // Words in the paths of browser pages.
    "console",
    "sign-in",
    "sign-out",
];

/// A valid slug: `[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?`, except reserved words.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slug(String);

/// The reason why a slug is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SlugRefusal {
    /// The text does not match the pattern of slugs.
    #[error(
        "a slug has 1 to 63 lower-case letters (a-z), digits and hyphens, and neither starts nor ends with a hyphen"
    )]
    Shape,
    /// The word is reserved, because it occurs in a route.
    #[error("this slug is reserved")]
    Reserved,
}

impl SlugRefusal {
    /// The stable code of the refusal.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Shape => "invalid_slug",
            Self::Reserved => "reserved_slug",
        }
    }
}

impl Slug {
    /// Parses a slug from untrusted text.
    ///
    /// # Errors
    /// When the text does not match the pattern, or is reserved.
    pub fn parse(text: &str) -> Result<Self, SlugRefusal> {
        let is_slug_byte = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let is_well_formed = !text.is_empty()
            && text.len() <= MAX_SLUG
            && text.bytes().all(is_slug_byte)
            && !text.starts_with('-')
            && !text.ends_with('-');
        if !is_well_formed {
            return Err(SlugRefusal::Shape);
        }
        if RESERVED.contains(&text) {
            return Err(SlugRefusal::Reserved);
        }
        Ok(Self(text.to_owned()))
    }

    /// The slug as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Derives a default display name from the slug: `ticket-classifier` becomes `Ticket classifier`.
    #[must_use]
    pub fn to_display_name(&self) -> String {
        let mut words = self.0.replace('-', " ");
        if let Some(first) = words.get_mut(0..1) {
            first.make_ascii_uppercase();
        }
        words
    }
}

impl fmt::Display for Slug {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl Serialize for Slug {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_valid_slugs() {
        for text in ["a", "0", "ticket-classifier", &"x".repeat(63), "a--b"] {
            assert!(Slug::parse(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn refuses_invalid_and_reserved_slugs() {
        let long = "x".repeat(64);
        let invalid_texts = ["", "-a", "a-", "A", "a_b", "a b", "a.", "é", "a\u{200b}", "ａ", "a\n", &long];
        for text in invalid_texts {
            assert_eq!(Slug::parse(text), Err(SlugRefusal::Shape), "{text:?}");
        }
        for text in RESERVED {
            assert_eq!(Slug::parse(text), Err(SlugRefusal::Reserved), "{text}");
        }
    }

    #[test]
    fn converts_to_display_name() {
        assert_eq!(Slug::parse("ticket-classifier").unwrap().to_display_name(), "Ticket classifier");
    }
}
