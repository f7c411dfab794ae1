//! Typed lists, sorted by a unique key, newest first.
//!
//! A list sends two queries: one for the rows of the page, and one for the total. Lists whose rows are visible for
//! several reasons are written as text instead (`crate::pagination`).

use super::{CONNECTION_WAIT, Database};
use crate::{
    pagination::{COUNT_LIMIT, MAX_PAGE_BYTES, MAX_UNMEASURED_ROW_BYTES, PageByteLimit},
    row::require_decoded,
};
use diesel::{
    pg::Pg,
    query_builder::{AstPass, Query, QueryFragment, QueryId},
    result::QueryResult,
    sql_types::BigInt,
};
use diesel_async::{AsyncPgConnection, methods::LoadQuery};
use fairway_domain::store::{Cursor, Page, PageRequest, PageStart, StoreError};
use futures_util::future::BoxFuture;
use uuid::Uuid;

/// A row of a typed query.
pub(crate) trait StoredRow: Sized {
    /// The domain type of the decoded row.
    type Value;

    /// The identifier. Lists are sorted by it.
    fn id(&self) -> Uuid;

    /// Decodes the row.
    ///
    /// # Errors
    /// When the domain cannot parse the value of a column.
    fn into_value(self) -> Result<Self::Value, StoreError>;
}

/// The rows of a typed list that a page contains.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageBounds {
    /// The page's row limit plus one. The extra row shows whether another page follows.
    pub(crate) limit: i64,
    /// Rows to skip.
    pub(crate) offset: i64,
    /// The identifier that the page starts after.
    pub(crate) after: Option<Uuid>,
}

impl From<PageRequest> for PageBounds {
    fn from(page: PageRequest) -> Self {
        let (offset, after) = match page.start {
            PageStart::Skip(rows) => (i64::from(rows), None),
            PageStart::After(cursor) => (0, Some(Uuid::from_u128(cursor.value()))),
        };
        Self { limit: i64::from(page.limit).saturating_add(1), offset, after }
    }
}

/// The number of rows of a query, counted up to [`COUNT_LIMIT`].
#[derive(Clone, Copy, Debug, QueryId)]
pub(crate) struct CappedCount<Q>(pub(super) Q);

impl<Q> Query for CappedCount<Q> {
    type SqlType = BigInt;
}

impl<Q: QueryFragment<Pg>> QueryFragment<Pg> for CappedCount<Q> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        out.push_sql("SELECT count(*) FROM (");
        self.0.walk_ast(out.reborrow())?;
        out.push_sql(" LIMIT ");
        out.push_sql(COUNT_LIMIT_SQL);
        out.push_sql(") AS counted");
        Ok(())
    }
}

/// [`COUNT_LIMIT`] as SQL text.
const COUNT_LIMIT_SQL: &str = "10001";
const _: () = assert!(COUNT_LIMIT == 10_001, "the limit and its SQL agree");

/// The rows of a page that is limited to [`MAX_PAGE_BYTES`]. It adds three columns to those of the query: the bytes
/// of the row, the bytes of the page up to and including the row, and the number of rows that the query found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MeasuredPage<Q> {
    rows: Q,
    /// The column of the identifier.
    key: &'static str,
    /// The bytes of a row, as an SQL expression over the columns of the query.
    bytes: &'static str,
}

impl<Q: Query> Query for MeasuredPage<Q> {
    type SqlType = (Q::SqlType, BigInt, BigInt, BigInt);
}

/// Diesel must not cache the statement by its Rust type, because two pages of one type can have different texts.
impl<Q> QueryId for MeasuredPage<Q> {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl<Q: QueryFragment<Pg>> QueryFragment<Pg> for MeasuredPage<Q> {
    /// Writes the SQL. The first row is always returned, regardless of its size. `OFFSET 0` is an optimization
    /// fence: without it, PostgreSQL would evaluate the size expression twice, and the expression may detoast a
    /// large column.
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        out.push_sql("SELECT * FROM (SELECT *, sum(row_bytes) OVER (ORDER BY ");
        out.push_identifier(self.key)?;
        out.push_sql(" DESC)::bigint AS upto, count(*) OVER () AS fetched FROM (SELECT *, coalesce(");
        out.push_sql(self.bytes);
        out.push_sql(", 0)::bigint AS row_bytes FROM (");
        self.rows.walk_ast(out.reborrow())?;
        out.push_sql(") AS page OFFSET 0) AS measured) AS page WHERE upto - row_bytes <= ");
        out.push_sql(&MAX_PAGE_BYTES.to_string());
        out.push_sql(" ORDER BY ");
        out.push_identifier(self.key)?;
        out.push_sql(" DESC");
        Ok(())
    }
}

/// How the rows of a typed list are measured, for lists whose rows can be large.
#[derive(Clone, Copy)]
pub(crate) struct RowSizeMeasure {
    /// The column of the identifier.
    pub(crate) key: &'static str,
    /// The bytes of a row, as an SQL expression over the columns of the query.
    pub(crate) sql: &'static str,
    /// Maximum bytes of a row. Lists whose rows have no maximum are written as text, because only connections for
    /// text statements are closed after a large result. The driver never shrinks its buffers.
    pub(crate) largest: usize,
}

