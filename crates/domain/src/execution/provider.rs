//! The port to model providers, and the requests and responses that cross it.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{sync::Arc, time::Duration};

/// One message of a conversation with a model.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// The role of the author.
    pub role: MessageRole,
    /// The text of the message.
    pub content: String,
    /// The tool calls that a message of the model requests.
    pub tool_calls: Vec<ToolCall>,
    /// The identifier of the tool call whose result this message contains; set for tool messages only.
    pub tool_call_id: Option<String>,
}

impl Message {
    /// Creates a message that consists of text only.
    #[must_use]
    pub const fn text(role: MessageRole, content: String) -> Self {
        Self { role, content, tool_calls: Vec::new(), tool_call_id: None }
    }
}

/// The author of a message, in the terms of model providers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessageRole {
    /// A person, or a program on behalf of a person.
    User,
    /// The model to which the conversation is sent.
    Assistant,
    /// A tool that the model called.
    Tool,
}

impl MessageRole {
    /// The name of the role in provider requests, such as `user`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }
}

/// A tool as a model sees it.
#[derive(Clone, PartialEq, Debug)]
pub struct ToolDefinition {
    /// The name by which the model calls the tool.
    pub name: String,
    /// The description that tells the model when to use the tool.
    pub description: String,
    /// The JSON Schema of the arguments, shared with the run plan.
    pub input_schema: Arc<Value>,
}

/// A call of a tool, as a model requests it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ToolCall {
    /// The identifier that the model gave to the call. The message with the result refers to it.
    pub id: String,
    /// The name of the tool to call.
    pub name: String,
    /// The arguments as text that the model wrote; the text may be invalid JSON.
    pub arguments: String,
}

/// The content of a model request, which is the same for every route.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct CompletionInput {
    /// The instructions to the model.
    pub system_prompt: String,
    /// The messages so far, oldest first.
    pub messages: Vec<Message>,
    /// The tools that the model may call.
    pub tools: Vec<ToolDefinition>,
    /// The sampling temperature, from 0 to 2; `None` leaves it to the provider.
    pub temperature: Option<f64>,
    /// The maximum number of output tokens; `None` leaves it to the provider.
    pub max_tokens: Option<u32>,
}

/// The target of a route: a model of a provider, called through an account.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouteTarget {
    /// The identifier of the route in its model policy.
    pub route_id: String,
    /// The name of the provider in the route.
    pub provider: String,
    /// The name of the model at the provider.
    pub model: String,
    /// The name under which the provider account is configured.
    pub account_slot: String,
}

/// One request to one provider for a completion.
#[derive(Clone, PartialEq, Debug)]
pub struct ProviderCall {
    /// The model, provider and account to call.
    pub route: RouteTarget,
    /// The model request to send.
    pub conversation: Arc<CompletionInput>,
}

/// The response of a provider to a completion request.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Completion {
    /// The generated text.
    pub text: String,
    /// The tool calls that the model requests.
    pub tool_calls: Vec<ToolCall>,
    /// The embedding vector, if the request was an embedding.
    pub vector: Vec<f32>,
    /// The number of input tokens, as the provider reported it.
    pub tokens_in: u64,
    /// The number of output tokens, as the provider reported it.
    pub tokens_out: u64,
    /// The cost in millionths of the account's currency; `None` if the account has no configured prices.
    pub cost_micros: Option<u64>,
    /// Further data of the provider, which the output of the run contains.
    pub metadata: Map<String, Value>,
}

/// A request to one provider for the embeddings of texts.
#[derive(Clone, PartialEq, Debug)]
pub struct EmbeddingCall {
    /// The model, provider and account to call.
    pub route: RouteTarget,
    /// The texts to embed.
    pub texts: Vec<String>,
}

/// The embeddings of texts: one vector for each text, in the order of the texts, all of the same length.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Embeddings {
    /// One vector for each text, in the order of the texts.
    pub vectors: Vec<Vec<f32>>,
    /// The number of input tokens, as the provider reported it.
    pub tokens_in: u64,
    /// The cost in millionths of the account's currency; `None` if the account has no configured prices.
    pub cost_micros: Option<u64>,
}

