//! The state machine of a run. It returns effects, such as a model call, and a driver performs them.
//!
//! [`Run::start`] and the `on_*` methods advance the run until it needs an effect or has ended. The driver performs the
//! effect and passes its result with a [`Moment`], because the state machine reads no clock and creates no identifier.
//! The driver can stop at any effect; the run then keeps its state.

mod agent;
mod documents;
mod effects;
mod ending;
mod interceptors;
mod interruption;
mod lineage;
mod memory;
mod model_call;
mod model_request_hook_payload;
mod obligation;
mod outgoing_tool_call;
mod reference_values;
mod reservation;
mod schema_check;
mod step_failure;

#[cfg(test)]
mod tests;

use super::{
    ExecutionOutcome, RunError, Status, StepRecord,
    progress::RunEvent,
    retrieval::{RetrievalError, RetrievalResult},
    routing::ModelResponse,
};
use crate::{
    evidence::{RecordedDecision, lineage::UntrustedReason},
    flow::{Action, NextStep, Step, StepKind, StepOutputMapping, reference::Template, value_budget::ValueBudget},
    guardrail::MAX_BYTES_INSPECTED_PER_RUN,
    id::{AssetId, DecisionId},
    moment::Moment,
    policy::{self, Obligation, PolicyDecision},
    time::Timestamp,
};
use agent::Agent;
use effects::{AwaitedResponse, PendingStep, StepProgress};
pub use effects::{FinishedRun, RunEffect, RunEnd, RunInput};
use interceptors::{ActiveStep, Continuation, Interception};
pub use interruption::Interruption;
use memory::ConversationState;
pub use memory::{History, all_allow};
use reference_values::RunScope;
use reservation::PausePoint;
pub use reservation::SMALL_RUN_BYTES;
pub use schema_check::SchemaCheck;
use schema_check::{ResumePoint, SchemaResult};
use serde_json::{Map, Value, json};
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};
use step_failure::StepFailure;

/// The maximum number of steps that a run executes. A valid flow is acyclic and has at most 200 steps. This limit
/// also stops a cycle that validation failed to detect.
pub const MAX_EXECUTED_STEPS: usize = 1_000;
/// The maximum size of all values of a run, in bytes. It equals the size limit of asset content, and is four times the
/// size limit of a request.
pub const MAX_RUN_VALUES_BYTES: usize = 4 << 20;

/// Obligations that withhold the answer until the run's end.
const WITHHOLDING_OBLIGATIONS: [Obligation; 3] =
    [Obligation::RedactOutput, Obligation::RequireCitation, Obligation::HumanReview];

/// A run in progress: its values, its pending step and its records so far.
pub struct Run<'a> {
    run_input: RunInput<'a>,
    /// The time and identifiers of the input that the run currently processes.
    moment: Moment,
    /// The inputs that steps read: as submitted, or as guardrails and hooks changed them.
    inputs: Cow<'a, Map<String, Value>>,
    outputs: BTreeMap<String, Value>,
    /// The steps whose output is untrusted, each with the reason.
    untrusted_outputs: BTreeMap<String, UntrustedReason>,
    budget: ValueBudget,
    metadata: Map<String, Value>,
    transcript: Vec<Value>,
    records_transcript: bool,
    /// Whether followers may receive model output before the end of the run.
    streams_answers: bool,
    /// The obligations that any decision of the run has imposed, oldest first.
    obligations: Vec<Obligation>,
    pending_step: Option<PendingStep<'a>>,
    /// The result of an offloaded schema check, until the run resumes at the point that requested it.
    schema_result: Option<SchemaResult>,
    /// The agent of the current step, if it is an agent step.
    agent: Option<Box<Agent<'a>>>,
    /// The value that guardrails or hooks are processing, if any.
    interception: Option<Interception<'a>>,
    /// The number of bytes that guardrails may still evaluate.
    guardrail_bytes_left: usize,
    hook_calls: u32,
    /// The number of tool calls so far, across all agent steps.
    tool_calls: u32,
    /// The quarantined tool servers: agents can no longer call their tools in this run.
    quarantined_servers: BTreeSet<AssetId>,
    /// The names of the retrieved documents, which answers may cite.
    citable_documents: BTreeSet<String>,
    /// The steps whose search ranked only a part of the matching chunks because of a limit.
    capped_steps: BTreeSet<String>,
    conversation_state: ConversationState,
    /// Whether evidence of the refused routes was recorded; a run records it once.
    refused_routes_recorded: bool,
    /// Whether evidence of the refused embedding route was recorded; a run records it once.
    refused_embedding_recorded: bool,
    /// The events that the driver has not received yet; `None` when events are disabled.
    events: Option<Vec<RunEvent>>,
    /// Whether the driver holds a memory reservation for a run with large values.
    is_reserved: bool,
    /// The point at which the run waits for a memory reservation, if it waits for one.
    pause_point: Option<PausePoint<'a>>,
    run_outcome: RunEnd,
}

