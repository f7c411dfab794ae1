//! The Markdown report.

use std::fmt::Write as _;
use std::time::Duration;

use crate::background_task_cost::TaskCost;
use crate::benchmark_run::{BenchmarkResults, Measurement, ScenarioMeasurement};
use crate::code_mode::ScriptLatency;
use crate::cold_start::MinAndMedian;
use crate::cost_meter::LogContents;
use crate::large_corpus::RetrievalLatency;
use crate::overload::OverloadResult;
use crate::paired_comparison::ROUNDS;
use crate::provider_benchmark::ProviderBenchmark;
use crate::queued_runs::QueuedRuns;
use crate::scenario::BaselineOperation;
use crate::thresholds::{TargetResult, mean, mebibytes};
use crate::verified_tokens;

/// Renders all tables. Writing to a `String` cannot fail, so the results are ignored.
pub(super) fn render(results: &BenchmarkResults, target_results: &[TargetResult]) -> String {
    let mut out = String::new();
    machine(&mut out, results);
    rates(&mut out, &results.measured);
    growth(&mut out, results);
    baselines(&mut out, &results.measured);
    requests(&mut out, results);
    process(&mut out, results);
    timing_oracle(&mut out, results);
    targets(&mut out, target_results);
    out
}

fn machine(out: &mut String, results: &BenchmarkResults) {
    let machine = &results.machine;
    let other_processors =
        mean(results.measured.iter().map(|measured| measured.fairway.other_processors())).unwrap_or_default();
    let _ = writeln!(
        out,
        "{} processors ({}), {} GiB, Linux {}, PostgreSQL {} with its default durability; {} s for each scenario. Load before: {}; \
         {other_processors:.2} processors were busy with other programs during the measurements.\n",
        machine.processors,
        machine.processor,
        machine.memory,
        machine.kernel,
        machine.postgres,
        results.seconds,
        machine.load,
    );
}

fn rates(out: &mut String, measured: &[ScenarioMeasurement]) {
    out.push_str(
        "| row | clients | requests/s | p50 ms | p95 ms | p99 ms | CPU ms (server + PostgreSQL) | baseline/s | \
         share of baseline | share by CPU | share of one-statement baseline |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for row in measured {
        let operation = row.scenario.baseline();
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {} |",
            row.scenario.name(),
            row.clients,
            speed(&row.fairway),
            number(row.baseline_rate(operation), 0),
            number(row.rate_share_of(operation), 2),
            number(row.share_by_processor(operation), 2),
            number(row.rate_share_of(BaselineOperation::CommitInOneStatement), 2),
        );
    }
    out.push('\n');
}

/// The table that compares each scenario on a small database and on a database with a year of runs.
fn growth(out: &mut String, results: &BenchmarkResults) {
    if results.interleaved.is_empty() {
        return;
    }
    let _ = writeln!(
        out,
        "| scenario on a small database and with a year of runs, in {ROUNDS} rounds | clients | requests/s | | p50 ms | \
         | PostgreSQL ms | | times | least | most |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    );
    for comparison in &results.interleaved {
        let cell = |value: Option<f64>, digits| number(value, digits);
        let rates = comparison.medians(Measurement::rate);
        let medians = comparison.medians(|measurement| latency(measurement, 0.5));
        let postgres = comparison.medians(|measurement| measurement.processor_millis().1);
        let (min, max) = comparison.slowdown_range();
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {min:.2} | {max:.2} |",
            comparison.scenario.name(),
            comparison.clients,
            cell(rates.0, 0),
            cell(rates.1, 0),
            cell(medians.0, 2),
            cell(medians.1, 2),
            cell(postgres.0, 3),
            cell(postgres.1, 3),
            cell(comparison.median_slowdown(), 2),
        );
    }
    out.push('\n');
}

