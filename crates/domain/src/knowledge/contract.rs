//! Access contracts: who may read from a knowledge base, from where and for what. Whatever a contract does not allow is
//! denied, and so is everything where it is revoked, or where it cannot be read.
//!
//! The schema refuses most malformed contracts when they are made. This does not rely on it: a decision must be safe
//! whatever lies in the database.

use crate::{
    access::{ActorKind, ActorRef},
    id::WorkspaceId,
    time::Timestamp,
};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use uuid::Uuid;

/// Most entries of one of a contract's lists.
const MOST_ENTRIES: usize = 1_000;

/// Everything that may stand in a contract.
const FIELDS: [&str; 10] = [
    "contract_id",
    "version",
    "default_decision",
    "allowed_principals",
    "allowed_groups",
    "allowed_workspaces",
    "allowed_access_modes",
    "citation_required",
    "revoked",
    "revoked_at",
];

/// What a knowledge base is read for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum AccessMode {
    /// Pieces of documents for a run.
    Retrieve,
    /// Earlier turns of a conversation.
    MemoryReplay,
    /// Keeping a turn of a conversation.
    MemoryWriteback,
}

impl AccessMode {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Retrieve, Self::MemoryReplay, Self::MemoryWriteback];

    /// The spelling in contents and on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Retrieve => "retrieve",
            Self::MemoryReplay => "memory_replay",
            Self::MemoryWriteback => "memory_writeback",
        }
    }

    /// The one of that spelling.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.as_str() == text)
    }
}

/// A contract as it was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AccessContract {
    contract_id: String,
    version: String,
    principals: BTreeSet<ActorRef>,
    groups: BTreeSet<ActorRef>,
    workspaces: BTreeSet<WorkspaceId>,
    modes: BTreeSet<AccessMode>,
    citation_required: bool,
    revoked: bool,
}

/// A contract that cannot be read: something is missing, of the wrong type, or means nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the access contract is malformed at `{field}`")]
pub struct MalformedContract {
    /// The field; empty for the whole.
    pub field: &'static str,
}

/// Who asks, from where and for what.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// Who: the actor itself and the groups that it belongs to.
    pub principals: &'a [ActorRef],
    /// From which workspace.
    pub workspace: WorkspaceId,
    /// For what.
    pub mode: AccessMode,
}

/// What the books say of a contract, beside the version that is asked about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ContractStanding {
    /// It belongs to the knowledge base, and nobody has revoked it.
    InForce,
    /// Another version of the knowledge base says that it is over, or somebody has revoked it.
    Revoked,
    /// The books know no contract of that name, or another knowledge base has it.
    Unknown,
}

/// One reason of a decision, for or against.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ContractReason {
    /// The contract names who asks.
    PrincipalAllowed,
    /// The contract names a group of who asks.
    GroupAllowed,
    /// The contract names the workspace.
    WorkspaceAllowed,
    /// The contract names what it is asked for.
    ModeAllowed,
    /// It cannot be read.
    Malformed,
    /// It is not known to be this knowledge base's.
    Unknown,
    /// It is over.
    Revoked,
    /// It names neither who asks nor a group of theirs.
    PrincipalNotAllowed,
    /// It does not name the workspace.
    WorkspaceNotAllowed,
    /// It does not name what it is asked for.
    ModeNotAllowed,
}

impl ContractReason {
    /// Every one.
    pub const ALL: [Self; 10] = [
        Self::PrincipalAllowed,
        Self::GroupAllowed,
        Self::WorkspaceAllowed,
        Self::ModeAllowed,
        Self::Malformed,
        Self::Unknown,
        Self::Revoked,
        Self::PrincipalNotAllowed,
        Self::WorkspaceNotAllowed,
        Self::ModeNotAllowed,
    ];

