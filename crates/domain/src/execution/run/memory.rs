//! Conversation memory of a run. Earlier turns precede the messages, and a completed run offers its own turn for
//! storage.

use super::{Run, RunEffect, RunEnd};
use crate::{
    asset::artifact_store::ArtifactPath,
    evidence::EvidenceArtifact,
    execution::{
        Status, format_digest,
        provider::{Message, MessageRole},
        retrieval::{BoundKnowledgeBase, contract_decision_members},
    },
    id::ExecutionId,
    knowledge::contract::ContractDecision,
    memory::{
        BoundMemory, ConversationKey, MAX_TURN_BYTES, PersonalDataPolicy, RecalledTurns, WritePolicy, Writeback,
        WritebackTurn, question_of,
    },
    moment::Moment,
    redaction::{Redaction, Redactor},
};
use serde_json::{Map, Value, json};
use uuid::Uuid;

/// The earlier turns of a conversation, as the driver loaded them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum History {
    /// The turns, with the decisions of the access contracts of the bound knowledge bases in binding order. If a
    /// contract forbids replay, there are no turns.
    Loaded(Vec<ContractDecision>, RecalledTurns),
    /// The turns of a run that another worker resumes from stored answers. These answers may contain turns that were
    /// erased since, so the run stores no turn if its conversation was erased recently.
    Reloaded(Vec<ContractDecision>, RecalledTurns),
    /// The turns could not be loaded. The run continues without them, and stores no turn.
    Unavailable,
}

/// Whether a run has the turns of its conversation.
#[derive(Clone, Debug, Default)]
pub(super) enum ConversationState {
    /// The run belongs to no conversation, or the release binds no memory.
    #[default]
    Inactive,
    /// The run needs the earlier turns, which the driver has not loaded yet.
    Requested,
    /// The driver has loaded the earlier turns.
    Loaded {
        /// The messages of the earlier turns, in order.
        messages: Vec<Message>,
        /// The condition under which the run may store its turn.
        write_condition: WriteCondition,
    },
}

/// The condition under which a run may store its turn.
#[derive(Clone, Copy, Debug)]
pub(super) enum WriteCondition {
    /// The run may store its turn unless the conversation was erased after this erasure.
    IfLastErasure(Option<Uuid>),
    /// The run must not store its turn, because it resumed from answers that may contain erased content.
    Never,
}

impl ConversationState {
    pub(super) fn earlier_messages(&self) -> &[Message] {
        match self {
            Self::Loaded { messages, .. } => messages,
            Self::Inactive | Self::Requested => &[],
        }
    }
}

impl<'a> Run<'a> {
    /// Lets the run read and write its conversation. Without bound memory, this has no effect.
    #[must_use]
    pub fn with_conversation(mut self) -> Self {
        if self.run_input.plan.memory.is_some() {
            self.conversation_state = ConversationState::Requested;
        }
        self
    }

    /// Resumes with the earlier turns of the conversation. Returns [`RunEffect::Ended`] if the run requested none.
    pub fn on_history(&mut self, moment: Moment, history: History) -> RunEffect {
        self.moment = moment;
        let (ConversationState::Requested, Some(memory)) = (&self.conversation_state, &self.run_input.plan.memory)
        else {
            return RunEffect::Ended;
        };
        let mut body = memory_evidence(memory, "replay");
        self.conversation_state = match history {
            History::Unavailable => {
                body.insert("decision".to_owned(), json!("unavailable"));
                ConversationState::Inactive
            }
            History::Loaded(decisions, recalled) => {
                let write_condition = WriteCondition::IfLastErasure(recalled.last_erasure);
                self.load_history(&mut body, &memory.slug, &decisions, recalled, write_condition)
            }
            History::Reloaded(decisions, recalled) => {
                let write_condition = match recalled.last_erasure {
                    None => WriteCondition::IfLastErasure(None),
                    Some(_) => {
                        body.insert("writeback".to_owned(), json!("erased_lately"));
                        WriteCondition::Never
                    }
                };
                self.load_history(&mut body, &memory.slug, &decisions, recalled, write_condition)
            }
        };
        self.record_evidence("memory", "memory.json", body);
        self.load_history_or_start()
    }

