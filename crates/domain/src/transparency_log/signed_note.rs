//! Signed notes (C2SP `signed-note`): texts with Ed25519 signatures by named keys.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use ed25519_dalek::{Signature, SigningKey, VerifyingKey};
use sha2::{Digest as _, Sha256};
use std::fmt;
use zeroize::Zeroizing;

/// The maximum length of a signed note, in bytes.
const MAX_NOTE_BYTES: usize = 64 << 10;
/// The maximum number of signatures of a note. The specification requires a limit of at least 16.
const MAX_SIGNATURES: usize = 64;
/// The start of each signature line: an em dash and a space.
const SIGNATURE_PREFIX: &str = "\u{2014} ";
/// The signature type of Ed25519. Encoded keys start with this byte.
const ED25519: u8 = 1;

/// Whether a name is allowed as the name of a key in signature lines and encoded keys.
pub(super) fn is_key_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= 255 && !name.contains('+') && !name.contains(|c: char| c.is_whitespace())
}

/// The identifier of a key: the first four bytes of SHA-256 over the name, a line feed and the encoded key.
fn key_id(name: &str, encoded_key: &[u8]) -> [u8; 4] {
    let mut hasher = Sha256::new();
    hasher.update(name.as_bytes());
    hasher.update(b"\n");
    hasher.update(encoded_key);
    let digest: [u8; 32] = hasher.finalize().into();
    let [a, b, c, d, ..] = digest;
    [a, b, c, d]
}

/// The reason why a text is not a verifier key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum VerifierKeyRefusal {
    /// The text does not consist of a name, a key identifier and a key, separated by `+`.
    #[error("a verifier key has the form `<name>+<key id in hex>+<base64>`")]
    Form,
    /// The key identifier does not match the name and the key.
    #[error("the key id does not belong to this name and key")]
    KeyId,
    /// The signature type is not Ed25519, or the public key is invalid.
    #[error("the key must be an Ed25519 public key")]
    Key,
}

/// A named Ed25519 public key of one signature type. Its text form is `<name>+<key id>+<base64 of type and key>`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct EncodedKey {
    name: String,
    signature_type: u8,
    id: [u8; 4],
    key: VerifyingKey,
}

impl EncodedKey {
    pub(super) fn new(name: &str, signature_type: u8, public_key: &[u8; 32]) -> Option<Self> {
        let key = VerifyingKey::from_bytes(public_key).ok().filter(|key| !key.is_weak())?;
        let id = key_id(name, &encode_key(signature_type, public_key));
        is_key_name(name).then(|| Self { name: name.to_owned(), signature_type, id, key })
    }

    pub(super) fn parse(text: &str, signature_type: u8) -> Result<Self, VerifierKeyRefusal> {
        let (name, rest) = text.split_once('+').ok_or(VerifierKeyRefusal::Form)?;
        let (id, encoded) = rest.split_once('+').ok_or(VerifierKeyRefusal::Form)?;
        let encoded = BASE64_STANDARD.decode(encoded).map_err(|_| VerifierKeyRefusal::Form)?;
        let key: &[u8; 32] = match encoded.split_first() {
            Some((encoded_type, key)) if *encoded_type == signature_type => {
                key.try_into().map_err(|_| VerifierKeyRefusal::Key)?
            }
            _ => return Err(VerifierKeyRefusal::Key),
        };
        let parsed = Self::new(name, signature_type, key).ok_or(VerifierKeyRefusal::Key)?;
        if parsed.id_hex() == id { Ok(parsed) } else { Err(VerifierKeyRefusal::KeyId) }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn id_hex(&self) -> String {
        self.id.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Whether the signature line names this key as its signer.
    pub(super) fn is_named_by(&self, line: &NoteSignature) -> bool {
        line.name == self.name && line.key_id == self.id
    }

    /// Whether this key made the signature of the message.
    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        Signature::from_slice(signature).is_ok_and(|signature| self.key.verify_strict(message, &signature).is_ok())
    }

    /// Creates the signature line for a signature by this key.
    pub(super) fn line(&self, signature: Vec<u8>) -> NoteSignature {
        NoteSignature { name: self.name.clone(), key_id: self.id, signature }
    }
}

impl fmt::Display for EncodedKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let encoded = BASE64_STANDARD.encode(encode_key(self.signature_type, self.key.as_bytes()));
        write!(formatter, "{}+{}+{encoded}", self.name, self.id_hex())
    }
}

