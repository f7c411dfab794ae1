//! Providers that speak Anthropic's protocol: `/v1/messages` below a base address such as `https://api.anthropic.com`.

mod question;
mod said;

use crate::connection::{Connection, Told, read};
use async_trait::async_trait;
use fairway_domain::execution::provider::{
    Completion, EmbeddingCall, Embeddings, Listener, Provider, ProviderCall, ProviderError, ProviderFailure,
};
use fairway_egress::{
    Url,
    header::{HeaderMap, HeaderName, HeaderValue},
};
use question::Question;
use said::{Event, Reply, Saying};

/// Carries the key.
const KEY: HeaderName = HeaderName::from_static("x-api-key");
/// Says which version of the protocol is spoken.
const VERSION: (HeaderName, HeaderValue) =
    (HeaderName::from_static("anthropic-version"), HeaderValue::from_static("2023-06-01"));

/// Asks an endpoint that speaks Anthropic's protocol.
#[derive(Debug)]
pub struct Anthropic {
    connection: Connection,
    path: &'static str,
}

impl Anthropic {
    /// Asks over this connection, which leads to the base address, with or without the protocol's `/v1` at its end.
    #[must_use]
    pub fn new(connection: Connection, base_url: &Url) -> Self {
        let is_below = base_url.path().trim_end_matches('/').ends_with("/v1");
        Self { connection, path: if is_below { "messages" } else { "v1/messages" } }
    }

    async fn headers(&self) -> Result<HeaderMap, ProviderFailure> {
        let mut headers = self.connection.key(KEY, "").await?;
        headers.extend([VERSION]);
        Ok(headers)
    }
}

#[async_trait]
impl Provider for Anthropic {
    async fn complete(
        &self,
        call: &ProviderCall,
        listener: Option<&dyn Listener>,
    ) -> Result<Completion, ProviderFailure> {
        let headers = self.headers().await?;
        let question = Question::of(call, listener.is_some());
        let Some(listener) = listener else {
            let reply: Reply = self.connection.document(self.path, &question, headers).await?;
            return Ok(reply.completion(&call.route.provider));
        };
        let mut events = match self.connection.stream(self.path, &question, headers).await? {
            Told::Bit(events) => events,
            Told::Whole(answer) => {
                let completion = read::<Reply>(answer).await?.completion(&call.route.provider);
                listener.said(&completion.text);
                return Ok(completion);
            }
        };
        let mut saying = Saying::default();
        while let Some(data) = events.next().await? {
            let event: Event = serde_json::from_str(&data).map_err(|_| ProviderError::Malformed)?;
            if let Some(part) = saying.hear(event)? {
                listener.said(&part);
            }
            if saying.is_done() {
                break;
            }
        }
        saying.completion(&call.route.provider)
    }

    /// This protocol has no vectors.
    async fn embed(&self, _call: &EmbeddingCall) -> Result<Embeddings, ProviderFailure> {
        Err(ProviderError::Unsupported.into())
    }

    fn residency(&self, _account_slot: &str) -> Option<&str> {
        None
    }
}
