//! The pool, and how a statement is sent.

mod permitted;

use crate::{
    asset::{Assets, NewVersions, Referring, Routes},
    driver_error,
    environment::Environments,
    execution::{Accepts, Advances, Evidence, Finishes, Lineages, Runs, Starts},
    failure,
    gather::Gather,
    list_permits::ListPermits,
    listing::LongLists,
    look::Looks,
    pulse::{AccessRevisions, DeploymentPulses},
    release::{Deployments, Moves, Releases},
    row::Columns,
    together::{Commits, HeavyPermits},
    waiting::Waiting,
};
use deadpool_postgres::{
    ClientWrapper, Hook, HookError, Manager, ManagerConfig, Metrics, Object, Pool, QueueMode, RecyclingMethod, Runtime,
    Timeouts,
};
use fairway_domain::{
    id::TenantId,
    store::{CommitError, StoreError},
    tenant::TenantScope,
};
use fairway_fair_queue::{FairSemaphore, Limits};
use rustls::{ClientConfig, RootCertStore};
use std::{str::FromStr, sync::Arc, time::Duration};
use tokio::{
    sync::OnceCell,
    time::{Instant, timeout_at},
};
use tokio_postgres::{Config, Row, types::ToSql};
use tokio_postgres_rustls::MakeRustlsConnect;
use tracing::Instrument as _;

/// How long a request waits for a connection before it is told to come back.
const WAIT_FOR_CONNECTION: Duration = Duration::from_millis(900);
/// What a connection for point reads and commits says first. Its statements touch a few rows by key, so one plan is
/// right for every value, and no plan may come to depend on what the statistics of a young table happen to say: while a
/// table has a handful of rows, every index that begins with the tenant seems as cheap as the one that names the row,
/// unless reading an index entry too many has a price. A statement that names its rows and asks for their state besides
/// asks with `IS NOT DISTINCT FROM`, which no index by state answers.
const ENTER_POINTS: &str = "SET ROLE fairway_service; SET statement_timeout = '1400ms'; \
    SET lock_timeout = '1200ms'; \
    SET jit = off; SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; \
    SET enable_hashjoin = off; SET enable_mergejoin = off; SET cpu_index_tuple_cost = 1; \
    SET max_parallel_workers_per_gather = 0";
/// What a connection for lists says first. Their filters come and go, so they are planned for the values at hand.
const ENTER_LISTS: &str = "SET ROLE fairway_service; SET statement_timeout = '1400ms'; SET jit = off; \
    SET plan_cache_mode = force_custom_plan";
/// What a connection for ingests says first. They write thousands of rows and hundreds of thousands of index entries, in
/// one statement, and whoever adds documents waits for that.
const ENTER_INGESTS: &str = "SET ROLE fairway_service; SET statement_timeout = '30s'; SET lock_timeout = '1200ms'; \
    SET jit = off; SET plan_cache_mode = force_custom_plan; SET enable_seqscan = off";
/// How long an ingest may take.
const INGEST: Duration = Duration::from_secs(32);
/// Connections for ingests, opened when they are needed. A tenant uses one at a time: its ingests into one knowledge base
/// would only wait for each other in the database, and another tenant finds the second one free.
const INGESTS: Limits = Limits { permits_per_key: 1, ..Limits::of(2) };
/// How long an ingest waits for its connection. Its texts are read and its vectors paid for by then, so that it waits for
/// as long as the longest one takes.
const WAIT_FOR_INGEST: Duration = Duration::from_secs(30);

/// Prepared statements that a connection keeps when it returns to its pool. Point reads, commits and lists by month have
/// about 200 of them in use; each keeps a plan in the database's process.
const MAX_POINT_STATEMENTS: usize = 384;
/// The same for connections that prepare a statement for each combination of filters that callers choose.
const MAX_LIST_STATEMENTS: usize = 64;
/// The same for connections that take one or two statements.
const MAX_INGEST_STATEMENTS: usize = 16;

/// A connection's statements are counted with every so many uses: counting looks at each of them. A use prepares one at most.
const STATEMENT_CHECK: usize = 16;

/// Connections for lists, for each connection for the rest: one for four.
const POINTS_PER_LIST: usize = 4;
/// Connections for point reads and commits, for each of them that lists by month may use at the same time.
const POINTS_PER_MONTH_LIST: usize = 2;

