//! Interceptors of a run: guardrails evaluate a value and hooks process it before the run continues with it.
//!
//! Guardrails run before hooks, so that hooks never receive the texts that guardrails mask. Guardrails run again
//! on each value that a hook modifies. A blocked value fails its step or the run, and no other step can catch that
//! failure.

mod evidence;

use super::{
    Run, RunEffect, StepFailure,
    documents::{guardrail_texts, with_texts},
    effects::{AwaitedResponse, PendingStep},
    model_call::PendingRequest,
    model_request_hook_payload::{apply_hook_payload, to_hook_payload},
};
use crate::{
    execution::{
        RunError,
        http_call::{HttpCall, HttpMethod},
        retrieval::RetrievalQuery,
        routing::ModelRequest,
    },
    flow::Step,
    guardrail::{GuardrailCheck, GuardrailOutcome, GuardrailResult, OnError, Stage},
    hook::{self, Decision, Event, Hook, HookConditionResult, HookError, HookHandler, HookResponse},
    moment::Moment,
    policy::{CompiledPolicy, Obligation, PolicyDecision},
    time::Timestamp,
};
use serde_json::{Map, Value, json};
use std::{borrow::Cow, mem};

/// A value that guardrails and hooks currently process.
pub(super) struct Interception<'a> {
    /// The name that hooks select events by: a step, a tool, or the workload for the whole run.
    subject: String,
    value: Value,
    continuation: Continuation<'a>,
    guardrail_state: GuardrailState,
    /// The index of the first hook that may process the value next.
    next_hook: usize,
    pending_hook: Option<&'a Hook>,
    is_changed: bool,
    /// Whether a person must approve the value before the run uses it.
    needs_approval: bool,
}

/// Whether guardrails still have to evaluate the current value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GuardrailState {
    Pending,
    Done,
}

#[derive(Clone, Copy)]
pub(super) struct ActiveStep<'a> {
    pub(super) step: &'a Step,
    pub(super) started_at: Timestamp,
}