    /// The spelling in contents and on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PrincipalAllowed => "principal_allowed",
            Self::GroupAllowed => "group_allowed",
            Self::WorkspaceAllowed => "workspace_allowed",
            Self::ModeAllowed => "access_mode_allowed",
            Self::Malformed => "contract_malformed",
            Self::Unknown => "contract_unknown",
            Self::Revoked => "contract_revoked",
            Self::PrincipalNotAllowed => "principal_not_allowed",
            Self::WorkspaceNotAllowed => "workspace_not_allowed",
            Self::ModeNotAllowed => "access_mode_not_allowed",
        }
    }

    /// The one of that spelling.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.as_str() == text)
    }
}

impl ContractReason {
    /// Whether it speaks for reading.
    #[must_use]
    pub const fn allows(self) -> bool {
        match self {
            Self::PrincipalAllowed | Self::GroupAllowed | Self::WorkspaceAllowed | Self::ModeAllowed => true,
            Self::Malformed
            | Self::Unknown
            | Self::Revoked
            | Self::PrincipalNotAllowed
            | Self::WorkspaceNotAllowed
            | Self::ModeNotAllowed => false,
        }
    }
}

/// Whether somebody may read, with every reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContractDecision {
    /// The contract; `None` where it cannot be read.
    pub contract_id: Option<String>,
    /// The contract's own version.
    pub version: Option<String>,
    /// What was asked for.
    pub mode: AccessMode,
    /// Whether an answer must cite what was retrieved.
    pub citation_required: bool,
    /// Every reason, for and against. INVARIANT: never empty.
    pub reasons: Vec<ContractReason>,
}

impl ContractDecision {
    /// The code that a run ends with that a contract refused.
    pub const REFUSED: &str = "contract_refused";

    /// Whether it may: nothing speaks against it, and who asks, the workspace and the mode all are named.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        use ContractReason::{GroupAllowed, ModeAllowed, PrincipalAllowed, WorkspaceAllowed};
        let has = |reason: ContractReason| self.reasons.contains(&reason);
        self.reasons.iter().all(|reason| reason.allows())
            && (has(PrincipalAllowed) || has(GroupAllowed))
            && has(WorkspaceAllowed)
            && has(ModeAllowed)
    }

    /// The decision on a contract that cannot be read.
    #[must_use]
    pub fn malformed(_: MalformedContract, mode: AccessMode) -> Self {
        Self {
            contract_id: None,
            version: None,
            mode,
            citation_required: true,
            reasons: vec![ContractReason::Malformed],
        }
    }
}

impl AccessContract {
    /// Reads a contract.
    ///
    /// # Errors
    /// When anything in it is missing, unknown, of the wrong type or contradicts itself.
    pub fn parse(value: &Value) -> Result<Self, MalformedContract> {
        let at = |field| MalformedContract { field };
        let members = value.as_object().ok_or(at(""))?;
        if !members.keys().all(|name| FIELDS.contains(&name.as_str())) {
            return Err(at(""));
        }
        let text = |field: &'static str, longest: usize, marks: &[u8]| {
            let text = members.get(field).and_then(Value::as_str);
            text.filter(|text| is_code(text, longest, marks)).map(str::to_owned).ok_or(at(field))
        };
        let contract_id = text("contract_id", 128, b"._:-")?;
        let version = text("version", 64, b"._-")?;
        if members.get("default_decision").and_then(Value::as_str) != Some("deny") {
            return Err(at("default_decision"));
        }
        let revoked = truth(members, "revoked")?;
        let moment = members.get("revoked_at").filter(|moment| !moment.is_null());
        let is_moment = |moment: &Value| moment.as_str().and_then(Timestamp::parse).is_some();
        if moment.is_some() != revoked || !moment.is_none_or(is_moment) {
            return Err(at("revoked_at"));
        }
        Ok(Self {
            contract_id,
            version,
            principals: set(members, "allowed_principals", Needed::No, principal)?,
            groups: set(members, "allowed_groups", Needed::No, group)?,
            workspaces: set(members, "allowed_workspaces", Needed::Yes, workspace)?,
            modes: set(members, "allowed_access_modes", Needed::Yes, AccessMode::parse)?,
            citation_required: truth(members, "citation_required")?,
            revoked,
        })
    }

    /// Its name.
    #[must_use]
    pub fn contract_id(&self) -> &str {
        &self.contract_id
    }

    /// Whether an answer must cite what was retrieved.
    #[must_use]
    pub const fn requires_citation(&self) -> bool {
        self.citation_required
    }

    /// Whether somebody may read, and every reason for that.
    #[must_use]
    pub fn decide(&self, asked: &Asked<'_>, standing: ContractStanding) -> ContractDecision {
        use ContractReason as Reason;
        let mut reasons = Vec::new();
        match standing {
            ContractStanding::InForce if self.revoked => reasons.push(Reason::Revoked),
            ContractStanding::InForce => {}
            ContractStanding::Revoked => reasons.push(Reason::Revoked),
            ContractStanding::Unknown => reasons.push(Reason::Unknown),
        }
        let by_name = asked.principals.iter().any(|principal| self.principals.contains(principal));
        let by_group = asked.principals.iter().any(|principal| self.groups.contains(principal));
        if by_name {
            reasons.push(Reason::PrincipalAllowed);
        }
        if by_group {
            reasons.push(Reason::GroupAllowed);
        }
        if !by_name && !by_group {
            reasons.push(Reason::PrincipalNotAllowed);
        }
        let here = self.workspaces.contains(&asked.workspace);
        reasons.push(if here { Reason::WorkspaceAllowed } else { Reason::WorkspaceNotAllowed });
        let mode = self.modes.contains(&asked.mode);
        reasons.push(if mode { Reason::ModeAllowed } else { Reason::ModeNotAllowed });
        ContractDecision {
            contract_id: Some(self.contract_id.clone()),
            version: Some(self.version.clone()),
            mode: asked.mode,
            citation_required: self.citation_required,
            reasons,
        }
    }
}

