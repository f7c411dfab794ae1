//! Route that lists runs.

use super::{ExecutionView, review};
use crate::{
    caller::IdentifiedCaller,
    compose::Api,
    error::{ApiError, FieldErrors, FieldProblem},
    http::paging::ListRequest,
    openapi::{PageParams, ReadRefusals},
    release::{parse_environment, parse_lane},
};
use actix_web::{HttpResponse, get, web};
use fairway_domain::{access::ActorRef, execution::Status, slug::Slug, time::Timestamp};
use fairway_operations::execution::ExecutionQuery;
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;

/// Filters of the list of runs.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ExecutionListQuery {
    /// Only runs of this workload.
    workload_id: Option<Uuid>,
    /// Only runs of this release.
    release_id: Option<Uuid>,
    /// Only runs in this status.
    status: Option<String>,
    /// Only runs in this environment.
    environment: Option<String>,
    /// Only runs on this lane.
    lane: Option<String>,
    /// Only runs that ended with this error code, such as `deadline_exceeded`.
    error_code: Option<String>,
    /// Only runs of this submitter, such as `user:ada`.
    submitted_by: Option<String>,
    /// `pending`: only runs whose result awaits a human review, which have the status `awaiting_review`.
    review: Option<String>,
    /// Only runs that started at or after this time, to the millisecond.
    #[param(format = DateTime)]
    since: Option<String>,
    /// Only runs that started before this time, to the millisecond.
    #[param(format = DateTime)]
    until: Option<String>,
}

/// Lists runs without their results, newest first.
#[utoipa::path(
    operation_id = "list_executions",
    tag = "executions",
    params(ExecutionListQuery, PageParams),
    responses((status = 200, description = "A page of runs", body = Vec<ExecutionView>), ReadRefusals)
)]
#[get("/v1/executions")]
pub(crate) async fn list_executions(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    list: ListRequest<ExecutionListQuery>,
) -> Result<HttpResponse, ApiError> {
    let filter = &list.filter;
    let status = filter.status.as_deref();
    let status = status.map(|text| Status::parse(text).ok_or_else(|| FieldProblem::invalid("status"))).transpose();
    let mut fields = FieldErrors::default();
    let status = fields.check(status.and_then(|status| review::status_filter(status, filter.review.as_deref())));
    let environment = fields.check(parse_environment_filter(filter.environment.as_deref()));
    let lane = fields.check(parse_lane(filter.lane.as_deref()));
    let error_code = fields.check(parse_error_code(filter.error_code.as_deref()));
    let submitted_by = fields.check(parse_submitter(filter.submitted_by.as_deref()));
    let since = fields.check(parse_time("since", filter.since.as_deref()));
    let until = fields.check(parse_time("until", filter.until.as_deref()));
    let query = fields.finish(|| {
        Some(ExecutionQuery {
            workload_id: filter.workload_id.map(Into::into),
            release_id: filter.release_id.map(Into::into),
            status: status?,
            environment: environment?,
            lane: lane?,
            error_code: error_code?,
            submitted_by: submitted_by?,
            since: since?,
            until: until?,
        })
    })?;
    let executions = api.services.execution_reader.list_executions(&caller, query, list.paging()).await?;
    Ok(list.respond(&executions.try_map(|row| ExecutionView::of_listed(&row))?))
}

pub(crate) fn parse_environment_filter(text: Option<&str>) -> Result<Option<Slug>, FieldProblem> {
    text.map(parse_environment).transpose()
}

/// Maximum length of an error code.
pub(crate) const MAX_ERROR_CODE: usize = 64;

fn parse_error_code(text: Option<&str>) -> Result<Option<String>, FieldProblem> {
    let is_code = |text: &str| {
        text.len() <= MAX_ERROR_CODE
            && text.starts_with(|character: char| character.is_ascii_lowercase())
            && text.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'))
    };
    let rule = "must be an error code: lowercase letters, digits and `_`";
    match text {
        Some(text) if !is_code(text) => Err(FieldProblem::new("error_code", "invalid", rule)),
        text => Ok(text.map(str::to_owned)),
    }
}

fn parse_submitter(text: Option<&str>) -> Result<Option<ActorRef>, FieldProblem> {
    let rule = "must be an actor, such as user:ada";
    text.map(ActorRef::parse).transpose().map_err(|_| FieldProblem::new("submitted_by", "invalid", rule))
}

/// Parses a time filter of a list.
pub(crate) fn parse_time(name: &str, text: Option<&str>) -> Result<Option<Timestamp>, FieldProblem> {
    let parse = |text| Timestamp::parse(text).ok_or(());
    let rule = "must be a time in RFC 3339 format, such as 2026-01-31T12:00:00Z";
    text.map(parse).transpose().map_err(|_| FieldProblem::new(name, "invalid", rule))
}
