//! Usage: the tokens and costs of runs, and their totals over ended runs.

use crate::{
    access::rights::VisibleScopes,
    evidence::{EvidenceArtifact, PROVIDER_CALL, RETRIEVAL_EVENT},
    execution::Execution,
    id::{WorkloadId, WorkspaceId},
    slug::Slug,
    store::StoreError,
    tenant::TenantScope,
    time::Timestamp,
};
use async_trait::async_trait;
use serde_json::{Map, Value};
use std::{
    collections::{BTreeMap, btree_map::Entry},
    time::Duration,
};

/// The maximum time range of a usage report.
pub const MAX_RANGE: Duration = Duration::from_secs(92 * 24 * 60 * 60);
/// The maximum number of rows of a usage report.
pub const MAX_ROWS: usize = 1_000;

/// The tokens and the cost of model calls. A field is `None` if no call reported that value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ModelUsage {
    /// The number of tokens in the requests.
    pub tokens_in: Option<u64>,
    /// The number of tokens in the responses.
    pub tokens_out: Option<u64>,
    /// The cost in millionths of the currency of the account's prices.
    pub cost_micros: Option<u64>,
}

impl ModelUsage {
    /// Sums the model calls and query embeddings in the evidence of a run.
    #[must_use]
    pub fn of_artifacts(artifacts: &[EvidenceArtifact]) -> Self {
        artifacts.iter().filter_map(Self::of_artifact).fold(Self::default(), Self::plus)
    }

    fn of_artifact(artifact: &EvidenceArtifact) -> Option<Self> {
        match artifact.kind {
            PROVIDER_CALL => Some(Self::of_call(&artifact.body)),
            RETRIEVAL_EVENT => artifact.body.get("embedding")?.as_object().map(Self::of_call),
            _ => None,
        }
    }

    fn of_call(call: &Map<String, Value>) -> Self {
        let number = |name: &str| call.get(name).and_then(Value::as_u64);
        Self { tokens_in: number("tokens_in"), tokens_out: number("tokens_out"), cost_micros: number("cost_micros") }
    }

    /// The sum of two usages. If only one of them reports a value, the sum has that value.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let sum = |first: Option<u64>, second: Option<u64>| match (first, second) {
            (Some(first), Some(second)) => Some(first.saturating_add(second)),
            (first, second) => first.or(second),
        };
        Self {
            tokens_in: sum(self.tokens_in, other.tokens_in),
            tokens_out: sum(self.tokens_out, other.tokens_out),
            cost_micros: sum(self.cost_micros, other.cost_micros),
        }
    }
}

/// Data that a list of runs shows for each run in addition to the stored execution.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunUsageSummary {
    /// The slug of the run's workload.
    pub workload_slug: String,
    /// The tokens and the cost of all model calls of the run.
    pub usage: ModelUsage,
}

/// An execution in a list, without its output.
#[derive(Clone, Debug)]
pub struct ListedExecution {
    /// The execution.
    pub execution: Execution,
    /// The execution's workload, tokens and cost.
    pub summary: RunUsageSummary,
}

/// The properties by which a usage report groups runs into rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UsageGrouping {
    /// Whether each workload has its own row.
    pub by_workload: bool,
    /// Whether each model has its own row. A run that called several models counts in the row of each of them.
    pub by_model: bool,
    /// Whether each UTC day on which runs started has its own row.
    pub by_day: bool,
}

impl UsageGrouping {
    /// The names of the groupings in requests.
    pub const NAMES: [&'static str; 3] = ["workload", "model", "day"];

    /// Parses grouping names separated by commas; `None` if a name is unknown or repeated.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut grouping = Self::default();
        for name in text.split(',') {
            let flag = match name {
                "workload" => &mut grouping.by_workload,
                "model" => &mut grouping.by_model,
                "day" => &mut grouping.by_day,
                _ => return None,
            };
            if std::mem::replace(flag, true) {
                return None;
            }
        }
        Some(grouping)
    }
}

/// The runs that a usage report counts. A run must meet all conditions that are set.
#[derive(Clone, Debug, Default)]
pub struct UsageFilter {
    /// Only runs of this workload.
    pub workload: Option<WorkloadId>,
    /// Only runs of workloads in this workspace.
    pub workspace: Option<WorkspaceId>,
    /// Only runs in this environment.
    pub environment: Option<Slug>,
    /// Only runs within these scopes, which the caller may see; `None` covers the whole tenant.
    pub visible_scopes: Option<VisibleScopes>,
}

