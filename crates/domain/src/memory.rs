//! Conversation memory: stored turns of a conversation, which later runs of the same conversation receive.
//!
//! A turn belongs to the actor that submitted its run, in one workload and one session. Its text comes from people and
//! models. Runs therefore replay turns as earlier messages and never as instructions. The owner can erase the turns.

pub mod ports;
#[cfg(test)]
mod tests;

use crate::{
    access::{ActorKind, ActorRef},
    audit::{Fact, FactKind, FactSubject, Stamp},
    execution::Payload,
    id::{AssetId, ExecutionId, WorkloadId},
    time::Timestamp,
    workload::Workload,
};
use serde_json::{Map, Value, json};
use std::fmt;
use uuid::Uuid;

/// The maximum length of a session identifier, in characters.
pub const MAX_SESSION_CHARS: usize = 128;
/// The maximum length of a turn, in bytes of question and response together. A longer turn is not stored.
pub const MAX_TURN_BYTES: usize = 32 << 10;
/// The maximum length of all earlier turns that a run receives, in bytes.
pub const MAX_REPLAY_BYTES: usize = 64 << 10;
/// The upper bound of the stored turns of a session, or of a user if the memory has user scope. Assets can only set a
/// lower number.
pub const MAX_STORED_TURNS: u32 = 200;
/// The default of the maximum number of stored turns.
pub const DEFAULT_MAX_STORED_TURNS: u32 = 50;
/// The default retention of a turn, in days. It equals the retention of the responses of runs.
pub const DEFAULT_RETENTION_DAYS: u32 = 30;

/// The identifier that a client chooses for a conversation: 1 to 128 letters, digits and `._:@+=~-`. It starts
/// with a letter, a digit, `_` or `-`, so that it is always a safe path segment.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConversationSessionId(String);

/// The text does not have the form of a session identifier.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a session id has 1 to 128 letters, digits and `._:@+=~-`, and starts with a letter, a digit, `_` or `-`")]
pub struct MalformedConversationSessionId;

impl ConversationSessionId {
    /// The regular expression of valid session identifiers.
    pub const PATTERN: &str = r"^[A-Za-z0-9_-][A-Za-z0-9._:@+=~-]{0,127}$";

    /// Parses a session identifier.
    ///
    /// # Errors
    /// Returns an error when the text does not match the pattern.
    pub fn parse(text: &str) -> Result<Self, MalformedConversationSessionId> {
        let may_start = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        let may_continue = |byte: u8| may_start(byte) || matches!(byte, b'.' | b':' | b'@' | b'+' | b'=' | b'~');
        let is_valid = text.len() <= MAX_SESSION_CHARS
            && text.bytes().next().is_some_and(may_start)
            && text.bytes().all(may_continue);
        is_valid.then(|| Self(text.to_owned())).ok_or(MalformedConversationSessionId)
    }

    /// The session identifier as a text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ConversationSessionId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Identifies a conversation by workload, owner and session.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConversationKey {
    /// The workload with which the conversation takes place.
    pub workload: WorkloadId,
    /// The actor to which the conversation belongs.
    pub owner: ActorRef,
    /// The identifier that the client chose for the conversation.
    pub session: ConversationSessionId,
}

impl ConversationKey {
    /// The key of a caller's conversation. Returns `None` for anonymous callers and holders of share links. They are
    /// not distinguishable persons, so a guessed session identifier would expose the turns of another person.
    #[must_use]
    pub fn for_caller(workload: WorkloadId, owner: &ActorRef, session: ConversationSessionId) -> Option<Self> {
        match owner.kind() {
            ActorKind::Anonymous | ActorKind::ShareLink => None,
            ActorKind::User | ActorKind::Group | ActorKind::Service | ActorKind::System => {
                Some(Self { workload, owner: owner.clone(), session })
            }
        }
    }
}

/// Which earlier turns a run receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemoryScope {
    /// The turns of the run's session.
    Session,
    /// The turns of all sessions that the user has with the workload.
    User,
}

impl MemoryScope {
    /// The scope as content spells it, such as `session`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::User => "user",
        }
    }
}

/// Whether runs store turns in the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WritePolicy {
    /// Runs store no turns. Turns that are already stored are still replayed.
    Off,
    /// A run stores its turn when it ends with a response.
    Auto,
}

/// How a run treats personal data in its turn before it stores the turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PersonalDataPolicy {
    /// A turn with personal data is not stored.
    Block,
    /// Personal data is masked before the turn is stored.
    Mask,
    /// The turn is stored with its personal data.
    Allow,
}

impl PersonalDataPolicy {
    /// Whether runs must not receive stored turns that may contain personal data. Such turns exist if another version
    /// of the asset allowed them.
    #[must_use]
    pub const fn excludes_unmasked_turns(self) -> bool {
        match self {
            Self::Block | Self::Mask => true,
            Self::Allow => false,
        }
    }
}

/// The effect of an access contract's revocation on turns that depend on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnRevoke {
    /// The turns remain stored until they expire, but runs do not receive them while the contract is revoked.
    Keep,
    /// The turns are erased when the contract is revoked.
    Erase,
}

/// The memory settings of an asset version.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemoryConfig {
    /// Which earlier turns a run receives.
    pub scope: MemoryScope,
    /// The maximum number of turns that are stored, and that a run receives.
    pub max_turns: u32,
    /// The retention of a turn, in days.
    pub retention_days: u32,
    /// Whether runs store their turns.
    pub write_policy: WritePolicy,
    /// How a run treats personal data in its turn.
    pub personal_data: PersonalDataPolicy,
    /// The effect of an access contract's revocation on turns that depend on it.
    pub on_revoke: OnRevoke,
}

