//! Builds model requests, and validates the responses.

use super::{
    Run, RunScope, SchemaResult, StepFailure, StepProgress, documents::documents_message,
    reference_values::ScopeWithRenderedPrompt,
};
use crate::{
    asset::{artifact_store::ArtifactPath, content::embedded_schema::SchemaCheckFailure, kind::AssetKind},
    evidence::{EvidenceArtifact, PROVIDER_CALL},
    execution::{
        Payload,
        provider::{Completion, CompletionInput, Message, MessageRole, ProviderError, RouteTarget, ToolDefinition},
        routing::{Attempt, ModelRequest, ModelResponse, RefusedRoute, RequestKind},
    },
    flow::{
        Step, StepKind,
        bound_prompt_use::{CONVERSATION_INPUTS, is_bound_prompt_template},
    },
    prompt::composition::ComposedPrompt,
    time::Timestamp,
};
use serde_json::{Map, Value, json};
use std::{sync::Arc, time::Duration};

/// A model request that awaits its response, and the data that is recorded with the response.
pub(super) struct PendingRequest {
    routes: Vec<RouteTarget>,
    sent_at: Timestamp,
    /// The transcript entry of the request, if the run records a transcript.
    transcript_entry: Option<Map<String, Value>>,
}

impl PendingRequest {
    /// Replaces the messages in the transcript entry by the messages that a hook returned.
    pub(super) fn replace_messages(&mut self, payload: &Value) {
        if let (Some(entry), Some(payload)) = (&mut self.transcript_entry, payload.as_object()) {
            entry.extend(payload.iter().map(|(name, value)| (name.clone(), value.clone())));
        }
    }
}

impl<'a> Run<'a> {
    pub(super) fn completion_request(
        &mut self,
        step: &'a Step,
        inputs: &Map<String, Value>,
    ) -> Result<StepProgress, StepFailure> {
        let (system_prompt, messages) = self.prepare_messages(step, inputs)?;
        self.build_request(step, system_prompt, messages, Vec::new(), 0)
    }

    /// Builds the system prompt and the messages of a step.
    pub(super) fn prepare_messages(
        &mut self,
        step: &'a Step,
        inputs: &Map<String, Value>,
    ) -> Result<(String, Vec<Message>), StepFailure> {
        if self.run_input.plan.model_policy.is_none() {
            return Err(StepFailure::failed("model_policy_missing", "the release binds no model policy"));
        }
        // Lineage is recorded before rendering, because the step reads the prompt even if its rendering fails.
        self.record_model_inputs(step);
        let system_prompt = self.render_prompt(step, inputs)?;
        let mut messages = self.input_messages(inputs)?;
        // Documents are untrusted, so they become a user message and never part of the system prompt.
        if let Some(documents) = inputs.get("documents").and_then(documents_message) {
            messages.insert(0, Message::text(MessageRole::User, documents));
        }
        messages.splice(0..0, self.conversation_state.earlier_messages().iter().cloned());
        Ok((system_prompt, messages))
    }

    /// Builds a request with these messages and tools. The transcript already contains the first `transcribed`
    /// messages.
    pub(super) fn build_request(
        &mut self,
        step: &Step,
        system_prompt: String,
        messages: Vec<Message>,
        tools: Vec<ToolDefinition>,
        transcribed: usize,
    ) -> Result<StepProgress, StepFailure> {
        let Some(policy) = &self.run_input.plan.model_policy else {
            return Err(StepFailure::failed("model_policy_missing", "the release binds no model policy"));
        };
        let routes = self.allowed_routes(step)?;
        let new_messages = messages.get(transcribed..).unwrap_or_default();
        let transcript_entry = if self.records_transcript {
            Some(self.transcript_entry(step, &system_prompt, new_messages)?)
        } else {
            None
        };
        // Output with tools is not streamed, because text beside tool calls is not part of the answer.
        let is_streamable = self.streams_answers && policy.supports_streaming && tools.is_empty();
        let conversation = Arc::new(CompletionInput {
            system_prompt,
            messages,
            tools,
            temperature: policy.temperature,
            max_tokens: policy.max_tokens.and_then(|limit| u32::try_from(limit).ok()),
        });
        let pending_request = PendingRequest { routes: routes.clone(), sent_at: self.moment.now(), transcript_entry };
        let request = ModelRequest { kind: RequestKind::Completion, conversation, routes, is_streamable };
        Ok(StepProgress::NeedsModel(Box::new(request), Box::new(pending_request)))
    }

