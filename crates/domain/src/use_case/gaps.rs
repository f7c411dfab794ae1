//! Gaps: for each reference of a plan, whether it exists, and who can close it if not.

use super::bundle::BundlePlan;
use crate::connection::{ConnectionSnapshot, words};

words! {
    /// The kind of a gap.
    GapKind {
        /// The piece exists and is reused.
        Reused = "reused",
        /// Publication makes the piece, or the caller may create it.
        MintFresh = "mint_fresh",
        /// The caller cannot create the piece; publication asks the platform team.
        NeedsAccess = "needs_access",
        /// An administrator must resolve the reference, which the caller may not see.
        NeedsAdmin = "needs_admin",
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
