//! Pagination of lists whose statements are text. Lists are sorted by a unique key, newest first. The cost of a
//! page depends on its rows, and not on the length of the list. Other lists are typed (`crate::database`).
//!
//! Each combination of filters has its own statement, which contains only these filters. PostgreSQL therefore plans
//! for them and scans the one index that has their order.
//!
//! Rows can be visible for several reasons, such as ownership, a grant or public access. Disjoint arms of a `UNION
//! ALL` read the rows of each reason, each arm with its own index. An `OR` over the reasons would scan the whole
//! table.

use crate::{
    database::Database,
    guarded_commit::Input,
    list_permits::MAX_PAGE_MEMORY_BYTES,
    row::{Row, read_count},
};
use fairway_domain::{
    access::rights::VisibleScopes,
    store::{Cursor, Page, PageRequest, PageStart, StoreError},
};
use sha2::{Digest as _, Sha256};
use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
};
use uuid::Uuid;

/// The limit of a count. A total of 10,001 means "more than ten thousand".
pub(crate) const COUNT_LIMIT: u32 = 10_001;

/// Row limit of an arm under a generic plan: the rows of the largest page, and its extra row. The scan stops earlier,
/// when the page is full.
const SCAN_LIMIT: u32 = 201;

/// Maximum bytes of a page with [`PageByteLimit::Measured`]. A single row that is larger still forms a page.
pub(crate) const MAX_PAGE_BYTES: u32 = 1 << 20;

/// Maximum bytes of a row that is not measured, and of the columns of a measured row that are not measured. 200
/// such rows fill a page.
pub(crate) const MAX_UNMEASURED_ROW_BYTES: usize = MAX_PAGE_MEMORY_BYTES / 200;

/// How the bytes of a page are limited, in addition to its number of rows.
#[derive(Clone, Copy)]
pub(crate) enum PageByteLimit {
    /// Rows are not measured: the domain and the schema limit every column, so that 200 rows stay below
    /// [`MAX_PAGE_BYTES`].
    Small,
    /// Rows are measured by the statement, and the page ends at [`MAX_PAGE_BYTES`].
    Measured {
        /// The bytes of a row, as an SQL expression over its columns.
        sql: &'static str,
        /// The maximum of these bytes, or [`UNBOUNDED_ROW_BYTES`].
        largest: usize,
    },
}

/// The value of `largest` for rows without a maximum: one row may fill a page.
pub(crate) const UNBOUNDED_ROW_BYTES: usize = MAX_PAGE_MEMORY_BYTES;

impl PageByteLimit {
    /// Maximum bytes of a page with `rows` rows.
    pub(crate) fn max_page_bytes(self, rows: u32) -> usize {
        let row = match self {
            Self::Small => MAX_UNMEASURED_ROW_BYTES,
            Self::Measured { largest, .. } => largest.saturating_add(MAX_UNMEASURED_ROW_BYTES),
        };
        row.saturating_mul(usize::try_from(rows).unwrap_or(usize::MAX)).min(MAX_PAGE_MEMORY_BYTES)
    }
}

/// The sort key of a list.
#[derive(Clone, Copy)]
pub(crate) enum SortKey {
    /// A UUID. The fields are the qualified column within an arm, and the name of the output column.
    Id(&'static str, &'static str),
    /// A `bigint` position, such as the index of a fact. The fields are the qualified column within an arm, and the
    /// name of the output column.
    Position(&'static str, &'static str),
}

impl SortKey {
    const fn qualified(self) -> &'static str {
        match self {
            Self::Id(column, _) | Self::Position(column, _) => column,
        }
    }

    const fn output(self) -> &'static str {
        match self {
            Self::Id(_, column) | Self::Position(_, column) => column,
        }
    }

    fn cursor(self, row: &Row) -> Result<Cursor, StoreError> {
        match self {
            Self::Id(_, name) => Ok(row.column::<Uuid>(name)?.into()),
            Self::Position(_, name) => Ok(Cursor::new(u128::try_from(row.column::<i64>(name)?).unwrap_or(0))),
        }
    }

    fn bind(self, cursor: Cursor, values: &mut Input<'static>) -> String {
        match self {
            Self::Id(..) => values.bind("cursor", cursor.uuid()),
            Self::Position(..) => values.bind("cursor", cursor.index()),
        }
    }
}

