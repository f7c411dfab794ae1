//! Connections: named external systems of a workspace, with references to their secrets and the health of their
//! endpoints.

pub mod expiry_notice;
mod kind_status_and_health;
mod ports;
pub mod probe;

use crate::{
    access::ActorRef,
    audit::{Fact, FactKind, FactSubject, Stamp},
    id::{ConnectionCheckId, ConnectionId, WorkspaceId},
    notification_category::NotificationCategory,
    secret::{SecretRef, contains_likely_credential},
    store::{Change, Revision, aggregate},
    text::is_name,
    time::Timestamp,
    use_case::bundle::{REDACTED_CONNECTION, has_markup},
};
pub use kind_status_and_health::{ConnectionStatus, ConnectorKind, HealthState};
pub use ports::{CHECK_INTERVAL, ConnectionStore, ConnectionTaskStore, DueCheck};
use serde_json::json;
use std::collections::BTreeMap;

/// The maximum length of a connection's name, in characters.
pub const MAX_NAME_CHARS: usize = 100;
/// The maximum number of secret bindings of a connection.
pub const MAX_SECRET_BINDINGS: usize = 20;
/// The maximum length of a secret binding's name, in characters.
pub const MAX_BINDING_NAME_CHARS: usize = 63;
/// The maximum length of an endpoint, in characters.
pub const MAX_ENDPOINT_CHARS: usize = 2_000;
/// The number of latest checks that a response about a connection contains.
pub const MAX_LISTED_CHECKS: u32 = 20;

/// The health of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Health {
    /// The result of the latest check.
    pub state: HealthState,
    /// The reason code of a failed or impossible check; `None` for a healthy or unchecked connection.
    pub code: Option<String>,
    /// The time of the latest check; `None` for an unchecked connection.
    pub checked_at: Option<Timestamp>,
}

impl Health {
    /// The health of a connection that was not checked.
    pub const UNCHECKED: Self = Self { state: HealthState::Unchecked, code: None, checked_at: None };
}

/// References to the secrets of a connection, by binding name. The name denotes the use of the secret, such as
/// `token`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SecretBindings(BTreeMap<String, String>);

impl SecretBindings {
    /// Checks that each name is an identifier that does not look like a credential. Also checks that each value is a
    /// secret reference instead of a secret.
    ///
    /// # Errors
    /// Returns the first problem. It omits the values, because they may be secrets.
    pub fn new(bindings: BTreeMap<String, String>) -> Result<Self, ConnectionRefusal> {
        if bindings.len() > MAX_SECRET_BINDINGS {
            return Err(ConnectionRefusal::TooManyBindings);
        }
        for (name, reference) in &bindings {
            if !is_binding_name(name) || contains_likely_credential(name) {
                return Err(ConnectionRefusal::BindingName);
            }
            SecretRef::parse(reference).map_err(|_| ConnectionRefusal::SecretRef)?;
        }
        Ok(Self(bindings))
    }

    /// The secret references as text, by binding name.
    #[must_use]
    pub const fn as_map(&self) -> &BTreeMap<String, String> {
        &self.0
    }

    /// The parsed secret reference with this binding name, if there is one.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<SecretRef> {
        self.0.get(name).and_then(|reference| SecretRef::parse(reference).ok())
    }
}

