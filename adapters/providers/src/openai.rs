//! Providers that speak OpenAI's protocol: `/chat/completions` and `/embeddings` below a base address such as
//! `https://api.openai.com/v1`.

mod question;
mod said;

use crate::connection::{Connection, Told, read};
use async_trait::async_trait;
use fairway_domain::execution::provider::{
    Completion, EmbeddingCall, Embeddings, Listener, Provider, ProviderCall, ProviderError, ProviderFailure,
};
use fairway_egress::{
    Url,
    header::{AUTHORIZATION, HeaderMap},
};
use question::{Limit, Question, Texts};
use said::{Chunk, Reply, Saying, Vectors};

/// Most texts in one request: with the longest vectors that are usual, their answer stays below the bound of answers.
const BATCH: usize = 64;
/// Ends a stream.
const DONE: &str = "[DONE]";
/// Where a bound on the answer has to have its newer name.
const OPENAI: &str = "api.openai.com";

/// Asks an endpoint that speaks OpenAI's protocol.
#[derive(Debug)]
pub struct OpenAi {
    connection: Connection,
    limit: Limit,
}

impl OpenAi {
    /// Asks over this connection, which leads to the base address.
    #[must_use]
    pub fn new(connection: Connection, base_url: &Url) -> Self {
        // Newer models of the one refuse the old name, and older servers of the others do not know the new one.
        let limit = if base_url.host_str() == Some(OPENAI) { Limit::MaxCompletionTokens } else { Limit::MaxTokens };
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
        listener: Option<&dyn Listener>,
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
        let mut saying = Saying::default();
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
        for texts in call.texts.chunks(BATCH) {
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
