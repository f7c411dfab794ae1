//! Secrets: references in content, secret values, and the port that reads these values.
//!
//! A reference names the location of a secret and contains no part of its value. A value is in memory only while it is
//! used. A value cannot be formatted as text, so that it is not logged by mistake. Its memory is overwritten after use.

use crate::slug::Slug;
use async_trait::async_trait;
use std::fmt;
use zeroize::Zeroizing;

/// The maximum length of a secret reference, in characters.
pub const MAX_SECRET_REF_CHARS: usize = 512;

/// The value of a secret. It has no text form, and its memory is overwritten after use.
#[derive(Clone)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Creates a secret from its value.
    #[must_use]
    pub fn new(value: String) -> Self {
        Self(Zeroizing::new(value))
    }

    /// The value of the secret, for the code that sends it to its receiver.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("[secret]")
    }
}

/// A reference to a secret of a tenant. Each location is below a prefix of this tenant, so that the reference cannot
/// name the secret of another tenant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SecretRef {
    /// `env:NAME`: an environment variable of the server whose name starts with the tenant's prefix.
    Env(String),
    /// `file:name`: a file in the tenant's directory.
    File(String),
    /// `vault:path#key`: a field of a vault entry below the tenant's prefix.
    Vault {
        /// The path of the vault entry. No segment is empty or refers to a parent directory.
        path: String,
        /// The name of the field in the vault entry.
        key: String,
    },
}

/// A reference to a secret of the server, which only the server's own settings may contain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ServerSecretRef {
    /// `env:NAME`: any environment variable of the server.
    Env(String),
    /// `file:path`: any file that the server can read.
    File(String),
    /// `vault:path#key`: a field of any vault entry.
    Vault {
        /// The path of the vault entry.
        path: String,
        /// The name of the field in the vault entry.
        key: String,
    },
}

/// The text is not a secret reference. The error does not contain the text, because it may be a secret itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a secret reference has the form `env:NAME`, `file:name` or `vault:path#key`")]
pub struct SecretRefRefusal;

impl SecretRefRefusal {
    /// The stable code of the refusal.
    #[must_use]
    pub const fn code(self) -> &'static str {
        "invalid_secret_ref"
    }
}

impl SecretRef {
    /// Parses a reference to a secret of a tenant.
    ///
    /// # Errors
    /// Returns an error when the text has another form.
    pub fn parse(text: &str) -> Result<Self, SecretRefRefusal> {
        match split_scheme(text)? {
            ("env", name) if is_variable_name(name) => Ok(Self::Env(name.to_owned())),
            ("file", name) if is_segment(name, is_file_start) => Ok(Self::File(name.to_owned())),
            ("vault", entry) => parse_entry(entry).map(|(path, key)| Self::Vault { path, key }),
            _ => Err(SecretRefRefusal),
        }
    }
}

impl fmt::Display for SecretRef {
    /// Writes the reference in the form that [`Self::parse`] accepts.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(name) => write!(formatter, "env:{name}"),
            Self::File(name) => write!(formatter, "file:{name}"),
            Self::Vault { path, key } => write!(formatter, "vault:{path}#{key}"),
        }
    }
}

impl fmt::Display for ServerSecretRef {
    /// Writes the reference as settings spell it.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(name) => write!(formatter, "env:{name}"),
            Self::File(path) => write!(formatter, "file:{path}"),
            Self::Vault { path, key } => write!(formatter, "vault:{path}#{key}"),
        }
    }
}

impl ServerSecretRef {
    /// Parses a reference in the settings of the server.
    ///
    /// # Errors
    /// Returns an error when the text has another form.
    pub fn parse(text: &str) -> Result<Self, SecretRefRefusal> {
        let is_name = |name: &str| !name.is_empty() && !name.contains(['\0', '=']);
        match split_scheme(text)? {
            ("env", name) if is_name(name) => Ok(Self::Env(name.to_owned())),
            ("file", path) if !path.is_empty() && !path.contains('\0') => Ok(Self::File(path.to_owned())),
            ("vault", entry) => parse_entry(entry).map(|(path, key)| Self::Vault { path, key }),
            _ => Err(SecretRefRefusal),
        }
    }
}