/// Whether a name matches `[A-Za-z_][A-Za-z0-9_-]{0,62}`.
fn is_binding_name(name: &str) -> bool {
    (1..=MAX_BINDING_NAME_CHARS).contains(&name.len())
        && name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

/// A named external system of a workspace, with references to its secrets and the health of its endpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Connection(pub(crate) ConnectionRecord);

/// The fields of [`Connection`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectionRecord {
    /// The identifier of the connection, which never changes.
    pub connection_id: ConnectionId,
    /// The workspace that contains the connection.
    pub workspace_id: WorkspaceId,
    /// The name, unique in the workspace. Use cases refer to connections by name.
    pub name: String,
    /// The kind of external system; it determines how the endpoint is checked.
    pub kind: ConnectorKind,
    /// The address of the system, if any.
    pub endpoint: Option<String>,
    /// References to the secrets of the connection.
    pub secret_bindings: SecretBindings,
    /// The expiry of the credentials, if known.
    pub expires_at: Option<Timestamp>,
    /// Whether use cases may use the connection.
    pub status: ConnectionStatus,
    /// The result of the latest check.
    pub health: Health,
    /// When the connection was created.
    pub created_at: Timestamp,
    /// The actor that created the connection.
    pub created_by: ActorRef,
    /// When the connection last changed.
    pub updated_at: Timestamp,
    /// Increments with each change.
    pub revision: Revision,
}

aggregate!(Connection, ConnectionRecord);

/// A connection as it was read, with its expiry evaluated by the database's clock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectionWithExpiryState {
    /// The connection as stored.
    pub connection: Connection,
    /// Whether the credentials had expired when the connection was read.
    pub is_expired: bool,
}

impl ConnectionWithExpiryState {
    /// Whether use cases may use the connection: it is active and not expired. Its health does not matter.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.connection.status == ConnectionStatus::Active && !self.is_expired
    }
}

/// One check of a connection's endpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectionCheck {
    /// The identifier of this check.
    pub connection_check_id: ConnectionCheckId,
    /// The result of the check.
    pub health: HealthState,
    /// The reason code of a failed or impossible check; `None` for a healthy endpoint.
    pub code: Option<String>,
    /// The time of the check.
    pub checked_at: Timestamp,
    /// The actor that requested the check.
    pub checked_by: ActorRef,
}

/// A connection after a check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckedConnection {
    /// The connection, with the health that the check determined.
    pub connection: Connection,
    /// The check that was recorded.
    pub check: ConnectionCheck,
}

/// The properties with which a connection is created.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewConnection {
    /// The name, unique in the workspace. Use cases refer to connections by name.
    pub name: String,
    /// The kind of external system; it determines how the endpoint is checked.
    pub kind: ConnectorKind,
    /// The address of the system, if any.
    pub endpoint: Option<String>,
    /// References to the secrets of the connection.
    pub secret_bindings: SecretBindings,
    /// The expiry of the credentials, if known.
    pub expires_at: Option<Timestamp>,
    /// Whether use cases may use the connection.
    pub status: ConnectionStatus,
}

/// The fields of a connection to change; `None` leaves a field unchanged.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ConnectionPatch {
    /// The new name.
    pub name: Option<String>,
    /// The new kind of external system.
    pub kind: Option<ConnectorKind>,
    /// A new endpoint; `Some(None)` removes the endpoint.
    pub endpoint: Option<Option<String>>,
    /// Secret bindings that replace all previous ones.
    pub secret_bindings: Option<SecretBindings>,
    /// A new expiry; `Some(None)` removes the expiry.
    pub expires_at: Option<Option<Timestamp>>,
    /// The new status.
    pub status: Option<ConnectionStatus>,
}

/// The reason why a connection or its change is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConnectionRefusal {
    /// The name is not one line of visible characters, contains markup, or is the placeholder for redacted names.
    #[error("a connection's name is one line of 1 to 100 visible characters")]
    Name,
    /// The endpoint is not an absolute address, or contains credentials.
    #[error("an endpoint is an absolute address of its kind, without credentials, query and fragment")]
    Endpoint,
    /// The scheme of the endpoint is not valid for the connection's kind.
    #[error(
        "an endpoint of the kind `http` or `s3` begins with `http` or `https`, of `postgres` with `postgres` or \
        `postgresql`, and of `smtp` with `smtp` or `smtps`"
    )]
    EndpointScheme,
    /// The connection has more than [`MAX_SECRET_BINDINGS`] secret bindings.
    #[error("a connection has at most 20 secret bindings")]
    TooManyBindings,
    /// The name of a secret binding is not an identifier, or looks like a credential.
    #[error("the name of a secret binding has 1 to 63 letters, digits, dashes and underscores, and is no credential")]
    BindingName,
    /// The value of a secret binding is not a secret reference.
    #[error("a secret binding holds a reference such as `env:NAME`, `file:name` or `vault:path#key`, never a secret")]
    SecretRef,
}

