//! Benchmark of the cost that notifications and the transparency log add to runs.
//!
//! One server executes runs and performs neither task. In every other measurement, a second server performs one of
//! them. The processor time of a run is that of the first server and of PostgreSQL. The ratio with and without the
//! task thus contains the load that the task adds to runs and to the database. The report lists the second server's
//! own time separately.
//!
//! A second ratio uses PostgreSQL's time for the largest backlog. It excludes the effects of concurrent programs
//! on each other's processor caches.

use std::cell::Cell;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tokio::time::sleep;
use tokio_postgres::Client;

use crate::Plan;
use crate::benchmark_run::Measurement;
use crate::child_process::ChildProcess;
use crate::closed_loop_clients::ClientScript;
use crate::cost_meter::{processor_time, processor_time_with_children};
use crate::environment::start_processes::start_server_with;
use crate::environment::{Postgres, RunDirectory};
use crate::fixtures::Fixtures;
use crate::scenario::{KeyMode, Scenario, WorkloadSpread};
use crate::thresholds::{TargetResult, TargetVerdict};

/// Number of measured pairs. The order within a pair alternates. An odd number has a median.
const PAIRS: usize = 11;
const CLIENTS: usize = 8;
/// Maximum processor time of a run with a background task, relative to a run without the task.
const MAX_RATIO: f64 = 1.03;
/// Minimum rate at which the transparency log processes a backlog, in facts per second.
const MIN_TREE_RATE: f64 = 5_000.0;
/// Maximum time, under load, until a published checkpoint covers a fact of the log.
const MAX_LAG: Duration = Duration::from_secs(5);
/// Interval at which the lag is read. The interval is long, because its statements add to the measured time of
/// PostgreSQL.
const LAG_INTERVAL: Duration = Duration::from_millis(100);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
const TIMEOUT: Duration = Duration::from_secs(300);

/// A background task that one server performs for all servers on a database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Task {
    Notifications,
    TransparencyLog,
}

impl Task {
    pub(crate) const ALL: [Self; 2] = [Self::Notifications, Self::TransparencyLog];

    /// The name by which `--only` selects the task.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Notifications => "execute beside notifications",
            Self::TransparencyLog => "execute beside the transparency log",
        }
    }

    /// Command-line options of the server that performs only this task.
    const fn options(self) -> [&'static str; 2] {
        match self {
            Self::Notifications => ["--no-worker", "--no-transparency-log"],
            Self::TransparencyLog => ["--no-worker", "--no-notifications"],
        }
    }

    /// An SQL query for the number of facts that the task has not yet processed.
    const fn backlog(self) -> &'static str {
        match self {
            Self::Notifications => {
                "SELECT coalesce(sum(fact_log.size - coalesce(position, 0)), 0)::bigint
                FROM fact_log LEFT JOIN notification_position USING (tenant_id)"
            }
            Self::TransparencyLog => {
                "SELECT coalesce(sum(fact_log.size - coalesce(log_tree.size, 0)), 0)::bigint
                FROM fact_log LEFT JOIN log_tree USING (tenant_id)"
            }
        }
    }
}

/// Two measurements of runs: without the task and with it.
pub(crate) struct MeasurementPair {
    without: Measurement,
    with: Measurement,
    /// Processor time of the server that performs the task, in seconds, divided by the number of runs.
    task_seconds: f64,
    /// The largest lag of the published checkpoint behind the log.
    lag: Duration,
}

/// The result for one task.
pub(crate) struct TaskCost {
    task: Task,
    pairs: Vec<MeasurementPair>,
    /// The largest backlog that the task processed.
    backlog: Backlog,
    /// The mean number of facts that one run writes.
    facts_of_a_run: f64,
}

/// The processing of a backlog by a task, measured from its first progress on.
#[derive(Clone, Copy, Default)]
struct Backlog {
    facts: i64,
    elapsed: Duration,
    /// Processor time of PostgreSQL during the processing.
    postgres: Duration,
}

