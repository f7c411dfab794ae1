//! Typed statements: reads, lists and simple writes in diesel's query language, on two pools of their own. Reads and
//! writes by key keep one plan for each statement. Lists are planned for the filter values of the request.
//!
//! The compiler checks these statements against `schema.rs`. Guarded commits and the most frequent reads use
//! [`crate::guarded_commit`] instead, because diesel loses the SQLSTATE of an error and the error of a failed
//! COMMIT.

use super::{
    Database, STATEMENT_TIMEOUT,
    pool::{CONNECT_TIMEOUT, DISCARD_PLANS, is_new_plan_generation, tls_connector},
};
use crate::{
    error_redaction::{ErrorSource, redact_driver_error},
    store_error::{self, inconsistent, unavailable},
};
use deadpool::managed::{Manager, Metrics, Object, Pool, PoolError, QueueMode, RecycleError, RecycleResult, Timeouts};
use diesel::{
    connection::InstrumentationEvent,
    pg::Pg,
    query_builder::{QueryFragment, QueryId},
    result::{DatabaseErrorKind, Error as QueryError, QueryResult},
};
use diesel_async::{
    AsyncConnection as _, AsyncPgConnection, RunQueryDsl as _, SimpleAsyncConnection as _,
    methods::{ExecuteDsl, LoadQuery},
    pooled_connection::PoolableConnection as _,
};
use fairway_domain::store::StoreError;
use futures_util::future::BoxFuture;
use std::{
    fmt,
    str::FromStr as _,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::time::{Instant, timeout_at};
use tokio_postgres::Config;
use tracing::Instrument as _;

/// A connection, and the number of statements that it has prepared.
pub(super) struct TypedConnection {
    connection: AsyncPgConnection,
    prepared: Arc<AtomicUsize>,
}

impl fmt::Debug for TypedConnection {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("TypedConnection").field("prepared", &self.prepared).finish_non_exhaustive()
    }
}

/// Opens typed connections, and closes those with too many prepared statements, because diesel never drops a
/// statement.
#[derive(Debug)]
pub(super) struct TypedManager {
    config: Config,
    session: &'static str,
    max_statements: usize,
}

#[derive(Debug, thiserror::Error)]
#[error("the connection holds too many prepared statements")]
struct TooManyStatements;

/// An error of diesel without its message, which quotes values.
#[derive(Debug, thiserror::Error)]
#[error("PostgreSQL refused a typed statement ({kind:?})")]
struct RefusedStatement {
    kind: DatabaseErrorKind,
}

impl Manager for TypedManager {
    type Type = TypedConnection;
    type Error = ErrorSource;

    async fn create(&self) -> Result<TypedConnection, ErrorSource> {
        let (client, connection) = self.config.connect(tls_connector()).await.map_err(redact_driver_error)?;
        let opened = AsyncPgConnection::try_from_client_and_connection(client, connection).await;
        let mut connection = opened.map_err(|error| Box::new(error) as ErrorSource)?;
        connection.batch_execute(self.session).await.map_err(source_of)?;
        let prepared = Arc::<AtomicUsize>::default();
        let counter = Arc::clone(&prepared);
        connection.set_instrumentation(move |event: InstrumentationEvent<'_>| {
            if matches!(event, InstrumentationEvent::CacheQuery { .. }) {
                counter.fetch_add(1, Ordering::Relaxed);
            }
        });
        Ok(TypedConnection { connection, prepared })
    }

    async fn recycle(&self, pooled: &mut TypedConnection, metrics: &Metrics) -> RecycleResult<ErrorSource> {
        if pooled.connection.is_broken() {
            return Err(RecycleError::Message("the connection is closed".into()));
        }
        if AtomicUsize::load(&pooled.prepared, Ordering::Relaxed) > self.max_statements {
            return Err(RecycleError::Backend(Box::new(TooManyStatements)));
        }
        if is_new_plan_generation(metrics) {
            let discarded = pooled.connection.batch_execute(DISCARD_PLANS).await;
            discarded.map_err(|error| RecycleError::Backend(source_of(error)))?;
        }
        Ok(())
    }
}

