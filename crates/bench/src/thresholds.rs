//! Performance targets and their evaluation.

use std::time::Duration;

use crate::background_task_cost;
use crate::benchmark_run::{BenchmarkResults, Measurement, ScenarioMeasurement};
use crate::code_mode;
use crate::large_corpus;
use crate::list_pagination;
use crate::notifications;
use crate::overload;
use crate::proofs;
use crate::provider_benchmark;
use crate::queued_runs;
use crate::scenario::{BaselineOperation, KeyMode, PageDepth, Scenario, WorkloadSpread};
use crate::statement_count::StatementCounts;
use crate::timing_oracle;
use crate::verified_tokens;

/// The number of clients for which the targets hold.
pub(crate) const CLIENTS: usize = 32;
/// The number of clients for which the targets of use cases hold. It is small, because people create use cases one
/// at a time.
const USE_CASE_CLIENTS: usize = 8;
/// Maximum p99 latency of a governed run, in microseconds.
const MAX_RUN_P99_MICROS: u64 = 25_000;
/// Maximum mean number of commits, and of round trips, of a run. Retries after concurrent changes raise the mean
/// slightly above 2.
const MAX_ROUND_TRIPS: f64 = 2.05;
/// Maximum mean number of commits of a change that should commit once. Retries after concurrent changes raise the mean
/// slightly above 1.
const MAX_COMMITS: f64 = 1.05;
/// Maximum bytes of write-ahead log of a run.
const MAX_LOG_BYTES: f64 = 12.0 * 1_024.0;
/// Maximum ratio between the times of a deep page and the first page, in either direction.
const MAX_DEPTH_RATIO: f64 = 1.3;
/// Maximum slowdown of a scenario on a database with a year of runs.
const MAX_GROWTH_RATIO: f64 = 1.3;
/// Maximum time of a run that an MCP tool call starts, relative to an ordinary run.
const MAX_TOOL_RATIO: f64 = 1.3;
/// Maximum processor time of an empty request, in microseconds.
const MAX_STACK_MICROS: f64 = 60.0;
/// Maximum median time from the start of the process to the first successful read from the database.
const MAX_COLD_START: Duration = Duration::from_millis(300);
/// Maximum memory of an idle server.
const MAX_IDLE_MEMORY: u64 = 60 * 1_024 * 1_024;

/// A target with its measurement and verdict.
pub(crate) struct TargetResult {
    pub(crate) name: String,
    pub(crate) target: String,
    pub(crate) measured: String,
    pub(crate) verdict: TargetVerdict,
}

/// Whether a target was met.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TargetVerdict {
    Met,
    Missed,
    /// Not selected, or not supported by this PostgreSQL build.
    NotMeasured,
}

impl TargetVerdict {
    pub(crate) fn name(self) -> &'static str {
        match self {
            TargetVerdict::Met => "met",
            TargetVerdict::Missed => "**missed**",
            TargetVerdict::NotMeasured => "not measured",
        }
    }

    pub(crate) fn of(is_met: bool) -> TargetVerdict {
        if is_met { TargetVerdict::Met } else { TargetVerdict::Missed }
    }
}

