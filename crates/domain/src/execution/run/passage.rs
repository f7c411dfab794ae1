//! Interceptors of a run: guardrails evaluate values and hooks are called before the run continues.
//!
//! Guardrails run first, so that hooks never see what they mask; they run again on each value that a hook modifies. A
//! blocked value ends the run; no step can catch it.

use super::{
    Run, StepFailure, Turn,
    call::Asked,
    restate::{restated, stated},
    retrieve::{texts_of, with_texts},
    turn::{Awaits, Waiting},
};
use crate::{
    execution::{
        RunError,
        outward::{Method, OutwardCall},
        retrieval::Lookup,
        routing::Question,
    },
    flow::Step,
    guardrail::{Looked, Looking, Stage, Verdict},
    hook::{self, Applies, Decision, Event, Handler, Hook, HookAnswer, HookError},
    policy::{CompiledPolicy, Obligation, PolicyDecision},
    time::Timestamp,
};
use serde_json::{Map, Value, json};
use std::{borrow::Cow, mem};

/// An intercepted value.
pub(super) struct Passage<'a> {
    /// The subject of the event: a step, a tool, or the workload for the whole run.
    subject: String,
    value: Value,
    then: Then<'a>,
    look: Look,
    /// The index of the next hook.
    next: usize,
    /// The hook whose response is pending.
    asked: Option<&'a Hook>,
    is_changed: bool,
    /// Whether a person must approve the value first.
    needs_person: bool,
}

/// Whether guardrails must evaluate the current value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    Due,
    Done,
}

/// The step that is executing.
#[derive(Clone, Copy)]
pub(super) struct Walking<'a> {
    pub(super) step: &'a Step,
    pub(super) began: Timestamp,
}

