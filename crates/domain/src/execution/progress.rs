//! How far a run came: what happened in it, in order, and what providers answered.

use super::{
    Execution, StepRecord, StepRow,
    provider::{Completion, ProviderError, ToolCall},
    routing::{Answer, Attempt},
    tool::{ToolFailure, ToolResult},
};
use crate::{asset::content::mcp_server::ToolPin, id::ExecutionId, time::Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// What can happen in a run before its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum EventKind {
    /// It began.
    #[serde(rename = "execution.started")]
    ExecutionStarted,
    /// A step began.
    #[serde(rename = "step.started")]
    StepStarted,
    /// A part of an answer came.
    #[serde(rename = "output.delta")]
    OutputDelta,
    /// A step came to its end.
    #[serde(rename = "step.completed")]
    StepCompleted,
    /// Its steps are over, and its answer awaits a review.
    #[serde(rename = "execution.awaiting_review")]
    AwaitingReview,
}

impl EventKind {
    /// The name of the event.
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

    /// Whether it says what models say, which is for the submitter alone.
    #[must_use]
    pub const fn is_answer(self) -> bool {
        match self {
            Self::OutputDelta => true,
            Self::ExecutionStarted | Self::StepStarted | Self::StepCompleted | Self::AwaitingReview => false,
        }
    }
}

/// Something that happened in a run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RunEvent {
    /// What.
    pub kind: EventKind,
    /// What is to be said of it.
    pub data: Map<String, Value>,
}

impl RunEvent {
    /// A step began.
    #[must_use]
    pub fn step_started(step_id: &str, step_type: &str) -> Self {
        Self::of(EventKind::StepStarted, [("step_id", json!(step_id)), ("step_type", json!(step_type))])
    }

    /// A step came to its end, with a code if it failed.
    #[must_use]
    pub fn step_completed(step_id: &str, failure: Option<&str>) -> Self {
        Self::of(EventKind::StepCompleted, [("step_id", json!(step_id)), ("error_code", json!(failure))])
    }

    /// The run's steps are over, and its answer awaits a review.
    #[must_use]
    pub fn awaiting_review(execution_id: ExecutionId) -> Self {
        Self::of(EventKind::AwaitingReview, [("execution_id", json!(execution_id)), ("review", json!("pending"))])
    }

    /// A part of the answer that a step waits for.
    #[must_use]
    pub fn delta(step_id: &str, text: &str) -> Self {
        Self::of(EventKind::OutputDelta, [("step_id", json!(step_id)), ("delta", json!(text))])
    }

    /// Adds to a part of an answer what was said next.
    pub fn goes_on(&mut self, text: &str) {
        if let Some(Value::String(said)) = self.data.get_mut("delta") {
            said.push_str(text);
        }
    }

    /// The run began.
    #[must_use]
    pub fn started(execution: &Execution) -> Self {
        let at: Timestamp = execution.started_at;
        let named = [("execution_id", json!(execution.execution_id)), ("started_at", json!(at))];
        Self::of(EventKind::ExecutionStarted, named)
    }

    /// Takes out what models say.
    pub fn withhold(&mut self) {
        self.data.insert("delta".to_owned(), Value::Null);
    }

    /// How long the part of an answer is that it tells, in bytes.
    #[must_use]
    pub fn text_bytes(&self) -> usize {
        self.data.get("delta").and_then(Value::as_str).map_or(0, str::len)
    }

    fn of<const N: usize>(kind: EventKind, data: [(&str, Value); N]) -> Self {
        Self { kind, data: data.into_iter().map(|(name, value)| (name.to_owned(), value)).collect() }
    }
}

/// The events of a run that kept none while it ran, told from what its steps did.
#[must_use]
pub fn told_afterwards(steps: &[StepRow]) -> Vec<RunEvent> {
    let of = |step: &StepRow| step_events(&step.step_id, &step.step_type, step.failure.as_deref());
    steps.iter().flat_map(of).collect()
}

