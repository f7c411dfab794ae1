//! Route that reports the usage of ended runs.

use super::list::{parse_environment_filter, parse_time};
use crate::{
    caller::IdentifiedCaller,
    compose::Api,
    error::{ApiError, FieldErrors, FieldProblem},
    http::query::Query,
    openapi::ReadRefusals,
    response::ResourceResponse,
};
use actix_web::{HttpResponse, get, web};
use fairway_domain::execution::usage::{UsageGrouping, UsageKey, UsageTotal};
use fairway_operations::execution::UsageQuery;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

/// Filters and grouping of the report.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct UsageParams {
    /// Only runs of this workload.
    workload_id: Option<Uuid>,
    /// Only runs of workloads in this workspace.
    workspace_id: Option<Uuid>,
    /// Only runs in this environment.
    environment: Option<String>,
    /// Only runs that started at or after this time, to the millisecond; default: 30 days before `until`. The range
    /// has at most 92 days.
    #[param(format = DateTime)]
    since: Option<String>,
    /// Only runs that started before this time, to the millisecond; default: now.
    #[param(format = DateTime)]
    until: Option<String>,
    /// The properties by which the rows are grouped, separated by commas: `workload`, `model`, `day`; default
    /// `workload`.
    group_by: Option<String>,
}

/// Totals of the ended runs in one group.
#[derive(Serialize, ToSchema)]
#[schema(as = Usage)]
pub(crate) struct UsageView {
    /// The workload; null unless the rows are grouped by workload.
    workload_id: Option<Uuid>,
    /// The slug of the workload; null unless the rows are grouped by workload.
    workload_slug: Option<String>,
    /// The model; null for runs without a model call, or if the rows are not grouped by model. A run that called
    /// several models counts in the row of each model.
    model: Option<String>,
    /// The day in UTC on which the runs started; null unless the rows are grouped by day.
    #[schema(format = Date)]
    day: Option<String>,
    /// The number of ended runs, including denied and cancelled ones.
    runs: u64,
    /// The number of runs with the status `failed`.
    failures: u64,
    /// Input tokens; null if no provider reported any.
    tokens_in: Option<u64>,
    /// Output tokens; null if no provider reported any.
    tokens_out: Option<u64>,
    /// Cost in millionths of the currency of the account's prices; null without prices.
    cost_micros: Option<u64>,
    /// Median duration of the runs in milliseconds, accurate to 5 per cent.
    p50_ms: Option<u64>,
    /// 95th percentile of the runs' durations in milliseconds, accurate to 5 per cent.
    p95_ms: Option<u64>,
}

impl UsageView {
    fn of((key, total): (UsageKey, UsageTotal)) -> Self {
        let (workload_id, workload_slug) = key.workload.unzip();
        // The date of an RFC 3339 text has ten characters.
        let day = key.day.map(|day| day.to_string().chars().take(10).collect());
        Self {
            workload_id: workload_id.map(|id| id.uuid()),
            workload_slug,
            model: key.model,
            day,
            runs: total.runs,
            failures: total.failures,
            tokens_in: total.usage.tokens_in,
            tokens_out: total.usage.tokens_out,
            cost_micros: total.usage.cost_micros,
            p50_ms: total.durations.percentile_ms(50),
            p95_ms: total.durations.percentile_ms(95),
        }
    }
}

/// Reports totals of the ended runs that the caller may view, with their tokens and cost.
///
/// Rows of the newest day come first, then the rows with the most runs.
#[utoipa::path(
    operation_id = "read_usage",
    tag = "executions",
    params(UsageParams),
    responses((status = 200, description = "The totals, at most 1000 rows", body = Vec<UsageView>), ReadRefusals)
)]
#[get("/v1/usage")]
pub(crate) async fn read_usage(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    params: Query<UsageParams>,
) -> Result<HttpResponse, ApiError> {
    let mut fields = FieldErrors::default();
    let environment = fields.check(parse_environment_filter(params.environment.as_deref()));
    let since = fields.check(parse_time("since", params.since.as_deref()));
    let until = fields.check(parse_time("until", params.until.as_deref()));
    let grouping = UsageGrouping::parse(params.group_by.as_deref().unwrap_or("workload")).ok_or_else(|| {
        FieldProblem::new(
            "group_by",
            "invalid",
            "must be `workload`, `model` or `day`, or several, separated by commas",
        )
    });
    let grouping = fields.check(grouping);
    let query = fields.finish(|| {
        Some(UsageQuery {
            workload_id: params.workload_id.map(Into::into),
            workspace_id: params.workspace_id.map(Into::into),
            environment: environment?,
            since: since?,
            until: until?,
            grouping: grouping?,
        })
    })?;
    let report = api.services.usage_reports.read_usage(&caller, query).await?;
    let rows: Vec<UsageView> = report.into_rows().into_iter().map(UsageView::of).collect();
    Ok(ResourceResponse::ok(&rows).into_response())
}
