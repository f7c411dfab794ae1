//! Benchmark of list pages: the response time of a page must not depend on the number of rows before or after it.
//!
//! One client reads two pages in turn, so that other load on the machine affects both. The first pair is the first
//! page of the versions of two assets: one with few versions and one with many. The second pair is the first and a
//! deep page of a filtered list of runs. SQL stores the rows.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use serde_json::{Value, json};
use tokio_postgres::Client;

use crate::benchmark_run::report_progress;
use crate::child_process::ChildProcess;
use crate::closed_loop_clients::histogram;
use crate::connection::{Connection, get};
use crate::fill_history::HistorySize;
use crate::fixtures::{Fixtures, WORKSPACE};
use crate::thresholds::{TargetResult, TargetVerdict};

/// The name by which `--only` selects this benchmark.
pub(crate) const NAME: &str = "pages";
/// Number of versions of the two assets.
const FEW: u32 = 20;
const MANY: u32 = 20_000;
/// Size of the history of runs. Half of the runs belong to the tenant whose list is read.
const RUNS: HistorySize = HistorySize { runs: 200_000, days: 60, name: "listed" };
/// A list of runs with two filters.
const RUN_LIST: &str = "/v1/executions?status=completed&environment=dev";
const PAGE_ROWS: u32 = 50;
/// The number of the deep page that the benchmark reads.
const DEEP_PAGE: u32 = 1_000;
/// Page size for reaching the deep page, the API's maximum.
const MAX_PAGE_ROWS: u32 = 200;
/// Number of reads of each page.
const ROUNDS: u32 = 400;
const MAX_RATIO: f64 = 1.3;

/// Times of two pages in microseconds.
struct PageTimes {
    base: Histogram<u64>,
    compared: Histogram<u64>,
}

/// The response times of the compared pages.
pub(crate) struct PageFigures {
    /// Times of the first page of versions: for the asset with few versions, and for the asset with many.
    versions: PageTimes,
    /// Times of the first page and of the deep page of a filtered list of runs.
    runs: PageTimes,
}

/// Stores the rows and reads the pages.
///
/// # Errors
/// When PostgreSQL or the server refuses, or a list ends before its deep page.
pub(crate) async fn measure(server: &ChildProcess, fixtures: &Fixtures, database: &Client) -> Result<PageFigures> {
    report_progress("storing versions and runs");
    let [few, many, ..] = &fixtures.assets[..] else { anyhow::bail!("fewer than two assets were created") };
    for (asset, versions) in [(few, FEW), (many, MANY)] {
        store_versions(database, asset, versions).await.context("storing versions")?;
    }
    RUNS.store(database).await?;
    report_progress("reading pages");
    let mut connection = Connection::open(server.address).await?;
    let versions = |asset: &str| format!("/v1/assets/{asset}/versions?workspace_id={WORKSPACE}&limit={FEW}");
    let versions = alternate(&mut connection, &versions(few), &versions(many)).await?;
    let deep = deep_page(&mut connection).await.context("following cursors to the deep page")?;
    let runs = alternate(&mut connection, &format!("{RUN_LIST}&limit={PAGE_ROWS}"), &deep).await?;
    Ok(PageFigures { versions, runs })
}

/// Adds versions to an asset as the statements of the store would, in one statement.
async fn store_versions(database: &Client, asset: &str, versions: u32) -> Result<()> {
    let sql = format!(
        "INSERT INTO asset_version (tenant_id, asset_version_id, asset_id, version_label, ordinal, content, artifact_ref,
            checksum, created_at, created_by)
        SELECT tenant_id, gen_random_uuid(), asset_id, 'n' || number, last_ordinal + number, '{{\"system_prompt\":\"x\"}}',
            'bench', 'blake3:' || repeat('0', 64), now(), 'user:bench'
        FROM asset, generate_series(1, {versions}) AS number WHERE asset_id = '{asset}';
        UPDATE asset SET last_ordinal = last_ordinal + {versions} WHERE asset_id = '{asset}'"
    );
    Ok(database.batch_execute(&sql).await?)
}

