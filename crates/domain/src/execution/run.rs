//! The run state machine: it requests external effects and never performs them.
//!
//! [`Run::start`] and [`Run::on_model`] advance until the run needs an effect or has ended. The driver performs the
//! effect and maintains time and leases. It can stop at any effect; the run then holds its state so far.

mod agent;
mod call;
mod check;
mod cut;
mod failure;
mod lineage;
mod memory;
mod obligation;
mod passage;
mod reservation;
mod restate;
mod retrieve;
mod scope;
mod turn;

#[cfg(test)]
mod tests;

use super::{
    Outcome, RunError, Status, StepRecord,
    progress::RunEvent,
    retrieval::{Retrieved, RetrievalError},
    routing::Answer,
};
use crate::{
    evidence::{RecordedDecision, lineage::UntrustedReason},
    flow::{Action, Next, Output, Step, StepKind, allowance::Allowance, reference::Template},
    guardrail::MAX_INSPECTED_BYTES,
    id::{AssetId, DecisionId},
    policy::{self, Obligation, PolicyDecision},
    time::Timestamp,
};
use agent::Agent;
pub use check::SchemaCheck;
use check::{Resume, SchemaResult};
pub use cut::Cut;
use failure::StepFailure;
use memory::ConversationState;
pub use memory::{History, allows};
use passage::{Interception, Continuation, ActiveStep};
use reservation::Paused;
pub use reservation::SMALL_RUN_BYTES;
use scope::Known;
use serde_json::{Map, Value, json};
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use turn::{AwaitedResponse, Reached, Waiting};
pub use turn::{Closed, Ended, Outside, Subject, Turn};

/// The maximum number of steps of a run. A valid flow is acyclic with at most 200 steps; this bound holds even for a
/// cycle.
pub const MAX_STEPS: usize = 1_000;
/// The memory for a run's values, in bytes: the size limit of asset content, and four times that of a request.
pub const MAX_VALUE_BYTES: usize = 4 << 20;

/// Obligations that withhold answers until the run's end.
const WITHHOLDING_OBLIGATIONS: [Obligation; 3] = [Obligation::RedactOutput, Obligation::RequireCitation, Obligation::HumanReview];

/// A run in progress.
pub struct Run<'a> {
    subject: Subject<'a>,
    outside: Outside<'a>,
    /// The inputs, as steps read them.
    inputs: Cow<'a, Map<String, Value>>,
    outputs: BTreeMap<String, Value>,
    /// The untrusted outputs and the reason, by step.
    doubts: BTreeMap<String, UntrustedReason>,
    allowance: Allowance,
    metadata: Map<String, Value>,
    transcript: Vec<Value>,
    keeps_transcript: bool,
    /// Whether model output may be streamed before the end.
    shows_answers: bool,
    /// The obligations that any decision of the run imposed, oldest first.
    owed: Vec<Obligation>,
    waiting: Option<Waiting<'a>>,
    /// The result of an offloaded schema check, until the run resumes at the point that requested it.
    verdict: Option<SchemaResult>,
    /// The agent of the current step, if it is an agent step.
    agent: Option<Box<Agent<'a>>>,
    /// A value that guardrails or hooks are processing.
    passage: Option<Interception<'a>>,
    /// The remaining bytes that guardrails may evaluate.
    looks_left: usize,
    hook_calls: u32,
    /// The number of tool calls so far, across all agent steps.
    tool_calls: u32,
    /// Quarantined tool servers.
    set_apart: BTreeSet<AssetId>,
    /// The retrieved documents, which answers may cite.
    citable: BTreeSet<String>,
    /// The steps whose search was capped.
    capped_steps: BTreeSet<String>,
    conversing: ConversationState,
    /// Whether the refused routes were recorded.
    told_routes: bool,
    /// Whether the refused embedding route was recorded.
    told_embedding: bool,
    /// Events that the driver has not taken yet; `None` when events are disabled.
    events: Option<Vec<RunEvent>>,
    /// Whether the driver holds a memory reservation for a run with large values.
    is_reserved: bool,
    /// The point at which the run waits for a reservation.
    paused: Option<Paused<'a>>,
    ended: Ended,
}

