//! Responses for refused on-behalf-of fields.

use crate::error::{ApiError, FieldProblem};
use actix_web::http::StatusCode;
use fairway_domain::access::{delegation::DelegationRefusal, on_behalf_of_fields::OnBehalfOfField};

impl From<DelegationRefusal> for ApiError {
    fn from(refusal: DelegationRefusal) -> Self {
        let forbidden = |status, message: &'static str| Self::new(status, "forbidden_field", message);
        match refusal {
            DelegationRefusal::UntrustedClient => {
                forbidden(StatusCode::UNPROCESSABLE_ENTITY, "only trusted services may send on-behalf-of fields")
            }
            DelegationRefusal::UnsupportedTool => {
                forbidden(StatusCode::FORBIDDEN, "on-behalf-of fields are accepted by `execute_flow` only")
            }
            DelegationRefusal::InvalidFields(fields) => Self::validation(fields.into_iter().map(problem_of).collect()),
        }
    }
}

fn problem_of(field: OnBehalfOfField) -> FieldProblem {
    let rule = match field {
        OnBehalfOfField::ActorRef => "expected `user:<name>` or `service:<name>`",
        OnBehalfOfField::ExecutionMode | OnBehalfOfField::ActorType | OnBehalfOfField::ActorAuthMode => {
            "this value does not fit the other on-behalf-of fields"
        }
    };
    FieldProblem::new(field.field_name(), "invalid", rule)
}
