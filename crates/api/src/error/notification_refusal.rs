//! Maps refusals of notifications and destinations to error responses.

use super::{ApiError, FieldProblem};
use actix_web::http::StatusCode;
use fairway_domain::notification::{RequiredSettingOff, delivery::DeliveryNotFailed, destination::DestinationRefusal};

/// Maps the refusal of a value in a destination's field.
pub(super) fn map_destination_refusal(refusal: DestinationRefusal) -> ApiError {
    FieldProblem::new(refusal.field(), refusal.code(), refusal.to_string()).into()
}

/// Maps the refusal of a request that requires a tenant setting which is off.
pub(super) fn map_setting_off(RequiredSettingOff(setting): RequiredSettingOff) -> ApiError {
    let message = "a setting of the tenant does not allow this";
    ApiError::new(StatusCode::FORBIDDEN, "enterprise_capability_required", message)
        .with_detail("setting", setting.as_str())
}

/// Maps the refusal to retry a delivery that did not fail.
pub(super) fn map_delivery_not_failed(refusal: DeliveryNotFailed) -> ApiError {
    ApiError::conflict("delivery_not_failed", "only a failed delivery can be retried")
        .with_detail("status", refusal.0.as_str())
}
