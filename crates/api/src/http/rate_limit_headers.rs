//! Names of the response headers that the rate limit adds to a refusal.

use actix_web::http::header::HeaderName;

/// Header with the allowed requests per minute.
pub(crate) const RATE_LIMIT_HEADER: HeaderName = HeaderName::from_static("ratelimit-limit");
/// Header with the remaining requests: 0.
pub(crate) const RATE_LIMIT_REMAINING_HEADER: HeaderName = HeaderName::from_static("ratelimit-remaining");
/// Header with the seconds until the next allowed request.
pub(crate) const RATE_LIMIT_RESET_HEADER: HeaderName = HeaderName::from_static("ratelimit-reset");
