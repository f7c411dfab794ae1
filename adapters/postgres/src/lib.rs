//! The PostgreSQL adapter, which implements the store ports of the domain.
//!
//! Every guarded commit is one statement: CTEs that change rows, and a last line that calls the SQL function
//! `fairway_commit`. The function raises an error if the guard does not hold; otherwise it writes the fact and the
//! idempotency key. One statement is one transaction and one round trip, so a commit is always complete.

mod access;
mod access_request;
mod anonymous_rate_limit;
mod asset;
mod audit;
mod batch_load;
mod cache_revisions;
mod clock_and_length_functions;
mod coalesce;
mod connection;
mod cursor_seal_key;
mod database;
mod environment;
mod erasure;
mod error_redaction;
mod execution;
mod group_commit;
mod guarded_commit;
mod idempotency;
mod joinable_tables;
mod knowledge;
mod large_reads;
mod list_permits;
mod memory;
mod migration;
mod notification;
mod pagination;
mod param;
mod partition;
mod release;
mod revisioned_row;
mod rollout;
mod row;
mod scheduled_job;
mod schema;
mod share_link;
mod statement_waits;
mod store_error;
mod tenant;
mod transparency_log;
mod use_case;
mod wakeups;
mod workload;
mod workspace;

pub use database::{Database, DatabaseOptions};
pub use list_permits::{CallerKey, with_caller_key};
pub use migration::{MigrationError, create_database, has_schema, matches_schema, migrate, migrations_hash};
pub use partition::{PayloadExpiryReport, create_partitions, expire_payloads};
pub use statement_waits::{StatementsInFlight, with_wait_time};
pub use wakeups::PostgresWakeupBus;
