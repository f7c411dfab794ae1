//! Pools of connections, and their settings.

use crate::{error_redaction::redact_pool_error, store_error};
use deadpool_postgres::{
    ClientWrapper, Hook, HookError, Manager, ManagerConfig, Metrics, Object, Pool, QueueMode, RecyclingMethod, Runtime,
    Timeouts,
};
use fairway_domain::store::StoreError;
use rustls::{ClientConfig, RootCertStore};
use std::{str::FromStr as _, time::Duration};
use tokio::time::{Instant, timeout_at};
use tokio_postgres::Config;
use tokio_postgres_rustls::MakeRustlsConnect;

/// Session settings of connections for point reads and commits.
///
/// Their statements find a few rows by key, so one generic plan fits all values. The settings make plans
/// independent of table statistics. While a table is small, PostgreSQL estimates the same cost for every index that
/// starts with the tenant. A high `cpu_index_tuple_cost` makes it prefer the index that identifies the row. Some
/// statements find rows by key and filter them by state. They write the filter as `IS NOT DISTINCT FROM`, so that
/// the planner cannot use an index on the state.
pub(super) const POINT_SESSION: &str = "SET ROLE fairway_service; SET statement_timeout = '1400ms'; \
    SET lock_timeout = '1200ms'; \
    SET jit = off; SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; \
    SET enable_hashjoin = off; SET enable_mergejoin = off; SET cpu_index_tuple_cost = 1; \
    SET max_parallel_workers_per_gather = 0";
/// Session settings of connections for lists. Filters vary, so PostgreSQL plans each statement for its values.
pub(super) const LIST_SESSION: &str = "SET ROLE fairway_service; SET statement_timeout = '1400ms'; SET jit = off; \
    SET plan_cache_mode = force_custom_plan";
/// Session settings of connections for ingests. One statement writes thousands of rows and hundreds of thousands of
/// index entries, so the time-out is long.
pub(super) const INGEST_SESSION: &str = "SET ROLE fairway_service; SET statement_timeout = '30s'; SET lock_timeout = '1200ms'; \
    SET jit = off; SET plan_cache_mode = force_custom_plan; SET enable_seqscan = off";
/// Time-out for opening a connection.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_millis(900);
/// A connection's statement cache is checked once in this number of uses, because a check visits each statement.
/// One use adds at most one statement.
pub(super) const USES_PER_STATEMENT_CHECK: usize = 16;

/// A connection of a [`StatementPool`]. Dropping it returns it to its pool.
pub(super) type PooledConnection = Object;

/// A pool of connections for statements that are written as text.
#[derive(Clone, Debug)]
pub(crate) struct StatementPool(Pool);

impl StatementPool {
    /// Acquires a connection before `until`.
    pub(super) async fn connection(&self, until: Instant) -> Result<PooledConnection, StoreError> {
        // The pool's own time-outs exclude the session settings of a new connection, which may hang too.
        let connection =
            timeout_at(until, self.0.get()).await.map_err(|elapsed| store_error::unavailable(Box::new(elapsed)))?;
        connection.map_err(|error| store_error::unavailable(redact_pool_error(error)))
    }
}

pub(super) struct PoolLimits {
    /// Maximum number of connections.
    pub(super) connections: usize,
    /// Maximum number of prepared statements of a connection between two uses.
    pub(super) statements: usize,
    /// Maximum wait of a request for a connection.
    pub(super) wait: Duration,
}

/// Builds a pool whose new connections first execute the settings `session`.
pub(super) fn build_pool(url: &str, limits: PoolLimits, session: &'static str) -> Result<StatementPool, StoreError> {
    let PoolLimits { connections, statements, wait } = limits;
    let mut config = Config::from_str(url).map_err(store_error::from_driver)?;
    config.connect_timeout(CONNECT_TIMEOUT).application_name("fairway");
    config.keepalives_idle(Duration::from_secs(30));
    let recycle = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let create_hook = Hook::async_fn(move |client, _| {
        Box::pin(async move { client.batch_execute(session).await.map_err(HookError::Backend) })
    });
    let recycle_hook = Hook::async_fn(move |client: &mut ClientWrapper, metrics: &Metrics| {
        let is_new_plan_generation = is_new_plan_generation(metrics);
        // The cache does not record the use of single statements, so all of them are dropped, and used ones are
        // prepared again. The driver closes a statement in the database when its last reference is dropped.
        if metrics.recycle_count.is_multiple_of(USES_PER_STATEMENT_CHECK) && client.statement_cache.size() > statements
        {
            client.statement_cache.clear();
        }
        Box::pin(async move {
            if is_new_plan_generation {
                client.batch_execute(DISCARD_PLANS).await.map_err(HookError::Backend)?;
            }
            Ok(())
        })
    });
    Pool::builder(Manager::from_config(config, tls_connector(), recycle))
        .max_size(connections)
        // Last in, first out: the most recently used connection has its plans and catalogue entries in the
        // processor's caches. With rotation, sixteen connections would share the work of two, and none would have
        // warm caches.
        .queue_mode(QueueMode::Lifo)
        .runtime(Runtime::Tokio1)
        .timeouts(Timeouts { wait: Some(wait), create: Some(CONNECT_TIMEOUT), recycle: Some(CONNECT_TIMEOUT) })
        .post_create(create_hook)
        .pre_recycle(recycle_hook)
        .build()
        .map(StatementPool)
        .map_err(|error| store_error::inconsistent(Box::new(error)))
}

/// SQL that makes a connection plan its statements again.
pub(super) const DISCARD_PLANS: &str = "DISCARD PLANS";

/// Whether the plan generation of a connection has changed since its last use.
pub(super) fn is_new_plan_generation(metrics: &Metrics) -> bool {
    let last_use = metrics.recycled.unwrap_or(metrics.created);
    let age_at_last_use = last_use.saturating_duration_since(metrics.created);
    plan_generation(age_at_last_use) != plan_generation(metrics.created.elapsed())
}

/// The plan generation of a connection of this age. Plans are discarded when the generation changes: whenever the
/// age doubles, and later once a minute. A generic plan that was made while tables were empty may use the wrong
/// index, and PostgreSQL updates statistics only after a minute or two.
fn plan_generation(age: Duration) -> u64 {
    const MINUTE: u64 = 64;
    let seconds = age.as_secs();
    let doublings = u64::from(seconds.min(MINUTE).checked_ilog2().map_or(0, |power| power + 1));
    doublings + seconds.saturating_sub(MINUTE) / MINUTE
}

pub(crate) fn tls_connector() -> MakeRustlsConnect {
    let roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    MakeRustlsConnect::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth())
}