    /// Builds the embedding request for a step. The transcript omits this request, because its text is not part of a
    /// conversation.
    pub(super) fn embedding_request(
        &mut self,
        step: &'a Step,
        inputs: &Map<String, Value>,
    ) -> Result<StepProgress, StepFailure> {
        if self.run_input.plan.model_policy.is_none() {
            return Err(StepFailure::failed("model_policy_missing", "the release binds no model policy"));
        }
        self.record_inputs(step);
        let text = match inputs.get("text") {
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
            None => return Err(StepFailure::failed("reference_missing", "the step has no text")),
        };
        let routes = self.allowed_routes(step)?;
        let pending_request =
            PendingRequest { routes: routes.clone(), sent_at: self.moment.now(), transcript_entry: None };
        let request = ModelRequest {
            kind: RequestKind::Embedding(text),
            conversation: Arc::default(),
            routes,
            is_streamable: false,
        };
        Ok(StepProgress::NeedsModel(Box::new(request), Box::new(pending_request)))
    }

    /// The routes of the model policy that the run may use. The refused routes are recorded as evidence.
    fn allowed_routes(&mut self, step: &Step) -> Result<Vec<RouteTarget>, StepFailure> {
        self.record_refused_routes(step);
        let routes = self.run_input.plan.routing.allowed.clone();
        if routes.is_empty() {
            return Err(StepFailure::failed("no_compliant_route", "no route of the model policy is allowed"));
        }
        Ok(routes)
    }

    /// Records the refused routes and their reasons as evidence, once per run.
    fn record_refused_routes(&mut self, step: &Step) {
        if std::mem::replace(&mut self.refused_routes_recorded, true) {
            return;
        }
        let plan = self.run_input.plan;
        for RefusedRoute { route, reasons } in &plan.routing.refused {
            let mut body = Map::new();
            body.insert("step_id".to_owned(), json!(step.id));
            body.insert("route_id".to_owned(), json!(route.route_id));
            body.insert("provider".to_owned(), json!(route.provider));
            body.insert("region".to_owned(), json!(route.region));
            body.insert("residency".to_owned(), json!(route.residency));
            let reasons: Vec<&str> = reasons.iter().map(|reason| reason.code()).collect();
            body.insert("reasons".to_owned(), json!(reasons));
            self.record_evidence("route_refused", "route-refused.json", body);
        }
    }

    /// Records the response to a step's request, and returns the answer as the value of the step.
    pub(super) fn accept_response(
        &mut self,
        step: &Step,
        pending_request: PendingRequest,
        response: ModelResponse,
        schema_result: Option<SchemaResult>,
    ) -> Result<Value, StepFailure> {
        let completion = self.record_response(step, pending_request, response)?;
        if matches!(step.kind, StepKind::Embedding { .. }) {
            let vector = Value::from(completion.vector);
            self.budget.charge(&vector)?;
            return Ok(vector);
        }
        self.validate_answer(step, completion, schema_result)
    }

    /// Records the response to a request as evidence, and returns its completion.
    pub(super) fn record_response(
        &mut self,
        step: &Step,
        pending_request: PendingRequest,
        response: ModelResponse,
    ) -> Result<Completion, StepFailure> {
        let ModelResponse { attempts, was_streamed: _, completion } = response;
        self.record_call(step, &pending_request, &attempts, completion.as_ref().ok());
        if let Some(mut entry) = pending_request.transcript_entry {
            let mut charge_result = Ok(());
            if let Ok(completion) = &completion {
                let text = Value::String(completion.text.clone());
                entry.insert("answer_bytes".to_owned(), json!(completion.text.len()));
                charge_result = self.budget.charge(&text);
                // An answer that exceeds the value budget ends the run. The transcript then omits the answer and
                // contains only its length.
                if charge_result.is_ok() {
                    entry.insert("answer".to_owned(), text);
                }
                if charge_result.is_ok() && !completion.tool_calls.is_empty() {
                    let calls = json!(completion.tool_calls);
                    charge_result = self.budget.charge(&calls);
                    entry.insert("tool_calls".to_owned(), calls);
                }
            }
            self.transcript.push(Value::Object(entry));
            charge_result?;
        }
        completion.map_err(|error| StepFailure::failed(error.code(), &call_failure_message(error, &attempts)))
    }

