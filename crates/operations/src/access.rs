//! Identification and authorization of callers.

pub(crate) mod gate;
mod grants;
mod identity;
mod principal_binding;
mod table;

pub use gate::ListScope;
pub use grants::RoleBindingDraft;
pub use identity::{Claims, IdentityMode};
pub use principal_binding::RequestedBinding;
pub use table::{Demand, Operation};
