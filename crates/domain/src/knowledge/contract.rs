//! Access contracts: the principals, workspaces and access modes that may read a knowledge base. A contract denies by
//! default; a revoked or malformed contract denies every request.
//!
//! The schema refuses most malformed contracts when a version is created. The parser does not rely on this, because a
//! decision must be safe for any stored content.

use crate::{
    access::{ActorKind, ActorRef},
    id::WorkspaceId,
    time::Timestamp,
};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use uuid::Uuid;

/// The maximum number of entries in each list of a contract.
const MAX_LIST_ENTRIES: usize = 1_000;

/// The fields that a contract may have.
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

/// The purpose of an access to a knowledge base.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum AccessMode {
    /// A run or a query retrieves chunks.
    Retrieve,
    /// A run receives earlier turns of its conversation.
    MemoryReplay,
    /// A run stores a turn of its conversation.
    MemoryWriteback,
}

impl AccessMode {
    /// Every mode, in the order of declaration.
    pub const ALL: [Self; 3] = [Self::Retrieve, Self::MemoryReplay, Self::MemoryWriteback];

    /// The wire form in content and API, such as `retrieve`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Retrieve => "retrieve",
            Self::MemoryReplay => "memory_replay",
            Self::MemoryWriteback => "memory_writeback",
        }
    }

    /// Parses the wire form; `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == text)
    }
}

/// A parsed access contract.
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

/// The access contract is malformed: a field is missing, has the wrong type, or is invalid.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the access contract is malformed at `{field}`")]
pub struct MalformedContract {
    /// The name of the invalid field; empty when the contract as a whole is invalid.
    pub field: &'static str,
}

/// A request for access to a knowledge base.
#[derive(Clone, Copy, Debug)]
pub struct KnowledgeAccessRequest<'a> {
    /// The actor that requests access, and its groups.
    pub principals: &'a [ActorRef],
    /// The workspace from which the knowledge base is accessed.
    pub workspace: WorkspaceId,
    /// The purpose of the access.
    pub mode: AccessMode,
}

/// The recorded state of a contract. It does not depend on the version whose content is evaluated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ContractState {
    /// The contract belongs to the knowledge base and is not revoked.
    InForce,
    /// The contract ended. A later version of the knowledge base or an explicit revocation revoked it.
    Revoked,
    /// No contract with this identifier is recorded for the knowledge base.
    Unknown,
}

/// A reason for or against access, as evidence records it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ContractReason {
    /// The contract lists the actor.
    PrincipalAllowed,
    /// The contract lists one of the actor's groups.
    GroupAllowed,
    /// The contract lists the workspace.
    WorkspaceAllowed,
    /// The contract lists the access mode.
    ModeAllowed,
    /// The contract is malformed, so it denies access.
    Malformed,
    /// The contract is not recorded for this knowledge base, so it denies access.
    Unknown,
    /// The contract is revoked, so it denies access.
    Revoked,
    /// The contract lists neither the actor nor one of its groups.
    PrincipalNotAllowed,
    /// The contract does not list the workspace.
    WorkspaceNotAllowed,
    /// The contract does not list the access mode.
    ModeNotAllowed,
}

impl ContractReason {
    /// Every reason, in the order of declaration.
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

    /// The wire form in evidence and API, such as `principal_allowed`.
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

    /// Parses the wire form; `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == text)
    }
}

impl ContractReason {
    /// Whether the reason is a reason for access.
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

/// The decision on an access request, with every reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContractDecision {
    /// The identifier of the contract; `None` if the contract is malformed.
    pub contract_id: Option<String>,
    /// The version that the contract states for itself; `None` if the contract is malformed.
    pub version: Option<String>,
    /// The requested purpose of the access.
    pub mode: AccessMode,
    /// Whether a response must cite the retrieved chunks.
    pub citation_required: bool,
    /// Every reason, for and against. INVARIANT: never empty.
    pub reasons: Vec<ContractReason>,
}

impl ContractDecision {
    /// The error code of a run to which a contract denied access.
    pub const REFUSED_CODE: &str = "contract_refused";