/// Whether a list must be there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Needed {
    Yes,
    No,
}

/// A word of letters, digits and marks that begins with a letter or a digit.
pub(super) fn is_code(text: &str, longest: usize, marks: &[u8]) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || marks.contains(&byte);
    text.len() <= longest
        && text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric())
        && text.bytes().all(inner)
}

fn truth(members: &Map<String, Value>, field: &'static str) -> Result<bool, MalformedContract> {
    members.get(field).map_or(Ok(false), |value| value.as_bool().ok_or(MalformedContract { field }))
}

/// The entries of a list: texts that mean something, none of them twice.
fn set<T: Ord>(
    members: &Map<String, Value>,
    field: &'static str,
    needed: Needed,
    read: impl Fn(&str) -> Option<T>,
) -> Result<BTreeSet<T>, MalformedContract> {
    let malformed = MalformedContract { field };
    let Some(value) = members.get(field) else {
        return if needed == Needed::Yes { Err(malformed) } else { Ok(BTreeSet::new()) };
    };
    let items = value.as_array().filter(|items| items.len() <= MOST_ENTRIES).ok_or(malformed)?;
    let texts: BTreeSet<&str> = items.iter().map(|item| item.as_str().ok_or(malformed)).collect::<Result<_, _>>()?;
    if texts.len() != items.len() {
        return Err(malformed);
    }
    texts.into_iter().map(|text| read(text).ok_or(malformed)).collect()
}

fn principal(text: &str) -> Option<ActorRef> {
    let actor = ActorRef::parse(text).ok()?;
    match actor.kind() {
        ActorKind::User | ActorKind::Group | ActorKind::Service | ActorKind::System | ActorKind::Anonymous => {
            Some(actor)
        }
        // Whoever holds a link is nobody in particular.
        ActorKind::ShareLink => None,
    }
}

fn group(text: &str) -> Option<ActorRef> {
    let name = text.strip_prefix("group:").unwrap_or(text);
    ActorRef::parse(&format!("group:{name}")).ok()
}

/// The one spelling with hyphens, in small or capital letters.
fn workspace(text: &str) -> Option<WorkspaceId> {
    let id = Uuid::try_parse(text).ok()?;
    id.hyphenated().to_string().eq_ignore_ascii_case(text).then(|| id.into())
}

#[cfg(test)]
mod tests;
