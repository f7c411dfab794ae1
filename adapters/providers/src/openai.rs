//! Client of OpenAI's API: `/chat/completions` and `/embeddings` below a base address such as
//! `https://api.openai.com/v1`.

mod request;
mod response;

use crate::account_connection::{AccountConnection, CallTarget, StreamResponse, parse_document};
use async_trait::async_trait;
use fairway_domain::execution::provider::{
    Completion, DeltaListener, EmbeddingCall, Embeddings, Provider, ProviderCall, ProviderError, ProviderFailure,
};
use fairway_egress::{
    Url,
    header::{AUTHORIZATION, HeaderMap},
};
use request::{ChatRequest, EmbeddingRequest, TokenLimitName};
use response::{ChatResponse, Chunk, EmbeddingResponse, StreamedResponse};

/// Maximum number of texts in one embedding request. With the longest common vectors, the response stays below its
/// size limit.
const MAX_TEXTS: usize = 64;
/// The data of the last event of a stream.
const DONE: &str = "[DONE]";
/// The host that requires the newer member name of the token limit.
const OPENAI_HOST: &str = "api.openai.com";

/// A client of an endpoint with OpenAI's API.
#[derive(Debug)]
pub struct OpenAi {
    connection: AccountConnection,
    limit: TokenLimitName,
}

impl OpenAi {
    /// Creates a client over a connection to the base address.
    #[must_use]
    pub fn new(connection: AccountConnection, base_url: &Url) -> Self {
        // OpenAI's newer models refuse `max_tokens`, and older servers of other vendors refuse
        // `max_completion_tokens`.
        let limit = if base_url.host_str() == Some(OPENAI_HOST) {
            TokenLimitName::MaxCompletionTokens
        } else {
            TokenLimitName::MaxTokens
        };
        Self { connection, limit }
    }

    async fn key_header(&self) -> Result<HeaderMap, ProviderFailure> {
        self.connection.key_header(AUTHORIZATION, "Bearer ").await
    }
}

#[async_trait]
impl Provider for OpenAi {
    async fn complete(
        &self,
        call: &ProviderCall,
        listener: Option<&dyn DeltaListener>,
    ) -> Result<Completion, ProviderFailure> {
        let target = CallTarget { path: "chat/completions", model: &call.route.model };
        let headers = self.key_header().await?;
        let request = ChatRequest::of(call, self.limit, listener.is_some());
        let Some(listener) = listener else {
            let reply: ChatResponse = self.connection.request_document(target, &request, headers).await?;
            return reply.completion(&call.route.provider);
        };
        let mut events = match self.connection.request_stream(target, &request, headers).await? {
            StreamResponse::Events(events) => events,
            StreamResponse::Document(document) => {
                let completion = parse_document::<ChatResponse>(document).await?.completion(&call.route.provider)?;
                listener.on_delta(&completion.text);
                return Ok(completion);
            }
        };
        let mut response = StreamedResponse::default();
        while let Some(data) = events.next().await? {
            if data.trim() == DONE {
                response.finish();
                break;
            }
            let chunk: Chunk = serde_json::from_str(&data).map_err(|_| ProviderError::Malformed)?;
            if let Some(part) = response.apply(chunk)? {
                listener.on_delta(&part);
            }
        }
        response.completion(&call.route.provider)
    }

    async fn embed(&self, call: &EmbeddingCall) -> Result<Embeddings, ProviderFailure> {
        let target = CallTarget { path: "embeddings", model: &call.route.model };
        let mut embeddings = Embeddings::default();
        for texts in call.texts.chunks(MAX_TEXTS) {
            let request = EmbeddingRequest::of(&call.route.model, texts);
            let vectors: EmbeddingResponse =
                self.connection.request_document(target, &request, self.key_header().await?).await?;
            vectors.add_to(&mut embeddings, texts.len())?;
        }
        Ok(embeddings)
    }

    fn residency(&self, _account_slot: &str) -> Option<&str> {
        None
    }
}
