//! Progress of a run: its events in order, and the responses of providers and tools. The store keeps both, so that
//! another worker can resume the run.

use super::{
    Execution, StepRecord, StepRow,
    provider::{Completion, ProviderError, ToolCall},
    routing::{Attempt, ModelResponse},
    tool::{ToolFailure, ToolResult},
};
use crate::{asset::content::mcp_server::ToolPin, id::ExecutionId, time::Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::{borrow::Cow, time::Duration};

/// The kinds of events that occur before the end of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum EventKind {
    /// The run started.
    #[serde(rename = "execution.started")]
    ExecutionStarted,
    /// A step started.
    #[serde(rename = "step.started")]
    StepStarted,
    /// The model produced a part of its output.
    #[serde(rename = "output.delta")]
    OutputDelta,
    /// A step completed.
    #[serde(rename = "step.completed")]
    StepCompleted,
    /// The steps completed; the answer awaits review.
    #[serde(rename = "execution.awaiting_review")]
    AwaitingReview,
}

impl EventKind {
    /// The name of the event on the event stream, such as `step.started`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ExecutionStarted => "execution.started",
            Self::StepStarted => "step.started",
            Self::OutputDelta => "output.delta",
            Self::StepCompleted => "step.completed",
            Self::AwaitingReview => "execution.awaiting_review",
        }
    }

    /// Whether the event contains model output, which only the submitter may read.
    #[must_use]
    pub const fn is_model_output(self) -> bool {
        match self {
            Self::OutputDelta => true,
            Self::ExecutionStarted | Self::StepStarted | Self::StepCompleted | Self::AwaitingReview => false,
        }
    }
}

/// An event of a run, as followers of the run receive it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RunEvent {
    /// The kind of event.
    pub kind: EventKind,
    /// The members of the event. They depend on its kind.
    pub data: Map<String, Value>,
}

impl RunEvent {
    /// Builds the event that a step started.
    #[must_use]
    pub fn step_started(step_id: &str, step_type: &str) -> Self {
        Self::new(EventKind::StepStarted, [("step_id", json!(step_id)), ("step_type", json!(step_type))])
    }

    /// Builds the event that a step ended. It contains an error code if the step failed.
    #[must_use]
    pub fn step_completed(step_id: &str, failure: Option<&str>) -> Self {
        Self::new(EventKind::StepCompleted, [("step_id", json!(step_id)), ("error_code", json!(failure))])
    }

    /// Builds the event that the steps ended and the answer awaits human review.
    #[must_use]
    pub fn awaiting_review(execution_id: ExecutionId) -> Self {
        Self::new(EventKind::AwaitingReview, [("execution_id", json!(execution_id)), ("review", json!("pending"))])
    }

    /// Builds the event that a step produced a part of its model output.
    #[must_use]
    pub fn delta(step_id: &str, text: &str) -> Self {
        Self::new(EventKind::OutputDelta, [("step_id", json!(step_id)), ("delta", json!(text))])
    }

    /// Appends text to the model output in this event. Other events stay unchanged.
    pub fn append_delta(&mut self, text: &str) {
        if let Some(Value::String(delta)) = self.data.get_mut("delta") {
            delta.push_str(text);
        }
    }

    /// Builds the event that the run started.
    #[must_use]
    pub fn started(execution: &Execution) -> Self {
        let started_at: Timestamp = execution.started_at;
        let data = [("execution_id", json!(execution.execution_id)), ("started_at", json!(started_at))];
        Self::new(EventKind::ExecutionStarted, data)
    }

    /// Replaces the model output in this event by null.
    pub fn withhold_delta(&mut self) {
        self.data.insert("delta".to_owned(), Value::Null);
    }

    /// The length of the model output in this event, in bytes; 0 without output.
    #[must_use]
    pub fn delta_bytes(&self) -> usize {
        self.data.get("delta").and_then(Value::as_str).map_or(0, str::len)
    }

    fn new<const N: usize>(kind: EventKind, data: [(&str, Value); N]) -> Self {
        Self { kind, data: data.into_iter().map(|(name, value)| (name.to_owned(), value)).collect() }
    }
}

/// Reconstructs the events of an ended run without stored events from its stored steps.
#[must_use]
pub fn events_of_stored_steps(steps: &[StepRow]) -> Vec<RunEvent> {
    let to_events = |step: &StepRow| step_events(&step.step_id, &step.step_type, step.failure.as_deref());
    steps.iter().flat_map(to_events).collect()
}

/// Reconstructs the events of a run from its step records before the store has them.
#[must_use]
pub fn events_of_unstored_steps(steps: &[StepRecord]) -> Vec<RunEvent> {
    let to_events = |step: &StepRecord| step_events(&step.step_id, step.step_type, step.failure.as_deref());
    steps.iter().flat_map(to_events).collect()
}

