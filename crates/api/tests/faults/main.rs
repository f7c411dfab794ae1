//! Fault tests: server processes are killed, paused and disconnected, and no acknowledged work may be lost.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "tests and their helpers fail by panicking"
)]

mod api_client;
mod artifact_consistency;
mod audit_verify;
mod backup_restore;
mod checkpoint_history;
mod crash_atomicity;
mod crashable_postgres;
mod database_outage;
mod delivery_kills;
mod drain;
mod erasure_kill;
mod generator_provisioning;
mod hostile_content;
mod idle_connections;
mod leases_during_calls;
mod managed_postgres;
mod memory_attack;
mod memory_limit;
mod multi_server_faults;
mod raw_connection;
mod rolling_restart;
mod rollout_controller;
mod server_kills;
mod server_process;
mod time_zone;
mod verify_artifacts;
