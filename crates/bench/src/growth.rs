//! A database that has served for a year: a million runs with what stands behind them, a hundred thousand versions and a
//! log of both, stored past the API, which would take weeks.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use tokio_postgres::Client;

use crate::connection::{Connection, get};

/// Runs of a year that is not told how many, as the command line takes them.
pub(crate) const RUNS: &str = "1000000";
/// What a run of the benchmark begins with: an installation of a few days, whose lists have pages and whose counts end
/// where they end in a grown one too.
pub(crate) const YOUNG: Filling = Filling { runs: 24_000, days: 10, name: "young" };
/// Runs whose evidence is read.
const SAMPLE: i64 = 2_000;
/// Rows of a page.
const PAGE: u32 = 50;
/// The page that is deep.
const DEEP: u32 = 10_000;
/// The longest page, for walking to the deep one.
const STRIDE: u32 = 200;
/// What the first start of a server makes.
const TENANT: &str = "00000000-0000-7000-8000-000000000001";
const LIST: &str = "/v1/executions";

/// How much is stored.
#[derive(Clone, Copy)]
pub(crate) struct Filling {
    pub(crate) runs: u64,
    pub(crate) days: u32,
    pub(crate) name: &'static str,
}

/// What is read of it.
pub(crate) struct Grown {
    /// Runs of the default tenant, out of all months.
    pub(crate) executions: Vec<String>,
    /// The release that most runs are of.
    pub(crate) release: String,
    /// The path of a deep page of the list of runs, where a year was stored.
    pub(crate) deep: Option<String>,
}

impl Filling {
    /// A year with that many runs.
    pub(crate) const fn year(runs: u64) -> Filling {
        Filling { runs, days: 364, name: "grown" }
    }

    /// Stores it, as the owner, and leaves statistics and visibility as autovacuum would.
    ///
    /// # Errors
    /// When PostgreSQL refuses.
    pub(crate) async fn store(&self, database: &Client) -> Result<()> {
        let Filling { runs, days, name } = self;
        let set = format!(
            "SET fairway_fill.runs = '{runs}'; SET fairway_fill.days = '{days}'; SET fairway_fill.name = '{name}'"
        );
        database.batch_execute(&set).await?;
        database.batch_execute(include_str!("fill.sql")).await.context("filling the database")?;
        // What it was made of goes, so that the next filling begins like the first.
        database.batch_execute("DISCARD TEMP").await.context("tidying up behind the filling")?;
        database.batch_execute("VACUUM ANALYZE").await.context("making statistics")
    }
}

impl Grown {
    /// Looks for what is to be read, and walks to the deep page as a client would if one is asked for.
    ///
    /// # Errors
    /// When PostgreSQL or the server refuses.
    pub(crate) async fn find(database: &Client, walk: Option<SocketAddr>) -> Result<Grown> {
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
        let deep = match walk {
            Some(address) => Some(walked(address).await.context("walking to a deep page")?),
            None => None,
        };
        Ok(Grown { executions, release, deep })
    }

    /// The list of runs, from its first page.
    pub(crate) fn first() -> String {
        format!("{LIST}?limit={PAGE}")
    }
}

/// The deep page, or the last that is whole. A cursor does not depend on how the list was walked.
async fn walked(address: SocketAddr) -> Result<String> {
    let mut connection = Connection::open(address).await?;
    let (mut rows, mut path) = (0, format!("{LIST}?limit={STRIDE}"));
    while rows < (DEEP - 1) * PAGE {
        let wanted = ((DEEP - 1) * PAGE - rows).min(STRIDE);
        path = path.replace(&format!("limit={STRIDE}"), &format!("limit={wanted}"));
        let answer = connection.send(get(&path)).await?;
        anyhow::ensure!(answer.is_success(), "{path} answered {answer}");
        let Some(link) = answer.link else { break };
        let target = link.strip_prefix('<').and_then(|link| link.split_once('>')).context("the link is none")?.0;
        path = target.replace(&format!("limit={wanted}"), &format!("limit={STRIDE}"));
        rows += wanted;
    }
    Ok(path.replace(&format!("limit={STRIDE}"), &format!("limit={PAGE}")))
}