fn step_events(step_id: &str, step_type: &str, failure: Option<&str>) -> [RunEvent; 2] {
    [RunEvent::step_started(step_id, step_type), RunEvent::step_completed(step_id, failure)]
}

/// The response that a step received from a provider or a tool. It is stored, so that a resumed run does not repeat the
/// call.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct StoredStepResponse {
    /// The identifier of the step that requested the response.
    pub step_id: String,
    /// The attempts to call a provider, in order; empty for a tool call.
    #[serde(default)]
    pub attempts: Vec<StoredAttempt>,
    /// Whether followers received the model output as it arrived.
    #[serde(default, rename = "was_told")]
    pub was_streamed: bool,
    /// The response, or the failure of the call.
    #[serde(flatten)]
    pub response: StoredResponse,
}

/// One attempt to call a provider, as a progress record stores it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct StoredAttempt {
    /// The index of the attempted route among the routes of the request.
    pub route: usize,
    /// The error code; `None` if the attempt succeeded.
    pub failure: Option<String>,
    /// The HTTP status with which the provider answered a failed attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The stable code of the cause, such as a failed connection or an API key that could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cow<'static, str>>,
    /// The duration of the attempt in microseconds.
    pub latency_us: u64,
}

/// The content of a stored response. Its members tell the variants apart.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum StoredResponse {
    /// The model completed the request.
    Answer {
        /// The generated text.
        text: String,
        /// The tool calls that the model requests.
        #[serde(default)]
        tool_calls: Vec<ToolCall>,
        /// The embedding vector, if the step requested an embedding.
        #[serde(default)]
        vector: Vec<f32>,
        /// The number of input tokens, as the provider reported it.
        tokens_in: u64,
        /// The number of output tokens, as the provider reported it.
        tokens_out: u64,
        /// The cost in millionths of the account's currency; `None` if the account has no configured prices.
        #[serde(default)]
        cost_micros: Option<u64>,
        /// Further data of the provider, which the output of the run contains.
        metadata: Map<String, Value>,
    },
    /// The model request failed.
    Failure {
        /// The stable code of the provider error.
        error: String,
    },
    /// The tool call succeeded.
    Tool {
        /// The result of the tool: JSON or text.
        tool_result: Value,
    },
    /// The tool call failed.
    ToolFailure {
        /// The stable code of the tool failure.
        tool_error: String,
        /// The digest of the tool's current description, if that description does not match the tool's pin.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        found: Option<String>,
    },
}

impl StoredStepResponse {
    /// Converts a model response to its stored form.
    #[must_use]
    pub fn from_answer(step_id: &str, answer: &ModelResponse) -> Self {
        let response = match &answer.completion {
            Ok(Completion { text, tool_calls, vector, tokens_in, tokens_out, cost_micros, metadata }) => {
                StoredResponse::Answer {
                    text: text.clone(),
                    tool_calls: tool_calls.clone(),
                    vector: vector.clone(),
                    tokens_in: *tokens_in,
                    tokens_out: *tokens_out,
                    cost_micros: *cost_micros,
                    metadata: metadata.clone(),
                }
            }
            Err(error) => StoredResponse::Failure { error: error.code().to_owned() },
        };
        let stored_attempt = |attempt: &Attempt| StoredAttempt {
            route: attempt.route,
            failure: attempt.result.err().map(|error| error.code().to_owned()),
            status: attempt.status,
            cause: attempt.cause.clone(),
            latency_us: u64::try_from(attempt.latency.as_micros()).unwrap_or(u64::MAX),
        };
        let attempts = answer.attempts.iter().map(stored_attempt).collect();
        Self { step_id: step_id.to_owned(), attempts, was_streamed: answer.was_streamed, response }
    }

    /// Converts a tool result to its stored form.
    #[must_use]
    pub fn from_tool_result(step_id: &str, result: &ToolResult) -> Self {
        let response = match result {
            Ok(result) => StoredResponse::Tool { tool_result: result.clone() },
            Err(failure) => StoredResponse::ToolFailure {
                tool_error: failure.code().to_owned(),
                found: match failure {
                    ToolFailure::Drifted(found) => found.as_ref().map(|found| found.as_str().to_owned()),
                    ToolFailure::Call(_) | ToolFailure::OutcomeUnknown => None,
                },
            },
        };
        Self { step_id: step_id.to_owned(), attempts: Vec::new(), was_streamed: false, response }
    }

    /// Converts the stored response of a tool back; `None` for a response of a provider.
    #[must_use]
    pub fn into_tool_result(self) -> Option<ToolResult> {
        match self.response {
            StoredResponse::Tool { tool_result } => Some(Ok(tool_result)),
            StoredResponse::ToolFailure { tool_error, found } => {
                let found = found.as_deref().map(ToolPin::from_text_unchecked);
                Some(Err(ToolFailure::from_code(&tool_error, found)))
            }
            StoredResponse::Answer { .. } | StoredResponse::Failure { .. } => None,
        }
    }