impl ConnectionRefusal {
    /// The stable code of the refusal.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Name => "invalid_name",
            Self::Endpoint => "invalid_endpoint",
            Self::EndpointScheme => "endpoint_scheme_mismatch",
            Self::TooManyBindings => "too_many",
            Self::BindingName => "invalid_binding_name",
            Self::SecretRef => "invalid_secret_ref",
        }
    }

    /// The request field that is invalid.
    #[must_use]
    pub const fn field(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Endpoint | Self::EndpointScheme => "endpoint",
            Self::TooManyBindings | Self::BindingName | Self::SecretRef => "secret_bindings",
        }
    }
}

/// Checks the name of a connection.
///
/// # Errors
/// When the name is not one line of visible characters, contains markup, or equals the placeholder for redacted
/// names.
pub fn check_name(name: &str) -> Result<(), ConnectionRefusal> {
    let is_valid = is_name(name, MAX_NAME_CHARS) && !has_markup(name) && name != REDACTED_CONNECTION;
    if is_valid { Ok(()) } else { Err(ConnectionRefusal::Name) }
}

/// Checks that an endpoint is an address of visible ASCII characters with a scheme and a host, and without
/// credentials. At each check of the connection, the egress guard decides whether requests to the address are
/// allowed.
///
/// # Errors
/// When the endpoint is not such an address.
pub fn check_endpoint(endpoint: &str) -> Result<(), ConnectionRefusal> {
    let is_address = |text: &str| {
        let (scheme, after_scheme) = text.split_once("://")?;
        let authority = after_scheme.split('/').next().unwrap_or_default();
        let is_scheme =
            !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        (is_scheme && !authority.is_empty() && !after_scheme.contains(['@', '?', '#', '\\'])).then_some(())
    };
    let is_valid_text = endpoint.len() <= MAX_ENDPOINT_CHARS && endpoint.bytes().all(|byte| byte.is_ascii_graphic());
    if is_valid_text && is_address(endpoint).is_some() { Ok(()) } else { Err(ConnectionRefusal::Endpoint) }
}

impl Connection {
    /// Creates a connection.
    ///
    /// # Errors
    /// When the name or the endpoint is invalid.
    pub fn create(
        connection_id: ConnectionId,
        workspace_id: WorkspaceId,
        new: NewConnection,
        stamp: &Stamp,
    ) -> Result<Change<Self>, ConnectionRefusal> {
        let NewConnection { name, kind, endpoint, secret_bindings, expires_at, status } = new;
        check_name(&name)?;
        endpoint.as_deref().map_or(Ok(()), |endpoint| kind.check_endpoint(endpoint))?;
        let next = Self(ConnectionRecord {
            connection_id,
            workspace_id,
            name,
            kind,
            endpoint,
            secret_bindings,
            expires_at,
            status,
            health: Health::UNCHECKED,
            created_at: stamp.at,
            created_by: stamp.actor.clone(),
            updated_at: stamp.at,
            revision: Revision::FIRST,
        });
        let fact = next.fact(FactKind::ConnectionCreated, stamp, next.key_names());
        Ok(Change::create(next, fact))
    }

