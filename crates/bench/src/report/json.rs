//! The JSON report.

use std::time::Duration;

use serde_json::{Value, json};

use crate::background_task_cost::TaskCost;
use crate::benchmark_run::{BenchmarkResults, Measurement, ScenarioMeasurement};
use crate::environment::start_processes::FirstResponseTimes;
use crate::large_corpus::RetrievalLatency;
use crate::list_pagination::PageFigures;
use crate::notifications::NotificationResults;
use crate::paired_comparison::PairedComparison;
use crate::proofs::ProofFigures;
use crate::provider_benchmark::ProviderBenchmark;
use crate::statement_count::StatementCounts;
use crate::thresholds::TargetResult;

/// Renders the results as JSON. Durations are in milliseconds, memory and write-ahead log in bytes, and rates per
/// second.
pub(super) fn to_json(findings: &BenchmarkResults, judged: &[TargetResult]) -> Value {
    let machine = &findings.machine;
    let idle = &findings.idle;
    json!({
        "machine": {
            "processors": machine.processors, "processor": machine.processor, "memory_gib": machine.memory,
            "kernel": machine.kernel, "postgres": machine.postgres, "load_before": machine.load,
        },
        "seconds": findings.seconds,
        "cold_start": {
            "migrating": first_responses(findings.cold_start.migrating),
            "starts": findings.cold_start.starts.iter().copied().map(first_responses).collect::<Vec<_>>(),
        },
        "idle": {
            "memory_bytes": idle.memory, "seconds": idle.cost.elapsed.as_secs_f64(),
            "server_cpu_ms": millis(idle.cost.program), "postgres_cpu_ms": millis(idle.cost.postgres),
            "wal_bytes": idle.cost.log_bytes, "commits": idle.cost.log.map(|log| log.commits),
        },
        "memory_after_bytes": findings.memory_after,
        "rights": findings.outdated_permissions.map(|seen| json!({"rounds": seen.rounds, "late": seen.late})),
        "overload": findings.overload.iter().map(|seen| json!({
            "clients": seen.clients, "usual_per_second": seen.usual.0, "usual_p99_us": seen.usual.1, "offered_per_second": seen.offered,
            "accepted_per_second": seen.accepted.0, "accepted_p99_us": seen.accepted.1, "refused": seen.refused,
            "strange": seen.unexpected, "others_asked": seen.other_caller.0, "others_served": seen.other_caller.1,
            "most_memory_bytes": seen.memory, "recovery_ms": millis(seen.recovery),
        })).collect::<Vec<_>>(),
        "queued": findings.queued.as_ref().map(|seen| json!({
            "answered_at_once_per_second": seen.drained, "runs_per_second": seen.runs.0, "runs_p99_us": seen.runs.1, "floor_per_second": seen.baseline,
            "in_line_p99_us": seen.queueing, "heard_p99_us": seen.follower_delay,
        })),
        "code_mode": findings.code_mode.as_ref().map(|seen| json!({
            "p50_us": seen.latency.value_at_quantile(0.5), "p99_us": seen.latency.value_at_quantile(0.99),
        })),
        "asking": findings.provider.as_ref().map(ProviderBenchmark::to_json),
        "notifications": findings.notifications.as_ref().map(NotificationResults::to_json),
        "verified_tokens": findings.verified_tokens.as_ref().map(interleaved),
        "task_costs": findings.task_costs.iter().map(TaskCost::to_json).collect::<Vec<_>>(),
        "pages": findings.pages.as_ref().map(PageFigures::to_json),
        "proofs": findings.proofs.as_ref().map(ProofFigures::to_json),
        "million": findings.retrieval.as_ref().map(RetrievalLatency::to_json),
        "existence": findings.timing_oracle.iter().map(|one| json!({
            "read": one.name(), "foreign_ms": millis(one.hidden_id), "random_ms": millis(one.unused_id),
            "apart": one.difference(),
        })).collect::<Vec<_>>(),
        "rows": findings.measured.iter().map(scenario).collect::<Vec<_>>(),
        "rows_beside_a_year_of_runs": findings.interleaved.iter().map(interleaved).collect::<Vec<_>>(),
        "accounts": findings.accounts.iter().map(|(row, counted)| {
            json!({"row": row.name(), "counted": counted.as_ref().map(statement_counts)})
        }).collect::<Vec<_>>(),
        "bars": judged.iter().map(|one| json!({
            "what": one.name, "bar": one.target, "measured": one.measured, "verdict": one.verdict.name().trim_matches('*'),
        })).collect::<Vec<_>>(),
    })
}

fn first_responses(answers: FirstResponseTimes) -> Value {
    json!({"health_ms": millis(answers.health), "read_ms": millis(answers.read)})
}

fn scenario(one: &ScenarioMeasurement) -> Value {
    json!({
        "row": one.scenario.name(), "clients": one.clients, "fairway": measurement(&one.fairway),
        "floors": one.baselines.iter().map(|(floor, measured)| {
            json!({"floor": floor.name(), "measured": measurement(measured)})
        }).collect::<Vec<_>>(),
        "share": one.share_of(one.scenario.baseline()), "share_by_cpu": one.share_by_processor(one.scenario.baseline()),
    })
}

fn interleaved(one: &PairedComparison) -> Value {
    let rounds =
        one.rounds.iter().map(|(young, grown)| json!({"young": measurement(young), "grown": measurement(grown)}));
    json!({
        "row": one.scenario.name(), "clients": one.clients, "times": one.median_slowdown(), "rounds": rounds.collect::<Vec<_>>(),
    })
}

fn measurement(measured: &Measurement) -> Value {
    let (program, postgres) = measured.processor_millis();
    let latency = |quantile| millis(Duration::from_micros(measured.quantile(quantile)));
    json!({
        "requests": measured.tally.requests, "seconds": measured.tally.elapsed.as_secs_f64(), "rate": measured.rate(),
        "p50_ms": latency(0.5), "p95_ms": latency(0.95), "p99_ms": latency(0.99), "max_ms": latency(1.0),
        "server_cpu_ms": program, "postgres_cpu_ms": postgres, "strangers_processors": measured.other_processors(),
        "wal_bytes": measured.cost.log_bytes,
        "wal": measured.cost.log.map(|log| json!({
            "record_bytes": log.record_bytes, "full_page_image_bytes": log.image_bytes, "commits": log.commits,
        })),
    })
}

fn statement_counts(account: &StatementCounts) -> Value {
    json!({
        "requests": account.requests, "round_trips": account.round_trips_per_request(), "commits": account.commits_per_request(),
        "statements_in_all": account.statements_per_request(),
        "statements": account.statements.iter().map(|statement| json!({
            "text": statement.text, "per_request": account.per_request(statement.calls), "calls": statement.calls,
            "total_ms": statement.milliseconds, "wal_bytes": statement.log_bytes,
        })).collect::<Vec<_>>(),
    })
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::markdown::tests::findings;

    #[test]
    fn json_contains_the_reported_values() {
        let findings = findings();
        let value = to_json(&findings, &crate::thresholds::judge(&findings));
        assert_eq!(value["rows"][0]["fairway"]["rate"], 500.0);
        assert_eq!(value["rows"][0]["share"], 0.5);
        assert_eq!(value["existence"][0]["foreign_ms"], 0.5);
        assert_eq!(value["accounts"][0]["counted"]["statements"][0]["per_request"], 2.0);
        assert_eq!(value["bars"].as_array().unwrap().last().unwrap()["verdict"], "met");
    }
}