fn baselines(out: &mut String, measured: &[ScenarioMeasurement]) {
    out.push_str(
        "| baseline (mean of its measurements) | clients | requests/s | lowest | highest | p50 ms | p99 ms | \
         CPU ms (baseline + PostgreSQL) |\n|---|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for operation in BaselineOperation::ALL {
        let mut clients: Vec<usize> = measured.iter().map(|one| one.clients).collect();
        clients.sort_unstable();
        clients.dedup();
        for clients in clients {
            let measurements: Vec<&Measurement> = measured
                .iter()
                .filter(|one| one.clients == clients)
                .flat_map(|one| one.baseline_measurements(operation))
                .collect();
            let mean_of =
                |value: &dyn Fn(&Measurement) -> f64| mean(measurements.iter().map(|measurement| value(measurement)));
            let Some(rate) = mean_of(&Measurement::rate) else { continue };
            let _ = writeln!(
                out,
                "| {} | {clients} | {rate:.0} | {:.0} | {:.0} | {} | {} | {} + {} |",
                operation.name(),
                measurements.iter().map(|measurement| measurement.rate()).fold(f64::INFINITY, f64::min),
                measurements.iter().map(|measurement| measurement.rate()).fold(0.0, f64::max),
                number(mean_of(&|measurement| latency(measurement, 0.5)), 2),
                number(mean_of(&|measurement| latency(measurement, 0.99)), 2),
                number(mean_of(&|measurement| measurement.processor_millis().0), 3),
                number(mean_of(&|measurement| measurement.processor_millis().1), 3),
            );
        }
    }
    out.push('\n');
}

/// The table of database costs for each request, at the highest number of clients.
fn requests(out: &mut String, results: &BenchmarkResults) {
    out.push_str(
        "| per request | round trips | statements, background tasks included | commits of the request | commit records, background tasks \
         included | WAL KiB | of it records | of it full-page images |\n|---|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for (row, account) in &results.accounts {
        let measured = results.measured.iter().filter(|one| one.scenario == *row).max_by_key(|one| one.clients);
        let measurement = measured.map(|measured| &measured.fairway);
        let log = |value: &dyn Fn(LogContents) -> u64| {
            measurement.and_then(|measurement| Some(measurement.per_request(value(measurement.cost.log?))))
        };
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {} | {} |",
            row.name(),
            number(account.as_ref().map(|account| account.round_trips_per_request()), 2),
            number(account.as_ref().map(|account| account.statements_per_request()), 2),
            number(account.as_ref().map(|account| account.commits_per_request()), 2),
            number(log(&|log| log.commits), 2),
            number(measurement.map(|measurement| measurement.log_bytes_per_request() / 1_024.0), 2),
            number(log(&|log| log.record_bytes).map(|bytes| bytes / 1_024.0), 2),
            number(log(&|log| log.image_bytes).map(|bytes| bytes / 1_024.0), 2),
        );
    }
    out.push('\n');
}

fn process(out: &mut String, results: &BenchmarkResults) {
    out.push_str("| process | |\n|---|--:|\n");
    let min_and_median =
        |min_and_median: MinAndMedian| format!("{} / {} ms", millis(min_and_median.min), millis(min_and_median.median));
    let idle = &results.idle.cost;
    let share = |time: Duration| time.as_secs_f64() * 1e3 / idle.elapsed.as_secs_f64().max(f64::EPSILON);
    let commits = idle.log.map(|log| per_second(log.commits, idle.elapsed));
    for (name, value) in [
        (
            "cold start to the first 200 of `/healthz`, best / median",
            min_and_median(results.cold_start.time_to_health()),
        ),
        (
            "cold start to the first 200 of a read, best / median",
            min_and_median(results.cold_start.time_to_first_read()),
        ),
        ("first start, which migrates an empty database", format!("{} ms", millis(results.cold_start.migrating.read))),
        ("resident memory, idle after start", format!("{:.1} MiB", mebibytes(results.idle.memory))),
        ("resident memory after all scenarios", format!("{:.1} MiB", mebibytes(results.memory_after))),
        (
            "idle: CPU per second (server + PostgreSQL)",
            format!("{:.1} + {:.1} ms", share(idle.program), share(idle.postgres)),
        ),
        ("idle: writing commits per second", number(commits, 1)),
        ("idle: WAL per second", format!("{:.0} bytes", per_second(idle.log_bytes, idle.elapsed))),
    ] {
        let _ = writeln!(out, "| {name} | {value} |");
    }
    let rows = results.overload.iter().flat_map(OverloadResult::table_rows);
    for (name, value) in rows {
        let _ = writeln!(out, "| {name} | {value} |");
    }
    let rows = results.queued.iter().flat_map(QueuedRuns::table_rows);
    let rows = rows.chain(results.code_mode.iter().flat_map(ScriptLatency::table_rows));
    let rows = rows.chain(results.verified_tokens.iter().flat_map(verified_tokens::table_rows));
    for (name, value) in rows.chain(results.provider.iter().flat_map(ProviderBenchmark::table_rows)) {
        let _ = writeln!(out, "| {name} | {value} |");
    }
    for (name, value) in results.task_costs.iter().flat_map(TaskCost::table_rows) {
        let _ = writeln!(out, "| {name} | {value} |");
    }
    for (name, value) in results.retrieval.iter().flat_map(RetrievalLatency::table_rows) {
        let _ = writeln!(out, "| {name} | {value} |");
    }
    out.push('\n');
}