/// One arm of a list's `UNION ALL`: the rows that are visible for one reason.
pub(crate) struct UnionArm {
    /// The `FROM` clause with its joins.
    pub(crate) from: String,
    /// Conditions that are joined by `AND`. There is at least one, because every row belongs to a tenant.
    pub(crate) conditions: Vec<String>,
    /// A row source. The arm is evaluated for each of its rows (`CROSS JOIN LATERAL`), and the conditions may use
    /// its columns.
    pub(crate) lateral: Option<String>,
}

/// The query of a list.
pub(crate) struct ListQuery {
    /// The `WITH` clause with the CTEs that the arms use; may be empty.
    pub(crate) with: String,
    /// The columns that each arm selects.
    pub(crate) columns: &'static str,
    pub(crate) key: SortKey,
    /// Joins that run only for the rows of the page, for columns that the filters do not need.
    pub(crate) post_join: Option<String>,
    /// The bound on the bytes of a page.
    pub(crate) byte_limit: PageByteLimit,
    /// Disjoint arms: each row is in at most one of them.
    pub(crate) arms: Vec<UnionArm>,
    /// The parameters of the arms.
    pub(crate) values: Input<'static>,
    /// Whether the list is append-only: its rows are never removed or reordered.
    pub(crate) is_append_only: bool,
    /// A statement whose column `count` has a stored total, to be used instead of counting the rows.
    pub(crate) stored_count: Option<String>,
}

/// Append-only lists whose count has reached [`COUNT_LIMIT`], so that they need not be counted again. A list is
/// identified by a digest of its statement and parameters, because callers determine the length of the parameters.
#[derive(Clone, Debug, Default)]
pub(crate) struct CappedCounts(Arc<Mutex<HashSet<[u8; 32]>>>);

/// Maximum number of cached lists. A full cache is cleared.
const MAX_CAPPED_COUNTS: usize = 1_000;

impl CappedCounts {
    fn contains(&self, list: &[u8; 32]) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(list)
    }

    fn insert(&self, list: [u8; 32]) {
        let mut lists = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lists.len() >= MAX_CAPPED_COUNTS {
            lists.clear();
        }
        lists.insert(list);
    }
}

impl ListQuery {
    /// Creates a list with one arm.
    pub(crate) fn single(
        columns: &'static str,
        key: SortKey,
        from: &str,
        byte_limit: PageByteLimit,
        conditions: Vec<String>,
        values: Input<'static>,
    ) -> Self {
        let arm = UnionArm { from: from.to_owned(), conditions, lateral: None };
        Self {
            with: String::new(),
            columns,
            key,
            post_join: None,
            byte_limit,
            arms: vec![arm],
            values,
            is_append_only: false,
            stored_count: None,
        }
    }

    fn count_sql(&self) -> String {
        if let Some(stored) = &self.stored_count {
            return stored.clone();
        }
        let arms: Vec<String> = self
            .arms
            .iter()
            .map(|arm| {
                let rows = format!("SELECT {} WHERE {} LIMIT {COUNT_LIMIT}", arm.from, arm.conditions.join(" AND "));
                match &arm.lateral {
                    None => format!("({rows})"),
                    Some(lateral) => {
                        format!("(SELECT FROM {lateral} CROSS JOIN LATERAL ({rows}) AS item LIMIT {COUNT_LIMIT})")
                    }
                }
            })
            .collect();
        let all = arms.join(" UNION ALL ");
        format!("{} SELECT count(*) FROM (SELECT FROM ({all}) AS found LIMIT {COUNT_LIMIT}) AS few", self.with)
    }