/// The same for a run whose steps are not stored yet.
#[must_use]
pub fn events_of_steps(steps: &[StepRecord]) -> Vec<RunEvent> {
    let of = |step: &StepRecord| step_events(&step.step_id, step.step_type, step.failure.as_deref());
    steps.iter().flat_map(of).collect()
}

fn step_events(step_id: &str, step_type: &str, failure: Option<&str>) -> [RunEvent; 2] {
    [RunEvent::step_started(step_id, step_type), RunEvent::step_completed(step_id, failure)]
}

/// What a provider or a tool answered to a step, kept so that nobody asks it twice.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct KeptAnswer {
    /// The step that asked.
    pub step_id: String,
    /// The calls that were made for it.
    #[serde(default)]
    pub attempts: Vec<KeptAttempt>,
    /// Whether it was told while it came.
    #[serde(default)]
    pub was_told: bool,
    /// What came back.
    #[serde(flatten)]
    pub said: Said,
}

/// A call that was made.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct KeptAttempt {
    /// Which of the question's routes.
    pub route: usize,
    /// The code of its failure, if it failed.
    pub failure: Option<String>,
    /// How long it took.
    pub latency_us: u64,
}

/// What came back from a provider.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Said {
    /// An answer.
    Answer {
        /// What it says.
        text: String,
        /// The tools that it wants to be called first.
        #[serde(default)]
        tool_calls: Vec<ToolCall>,
        /// The vector that was asked for.
        #[serde(default)]
        vector: Vec<f32>,
        /// Tokens read.
        tokens_in: u64,
        /// Tokens written.
        tokens_out: u64,
        /// What that cost.
        #[serde(default)]
        cost_micros: Option<u64>,
        /// What else it told.
        metadata: Map<String, Value>,
    },
    /// None, and why.
    Failure {
        /// The code of the failure.
        error: String,
    },
    /// What a tool gave.
    Tool {
        /// Its result.
        tool_result: Value,
    },
    /// A tool gave nothing, and why.
    ToolFailure {
        /// The code of the failure.
        tool_error: String,
        /// The digest of what a drifted tool says of itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        found: Option<String>,
    },
}

impl KeptAnswer {
    /// An answer, to be kept.
    #[must_use]
    pub fn of(step_id: &str, answer: &Answer) -> Self {
        let said = match &answer.completion {
            Ok(Completion { text, tool_calls, vector, tokens_in, tokens_out, cost_micros, metadata }) => Said::Answer {
                text: text.clone(),
                tool_calls: tool_calls.clone(),
                vector: vector.clone(),
                tokens_in: *tokens_in,
                tokens_out: *tokens_out,
                cost_micros: *cost_micros,
                metadata: metadata.clone(),
            },
            Err(error) => Said::Failure { error: error.code().to_owned() },
        };
        let kept = |attempt: &Attempt| KeptAttempt {
            route: attempt.route,
            failure: attempt.result.err().map(|error| error.code().to_owned()),
            latency_us: u64::try_from(attempt.latency.as_micros()).unwrap_or(u64::MAX),
        };
        let attempts = answer.attempts.iter().map(kept).collect();
        Self { step_id: step_id.to_owned(), attempts, was_told: answer.was_told, said }
    }

    /// What a tool gave, to be kept.
    #[must_use]
    pub fn of_tool(step_id: &str, result: &ToolResult) -> Self {
        let said = match result {
            Ok(result) => Said::Tool { tool_result: result.clone() },
            Err(failure) => Said::ToolFailure {
                tool_error: failure.code().to_owned(),
                found: match failure {
                    ToolFailure::Drifted(found) => found.as_ref().map(|found| found.as_str().to_owned()),
                    ToolFailure::Call(_) | ToolFailure::OutcomeUnknown => None,
                },
            },
        };
        Self { step_id: step_id.to_owned(), attempts: Vec::new(), was_told: false, said }
    }

