//! Cosignatures of witnesses (C2SP `tlog-cosignature`, version 1): a witness states that a checkpoint is consistent with
//! every checkpoint of the log that it cosigned before, so two readers with its cosignature cannot see two histories.

use super::{
    TreeHash,
    signed_note::{EncodedKey, NoteSignature, SignedNote, VerifierKeyRefusal},
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use std::fmt;

/// The signature type of cosignatures with a time.
const COSIGNATURE: u8 = 4;
/// The length of the time before the signature, in bytes.
const TIME_BYTES: usize = 8;
/// Seconds before 2^53, which every JSON reader represents exactly. A later time is no time of a cosignature.
const MAX_SECONDS: u64 = 1 << 53;

/// The named public key of a witness, in the form `<name>+<key id>+<base64 key>`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WitnessKey(EncodedKey);

impl WitnessKey {
    /// Names a public key; `None` for a name that no note can carry and for a key that is weak or no point.
    #[must_use]
    pub fn new(name: &str, public_key: &[u8; 32]) -> Option<Self> {
        EncodedKey::new(name, COSIGNATURE, public_key).map(Self)
    }

    /// Parses the text form.
    ///
    /// # Errors
    /// When the text has another form, or its parts do not belong together.
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

    /// The time of this witness's cosignature, in seconds since 1970; `None` if it did not cosign the note, or if one of
    /// its lines is invalid.
    #[must_use]
    pub fn cosigned_at(&self, note: &SignedNote) -> Option<u64> {
        let own = note.signatures().iter().filter(|line| self.0.is_named_by(line));
        let mut latest = None;
        for line in own {
            let (seconds, signature) = line.signature.split_first_chunk::<TIME_BYTES>()?;
            let seconds = u64::from_be_bytes(*seconds);
            if seconds > MAX_SECONDS || !self.0.verifies(&cosigned_message(note.text(), seconds), signature) {
                return None;
            }
            latest = latest.max(Some(seconds));
        }
        latest
    }

    /// The signature line of a cosignature by this key over [`cosigned_message`].
    #[must_use]
    pub fn cosignature(&self, seconds: u64, signature: &[u8; 64]) -> NoteSignature {
        self.0.line([seconds.to_be_bytes().as_slice(), signature].concat())
    }
}

impl fmt::Display for WitnessKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// What a witness signs: a header, the time in seconds since 1970 and the text of the checkpoint.
#[must_use]
pub fn cosigned_message(text: &str, seconds: u64) -> Vec<u8> {
    format!("cosignature/v1\ntime {seconds}\n{text}").into_bytes()
}

/// A request to a witness (C2SP `tlog-witness`, `add-checkpoint`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WitnessRequest {
    /// The size of the tree that the witness cosigned last, as far as the log knows.
    pub old_size: u64,
    /// The proof that the tree of this size is a prefix of the checkpoint's; at most 63 hashes.
    pub proof: Vec<TreeHash>,
    /// The checkpoint, signed by the log.
    pub checkpoint: SignedNote,
}

impl fmt::Display for WitnessRequest {
    /// The body of the request.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "old {}", self.old_size)?;
        self.proof.iter().try_for_each(|hash| writeln!(out, "{}", BASE64_STANDARD.encode(hash.as_bytes())))?;
        write!(out, "\n{}", self.checkpoint)
    }
}