    /// The statement of a page. It returns one extra row, which shows whether another page follows.
    fn page_sql(&self, bounds: &PageBounds) -> String {
        let (key, columns) = (self.key.qualified(), self.columns);
        let PageBounds { rows, arm_limit, offset, after } = bounds;
        let after_cursor = after.as_ref().map(|cursor| format!(" AND {key} < {cursor}")).unwrap_or_default();
        let arms: Vec<String> = self
            .arms
            .iter()
            .map(|arm| {
                let conditions = arm.conditions.join(" AND ");
                let rows = format!(
                    "SELECT {columns} {} WHERE {conditions}{after_cursor} ORDER BY {key} DESC LIMIT {arm_limit}",
                    arm.from
                );
                match &arm.lateral {
                    None => format!("({rows})"),
                    Some(lateral) => format!("(SELECT item.* FROM {lateral} CROSS JOIN LATERAL ({rows}) AS item)"),
                }
            })
            .collect();
        let (all, order) = (arms.join(" UNION ALL "), self.key.output());
        let page = format!("SELECT * FROM ({all}) AS found ORDER BY {order} DESC LIMIT {rows} OFFSET {offset}");
        match (self.post_join.as_deref().unwrap_or_default(), self.byte_limit) {
            ("", PageByteLimit::Small) => format!("{} {page}", self.with),
            (join, PageByteLimit::Small) => {
                format!("{} SELECT * FROM ({page}) AS page {join} ORDER BY {order} DESC", self.with)
            }
            // The first row is always returned, regardless of its size, and so is one row beyond the page. `OFFSET
            // 0` is an optimization fence: without it, PostgreSQL would evaluate the size expression twice, and the
            // expression may detoast a large column.
            (join, PageByteLimit::Measured { sql: bytes, .. }) => format!(
                "{} SELECT * FROM (
                    SELECT *, sum(row_bytes) OVER (ORDER BY {order} DESC) AS upto, count(*) OVER () AS fetched
                    FROM (
                        SELECT *, coalesce({bytes}, 0) AS row_bytes FROM ({page}) AS page {join} OFFSET 0
                    ) AS measured
                 ) AS page WHERE upto - row_bytes <= {MAX_PAGE_BYTES} ORDER BY {order} DESC",
                self.with
            ),
        }
    }
}

/// The bounds of a page, as SQL. They are names of parameters or constants, because with literal numbers every
/// connection would prepare one statement for each page size.
struct PageBounds {
    /// The page's row limit plus one.
    rows: String,
    /// The page's row limit plus one, plus the number of rows to skip.
    arm_limit: String,
    offset: String,
    /// The cursor that the page starts after.
    after: Option<String>,
}

impl PageBounds {
    fn bind(page: PageRequest, key: SortKey, plan_mode: PlanMode, values: &mut Input<'static>) -> Self {
        let (offset, after) = match page.start {
            PageStart::Skip(rows) => (rows, None),
            PageStart::After(cursor) => (0, Some(key.bind(cursor, values))),
        };
        let (rows, offset) = (i64::from(page.limit).saturating_add(1), i64::from(offset));
        let arm_limit = match (plan_mode, page.start) {
            (PlanMode::Custom, _) => values.bind("arm_rows", rows.saturating_add(offset)),
            // The limit is a literal: for a parameter, the generic plan would assume a tenth of the rows and sort
            // all of them.
            (PlanMode::Generic, PageStart::After(_) | PageStart::Skip(0)) => SCAN_LIMIT.to_string(),
            (PlanMode::Generic, PageStart::Skip(_)) => (SCAN_LIMIT + COUNT_LIMIT).to_string(),
        };
        Self { rows: values.bind("page_rows", rows), arm_limit, offset: values.bind("skipped_rows", offset), after }
    }
}

/// A `WITH` clause with the CTE `visible_workspace (visible_id)`: the workspaces that the scopes include.
pub(crate) fn visible_workspaces_cte(visible_scopes: &VisibleScopes, values: &mut Input<'static>) -> String {
    let namespaces: Vec<Uuid> = visible_scopes.namespaces.iter().map(|id| id.uuid()).collect();
    let workspaces: Vec<Uuid> = visible_scopes.workspaces.iter().map(|id| id.uuid()).collect();
    format!(
        "WITH visible_workspace AS MATERIALIZED (SELECT workspace_id AS visible_id FROM workspace
            WHERE tenant_id = {{tenant_id}} AND (namespace_id = ANY({}) OR workspace_id = ANY({})))",
        values.bind_list("visible_namespaces", namespaces),
        values.bind_list("visible_workspaces", workspaces)
    )
}

/// The `WITH` clause and two arms: one for the rows of visible workspaces, and one for the rows of single visible
/// workloads in other workspaces. `conditions` apply to both arms.
pub(crate) fn visible_arms(
    visible_scopes: &VisibleScopes,
    from: &str,
    workspace: &str,
    workload: &str,
    conditions: &[String],
    values: &mut Input<'static>,
) -> (String, Vec<UnionArm>) {
    let with = visible_workspaces_cte(visible_scopes, values);
    let workloads: Vec<Uuid> = visible_scopes.workloads.iter().map(|id| id.uuid()).collect();
    let visible_workloads = values.bind_list("visible_workloads", workloads);
    let visible_workloads = format!("(SELECT DISTINCT unnest({visible_workloads}) AS visible_id) AS visible_workload");
    let workload_conditions = [
        format!("{workload} = visible_workload.visible_id"),
        format!("NOT EXISTS (SELECT FROM visible_workspace WHERE visible_id = {workspace})"),
    ];
    let with_conditions = |extra: &[String]| conditions.iter().chain(extra).cloned().collect();
    let arms = vec![
        UnionArm {
            from: from.to_owned(),
            conditions: with_conditions(&[format!("{workspace} = visible_workspace.visible_id")]),
            lateral: Some("visible_workspace".to_owned()),
        },
        // Each workload is scanned separately, because an index orders only rows of the same workload.
        UnionArm {
            from: from.to_owned(),
            conditions: with_conditions(&workload_conditions),
            lateral: Some(visible_workloads),
        },
    ];
    (with, arms)
}