fn split_scheme(text: &str) -> Result<(&str, &str), SecretRefRefusal> {
    let is_within_limit = text.chars().count() <= MAX_SECRET_REF_CHARS;
    text.split_once(':').filter(|_| is_within_limit).ok_or(SecretRefRefusal)
}

/// Whether the text matches `[A-Z][A-Z0-9]*(_[A-Z0-9]+)*`. It contains no double underscore, because in the name of the
/// variable a double underscore separates the tenant from this text.
fn is_variable_name(name: &str) -> bool {
    let is_name_byte = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit();
    name.starts_with(|character: char| character.is_ascii_uppercase())
        && name.split('_').all(|part| !part.is_empty() && part.bytes().all(is_name_byte))
}

/// Parses the path and the field of a vault reference.
fn parse_entry(entry: &str) -> Result<(String, String), SecretRefRefusal> {
    let (path, key) = entry.split_once('#').ok_or(SecretRefRefusal)?;
    let is_path = path.split('/').all(|segment| is_segment(segment, is_entry_start));
    let is_key = !key.is_empty() && key.bytes().all(is_segment_byte);
    if is_path && is_key { Ok((path.to_owned(), key.to_owned())) } else { Err(SecretRefRefusal) }
}

/// Whether a segment of a path is valid. It must not start with a dot, so that it cannot refer to a parent directory.
fn is_segment(segment: &str, is_first: fn(u8) -> bool) -> bool {
    segment.bytes().next().is_some_and(is_first) && segment.bytes().all(is_segment_byte)
}

const fn is_segment_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')
}

const fn is_file_start(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
}

const fn is_entry_start(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

/// The reason why a secret could not be read. The messages contain neither locations nor values.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SecretError {
    /// The location does not exist, or contains no secret.
    #[error("the secret does not exist")]
    Missing,
    /// The reference names a location of another tenant.
    #[error("the secret belongs to another tenant")]
    OtherTenant,
    /// The backend of the reference is not configured: the server has no secrets directory or no vault.
    #[error("the secret backend is not configured")]
    NotConfigured,
    /// The stored value is not text, is empty, or is too long.
    #[error("the stored value is not a valid secret")]
    Malformed,
    /// The backend is unreachable or denies access.
    #[error("the secret backend is unavailable")]
    Unavailable,
}

impl SecretError {
    /// Every error, in the order of declaration.
    pub const ALL: [Self; 5] =
        [Self::Missing, Self::OtherTenant, Self::NotConfigured, Self::Malformed, Self::Unavailable];

    /// The stable code of the failure.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Missing => "secret_missing",
            Self::OtherTenant => "secret_foreign",
            Self::NotConfigured => "secret_backend_not_configured",
            Self::Malformed => "secret_malformed",
            Self::Unavailable => "secret_backend_unavailable",
        }
    }
}

/// Reads secrets each time they are used, so that a rotated secret takes effect.
#[async_trait]
pub trait SecretReader: Send + Sync {
    /// Reads the secret of a tenant, which its slug identifies.
    async fn read(&self, tenant: &Slug, reference: &SecretRef) -> Result<Secret, SecretError>;

    /// Reads a secret of the server. The caller must not pass a reference from content.
    async fn read_server_secret(&self, reference: &ServerSecretRef) -> Result<Secret, SecretError>;
}

