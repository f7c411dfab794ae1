//! The check of a connection's endpoint: its parameters, its failures and its port.

use super::{Connection, ConnectorKind, HealthState};
use crate::{secret::SecretRef, slug::Slug};
use async_trait::async_trait;

/// The name of the secret binding that contains a bearer token. A check of a web service sends this token.
pub const TOKEN_SECRET_BINDING_NAME: &str = "token";

/// A protocol whose endpoints can be checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProbeProtocol {
    /// HTTP: the endpoint must respond to a GET request with a success status.
    Http,
    /// S3: the endpoint must respond to a GET request with a success status or a client error. Object stores refuse
    /// anonymous requests with a client error.
    S3,
    /// PostgreSQL: the server must respond to an `SSLRequest`.
    Postgres,
    /// SMTP: the server must send a greeting with status 220.
    Smtp,
}

/// The parameters of a check of an endpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Probe {
    /// The protocol of the request.
    pub protocol: ProbeProtocol,
    /// The address to which the request is sent.
    pub endpoint: String,
    /// Reference to the bearer token that a check of a web service sends, if any.
    pub token: Option<SecretRef>,
}

impl Probe {
    /// The check of a connection; `None` if the connection has no endpoint, or its kind cannot be checked.
    #[must_use]
    pub fn of(connection: &Connection) -> Option<Self> {
        let protocol = match connection.kind {
            ConnectorKind::Http => ProbeProtocol::Http,
            ConnectorKind::S3 => ProbeProtocol::S3,
            ConnectorKind::Postgres => ProbeProtocol::Postgres,
            ConnectorKind::Smtp => ProbeProtocol::Smtp,
            ConnectorKind::Other => return None,
        };
        let token = match protocol {
            ProbeProtocol::Http => connection.secret_bindings.get(TOKEN_SECRET_BINDING_NAME),
            ProbeProtocol::S3 | ProbeProtocol::Postgres | ProbeProtocol::Smtp => None,
        };
        Some(Self { protocol, endpoint: connection.endpoint.clone()?, token })
    }
}

/// The reason why an endpoint is unhealthy. The messages never contain an address, a secret or bytes of a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ProbeError {
    /// The egress guard does not allow the destination.
    #[error("requests to this address are not allowed")]
    Forbidden,
    /// The secret with the bearer token could not be read.
    #[error("the secret of the connection cannot be read")]
    SecretUnavailable,
    /// The network connection to the endpoint failed.
    #[error("the endpoint is unreachable")]
    Unreachable,
    /// The endpoint did not respond in time.
    #[error("the endpoint did not answer in time")]
    TimedOut,
    /// The endpoint responded with an error.
    #[error("the endpoint answered with an error")]
    Refused,
    /// The response does not follow the protocol of the connection's kind.
    #[error("the answer does not follow the protocol of the connection's kind")]
    Malformed,
}

impl ProbeError {
    /// The stable code of the failure.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Forbidden => "endpoint_forbidden",
            Self::SecretUnavailable => "secret_unavailable",
            Self::Unreachable => "endpoint_unreachable",
            Self::TimedOut => "endpoint_timeout",
            Self::Refused => "endpoint_refused",
            Self::Malformed => "endpoint_malformed_answer",
        }
    }
}

/// Converts the result of a check to a health state with its reason code. `None` means that the connection cannot be
/// checked.
#[must_use]
pub const fn health_of(result: Option<Result<(), ProbeError>>) -> (HealthState, Option<&'static str>) {
    match result {
        Some(Ok(())) => (HealthState::Healthy, None),
        Some(Err(error)) => (HealthState::Unhealthy, Some(error.code())),
        None => (HealthState::NotCheckable, Some("not_checkable")),
    }
}

/// Checks the endpoints of connections.
#[async_trait]
pub trait EndpointProber: Send + Sync {
    /// Makes one check; references to secrets resolve in the namespace of the tenant. The check times out after
    /// [`MAX_DURATION`](crate::execution::http_call::MAX_DURATION).
    async fn probe(&self, tenant: &Slug, probe: &Probe) -> Result<(), ProbeError>;
}
