//! Identification and authorization of callers.

pub(crate) mod authorize;
mod explanation;
mod identity;
mod pinned_identities;
mod principal_binding;
mod role_bindings;
mod sessions;
mod table;
mod test_sign_in_report;

pub use authorize::{ListScope, ScopeResolver};
pub use explanation::{AccessExplanation, AccessExplanationRequest, AccessExplanations, DecidingGrant};
pub(crate) use identity::effective_rights;
pub use identity::{Claims, Identities, IdentityMode};
pub(crate) use pinned_identities::PinCache;
pub use pinned_identities::PinnedIdentities;
pub use principal_binding::{PrincipalBindings, RequestedBinding};
pub use role_bindings::{RoleBindingDraft, RoleBindings};
pub(crate) use sessions::SessionRenewals;
pub use sessions::{ActiveSession, SessionFailure, Sessions};
pub use table::{Operation, Requirement};
pub use test_sign_in_report::{ClockDifference, TestSignInReport, TestSignIns, TestedPrincipal};
