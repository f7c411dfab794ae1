//! Performance targets and their evaluation.

use std::time::Duration;

use crate::accounting::Account;
use crate::asking;
use crate::code_mode;
use crate::existence;
use crate::million;
use crate::overload;
use crate::queued;
use crate::row::{Depth, Floor, Keys, Row, Workloads};
use crate::run::{Findings, Measured, Measurement};

/// The number of clients for which the targets hold.
pub(crate) const CLIENTS: usize = 32;
/// Maximum p99 of a governed run, in microseconds.
const MAX_RUN_P99_MICROS: u64 = 25_000;
/// Maximum commits and round trips of a run. Retries after lost races raise the mean slightly above 2.
const MAX_ROUND_TRIPS: f64 = 2.05;
/// Maximum bytes of write-ahead log of a run.
const MAX_LOG_BYTES: f64 = 12.0 * 1_024.0;
/// Maximum ratio between the times of a deep page and the first page, in either direction.
const MAX_DEPTH_RATIO: f64 = 1.3;
/// Maximum slowdown of a scenario by a year of runs.
const MAX_GROWTH_RATIO: f64 = 1.3;
/// Maximum time of a run as an MCP tool, relative to the plain run.
const MAX_TOOL_RATIO: f64 = 1.3;
/// Maximum processor time of an empty request, in microseconds.
const MAX_STACK_MICROS: f64 = 60.0;
/// Maximum cold start time.
const MAX_COLD_START: Duration = Duration::from_millis(300);
/// Maximum memory of an idle server.
const MAX_IDLE_MEMORY: u64 = 60 * 1_024 * 1_024;

/// A target with its measurement and verdict.
pub(crate) struct Judged {
    pub(crate) what: String,
    pub(crate) bar: String,
    pub(crate) measured: String,
    pub(crate) verdict: Verdict,
}

/// Whether a target was met.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Met,
    Missed,
    /// Not selected, or not supported by this PostgreSQL build.
    NotMeasured,
}

impl Verdict {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Verdict::Met => "met",
            Verdict::Missed => "**missed**",
            Verdict::NotMeasured => "not measured",
        }
    }

    pub(crate) fn of(is_met: bool) -> Verdict {
        if is_met { Verdict::Met } else { Verdict::Missed }
    }
}

/// Evaluates all targets, in the order of the scenarios.
pub(crate) fn judge(findings: &Findings) -> Vec<Judged> {
    let mut judged = Vec::new();
    for row in Row::ALL {
        let measured = findings.measured.iter().find(|one| one.row == row && one.clients == CLIENTS);
        let account =
            findings.accounts.iter().find(|(other, _)| *other == row).and_then(|(_, account)| account.as_ref());
        // Lists have targets of their own; a page of fifty rows is not comparable to a point read.
        if let Some(least) = min_share(row) {
            judged.push(share(row, least, measured));
        }
        judged.extend(growth_result(row, findings));
        match row {
            Row::Execute { .. } => judged.extend(run_results(row, measured, account)),
            Row::Hello => judged.push(stack_result(measured)),
            Row::CallTool => judged.push(tool_result(findings)),
            Row::ActiveRelease => judged.push(rights(findings)),
            Row::AssetList { page: Depth::Thousandth } => judged.push(depth_result(findings)),
            Row::VersionCreate
            | Row::Transition
            | Row::Activation
            | Row::AssetList { page: Depth::First }
            | Row::Evidence
            | Row::Lineage
            | Row::RunList { .. }
            | Row::AuditList
            | Row::Recommendation
            | Row::ExecuteSteps => {}
        }
    }
    judged.extend(existence::judge(&findings.existence));
    judged.extend(overload::judge(findings.overload.as_ref()));
    judged.extend(queued::judge(findings.queued.as_ref()));
    judged.push(code_mode::judge(findings.code_mode.as_ref()));
    judged.extend(asking::judge(findings.asking.as_ref()));
    judged.extend(million::judge(findings.million.as_ref()));
    let median = findings.cold_start.read().median;
    judged.push(Judged {
        what: "cold start to the first 200 of a read".to_owned(),
        bar: format!("under {} ms", MAX_COLD_START.as_millis()),
        measured: format!("{} ms", median.as_millis()),
        verdict: Verdict::of(median < MAX_COLD_START),
    });
    judged.push(Judged {
        what: "idle memory".to_owned(),
        bar: "under 60 MiB".to_owned(),
        measured: format!("{:.1} MiB", mebibytes(findings.idle.memory)),
        verdict: Verdict::of(findings.idle.memory < MAX_IDLE_MEMORY),
    });
    judged
}

/// The minimum share of the baseline, if there is a target.
fn min_share(row: Row) -> Option<f64> {
    match row {
        Row::ActiveRelease => Some(0.8),
        Row::VersionCreate | Row::Transition | Row::Activation => Some(0.4),
        Row::Execute { .. } | Row::ExecuteSteps => Some(0.35),
        Row::Evidence => Some(0.25),
        Row::Hello
        | Row::CallTool
        | Row::AssetList { .. }
        | Row::Lineage
        | Row::RunList { .. }
        | Row::AuditList
        | Row::Recommendation => None,
    }
}