    /// Whether access is allowed. The contract must list the principal, the workspace and the access mode, and no
    /// reason may deny access.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        use ContractReason::{GroupAllowed, ModeAllowed, PrincipalAllowed, WorkspaceAllowed};
        let has = |reason: ContractReason| self.reasons.contains(&reason);
        self.reasons.iter().all(|reason| reason.allows())
            && (has(PrincipalAllowed) || has(GroupAllowed))
            && has(WorkspaceAllowed)
            && has(ModeAllowed)
    }

    /// The decision of a malformed contract; it denies access.
    #[must_use]
    pub fn for_malformed_contract(_: MalformedContract, mode: AccessMode) -> Self {
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
    /// Parses a contract.
    ///
    /// # Errors
    /// Returns the name of a field that is missing, unknown, of the wrong type, or contradicts another field.
    pub fn parse(value: &Value) -> Result<Self, MalformedContract> {
        let malformed = |field| MalformedContract { field };
        let members = value.as_object().ok_or(malformed(""))?;
        if !members.keys().all(|name| FIELDS.contains(&name.as_str())) {
            return Err(malformed(""));
        }
        let text = |field: &'static str, max_bytes: usize, punctuation: &[u8]| {
            let text = members.get(field).and_then(Value::as_str);
            text.filter(|text| is_identifier(text, max_bytes, punctuation)).map(str::to_owned).ok_or(malformed(field))
        };
        let contract_id = text("contract_id", 128, b"._:-")?;
        let version = text("version", 64, b"._-")?;
        if members.get("default_decision").and_then(Value::as_str) != Some("deny") {
            return Err(malformed("default_decision"));
        }
        let revoked = parse_bool(members, "revoked")?;
        let revoked_at = members.get("revoked_at").filter(|time| !time.is_null());
        let is_timestamp = |revoked_at: &Value| revoked_at.as_str().and_then(Timestamp::parse).is_some();
        if revoked_at.is_some() != revoked || !revoked_at.is_none_or(is_timestamp) {
            return Err(malformed("revoked_at"));
        }
        Ok(Self {
            contract_id,
            version,
            principals: parse_list(members, "allowed_principals", Presence::Optional, parse_principal)?,
            groups: parse_list(members, "allowed_groups", Presence::Optional, parse_group)?,
            workspaces: parse_list(members, "allowed_workspaces", Presence::Required, parse_workspace)?,
            modes: parse_list(members, "allowed_access_modes", Presence::Required, AccessMode::parse)?,
            citation_required: parse_bool(members, "citation_required")?,
            revoked,
        })
    }

    /// The identifier of the contract.
    #[must_use]
    pub fn contract_id(&self) -> &str {
        &self.contract_id
    }

    /// Decides on an access request, with every reason.
    #[must_use]
    pub fn decide(&self, request: &KnowledgeAccessRequest<'_>, state: ContractState) -> ContractDecision {
        use ContractReason as Reason;
        let mut reasons = Vec::new();
        match state {
            ContractState::InForce if self.revoked => reasons.push(Reason::Revoked),
            ContractState::InForce => {}
            ContractState::Revoked => reasons.push(Reason::Revoked),
            ContractState::Unknown => reasons.push(Reason::Unknown),
        }
        let lists_principal = request.principals.iter().any(|principal| self.principals.contains(principal));
        let lists_group = request.principals.iter().any(|principal| self.groups.contains(principal));
        if lists_principal {
            reasons.push(Reason::PrincipalAllowed);
        }
        if lists_group {
            reasons.push(Reason::GroupAllowed);
        }
        if !lists_principal && !lists_group {
            reasons.push(Reason::PrincipalNotAllowed);
        }
        let lists_workspace = self.workspaces.contains(&request.workspace);
        reasons.push(if lists_workspace { Reason::WorkspaceAllowed } else { Reason::WorkspaceNotAllowed });
        let lists_mode = self.modes.contains(&request.mode);
        reasons.push(if lists_mode { Reason::ModeAllowed } else { Reason::ModeNotAllowed });
        ContractDecision {
            contract_id: Some(self.contract_id.clone()),
            version: Some(self.version.clone()),
            mode: request.mode,
            citation_required: self.citation_required,
            reasons,
        }
    }
}

/// Whether a contract must contain a list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Presence {
    Required,
    Optional,
}

/// Whether the text starts with a letter or a digit, consists of letters, digits and `punctuation`, and has at most
/// `max_bytes`.
pub(super) fn is_identifier(text: &str, max_bytes: usize, punctuation: &[u8]) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || punctuation.contains(&byte);
    text.len() <= max_bytes
        && text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric())
        && text.bytes().all(is_allowed)
}

fn parse_bool(members: &Map<String, Value>, field: &'static str) -> Result<bool, MalformedContract> {
    members.get(field).map_or(Ok(false), |value| value.as_bool().ok_or(MalformedContract { field }))
}

/// Parses a list of texts; each must be valid and occur once.
fn parse_list<T: Ord>(
    members: &Map<String, Value>,
    field: &'static str,
    presence: Presence,
    parse_item: impl Fn(&str) -> Option<T>,
) -> Result<BTreeSet<T>, MalformedContract> {
    let malformed = MalformedContract { field };
    let Some(value) = members.get(field) else {
        return if presence == Presence::Required { Err(malformed) } else { Ok(BTreeSet::new()) };
    };
    let items = value.as_array().filter(|items| items.len() <= MAX_LIST_ENTRIES).ok_or(malformed)?;
    let texts: BTreeSet<&str> = items.iter().map(|item| item.as_str().ok_or(malformed)).collect::<Result<_, _>>()?;
    if texts.len() != items.len() {
        return Err(malformed);
    }
    texts.into_iter().map(|text| parse_item(text).ok_or(malformed)).collect()
}

fn parse_principal(text: &str) -> Option<ActorRef> {
    let actor = ActorRef::parse(text).ok()?;
    match actor.kind() {
        ActorKind::User | ActorKind::Group | ActorKind::Service | ActorKind::System | ActorKind::Anonymous => {
            Some(actor)
        }
        // The holder of a share link can be any person, so a contract cannot list it.
        ActorKind::ShareLink => None,
    }
}

fn parse_group(text: &str) -> Option<ActorRef> {
    let name = text.strip_prefix("group:").unwrap_or(text);
    ActorRef::parse(&format!("group:{name}")).ok()
}

/// Parses a workspace identifier. Only the hyphenated form of a UUID is accepted, in either case.
fn parse_workspace(text: &str) -> Option<WorkspaceId> {
    let id = Uuid::try_parse(text).ok()?;
    id.hyphenated().to_string().eq_ignore_ascii_case(text).then(|| id.into())
}

#[cfg(test)]
mod tests;