/// How long a new connection may take.
const CONNECT: Duration = Duration::from_millis(900);
/// How long a statement may take, waiting for a connection included. Above what PostgreSQL is told, so that its own
/// refusal comes first where it still answers.
pub(crate) const ANSWER: Duration = Duration::from_millis(1_600);

/// A connection that sent a longer statement is closed, in bytes of its texts. The driver keeps its write buffers at the
/// length of the longest statement, and a process has some twenty connections.
const MAX_SENT: usize = 512 << 10;
/// The same for the rows of an answer. More than a page of a list takes, so that lists keep their connections.
const MAX_RECEIVED: usize = 2 << 20;

tokio::task_local! {
    /// The bytes of the texts of the statement that this task sends, where they may be many.
    pub(crate) static STATEMENT_BYTES: usize;
}

/// Where and how to connect.
#[derive(Clone, Debug)]
pub struct DatabaseOptions {
    /// A `postgres://` address.
    pub url: String,
    /// Most connections of this pool.
    pub connections: usize,
    /// How long the answers of runs are shown after their end, by the database's clock.
    pub result_retention: Duration,
}

impl DatabaseOptions {
    /// Connections of the pool for lists.
    fn list_connections(&self) -> usize {
        (self.connections / POINTS_PER_LIST).max(1)
    }

    /// Connections that a database with these options opens at most: for point reads and commits, for lists, for ingests.
    #[must_use]
    pub fn max_connections(&self) -> usize {
        self.connections.saturating_add(self.list_connections()).saturating_add(INGESTS.permits)
    }
}

/// A pool of connections that work under the service role.
///
/// A pool's connections are driven by the runtime that opened them, so one pool for each worker thread saves a
/// wake-up across threads for every round trip.
#[derive(Clone, Debug)]
pub struct Database {
    points: Pool,
    lists: Pool,
    list_permits: ListPermits,
    month_list_permits: ListPermits,
    ingests: Pool,
    ingest_permits: FairSemaphore<TenantId>,
    waiting: Waiting,
    pub(crate) long_lists: LongLists,
    /// Whether vectors are compared by the database; looked up when the first are.
    pub(crate) has_vectors: Arc<OnceCell<bool>>,
    pub(crate) result_retention: Duration,
    pub(crate) access_revisions: Arc<Gather<Looks<AccessRevisions>>>,
    pub(crate) deployment_pulses: Arc<Gather<Looks<DeploymentPulses>>>,
    pub(crate) assets: Arc<Gather<Looks<Assets>>>,
    pub(crate) referring: Arc<Gather<Looks<Referring>>>,
    pub(crate) routes: Arc<Gather<Looks<Routes>>>,
    pub(crate) environments: Arc<Gather<Looks<Environments>>>,
    pub(crate) releases: Arc<Gather<Looks<Releases>>>,
    pub(crate) evidence: Arc<Gather<Looks<Evidence>>>,
    pub(crate) runs: Arc<Gather<Looks<Runs>>>,
    pub(crate) lineages: Arc<Gather<Looks<Lineages>>>,
    pub(crate) accepts: Arc<Gather<Commits<Accepts>>>,
    pub(crate) queued_accepts: Arc<Gather<Commits<Accepts>>>,
    pub(crate) starts: Arc<Gather<Commits<Starts>>>,
    pub(crate) advances: Arc<Gather<Commits<Advances>>>,
    pub(crate) finishes: Arc<Gather<Commits<Finishes>>>,
    pub(crate) new_versions: Arc<Gather<Commits<NewVersions>>>,
    pub(crate) moves: Arc<Gather<Commits<Moves>>>,
    pub(crate) lanes: Arc<Gather<Commits<Deployments>>>,
}

/// A value that a statement takes.
pub(crate) type Param<'a> = &'a (dyn ToSql + Sync);