impl MemoryConfig {
    /// Parses the memory settings in the content of a version.
    ///
    /// # Errors
    /// Returns the JSON pointers to unsupported settings. A run then uses no memory, because a partly applied
    /// configuration would deviate from the intention of its author.
    pub fn parse(content: &Value) -> Result<Self, Vec<&'static str>> {
        let text = |name| content.get(name).and_then(Value::as_str);
        let number = |name| content.get(name).and_then(Value::as_u64).and_then(|number| u32::try_from(number).ok());
        let is_true = |name| content.get(name).and_then(Value::as_bool) == Some(true);
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
        if is_true("consent_required") {
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
            max_turns: number("max_items").unwrap_or(DEFAULT_MAX_STORED_TURNS).min(MAX_STORED_TURNS),
            retention_days: number("ttl_days").unwrap_or(DEFAULT_RETENTION_DAYS),
            write_policy,
            // Masking is the default, because it stores the least personal data without losing turns.
            personal_data: match text("pii") {
                Some("allow") => PersonalDataPolicy::Allow,
                Some("block") => PersonalDataPolicy::Block,
                Some(_) | None => PersonalDataPolicy::Mask,
            },
            on_revoke: if is_true("erase_on_revoke") { OnRevoke::Erase } else { OnRevoke::Keep },
        })
    }
}

/// The memory asset that a release binds, with its settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BoundMemory {
    /// The asset that defines the memory. Turns are stored under it.
    pub asset: AssetId,
    /// The slug of the asset.
    pub slug: String,
    /// The settings of the bound version.
    pub config: MemoryConfig,
}

/// A stored turn of a conversation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredTurn {
    /// The run that produced the turn.
    pub execution_id: ExecutionId,
    /// The message of the person, see [`question_of`].
    pub question: String,
    /// The text of the response.
    pub response: String,
    /// The salted digest of question and response. It reveals nothing once the texts and the salt are erased.
    pub digest: [u8; 32],
    /// The time at which the turn was stored.
    pub stored_at: Timestamp,
    /// The time at which the turn expires.
    pub expires_at: Timestamp,
}

/// The earlier turns that a run receives.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RecalledTurns {
    /// The latest erasure of the conversation within the retention, if any. If the conversation is erased again during
    /// the run, the run stores no turn.
    pub last_erasure: Option<Uuid>,
    /// The earlier turns, oldest first.
    pub turns: Vec<StoredTurn>,
}

/// The turn that a run stores after it ended with a response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WritebackTurn {
    /// The memory asset that the release binds.
    pub memory: BoundMemory,
    /// The latest erasure of the conversation that the run has read, if any. If there is a later one, the turn is not
    /// stored.
    pub last_erasure: Option<Uuid>,
    /// The text of the person.
    pub question: String,
    /// The text of the response.
    pub response: String,
}

impl WritebackTurn {
    /// The length of question and response together, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.question.len().saturating_add(self.response.len())
    }
}

/// A turn to store in the same commit as the end of its run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Writeback {
    /// The conversation to which the turn belongs.
    pub conversation: ConversationKey,
    /// The texts of the turn, with the memory that stores them.
    pub turn: WritebackTurn,
    /// The salt of the turn's digest, which is erased together with the turn.
    pub salt: [u8; 16],
    /// The identifiers of the access contracts on which the turn depends. If one of them is revoked before the commit,
    /// the turn is not stored.
    pub contracts: Vec<String>,
}

impl Writeback {
    /// The salted digest of the turn, which identifies the turn without revealing its texts.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        turn_digest(&self.turn.question, &self.turn.response, self.salt)
    }
}

/// The salted digest of a question and a response.
#[must_use]
pub fn turn_digest(question: &str, response: &str, salt: [u8; 16]) -> [u8; 32] {
    Payload { body: json!([question, response]).to_string().into(), salt }.digest()
}

/// The question of a run, as the memory stores it: the last message of the role `user`, or else the input `message`, or
/// else all inputs as JSON.
#[must_use]
pub fn question_of(inputs: &Map<String, Value>) -> String {
    let last_message = inputs.get("messages").and_then(Value::as_array).and_then(|messages| {
        let is_from_user = |message: &&Value| message.get("role").and_then(Value::as_str) == Some("user");
        messages.iter().rev().find(is_from_user)?.get("content")?.as_str()
    });
    match (last_message, inputs.get("message")) {
        (Some(last_message), _) => last_message.to_owned(),
        (None, Some(Value::String(message))) => message.clone(),
        (None, Some(message)) => message.to_string(),
        (None, None) => Value::Object(inputs.clone()).to_string(),
    }
}

/// The erasure of all turns that a conversation has at the time of the decision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConversationErasure {
    /// The key of the erased conversation.
    pub conversation: ConversationKey,
    /// The number of erased turns.
    pub turns: u32,
    /// The fact that records the erasure.
    pub fact: Fact,
}

impl ConversationErasure {
    /// Erases a conversation. The fact names the owner and the number of turns. It omits the session identifier,
    /// because the caller chose that text freely.
    #[must_use]
    pub fn create(conversation: ConversationKey, turns: u32, workload: &Workload, stamp: &Stamp) -> Self {
        let detail = json!({ "owner": conversation.owner.to_string(), "turns": turns });
        let subject = FactSubject { kind: "workload", id: workload.workload_id.uuid() };
        let fact = Fact::new(FactKind::MemoryErased, subject, Some(workload.workspace_id), stamp, detail);
        Self { conversation, turns, fact }
    }
}