impl<'a> Run<'a> {
    /// Creates a run that the given decision admitted.
    #[must_use]
    pub fn new(subject: Subject<'a>, decision: PolicyDecision, outside: Outside<'a>) -> Self {
        let owed = decision.obligations.clone();
        let ended = Ended {
            status: Status::Failed,
            outcome: Outcome::Failure,
            error: None,
            output: None,
            steps: Vec::new(),
            decisions: Vec::new(),
            artifacts: Vec::new(),
            lineage: Vec::new(),
            fulfilled: Vec::new(),
            decision,
            turn: None,
        };
        Self {
            // The strictest decision is known only at the end, which is too late to start recording.
            keeps_transcript: subject.plan.may_impose(Obligation::RecordTranscript),
            shows_answers: !subject.plan.holds_answers_back()
                && WITHHOLDING_OBLIGATIONS.iter().all(|held_back| !subject.plan.may_impose(*held_back)),
            inputs: Cow::Borrowed(subject.given),
            subject,
            outside,
            outputs: BTreeMap::new(),
            doubts: BTreeMap::new(),
            allowance: Allowance::of(MAX_VALUE_BYTES),
            metadata: Map::new(),
            transcript: Vec::new(),
            owed,
            waiting: None,
            verdict: None,
            agent: None,
            passage: None,
            looks_left: MAX_INSPECTED_BYTES,
            hook_calls: 0,
            tool_calls: 0,
            set_apart: BTreeSet::new(),
            citable: BTreeSet::new(),
            capped_steps: BTreeSet::new(),
            conversing: ConversationState::No,
            told_routes: false,
            told_embedding: false,
            events: None,
            is_reserved: false,
            paused: None,
            ended,
        }
    }

    /// Enables events.
    #[must_use]
    pub fn telling(mut self) -> Self {
        self.events = Some(Vec::new());
        self
    }

    /// Takes the events since the last call.
    pub fn take_events(&mut self) -> Vec<RunEvent> {
        self.events.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The step that awaits a response.
    #[must_use]
    pub fn asking(&self) -> Option<&'a Step> {
        self.waiting.as_ref().map(|waiting| waiting.step)
    }

    fn tell(&mut self, event: impl FnOnce() -> RunEvent) {
        if let Some(events) = &mut self.events {
            events.push(event());
        }
    }

    /// Starts the run.
    pub fn start(&mut self) -> Turn {
        if self.subject.plan.knowledge.is_empty() { self.begin() } else { Turn::Check }
    }

    fn begin(&mut self) -> Turn {
        match self.conversing {
            ConversationState::Wants => Turn::Recall,
            ConversationState::No | ConversationState::Knows { .. } => self.pass(Continuation::Begin),
        }
    }

    fn enter_flow(&mut self) -> Turn {
        match self.subject.plan.flow.entry() {
            Some(step) => self.walk(step),
            None => self.fail(RunError::new("flow_invalid", "the flow has no entry")),
        }
    }

    /// Resumes with the response to the last request. A response without a request has no effect.
    pub fn answered(&mut self, answer: Answer) -> Turn {
        let Some(Waiting { step, began, awaits: AwaitedResponse::Answer(asked) }) = self.waiting.take() else {
            return Turn::Ended;
        };
        let verdict = self.verdict.take();
        if verdict.is_none()
            && let Some(check) = self.long_answer_check(step, &answer)
        {
            let awaits = AwaitedResponse::Check(Box::new(Resume::Answered(asked, answer)));
            self.waiting = Some(Waiting { step, began, awaits });
            return Turn::CheckSchema(Box::new(check));
        }
        if matches!(step.kind, StepKind::Agent { .. }) {
            return self.on_agent_response(ActiveStep { step, began }, *asked, (answer, verdict));
        }
        if let Ok(completion) = &answer.completion {
            self.emit_answer(step, answer.was_told, &completion.text);
        }
        match self.accept_response(step, *asked, (answer, verdict)) {
            Ok(value) if matches!(step.kind, StepKind::LlmCall { .. }) => {
                self.intercept_value(value, Continuation::Answered(ActiveStep { step, began }))
            }
            Ok(value) => self.finish_step(ActiveStep { step, began }, value),
            Err(failure) => self.go_on(step, began, Err(failure)),
        }
    }

    /// Resumes with retrieved documents. Documents without a query have no effect.
    pub fn on_documents(&mut self, found: Result<Retrieved, RetrievalError>) -> Turn {
        let Some(Waiting { step, began, awaits: AwaitedResponse::Documents(lookup) }) = self.waiting.take() else {
            return Turn::Ended;
        };
        match self.accept_documents(step, &lookup, found) {
            Ok(documents) => self.pass(Continuation::Documents(ActiveStep { step, began }, documents)),
            Err(failure) if self.agent.is_some() => self.on_tool_failure(ActiveStep { step, began }, failure),
            Err(failure) => self.go_on(step, began, Err(failure)),
        }
    }

    /// Emits model output, unless it was streamed already or must be withheld.
    fn emit_answer(&mut self, step: &Step, was_told: bool, text: &str) {
        if self.shows_answers && !was_told {
            self.tell(|| RunEvent::delta(&step.id, text));
        }
    }

