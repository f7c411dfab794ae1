//! Converts runs to tool results.

use super::{ExecutionResult, QueuedExecution, RunErrorView, review};
use crate::{builtin_tool::ToolResult, error::ApiError};
use fairway_domain::execution::Status;
use fairway_operations::{Failure, ToolRefusal, execution::ExecuteResponse as Run};
use serde::Serialize;
use uuid::Uuid;

/// Tool result of a run that was denied.
#[derive(Serialize)]
struct Denied {
    execution_id: Uuid,
    status: &'static str,
    error: RunErrorView,
    reason_code: String,
}

pub(crate) fn to_tool_result(run: &Run) -> Result<ToolResult, ApiError> {
    let execution = &run.execution;
    match execution.status {
        Status::Queued | Status::Running | Status::AwaitingReview => {
            let review = (execution.status == Status::AwaitingReview).then_some(super::REVIEW_PENDING);
            let result_token = run.result_token.as_ref().map(|token| token.reveal().to_owned());
            let (execution_id, state) = (execution.execution_id.uuid(), Status::Queued.as_str());
            ToolResult::new("queued", &QueuedExecution { execution_id, state, review, result_token })
        }
        Status::Completed => ToolResult::new("success", &execution_result(run)?),
        Status::Failed | Status::Cancelled | Status::Unknown => ToolResult::new("failed", &execution_result(run)?),
        Status::Denied => {
            let refusal = review::denied_error(execution);
            let (code, message) = (refusal.code().to_owned(), refusal.message().to_owned());
            let reason_code = execution.reason_code.clone();
            let (execution_id, status) = (execution.execution_id.uuid(), execution.status.as_str());
            let error = RunErrorView { code, message };
            ToolResult::new("failed", &Denied { execution_id, status, error, reason_code })
        }
    }
}

/// The stored result. A malformed result has an error code of its own, so that the caller does not repeat the call.
fn execution_result(run: &Run) -> Result<ExecutionResult, ApiError> {
    let result_token = run.result_token.as_ref().map(|token| token.reveal().to_owned());
    let malformed = |_| ApiError::from(Failure::from(ToolRefusal::ResponseMalformed(run.execution.execution_id)));
    Ok(ExecutionResult { result_token, ..ExecutionResult::of(&run.execution).map_err(malformed)? })
}
