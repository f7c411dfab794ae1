//! Public keys from JSON Web Key Sets (RFC 7517, RFC 7518, RFC 8037), and verification of signatures with them.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RSA_PSS_2048_8192_SHA256, RsaPublicKeyComponents,
    UnparsedPublicKey,
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use fairway_domain::{
    access::identity::{InvalidToken, MAX_KEY_ID_BYTES, SignatureAlgorithm, UnverifiedToken},
    json,
};
use serde_json::{Map, Value};

/// Maximum number of keys in a set. Real issuers publish two to six.
pub(crate) const MAX_KEYS: usize = 64;
/// Permitted lengths of an RSA modulus, in bytes: 2048 to 8192 bits.
const RSA_BYTES: std::ops::RangeInclusive<usize> = 256..=1024;
/// Maximum length of an RSA exponent, in bytes.
const MAX_EXPONENT_BYTES: usize = 8;
/// Length of a P-256 coordinate and of an Ed25519 public key, in bytes.
const COORDINATE_BYTES: usize = 32;
/// The first byte of an uncompressed point (SEC 1, 2.3.3).
const UNCOMPRESSED: u8 = 4;

/// Reason why a key set is refused as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KeySetError {
    /// The text is not a JSON object with a list of keys.
    #[error("the key set is not a JSON object with a list of keys")]
    Malformed,
    /// The set has more than 64 keys.
    #[error("the key set has too many keys")]
    TooMany,
    /// No key of the set can verify an access token. An issuer always publishes such a key, so the document is
    /// broken.
    #[error("the key set has no usable key")]
    Empty,
}

impl KeySetError {
    /// The stable code of the reason.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Malformed => "oidc_keys_malformed",
            Self::TooMany => "oidc_keys_too_many",
            Self::Empty => "oidc_keys_empty",
        }
    }
}

/// The usable keys of an issuer.
#[derive(PartialEq, Eq)]
pub(crate) struct KeySet(Vec<SigningKey>);

/// A key that can verify access tokens.
#[derive(PartialEq, Eq)]
struct SigningKey {
    id: String,
    /// The algorithm to which the key set restricts the key; `None` if the key set names no algorithm.
    algorithm: Option<SignatureAlgorithm>,
    material: Material,
}

/// A public key by its type.
#[derive(PartialEq, Eq)]
enum Material {
    Rsa {
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
    /// The uncompressed curve point.
    P256(Vec<u8>),
    Ed25519(Vec<u8>),
}

impl KeySet {
    /// Parses a key set. Keys for other purposes, keys of unsupported types and keys without an identifier are
    /// ignored, as RFC 7517, section 5, recommends.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, KeySetError> {
        let document = json::read(bytes).map_err(|_| KeySetError::Malformed)?;
        let keys = document.get("keys").and_then(Value::as_array).ok_or(KeySetError::Malformed)?;
        if keys.len() > MAX_KEYS {
            return Err(KeySetError::TooMany);
        }
        let usable: Vec<SigningKey> = keys.iter().filter_map(Value::as_object).filter_map(SigningKey::parse).collect();
        if usable.is_empty() { Err(KeySetError::Empty) } else { Ok(Self(usable)) }
    }

    /// Whether a key has this identifier.
    pub(crate) fn has_key(&self, id: &str) -> bool {
        self.0.iter().any(|key| key.id == id)
    }

    /// Checks the signature of a token with each key that has the token's key identifier.
    pub(crate) fn verify(&self, token: &UnverifiedToken<'_>) -> Result<(), InvalidToken> {
        let mut refusal = InvalidToken::UnknownKey;
        // Keys of different types may share an identifier (RFC 7517, 4.5).
        for key in self.0.iter().filter(|key| key.id == token.key_id()) {
            match key.verify(token) {
                Ok(()) => return Ok(()),
                Err(InvalidToken::Signature) => refusal = InvalidToken::Signature,
                Err(other) if refusal == InvalidToken::UnknownKey => refusal = other,
                Err(_) => {}
            }
        }
        Err(refusal)
    }
}