/// The path of the deep page. A cursor does not depend on the page size.
async fn deep_page(connection: &mut Connection) -> Result<String> {
    let limit = |rows: u32| format!("limit={rows}");
    let mut path = format!("{RUN_LIST}&{}", limit(MAX_PAGE_ROWS));
    let mut remaining_rows = (DEEP_PAGE - 1) * PAGE_ROWS;
    while remaining_rows > 0 {
        let limit_rows = remaining_rows.min(MAX_PAGE_ROWS);
        let response = connection.send(get(&path.replace(&limit(MAX_PAGE_ROWS), &limit(limit_rows)))).await?;
        ensure!(response.is_success(), "{path} responded with {response}");
        let link = response.link.context("the list ends before its deep page")?;
        let target = link.strip_prefix('<').and_then(|link| link.split_once('>')).context("the link has no target")?.0;
        path = target.replace(&limit(limit_rows), &limit(MAX_PAGE_ROWS));
        remaining_rows -= limit_rows;
    }
    Ok(path.replace(&limit(MAX_PAGE_ROWS), &limit(PAGE_ROWS)))
}

/// Reads two pages in turn. The first reads prepare statements and are not counted.
async fn alternate(connection: &mut Connection, base: &str, compared: &str) -> Result<PageTimes> {
    let mut times = PageTimes { base: histogram()?, compared: histogram()? };
    for round in 0..ROUNDS + ROUNDS / 10 {
        for (path, times) in [(base, &mut times.base), (compared, &mut times.compared)] {
            let since = Instant::now();
            let response = connection.send(get(path)).await?;
            let elapsed = since.elapsed();
            ensure!(response.is_success(), "{path} responded with {response}");
            let rows: Value = serde_json::from_slice(&response.body)?;
            ensure!(rows.as_array().is_some_and(|rows| rows.len() >= FEW as usize), "{path} is not a full page");
            if round >= ROUNDS / 10 {
                times.saturating_record(u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX));
            }
        }
    }
    Ok(times)
}

impl PageTimes {
    fn medians(&self) -> [u64; 2] {
        [&self.base, &self.compared].map(|times| times.value_at_quantile(0.5))
    }

    fn ratio(&self) -> f64 {
        let [base, compared] = self.medians();
        compared as f64 / base.max(1) as f64
    }
}

impl PageFigures {
    pub(crate) fn to_json(&self) -> Value {
        json!({ "versions_p50_us": self.versions.medians(), "runs_p50_us": self.runs.medians() })
    }
}

/// Evaluates the targets. Without a measurement they count as not measured.
pub(crate) fn judge(measured: Option<&PageFigures>) -> Vec<TargetResult> {
    let result = |name: &str, times: Option<&PageTimes>| TargetResult {
        name: format!("{NAME}: {name}"),
        target: format!("at most {MAX_RATIO} times"),
        measured: times.map_or_else(
            || "n/a".to_owned(),
            |times| {
                let [base, compared] = times.medians().map(|median| median as f64 / 1e3);
                format!("{:.2} ({compared:.2} against {base:.2} ms)", times.ratio())
            },
        ),
        verdict: times.map_or(TargetVerdict::NotMeasured, |times| TargetVerdict::of(times.ratio() <= MAX_RATIO)),
    };
    vec![
        result("page 1 of 20 000 versions against page 1 of 20", measured.map(|measured| &measured.versions)),
        result("page 1 000 of 100 000 runs with two filters against page 1", measured.map(|measured| &measured.runs)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn judges_each_target() {
        let times = |base, compared| {
            let mut times = PageTimes { base: histogram().unwrap(), compared: histogram().unwrap() };
            times.base.record(base).unwrap();
            times.compared.record(compared).unwrap();
            times
        };
        let measured = PageFigures { versions: times(1_000, 1_250), runs: times(1_000, 1_400) };
        let verdicts: Vec<_> = judge(Some(&measured)).into_iter().map(|one| one.verdict).collect();
        assert_eq!(verdicts, [TargetVerdict::Met, TargetVerdict::Missed]);
        assert!(judge(None).iter().all(|one| one.verdict == TargetVerdict::NotMeasured));
    }
}
