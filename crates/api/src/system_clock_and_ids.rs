//! The system clock, and a source of time-ordered identifiers, salts and secrets.

use fairway_domain::{clock::Clock, id::IdSource, time::Timestamp};
use time::OffsetDateTime;
use uuid::Uuid;

/// The wall clock of the machine, in UTC. It can jump when the machine's time is corrected.
pub(crate) struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::new(OffsetDateTime::now_utc())
    }
}

/// Time-ordered identifiers, salts and secrets from a cryptographic generator of each thread, which the operating
/// system seeds. A run needs sixteen random values, and a system call for each would cost more than the values.
pub(crate) struct SystemIds;

impl IdSource for SystemIds {
    fn new_id(&self) -> Uuid {
        Uuid::now_v7()
    }

    fn salt(&self) -> [u8; 16] {
        // A version 4 UUID has 122 random bits, enough for a salt.
        Uuid::new_v4().into_bytes()
    }

    fn secret(&self) -> [u8; 32] {
        // Three UUIDs have 366 random bits; the hash reduces them to 256.
        let mut hasher = blake3::Hasher::new();
        for _ in 0..3 {
            hasher.update(Uuid::new_v4().as_bytes());
        }
        hasher.finalize().into()
    }
}
