//! Agents: a model calls the offered tools turn by turn, until it gives a final answer or reaches its turn limit.
//!
//! The calls that the model requests are untrusted. The release must bind the tool, the step must allow it, and
//! the arguments must satisfy the tool's schema. The model receives the error of a refused call and can correct
//! the call. Guardrails and hooks intercept each call.

use super::{
    Run, RunEffect, StepFailure,
    effects::{AwaitedResponse, PendingStep, StepProgress},
    interceptors::{ActiveStep, Continuation},
    model_call::PendingRequest,
    outgoing_tool_call::{ARGUMENTS_INVALID, build_http_call, build_mcp_call, call_refusal, tool_pin},
    schema_check::{ResumePoint, SchemaResult},
};
use crate::{
    asset::content::{
        mcp_server::{OnDrift, ToolPin},
        tool::{BuiltinBinding, ToolBinding},
    },
    execution::{
        Payload,
        plan::BoundTool,
        provider::{Message, MessageRole, ToolCall, ToolDefinition},
        routing::ModelResponse,
        tool::{ToolFailure, ToolRequest, ToolResult, ToolTarget},
    },
    flow::{Step, ToolChoice},
    moment::Moment,
};
use serde_json::{Map, Value, json};
use std::{collections::VecDeque, sync::Arc};

/// The turn limit of an agent step that configures no limit.
const DEFAULT_MAX_TURNS: u64 = 10;
/// The maximum number of tool calls that an agent executes for one model response.
const MAX_CALLS_PER_ANSWER: usize = 16;
/// The error code of a tool result that does not satisfy the tool's output schema.
const RESULT_INVALID: &str = "tool_result_invalid";

/// The state of an agent step: its conversation, its remaining turns and its tool calls.
pub(super) struct Agent<'a> {
    system_prompt: String,
    messages: Vec<Message>,
    /// The number of messages that the transcript already contains.
    transcribed: usize,
    tools: Vec<&'a BoundTool>,
    turns_left: u64,
    pending_calls: VecDeque<ToolCall>,
    active_call: Option<ActiveCall<'a>>,
}

/// The tool call that an agent executes now.
struct ActiveCall<'a> {
    /// The identifier that the model gave to the call.
    id: String,
    /// The called tool; `None` when no available tool has the requested name.
    tool: Option<&'a BoundTool>,
    arguments: Value,
    started_at: crate::time::Timestamp,
    /// The difference between the tool's description and its pin, if the server reported one.
    drift: Option<Drift>,
}

/// The pin of a tool, and the pin of its current description, which differs.
struct Drift {
    pinned: ToolPin,
    /// The pin of the current description; `None` if the tool no longer exists or its description cannot be pinned.
    current_pin: Option<ToolPin>,
}

impl<'a> Run<'a> {
    /// Starts the agent of a step, and builds its first model request.
    pub(super) fn start_agent(
        &mut self,
        step: &'a Step,
        inputs: &Map<String, Value>,
        choice: &'a ToolChoice,
        max_turns: Option<u64>,
    ) -> Result<StepProgress, StepFailure> {
        let plan = self.run_input.plan;
        let (system_prompt, messages) = self.prepare_messages(step, inputs)?;
        let bound_tools = plan.tools.iter();
        let tools: Vec<&BoundTool> = match choice {
            ToolChoice::All => bound_tools.collect(),
            ToolChoice::Named(names) => {
                bound_tools.filter(|tool| names.iter().any(|name| tool.matches_name(name))).collect()
            }
        };
        if !tools.is_empty() && !plan.model_policy.as_ref().is_some_and(|policy| policy.supports_tool_use) {
            let message = "the model policy does not declare that its routes support tools";
            return Err(StepFailure::failed("tool_use_unsupported", message));
        }
        let agent = Agent {
            system_prompt,
            messages,
            transcribed: 0,
            tools,
            turns_left: max_turns.unwrap_or(DEFAULT_MAX_TURNS),
            pending_calls: VecDeque::new(),
            active_call: None,
        };
        self.next_agent_request(step, agent)
    }