impl SigningKey {
    /// Parses a key; `None` if the key cannot verify access tokens.
    fn parse(key: &Map<String, Value>) -> Option<Self> {
        let text = |name: &str| key.get(name).and_then(Value::as_str);
        let id = text("kid").filter(|id| (1..=MAX_KEY_ID_BYTES).contains(&id.len()))?;
        // A key with a private part (`d`) is refused: it is published, so anyone can sign with it.
        if key.contains_key("d") || !key.get("use").is_none_or(|purpose| purpose == "sig") {
            return None;
        }
        let is_verify = |operations: &Value| {
            operations.as_array().is_some_and(|operations| operations.iter().any(|operation| operation == "verify"))
        };
        if !key.get("key_ops").is_none_or(is_verify) {
            return None;
        }
        let material = Material::parse(key)?;
        let algorithm = match key.get("alg") {
            None => None,
            Some(name) => Some(SignatureAlgorithm::parse(name.as_str()?)?),
        };
        if algorithm.is_some_and(|algorithm| !material.supports(algorithm)) {
            return None;
        }
        Some(Self { id: id.to_owned(), algorithm, material })
    }

    fn verify(&self, token: &UnverifiedToken<'_>) -> Result<(), InvalidToken> {
        // The key determines the permitted algorithm, not the token (RFC 8725, 3.1).
        let algorithm = token.algorithm();
        if self.algorithm.is_some_and(|key_algorithm| key_algorithm != algorithm) || !self.material.supports(algorithm)
        {
            return Err(InvalidToken::KeyAlgorithm);
        }
        if self.material.verifies(algorithm, token.signed_bytes(), token.signature()) {
            Ok(())
        } else {
            Err(InvalidToken::Signature)
        }
    }
}

impl Material {
    fn parse(key: &Map<String, Value>) -> Option<Self> {
        let text = |name: &str| key.get(name).and_then(Value::as_str);
        let bytes = |name: &str| URL_SAFE_NO_PAD.decode(text(name)?).ok();
        let coordinate = |name: &str| bytes(name).filter(|bytes| bytes.len() == COORDINATE_BYTES);
        match (text("kty")?, text("crv")) {
            ("RSA", _) => {
                let without_zeros =
                    |bytes: Vec<u8>| bytes.into_iter().skip_while(|byte| *byte == 0).collect::<Vec<u8>>();
                let modulus = without_zeros(bytes("n")?);
                let exponent = without_zeros(bytes("e")?);
                let is_exponent = exponent.len() <= MAX_EXPONENT_BYTES
                    && exponent.last().is_some_and(|last_byte| last_byte % 2 == 1)
                    && exponent.as_slice() != [1];
                (RSA_BYTES.contains(&modulus.len()) && is_exponent).then_some(Self::Rsa { modulus, exponent })
            }
            ("EC", Some("P-256")) => {
                let point = [&[UNCOMPRESSED], coordinate("x")?.as_slice(), coordinate("y")?.as_slice()].concat();
                Some(Self::P256(point))
            }
            ("OKP", Some("Ed25519")) => Some(Self::Ed25519(coordinate("x")?)),
            _ => None,
        }
    }

    const fn supports(&self, algorithm: SignatureAlgorithm) -> bool {
        match algorithm {
            SignatureAlgorithm::Rs256 | SignatureAlgorithm::Ps256 => matches!(self, Self::Rsa { .. }),
            SignatureAlgorithm::Es256 => matches!(self, Self::P256(_)),
            SignatureAlgorithm::EdDsa => matches!(self, Self::Ed25519(_)),
        }
    }

    fn verifies(&self, algorithm: SignatureAlgorithm, message: &[u8], signature: &[u8]) -> bool {
        let result = match (self, algorithm) {
            (Self::Rsa { modulus, exponent }, SignatureAlgorithm::Rs256) => {
                let key = RsaPublicKeyComponents { n: modulus, e: exponent };
                key.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature)
            }
            (Self::Rsa { modulus, exponent }, SignatureAlgorithm::Ps256) => {
                let key = RsaPublicKeyComponents { n: modulus, e: exponent };
                key.verify(&RSA_PSS_2048_8192_SHA256, message, signature)
            }
            (Self::P256(point), SignatureAlgorithm::Es256) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(message, signature)
            }
            (Self::Ed25519(key), SignatureAlgorithm::EdDsa) => {
                UnparsedPublicKey::new(&ED25519, key).verify(message, signature)
            }
            (Self::Rsa { .. }, SignatureAlgorithm::Es256 | SignatureAlgorithm::EdDsa)
            | (Self::P256(_), SignatureAlgorithm::Rs256 | SignatureAlgorithm::Ps256 | SignatureAlgorithm::EdDsa)
            | (Self::Ed25519(_), SignatureAlgorithm::Rs256 | SignatureAlgorithm::Ps256 | SignatureAlgorithm::Es256) => {
                return false;
            }
        };
        result.is_ok()
    }
}

#[cfg(test)]
mod tests;
