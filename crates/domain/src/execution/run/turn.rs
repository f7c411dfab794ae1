//! The inputs, effects and outcome of a run.

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
        retrieval::RetrievalQuery,
        routing::Question,
        tool::ToolRequest,
    },
    flow::Step,
    guardrail::Looking,
    id::{ExecutionId, Ids},
    memory::CandidateTurn,
    policy::{Obligation, PolicyDecision},
    redaction::Redactor,
    time::{Clock, Timestamp},
};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// The inputs of a run.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// The run.
    pub execution_id: ExecutionId,
    /// The run plan.
    pub plan: &'a RunPlan,
    /// The attributes that policies read.
    pub facts: &'a RunFacts,
    /// The inputs as submitted. Steps read them as guardrails and hooks leave them.
    pub given: &'a Map<String, Value>,
    /// The inputs in stored form.
    pub sent: &'a Payload,
    /// Its digest.
    pub sent_digest: [u8; 32],
}

/// The environment of a run: time, identifiers and redaction.
#[derive(Clone, Copy)]
pub struct Outside<'a> {
    /// The clock.
    pub clock: &'a dyn Clock,
    /// The source of identifiers and salts.
    pub ids: &'a dyn Ids,
    /// The redactor of personal data.
    pub redactor: &'a Redactor,
}

/// The effect that a run requests from its driver.
#[derive(Debug)]
#[must_use]
pub enum Turn {
    /// The decisions of the bound knowledge bases' contracts, in binding order; requested first.
    Check,
    /// The conversation history.
    Recall,
    /// A model response.
    Ask(Box<Question>),
    /// Documents from a knowledge base.
    LookUp(Box<RetrievalQuery>),
    /// A tool result.
    CallTool(Box<ToolRequest>),
    /// A guardrail check. It is a computation that can take long.
    Look(Box<Looking>),
    /// A long schema check.
    CheckSchema(Box<SchemaCheck>),
    /// A hook's response.
    Hook(Box<OutwardCall>),
    /// A memory reservation for large values ([`Run::on_reservation`](super::Run::on_reservation)).
    Reserve,
    /// None: the run has ended.
    Ended,
}

/// The outcome of a run with all its records.
#[derive(Clone, Debug)]
pub struct Ended {
    /// The status. A run that awaits review has succeeded so far.
    pub status: Status,
    /// The outcome.
    pub outcome: Outcome,
    /// The error, if there is no answer.
    pub error: Option<RunError>,
    /// The answer, and the providers' metadata by step.
    pub output: Option<(Value, Map<String, Value>)>,
    /// The step records, in order.
    pub steps: Vec<StepRecord>,
    /// Policy decisions taken during the run.
    pub decisions: Vec<RecordedDecision>,
    /// Evidence artifacts.
    pub artifacts: Vec<EvidenceArtifact>,
    /// The lineage of its steps.
    pub lineage: Vec<LineageItem>,
    /// Fulfilled obligations and their times.
    pub fulfilled: Vec<(Obligation, Timestamp)>,
    /// The strictest decision of the run.
    pub decision: PolicyDecision,
    /// The conversation turn that it offers.
    pub turn: Option<CandidateTurn>,
}

/// A finished run with its open obligations.
#[derive(Clone, Debug)]
pub struct Closed {
    /// Events that the driver has not taken yet.
    pub events: Vec<RunEvent>,
    pub(in crate::execution) execution_id: ExecutionId,
    pub(in crate::execution) value_bytes: usize,
    pub(in crate::execution) ended: Ended,
    pub(in crate::execution) owed: Vec<Obligation>,
    pub(in crate::execution) transcript: Vec<Value>,
    /// The retrieved documents, which an answer can cite.
    pub(in crate::execution) citable: BTreeSet<String>,
}

/// The progress of a step.
pub(super) enum Reached {
    /// It is complete.
    Done(Value),
    /// It needs a model response.
    Asks(Box<Question>, Box<Asked>),
    /// It needs documents.
    LooksUp(Box<RetrievalQuery>),
}

/// A step that awaits a response.
pub(super) struct Waiting<'a> {
    pub(super) step: &'a Step,
    pub(super) began: Timestamp,
    pub(super) awaits: AwaitedResponse,
}

/// The awaited response.
pub(super) enum AwaitedResponse {
    Answer(Box<Asked>),
    Documents(Box<RetrievalQuery>),
    /// A tool result.
    Tool,
    /// The result of a schema check.
    Check(Box<Resume>),
}
