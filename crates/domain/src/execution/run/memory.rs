//! Chat memory in a run: earlier turns go in front of what is asked, and the turn itself is offered when the run has ended
//! with an answer.

use super::{Ended, Outside, Run, Turn};
use crate::{
    asset::ports::ArtifactPath,
    evidence::EvidenceArtifact,
    execution::{
        Status, digest_text,
        provider::{Message, MessageRole},
        retrieval::{BoundKnowledge, told},
    },
    id::ExecutionId,
    knowledge::contract::ContractDecision,
    memory::{
        BoundMemory, MAX_TURN_BYTES, MemoryPlace, OfferedTurn, PersonalData, Recalled, WritePolicy, Writeback, said,
    },
    redaction::{Redaction, Redactor},
};
use serde_json::{Map, Value, json};
use uuid::Uuid;

/// What a run is told of its conversation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Recollection {
    /// What is there. The contracts of the bound knowledge bases said this of it, in their order; where one of them does
    /// not allow replay, no turns are among it.
    Read(Vec<ContractDecision>, Recalled),
    /// The same for a run that goes on from answers which another worker kept. That one was told of its conversation when it
    /// began, and of erasures only those until then: where there was one lately, the run writes nothing.
    ReadAgain(Vec<ContractDecision>, Recalled),
    /// Nobody could say. The run goes on without, and writes nothing.
    Unavailable,
}

/// How a run stands to its conversation.
#[derive(Clone, Debug, Default)]
pub(super) enum Conversing {
    /// It is in none, or remembers nothing of it.
    #[default]
    No,
    /// It wants to be told of it.
    Wants,
    /// It knows of it.
    Knows {
        /// What was said in it, in order.
        earlier: Vec<Message>,
        /// What its turn is written by.
        writing: Writing,
    },
}

/// Whether a run may write its turn.
#[derive(Clone, Copy, Debug)]
pub(super) enum Writing {
    /// If this is still the last erasure of its conversation.
    Unless(Option<Uuid>),
    /// It may not: it goes on from answers, and nobody knows whether they hold what was erased.
    Never,
}

impl Conversing {
    pub(super) fn earlier(&self) -> &[Message] {
        match self {
            Self::Knows { earlier, .. } => earlier,
            Self::No | Self::Wants => &[],
        }
    }
}

impl<'a> Run<'a> {
    /// The same, in a conversation that its release remembers. Without a bound memory nothing changes.
    #[must_use]
    pub fn in_conversation(mut self) -> Self {
        if self.subject.plan.memory.is_some() {
            self.conversing = Conversing::Wants;
        }
        self
    }

    /// Goes on with what there is of its conversation. Where nobody asked for that, nothing changes.
    pub fn recalled(&mut self, recollection: Recollection) -> Turn {
        let (Conversing::Wants, Some(memory)) = (&self.conversing, &self.subject.plan.memory) else {
            return Turn::Ended;
        };
        let mut body = about(memory, "replay");
        self.conversing = match recollection {
            Recollection::Unavailable => {
                body.insert("decision".to_owned(), json!("unavailable"));
                Conversing::No
            }
            Recollection::Read(decisions, recalled) => {
                let writing = Writing::Unless(recalled.erasure);
                self.knows(&mut body, (&memory.slug, &decisions), recalled, writing)
            }
            Recollection::ReadAgain(decisions, recalled) => {
                let writing = match recalled.erasure {
                    None => Writing::Unless(None),
                    Some(_) => {
                        body.insert("writeback".to_owned(), json!("erased_lately"));
                        Writing::Never
                    }
                };
                self.knows(&mut body, (&memory.slug, &decisions), recalled, writing)
            }
        };
        self.keep_document("memory", "memory.json", body);
        self.begin()
    }

    /// Takes earlier turns up, and says of them what evidence says.
    fn knows(
        &mut self,
        body: &mut Map<String, Value>,
        (slug, decisions): (&str, &[ContractDecision]),
        recalled: Recalled,
        writing: Writing,
    ) -> Conversing {
        let bytes: usize = recalled.turns.iter().map(|turn| turn.said.len() + turn.answered.len()).sum();
        let digests: Vec<String> = recalled.turns.iter().map(|turn| digest_text(&turn.digest)).collect();
        body.extend(decided(&self.subject.plan.knowledge, decisions));
        body.insert("turns".to_owned(), json!(recalled.turns.len()));
        body.insert("size_bytes".to_owned(), json!(bytes));
        body.insert("digests".to_owned(), json!(digests));
        self.note_memory(slug, &recalled.turns);
        let mut earlier = Vec::new();
        for turn in recalled.turns {
            earlier.push(Message::of(MessageRole::User, turn.said));
            earlier.push(Message::of(MessageRole::Assistant, turn.answered));
        }
        Conversing::Knows { earlier, writing }
    }

    /// What is to be remembered if the run ends well: what was asked, as guardrails and hooks left it. The answer is not known before everything that the
    /// run owes is done.
    pub(super) fn to_remember(&self) -> Option<OfferedTurn> {
        let (Conversing::Knows { writing, .. }, Some(memory)) = (&self.conversing, &self.subject.plan.memory) else {
            return None;
        };
        match (memory.remembering.write_policy, *writing) {
            (WritePolicy::Off, _) | (WritePolicy::Auto, Writing::Never) => None,
            (WritePolicy::Auto, Writing::Unless(erasure)) => {
                Some(OfferedTurn { memory: memory.clone(), erasure, said: said(&self.inputs), answered: String::new() })
            }
        }
    }
}

