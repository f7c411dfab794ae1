//! What goes into a run, what it asks for on the way, and what comes out of it.

use super::{
    call::Asked,
    check::{Resume, SchemaCheck},
};
use crate::{
    evidence::{EvidenceArtifact, RecordedDecision, lineage::LineageItem},
    execution::{
        Outcome, Payload, RunError, Status, StepRecord,
        outward::OutwardCall,
        plan::{RunFacts, RunPlan},
        progress::RunEvent,
        retrieval::Lookup,
        routing::Question,
        tool::ToolRequest,
    },
    flow::Step,
    guardrail::Looking,
    id::{ExecutionId, Ids},
    memory::OfferedTurn,
    policy::{Obligation, PolicyDecision},
    redaction::Redactor,
    time::{Clock, Timestamp},
};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// What a run is about.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// The run.
    pub execution_id: ExecutionId,
    /// What it goes by.
    pub plan: &'a RunPlan,
    /// Who asks.
    pub facts: &'a RunFacts,
    /// What was sent. Steps read what guardrails and hooks leave of it.
    pub given: &'a Map<String, Value>,
    /// The same as it is kept.
    pub sent: &'a Payload,
    /// Its digest.
    pub sent_digest: [u8; 32],
}

/// What comes from outside without being asked for.
#[derive(Clone, Copy)]
pub struct Outside<'a> {
    /// The present moment.
    pub clock: &'a dyn Clock,
    /// Fresh identifiers and salts.
    pub ids: &'a dyn Ids,
    /// Masks personal data.
    pub redactor: &'a Redactor,
}

/// What a run needs to go on.
#[derive(Debug)]
#[must_use]
pub enum Turn {
    /// What the contracts of the bound knowledge bases say, in their order, before anything else is done.
    Check,
    /// What there is of its conversation.
    Recall,
    /// A model's answer.
    Ask(Box<Question>),
    /// Documents.
    LookUp(Box<Lookup>),
    /// What a tool gives.
    CallTool(Box<ToolRequest>),
    /// What guardrails see in a value. It is worked out, and may take long.
    Look(Box<Looking>),
    /// Whether a value satisfies a schema, where the check takes long.
    CheckSchema(Box<SchemaCheck>),
    /// What a hook answers.
    Hook(Box<OutwardCall>),
    /// A reservation: its values are about to become large ([`Run::reserved`](super::Run::reserved)).
    Reserve,
    /// Nothing: it has ended.
    Ended,
}

/// How a run ended, and all that it leaves behind.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Where it is now. A run that awaits its review has succeeded so far.
    pub status: Status,
    /// How it ended.
    pub outcome: Outcome,
    /// Why it has no answer.
    pub error: Option<RunError>,
    /// The answer and what its providers said of it.
    pub output: Option<(Value, Map<String, Value>)>,
    /// What its steps did, in order.
    pub steps: Vec<StepRecord>,
    /// Decisions taken on the way.
    pub decisions: Vec<RecordedDecision>,
    /// Documents kept as evidence.
    pub artifacts: Vec<EvidenceArtifact>,
    /// What its steps read.
    pub lineage: Vec<LineageItem>,
    /// Obligations that were fulfilled, and when.
    pub fulfilled: Vec<(Obligation, Timestamp)>,
    /// The strictest decision of the run.
    pub decision: PolicyDecision,
    /// What it offers to memory.
    pub turn: Option<OfferedTurn>,
}

/// A run that has ended, and what it owes.
#[derive(Clone, Debug)]
pub struct Closed {
    /// What happened and was not taken while it ran.
    pub events: Vec<RunEvent>,
    pub(in crate::execution) execution_id: ExecutionId,
    pub(in crate::execution) value_bytes: usize,
    pub(in crate::execution) ended: Ended,
    pub(in crate::execution) owed: Vec<Obligation>,
    pub(in crate::execution) transcript: Vec<Value>,
    /// The documents that an answer can cite.
    pub(in crate::execution) citable: BTreeSet<String>,
}

/// How far a step got.
pub(super) enum Reached {
    /// Its end.
    Done(Value),
    /// A question.
    Asks(Box<Question>, Box<Asked>),
    /// Documents that it needs.
    LooksUp(Box<Lookup>),
}

/// A step that waits for an answer.
pub(super) struct Waiting<'a> {
    pub(super) step: &'a Step,
    pub(super) began: Timestamp,
    pub(super) awaits: Awaits,
}

/// What a step waits for.
pub(super) enum Awaits {
    Answer(Box<Asked>),
    Documents(Box<Lookup>),
    /// What a tool gives.
    Tool,
    /// The verdict of a schema check.
    Check(Box<Resume>),
}
