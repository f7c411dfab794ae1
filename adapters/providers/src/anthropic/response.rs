//! Responses, complete or streamed. Unknown types of blocks and events are ignored, as the API requires.

use crate::{
    completion_metadata,
    replace_nul::{replace_nul, replace_nul_in_call},
};
use fairway_domain::execution::provider::{Completion, ProviderError, ProviderFailure, ToolCall};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// A response that is not streamed.
#[derive(Deserialize)]
pub(super) struct MessageResponse {
    #[serde(default)]
    model: Option<String>,
    content: Vec<Block>,
    #[serde(default)]
    stop_reason: Option<String>,
    #[serde(default)]
    usage: Usage,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Block {
    Text {
        #[serde(default)]
        text: String,
    },
    ToolUse {
        id: String,
        name: String,
        #[serde(default)]
        input: Value,
    },
    #[serde(other)]
    Unknown,
}

/// Token counts. `input_tokens` excludes the tokens that were written to or read from the prompt cache.
#[derive(Deserialize, Default, Clone, Copy)]
pub(super) struct Usage {
    #[serde(default)]
    input_tokens: Option<u64>,
    #[serde(default)]
    cache_creation_input_tokens: Option<u64>,
    #[serde(default)]
    cache_read_input_tokens: Option<u64>,
    #[serde(default)]
    output_tokens: Option<u64>,
}

impl Usage {
    fn input_total(self) -> u64 {
        [self.input_tokens, self.cache_creation_input_tokens, self.cache_read_input_tokens]
            .into_iter()
            .flatten()
            .fold(0, u64::saturating_add)
    }

    /// Replaces counts by the later ones, which are cumulative.
    fn updated_with(self, later: Self) -> Self {
        Self {
            input_tokens: later.input_tokens.or(self.input_tokens),
            cache_creation_input_tokens: later.cache_creation_input_tokens.or(self.cache_creation_input_tokens),
            cache_read_input_tokens: later.cache_read_input_tokens.or(self.cache_read_input_tokens),
            output_tokens: later.output_tokens.or(self.output_tokens),
        }
    }
}

#[derive(Default)]
struct ResponseMetadata {
    model: Option<String>,
    stop_reason: Option<String>,
    usage: Usage,
}

impl ResponseMetadata {
    fn completion(self, text: String, tool_calls: Vec<ToolCall>, provider: &str) -> Completion {
        Completion {
            text: replace_nul(text),
            tool_calls: tool_calls.into_iter().map(replace_nul_in_call).collect(),
            tokens_in: self.usage.input_total(),
            tokens_out: self.usage.output_tokens.unwrap_or(0),
            metadata: completion_metadata::of(provider, self.model, self.stop_reason),
            ..Completion::default()
        }
    }
}

impl MessageResponse {
    pub(super) fn completion(self, provider: &str) -> Completion {
        let (mut text, mut calls) = (String::new(), Vec::new());
        for block in self.content {
            match block {
                Block::Text { text: part } => text.push_str(&part),
                Block::ToolUse { id, name, input } => calls.push(ToolCall { id, name, arguments: input.to_string() }),
                Block::Unknown => {}
            }
        }
        ResponseMetadata { model: self.model, stop_reason: self.stop_reason, usage: self.usage }
            .completion(text, calls, provider)
    }
}

/// An event of a streamed response.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Event {
    MessageStart {
        message: MessageStart,
    },
    ContentBlockStart {
        index: u64,
        content_block: Block,
    },
    ContentBlockDelta {
        index: u64,
        delta: Delta,
    },
    MessageDelta {
        delta: MessageEnd,
        #[serde(default)]
        usage: Usage,
    },
    MessageStop,
    Error {
        error: StreamError,
    },
    #[serde(other)]
    Unknown,
}

#[derive(Deserialize)]
pub(super) struct MessageStart {
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    usage: Usage,
}

#[derive(Deserialize)]
#[serde(tag = "type")]
pub(super) enum Delta {
    #[serde(rename = "text_delta")]
    Text { text: String },
    #[serde(rename = "input_json_delta")]
    InputJson { partial_json: String },
    #[serde(other)]
    Unknown,
}

#[derive(Deserialize)]
pub(super) struct MessageEnd {
    #[serde(default)]
    stop_reason: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct StreamError {
    r#type: String,
}

/// A partial response, assembled from the events of a stream.
#[derive(Default)]
pub(super) struct StreamedResponse {
    text: String,
    calls: BTreeMap<u64, ToolCall>,
    metadata: ResponseMetadata,
    is_done: bool,
}

impl StreamedResponse {
    /// Processes the next event. Returns the text that the event adds to the response.
    pub(super) fn apply(&mut self, event: Event) -> Result<Option<String>, ProviderFailure> {
        let part = match event {
            Event::MessageStart { message } => {
                self.metadata.model = message.model;
                self.metadata.usage = message.usage;
                None
            }
            Event::ContentBlockStart { index: _, content_block: Block::Text { text } } => Some(text),
            Event::ContentBlockStart { index, content_block: Block::ToolUse { id, name, input: _ } } => {
                self.calls.insert(index, ToolCall { id, name, arguments: String::new() });
                None
            }
            Event::ContentBlockDelta { index: _, delta: Delta::Text { text } } => Some(text),
            Event::ContentBlockDelta { index, delta: Delta::InputJson { partial_json } } => {
                // Argument fragments of a block that is not a known tool call are ignored.
                if let Some(call) = self.calls.get_mut(&index) {
                    call.arguments.push_str(&partial_json);
                }
                None
            }
            Event::MessageDelta { delta, usage } => {
                self.metadata.stop_reason = delta.stop_reason.or(self.metadata.stop_reason.take());
                self.metadata.usage = self.metadata.usage.updated_with(usage);
                None
            }
            Event::MessageStop => {
                self.is_done = true;
                None
            }
            Event::Error { error } => return Err(stream_error(&error.r#type).into()),
            Event::ContentBlockStart { index: _, content_block: Block::Unknown }
            | Event::ContentBlockDelta { index: _, delta: Delta::Unknown }
            | Event::Unknown => None,
        };
        let part = part.filter(|part| !part.is_empty()).map(replace_nul);
        self.text.push_str(part.as_deref().unwrap_or_default());
        Ok(part)
    }

    /// Whether the stream is complete.
    pub(super) const fn is_done(&self) -> bool {
        self.is_done
    }

    /// Returns the response. Fails if the stream ended early.
    pub(super) fn completion(self, provider: &str) -> Result<Completion, ProviderFailure> {
        if !self.is_done {
            return Err(ProviderError::Malformed.into());
        }
        let calls = self.calls.into_values().map(|mut call| {
            // For a call without arguments, the stream omits the empty argument object.
            if call.arguments.is_empty() {
                call.arguments.push_str("{}");
            }
            call
        });
        let calls = calls.collect();
        Ok(self.metadata.completion(self.text, calls, provider))
    }
}

/// Classifies a stream error by the API's error name.
fn stream_error(name: &str) -> ProviderError {
    match name {
        "rate_limit_error" => ProviderError::Busy,
        "timeout_error" => ProviderError::TimedOut,
        "authentication_error" | "permission_error" => ProviderError::KeyRefused,
        "invalid_request_error" | "billing_error" | "not_found_error" | "request_too_large" => ProviderError::Refused,
        _ => ProviderError::Unavailable,
    }
}
