//! Model providers, as the engine sees them.

use async_trait::async_trait;
use serde_json::{Map, Value};

/// One message of a conversation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// Who speaks.
    pub role: MessageRole,
    /// What is said.
    pub content: String,
}

/// Who speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessageRole {
    /// The person, or the program that stands in for one.
    User,
    /// The model.
    Assistant,
}

impl MessageRole {
    /// The spelling in messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
        }
    }
}

/// One request to a provider.
#[derive(Clone, Debug)]
pub struct ProviderCall {
    /// The configured endpoint to ask.
    pub account_slot: String,
    /// The provider's name, as the route says.
    pub provider: String,
    /// The model's name.
    pub model: String,
    /// The instructions.
    pub system_prompt: String,
    /// The conversation.
    pub messages: Vec<Message>,
    /// 0 to 2.
    pub temperature: Option<f64>,
    /// Most tokens to answer with.
    pub max_tokens: Option<u32>,
}

/// A provider's answer.
#[derive(Clone, PartialEq, Debug)]
pub struct Completion {
    /// What it says.
    pub text: String,
    /// Tokens read, as the provider counts them.
    pub tokens_in: u64,
    /// Tokens written, as the provider counts them.
    pub tokens_out: u64,
    /// What else it tells, for the output's metadata.
    pub metadata: Map<String, Value>,
}

/// Why a provider gave no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ProviderError {
    /// No endpoint of that slot is configured.
    #[error("no provider account of that name is configured")]
    UnknownAccount,
    /// It could not be reached, or asked to be left alone for a while.
    #[error("the provider is not available")]
    Unavailable,
    /// It refused the request.
    #[error("the provider refused the request")]
    Refused,
}

impl ProviderError {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::UnknownAccount, Self::Unavailable, Self::Refused];

    /// The stable code of the failure.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::UnknownAccount => "provider_unknown_account",
            Self::Unavailable => "provider_unavailable",
            Self::Refused => "provider_refused",
        }
    }
}

/// Asks models.
#[async_trait]
pub trait Provider: Send + Sync {
    /// Asks once.
    async fn complete(&self, call: &ProviderCall) -> Result<Completion, ProviderError>;
}
