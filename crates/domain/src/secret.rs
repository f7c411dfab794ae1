//! Secrets: references in content, values, and the port that reads them.
//!
//! A reference names a location and contains nothing of the value. A value lives only while it is in use. It has no
//! text form, so it cannot reach a log, and its memory is wiped.

use crate::slug::Slug;
use async_trait::async_trait;
use std::fmt;
use zeroize::Zeroizing;

/// Maximum length of a reference, in characters.
pub const MAX_SECRET_REF_CHARS: usize = 512;

/// Value of a secret.
#[derive(Clone)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Wraps a value.
    #[must_use]
    pub fn new(value: String) -> Self {
        Self(Zeroizing::new(value))
    }

    /// The value, for the code that sends it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("[secret]")
    }
}

/// Reference to a tenant's secret. Every location is below a prefix of the tenant, so a reference cannot name another
/// tenant's secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SecretRef {
    /// `env:NAME`: an environment variable of the server, prefixed with the tenant.
    Env(String),
    /// `file:name`: a file in the tenant's directory.
    File(String),
    /// `vault:path#key`: a field of a vault entry below the tenant's prefix.
    Vault {
        /// Path of the entry; no segment is empty or leads upwards.
        path: String,
        /// Field.
        key: String,
    },
}

/// Reference to a secret of the server's own settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ServerSecretRef {
    /// `env:NAME`: any environment variable.
    Env(String),
    /// `file:path`: any file.
    File(String),
    /// `vault:path#key`: any vault entry.
    Vault {
        /// Path of the entry.
        path: String,
        /// Field.
        key: String,
    },
}

/// The text is not a secret reference. The error omits the text, because it may be the secret itself.
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
    /// Parses a reference, as the schemas of content permit it.
    ///
    /// # Errors
    /// Returns an error when the text has another form.
    pub fn parse(text: &str) -> Result<Self, SecretRefRefusal> {
        match split_scheme(text)? {
            ("env", name) if is_variable_name(name) => Ok(Self::Env(name.to_owned())),
            ("file", name) if is_segment(name, is_file_start) => Ok(Self::File(name.to_owned())),
            ("vault", place) => parse_entry(place).map(|(path, key)| Self::Vault { path, key }),
            _ => Err(SecretRefRefusal),
        }
    }
}

impl fmt::Display for ServerSecretRef {
    /// The spelling in the settings.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(name) => write!(out, "env:{name}"),
            Self::File(path) => write!(out, "file:{path}"),
            Self::Vault { path, key } => write!(out, "vault:{path}#{key}"),
        }
    }
}

impl ServerSecretRef {
    /// Parses a reference of the server's own settings.
    ///
    /// # Errors
    /// Returns an error when the text has another form.
    pub fn parse(text: &str) -> Result<Self, SecretRefRefusal> {
        let is_name = |name: &str| !name.is_empty() && !name.contains(['\0', '=']);
        match split_scheme(text)? {
            ("env", name) if is_name(name) => Ok(Self::Env(name.to_owned())),
            ("file", path) if !path.is_empty() && !path.contains('\0') => Ok(Self::File(path.to_owned())),
            ("vault", place) => parse_entry(place).map(|(path, key)| Self::Vault { path, key }),
            _ => Err(SecretRefRefusal),
        }
    }
}

fn split_scheme(text: &str) -> Result<(&str, &str), SecretRefRefusal> {
    let fits = text.chars().count() <= MAX_SECRET_REF_CHARS;
    text.split_once(':').filter(|_| fits).ok_or(SecretRefRefusal)
}

/// Matches `[A-Z][A-Z0-9]*(_[A-Z0-9]+)*`. A double underscore separates the tenant from the name, so names contain
/// none.
fn is_variable_name(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit();
    name.starts_with(|letter: char| letter.is_ascii_uppercase())
        && name.split('_').all(|part| !part.is_empty() && part.bytes().all(inner))
}

/// Parses the path and the field of a vault entry.
fn parse_entry(place: &str) -> Result<(String, String), SecretRefRefusal> {
    let (path, key) = place.split_once('#').ok_or(SecretRefRefusal)?;
    let is_path = path.split('/').all(|segment| is_segment(segment, is_entry_start));
    let is_key = !key.is_empty() && key.bytes().all(is_segment_byte);
    if is_path && is_key { Ok((path.to_owned(), key.to_owned())) } else { Err(SecretRefRefusal) }
}