/// Whether PostgreSQL plans a list for its parameters.
#[derive(Clone, Copy)]
enum PlanMode {
    /// The plan is made for the given parameters.
    Custom,
    /// One plan is used for all parameters.
    Generic,
}

impl Database {
    /// Sends a statement of a list whose rows have at most `bytes` in total.
    async fn query_list(
        &self,
        plan_mode: PlanMode,
        bytes: usize,
        sql: &str,
        values: &Input<'static>,
    ) -> Result<Vec<Row>, StoreError> {
        match plan_mode {
            PlanMode::Custom => self.read_list(bytes, sql, &values.params()).await,
            PlanMode::Generic => self.read_partitioned_list(bytes, sql, &values.params()).await,
        }
    }

    /// Reads a page of a list.
    ///
    /// # Errors
    /// When a statement fails, or `read` rejects a row.
    pub(crate) async fn fetch_page<T>(
        &self,
        query: ListQuery,
        page: PageRequest,
        read: impl Fn(&Row) -> Result<T, StoreError>,
    ) -> Result<Page<T>, StoreError> {
        self.fetch_page_as(query, page, read, PlanMode::Custom).await
    }

    /// Like [`Self::fetch_page`], for tables that are partitioned by month. It uses generic plans, because making a
    /// plan for all partitions takes longer than reading a page.
    pub(crate) async fn fetch_partitioned_page<T>(
        &self,
        query: ListQuery,
        page: PageRequest,
        read: impl Fn(&Row) -> Result<T, StoreError>,
    ) -> Result<Page<T>, StoreError> {
        self.fetch_page_as(query, page, read, PlanMode::Generic).await
    }

    async fn count_rows(&self, query: &ListQuery, plan_mode: PlanMode) -> Result<u64, StoreError> {
        let sql = query.values.number_names(query.count_sql())?;
        // The digest includes the parameters, because other callers and filter values mean other lists.
        let list_digest: Option<[u8; 32]> =
            query.is_append_only.then(|| Sha256::digest(format!("{sql} {:?}", query.values.params())).into());
        if list_digest.as_ref().is_some_and(|list_digest| self.capped_counts.contains(list_digest)) {
            return Ok(u64::from(COUNT_LIMIT));
        }
        let total = read_count(&self.query_list(plan_mode, MAX_UNMEASURED_ROW_BYTES, &sql, &query.values).await?)?;
        if let Some(list_digest) = list_digest.filter(|_| total >= u64::from(COUNT_LIMIT)) {
            self.capped_counts.insert(list_digest);
        }
        Ok(total)
    }

    async fn fetch_page_as<T>(
        &self,
        mut query: ListQuery,
        page: PageRequest,
        read: impl Fn(&Row) -> Result<T, StoreError>,
        plan_mode: PlanMode,
    ) -> Result<Page<T>, StoreError> {
        let total = self.count_rows(&query, plan_mode).await?;
        let bounds = PageBounds::bind(page, query.key, plan_mode, &mut query.values);
        let sql = query.values.number_names(query.page_sql(&bounds))?;
        let bytes = query.byte_limit.max_page_bytes(page.limit);
        let mut found = self.query_list(plan_mode, bytes, &sql, &query.values).await?;
        let limit = usize::try_from(page.limit).unwrap_or(usize::MAX);
        let fetched = match (query.byte_limit, found.first()) {
            (PageByteLimit::Measured { .. }, Some(row)) => {
                usize::try_from(row.column::<i64>("fetched")?).unwrap_or(usize::MAX)
            }
            (PageByteLimit::Measured { .. }, None) | (PageByteLimit::Small, _) => found.len(),
        };
        found.truncate(limit);
        let has_more = fetched > found.len();
        let next = found.last().filter(|_| has_more).map(|row| query.key.cursor(row)).transpose()?;
        Ok(Page { rows: found.iter().map(read).collect::<Result<_, _>>()?, total, next })
    }
}

#[cfg(test)]
mod tests;
