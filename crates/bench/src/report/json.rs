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

/// Renders the results as JSON. The names of members contain the unit of their value, such as `p99_us`, `read_ms`,
/// `wal_bytes` or `runs_per_second`. `rate` is per second, and `seconds` is a duration.
pub(super) fn to_json(results: &BenchmarkResults, targets: &[TargetResult]) -> Value {
    let machine = &results.machine;
    let idle = &results.idle;
    json!({
        "machine": {
            "processors": machine.processors, "processor": machine.processor, "memory_gib": machine.memory,
            "kernel": machine.kernel, "postgres": machine.postgres, "load_before": machine.load,
        },
        "seconds": results.seconds,
        "cold_start": {
            "migrating": first_responses(results.cold_start.migrating),
            "starts": results.cold_start.starts.iter().copied().map(first_responses).collect::<Vec<_>>(),
        },
        "idle": {
            "memory_bytes": idle.memory, "seconds": idle.cost.elapsed.as_secs_f64(),
            "server_cpu_ms": millis(idle.cost.program), "postgres_cpu_ms": millis(idle.cost.postgres),
            "wal_bytes": idle.cost.log_bytes, "commits": idle.cost.log.map(|log| log.commits),
        },
        "memory_after_bytes": results.memory_after,
        "rights": results.stale_permission_check.map(|reads| json!({"rounds": reads.rounds, "late": reads.late})),
        "overload": results.overload.iter().map(|overload| json!({
            "clients": overload.clients, "usual_per_second": overload.capacity.0, "usual_p99_us": overload.capacity.1,
            "offered_per_second": overload.offered, "accepted_per_second": overload.accepted.0,
            "accepted_p99_us": overload.accepted.1, "refused": overload.refused, "strange": overload.unexpected,
            "others_asked": overload.other_caller.0, "others_served": overload.other_caller.1,
            "most_memory_bytes": overload.memory, "recovery_ms": millis(overload.recovery),
        })).collect::<Vec<_>>(),
        "queued": results.queued.as_ref().map(|queued| json!({
            "answered_at_once_per_second": queued.drained, "runs_per_second": queued.runs.0,
            "runs_p99_us": queued.runs.1, "floor_per_second": queued.baseline,
            "in_line_p99_us": queued.queueing, "heard_p99_us": queued.follower_delay,
        })),
        "code_mode": results.code_mode.as_ref().map(|scripts| json!({
            "p50_us": scripts.latency.value_at_quantile(0.5), "p99_us": scripts.latency.value_at_quantile(0.99),
        })),
        "asking": results.provider.as_ref().map(ProviderBenchmark::to_json),
        "notifications": results.notifications.as_ref().map(NotificationResults::to_json),
        "verified_tokens": results.verified_tokens.as_ref().map(interleaved),
        "task_costs": results.task_costs.iter().map(TaskCost::to_json).collect::<Vec<_>>(),
        "pages": results.pages.as_ref().map(PageFigures::to_json),
        "proofs": results.proofs.as_ref().map(ProofFigures::to_json),
        "million": results.retrieval.as_ref().map(RetrievalLatency::to_json),
        "existence": results.timing_oracle.iter().map(|comparison| json!({
            "read": comparison.name(), "foreign_ms": millis(comparison.hidden_id),
            "random_ms": millis(comparison.unused_id), "apart": comparison.difference(),
        })).collect::<Vec<_>>(),
        "rows": results.measured.iter().map(scenario).collect::<Vec<_>>(),
        "rows_beside_a_year_of_runs": results.interleaved.iter().map(interleaved).collect::<Vec<_>>(),
        "accounts": results.accounts.iter().map(|(row, counted)| {
            json!({"row": row.name(), "counted": counted.as_ref().map(statement_counts)})
        }).collect::<Vec<_>>(),
        "bars": targets.iter().map(|result| json!({
            "what": result.name, "bar": result.target, "measured": result.measured,
            "verdict": result.verdict.name().trim_matches('*'),
        })).collect::<Vec<_>>(),
    })
}

fn first_responses(times: FirstResponseTimes) -> Value {
    json!({"health_ms": millis(times.health), "read_ms": millis(times.read)})
}

fn scenario(measured: &ScenarioMeasurement) -> Value {
    let baseline = measured.scenario.baseline();
    json!({
        "row": measured.scenario.name(), "clients": measured.clients, "fairway": measurement(&measured.fairway),
        "floors": measured.baselines.iter().map(|(operation, measured)| {
            json!({"floor": operation.name(), "measured": measurement(measured)})
        }).collect::<Vec<_>>(),
        "share": measured.rate_share_of(baseline), "share_by_cpu": measured.share_by_processor(baseline),
    })
}

fn interleaved(comparison: &PairedComparison) -> Value {
    let rounds = comparison
        .rounds
        .iter()
        .map(|(base, compared)| json!({"young": measurement(base), "grown": measurement(compared)}));
    json!({
        "row": comparison.scenario.name(), "clients": comparison.clients, "times": comparison.median_slowdown(),
        "rounds": rounds.collect::<Vec<_>>(),
    })
}

fn measurement(measured: &Measurement) -> Value {
    let (program, postgres) = measured.processor_millis();
    let latency = |quantile| millis(Duration::from_micros(measured.quantile(quantile)));
    json!({
        "requests": measured.load.requests, "seconds": measured.load.elapsed.as_secs_f64(), "rate": measured.rate(),
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
    use crate::report::markdown::tests::results;

    #[test]
    fn json_contains_the_reported_values() {
        let results = results();
        let value = to_json(&results, &crate::thresholds::judge(&results));
        assert_eq!(value["rows"][0]["fairway"]["rate"], 500.0);
        assert_eq!(value["rows"][0]["share"], 0.5);
        assert_eq!(value["existence"][0]["foreign_ms"], 0.5);
        assert_eq!(value["accounts"][0]["counted"]["statements"][0]["per_request"], 2.0);
        assert_eq!(value["bars"].as_array().unwrap().last().unwrap()["verdict"], "met");
    }
}