impl Backlog {
    fn per_second(&self) -> f64 {
        self.facts as f64 / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// Processor time of PostgreSQL for each fact, in seconds.
    fn cost_of_a_fact(&self) -> f64 {
        self.postgres.as_secs_f64() / self.facts.max(1) as f64
    }
}

/// Measures runs without and with a task. `measure` loads a server with the given clients.
///
/// # Errors
/// When a server does not start, or the task does not process its backlog in time.
pub(crate) async fn measure(
    task: Task,
    (run_directory, postgres, plan): (&RunDirectory, &Postgres, &Plan),
    (fixtures, database): (&Fixtures, &Client),
    measure: impl AsyncFn(&ChildProcess, Vec<ClientScript>) -> Result<Measurement>,
) -> Result<TaskCost> {
    let without_tasks = ["--no-notifications", "--no-transparency-log"];
    let mut server = start_server_with(run_directory, postgres, &plan.server, &without_tasks).await?;
    let scenario = Scenario::Execute { keys: KeyMode::Off, workloads: WorkloadSpread::One };
    let runs = async || measure(&server, scenario.client_scripts(fixtures, CLIENTS)?).await;
    let mut pairs = Vec::new();
    let mut largest = Backlog::default();
    for number in 0..PAIRS {
        let before = if number % 2 == 0 { Some(runs().await?) } else { None };
        let mut performer = start_server_with(run_directory, postgres, &plan.server, &task.options()).await?;
        let backlog = process_backlog(task, database, postgres.process_id()).await?;
        largest = if backlog.facts > largest.facts { backlog } else { largest };
        let (start, since) = (processor_time(performer.id())?, Instant::now());
        let ended = Cell::new(false);
        let measured = async {
            let measured = runs().await;
            ended.set(true);
            measured
        };
        let (with, lag) = match task {
            Task::Notifications => (measured.await?, Duration::ZERO),
            Task::TransparencyLog => tokio::try_join!(measured, largest_lag(database, &ended))?,
        };
        // The task's server was measured during the warm-up too, so its time is scaled to the measured part.
        let task_seconds = processor_time(performer.id())?.saturating_sub(start).as_secs_f64()
            * with.cost.elapsed.as_secs_f64()
            / since.elapsed().as_secs_f64()
            / with.load.requests.max(1) as f64;
        performer.stop().await?;
        let without = match before {
            Some(before) => before,
            None => runs().await?,
        };
        pairs.push(MeasurementPair { without, with, task_seconds, lag });
    }
    server.stop().await?;
    let facts_of_a_run = database.query_one(FACTS_OF_A_RUN, &[]).await?.try_get(0)?;
    Ok(TaskCost { task, pairs, backlog: largest, facts_of_a_run })
}

/// SQL: the mean number of facts about a run, over the newest 100 runs.
const FACTS_OF_A_RUN: &str = "SELECT avg(facts)::float8 FROM (
        SELECT count(*) AS facts FROM fact_order
        WHERE subject_id IN (SELECT execution_id FROM execution ORDER BY execution_id DESC LIMIT 100)
        GROUP BY subject_id
    ) AS run";

/// The longest time during which the log contained facts that its published checkpoint did not cover.
async fn largest_lag(database: &Client, ended: &Cell<bool>) -> Result<Duration> {
    let (mut lag, mut largest) = (LogLag::default(), Duration::ZERO);
    while !ended.get() {
        let row = database.query_one(LOG_AND_CHECKPOINT, &[]).await?;
        largest = largest.max(lag.observe(Instant::now(), row.try_get(0)?, row.try_get(1)?));
        sleep(LAG_INTERVAL).await;
    }
    Ok(largest)
}

/// SQL: the size of the largest log, and the size that its published checkpoint covers.
const LOG_AND_CHECKPOINT: &str = "SELECT fact_log.size, coalesce(split_part(checkpoint, E'\\n', 2)::bigint, 0)
    FROM fact_log LEFT JOIN log_tree USING (tenant_id) ORDER BY fact_log.size DESC LIMIT 1";

/// Observed sizes of a log that no checkpoint covers yet, with the time of their first observation.
#[derive(Default)]
struct LogLag(VecDeque<(Instant, i64)>);

impl LogLag {
    /// The time since the oldest observed size that the checkpoint does not cover.
    fn observe(&mut self, now: Instant, log_size: i64, covered: i64) -> Duration {
        if self.0.back().is_none_or(|(_, size)| *size < log_size) {
            self.0.push_back((now, log_size));
        }
        while self.0.front().is_some_and(|(_, size)| *size <= covered) {
            self.0.pop_front();
        }
        self.0.front().map_or(Duration::ZERO, |(observed_at, _)| now.saturating_duration_since(*observed_at))
    }
}

