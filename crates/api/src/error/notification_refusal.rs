//! Maps refusals of notifications and destinations to error responses.

use super::{ApiError, FieldProblem};
use actix_web::http::StatusCode;
use fairway_domain::notification::{SettingOff, destination::DestinationRefusal};

/// Maps the refusal of a destination's field.
pub(super) fn map_destination_refusal(refusal: DestinationRefusal) -> ApiError {
    FieldProblem::new(refusal.field(), refusal.code(), refusal.to_string()).into()
}

/// Maps a setting of the tenant that is off.
pub(super) fn map_setting_off(SettingOff(setting): SettingOff) -> ApiError {
    let message = "a setting of the tenant does not allow this";
    ApiError::new(StatusCode::FORBIDDEN, "enterprise_capability_required", message)
        .with_detail("setting", setting.as_str())
}
