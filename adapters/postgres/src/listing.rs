//! How every list is read: newest first by a unique key, one statement for each combination of filters, and each
//! page at the cost of its rows.
//!
//! A filter that is not asked for is not in the statement, so PostgreSQL plans for those that are and walks the one
//! index that has them in order. What is seen for several reasons (one's own, what is granted, what everybody sees) is
//! read in disjoint branches, each walking its own index; an `OR` over them would walk the whole table.

use crate::{
    database::{Database, Param},
    list_permits::PAGE_BYTES,
    row::{Columns, count},
};
use fairway_domain::{
    access::rights::Reach,
    store::{Listed, Mark, Paging, Start, StoreError},
};
use sha2::{Digest as _, Sha256};
use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
};
use tokio_postgres::{Row, types::ToSql};
use uuid::Uuid;

/// Counting ends here: a longer list is told to be longer than ten thousand.
const COUNTED: u32 = 10_001;

/// More rows than a page has and one more: what a walk that is planned once is told to end at. It ends sooner, with the
/// page.
const WALKED: u32 = 201;

/// Most bytes of a page whose rows are weighed; a heavier row is a page of its own.
const MAX_PAGE_BYTES: u32 = 1 << 20;

/// Most bytes of a row that is not weighed, and of the other columns of one that is: 200 of them are a page.
const MAX_SMALL_ROW: usize = PAGE_BYTES / 200;

/// What bounds the bytes of a page, besides its number of rows.
#[derive(Clone, Copy)]
pub(crate) enum RowBytes {
    /// The domain and the schema bound every column, so that 200 rows stay below [`MAX_PAGE_BYTES`].
    Small,
    /// Rows that end a page at [`MAX_PAGE_BYTES`].
    Weighed {
        /// The bytes of a row, as an SQL expression over its columns.
        sql: &'static str,
        /// Most of these bytes, or [`UNBOUNDED_ROW`].
        largest: usize,
    },
}

/// The bytes of a row that may fill a page by itself.
pub(crate) const UNBOUNDED_ROW: usize = PAGE_BYTES;

impl RowBytes {
    /// Most bytes of a page of `rows` rows.
    fn page(self, rows: u32) -> usize {
        let row = match self {
            Self::Small => MAX_SMALL_ROW,
            Self::Weighed { largest, .. } => largest.saturating_add(MAX_SMALL_ROW),
        };
        row.saturating_mul(usize::try_from(rows).unwrap_or(usize::MAX)).min(PAGE_BYTES)
    }
}

/// The values of a statement, as they are bound one after the other.
#[derive(Default)]
pub(crate) struct Values(Vec<Box<dyn ToSql + Sync + Send>>);

impl Values {
    /// Binds a value and answers with its placeholder.
    pub(crate) fn bind(&mut self, value: impl ToSql + Sync + Send + 'static) -> String {
        self.0.push(Box::new(value));
        format!("${}", self.0.len())
    }

    pub(crate) fn params(&self) -> Vec<Param<'_>> {
        self.0.iter().map(|value| &**value as Param<'_>).collect()
    }
}

/// What a list is ordered by.
#[derive(Clone, Copy)]
pub(crate) enum Key {
    /// An identifier: the column as it is written inside, and its name outside.
    Id(&'static str, &'static str),
    /// A place in a log, likewise.
    Place(&'static str, &'static str),
}

impl Key {
    const fn inside(self) -> &'static str {
        match self {
            Self::Id(inside, _) | Self::Place(inside, _) => inside,
        }
    }

    const fn outside(self) -> &'static str {
        match self {
            Self::Id(_, outside) | Self::Place(_, outside) => outside,
        }
    }

    fn mark(self, row: &Row) -> Result<Mark, StoreError> {
        match self {
            Self::Id(_, name) => Ok(row.column::<Uuid>(name)?.into()),
            Self::Place(_, name) => Ok(Mark::new(u128::try_from(row.column::<i64>(name)?).unwrap_or(0))),
        }
    }

    fn bind(self, mark: Mark, values: &mut Values) -> String {
        match self {
            Self::Id(..) => values.bind(mark.uuid()),
            Self::Place(..) => values.bind(mark.index()),
        }
    }
}

