//! Routes that execute workloads and read runs.

pub(crate) mod cancel;
mod delegation_refusal;
pub(crate) mod events;
pub(crate) mod list;
mod prefer;
pub(crate) mod resolve_unknown;
pub(crate) mod review;
pub(crate) mod script;
pub(crate) mod tool_result;
pub(crate) mod usage;
mod view;

use crate::memory::parse_session;
use crate::{
    caller::{RuntimeClient, check_actor_header, result_token_hash},
    compose::Api,
    error::{ApiError, FieldErrors, FieldProblem},
    http::{
        HttpState,
        body::{Body, deserialize_present},
        idempotency::{IDEMPOTENCY_REPLAYED, IdempotencyHeader},
        path::PathId,
        query::Query,
        request_id_log_and_metrics::request_id_or_new,
    },
    openapi::{ErrorBody, IdempotencyKeyParams, ReadRefusals, ShareTokenParams, WriteRefusals},
    release::{parse_environment, parse_lane},
    response::ResourceResponse,
    value_rules::{self, limit},
};
use actix_web::{
    HttpRequest, HttpResponse, HttpResponseBuilder, get,
    http::{StatusCode, header::LOCATION},
    post, web,
};
use fairway_domain::{
    access::{Caller, on_behalf_of_fields::OnBehalfOfFields},
    execution::{Execution, RunError, Status},
    id::ExecutionId,
    memory::MAX_SESSION_CHARS,
    share_link::{TokenHash, is_guest},
    slug::{MAX_SLUG, Slug},
};
use fairway_operations::{
    execution::{ExecuteRequest, ExecuteResponse as Run, RunPayload, WaitMode},
    share_link::RuntimeRequest,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;
use validator::Validate;
pub(crate) use view::ExecutionView;

/// Request to run a workload.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub(crate) struct Execute {
    /// The environment whose active release runs.
    #[validate(length(min = 1, max = limit(MAX_SLUG)), custom(function = value_rules::environment))]
    environment: String,
    /// Input values by field name.
    #[schema(value_type = Option<Object>)]
    inputs: Option<Map<String, Value>>,
    /// Lane of the run: `restricted`, `guided` or `standard`. If no release holds the lane, the next more general lane
    /// applies. The caller needs the permission `release.transition`. Default: the lane of your principal binding, else
    /// `standard`.
    #[validate(custom(function = value_rules::lane))]
    lane: Option<String>,
    /// The conversation of the run: 1 to 128 letters, digits and `._:@+=~-`. If the release binds a `memory`, the
    /// prompt includes earlier turns of the conversation.
    #[validate(length(min = 1, max = limit(MAX_SESSION_CHARS)), custom(function = value_rules::session))]
    session_id: Option<String>,
    /// Must be `on_behalf_of`: the run then belongs to `actor_ref`. Only trusted services may send this field and the
    /// three fields below.
    #[serde(default, deserialize_with = "deserialize_present")]
    #[schema(value_type = String, required = false)]
    execution_mode: Option<Value>,
    /// The actor of the run: `user:<name>` or `service:<name>`, bound to the workload.
    #[serde(default, deserialize_with = "deserialize_present")]
    #[schema(value_type = String, required = false)]
    actor_ref: Option<Value>,
    /// Kind of `actor_ref`: `user` or `service`.
    #[serde(default, deserialize_with = "deserialize_present")]
    #[schema(value_type = String, required = false)]
    actor_type: Option<Value>,
    /// Authentication mode of the server: `local` or `oidc`.
    #[serde(default, deserialize_with = "deserialize_present")]
    #[schema(value_type = String, required = false)]
    actor_auth_mode: Option<Value>,
}

/// Query parameter that selects how the request waits for the run.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ExecuteQuery {
    /// `async` queues the run and responds without waiting for its end.
    mode: Option<String>,
}