/// Whether a path segment is valid. No segment starts with a dot, so none leads upwards.
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

/// Why a secret could not be read. The messages contain neither locations nor values.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SecretError {
    /// The location holds no secret.
    #[error("the secret does not exist")]
    Missing,
    /// The location belongs to another tenant.
    #[error("the secret belongs to another tenant")]
    OtherTenant,
    /// The server has no such backend: no directory or no vault is configured.
    #[error("the secret backend is not configured")]
    NotConfigured,
    /// The stored value is not text, is empty, or is far too long.
    #[error("the stored value is not a valid secret")]
    Malformed,
    /// The backend is unreachable or denies access.
    #[error("the secret backend is unavailable")]
    Unavailable,
}

impl SecretError {
    /// Every error.
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

/// Reads secrets at the time of use.
#[async_trait]
pub trait SecretReader: Send + Sync {
    /// Reads a tenant's secret.
    async fn read(&self, tenant: &Slug, reference: &SecretRef) -> Result<Secret, SecretError>;

    /// Reads a secret of the server's own settings. Callers must not pass references from content.
    async fn read_server_secret(&self, reference: &ServerSecretRef) -> Result<Secret, SecretError>;
}

/// Whether a text contains a word of the form of a well-known credential.
#[must_use]
pub fn has_credential(text: &str) -> bool {
    const PREFIXES: [&str; 11] =
        ["sk-", "sk_live_", "rk_live_", "ghp_", "gho_", "github_pat_", "glpat-", "xoxb-", "xoxp-", "AKIA", "AIza"];
    const MARKS: [&str; 3] = ["-----BEGIN ", "password=", "Bearer ey"];
    let is_key = |word: &str| {
        PREFIXES.iter().any(|prefix| {
            word.strip_prefix(prefix).is_some_and(|rest| {
                rest.len() >= 12 && rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
            })
        })
    };
    let breaks = |letter: char| !(letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-'));
    MARKS.iter().any(|mark| text.contains(mark)) || text.split(breaks).any(is_key)
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
        let described = &schema["$defs"]["secret_ref"];
        assert_eq!(described["maxLength"], MAX_SECRET_REF_CHARS);
        let pattern = Regex::new(described["pattern"].as_str().unwrap()).unwrap();
        for good in VALID_REFERENCES {
            assert!(SecretRef::parse(good).is_ok() && pattern.is_match(good), "{good}");
        }
        for bad in INVALID_REFERENCES {
            assert!(SecretRef::parse(bad).is_err() && !pattern.is_match(bad), "{bad:?}");
        }
        let long = format!("file:{}", "a".repeat(MAX_SECRET_REF_CHARS - 5));
        assert!(SecretRef::parse(&long).is_ok());
        assert_eq!(SecretRef::parse(&format!("{long}a")), Err(SecretRefRefusal));
    }

    #[test]
    fn server_settings_accept_any_variable_and_file() {
        for (text, read) in [
            ("env:openai__key", ServerSecretRef::Env("openai__key".to_owned())),
            ("file:/run/secrets/openai", ServerSecretRef::File("/run/secrets/openai".to_owned())),
            ("file:../key", ServerSecretRef::File("../key".to_owned())),
            ("vault:a/b#c", ServerSecretRef::Vault { path: "a/b".to_owned(), key: "c".to_owned() }),
        ] {
            assert_eq!(ServerSecretRef::parse(text), Ok(read));
        }
        for bad in ["", "env:", "env:A=B", "file:", "file:a\0", "vault:a", "vault:a/../b#c", "sk-live-secret"] {
            assert_eq!(ServerSecretRef::parse(bad), Err(SecretRefRefusal), "{bad}");
        }
    }

    #[test]
    fn debug_output_omits_the_value() {
        let secret = Secret::new("hunter2".to_owned());
        assert_eq!((format!("{secret:?}"), secret.expose()), ("[secret]".to_owned(), "hunter2"));
    }
}
