//! Whom a service says that it runs something for.

use crate::error::{ApiError, FieldProblem, Fields};
use actix_web::http::StatusCode;
use fairway_domain::access::{ActorKind, ActorRef};
use fairway_operations::access::IdentityMode;
use serde_json::Value;

/// What a request says of it. A member that is there says something, whatever its value: null too.
pub(crate) struct Said {
    pub(crate) execution_mode: Option<Value>,
    pub(crate) actor_ref: Option<Value>,
    pub(crate) actor_type: Option<Value>,
    pub(crate) actor_auth_mode: Option<Value>,
}

/// Who a run is for, where a service says so. All four fields are there, or none.
pub(crate) fn subject(said: Said, is_trusted: bool, mode: IdentityMode) -> Result<Option<ActorRef>, ApiError> {
    let Said { execution_mode, actor_ref, actor_type, actor_auth_mode } = said;
    let sent = [&execution_mode, &actor_ref, &actor_type, &actor_auth_mode];
    if sent.iter().all(|field| field.is_none()) {
        return Ok(None);
    }
    if !is_trusted {
        let message = "only services whose word is taken say whom they act for";
        return Err(ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "forbidden_field", message));
    }
    let auth_mode = match mode {
        IdentityMode::Local => "local",
    };
    let mut fields = Fields::default();
    let expected = |name, value: Option<Value>, expected: &'static str| {
        let rule = "not what is expected beside the other fields of who acts for whom";
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
    let actor = fields.read(actor.ok_or_else(|| FieldProblem::new("actor_ref", "invalid", rule)));
    let mode = fields.read(expected("execution_mode", execution_mode, "on_behalf_of"));
    let kind = fields.read(expected("actor_type", actor_type, kind));
    let auth_mode = fields.read(expected("actor_auth_mode", actor_auth_mode, auth_mode));
    fields.whole(|| {
        let ((), (), ()) = (mode?, kind?, auth_mode?);
        Some(Some(actor?))
    })
}