/// An ended run with its result.
#[derive(Serialize, ToSchema)]
pub(crate) struct ExecutionResult {
    execution_id: Uuid,
    /// `completed` or `failed`.
    status: &'static str,
    /// The result; null if there is none.
    output: Value,
    /// Metadata that the providers returned, by step.
    metadata: Value,
    /// The error of a run without a result; null for other runs.
    error: Option<RunErrorView>,
    #[schema(format = DateTime)]
    started_at: String,
    #[schema(format = DateTime)]
    completed_at: Option<String>,
    /// For a run of `anonymous`, returned only once: the token that reads the run. Send it as `X-Result-Token`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    result_token: Option<String>,
}

/// A run that has not ended, as the response to its submission.
#[derive(Serialize, ToSchema)]
pub(crate) struct QueuedExecution {
    execution_id: Uuid,
    /// Always `queued`, whether or not the run has started.
    state: &'static str,
    /// `pending` if the steps have ended and the result awaits a human review.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    review: Option<&'static str>,
    /// For a run of `anonymous`, returned only once: the token that reads the run. Send it as `X-Result-Token`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    result_token: Option<String>,
}

/// The error with which a run ended.
#[derive(Serialize, ToSchema)]
#[schema(as = RunError)]
pub(crate) struct RunErrorView {
    code: String,
    message: String,
}

impl RunErrorView {
    fn of(error: &RunError) -> Self {
        Self { code: error.code.clone(), message: error.message.clone() }
    }
}

/// The stored result: output and provider metadata.
#[derive(Deserialize)]
struct StoredOutput {
    output: Value,
    metadata: Value,
}

impl StoredOutput {
    /// Standard output of a script. The metadata of other runs contains only objects, one for each step.
    fn stdout(&self) -> Option<String> {
        self.metadata.get("stdout").and_then(Value::as_str).map(str::to_owned)
    }
}

impl ExecutionResult {
    fn of(execution: &Execution) -> Result<Self, ApiError> {
        let (output, metadata) = parse_stored_output(execution)?
            .map_or((Value::Null, Value::Null), |stored| (stored.output, stored.metadata));
        Ok(Self {
            execution_id: execution.execution_id.uuid(),
            status: execution.status.as_str(),
            output,
            metadata,
            error: execution.error.as_ref().map(RunErrorView::of),
            started_at: execution.started_at.to_string(),
            completed_at: execution.finished_at.map(|at| at.to_string()),
            result_token: None,
        })
    }
}

fn parse_stored_output(execution: &Execution) -> Result<Option<StoredOutput>, ApiError> {
    execution
        .output
        .as_deref()
        .map(serde_json::from_str)
        .transpose()
        .map_err(|error| ApiError::internal().log_cause(&error))
}

