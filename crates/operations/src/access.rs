//! Identification and authorization of callers.

pub(crate) mod authorize;
mod explanation;
mod identity;
mod pinned_identities;
mod principal_binding;
mod role_bindings;
mod sessions;
mod sign_in_tests;
mod table;

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
pub use sign_in_tests::{ClockDifference, SignInReport, SignInTests, TestedPrincipal};
pub use table::{Operation, Requirement};