impl<'a> Run<'a> {
    /// Creates a run that this policy decision admitted. The run starts at the given moment.
    #[must_use]
    pub fn new(run_input: RunInput<'a>, decision: PolicyDecision, moment: Moment) -> Self {
        let obligations = decision.obligations.clone();
        let run_outcome = RunEnd {
            status: Status::Failed,
            outcome: ExecutionOutcome::Failure,
            error: None,
            output: None,
            steps: Vec::new(),
            decisions: Vec::new(),
            artifacts: Vec::new(),
            lineage: Vec::new(),
            fulfilled: Vec::new(),
            decision,
            offered_turn: None,
        };
        Self {
            // Recording starts with the run, because a later decision can still impose the obligation to record a
            // transcript.
            records_transcript: run_input.plan.may_impose(Obligation::RecordTranscript),
            streams_answers: !run_input.plan.may_withhold_output()
                && WITHHOLDING_OBLIGATIONS.iter().all(|obligation| !run_input.plan.may_impose(*obligation)),
            inputs: Cow::Borrowed(run_input.inputs),
            run_input,
            moment,
            outputs: BTreeMap::new(),
            untrusted_outputs: BTreeMap::new(),
            budget: ValueBudget::new(MAX_RUN_VALUES_BYTES),
            metadata: Map::new(),
            transcript: Vec::new(),
            obligations,
            pending_step: None,
            schema_result: None,
            agent: None,
            interception: None,
            guardrail_bytes_left: MAX_BYTES_INSPECTED_PER_RUN,
            hook_calls: 0,
            tool_calls: 0,
            quarantined_servers: BTreeSet::new(),
            citable_documents: BTreeSet::new(),
            capped_steps: BTreeSet::new(),
            conversation_state: ConversationState::Inactive,
            refused_routes_recorded: false,
            refused_embedding_recorded: false,
            events: None,
            is_reserved: false,
            pause_point: None,
            run_outcome,
        }
    }

    /// Makes the run produce events for followers.
    #[must_use]
    pub fn with_events(mut self) -> Self {
        self.events = Some(Vec::new());
        self
    }

    /// Takes the events that the run produced since the previous call.
    pub fn take_events(&mut self) -> Vec<RunEvent> {
        self.events.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The step that waits for the result of an effect, if any.
    #[must_use]
    pub fn awaiting_step(&self) -> Option<&'a Step> {
        self.pending_step.as_ref().map(|pending| pending.step)
    }

    fn emit(&mut self, event: impl FnOnce() -> RunEvent) {
        if let Some(events) = &mut self.events {
            events.push(event());
        }
    }

    /// Starts the run, and returns its first effect.
    pub fn start(&mut self) -> RunEffect {
        if self.run_input.plan.knowledge.is_empty() { self.load_history_or_start() } else { RunEffect::CheckContracts }
    }

    fn load_history_or_start(&mut self) -> RunEffect {
        match self.conversation_state {
            ConversationState::Requested => RunEffect::LoadHistory,
            ConversationState::Inactive | ConversationState::Loaded { .. } => self.intercept(Continuation::Start),
        }
    }

    fn enter_flow(&mut self) -> RunEffect {
        match self.run_input.plan.flow.entry() {
            Some(step) => self.run_steps(step),
            None => self.fail(RunError::new("flow_invalid", "the flow has no entry")),
        }
    }

    /// Resumes with the response to the pending model request. Returns [`RunEffect::Ended`] if no request is pending.
    pub fn on_model(&mut self, moment: Moment, response: ModelResponse) -> RunEffect {
        self.moment = moment;
        self.resume_with_model(response)
    }