impl Database {
    /// Prepares a pool; nothing is connected yet.
    ///
    /// # Errors
    /// When the address cannot be read.
    pub fn new(options: &DatabaseOptions) -> Result<Self, StoreError> {
        let lists = options.list_connections();
        let points = pool(
            &options.url,
            PoolLimits {
                connections: options.connections,
                statements: MAX_POINT_STATEMENTS,
                wait: WAIT_FOR_CONNECTION,
            },
            ENTER_POINTS,
        )?;
        let for_lists = PoolLimits { connections: lists, statements: MAX_LIST_STATEMENTS, wait: WAIT_FOR_CONNECTION };
        let for_ingests = PoolLimits { connections: INGESTS.permits, statements: MAX_INGEST_STATEMENTS, wait: INGEST };
        let (waiting, heavy) = (Waiting::default(), HeavyPermits::of(options.connections));
        Ok(Self {
            access_revisions: Gather::over(Looks(AccessRevisions(points.clone())), &waiting),
            deployment_pulses: Gather::over(Looks(DeploymentPulses(points.clone())), &waiting),
            assets: Gather::over(Looks(Assets(points.clone())), &waiting),
            referring: Gather::over(Looks(Referring(points.clone())), &waiting),
            routes: Gather::over(Looks(Routes(points.clone())), &waiting),
            environments: Gather::over(Looks(Environments(points.clone())), &waiting),
            releases: Gather::over(Looks(Releases(points.clone())), &waiting),
            evidence: Gather::over(Looks(Evidence { pool: points.clone(), kept: options.result_retention }), &waiting),
            runs: Gather::over(Looks(Runs { pool: points.clone(), kept: options.result_retention }), &waiting),
            lineages: Gather::over(Looks(Lineages(points.clone())), &waiting),
            accepts: Gather::over(Commits::of(Accepts::of_running(points.clone()), &heavy), &waiting),
            queued_accepts: Gather::over(Commits::of(Accepts::of_queued(points.clone()), &heavy), &waiting),
            starts: Gather::over(Commits::of(Starts(points.clone()), &heavy), &waiting),
            advances: Gather::over(Commits::of(Advances(points.clone()), &heavy), &waiting),
            finishes: Gather::over(
                Commits::of(Finishes(points.clone()), &HeavyPermits::of_ends(options.connections)),
                &waiting,
            ),
            new_versions: Gather::over(Commits::of(NewVersions(points.clone()), &heavy), &waiting),
            moves: Gather::over(Commits::of(Moves(points.clone()), &heavy), &waiting),
            lanes: Gather::over(Commits::of(Deployments(points.clone()), &heavy), &waiting),
            result_retention: options.result_retention,
            points,
            waiting,
            long_lists: LongLists::default(),
            has_vectors: Arc::default(),
            lists: pool(&options.url, for_lists, ENTER_LISTS)?,
            list_permits: ListPermits::new(lists),
            month_list_permits: ListPermits::new((options.connections / POINTS_PER_MONTH_LIST).max(1)),
            ingests: pool(&options.url, for_ingests, ENTER_INGESTS)?,
            ingest_permits: FairSemaphore::new(INGESTS),
        })
    }

    /// Those who wait for statements of these connections.
    #[must_use]
    pub const fn waiting(&self) -> &Waiting {
        &self.waiting
    }

