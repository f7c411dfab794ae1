//! The kind, status and health of a connection.

use super::{ConnectionRefusal, check_endpoint};

/// The kind of external system that a connection addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnectorKind {
    /// A web service that is reached over HTTP.
    Http,
    /// A PostgreSQL server.
    Postgres,
    /// An S3-compatible object store.
    S3,
    /// A mail server that is reached over SMTP.
    Smtp,
    /// Any other system; its endpoint cannot be checked.
    Other,
}

impl ConnectorKind {
    /// Every kind, in the order of declaration.
    pub const ALL: [Self; 5] = [Self::Http, Self::Postgres, Self::S3, Self::Smtp, Self::Other];

    /// The wire form, such as `http`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Postgres => "postgres",
            Self::S3 => "s3",
            Self::Smtp => "smtp",
            Self::Other => "other",
        }
    }

    /// Parses the wire form; `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|value| value.as_str() == text)
    }
}

impl ConnectorKind {
    /// The valid URL schemes of endpoints of this kind; empty if every scheme is valid.
    const fn schemes(self) -> &'static [&'static str] {
        match self {
            Self::Http | Self::S3 => &["http", "https"],
            Self::Postgres => &["postgres", "postgresql"],
            Self::Smtp => &["smtp", "smtps"],
            Self::Other => &[],
        }
    }

    /// Checks the form of an endpoint and its scheme for this kind.
    pub(super) fn check_endpoint(self, endpoint: &str) -> Result<(), ConnectionRefusal> {
        check_endpoint(endpoint)?;
        let scheme = endpoint.split_once("://").map_or("", |(scheme, _)| scheme);
        if self.schemes().is_empty() || self.schemes().contains(&scheme) {
            Ok(())
        } else {
            Err(ConnectionRefusal::EndpointScheme)
        }
    }
}

/// Whether use cases may use a connection. The result of its checks is separate ([`HealthState`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnectionStatus {
    /// Use cases may use the connection.
    Active,
    /// Use cases may not use the connection.
    Disabled,
}

impl ConnectionStatus {
    /// Every status, in the order of declaration.
    pub const ALL: [Self; 2] = [Self::Active, Self::Disabled];

    /// The wire form, such as `active`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Disabled => "disabled",
        }
    }

    /// Parses the wire form; `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|value| value.as_str() == text)
    }
}

/// The result of the latest check of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HealthState {
    /// The endpoint was not checked since the connection was created, or since its kind, endpoint or secrets changed.
    Unchecked,
    /// The endpoint responded as expected.
    Healthy,
    /// The check failed; a reason code states why.
    Unhealthy,
    /// The connection has no endpoint, or its kind cannot be checked.
    NotCheckable,
}

impl HealthState {
    /// Every state, in the order of declaration.
    pub const ALL: [Self; 4] = [Self::Unchecked, Self::Healthy, Self::Unhealthy, Self::NotCheckable];

    /// The wire form, such as `unchecked`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unchecked => "unchecked",
            Self::Healthy => "healthy",
            Self::Unhealthy => "unhealthy",
            Self::NotCheckable => "not_checkable",
        }
    }

    /// Parses the wire form; `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|value| value.as_str() == text)
    }
}
