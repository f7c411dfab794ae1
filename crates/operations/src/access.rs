//! Identification and authorization of callers.

pub(crate) mod gate;
mod grants;
mod identity;
mod principal_binding;
mod table;

pub use gate::Visible;
pub use grants::NewGrant;
pub use identity::{Claims, IdentityMode};
pub use principal_binding::WantedBinding;
pub use table::{Demand, Operation};
