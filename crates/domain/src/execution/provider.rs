//! Model providers, as the engine sees them.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{sync::Arc, time::Duration};

/// One message of a conversation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// Who speaks.
    pub role: MessageRole,
    /// What is said.
    pub content: String,
    /// The tools that the model wants to be called, beside what it says.
    pub tool_calls: Vec<ToolCall>,
    /// The call that this is the result of, in the message of a tool.
    pub answers: Option<String>,
}

impl Message {
    /// Words of a person or a model.
    #[must_use]
    pub const fn of(role: MessageRole, content: String) -> Self {
        Self { role, content, tool_calls: Vec::new(), answers: None }
    }
}

/// Who speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessageRole {
    /// The person, or the program that stands in for one.
    User,
    /// The model.
    Assistant,
    /// A tool that the model called.
    Tool,
}

impl MessageRole {
    /// The spelling in messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }
}

/// A tool that a model may call.
#[derive(Clone, PartialEq, Debug)]
pub struct ToolOffer {
    /// Its name.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// JSON Schema of its arguments. Each question of an agent shares it with the run plan.
    pub input_schema: Arc<Value>,
}

/// A tool that a model wants to be called.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ToolCall {
    /// What the model calls this call; its result names it.
    pub id: String,
    /// The tool.
    pub name: String,
    /// The arguments, as the model wrote them: text that may be no JSON.
    pub arguments: String,
}

/// What a model is asked with, by whatever route.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Conversation {
    /// The instructions.
    pub system_prompt: String,
    /// The conversation.
    pub messages: Vec<Message>,
    /// The tools that it may call.
    pub tools: Vec<ToolOffer>,
    /// 0 to 2.
    pub temperature: Option<f64>,
    /// Most tokens to answer with.
    pub max_tokens: Option<u32>,
}

/// One way to a model: what a route says to whoever calls it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RoutePoint {
    /// The route's name in its policy.
    pub route_id: String,
    /// The provider's name, as the route says.
    pub provider: String,
    /// The model's name.
    pub model: String,
    /// The configured endpoint to ask.
    pub account_slot: String,
}

/// One request to a provider.
#[derive(Clone, PartialEq, Debug)]
pub struct ProviderCall {
    /// By which route.
    pub route: RoutePoint,
    /// What is asked.
    pub conversation: Arc<Conversation>,
}

/// A provider's answer.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Completion {
    /// What it says.
    pub text: String,
    /// The tools that it wants to be called first.
    pub tool_calls: Vec<ToolCall>,
    /// The vector of the text that one was asked for.
    pub vector: Vec<f32>,
    /// Tokens read, as the provider counts them.
    pub tokens_in: u64,
    /// Tokens written, as the provider counts them.
    pub tokens_out: u64,
    /// What the account's prices make of that, in millionths of its currency; `None` where it has none.
    pub cost_micros: Option<u64>,
    /// What else it tells, for the output's metadata.
    pub metadata: Map<String, Value>,
}

/// Texts that are to become vectors.
#[derive(Clone, PartialEq, Debug)]
pub struct EmbeddingCall {
    /// By which route.
    pub route: RoutePoint,
    /// The texts.
    pub texts: Vec<String>,
}

/// The vectors of texts, one for each, in their order and all of one length.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Embeddings {
    /// The vectors.
    pub vectors: Vec<Vec<f32>>,
    /// Tokens read, as the provider counts them.
    pub tokens_in: u64,
    /// What the account's prices make of that.
    pub cost_micros: Option<u64>,
}

/// Why a provider gave no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ProviderError {
    /// No endpoint of that slot is configured.
    #[error("no provider account of that name is configured")]
    UnknownAccount,
    /// It could not be reached, or said that it cannot serve now (409, 5xx).
    #[error("the provider is not available")]
    Unavailable,
    /// It has too much to do (429), or its account here has.
    #[error("the provider has too much to do")]
    Busy,
    /// It did not answer in time, or said so (408).
    #[error("the provider did not answer in time")]
    TimedOut,
    /// What it said is no answer, or broke off.
    #[error("the provider's answer cannot be read")]
    Malformed,
    /// It refused the request (any other 4xx).
    #[error("the provider refused the request")]
    Refused,
    /// It cannot do what is asked of it: its account has no model for this.
    #[error("the provider cannot do this")]
    Unsupported,
}

impl ProviderError {
    /// Every one.
    pub const ALL: [Self; 7] = [
        Self::UnknownAccount,
        Self::Unavailable,
        Self::Busy,
        Self::TimedOut,
        Self::Malformed,
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
            Self::Refused => "provider_refused",
            Self::Unsupported => "provider_unsupported",
        }
    }

    /// Whether the same question may be answered by another route.
    #[must_use]
    pub const fn lets_others_try(self) -> bool {
        match self {
            Self::UnknownAccount | Self::Unavailable | Self::Busy | Self::TimedOut | Self::Malformed => true,
            Self::Refused | Self::Unsupported => false,
        }
    }

    /// Whether the same route may answer a moment later.
    #[must_use]
    pub const fn passes(self) -> bool {
        match self {
            Self::Unavailable | Self::Busy | Self::TimedOut | Self::Malformed => true,
            Self::UnknownAccount | Self::Refused | Self::Unsupported => false,
        }
    }
}

/// A call that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProviderFailure {
    /// Why.
    pub error: ProviderError,
    /// How long the provider asked to be left alone.
    pub retry_after: Option<Duration>,
}

impl From<ProviderError> for ProviderFailure {
    fn from(error: ProviderError) -> Self {
        Self { error, retry_after: None }
    }
}

/// Hears what a model says while it says it.
pub trait Listener: Send + Sync {
    /// The next part of the answer. What was said until then stays said, also when the call fails.
    fn said(&self, part: &str);
}

/// Asks models.
#[async_trait]
pub trait Provider: Send + Sync {
    /// Asks once. Whoever listens hears the answer while it comes, where the provider tells it so; the completion holds all
    /// of it.
    async fn complete(
        &self,
        call: &ProviderCall,
        listener: Option<&dyn Listener>,
    ) -> Result<Completion, ProviderFailure>;

    /// Turns texts into vectors.
    async fn embed(&self, call: &EmbeddingCall) -> Result<Embeddings, ProviderFailure>;

    /// Where the endpoint of a slot keeps what it is sent, if that is configured.
    fn residency(&self, account_slot: &str) -> Option<&str>;

    /// Whether an endpoint is configured for a slot.
    fn has_account(&self, _account_slot: &str) -> bool {
        true
    }
}
