//! Connection pools, and the functions that send statements.

mod pool;
mod send_statement;
mod statement_with_permit;
mod typed;
mod typed_list;

use crate::{
    access::session::SessionLoader,
    asset::{AssetLoader, ReferencePresenceLoader, RouteStatusLoader, VersionCommitter},
    batch_load::BatchLoadOperation,
    cache_revisions::{AccessRevisionLoader, DeploymentRevisionLoader},
    coalesce::Coalescer,
    environment::EnvironmentLoader,
    execution::{
        AcceptCommitter, EvidenceLoader, FinishCommitter, LineageLoader, ProgressCommitter, RunLoader, StartCommitter,
    },
    group_commit::{GroupCommit, LargeCommitPermits},
    guarded_commit::{GuardedCommit, Input, Query},
    list_permits::ListPermits,
    pagination::CappedCounts,
    param::Param,
    release::{LaneChangeCommitter, ReleaseLoader, TransitionCommitter},
    row::Row,
    statement_waits::StatementsInFlight,
    store_error,
};
use fairway_domain::{
    audit::Fact,
    id::TenantId,
    idempotency::KeyedOutcome,
    store::{CommitError, StoreError, StoreFault},
    tenant::TenantScope,
};
use fairway_fair_queue::{FairSemaphore, Limits};
use pool::{INGEST_SESSION, LIST_SESSION, POINT_SESSION, PoolLimits, build_pool};
pub(crate) use pool::{StatementPool, tls_connector};
use send_statement::{StatementError, try_query, try_query_until};
use std::{sync::Arc, time::Duration};
use tokio::{sync::OnceCell, time::Instant};
use typed::{TypedManager, build_typed_pool};
pub(crate) use typed_list::{PageBounds, RowSizeMeasure, StoredRow};

/// Maximum time that a request waits for a connection. After it, the request fails as `Unavailable`.
const CONNECTION_WAIT: Duration = Duration::from_millis(900);
/// Time-out of an ingest statement. It exceeds the `statement_timeout` of ingest connections.
const INGEST_TIMEOUT: Duration = Duration::from_secs(32);
/// Limits of the connections for ingests, which are opened on demand. A tenant uses one connection at a time,
/// because two ingests into one knowledge base would wait for each other's locks. The second connection serves
/// another tenant.
const INGEST_LIMITS: Limits = Limits { permits_per_key: 1, ..Limits::unlimited_per_key(2) };
/// Maximum time that an ingest waits for its connection, equal to the duration of the longest ingest. It is long
/// because a refusal would waste work: the documents are already parsed, and their embeddings paid for.
const INGEST_WAIT: Duration = Duration::from_secs(30);

/// Maximum number of prepared statements of a point connection when it returns to its pool. Point reads, commits and
/// lists of partitioned tables use about 200 statements, and PostgreSQL stores a plan for each.
const MAX_POINT_STATEMENTS: usize = 384;
/// Maximum number of prepared statements of a list connection. Each combination of filters is a statement.
const MAX_LIST_STATEMENTS: usize = 64;
/// Maximum number of prepared statements of a typed connection. Typed statements have about 150 texts. Diesel never
/// drops a prepared statement, so a connection with more is closed.
const MAX_TYPED_STATEMENTS: usize = 256;
/// Maximum number of prepared statements of an ingest connection, which needs one or two.
const MAX_INGEST_STATEMENTS: usize = 16;

/// Minimum number of connections for typed reads by key and typed writes.
const MIN_TYPED_POINT_CONNECTIONS: usize = 2;
/// Number of point connections for each list connection.
const POINT_CONNECTIONS_PER_LIST_CONNECTION: usize = 4;
/// Number of point connections for each one that lists of partitioned tables may use at a time.
const POINT_CONNECTIONS_PER_MONTH_LIST: usize = 2;

/// Time-out of a statement, including its wait for a connection. It exceeds PostgreSQL's `statement_timeout`, so
/// that a responsive PostgreSQL reports its own error first.
pub(crate) const STATEMENT_TIMEOUT: Duration = Duration::from_millis(1_600);

/// Maximum bytes of text in a statement after which its connection stays open. The driver never shrinks its write
/// buffer, and a process has about twenty connections, so a connection with a larger buffer is closed.
const MAX_SENT_BYTES: usize = 512 << 10;
/// Maximum bytes of a result after which its connection stays open. It exceeds the size of a list page, so that
/// lists do not close their connections.
const MAX_RECEIVED_BYTES: usize = 2 << 20;