/// Waits until the task has processed all facts. The start of the task's server is excluded from the measurement.
async fn process_backlog(task: Task, database: &Client, postmaster: u32) -> Result<Backlog> {
    let backlog = async || -> Result<i64> { Ok(database.query_one(task.backlog(), &[]).await?.try_get(0)?) };
    let since = Instant::now();
    let all = backlog().await?;
    let mut remaining = all;
    while remaining == all && remaining > 0 {
        ensure!(since.elapsed() < TIMEOUT, "{} does not start", task.name());
        sleep(POLL_INTERVAL).await;
        remaining = backlog().await?;
    }
    let (first_progress, facts, before) = (Instant::now(), remaining, processor_time_with_children(postmaster)?);
    while remaining > 0 {
        ensure!(since.elapsed() < TIMEOUT, "{} is behind", task.name());
        sleep(POLL_INTERVAL).await;
        remaining = backlog().await?;
    }
    let postgres = processor_time_with_children(postmaster)?.saturating_sub(before);
    Ok(Backlog { facts, elapsed: first_progress.elapsed(), postgres })
}

/// The processor time of a run (server and PostgreSQL) in seconds.
fn time_of_a_run(measurement: &Measurement) -> f64 {
    let cost = &measurement.cost;
    (cost.program + cost.postgres).as_secs_f64() / measurement.load.requests.max(1) as f64
}

impl MeasurementPair {
    fn ratio(&self) -> f64 {
        time_of_a_run(&self.with) / time_of_a_run(&self.without).max(f64::MIN_POSITIVE)
    }
}

impl TaskCost {
    fn ratios(&self) -> Vec<f64> {
        let mut ratios: Vec<f64> = self.pairs.iter().map(MeasurementPair::ratio).collect();
        ratios.sort_by(f64::total_cmp);
        ratios
    }

    fn median(&self) -> Option<f64> {
        let ratios = self.ratios();
        ratios.get(ratios.len() / 2).copied()
    }

    fn largest_lag(&self) -> Duration {
        self.pairs.iter().map(|pair| pair.lag).max().unwrap_or_default()
    }

    /// The processor time of a run with the task relative to a run without it, computed from PostgreSQL's time for
    /// the backlog.
    fn ratio_by_backlog(&self) -> f64 {
        let mut without: Vec<f64> = self.pairs.iter().map(|pair| time_of_a_run(&pair.without)).collect();
        without.sort_by(f64::total_cmp);
        let run = without.get(without.len() / 2).copied().unwrap_or(f64::INFINITY);
        1.0 + self.backlog.cost_of_a_fact() * self.facts_of_a_run / run
    }

    /// The rows of this benchmark in the report.
    pub(crate) fn table_rows(&self) -> Vec<(String, String)> {
        let ratios = self.ratios();
        let range = ratios.first().zip(ratios.last());
        let name = self.task.name();
        let mut task_micros: Vec<f64> = self.pairs.iter().map(|pair| pair.task_seconds * 1e6).collect();
        task_micros.sort_by(f64::total_cmp);
        let median_task_micros = task_micros.get(task_micros.len() / 2).copied().unwrap_or_default();
        vec![
            (
                format!("{name}: smallest and largest ratio of a pair"),
                range.map_or_else(|| "n/a".to_owned(), |(least, most)| format!("{least:.3}, {most:.3}")),
            ),
            (format!("{name}: processor time of the task for each run"), format!("{median_task_micros:.1} µs")),
            (format!("{name}: facts a second from a backlog"), format!("{:.0}", self.backlog.per_second())),
            (
                format!("{name}: processor time of PostgreSQL for a fact of the backlog, facts of a run"),
                format!("{:.1} µs, {:.1}", self.backlog.cost_of_a_fact() * 1e6, self.facts_of_a_run),
            ),
            (format!("{name}: ratio by the backlog"), format!("{:.3}", self.ratio_by_backlog())),
        ]
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({ "task": self.task.name(), "ratios": self.ratios(), "backlog_per_second": self.backlog.per_second(),
            "ratio_by_backlog": self.ratio_by_backlog(), "largest_lag_seconds": self.largest_lag().as_secs_f64() })
    }
}

