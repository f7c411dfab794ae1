//! Benchmark of queued runs: a server without a worker, and two worker processes, over the shared database.
//!
//! The first measurement submits runs with immediate 202 responses, and waits until the last run has ended. The
//! baseline's commits are measured before and after it. The second measurement uses closed-loop clients that wait
//! for their runs. Finally, a single client measures the queueing time, and the delay from a run's end to the
//! client that follows its events.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures_util::future::try_join_all;
use serde_json::Value;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use tokio::time::sleep;
use tokio_postgres::Client;

use crate::child_process::ChildProcess;
use crate::closed_loop_clients::histogram;
use crate::connection::{Connection, post, with_header};
use crate::fixtures::Fixtures;
use crate::scenario::ticket_request;
use crate::thresholds::{TargetResult, TargetVerdict};

/// The name by which `--only` selects this benchmark.
pub(crate) const NAME: &str = "queued";
/// Number of worker processes.
pub(crate) const WORKERS: usize = 2;
/// Number of runs of the single client. A pause separates them.
const SAMPLES: u32 = 300;
const PAUSE: Duration = Duration::from_millis(20);
/// Interval of polling for the end of the last run.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Timeout for draining the queue.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);

/// Minimum throughput as a share of the baseline's commits.
const MIN_SHARE: f64 = 0.25;
/// Maximum queueing time at low load.
const MAX_QUEUEING: Duration = Duration::from_millis(20);
/// Maximum delay from a run's end to the client that follows its events.
const MAX_FOLLOWER_DELAY: Duration = Duration::from_millis(5);

/// The measured rates and delays of queued runs.
pub(crate) struct QueuedRuns {
    /// Runs per second with immediate responses, measured from the first request to the end of the last run.
    pub(crate) drained: f64,
    /// Runs per second with clients that wait for the end of their runs, and the p99 latency in microseconds.
    pub(crate) runs: (f64, u64),
    /// The baseline's commits per second, measured before and after.
    pub(crate) baseline: f64,
    /// p99 time from acceptance to the policy decision at the run's start, in microseconds.
    pub(crate) queueing: u64,
    /// p99 delay from a run's end to the client that follows its events, including persistence, in microseconds.
    pub(crate) follower_delay: u64,
}

impl QueuedRuns {
    /// A run rate as a share of the baseline's commit rate.
    fn share(&self, runs: f64) -> f64 {
        runs / self.baseline.max(f64::MIN_POSITIVE)
    }
}

/// Measures runs per second. `clients` clients submit `runs` runs each, with 202 responses; the time ends with the
/// last run.
///
/// # Errors
/// When a response is not 202, a run does not complete, or the queue is not empty after a minute.
pub(crate) async fn drain_rate(
    server: SocketAddr,
    fixtures: &Fixtures,
    database: &Client,
    clients: usize,
    runs: u64,
) -> Result<f64> {
    let slug = &fixtures.workloads.first().context("no workload was created")?.slug;
    let path = format!("/v1/workloads/by-slug/{slug}/execute");
    let completed = async || -> Result<i64> {
        let sql = "SELECT count(*) FROM execution WHERE status = 'completed'";
        Ok(database.query_one(sql, &[]).await?.try_get(0)?)
    };
    let before = completed().await?;
    let connections = try_join_all((0..clients).map(|_| Connection::open(server))).await?;
    let since = Instant::now();
    try_join_all(connections.into_iter().map(|mut connection| {
        let path = &path;
        async move {
            for number in 0..runs {
                let request = with_header(post(path, &ticket_request(number)), "prefer", "respond-async");
                let response = connection.send(request).await?;
                anyhow::ensure!(response.status == 202, "a run was not queued: {response}");
            }
            Ok(())
        }
    }))
    .await?;
    let unfinished_runs_sql = "SELECT EXISTS (SELECT FROM execution_queue) OR EXISTS (SELECT FROM execution_lease)";
    while database.query_one(unfinished_runs_sql, &[]).await?.try_get(0)? {
        anyhow::ensure!(since.elapsed() < DRAIN_TIMEOUT, "runs are still queued");
        sleep(POLL_INTERVAL).await;
    }
    let elapsed = since.elapsed();
    let all = u64::try_from(clients)?.saturating_mul(runs);
    let ended = completed().await?.saturating_sub(before);
    anyhow::ensure!(u64::try_from(ended)? == all, "{ended} of {all} runs completed");
    Ok(all as f64 / elapsed.as_secs_f64())
}

