//! The server-sent events of a streamed response.

use crate::failure;
use fairway_domain::execution::provider::{ProviderError, ProviderFailure};
use fairway_egress::{Body, EgressError};
use futures_util::{Stream, StreamExt as _};
use sse_stream::{Error as SseError, Sse, SseStream};
use std::{error::Error, pin::Pin};

/// The events of a response, in order of arrival.
pub(crate) struct EventStream(Pin<Box<dyn Stream<Item = Result<Sse, SseError>> + Send>>);

impl EventStream {
    pub(crate) fn of(body: Body) -> Self {
        Self(Box::pin(SseStream::from_bytes_stream(body)))
    }

    /// The data of the next event that contains data; `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Result<Option<String>, ProviderFailure> {
        while let Some(event) = self.0.next().await {
            let event = event.map_err(|sse_error| stream_error(&sse_error))?;
            if let Some(data) = event.data.filter(|data| !data.is_empty()) {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }
}

/// Classifies a stream failure. If the connection failed, its error is in the chain of causes.
fn stream_error(sse_error: &SseError) -> ProviderError {
    let mut cause: Option<&(dyn Error + 'static)> = Some(sse_error);
    while let Some(error) = cause {
        if let Some(egress_error) = error.downcast_ref::<EgressError>() {
            return failure::of_reading(*egress_error);
        }
        cause = error.source();
    }
    ProviderError::Malformed
}
