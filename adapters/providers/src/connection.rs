//! The way to an account's endpoint: its address, its key, and how its answers are taken.

use crate::{events::Events, failure};
use fairway_domain::{
    execution::provider::{ProviderError, ProviderFailure},
    secret::{Secrets, ServerSecretRef},
};
use fairway_egress::{
    Answer, Call, EgressError, Endpoint, Guard, Limits, Method, Url,
    header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
};
use serde::{Serialize, de::DeserializeOwned};
use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

/// Most bytes of an answer. A model that writes without end is cut off here.
const LONGEST: usize = 8 * 1024 * 1024;
/// What server-sent events are called.
const EVENTS: &str = "text/event-stream";

/// Keeps an endpoint's connections, and says who asks.
pub struct Connection {
    endpoint: Endpoint,
    key: Option<(Arc<dyn Secrets>, ServerSecretRef)>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Connection")
    }
}

/// An answer in one of the forms that a question for a stream may get.
pub(crate) enum Told {
    /// While it is said.
    Bit(Events),
    /// At once.
    Whole(Answer),
}

impl Connection {
    /// The way to an address that whoever runs the server configured; exactly it is let through.
    ///
    /// # Errors
    /// When the address is none that can be asked at all.
    pub fn new(
        guard: &Guard,
        base_url: &Url,
        time: Duration,
        key: Option<(Arc<dyn Secrets>, ServerSecretRef)>,
    ) -> Result<Self, EgressError> {
        let guard = guard.clone().also_allowing(base_url);
        Ok(Self { endpoint: guard.endpoint(base_url.as_str(), Limits { time, body: LONGEST })?, key })
    }

    /// The header that carries the key. The key is read for each call, so that a new one holds at once.
    pub(crate) async fn key(&self, name: HeaderName, before: &str) -> Result<HeaderMap, ProviderFailure> {
        let Some((secrets, reference)) = &self.key else { return Ok(HeaderMap::new()) };
        let secret = secrets.read_own(reference).await.map_err(|error| {
            tracing::warn!(code = error.code(), "the key of a provider account cannot be read");
            ProviderError::Unavailable
        })?;
        let Ok(mut value) = HeaderValue::from_str(&format!("{before}{}", secret.expose())) else {
            tracing::warn!("the key of a provider account has characters that no key has");
            return Err(ProviderError::Unavailable.into());
        };
        value.set_sensitive(true);
        Ok(HeaderMap::from_iter([(name, value)]))
    }

    /// Asks, and answers with what came once the endpoint said that it went well.
    async fn ask(
        &self,
        path: &str,
        body: &impl Serialize,
        mut headers: HeaderMap,
        accept: &'static str,
    ) -> Result<Answer, ProviderFailure> {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        // Texts and numbers of ours always have a JSON form.
        let body = serde_json::to_vec(body).map_err(|_| ProviderError::Refused)?;
        let call = Call { method: Method::POST, path: path.to_owned(), headers, body: body.into() };
        let answer = self.endpoint.send(call).await.map_err(|error| {
            tracing::warn!(code = error.code(), "a provider could not be asked");
            failure::of_sending(error)
        })?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        // What it says besides may repeat what it was asked, or the key; the status is enough.
        let status = answer.status();
        tracing::warn!(status = status.as_u16(), "a provider gave no answer");
        Err(failure::with_headers(failure::of_status(status), answer.headers(), SystemTime::now()))
    }

    /// Asks for a document.
    pub(crate) async fn document<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
        headers: HeaderMap,
    ) -> Result<T, ProviderFailure> {
        read(self.ask(path, body, headers, "application/json").await?).await
    }

    /// Asks for a stream of events. Not everybody has them: a document may come instead.
    pub(crate) async fn stream(
        &self,
        path: &str,
        body: &impl Serialize,
        headers: HeaderMap,
    ) -> Result<Told, ProviderFailure> {
        let answer = self.ask(path, body, headers, EVENTS).await?;
        let kind = answer.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(EVENTS) {
            Ok(Told::Bit(Events::of(answer.body())))
        } else {
            Ok(Told::Whole(answer))
        }
    }
}

/// The document that an answer is.
pub(crate) async fn read<T: DeserializeOwned>(answer: Answer) -> Result<T, ProviderFailure> {
    let body = answer.whole().await.map_err(failure::of_reading)?;
    Ok(serde_json::from_slice(&body).map_err(|_| ProviderError::Malformed)?)
}
