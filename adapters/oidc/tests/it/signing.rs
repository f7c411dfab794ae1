//! Signing keys of issuers and attackers, and tokens that are signed with them.

use aws_lc_rs::{
    encoding::{AsDer as _, PublicKeyX509Der},
    hmac,
    rand::SystemRandom,
    rsa::{self, KeySize},
    signature::{
        ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair,
        EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256, RSA_PKCS1_SHA512, RSA_PSS_SHA256,
        RsaEncoding,
    },
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};

/// A key pair with its identifier.
pub(crate) struct TestKey {
    pub(crate) id: &'static str,
    pair: Pair,
}

enum Pair {
    Rsa(rsa::KeyPair),
    Ec(EcdsaKeyPair, &'static str),
    Ed(Ed25519KeyPair),
}

/// The scheme with which a token is actually signed, whatever algorithm its header names.
#[derive(Clone, Copy)]
pub(crate) enum Scheme {
    Pkcs1,
    Pkcs1Sha512,
    Pss,
    /// The scheme that belongs to the key's type.
    Own,
}

impl TestKey {
    pub(crate) fn rsa(id: &'static str) -> Self {
        Self { id, pair: Pair::Rsa(rsa::KeyPair::generate(KeySize::Rsa2048).unwrap()) }
    }

    pub(crate) fn ec(id: &'static str) -> Self {
        Self::elliptic(id, &ECDSA_P256_SHA256_FIXED_SIGNING, "P-256")
    }

    /// A P-256 key that signs in DER encoding. JOSE requires a fixed-size encoding instead.
    pub(crate) fn ec_der(id: &'static str) -> Self {
        Self::elliptic(id, &ECDSA_P256_SHA256_ASN1_SIGNING, "P-256")
    }

    pub(crate) fn p384(id: &'static str) -> Self {
        Self::elliptic(id, &ECDSA_P384_SHA384_FIXED_SIGNING, "P-384")
    }

    pub(crate) fn ed(id: &'static str) -> Self {
        Self { id, pair: Pair::Ed(Ed25519KeyPair::generate().unwrap()) }
    }

    fn elliptic(id: &'static str, algorithm: &'static EcdsaSigningAlgorithm, curve: &'static str) -> Self {
        Self { id, pair: Pair::Ec(EcdsaKeyPair::generate(algorithm).unwrap(), curve) }
    }

    /// The `alg` value for the key's own scheme.
    pub(crate) fn algorithm(&self) -> &'static str {
        match &self.pair {
            Pair::Rsa(_) => "RS256",
            Pair::Ec(_, "P-384") => "ES384",
            Pair::Ec(..) => "ES256",
            Pair::Ed(_) => "EdDSA",
        }
    }

    /// The public key as a JSON Web Key, for a key set.
    pub(crate) fn jwk(&self) -> Value {
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        match &self.pair {
            Pair::Rsa(pair) => {
                let key = pair.public_key();
                let (n, e) = (key.modulus(), key.exponent());
                let number = |number: &[u8]| text(number);
                json!({"kty": "RSA", "kid": self.id, "use": "sig", "n": number(n.big_endian_without_leading_zero()),
                    "e": number(e.big_endian_without_leading_zero())})
            }
            Pair::Ec(pair, curve) => {
                let point = pair.public_key().as_ref();
                let (x, y) = point[1..].split_at((point.len() - 1) / 2);
                json!({"kty": "EC", "kid": self.id, "use": "sig", "crv": curve, "x": text(x), "y": text(y)})
            }
            Pair::Ed(pair) => json!({"kty": "OKP", "kid": self.id, "use": "sig", "crv": "Ed25519",
                "x": text(pair.public_key().as_ref())}),
        }
    }

    /// The public key in the encodings that a vulnerable server could use as an HMAC secret.
    pub(crate) fn public_encodings(&self) -> Vec<(String, Vec<u8>)> {
        let (spki, raw): (PublicKeyX509Der<'_>, Vec<u8>) = match &self.pair {
            Pair::Rsa(pair) => (pair.public_key().as_der().unwrap(), pair.public_key().as_ref().to_vec()),
            Pair::Ec(pair, _) => (pair.public_key().as_der().unwrap(), pair.public_key().as_ref().to_vec()),
            Pair::Ed(pair) => (pair.public_key().as_der().unwrap(), pair.public_key().as_ref().to_vec()),
        };
        let pem = pem("PUBLIC KEY", spki.as_ref());
        let id = self.id;
        vec![
            (format!("{id}: DER"), spki.as_ref().to_vec()),
            (format!("{id}: raw"), raw),
            (format!("{id}: PEM without last line end"), pem.trim_end().as_bytes().to_vec()),
            (format!("{id}: PEM with CRLF"), pem.replace('\n', "\r\n").into_bytes()),
            (format!("{id}: PEM"), pem.into_bytes()),
            (format!("{id}: JWK"), self.jwk().to_string().into_bytes()),
            (format!("{id}: key set"), json!({"keys": [self.jwk()]}).to_string().into_bytes()),
        ]
    }

    pub(crate) fn sign(&self, scheme: Scheme, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.pair {
            Pair::Rsa(pair) => {
                let encoding: &'static dyn RsaEncoding = match scheme {
                    Scheme::Pkcs1 | Scheme::Own => &RSA_PKCS1_SHA256,
                    Scheme::Pkcs1Sha512 => &RSA_PKCS1_SHA512,
                    Scheme::Pss => &RSA_PSS_SHA256,
                };
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(encoding, &random, message, &mut signature).unwrap();
                signature
            }
            Pair::Ec(pair, _) => pair.sign(&random, message).unwrap().as_ref().to_vec(),
            Pair::Ed(pair) => pair.sign(message).as_ref().to_vec(),
        }
    }

    /// A token with these claims and the header that belongs to this key.
    pub(crate) fn token(&self, claims: &Value) -> String {
        self.token_with(&self.header(), claims)
    }

    /// A token with the given header and claims.
    pub(crate) fn token_with(&self, header: &Value, claims: &Value) -> String {
        self.token_of(Scheme::Own, &header.to_string(), &claims.to_string())
    }

    /// A token whose header and claims are these texts, signed with this scheme.
    pub(crate) fn token_of(&self, scheme: Scheme, header: &str, claims: &str) -> String {
        let signed = signed_part(header, claims);
        let signature = self.sign(scheme, signed.as_bytes());
        with_signature(&signed, &signature)
    }

    pub(crate) fn header(&self) -> Value {
        json!({"alg": self.algorithm(), "kid": self.id, "typ": "at+jwt"})
    }
}

/// The part of a token that the signature covers.
pub(crate) fn signed_part(header: &str, claims: &str) -> String {
    format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims))
}

pub(crate) fn with_signature(signed: &str, signature: &[u8]) -> String {
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}

/// A token that is signed with HMAC.
pub(crate) fn hmac_token(algorithm: &str, key_id: &str, secret: &[u8], claims: &Value) -> String {
    let hash = match algorithm {
        "HS512" => hmac::HMAC_SHA512,
        "HS384" => hmac::HMAC_SHA384,
        _ => hmac::HMAC_SHA256,
    };
    let signed = signed_part(&json!({"alg": algorithm, "kid": key_id}).to_string(), &claims.to_string());
    let tag = hmac::sign(&hmac::Key::new(hash, secret), signed.as_bytes());
    with_signature(&signed, tag.as_ref())
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let lines: Vec<&str> = (0..text.len()).step_by(64).map(|start| &text[start..text.len().min(start + 64)]).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}
