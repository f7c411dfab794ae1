//! The inputs, effects and outcome of a run.

use super::{
    model_call::PendingRequest,
    schema_check::{ResumePoint, SchemaCheck},
};
use crate::{
    evidence::{EvidenceArtifact, RecordedDecision, lineage::LineageItem},
    execution::{
        ExecutionOutcome, Payload, RunError, Status, StepRecord,
        http_call::HttpCall,
        plan::{RunPlan, RunPolicyAttributes},
        progress::RunEvent,
        retrieval::RetrievalQuery,
        routing::ModelRequest,
        tool::ToolRequest,
    },
    flow::Step,
    guardrail::GuardrailCheck,
    id::ExecutionId,
    memory::WritebackTurn,
    policy::{Obligation, PolicyDecision},
    time::Timestamp,
};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// The inputs of a run.
#[derive(Clone, Copy)]
pub struct RunInput<'a> {
    /// The identifier of the run.
    pub execution_id: ExecutionId,
    /// The compiled contents of the release that serves the run.
    pub plan: &'a RunPlan,
    /// The attributes that policies read.
    pub policy_attributes: &'a RunPolicyAttributes,
    /// The inputs as submitted. Steps read the run's own copy, which guardrails and hooks may have changed.
    pub inputs: &'a Map<String, Value>,
    /// The inputs in stored form.
    pub stored_inputs: &'a Payload,
    /// The digest of the stored inputs.
    pub input_digest: [u8; 32],
}

/// The effect that a run requests from its driver. The driver passes the result back to the run.
#[derive(Debug)]
#[must_use]
pub enum RunEffect {
    /// Evaluates the access contracts of the bound knowledge bases, in binding order. A run with bound knowledge bases
    /// requests this effect first.
    CheckContracts,
    /// Loads the conversation history.
    LoadHistory,
    /// Calls a model.
    CallModel(Box<ModelRequest>),
    /// Retrieves documents from a knowledge base.
    RetrieveDocuments(Box<RetrievalQuery>),
    /// Calls a tool.
    CallTool(Box<ToolRequest>),
    /// Evaluates guardrails. The evaluation can take long, so the driver moves it to another thread.
    CheckGuardrails(Box<GuardrailCheck>),
    /// Checks a value against a JSON Schema. The check can take long, so the driver moves it to another thread.
    CheckSchema(Box<SchemaCheck>),
    /// Calls a hook.
    CallHook(Box<HttpCall>),
    /// Reserves memory for large values ([`Run::on_reservation`](super::Run::on_reservation)).
    Reserve,
    /// No effect, because the run has ended.
    Ended,
}

/// The outcome of a run with all its records.
#[derive(Clone, Debug)]
pub struct RunOutcome {
    /// The status. A run that awaits review has succeeded so far.
    pub status: Status,
    /// The outcome of the run.
    pub outcome: ExecutionOutcome,
    /// The error, if there is no answer.
    pub error: Option<RunError>,
    /// The answer, and the metadata of the providers by step.
    pub output: Option<(Value, Map<String, Value>)>,
    /// The step records, in order.
    pub steps: Vec<StepRecord>,
    /// The policy decisions made during the run.
    pub decisions: Vec<RecordedDecision>,
    /// The evidence artifacts.
    pub artifacts: Vec<EvidenceArtifact>,
    /// The lineage of the steps.
    pub lineage: Vec<LineageItem>,
    /// The fulfilled obligations and the times of their fulfilment.
    pub fulfilled: Vec<(Obligation, Timestamp)>,
    /// The strictest decision of the run.
    pub decision: PolicyDecision,
    /// The conversation turn to store in the memory.
    pub offered_turn: Option<WritebackTurn>,
}

/// A run whose steps have ended and whose obligations are not fulfilled yet.
#[derive(Clone, Debug)]
pub struct FinishedRun {
    /// The events that the driver has not received yet.
    pub events: Vec<RunEvent>,
    pub(in crate::execution) execution_id: ExecutionId,
    pub(in crate::execution) value_bytes: usize,
    pub(in crate::execution) run_outcome: RunOutcome,
    pub(in crate::execution) obligations: Vec<Obligation>,
    pub(in crate::execution) transcript: Vec<Value>,
    /// The retrieved documents, which an answer can cite.
    pub(in crate::execution) citable_documents: BTreeSet<String>,
}

/// The progress of a step.
pub(super) enum StepProgress {
    /// The step is complete.
    Done(Value),
    /// The step needs a model response.
    NeedsModel(Box<ModelRequest>, Box<PendingRequest>),
    /// The step needs documents.
    NeedsDocuments(Box<RetrievalQuery>),
}

/// A step that awaits a response.
pub(super) struct PendingStep<'a> {
    pub(super) step: &'a Step,
    pub(super) started_at: Timestamp,
    pub(super) awaited: AwaitedResponse,
}

/// The response for which a step waits.
pub(super) enum AwaitedResponse {
    Model(Box<PendingRequest>),
    Documents(Box<RetrievalQuery>),
    /// The result of a tool call.
    Tool,
    /// The result of a schema check.
    SchemaCheck(Box<ResumePoint>),
}
