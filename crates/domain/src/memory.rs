//! Chat memory: what was said in a conversation and answered, kept for its next run (contract 5).
//!
//! A turn belongs to whoever asked, in one workload and one session. It is text that people and models wrote: it is
//! replayed as earlier messages and never as instructions, and its owner can have it erased.

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

/// Longest name of a session, in characters.
pub const MAX_SESSION: usize = 128;
/// Longest turn that is kept, question and answer together, in bytes. A longer one is not remembered.
pub const MAX_TURN_BYTES: usize = 32 << 10;
/// Most bytes of earlier turns that go into a run.
pub const MAX_REPLAY_BYTES: usize = 64 << 10;
/// Most turns that are kept of one session, or of one user where memory is the user's, whatever an asset says.
pub const MOST_TURNS: u32 = 200;
/// The same where the asset says nothing.
pub const DEFAULT_TURNS: u32 = 50;
/// Days that a turn is kept where the asset says nothing: as long as answers are.
pub const DEFAULT_DAYS: u32 = 30;

/// The name that a caller gives to a conversation: 1 to 128 letters, digits and `._:@+=~-`, the first a letter, a digit,
/// `_` or `-`, so that it is one part of a path wherever it stands.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionId(String);

/// A text that names no session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a session is named by 1 to 128 letters, digits and `._:@+=~-`, and begins with a letter, a digit, `_` or `-`")]
pub struct MalformedSession;

impl SessionId {
    /// What names have the form of, as a regular expression.
    pub const PATTERN: &str = r"^[A-Za-z0-9_-][A-Za-z0-9._:@+=~-]{0,127}$";

    /// Reads a name.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(text: &str) -> Result<Self, MalformedSession> {
        let begins = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        let goes_on = |byte: u8| begins(byte) || matches!(byte, b'.' | b':' | b'@' | b'+' | b'=' | b'~');
        let sound = text.len() <= MAX_SESSION && text.bytes().next().is_some_and(begins) && text.bytes().all(goes_on);
        sound.then(|| Self(text.to_owned())).ok_or(MalformedSession)
    }

    /// The name.
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

/// Whose turns: of one actor, in one workload and session.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MemoryPlace {
    /// Where it was said.
    pub workload: WorkloadId,
    /// Who asked.
    pub owner: ActorRef,
    /// In which conversation.
    pub session: SessionId,
}

impl MemoryPlace {
    /// The place of a caller's conversation. Nobody owns what `anonymous` says, nor what the holders of one link say: whoever
    /// guesses the name of another's conversation would read it. Nothing of either is remembered.
    #[must_use]
    pub fn of(workload: WorkloadId, owner: &ActorRef, session: SessionId) -> Option<Self> {
        match owner.kind() {
            ActorKind::Anonymous | ActorKind::ShareLink => None,
            ActorKind::User | ActorKind::Group | ActorKind::Service | ActorKind::System => {
                Some(Self { workload, owner: owner.clone(), session })
            }
        }
    }
}

/// Which turns a run is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// Those of its session.
    Session,
    /// Those of all sessions that its user had with the workload.
    User,
}

impl Scope {
    /// The spelling in contents.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::User => "user",
        }
    }
}

/// When a turn is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WritePolicy {
    /// Never: what is there is replayed.
    Off,
    /// Whenever a run ends with an answer.
    Auto,
}

/// What happens to personal data before a turn is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PersonalData {
    /// A turn that holds any is not kept.
    Block,
    /// It is masked.
    Mask,
    /// Nothing.
    Allow,
}

impl PersonalData {
    /// Whether turns are replayed that may hold some, because another version of the asset let them in.
    #[must_use]
    pub const fn wants_clean(self) -> bool {
        match self {
            Self::Block | Self::Mask => true,
            Self::Allow => false,
        }
    }
}

/// What becomes of turns when an access contract is revoked under which they were kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnRevoke {
    /// They stay until their time is over, and are replayed under no revoked contract.
    Keep,
    /// They are erased with the revocation.
    Erase,
}

/// What a version of a memory asset says, as far as runs go by it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Remembering {
    /// Which turns are replayed.
    pub scope: Scope,
    /// Most turns that are kept and replayed.
    pub most: u32,
    /// Days that a turn is kept.
    pub days: u32,
    /// When a turn is kept.
    pub write_policy: WritePolicy,
    /// What happens to personal data.
    pub personal_data: PersonalData,
    /// What becomes of turns when a contract is revoked.
    pub on_revoke: OnRevoke,
}

