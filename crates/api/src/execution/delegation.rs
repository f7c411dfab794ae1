//! Delegation: the on-behalf-of fields of a request.

use crate::error::{ApiError, FieldErrors, FieldProblem};
use actix_web::http::StatusCode;
use fairway_domain::access::{ActorKind, ActorRef};
use fairway_operations::access::IdentityMode;
use serde_json::Value;

/// The on-behalf-of fields of a request. A present member counts with any value, including null.
pub(crate) struct DelegationFields {
    pub(crate) execution_mode: Option<Value>,
    pub(crate) actor_ref: Option<Value>,
    pub(crate) actor_type: Option<Value>,
    pub(crate) actor_auth_mode: Option<Value>,
}

/// The delegated subject of a run, if a trusted service sends one. All four fields are required together.
pub(crate) fn delegated_subject(
    delegation: DelegationFields,
    is_trusted: bool,
    mode: IdentityMode,
) -> Result<Option<ActorRef>, ApiError> {
    let DelegationFields { execution_mode, actor_ref, actor_type, actor_auth_mode } = delegation;
    let sent = [&execution_mode, &actor_ref, &actor_type, &actor_auth_mode];
    if sent.iter().all(|field| field.is_none()) {
        return Ok(None);
    }
    if !is_trusted {
        let message = "only trusted services may send on-behalf-of fields";
        return Err(ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "forbidden_field", message));
    }
    let auth_mode = mode.as_str();
    let mut fields = FieldErrors::default();
    let expected = |name, value: Option<Value>, expected: &'static str| {
        let rule = "this value does not fit the other on-behalf-of fields";
        if value.as_ref().and_then(Value::as_str) == Some(expected) {
            Ok(())
        } else {
            Err(FieldProblem::new(name, "invalid", rule))
        }
    };
    let actor = actor_ref.as_ref().and_then(Value::as_str).and_then(|text| ActorRef::parse(text).ok());
    let actor = actor.filter(|actor| matches!(actor.kind(), ActorKind::User | ActorKind::Service));
    let kind = match actor.as_ref().map(ActorRef::kind) {
        Some(ActorKind::Service) => "service",
        Some(_) | None => "user",
    };
    let rule = "expected `user:<name>` or `service:<name>`";
    let actor = fields.check(actor.ok_or_else(|| FieldProblem::new("actor_ref", "invalid", rule)));
    let mode = fields.check(expected("execution_mode", execution_mode, "on_behalf_of"));
    let kind = fields.check(expected("actor_type", actor_type, kind));
    let auth_mode = fields.check(expected("actor_auth_mode", actor_auth_mode, auth_mode));
    fields.finish(|| {
        let ((), (), ()) = (mode?, kind?, auth_mode?);
        Some(Some(actor?))
    })
}