/// Executes a workload and returns its result.
#[utoipa::path(
    operation_id = "execute_workload",
    tag = "executions",
    params(
        ("slug" = String, Path, description = "The workload's slug"),
        ExecuteQuery,
        ("Prefer" = Option<String>, Header, description = "`respond-async` for a queued run, `wait=n` to wait at most n seconds"),
        ShareTokenParams,
        IdempotencyKeyParams,
    ),
    request_body = Execute,
    responses(
        (
            status = 200,
            description = "The run ended; with `Accept: text/event-stream`, its events as a stream. For `anonymous` and \
                holders of share links, a repeated key returns only `execution_id` and `state`",
            body = ExecutionResult,
        ),
        (status = 202, description = "The run has not ended", body = QueuedExecution),
        (status = 429, description = "The queue of runs is full, or the rate limit of a public workload is exceeded", body = ErrorBody),
        WriteRefusals,
    )
)]
#[post("/v1/workloads/by-slug/{slug}/execute")]
pub(crate) async fn execute_workload(
    request: HttpRequest,
    api: web::Data<Api>,
    RuntimeClient(runtime_request): RuntimeClient,
    slug: web::Path<String>,
    idempotency: IdempotencyHeader,
    query: Query<ExecuteQuery>,
    body: Body<Execute>,
) -> Result<HttpResponse, ApiError> {
    // A malformed slug cannot name a workload, so the response is 404.
    let slug = Slug::parse(&slug).map_err(|_| ApiError::not_found())?;
    let runtime_caller = api.services.share_links.resolve_runtime_caller(runtime_request.clone()).await?;
    let claims = runtime_caller.claims;
    let key = idempotency.into_request_key(&claims.actor, || body.digest());
    let Execute {
        environment,
        inputs,
        lane: requested_lane,
        session_id,
        execution_mode,
        actor_ref,
        actor_type,
        actor_auth_mode,
    } = body.into_inner();
    let delegation = OnBehalfOfFields { execution_mode, actor_ref, actor_type, actor_auth_mode };
    let on_behalf_of = api.services.executions.delegated_subject(api.mode, &claims, &delegation)?;
    check_actor_header(&request, on_behalf_of.as_ref())?;
    let mut fields = FieldErrors::default();
    let (environment, lane) =
        (fields.check(parse_environment(&environment)), fields.check(parse_lane(requested_lane.as_deref())));
    let session = fields.check(parse_session(session_id.as_deref()));
    let wait = fields.check(prefer::wait_mode(request.headers(), query.mode.as_deref()));
    let payload = RunPayload::Inputs(inputs.unwrap_or_default());
    let (link, address) = (runtime_caller.link, Some(runtime_caller.address));
    let execute_request = fields.finish(|| {
        let (environment, lane, session, wait) = (environment?, lane?, session?, wait?);
        Some(ExecuteRequest { slug, environment, payload, lane, session, wait, on_behalf_of, link, address })
    })?;
    let run =
        api.services.executions.execute(api.mode, &claims, request_id_or_new(), &execute_request, key.as_ref()).await?;
    if run.replayed && is_guest(claims.actor.kind()) {
        return replay_to_guest(&run);
    }
    let base = request.app_data::<web::Data<HttpState>>().ok_or_else(ApiError::internal)?;
    // If the stream cannot be opened, the client still gets the id and token of the accepted run, so that it can read
    // the run later.
    if execute_request.wait == WaitMode::Acceptance
        && run.execution.status != Status::Denied
        && let Some(stream) = events::stream_accepted_run(&api, base, &run, runtime_request).await
    {
        return Ok(stream);
    }
    respond(&run)
}

/// Value of the field `review` for a result that awaits a human review.
const REVIEW_PENDING: &str = "pending";

/// The response for a guest that repeats an idempotency key. Another guest may have sent that key first, so the
/// response contains only the id and state.
fn replay_to_guest(run: &Run) -> Result<HttpResponse, ApiError> {
    let Execution { execution_id: id, status, .. } = run.execution;
    match status {
        Status::Queued | Status::Running | Status::AwaitingReview => respond(run),
        Status::Denied => {
            let error = ApiError::new(StatusCode::FORBIDDEN, "policy_denied", "the policy does not allow this run");
            Err(with_execution_id(run, error).with_detail("state", status.as_str()))
        }
        Status::Completed | Status::Failed | Status::Cancelled | Status::Unknown => {
            let view =
                QueuedExecution { execution_id: id.uuid(), state: status.as_str(), review: None, result_token: None };
            Ok(with_replay_header(run, HttpResponse::Ok()).json(view))
        }
    }
}

/// Adds the run's id to an error.
fn with_execution_id(run: &Run, error: ApiError) -> ApiError {
    let error = error.with_detail("execution_id", run.execution.execution_id.to_string());
    let replayed = actix_web::http::header::HeaderValue::from_static("true");
    if run.replayed { error.with_header(IDEMPOTENCY_REPLAYED, replayed) } else { error }
}

