//! Token counts and costs of runs, and totals over ended runs. Both are computed from the evidence of model calls.
//!
//! A report aggregates the evidence and not the stored usage of runs, because it counts a run in the row of each of its
//! models. One statement covers at most a day, so that its duration does not depend on the length of the report.

use super::{
    input_of_runs,
    list::{smallest_uuid_v7_at, visible_list_arms},
    run_condition, select_runs,
};
use crate::{
    database::Database,
    guarded_commit::{Input, Query},
    list_permits::MAX_PAGE_MEMORY_BYTES,
    pagination::{MAX_UNMEASURED_ROW_BYTES, UnionArm},
    row::{Row, require_decoded},
};
use async_trait::async_trait;
use fairway_domain::{
    execution::{
        ports::ExecutionFilter,
        usage::{
            DurationBucketTotals, DurationBuckets, ModelUsage, RunUsageSummary, TimeRange, UsageFilter, UsageGrouping,
            UsageKey, UsageStore,
        },
    },
    id::ExecutionId,
    store::StoreError,
    tenant::TenantScope,
};
use std::collections::HashMap;
use uuid::Uuid;

/// A row source with the model calls of a run as JSON: the calls to providers, and the embeddings of its queries.
fn model_calls(of_run: &str) -> String {
    format!(
        "(SELECT CASE artifact_kind WHEN 'provider_call' THEN artifact.body::jsonb
            ELSE artifact.body::jsonb -> 'embedding' END AS call
          FROM evidence_artifact AS artifact
          WHERE {of_run} AND artifact_kind IN ('provider_call', 'retrieval_event') OFFSET 0) AS model_call"
    )
}

/// A sum limited to the range of `bigint`; null if all values are null. The `CASE` is needed because `least`
/// ignores null.
fn bounded_sum(values: &str, name: &str) -> String {
    format!("CASE WHEN count({values}) > 0 THEN least(sum({values}), 9223372036854775807)::bigint END AS {name}")
}

/// The sum of a number over model calls. It is limited, because a provider may report absurdly large counts.
fn sum_of(name: &str) -> String {
    bounded_sum(&format!("(call ->> '{name}')::numeric"), name)
}

fn sums() -> String {
    ["tokens_in", "tokens_out", "cost_micros"].map(sum_of).join(", ")
}

fn summaries_sql() -> String {
    // `OFFSET 0` makes PostgreSQL read the run first. Otherwise it may look up each run once for each workload.
    let joins = format!(
        "CROSS JOIN LATERAL (
            SELECT slug FROM workload
            WHERE workload.tenant_id = execution.tenant_id AND workload.workload_id = execution.workload_id OFFSET 0
         ) AS workload
         CROSS JOIN LATERAL (SELECT {} FROM {} OFFSET 0) AS used",
        sums(),
        model_calls(&run_condition("artifact"))
    );
    select_runs("execution.execution_id, workload.slug AS workload_slug, tokens_in, tokens_out, cost_micros", &joins)
}

/// Loads the summaries of runs, with usage that is computed from their evidence. Unknown identifiers are absent.
pub(super) async fn computed_summaries(
    database: &Database,
    scope: TenantScope,
    ids: &[ExecutionId],
) -> Result<HashMap<ExecutionId, RunUsageSummary>, StoreError> {
    static SUMMARIZE: Query = Query::from_fn(summaries_sql);
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let keys: Vec<(Uuid, Uuid)> = ids.iter().map(|id| (scope.tenant().uuid(), id.uuid())).collect();
    let input = input_of_runs(&keys);
    let rows = match ids.len() {
        1 => database.fetch(&SUMMARIZE, input).await?,
        // The read of a page of runs needs a list permit, so that one caller cannot occupy the connections of others.
        count => {
            let bytes = MAX_UNMEASURED_ROW_BYTES.saturating_mul(count).min(MAX_PAGE_MEMORY_BYTES);
            database.read_partitioned_list(bytes, SUMMARIZE.text(&input)?, &input.params()).await?
        }
    };
    let summary = |row: &Row| {
        Ok((
            row.id("execution_id")?,
            RunUsageSummary { workload_slug: row.column("workload_slug")?, usage: model_usage(row)? },
        ))
    };
    rows.iter().map(summary).collect()
}

pub(super) fn model_usage(row: &Row) -> Result<ModelUsage, StoreError> {
    Ok(ModelUsage {
        tokens_in: count(row, "tokens_in")?,
        tokens_out: count(row, "tokens_out")?,
        cost_micros: count(row, "cost_micros")?,
    })
}

fn count(row: &Row, name: &'static str) -> Result<Option<u64>, StoreError> {
    row.column::<Option<i64>>(name)?.map(|number| require_decoded(name, u64::try_from(number).ok())).transpose()
}

