//! What can be against a request that is to leave, and what can go wrong with one that left.

use std::error::Error;

/// Why a request does not leave. Nothing here repeats an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EgressRefusal {
    /// The text is no address, or one without a host.
    #[error("this is no address")]
    NoAddress,
    /// Another scheme than `https`, and no loopback address that local mode may reach.
    #[error("only https may be spoken")]
    Scheme,
    /// A name or a password stands in the address.
    #[error("an address must not hold credentials")]
    Credentials,
    /// Another port than 443 and 8443, and nobody allowed it.
    #[error("this port may not be reached")]
    Port,
    /// One of the host's addresses lies in a network that may not be reached.
    #[error("this network may not be reached")]
    Network,
    /// The name stands for more addresses than anybody needs.
    #[error("the name stands for too many addresses")]
    TooManyAddresses,
    /// The request would go elsewhere than to its endpoint.
    #[error("this is another endpoint")]
    Elsewhere,
}

impl EgressRefusal {
    /// The stable code of the refusal.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::NoAddress => "egress_no_address",
            Self::Scheme => "egress_scheme",
            Self::Credentials => "egress_credentials",
            Self::Port => "egress_port",
            Self::Network => "egress_network",
            Self::TooManyAddresses => "egress_too_many_addresses",
            Self::Elsewhere => "egress_elsewhere",
        }
    }
}

/// Why there is no answer, or not all of one. Nothing here repeats an address, a header or a byte of the answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EgressError {
    /// The request did not leave.
    #[error("the request may not leave: {0}")]
    Refused(#[from] EgressRefusal),
    /// The name has no address.
    #[error("the name cannot be resolved")]
    Unresolved,
    /// Nobody took the connection, or it could not be secured.
    #[error("there is no connection")]
    Unreachable,
    /// The time for all of it is over.
    #[error("there was no answer in time")]
    TimedOut,
    /// The answer points elsewhere; nobody follows.
    #[error("the answer points elsewhere")]
    Redirected,
    /// The answer is longer than it may be.
    #[error("the answer is too long")]
    TooLong,
    /// The answer is compressed, or encoded otherwise, which nobody asked for.
    #[error("the answer is encoded in a way that nobody asked for")]
    Encoded,
    /// The connection broke, or what came over it is no HTTP.
    #[error("the answer broke off")]
    Broken,
}

impl EgressError {
    /// The stable code of the failure.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Refused(refusal) => refusal.code(),
            Self::Unresolved => "egress_unresolved",
            Self::Unreachable => "egress_unreachable",
            Self::TimedOut => "egress_timeout",
            Self::Redirected => "egress_redirected",
            Self::TooLong => "egress_too_long",
            Self::Encoded => "egress_encoded",
            Self::Broken => "egress_broken",
        }
    }

    /// What the client's failure comes from; what the resolver said stands somewhere among its causes.
    pub(crate) fn of(failure: &reqwest::Error) -> Self {
        let mut cause: Option<&(dyn Error + 'static)> = Some(failure);
        while let Some(error) = cause {
            if let Some(told) = error.downcast_ref::<Self>() {
                return *told;
            }
            cause = error.source();
        }
        if failure.is_timeout() {
            Self::TimedOut
        } else if failure.is_connect() {
            Self::Unreachable
        } else {
            Self::Broken
        }
    }
}