    /// Builds the agent's next model request. Fails if the agent has reached its turn limit.
    fn next_agent_request(&mut self, step: &Step, mut agent: Agent<'a>) -> Result<StepProgress, StepFailure> {
        let Some(turns_left) = agent.turns_left.checked_sub(1) else {
            let message = "the agent reached its turn limit without an answer";
            return Err(StepFailure::failed("agent_step_limit", message));
        };
        agent.turns_left = turns_left;
        let to_definition = |bound_tool: &&BoundTool| ToolDefinition {
            name: bound_tool.tool.name.clone(),
            description: bound_tool.tool.description.clone(),
            input_schema: Arc::clone(&bound_tool.tool.input_schema),
        };
        let tools = agent.tools.iter().map(to_definition).collect();
        let progress =
            self.build_request(step, agent.system_prompt.clone(), agent.messages.clone(), tools, agent.transcribed)?;
        agent.transcribed = agent.messages.len();
        self.agent = Some(Box::new(agent));
        Ok(progress)
    }

    /// Handles the model's response to an agent: a final answer, or tool calls.
    pub(super) fn on_agent_response(
        &mut self,
        active_step: ActiveStep<'a>,
        pending_request: PendingRequest,
        response: ModelResponse,
        schema_result: Option<SchemaResult>,
    ) -> RunEffect {
        let ActiveStep { step, started_at } = active_step;
        let was_streamed = response.was_streamed;
        let completion = match self.record_response(step, pending_request, response) {
            Ok(completion) => completion,
            Err(failure) => return self.end_step_and_continue(step, started_at, Err(failure)),
        };
        let mut calls = completion.tool_calls.clone();
        // Each call becomes an evidence artifact, so their number is bounded.
        let excess = calls.len().saturating_sub(MAX_CALLS_PER_ANSWER);
        calls.truncate(MAX_CALLS_PER_ANSWER);
        if excess > 0 {
            self.record_excess_calls(step, excess);
        }
        if calls.is_empty() {
            // Text beside tool calls is not part of the answer, so only the text of the final response is emitted.
            self.emit_answer(step, was_streamed, &completion.text);
        }
        let text = match self.validate_answer(step, completion, schema_result) {
            Ok(text) => text,
            Err(failure) => return self.end_step_and_continue(step, started_at, Err(failure)),
        };
        if let Some(agent) = &mut self.agent
            && !calls.is_empty()
        {
            let content = text.as_str().unwrap_or_default().to_owned();
            let message = Message { tool_calls: calls.clone(), ..Message::text(MessageRole::Assistant, content) };
            agent.messages.push(message);
            agent.pending_calls = calls.into();
        }
        self.intercept_value(text, Continuation::PassAnswer(active_step))
    }

    /// Whether the agent has requested tool calls that are not executed yet.
    pub(super) fn agent_has_pending_calls(&self) -> bool {
        self.agent.as_ref().is_some_and(|agent| !agent.pending_calls.is_empty())
    }

    /// Replaces the model's last message with the text that a hook returned.
    pub(super) fn replace_agent_message(&mut self, text: &Value) {
        let last = self.agent.as_mut().and_then(|agent| agent.messages.last_mut());
        if let (Some(last), Some(text)) = (last, text.as_str()) {
            text.clone_into(&mut last.content);
        }
    }

    /// Executes the pending tool calls in order, then sends the agent's next model request.
    pub(super) fn run_pending_calls(&mut self, active_step: ActiveStep<'a>) -> RunEffect {
        let ActiveStep { step, started_at } = active_step;
        loop {
            let schema_result = match self.check_arguments(active_step) {
                Ok(schema_result) => schema_result,
                Err(effect) => return effect,
            };
            let Some(mut agent) = self.agent.take() else { return RunEffect::Ended };
            let Some(call) = agent.pending_calls.pop_front() else {
                return match self.next_agent_request(step, *agent) {
                    Ok(StepProgress::NeedsModel(request, pending_request)) => {
                        self.intercept(Continuation::CallModel(active_step, request, pending_request))
                    }
                    Ok(StepProgress::NeedsDocuments(_) | StepProgress::Done(_)) => RunEffect::Ended,
                    Err(failure) => self.end_step_and_continue(step, started_at, Err(failure)),
                };
            };
            self.tool_calls = self.tool_calls.saturating_add(1);
            let tool = agent.tools.iter().find(|bound_tool| bound_tool.tool.name == call.name).copied();
            let arguments = parse_arguments(&call.arguments);
            let refusal = call_refusal(tool, arguments.as_ref(), schema_result);
            let argument_value = arguments.map_or(Value::String(call.arguments), Value::Object);
            let charge_result = self.budget.charge(&argument_value);
            let call_started_at = self.moment.now();
            agent.active_call = Some(ActiveCall {
                id: call.id,
                tool,
                arguments: argument_value.clone(),
                started_at: call_started_at,
                drift: None,
            });
            self.agent = Some(agent);
            if charge_result.is_err() {
                return self.end_step_and_continue(step, started_at, Err(StepFailure::ValueTooLarge));
            }
            let Some(code) = refusal else {
                return self.intercept_value(argument_value, Continuation::CallTool(active_step));
            };
            if let Err(failure) = self.send_tool_result(step, Err(code)) {
                return self.end_step_and_continue(step, started_at, Err(failure));
            }
        }
    }