/// Evaluates all targets, in the order of the scenarios.
pub(crate) fn judge(results: &BenchmarkResults) -> Vec<TargetResult> {
    let mut target_results = Vec::new();
    for row in Scenario::ALL {
        let clients = target_clients(row);
        let measured = results.measured.iter().find(|one| one.scenario == row && one.clients == clients);
        let account = results
            .accounts
            .iter()
            .find(|(measured_row, _)| *measured_row == row)
            .and_then(|(_, account)| account.as_ref());
        // Lists have separate targets, because a page of fifty rows is not comparable to a point read.
        if let Some(min_share) = min_share(row) {
            target_results.push(share_result(row, min_share, measured));
        }
        target_results.extend(growth_result(row, results));
        match row {
            Scenario::Execute { .. } => target_results.extend(run_results(row, measured, account)),
            Scenario::Hello => target_results.push(stack_result(measured)),
            Scenario::CallTool => target_results.push(tool_result(results)),
            Scenario::ActiveRelease => target_results.push(permission_result(results)),
            Scenario::AssetList { page: PageDepth::Thousandth } => target_results.push(depth_result(results)),
            Scenario::UseCaseCreate | Scenario::UseCasePublish => target_results.push(commits_result(row, account)),
            Scenario::VersionCreate
            | Scenario::Transition
            | Scenario::Activation
            | Scenario::AssetList { page: PageDepth::First }
            | Scenario::Evidence
            | Scenario::Lineage
            | Scenario::RunList { .. }
            | Scenario::AuditList
            | Scenario::Recommendation
            | Scenario::ExecuteSteps => {}
        }
    }
    target_results.extend(timing_oracle::judge(&results.timing_oracle));
    target_results.extend(overload::judge(&results.overload));
    target_results.extend(queued_runs::judge(results.queued.as_ref()));
    target_results.push(code_mode::judge(results.code_mode.as_ref()));
    target_results.extend(provider_benchmark::judge(results.provider.as_ref()));
    target_results.extend(notifications::judge(results.notifications.as_ref()));
    target_results.push(verified_tokens::judge(results.verified_tokens.as_ref()));
    target_results.extend(background_task_cost::judge(&results.task_costs));
    target_results.extend(large_corpus::judge(results.retrieval.as_ref()));
    target_results.extend(list_pagination::judge(results.pages.as_ref()));
    target_results.extend(proofs::judge(results.proofs.as_ref()));
    let median = results.cold_start.time_to_first_read().median;
    target_results.push(TargetResult {
        name: "cold start to the first 200 of a read".to_owned(),
        target: format!("under {} ms", MAX_COLD_START.as_millis()),
        measured: format!("{} ms", median.as_millis()),
        verdict: TargetVerdict::of(median < MAX_COLD_START),
    });
    target_results.push(TargetResult {
        name: "idle memory".to_owned(),
        target: "under 60 MiB".to_owned(),
        measured: format!("{:.1} MiB", mebibytes(results.idle.memory)),
        verdict: TargetVerdict::of(results.idle.memory < MAX_IDLE_MEMORY),
    });
    target_results
}

/// The number of clients for which the target of a scenario holds.
fn target_clients(row: Scenario) -> usize {
    match row {
        Scenario::UseCaseCreate | Scenario::UseCasePublish => USE_CASE_CLIENTS,
        Scenario::Hello
        | Scenario::ActiveRelease
        | Scenario::VersionCreate
        | Scenario::Transition
        | Scenario::Activation
        | Scenario::AssetList { .. }
        | Scenario::Evidence
        | Scenario::Lineage
        | Scenario::RunList { .. }
        | Scenario::AuditList
        | Scenario::Recommendation
        | Scenario::ExecuteSteps
        | Scenario::CallTool
        | Scenario::Execute { .. } => CLIENTS,
    }
}

/// Evaluates the number of commits of a change that should commit once.
fn commits_result(row: Scenario, account: Option<&StatementCounts>) -> TargetResult {
    let commits = account.map(StatementCounts::commits_per_request);
    TargetResult {
        name: format!("{}: commits a request", row.name()),
        target: "at most 1".to_owned(),
        measured: commits.map_or_else(not_available, |commits| format!("{commits:.2}")),
        verdict: commits.map_or(TargetVerdict::NotMeasured, |commits| TargetVerdict::of(commits <= MAX_COMMITS)),
    }
}

/// The minimum request rate as a share of the baseline, if the scenario has such a target.
fn min_share(row: Scenario) -> Option<f64> {
    match row {
        Scenario::ActiveRelease => Some(0.8),
        Scenario::VersionCreate | Scenario::Transition | Scenario::Activation => Some(0.4),
        Scenario::Execute { .. } | Scenario::ExecuteSteps => Some(0.35),
        Scenario::Evidence => Some(0.25),
        Scenario::UseCaseCreate | Scenario::UseCasePublish => Some(0.2),
        Scenario::Hello
        | Scenario::CallTool
        | Scenario::AssetList { .. }
        | Scenario::Lineage
        | Scenario::RunList { .. }
        | Scenario::AuditList
        | Scenario::Recommendation => None,
    }
}

