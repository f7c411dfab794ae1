//! Runs in lists.

use super::{ExecutionView, review};
use crate::{
    caller::Identified,
    compose::Api,
    document::{PageParams, ReadRefusals},
    error::{ApiError, FieldProblem, Fields},
    http::paging::List,
};
use actix_web::{HttpResponse, get, web};
use fairway_domain::{execution::Status, time::Timestamp};
use fairway_operations::execution::ExecutionQuery;
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;

/// Which runs to list.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ExecutionListQuery {
    /// Those of this workload.
    workload_id: Option<Uuid>,
    /// Those under this release.
    release_id: Option<Uuid>,
    /// Those in this status.
    status: Option<String>,
    /// `pending`: those whose answer a person has to look at first. They are the ones in the status `awaiting_review`.
    review: Option<String>,
    /// Those that began at this moment or later, to the millisecond.
    #[param(format = DateTime)]
    since: Option<String>,
    /// Those that began before this moment, to the millisecond.
    #[param(format = DateTime)]
    until: Option<String>,
}

/// Runs without their answers, newest first.
#[utoipa::path(
    operation_id = "list_executions",
    tag = "executions",
    params(ExecutionListQuery, PageParams),
    responses((status = 200, description = "A page of runs", body = Vec<ExecutionView>), ReadRefusals)
)]
#[get("/v1/executions")]
pub(crate) async fn list_executions(
    api: web::Data<Api>,
    caller: Identified,
    list: List<ExecutionListQuery>,
) -> Result<HttpResponse, ApiError> {
    let asked = &list.filter;
    let status = asked.status.as_deref();
    let status = status.map(|text| Status::parse(text).ok_or_else(|| FieldProblem::invalid("status"))).transpose();
    let mut fields = Fields::default();
    let status = fields.read(status.and_then(|status| review::of_status(status, asked.review.as_deref())));
    let since = fields.read(moment("since", asked.since.as_deref()));
    let until = fields.read(moment("until", asked.until.as_deref()));
    let query = fields.whole(|| {
        Some(ExecutionQuery {
            workload_id: asked.workload_id.map(Into::into),
            release_id: asked.release_id.map(Into::into),
            status: status?,
            since: since?,
            until: until?,
        })
    })?;
    let executions = api.services.list_executions(&caller, query, list.paging()).await?;
    Ok(list.answer(&executions.try_map(|execution| ExecutionView::of(&execution, None))?))
}

fn moment(name: &str, text: Option<&str>) -> Result<Option<Timestamp>, FieldProblem> {
    let read = |text| Timestamp::parse(text).ok_or(());
    let rule = "a moment is written as RFC 3339 says, such as 2026-01-31T12:00:00Z";
    text.map(read).transpose().map_err(|_| FieldProblem::new(name, "invalid", rule))
}
