//! Metrics of runs: ends by status; durations, tokens and cost by workload.
//!
//! INVARIANT: the label `workload` has at most [`MAX_WORKLOADS`] slugs and one value for all others.

use fairway_domain::{
    execution::{
        Status,
        run_metrics_observer::{ObservedWorkload, RunMetricsObserver},
        usage::ModelUsage,
    },
    id::WorkloadId,
};
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry, core::Collector};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// Maximum number of workloads with series of their own: the first ones whose runs this process ends.
const MAX_WORKLOADS: usize = 100;
/// The label of all other workloads. It is not a valid slug, so it cannot be the slug of a workload.
const OTHER: &str = "(other)";
/// Histogram buckets of run durations, in seconds: up to the default deadline.
const DURATION_BUCKETS: [f64; 11] = [0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0, 600.0];
/// Values of the label for the direction of tokens.
const DIRECTIONS: [&str; 2] = ["input", "output"];
/// The statuses of ended runs.
const ENDED: [Status; 5] = [Status::Completed, Status::Failed, Status::Denied, Status::Cancelled, Status::Unknown];

/// The metrics of runs. Clones share the counters.
#[derive(Clone, Debug)]
pub struct RunMetrics {
    ends: IntCounterVec,
    durations: HistogramVec,
    tokens: IntCounterVec,
    cost: IntCounterVec,
    labels: Arc<Mutex<HashMap<WorkloadId, String>>>,
}

impl RunMetrics {
    /// Creates and registers the metrics.
    pub(super) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let ends = Opts::new("fairway_executions_total", "Runs whose end this process stored.");
        let ends = IntCounterVec::new(ends, &["status"])?;
        for status in ENDED {
            // All series exist from the start, so that a count of zero differs from a missing metric.
            ends.with_label_values(&[status.as_str()]).reset();
        }
        let durations =
            HistogramOpts::new("fairway_execution_duration_seconds", "Time from acceptance of a run to its end.");
        let durations = HistogramVec::new(durations.buckets(DURATION_BUCKETS.to_vec()), &["workload", "status"])?;
        let tokens = Opts::new("fairway_execution_tokens_total", "Tokens of the model calls of runs.");
        let tokens = IntCounterVec::new(tokens, &["workload", "direction"])?;
        let cost = Opts::new(
            "fairway_execution_cost_micros_total",
            "Cost of the model calls of runs, in millionths of the currency of the prices.",
        );
        let cost = IntCounterVec::new(cost, &["workload"])?;
        let collectors: [Box<dyn Collector>; 4] =
            [Box::new(ends.clone()), Box::new(durations.clone()), Box::new(tokens.clone()), Box::new(cost.clone())];
        for collector in collectors {
            registry.register(collector)?;
        }
        // These series exist from the start too, so that a count of zero differs from a missing metric.
        durations.with_label_values(&[OTHER, Status::Completed.as_str()]);
        for direction in DIRECTIONS {
            tokens.with_label_values(&[OTHER, direction]);
        }
        cost.with_label_values(&[OTHER]);
        Ok(Self { ends, durations, tokens, cost, labels: Arc::default() })
    }

    /// The value of the label `workload`: the slug, or [`OTHER`] for workloads beyond [`MAX_WORKLOADS`].
    fn label(&self, workload: ObservedWorkload<'_>) -> String {
        let mut labels = self.labels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(label) = labels.get(&workload.id) {
            return label.clone();
        }
        match workload.slug {
            Some(slug) if labels.len() < MAX_WORKLOADS => {
                labels.insert(workload.id, slug.to_owned());
                slug.to_owned()
            }
            Some(_) | None => OTHER.to_owned(),
        }
    }
}

impl RunMetricsObserver for RunMetrics {
    fn run_ended(&self, workload: ObservedWorkload<'_>, status: Status, duration: Duration) {
        self.ends.with_label_values(&[status.as_str()]).inc();
        let label = self.label(workload);
        self.durations.with_label_values(&[&label, status.as_str()]).observe(duration.as_secs_f64());
    }

    fn models_called(&self, workload: ObservedWorkload<'_>, usage: ModelUsage) {
        if usage == ModelUsage::default() {
            return;
        }
        let label = self.label(workload);
        for (direction, tokens) in DIRECTIONS.into_iter().zip([usage.tokens_in, usage.tokens_out]) {
            self.tokens.with_label_values(&[&label, direction]).inc_by(tokens.unwrap_or_default());
        }
        if let Some(cost) = usage.cost_micros {
            self.cost.with_label_values(&[&label]).inc_by(cost);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;
    use uuid::Uuid;

    fn workload(number: u128, slug: Option<&str>) -> ObservedWorkload<'_> {
        ObservedWorkload { id: Uuid::from_u128(number).into(), slug }
    }

    #[test]
    fn renders_runs_tokens_and_cost_by_workload() {
        let metrics = Metrics::new().unwrap();
        let usage = ModelUsage { tokens_in: Some(7), tokens_out: Some(3), cost_micros: Some(20) };
        for _ in 0..2 {
            metrics.runs().models_called(workload(1, Some("triage")), usage);
        }
        metrics.runs().run_ended(workload(1, None), Status::Completed, Duration::from_millis(70));
        let text = metrics.render().unwrap();
        for line in [
            r#"fairway_executions_total{status="completed"} 1"#,
            r#"fairway_executions_total{status="failed"} 0"#,
            r#"fairway_execution_duration_seconds_bucket{status="completed",workload="triage",le="0.05"} 0"#,
            r#"fairway_execution_duration_seconds_bucket{status="completed",workload="triage",le="0.1"} 1"#,
            r#"fairway_execution_tokens_total{direction="input",workload="triage"} 14"#,
            r#"fairway_execution_tokens_total{direction="output",workload="triage"} 6"#,
            r#"fairway_execution_cost_micros_total{workload="triage"} 40"#,
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }

    #[test]
    fn limits_the_workloads_with_series_of_their_own() {
        let metrics = Metrics::new().unwrap();
        let slugs: Vec<String> = (0..MAX_WORKLOADS + 20).map(|number| format!("w-{number}")).collect();
        for (number, slug) in (0_u128..).zip(&slugs) {
            metrics.runs().run_ended(workload(number, Some(slug)), Status::Failed, Duration::ZERO);
        }
        metrics.runs().run_ended(workload(9_999, None), Status::Failed, Duration::ZERO);
        let text = metrics.render().unwrap();
        let counts = text.lines().filter(|line| line.starts_with("fairway_execution_duration_seconds_count"));
        // The count includes the series of failed runs, and the completed series that exists from the start.
        assert_eq!(counts.count(), MAX_WORKLOADS + 2);
        let other = r#"fairway_execution_duration_seconds_count{status="failed",workload="(other)"} 21"#;
        assert!(text.contains(other), "{text}");
        assert!(text.contains(r#"fairway_executions_total{status="failed"} 121"#), "{text}");
    }
}