/// Evaluates the request overhead outside the handler. The measurement includes HTTP parsing and writing.
fn stack_result(measured: Option<&ScenarioMeasurement>) -> TargetResult {
    let micros = measured.map(|measured| measured.fairway.processor_millis().0 * 1e3);
    TargetResult {
        name: "hello: processor time of the server per request, HTTP included".to_owned(),
        target: format!("under {MAX_STACK_MICROS:.0} µs"),
        measured: micros.map_or_else(not_available, |micros| format!("{micros:.0} µs")),
        verdict: micros.map_or(TargetVerdict::NotMeasured, |micros| TargetVerdict::of(micros < MAX_STACK_MICROS)),
    }
}

/// Compares the times of a scenario on two databases: one with a year of runs, and a small one.
fn growth_result(row: Scenario, results: &BenchmarkResults) -> Option<TargetResult> {
    let comparison =
        results.interleaved.iter().find(|measured| measured.scenario == row && measured.clients == CLIENTS)?;
    let ratio = comparison.median_slowdown();
    Some(TargetResult {
        name: format!("{}: time with a year of runs against a small database", row.name()),
        target: format!("at most {MAX_GROWTH_RATIO} times"),
        measured: ratio.map_or_else(not_available, |ratio| format!("{ratio:.2}")),
        verdict: ratio.map_or(TargetVerdict::NotMeasured, |ratio| TargetVerdict::of(ratio <= MAX_GROWTH_RATIO)),
    })
}

fn share_result(row: Scenario, min_share: f64, measured: Option<&ScenarioMeasurement>) -> TargetResult {
    let share = measured.and_then(|measured| measured.rate_share_of(row.baseline()));
    TargetResult {
        name: format!("{}: share of the {}", row.name(), row.baseline().name()),
        target: format!("at least {min_share}"),
        measured: share.map_or_else(not_available, |share| format!("{share:.2}")),
        verdict: share.map_or(TargetVerdict::NotMeasured, |share| TargetVerdict::of(share >= min_share)),
    }
}

fn run_results(
    row: Scenario,
    measured: Option<&ScenarioMeasurement>,
    account: Option<&StatementCounts>,
) -> Vec<TargetResult> {
    let at_most = |name: &str, limit: f64, target: &str, unit: &str, scale: f64, value: Option<f64>| TargetResult {
        name: format!("{}: {name}", row.name()),
        target: target.to_owned(),
        measured: value.map_or_else(not_available, |value| format!("{:.2}{unit}", value / scale)),
        verdict: value.map_or(TargetVerdict::NotMeasured, |value| TargetVerdict::of(value <= limit)),
    };
    let p99 = measured.map(|measured| measured.fairway.quantile(0.99));
    vec![
        at_most(
            "round trips a run",
            MAX_ROUND_TRIPS,
            "at most 2",
            "",
            1.0,
            account.map(StatementCounts::round_trips_per_request),
        ),
        at_most(
            "commits a run",
            MAX_ROUND_TRIPS,
            "at most 2",
            "",
            1.0,
            account.map(StatementCounts::commits_per_request),
        ),
        at_most(
            "write-ahead log a run",
            MAX_LOG_BYTES,
            "at most 12 KiB",
            " KiB",
            1_024.0,
            measured.map(|measured| measured.fairway.log_bytes_per_request()),
        ),
        TargetResult {
            name: format!("{}: governance p99", row.name()),
            target: "under 25 ms".to_owned(),
            measured: p99
                .map_or_else(not_available, |p99| format!("{:.1} ms", Duration::from_micros(p99).as_secs_f64() * 1e3)),
            verdict: p99.map_or(TargetVerdict::NotMeasured, |p99| TargetVerdict::of(p99 < MAX_RUN_P99_MICROS)),
        },
    ]
}

