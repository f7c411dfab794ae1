//! Identification and authorization of callers.

pub(crate) mod authorize;
mod role_bindings;
mod identity;
mod principal_binding;
mod table;

pub use authorize::ListScope;
pub use role_bindings::RoleBindingDraft;
pub use identity::{Claims, IdentityMode};
pub use principal_binding::RequestedBinding;
pub use table::{Requirement, Operation};
