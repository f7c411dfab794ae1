//! Cosignatures of witnesses (C2SP `tlog-cosignature`, version 1). A witness cosigns a checkpoint only if the
//! checkpoint is consistent with all checkpoints of the log that it cosigned before. Therefore two readers who
//! require its cosignature cannot receive two different histories.

use super::{
    TreeHash,
    signed_note::{EncodedKey, NoteSignature, SignedNote, VerifierKeyRefusal},
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use std::fmt;

/// The signature type of cosignatures, which include a time.
const COSIGNATURE: u8 = 4;
/// The length of the time that precedes the signature, in bytes.
const TIME_BYTES: usize = 8;
/// The maximum time in seconds, 2^53, because JSON parsers represent larger numbers inexactly. A cosignature with
/// a later time is invalid.
const MAX_SECONDS: u64 = 1 << 53;

/// The named public key of a witness, with the text form `<name>+<key id>+<base64 key>`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WitnessKey(EncodedKey);

impl WitnessKey {
    /// Creates a named public key; `None` if the name is not allowed in notes, or the key is weak or not a valid
    /// point.
    #[must_use]
    pub fn new(name: &str, public_key: &[u8; 32]) -> Option<Self> {
        EncodedKey::new(name, COSIGNATURE, public_key).map(Self)
    }

    /// Parses the text form.
    ///
    /// # Errors
    /// If the text has another form, or the key identifier does not match the name and the key.
    pub fn parse(text: &str) -> Result<Self, VerifierKeyRefusal> {
        EncodedKey::parse(text, COSIGNATURE).map(Self)
    }

    /// The name of the witness.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// The key identifier in hex.
    #[must_use]
    pub fn id_hex(&self) -> String {
        self.0.id_hex()
    }

    /// The time of the latest cosignature by this witness, in seconds since 1970. `None` if the witness did not
    /// cosign the note, or if one of the lines under its name is invalid.
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

    /// The signature line for a signature by this key over [`cosigned_message`].
    #[must_use]
    pub fn cosignature(&self, seconds: u64, signature: &[u8; 64]) -> NoteSignature {
        self.0.line([seconds.to_be_bytes().as_slice(), signature].concat())
    }
}

impl fmt::Display for WitnessKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// The message that a witness signs: a header, the time in seconds since 1970, and the text of the checkpoint.
#[must_use]
pub fn cosigned_message(text: &str, seconds: u64) -> Vec<u8> {
    format!("cosignature/v1\ntime {seconds}\n{text}").into_bytes()
}

/// A request to a witness to cosign a checkpoint (C2SP `tlog-witness`, `add-checkpoint`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WitnessRequest {
    /// The size of the tree that the witness cosigned last, as far as this server knows.
    pub old_size: u64,
    /// The proof that the tree of size `old_size` is a prefix of the checkpoint's tree; at most 63 hashes.
    pub proof: Vec<TreeHash>,
    /// The checkpoint with the signatures of the log.
    pub checkpoint: SignedNote,
}

impl fmt::Display for WitnessRequest {
    /// Writes the body of the request.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "old {}", self.old_size)?;
        self.proof.iter().try_for_each(|hash| writeln!(formatter, "{}", BASE64_STANDARD.encode(hash.as_bytes())))?;
        write!(formatter, "\n{}", self.checkpoint)
    }
}