    /// Whether executions of the coming week find a partition to lie in.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn partitions_reach_far(&self) -> Result<bool, StoreError> {
        const SQL: &str = "SELECT fairway_partitions_until() > fairway_now() + interval '7 days' AS far";
        let row = self.read_one(SQL, &[]).await?;
        let far = row.map(|row| row.column::<Option<bool>>("far")).transpose()?.flatten();
        Ok(far.unwrap_or(false))
    }

    /// Sends a statement that changes nothing. A connection that died while it lay in the pool shows only on use, and
    /// a read can be repeated: so it is, once.
    pub(crate) async fn read(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, StoreError> {
        self.waiting.during(read(&self.points, sql, params)).await
    }

    /// The same for lists, whose filters may be there or not, and whose rows take at most so many bytes. Callers take turns.
    pub(crate) async fn list(&self, bytes: usize, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, StoreError> {
        self.waiting.during(read_in_turn((&self.list_permits, bytes), &self.lists, sql, params)).await
    }

    /// The same for lists by month, which are planned like point reads. They use a part of those connections only, so that
    /// point reads and commits find others.
    pub(crate) async fn list_by_month(
        &self,
        bytes: usize,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, StoreError> {
        self.waiting.during(read_in_turn((&self.month_list_permits, bytes), &self.points, sql, params)).await
    }

    /// Sends a statement that changes nothing and that takes a permit, and gives the permit back. The permit is held until
    /// PostgreSQL ended the statement, also where the caller is gone before.
    pub(crate) async fn read_permitted<P: Send + 'static>(
        &self,
        permit: P,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<(Vec<Row>, P), StoreError> {
        let points = (&self.points, ANSWER);
        let (answer, permit) = self.waiting.during(permitted::attempt(points, permit, sql, params)).await?;
        let (answer, permit) = match answer {
            Err(error) if error.is_closed() => {
                self.waiting.during(permitted::attempt(points, permit, sql, params)).await?
            }
            answer => (answer, permit),
        };
        Ok((answer.map_err(failure::of_store)?, permit))
    }

    /// Sends a statement that may be sent twice with the effect of once: it inserts what is there or not, prolongs,
    /// takes over or deletes what is past its time.
    pub(crate) async fn write_repeatable(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, StoreError> {
        self.waiting.during(read(&self.points, sql, params)).await
    }

    /// Sends a statement that writes, and that its caller sends again under another name. Never repeated here: whether it
    /// happened is not known when it fails.
    pub(crate) async fn write_once(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, StoreError> {
        self.waiting.during(attempt(&self.points, sql, params)).await?.map_err(failure::of_store)
    }

    /// The one row of a read, if it has one.
    pub(crate) async fn read_one(&self, sql: &str, params: &[Param<'_>]) -> Result<Option<Row>, StoreError> {
        Ok(self.read(sql, params).await?.pop())
    }

    /// Sends a statement that is a whole transaction. Never repeated: whether it happened may not be known.
    pub(crate) async fn commit(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, CommitError> {
        self.waiting.during(commit(&self.points, sql, params)).await
    }

    /// The same for a statement that takes long and that no other request needs. Tenants take turns.
    pub(crate) async fn commit_slowly(
        &self,
        scope: TenantScope,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, CommitError> {
        let permit = self.ingest_permits.acquire(scope.tenant(), WAIT_FOR_INGEST).await;
        let permit = permit.map_err(|refused| failure::unavailable(Box::new(refused)))?;
        let (answer, _permit) = permitted::attempt((&self.ingests, INGEST), permit, sql, params).await?;
        answer.map_err(failure::of_commit)
    }
}

/// Sends a statement that is a whole transaction. Never repeated: whether it happened may not be known.
pub(crate) async fn commit(pool: &Pool, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, CommitError> {
    attempt(pool, sql, params).await?.map_err(failure::of_commit)
}

/// The same for the changes of several requests. `None`: PostgreSQL refused all of them because of one, and nothing
/// happened, so each is to be tried for itself.
pub(crate) async fn commit_together(
    pool: &Pool,
    sql: &str,
    params: &[Param<'_>],
) -> Result<Option<Vec<Row>>, StoreError> {
    match attempt(pool, sql, params).await? {
        Ok(rows) => Ok(Some(rows)),
        Err(error) if error.as_db_error().is_some() => Ok(None),
        Err(error) => Err(failure::of_store(error)),
    }
}

/// What bounds a pool.
struct PoolLimits {
    /// Most connections.
    connections: usize,
    /// Most prepared statements that a connection keeps between two uses.
    statements: usize,
    /// How long a request waits for a connection.
    wait: Duration,
}

fn pool(url: &str, limits: PoolLimits, enter: &'static str) -> Result<Pool, StoreError> {
    let PoolLimits { connections, statements, wait } = limits;
    let mut config = Config::from_str(url).map_err(failure::of_store)?;
    config.connect_timeout(CONNECT).application_name("fairway");
    config.keepalives_idle(Duration::from_secs(30));
    let recycle = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let hook = Hook::async_fn(move |client, _| {
        Box::pin(async move { client.batch_execute(enter).await.map_err(HookError::Backend) })
    });
    let forget = Hook::async_fn(move |client: &mut ClientWrapper, metrics: &Metrics| {
        let outlived = metrics.recycled.is_some_and(|last| {
            let at_last_use = last.saturating_duration_since(metrics.created);
            plans_of(at_last_use) != plans_of(metrics.created.elapsed())
        });
        // Which statements are rare is not known, so all go; those in use are prepared again. The driver closes a statement
        // in the database when nothing refers to it any more.
        if metrics.recycle_count.is_multiple_of(STATEMENT_CHECK) && client.statement_cache.size() > statements {
            client.statement_cache.clear();
        }
        Box::pin(async move {
            if outlived {
                client.batch_execute("DISCARD PLANS").await.map_err(HookError::Backend)?;
            }
            Ok(())
        })
    });
    Pool::builder(Manager::from_config(config, tls(), recycle))
        .max_size(connections)
        // The one that was used last: its plans and what it knows of the tables are still in the processor's caches. Taken in
        // turn, sixteen connections share the work of two and each finds them cold.
        .queue_mode(QueueMode::Lifo)
        .runtime(Runtime::Tokio1)
        .timeouts(Timeouts { wait: Some(wait), create: Some(CONNECT), recycle: Some(CONNECT) })
        .post_create(hook)
        .pre_recycle(forget)
        .build()
        .map_err(|error| failure::broken(Box::new(error)))
}

/// Which plans a connection of this age uses: the first, the second and so on. It plans once for all values, and a plan
/// that was made while tables were empty names no row; PostgreSQL itself looks at how they have grown after a minute or two.
/// So plans are made anew whenever the connection is twice as old, and then once a minute.
fn plans_of(age: Duration) -> u64 {
    const MINUTE: u64 = 64;
    let seconds = age.as_secs();
    let doublings = u64::from(seconds.min(MINUTE).checked_ilog2().map_or(0, |power| power + 1));
    doublings + seconds.saturating_sub(MINUTE) / MINUTE
}

pub(crate) async fn read(pool: &Pool, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, StoreError> {
    read_until(pool, Instant::now() + ANSWER, sql, params).await
}

/// The same once the caller's turn has come, all within [`ANSWER`].
async fn read_in_turn(
    (permits, bytes): (&ListPermits, usize),
    pool: &Pool,
    sql: &str,
    params: &[Param<'_>],
) -> Result<Vec<Row>, StoreError> {
    let until = Instant::now() + ANSWER;
    let _permit = permits.acquire(bytes, WAIT_FOR_CONNECTION).await?;
    read_until(pool, until, sql, params).await
}

async fn read_until(pool: &Pool, until: Instant, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, StoreError> {
    match attempt_until(pool, until, sql, params).await? {
        Err(error) if error.is_closed() => attempt(pool, sql, params).await?.map_err(failure::of_store),
        answer => answer.map_err(failure::of_store),
    }
}

/// Sends a statement on a connection of the pool, all within [`ANSWER`].
async fn attempt(
    pool: &Pool,
    sql: &str,
    params: &[Param<'_>],
) -> Result<Result<Vec<Row>, tokio_postgres::Error>, StoreError> {
    attempt_until(pool, Instant::now() + ANSWER, sql, params).await
}

/// Sends a statement on a connection of the pool, all before some moment. A connection that did not answer in time is
/// not used again: whatever came next on it would wait behind.
async fn attempt_until(
    pool: &Pool,
    until: Instant,
    sql: &str,
    params: &[Param<'_>],
) -> Result<Result<Vec<Row>, tokio_postgres::Error>, StoreError> {
    let connection = connection(pool, until).await?;
    match timeout_at(until, send(&connection, sql, params)).await {
        Ok(answer) => {
            let received = answer.iter().flatten().map(Row::raw_size_bytes).fold(0, usize::saturating_add);
            if received > MAX_RECEIVED || STATEMENT_BYTES.try_with(|sent| *sent > MAX_SENT).unwrap_or_default() {
                drop(Object::take(connection));
            }
            Ok(answer)
        }
        Err(elapsed) => {
            drop(Object::take(connection));
            Err(failure::unavailable(Box::new(elapsed)))
        }
    }
}

/// A connection of the pool.
async fn connection(pool: &Pool, until: Instant) -> Result<Object, StoreError> {
    // The pool's own limits end before what it says first on a new connection, which may get no answer either.
    let connection = timeout_at(until, pool.get()).await.map_err(|elapsed| failure::unavailable(Box::new(elapsed)))?;
    connection.map_err(|error| failure::unavailable(driver_error::of_pool(error)))
}

/// How a statement begins, for traces. Statements hold no values, but they are long.
fn summary(sql: &str) -> String {
    const WORDS: usize = 8;
    sql.split_whitespace().take(WORDS).collect::<Vec<_>>().join(" ")
}

async fn send(connection: &Object, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, tokio_postgres::Error> {
    let span = tracing::debug_span!(
        "statement",
        otel.kind = "client",
        db.system.name = "postgresql",
        db.query.summary = summary(sql),
    );
    let answer = async {
        let statement = connection.prepare_cached(sql).await?;
        connection.query(&statement, params).await
    };
    answer.instrument(span).await
}

pub(crate) fn tls() -> MakeRustlsConnect {
    let roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    MakeRustlsConnect::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests;