#[async_trait]
impl UsageStore for Database {
    async fn count_usage(
        &self,
        scope: TenantScope,
        filter: &UsageFilter,
        day: TimeRange,
        grouping: UsageGrouping,
        limit: u32,
    ) -> Result<Vec<DurationBucketTotals>, StoreError> {
        let (sql, values) = usage_sql(scope, filter, day, grouping, limit);
        let sql = values.number_names(sql)?;
        let rows = self.read_partitioned_list(MAX_PAGE_MEMORY_BYTES, &sql, &values.params()).await?;
        let key = |row: &Row| {
            let workload = match row.optional_id("workload_id")? {
                Some(id) => Some((id, row.column("workload_slug")?)),
                None => None,
            };
            let day = grouping.by_day.then(|| day.since.midnight());
            Ok::<_, StoreError>(UsageKey { workload, model: row.column("model")?, day })
        };
        let read = |row: &Row| {
            Ok(DurationBucketTotals {
                key: key(row)?,
                bucket: row.column("bucket")?,
                runs: count(row, "runs")?.unwrap_or_default(),
                failures: count(row, "failures")?.unwrap_or_default(),
                usage: model_usage(row)?,
            })
        };
        rows.iter().map(read).collect()
    }
}

/// The statement for the totals of a day. It reads each run that the caller sees once, with the run's model calls.
fn usage_sql(
    scope: TenantScope,
    filter: &UsageFilter,
    day: TimeRange,
    grouping: UsageGrouping,
    limit: u32,
) -> (String, Input<'static>) {
    let mut values = Input::of_params(scope);
    let first = values.bind("first_execution", smallest_uuid_v7_at(day.since));
    let end = values.bind("end_execution", smallest_uuid_v7_at(day.until));
    let in_time_range = |table: &str| format!("{table}.execution_id >= {first} AND {table}.execution_id < {end}");
    let mut conditions = vec![
        "entry.tenant_id = {tenant_id}".to_owned(),
        in_time_range("entry"),
        "entry.outcome IS NOT NULL".to_owned(),
    ];
    if let Some(workspace) = filter.workspace {
        conditions.push(format!("entry.workspace_id = {}", values.bind("workspace_id", workspace.uuid())));
    }
    if let Some(environment) = &filter.environment {
        conditions.push(format!("entry.environment = {}", values.bind("environment", environment.to_string())));
    }
    let list_filter = ExecutionFilter {
        workload: filter.workload,
        visible_scopes: filter.visible_scopes.clone(),
        ..ExecutionFilter::default()
    };
    let (with, arms) = visible_list_arms(&list_filter, "FROM execution AS entry", "entry", conditions, &mut values);
    let runs = arms.iter().map(run_rows).collect::<Vec<_>>().join(" UNION ALL ");
    let of_run = format!(
        "artifact.tenant_id = {{tenant_id}} AND artifact.execution_id = run.execution_id AND {}",
        in_time_range("artifact")
    );
    let (model, by_model) = match grouping.by_model {
        true => ("call ->> 'model'", "GROUP BY 1"),
        false => ("NULL::text", ""),
    };
    let workload = if grouping.by_workload { "run.workload_id" } else { "NULL::uuid" };
    let (sums, calls, limit) = (sums(), model_calls(&of_run), values.bind("max_rows", i64::from(limit)));
    let sql = format!(
        "{with} SELECT total.*, (SELECT slug FROM workload
                WHERE workload.tenant_id = {{tenant_id}} AND workload.workload_id = total.workload_id) AS workload_slug
         FROM (
            SELECT {workload} AS workload_id, used.model,
                round({doubling} * log(2, greatest(run.duration_ms, 1)))::int AS bucket,
                count(*) AS runs, count(*) FILTER (WHERE run.status = 'failed') AS failures,
                {total_in}, {total_out}, {total_cost}
            FROM ({runs}) AS run
            LEFT JOIN LATERAL (SELECT {model} AS model, {sums} FROM {calls} WHERE call IS NOT NULL {by_model} OFFSET 0) AS used ON true
            GROUP BY 1, 2, 3 LIMIT {limit}
         ) AS total",
        doubling = DurationBuckets::BUCKETS_PER_DOUBLING,
        total_in = total_of("tokens_in"),
        total_out = total_of("tokens_out"),
        total_cost = total_of("cost_micros"),
    );
    (sql, values)
}

fn total_of(name: &str) -> String {
    bounded_sum(&format!("used.{name}"), name)
}

/// A row source with the runs of a union arm and their duration in milliseconds.
fn run_rows(arm: &UnionArm) -> String {
    let rows = format!(
        "SELECT entry.execution_id, entry.workload_id, entry.status,
            (extract(epoch FROM entry.finished_at - entry.started_at) * 1000)::numeric AS duration_ms
         {} WHERE {}",
        arm.from,
        arm.conditions.join(" AND ")
    );
    match &arm.lateral {
        None => format!("({rows})"),
        Some(lateral) => format!("(SELECT item.* FROM {lateral} CROSS JOIN LATERAL ({rows}) AS item)"),
    }
}
