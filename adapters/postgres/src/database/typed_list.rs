//! Typed lists: newest first by a unique key, whose rows are small.
//!
//! A list is two queries, one for the rows of the page and one for the total. Lists whose rows are visible for several
//! reasons, or whose rows can be large, are texts (`crate::pagination`).

use super::{CONNECTION_WAIT, Database};
use crate::{
    pagination::{COUNT_LIMIT, MAX_UNMEASURED_ROW_BYTES},
    row::decode,
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

/// A row of a typed query, as stored.
pub(crate) trait StoredRow: Sized {
    /// What the domain makes of it.
    type Value;

    /// The identifier, by which lists are sorted.
    fn id(&self) -> Uuid;

    /// Decodes the row.
    ///
    /// # Errors
    /// When a column holds a value that the domain does not know.
    fn into_value(self) -> Result<Self::Value, StoreError>;
}

/// The bounds of a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageBounds {
    /// Rows of the page plus one, which tells whether another page follows.
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

/// [`COUNT_LIMIT`] as SQL.
const COUNT_LIMIT_SQL: &str = "10001";
const _: () = assert!(COUNT_LIMIT == 10_001, "the limit and its SQL agree");

impl Database {
    /// Reads a page of a typed list. `all` is the query of all its rows, whatever it selects; `rows` is that of a page.
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
        // Each is built twice, for a second attempt. The future is boxed, because the compiler cannot show that a future
        // with boxed queries is `Send`.
        let (counts, pages) = ([CappedCount(all()), CappedCount(all())], [rows(bounds), rows(bounds)]);
        Box::pin(async move {
            let _permit =
                self.list_permits.acquire(MAX_UNMEASURED_ROW_BYTES.saturating_mul(limit), CONNECTION_WAIT).await?;
            let total = decode("count", self.load_either(label, counts).await?.pop())?;
            let mut found: Vec<U> = self.load_either(label, pages).await?;
            let goes_on = found.len() > limit;
            found.truncate(limit);
            let next = found.last().filter(|_| goes_on).map(|row| Cursor::from(row.id()));
            let found = found.into_iter().map(U::into_value).collect::<Result<_, _>>()?;
            Ok(Page { rows: found, total: decode("count", u64::try_from(total).ok())?, next })
        })
    }
}
