//! What happens when something dies: real processes, killed, stopped and cut off, and what is left of what was said.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test ends at the first surprise, helpers included"
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
