//! Gaps: for each reference of a plan, whether it exists, and who can close it if not.

use super::bundle::BundlePlan;
use crate::connection::ConnectionSnapshot;

/// The kind of a gap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GapKind {
    /// The piece exists and is reused.
    Reused,
    /// Publication makes the piece, or the caller may create it.
    MintFresh,
    /// The caller cannot create the piece; publication asks the platform team.
    NeedsAccess,
    /// An administrator must resolve the reference, which the caller may not see.
    NeedsAdmin,
}

impl GapKind {
    /// Every value.
    pub const ALL: [Self; 4] = [Self::Reused, Self::MintFresh, Self::NeedsAccess, Self::NeedsAdmin];

    /// The wire form.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reused => "reused",
            Self::MintFresh => "mint_fresh",
            Self::NeedsAccess => "needs_access",
            Self::NeedsAdmin => "needs_admin",
        }
    }

    /// Parses the wire form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|value| value.as_str() == text)
    }
}

/// The gap of one reference.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gap {
    /// The kind.
    pub kind: GapKind,
    /// The slug or the name; `None` if there is none, or the caller may not see it.
    pub reference: Option<String>,
}

/// The gaps of a plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gaps {
    /// The model policy.
    pub model_policy: Gap,
    /// The policy bundle.
    pub policy_bundle: Gap,
    /// The connections, in the order of the plan.
    pub connections: Vec<Gap>,
    /// Whether references are hidden from the caller.
    pub redacted: bool,
}

/// What the caller may do with the connections of the workspace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnectionAccess {
    /// The caller may not see them.
    Hidden,
    /// The caller may see them.
    Read,
    /// The caller may create them.
    Manage,
}

/// The gaps of a plan's connections.
#[must_use]
pub fn connection_gaps(plan: &BundlePlan, connections: &[ConnectionSnapshot], access: ConnectionAccess) -> Vec<Gap> {
    let gap = |name: &String| {
        if access == ConnectionAccess::Hidden {
            return Gap { kind: GapKind::NeedsAdmin, reference: None };
        }
        let is_usable = connections.iter().any(|one| one.connection.name == *name && one.is_usable());
        let kind = match (is_usable, access) {
            (true, _) => GapKind::Reused,
            (false, ConnectionAccess::Manage) => GapKind::MintFresh,
            (false, ConnectionAccess::Read | ConnectionAccess::Hidden) => GapKind::NeedsAccess,
        };
        Gap { kind, reference: Some(name.clone()) }
    };
    plan.connections().iter().map(gap).collect()
}
