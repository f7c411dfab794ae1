//! Authenticated encryption of small texts: the state of a sign-in, and the tokens of a session.

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};

/// Encrypts a text under a key, and prefixes the result with its random nonce. Decryption requires the same
/// `purpose`.
pub(crate) fn seal(key: &[u8; 32], purpose: &str, plain: &[u8]) -> Option<Vec<u8>> {
    let key = RandomizedNonceKey::new(&AES_256_GCM, key).ok()?;
    let mut sealed = plain.to_vec();
    let nonce = key.seal_in_place_append_tag(Aad::from(purpose.as_bytes()), &mut sealed).ok()?;
    Some([nonce.as_ref().as_slice(), &sealed].concat())
}

/// Decrypts a sealed text; `None` if the key or the purpose differs, or if the text was altered.
pub(crate) fn open(key: &[u8; 32], purpose: &str, sealed: &[u8]) -> Option<Vec<u8>> {
    let key = RandomizedNonceKey::new(&AES_256_GCM, key).ok()?;
    let (nonce, ciphertext) = sealed.split_at_checked(NONCE_LEN)?;
    let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
    let mut ciphertext = ciphertext.to_vec();
    let plain = key.open_in_place(nonce, Aad::from(purpose.as_bytes()), &mut ciphertext).ok()?;
    Some(plain.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_only_unchanged_texts_of_the_same_key_and_purpose() {
        let (key, other_key) = ([7; 32], [8; 32]);
        let sealed = seal(&key, "a", b"secret").unwrap();
        assert_eq!(open(&key, "a", &sealed).as_deref(), Some(b"secret".as_slice()));
        assert_eq!(open(&other_key, "a", &sealed), None);
        assert_eq!(open(&key, "b", &sealed), None);
        for index in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[index] ^= 1;
            assert_eq!(open(&key, "a", &changed), None, "byte {index}");
            assert_eq!(open(&key, "a", &sealed[..index]), None, "{index} bytes");
        }
        assert_ne!(sealed, seal(&key, "a", b"secret").unwrap(), "the nonce is random");
        assert!(!sealed.windows(6).any(|window| window == b"secret"));
    }
}
