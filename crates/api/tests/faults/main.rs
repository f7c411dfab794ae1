//! Fault tests: server processes are killed, paused and disconnected, and no acknowledged work may be lost.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "tests and their helpers fail by panicking"
)]

mod artifact_consistency;
mod hostile_content;
mod crash_atomicity;
mod drain;
mod managed_postgres;
mod fleet;
mod generator;
mod idle_connections;
mod server_kills;
mod memory_attack;
mod memory_limit;
mod database_outage;
mod rollout_controller;
mod faulty_postgres;
mod server_process;
mod api_client;
mod backup_restore;
mod rolling_restart;
mod slow_providers;
mod verify_artifacts;
mod raw_connection;
mod time_zone;
