//! PostgreSQL adapter: implements the stores of the domain.
//!
//! Every guarded commit is one statement: a data-modifying CTE whose last line calls `fairway_commit`. That function
//! raises unless the guard held, and writes the fact and the idempotency key. One statement is one transaction and one
//! round trip, so no part of a commit can be left out.

mod access;
mod asset;
mod audit;
mod database;
mod driver_error;
mod environment;
mod execution;
mod failure;
mod gather;
mod guarded;
mod idempotency;
mod installation;
mod knowledge;
mod large_reads;
mod list_permits;
mod listing;
mod look;
mod memory;
mod migration;
mod pulse;
mod release;
mod rollout;
mod row;
mod share_link;
mod signal;
mod tenant;
mod throttle;
mod together;
mod waiting;
mod workload;

pub use database::{Database, DatabaseOptions};
pub use list_permits::{CallerKey, with_caller_key};
pub use migration::{
    Expired, MigrationError, agrees_with_schema, create_database, expire_payloads, holds_schema, migrate,
    prepare_partitions, schema_fingerprint,
};
pub use signal::PostgresWakeupBus;
pub use waiting::{Waiting, with_wait_time};
