//! Responses, complete or streamed. Unknown members are ignored, so that servers may send additional ones.

use crate::{
    completion_metadata, failure,
    replace_nul::{replace_nul, replace_nul_in_call},
};
use fairway_domain::execution::provider::{Completion, Embeddings, ProviderError, ProviderFailure, ToolCall};
use fairway_egress::StatusCode;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// A response that is not streamed.
#[derive(Deserialize)]
pub(super) struct ChatResponse {
    #[serde(default)]
    model: Option<String>,
    choices: Vec<Choice>,
    #[serde(default)]
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Choice {
    message: ResponseMessage,
    #[serde(default)]
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct ResponseMessage {
    #[serde(default)]
    content: Option<String>,
    /// The text with which a model refuses to answer.
    #[serde(default)]
    refusal: Option<String>,
    #[serde(default)]
    tool_calls: Option<Vec<ResponseToolCall>>,
}

#[derive(Deserialize)]
struct ResponseToolCall {
    id: String,
    function: Function,
}

#[derive(Deserialize)]
struct Function {
    name: String,
    #[serde(default)]
    arguments: String,
}

/// Token counts. Some servers send `null` for an unknown count.
#[derive(Deserialize, Default)]
struct Usage {
    #[serde(default)]
    prompt_tokens: Option<u64>,
    #[serde(default)]
    completion_tokens: Option<u64>,
}

impl ChatResponse {
    pub(super) fn completion(self, provider: &str) -> Result<Completion, ProviderFailure> {
        let choice = self.choices.into_iter().next().ok_or(ProviderError::Malformed)?;
        let ResponseMessage { content, refusal, tool_calls } = choice.message;
        let calls = tool_calls.unwrap_or_default().into_iter().map(|call| ToolCall {
            id: call.id,
            name: call.function.name,
            arguments: call.function.arguments,
        });
        let metadata = ResponseMetadata { model: self.model, finish_reason: choice.finish_reason, usage: self.usage };
        let text = content.or(refusal).unwrap_or_default();
        metadata.completion(text, calls.collect(), provider)
    }
}

#[derive(Default)]
struct ResponseMetadata {
    model: Option<String>,
    finish_reason: Option<String>,
    usage: Option<Usage>,
}

impl ResponseMetadata {
    /// Builds the completion. A tool call without a name or an identifier makes the response malformed.
    fn completion(self, text: String, calls: Vec<ToolCall>, provider: &str) -> Result<Completion, ProviderFailure> {
        if calls.iter().any(|call| call.id.is_empty() || call.name.is_empty()) {
            return Err(ProviderError::Malformed.into());
        }
        let usage = self.usage.unwrap_or_default();
        Ok(Completion {
            text: replace_nul(text),
            tool_calls: calls.into_iter().map(replace_nul_in_call).collect(),
            tokens_in: usage.prompt_tokens.unwrap_or_default(),
            tokens_out: usage.completion_tokens.unwrap_or_default(),
            metadata: completion_metadata::of(provider, self.model, self.finish_reason),
            ..Completion::default()
        })
    }
}

/// A chunk of a streamed response.
#[derive(Deserialize)]
pub(super) struct Chunk {
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    choices: Vec<ChoiceDelta>,
    #[serde(default)]
    usage: Option<Usage>,
    /// The error that some servers send within a stream.
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Deserialize)]
struct ChoiceDelta {
    #[serde(default)]
    index: u64,
    #[serde(default)]
    delta: Delta,
    #[serde(default)]
    finish_reason: Option<String>,
}

#[derive(Deserialize, Default)]
struct Delta {
    #[serde(default)]
    content: Option<String>,
    #[serde(default)]
    refusal: Option<String>,
    #[serde(default)]
    tool_calls: Option<Vec<ToolCallDelta>>,
}

#[derive(Deserialize)]
struct ToolCallDelta {
    #[serde(default)]
    index: u64,
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    function: Option<FunctionDelta>,
}

#[derive(Deserialize)]
struct FunctionDelta {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    arguments: Option<String>,
}

/// A partial response, assembled from the chunks of a stream.
#[derive(Default)]
pub(super) struct StreamedResponse {
    text: String,
    calls: BTreeMap<u64, ToolCall>,
    metadata: ResponseMetadata,
    is_done: bool,
}

impl StreamedResponse {
    /// Processes the next chunk. Returns the text that the chunk adds to the response.
    pub(super) fn apply(&mut self, chunk: Chunk) -> Result<Option<String>, ProviderFailure> {
        if let Some(error) = chunk.error {
            return Err(stream_error(&error).into());
        }
        self.metadata.model = chunk.model.or(self.metadata.model.take());
        self.metadata.usage = chunk.usage.or(self.metadata.usage.take());
        // The request asks for one choice, so choices with other indexes are ignored.
        let Some(choice) = chunk.choices.into_iter().find(|choice| choice.index == 0) else { return Ok(None) };
        self.metadata.finish_reason = choice.finish_reason.or(self.metadata.finish_reason.take());
        for delta in choice.delta.tool_calls.unwrap_or_default() {
            let empty_call = || ToolCall { id: String::new(), name: String::new(), arguments: String::new() };
            let call = self.calls.entry(delta.index).or_insert_with(empty_call);
            // The first delta of a tool call contains its identifier and name; later deltas extend its arguments.
            call.id.push_str(&delta.id.filter(|_| call.id.is_empty()).unwrap_or_default());
            if let Some(FunctionDelta { name, arguments }) = delta.function {
                call.name.push_str(&name.filter(|_| call.name.is_empty()).unwrap_or_default());
                call.arguments.push_str(&arguments.unwrap_or_default());
            }
        }
        let part = choice.delta.content.or(choice.delta.refusal).filter(|part| !part.is_empty()).map(replace_nul);
        self.text.push_str(part.as_deref().unwrap_or_default());
        Ok(part)
    }