/// Rows that are seen for one reason.
pub(crate) struct Branch {
    /// `FROM` and what stands behind it.
    pub(crate) from: String,
    /// Joined by `AND`; never empty, as every row has a tenant.
    pub(crate) conditions: Vec<String>,
    /// A set that the branch is read for each member of; the conditions may name its columns.
    pub(crate) each: Option<String>,
}

/// A list.
pub(crate) struct Listing {
    /// A `WITH` clause that branches may use, or nothing.
    pub(crate) with: String,
    /// Columns of a row, as each branch selects them.
    pub(crate) columns: &'static str,
    pub(crate) key: Key,
    /// Joined to the rows of the page alone, where they need more than what lists are cut from.
    pub(crate) beside: Option<String>,
    /// How heavy rows can be.
    pub(crate) row_bytes: RowBytes,
    /// Disjoint: no row is in two of them.
    pub(crate) branches: Vec<Branch>,
    /// What the branches' placeholders stand for.
    pub(crate) values: Values,
    /// Whether what was found once is found for ever: rows come, and none of them goes or changes its place.
    pub(crate) only_grows: bool,
}

/// Lists that were found to be longer than counting goes, of those that only grow: they need not be counted again. Each is
/// known by the digest of its statement and values, which callers make as long as they like.
#[derive(Clone, Debug, Default)]
pub(crate) struct LongLists(Arc<Mutex<HashSet<[u8; 32]>>>);

/// Most of them that are remembered.
const MOST_LONG_LISTS: usize = 1_000;

impl LongLists {
    fn holds(&self, list: &[u8; 32]) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(list)
    }

    fn add(&self, list: [u8; 32]) {
        let mut lists = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lists.len() >= MOST_LONG_LISTS {
            lists.clear();
        }
        lists.insert(list);
    }
}

impl Listing {
    /// A list of one branch.
    pub(crate) fn plain(
        columns: &'static str,
        key: Key,
        (from, row_bytes): (&str, RowBytes),
        conditions: Vec<String>,
        values: Values,
    ) -> Self {
        let branch = Branch { from: from.to_owned(), conditions, each: None };
        Self {
            with: String::new(),
            columns,
            key,
            beside: None,
            row_bytes,
            branches: vec![branch],
            values,
            only_grows: false,
        }
    }

    fn counted(&self) -> String {
        let branches: Vec<String> = self
            .branches
            .iter()
            .map(|branch| {
                let rows = format!("SELECT {} WHERE {} LIMIT {COUNTED}", branch.from, branch.conditions.join(" AND "));
                match &branch.each {
                    None => format!("({rows})"),
                    Some(each) => format!("(SELECT FROM {each} CROSS JOIN LATERAL ({rows}) AS item LIMIT {COUNTED})"),
                }
            })
            .collect();
        let all = branches.join(" UNION ALL ");
        format!("{} SELECT count(*) FROM (SELECT FROM ({all}) AS found LIMIT {COUNTED}) AS few", self.with)
    }