fn encode_key(signature_type: u8, key: &[u8; 32]) -> Vec<u8> {
    std::iter::once(signature_type).chain(*key).collect()
}

/// The named public key of a log. Its text form is `<name>+<key id>+<base64 key>`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VerifierKey(EncodedKey);

impl VerifierKey {
    /// Creates a named public key; `None` if the name is not allowed in notes, or the key is weak or invalid.
    #[must_use]
    pub fn new(name: &str, public_key: &[u8; 32]) -> Option<Self> {
        EncodedKey::new(name, ED25519, public_key).map(Self)
    }

    /// Parses the text form of a verifier key.
    ///
    /// # Errors
    /// When the text has another form, or the key identifier does not match the name and the key.
    pub fn parse(text: &str) -> Result<Self, VerifierKeyRefusal> {
        EncodedKey::parse(text, ED25519).map(Self)
    }

    /// The name under which the key signs.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// The 32 bytes of the public key.
    #[must_use]
    pub fn public_key(&self) -> [u8; 32] {
        self.0.key.to_bytes()
    }

    /// The identifier of the key, in hexadecimal digits.
    #[must_use]
    pub fn id_hex(&self) -> String {
        self.0.id_hex()
    }

    /// Whether this key made the signature of the message.
    #[must_use]
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        self.0.verifies(message, signature)
    }
}

impl fmt::Display for VerifierKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// An Ed25519 private key that signs notes. Its memory is overwritten after use, and it has no text form.
#[derive(Clone)]
pub struct NoteSigningKey(SigningKey);

impl NoteSigningKey {
    /// Creates a key from the 32 bytes of a private key.
    #[must_use]
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self(SigningKey::from_bytes(seed))
    }

    /// Parses the base64 form of a private key's 32 bytes; `None` for any other text. White space around the text is
    /// ignored, because key files usually end with a line feed.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = Zeroizing::new(BASE64_STANDARD.decode(text.trim()).ok()?);
        let seed: &[u8; 32] = bytes.as_slice().try_into().ok()?;
        Some(Self::from_seed(seed))
    }

    /// The public key that belongs to this private key.
    #[must_use]
    pub fn public_key(&self) -> [u8; 32] {
        self.0.verifying_key().to_bytes()
    }

    /// Signs a message; the signature is deterministic.
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> [u8; 64] {
        ed25519_dalek::Signer::sign(&self.0, message).to_bytes()
    }
}

impl fmt::Debug for NoteSigningKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("[signing key]")
    }
}

/// The reason why a text is not a signed note.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoteRefusal {
    /// The text is too long, has control characters or an incomplete line, or has no signature lines after an empty
    /// line.
    #[error("a signed note has a text, an empty line and signature lines")]
    Form,
    /// A signature line is malformed.
    #[error("a signature line is an em dash, a name and base64 of a key id and a signature")]
    SignatureLine,
    /// The note has too many signatures.
    #[error("the note has too many signatures")]
    TooManySignatures,
}

/// A signature line of a note.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NoteSignature {
    /// The name of the signing key.
    pub name: String,
    /// The identifier of the signing key.
    pub key_id: [u8; 4],
    /// The bytes of the signature, whose form depends on the type of the key.
    pub signature: Vec<u8>,
}

impl NoteSignature {
    /// Creates the signature line for a signature by this key.
    #[must_use]
    pub fn new(key: &VerifierKey, signature: &[u8; 64]) -> Self {
        key.0.line(signature.to_vec())
    }