    /// Marks the end of the stream.
    pub(super) const fn finish(&mut self) {
        self.is_done = true;
    }

    /// Returns the response. Fails if the stream ended early.
    pub(super) fn completion(self, provider: &str) -> Result<Completion, ProviderFailure> {
        if !self.is_done && self.metadata.finish_reason.is_none() {
            return Err(ProviderError::Malformed.into());
        }
        self.metadata.completion(self.text, self.calls.into_values().collect(), provider)
    }
}

/// Classifies a stream error. On some servers, its code is an HTTP status.
fn stream_error(error: &Value) -> ProviderError {
    let code = error.get("code").or_else(|| error.get("status"));
    let number = code.and_then(|code| code.as_u64().or_else(|| code.as_str()?.parse().ok()));
    let status = number.and_then(|number| u16::try_from(number).ok()).and_then(|code| StatusCode::from_u16(code).ok());
    match status {
        Some(status) if !status.is_success() => failure::of_status(status),
        Some(_) | None => ProviderError::Unavailable,
    }
}

#[derive(Deserialize)]
pub(super) struct EmbeddingResponse {
    data: Vec<Vector>,
    #[serde(default)]
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Vector {
    index: usize,
    embedding: Vec<f32>,
}

impl EmbeddingResponse {
    /// Appends the vectors to `embeddings`, in the order of the texts. Fails if their number is not `texts`.
    pub(super) fn add_to(mut self, embeddings: &mut Embeddings, texts: usize) -> Result<(), ProviderFailure> {
        self.data.sort_by_key(|vector| vector.index);
        let has_each_index_once =
            self.data.len() == texts && self.data.iter().enumerate().all(|(index, vector)| vector.index == index);
        let length =
            embeddings.vectors.first().or(self.data.first().map(|vector| &vector.embedding)).map_or(0, Vec::len);
        let is_valid =
            |vector: &Vector| vector.embedding.len() == length && vector.embedding.iter().all(|part| part.is_finite());
        if !has_each_index_once || length == 0 || !self.data.iter().all(is_valid) {
            return Err(ProviderError::Malformed.into());
        }
        embeddings.vectors.extend(self.data.into_iter().map(|vector| vector.embedding));
        let tokens = self.usage.unwrap_or_default().prompt_tokens.unwrap_or_default();
        embeddings.tokens_in = embeddings.tokens_in.saturating_add(tokens);
        Ok(())
    }
}
