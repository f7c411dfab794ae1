//! Fault tests: server processes are killed, paused and disconnected, and no acknowledged work may be lost.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "tests and their helpers fail by panicking"
)]

mod artifacts;
mod bounds;
mod crash;
mod drain;
mod embedded;
mod fleet;
mod generator;
mod idle;
mod kill;
mod memory_attack;
mod memory_limit;
mod outage;
mod pilot;
mod postgres;
mod process;
mod remote;
mod restore;
mod rolling;
mod slow;
mod verify;
mod wire;
mod zone;