    /// Parses the signature lines that a witness returns, without verifying the signatures.
    ///
    /// # Errors
    /// When a line is malformed, or there are too many lines.
    pub fn parse_lines(text: &str) -> Result<Vec<Self>, NoteRefusal> {
        let lines = text.strip_suffix('\n').unwrap_or(text);
        let parsed: Vec<Self> =
            lines.split('\n').take(MAX_SIGNATURES + 1).map(parse_signature).collect::<Result<_, _>>()?;
        if parsed.len() > MAX_SIGNATURES { Err(NoteRefusal::TooManySignatures) } else { Ok(parsed) }
    }
}

/// A text with signature lines. INVARIANT: the text ends with a line feed, and has no other control characters than
/// line feeds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SignedNote {
    text: String,
    signatures: Vec<NoteSignature>,
}

impl SignedNote {
    /// Combines a text with its signature lines; `None` if there are no lines, or the text has a form that cannot be
    /// signed.
    #[must_use]
    pub fn new(text: String, signatures: Vec<NoteSignature>) -> Option<Self> {
        (is_text(&text) && !signatures.is_empty()).then_some(Self { text, signatures })
    }

    /// Parses a note without verifying its signatures.
    ///
    /// # Errors
    /// When the bytes are not a signed note.
    pub fn parse(note: &[u8]) -> Result<Self, NoteRefusal> {
        if note.len() > MAX_NOTE_BYTES {
            return Err(NoteRefusal::Form);
        }
        let note = std::str::from_utf8(note).map_err(|_| NoteRefusal::Form)?;
        // The text itself may contain empty lines, so the signatures follow the last empty line.
        let separator = note.rfind("\n\n").ok_or(NoteRefusal::Form)?;
        let (text, lines) = (note.get(..=separator), note.get(separator + 2..));
        let (Some(text), Some(lines)) = (text, lines) else { return Err(NoteRefusal::Form) };
        let lines = lines.strip_suffix('\n').ok_or(NoteRefusal::Form)?;
        if !is_text(text) {
            return Err(NoteRefusal::Form);
        }
        Ok(Self { text: text.to_owned(), signatures: NoteSignature::parse_lines(lines)? })
    }

    /// Adds signature lines to the note.
    #[must_use]
    pub fn with_signatures(mut self, signatures: impl IntoIterator<Item = NoteSignature>) -> Self {
        self.signatures.extend(signatures);
        self
    }

    /// The text that the signatures cover.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The signature lines of the note.
    #[must_use]
    pub fn signatures(&self) -> &[NoteSignature] {
        &self.signatures
    }

    /// Whether the note has a valid signature by this key. The note must have no invalid signature under the name and
    /// identifier of the key.
    #[must_use]
    pub fn is_signed_by(&self, key: &VerifierKey) -> bool {
        let mut own_lines = self.signatures.iter().filter(|line| key.0.is_named_by(line)).peekable();
        own_lines.peek().is_some() && own_lines.all(|line| key.verifies(self.text.as_bytes(), &line.signature))
    }
}

impl fmt::Display for SignedNote {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "{}", self.text)?;
        self.signatures.iter().try_for_each(|NoteSignature { name, key_id, signature }| {
            let encoded = BASE64_STANDARD.encode([key_id.as_slice(), signature].concat());
            writeln!(formatter, "{SIGNATURE_PREFIX}{name} {encoded}")
        })
    }
}

fn is_text(text: &str) -> bool {
    text.ends_with('\n') && text.len() <= MAX_NOTE_BYTES && !text.chars().any(|c| c.is_control() && c != '\n')
}

fn parse_signature(line: &str) -> Result<NoteSignature, NoteRefusal> {
    let fields = line.strip_prefix(SIGNATURE_PREFIX).and_then(|line| line.split_once(' '));
    let (name, encoded) = fields.filter(|(name, _)| is_key_name(name)).ok_or(NoteRefusal::SignatureLine)?;
    let decoded = BASE64_STANDARD.decode(encoded).map_err(|_| NoteRefusal::SignatureLine)?;
    match decoded.split_first_chunk::<4>() {
        Some((key_id, signature)) if !signature.is_empty() => {
            Ok(NoteSignature { name: name.to_owned(), key_id: *key_id, signature: signature.to_vec() })
        }
        _ => Err(NoteRefusal::SignatureLine),
    }
}