/// The table of response times for hidden resources and for unused identifiers.
fn timing_oracle(out: &mut String, results: &BenchmarkResults) {
    if results.timing_oracle.is_empty() {
        return;
    }
    out.push_str("| read by identifier | median ms | of an unused identifier | difference |\n|---|--:|--:|--:|\n");
    for comparison in &results.timing_oracle {
        let (hidden_millis, unused_millis) =
            (comparison.hidden_id.as_secs_f64() * 1e3, comparison.unused_id.as_secs_f64() * 1e3);
        let _ = writeln!(
            out,
            "| {} | {hidden_millis:.3} | {unused_millis:.3} | {:.1} % |",
            comparison.name(),
            comparison.difference() * 100.0
        );
    }
    out.push('\n');
}

fn targets(out: &mut String, results: &[TargetResult]) {
    out.push_str("| target (32 clients) | required | measured | |\n|---|--:|--:|---|\n");
    for result in results {
        let _ =
            writeln!(out, "| {} | {} | {} | {} |", result.name, result.target, result.measured, result.verdict.name());
    }
}

/// Requests per second, latencies and processor time, as cells.
fn speed(measurement: &Measurement) -> String {
    let (program, postgres) = measurement.processor_millis();
    format!(
        "{:.0} | {:.2} | {:.2} | {:.2} | {program:.3} + {postgres:.3}",
        measurement.rate(),
        latency(measurement, 0.5),
        latency(measurement, 0.95),
        latency(measurement, 0.99),
    )
}

/// A latency quantile in milliseconds.
fn latency(measurement: &Measurement, quantile: f64) -> f64 {
    Duration::from_micros(measurement.quantile(quantile)).as_secs_f64() * 1e3
}

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "n/a".to_owned(), |value| format!("{value:.digits$}"))
}

fn millis(time: Duration) -> u128 {
    time.as_millis()
}

