//! Maps refusals of use cases, of their bundle plans and of generations to error responses.

use super::{ApiError, FieldProblem};
use crate::http::deserialize_error::truncate_path;
use actix_web::http::StatusCode;
use fairway_domain::use_case::{UseCaseRefusal, UseCaseStatus, bundle::BundleRefusal};
use fairway_operations::generator::GenerateRefusal;
use serde_json::{Value, json};

/// Maps the refusal of a change of a use case. The response contains the connection names of the caller's own
/// bundle.
pub(super) fn map_use_case_refusal(refusal: UseCaseRefusal) -> ApiError {
    let (code, message) = (refusal.code(), refusal.to_string());
    match refusal {
        UseCaseRefusal::InvalidTransition { from } => {
            let valid: Vec<&str> = from.valid_transitions().iter().copied().map(UseCaseStatus::as_str).collect();
            ApiError::new(StatusCode::CONFLICT, code, "the current state does not allow this transition")
                .with_detail("current_state", from.as_str())
                .with_detail("valid_transitions", valid)
        }
        UseCaseRefusal::ConnectionsMissing(names) => {
            ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, code, message).with_detail("connections", names)
        }
        UseCaseRefusal::ConnectionsUnresolved(names) => {
            ApiError::new(StatusCode::CONFLICT, code, message).with_detail("connections", names)
        }
        UseCaseRefusal::ModelPolicyUnavailable | UseCaseRefusal::PlanNotPublishable => {
            ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, code, message)
        }
        UseCaseRefusal::DescriptionChanged => FieldProblem::new("description", code, message).into(),
        UseCaseRefusal::RefinementKeyConflict => ApiError::new(StatusCode::CONFLICT, code, message),
    }
}

/// Maps the refusal of a bundle plan. The response contains no value of the plan.
pub(super) fn map_bundle_refusal(refusal: BundleRefusal) -> ApiError {
    match refusal {
        BundleRefusal::Invalid(problems) => ApiError::validation(
            problems
                .into_iter()
                .map(|problem| FieldProblem::new(truncate_path(problem.path), problem.code, problem.message))
                .collect(),
        ),
        BundleRefusal::Redacted => ApiError::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "redacted_bundle",
            "the bundle has references that you may not see; an administrator must create it",
        ),
    }
}

pub(super) fn map_generate_refusal(refusal: GenerateRefusal) -> ApiError {
    let (code, message) = (refusal.code(), refusal.to_string());
    match refusal {
        GenerateRefusal::InlineUnavailable => ApiError::new(StatusCode::CONFLICT, code, message),
        GenerateRefusal::Unavailable(None) => ApiError::new(StatusCode::SERVICE_UNAVAILABLE, code, message),
        GenerateRefusal::Unavailable(Some(id)) => {
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, code, message).with_detail("execution_id", id.to_string())
        }
        GenerateRefusal::Denied { execution_id, reason_code } => ApiError::new(StatusCode::FORBIDDEN, code, message)
            .with_detail("execution_id", execution_id.to_string())
            .with_detail("reason_code", reason_code),
        GenerateRefusal::Invalid { execution_id, problems } => {
            let problem = |(path, code): (&str, &str)| json!({ "path": path, "code": code });
            let problems: Vec<Value> = problems.into_iter().map(problem).collect();
            let error = ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, code, message)
                .with_detail("execution_id", execution_id.to_string());
            if problems.is_empty() { error } else { error.with_detail("problems", problems) }
        }
    }
}