    fn go_on(&mut self, step: &'a Step, began: Timestamp, produced: Result<Value, StepFailure>) -> Turn {
        match self.leave(step, began, produced) {
            Ok(next) => self.walk(next),
            Err(turn) => turn,
        }
    }

    /// Ends the run at its current point, and fulfils its obligations.
    #[must_use]
    pub fn conclude(self, cut: Option<Cut>) -> Ended {
        let outside = self.outside;
        self.close(cut).fulfil(outside)
    }

    /// Ends the run at its current point. The obligations remain to be fulfilled, which can be slow for a long answer.
    #[must_use]
    pub fn close(mut self, cut: Option<Cut>) -> Closed {
        if let Some(cut) = cut {
            let (status, outcome, code, message) = cut.told();
            (self.ended.status, self.ended.outcome, self.ended.output) = (status, outcome, None);
            self.ended.error = Some(RunError::new(code, message));
            self.record_interrupted_step(code);
        }
        let events = self.take_events();
        self.ended.turn = self.offered_turn();
        Closed {
            events,
            execution_id: self.subject.execution_id,
            value_bytes: MAX_VALUE_BYTES.saturating_sub(self.allowance.left()),
            ended: self.ended,
            owed: self.owed,
            transcript: self.transcript,
            citable: self.citable,
        }
    }

    /// Records the step at which the run was interrupted; its response is no longer awaited.
    fn record_interrupted_step(&mut self, code: &str) {
        let (step, began) = match self.waiting.take() {
            Some(Waiting { step, began, awaits: AwaitedResponse::Answer(asked) }) => {
                self.record_unanswered(step, *asked);
                (step, began)
            }
            Some(Waiting { step, began, awaits: AwaitedResponse::Check(resume) }) => {
                if let Resume::Answered(asked, _) = *resume {
                    self.record_unanswered(step, *asked);
                }
                (step, began)
            }
            Some(Waiting { step, began, awaits: AwaitedResponse::Documents(_) | AwaitedResponse::Tool }) => (step, began),
            None => match (self.take_intercepted_step(), self.paused.take()) {
                (Some(left), _) => left,
                (None, Some(Paused::Output(ActiveStep { step, began }, _))) => (step, began),
                (None, Some(Paused::Step(_) | Paused::Return(_)) | None) => return,
            },
        };
        self.record_interrupted_call(step);
        self.tell(|| RunEvent::step_completed(&step.id, Some(code)));
        self.ended.steps.push(StepRecord {
            step_id: step.id.clone(),
            step_type: step.kind.as_str(),
            failure: Some(code.to_owned()),
            duration: span(began, self.outside.clock.now()),
        });
    }

    /// Executes steps until one requests an effect, or the run ends.
    fn walk(&mut self, mut step: &'a Step) -> Turn {
        loop {
            if self.ended.steps.len() >= MAX_STEPS {
                return self
                    .fail(RunError::new("step_budget_exceeded", "the run exceeded its maximum number of steps"));
            }
            if self.is_large_at(step) {
                return self.pause(Paused::Step(step));
            }
            let began = self.outside.clock.now();
            self.tell(|| RunEvent::step_started(&step.id, step.kind.as_str()));
            let result = match self.take(step) {
                Ok(Reached::Asks(question, asked)) => {
                    return self.pass(Continuation::Ask(ActiveStep { step, began }, question, asked));
                }
                Ok(Reached::LooksUp(lookup)) => {
                    return self.pass(Continuation::LookUp(ActiveStep { step, began }, lookup));
                }
                Ok(Reached::Done(value)) => Ok(value),
                Err(failure) => Err(failure),
            };
            match self.leave(step, began, result) {
                Ok(next) => step = next,
                Err(turn) => return turn,
            }
        }
    }

