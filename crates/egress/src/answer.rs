//! What came back.

use crate::refusal::EgressError;
use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt as _, stream};
use reqwest::{
    Response, StatusCode,
    header::{CONTENT_ENCODING, HeaderMap},
};
use std::{fmt, future::ready, pin::Pin};

/// The one encoding that is asked for: none.
pub(crate) const PLAIN: &str = "identity";

/// The head of an answer, and a body that is still to come.
pub struct Answer {
    response: Response,
    most: usize,
}

impl fmt::Debug for Answer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Answer").field("status", &self.status()).finish_non_exhaustive()
    }
}

/// The bytes of an answer as they come. It ends with the first failure.
pub type Body = Pin<Box<dyn Stream<Item = Result<Bytes, EgressError>> + Send>>;

impl Answer {
    pub(crate) const fn new(response: Response, most: usize) -> Self {
        Self { response, most }
    }

    /// How the request went, as the other side says.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.response.status()
    }

    /// The headers.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// The body while it comes, up to its bound and within the time of the request. One that is encoded is not read.
    #[must_use]
    pub fn body(self) -> Body {
        if !self.is_plain() {
            return Box::pin(stream::once(ready(Err(EgressError::Encoded))));
        }
        let bytes = self.response.bytes_stream();
        Box::pin(stream::unfold(Some((bytes, self.most)), |state| async move {
            let (mut bytes, left) = state?;
            match bytes.next().await? {
                Ok(part) => match left.checked_sub(part.len()) {
                    Some(left) => Some((Ok(part), Some((bytes, left)))),
                    None => Some((Err(EgressError::TooLong), None)),
                },
                Err(failure) => Some((Err(EgressError::of(&failure)), None)),
            }
        }))
    }

    /// Whether the bytes are what they are, and not to be unpacked first. A header that names nothing says so too.
    fn is_plain(&self) -> bool {
        let mut codings = self.headers().get_all(CONTENT_ENCODING).iter();
        codings.all(|coding| {
            let coding = coding.as_bytes().trim_ascii();
            coding.is_empty() || coding.eq_ignore_ascii_case(PLAIN.as_bytes())
        })
    }

    /// All of the body.
    ///
    /// # Errors
    /// When it is too long, too slow, encoded, or breaks off.
    pub async fn whole(self) -> Result<Bytes, EgressError> {
        let mut body = self.body();
        let mut whole = BytesMut::new();
        while let Some(part) = body.next().await {
            whole.extend_from_slice(&part?);
        }
        Ok(whole.freeze())
    }
}
