//! Identification and authorization of callers.

pub(crate) mod authorize;
mod claims_resolver;
mod explanation;
mod identity;
mod principal_binding;
mod role_bindings;
mod sessions;
mod table;
mod test_sign_in_report;

pub use authorize::{ListScope, ScopeResolver};
pub use claims_resolver::ClaimsResolver;
pub(crate) use claims_resolver::PinCache;
pub use explanation::{AccessExplanation, AccessExplanationRequest, AccessExplanations, DecidingGrant};
pub(crate) use identity::effective_rights;
pub use identity::{Claims, Identities, IdentityMode};
pub use principal_binding::{PrincipalBindings, RequestedBinding};
pub use role_bindings::{RoleBindingDraft, RoleBindings};
pub(crate) use sessions::SessionRenewals;
pub use sessions::{ActiveSession, SessionFailure, Sessions};
pub use table::{Operation, Requirement};
pub use test_sign_in_report::{ClockDifference, TestSignInReport, TestSignIns, TestedPrincipal};