/// The continuation after interception.
pub(super) enum Then<'a> {
    /// Start the run with its inputs.
    Begin,
    /// Query documents.
    LookUp(Walking<'a>, Box<Lookup>),
    /// Pass the documents, as retrieved, to a step.
    Documents(Walking<'a>, Value),
    /// Call a model.
    Ask(Walking<'a>, Box<Question>, Box<Asked>),
    /// Pass a model's answer to a step.
    Answered(Walking<'a>),
    /// Call a tool.
    UseTool(Walking<'a>),
    /// Pass a tool's result to the model.
    ToolGave(Walking<'a>),
    /// End the run with its answer.
    Return,
    /// End the run with an error.
    Fail(RunError),
}

impl Then<'_> {
    const fn stage(&self) -> Option<Stage> {
        match self {
            Self::Begin => Some(Stage::Input),
            Self::Documents(..) => Some(Stage::Retrieval),
            Self::UseTool(_) => Some(Stage::ToolIn),
            Self::ToolGave(_) => Some(Stage::ToolOut),
            Self::Return => Some(Stage::Output),
            Self::LookUp(..) | Self::Ask(..) | Self::Answered(_) | Self::Fail(_) => None,
        }
    }

    const fn event(&self) -> Option<Event> {
        match self {
            Self::Begin => Some(Event::PreExecute),
            Self::LookUp(..) => Some(Event::PreRetrieval),
            Self::Documents(..) => None,
            Self::Ask(..) => Some(Event::PreLlm),
            Self::Answered(_) => Some(Event::PostLlm),
            Self::UseTool(_) => Some(Event::PreTool),
            Self::ToolGave(_) => Some(Event::PostTool),
            Self::Return => Some(Event::PostExecute),
            Self::Fail(_) => Some(Event::OnError),
        }
    }

    const fn walking(&self) -> Option<Walking<'_>> {
        match self {
            Self::LookUp(walking, _)
            | Self::Documents(walking, _)
            | Self::Ask(walking, ..)
            | Self::Answered(walking)
            | Self::UseTool(walking)
            | Self::ToolGave(walking) => Some(*walking),
            Self::Begin | Self::Return | Self::Fail(_) => None,
        }
    }

    /// Whether the continuation accepts the modified value.
    fn takes(&self, modified: &Value) -> bool {
        match self {
            Self::Begin | Self::UseTool(_) => modified.is_object(),
            Self::LookUp(..) | Self::Answered(_) => modified.is_string(),
            Self::Ask(_, question, _) => restated(question, modified).is_some(),
            Self::ToolGave(_) | Self::Return => true,
            Self::Documents(..) | Self::Fail(_) => false,
        }
    }
}

impl<'a> Run<'a> {
    /// Continues after all interceptors pass.
    pub(super) fn pass(&mut self, then: Then<'a>) -> Turn {
        self.pass_with(Value::Null, then)
    }

    /// The same with an explicit value.
    pub(super) fn pass_with(&mut self, value: Value, then: Then<'a>) -> Turn {
        let plan = self.subject.plan;
        // Most releases bind no interceptors, so the subject is computed only when needed.
        let is_free = plan.guardrails.is_empty() && plan.hooks.is_empty();
        let subject = if is_free { String::new() } else { self.subject_of(&then) };
        let has_guardrails = then.stage().is_some_and(|stage| plan.guardrails.look_at(stage));
        let has_hooks = then.event().is_some_and(|event| plan.hooks.next(event, &subject, 0).is_some());
        let mut passage = Passage {
            subject,
            value,
            then,
            look: Look::Due,
            next: 0,
            asked: None,
            is_changed: false,
            needs_person: false,
        };
        if !has_guardrails && !has_hooks {
            return self.go_through(passage);
        }
        if let Some(value) = self.value_of(&passage.then) {
            passage.value = value;
        }
        self.proceed(passage)
    }

    /// The intercepted value, if the continuation derives it.
    fn value_of(&self, then: &Then<'_>) -> Option<Value> {
        match then {
            Then::Begin => Some(Value::Object(Map::clone(&self.inputs))),
            Then::LookUp(_, lookup) => Some(json!(lookup.query)),
            Then::Documents(_, documents) => Some(texts_of(documents)),
            Then::Ask(_, question, _) => Some(stated(question)),
            Then::Fail(error) => Some(json!({ "code": error.code })),
            Then::Answered(_) | Then::UseTool(_) | Then::ToolGave(_) | Then::Return => None,
        }
    }

    fn subject_of(&self, then: &Then<'_>) -> String {
        let failed = || self.ended.steps.last().map(|step| step.step_id.clone());
        let step = match then {
            Then::Fail(_) => failed(),
            Then::UseTool(_) | Then::ToolGave(_) => self.tool_under_way().map(str::to_owned),
            Then::Begin | Then::Return | Then::LookUp(..) | Then::Documents(..) | Then::Ask(..) | Then::Answered(_) => {
                then.walking().map(|walking| walking.step.id.clone())
            }
        };
        step.unwrap_or_else(|| self.subject.facts.workload_slug.clone())
    }

    /// Runs guardrails and hooks until one needs an effect, one blocks the value, or all pass.
    fn proceed(&mut self, mut passage: Passage<'a>) -> Turn {
        let plan = self.subject.plan;
        loop {
            if let (Look::Due, Some(stage)) = (passage.look, passage.then.stage())
                && plan.guardrails.look_at(stage)
            {
                let value = mem::take(&mut passage.value);
                let (rails, room) = (std::sync::Arc::clone(&plan.guardrails), self.allowance.left());
                let mut looking = Looking::at(rails, stage, value, self.looks_left, room);
                if matches!(passage.then, Then::Return) {
                    looking = looking.with(Value::Object(mem::take(&mut self.metadata)));
                }
                self.passage = Some(passage);
                return Turn::Look(Box::new(looking));
            }
            let next = passage.then.event().and_then(|event| plan.hooks.next(event, &passage.subject, passage.next));
            let Some((place, hook)) = next else { return self.go_through(passage) };
            passage.next = place.saturating_add(1);
            let answer = match hook.applies(|condition| self.decide_about(condition, &passage)) {
                Applies::No => continue,
                Applies::Unknown => Err(HookError::Condition),
                Applies::Yes => match &hook.handler {
                    Handler::Policy(policy) => Ok(HookAnswer::of_policy(self.decide_about(policy, &passage))),
                    Handler::Http(address) => {
                        let call = self.hook_call(hook, address, &passage);
                        passage.asked = Some(hook);
                        self.passage = Some(passage);
                        return Turn::Hook(Box::new(call));
                    }
                    Handler::Unavailable => Err(HookError::Unavailable),
                },
            };
            if let Err(stopped) = self.take_hook(hook, answer, &mut passage) {
                return self.stop(passage, stopped);
            }
        }
    }

    /// Resumes with the result of a guardrail check; `None` when the check did not finish. A result without a check has
    /// no effect.
    pub fn looked(&mut self, looked: Option<Looked>) -> Turn {
        let Some(mut passage) = self.passage.take() else { return Turn::Ended };
        let unavailable = || RunError::new("guardrail_unavailable", "a guardrail is unavailable and blocks the value");
        let Some(looked) = looked else { return self.stop(passage, StepFailure::Stopped(unavailable())) };
        self.looks_left = looked.left;
        self.keep_look(&passage, &looked);
        if looked.asks_review {
            self.ask_person(&mut passage);
        }
        match looked.verdict {
            Verdict::Passes => {}
            Verdict::Blocked => {
                let blocked = RunError::new("guardrail_blocked", "a guardrail blocked the value");
                return self.stop(passage, StepFailure::Stopped(blocked));
            }
            Verdict::Unavailable => return self.stop(passage, StepFailure::Stopped(unavailable())),
            Verdict::NoRoom => return self.stop(passage, StepFailure::NoRoom),
        }
        if looked.is_changed && self.allowance.take_for(&looked.value).is_err() {
            return self.stop(passage, StepFailure::NoRoom);
        }
        if let (Then::Return, Value::Object(metadata)) = (&passage.then, looked.beside) {
            self.metadata = metadata;
        }
        passage.is_changed |= looked.is_changed;
        passage.value = looked.value;
        passage.look = Look::Done;
        self.proceed(passage)
    }

    /// Resumes with the response of a hook. A response without a request has no effect.
    pub fn hooked(&mut self, answer: Result<HookAnswer, HookError>) -> Turn {
        let Some(mut passage) = self.passage.take() else { return Turn::Ended };
        let Some(hook) = passage.asked.take() else { return Turn::Ended };
        match self.take_hook(hook, answer, &mut passage) {
            Ok(()) => self.proceed(passage),
            Err(stopped) => self.stop(passage, stopped),
        }
    }

    /// Applies and records the response of a hook.
    fn take_hook(
        &mut self,
        hook: &Hook,
        answer: Result<HookAnswer, HookError>,
        passage: &mut Passage<'a>,
    ) -> Result<(), StepFailure> {
        let answer = answer.and_then(|answer| {
            let takes = answer.modified.as_ref().is_none_or(|modified| passage.then.takes(modified));
            if hook.may.contains(&answer.decision) && takes { Ok(answer) } else { Err(HookError::NotAllowed) }
        });
        self.keep_hook(hook, &answer, passage);
        if hook.mode == hook::Mode::Observe {
            return Ok(());
        }
        let answer = match (answer, hook.on_error) {
            (Ok(answer), _) => answer,
            (Err(_), hook::OnError::FailOpen) => return Ok(()),
            (Err(_), hook::OnError::FailClosed) => {
                let message = "a hook has no valid response and blocks the value";
                return Err(StepFailure::Stopped(RunError::new("hook_unavailable", message)));
            }
        };
        answer.obligations.iter().for_each(|obligation| self.owe(*obligation));
        match answer.decision {
            Decision::Allow => {}
            Decision::Deny => {
                return Err(StepFailure::Stopped(RunError::new("hook_denied", "a hook denied the value")));
            }
            Decision::Ask => self.ask_person(passage),
            Decision::Modify => {
                let value = answer.modified.unwrap_or_default();
                self.allowance.take_for(&value)?;
                (passage.value, passage.is_changed, passage.look) = (value, true, Look::Due);
            }
        }
        Ok(())
    }

    /// Requires human approval. A tool call cannot wait for a person, so it is refused; other values require a review
    /// of the answer.
    fn ask_person(&mut self, passage: &mut Passage<'a>) {
        match passage.then {
            Then::UseTool(_) => passage.needs_person = true,
            Then::Begin
            | Then::LookUp(..)
            | Then::Documents(..)
            | Then::Ask(..)
            | Then::Answered(_)
            | Then::ToolGave(_)
            | Then::Return
            | Then::Fail(_) => self.owe(Obligation::HumanReview),
        }
    }

    pub(super) fn owe(&mut self, obligation: Obligation) {
        if !self.owed.contains(&obligation) {
            self.owed.push(obligation);
        }
    }

    /// Ends the run at a blocked value.
    fn stop(&mut self, passage: Passage<'a>, stopped: StepFailure) -> Turn {
        match passage.then {
            Then::LookUp(Walking { step, began }, _)
            | Then::Documents(Walking { step, began }, _)
            | Then::Ask(Walking { step, began }, ..)
            | Then::Answered(Walking { step, began })
            | Then::UseTool(Walking { step, began })
            | Then::ToolGave(Walking { step, began }) => self.go_on(step, began, Err(stopped)),
            // A failed run stays failed, even if an interceptor blocks its error.
            Then::Fail(error) => self.failed(error),
            Then::Begin | Then::Return => match stopped {
                StepFailure::Stopped(error) | StepFailure::Failed(error) => self.fail(error),
                StepFailure::NoRoom | StepFailure::Denied | StepFailure::RefusedByContract => {
                    self.fail(RunError::no_room())
                }
            },
        }
    }

    /// Continues after all interceptors have passed.
    fn go_through(&mut self, passage: Passage<'a>) -> Turn {
        let Passage { value, is_changed, needs_person, then, .. } = passage;
        match then {
            Then::Begin => {
                if let (true, Value::Object(inputs)) = (is_changed, value) {
                    self.inputs = Cow::Owned(inputs);
                }
                self.walk_in()
            }
            Then::LookUp(Walking { step, began }, mut lookup) => {
                if let (true, Value::String(query)) = (is_changed, value) {
                    lookup.query = query;
                }
                self.waiting = Some(Waiting { step, began, awaits: Awaits::Documents(lookup.clone()) });
                Turn::LookUp(lookup)
            }
            Then::Documents(Walking { step, began }, documents) => {
                let documents = if is_changed { with_texts(documents, value) } else { documents };
                if self.agent.is_some() {
                    return self.tool_answered(Walking { step, began }, documents);
                }
                self.finish_step(Walking { step, began }, documents)
            }
            Then::Ask(Walking { step, began }, mut question, mut asked) => {
                if is_changed && let Some(restated) = restated(&question, &value) {
                    asked.restate(&value);
                    *question = restated;
                }
                self.waiting = Some(Waiting { step, began, awaits: Awaits::Answer(asked) });
                Turn::Ask(question)
            }
            Then::Answered(walking) if self.agent_wants() => {
                if is_changed {
                    self.agent_said(&value);
                }
                self.agent_works(walking)
            }
            Then::UseTool(walking) if needs_person => self.tool_refused(walking, "tool_needs_approval"),
            Then::UseTool(walking) => self.use_tool(walking, value),
            Then::ToolGave(walking) => self.tool_gave(walking, value),
            Then::Answered(walking) => self.finish_step(walking, value),
            Then::Return => self.completed(value),
            Then::Fail(error) => self.failed(error),
        }
    }

    /// Evaluates a policy for an event. Its variables are those of the run's policy, with the event as `inputs.event`.
    fn decide_about(&self, policy: &CompiledPolicy, passage: &Passage<'a>) -> PolicyDecision {
        let name = passage.then.event().map(Event::as_str);
        let event = json!({ "name": name, "subject": passage.subject, "value": passage.value });
        let mut inputs = Map::clone(&self.inputs);
        inputs.insert("event".to_owned(), event);
        let (facts, plan) = (self.subject.facts, self.subject.plan);
        facts.ask(policy, plan, &inputs, self.outside.clock.now())
    }

    fn hook_call(&mut self, hook: &Hook, address: &str, passage: &Passage<'a>) -> OutwardCall {
        let (facts, plan) = (self.subject.facts, self.subject.plan);
        self.hook_calls = self.hook_calls.saturating_add(1);
        let call_id = format!("{}.{}", self.subject.execution_id, self.hook_calls);
        let body = Map::from_iter([
            ("call_id".to_owned(), json!(call_id)),
            ("event".to_owned(), json!(hook.event.as_str())),
            ("subject".to_owned(), json!(passage.subject)),
            ("hook".to_owned(), json!(hook.asset.as_ref())),
            ("execution_id".to_owned(), json!(self.subject.execution_id)),
            ("workload".to_owned(), json!(facts.workload_slug)),
            ("release_id".to_owned(), json!(plan.release_id)),
            ("environment".to_owned(), json!(facts.environment)),
            ("lane".to_owned(), json!(facts.lane.as_str())),
            ("actor".to_owned(), json!(facts.actor)),
            ("value".to_owned(), passage.value.clone()),
        ]);
        OutwardCall {
            address: address.to_owned(),
            path: String::new(),
            method: Method::Post,
            said: body,
            secret: None,
            call_id,
            time: hook.timeout,
            hosts: None,
        }
    }

    /// Records guardrail findings, if any.
    fn keep_look(&mut self, passage: &Passage<'a>, looked: &Looked) {
        if looked.findings.is_empty() && looked.verdict == Verdict::Passes {
            return;
        }
        let findings: Vec<Value> = looked.findings.iter().map(crate::guardrail::Finding::told).collect();
        let body = Map::from_iter([
            ("stage".to_owned(), json!(looked.stage.as_str())),
            ("step_id".to_owned(), json!(passage.then.walking().map(|walking| &walking.step.id))),
            ("verdict".to_owned(), json!(looked.verdict.as_str())),
            ("masked".to_owned(), json!(looked.is_changed)),
            ("findings".to_owned(), Value::Array(findings)),
        ]);
        self.keep_document("guardrail", "guardrail.json", body);
    }

    fn keep_hook(&mut self, hook: &Hook, answer: &Result<HookAnswer, HookError>, passage: &Passage<'a>) {
        let handler = match &hook.handler {
            Handler::Policy(_) => "policy",
            Handler::Http(_) => "http",
            Handler::Unavailable => "unavailable",
        };
        let mode = match hook.mode {
            hook::Mode::Enforce => "enforce",
            hook::Mode::Observe => "observe",
        };
        let response = answer.as_ref().ok();
        let body = Map::from_iter([
            ("hook".to_owned(), json!(hook.asset.as_ref())),
            ("event".to_owned(), json!(hook.event.as_str())),
            ("subject".to_owned(), json!(passage.subject)),
            ("handler".to_owned(), json!(handler)),
            ("mode".to_owned(), json!(mode)),
            ("decision".to_owned(), json!(response.map(|response| response.decision.as_str()))),
            ("reason_code".to_owned(), json!(response.and_then(|response| response.reason_code.as_deref()))),
            ("error".to_owned(), json!(answer.as_ref().err().map(|error| error.code()))),
        ]);
        self.keep_document("hook", "hook.json", body);
    }

    /// Takes the step of a value that was being intercepted when the run was interrupted.
    pub(super) fn leave_passage(&mut self) -> Option<(&'a Step, Timestamp)> {
        match self.passage.take()?.then {
            Then::LookUp(Walking { step, began }, _)
            | Then::Documents(Walking { step, began }, _)
            | Then::Ask(Walking { step, began }, ..)
            | Then::Answered(Walking { step, began })
            | Then::UseTool(Walking { step, began })
            | Then::ToolGave(Walking { step, began }) => Some((step, began)),
            Then::Begin | Then::Return | Then::Fail(_) => None,
        }
    }
}
