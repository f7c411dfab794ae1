//! Chat memory: the turns of a conversation, stored for its next run (contract 5).
//!
//! A turn belongs to the calling actor, in one workload and one session. Its text comes from people and models: runs
//! replay it as earlier messages and never as instructions. Its owner can erase it.

pub mod ports;
#[cfg(test)]
mod tests;

use crate::{
    access::{ActorKind, ActorRef},
    audit::{Fact, FactKind, Stamp, Subject},
    execution::Payload,
    id::{AssetId, ExecutionId, WorkloadId},
    time::Timestamp,
    workload::Workload,
};
use serde_json::{Map, Value, json};
use std::fmt;
use uuid::Uuid;

/// Maximum length of a session id, in characters.
pub const MAX_SESSION_CHARS: usize = 128;
/// Maximum length of a turn, question and response together, in bytes. A longer turn is not stored.
pub const MAX_TURN_BYTES: usize = 32 << 10;
/// Maximum bytes of earlier turns that a run receives.
pub const MAX_REPLAY_BYTES: usize = 64 << 10;
/// Upper bound of stored turns per session, or per user with user scope, regardless of the asset.
pub const MAX_TURNS: u32 = 200;
/// Default number of stored turns.
pub const DEFAULT_TURNS: u32 = 50;
/// Default retention of a turn in days, equal to that of responses.
pub const DEFAULT_DAYS: u32 = 30;

/// Client-chosen identifier of a conversation: 1 to 128 letters, digits and `._:@+=~-`. It starts with a letter, a
/// digit, `_` or `-`, so it is always a safe path segment.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionId(String);

/// A malformed session id.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a session id has 1 to 128 letters, digits and `._:@+=~-`, and starts with a letter, a digit, `_` or `-`")]
pub struct MalformedSession;

impl SessionId {
    /// Regular expression of valid identifiers.
    pub const PATTERN: &str = r"^[A-Za-z0-9_-][A-Za-z0-9._:@+=~-]{0,127}$";

    /// Parses an identifier.
    ///
    /// # Errors
    /// Returns an error when the text does not match the pattern.
    pub fn parse(text: &str) -> Result<Self, MalformedSession> {
        let begins = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        let continues = |byte: u8| begins(byte) || matches!(byte, b'.' | b':' | b'@' | b'+' | b'=' | b'~');
        let valid =
            text.len() <= MAX_SESSION_CHARS && text.bytes().next().is_some_and(begins) && text.bytes().all(continues);
        valid.then(|| Self(text.to_owned())).ok_or(MalformedSession)
    }

    /// The identifier as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// Key of a conversation: actor, workload and session.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConversationKey {
    /// Workload.
    pub workload: WorkloadId,
    /// Owner: the calling actor.
    pub owner: ActorRef,
    /// Session.
    pub session: SessionId,
}

impl ConversationKey {
    /// The key of a caller's conversation; `None` for anonymous callers and share links. Their conversations have no
    /// owner, so guessing a session id would expose the turns of another person.
    #[must_use]
    pub fn for_caller(workload: WorkloadId, owner: &ActorRef, session: SessionId) -> Option<Self> {
        match owner.kind() {
            ActorKind::Anonymous | ActorKind::ShareLink => None,
            ActorKind::User | ActorKind::Group | ActorKind::Service | ActorKind::System => {
                Some(Self { workload, owner: owner.clone(), session })
            }
        }
    }
}

/// The turns that a run receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemoryScope {
    /// Turns of its session.
    Session,
    /// Turns of all sessions of the user with the workload.
    User,
}

impl MemoryScope {
    /// The spelling in content.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::User => "user",
        }
    }
}

/// When a turn is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WritePolicy {
    /// Never; stored turns are still replayed.
    Off,
    /// When a run ends with a response.
    Auto,
}

/// Handling of personal data before a turn is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PersonalDataPolicy {
    /// A turn with personal data is not stored.
    Block,
    /// Personal data is masked.
    Mask,
    /// Personal data is stored.
    Allow,
}

impl PersonalDataPolicy {
    /// Whether turns that may contain personal data are withheld. Another version of the asset may have permitted them.
    #[must_use]
    pub const fn requires_masked_turns(self) -> bool {
        match self {
            Self::Block | Self::Mask => true,
            Self::Allow => false,
        }
    }
}

/// Handling of turns when their access contract is revoked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnRevoke {
    /// Turns stay until they expire, but are not replayed under a revoked contract.
    Keep,
    /// Turns are erased with the revocation.
    Erase,
}

/// Memory settings of an asset version.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemoryConfig {
    /// Scope of the replayed turns.
    pub scope: MemoryScope,
    /// Maximum number of stored and replayed turns.
    pub max_turns: u32,
    /// Retention in days.
    pub retention_days: u32,
    /// When a turn is stored.
    pub write_policy: WritePolicy,
    /// Handling of personal data.
    pub personal_data: PersonalDataPolicy,
    /// Handling of turns when a contract is revoked.
    pub on_revoke: OnRevoke,
}

