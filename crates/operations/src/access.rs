//! Identification and authorization of callers.

pub(crate) mod authorize;
mod identity;
mod principal_binding;
mod role_bindings;
mod table;

pub use authorize::ListScope;
pub use identity::{Claims, IdentityMode};
pub use principal_binding::RequestedBinding;
pub use role_bindings::RoleBindingDraft;
pub use table::{Operation, Requirement};