    fn resume_with_model(&mut self, response: ModelResponse) -> RunEffect {
        let Some(PendingStep { step, started_at, awaited: AwaitedResponse::Model(pending_request) }) =
            self.pending_step.take()
        else {
            return RunEffect::Ended;
        };
        let schema_result = self.schema_result.take();
        if schema_result.is_none()
            && let Some(check) = self.long_answer_check(step, &response)
        {
            let awaited = AwaitedResponse::SchemaCheck(Box::new(ResumePoint::ModelResponse(pending_request, response)));
            self.pending_step = Some(PendingStep { step, started_at, awaited });
            return RunEffect::CheckSchema(Box::new(check));
        }
        if matches!(step.kind, StepKind::Agent { .. }) {
            return self.on_agent_response(ActiveStep { step, started_at }, *pending_request, response, schema_result);
        }
        if let Ok(completion) = &response.completion {
            self.emit_answer(step, response.was_streamed, &completion.text);
        }
        match self.accept_response(step, *pending_request, response, schema_result) {
            Ok(value) if matches!(step.kind, StepKind::LlmCall { .. }) => {
                self.intercept_value(value, Continuation::PassAnswer(ActiveStep { step, started_at }))
            }
            Ok(value) => self.finish_step(ActiveStep { step, started_at }, value),
            Err(failure) => self.end_step_and_continue(step, started_at, Err(failure)),
        }
    }

    /// Resumes with the result of the pending query. Returns [`RunEffect::Ended`] if no query is pending.
    pub fn on_documents(&mut self, moment: Moment, result: Result<RetrievalResult, RetrievalError>) -> RunEffect {
        self.moment = moment;
        let Some(PendingStep { step, started_at, awaited: AwaitedResponse::Documents(lookup) }) =
            self.pending_step.take()
        else {
            return RunEffect::Ended;
        };
        match self.accept_documents(step, &lookup, result) {
            Ok(documents) => self.intercept(Continuation::PassDocuments(ActiveStep { step, started_at }, documents)),
            Err(failure) if self.agent.is_some() => self.on_tool_failure(ActiveStep { step, started_at }, failure),
            Err(failure) => self.end_step_and_continue(step, started_at, Err(failure)),
        }
    }

    /// Emits model output as an event, unless the output was already streamed or must be withheld.
    fn emit_answer(&mut self, step: &Step, was_streamed: bool, text: &str) {
        if self.streams_answers && !was_streamed {
            self.emit(|| RunEvent::delta(&step.id, text));
        }
    }

    fn end_step_and_continue(
        &mut self,
        step: &'a Step,
        started_at: Timestamp,
        result: Result<Value, StepFailure>,
    ) -> RunEffect {
        match self.end_step(step, started_at, result) {
            Ok(next) => self.run_steps(next),
            Err(effect) => effect,
        }
    }

    /// Executes steps until a step needs an effect, or the run ends.
    fn run_steps(&mut self, mut step: &'a Step) -> RunEffect {
        loop {
            if self.run_outcome.steps.len() >= MAX_EXECUTED_STEPS {
                return self
                    .fail(RunError::new("step_budget_exceeded", "the run exceeded its maximum number of steps"));
            }
            if self.needs_reservation_before(step) {
                return self.pause(PausePoint::Step(step));
            }
            let started_at = self.moment.now();
            self.emit(|| RunEvent::step_started(&step.id, step.kind.as_str()));
            let result = match self.execute_step(step) {
                Ok(StepProgress::NeedsModel(request, pending_request)) => {
                    return self.intercept(Continuation::CallModel(
                        ActiveStep { step, started_at },
                        request,
                        pending_request,
                    ));
                }
                Ok(StepProgress::NeedsDocuments(lookup)) => {
                    return self.intercept(Continuation::Retrieve(ActiveStep { step, started_at }, lookup));
                }
                Ok(StepProgress::Done(value)) => Ok(value),
                Err(failure) => Err(failure),
            };
            match self.end_step(step, started_at, result) {
                Ok(next) => step = next,
                Err(effect) => return effect,
            }
        }
    }

