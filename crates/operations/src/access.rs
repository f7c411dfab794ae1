//! Identification and authorization of callers.

pub(crate) mod authorize;
mod identity;
mod principal_binding;
mod role_bindings;
mod table;

pub use authorize::{ListScope, ScopeResolver};
pub(crate) use identity::effective_rights;
pub use identity::{Claims, Identities, IdentityMode};
pub use principal_binding::{PrincipalBindings, RequestedBinding};
pub use role_bindings::{RoleBindingDraft, RoleBindings};
pub use table::{Operation, Requirement};