pub(super) fn build_typed_pool(
    url: &str,
    connections: usize,
    max_statements: usize,
    session: &'static str,
    wait: Duration,
) -> Result<Pool<TypedManager>, StoreError> {
    let mut config = Config::from_str(url).map_err(store_error::from_driver)?;
    config.connect_timeout(CONNECT_TIMEOUT).application_name("fairway");
    config.keepalives_idle(Duration::from_secs(30));
    Pool::builder(TypedManager { config, session, max_statements })
        .max_size(connections)
        .queue_mode(QueueMode::Lifo)
        .runtime(deadpool::Runtime::Tokio1)
        .timeouts(Timeouts { wait: Some(wait), create: Some(CONNECT_TIMEOUT), recycle: Some(CONNECT_TIMEOUT) })
        .build()
        .map_err(|error| inconsistent(Box::new(error)))
}

/// The reason why a typed statement has no result.
enum TypedError {
    /// The connection was closed before the response.
    Closed(ErrorSource),
    /// Any other failure.
    Other(StoreError),
}

impl From<TypedError> for StoreError {
    fn from(error: TypedError) -> Self {
        match error {
            TypedError::Closed(source) => unavailable(source),
            TypedError::Other(error) => error,
        }
    }
}

fn source_of(error: QueryError) -> ErrorSource {
    if let QueryError::DatabaseError(kind, _) = error { Box::new(RefusedStatement { kind }) } else { Box::new(error) }
}

fn typed_error(error: QueryError, is_broken: bool) -> TypedError {
    if is_broken {
        return TypedError::Closed(source_of(error));
    }
    let QueryError::DatabaseError(kind, _) = &error else { return TypedError::Other(inconsistent(source_of(error))) };
    match kind {
        // These kinds mean that the connection or its socket failed. They have no SQLSTATE.
        DatabaseErrorKind::ClosedConnection | DatabaseErrorKind::UnableToSendCommand => {
            TypedError::Closed(source_of(error))
        }
        DatabaseErrorKind::UniqueViolation
        | DatabaseErrorKind::ForeignKeyViolation
        | DatabaseErrorKind::NotNullViolation
        | DatabaseErrorKind::CheckViolation
        | DatabaseErrorKind::RestrictViolation
        | DatabaseErrorKind::ExclusionViolation => TypedError::Other(inconsistent(source_of(error))),
        // Diesel has lost the SQLSTATE. The compiler has checked names and types, so the remaining errors are
        // temporary: a time-out, a deadlock, or a server that shuts down. The wildcard is needed because the enum
        // is not exhaustive.
        DatabaseErrorKind::SerializationFailure
        | DatabaseErrorKind::ReadOnlyTransaction
        | DatabaseErrorKind::Unknown
        | _ => TypedError::Other(unavailable(source_of(error))),
    }
}