    /// The rows of a page and one more, which tells whether the list goes on.
    fn page(&self, bounds: &Bounds) -> String {
        let (key, columns) = (self.key.inside(), self.columns);
        let Bounds { rows, deep, skipped, behind } = bounds;
        let behind = behind.as_ref().map(|mark| format!(" AND {key} < {mark}")).unwrap_or_default();
        let branches: Vec<String> = self
            .branches
            .iter()
            .map(|branch| {
                let conditions = branch.conditions.join(" AND ");
                let rows = format!(
                    "SELECT {columns} {} WHERE {conditions}{behind} ORDER BY {key} DESC LIMIT {deep}",
                    branch.from
                );
                match &branch.each {
                    None => format!("({rows})"),
                    Some(each) => format!("(SELECT item.* FROM {each} CROSS JOIN LATERAL ({rows}) AS item)"),
                }
            })
            .collect();
        let (all, order) = (branches.join(" UNION ALL "), self.key.outside());
        let page = format!("SELECT * FROM ({all}) AS found ORDER BY {order} DESC LIMIT {rows} OFFSET {skipped}");
        match (self.beside.as_deref().unwrap_or_default(), self.row_bytes) {
            ("", RowBytes::Small) => format!("{} {page}", self.with),
            (join, RowBytes::Small) => {
                format!("{} SELECT * FROM ({page}) AS page {join} ORDER BY {order} DESC", self.with)
            }
            // The first row is always among them, however heavy, and so is one more than are shown. `OFFSET 0` keeps PostgreSQL
            // from writing the expression into both places that need its value: it may have to read a large column.
            (join, RowBytes::Weighed { sql: bytes, .. }) => format!(
                "{} SELECT * FROM (
                    SELECT *, sum(row_bytes) OVER (ORDER BY {order} DESC) AS upto, count(*) OVER () AS fetched
                    FROM (
                        SELECT *, coalesce({bytes}, 0) AS row_bytes FROM ({page}) AS page {join} OFFSET 0
                    ) AS weighed
                 ) AS page WHERE upto - row_bytes <= {MAX_PAGE_BYTES} ORDER BY {order} DESC",
                self.with
            ),
        }
    }
}

/// Where a page begins and ends, as placeholders: a statement for each number of rows would be kept on each connection
/// for as long as that lives.
struct Bounds {
    /// Rows of the page and one more.
    rows: String,
    /// The same with those that are skipped.
    deep: String,
    skipped: String,
    /// The mark that the page begins behind.
    behind: Option<String>,
}

impl Bounds {
    fn bind(page: Paging, key: Key, planned: Planned, values: &mut Values) -> Self {
        let (skipped, behind) = match page.start {
            Start::Skip(rows) => (rows, None),
            Start::Behind(mark) => (0, Some(key.bind(mark, values))),
        };
        let (rows, skipped) = (i64::from(page.limit).saturating_add(1), i64::from(skipped));
        let deep = match (planned, page.start) {
            (Planned::EachTime, _) => values.bind(rows.saturating_add(skipped)),
            // A plan for whatever number would be one for a tenth of the rows, and sort them all.
            (Planned::Once, Start::Behind(_) | Start::Skip(0)) => WALKED.to_string(),
            (Planned::Once, Start::Skip(_)) => (WALKED + COUNTED).to_string(),
        };
        Self { rows: values.bind(rows), deep, skipped: values.bind(skipped), behind }
    }
}

/// A clause that calls the workspaces of a reach `seen`, each by its `seen_id`. `$1` is the tenant.
pub(crate) fn workspaces_of(reach: &Reach, values: &mut Values) -> String {
    let namespaces: Vec<Uuid> = reach.namespaces.iter().map(|id| id.uuid()).collect();
    let workspaces: Vec<Uuid> = reach.workspaces.iter().map(|id| id.uuid()).collect();
    format!(
        "WITH seen AS MATERIALIZED (SELECT workspace_id AS seen_id FROM workspace
            WHERE tenant_id = $1 AND (namespace_id = ANY({}) OR workspace_id = ANY({})))",
        values.bind(namespaces),
        values.bind(workspaces)
    )
}