fn respond(run: &Run) -> Result<HttpResponse, ApiError> {
    let execution = &run.execution;
    let id = execution.execution_id;
    let with_id = |error: ApiError| with_execution_id(run, error);
    let accepted_response = || {
        let mut response = with_replay_header(run, HttpResponse::Accepted());
        response.insert_header((LOCATION, format!("/v1/executions/{id}")));
        let result_token = run.result_token.as_ref().map(|token| token.reveal().to_owned());
        // A caller that requested a queued run does not wait for the result, so the response omits the review.
        let review = (execution.status == Status::AwaitingReview && !run.is_queued_only).then_some(REVIEW_PENDING);
        let state = Status::Queued.as_str();
        Ok(response.json(QueuedExecution { execution_id: id.uuid(), state, review, result_token }))
    };
    // A caller that requested a queued run gets 202, even if the run has ended since.
    if run.is_queued_only {
        return accepted_response();
    }
    match execution.status {
        Status::Queued | Status::Running | Status::AwaitingReview => accepted_response(),
        Status::Denied => Err(with_id(review::denied_error(execution))),
        Status::Completed | Status::Failed | Status::Cancelled | Status::Unknown => {
            if let Some(error) = &execution.error
                && let Some(code) = error.caller_fixable_code()
            {
                let message = error.message.clone();
                let refusal = with_id(ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, code, message));
                return Err(match error.offset {
                    Some(offset) => refusal.with_detail("offset", offset),
                    None => refusal,
                });
            }
            let result_token = run.result_token.as_ref().map(|token| token.reveal().to_owned());
            let view = ExecutionResult { result_token, ..ExecutionResult::of(execution)? };
            Ok(with_replay_header(run, HttpResponse::Ok()).json(view))
        }
    }
}

fn with_replay_header(run: &Run, mut response: HttpResponseBuilder) -> HttpResponseBuilder {
    if run.replayed {
        response.insert_header((IDEMPOTENCY_REPLAYED, "true"));
    }
    response
}

/// Identifies the caller of a run's routes. Requests of guests count towards the rate limit of the workload.
async fn identify_runtime_caller(
    api: &Api,
    runtime_request: RuntimeRequest,
    execution: ExecutionId,
    token: Option<&TokenHash>,
) -> Result<Caller, ApiError> {
    let runtime_caller = api.services.share_links.resolve_runtime_caller(runtime_request).await?;
    let caller = api.services.identities.resolve_caller(api.mode, &runtime_caller.claims, request_id_or_new()).await?;
    api.services.execution_reader.enforce_guest_rate_limit(&caller, execution, token, runtime_caller.address).await?;
    Ok(caller)
}

/// Query parameter that requests optional parts of the response.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ReadQuery {
    /// `citations` adds the retrieved documents that the result cites to the response.
    include: Option<String>,
}

/// Reads a run with its status, steps and result.
#[utoipa::path(
    operation_id = "read_execution",
    tag = "executions",
    params(
        ("execution_id" = Uuid, Path, description = "The run"),
        ReadQuery,
        ShareTokenParams,
        ("X-Result-Token" = Option<String>, Header, description = "The result token of a run of `anonymous`"),
    ),
    responses(
        (status = 200, description = "The run", body = ExecutionView),
        (status = 429, description = "Too many attempts with share tokens, or the rate limit of a public workload is exceeded", body = ErrorBody),
        ReadRefusals,
    )
)]
#[get("/v1/executions/{execution_id}")]
pub(crate) async fn read_execution(
    request: HttpRequest,
    api: web::Data<Api>,
    RuntimeClient(runtime_request): RuntimeClient,
    execution: PathId<ExecutionId>,
    query: Query<ReadQuery>,
) -> Result<HttpResponse, ApiError> {
    let includes_citations = match query.include.as_deref() {
        None => false,
        Some("citations") => true,
        Some(_) => return Err(FieldProblem::new("include", "invalid", "must be `citations`").into()),
    };
    let token = result_token_hash(request.headers())?;
    let caller = identify_runtime_caller(&api, runtime_request, *execution, token.as_ref()).await?;
    let detail = api.services.execution_reader.execution_detail(&caller, *execution, token.as_ref()).await?;
    let mut view = ExecutionView::of_detail(&detail)?;
    if includes_citations {
        view.add_citations(api.services.citations.of_result(&caller, &detail.execution).await?);
    }
    Ok(ResourceResponse::ok(&view).into_response())
}