impl Database {
    /// Reads the rows of a query, which `build_query` builds. If the connection was closed before the response, the
    /// query is built and sent a second time.
    ///
    /// The query may be an idempotent write that returns rows, if its table has no constraint that is checked at
    /// the commit.
    ///
    /// The future is boxed, because the compiler cannot prove that an `async_trait` future around queries is
    /// `Send`.
    pub(crate) fn load<'s, Q, U>(
        &'s self,
        label: &'static str,
        build_query: impl Fn() -> Q + Send + Sync + 's,
    ) -> BoxFuture<'s, Result<Vec<U>, StoreError>>
    where
        Q: LoadQuery<'static, AsyncPgConnection, U> + Send + 'static,
        U: Send + 'static,
    {
        Box::pin(async move {
            let until = Instant::now() + STATEMENT_TIMEOUT;
            let query = build_query();
            let pool = &self.typed_point_pool;
            match self.in_flight.track(load_until(pool, label, query, until)).await {
                Err(TypedError::Closed(_)) => {
                    let query = build_query();
                    Ok(self.in_flight.track(load_until(pool, label, query, until)).await?)
                }
                result => Ok(result?),
            }
        })
    }

    /// Reads the rows of a list query that the caller built twice. The second one is sent if the connection was closed
    /// before the response to the first.
    pub(super) async fn load_prebuilt<Q, U>(
        &self,
        label: &'static str,
        [first, second]: [Q; 2],
    ) -> Result<Vec<U>, StoreError>
    where
        Q: LoadQuery<'static, AsyncPgConnection, U> + Send + 'static,
        U: Send + 'static,
    {
        let until = Instant::now() + STATEMENT_TIMEOUT;
        let pool = &self.typed_list_pool;
        match self.in_flight.track(load_until(pool, label, first, until)).await {
            Err(TypedError::Closed(_)) => Ok(self.in_flight.track(load_until(pool, label, second, until)).await?),
            result => Ok(result?),
        }
    }

    /// Reads at most one row of a query.
    pub(crate) fn first<'s, Q, U>(
        &'s self,
        label: &'static str,
        build_query: impl Fn() -> Q + Send + Sync + 's,
    ) -> BoxFuture<'s, Result<Option<U>, StoreError>>
    where
        Q: LoadQuery<'static, AsyncPgConnection, U> + Send + 'static,
        U: Send + 'static,
    {
        let rows = self.load(label, build_query);
        Box::pin(async move { Ok(rows.await?.pop()) })
    }

    /// Sends an idempotent write, and sends it again if the connection was closed before the response. Returns the
    /// number of affected rows.
    pub(crate) fn execute<'s, Q>(
        &'s self,
        label: &'static str,
        build_query: impl Fn() -> Q + Send + Sync + 's,
    ) -> BoxFuture<'s, Result<usize, StoreError>>
    where
        Q: ExecuteDsl<AsyncPgConnection> + QueryFragment<Pg> + QueryId + Send + 'static,
    {
        Box::pin(async move {
            let until = Instant::now() + STATEMENT_TIMEOUT;
            let query = build_query();
            match self.in_flight.track(self.execute_until(label, query, until)).await {
                Err(TypedError::Closed(_)) => {
                    let query = build_query();
                    Ok(self.in_flight.track(self.execute_until(label, query, until)).await?)
                }
                result => Ok(result?),
            }
        })
    }

    async fn execute_until<Q>(&self, label: &'static str, query: Q, until: Instant) -> Result<usize, TypedError>
    where
        Q: ExecuteDsl<AsyncPgConnection> + QueryFragment<Pg> + QueryId + Send + 'static,
    {
        let mut pooled = typed_connection(&self.typed_point_pool, until).await?;
        let sent = query.execute(&mut pooled.connection).instrument(span(label));
        finish(timeout_at(until, sent).await, pooled)
    }
}

async fn load_until<Q, U>(
    pool: &Pool<TypedManager>,
    label: &'static str,
    query: Q,
    until: Instant,
) -> Result<Vec<U>, TypedError>
where
    Q: LoadQuery<'static, AsyncPgConnection, U> + Send + 'static,
    U: Send + 'static,
{
    let mut pooled = typed_connection(pool, until).await?;
    let sent = query.load(&mut pooled.connection).instrument(span(label));
    finish(timeout_at(until, sent).await, pooled)
}

async fn typed_connection(pool: &Pool<TypedManager>, until: Instant) -> Result<Object<TypedManager>, TypedError> {
    // The pool's own time-outs exclude the session settings of a new connection, which may hang too.
    match timeout_at(until, pool.get()).await {
        Ok(Ok(connection)) => Ok(connection),
        Ok(Err(PoolError::Backend(source))) => Err(TypedError::Other(unavailable(source))),
        Ok(Err(_)) => Err(TypedError::Other(unavailable("no typed connection was free in time".into()))),
        Err(elapsed) => Err(TypedError::Other(unavailable(Box::new(elapsed)))),
    }
}

/// Converts the result of a statement. A connection that did not answer in time is closed, because later statements
/// on it would queue behind the pending one.
fn finish<T>(
    result: Result<QueryResult<T>, tokio::time::error::Elapsed>,
    mut pooled: Object<TypedManager>,
) -> Result<T, TypedError> {
    match result {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(typed_error(error, pooled.connection.is_broken())),
        Err(elapsed) => {
            drop(Object::take(pooled));
            Err(TypedError::Other(unavailable(Box::new(elapsed))))
        }
    }
}

fn span(label: &'static str) -> tracing::Span {
    tracing::debug_span!("statement", otel.kind = "client", db.system.name = "postgresql", db.query.summary = label,)
}

#[cfg(test)]
mod tests;
