//! The data types between a run and its driver: input, effects and outcome.

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

/// The data from which a run starts.
#[derive(Clone, Copy)]
pub struct RunInput<'a> {
    /// The identifier of the run.
    pub execution_id: ExecutionId,
    /// The compiled contents of the release that serves the run.
    pub plan: &'a RunPlan,
    /// The attributes of the caller and the workload, which policies read.
    pub policy_attributes: &'a RunPolicyAttributes,
    /// The inputs as submitted. Steps read a copy in the run, which guardrails and hooks may have changed.
    pub inputs: &'a Map<String, Value>,
    /// The submitted inputs as JSON text with their salt, as the store keeps them.
    pub stored_inputs: &'a Payload,
    /// The salted BLAKE3 digest of the stored inputs.
    pub input_digest: [u8; 32],
}

/// The effect that a run requests from its driver. The driver passes the result back to the run.
#[derive(Debug)]
#[must_use]
pub enum RunEffect {
    /// Evaluates the access contracts of the bound knowledge bases, in binding order. A run with bound knowledge bases
    /// requests this effect first.
    CheckContracts,
    /// Loads the earlier turns of the conversation.
    LoadHistory,
    /// Sends a request to a model.
    CallModel(Box<ModelRequest>),
    /// Queries a knowledge base.
    RetrieveDocuments(Box<RetrievalQuery>),
    /// Calls a tool over HTTP or on an MCP server.
    CallTool(Box<ToolRequest>),
    /// Evaluates guardrails on a value. The driver evaluates them on another thread, because the evaluation can take
    /// long.
    CheckGuardrails(Box<GuardrailCheck>),
    /// Checks a value against a JSON Schema. The driver checks it on another thread, because the check can take long.
    CheckSchema(Box<SchemaCheck>),
    /// Calls the HTTP handler of a hook.
    CallHook(Box<HttpCall>),
    /// Reserves memory, because the values of the run become large
    /// ([`Run::on_reservation`](super::Run::on_reservation)).
    Reserve,
    /// No effect, because the run has ended.
    Ended,
}

/// The outcome of a run, with all records that its end stores.
#[derive(Clone, Debug)]
pub struct RunEnd {
    /// The status of the run after its steps, such as completed, failed or awaiting review.
    pub status: Status,
    /// The outcome of the run after its steps.
    pub outcome: ExecutionOutcome,
    /// The error; `None` if the run has an answer.
    pub error: Option<RunError>,
    /// The answer, and the metadata of the providers for each step.
    pub output: Option<(Value, Map<String, Value>)>,
    /// The records of the executed steps, in order.
    pub steps: Vec<StepRecord>,
    /// The policy decisions that were made during the run.
    pub decisions: Vec<RecordedDecision>,
    /// The evidence artifacts that the steps produced.
    pub artifacts: Vec<EvidenceArtifact>,
    /// The items that the steps read, with their origins.
    pub lineage: Vec<LineageItem>,
    /// The fulfilled obligations, each with the time of its fulfilment.
    pub fulfilled: Vec<(Obligation, Timestamp)>,
    /// The strictest decision of the run.
    pub decision: PolicyDecision,
    /// The conversation turn that the run offers to the memory, if any.
    pub offered_turn: Option<WritebackTurn>,
}

/// A run whose steps have ended and whose obligations are not fulfilled yet.
#[derive(Clone, Debug)]
pub struct FinishedRun {
    /// The events that the driver has not received yet.
    pub events: Vec<RunEvent>,
    pub(in crate::execution) execution_id: ExecutionId,
    pub(in crate::execution) value_bytes: usize,
    pub(in crate::execution) run_outcome: RunEnd,
    pub(in crate::execution) obligations: Vec<Obligation>,
    pub(in crate::execution) transcript: Vec<Value>,
    /// The retrieved documents, which an answer can cite.
    pub(in crate::execution) citable_documents: BTreeSet<String>,
}

/// The result of a step: a value, or a request for a model response or documents.
pub(super) enum StepProgress {
    /// The step is complete, with this value.
    Done(Value),
    /// The step needs the response to this model request.
    NeedsModel(Box<ModelRequest>, Box<PendingRequest>),
    /// The step needs the documents that this query finds.
    NeedsDocuments(Box<RetrievalQuery>),
}

/// A step that waits for the result of an effect.
pub(super) struct PendingStep<'a> {
    pub(super) step: &'a Step,
    pub(super) started_at: Timestamp,
    pub(super) awaited: AwaitedResponse,
}

/// The effect whose result a step awaits.
pub(super) enum AwaitedResponse {
    Model(Box<PendingRequest>),
    Documents(Box<RetrievalQuery>),
    /// The result of a tool call.
    Tool,
    /// The result of a schema check.
    SchemaCheck(Box<ResumePoint>),
}