tokio::task_local! {
    /// Bytes of text in the statement that this task sends. Set only for large statements.
    pub(crate) static TASK_STATEMENT_BYTES: usize;
}

/// Connection settings of a [`Database`].
#[derive(Clone, Debug)]
pub struct DatabaseOptions {
    /// A `postgres://` address.
    pub url: String,
    /// Maximum number of point connections.
    pub connections: usize,
    /// Time during which the results of ended runs stay readable, measured by the database's clock.
    pub result_retention: Duration,
}

impl DatabaseOptions {
    /// Maximum number of list connections.
    fn list_connections(&self) -> usize {
        (self.connections / POINT_CONNECTIONS_PER_LIST_CONNECTION).max(1)
    }

    /// Maximum number of connections for typed reads by key and typed writes. There are at least two, because background
    /// tasks send most of their reads through this pool, and one slow statement must not block the others.
    fn typed_point_connections(&self) -> usize {
        self.list_connections().max(MIN_TYPED_POINT_CONNECTIONS)
    }

    /// Maximum number of connections of a database with these options, over all its pools: point reads and commits,
    /// lists, typed reads and writes, typed lists, and ingests.
    #[must_use]
    pub fn max_total_connections(&self) -> usize {
        let other = 2 * self.list_connections() + self.typed_point_connections() + INGEST_LIMITS.permits;
        self.connections.saturating_add(other)
    }
}

/// Connection pools under the database role `fairway_service`. Clones share the pools.
///
/// The runtime that opens a connection also drives it. Each worker thread therefore has its own `Database`, which
/// saves a wake-up across threads on every round trip.
#[derive(Clone, Debug)]
pub struct Database {
    point_pool: StatementPool,
    list_pool: StatementPool,
    typed_point_pool: deadpool::managed::Pool<TypedManager>,
    typed_list_pool: deadpool::managed::Pool<TypedManager>,
    list_permits: ListPermits,
    month_list_permits: ListPermits,
    ingest_pool: StatementPool,
    ingest_permits: FairSemaphore<TenantId>,
    in_flight: StatementsInFlight,
    pub(crate) capped_counts: CappedCounts,
    /// Whether `knowledge_chunk` has a column of the extension `vector`; read on first use.
    pub(crate) has_vector_column: Arc<OnceCell<bool>>,
    pub(crate) result_retention: Duration,
    pub(crate) access_revisions: Arc<Coalescer<BatchLoadOperation<AccessRevisionLoader>>>,
    pub(crate) sessions: Arc<Coalescer<BatchLoadOperation<SessionLoader>>>,
    pub(crate) deployment_revisions: Arc<Coalescer<BatchLoadOperation<DeploymentRevisionLoader>>>,
    pub(crate) assets: Arc<Coalescer<BatchLoadOperation<AssetLoader>>>,
    pub(crate) referring_versions: Arc<Coalescer<BatchLoadOperation<ReferencePresenceLoader>>>,
    pub(crate) routes: Arc<Coalescer<BatchLoadOperation<RouteStatusLoader>>>,
    pub(crate) environments: Arc<Coalescer<BatchLoadOperation<EnvironmentLoader>>>,
    pub(crate) releases: Arc<Coalescer<BatchLoadOperation<ReleaseLoader>>>,
    pub(crate) evidence: Arc<Coalescer<BatchLoadOperation<EvidenceLoader>>>,
    pub(crate) runs: Arc<Coalescer<BatchLoadOperation<RunLoader>>>,
    pub(crate) lineages: Arc<Coalescer<BatchLoadOperation<LineageLoader>>>,
    pub(crate) accepts: Arc<Coalescer<GroupCommit<AcceptCommitter>>>,
    pub(crate) starts: Arc<Coalescer<GroupCommit<StartCommitter>>>,
    pub(crate) advances: Arc<Coalescer<GroupCommit<ProgressCommitter>>>,
    pub(crate) finishes: Arc<Coalescer<GroupCommit<FinishCommitter>>>,
    pub(crate) new_versions: Arc<Coalescer<GroupCommit<VersionCommitter>>>,
    pub(crate) transitions: Arc<Coalescer<GroupCommit<TransitionCommitter>>>,
    pub(crate) lane_changes: Arc<Coalescer<GroupCommit<LaneChangeCommitter>>>,
}