/// The request overhead outside the handler. The measurement includes HTTP parsing and writing.
fn stack_result(measured: Option<&Measured>) -> Judged {
    let took = measured.map(|one| one.fairway.processor().0 * 1e3);
    Judged {
        what: "hello: processor time of the server per request, HTTP included".to_owned(),
        bar: format!("under {MAX_STACK_MICROS:.0} µs"),
        measured: took.map_or_else(absent, |took| format!("{took:.0} µs")),
        verdict: took.map_or(Verdict::NotMeasured, |took| Verdict::of(took < MAX_STACK_MICROS)),
    }
}

/// A scenario with a year of runs relative to the same scenario on a small database.
fn growth_result(row: Row, findings: &Findings) -> Option<Judged> {
    let beside = findings.beside.iter().find(|one| one.row == row && one.clients == CLIENTS)?;
    let ratio = beside.times();
    Some(Judged {
        what: format!("{}: time with a year of runs against a small database", row.name()),
        bar: format!("at most {MAX_GROWTH_RATIO} times"),
        measured: ratio.map_or_else(absent, |ratio| format!("{ratio:.2}")),
        verdict: ratio.map_or(Verdict::NotMeasured, |ratio| Verdict::of(ratio <= MAX_GROWTH_RATIO)),
    })
}

fn share(row: Row, least: f64, measured: Option<&Measured>) -> Judged {
    let share = measured.and_then(|measured| measured.share_of(row.floor()));
    Judged {
        what: format!("{}: share of the {}", row.name(), row.floor().name()),
        bar: format!("at least {least}"),
        measured: share.map_or_else(absent, |share| format!("{share:.2}")),
        verdict: share.map_or(Verdict::NotMeasured, |share| Verdict::of(share >= least)),
    }
}

fn run_results(row: Row, measured: Option<&Measured>, account: Option<&Account>) -> Vec<Judged> {
    let at_most = |what: &str, most: f64, bar: &str, unit: &str, scale: f64, value: Option<f64>| Judged {
        what: format!("{}: {what}", row.name()),
        bar: bar.to_owned(),
        measured: value.map_or_else(absent, |value| format!("{:.2}{unit}", value / scale)),
        verdict: value.map_or(Verdict::NotMeasured, |value| Verdict::of(value <= most)),
    };
    let p99 = measured.map(|measured| measured.fairway.quantile(0.99));
    vec![
        at_most("round trips a run", MAX_ROUND_TRIPS, "at most 2", "", 1.0, account.map(Account::on_the_way)),
        at_most("commits a run", MAX_ROUND_TRIPS, "at most 2", "", 1.0, account.map(Account::writing)),
        at_most(
            "write-ahead log a run",
            MAX_LOG_BYTES,
            "at most 12 KiB",
            " KiB",
            1_024.0,
            measured.map(|measured| measured.fairway.log_bytes_per_request()),
        ),
        Judged {
            what: format!("{}: governance p99", row.name()),
            bar: "under 25 ms".to_owned(),
            measured: p99
                .map_or_else(absent, |p99| format!("{:.1} ms", Duration::from_micros(p99).as_secs_f64() * 1e3)),
            verdict: p99.map_or(Verdict::NotMeasured, |p99| Verdict::of(p99 < MAX_RUN_P99_MICROS)),
        },
    ]
}

/// A run as a tool relative to the plain run. Both are normalized by the baselines around them, because they run one
/// after the other on a shared machine.
fn tool_result(findings: &Findings) -> Judged {
    let share = |row: Row| {
        let measured = findings.measured.iter().find(|one| one.row == row && one.clients == CLIENTS)?;
        measured.share_of(row.floor())
    };
    let plain = share(Row::Execute { keys: Keys::Off, workloads: Workloads::One });
    let times = plain.zip(share(Row::CallTool)).map(|(plain, called)| plain / called.max(f64::EPSILON));
    Judged {
        what: format!("{}: time against the plain run", Row::CallTool.name()),
        bar: format!("at most {MAX_TOOL_RATIO} times"),
        measured: times.map_or_else(absent, |times| format!("{times:.2}")),
        verdict: times.map_or(Verdict::NotMeasured, |times| Verdict::of(times <= MAX_TOOL_RATIO)),
    }
}

/// A deep page relative to the first page, with a single client to avoid queueing effects.
fn depth_result(findings: &Findings) -> Judged {
    let median = |page: Depth| {
        let of_page = findings.measured.iter().filter(|one| one.row == Row::AssetList { page });
        of_page.min_by_key(|one| one.clients).map(|one| one.fairway.quantile(0.5))
    };
    let ratio = median(Depth::First).zip(median(Depth::Thousandth)).map(|(first, deep)| {
        let (first, deep) = (Duration::from_micros(first.max(1)), Duration::from_micros(deep.max(1)));
        (first.max(deep).as_secs_f64() / first.min(deep).as_secs_f64(), first, deep)
    });
    Judged {
        what: "list of assets: page 1 000 by cursor against page 1, out of 100 000".to_owned(),
        bar: format!("within {MAX_DEPTH_RATIO}"),
        measured: ratio.map_or_else(absent, |(ratio, first, deep)| {
            format!("{ratio:.2} ({:.2} ms and {:.2} ms)", first.as_secs_f64() * 1e3, deep.as_secs_f64() * 1e3)
        }),
        verdict: ratio.map_or(Verdict::NotMeasured, |(ratio, ..)| Verdict::of(ratio <= MAX_DEPTH_RATIO)),
    }
}

