//! Route that executes scripts of agents.

use super::{
    QueuedExecution, RunErrorView, parse_stored_output, respond, review, with_execution_id, with_replay_header,
};
use crate::{
    caller::RuntimeClient,
    compose::Api,
    error::{ApiError, FieldErrors, FieldProblem},
    http::{
        body::{BodyWithoutForbiddenNames, ForbiddenNames},
        idempotency::IdempotencyHeader,
        request_id_log_and_metrics::request_id_or_new,
    },
    openapi::{ErrorBody, IdempotencyKeyParams, WriteRefusals},
    value_rules::{self, RuleResult, limit},
};
use actix_web::{HttpResponse, http::StatusCode, post, web};
use fairway_domain::{
    execution::{
        Status,
        script::{GatewayFailure, Language, Script, is_forbidden_request_field},
    },
    slug::{MAX_SLUG, Slug},
};
use fairway_operations::execution::{ExecuteRequest, ExecuteResponse as Run, RunPayload, WaitMode};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;
use validator::Validate;

/// A script to execute.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunCode {
    /// The workspace that contains the workload.
    workspace_id: Uuid,
    /// The workload under whose release and policy the script runs.
    #[validate(length(min = 1, max = limit(MAX_SLUG)), custom(function = slug_rule))]
    workload_slug: String,
    /// The script, at most 262144 bytes.
    #[schema(max_length = 262_144)]
    #[validate(length(max = limit(MAX_CODE_BYTES)), custom(function = code_rule))]
    code: String,
    /// `starlark`: the result is the global `result`. `javascript`: the result is the last expression, or the value of
    /// its promise.
    #[validate(custom(function = language_rule))]
    language: String,
    /// The environment of the active release.
    #[validate(length(min = 1, max = limit(MAX_SLUG)), custom(function = slug_rule))]
    environment: String,
}

fn parse_slug(path: &'static str, text: &str) -> Result<Slug, FieldProblem> {
    Slug::parse(text).map_err(|refusal| FieldProblem::new(path, refusal.code(), format!("must be a slug: {refusal}")))
}

fn parse_language(text: &str) -> Result<Language, FieldProblem> {
    Language::parse(text).ok_or_else(|| FieldProblem::invalid("language"))
}

fn slug_rule(text: &str) -> RuleResult {
    value_rules::accept(parse_slug("workload_slug", text))
}

fn language_rule(text: &str) -> RuleResult {
    value_rules::accept(parse_language(text))
}

/// Checks the length of a script in bytes, because the rule `length` counts characters.
fn code_rule(code: &str) -> RuleResult {
    let problem = || FieldProblem::new("code", "too_long", "a script has at most 262144 bytes");
    value_rules::accept_unless((code.len() > MAX_CODE_BYTES).then(problem))
}

impl ForbiddenNames for RunCode {
    fn is_forbidden(name: &str) -> bool {
        is_forbidden_request_field(name)
    }
}

/// The result of an ended script.
#[derive(Serialize, ToSchema)]
pub(crate) struct CodeResult {
    execution_id: Uuid,
    /// `completed`, `failed` or `cancelled`.
    status: &'static str,
    /// The result; null if there is none.
    result: Value,
    /// Standard output of the script, and error messages of its interpreter.
    stdout: String,
    /// The error of a script without a result; null otherwise.
    error: Option<RunErrorView>,
}

/// Maximum length of a script, in bytes.
const MAX_CODE_BYTES: usize = 256 << 10;

