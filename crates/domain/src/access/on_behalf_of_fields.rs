//! The on-behalf-of fields of a request, which [`super::delegation`] checks.

use serde_json::Value;

/// A field of a request with which a service names the principal that it acts for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnBehalfOfField {
    /// `execution_mode`: the fixed value `on_behalf_of`.
    ExecutionMode,
    /// `actor_ref`: the principal.
    ActorRef,
    /// `actor_type`: the kind of the principal.
    ActorType,
    /// `actor_auth_mode`: the identity mode of the server.
    ActorAuthMode,
}

impl OnBehalfOfField {
    /// Every field.
    pub const ALL: [Self; 4] = [Self::ExecutionMode, Self::ActorRef, Self::ActorType, Self::ActorAuthMode];

    /// The name on the wire.
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

/// The on-behalf-of fields of a request. A present member counts with any value, including null.
#[derive(Clone, Debug, Default)]
pub struct OnBehalfOfFields {
    /// `execution_mode`.
    pub execution_mode: Option<Value>,
    /// `actor_ref`.
    pub actor_ref: Option<Value>,
    /// `actor_type`.
    pub actor_type: Option<Value>,
    /// `actor_auth_mode`.
    pub actor_auth_mode: Option<Value>,
}
