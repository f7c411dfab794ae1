//! The error response for a verified identity that is not served.

use super::ApiError;
use crate::http::authentication::challenge;
use actix_web::http::StatusCode;
use fairway_domain::access::identity::IdentityRefusal;

/// Maps the refusal of a verified identity. The response names the claim that people have to configure, and never its
/// value.
pub(super) fn map_identity_refusal(refusal: &IdentityRefusal) -> ApiError {
    match (refusal, challenge()) {
        (IdentityRefusal::NameTaken, Some(challenge)) => ApiError::unauthenticated(challenge),
        (IdentityRefusal::TenantMissing { claim } | IdentityRefusal::TenantUnknown { claim: Some(claim) }, _) => {
            ApiError::new(StatusCode::FORBIDDEN, refusal.code(), refusal.to_string())
                .with_detail("claim", claim.as_str())
        }
        (
            IdentityRefusal::NameTaken
            | IdentityRefusal::TenantUnknown { claim: None }
            | IdentityRefusal::GroupsIncomplete
            | IdentityRefusal::TooManyGroups,
            _,
        ) => ApiError::new(StatusCode::FORBIDDEN, refusal.code(), refusal.to_string()),
    }
}