    /// Adds the earlier turns to the run's messages, and describes them in the evidence `body`.
    fn load_history(
        &mut self,
        body: &mut Map<String, Value>,
        slug: &str,
        decisions: &[ContractDecision],
        recalled: RecalledTurns,
        write_condition: WriteCondition,
    ) -> ConversationState {
        let bytes: usize = recalled.turns.iter().map(|turn| turn.question.len() + turn.response.len()).sum();
        let digests: Vec<String> = recalled.turns.iter().map(|turn| format_digest(&turn.digest)).collect();
        body.extend(contract_evidence(&self.run_input.plan.knowledge, decisions));
        body.insert("turns".to_owned(), json!(recalled.turns.len()));
        body.insert("size_bytes".to_owned(), json!(bytes));
        body.insert("digests".to_owned(), json!(digests));
        self.record_history(slug, &recalled.turns);
        let mut messages = Vec::new();
        for turn in recalled.turns {
            messages.push(Message::text(MessageRole::User, turn.question));
            messages.push(Message::text(MessageRole::Assistant, turn.response));
        }
        ConversationState::Loaded { messages, write_condition }
    }

    /// The turn to store if the run succeeds. It contains the message after all changes by guardrails and hooks. The
    /// answer follows after all obligations are fulfilled.
    pub(super) fn offered_turn(&self) -> Option<WritebackTurn> {
        let (ConversationState::Loaded { write_condition, .. }, Some(memory)) =
            (&self.conversation_state, &self.run_input.plan.memory)
        else {
            return None;
        };
        match (memory.config.write_policy, *write_condition) {
            (WritePolicy::Off, _) | (WritePolicy::Auto, WriteCondition::Never) => None,
            (WritePolicy::Auto, WriteCondition::IfLastErasure(erasure)) => Some(WritebackTurn {
                memory: memory.clone(),
                last_erasure: erasure,
                question: question_of(&self.inputs),
                response: String::new(),
            }),
        }
    }
}

impl RunEnd {
    /// Adds the answer to the offered turn. A run that failed or awaits review offers no turn.
    pub(super) fn set_turn_answer(&mut self) {
        let answer = self.output.as_ref().filter(|_| self.status == Status::Completed).map(|(output, _)| output);
        let Some((answer, turn)) = answer.zip(self.offered_turn.as_mut()) else {
            self.offered_turn = None;
            return;
        };
        turn.response = match answer {
            Value::String(text) => text.clone(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => answer.to_string(),
        };
    }

    /// Decides whether to store the turn, and records that decision as evidence. `decisions` are the current decisions
    /// of the access contracts in binding order; `None` if they could not be loaded.
    #[must_use]
    pub fn decide_writeback(
        &mut self,
        execution_id: ExecutionId,
        conversation_key: ConversationKey,
        knowledge: &[BoundKnowledgeBase],
        decisions: Option<&[ContractDecision]>,
        mut moment: Moment,
        redactor: &Redactor,
    ) -> Option<Writeback> {
        let mut turn = self.offered_turn.take()?;
        let mut body = memory_evidence(&turn.memory, "writeback");
        let decision = match decisions {
            None => TurnDecision::Unavailable,
            Some(decisions) => {
                body.extend(contract_evidence(knowledge, decisions));
                decide_turn(&mut turn, all_allow(knowledge, decisions), redactor)
            }
        };
        body.insert("decision".to_owned(), json!(decision.as_str()));
        let contracts = knowledge
            .iter()
            .filter_map(|knowledge_base| knowledge_base.base.contract_id())
            .map(str::to_owned)
            .collect();
        let writeback = (decision == TurnDecision::Offered).then(|| Writeback {
            conversation: conversation_key,
            turn,
            salt: moment.new_salt(),
            contracts,
        });
        if let Some(writeback) = &writeback {
            body.insert("size_bytes".to_owned(), json!(writeback.turn.bytes()));
            body.insert("digest".to_owned(), json!(format_digest(&writeback.digest())));
        }
        let artifact_id = moment.new_id().into();
        self.artifacts.push(EvidenceArtifact {
            artifact_id,
            kind: "memory",
            storage_ref: ArtifactPath::of_database_evidence(execution_id, artifact_id, "memory.json"),
            body,
            payload: None,
            created_at: moment.now(),
        });
        writeback
    }
}

/// Whether the offered turn goes to the store, and if not, the reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TurnDecision {
    /// The turn goes to the store, which discards it if the conversation is erased or a contract is revoked before the
    /// commit.
    Offered,
    /// An access contract forbids the storage of the turn.
    Refused,
    /// The decisions of the access contracts could not be loaded.
    Unavailable,
    /// The turn contains personal data.
    PersonalData,
    /// The turn exceeds the maximum size of a turn.
    TooLong,
    /// The turn contains a NUL character. PostgreSQL text columns reject NUL, so the commit of the run's end would
    /// fail.
    Unstorable,
}

