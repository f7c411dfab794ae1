//! The clock and the randomness of this machine.

use fairway_domain::{
    id::Ids,
    time::{Clock, Timestamp},
};
use time::OffsetDateTime;
use uuid::Uuid;

/// This machine's clock.
pub(crate) struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::new(OffsetDateTime::now_utc())
    }
}

/// Identifiers in the order of their making, and salts, from the operating system's randomness.
pub(crate) struct SystemIds;

impl Ids for SystemIds {
    fn fresh(&self) -> Uuid {
        Uuid::now_v7()
    }

    fn salt(&self) -> [u8; 16] {
        // A version 4 UUID is 122 random bits, which is what a salt is for.
        Uuid::new_v4().into_bytes()
    }

    fn secret(&self) -> [u8; 32] {
        // Three of them are 366 random bits; the hash leaves 256.
        let mut hasher = blake3::Hasher::new();
        for _ in 0..3 {
            hasher.update(Uuid::new_v4().as_bytes());
        }
        hasher.finalize().into()
    }
}