/// A time range that includes its start and excludes its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimeRange {
    /// The first instant of the range.
    pub since: Timestamp,
    /// The first instant after the range.
    pub until: Timestamp,
}

impl TimeRange {
    /// Splits the range at each midnight UTC, so that each part is at most one day long.
    #[must_use]
    pub fn split_by_day(self) -> Vec<Self> {
        let mut parts = Vec::new();
        let mut since = self.since;
        while since < self.until {
            let until = since.next_midnight().min(self.until);
            parts.push(Self { since, until });
            since = until;
        }
        parts
    }
}

/// The values that identify a row of a usage report.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct UsageKey {
    /// The workload with its slug; `None` if the report is not grouped by workload.
    pub workload: Option<(WorkloadId, String)>,
    /// The model; `None` if the report is not grouped by model, or for runs without a model call.
    pub model: Option<String>,
    /// The start of the day; `None` if the report is not grouped by day.
    pub day: Option<Timestamp>,
}

/// Totals of ended runs that belong to one row and whose durations fall into the same bucket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DurationBucketTotals {
    /// The row of the report to which the runs belong.
    pub key: UsageKey,
    /// The bucket of the runs' durations, see [`DurationBuckets`].
    pub bucket: i32,
    /// The number of ended runs.
    pub runs: u64,
    /// The number of these runs that failed.
    pub failures: u64,
    /// The tokens and the cost of the runs.
    pub usage: ModelUsage,
}

/// A histogram of run durations. Bucket `n` counts the durations around `2^(n/8)` milliseconds, so the error of a
/// percentile is at most 5 percent.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DurationBuckets(BTreeMap<i32, u64>);

impl DurationBuckets {
    /// The number of buckets from one duration to its double.
    pub const BUCKETS_PER_DOUBLING: i32 = 8;

    fn add(&mut self, bucket: i32, runs: u64) {
        let count = self.0.entry(bucket).or_default();
        *count = count.saturating_add(runs);
    }

    /// The duration in milliseconds within which this percentage of the runs ended; `None` without runs.
    #[must_use]
    pub fn percentile_ms(&self, percentage: u64) -> Option<u64> {
        let total: u64 = self.0.values().fold(0, |sum, count| sum.saturating_add(*count));
        let rank = total.saturating_mul(percentage).div_ceil(100);
        let mut cumulative = 0_u64;
        let bucket = self.0.iter().find_map(|(bucket, count)| {
            cumulative = cumulative.saturating_add(*count);
            (*count > 0 && cumulative >= rank).then_some(*bucket)
        })?;
        Some(bucket_ms(bucket))
    }
}

/// The duration at the centre of a bucket, in milliseconds. Durations of runs are below `2^32` milliseconds.
fn bucket_ms(bucket: i32) -> u64 {
    let exponent = f64::from(bucket.clamp(0, 32 * DurationBuckets::BUCKETS_PER_DOUBLING))
        / f64::from(DurationBuckets::BUCKETS_PER_DOUBLING);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the value is between 1 and 2^32")]
    let ms = exponent.exp2().round() as u64;
    ms
}

/// The totals of one row of a usage report.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UsageTotal {
    /// The number of ended runs.
    pub runs: u64,
    /// The number of these runs that failed.
    pub failures: u64,
    /// The tokens and the cost of the runs.
    pub usage: ModelUsage,
    /// The durations of the runs, as a histogram.
    pub durations: DurationBuckets,
}

/// The report would have more than [`MAX_ROWS`] rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooManyReportRows;

/// A usage report: the totals of ended runs, by row.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UsageReport(BTreeMap<UsageKey, UsageTotal>);

impl UsageReport {
    /// Adds the totals of further runs to their row.
    ///
    /// # Errors
    /// If the report would have more than [`MAX_ROWS`] rows.
    pub fn add(&mut self, count: DurationBucketTotals) -> Result<(), TooManyReportRows> {
        let rows = self.0.len();
        let total = match self.0.entry(count.key) {
            Entry::Vacant(_) if rows >= MAX_ROWS => return Err(TooManyReportRows),
            entry @ (Entry::Vacant(_) | Entry::Occupied(_)) => entry.or_default(),
        };
        total.runs = total.runs.saturating_add(count.runs);
        total.failures = total.failures.saturating_add(count.failures);
        total.usage = total.usage.plus(count.usage);
        total.durations.add(count.bucket, count.runs);
        Ok(())
    }