/// Compares a run that an MCP tool call starts with an ordinary run. The two run one after the other on a shared
/// machine, so each is normalized by the baselines around it.
fn tool_result(results: &BenchmarkResults) -> TargetResult {
    let share = |row: Scenario| {
        let measured = results.measured.iter().find(|one| one.scenario == row && one.clients == CLIENTS)?;
        measured.rate_share_of(row.baseline())
    };
    let plain = share(Scenario::Execute { keys: KeyMode::Off, workloads: WorkloadSpread::One });
    let times =
        plain.zip(share(Scenario::CallTool)).map(|(plain, through_tool)| plain / through_tool.max(f64::EPSILON));
    TargetResult {
        name: format!("{}: time against the plain run", Scenario::CallTool.name()),
        target: format!("at most {MAX_TOOL_RATIO} times"),
        measured: times.map_or_else(not_available, |times| format!("{times:.2}")),
        verdict: times.map_or(TargetVerdict::NotMeasured, |times| TargetVerdict::of(times <= MAX_TOOL_RATIO)),
    }
}

/// Compares a deep page with the first page, with a single client to avoid queueing effects.
fn depth_result(results: &BenchmarkResults) -> TargetResult {
    let median = |page: PageDepth| {
        let of_page = results.measured.iter().filter(|one| one.scenario == Scenario::AssetList { page });
        of_page.min_by_key(|one| one.clients).map(|one| one.fairway.quantile(0.5))
    };
    let ratio = median(PageDepth::First).zip(median(PageDepth::Thousandth)).map(|(first, deep)| {
        let (first, deep) = (Duration::from_micros(first.max(1)), Duration::from_micros(deep.max(1)));
        (first.max(deep).as_secs_f64() / first.min(deep).as_secs_f64(), first, deep)
    });
    TargetResult {
        name: "list of assets: page 1 000 by cursor against page 1, out of 100 000".to_owned(),
        target: format!("within {MAX_DEPTH_RATIO}"),
        measured: ratio.map_or_else(not_available, |(ratio, first, deep)| {
            format!("{ratio:.2} ({:.2} ms and {:.2} ms)", first.as_secs_f64() * 1e3, deep.as_secs_f64() * 1e3)
        }),
        verdict: ratio.map_or(TargetVerdict::NotMeasured, |(ratio, ..)| TargetVerdict::of(ratio <= MAX_DEPTH_RATIO)),
    }
}

fn permission_result(results: &BenchmarkResults) -> TargetResult {
    TargetResult {
        name: "active-release read: changed permissions apply to the next request".to_owned(),
        target: "always".to_owned(),
        measured: results.stale_permission_check.map_or_else(not_available, |outdated| {
            format!("{} of {} changes", outdated.rounds.saturating_sub(outdated.late), outdated.rounds)
        }),
        verdict: results
            .stale_permission_check
            .map_or(TargetVerdict::NotMeasured, |outdated| TargetVerdict::of(outdated.late == 0)),
    }
}

fn not_available() -> String {
    "n/a".to_owned()
}

/// Converts bytes to mebibytes.
#[expect(clippy::cast_precision_loss, reason = "memory of a process lies far below 2^53 bytes")]
pub(crate) fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / (1_024.0 * 1_024.0)
}

#[expect(clippy::cast_precision_loss, reason = "counts of a few seconds lie far below 2^53")]
impl Measurement {
    /// Requests per second.
    pub(crate) fn rate(&self) -> f64 {
        self.load.requests as f64 / self.load.elapsed.as_secs_f64().max(f64::EPSILON)
    }

    /// A latency quantile in microseconds.
    pub(crate) fn quantile(&self, quantile: f64) -> u64 {
        self.load.latency.value_at_quantile(quantile)
    }

    /// Processor time for each request in milliseconds: of the server, and of PostgreSQL.
    pub(crate) fn processor_millis(&self) -> (f64, f64) {
        let millis_per_request = |time: Duration| time.as_secs_f64() * 1e3 / self.load.requests.max(1) as f64;
        (millis_per_request(self.cost.program), millis_per_request(self.cost.postgres))
    }

    /// Processor time of both processes for each request, in milliseconds.
    fn total_processor_millis(&self) -> f64 {
        let (server, postgres) = self.processor_millis();
        server + postgres
    }