    /// Applies a patch; `None` when nothing changes. A new kind, endpoint or secret resets the health to unchecked.
    ///
    /// # Errors
    /// When the name or the endpoint is invalid.
    pub fn apply_patch(
        &self,
        patch: ConnectionPatch,
        stamp: &Stamp,
    ) -> Result<Option<Change<Self>>, ConnectionRefusal> {
        patch.name.as_deref().map_or(Ok(()), check_name)?;
        let mut next = Self(ConnectionRecord {
            name: patch.name.unwrap_or_else(|| self.name.clone()),
            kind: patch.kind.unwrap_or(self.kind),
            endpoint: patch.endpoint.unwrap_or_else(|| self.endpoint.clone()),
            secret_bindings: patch.secret_bindings.unwrap_or_else(|| self.secret_bindings.clone()),
            expires_at: patch.expires_at.unwrap_or(self.expires_at),
            status: patch.status.unwrap_or(self.status),
            ..self.0.clone()
        });
        let is_redirected =
            next.kind != self.kind || next.endpoint != self.endpoint || next.secret_bindings != self.secret_bindings;
        let changed_keys: Vec<&str> = [
            ("name", next.name != self.name),
            ("connector_kind", next.kind != self.kind),
            ("endpoint", next.endpoint != self.endpoint),
            ("secret_bindings", next.secret_bindings != self.secret_bindings),
            ("expires_at", next.expires_at != self.expires_at),
            ("status", next.status != self.status),
        ]
        .into_iter()
        .filter_map(|(name, differs)| differs.then_some(name))
        .collect();
        if changed_keys.is_empty() {
            return Ok(None);
        }
        if is_redirected {
            next.endpoint.as_deref().map_or(Ok(()), |endpoint| next.kind.check_endpoint(endpoint))?;
            next.0.health = Health::UNCHECKED;
        }
        next.0.updated_at = stamp.at;
        next.0.revision = self.revision.next();
        let detail = json!({ "keys": changed_keys, "status": next.status.as_str() });
        let fact = next.fact(FactKind::ConnectionChanged, stamp, detail);
        Ok(Some(Change::replace(next, self.revision, fact)))
    }

    /// Deletes the connection, and records the fact of the deletion.
    pub fn delete(&self, stamp: &Stamp) -> Change<Self> {
        let fact = self.fact(FactKind::ConnectionDeleted, stamp, json!({}));
        Change::replace(self.clone(), self.revision, fact)
    }

    /// Records the result of a check. The fact has a notification category if the result differs from the connection's
    /// previous health.
    pub fn record_check(
        &self,
        id: ConnectionCheckId,
        health: HealthState,
        code: Option<&str>,
        stamp: &Stamp,
    ) -> Change<CheckedConnection> {
        let code = code.map(str::to_owned);
        let has_changed = health != self.health.state;
        let check = ConnectionCheck {
            connection_check_id: id,
            health,
            code: code.clone(),
            checked_at: stamp.at,
            checked_by: stamp.actor.clone(),
        };
        let connection = Self(ConnectionRecord {
            health: Health { state: health, code, checked_at: Some(stamp.at) },
            revision: self.revision.next(),
            ..self.0.clone()
        });
        let detail = json!({
            "health": health.as_str(),
            "previous_health": self.health.state.as_str(),
            "reason_code": check.code,
        });
        let fact = self
            .fact(FactKind::ConnectionChecked, stamp, detail)
            .with_notification_categories(has_changed.then_some(NotificationCategory::ConnectorHealth));
        Change::replace(CheckedConnection { connection, check }, self.revision, fact)
    }

    fn key_names(&self) -> serde_json::Value {
        json!({
            "connector_kind": self.kind.as_str(),
            "has_endpoint": self.endpoint.is_some(),
            "secret_bindings": self.secret_bindings.as_map().len(),
        })
    }

    fn fact(&self, kind: FactKind, stamp: &Stamp, detail: serde_json::Value) -> Fact {
        let subject = FactSubject { kind: "connection", id: self.connection_id.uuid() };
        Fact::new(kind, subject, Some(self.workspace_id), stamp, detail)
    }
}

#[cfg(test)]
mod tests;