impl Remembering {
    /// Reads a version's content.
    ///
    /// # Errors
    /// JSON pointers to what it asks for and this server cannot do: nothing is then remembered, rather than otherwise than
    /// it says.
    pub fn read(content: &Value) -> Result<Self, Vec<&'static str>> {
        let text = |name| content.get(name).and_then(Value::as_str);
        let number = |name| content.get(name).and_then(Value::as_u64).and_then(|number| u32::try_from(number).ok());
        let truth = |name| content.get(name).and_then(Value::as_bool) == Some(true);
        let mut beyond = Vec::new();
        let scope = match text("scope") {
            Some("session") => Scope::Session,
            Some("user") => Scope::User,
            Some(_) | None => {
                beyond.push("/scope");
                Scope::Session
            }
        };
        if text("type") != Some("buffer") {
            beyond.push("/type");
        }
        let write_policy = match text("write_policy") {
            Some("off") => WritePolicy::Off,
            Some("auto") | None => WritePolicy::Auto,
            Some(_) => {
                beyond.push("/write_policy");
                WritePolicy::Off
            }
        };
        if truth("consent_required") {
            beyond.push("/consent_required");
        }
        for (name, pointer) in
            [("store_ref", "/store_ref"), ("retrieval", "/retrieval"), ("embedding_route", "/embedding_route")]
        {
            if content.get(name).is_some() {
                beyond.push(pointer);
            }
        }
        if !beyond.is_empty() {
            return Err(beyond);
        }
        Ok(Self {
            scope,
            most: number("max_items").unwrap_or(DEFAULT_TURNS).min(MOST_TURNS),
            days: number("ttl_days").unwrap_or(DEFAULT_DAYS),
            write_policy,
            // Where nothing is said, the careful reading of it.
            personal_data: match text("pii") {
                Some("allow") => PersonalData::Allow,
                Some("block") => PersonalData::Block,
                Some(_) | None => PersonalData::Mask,
            },
            on_revoke: if truth("erase_on_revoke") { OnRevoke::Erase } else { OnRevoke::Keep },
        })
    }
}

/// The memory asset that a release binds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BoundMemory {
    /// The asset.
    pub asset: AssetId,
    /// Its name.
    pub slug: String,
    /// What the bound version of it says.
    pub remembering: Remembering,
}

/// A turn as it was kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeptTurn {
    /// The run that it was.
    pub execution_id: ExecutionId,
    /// What was asked.
    pub said: String,
    /// What was answered.
    pub answered: String,
    /// A salted digest of both, which says nothing once they are erased.
    pub digest: [u8; 32],
    /// When it was kept.
    pub remembered_at: Timestamp,
    /// When it is forgotten.
    pub expires_at: Timestamp,
}

/// What a run finds of its conversation.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Recalled {
    /// The last erasure of the conversation, if there was one lately. A run that began before another one writes nothing.
    pub erasure: Option<Uuid>,
    /// Earlier turns, the oldest first.
    pub turns: Vec<KeptTurn>,
}

/// A turn that a run offers to memory when it has ended with an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OfferedTurn {
    /// Under which asset.
    pub memory: BoundMemory,
    /// The last erasure that the run knew of.
    pub erasure: Option<Uuid>,
    /// What was asked.
    pub said: String,
    /// What was answered.
    pub answered: String,
}

impl OfferedTurn {
    /// How long it is, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.said.len().saturating_add(self.answered.len())
    }
}

/// A turn that is written with the end of its run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Writeback {
    /// Whose it is.
    pub place: MemoryPlace,
    /// The turn.
    pub turn: OfferedTurn,
    /// The salt of its digest, erased with it.
    pub salt: [u8; 16],
    /// The access contracts that it is kept under. If one is revoked by then, it is not kept.
    pub contracts: Vec<String>,
}

impl Writeback {
    /// What tells it apart without telling anything of it.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        digest(&self.turn.said, &self.turn.answered, self.salt)
    }
}

/// The salted digest of a turn.
#[must_use]
pub fn digest(said: &str, answered: &str, salt: [u8; 16]) -> [u8; 32] {
    Payload { body: json!([said, answered]).to_string(), salt }.digest()
}

/// What a run was asked, in the words that are remembered of it: the last thing that a person said, else its inputs.
#[must_use]
pub fn said(inputs: &Map<String, Value>) -> String {
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

/// What is to be erased: everything that was there when it was decided.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Erasure {
    /// Whose turns.
    pub place: MemoryPlace,
    /// How many there were.
    pub turns: u32,
    /// That it happened.
    pub fact: Fact,
}

impl Erasure {
    /// Erases a conversation. The fact says whose and how many turns; the session's name is the caller's own word and
    /// stays out.
    #[must_use]
    pub fn say(place: MemoryPlace, turns: u32, workload: &Workload, stamp: &Stamp) -> Self {
        let detail = json!({ "owner": place.owner.to_string(), "turns": turns });
        let subject = Subject { kind: "workload", id: workload.workload_id.uuid() };
        let fact = Fact::new(FactKind::MemoryErased, subject, Some(workload.workspace_id), stamp, detail);
        Self { place, turns, fact }
    }
}