    /// The bound prompt, if the step uses it. The schema of the bound prompt does not apply to a step with its own
    /// prompt.
    pub(super) fn bound_prompt_for(&self, step: &Step) -> Option<&'a ComposedPrompt> {
        self.run_input.plan.prompt.as_ref().filter(|_| is_bound_prompt_template(step.inputs.get("prompt")))
    }

    /// Validates the text of a response. `schema_result` is the result of the schema check, if that check was
    /// offloaded.
    pub(super) fn validate_answer(
        &mut self,
        step: &Step,
        completion: Completion,
        schema_result: Option<SchemaResult>,
    ) -> Result<Value, StepFailure> {
        if !completion.tool_calls.is_empty() && self.agent.is_none() {
            let message = "the model requested tool calls but was offered no tools";
            return Err(StepFailure::failed(ProviderError::Malformed.code(), message));
        }
        // Text beside tool calls is not the answer, so it is not checked against the schema.
        let is_final_answer = completion.tool_calls.is_empty();
        let check =
            |prompt: &ComposedPrompt| schema_result.unwrap_or_else(|| prompt.check_response(&completion.text)).err();
        if is_final_answer && let Some(rejection) = self.bound_prompt_for(step).and_then(check) {
            let message = match rejection {
                SchemaCheckFailure::Mismatch => "the answer does not satisfy the prompt's schema",
                SchemaCheckFailure::BudgetExceeded => {
                    "the answer is too large to be checked against the prompt's schema"
                }
            };
            return Err(StepFailure::failed(rejection.code("output_schema_mismatch"), message));
        }
        // A provider determines the length of its response, so the run charges it to the value budget.
        let (answer, metadata) = (Value::String(completion.text), Value::Object(completion.metadata));
        self.budget.charge(&answer)?;
        self.budget.charge(&metadata)?;
        self.metadata.insert(step.id.clone(), metadata);
        Ok(answer)
    }

    /// Records a request whose response the run no longer awaits, because it was interrupted.
    pub(super) fn record_unanswered(&mut self, step: &Step, pending_request: PendingRequest) {
        self.record_call(step, &pending_request, &[], None);
        self.transcript.extend(pending_request.transcript_entry.map(Value::Object));
    }

    /// Renders the prompt. An argument comes from the inputs of the step, or otherwise from the inputs of the run.
    fn render_prompt(&mut self, step: &Step, inputs: &Map<String, Value>) -> Result<String, StepFailure> {
        let (plan, run_inputs) = (self.run_input.plan, &*self.inputs);
        let template = step.inputs.get("prompt");
        let is_bound = is_bound_prompt_template(template);
        let rendered = match &plan.prompt {
            Some(prompt) if is_bound => {
                let mut arguments = run_inputs.clone();
                let step_inputs = inputs.iter().filter(|(name, _)| !CONVERSATION_INPUTS.contains(&name.as_str()));
                arguments.extend(step_inputs.map(|(name, value)| (name.clone(), value.clone())));
                let flow_step = plan.bound_asset(AssetKind::OrchestrationFlow).map(|_| step);
                prompt.render(&arguments).map_err(|refusal| StepFailure::from_prompt(&refusal, flow_step))?
            }
            None if is_bound => return Err(StepFailure::failed("prompt_missing", "the release binds no prompt")),
            Some(_) | None => String::new(),
        };
        let Some(template) = template else { return Ok(rendered) };
        let run_scope = RunScope { plan, inputs: run_inputs, outputs: &self.outputs, own_output: None };
        let scope = ScopeWithRenderedPrompt { run_scope, prompt: Value::String(rendered) };
        let value = template.resolve(&scope, &mut self.budget)?;
        Ok(match value {
            Value::String(text) => text,
            other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                other.to_string()
            }
        })
    }

    /// The messages of a request: the step's `messages` or `message`, otherwise those of the run's inputs. If the run
    /// has none of these either, one message contains all of its inputs as JSON.
    fn input_messages(&self, inputs: &Map<String, Value>) -> Result<Vec<Message>, StepFailure> {
        let malformed = || StepFailure::failed("messages_malformed", "messages are objects with `role` and `content`");
        for values in [inputs, &*self.inputs] {
            match values.get("messages") {
                Some(Value::Array(list)) => {
                    return list.iter().map(|entry| parse_message(entry).ok_or_else(malformed)).collect();
                }
                Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) => {
                    return Err(malformed());
                }
                None => {}
            }
            if let Some(message) = values.get("message") {
                let content = message.as_str().map_or_else(|| message.to_string(), str::to_owned);
                return Ok(vec![Message::text(MessageRole::User, content)]);
            }
        }
        let content = Value::Object(Map::clone(&self.inputs)).to_string();
        Ok(vec![Message::text(MessageRole::User, content)])
    }

    /// Builds the transcript entry of a request. The entry is charged to the value budget, because the run keeps it
    /// until its end.
    fn transcript_entry(
        &mut self,
        step: &Step,
        system_prompt: &str,
        messages: &[Message],
    ) -> Result<Map<String, Value>, StepFailure> {
        let messages: Vec<Value> = messages
            .iter()
            .map(|message| json!({ "role": message.role.as_str(), "content": message.content }))
            .collect();
        let entry = json!({ "step_id": step.id, "system_prompt": system_prompt, "messages": messages });
        self.budget.charge(&entry)?;
        match entry {
            Value::Object(entry) => Ok(entry),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Ok(Map::new()),
        }
    }

    /// Records a model call as evidence: route, counts and codes, but no texts. The route is the one of the last
    /// attempt, or the first allowed route if there was no attempt.
    fn record_call(
        &mut self,
        step: &Step,
        pending_request: &PendingRequest,
        attempts: &[Attempt],
        completion: Option<&Completion>,
    ) {
        let now = self.moment.now();
        let last_route = attempts.last().map_or(0, |attempt| attempt.route);
        let mut body = Map::new();
        body.insert("step_id".to_owned(), json!(step.id));
        if let Some(RouteTarget { route_id, provider, model, account_slot }) = pending_request.routes.get(last_route) {
            body.insert("route_id".to_owned(), json!(route_id));
            body.insert("provider".to_owned(), json!(provider));
            body.insert("model".to_owned(), json!(model));
            body.insert("account_slot".to_owned(), json!(account_slot));
        }
        // If an earlier worker received the response, this worker knows only the latencies of the attempts.
        let total_latency: Duration = attempts.iter().map(|attempt| attempt.latency).sum();
        body.insert(
            "latency_us".to_owned(),
            json!(as_micros(pending_request.sent_at.duration_until(now).max(total_latency))),
        );
        if let Some(completion) = completion {
            // A provider that reports zero for both counts reports no counts, because every request has input tokens.
            let reports_counts = completion.tokens_in > 0 || completion.tokens_out > 0;
            body.insert("tokens_in".to_owned(), json!(reports_counts.then_some(completion.tokens_in)));
            body.insert("tokens_out".to_owned(), json!(reports_counts.then_some(completion.tokens_out)));
            if let Some(cost) = completion.cost_micros {
                body.insert("cost_micros".to_owned(), json!(cost));
            }
        }
        let mut summaries: Vec<Value> =
            attempts.iter().map(|attempt| attempt_summary(attempt, &pending_request.routes)).collect();
        if summaries.is_empty() {
            let route_id = pending_request.routes.first().map(|route| &route.route_id);
            summaries.push(json!({ "route_id": route_id, "result": "not_waited_for" }));
        }
        body.insert("attempts".to_owned(), Value::Array(summaries));
        self.record_evidence(PROVIDER_CALL, "provider-call.json", body);
    }

    /// Records an evidence artifact of codes and counts.
    pub(super) fn record_evidence(&mut self, kind: &'static str, file: &'static str, body: Map<String, Value>) {
        self.push_artifact(kind, file, body, None);
    }

    /// Records an evidence artifact with an erasable payload.
    pub(super) fn record_evidence_with_payload(
        &mut self,
        kind: &'static str,
        file: &'static str,
        body: Map<String, Value>,
        payload: Payload,
    ) {
        self.push_artifact(kind, file, body, Some(payload));
    }

    fn push_artifact(
        &mut self,
        kind: &'static str,
        file: &'static str,
        body: Map<String, Value>,
        payload: Option<Payload>,
    ) {
        let artifact_id = self.moment.new_id().into();
        self.run_outcome.artifacts.push(EvidenceArtifact {
            artifact_id,
            kind,
            storage_ref: ArtifactPath::of_database_evidence(self.run_input.execution_id, artifact_id, file),
            body,
            payload,
            created_at: self.moment.now(),
        });
    }
}