fn rights(findings: &Findings) -> Judged {
    Judged {
        what: "active-release read: changed permissions apply to the next request".to_owned(),
        bar: "always".to_owned(),
        measured: findings.rights.map_or_else(absent, |seen| {
            format!("{} of {} changes", seen.rounds.saturating_sub(seen.late), seen.rounds)
        }),
        verdict: findings.rights.map_or(Verdict::NotMeasured, |seen| Verdict::of(seen.late == 0)),
    }
}

fn absent() -> String {
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
        self.tally.requests as f64 / self.tally.elapsed.as_secs_f64().max(f64::EPSILON)
    }

    /// A latency quantile in microseconds.
    pub(crate) fn quantile(&self, quantile: f64) -> u64 {
        self.tally.latency.value_at_quantile(quantile)
    }

    /// Processor time for each request in milliseconds: of the server, and of PostgreSQL.
    pub(crate) fn processor(&self) -> (f64, f64) {
        let of = |time: Duration| time.as_secs_f64() * 1e3 / self.tally.requests.max(1) as f64;
        (of(self.cost.program), of(self.cost.postgres))
    }

    /// Bytes of write-ahead log for each request, including full-page images.
    pub(crate) fn log_bytes_per_request(&self) -> f64 {
        self.per_request(self.cost.log_bytes)
    }

    pub(crate) fn per_request(&self, count: u64) -> f64 {
        count as f64 / self.tally.requests.max(1) as f64
    }

    /// The number of processors that other programs kept busy.
    pub(crate) fn strangers(&self) -> f64 {
        self.cost.strangers().as_secs_f64() / self.cost.elapsed.as_secs_f64().max(f64::EPSILON)
    }
}

impl Measured {
    /// The mean baseline rate before and after.
    pub(crate) fn baseline_rate(&self, floor: Floor) -> Option<f64> {
        mean(self.around(floor).map(Measurement::rate))
    }

    /// The baseline's processor time for each request, of both processes, in milliseconds.
    fn baseline_processor_millis(&self, floor: Floor) -> Option<f64> {
        mean(self.around(floor).map(|stretch| sum(stretch.processor())))
    }

    /// The request rate as a share of the baseline's.
    pub(crate) fn share_of(&self, floor: Floor) -> Option<f64> {
        self.baseline_rate(floor).filter(|rate| *rate > 0.0).map(|rate| self.fairway.rate() / rate)
    }

    /// The baseline's processor time as a share of the server's: the throughput share on an otherwise idle machine.
    pub(crate) fn share_by_processor(&self, floor: Floor) -> Option<f64> {
        let own = sum(self.fairway.processor());
        self.baseline_processor_millis(floor).filter(|_| own > 0.0).map(|floor| floor / own)
    }

    pub(crate) fn around(&self, floor: Floor) -> impl Iterator<Item = &Measurement> {
        self.floors.iter().filter(move |(other, _)| *other == floor).map(|(_, stretch)| stretch)
    }
}

fn sum((one, other): (f64, f64)) -> f64 {
    one + other
}

/// The arithmetic mean; `None` without values.
pub(crate) fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (count, sum) = values.fold((0.0, 0.0), |(count, sum), value| (count + 1.0, sum + value));
    (count > 0.0).then(|| sum / count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::tests::tally;
    use crate::meter::Cost;

    fn stretch(requests: u64) -> Measurement {
        let cost = Cost { log_bytes: requests * 2_048, program: Duration::from_millis(100), ..Cost::default() };
        Measurement { tally: tally(requests), cost }
    }

    #[test]
    fn share_uses_the_mean_of_both_baselines() {
        let measured = Measured {
            row: Row::Transition,
            clients: CLIENTS,
            fairway: stretch(500),
            floors: vec![
                (Floor::Commit, stretch(800)),
                (Floor::CommitAtOnce, stretch(9)),
                (Floor::Commit, stretch(1_200)),
            ],
        };
        assert!((measured.share_of(Floor::Commit).unwrap() - 0.5).abs() < 1e-9);
        assert_eq!(measured.share_of(Floor::Read), None);
        assert!((measured.fairway.log_bytes_per_request() - 2_048.0).abs() < 1e-9);
        assert_eq!(share(Row::Transition, 0.4, Some(&measured)).verdict, Verdict::Met);
        assert_eq!(share(Row::ActiveRelease, 0.8, Some(&measured)).verdict, Verdict::NotMeasured);
    }

    #[test]
    fn run_has_four_targets_besides_its_share() {
        let row = *Row::ALL.last().unwrap();
        let judged = run_results(row, None, None);
        assert_eq!(judged.len(), 4);
        assert!(judged.iter().all(|one| one.verdict == Verdict::NotMeasured));
    }
}
