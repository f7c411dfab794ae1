//! The check of a connection's endpoint.

use super::{Connection, ConnectorKind, HealthState};
use crate::{secret::SecretRef, slug::Slug};
use async_trait::async_trait;

/// The name of the secret binding that a check of a web service sends as bearer token.
pub const TOKEN_BINDING: &str = "token";

/// A protocol whose endpoints can be checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProbeProtocol {
    /// The endpoint answers a GET request with a success status.
    Http,
    /// The endpoint answers a GET request with any status, because object stores refuse anonymous requests.
    S3,
    /// The server answers the request for encryption.
    Postgres,
    /// The server greets.
    Smtp,
}

/// A check to make.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Probe {
    /// The protocol.
    pub protocol: ProbeProtocol,
    /// The address.
    pub endpoint: String,
    /// The bearer token of a web service.
    pub token: Option<SecretRef>,
}

impl Probe {
    /// The check of a connection; `None` if it has no endpoint, or its kind cannot be checked.
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
            ProbeProtocol::Http => connection.secret_bindings.get(TOKEN_BINDING),
            ProbeProtocol::S3 | ProbeProtocol::Postgres | ProbeProtocol::Smtp => None,
        };
        Some(Self { protocol, endpoint: connection.endpoint.clone()?, token })
    }
}

/// The reason why an endpoint is unhealthy. No message repeats an address, a secret or response bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ProbeError {
    /// The egress guard does not allow the destination.
    #[error("requests to this address are not allowed")]
    Forbidden,
    /// The secret could not be read.
    #[error("the secret of the connection cannot be read")]
    SecretUnavailable,
    /// No connection could be made.
    #[error("the endpoint is unreachable")]
    Unreachable,
    /// The endpoint did not answer in time.
    #[error("the endpoint did not answer in time")]
    TimedOut,
    /// The endpoint answered with an error.
    #[error("the endpoint answered with an error")]
    Refused,
    /// The answer does not follow the protocol.
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

/// The health that a check found, with its reason code.
#[must_use]
pub const fn health_of(result: Option<Result<(), ProbeError>>) -> (HealthState, Option<&'static str>) {
    match result {
        Some(Ok(())) => (HealthState::Healthy, None),
        Some(Err(error)) => (HealthState::Unhealthy, Some(error.code())),
        None => (HealthState::NotCheckable, Some("not_checkable")),
    }
}

/// Checks endpoints.
#[async_trait]
pub trait EndpointProbe: Send + Sync {
    /// Makes one check with the tenant's secrets, within a few seconds.
    async fn probe(&self, tenant: &Slug, probe: &Probe) -> Result<(), ProbeError>;
}