/// Executes a script once, under the policy of a workload's release.
///
/// The script has no access to files, network or clock. Its limits are 64 MiB of memory, five seconds and 64 KiB of
/// output. A `sandbox_profile` that the release binds lowers the limits and selects the languages. The server never
/// retries a script.
#[utoipa::path(
    operation_id = "run_code",
    tag = "executions",
    params(IdempotencyKeyParams),
    request_body = RunCode,
    responses(
        (status = 200, description = "The script ended", body = CodeResult),
        (status = 202, description = "The result awaits a human review, or is not stored yet", body = QueuedExecution),
        (status = 429, description = "Your tenant runs too many scripts", body = ErrorBody),
        (status = 502, description = "The runtime gateway sent no valid response. With `gateway_error` the run \
            `execution_id` is `unknown`; with `gateway_unreachable` the script did not run", body = ErrorBody),
        (status = 504, description = "The runtime gateway did not respond in time: the run `execution_id` is `unknown`", body = ErrorBody),
        WriteRefusals,
    )
)]
#[post("/v1/runtime/code")]
pub(crate) async fn run_code(
    api: web::Data<Api>,
    RuntimeClient(runtime_request): RuntimeClient,
    idempotency: IdempotencyHeader,
    BodyWithoutForbiddenNames(body): BodyWithoutForbiddenNames<RunCode>,
) -> Result<HttpResponse, ApiError> {
    let runtime_caller = api.services.share_links.resolve_runtime_caller(runtime_request).await?;
    let claims = runtime_caller.claims;
    let key = idempotency.into_request_key(&claims.actor, || body.digest());
    let RunCode { workspace_id, workload_slug, code, language, environment } = body.into_inner();
    let mut fields = FieldErrors::default();
    let environment = fields.check(parse_slug("environment", &environment));
    let slug = fields.check(parse_slug("workload_slug", &workload_slug));
    let language = fields.check(parse_language(&language));
    let request = fields.finish(|| {
        Some(ExecuteRequest {
            slug: slug?,
            environment: environment?,
            payload: RunPayload::Script {
                script: Script { language: language?, code },
                workspace: workspace_id.into(),
            },
            session: None,
            lane: None,
            on_behalf_of: None,
            link: None,
            address: None,
            wait: WaitMode::End(None),
        })
    })?;
    let run = api.services.executions.execute(api.mode, &claims, request_id_or_new(), &request, key.as_ref()).await?;
    respond_to_script(&run)
}

fn respond_to_script(run: &Run) -> Result<HttpResponse, ApiError> {
    let execution = &run.execution;
    match execution.status {
        Status::Queued | Status::Running | Status::AwaitingReview => respond(run),
        Status::Denied => Err(with_execution_id(run, review::denied_error(execution))),
        Status::Unknown => Err(with_execution_id(
            run,
            outcome_error(GatewayFailure::Lost, execution.error.as_ref().map(|error| &error.code)),
        )),
        Status::Completed | Status::Failed | Status::Cancelled => {
            let code = execution.error.as_ref().map(|error| &error.code);
            if code.is_some_and(|code| code == GatewayFailure::Unreachable.code()) {
                return Err(with_execution_id(run, outcome_error(GatewayFailure::Unreachable, code)));
            }
            let (stdout, result) = match parse_stored_output(execution)? {
                Some(stored) => (stored.stdout().unwrap_or_default(), stored.output),
                None => (String::new(), Value::Null),
            };
            Ok(with_replay_header(run, HttpResponse::Ok()).json(CodeResult {
                execution_id: execution.execution_id.uuid(),
                status: execution.status.as_str(),
                result,
                stdout,
                error: execution.error.as_ref().map(RunErrorView::of),
            }))
        }
    }
}

/// The error for a script with an unknown outcome. `fallback` applies if `code` is not the code of a gateway
/// failure.
fn outcome_error(fallback: GatewayFailure, code: Option<&String>) -> ApiError {
    let failure = code.and_then(|code| GatewayFailure::from_code(code)).unwrap_or(fallback);
    let status = match failure {
        GatewayFailure::Unreachable | GatewayFailure::Lost => StatusCode::BAD_GATEWAY,
        GatewayFailure::TimedOut => StatusCode::GATEWAY_TIMEOUT,
    };
    ApiError::new(status, failure.code(), failure.to_string())
}