impl MemoryConfig {
    /// Parses a version's content.
    ///
    /// # Errors
    /// Returns JSON pointers to unsupported settings. The run then stores nothing, rather than deviating from the
    /// settings.
    pub fn parse(content: &Value) -> Result<Self, Vec<&'static str>> {
        let text = |name| content.get(name).and_then(Value::as_str);
        let number = |name| content.get(name).and_then(Value::as_u64).and_then(|number| u32::try_from(number).ok());
        let truth = |name| content.get(name).and_then(Value::as_bool) == Some(true);
        let mut unsupported = Vec::new();
        let scope = match text("scope") {
            Some("session") => MemoryScope::Session,
            Some("user") => MemoryScope::User,
            Some(_) | None => {
                unsupported.push("/scope");
                MemoryScope::Session
            }
        };
        if text("type") != Some("buffer") {
            unsupported.push("/type");
        }
        let write_policy = match text("write_policy") {
            Some("off") => WritePolicy::Off,
            Some("auto") | None => WritePolicy::Auto,
            Some(_) => {
                unsupported.push("/write_policy");
                WritePolicy::Off
            }
        };
        if truth("consent_required") {
            unsupported.push("/consent_required");
        }
        for (name, pointer) in
            [("store_ref", "/store_ref"), ("retrieval", "/retrieval"), ("embedding_route", "/embedding_route")]
        {
            if content.get(name).is_some() {
                unsupported.push(pointer);
            }
        }
        if !unsupported.is_empty() {
            return Err(unsupported);
        }
        Ok(Self {
            scope,
            max_turns: number("max_items").unwrap_or(DEFAULT_TURNS).min(MAX_TURNS),
            retention_days: number("ttl_days").unwrap_or(DEFAULT_DAYS),
            write_policy,
            // The default is the cautious choice.
            personal_data: match text("pii") {
                Some("allow") => PersonalDataPolicy::Allow,
                Some("block") => PersonalDataPolicy::Block,
                Some(_) | None => PersonalDataPolicy::Mask,
            },
            on_revoke: if truth("erase_on_revoke") { OnRevoke::Erase } else { OnRevoke::Keep },
        })
    }
}

/// The memory asset that a release binds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BoundMemory {
    /// Asset.
    pub asset: AssetId,
    /// Slug.
    pub slug: String,
    /// Settings of the bound version.
    pub config: MemoryConfig,
}

/// A stored turn.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredTurn {
    /// Run that produced the turn.
    pub execution_id: ExecutionId,
    /// Question.
    pub question: String,
    /// Response.
    pub response: String,
    /// Salted digest of both; it reveals nothing once they are erased.
    pub digest: [u8; 32],
    /// Time when the turn was stored.
    pub stored_at: Timestamp,
    /// Expiry.
    pub expires_at: Timestamp,
}

/// Earlier turns of a run's conversation.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RecalledTurns {
    /// Latest erasure of the conversation within retention, if any. A run that started before a newer erasure writes no
    /// turn.
    pub last_erasure: Option<Uuid>,
    /// Earlier turns, oldest first.
    pub turns: Vec<StoredTurn>,
}

/// A turn that a run submits to memory after it ended with a response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WritebackTurn {
    /// Memory asset.
    pub memory: BoundMemory,
    /// Latest erasure that the run has seen.
    pub last_erasure: Option<Uuid>,
    /// Question.
    pub question: String,
    /// Response.
    pub response: String,
}

impl WritebackTurn {
    /// Length in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.question.len().saturating_add(self.response.len())
    }
}

/// A turn that is written with the end of its run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Writeback {
    /// Conversation.
    pub conversation: ConversationKey,
    /// Turn.
    pub turn: WritebackTurn,
    /// Salt of its digest, erased with the turn.
    pub salt: [u8; 16],
    /// Access contracts of the turn. It is not stored if one of them is revoked by then.
    pub contracts: Vec<String>,
}

impl Writeback {
    /// Digest that identifies the turn without revealing it.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        turn_digest(&self.turn.question, &self.turn.response, self.salt)
    }
}

/// Salted digest of a turn.
#[must_use]
pub fn turn_digest(said: &str, answered: &str, salt: [u8; 16]) -> [u8; 32] {
    Payload { body: json!([said, answered]).to_string().into(), salt }.digest()
}

/// The question of a run as stored in memory: the last user message, otherwise its inputs.
#[must_use]
pub fn question_of(inputs: &Map<String, Value>) -> String {
    let last = inputs.get("messages").and_then(Value::as_array).and_then(|messages| {
        let by_user = |message: &&Value| message.get("role").and_then(Value::as_str) == Some("user");
        messages.iter().rev().find(by_user)?.get("content")?.as_str()
    });
    match (last, inputs.get("message")) {
        (Some(last), _) => last.to_owned(),
        (None, Some(Value::String(message))) => message.clone(),
        (None, Some(message)) => message.to_string(),
        (None, None) => Value::Object(inputs.clone()).to_string(),
    }
}

/// Erasure of all turns of a conversation that existed at the time of the decision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConversationErasure {
    /// Conversation.
    pub conversation: ConversationKey,
    /// Number of turns.
    pub turns: u32,
    /// Fact of the erasure.
    pub fact: Fact,
}

impl ConversationErasure {
    /// Erases a conversation. The fact names the owner and the number of turns; it omits the session id, which is the
    /// caller's text.
    #[must_use]
    pub fn create(conversation: ConversationKey, turns: u32, workload: &Workload, stamp: &Stamp) -> Self {
        let detail = json!({ "owner": conversation.owner.to_string(), "turns": turns });
        let subject = Subject { kind: "workload", id: workload.workload_id.uuid() };
        let fact = Fact::new(FactKind::MemoryErased, subject, Some(workload.workspace_id), stamp, detail);
        Self { conversation, turns, fact }
    }
}
