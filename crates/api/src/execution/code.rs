//! Running scripts of agents.

use super::{ErrorView, QueuedExecution, answer, marked, naming, review, stored};
use crate::{
    caller::Visitor,
    compose::Api,
    document::{ErrorBody, KeyParams, WriteRefusals},
    error::{ApiError, FieldProblem, Fields},
    http::{
        body::{Names, Untold},
        idempotency::Keyed,
        request_context::request_id,
    },
};
use actix_web::{HttpResponse, http::StatusCode, post, web};
use fairway_domain::{
    execution::{
        Status,
        code::{GatewayFailure, Language, Script, is_forbidden},
    },
    slug::Slug,
};
use fairway_operations::execution::{Answer as Run, Asks, ExecuteRequest, Patience};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

/// A script to run.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunCode {
    /// The workspace of the workload.
    workspace_id: Uuid,
    /// The workload under whose release and policy the script runs.
    workload_slug: String,
    /// The script, at most 262144 bytes.
    code: String,
    /// `starlark`: the result is the global `result`. `javascript`: it is the last expression, or what its promise comes to.
    language: String,
    /// The environment whose active release holds.
    environment: String,
}

impl Names for RunCode {
    fn is_forbidden(name: &str) -> bool {
        is_forbidden(name)
    }
}

/// A script that ended.
#[derive(Serialize, ToSchema)]
pub(crate) struct CodeResult {
    execution_id: Uuid,
    /// `completed` or `failed`; `cancelled` where somebody stopped it.
    status: &'static str,
    /// The result; null where there is none.
    result: Value,
    /// What the script said, and what its interpreter said of its errors.
    stdout: String,
    /// Why there is no result; null where there is one.
    error: Option<ErrorView>,
}

/// Longest script, in bytes.
const MOST_CODE: usize = 256 << 10;

/// Runs a script under the policy of a workload's release, once. It reaches no file, no network and no clock, has 64 MiB and
/// five seconds, and gives at most 64 KiB; a `sandbox_profile` that the release binds lowers that and says which languages may
/// run. It is never run again, whatever becomes of it.
#[utoipa::path(
    operation_id = "run_code",
    tag = "executions",
    params(KeyParams),
    request_body = RunCode,
    responses(
        (status = 200, description = "The script ended", body = CodeResult),
        (status = 202, description = "A person has to look at the result first, or its end is not stored yet", body = QueuedExecution),
        (status = 429, description = "Too many scripts of your tenant run", body = ErrorBody),
        (status = 502, description = "The runtime gateway gave no answer that can be read. With `gateway_error` the run that \
            `execution_id` names is `unknown`; with `gateway_unreachable` the script did not run", body = ErrorBody),
        (status = 504, description = "The runtime gateway gave no answer in time: the run that `execution_id` names is `unknown`", body = ErrorBody),
        WriteRefusals,
    )
)]
#[post("/v1/runtime/code")]
pub(crate) async fn run_code(
    api: web::Data<Api>,
    Visitor(arrival): Visitor,
    keyed: Keyed,
    Untold(body): Untold<RunCode>,
) -> Result<HttpResponse, ApiError> {
    let visit = api.services.receive(arrival).await?;
    let claims = visit.claims;
    let key = keyed.of_caller(&claims.actor, || body.digest());
    let RunCode { workspace_id, workload_slug, code, language, environment } = body.into_inner();
    let mut fields = Fields::default();
    let slug = |path: &'static str, text: &str| {
        Slug::parse(text).map_err(|refusal| FieldProblem::new(path, refusal.code(), "this is no slug"))
    };
    let environment = fields.read(slug("environment", &environment));
    let slug = fields.read(slug("workload_slug", &workload_slug));
    let language = fields.read(Language::parse(&language).ok_or_else(|| FieldProblem::invalid("language")));
    if code.len() > MOST_CODE {
        fields.note([FieldProblem::new("code", "too_long", "a script has at most 262144 bytes")]);
    }
    let wanted = fields.whole(|| {
        Some(ExecuteRequest {
            slug: slug?,
            environment: environment?,
            asks: Asks::Script { script: Script { language: language?, code }, workspace: workspace_id.into() },
            session: None,
            lane: None,
            on_behalf_of: None,
            pass: None,
            address: None,
            patience: Patience::End(None),
        })
    })?;
    let run = api.services.execute((api.mode, &claims, request_id()), &wanted, key.as_ref()).await?;
    if !run.replayed {
        api.metrics.execution(run.execution.status);
    }
    told(&run)
}

fn told(run: &Run) -> Result<HttpResponse, ApiError> {
    let execution = &run.execution;
    match execution.status {
        Status::Queued | Status::Running | Status::AwaitingReview => answer(run),
        Status::Denied => Err(naming(run, review::denied(execution))),
        Status::Unknown => {
            Err(naming(run, lost(GatewayFailure::Lost, execution.error.as_ref().map(|error| &error.code))))
        }
        Status::Completed | Status::Failed | Status::Cancelled => {
            let code = execution.error.as_ref().map(|error| &error.code);
            if code.is_some_and(|code| code == GatewayFailure::Unreachable.code()) {
                return Err(naming(run, lost(GatewayFailure::Unreachable, code)));
            }
            let (stdout, result) = match stored(execution)? {
                Some(stored) => (stored.stdout().unwrap_or_default(), stored.output),
                None => (String::new(), Value::Null),
            };
            Ok(marked(run, HttpResponse::Ok()).json(CodeResult {
                execution_id: execution.execution_id.uuid(),
                status: execution.status.as_str(),
                result,
                stdout,
                error: execution.error.as_ref().map(ErrorView::of),
            }))
        }
    }
}

/// What a caller is told where nobody said how its script came out.
fn lost(otherwise: GatewayFailure, code: Option<&String>) -> ApiError {
    let failure = code.and_then(|code| GatewayFailure::of_code(code)).unwrap_or(otherwise);
    let status = match failure {
        GatewayFailure::Unreachable | GatewayFailure::Lost => StatusCode::BAD_GATEWAY,
        GatewayFailure::TimedOut => StatusCode::GATEWAY_TIMEOUT,
    };
    ApiError::new(status, failure.code(), failure.to_string())
}
