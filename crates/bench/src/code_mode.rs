//! Benchmark of a script from request to response: admission, persistence, execution in a child process, and
//! completion.
//!
//! A single client runs one script after another. The measured time is that of the whole request, including the
//! child's start.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use hdrhistogram::Histogram;
use serde_json::json;

use crate::child_process::ChildProcess;
use crate::closed_loop_clients::histogram;
use crate::connection::{Connection, post};
use crate::fixtures::{ENVIRONMENT, Fixtures, WORKSPACE};
use crate::thresholds::{TargetResult, TargetVerdict};

/// The name by which `--only` selects this benchmark.
pub(crate) const NAME: &str = "code mode hello (Starlark)";
/// Number of timed scripts. A smaller number of warm-up scripts precedes them.
const SCRIPTS: u64 = 300;
const WARM_UP: u64 = 20;
/// Maximum median latency of a script.
const MAX_P50: Duration = Duration::from_millis(15);

/// The latencies of the timed scripts.
pub(crate) struct ScriptLatency {
    /// Request times in microseconds.
    pub(crate) latency: Histogram<u64>,
}

/// Runs the scripts sequentially.
///
/// # Errors
/// When a script has an unexpected result.
pub(crate) async fn measure(server: &ChildProcess, fixtures: &Fixtures) -> Result<ScriptLatency> {
    let mut connection = Connection::open(server.address).await?;
    let slug = fixtures
        .create_script_workload(server.address, "bench-scripts")
        .await
        .context("creating a workload for scripts")?
        .slug;
    let body = json!({
        "workspace_id": WORKSPACE, "workload_slug": slug, "environment": ENVIRONMENT, "language": "starlark",
        "code": "print('hello')\nresult = 1 + 1",
    });
    let mut latency = histogram()?;
    for number in 0..WARM_UP + SCRIPTS {
        let since = Instant::now();
        let response = connection.json(post("/v1/runtime/code", &body)).await?;
        let elapsed = since.elapsed();
        let actual = ["status", "result", "stdout"].map(|name| response.get(name));
        let expected = [json!("completed"), json!(2), json!("hello\n")];
        anyhow::ensure!(actual == expected.each_ref().map(Some), "unexpected result of a script: {response}");
        if number >= WARM_UP {
            latency.record(u64::try_from(elapsed.as_micros())?.max(1))?;
        }
    }
    Ok(ScriptLatency { latency })
}

impl ScriptLatency {
    fn millis(&self, quantile: f64) -> f64 {
        Duration::from_micros(self.latency.value_at_quantile(quantile)).as_secs_f64() * 1e3
    }

    /// The rows of this benchmark in the report.
    pub(crate) fn table_rows(&self) -> Vec<(&'static str, String)> {
        let quantiles = [0.5, 0.9, 0.99].map(|quantile| format!("{:.1}", self.millis(quantile)));
        vec![("code mode hello (Starlark): p50, p90, p99", format!("{} ms", quantiles.join(", ")))]
    }
}

/// Evaluates the target. Without a measurement it counts as not measured.
pub(crate) fn judge(measured: Option<&ScriptLatency>) -> TargetResult {
    let median = measured.map(|measured| Duration::from_micros(measured.latency.value_at_quantile(0.5)));
    TargetResult {
        name: format!("{NAME}: p50, the child's start included"),
        target: format!("under {} ms", MAX_P50.as_millis()),
        measured: measured.map_or_else(|| "n/a".to_owned(), |measured| format!("{:.1} ms", measured.millis(0.5))),
        verdict: median.map_or(TargetVerdict::NotMeasured, |median| TargetVerdict::of(median < MAX_P50)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_judges_the_median() {
        let verdict_for = |median: u64| {
            let mut latency = histogram().unwrap();
            latency.record_n(median, 90).unwrap();
            latency.record_n(100_000, 10).unwrap();
            judge(Some(&ScriptLatency { latency })).verdict
        };
        assert_eq!((verdict_for(14_000), verdict_for(16_000)), (TargetVerdict::Met, TargetVerdict::Missed));
        assert_eq!(judge(None).verdict, TargetVerdict::NotMeasured);
    }
}