/// Branches for the things of some workspaces, and of single workloads in others. `conditions` hold for both.
pub(crate) fn within(
    reach: &Reach,
    from: &str,
    (workspace, workload): (&str, &str),
    conditions: &[String],
    values: &mut Values,
) -> (String, Vec<Branch>) {
    let with = workspaces_of(reach, values);
    let workloads: Vec<Uuid> = reach.workloads.iter().map(|id| id.uuid()).collect();
    let mine = format!("(SELECT DISTINCT unnest({}::uuid[]) AS mine_id) AS mine", values.bind(workloads));
    let single =
        [format!("{workload} = mine.mine_id"), format!("NOT EXISTS (SELECT FROM seen WHERE seen_id = {workspace})")];
    let and = |more: &[String]| conditions.iter().chain(more).cloned().collect();
    let branches = vec![
        Branch {
            from: from.to_owned(),
            conditions: and(&[format!("{workspace} = seen.seen_id")]),
            each: Some("seen".to_owned()),
        },
        // Each by itself, because an index has the things of one workload in order and not those of several.
        Branch { from: from.to_owned(), conditions: and(&single), each: Some(mine) },
    ];
    (with, branches)
}

/// How often a list is planned.
#[derive(Clone, Copy)]
enum Planned {
    /// For the values at hand.
    EachTime,
    /// For whatever values.
    Once,
}

impl Database {
    /// Reads rows that take at most so many bytes.
    async fn asked(&self, planned: Planned, bytes: usize, sql: &str, values: &Values) -> Result<Vec<Row>, StoreError> {
        match planned {
            Planned::EachTime => self.list(bytes, sql, &values.params()).await,
            Planned::Once => self.list_by_month(bytes, sql, &values.params()).await,
        }
    }

    /// Reads a page of a list.
    pub(crate) async fn listed<T>(
        &self,
        listing: Listing,
        page: Paging,
        read: impl Fn(&Row) -> Result<T, StoreError>,
    ) -> Result<Listed<T>, StoreError> {
        self.paged(listing, page, read, Planned::EachTime).await
    }

    /// The same over tables that are cut by month: planned once for a connection and not with every page, because a plan
    /// for each of the months takes longer than the rows of the page do.
    pub(crate) async fn listed_by_month<T>(
        &self,
        listing: Listing,
        page: Paging,
        read: impl Fn(&Row) -> Result<T, StoreError>,
    ) -> Result<Listed<T>, StoreError> {
        self.paged(listing, page, read, Planned::Once).await
    }

    async fn total(&self, listing: &Listing, planned: Planned) -> Result<u64, StoreError> {
        let counted = listing.counted();
        // What is asked for, with its values: those of other callers and filters are other lists.
        let list: Option<[u8; 32]> =
            listing.only_grows.then(|| Sha256::digest(format!("{counted} {:?}", listing.values.0)).into());
        if list.as_ref().is_some_and(|list| self.long_lists.holds(list)) {
            return Ok(u64::from(COUNTED));
        }
        let total = count(&self.asked(planned, MAX_SMALL_ROW, &counted, &listing.values).await?)?;
        if let Some(list) = list.filter(|_| total >= u64::from(COUNTED)) {
            self.long_lists.add(list);
        }
        Ok(total)
    }