/// Evaluates the targets. Without a measurement they count as not measured.
pub(crate) fn judge(costs: &[TaskCost]) -> Vec<TargetResult> {
    let cost_of = |task| costs.iter().find(|cost| cost.task == task);
    let mut results: Vec<TargetResult> = Task::ALL
        .into_iter()
        .map(|task| {
            let ratio = cost_of(task).and_then(TaskCost::median);
            TargetResult {
                name: format!("{}: processor time of a run", task.name()),
                target: format!("at most {MAX_RATIO} of the run without"),
                measured: ratio.map_or_else(|| "n/a".to_owned(), |ratio| format!("{ratio:.3}")),
                verdict: ratio.map_or(TargetVerdict::NotMeasured, |ratio| TargetVerdict::of(ratio <= MAX_RATIO)),
            }
        })
        .collect();
    let rate = cost_of(Task::TransparencyLog).map(|cost| cost.backlog.per_second());
    results.push(TargetResult {
        name: "transparency log: facts a second from a backlog".to_owned(),
        target: format!("at least {MIN_TREE_RATE}"),
        measured: rate.map_or_else(|| "n/a".to_owned(), |rate| format!("{rate:.0}")),
        verdict: rate.map_or(TargetVerdict::NotMeasured, |rate| TargetVerdict::of(rate >= MIN_TREE_RATE)),
    });
    let lag = cost_of(Task::TransparencyLog).map(TaskCost::largest_lag);
    results.push(TargetResult {
        name: "transparency log: time from a fact to a checkpoint that covers it, under load".to_owned(),
        target: format!("at most {} s", MAX_LAG.as_secs()),
        measured: lag.map_or_else(|| "n/a".to_owned(), |lag| format!("{:.1} s", lag.as_secs_f64())),
        verdict: lag.map_or(TargetVerdict::NotMeasured, |lag| TargetVerdict::of(lag <= MAX_LAG)),
    });
    results
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::closed_loop_clients::tests::load_result;
    use crate::cost_meter::Cost;

    #[test]
    fn targets_judge_the_median_pair_and_the_backlog() {
        let measurement = |millis| Measurement {
            load: load_result(1_000),
            cost: Cost { program: Duration::from_millis(millis), ..Cost::default() },
        };
        let judge_task = |task, times: &[u64], backlog_facts, lag| {
            let pair = |with| MeasurementPair {
                without: measurement(1_000),
                with: measurement(with),
                task_seconds: 0.0,
                lag: Duration::from_secs(lag),
            };
            let pairs = times.iter().copied().map(pair);
            let backlog = Backlog { facts: backlog_facts, elapsed: Duration::from_secs(1), ..Backlog::default() };
            let cost = TaskCost { task, pairs: pairs.collect(), backlog, facts_of_a_run: 1.0 };
            judge(&[cost]).iter().map(|one| one.verdict).collect()
        };
        let verdicts: Vec<TargetVerdict> = judge_task(Task::Notifications, &[900, 1_020, 2_000], 0, 0);
        let unmeasured = TargetVerdict::NotMeasured;
        assert_eq!(verdicts, [TargetVerdict::Met, unmeasured, unmeasured, unmeasured]);
        let verdicts: Vec<TargetVerdict> = judge_task(Task::TransparencyLog, &[1_000, 1_040, 1_050], 5_001, 5);
        assert_eq!(verdicts, [unmeasured, TargetVerdict::Missed, TargetVerdict::Met, TargetVerdict::Met]);
        let verdicts: Vec<TargetVerdict> = judge_task(Task::TransparencyLog, &[1_000], 4_999, 6);
        assert_eq!(verdicts[2..], [TargetVerdict::Missed, TargetVerdict::Missed]);
    }

    #[test]
    fn lag_counts_from_the_first_uncovered_size() {
        let (start, mut lag) = (Instant::now(), LogLag::default());
        let mut observe = |second, size, covered| lag.observe(start + Duration::from_secs(second), size, covered);
        let lags = [observe(0, 10, 10), observe(1, 12, 10), observe(3, 20, 10), observe(4, 20, 12), observe(5, 20, 20)];
        assert_eq!(lags, [0, 0, 2, 1, 0].map(Duration::from_secs));
    }

    #[test]
    fn ratio_by_the_backlog_adds_the_facts_of_a_run() {
        let run = || Measurement {
            load: load_result(1_000),
            cost: Cost { program: Duration::from_millis(200), ..Cost::default() },
        };
        let pairs = vec![MeasurementPair { without: run(), with: run(), task_seconds: 0.0, lag: Duration::ZERO }];
        let backlog = Backlog { facts: 1_000, elapsed: Duration::from_secs(1), postgres: Duration::from_millis(2) };
        let cost = TaskCost { task: Task::TransparencyLog, pairs, backlog, facts_of_a_run: 2.0 };
        // Expected: 2 facts of 2 µs each add 4 µs to a run of 200 µs, a ratio of 1.02.
        assert!((cost.ratio_by_backlog() - 1.02).abs() < 1e-9);
    }
}