/// Whether a text contains the prefix of a well-known type of credential with enough characters after it, or a marker
/// such as `password=`.
#[must_use]
pub fn contains_likely_credential(text: &str) -> bool {
    const PREFIXES: [&str; 11] =
        ["sk-", "sk_live_", "rk_live_", "ghp_", "gho_", "github_pat_", "glpat-", "xoxb-", "xoxp-", "AKIA", "AIza"];
    const MARKERS: [&str; 3] = ["-----BEGIN ", "password=", "Bearer ey"];
    let is_credential = |word: &str| {
        PREFIXES.iter().any(|prefix| {
            word.strip_prefix(prefix).is_some_and(|rest| {
                rest.len() >= 12 && rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
            })
        })
    };
    let is_separator = |character: char| !(character.is_ascii_alphanumeric() || matches!(character, '_' | '-'));
    MARKERS.iter().any(|marker| text.contains(marker)) || text.split(is_separator).any(is_credential)
}

#[cfg(test)]
mod tests {
    use super::*;
    use regex::Regex;
    use serde_json::Value;

    const VALID_REFERENCES: [&str; 9] = [
        "env:KEY",
        "env:OPENAI_KEY_2",
        "env:A1_2B",
        "file:key",
        "file:Key-1_b.txt",
        "vault:a#b",
        "vault:team/openai#api_key",
        "vault:_a/-b/c.d#.e-f",
        "vault:a/b#0",
    ];
    const INVALID_REFERENCES: [&str; 32] = [
        "",
        "env:",
        "env:key",
        "env:1KEY",
        "env:_KEY",
        "env:KEY_",
        "env:A__B",
        "env:A-B",
        "env: A",
        "Env:A",
        "env:A\n",
        "file:",
        "file:.hidden",
        "file:..",
        "file:../other/key",
        "file:a/b",
        "file:/etc/passwd",
        "file:a\\b",
        "file:a\0",
        "file:é",
        "vault:",
        "vault:a",
        "vault:#b",
        "vault:a#",
        "vault:/a#b",
        "vault:a/#b",
        "vault:a//b#c",
        "vault:../other#key",
        "vault:a/../b#c",
        "vault:a#b#c",
        "sk-live-secret",
        "https://vault/secret",
    ];

    #[test]
    fn accepts_the_same_references_as_the_schemas() {
        let schema: Value = serde_json::from_str(include_str!("asset/schemas/model_config.json")).unwrap();
        let definition = &schema["$defs"]["secret_ref"];
        assert_eq!(definition["maxLength"], MAX_SECRET_REF_CHARS);
        let pattern = Regex::new(definition["pattern"].as_str().unwrap()).unwrap();
        for reference in VALID_REFERENCES {
            assert_eq!(SecretRef::parse(reference).unwrap().to_string(), reference);
            assert!(pattern.is_match(reference), "{reference}");
        }
        for reference in INVALID_REFERENCES {
            assert!(SecretRef::parse(reference).is_err() && !pattern.is_match(reference), "{reference:?}");
        }
        let longest = format!("file:{}", "a".repeat(MAX_SECRET_REF_CHARS - 5));
        assert!(SecretRef::parse(&longest).is_ok());
        assert_eq!(SecretRef::parse(&format!("{longest}a")), Err(SecretRefRefusal));
    }

    #[test]
    fn server_settings_accept_any_variable_and_file() {
        for (text, expected) in [
            ("env:openai__key", ServerSecretRef::Env("openai__key".to_owned())),
            ("file:/run/secrets/openai", ServerSecretRef::File("/run/secrets/openai".to_owned())),
            ("file:../key", ServerSecretRef::File("../key".to_owned())),
            ("vault:a/b#c", ServerSecretRef::Vault { path: "a/b".to_owned(), key: "c".to_owned() }),
        ] {
            assert_eq!(ServerSecretRef::parse(text), Ok(expected));
        }
        for text in ["", "env:", "env:A=B", "file:", "file:a\0", "vault:a", "vault:a/../b#c", "sk-live-secret"] {
            assert_eq!(ServerSecretRef::parse(text), Err(SecretRefRefusal), "{text}");
        }
    }

    #[test]
    fn debug_output_omits_the_value() {
        let secret = Secret::new("hunter2".to_owned());
        assert_eq!((format!("{secret:?}"), secret.expose()), ("[secret]".to_owned(), "hunter2"));
    }
}
