//! Maps refusals of connections to error responses.

use super::{ApiError, FieldProblem};
use fairway_domain::connection::ConnectionRefusal;

/// Maps the refusal of a value in a connection's field.
pub(super) fn map_connection_refusal(refusal: ConnectionRefusal) -> ApiError {
    FieldProblem::new(refusal.field(), refusal.code(), refusal.to_string()).into()
}
