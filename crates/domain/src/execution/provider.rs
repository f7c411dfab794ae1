//! The model provider port.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{sync::Arc, time::Duration};

/// A message of a conversation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// The role of the message's author.
    pub role: MessageRole,
    /// The text of the message.
    pub content: String,
    /// The tool calls that the model requests.
    pub tool_calls: Vec<ToolCall>,
    /// The identifier of the tool call that this message answers; set for tool messages only.
    pub tool_call_id: Option<String>,
}

impl Message {
    /// A message that consists of text only.
    #[must_use]
    pub const fn text(role: MessageRole, content: String) -> Self {
        Self { role, content, tool_calls: Vec::new(), tool_call_id: None }
    }
}

/// The role of a message's author in a conversation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessageRole {
    /// A person, or a program on behalf of a person.
    User,
    /// The model that answers.
    Assistant,
    /// A tool that the model called.
    Tool,
}

impl MessageRole {
    /// The form in messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }
}

/// A tool definition, as offered to a model.
#[derive(Clone, PartialEq, Debug)]
pub struct ToolDefinition {
    /// The name of the tool.
    pub name: String,
    /// The description for the model.
    pub description: String,
    /// JSON Schema of the arguments, shared with the run plan.
    pub input_schema: Arc<Value>,
}

/// A tool call that a model requests.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ToolCall {
    /// The identifier that the model gave to this call; the tool message with the result refers to it.
    pub id: String,
    /// The name of the called tool.
    pub name: String,
    /// The arguments in the model's own text, which may be invalid JSON.
    pub arguments: String,
}

/// A model request, independent of the route.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Conversation {
    /// The system instructions.
    pub system_prompt: String,
    /// The messages.
    pub messages: Vec<Message>,
    /// The available tools.
    pub tools: Vec<ToolDefinition>,
    /// The sampling temperature, 0 to 2.
    pub temperature: Option<f64>,
    /// The maximum number of output tokens.
    pub max_tokens: Option<u32>,
}

/// The target of a route: a model of a provider, called through an account.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouteTarget {
    /// The identifier of the route in its model policy.
    pub route_id: String,
    /// The name of the provider in the route.
    pub provider: String,
    /// The provider's name of the model.
    pub model: String,
    /// The name of the configured provider account.
    pub account_slot: String,
}

/// A request to a provider.
#[derive(Clone, PartialEq, Debug)]
pub struct ProviderCall {
    /// The model, provider and account to call.
    pub route: RouteTarget,
    /// The model request to send.
    pub conversation: Arc<Conversation>,
}

/// The completion that a provider returned.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Completion {
    /// The generated text.
    pub text: String,
    /// The tool calls that the model requests.
    pub tool_calls: Vec<ToolCall>,
    /// The embedding vector, if one was requested.
    pub vector: Vec<f32>,
    /// Input tokens, as the provider reports them.
    pub tokens_in: u64,
    /// Output tokens, as the provider reports them.
    pub tokens_out: u64,
    /// The cost in millionths of the account's currency; `None` if no prices are configured for the account.
    pub cost_micros: Option<u64>,
    /// Further metadata for the run's output.
    pub metadata: Map<String, Value>,
}

/// A request to embed texts.
#[derive(Clone, PartialEq, Debug)]
pub struct EmbeddingCall {
    /// The model, provider and account to call.
    pub route: RouteTarget,
    /// The texts to embed.
    pub texts: Vec<String>,
}

/// The embedding vectors: one for each text, in the order of the texts, all of the same length.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Embeddings {
    /// The vectors.
    pub vectors: Vec<Vec<f32>>,
    /// Input tokens, as the provider reports them.
    pub tokens_in: u64,
    /// The cost in millionths of the account's currency; `None` if no prices are configured for the account.
    pub cost_micros: Option<u64>,
}

/// The failure of a provider call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ProviderError {
    /// No provider account with the name of the slot is configured.
    #[error("no provider account with this name is configured")]
    UnknownAccount,
    /// The provider is unreachable, or reports that it is unavailable (409, 5xx).
    #[error("the provider is not available")]
    Unavailable,
    /// The provider reports overload (429), or the limit of the local account is reached.
    #[error("the provider is overloaded")]
    Busy,
    /// The provider did not respond in time, or reported a timeout (408).
    #[error("the provider did not answer in time")]
    TimedOut,
    /// The response is malformed or truncated.
    #[error("the provider's response could not be read")]
    Malformed,
    /// The provider rejected the account's key (401, 403).
    #[error("the provider refused the key of the account")]
    KeyRefused,
    /// The provider does not have the route's model.
    #[error("the provider does not have the model of the route")]
    UnknownModel,
    /// The provider's content rules rejected the request.
    #[error("the content rules of the provider refused the request")]
    ContentRefused,
    /// The provider rejected the request (any other 4xx).
    #[error("the provider refused the request")]
    Refused,
    /// The account's provider does not support this kind of request.
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

    /// The stable code of the failure.
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

    /// Whether another route may succeed with the same request.
    #[must_use]
    pub const fn allows_fallback(self) -> bool {
        match self {
            Self::UnknownAccount | Self::Unavailable | Self::Busy | Self::TimedOut | Self::Malformed => true,
            Self::KeyRefused | Self::UnknownModel | Self::ContentRefused | Self::Refused | Self::Unsupported => false,
        }
    }

    /// Whether the same route may succeed after a delay.
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

/// A failed call of a provider, with its cause.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProviderFailure {
    /// The kind of the failure.
    pub error: ProviderError,
    /// The delay that the provider requests before a retry.
    pub retry_after: Option<Duration>,
    /// The HTTP status of the provider's response, if the call failed with one.
    pub status: Option<u16>,
    /// The stable code of the cause for operators: a failed request, or an API key that could not be read.
    pub cause: Option<&'static str>,
}

impl ProviderFailure {
    /// A failure with the code of its cause.
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

/// Receives model output while it streams.
pub trait DeltaListener: Send + Sync {
    /// Receives the next delta. A delivered delta is not retracted if the call fails later.
    fn on_delta(&self, part: &str);
}

/// The port through which model providers are called.
#[async_trait]
pub trait Provider: Send + Sync {
    /// Sends one request. The listener receives deltas if the provider streams; the completion contains the whole
    /// output.
    async fn complete(
        &self,
        call: &ProviderCall,
        listener: Option<&dyn DeltaListener>,
    ) -> Result<Completion, ProviderFailure>;

    /// Embeds texts: returns one vector for each text.
    async fn embed(&self, call: &EmbeddingCall) -> Result<Embeddings, ProviderFailure>;

    /// The configured jurisdiction of the account's data, if any.
    fn residency(&self, account_slot: &str) -> Option<&str>;

    /// Whether an account is configured under this name.
    fn has_account(&self, _account_slot: &str) -> bool {
        true
    }

    /// Whether this process itself generates the answers of the account, without a model.
    fn is_local(&self, _account_slot: &str) -> bool {
        false
    }
}