impl TurnDecision {
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

/// Masks personal data in the turn, and decides whether to store the turn. The size is checked first, so that the
/// redactor never scans an oversized text.
fn decide_turn(turn: &mut WritebackTurn, allowed: bool, redactor: &Redactor) -> TurnDecision {
    if !allowed {
        return TurnDecision::Refused;
    }
    if turn.bytes() > MAX_TURN_BYTES {
        return TurnDecision::TooLong;
    }
    if [&turn.question, &turn.response].into_iter().any(|text| text.contains('\0')) {
        return TurnDecision::Unstorable;
    }
    let personal_data = turn.memory.config.personal_data;
    if personal_data == PersonalDataPolicy::Allow {
        return TurnDecision::Offered;
    }
    let (message, answer) = (mask(&turn.question, redactor), mask(&turn.response, redactor));
    let has_personal_data = !message.counts.is_empty() || !answer.counts.is_empty();
    if has_personal_data && personal_data == PersonalDataPolicy::Block {
        return TurnDecision::PersonalData;
    }
    (turn.question, turn.response) = (message.text, answer.text);
    // A mask can be longer than the text that it replaces, so the size is checked again.
    if turn.bytes() > MAX_TURN_BYTES { TurnDecision::TooLong } else { TurnDecision::Offered }
}

/// Masks personal data in a text. A JSON text is masked by members, because a member's name can identify personal data.
fn mask(text: &str, redactor: &Redactor) -> Redaction {
    match crate::json::read(text.as_bytes()) {
        Ok(mut value @ (Value::Object(_) | Value::Array(_))) => {
            let counts = redactor.redact(&mut value);
            Redaction { text: value.to_string(), counts }
        }
        Ok(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) | Err(_) => redactor.redact_text(text),
    }
}

/// Whether the decisions cover every bound knowledge base, and all of them allow the access.
#[must_use]
pub fn all_allow(knowledge: &[BoundKnowledgeBase], decisions: &[ContractDecision]) -> bool {
    knowledge.len() == decisions.len() && decisions.iter().all(ContractDecision::is_allowed)
}

fn memory_evidence(memory: &BoundMemory, operation: &str) -> Map<String, Value> {
    Map::from_iter([
        ("operation".to_owned(), json!(operation)),
        ("memory".to_owned(), json!(memory.slug)),
        ("memory_asset_id".to_owned(), json!(memory.asset)),
        ("scope".to_owned(), json!(memory.config.scope.as_str())),
    ])
}

/// The decisions of the access contracts, as evidence records them.
fn contract_evidence(knowledge: &[BoundKnowledgeBase], decisions: &[ContractDecision]) -> Map<String, Value> {
    let contracts: Vec<Value> = knowledge
        .iter()
        .zip(decisions)
        .map(|(knowledge_base, decision)| {
            let mut members = contract_decision_members(decision);
            members.insert("knowledge_base".to_owned(), json!(knowledge_base.slug));
            Value::Object(members)
        })
        .collect();
    let decision = if all_allow(knowledge, decisions) { "allow" } else { "deny" };
    Map::from_iter([("decision".to_owned(), json!(decision)), ("contracts".to_owned(), Value::Array(contracts))])
}
