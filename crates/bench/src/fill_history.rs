//! A database with a year of service: a million runs with evidence, 100,000 asset versions, and the audit log of
//! both. SQL stores the data directly, because creating it through the API would take weeks.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use tokio_postgres::Client;

use crate::connection::{Connection, get};

/// The default number of runs, as text for the command line.
pub(crate) const DEFAULT_RUNS: &str = "1000000";
/// The size of the small database: an installation after ten days. Its lists already have several pages, and its
/// totals already reach their cap, as in a large database.
pub(crate) const SMALL_HISTORY: HistorySize = HistorySize { runs: 24_000, days: 10, name: "young" };
/// Number of runs whose evidence is read, as a sample.
const SAMPLE: i64 = 2_000;
/// Rows of a page.
const PAGE_ROWS: u32 = 50;
/// The number of the deep page that scenarios read.
const DEEP_PAGE: u32 = 10_000;
/// Page size for reaching the deep page, the API's maximum.
const MAX_PAGE_ROWS: u32 = 200;
/// The tenant that the first start creates.
const TENANT: &str = "00000000-0000-7000-8000-000000000001";
const LIST_PATH: &str = "/v1/executions";

/// The amount of data to store.
#[derive(Clone, Copy)]
pub(crate) struct HistorySize {
    pub(crate) runs: u64,
    pub(crate) days: u32,
    pub(crate) name: &'static str,
}

/// The identifiers and paths of stored data that scenarios read.
pub(crate) struct StoredRuns {
    /// Runs of the default tenant from all months.
    pub(crate) executions: Vec<String>,
    /// The release with the most runs.
    pub(crate) release: String,
    /// The path of a deep page in the list of runs, if the database contains a year of runs.
    pub(crate) deep: Option<String>,
}

impl HistorySize {
    /// The size of a history of one year with this number of runs.
    pub(crate) const fn year(runs: u64) -> HistorySize {
        HistorySize { runs, days: 364, name: "grown" }
    }

    /// Stores the data as the owner role. Updates statistics and the visibility map, as autovacuum would.
    ///
    /// # Errors
    /// When PostgreSQL refuses.
    pub(crate) async fn store(&self, database: &Client) -> Result<()> {
        let HistorySize { runs, days, name } = self;
        let set = format!(
            "SET fairway_fill.runs = '{runs}'; SET fairway_fill.days = '{days}'; SET fairway_fill.name = '{name}'"
        );
        database.batch_execute(&set).await?;
        database.batch_execute(include_str!("fill.sql")).await.context("filling the database")?;
        // Drops the temporary objects, so that the SQL script can run again on this connection.
        database.batch_execute("DISCARD TEMP").await.context("dropping temporary objects")?;
        database.batch_execute("VACUUM ANALYZE").await.context("updating statistics")
    }
}

impl StoredRuns {
    /// Selects the data that scenarios read. With `deep_page_server`, the address of a server, also follows the cursors
    /// of its list of runs to page `DEEP_PAGE`.
    ///
    /// # Errors
    /// When PostgreSQL or the server refuses.
    pub(crate) async fn select(database: &Client, deep_page_server: Option<SocketAddr>) -> Result<StoredRuns> {
        let sql = format!(
            "SELECT execution_id::text FROM execution WHERE tenant_id = '{TENANT}' AND status = 'completed'
             ORDER BY sha256(uuid_send(execution_id)) LIMIT {SAMPLE}"
        );
        let executions = database.query(&sql, &[]).await?.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
        let sql = format!(
            "SELECT release_id::text FROM execution WHERE tenant_id = '{TENANT}' GROUP BY release_id
             ORDER BY count(*) DESC LIMIT 1"
        );
        let release = database.query_one(&sql, &[]).await.context("no runs were stored")?.try_get(0)?;
        let deep = match deep_page_server {
            Some(address) => Some(deep_page_path(address).await.context("following cursors to the deep page")?),
            None => None,
        };
        Ok(StoredRuns { executions, release, deep })
    }

    /// The first page of the list of runs.
    pub(crate) fn first_page_path() -> String {
        format!("{LIST_PATH}?limit={PAGE_ROWS}")
    }
}

/// The path of the deep page, or of the last full page if the list is shorter. A cursor does not depend on the
/// page size.
async fn deep_page_path(address: SocketAddr) -> Result<String> {
    let mut connection = Connection::open(address).await?;
    let (mut rows, mut path) = (0, format!("{LIST_PATH}?limit={MAX_PAGE_ROWS}"));
    while rows < (DEEP_PAGE - 1) * PAGE_ROWS {
        let limit_rows = ((DEEP_PAGE - 1) * PAGE_ROWS - rows).min(MAX_PAGE_ROWS);
        path = path.replace(&format!("limit={MAX_PAGE_ROWS}"), &format!("limit={limit_rows}"));
        let response = connection.send(get(&path)).await?;
        anyhow::ensure!(response.is_success(), "{path} responded with {response}");
        let Some(link) = response.link else { break };
        let target = link.strip_prefix('<').and_then(|link| link.split_once('>')).context("the link has no target")?.0;
        path = target.replace(&format!("limit={limit_rows}"), &format!("limit={MAX_PAGE_ROWS}"));
        rows += limit_rows;
    }
    Ok(path.replace(&format!("limit={MAX_PAGE_ROWS}"), &format!("limit={PAGE_ROWS}")))
}
