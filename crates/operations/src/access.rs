//! Identification and authorization of callers.

pub(crate) mod authorize;
mod explanation;
mod identity;
mod identity_resolver;
mod principal_binding;
mod role_bindings;
mod sessions;
mod table;
mod test_sign_in_report;

pub use authorize::{ListScope, ScopeResolver};
pub use explanation::{AccessExplanation, AccessExplanationRequest, AccessExplanations, DecidingGrant};
pub(crate) use identity::effective_rights;
pub use identity::{CallerResolver, IdentityClaims, IdentityMode};
pub use identity_resolver::IdentityResolver;
pub(crate) use identity_resolver::PinCache;
pub use principal_binding::{PrincipalBindings, RequestedBinding};
pub use role_bindings::{CreateRoleBindingParams, RoleBindings};
pub(crate) use sessions::SessionRenewals;
pub use sessions::{ActiveSession, SessionFailure, Sessions};
pub use table::{Operation, Requirement};
pub use test_sign_in_report::{ClockDifference, TestSignInReport, TestSignIns, TestedPrincipal};