impl Database {
    /// Creates the pools. Connections are opened on first use.
    ///
    /// # Errors
    /// When the address does not parse.
    pub fn new(options: &DatabaseOptions) -> Result<Self, StoreError> {
        let list_connections = options.list_connections();
        let pool = build_pool(
            &options.url,
            PoolLimits { connections: options.connections, statements: MAX_POINT_STATEMENTS, wait: CONNECTION_WAIT },
            POINT_SESSION,
        )?;
        let typed_pool = |connections, session| {
            build_typed_pool(&options.url, connections, MAX_TYPED_STATEMENTS, session, CONNECTION_WAIT)
        };
        let list_limits =
            PoolLimits { connections: list_connections, statements: MAX_LIST_STATEMENTS, wait: CONNECTION_WAIT };
        let ingest_limits =
            PoolLimits { connections: INGEST_LIMITS.permits, statements: MAX_INGEST_STATEMENTS, wait: INGEST_TIMEOUT };
        let (in_flight, permits) =
            (StatementsInFlight::default(), LargeCommitPermits::for_connections(options.connections));
        Ok(Self {
            access_revisions: Coalescer::new(BatchLoadOperation(AccessRevisionLoader(pool.clone())), &in_flight),
            sessions: Coalescer::new(BatchLoadOperation(SessionLoader(pool.clone())), &in_flight),
            deployment_revisions: Coalescer::new(
                BatchLoadOperation(DeploymentRevisionLoader(pool.clone())),
                &in_flight,
            ),
            assets: Coalescer::new(BatchLoadOperation(AssetLoader(pool.clone())), &in_flight),
            referring_versions: Coalescer::new(BatchLoadOperation(ReferencePresenceLoader(pool.clone())), &in_flight),
            routes: Coalescer::new(BatchLoadOperation(RouteStatusLoader(pool.clone())), &in_flight),
            environments: Coalescer::new(BatchLoadOperation(EnvironmentLoader(pool.clone())), &in_flight),
            releases: Coalescer::new(BatchLoadOperation(ReleaseLoader(pool.clone())), &in_flight),
            evidence: Coalescer::new(
                BatchLoadOperation(EvidenceLoader { pool: pool.clone(), retention: options.result_retention }),
                &in_flight,
            ),
            runs: Coalescer::new(
                BatchLoadOperation(RunLoader { pool: pool.clone(), retention: options.result_retention }),
                &in_flight,
            ),
            lineages: Coalescer::new(BatchLoadOperation(LineageLoader(pool.clone())), &in_flight),
            accepts: Coalescer::new(GroupCommit::new(AcceptCommitter(pool.clone()), &permits), &in_flight),
            starts: Coalescer::new(GroupCommit::new(StartCommitter(pool.clone()), &permits), &in_flight),
            advances: Coalescer::new(GroupCommit::new(ProgressCommitter(pool.clone()), &permits), &in_flight),
            finishes: Coalescer::new(
                GroupCommit::new(FinishCommitter(pool.clone()), &LargeCommitPermits::for_run_ends(options.connections)),
                &in_flight,
            ),
            new_versions: Coalescer::new(GroupCommit::new(VersionCommitter(pool.clone()), &permits), &in_flight),
            transitions: Coalescer::new(GroupCommit::new(TransitionCommitter(pool.clone()), &permits), &in_flight),
            lane_changes: Coalescer::new(GroupCommit::new(LaneChangeCommitter(pool.clone()), &permits), &in_flight),
            result_retention: options.result_retention,
            point_pool: pool,
            in_flight,
            capped_counts: CappedCounts::default(),
            has_vector_column: Arc::default(),
            list_pool: build_pool(&options.url, list_limits, LIST_SESSION)?,
            typed_point_pool: typed_pool(options.typed_point_connections(), POINT_SESSION)?,
            typed_list_pool: typed_pool(list_connections, LIST_SESSION)?,
            list_permits: ListPermits::new(list_connections),
            month_list_permits: ListPermits::new((options.connections / POINT_CONNECTIONS_PER_MONTH_LIST).max(1)),
            ingest_pool: build_pool(&options.url, ingest_limits, INGEST_SESSION)?,
            ingest_permits: FairSemaphore::new(INGEST_LIMITS),
        })
    }

