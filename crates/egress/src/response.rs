//! Responses of endpoints.

use crate::error::EgressError;
use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt as _, stream};
use reqwest::{
    Response, StatusCode,
    header::{CONTENT_ENCODING, HeaderMap},
};
use std::{fmt, future::ready, pin::Pin};

/// The only accepted content coding, which means an unencoded body.
pub(crate) const IDENTITY_CODING: &str = "identity";

/// The head of a response; the body is still unread.
pub struct EgressResponse {
    response: Response,
    max_bytes: usize,
}

impl fmt::Debug for EgressResponse {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("EgressResponse").field("status", &self.status()).finish_non_exhaustive()
    }
}

/// The bytes of a response body as a stream, which ends after the first failure.
pub type Body = Pin<Box<dyn Stream<Item = Result<Bytes, EgressError>> + Send>>;

impl EgressResponse {
    pub(crate) const fn new(response: Response, max_bytes: usize) -> Self {
        Self { response, max_bytes }
    }

    /// The status of the response, which is never a redirect.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.response.status()
    }

    /// The headers of the response, as received.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// The body as a stream, up to its size limit and within the request's timeout. An encoded body is refused.
    #[must_use]
    pub fn body(self) -> Body {
        if !self.is_unencoded() {
            return Box::pin(stream::once(ready(Err(EgressError::Encoded))));
        }
        let bytes = self.response.bytes_stream();
        Box::pin(stream::unfold(Some((bytes, self.max_bytes)), |state| async move {
            let (mut bytes, remaining) = state?;
            match bytes.next().await? {
                Ok(part) => match remaining.checked_sub(part.len()) {
                    Some(remaining) => Some((Ok(part), Some((bytes, remaining)))),
                    None => Some((Err(EgressError::TooLong), None)),
                },
                Err(failure) => Some((Err(EgressError::of(&failure)), None)),
            }
        }))
    }

    /// Whether the body has no content coding. An empty `Content-Encoding` value counts as no coding.
    fn is_unencoded(&self) -> bool {
        let mut codings = self.headers().get_all(CONTENT_ENCODING).iter();
        codings.all(|coding| {
            let coding = coding.as_bytes().trim_ascii();
            coding.is_empty() || coding.eq_ignore_ascii_case(IDENTITY_CODING.as_bytes())
        })
    }

    /// Reads the whole body.
    ///
    /// # Errors
    /// When the body is too long, too slow, encoded, or incomplete.
    pub async fn read_all(self) -> Result<Bytes, EgressError> {
        let mut body = self.body();
        let mut bytes = BytesMut::new();
        while let Some(part) = body.next().await {
            bytes.extend_from_slice(&part?);
        }
        Ok(bytes.freeze())
    }
}
