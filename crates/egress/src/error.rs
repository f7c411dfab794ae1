//! Reasons why a request has no complete response: a refusal, or a failure of the request that was sent.

use crate::refusal::EgressRefusal;
use std::{error::Error, io};

/// Reason why a request has no complete response. No variant contains an address, a header or a byte of the response.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EgressError {
    /// The request was refused.
    #[error("the request is refused: {0}")]
    Refused(#[from] EgressRefusal),
    /// The name did not resolve.
    #[error("the name cannot be resolved")]
    Unresolved,
    /// The connection failed.
    #[error("the connection failed")]
    Unreachable,
    /// TLS could not be established: the certificate is not trusted, or the server does not use TLS.
    #[error("TLS could not be established")]
    Tls,
    /// The request timed out.
    #[error("no response arrived in time")]
    TimedOut,
    /// The response is a redirect, which is never followed.
    #[error("the response is a redirect")]
    Redirected,
    /// The response exceeds its size limit.
    #[error("the response is too long")]
    TooLong,
    /// The response has a content coding that the request did not accept.
    #[error("the response has an unaccepted content coding")]
    Encoded,
    /// The connection broke, or the response is not HTTP.
    #[error("the response is incomplete")]
    Incomplete,
}

impl EgressError {
    /// The stable code of the failure.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Refused(refusal) => refusal.code(),
            Self::Unresolved => "egress_unresolved",
            Self::Unreachable => "egress_unreachable",
            Self::Tls => "egress_tls",
            Self::TimedOut => "egress_timeout",
            Self::Redirected => "egress_redirected",
            Self::TooLong => "egress_too_long",
            Self::Encoded => "egress_encoded",
            Self::Incomplete => "egress_broken",
        }
    }

    /// Classifies a failure of the HTTP client. The resolver's error is among its causes.
    pub(crate) fn of(failure: &reqwest::Error) -> Self {
        let mut cause: Option<&(dyn Error + 'static)> = Some(failure);
        while let Some(error) = cause {
            if let Some(egress_error) = error.downcast_ref::<Self>() {
                return *egress_error;
            }
            // Only a TLS failure during connection proves that the server did not receive the request. A later TLS
            // failure leaves the outcome unknown.
            if failure.is_connect() && is_tls_error(error) {
                return Self::Tls;
            }
            cause = error.source();
        }
        if failure.is_timeout() {
            Self::TimedOut
        } else if failure.is_connect() {
            Self::Unreachable
        } else {
            Self::Incomplete
        }
    }
}

/// Whether an error, or the error that it wraps, is a TLS error. `io::Error` omits the wrapped error from `source()`,
/// so this function unwraps it.
fn is_tls_error(error: &(dyn Error + 'static)) -> bool {
    let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    error.is::<rustls::Error>() || wrapped.is_some_and(|wrapped| is_tls_error(wrapped))
}