/// The reason why a provider call failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ProviderError {
    /// No provider account is configured under the name in the route.
    #[error("no provider account with this name is configured")]
    UnknownAccount,
    /// The provider cannot be reached, or reports that it is unavailable (HTTP 409 or 5xx).
    #[error("the provider is not available")]
    Unavailable,
    /// The provider reports overload (HTTP 429), or the built-in local account reached its limit.
    #[error("the provider is overloaded")]
    Busy,
    /// The provider did not respond in time, or reported a timeout (HTTP 408).
    #[error("the provider did not answer in time")]
    TimedOut,
    /// The response of the provider is malformed or truncated.
    #[error("the provider's response could not be read")]
    Malformed,
    /// The provider rejected the API key of the account (HTTP 401 or 403).
    #[error("the provider refused the key of the account")]
    KeyRefused,
    /// The provider does not offer the model of the route.
    #[error("the provider does not have the model of the route")]
    UnknownModel,
    /// The provider rejected the request because of its content rules.
    #[error("the content rules of the provider refused the request")]
    ContentRefused,
    /// The provider rejected the request for another reason (any other HTTP 4xx).
    #[error("the provider refused the request")]
    Refused,
    /// The provider of the account cannot serve this kind of request.
    #[error("the provider does not support this request")]
    Unsupported,
}

impl ProviderError {
    /// Every error.
    pub const ALL: [Self; 10] = [
        Self::UnknownAccount,
        Self::Unavailable,
        Self::Busy,
        Self::TimedOut,
        Self::Malformed,
        Self::KeyRefused,
        Self::UnknownModel,
        Self::ContentRefused,
        Self::Refused,
        Self::Unsupported,
    ];

    /// The stable code of the error.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::UnknownAccount => "provider_unknown_account",
            Self::Unavailable => "provider_unavailable",
            Self::Busy => "provider_busy",
            Self::TimedOut => "provider_timeout",
            Self::Malformed => "provider_malformed_answer",
            Self::KeyRefused => "provider_key_refused",
            Self::UnknownModel => "provider_unknown_model",
            Self::ContentRefused => "provider_content_refused",
            Self::Refused => "provider_refused",
            Self::Unsupported => "provider_unsupported",
        }
    }

    /// Whether the request may succeed on another route.
    #[must_use]
    pub const fn allows_fallback(self) -> bool {
        match self {
            Self::UnknownAccount | Self::Unavailable | Self::Busy | Self::TimedOut | Self::Malformed => true,
            Self::KeyRefused | Self::UnknownModel | Self::ContentRefused | Self::Refused | Self::Unsupported => false,
        }
    }

    /// Whether the request may succeed on the same route after a delay.
    #[must_use]
    pub const fn allows_retry(self) -> bool {
        match self {
            Self::Unavailable | Self::Busy | Self::TimedOut | Self::Malformed => true,
            Self::UnknownAccount
            | Self::KeyRefused
            | Self::UnknownModel
            | Self::ContentRefused
            | Self::Refused
            | Self::Unsupported => false,
        }
    }
}

/// A failed provider call, with the details that retries and operators need.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProviderFailure {
    /// The reason why the call failed.
    pub error: ProviderError,
    /// The delay that the provider asked for before a retry.
    pub retry_after: Option<Duration>,
    /// The HTTP status of the response; `None` if the call failed without a response.
    pub status: Option<u16>,
    /// The stable code of the cause for operators, such as a failed connection or an API key that could not be read.
    pub cause: Option<&'static str>,
}

impl ProviderFailure {
    /// Creates a failure with the stable code of its cause.
    #[must_use]
    pub fn caused_by(error: ProviderError, cause: &'static str) -> Self {
        Self { cause: Some(cause), ..error.into() }
    }
}

impl From<ProviderError> for ProviderFailure {
    fn from(error: ProviderError) -> Self {
        Self { error, retry_after: None, status: None, cause: None }
    }
}

/// Receives the output of a model while the provider streams it.
pub trait DeltaListener: Send + Sync {
    /// Receives the next part of the output. The part stays delivered even if the call fails later.
    fn on_delta(&self, part: &str);
}

/// The port through which the engine calls model providers.
#[async_trait]
pub trait Provider: Send + Sync {
    /// Sends one completion request. If the provider streams, the listener receives the parts of the output. The
    /// completion contains the whole output.
    async fn complete(
        &self,
        call: &ProviderCall,
        listener: Option<&dyn DeltaListener>,
    ) -> Result<Completion, ProviderFailure>;

    /// Embeds texts, and returns one vector for each text.
    async fn embed(&self, call: &EmbeddingCall) -> Result<Embeddings, ProviderFailure>;

    /// The configured jurisdiction in which the account's data resides, if any.
    fn residency(&self, account_slot: &str) -> Option<&str>;

    /// Whether a provider account is configured under this name.
    fn has_account(&self, _account_slot: &str) -> bool {
        true
    }

    /// Whether this process generates the account's answers itself, without a model.
    fn is_local(&self, _account_slot: &str) -> bool {
        false
    }
}
