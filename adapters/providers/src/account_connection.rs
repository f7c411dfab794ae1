//! The connection to an account's endpoint: its address, its API key and the handling of responses.

use crate::{failure, sse_stream::EventStream};
use fairway_domain::{
    execution::provider::{ProviderError, ProviderFailure},
    secret::{SecretError, SecretReader, ServerSecretRef},
};
use fairway_egress::{
    EgressError, EgressRequest, EgressResponse, EndpointClient, Guard, Method, ResponseLimits, Url,
    header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
};
use futures_util::StreamExt as _;
use serde::{Serialize, de::DeserializeOwned};
use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};
use tokio::time::timeout;

/// Maximum size of a response, in bytes. A longer response fails the call.
const MAX_RESPONSE_BYTES: usize = 8 * 1024 * 1024;
/// Maximum number of bytes that are read from the body of an error response.
const MAX_ERROR_BYTES: usize = 64 * 1024;
/// Maximum time for reading the body of an error response.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(2);
/// The content type of server-sent events.
const EVENT_STREAM: &str = "text/event-stream";

/// Pooled connections to an endpoint, with the credentials of an account.
pub struct AccountConnection {
    /// The account slot, for the log.
    account: String,
    endpoint: EndpointClient,
    key: Option<(Arc<dyn SecretReader>, ServerSecretRef)>,
}

impl fmt::Debug for AccountConnection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("AccountConnection")
    }
}

/// The path of a request, and the model that the request names.
#[derive(Clone, Copy)]
pub(crate) struct CallTarget<'a> {
    /// The path below the base address.
    pub(crate) path: &'a str,
    /// The model that the request names.
    pub(crate) model: &'a str,
}

/// The response to a streaming request.
pub(crate) enum StreamResponse {
    /// Server-sent events.
    Events(EventStream),
    /// A complete JSON document.
    Document(EgressResponse),
}

impl AccountConnection {
    /// Creates the connection of the account in this slot. The operator configured the address, so the guard allows
    /// its exact origin.
    ///
    /// # Errors
    /// When the address is invalid.
    pub fn new(
        account: &str,
        guard: &Guard,
        base_url: &Url,
        call_timeout: Duration,
        key: Option<(Arc<dyn SecretReader>, ServerSecretRef)>,
    ) -> Result<Self, EgressError> {
        let guard = guard.clone().with_allowed_origin(base_url);
        Ok(Self {
            account: account.to_owned(),
            endpoint: guard
                .endpoint(base_url.as_str(), ResponseLimits { timeout: call_timeout, max_body: MAX_RESPONSE_BYTES })?,
            key,
        })
    }

    /// The header with the API key. The key is read for each call, so that a changed key takes effect immediately.
    pub(crate) async fn key_header(&self, name: HeaderName, prefix: &str) -> Result<HeaderMap, ProviderFailure> {
        let Some((secrets, reference)) = &self.key else { return Ok(HeaderMap::new()) };
        let secret = secrets.read_server_secret(reference).await.map_err(|error| {
            tracing::warn!(
                account = self.account.as_str(),
                code = error.code(),
                "failed to read the key of a provider account; failing the call"
            );
            ProviderFailure::caused_by(ProviderError::Unavailable, error.code())
        })?;
        let Ok(mut value) = HeaderValue::from_str(&format!("{prefix}{}", secret.expose())) else {
            tracing::warn!(
                account = self.account.as_str(),
                "the key of a provider account contains characters that a header cannot contain; failing the call"
            );
            return Err(ProviderFailure::caused_by(ProviderError::Unavailable, SecretError::Malformed.code()));
        };
        value.set_sensitive(true);
        Ok(HeaderMap::from_iter([(name, value)]))
    }

    /// Sends a request. Returns its response if the status is a success.
    async fn send(
        &self,
        CallTarget { path, model }: CallTarget<'_>,
        body: &impl Serialize,
        mut headers: HeaderMap,
        accept: &'static str,
    ) -> Result<EgressResponse, ProviderFailure> {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        // Serialization cannot fail for these types, so the error is never returned.
        let body = serde_json::to_vec(body).map_err(|_| ProviderError::Refused)?;
        let call = EgressRequest { method: Method::POST, path: path.to_owned(), headers, body: body.into() };
        let response = self.endpoint.send(call).await.map_err(|error| {
            tracing::warn!(
                account = self.account.as_str(),
                model,
                code = error.code(),
                "failed to send a request to a model provider; a run may repeat the call or try its next route, other \
                 operations report the failure"
            );
            ProviderFailure::caused_by(failure::of_sending(error), error.code())
        })?;
        if response.status().is_success() {
            return Ok(response);
        }
        // The log contains the status only, because the body may repeat the request or the key.
        let (status, headers) = (response.status(), response.headers().clone());
        tracing::warn!(
            account = self.account.as_str(),
            model,
            status = status.as_u16(),
            "a model provider returned an error status; a run may repeat the call or try its next route, other \
             operations report the failure"
        );
        let body = if failure::depends_on_body(status) { read_error_body(response).await } else { Vec::new() };
        Err(failure::with_status_and_retry_delay(
            failure::of_response(status, &body, model),
            status,
            &headers,
            SystemTime::now(),
        ))
    }

    /// Sends a request and parses the response as a JSON document.
    pub(crate) async fn request_document<T: DeserializeOwned>(
        &self,
        target: CallTarget<'_>,
        body: &impl Serialize,
        headers: HeaderMap,
    ) -> Result<T, ProviderFailure> {
        parse_document(self.send(target, body, headers, "application/json").await?).await
    }

    /// Sends a request for an event stream. A server without streaming returns a JSON document instead.
    pub(crate) async fn request_stream(
        &self,
        target: CallTarget<'_>,
        body: &impl Serialize,
        headers: HeaderMap,
    ) -> Result<StreamResponse, ProviderFailure> {
        let response = self.send(target, body, headers, EVENT_STREAM).await?;
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(EVENT_STREAM) {
            Ok(StreamResponse::Events(EventStream::of(response.body())))
        } else {
            Ok(StreamResponse::Document(response))
        }
    }
}

/// Reads the start of an error response's body, as far as it arrives in time. The body only refines the error.
async fn read_error_body(response: EgressResponse) -> Vec<u8> {
    let (mut parts, mut body) = (response.body(), Vec::new());
    let read_parts = async {
        while let Some(Ok(part)) = parts.next().await {
            let remaining_bytes = MAX_ERROR_BYTES.saturating_sub(body.len());
            body.extend_from_slice(part.get(..remaining_bytes).unwrap_or(&part));
            if part.len() >= remaining_bytes {
                break;
            }
        }
    };
    // A timeout is ignored: a partial body is not a JSON document, so it does not refine the error.
    let _ = timeout(ERROR_BODY_TIMEOUT, read_parts).await;
    body
}

pub(crate) async fn parse_document<T: DeserializeOwned>(response: EgressResponse) -> Result<T, ProviderFailure> {
    let body = response.read_all().await.map_err(failure::of_reading)?;
    Ok(serde_json::from_slice(&body).map_err(|_| ProviderError::Malformed)?)
}