    async fn paged<T>(
        &self,
        mut listing: Listing,
        page: Paging,
        read: impl Fn(&Row) -> Result<T, StoreError>,
        planned: Planned,
    ) -> Result<Listed<T>, StoreError> {
        let total = self.total(&listing, planned).await?;
        let bounds = Bounds::bind(page, listing.key, planned, &mut listing.values);
        let sql = listing.page(&bounds);
        let bytes = listing.row_bytes.page(page.limit);
        let mut found = self.asked(planned, bytes, &sql, &listing.values).await?;
        let limit = usize::try_from(page.limit).unwrap_or(usize::MAX);
        let fetched = match (listing.row_bytes, found.first()) {
            (RowBytes::Weighed { .. }, Some(row)) => {
                usize::try_from(row.column::<i64>("fetched")?).unwrap_or(usize::MAX)
            }
            (RowBytes::Weighed { .. }, None) | (RowBytes::Small, _) => found.len(),
        };
        found.truncate(limit);
        let goes_on = fetched > found.len();
        let next = found.last().filter(|_| goes_on).map(|row| listing.key.mark(row)).transpose()?;
        Ok(Listed { rows: found.iter().map(read).collect::<Result<_, _>>()?, total, next })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::DatabaseOptions;
    use fairway_testkit::TestDatabase;
    use std::time::Duration;

    fn listing(each: Option<&str>) -> Listing {
        let mut values = Values::default();
        let conditions = vec![format!("tenant_id = {}", values.bind(1)), "kind = $2".to_owned()];
        let mut listing = Listing::plain(
            "thing_id, name",
            Key::Id("thing_id", "thing_id"),
            ("FROM thing", RowBytes::Small),
            conditions,
            values,
        );
        listing.branches[0].each = each.map(str::to_owned);
        listing
    }

    #[test]
    fn limits_and_marks_stand_where_the_index_is_walked() {
        let bounds = |behind: Option<&str>| Bounds {
            rows: "$4".to_owned(),
            deep: "$5".to_owned(),
            skipped: "$6".to_owned(),
            behind: behind.map(str::to_owned),
        };
        insta::assert_snapshot!(listing(None).page(&bounds(None)).trim(), @"SELECT * FROM ((SELECT thing_id, name FROM thing WHERE tenant_id = $1 AND kind = $2 ORDER BY thing_id DESC LIMIT $5)) AS found ORDER BY thing_id DESC LIMIT $4 OFFSET $6");
        insta::assert_snapshot!(listing(Some("seen")).page(&bounds(Some("$3"))).trim(), @"SELECT * FROM ((SELECT item.* FROM seen CROSS JOIN LATERAL (SELECT thing_id, name FROM thing WHERE tenant_id = $1 AND kind = $2 AND thing_id < $3 ORDER BY thing_id DESC LIMIT $5) AS item)) AS found ORDER BY thing_id DESC LIMIT $4 OFFSET $6");
        insta::assert_snapshot!(listing(None).counted().trim(), @"SELECT count(*) FROM (SELECT FROM ((SELECT FROM thing WHERE tenant_id = $1 AND kind = $2 LIMIT 10001)) AS found LIMIT 10001) AS few");
    }

    /// PostgreSQL believes that the function has no effect, as it does of the expressions that lists weigh by.
    #[tokio::test]
    async fn each_row_of_a_page_is_weighed_once() {
        let clone = TestDatabase::create().await.unwrap();
        let owner = clone.owner().await.unwrap();
        let things = "
            CREATE TABLE thing (tenant_id int, thing_id uuid, content text);
            INSERT INTO thing SELECT 1, gen_random_uuid(), repeat('x', 100) FROM generate_series(1, 30);
            CREATE SEQUENCE weighed;
            CREATE FUNCTION weigh(content text) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$
            BEGIN
                PERFORM nextval('weighed');
                RETURN length(content);
            END
            $$;
            GRANT SELECT ON thing TO fairway_service;
            GRANT USAGE ON SEQUENCE weighed TO fairway_service;";
        owner.batch_execute(things).await.unwrap();
        let options = DatabaseOptions { url: clone.url(), connections: 2, result_retention: Duration::from_secs(600) };
        let database = Database::new(&options).unwrap();
        let mut values = Values::default();
        let conditions = vec![format!("tenant_id = {}", values.bind(1_i32))];
        let from = ("FROM thing", RowBytes::Weighed { sql: "weigh(content)", largest: UNBOUNDED_ROW });
        let listing = Listing::plain("thing_id, content", Key::Id("thing_id", "thing_id"), from, conditions, values);
        let page = Paging { limit: 20, start: Start::Skip(0) };
        let listed = database.listed(listing, page, |row| row.column::<Uuid>("thing_id")).await.unwrap();
        assert_eq!((listed.rows.len(), listed.next.is_some()), (20, true));
        let weighed: i64 = owner.query_one("SELECT last_value FROM weighed", &[]).await.unwrap().get(0);
        assert_eq!(weighed, 21, "of the rows of the page and the one behind it");
    }
}