/// Measures p99 of the queueing time and of the follower's delay for a single client, in microseconds.
///
/// # Errors
/// When a run fails, or PostgreSQL does not respond.
pub(crate) async fn single_client_latencies(
    server: &ChildProcess,
    fixtures: &Fixtures,
    database: &Client,
) -> Result<(u64, u64)> {
    let mut connection = Connection::open(server.address).await?;
    let slug = &fixtures.workloads.first().context("no workload was created")?.slug;
    let path = format!("/v1/workloads/by-slug/{slug}/execute");
    let body = ticket_request(0);
    let (mut follower_delays, mut queueing_times) = (histogram()?, histogram()?);
    let mut runs = Vec::new();
    for _ in 0..SAMPLES {
        let response = connection.send(with_header(post(&path, &body), "accept", "text/event-stream")).await?;
        let received_at = OffsetDateTime::now_utc();
        let text = std::str::from_utf8(&response.body)?;
        let last =
            text.lines().rev().find_map(|line| line.strip_prefix("data: ")).context("a stream without events")?;
        let last: Value = serde_json::from_str(last)?;
        let field =
            |name: &str| last.get(name).and_then(Value::as_str).with_context(|| format!("an end without {name}"));
        anyhow::ensure!(field("status")? == "completed", "a run did not complete: {last}");
        let ended = OffsetDateTime::parse(field("completed_at")?, &Rfc3339)?;
        follower_delays.record(u64::try_from((received_at - ended).whole_microseconds().max(1))?)?;
        runs.push(field("execution_id")?.to_owned());
        sleep(PAUSE).await;
    }
    for run in runs {
        let sql = format!(
            "SELECT extract(epoch FROM max(evaluated_at) - min(started_at))::float8
             FROM execution JOIN policy_decision USING (tenant_id, execution_id) WHERE execution_id = '{run}'"
        );
        let queueing_seconds: f64 = database.query_one(&sql, &[]).await?.try_get(0)?;
        queueing_times.record(((queueing_seconds * 1e6) as u64).max(1))?;
    }
    Ok((queueing_times.value_at_quantile(0.99), follower_delays.value_at_quantile(0.99)))
}

impl QueuedRuns {
    /// The rows of this benchmark in the report.
    pub(crate) fn table_rows(&self) -> Vec<(&'static str, String)> {
        let millis = |micros: u64| micros as f64 / 1e3;
        vec![
            ("queued: runs per second, clients answered at once", format!("{:.0}", self.drained)),
            (
                "queued: runs per second, clients that wait for the end, and p99",
                format!("{:.0}, {:.1} ms", self.runs.0, millis(self.runs.1)),
            ),
            ("queued: the baseline's commits per second", format!("{:.0}", self.baseline)),
        ]
    }
}

/// Evaluates the targets. Without a measurement they count as not measured.
pub(crate) fn judge(measured: Option<&QueuedRuns>) -> Vec<TargetResult> {
    let millis = |micros: u64| format!("{:.1} ms", micros as f64 / 1e3);
    let result = |name: &str, target: String, measured: Option<String>, met: Option<bool>| TargetResult {
        name: format!("{NAME}: {name}"),
        target,
        measured: measured.unwrap_or_else(|| "n/a".to_owned()),
        verdict: met.map_or(TargetVerdict::NotMeasured, TargetVerdict::of),
    };
    let within = |micros: u64, limit: Duration| Duration::from_micros(micros) < limit;
    vec![
        result(
            "share of the baseline: commit of two inserts, clients answered at once",
            format!("at least {MIN_SHARE}"),
            measured.map(|measured| format!("{:.2}", measured.share(measured.drained))),
            measured.map(|measured| measured.share(measured.drained) >= MIN_SHARE),
        ),
        result(
            "share of the baseline: commit of two inserts, clients that wait for the end",
            format!("at least {MIN_SHARE}"),
            measured.map(|measured| format!("{:.2}", measured.share(measured.runs.0))),
            measured.map(|measured| measured.share(measured.runs.0) >= MIN_SHARE),
        ),
        result(
            "p99 queueing time at low load",
            format!("under {} ms", MAX_QUEUEING.as_millis()),
            measured.map(|measured| millis(measured.queueing)),
            measured.map(|measured| within(measured.queueing, MAX_QUEUEING)),
        ),
        result(
            "p99 from a run's end to its follower, including persistence",
            format!("under {} ms", MAX_FOLLOWER_DELAY.as_millis()),
            measured.map(|measured| millis(measured.follower_delay)),
            measured.map(|measured| within(measured.follower_delay, MAX_FOLLOWER_DELAY)),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn judges_each_target() {
        let good = || QueuedRuns {
            drained: 1_300.0,
            runs: (1_300.0, 30_000),
            baseline: 5_000.0,
            queueing: 6_000,
            follower_delay: 4_000,
        };
        let verdicts =
            |measured: QueuedRuns| judge(Some(&measured)).into_iter().map(|one| one.verdict).collect::<Vec<_>>();
        assert_eq!(verdicts(good()), [TargetVerdict::Met; 4]);
        assert_eq!(verdicts(QueuedRuns { drained: 1_200.0, ..good() })[0], TargetVerdict::Missed);
        assert_eq!(verdicts(QueuedRuns { runs: (1_200.0, 30_000), ..good() })[1], TargetVerdict::Missed);
        assert_eq!(verdicts(QueuedRuns { queueing: 20_000, ..good() })[2], TargetVerdict::Missed);
        assert_eq!(verdicts(QueuedRuns { follower_delay: 5_000, ..good() })[3], TargetVerdict::Missed);
        assert!(judge(None).iter().all(|one| one.verdict == TargetVerdict::NotMeasured));
    }
}