/// The message of a failed model call. If the server could read none of the keys, it called no provider, and the
/// message says so. The message names no secret.
fn call_failure_message(error: ProviderError, attempts: &[Attempt]) -> String {
    let lacks_key = |attempt: &Attempt| attempt.cause.as_deref().is_some_and(|cause| cause.starts_with("secret_"));
    if !attempts.is_empty() && attempts.iter().all(lacks_key) {
        return "the provider was not called, because this server cannot read the key of the account".to_owned();
    }
    error.to_string()
}

fn attempt_summary(attempt: &Attempt, routes: &[RouteTarget]) -> Value {
    let route_id = routes.get(attempt.route).map(|route| &route.route_id);
    let result = attempt.result.map_or_else(|error| error.code(), |()| "answered");
    let mut summary = json!({ "route_id": route_id, "result": result, "latency_us": as_micros(attempt.latency) });
    if let Some(summary) = summary.as_object_mut() {
        summary.extend(attempt.status.map(|status| ("http_status".to_owned(), json!(status))));
        summary.extend(attempt.cause.as_ref().map(|cause| ("cause".to_owned(), json!(cause))));
    }
    summary
}

pub(super) fn as_micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

pub(super) fn parse_message(entry: &Value) -> Option<Message> {
    let role = match entry.get("role")?.as_str()? {
        "user" => MessageRole::User,
        "assistant" => MessageRole::Assistant,
        _ => return None,
    };
    Some(Message::text(role, entry.get("content")?.as_str()?.to_owned()))
}
