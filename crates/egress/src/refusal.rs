//! Reasons why the guard refuses an outgoing request.

/// Reason why the guard does not send a request. No variant contains an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EgressRefusal {
    /// The text is not a URL, or has no host.
    #[error("this is not a valid address")]
    InvalidAddress,
    /// The scheme is not `https`, and the address is not an allowed loopback address in local mode.
    #[error("only https is allowed")]
    Scheme,
    /// The address contains a user name or password.
    #[error("an address must not contain credentials")]
    Credentials,
    /// The port is neither 443 nor 8443, and no allowance covers it.
    #[error("this port is not allowed")]
    Port,
    /// An address of the host lies in a network that is not allowed.
    #[error("this network is not allowed")]
    Network,
    /// The name resolves to too many addresses.
    #[error("the name resolves to too many addresses")]
    TooManyAddresses,
    /// The path of the request leads to an origin other than that of its endpoint.
    #[error("the request would reach another endpoint")]
    OtherEndpoint,
}

impl EgressRefusal {
    /// The stable code of the refusal.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::InvalidAddress => "egress_no_address",
            Self::Scheme => "egress_scheme",
            Self::Credentials => "egress_credentials",
            Self::Port => "egress_port",
            Self::Network => "egress_network",
            Self::TooManyAddresses => "egress_too_many_addresses",
            Self::OtherEndpoint => "egress_elsewhere",
        }
    }
}