    /// Converts the stored response of a provider back; `None` for a response of a tool.
    #[must_use]
    pub fn into_answer(self) -> Option<ModelResponse> {
        let completion = match self.response {
            StoredResponse::Tool { .. } | StoredResponse::ToolFailure { .. } => return None,
            StoredResponse::Answer { text, tool_calls, vector, tokens_in, tokens_out, cost_micros, metadata } => {
                Ok(Completion { text, tool_calls, vector, tokens_in, tokens_out, cost_micros, metadata })
            }
            StoredResponse::Failure { error } => Err(provider_error_from_code(&error)),
        };
        let attempt = |stored: StoredAttempt| Attempt {
            route: stored.route,
            result: stored.failure.map_or(Ok(()), |code| Err(provider_error_from_code(&code))),
            status: stored.status,
            cause: stored.cause,
            retry_after: None,
            latency: Duration::from_micros(stored.latency_us),
        };
        let attempts = self.attempts.into_iter().map(attempt).collect();
        Some(ModelResponse { attempts, was_streamed: self.was_streamed, completion })
    }
}

/// The provider error with this stable code. An unknown code counts as an unavailable provider.
fn provider_error_from_code(code: &str) -> ProviderError {
    ProviderError::ALL.into_iter().find(|error| error.code() == code).unwrap_or(ProviderError::Unavailable)
}

/// One stored part of a run's progress, which a worker writes as the run advances.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ProgressRecord {
    /// The number of the record within the run, starting at 1.
    pub position: u16,
    /// The response that the run received since the previous record, if any.
    pub answer: Option<StoredStepResponse>,
    /// The events of the run since the previous record.
    pub events: Vec<RunEvent>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execution::http_call::HttpCallError;

    #[test]
    fn stored_answers_and_failures_round_trip() {
        let completion = Completion {
            text: "a".to_owned(),
            tool_calls: vec![ToolCall { id: "1".to_owned(), name: "t".to_owned(), arguments: "{}".to_owned() }],
            vector: vec![0.25, -1.0],
            tokens_in: 1,
            tokens_out: 2,
            cost_micros: Some(3),
            metadata: Map::from_iter([("m".to_owned(), json!(1))]),
        };
        for completion in ProviderError::ALL.map(Err).into_iter().chain([Ok(completion)]) {
            let attempt = |route, result: Result<(), ProviderError>| Attempt {
                route,
                result,
                status: result.err().map(|_| 503),
                cause: result.err().map(|_| Cow::Borrowed("secret_missing")),
                retry_after: None,
                latency: Duration::from_micros(5),
            };
            let attempts = vec![attempt(0, Err(ProviderError::Busy)), attempt(1, completion.clone().map(drop))];
            let answer = ModelResponse { attempts, was_streamed: completion.is_ok(), completion };
            let stored_json = serde_json::to_string(&StoredStepResponse::from_answer("ask", &answer)).unwrap();
            let stored: StoredStepResponse = serde_json::from_str(&stored_json).unwrap();
            assert_eq!((stored.step_id.as_str(), stored.clone().into_answer()), ("ask", Some(answer)));
            assert_eq!(stored.into_tool_result(), None);
        }
    }

    #[test]
    fn stored_tool_results_round_trip() {
        let failures = HttpCallError::ALL.map(ToolFailure::Call).into_iter().chain([
            ToolFailure::Drifted(None),
            ToolFailure::Drifted(Some(ToolPin::from_text_unchecked(&"5".repeat(64)))),
            ToolFailure::OutcomeUnknown,
        ]);
        let values = [json!(null), json!("text"), json!({"text": "a", "error": "b"})];
        for result in failures.map(Err).chain(values.map(Ok)) {
            let stored_json = serde_json::to_string(&StoredStepResponse::from_tool_result("agent", &result)).unwrap();
            let stored: StoredStepResponse = serde_json::from_str(&stored_json).unwrap();
            assert_eq!((stored.clone().into_answer(), stored.into_tool_result()), (None, Some(result)));
        }
    }

    #[test]
    fn reads_answers_stored_by_earlier_versions() {
        let stored_json = r#"{"step_id":"ask","text":"a","tokens_in":1,"tokens_out":2,"metadata":{}}"#;
        let answer = serde_json::from_str::<StoredStepResponse>(stored_json).unwrap().into_answer().unwrap();
        assert_eq!((answer.attempts.len(), answer.completion.unwrap().text.as_str()), (0, "a"));
        let failed = serde_json::from_str::<StoredStepResponse>(r#"{"step_id":"ask","error":"gone"}"#).unwrap();
        assert_eq!(failed.into_answer().unwrap().completion, Err(ProviderError::Unavailable));
    }
}
