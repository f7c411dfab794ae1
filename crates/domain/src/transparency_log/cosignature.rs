//! Cosignatures of witnesses (C2SP `tlog-cosignature`, version 1). A witness cosigns a checkpoint only if it is
//! consistent with all checkpoints of the log that the witness cosigned before. Two readers that require its
//! cosignature can therefore not receive two different histories.

use super::{
    TreeHash,
    signed_note::{EncodedKey, NoteSignature, SignedNote, VerifierKeyRefusal},
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use std::fmt;

/// The signature type of cosignatures; their signed message includes a time.
const COSIGNATURE: u8 = 4;
/// The length of the time that precedes the signature, in bytes.
const TIME_BYTES: usize = 8;
/// The maximum time of a cosignature, 2^53 seconds, because JSON parsers represent larger numbers inexactly. A
/// cosignature with a later time is invalid.
const MAX_SECONDS: u64 = 1 << 53;

/// The named public key of a witness. Its text form is `<name>+<key id>+<base64 key>`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WitnessKey(EncodedKey);

impl WitnessKey {
    /// Creates a named public key; `None` if the name is not allowed in notes, or the key is weak or invalid.
    #[must_use]
    pub fn new(name: &str, public_key: &[u8; 32]) -> Option<Self> {
        EncodedKey::new(name, COSIGNATURE, public_key).map(Self)
    }

    /// Parses the text form of a witness key.
    ///
    /// # Errors
    /// When the text has another form, or the key identifier does not match the name and the key.
    pub fn parse(text: &str) -> Result<Self, VerifierKeyRefusal> {
        EncodedKey::parse(text, COSIGNATURE).map(Self)
    }

    /// The name under which the witness signs.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// The identifier of the key, in hexadecimal digits.
    #[must_use]
    pub fn id_hex(&self) -> String {
        self.0.id_hex()
    }

    /// The time of the latest cosignature by this witness, in seconds since 1970. `None` if the witness did not cosign
    /// the note, or a line under its name is invalid.
    #[must_use]
    pub fn cosigned_at(&self, note: &SignedNote) -> Option<u64> {
        let own_lines = note.signatures().iter().filter(|line| self.0.is_named_by(line));
        let mut latest = None;
        for line in own_lines {
            let (seconds, signature) = line.signature.split_first_chunk::<TIME_BYTES>()?;
            let seconds = u64::from_be_bytes(*seconds);
            if seconds > MAX_SECONDS || !self.0.verifies(&cosigned_message(note.text(), seconds), signature) {
                return None;
            }
            latest = latest.max(Some(seconds));
        }
        latest
    }

    /// The signature line for a signature of [`cosigned_message`] by this key.
    #[must_use]
    pub fn cosignature_line(&self, seconds: u64, signature: &[u8; 64]) -> NoteSignature {
        self.0.line([seconds.to_be_bytes().as_slice(), signature].concat())
    }
}

impl fmt::Display for WitnessKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// The message that a witness signs: a header line, the time in seconds since 1970, and the text of the checkpoint.
#[must_use]
pub fn cosigned_message(text: &str, seconds: u64) -> Vec<u8> {
    format!("cosignature/v1\ntime {seconds}\n{text}").into_bytes()
}

/// A request to a witness to cosign a checkpoint (C2SP `tlog-witness`, `add-checkpoint`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WitnessRequest {
    /// The size of the tree that the witness cosigned last, as far as this server knows.
    pub old_size: u64,
    /// The proof that the tree of size `old_size` is a prefix of the checkpoint's tree, with at most 63 hashes.
    pub proof: Vec<TreeHash>,
    /// The checkpoint to cosign, with the signatures of the log.
    pub checkpoint: SignedNote,
}

impl fmt::Display for WitnessRequest {
    /// Writes the body of the HTTP request to the witness.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "old {}", self.old_size)?;
        self.proof.iter().try_for_each(|hash| writeln!(formatter, "{}", BASE64_STANDARD.encode(hash.as_bytes())))?;
        write!(formatter, "\n{}", self.checkpoint)
    }
}