    /// Bytes of write-ahead log for each request, including full-page images.
    pub(crate) fn log_bytes_per_request(&self) -> f64 {
        self.per_request(self.cost.log_bytes)
    }

    pub(crate) fn per_request(&self, count: u64) -> f64 {
        count as f64 / self.load.requests.max(1) as f64
    }

    /// The number of processors that other programs kept busy.
    pub(crate) fn other_processors(&self) -> f64 {
        self.cost.other_programs().as_secs_f64() / self.cost.elapsed.as_secs_f64().max(f64::EPSILON)
    }
}

impl ScenarioMeasurement {
    /// The mean of the baseline rates before and after the scenario.
    pub(crate) fn baseline_rate(&self, operation: BaselineOperation) -> Option<f64> {
        mean(self.baseline_measurements(operation).map(Measurement::rate))
    }

    /// Processor time of the baseline and its PostgreSQL for each request, in milliseconds.
    fn baseline_processor_millis(&self, operation: BaselineOperation) -> Option<f64> {
        mean(self.baseline_measurements(operation).map(Measurement::total_processor_millis))
    }

    /// The request rate as a share of the baseline's.
    pub(crate) fn rate_share_of(&self, operation: BaselineOperation) -> Option<f64> {
        self.baseline_rate(operation).filter(|rate| *rate > 0.0).map(|rate| self.fairway.rate() / rate)
    }

    /// The baseline's processor time as a share of the server's. On an otherwise idle machine, this is the
    /// throughput share.
    pub(crate) fn share_by_processor(&self, operation: BaselineOperation) -> Option<f64> {
        let server_millis = self.fairway.total_processor_millis();
        self.baseline_processor_millis(operation)
            .filter(|_| server_millis > 0.0)
            .map(|baseline_millis| baseline_millis / server_millis)
    }

    pub(crate) fn baseline_measurements(&self, operation: BaselineOperation) -> impl Iterator<Item = &Measurement> {
        self.baselines
            .iter()
            .filter(move |(measured_operation, _)| *measured_operation == operation)
            .map(|(_, measurement)| measurement)
    }
}

/// The arithmetic mean; `None` without values.
pub(crate) fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (count, sum) = values.fold((0.0, 0.0), |(count, sum), value| (count + 1.0, sum + value));
    (count > 0.0).then(|| sum / count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::closed_loop_clients::tests::load_result;
    use crate::cost_meter::Cost;

    fn measurement(requests: u64) -> Measurement {
        let cost = Cost { log_bytes: requests * 2_048, program: Duration::from_millis(100), ..Cost::default() };
        Measurement { load: load_result(requests), cost }
    }

    #[test]
    fn share_uses_the_mean_of_both_baselines() {
        let measured = ScenarioMeasurement {
            scenario: Scenario::Transition,
            clients: CLIENTS,
            fairway: measurement(500),
            baselines: vec![
                (BaselineOperation::Commit, measurement(800)),
                (BaselineOperation::CommitInOneStatement, measurement(9)),
                (BaselineOperation::Commit, measurement(1_200)),
            ],
        };
        assert!((measured.rate_share_of(BaselineOperation::Commit).unwrap() - 0.5).abs() < 1e-9);
        assert_eq!(measured.rate_share_of(BaselineOperation::Read), None);
        assert!((measured.fairway.log_bytes_per_request() - 2_048.0).abs() < 1e-9);
        assert_eq!(share_result(Scenario::Transition, 0.4, Some(&measured)).verdict, TargetVerdict::Met);
        assert_eq!(share_result(Scenario::ActiveRelease, 0.8, Some(&measured)).verdict, TargetVerdict::NotMeasured);
    }

    #[test]
    fn run_has_four_targets_besides_its_share() {
        let row = *Scenario::ALL.last().unwrap();
        let target_results = run_results(row, None, None);
        assert_eq!(target_results.len(), 4);
        assert!(target_results.iter().all(|one| one.verdict == TargetVerdict::NotMeasured));
    }
}
