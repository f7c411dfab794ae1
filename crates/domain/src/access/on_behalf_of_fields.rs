//! The on-behalf-of fields of a request. [`super::delegation`] checks them.

use serde_json::Value;

/// One on-behalf-of field. By these fields, a service names the principal for which it acts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnBehalfOfField {
    /// `execution_mode`, which must have the value `on_behalf_of`.
    ExecutionMode,
    /// `actor_ref`, the reference to the principal.
    ActorRef,
    /// `actor_type`, the kind of the principal.
    ActorType,
    /// `actor_auth_mode`, the authentication mode of the server.
    ActorAuthMode,
}

impl OnBehalfOfField {
    /// Every field.
    pub const ALL: [Self; 4] = [Self::ExecutionMode, Self::ActorRef, Self::ActorType, Self::ActorAuthMode];

    /// The name of the field in the request.
    #[must_use]
    pub const fn field_name(self) -> &'static str {
        match self {
            Self::ExecutionMode => "execution_mode",
            Self::ActorRef => "actor_ref",
            Self::ActorType => "actor_type",
            Self::ActorAuthMode => "actor_auth_mode",
        }
    }
}

/// The values of a request's on-behalf-of fields. A field counts as present with any value, including null.
#[derive(Clone, Debug, Default)]
pub struct OnBehalfOfFields {
    /// The value of `execution_mode`; `None` if the field is absent.
    pub execution_mode: Option<Value>,
    /// The value of `actor_ref`; `None` if the field is absent.
    pub actor_ref: Option<Value>,
    /// The value of `actor_type`; `None` if the field is absent.
    pub actor_type: Option<Value>,
    /// The value of `actor_auth_mode`; `None` if the field is absent.
    pub actor_auth_mode: Option<Value>,
}
