//! Maps refusals of access requests to error responses.

use super::{ApiError, connection_refusal::map_connection_refusal};
use actix_web::http::StatusCode;
use fairway_domain::access_request::AccessRequestRefusal;

/// Maps the refusal to grant, deny or withdraw an access request.
pub(super) fn map_access_request_refusal(refusal: AccessRequestRefusal) -> ApiError {
    match refusal {
        AccessRequestRefusal::NotPending { status } => {
            let valid: Vec<&str> = Vec::new();
            ApiError::new(StatusCode::CONFLICT, "invalid_transition", refusal.to_string())
                .with_detail("current_state", status.as_str())
                .with_detail("valid_transitions", valid)
        }
        AccessRequestRefusal::Connection(refusal) => map_connection_refusal(refusal),
    }
}
