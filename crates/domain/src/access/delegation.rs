//! Delegation: a trusted service submits a run for the principal that the on-behalf-of fields of its request name.
//!
//! Source: specification, execution; contract, section 12.

use super::{
    ActorKind, ActorRef,
    on_behalf_of_fields::{OnBehalfOfField, OnBehalfOfFields},
};
use crate::offered_tool::BuiltinTool;
use serde_json::Value;

/// The only valid value of the field `execution_mode`.
const ON_BEHALF_OF: &str = "on_behalf_of";

/// Whether a client may act for other principals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DelegationTrust {
    /// The client may act for other principals.
    Trusted,
    /// The client may act for itself only.
    Untrusted,
}

/// The reason why a request with on-behalf-of fields is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DelegationRefusal {
    /// The client is not trusted to act for other principals.
    UntrustedClient,
    /// These fields are missing, malformed or inconsistent with other fields. A request must have all four fields.
    InvalidFields(Vec<OnBehalfOfField>),
    /// The called tool would act with the rights of the service instead of the rights of the principal.
    UnsupportedTool,
}

impl OnBehalfOfFields {
    /// The principal for which the service acts; `None` if the request has none of the fields.
    ///
    /// # Errors
    /// When the client is not a delegating service, or a field is missing or invalid.
    pub fn delegated_principal(
        &self,
        trust: DelegationTrust,
        auth_mode: &str,
    ) -> Result<Option<ActorRef>, DelegationRefusal> {
        let Self { execution_mode, actor_ref, actor_type, actor_auth_mode } = self;
        if [execution_mode, actor_ref, actor_type, actor_auth_mode].iter().all(|field| field.is_none()) {
            return Ok(None);
        }
        match trust {
            DelegationTrust::Trusted => {}
            DelegationTrust::Untrusted => return Err(DelegationRefusal::UntrustedClient),
        }
        let text = |field: &Option<Value>| field.as_ref().and_then(Value::as_str).map(str::to_owned);
        let subject = text(actor_ref)
            .and_then(|text| ActorRef::parse(&text).ok())
            .filter(|actor| matches!(actor.kind(), ActorKind::User | ActorKind::Service));
        let kind = match subject.as_ref().map(ActorRef::kind) {
            Some(ActorKind::Service) => "service",
            Some(
                ActorKind::User | ActorKind::Group | ActorKind::System | ActorKind::ShareLink | ActorKind::Anonymous,
            )
            | None => "user",
        };
        let matches = |field: &Option<Value>, expected: &str| text(field).as_deref() == Some(expected);
        let checks = [
            (OnBehalfOfField::ActorRef, subject.is_some()),
            (OnBehalfOfField::ExecutionMode, matches(execution_mode, ON_BEHALF_OF)),
            (OnBehalfOfField::ActorType, matches(actor_type, kind)),
            (OnBehalfOfField::ActorAuthMode, matches(actor_auth_mode, auth_mode)),
        ];
        let invalid: Vec<OnBehalfOfField> =
            checks.into_iter().filter(|(_, is_valid)| !is_valid).map(|(field, _)| field).collect();
        if invalid.is_empty() { Ok(subject) } else { Err(DelegationRefusal::InvalidFields(invalid)) }
    }
}

/// Checks that a built-in tool can act for the principal `subject`. Only a run can belong to another principal; the
/// other tools would read with the rights of the service.
///
/// # Errors
/// When a subject is given and the tool does not start a run.
pub const fn check_tool(tool: BuiltinTool, subject: Option<&ActorRef>) -> Result<(), DelegationRefusal> {
    match (tool, subject) {
        (BuiltinTool::ExecuteFlow, _) | (_, None) => Ok(()),
        (BuiltinTool::QueryKnowledgeBase | BuiltinTool::InspectEvidence, Some(_)) => {
            Err(DelegationRefusal::UnsupportedTool)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fields(mode: &str, actor: &str, kind: &str, auth: &str) -> OnBehalfOfFields {
        OnBehalfOfFields {
            execution_mode: Some(json!(mode)),
            actor_ref: Some(json!(actor)),
            actor_type: Some(json!(kind)),
            actor_auth_mode: Some(json!(auth)),
        }
    }

    fn subject(fields: &OnBehalfOfFields) -> Result<Option<ActorRef>, DelegationRefusal> {
        fields.delegated_principal(DelegationTrust::Trusted, "local")
    }

    #[test]
    fn names_a_user_or_a_service() {
        for (actor, kind) in [("user:ada", "user"), ("service:billing", "service")] {
            let expected = ActorRef::parse(actor).unwrap();
            assert_eq!(subject(&fields("on_behalf_of", actor, kind, "local")), Ok(Some(expected)));
        }
    }

    #[test]
    fn has_no_subject_without_fields() {
        for trust in [DelegationTrust::Trusted, DelegationTrust::Untrusted] {
            assert_eq!(OnBehalfOfFields::default().delegated_principal(trust, "local"), Ok(None));
        }
    }

    #[test]
    fn refuses_fields_of_untrusted_clients_whatever_their_value() {
        let null = OnBehalfOfFields { actor_type: Some(Value::Null), ..OnBehalfOfFields::default() };
        for sent_fields in [null, fields("on_behalf_of", "user:ada", "user", "local")] {
            let refused = sent_fields.delegated_principal(DelegationTrust::Untrusted, "local");
            assert_eq!(refused, Err(DelegationRefusal::UntrustedClient));
        }
    }

    #[test]
    fn reports_every_field_that_does_not_fit() {
        use OnBehalfOfField::{ActorAuthMode, ActorRef, ActorType, ExecutionMode};
        for (sent_fields, invalid) in [
            (fields("direct", "user:ada", "user", "local"), vec![ExecutionMode]),
            (fields("on_behalf_of", "anonymous", "user", "local"), vec![ActorRef]),
            (fields("on_behalf_of", "user:ada", "service", "oidc"), vec![ActorType, ActorAuthMode]),
            (
                OnBehalfOfFields { actor_ref: Some(json!(7)), ..OnBehalfOfFields::default() },
                vec![ActorRef, ExecutionMode, ActorType, ActorAuthMode],
            ),
        ] {
            assert_eq!(subject(&sent_fields), Err(DelegationRefusal::InvalidFields(invalid)));
        }
    }

    #[test]
    fn only_runs_belong_to_another_principal() {
        let ada = ActorRef::parse("user:ada").unwrap();
        for tool in BuiltinTool::ALL {
            assert_eq!(check_tool(tool, None), Ok(()), "{tool:?}");
            assert_eq!(check_tool(tool, Some(&ada)).is_ok(), tool == BuiltinTool::ExecuteFlow, "{tool:?}");
        }
    }
}
