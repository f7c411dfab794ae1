//! Client of Anthropic's API: `/v1/messages` below a base address such as `https://api.anthropic.com`.

mod request;
mod response;

use crate::account_connection::{AccountConnection, CallTarget, StreamResponse, parse_document};
use async_trait::async_trait;
use fairway_domain::execution::provider::{
    Completion, DeltaListener, EmbeddingCall, Embeddings, Provider, ProviderCall, ProviderError, ProviderFailure,
};
use fairway_egress::{
    Url,
    header::{HeaderMap, HeaderName, HeaderValue},
};
use request::Request;
use response::{Event, MessageResponse, StreamedResponse};

/// The header with the API key.
const KEY: HeaderName = HeaderName::from_static("x-api-key");
/// The header with the API version.
const VERSION: (HeaderName, HeaderValue) =
    (HeaderName::from_static("anthropic-version"), HeaderValue::from_static("2023-06-01"));

/// A client of an endpoint with Anthropic's API.
#[derive(Debug)]
pub struct Anthropic {
    connection: AccountConnection,
    path: &'static str,
}

impl Anthropic {
    /// Creates a client over a connection to the base address, which may already end in the API's `/v1`.
    #[must_use]
    pub fn new(connection: AccountConnection, base_url: &Url) -> Self {
        let has_version = base_url.path().trim_end_matches('/').ends_with("/v1");
        Self { connection, path: if has_version { "messages" } else { "v1/messages" } }
    }

    async fn headers(&self) -> Result<HeaderMap, ProviderFailure> {
        let mut headers = self.connection.key_header(KEY, "").await?;
        headers.extend([VERSION]);
        Ok(headers)
    }
}

#[async_trait]
impl Provider for Anthropic {
    async fn complete(
        &self,
        call: &ProviderCall,
        listener: Option<&dyn DeltaListener>,
    ) -> Result<Completion, ProviderFailure> {
        let headers = self.headers().await?;
        let target = CallTarget { path: self.path, model: &call.route.model };
        let request = Request::of(call, listener.is_some());
        let Some(listener) = listener else {
            let reply: MessageResponse = self.connection.request_document(target, &request, headers).await?;
            return Ok(reply.completion(&call.route.provider));
        };
        let mut events = match self.connection.request_stream(target, &request, headers).await? {
            StreamResponse::Events(events) => events,
            StreamResponse::Document(document) => {
                let completion = parse_document::<MessageResponse>(document).await?.completion(&call.route.provider);
                listener.on_delta(&completion.text);
                return Ok(completion);
            }
        };
        let mut response = StreamedResponse::default();
        while let Some(data) = events.next().await? {
            let event: Event = serde_json::from_str(&data).map_err(|_| ProviderError::Malformed)?;
            if let Some(part) = response.apply(event)? {
                listener.on_delta(&part);
            }
            if response.is_done() {
                break;
            }
        }
        response.completion(&call.route.provider)
    }

    /// The API has no embeddings.
    async fn embed(&self, _call: &EmbeddingCall) -> Result<Embeddings, ProviderFailure> {
        Err(ProviderError::Unsupported.into())
    }

    fn residency(&self, _account_slot: &str) -> Option<&str> {
        None
    }
}