    /// Checks the arguments of the next call against the schema of its tool, if the call names an available tool.
    fn check_arguments(&mut self, active_step: ActiveStep<'a>) -> Result<SchemaResult, RunEffect> {
        let to_check = self.agent.as_ref().and_then(|agent| {
            let call = agent.pending_calls.front()?;
            let tool = agent.tools.iter().find(|bound_tool| bound_tool.tool.name == call.name).copied()?;
            if tool.tool.needs_approval() { None } else { Some((tool, parse_arguments(&call.arguments)?)) }
        });
        let Some((tool, arguments)) = to_check else { return Ok(Ok(())) };
        self.check_schema(active_step, Some(tool.tool.arguments_schema()), Value::Object(arguments), |_| {
            ResumePoint::PendingCalls
        })
    }

    /// The name of the tool that the agent calls now, if any.
    pub(super) fn active_tool_name(&self) -> Option<&str> {
        Some(self.active_call()?.tool?.tool.name.as_str())
    }

    fn active_call(&self) -> Option<&ActiveCall<'a>> {
        self.agent.as_ref()?.active_call.as_ref()
    }

    pub(super) fn call_tool(&mut self, active_step: ActiveStep<'a>, arguments: Value) -> RunEffect {
        let ActiveStep { step, started_at } = active_step;
        let execution = self.run_input.execution_id;
        let Some(agent) = &mut self.agent else { return RunEffect::Ended };
        let Some(active_call) = &mut agent.active_call else { return RunEffect::Ended };
        let call_id = format!("{execution}.tool.{}", self.tool_calls);
        active_call.arguments.clone_from(&arguments);
        let (Some(bound_tool), Value::Object(arguments)) = (active_call.tool, arguments) else {
            return RunEffect::Ended;
        };
        // A hook may have changed the arguments after the first check, so they are checked again.
        let argument_value = Value::Object(arguments.clone());
        match self.check_schema(
            active_step,
            Some(bound_tool.tool.arguments_schema()),
            argument_value,
            ResumePoint::ToolArguments,
        ) {
            Ok(Ok(())) => {}
            Ok(Err(rejection)) => return self.fail_tool_call(active_step, rejection.code(ARGUMENTS_INVALID)),
            Err(effect) => return effect,
        }
        match &bound_tool.tool.binding {
            ToolBinding::Http(http) => {
                self.pending_step = Some(PendingStep { step, started_at, awaited: AwaitedResponse::Tool });
                let call = ToolTarget::Http(build_http_call(http, arguments, call_id, bound_tool.tool.timeout));
                RunEffect::CallTool(Box::new(ToolRequest {
                    target: call,
                    repeat_safety: bound_tool.tool.repeat_safety,
                }))
            }
            ToolBinding::Mcp(binding) => {
                let server = bound_tool
                    .server
                    .as_ref()
                    .and_then(|bound_tool| Some((bound_tool, bound_tool.server.connection.as_ref()?)));
                let Some((server, connection)) = server else {
                    return self.fail_tool_call(active_step, "tool_unavailable");
                };
                if !server.server.allows(&bound_tool.tool.name) {
                    return self.fail_tool_call(active_step, "tool_not_allowed");
                }
                if self.quarantined_servers.contains(&server.asset) {
                    return self.fail_tool_call(active_step, "tool_quarantined");
                }
                self.pending_step = Some(PendingStep { step, started_at, awaited: AwaitedResponse::Tool });
                let call = ToolTarget::Mcp(build_mcp_call(bound_tool, binding, server, connection, arguments, call_id));
                RunEffect::CallTool(Box::new(ToolRequest {
                    target: call,
                    repeat_safety: bound_tool.tool.repeat_safety,
                }))
            }
            ToolBinding::Builtin(BuiltinBinding::QueryKnowledgeBase) => {
                let mut inputs = arguments;
                if let Some(name) = inputs.remove("knowledge_base_slug") {
                    inputs.insert("knowledge_base".to_owned(), name);
                }
                match self.build_query(&inputs) {
                    Ok(lookup) => self.intercept(Continuation::Retrieve(active_step, Box::new(lookup))),
                    Err(failure) => self.on_tool_failure(active_step, failure),
                }
            }
            ToolBinding::Unavailable => self.fail_tool_call(active_step, "tool_unavailable"),
        }
    }

    /// Resumes with the result of the pending tool call. Returns [`RunEffect::Ended`] if no call is pending.
    pub fn on_tool(&mut self, moment: Moment, result: ToolResult) -> RunEffect {
        self.moment = moment;
        let Some(PendingStep { step, started_at, awaited: AwaitedResponse::Tool }) = self.pending_step.take() else {
            return RunEffect::Ended;
        };
        let active_step = ActiveStep { step, started_at };
        match result {
            Ok(value) if self.budget.charge(&value).is_ok() => self.intercept_tool_result(active_step, value),
            Ok(_) => self.end_step_and_continue(step, started_at, Err(StepFailure::ValueTooLarge)),
            Err(failure) => {
                let code = failure.code();
                match failure {
                    ToolFailure::Drifted(current_pin) => self.record_drift(current_pin),
                    ToolFailure::Call(_) | ToolFailure::OutcomeUnknown => {}
                }
                self.fail_tool_call(active_step, code)
            }
        }
    }

    /// Records the drift of the called tool. If the MCP server of the tool has `on_drift: quarantine`, the run calls no
    /// more tools of that server.
    fn record_drift(&mut self, current_pin: Option<ToolPin>) {
        let call = self.agent.as_mut().and_then(|agent| agent.active_call.as_mut());
        let Some((call, bound_tool)) = call.and_then(|call| call.tool.map(|bound_tool| (call, bound_tool))) else {
            return;
        };
        let Some((server, pinned)) = bound_tool.server.as_ref().zip(tool_pin(bound_tool)) else { return };
        call.drift = Some(Drift { pinned, current_pin });
        if server.server.on_drift == OnDrift::Quarantine {
            self.quarantined_servers.insert(server.asset);
        }
    }

    /// Checks a tool result against the output schema, and passes it to guardrails and hooks.
    pub(super) fn intercept_tool_result(&mut self, active_step: ActiveStep<'a>, value: Value) -> RunEffect {
        match self.check_result(active_step, &value, ResumePoint::ToolResult) {
            Ok(Ok(())) => self.intercept_value(value, Continuation::PassToolResult(active_step)),
            Ok(Err(code)) => self.fail_tool_call(active_step, code),
            Err(effect) => effect,
        }
    }

    /// Handles a tool result after guardrails and hooks passed it.
    pub(super) fn accept_tool_result(&mut self, active_step: ActiveStep<'a>, value: Value) -> RunEffect {
        // A hook may have changed the result after the first check, so it is checked again.
        match self.check_result(active_step, &value, ResumePoint::InterceptedToolResult) {
            Ok(checked) => self.report_tool_result(active_step, checked.map(|()| value)),
            Err(effect) => effect,
        }
    }

    /// Checks a result against the output schema of the called tool. The inner error is the error code that the model
    /// receives.
    fn check_result(
        &mut self,
        active_step: ActiveStep<'a>,
        value: &Value,
        resume: fn(Value) -> ResumePoint,
    ) -> Result<Result<(), &'static str>, RunEffect> {
        let Some(tool) = self.active_call().and_then(|call| call.tool) else { return Ok(Err(RESULT_INVALID)) };
        let result = self.check_schema(active_step, tool.tool.result_schema(), value.clone(), resume)?;
        Ok(result.map_err(|rejection| rejection.code(RESULT_INVALID)))
    }

    /// Reports to the model that the current tool call failed with this error code.
    pub(super) fn fail_tool_call(&mut self, active_step: ActiveStep<'a>, code: &'static str) -> RunEffect {
        self.report_tool_result(active_step, Err(code))
    }

    fn report_tool_result(&mut self, active_step: ActiveStep<'a>, result: Result<Value, &'static str>) -> RunEffect {
        match self.send_tool_result(active_step.step, result) {
            Ok(()) => self.run_pending_calls(active_step),
            Err(failure) => self.end_step_and_continue(active_step.step, active_step.started_at, Err(failure)),
        }
    }

    /// Handles a failure during a tool call. The model receives a failure that a flow can catch; any other failure ends
    /// the run.
    pub(super) fn on_tool_failure(&mut self, active_step: ActiveStep<'a>, failure: StepFailure) -> RunEffect {
        match failure {
            StepFailure::Failed(_) => self.fail_tool_call(active_step, "tool_failed"),
            StepFailure::Denied
            | StepFailure::RefusedByContract
            | StepFailure::Blocked(_)
            | StepFailure::ValueTooLarge => {
                self.end_step_and_continue(active_step.step, active_step.started_at, Err(failure))
            }
        }
    }

    /// Appends the result of the current tool call to the messages for the model, and records the call as evidence.
    fn send_tool_result(&mut self, step: &Step, result: Result<Value, &'static str>) -> Result<(), StepFailure> {
        let Some(call) = self.agent.as_mut().and_then(|agent| agent.active_call.take()) else { return Ok(()) };
        let content = match &result {
            Ok(Value::String(text)) => text.clone(),
            Ok(value) => value.to_string(),
            Err(code) => json!({ "error": code }).to_string(),
        };
        self.budget.charge(&Value::String(content.clone()))?;
        self.record_tool_call(step, &call, &result);
        if let Some(agent) = &mut self.agent {
            let tool_call_id = Some(call.id);
            agent.messages.push(Message { tool_call_id, ..Message::text(MessageRole::Tool, content) });
        }
        Ok(())
    }

    /// Records the tool call that the interruption of the run cut off, as `not_waited_for`.
    pub(super) fn record_interrupted_call(&mut self, step: &Step) {
        let Some(call) = self.agent.as_mut().and_then(|agent| agent.active_call.take()) else { return };
        self.record_tool_call(step, &call, &Err("not_waited_for"));
    }

    /// Records that a model response contained more tool calls than the limit. The conversation omits the excess calls.
    fn record_excess_calls(&mut self, step: &Step, excess: usize) {
        let body = Map::from_iter([
            ("step_id".to_owned(), json!(step.id)),
            ("result".to_owned(), json!("tool_calls_exceeded")),
            ("calls".to_owned(), json!(excess)),
        ]);
        self.record_evidence("tool_call", "tool-call.json", body);
    }

    /// Records a call and its result as evidence: codes and lengths. Arguments and result are an erasable payload.
    fn record_tool_call(&mut self, step: &Step, call: &ActiveCall<'_>, result: &Result<Value, &'static str>) {
        let number = self.tool_calls;
        let latency = call.started_at.duration_until(self.moment.now());
        let texts = json!({ "arguments": call.arguments, "result": result.as_ref().ok() });
        let payload = Payload { body: texts.to_string().into(), salt: self.moment.new_salt() };
        let reference = call.tool.map(|bound_tool| bound_tool.source.reference.as_str());
        let mut body = Map::from_iter([
            ("step_id".to_owned(), json!(step.id)),
            ("call".to_owned(), json!(number)),
            ("tool".to_owned(), json!(call.tool.map(|bound_tool| bound_tool.tool.name.as_str()))),
            ("version".to_owned(), json!(reference)),
            ("result".to_owned(), json!(result.as_ref().err().copied().unwrap_or("answered"))),
            ("latency_us".to_owned(), json!(super::model_call::as_micros(latency))),
            ("digest".to_owned(), json!(crate::execution::format_digest(&payload.digest()))),
            ("size_bytes".to_owned(), json!(payload.body.len())),
        ]);
        if let Some(drift) = &call.drift {
            body.insert("pinned".to_owned(), json!(drift.pinned.as_str()));
            body.insert("found".to_owned(), json!(drift.current_pin.as_ref().map(ToolPin::as_str)));
        }
        if let (Ok(value), Some(reference)) = (result, reference) {
            self.record_tool_result(&format!("{reference}#call-{number}"), value);
        }
        self.record_evidence_with_payload("tool_call", "tool-call.json", body, payload);
    }
}

/// Parses the arguments of a tool call as a JSON object; `None` if they are invalid. Empty text yields an empty object.
fn parse_arguments(text: &str) -> Option<Map<String, Value>> {
    if text.trim().is_empty() {
        return Some(Map::new());
    }
    // The strict reader rejects duplicate names, because the schema check and the tool could otherwise read different
    // values.
    match crate::json::read(text.as_bytes()) {
        Ok(Value::Object(arguments)) => Some(arguments),
        Ok(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) | Err(_) => None,
    }
}
