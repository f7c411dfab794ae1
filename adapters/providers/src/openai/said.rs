//! What comes back, whole or bit by bit. Whatever is not needed is not read, so that servers may say more.

use crate::{
    failure, metadata,
    readable::{readable, readable_call},
};
use fairway_domain::execution::provider::{Completion, Embeddings, ProviderError, ProviderFailure, ToolCall};
use fairway_egress::StatusCode;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// An answer.
#[derive(Deserialize)]
pub(super) struct Reply {
    #[serde(default)]
    model: Option<String>,
    choices: Vec<Choice>,
    #[serde(default)]
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Choice {
    message: Spoken,
    #[serde(default)]
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Spoken {
    #[serde(default)]
    content: Option<String>,
    /// What a model says that will not answer.
    #[serde(default)]
    refusal: Option<String>,
    #[serde(default)]
    tool_calls: Option<Vec<Called>>,
}

#[derive(Deserialize)]
struct Called {
    id: String,
    function: Function,
}

#[derive(Deserialize)]
struct Function {
    name: String,
    #[serde(default)]
    arguments: String,
}

/// Some servers say `null` where they did not count.
#[derive(Deserialize, Default)]
struct Usage {
    #[serde(default)]
    prompt_tokens: Option<u64>,
    #[serde(default)]
    completion_tokens: Option<u64>,
}

impl Reply {
    pub(super) fn completion(self, provider: &str) -> Result<Completion, ProviderFailure> {
        let choice = self.choices.into_iter().next().ok_or(ProviderError::Malformed)?;
        let Spoken { content, refusal, tool_calls } = choice.message;
        let calls = tool_calls.unwrap_or_default().into_iter().map(|called| ToolCall {
            id: called.id,
            name: called.function.name,
            arguments: called.function.arguments,
        });
        let told = Told { model: self.model, finish_reason: choice.finish_reason, usage: self.usage };
        let text = content.or(refusal).unwrap_or_default();
        told.completion(text, calls.collect(), provider)
    }
}

/// What is told beside the answer itself.
#[derive(Default)]
struct Told {
    model: Option<String>,
    finish_reason: Option<String>,
    usage: Option<Usage>,
}

impl Told {
    /// A call without a name calls nothing, and one without an identifier cannot be answered.
    fn completion(self, text: String, calls: Vec<ToolCall>, provider: &str) -> Result<Completion, ProviderFailure> {
        if calls.iter().any(|call| call.id.is_empty() || call.name.is_empty()) {
            return Err(ProviderError::Malformed.into());
        }
        let usage = self.usage.unwrap_or_default();
        Ok(Completion {
            text: readable(text),
            tool_calls: calls.into_iter().map(readable_call).collect(),
            tokens_in: usage.prompt_tokens.unwrap_or_default(),
            tokens_out: usage.completion_tokens.unwrap_or_default(),
            metadata: metadata::of(provider, self.model, self.finish_reason),
            ..Completion::default()
        })
    }
}

/// A bit of an answer.
#[derive(Deserialize)]
pub(super) struct Chunk {
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    choices: Vec<Bit>,
    #[serde(default)]
    usage: Option<Usage>,
    /// What some servers say when they cannot go on.
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Bit {
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
    tool_calls: Option<Vec<CalledBit>>,
}

#[derive(Deserialize)]
struct CalledBit {
    #[serde(default)]
    index: u64,
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    function: Option<FunctionBit>,
}

#[derive(Deserialize)]
struct FunctionBit {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    arguments: Option<String>,
}

/// An answer while it is said.
#[derive(Default)]
pub(super) struct Saying {
    text: String,
    calls: BTreeMap<u64, ToolCall>,
    told: Told,
    is_done: bool,
}

impl Saying {
    /// Takes the next bit, and answers with what it adds to the text.
    pub(super) fn hear(&mut self, chunk: Chunk) -> Result<Option<String>, ProviderFailure> {
        if let Some(error) = chunk.error {
            return Err(failed(&error).into());
        }
        self.told.model = chunk.model.or(self.told.model.take());
        self.told.usage = chunk.usage.or(self.told.usage.take());
        // One answer is asked for.
        let Some(bit) = chunk.choices.into_iter().find(|bit| bit.index == 0) else { return Ok(None) };
        self.told.finish_reason = bit.finish_reason.or(self.told.finish_reason.take());
        for called in bit.delta.tool_calls.unwrap_or_default() {
            let empty = || ToolCall { id: String::new(), name: String::new(), arguments: String::new() };
            let call = self.calls.entry(called.index).or_insert_with(empty);
            // The first bit names the call, the others go on with its arguments.
            call.id.push_str(&called.id.filter(|_| call.id.is_empty()).unwrap_or_default());
            if let Some(FunctionBit { name, arguments }) = called.function {
                call.name.push_str(&name.filter(|_| call.name.is_empty()).unwrap_or_default());
                call.arguments.push_str(&arguments.unwrap_or_default());
            }
        }
        let part = bit.delta.content.or(bit.delta.refusal).filter(|part| !part.is_empty()).map(readable);
        self.text.push_str(part.as_deref().unwrap_or_default());
        Ok(part)
    }

    /// The server said that this is all.
    pub(super) const fn done(&mut self) {
        self.is_done = true;
    }

    /// All of it, if it came to its end.
    pub(super) fn completion(self, provider: &str) -> Result<Completion, ProviderFailure> {
        if !self.is_done && self.told.finish_reason.is_none() {
            return Err(ProviderError::Malformed.into());
        }
        self.told.completion(self.text, self.calls.into_values().collect(), provider)
    }
}

/// What an error within a stream means: its code is a status where the server has one.
fn failed(error: &Value) -> ProviderError {
    let code = error.get("code").or_else(|| error.get("status"));
    let number = code.and_then(|code| code.as_u64().or_else(|| code.as_str()?.parse().ok()));
    let status = number.and_then(|number| u16::try_from(number).ok()).and_then(|code| StatusCode::from_u16(code).ok());
    match status {
        Some(status) if !status.is_success() => failure::of_status(status),
        Some(_) | None => ProviderError::Unavailable,
    }
}

/// Vectors.
#[derive(Deserialize)]
pub(super) struct Vectors {
    data: Vec<Vector>,
    #[serde(default)]
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Vector {
    index: usize,
    embedding: Vec<f32>,
}

impl Vectors {
    /// Adds the vectors of so many texts, in their order.
    pub(super) fn add_to(mut self, embeddings: &mut Embeddings, texts: usize) -> Result<(), ProviderFailure> {
        self.data.sort_by_key(|vector| vector.index);
        let is_each_once = self.data.len() == texts && self.data.iter().enumerate().all(|(at, one)| one.index == at);
        let length = embeddings.vectors.first().or(self.data.first().map(|one| &one.embedding)).map_or(0, Vec::len);
        let is_sound =
            |one: &Vector| one.embedding.len() == length && one.embedding.iter().all(|part| part.is_finite());
        if !is_each_once || length == 0 || !self.data.iter().all(is_sound) {
            return Err(ProviderError::Malformed.into());
        }
        embeddings.vectors.extend(self.data.into_iter().map(|one| one.embedding));
        let tokens = self.usage.unwrap_or_default().prompt_tokens.unwrap_or_default();
        embeddings.tokens_in = embeddings.tokens_in.saturating_add(tokens);
        Ok(())
    }
}
