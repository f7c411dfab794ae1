//! Gaps: for each reference of a plan, whether its target exists, and who can create it if not.

use super::bundle::BundlePlan;
use crate::connection::ConnectionWithExpiryState;

/// Whether the target of a reference exists, and who can create it if not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReferenceProvision {
    /// The asset or connection exists, and the use case reuses it.
    Reused,
    /// The target does not exist. Publication creates the asset, or the caller may create the connection.
    MintFresh,
    /// The connection is not usable, and the caller may not create it. Publication requests it from the platform team.
    NeedsAccess,
    /// The caller may not see the target, so an administrator must resolve the reference.
    NeedsAdmin,
}

impl ReferenceProvision {
    /// Every value, in the order of declaration.
    pub const ALL: [Self; 4] = [Self::Reused, Self::MintFresh, Self::NeedsAccess, Self::NeedsAdmin];

    /// The wire form, such as `reused`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reused => "reused",
            Self::MintFresh => "mint_fresh",
            Self::NeedsAccess => "needs_access",
            Self::NeedsAdmin => "needs_admin",
        }
    }

    /// Parses the wire form; `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|value| value.as_str() == text)
    }
}

/// One reference of a plan, with the way to resolve it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gap {
    /// Whether the target exists, and who can create it if not.
    pub availability: ReferenceProvision,
    /// The slug or name of the target; `None` if the plan names none, or the caller may not see it.
    pub reference: Option<String>,
}

/// The gaps of all references of a plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gaps {
    /// The gap of the reference to a model policy.
    pub model_policy: Gap,
    /// The gap of the policy bundle, which the plan does not name.
    pub policy_bundle: Gap,
    /// The gaps of the connections, in the order of the plan.
    pub connections: Vec<Gap>,
    /// Whether some references are hidden from the caller.
    pub redacted: bool,
}

/// The caller's access to the connections of the workspace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnectionAccess {
    /// The caller may not see the connections.
    Hidden,
    /// The caller may see the connections, but not create any.
    Read,
    /// The caller may see and create connections.
    Manage,
}

/// The gap of each connection that a plan names, in the order of the plan.
#[must_use]
pub fn connection_gaps(
    plan: &BundlePlan,
    connections: &[ConnectionWithExpiryState],
    access: ConnectionAccess,
) -> Vec<Gap> {
    let gap = |name: &String| {
        if access == ConnectionAccess::Hidden {
            return Gap { availability: ReferenceProvision::NeedsAdmin, reference: None };
        }
        let is_usable = connections.iter().any(|snapshot| snapshot.connection.name == *name && snapshot.is_usable());
        let availability = match (is_usable, access) {
            (true, _) => ReferenceProvision::Reused,
            (false, ConnectionAccess::Manage) => ReferenceProvision::MintFresh,
            (false, ConnectionAccess::Read | ConnectionAccess::Hidden) => ReferenceProvision::NeedsAccess,
        };
        Gap { availability, reference: Some(name.clone()) }
    };
    plan.connections().iter().map(gap).collect()
}