    /// The counter of statements in flight on these pools, for load shedding and metrics.
    #[must_use]
    pub const fn statements_in_flight(&self) -> &StatementsInFlight {
        &self.in_flight
    }

    /// Whether partitions exist for the executions of the next seven days.
    ///
    /// # Errors
    /// When the read fails.
    pub async fn has_partitions_ahead(&self) -> Result<bool, StoreError> {
        const SQL: &str = "SELECT fairway_partitions_until() > fairway_now() + interval '7 days' AS has_partitions";
        let row = self.read_one(SQL, &[]).await?;
        let has_partitions = row.map(|row| row.column::<Option<bool>>("has_partitions")).transpose()?.flatten();
        Ok(has_partitions.unwrap_or(false))
    }

    /// Sends a read on a point connection. The read is retried once if the connection was closed, because a connection
    /// that breaks while it is idle fails only at its next use.
    pub(crate) async fn read(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, StoreError> {
        self.in_flight.track(read(&self.point_pool, sql, params)).await
    }

    /// Like [`Self::read`], but on a list connection. The rows have at most `bytes` in total. Callers that wait for
    /// a connection are served in fair order.
    pub(crate) async fn read_list(
        &self,
        bytes: usize,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, StoreError> {
        self.in_flight.track(read_with_list_permit(&self.list_permits, bytes, &self.list_pool, sql, params)).await
    }

    /// Like [`Self::read_list`], but for lists of partitioned tables, which use generic plans. They run on a
    /// bounded share of the point connections, so that point reads and commits find free ones.
    pub(crate) async fn read_partitioned_list(
        &self,
        bytes: usize,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, StoreError> {
        self.in_flight
            .track(read_with_list_permit(&self.month_list_permits, bytes, &self.point_pool, sql, params))
            .await
    }

    /// Sends a read that holds a permit, and returns the permit with the rows. The permit is released only after
    /// PostgreSQL has finished the statement, even if the caller is cancelled.
    pub(crate) async fn read_with_permit<P: Send + 'static>(
        &self,
        permit: P,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<(Vec<Row>, P), StoreError> {
        let pool = &self.point_pool;
        let sent = self
            .in_flight
            .track(statement_with_permit::try_query_with_permit(pool, STATEMENT_TIMEOUT, permit, sql, params))
            .await;
        let (result, permit) = sent.map_err(StatementError::into_read_error)?;
        let (result, permit) = match result {
            Err(error) if error.is_closed() => {
                let sent = self
                    .in_flight
                    .track(statement_with_permit::try_query_with_permit(pool, STATEMENT_TIMEOUT, permit, sql, params))
                    .await;
                sent.map_err(StatementError::into_read_error)?
            }
            result => (result, permit),
        };
        Ok((result.map_err(StatementError::into_read_error)?, permit))
    }

    /// Sends an idempotent write, such as an upsert, a lease renewal or a delete of expired rows. It is retried
    /// once if the connection was closed.
    pub(crate) async fn write_idempotent(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, StoreError> {
        self.in_flight.track(read(&self.point_pool, sql, params)).await
    }

    /// Like [`Self::write_idempotent`], for a change that a request asked for: the error states whether the change
    /// may have been committed.
    pub(crate) async fn commit_idempotent(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, StoreError> {
        let first_error = match self.in_flight.track(try_query(&self.point_pool, sql, params)).await {
            Err(error) if error.is_closed() => error.into_batch_error(),
            result => return result.map_err(StatementError::into_batch_error),
        };
        let second_result = self.in_flight.track(try_query(&self.point_pool, sql, params)).await;
        // If the first attempt got no response, PostgreSQL may have committed it, so the result is the error of the
        // first attempt.
        second_result.map_err(|error| {
            if first_error.fault == StoreFault::OutcomeUnknown { first_error } else { error.into_batch_error() }
        })
    }

    /// Sends a background write without a retry. After an error, its outcome is unknown, and the caller writes
    /// again under a new identifier.
    pub(crate) async fn write_without_retry(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, StoreError> {
        self.in_flight.track(try_query(&self.point_pool, sql, params)).await.map_err(StatementError::into_read_error)
    }

    /// Sends a read with named input.
    pub(crate) async fn fetch(&self, query: &Query, input: Input<'_>) -> Result<Vec<Row>, StoreError> {
        self.read(query.text(&input)?, &input.params()).await
    }

    /// Sends a read of at most one row with named input.
    pub(crate) async fn fetch_one(&self, query: &Query, input: Input<'_>) -> Result<Option<Row>, StoreError> {
        Ok(self.fetch(query, input).await?.pop())
    }

    /// Commits a decision with its fact and its idempotency key in one guarded statement.
    pub(crate) async fn commit_guarded(
        &self,
        guarded: &GuardedCommit,
        scope: TenantScope,
        fact: &Fact,
        key: Option<&KeyedOutcome>,
        input: Input<'_>,
    ) -> Result<Vec<Row>, CommitError> {
        let (sql, input) = guarded.prepare(scope, fact, key, input)?;
        self.commit(sql, &input.params()).await
    }

    /// The pool of point reads and commits. An operation uses it to commit one item with the function that also commits
    /// a batch.
    pub(crate) const fn point_pool(&self) -> &StatementPool {
        &self.point_pool
    }

    /// Sends a read of at most one row, and returns the row if any.
    pub(crate) async fn read_one(&self, sql: &str, params: &[Param<'_>]) -> Result<Option<Row>, StoreError> {
        Ok(self.read(sql, params).await?.pop())
    }

    /// Sends a statement that is a complete transaction. It is never retried, because its outcome is unknown after
    /// a lost connection.
    pub(crate) async fn commit(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, CommitError> {
        self.in_flight.track(commit(&self.point_pool, sql, params)).await
    }

    /// Like [`Self::commit`], for an ingest: a slow statement on a connection of the ingest pool. Tenants take
    /// turns.
    pub(crate) async fn commit_ingest(
        &self,
        scope: TenantScope,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, CommitError> {
        let permit = self.ingest_permits.acquire(scope.tenant(), INGEST_WAIT).await;
        let permit = permit.map_err(|error| store_error::unavailable(Box::new(error)))?;
        let sent =
            statement_with_permit::try_query_with_permit(&self.ingest_pool, INGEST_TIMEOUT, permit, sql, params).await;
        let (result, _permit) = sent.map_err(StatementError::into_commit_error)?;
        result.map_err(StatementError::into_commit_error)
    }
}

/// Sends a statement that is a complete transaction. It is never retried, because its outcome is unknown after a
/// lost connection.
pub(crate) async fn commit(pool: &StatementPool, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, CommitError> {
    try_query(pool, sql, params).await.map_err(StatementError::into_commit_error)
}

/// Like [`commit`], for a batch of several requests. `None` means that one item made PostgreSQL roll back the
/// batch, so nothing was written. The caller then commits each item alone.
pub(crate) async fn commit_batch(
    pool: &StatementPool,
    sql: &str,
    params: &[Param<'_>],
) -> Result<Option<Vec<Row>>, StoreError> {
    match try_query(pool, sql, params).await {
        Ok(rows) => Ok(Some(rows)),
        Err(error) if error.is_rolled_back() => Ok(None),
        Err(error) => Err(error.into_batch_error()),
    }
}

pub(crate) async fn read(pool: &StatementPool, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, StoreError> {
    read_until(pool, Instant::now() + STATEMENT_TIMEOUT, sql, params).await
}

/// Acquires a list permit and sends a list read, both within [`STATEMENT_TIMEOUT`].
async fn read_with_list_permit(
    permits: &ListPermits,
    bytes: usize,
    pool: &StatementPool,
    sql: &str,
    params: &[Param<'_>],
) -> Result<Vec<Row>, StoreError> {
    let until = Instant::now() + STATEMENT_TIMEOUT;
    let _permit = permits.acquire(bytes, CONNECTION_WAIT).await?;
    read_until(pool, until, sql, params).await
}

async fn read_until(
    pool: &StatementPool,
    until: Instant,
    sql: &str,
    params: &[Param<'_>],
) -> Result<Vec<Row>, StoreError> {
    let result = match try_query_until(pool, until, sql, params).await {
        Err(error) if error.is_closed() => try_query(pool, sql, params).await,
        result => result,
    };
    result.map_err(StatementError::into_read_error)
}

#[cfg(test)]
mod tests;