    /// Records the result of a step, and finds the next step.
    fn leave(&mut self, step: &Step, began: Timestamp, done: Result<Value, StepFailure>) -> Result<&'a Step, Turn> {
        self.agent = None;
        let plan = self.subject.plan;
        let failure = done.as_ref().err().map(StepFailure::code);
        self.tell(|| RunEvent::step_completed(&step.id, failure.as_deref()));
        self.ended.steps.push(StepRecord {
            step_id: step.id.clone(),
            step_type: step.kind.as_str(),
            failure,
            duration: span(began, self.outside.clock.now()),
        });
        let (succeeded, error) = match done {
            Ok(value) => {
                self.outputs.insert(step.id.clone(), value);
                if let Some(doubt) = self.doubt(step) {
                    self.doubts.insert(step.id.clone(), doubt);
                }
                (true, None)
            }
            Err(StepFailure::Failed(error)) => (false, Some(error)),
            Err(StepFailure::Denied) => {
                (self.ended.status, self.ended.outcome) = (Status::Denied, Outcome::Denied);
                return Err(Turn::Ended);
            }
            Err(StepFailure::RefusedByContract) => return Err(self.fail_by_contract()),
            Err(StepFailure::Stopped(error)) => return Err(self.fail(error)),
            Err(StepFailure::NoRoom) => return Err(self.fail(RunError::value_too_large())),
        };
        match (plan.flow.next_after(step, succeeded), error) {
            (Next::Step(next), _) => Ok(next),
            (Next::Returns, None) => Err(self.complete(&step.id)),
            (Next::Returns | Next::Fails, Some(error)) => Err(self.fail(error)),
            (Next::Fails, None) => Err(self.fail(RunError::new("flow_invalid", "the flow has no next step"))),
        }
    }

    fn complete(&mut self, returned: &str) -> Turn {
        let value = self.outputs.remove(returned).unwrap_or(Value::Null);
        if self.is_large() {
            return self.pause(Paused::Return(value));
        }
        self.intercept_value(value, Continuation::Return)
    }

    fn completed(&mut self, value: Value) -> Turn {
        (self.ended.status, self.ended.outcome) = (Status::Completed, Outcome::Success);
        self.add_capped_search_metadata();
        self.ended.output = Some((value, std::mem::take(&mut self.metadata)));
        Turn::Ended
    }

    fn fail(&mut self, error: RunError) -> Turn {
        self.pass(Continuation::Fail(error))
    }

    fn failed(&mut self, error: RunError) -> Turn {
        self.ended.error = Some(error);
        Turn::Ended
    }

    fn take(&mut self, step: &'a Step) -> Result<Reached, StepFailure> {
        let mut inputs = Map::new();
        for (name, template) in &step.inputs {
            // The prompt is resolved when it is rendered, because the bound prompt is a template.
            if name != "prompt" {
                inputs.insert(name.clone(), self.resolve(template, None)?);
            }
        }
        let produced = match &step.kind {
            StepKind::Task { action: Action::EvaluatePolicy } => {
                self.record_inputs(step);
                self.evaluate_policy(inputs)?
            }
            StepKind::LlmCall { .. } => return self.question(step, &inputs),
            StepKind::Embedding { .. } => return self.embedding_request(step, &inputs),
            StepKind::Return { output } => {
                self.record_return(output);
                return self.resolve(output, None).map(Reached::Done);
            }
            StepKind::Task { action: Action::RetrieveDocuments } => return self.lookup(step, &inputs),
            StepKind::Agent { tools, max_steps, .. } => return self.engage(step, &inputs, (tools, *max_steps)),
        };
        self.produced(step, produced).map(Reached::Done)
    }

    /// The output of a step, as later steps see it.
    fn produced(&mut self, step: &Step, value: Value) -> Result<Value, StepFailure> {
        match &step.output {
            // A named output is an alias of the whole output (see `scope::member`).
            None | Some(Output::Named(_)) => Ok(value),
            Some(Output::Mapped(template)) => self.resolve(template, Some((&step.id, value))),
        }
    }

    fn resolve(&mut self, template: &Template, own: Option<(&str, Value)>) -> Result<Value, StepFailure> {
        let scope = Known { plan: self.subject.plan, inputs: &self.inputs, outputs: &self.outputs, own };
        Ok(template.resolve(&scope, &mut self.allowance)?)
    }

    /// Evaluates the policy again with the step's inputs merged over the run's. The strictest decision of a run is
    /// effective.
    fn evaluate_policy(&mut self, inputs: Map<String, Value>) -> Result<Value, StepFailure> {
        let Subject { plan, facts, .. } = self.subject;
        let mut merged = Map::clone(&self.inputs);
        merged.extend(inputs);
        let now = self.outside.clock.now();
        let decision = facts.decide(plan, &merged, now);
        let id = DecisionId::from(self.outside.ids.fresh());
        self.ended.decisions.push(RecordedDecision::of(id, &decision, now));
        let summary = json!({ "outcome": decision.outcome.as_str(), "reason_code": decision.reason_code });
        let denied = decision.outcome == policy::Outcome::Deny;
        decision.obligations.iter().for_each(|obligation| self.owe(*obligation));
        self.ended.decision = policy::strictest(self.ended.decision.clone(), decision);
        if denied { Err(StepFailure::Denied) } else { Ok(summary) }
    }
}

/// The time between two timestamps; zero if the clock was set back.
fn span(from: Timestamp, to: Timestamp) -> Duration {
    Duration::from_micros(u64::try_from(to.micros().saturating_sub(from.micros())).unwrap_or(0))
}