#[expect(clippy::cast_precision_loss, reason = "counts of a few seconds lie far below 2^53")]
fn per_second(count: u64, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64().max(f64::EPSILON)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::benchmark_run::IdleMeasurement;
    use crate::closed_loop_clients::tests::load_result;
    use crate::cold_start::ColdStart;
    use crate::cost_meter::Cost;
    use crate::environment::start_processes::FirstResponseTimes;
    use crate::known_misses::KNOWN_MISSES;
    use crate::paired_comparison::PairedComparison;
    use crate::report::Machine;
    use crate::scenario::{KeyMode, Scenario, WorkloadSpread};
    use crate::stale_permission_check::OutdatedReads;
    use crate::statement_count::{Statement, StatementCounts};
    use crate::thresholds::judge;
    use crate::timing_oracle::{ResourceKind, tests::comparison};

    /// Results with constant measurements, for unit tests.
    pub(in crate::report) fn results() -> BenchmarkResults {
        let measurement = |requests: u64| Measurement {
            load: load_result(requests),
            cost: Cost {
                elapsed: Duration::from_secs(1),
                program: Duration::from_millis(requests),
                postgres: Duration::from_millis(requests),
                log_bytes: requests * 4_096,
                log: Some(LogContents {
                    record_bytes: requests * 3_072,
                    image_bytes: requests * 1_024,
                    commits: requests,
                }),
                ..Cost::default()
            },
        };
        let scenario = Scenario::Execute { keys: KeyMode::Off, workloads: WorkloadSpread::One };
        let first = FirstResponseTimes { health: Duration::from_millis(120), read: Duration::from_millis(150) };
        let statement =
            Statement { text: "SELECT 1".to_owned(), calls: 400, milliseconds: 8.0, log_bytes: 10, changes_rows: true };
        BenchmarkResults {
            machine: Machine::current(15),
            seconds: 5.0,
            cold_start: ColdStart { migrating: first, starts: vec![first; 5] },
            idle: IdleMeasurement {
                cost: Cost { elapsed: Duration::from_secs(1), ..Cost::default() },
                memory: 30 << 20,
            },
            measured: vec![ScenarioMeasurement {
                scenario,
                clients: 32,
                fairway: measurement(500),
                baselines: vec![
                    (BaselineOperation::Commit, measurement(1_000)),
                    (BaselineOperation::Commit, measurement(1_000)),
                ],
            }],
            interleaved: vec![PairedComparison {
                scenario,
                clients: 32,
                rounds: vec![(measurement(600), measurement(500))],
            }],
            accounts: vec![(scenario, Some(StatementCounts { requests: 200, statements: vec![statement] }))],
            stale_permission_check: Some(OutdatedReads { rounds: 50, late: 0 }),
            timing_oracle: vec![comparison(ResourceKind::Workload, 500, 520)],
            overload: Vec::new(),
            queued: None,
            code_mode: None,
            provider: None,
            notifications: None,
            verified_tokens: None,
            task_costs: Vec::new(),
            retrieval: None,
            pages: None,
            proofs: None,
            memory_after: 40 << 20,
        }
    }

    #[test]
    fn every_known_miss_names_a_target() {
        let targets = judge(&results());
        for known in KNOWN_MISSES {
            assert!(targets.iter().any(|one| one.name == known.target), "{}", known.target);
        }
    }

    #[test]
    fn tables_are_rectangular_and_targets_are_judged() {
        let results = results();
        let targets = judge(&results);
        let text = render(&results, &targets);
        let widths = |table: &str| table.lines().map(|line| line.matches('|').count()).collect::<Vec<_>>();
        let tables: Vec<&str> = text.split("\n\n").filter(|part| part.starts_with('|')).collect();
        assert_eq!(tables.len(), 7);
        for table in tables {
            let widths = widths(table);
            assert!(widths.windows(2).all(|pair| pair[0] == pair[1]), "{table}");
        }
        assert!(
            text.contains("| execute, 1 workload | 32 | 500 | 2.00 | 2.00 | 2.00 | 1.000 + 1.000 | 1000 | 0.50 |"),
            "{text}"
        );
        assert!(text.contains("| execute, 1 workload: round trips a run | at most 2 | 2.00 | met |"), "{text}");
        assert!(
            text.contains("| execute, 1 workload: write-ahead log a run | at most 12 KiB | 4.00 KiB | met |"),
            "{text}"
        );
        assert!(
            text.contains(
                "| transition: share of the baseline: commit of two inserts | at least 0.4 | n/a | not measured |"
            ),
            "{text}"
        );
        assert!(text.contains("| existence: workload of another tenant | 0.500 | 0.520 | 4.0 % |"), "{text}");
        assert!(
            text.contains(
                "| existence: workload of another tenant, medians against an unused identifier | under 10 % apart | 4.0 % | met |"
            ),
            "{text}"
        );
        let comparison_row =
            "| execute, 1 workload | 32 | 600 | 500 | 2.00 | 2.00 | 1.000 | 1.000 | 1.20 | 1.20 | 1.20 |";
        assert!(text.contains(comparison_row), "{text}");
        assert!(text.contains("| idle memory | under 60 MiB | 30.0 MiB | met |"), "{text}");
    }
}
