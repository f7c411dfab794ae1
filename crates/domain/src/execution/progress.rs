//! How far a run came: what happened in it, in order, and what providers answered.

use super::{
    Execution, StepRow,
    provider::{Completion, ProviderError},
};
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

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
        }
    }

    /// Whether it says what models say, which is for the submitter alone.
    #[must_use]
    pub const fn is_answer(self) -> bool {
        match self {
            Self::OutputDelta => true,
            Self::ExecutionStarted | Self::StepStarted | Self::StepCompleted => false,
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

    /// A part of the answer that a step waits for.
    #[must_use]
    pub fn delta(step_id: &str, text: &str) -> Self {
        Self::of(EventKind::OutputDelta, [("step_id", json!(step_id)), ("delta", json!(text))])
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

    fn of<const N: usize>(kind: EventKind, data: [(&str, Value); N]) -> Self {
        Self { kind, data: data.into_iter().map(|(name, value)| (name.to_owned(), value)).collect() }
    }
}

/// The events of a run that kept none while it ran, told from what its steps did.
#[must_use]
pub fn told_afterwards(steps: &[StepRow]) -> Vec<RunEvent> {
    let of = |step: &StepRow| {
        let completed = RunEvent::step_completed(&step.step_id, step.failure.as_deref());
        [RunEvent::step_started(&step.step_id, &step.step_type), completed]
    };
    steps.iter().flat_map(of).collect()
}

/// What a provider answered to a step, kept so that nobody asks it twice.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct KeptAnswer {
    /// The step that asked.
    pub step_id: String,
    /// What came back.
    #[serde(flatten)]
    pub said: Said,
}

/// What came back from a provider.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Said {
    /// An answer.
    Answer {
        /// What it says.
        text: String,
        /// Tokens read.
        tokens_in: u64,
        /// Tokens written.
        tokens_out: u64,
        /// What else it told.
        metadata: Map<String, Value>,
    },
    /// None, and why.
    Failure {
        /// The code of the failure.
        error: String,
    },
}

impl KeptAnswer {
    /// An answer, to be kept.
    #[must_use]
    pub fn of(step_id: &str, answer: &Result<Completion, ProviderError>) -> Self {
        let said = match answer {
            Ok(Completion { text, tokens_in, tokens_out, metadata }) => Said::Answer {
                text: text.clone(),
                tokens_in: *tokens_in,
                tokens_out: *tokens_out,
                metadata: metadata.clone(),
            },
            Err(error) => Said::Failure { error: error.code().to_owned() },
        };
        Self { step_id: step_id.to_owned(), said }
    }

    /// The answer as it came. A failure that nobody knows any more counts as a provider that is not available.
    ///
    /// # Errors
    /// When it was a failure.
    pub fn answer(self) -> Result<Completion, ProviderError> {
        match self.said {
            Said::Answer { text, tokens_in, tokens_out, metadata } => {
                Ok(Completion { text, tokens_in, tokens_out, metadata })
            }
            Said::Failure { error } => Err(ProviderError::ALL
                .into_iter()
                .find(|known| known.code() == error)
                .unwrap_or(ProviderError::Unavailable)),
        }
    }
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

    #[test]
    fn answers_and_failures_come_back_as_they_went() {
        let completion = Completion {
            text: "a".to_owned(),
            tokens_in: 1,
            tokens_out: 2,
            metadata: Map::from_iter([("m".to_owned(), json!(1))]),
        };
        let answers = ProviderError::ALL.map(Err).into_iter().chain([Ok(completion)]);
        for answer in answers {
            let kept = serde_json::to_string(&KeptAnswer::of("ask", &answer)).unwrap();
            let read: KeptAnswer = serde_json::from_str(&kept).unwrap();
            assert_eq!((read.step_id.as_str(), read.clone().answer()), ("ask", answer));
        }
    }
}
