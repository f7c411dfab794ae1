//! DSSE envelopes: a payload, with signatures over its type and its bytes.

use super::MAX_BUNDLE_BYTES;
use crate::transparency_log::VerifierKey;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde::{Deserialize, Serialize};

/// A payload with its type and its signatures.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Envelope {
    /// The media type of the payload, such as [`PAYLOAD_TYPE`](super::PAYLOAD_TYPE).
    pub payload_type: String,
    /// The bytes of the payload.
    pub payload: Vec<u8>,
    /// The signatures, each over the type and the bytes of the payload.
    pub signatures: Vec<EnvelopeSignature>,
}

/// One signature in an envelope.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EnvelopeSignature {
    /// The name and the identifier of the key, joined by `+`, as the verifier key contains them.
    pub key_id: String,
    /// The bytes of the Ed25519 signature.
    pub signature: Vec<u8>,
}

/// The JSON object of an envelope. INVARIANT: the fields are declared in lexical order, as canonical JSON requires.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct EnvelopeBody {
    payload: String,
    payload_type: String,
    signatures: Vec<SignatureBody>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SignatureBody {
    keyid: String,
    sig: String,
}

impl EnvelopeSignature {
    /// Creates a signature entry that names this key.
    #[must_use]
    pub fn new(key: &VerifierKey, signature: &[u8; 64]) -> Self {
        Self { key_id: Self::key_id_of(key), signature: signature.to_vec() }
    }

    fn key_id_of(key: &VerifierKey) -> String {
        format!("{}+{}", key.name(), key.id_hex())
    }

    /// Whether this signature entry names the key.
    #[must_use]
    pub fn has_key_id_of(&self, key: &VerifierKey) -> bool {
        self.key_id == Self::key_id_of(key)
    }
}

impl Envelope {
    /// Parses the file of a bundle. Only the canonical JSON is accepted, with or without a final line feed, so that
    /// every change of the file is detected. `None` for any other file.
    #[must_use]
    pub fn parse(file: &[u8]) -> Option<Self> {
        let text = file.strip_suffix(b"\n").unwrap_or(file);
        if text.len() > MAX_BUNDLE_BYTES {
            return None;
        }
        let body: EnvelopeBody = serde_json::from_slice(text).ok()?;
        let decode = |text: &str| BASE64_STANDARD.decode(text).ok();
        let signatures = body.signatures.iter().map(|signature| {
            Some(EnvelopeSignature { key_id: signature.keyid.clone(), signature: decode(&signature.sig)? })
        });
        let envelope = Self {
            payload_type: body.payload_type.clone(),
            payload: decode(&body.payload)?,
            signatures: signatures.collect::<Option<_>>()?,
        };
        (envelope.to_json().as_bytes() == text).then_some(envelope)
    }

    /// The content of the bundle's file, as canonical JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        let body = EnvelopeBody {
            payload: BASE64_STANDARD.encode(&self.payload),
            payload_type: self.payload_type.clone(),
            signatures: self
                .signatures
                .iter()
                .map(|EnvelopeSignature { key_id, signature }| SignatureBody {
                    keyid: key_id.clone(),
                    sig: BASE64_STANDARD.encode(signature),
                })
                .collect(),
        };
        // The object contains only strings, which always have a canonical form.
        serde_json_canonicalizer::to_string(&body).unwrap_or_default()
    }

    /// The bytes that a signature covers: the pre-authentication encoding of DSSE. It starts with a constant, and no
    /// checkpoint starts with that constant. Therefore one key can safely sign bundles and checkpoints.
    #[must_use]
    pub fn signed_bytes(payload_type: &str, payload: &[u8]) -> Vec<u8> {
        let head = format!("DSSEv1 {} {payload_type} {} ", payload_type.len(), payload.len());
        [head.as_bytes(), payload].concat()
    }

    /// Whether this key signed the envelope: at least one signature names the key, and all that name it are valid.
    #[must_use]
    pub fn is_signed_by(&self, key: &VerifierKey) -> bool {
        let signed_bytes = Self::signed_bytes(&self.payload_type, &self.payload);
        let mut own_signatures = self.signatures.iter().filter(|signature| signature.has_key_id_of(key)).peekable();
        own_signatures.peek().is_some()
            && own_signatures.all(|signature| key.verifies(&signed_bytes, &signature.signature))
    }
}