/// Builds a page from `rows`. `fetched` is the number of rows that the query found before the byte limit.
fn page_of<U: StoredRow>(
    mut rows: Vec<U>,
    fetched: usize,
    limit: usize,
    total: i64,
) -> Result<Page<U::Value>, StoreError> {
    rows.truncate(limit);
    let is_last = fetched <= rows.len();
    let next = rows.last().filter(|_| !is_last).map(|row| Cursor::from(row.id()));
    let rows = rows.into_iter().map(U::into_value).collect::<Result<_, _>>()?;
    Ok(Page { rows, total: require_decoded("count", u64::try_from(total).ok())?, next })
}

impl Database {
    /// Counts the rows of a query up to [`COUNT_LIMIT`].
    pub(crate) fn capped_count<'s, Q>(
        &'s self,
        label: &'static str,
        all: impl Fn() -> Q + Send + Sync + 's,
    ) -> BoxFuture<'s, Result<u64, StoreError>>
    where
        Q: QueryFragment<Pg> + QueryId + Send + 'static,
        CappedCount<Q>: LoadQuery<'static, AsyncPgConnection, i64>,
    {
        let count = self.first(label, move || CappedCount(all()));
        Box::pin(async move {
            let total: Option<i64> = count.await?;
            require_decoded("count", total.and_then(|total| u64::try_from(total).ok()))
        })
    }

    /// Reads a page of a typed list whose rows can be large. `all` builds the query that counts all rows of the
    /// list. `rows` builds the query of a page.
    ///
    /// # Errors
    /// When no list permit is free in time, a statement fails, or a row cannot be decoded.
    pub(crate) fn typed_measured_page<A, R, U>(
        &self,
        label: &'static str,
        measured: RowSizeMeasure,
        page: PageRequest,
        all: impl Fn() -> A,
        rows: impl Fn(PageBounds) -> R,
    ) -> BoxFuture<'_, Result<Page<U::Value>, StoreError>>
    where
        A: QueryFragment<Pg> + QueryId + Send + 'static,
        CappedCount<A>: LoadQuery<'static, AsyncPgConnection, i64>,
        MeasuredPage<R>: LoadQuery<'static, AsyncPgConnection, (U, i64, i64, i64)> + Send + 'static,
        U: StoredRow + Send + 'static,
        U::Value: Send,
    {
        let limit = usize::try_from(page.limit).unwrap_or(usize::MAX);
        let bounds = PageBounds::from(page);
        let RowSizeMeasure { key, sql: bytes, largest } = measured;
        let measured_page = || MeasuredPage { rows: rows(bounds), key, bytes };
        let (counts, pages) = ([CappedCount(all()), CappedCount(all())], [measured_page(), measured_page()]);
        let byte_limit = PageByteLimit::Measured { sql: bytes, largest };
        Box::pin(async move {
            let bytes = byte_limit.max_page_bytes(page.limit);
            let _permit = self.list_permits.acquire(bytes, CONNECTION_WAIT).await?;
            let total = require_decoded("count", self.load_prebuilt(label, counts).await?.pop())?;
            let found: Vec<(U, i64, i64, i64)> = self.load_prebuilt(label, pages).await?;
            let fetched = found.first().map_or(0, |row| usize::try_from(row.3).unwrap_or(usize::MAX));
            page_of(found.into_iter().map(|row| row.0).collect(), fetched, limit, total)
        })
    }

    /// Reads a page of a typed list whose rows are small. `all` builds the query that counts all rows of the list.
    /// `rows` builds the query of a page.
    ///
    /// # Errors
    /// When no list permit is free in time, a statement fails, or a row cannot be decoded.
    pub(crate) fn typed_page<A, R, U>(
        &self,
        label: &'static str,
        page: PageRequest,
        all: impl Fn() -> A,
        rows: impl Fn(PageBounds) -> R,
    ) -> BoxFuture<'_, Result<Page<U::Value>, StoreError>>
    where
        A: QueryFragment<Pg> + QueryId + Send + 'static,
        CappedCount<A>: LoadQuery<'static, AsyncPgConnection, i64>,
        R: LoadQuery<'static, AsyncPgConnection, U> + Send + 'static,
        U: StoredRow + Send + 'static,
        U::Value: Send,
    {
        let limit = usize::try_from(page.limit).unwrap_or(usize::MAX);
        let bounds = PageBounds::from(page);
        // Each query is built twice, for a second attempt. The future is boxed, because the compiler cannot prove
        // that a future with boxed queries is `Send`.
        let (counts, pages) = ([CappedCount(all()), CappedCount(all())], [rows(bounds), rows(bounds)]);
        Box::pin(async move {
            let _permit =
                self.list_permits.acquire(MAX_UNMEASURED_ROW_BYTES.saturating_mul(limit), CONNECTION_WAIT).await?;
            let total = require_decoded("count", self.load_prebuilt(label, counts).await?.pop())?;
            let found: Vec<U> = self.load_prebuilt(label, pages).await?;
            let fetched = found.len();
            page_of(found, fetched, limit, total)
        })
    }
}