impl Ended {
    /// Puts the answer into the turn that is offered. What ended otherwise, or waits for a person, is not remembered.
    pub(super) fn offer(&mut self) {
        let answer = self.output.as_ref().filter(|_| self.status == Status::Completed).map(|(output, _)| output);
        let Some((answer, turn)) = answer.zip(self.turn.as_mut()) else {
            self.turn = None;
            return;
        };
        turn.answered = match answer {
            Value::String(text) => text.clone(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => answer.to_string(),
        };
    }

    /// The turn to write, by what the contracts of the bound knowledge bases say of that now, in their order; `None` where
    /// nobody could say. What became of it is kept as evidence.
    #[must_use]
    pub fn remember(
        &mut self,
        (execution_id, place): (ExecutionId, MemoryPlace),
        knowledge: &[BoundKnowledge],
        decisions: Option<&[ContractDecision]>,
        outside: Outside<'_>,
    ) -> Option<Writeback> {
        let mut turn = self.turn.take()?;
        let mut body = about(&turn.memory, "writeback");
        let verdict = match decisions {
            None => Verdict::Unavailable,
            Some(decisions) => {
                body.extend(decided(knowledge, decisions));
                judge(&mut turn, allows(knowledge, decisions), outside)
            }
        };
        body.insert("decision".to_owned(), json!(verdict.as_str()));
        let contracts = knowledge.iter().filter_map(|bound| bound.base.contract_id()).map(str::to_owned).collect();
        let written =
            (verdict == Verdict::Offered).then(|| Writeback { place, turn, salt: outside.ids.salt(), contracts });
        if let Some(written) = &written {
            body.insert("size_bytes".to_owned(), json!(written.turn.bytes()));
            body.insert("digest".to_owned(), json!(digest_text(&written.digest())));
        }
        let artifact_id = outside.ids.fresh().into();
        self.artifacts.push(EvidenceArtifact {
            artifact_id,
            kind: "memory",
            storage_ref: ArtifactPath::of_evidence(execution_id, artifact_id, "memory.json"),
            body,
            payload: None,
            created_at: outside.clock.now(),
        });
        written
    }
}

/// What becomes of a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    /// It is offered, and written unless its conversation was erased or a contract has ended by then.
    Offered,
    /// A contract does not allow it.
    Refused,
    /// Nobody could say what the contracts allow.
    Unavailable,
    /// It holds personal data.
    PersonalData,
    /// It is longer than a turn may be.
    TooLong,
    /// It holds a NUL, which no column of text takes: its run could not be ended with it.
    Unstorable,
}

impl Verdict {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Offered => "offered",
            Self::Refused => "deny",
            Self::Unavailable => "unavailable",
            Self::PersonalData => "personal_data",
            Self::TooLong => "too_long",
            Self::Unstorable => "unstorable",
        }
    }
}

/// Masks what is to be masked, and says whether the turn is offered. It is measured first: what is far too long is not
/// looked through.
fn judge(turn: &mut OfferedTurn, allowed: bool, outside: Outside<'_>) -> Verdict {
    if !allowed {
        return Verdict::Refused;
    }
    if turn.bytes() > MAX_TURN_BYTES {
        return Verdict::TooLong;
    }
    if [&turn.said, &turn.answered].into_iter().any(|text| text.contains('\0')) {
        return Verdict::Unstorable;
    }
    let personal_data = turn.memory.remembering.personal_data;
    if personal_data == PersonalData::Allow {
        return Verdict::Offered;
    }
    let (said, answered) = (masked(&turn.said, outside.redactor), masked(&turn.answered, outside.redactor));
    let found = !said.found.is_empty() || !answered.found.is_empty();
    if found && personal_data == PersonalData::Block {
        return Verdict::PersonalData;
    }
    (turn.said, turn.answered) = (said.text, answered.text);
    // A mask may be longer than what it stands for.
    if turn.bytes() > MAX_TURN_BYTES { Verdict::TooLong } else { Verdict::Offered }
}

/// A text without personal data. What is JSON is looked through as such: there a key may say what a value is.
fn masked(text: &str, redactor: &Redactor) -> Redaction {
    match crate::json::read(text.as_bytes()) {
        Ok(mut value @ (Value::Object(_) | Value::Array(_))) => {
            let found = redactor.redact(&mut value);
            Redaction { text: value.to_string(), found }
        }
        Ok(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) | Err(_) => redactor.redact_text(text),
    }
}

/// Whether every bound knowledge base has a decision, and each allows it.
#[must_use]
pub fn allows(knowledge: &[BoundKnowledge], decisions: &[ContractDecision]) -> bool {
    knowledge.len() == decisions.len() && decisions.iter().all(ContractDecision::is_allowed)
}

fn about(memory: &BoundMemory, operation: &str) -> Map<String, Value> {
    Map::from_iter([
        ("operation".to_owned(), json!(operation)),
        ("memory".to_owned(), json!(memory.slug)),
        ("memory_asset_id".to_owned(), json!(memory.asset)),
        ("scope".to_owned(), json!(memory.remembering.scope.as_str())),
    ])
}

/// What the contracts said.
fn decided(knowledge: &[BoundKnowledge], decisions: &[ContractDecision]) -> Map<String, Value> {
    let contracts: Vec<Value> = knowledge
        .iter()
        .zip(decisions)
        .map(|(bound, decision)| {
            let mut told = told(decision);
            told.insert("knowledge_base".to_owned(), json!(bound.slug));
            Value::Object(told)
        })
        .collect();
    let verdict = if allows(knowledge, decisions) { "allow" } else { "deny" };
    Map::from_iter([("decision".to_owned(), json!(verdict)), ("contracts".to_owned(), Value::Array(contracts))])
}