    /// Records the result of a step, and returns the step that follows.
    fn end_step(
        &mut self,
        step: &Step,
        started_at: Timestamp,
        result: Result<Value, StepFailure>,
    ) -> Result<&'a Step, RunEffect> {
        self.agent = None;
        let plan = self.run_input.plan;
        let failure = result.as_ref().err().map(StepFailure::code);
        self.emit(|| RunEvent::step_completed(&step.id, failure.as_deref()));
        self.run_outcome.steps.push(StepRecord {
            step_id: step.id.clone(),
            step_type: step.kind.as_str(),
            failure,
            duration: started_at.duration_until(self.moment.now()),
        });
        let (succeeded, error) = match result {
            Ok(value) => {
                self.outputs.insert(step.id.clone(), value);
                if let Some(reason) = self.untrusted_reason(step) {
                    self.untrusted_outputs.insert(step.id.clone(), reason);
                }
                (true, None)
            }
            Err(StepFailure::Failed(error)) => (false, Some(error)),
            Err(StepFailure::Denied) => {
                (self.run_outcome.status, self.run_outcome.outcome) = (Status::Denied, ExecutionOutcome::Denied);
                return Err(RunEffect::Ended);
            }
            Err(StepFailure::RefusedByContract) => return Err(self.fail_by_contract()),
            Err(StepFailure::Blocked(error)) => return Err(self.fail(error)),
            Err(StepFailure::ValueTooLarge) => return Err(self.fail(RunError::value_too_large())),
        };
        match (plan.flow.next_after(step, succeeded), error) {
            (NextStep::Step(next), _) => Ok(next),
            (NextStep::Returns, None) => Err(self.return_output(&step.id)),
            (NextStep::Returns | NextStep::Fails, Some(error)) => Err(self.fail(error)),
            (NextStep::Fails, None) => Err(self.fail(RunError::new("flow_invalid", "the flow has no next step"))),
        }
    }

    fn return_output(&mut self, step_id: &str) -> RunEffect {
        let value = self.outputs.remove(step_id).unwrap_or(Value::Null);
        if self.is_large() {
            return self.pause(PausePoint::Return(value));
        }
        self.intercept_value(value, Continuation::Return)
    }

    fn set_completed(&mut self, value: Value) -> RunEffect {
        (self.run_outcome.status, self.run_outcome.outcome) = (Status::Completed, ExecutionOutcome::Success);
        self.add_capped_search_metadata();
        self.run_outcome.output = Some((value, std::mem::take(&mut self.metadata)));
        RunEffect::Ended
    }

    fn fail(&mut self, error: RunError) -> RunEffect {
        self.intercept(Continuation::Fail(error))
    }

    fn set_failed(&mut self, error: RunError) -> RunEffect {
        self.run_outcome.error = Some(error);
        RunEffect::Ended
    }

    fn execute_step(&mut self, step: &'a Step) -> Result<StepProgress, StepFailure> {
        let mut inputs = Map::new();
        for (name, template) in &step.inputs {
            // The `prompt` input can refer to the bound prompt, which is a template. The rendering of the prompt
            // resolves that reference.
            if name != "prompt" {
                inputs.insert(name.clone(), self.resolve(template, None)?);
            }
        }
        let value = match &step.kind {
            StepKind::Task { action: Action::EvaluatePolicy } => {
                self.record_inputs(step);
                self.evaluate_policy(inputs)?
            }
            StepKind::LlmCall { .. } => return self.completion_request(step, &inputs),
            StepKind::Embedding { .. } => return self.embedding_request(step, &inputs),
            StepKind::Return { output } => {
                self.record_return(output);
                return self.resolve(output, None).map(StepProgress::Done);
            }
            StepKind::Task { action: Action::RetrieveDocuments } => return self.start_retrieval(step, &inputs),
            StepKind::Agent { tools, max_steps, .. } => return self.start_agent(step, &inputs, tools, *max_steps),
        };
        self.map_output(step, value).map(StepProgress::Done)
    }

    /// Builds the output that later steps read from the value of a step.
    fn map_output(&mut self, step: &Step, value: Value) -> Result<Value, StepFailure> {
        match &step.output {
            // A name in `output` only adds an alias for the whole value (see `reference_values`), so the value stays
            // unchanged.
            None | Some(StepOutputMapping::Named(_)) => Ok(value),
            Some(StepOutputMapping::Mapped(template)) => self.resolve(template, Some((&step.id, value))),
        }
    }

    fn resolve(&mut self, template: &Template, own_output: Option<(&str, Value)>) -> Result<Value, StepFailure> {
        let scope = RunScope { plan: self.run_input.plan, inputs: &self.inputs, outputs: &self.outputs, own_output };
        Ok(template.resolve(&scope, &mut self.budget)?)
    }

    /// Evaluates the policy again, with the step's inputs merged over the run's inputs. The strictest of all decisions
    /// applies to the run.
    fn evaluate_policy(&mut self, inputs: Map<String, Value>) -> Result<Value, StepFailure> {
        let RunInput { plan, policy_attributes, .. } = self.run_input;
        let mut merged = Map::clone(&self.inputs);
        merged.extend(inputs);
        let now = self.moment.now();
        let decision = policy_attributes.decide_by_plan(plan, &merged, now);
        let id = DecisionId::from(self.moment.new_id());
        self.run_outcome.decisions.push(RecordedDecision::from_decision(id, &decision, now));
        let summary = json!({ "outcome": decision.outcome.as_str(), "reason_code": decision.reason_code });
        let is_denied = decision.outcome == policy::DecisionOutcome::Deny;
        decision.obligations.iter().for_each(|obligation| self.add_obligation(*obligation));
        self.run_outcome.decision = policy::stricter_decision(self.run_outcome.decision.clone(), decision);
        if is_denied { Err(StepFailure::Denied) } else { Ok(summary) }
    }
}