    /// The rows with the newest day first. Rows of the same day are ordered by their number of runs, highest first.
    #[must_use]
    pub fn into_rows(self) -> Vec<(UsageKey, UsageTotal)> {
        let mut rows: Vec<_> = self.0.into_iter().collect();
        rows.sort_by(|(key, total), (other_key, other_total)| {
            other_key.day.cmp(&key.day).then(other_total.runs.cmp(&total.runs))
        });
        rows
    }
}

/// Reads the usage of ended runs.
#[async_trait]
pub trait UsageStore: Send + Sync {
    /// Counts the ended runs that started within the range, which is at most one day long. Returns at most `limit`
    /// counts. A result of exactly `limit` counts may be incomplete.
    async fn count_usage(
        &self,
        scope: TenantScope,
        filter: &UsageFilter,
        day: TimeRange,
        grouping: UsageGrouping,
        limit: u32,
    ) -> Result<Vec<DurationBucketTotals>, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(model: &str, bucket: i32, runs: u64) -> DurationBucketTotals {
        let key = UsageKey { model: Some(model.to_owned()), ..UsageKey::default() };
        let usage = ModelUsage { tokens_in: Some(runs), ..ModelUsage::default() };
        DurationBucketTotals { key, bucket, runs, failures: 1, usage }
    }

    fn at(text: &str) -> Timestamp {
        Timestamp::parse(text).unwrap()
    }

    #[test]
    fn sums_known_parts_and_keeps_unknown_ones() {
        let first = ModelUsage { tokens_in: Some(3), tokens_out: None, cost_micros: None };
        let second = ModelUsage { tokens_in: Some(4), tokens_out: Some(5), cost_micros: None };
        assert_eq!(first.plus(second), ModelUsage { tokens_in: Some(7), tokens_out: Some(5), cost_micros: None });
    }

    #[test]
    fn parses_each_name_once() {
        let all = UsageGrouping { by_workload: true, by_model: true, by_day: true };
        assert_eq!(UsageGrouping::parse("day,workload,model"), Some(all));
        assert_eq!(UsageGrouping::parse("model"), Some(UsageGrouping { by_model: true, ..UsageGrouping::default() }));
        for text in ["", "hour", "day,day", "day,", "Day"] {
            assert_eq!(UsageGrouping::parse(text), None, "{text}");
        }
    }

    #[test]
    fn splits_a_range_at_midnights() {
        let range = TimeRange { since: at("2026-03-01T22:00:00Z"), until: at("2026-03-03T01:00:00Z") };
        let parts: Vec<_> =
            range.split_by_day().iter().map(|day| (day.since.to_string(), day.until.to_string())).collect();
        let day_range = |since: &str, until: &str| (since.to_owned(), until.to_owned());
        assert_eq!(
            parts,
            [
                day_range("2026-03-01T22:00:00Z", "2026-03-02T00:00:00Z"),
                day_range("2026-03-02T00:00:00Z", "2026-03-03T00:00:00Z"),
                day_range("2026-03-03T00:00:00Z", "2026-03-03T01:00:00Z"),
            ]
        );
        assert!(TimeRange { since: range.until, until: range.since }.split_by_day().is_empty());
    }

    #[test]
    fn percentiles_are_exact_to_within_five_per_cent() {
        let mut report = UsageReport::default();
        for ms in 1_u32..=1_000 {
            #[expect(clippy::cast_possible_truncation, reason = "the logarithm is below 10")]
            let bucket = (8.0 * f64::from(ms).log2()).round() as i32;
            report.add(count("m", bucket, 1)).unwrap();
        }
        let rows = report.into_rows();
        let (_, total) = rows.first().unwrap();
        assert_eq!((rows.len(), total.runs, total.failures, total.usage.tokens_in), (1, 1_000, 1_000, Some(1_000)));
        for (percentage, exact) in [(50, 500_u64), (95, 950)] {
            let percentile = total.durations.percentile_ms(percentage).unwrap();
            assert!(percentile.abs_diff(exact) * 20 <= exact, "{percentile} instead of {exact}");
        }
        assert_eq!(DurationBuckets::default().percentile_ms(50), None);
    }

    #[test]
    fn refuses_more_rows_than_its_limit() {
        let mut report = UsageReport::default();
        for number in 0..MAX_ROWS {
            report.add(count(&format!("m{number}"), 0, 1)).unwrap();
        }
        report.add(count("m0", 3, 9)).unwrap();
        assert_eq!(report.add(count("one too many", 0, 1)), Err(TooManyReportRows));
        assert_eq!(report.into_rows().first().map(|(_, total)| total.runs), Some(10), "most runs first");
    }
}
