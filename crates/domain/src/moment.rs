//! The moment of one input to a state machine: its time, with identifiers and salts for the records that the input
//! causes.

use crate::time::Timestamp;
use uuid::Uuid;

/// The bits of a UUID after its variant bits. A moment increments them like a counter.
const COUNTER_MASK: u128 = (1 << 62) - 1;

/// A time with fresh identifiers and salts. The caller creates a moment for each input of a state machine, so that the
/// machine depends only on its arguments. A moment cannot be copied, because a copy would issue the same identifiers
/// again.
#[derive(Debug)]
pub struct Moment {
    now: Timestamp,
    next_id: Uuid,
    salt_seed: [u8; 16],
    salts: u64,
}

impl Moment {
    /// Creates a moment from a time, a fresh UUIDv7 and 16 unpredictable bytes.
    #[must_use]
    pub const fn new(now: Timestamp, first_id: Uuid, salt_seed: [u8; 16]) -> Self {
        Self { now, next_id: first_id, salt_seed, salts: 0 }
    }

    /// The time of the input.
    #[must_use]
    pub const fn now(&self) -> Timestamp {
        self.now
    }

    /// Issues the next identifier. It is greater than the previous identifier, so that the records of one input
    /// are ordered.
    pub fn new_id(&mut self) -> Uuid {
        let issued = self.next_id;
        let bits = issued.as_u128();
        // Time, version and variant of the UUID remain unchanged. Because the last bits of a UUIDv7 are random,
        // identifiers of two moments are unlikely to collide.
        self.next_id = Uuid::from_u128((bits & !COUNTER_MASK) | (bits.wrapping_add(1) & COUNTER_MASK));
        issued
    }

    /// Issues the next 16 unpredictable bytes.
    pub fn new_salt(&mut self) -> [u8; 16] {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.salt_seed);
        hasher.update(&self.salts.to_le_bytes());
        self.salts = self.salts.wrapping_add(1);
        let mut salt = [0; 16];
        hasher.finalize_xof().fill(&mut salt);
        salt
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn moment(first_id: Uuid) -> Moment {
        Moment::new(Timestamp::parse("2026-11-26T12:00:00Z").unwrap(), first_id, [7; 16])
    }

    #[test]
    fn issues_ascending_identifiers_of_the_same_version_and_time() {
        let first = Uuid::parse_str("0198c0de-0000-7abc-bfff-fffffffffff0").unwrap();
        let mut moment = moment(first);
        let issued: Vec<Uuid> = (0..16).map(|_| moment.new_id()).collect();
        assert_eq!(issued[0], first);
        assert!(issued.is_sorted_by(|previous, next| previous < next), "{issued:?}");
        for id in (0..100).map(|_| moment.new_id()).chain(issued) {
            assert_eq!((id.get_version_num(), id.get_variant()), (7, uuid::Variant::RFC4122), "{id}");
            assert_eq!(id.as_bytes()[..8], first.as_bytes()[..8], "{id}");
        }
    }

    #[test]
    fn issues_each_identifier_and_salt_once() {
        let mut moment = moment(Uuid::from_u128(7));
        let ids: BTreeSet<Uuid> = (0..1_000).map(|_| moment.new_id()).collect();
        let salts: BTreeSet<[u8; 16]> = (0..1_000).map(|_| moment.new_salt()).collect();
        assert_eq!((ids.len(), salts.len()), (1_000, 1_000));
    }
}