/// The action with which the run continues after guardrails and hooks passed the value.
pub(super) enum Continuation<'a> {
    /// Start the steps of the run with its inputs.
    Start,
    /// Send the query to a knowledge base.
    Retrieve(ActiveStep<'a>, Box<RetrievalQuery>),
    /// Pass the retrieved documents to a step.
    PassDocuments(ActiveStep<'a>, Value),
    /// Send the request to a model.
    CallModel(ActiveStep<'a>, Box<ModelRequest>, Box<PendingRequest>),
    /// Pass a model's answer to a step.
    PassAnswer(ActiveStep<'a>),
    /// Call the active tool of the agent.
    CallTool(ActiveStep<'a>),
    /// Pass a tool's result to the model.
    PassToolResult(ActiveStep<'a>),
    /// End the run with its answer.
    Return,
    /// End the run with an error.
    Fail(RunError),
}

impl Continuation<'_> {
    const fn stage(&self) -> Option<Stage> {
        match self {
            Self::Start => Some(Stage::Input),
            Self::PassDocuments(..) => Some(Stage::Retrieval),
            Self::CallTool(_) => Some(Stage::ToolIn),
            Self::PassToolResult(_) => Some(Stage::ToolOut),
            Self::Return => Some(Stage::Output),
            Self::Retrieve(..) | Self::CallModel(..) | Self::PassAnswer(_) | Self::Fail(_) => None,
        }
    }

    const fn event(&self) -> Option<Event> {
        match self {
            Self::Start => Some(Event::PreExecute),
            Self::Retrieve(..) => Some(Event::PreRetrieval),
            Self::PassDocuments(..) => None,
            Self::CallModel(..) => Some(Event::PreLlm),
            Self::PassAnswer(_) => Some(Event::PostLlm),
            Self::CallTool(_) => Some(Event::PreTool),
            Self::PassToolResult(_) => Some(Event::PostTool),
            Self::Return => Some(Event::PostExecute),
            Self::Fail(_) => Some(Event::OnError),
        }
    }

    const fn active_step(&self) -> Option<ActiveStep<'_>> {
        match self {
            Self::Retrieve(active_step, _)
            | Self::PassDocuments(active_step, _)
            | Self::CallModel(active_step, ..)
            | Self::PassAnswer(active_step)
            | Self::CallTool(active_step)
            | Self::PassToolResult(active_step) => Some(*active_step),
            Self::Start | Self::Return | Self::Fail(_) => None,
        }
    }

    /// Whether a value that a hook returned has the type that the continuation needs. Errors and documents cannot be
    /// modified.
    fn accepts(&self, modified: &Value) -> bool {
        match self {
            Self::Start | Self::CallTool(_) => modified.is_object(),
            Self::Retrieve(..) | Self::PassAnswer(_) => modified.is_string(),
            Self::CallModel(_, request, _) => apply_hook_payload(request, modified).is_some(),
            Self::PassToolResult(_) | Self::Return => true,
            Self::PassDocuments(..) | Self::Fail(_) => false,
        }
    }
}

impl<'a> Run<'a> {
    /// Passes the value of the continuation to guardrails and hooks. The run continues after all of them pass it.
    pub(super) fn intercept(&mut self, continuation: Continuation<'a>) -> RunEffect {
        self.intercept_value(Value::Null, continuation)
    }

    /// Passes the given value to guardrails and hooks, for a continuation that does not contain its value.
    pub(super) fn intercept_value(&mut self, value: Value, continuation: Continuation<'a>) -> RunEffect {
        let plan = self.run_input.plan;
        // Most releases bind no guardrails and no hooks. For them the run does not compute the subject.
        let has_no_interceptors = plan.guardrails.is_empty() && plan.hooks.is_empty();
        let subject = if has_no_interceptors { String::new() } else { self.event_subject(&continuation) };
        let has_guardrails = continuation.stage().is_some_and(|stage| plan.guardrails.inspects(stage));
        let has_hooks =
            continuation.event().is_some_and(|event| plan.hooks.next_matching(event, &subject, 0).is_some());
        let mut interception = Interception {
            subject,
            value,
            continuation,
            guardrail_state: GuardrailState::Pending,
            next_hook: 0,
            pending_hook: None,
            is_changed: false,
            needs_approval: false,
        };
        if !has_guardrails && !has_hooks {
            return self.continue_with(interception);
        }
        if let Some(value) = self.interceptable_value(&interception.continuation) {
            interception.value = value;
        }
        self.run_interceptors(interception)
    }

    /// The value that guardrails and hooks process, if the continuation contains it.
    fn interceptable_value(&self, continuation: &Continuation<'_>) -> Option<Value> {
        match continuation {
            Continuation::Start => Some(Value::Object(Map::clone(&self.inputs))),
            Continuation::Retrieve(_, lookup) => Some(json!(lookup.query)),
            Continuation::PassDocuments(_, documents) => Some(guardrail_texts(documents)),
            Continuation::CallModel(_, request, _) => Some(to_hook_payload(request)),
            Continuation::Fail(error) => Some(json!({ "code": error.code })),
            Continuation::PassAnswer(_)
            | Continuation::CallTool(_)
            | Continuation::PassToolResult(_)
            | Continuation::Return => None,
        }
    }

    fn event_subject(&self, continuation: &Continuation<'_>) -> String {
        let failed_step = || self.run_outcome.steps.last().map(|step| step.step_id.clone());
        let step = match continuation {
            Continuation::Fail(_) => failed_step(),
            Continuation::CallTool(_) | Continuation::PassToolResult(_) => self.active_tool_name().map(str::to_owned),
            Continuation::Start
            | Continuation::Return
            | Continuation::Retrieve(..)
            | Continuation::PassDocuments(..)
            | Continuation::CallModel(..)
            | Continuation::PassAnswer(_) => continuation.active_step().map(|active_step| active_step.step.id.clone()),
        };
        step.unwrap_or_else(|| self.run_input.policy_attributes.workload_slug.clone())
    }

    /// Runs guardrails and hooks until one requests an effect or blocks the value, or until all pass.
    fn run_interceptors(&mut self, mut interception: Interception<'a>) -> RunEffect {
        let plan = self.run_input.plan;
        loop {
            if let (GuardrailState::Pending, Some(stage)) =
                (interception.guardrail_state, interception.continuation.stage())
                && plan.guardrails.inspects(stage)
            {
                let value = mem::take(&mut interception.value);
                let (guardrails, budget_bytes) = (std::sync::Arc::clone(&plan.guardrails), self.budget.remaining());
                let mut check = GuardrailCheck::new(guardrails, stage, value, self.guardrail_bytes_left, budget_bytes);
                if matches!(interception.continuation, Continuation::Return) {
                    check = check.with_context(Value::Object(mem::take(&mut self.metadata)));
                }
                self.interception = Some(interception);
                return RunEffect::CheckGuardrails(Box::new(check));
            }
            let next = interception
                .continuation
                .event()
                .and_then(|event| plan.hooks.next_matching(event, &interception.subject, interception.next_hook));
            let Some((index, hook)) = next else { return self.continue_with(interception) };
            interception.next_hook = index.saturating_add(1);
            let response =
                match hook.evaluate_condition(|condition| self.evaluate_event_policy(condition, &interception)) {
                    HookConditionResult::No => continue,
                    HookConditionResult::Unknown => Err(HookError::Condition),
                    HookConditionResult::Yes => match &hook.handler {
                        HookHandler::Policy(policy) => {
                            Ok(HookResponse::from_policy(self.evaluate_event_policy(policy, &interception)))
                        }
                        HookHandler::Http(address) => {
                            let call = self.build_hook_call(hook, address, &interception);
                            interception.pending_hook = Some(hook);
                            self.interception = Some(interception);
                            return RunEffect::CallHook(Box::new(call));
                        }
                        HookHandler::Unavailable => Err(HookError::Unavailable),
                    },
                };
            if let Err(failure) = self.apply_hook_response(hook, response, &mut interception) {
                return self.block(interception, failure);
            }
        }
    }

    /// Resumes with the result of a guardrail check; `None` if the check did not finish. Returns [`RunEffect::Ended`]
    /// if no check is pending.
    pub fn on_guardrail(&mut self, moment: Moment, result: Option<GuardrailResult>) -> RunEffect {
        self.moment = moment;
        let Some(mut interception) = self.interception.take() else { return RunEffect::Ended };
        let unavailable = || RunError::new("guardrail_unavailable", "a guardrail is unavailable and blocks the value");
        let Some(result) = result else { return self.block(interception, StepFailure::Blocked(unavailable())) };
        self.guardrail_bytes_left = result.remaining_bytes;
        self.record_guardrail(&interception, &result);
        if result.requires_review {
            self.require_approval(&mut interception);
        }
        match result.outcome {
            GuardrailOutcome::Passed => {}
            GuardrailOutcome::Blocked => {
                let error = RunError::new("guardrail_blocked", "a guardrail blocked the value");
                return self.block(interception, StepFailure::Blocked(error));
            }
            GuardrailOutcome::Unavailable => return self.block(interception, StepFailure::Blocked(unavailable())),
            GuardrailOutcome::OutOfMemory => return self.block(interception, StepFailure::ValueTooLarge),
        }
        if result.is_changed && self.budget.charge(&result.value).is_err() {
            return self.block(interception, StepFailure::ValueTooLarge);
        }
        if let (Continuation::Return, Value::Object(metadata)) = (&interception.continuation, result.context) {
            self.metadata = metadata;
        }
        interception.is_changed |= result.is_changed;
        interception.value = result.value;
        interception.guardrail_state = GuardrailState::Done;
        self.run_interceptors(interception)
    }

    /// Resumes with the response of a hook. Returns [`RunEffect::Ended`] if no hook call is pending.
    pub fn on_hook(&mut self, moment: Moment, response: Result<HookResponse, HookError>) -> RunEffect {
        self.moment = moment;
        let Some(mut interception) = self.interception.take() else { return RunEffect::Ended };
        let Some(hook) = interception.pending_hook.take() else { return RunEffect::Ended };
        match self.apply_hook_response(hook, response, &mut interception) {
            Ok(()) => self.run_interceptors(interception),
            Err(failure) => self.block(interception, failure),
        }
    }

    /// Applies the response of a hook to the value, and records it as evidence.
    fn apply_hook_response(
        &mut self,
        hook: &Hook,
        response: Result<HookResponse, HookError>,
        interception: &mut Interception<'a>,
    ) -> Result<(), StepFailure> {
        let response = response.and_then(|response| {
            let is_accepted =
                response.modified.as_ref().is_none_or(|modified| interception.continuation.accepts(modified));
            if hook.allowed_decisions.contains(&response.decision) && is_accepted {
                Ok(response)
            } else {
                Err(HookError::NotAllowed)
            }
        });
        self.record_hook(hook, &response, interception);
        if hook.mode == hook::EnforcementMode::Observe {
            return Ok(());
        }
        let response = match (response, hook.on_error) {
            (Ok(response), _) => response,
            (Err(_), OnError::FailOpen) => return Ok(()),
            (Err(_), OnError::FailClosed) => {
                let message = "a hook has no valid response and blocks the value";
                return Err(StepFailure::Blocked(RunError::new("hook_unavailable", message)));
            }
        };
        response.obligations.iter().for_each(|obligation| self.add_obligation(*obligation));
        match response.decision {
            Decision::Allow => {}
            Decision::Deny => {
                return Err(StepFailure::Blocked(RunError::new("hook_denied", "a hook denied the value")));
            }
            Decision::Ask => self.require_approval(interception),
            Decision::Modify => {
                let value = response.modified.unwrap_or_default();
                self.budget.charge(&value)?;
                (interception.value, interception.is_changed, interception.guardrail_state) =
                    (value, true, GuardrailState::Pending);
            }
        }
        Ok(())
    }

    /// Handles a hook's request for human approval. The run refuses a tool call, because the call cannot wait for a
    /// person. For any other value, the run requires human review of its answer.
    fn require_approval(&mut self, interception: &mut Interception<'a>) {
        match interception.continuation {
            Continuation::CallTool(_) => interception.needs_approval = true,
            Continuation::Start
            | Continuation::Retrieve(..)
            | Continuation::PassDocuments(..)
            | Continuation::CallModel(..)
            | Continuation::PassAnswer(_)
            | Continuation::PassToolResult(_)
            | Continuation::Return
            | Continuation::Fail(_) => self.add_obligation(Obligation::HumanReview),
        }
    }

    pub(super) fn add_obligation(&mut self, obligation: Obligation) {
        if !self.obligations.contains(&obligation) {
            self.obligations.push(obligation);
        }
    }

    /// Handles a value that a guardrail or hook blocked: its step fails, or the run ends.
    fn block(&mut self, interception: Interception<'a>, failure: StepFailure) -> RunEffect {
        match interception.continuation {
            Continuation::Retrieve(ActiveStep { step, started_at }, _)
            | Continuation::PassDocuments(ActiveStep { step, started_at }, _)
            | Continuation::CallModel(ActiveStep { step, started_at }, ..)
            | Continuation::PassAnswer(ActiveStep { step, started_at })
            | Continuation::CallTool(ActiveStep { step, started_at })
            | Continuation::PassToolResult(ActiveStep { step, started_at }) => {
                self.end_step_and_continue(step, started_at, Err(failure))
            }
            // A run that already failed keeps its error, even if a guardrail or hook blocks that error.
            Continuation::Fail(error) => self.set_failed(error),
            Continuation::Start | Continuation::Return => match failure {
                StepFailure::Blocked(error) | StepFailure::Failed(error) => self.fail(error),
                StepFailure::ValueTooLarge | StepFailure::Denied | StepFailure::RefusedByContract => {
                    self.fail(RunError::value_too_large())
                }
            },
        }
    }

    /// Continues the run with the value that all guardrails and hooks passed.
    fn continue_with(&mut self, interception: Interception<'a>) -> RunEffect {
        let Interception { value, is_changed, needs_approval, continuation, .. } = interception;
        match continuation {
            Continuation::Start => {
                if let (true, Value::Object(inputs)) = (is_changed, value) {
                    self.inputs = Cow::Owned(inputs);
                }
                self.enter_flow()
            }
            Continuation::Retrieve(ActiveStep { step, started_at }, mut lookup) => {
                if let (true, Value::String(query)) = (is_changed, value) {
                    lookup.query = query;
                }
                self.pending_step =
                    Some(PendingStep { step, started_at, awaited: AwaitedResponse::Documents(lookup.clone()) });
                RunEffect::RetrieveDocuments(lookup)
            }
            Continuation::PassDocuments(ActiveStep { step, started_at }, documents) => {
                let documents = if is_changed { with_texts(documents, value) } else { documents };
                if self.agent.is_some() {
                    return self.intercept_tool_result(ActiveStep { step, started_at }, documents);
                }
                self.finish_step(ActiveStep { step, started_at }, documents)
            }
            Continuation::CallModel(ActiveStep { step, started_at }, mut request, mut pending_request) => {
                if is_changed && let Some(modified_request) = apply_hook_payload(&request, &value) {
                    pending_request.replace_messages(&value);
                    *request = modified_request;
                }
                self.pending_step =
                    Some(PendingStep { step, started_at, awaited: AwaitedResponse::Model(pending_request) });
                RunEffect::CallModel(request)
            }
            Continuation::PassAnswer(active_step) if self.agent_has_pending_calls() => {
                if is_changed {
                    self.replace_agent_message(&value);
                }
                self.run_pending_calls(active_step)
            }
            Continuation::CallTool(active_step) if needs_approval => {
                self.fail_tool_call(active_step, "tool_needs_approval")
            }
            Continuation::CallTool(active_step) => self.call_tool(active_step, value),
            Continuation::PassToolResult(active_step) => self.accept_tool_result(active_step, value),
            Continuation::PassAnswer(active_step) => self.finish_step(active_step, value),
            Continuation::Return => self.set_completed(value),
            Continuation::Fail(error) => self.set_failed(error),
        }
    }

    /// Evaluates the policy of a hook for an event. The policy reads the same variables as the run's policy, and the
    /// event as `inputs.event`.
    fn evaluate_event_policy(&self, policy: &CompiledPolicy, interception: &Interception<'a>) -> PolicyDecision {
        let name = interception.continuation.event().map(Event::as_str);
        let event = json!({ "name": name, "subject": interception.subject, "value": interception.value });
        let mut inputs = Map::clone(&self.inputs);
        inputs.insert("event".to_owned(), event);
        let (attributes, plan) = (self.run_input.policy_attributes, self.run_input.plan);
        attributes.decide_by_policy(policy, plan, &inputs, self.moment.now())
    }

    fn build_hook_call(&mut self, hook: &Hook, address: &str, interception: &Interception<'a>) -> HttpCall {
        let (attributes, plan) = (self.run_input.policy_attributes, self.run_input.plan);
        self.hook_calls = self.hook_calls.saturating_add(1);
        let call_id = format!("{}.{}", self.run_input.execution_id, self.hook_calls);
        let body = Map::from_iter([
            ("call_id".to_owned(), json!(call_id)),
            ("event".to_owned(), json!(hook.event.as_str())),
            ("subject".to_owned(), json!(interception.subject)),
            ("hook".to_owned(), json!(hook.asset.as_ref())),
            ("execution_id".to_owned(), json!(self.run_input.execution_id)),
            ("workload".to_owned(), json!(attributes.workload_slug)),
            ("release_id".to_owned(), json!(plan.release_id)),
            ("environment".to_owned(), json!(attributes.environment)),
            ("lane".to_owned(), json!(attributes.lane.as_str())),
            ("actor".to_owned(), json!(attributes.actor)),
            ("value".to_owned(), interception.value.clone()),
        ]);
        HttpCall {
            address: address.to_owned(),
            path: String::new(),
            method: HttpMethod::Post,
            arguments: body,
            secret: None,
            call_id,
            timeout: hook.timeout,
            allowed_hosts: None,
        }
    }

    /// Takes the step whose value guardrails or hooks processed when the run was interrupted.
    pub(super) fn take_step_awaiting_interceptor(&mut self) -> Option<(&'a Step, Timestamp)> {
        match self.interception.take()?.continuation {
            Continuation::Retrieve(ActiveStep { step, started_at }, _)
            | Continuation::PassDocuments(ActiveStep { step, started_at }, _)
            | Continuation::CallModel(ActiveStep { step, started_at }, ..)
            | Continuation::PassAnswer(ActiveStep { step, started_at })
            | Continuation::CallTool(ActiveStep { step, started_at })
            | Continuation::PassToolResult(ActiveStep { step, started_at }) => Some((step, started_at)),
            Continuation::Start | Continuation::Return | Continuation::Fail(_) => None,
        }
    }
}
