//! Providers with OpenAI's API: `/chat/completions` and `/embeddings` below a base address such as
//! `https://api.openai.com/v1`.

mod question;
mod said;

use crate::connection::{Connection, Told, read};
use async_trait::async_trait;
use fairway_domain::execution::provider::{
    Completion, EmbeddingCall, Embeddings, DeltaListener, Provider, ProviderCall, ProviderError, ProviderFailure,
};
use fairway_egress::{
    Url,
    header::{AUTHORIZATION, HeaderMap},
};
use question::{Limit, Question, Texts};
use said::{Chunk, Reply, StreamedResponse, Vectors};

/// Maximum number of texts in one request: with the longest common vectors, the response stays within its size
/// limit.
const MAX_TEXTS: usize = 64;
/// The last event of a stream.
const DONE: &str = "[DONE]";
/// The host that requires the newer name of the token limit.
const OPENAI_HOST: &str = "api.openai.com";

/// A client of an endpoint with OpenAI's API.
#[derive(Debug)]
pub struct OpenAi {
    connection: Connection,
    limit: Limit,
}

impl OpenAi {
    /// A client over a connection to the base address.
    #[must_use]
    pub fn new(connection: Connection, base_url: &Url) -> Self {
        // OpenAI's newer models refuse the old name, and older servers of other vendors do not know the new one.
        let limit = if base_url.host_str() == Some(OPENAI_HOST) { Limit::MaxCompletionTokens } else { Limit::MaxTokens };
        Self { connection, limit }
    }

    async fn key(&self) -> Result<HeaderMap, ProviderFailure> {
        self.connection.key(AUTHORIZATION, "Bearer ").await
    }
}

#[async_trait]
impl Provider for OpenAi {
    async fn complete(
        &self,
        call: &ProviderCall,
        listener: Option<&dyn DeltaListener>,
    ) -> Result<Completion, ProviderFailure> {
        const PATH: &str = "chat/completions";
        let headers = self.key().await?;
        let question = Question::of(call, self.limit, listener.is_some());
        let Some(listener) = listener else {
            let reply: Reply = self.connection.document(PATH, &question, headers).await?;
            return reply.completion(&call.route.provider);
        };
        let mut events = match self.connection.stream(PATH, &question, headers).await? {
            Told::Bit(events) => events,
            Told::Whole(answer) => {
                let completion = read::<Reply>(answer).await?.completion(&call.route.provider)?;
                listener.said(&completion.text);
                return Ok(completion);
            }
        };
        let mut saying = StreamedResponse::default();
        while let Some(data) = events.next().await? {
            if data.trim() == DONE {
                saying.done();
                break;
            }
            let chunk: Chunk = serde_json::from_str(&data).map_err(|_| ProviderError::Malformed)?;
            if let Some(part) = saying.hear(chunk)? {
                listener.said(&part);
            }
        }
        saying.completion(&call.route.provider)
    }

    async fn embed(&self, call: &EmbeddingCall) -> Result<Embeddings, ProviderFailure> {
        let mut embeddings = Embeddings::default();
        for texts in call.texts.chunks(MAX_TEXTS) {
            let question = Texts::of(&call.route.model, texts);
            let vectors: Vectors = self.connection.document("embeddings", &question, self.key().await?).await?;
            vectors.add_to(&mut embeddings, texts.len())?;
        }
        Ok(embeddings)
    }

    fn residency(&self, _account_slot: &str) -> Option<&str> {
        None
    }
}
