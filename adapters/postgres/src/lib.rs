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
mod store_error;
mod coalesce;
mod commit_tail;
mod idempotency;
mod installation;
mod knowledge;
mod large_reads;
mod list_permits;
mod pagination;
mod batch_load;
mod memory;
mod migration;
mod revisions;
mod release;
mod rollout;
mod row;
mod share_link;
mod wakeups;
mod tenant;
mod rate_limit;
mod group_commit;
mod wait_metrics;
mod workload;

pub use database::{Database, DatabaseOptions};
pub use list_permits::{CallerKey, with_caller_key};
pub use migration::{
    ExpiredPartitions, MigrationError, matches_schema, create_database, expire_payloads, has_schema, migrate,
    create_partitions, schema_fingerprint,
};
pub use wakeups::PostgresWakeupBus;
pub use wait_metrics::{InFlight, with_wait_time};