    /// What a tool gave, where it is that.
    #[must_use]
    pub fn tool(self) -> Option<ToolResult> {
        match self.said {
            Said::Tool { tool_result } => Some(Ok(tool_result)),
            Said::ToolFailure { tool_error, found } => {
                let found = found.as_deref().map(ToolPin::spelled);
                Some(Err(ToolFailure::of_code(&tool_error, found)))
            }
            Said::Answer { .. } | Said::Failure { .. } => None,
        }
    }

    /// The answer of a provider as it came, whole, where it is one.
    #[must_use]
    pub fn answer(self) -> Option<Answer> {
        let completion = match self.said {
            Said::Tool { .. } | Said::ToolFailure { .. } => return None,
            Said::Answer { text, tool_calls, vector, tokens_in, tokens_out, cost_micros, metadata } => {
                Ok(Completion { text, tool_calls, vector, tokens_in, tokens_out, cost_micros, metadata })
            }
            Said::Failure { error } => Err(failure(&error)),
        };
        let attempt = |kept: KeptAttempt| Attempt {
            route: kept.route,
            result: kept.failure.map_or(Ok(()), |code| Err(failure(&code))),
            retry_after: None,
            latency: Duration::from_micros(kept.latency_us),
        };
        let attempts = self.attempts.into_iter().map(attempt).collect();
        Some(Answer { attempts, was_told: self.was_told, completion })
    }
}

/// The failure of that code. One that nobody knows any more counts as a provider that is not available.
fn failure(code: &str) -> ProviderError {
    ProviderError::ALL.into_iter().find(|known| known.code() == code).unwrap_or(ProviderError::Unavailable)
}

/// What a run stores on its way, in one piece.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Progress {
    /// Which piece it is, from 1.
    pub position: u16,
    /// The answer that came, if one did.
    pub answer: Option<KeptAnswer>,
    /// What happened since the piece before.
    pub events: Vec<RunEvent>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execution::outward::OutwardError;

    #[test]
    fn answers_and_failures_come_back_as_they_went() {
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
            let attempt =
                |route, result| Attempt { route, result, retry_after: None, latency: Duration::from_micros(5) };
            let attempts = vec![attempt(0, Err(ProviderError::Busy)), attempt(1, completion.clone().map(drop))];
            let answer = Answer { attempts, was_told: completion.is_ok(), completion };
            let kept = serde_json::to_string(&KeptAnswer::of("ask", &answer)).unwrap();
            let read: KeptAnswer = serde_json::from_str(&kept).unwrap();
            assert_eq!((read.step_id.as_str(), read.clone().answer()), ("ask", Some(answer)));
            assert_eq!(read.tool(), None);
        }
    }

    #[test]
    fn what_tools_gave_comes_back_as_it_went() {
        let failures = OutwardError::ALL.map(ToolFailure::Call).into_iter().chain([
            ToolFailure::Drifted(None),
            ToolFailure::Drifted(Some(ToolPin::spelled(&"5".repeat(64)))),
            ToolFailure::OutcomeUnknown,
        ]);
        let values = [json!(null), json!("text"), json!({"text": "a", "error": "b"})];
        for result in failures.map(Err).chain(values.map(Ok)) {
            let kept = serde_json::to_string(&KeptAnswer::of_tool("agent", &result)).unwrap();
            let read: KeptAnswer = serde_json::from_str(&kept).unwrap();
            assert_eq!((read.clone().answer(), read.tool()), (None, Some(result)));
        }
    }

    #[test]
    fn what_an_earlier_version_kept_is_read() {
        let kept = r#"{"step_id":"ask","text":"a","tokens_in":1,"tokens_out":2,"metadata":{}}"#;
        let answer = serde_json::from_str::<KeptAnswer>(kept).unwrap().answer().unwrap();
        assert_eq!((answer.attempts.len(), answer.completion.unwrap().text.as_str()), (0, "a"));
        let failed = serde_json::from_str::<KeptAnswer>(r#"{"step_id":"ask","error":"gone"}"#).unwrap();
        assert_eq!(failed.answer().unwrap().completion, Err(ProviderError::Unavailable));
    }
}
