//! Maps refusals of erasures to error responses.

use super::{ApiError, FieldProblem};
use actix_web::http::StatusCode;
use fairway_domain::erasure::ErasureRefusal;

pub(super) fn map_erasure_refusal(refusal: ErasureRefusal) -> ApiError {
    let message = refusal.to_string();
    match refusal {
        ErasureRefusal::Subject => FieldProblem::new("subject", "invalid", message).into(),
        ErasureRefusal::SelfApproval => ApiError::new(StatusCode::FORBIDDEN, "self_approval_not_allowed", message),
        ErasureRefusal::NotRequested { status } => {
            let valid: Vec<&str> = Vec::new();
            ApiError::new(StatusCode::CONFLICT, "invalid_transition", message)
                .with_detail("current_state", status.as_str())
                .with_detail("valid_transitions", valid)
        }
        // Only the background task completes an erasure, so no client can cause this refusal.
        ErasureRefusal::NotApproved => ApiError::internal().log_cause(&refusal),
    }
}
