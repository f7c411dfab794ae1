//! Sealed pagination cursors.
//!
//! A cursor is a position in one list with its filters. Clients cannot forge a seal, so the content of a cursor may
//! change between versions.

use fairway_domain::store::Cursor;
use std::collections::BTreeMap;

/// Length of the seal in bytes. It is too long to guess, and not longer than the position.
const SEAL_BYTES: usize = 16;

/// The key that seals the cursors of an installation.
#[derive(Clone, Copy)]
pub struct CursorSealKey([u8; 32]);

impl CursorSealKey {
    /// Creates a key from the bytes that the database stores.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Derives a key for another use, which `context` names.
    pub(crate) fn derive(&self, context: &str) -> [u8; 32] {
        blake3::derive_key(context, &self.0)
    }
}

impl std::fmt::Debug for CursorSealKey {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("CursorSealKey(…)")
    }
}

/// Seals and opens cursors of one list with its filters, by a keyed BLAKE3 hash over list, filters and position.
#[derive(Clone, Debug)]
pub(crate) struct CursorSeal {
    key: CursorSealKey,
    /// Path and filters, each part prefixed with its length, so that different lists never have equal bytes.
    list: Vec<u8>,
}

impl CursorSeal {
    pub(crate) fn new(key: CursorSealKey, path: &str, filters: &BTreeMap<String, String>) -> Self {
        let mut list = Vec::new();
        let parts = filters.iter().flat_map(|(name, value)| [name.as_str(), value.as_str()]);
        for part in std::iter::once(path).chain(parts) {
            list.extend_from_slice(&part.len().to_be_bytes());
            list.extend_from_slice(part.as_bytes());
        }
        Self { key, list }
    }

    pub(crate) fn seal(&self, position: Cursor) -> String {
        format!("{:032x}{}", position.value(), self.tag(position))
    }

    /// The position in a cursor; `None` if the cursor was not sealed for this list.
    pub(crate) fn open(&self, cursor: &str) -> Option<Cursor> {
        let (digits, _) = cursor.split_at_checked(32)?;
        // Only the canonical form is valid: no signs and no capitals.
        let position = Cursor::new(u128::from_str_radix(digits, 16).ok()?);
        let expected = self.seal(position);
        equals_in_constant_time(cursor, &expected).then_some(position)
    }

    fn tag(&self, position: Cursor) -> String {
        let mut hasher = blake3::Hasher::new_keyed(&self.key.0);
        hasher.update(&position.value().to_be_bytes()).update(&self.list);
        hasher.finalize().to_hex().chars().take(2 * SEAL_BYTES).collect()
    }
}

/// Compares in constant time, so that the duration reveals no part of the seal.
fn equals_in_constant_time(left: &str, right: &str) -> bool {
    left.len() == right.len() && left.bytes().zip(right.bytes()).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
}
