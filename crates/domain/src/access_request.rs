//! Access requests: a use case requests a connection that its author cannot create, and the platform team grants or
//! denies it.

use crate::{
    access::ActorRef,
    audit::{Fact, FactKind, FactSubject, Stamp},
    connection::{
        Connection, ConnectionPatch, ConnectionRefusal, ConnectionStatus, ConnectionWithExpiryState, ConnectorKind,
        NewConnection, SecretBindings,
    },
    id::{AccessRequestId, ConnectionId, UseCaseId, WorkspaceId},
    idempotency::KeyedOutcome,
    note::Note,
    notification_category::NotificationCategory,
    store::{Change, CommitError, Page, PageRequest, Revision, StoreError, aggregate},
    tenant::TenantScope,
    time::Timestamp,
    use_case::UseCase,
};
use async_trait::async_trait;
use serde_json::{Map, Value, json};

/// The status of an access request, from its creation to a decision or withdrawal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessRequestStatus {
    /// The platform team has not decided yet.
    Pending,
    /// The platform team granted the request, and the connection exists.
    Granted,
    /// The platform team refused the request.
    Denied,
    /// The request needs no decision any more, because its use case became active, was reopened or was archived.
    Withdrawn,
}

impl AccessRequestStatus {
    /// Every status, in the order of declaration.
    pub const ALL: [Self; 4] = [Self::Pending, Self::Granted, Self::Denied, Self::Withdrawn];

    /// The wire form, such as `pending`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Granted => "granted",
            Self::Denied => "denied",
            Self::Withdrawn => "withdrawn",
        }
    }

    /// Parses the wire form; `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|value| value.as_str() == text)
    }
}

/// A request for access to a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AccessRequest(pub(crate) AccessRequestRecord);

/// The fields of [`AccessRequest`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AccessRequestRecord {
    /// The identifier by which the request is decided and read.
    pub access_request_id: AccessRequestId,
    /// The workspace of the use case.
    pub workspace_id: WorkspaceId,
    /// The use case that needs the connection.
    pub use_case_id: UseCaseId,
    /// The name of the connection that the use case needs.
    pub connection_name: String,
    /// Whether the request is pending, or how it ended.
    pub status: AccessRequestStatus,
    /// The connection that the grant created or changed; `None` until the grant.
    pub connection_id: Option<ConnectionId>,
    /// The reason of a denial, if the decider stated one.
    pub reason: Option<Note>,
    /// The actor that published the use case.
    pub requested_by: ActorRef,
    /// When the request was created.
    pub created_at: Timestamp,
    /// The actor that decided or withdrew the request; `None` while it is pending.
    pub decided_by: Option<ActorRef>,
    /// When the request was decided or withdrawn; `None` while it is pending.
    pub decided_at: Option<Timestamp>,
    /// Increments with each change.
    pub revision: Revision,
}

aggregate!(AccessRequest, AccessRequestRecord);

/// The reason why a decision on an access request is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AccessRequestRefusal {
    /// The request was decided or withdrawn before.
    #[error("the request is no longer pending")]
    NotPending {
        /// The status in which the request already is.
        status: AccessRequestStatus,
    },
    /// The connection to grant is invalid.
    #[error(transparent)]
    Connection(#[from] ConnectionRefusal),
}

/// The settings that a grant specifies for its connection. An omitted setting takes its default for a new connection,
/// and leaves an existing connection unchanged.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GrantedSettings {
    /// References to the secrets of the connection; a new connection has none by default.
    pub secret_bindings: Option<SecretBindings>,
    /// The kind of system; `other` by default for a new connection.
    pub kind: Option<ConnectorKind>,
    /// The address of the system; a new connection has none by default.
    pub endpoint: Option<String>,
}

impl GrantedSettings {
    /// A new connection with these settings.
    fn into_connection(self, name: String) -> NewConnection {
        NewConnection {
            name,
            kind: self.kind.unwrap_or(ConnectorKind::Other),
            endpoint: self.endpoint,
            secret_bindings: self.secret_bindings.unwrap_or_default(),
            expires_at: None,
            status: ConnectionStatus::Active,
        }
    }

    /// The patch for an existing connection: the specified settings and the status `active`. It removes an expiry date
    /// that has passed.
    fn into_patch(self, existing: &ConnectionWithExpiryState) -> ConnectionPatch {
        ConnectionPatch {
            name: None,
            kind: self.kind,
            endpoint: self.endpoint.map(Some),
            secret_bindings: self.secret_bindings,
            expires_at: existing.is_expired.then_some(None),
            status: Some(ConnectionStatus::Active),
        }
    }
}

/// The connection that a grant creates or changes.
struct GrantedConnection {
    connection: Connection,
    /// The revision of the existing connection on which the decision is based; `None` for a new connection.
    expected_revision: Option<Revision>,
    /// The part of the grant's fact that describes the change of the connection. It names changed fields, and contains
    /// neither the endpoint nor a reference to a secret.
    fact_detail: Map<String, Value>,
}

/// The state after a grant: the request, its connection and its use case, with the revisions on which the decision is
/// based.
#[derive(Clone, PartialEq, Debug)]
pub struct AccessGrantOutcome {
    /// The granted request.
    pub request: AccessRequest,
    /// The created or changed connection.
    pub connection: Connection,
    /// The revision of the existing connection on which the decision is based; `None` for a new connection.
    pub expected_connection_revision: Option<Revision>,
    /// The use case. It is now active if the grant made its last unusable connection usable.
    pub use_case: UseCase,
    /// The revision of the use case on which the decision is based.
    pub expected_use_case_revision: Revision,
}

impl AccessRequest {
    /// A new request of a use case. It has no fact of its own, because the fact of the publication covers it.
    pub(crate) fn for_use_case(
        id: AccessRequestId,
        use_case: &UseCase,
        connection_name: String,
        stamp: &Stamp,
    ) -> Self {
        Self(AccessRequestRecord {
            access_request_id: id,
            workspace_id: use_case.workspace_id,
            use_case_id: use_case.use_case_id,
            connection_name,
            status: AccessRequestStatus::Pending,
            connection_id: None,
            reason: None,
            requested_by: stamp.actor.clone(),
            created_at: stamp.at,
            decided_by: None,
            decided_at: None,
            revision: Revision::FIRST,
        })
    }

    /// Checks that the request is pending.
    ///
    /// # Errors
    /// When the request was decided or withdrawn.
    pub const fn check_pending(&self) -> Result<(), AccessRequestRefusal> {
        match self.0.status {
            AccessRequestStatus::Pending => Ok(()),
            AccessRequestStatus::Granted | AccessRequestStatus::Denied | AccessRequestStatus::Withdrawn => {
                Err(AccessRequestRefusal::NotPending { status: self.0.status })
            }
        }
    }

    /// Grants the request. The grant creates the connection, or changes the existing connection of this name to the
    /// specified settings and makes it usable. `connections` are the connections of the workspace that the use case
    /// names. If all of them are usable after the grant, the same commit activates the use case and withdraws its other
    /// requests.
    ///
    /// # Errors
    /// When the request is not pending, or the connection is invalid.
    pub fn grant(
        &self,
        connection_id: ConnectionId,
        settings: GrantedSettings,
        connections: &[ConnectionWithExpiryState],
        use_case: &UseCase,
        stamp: &Stamp,
    ) -> Result<Change<AccessGrantOutcome>, AccessRequestRefusal> {
        self.check_pending()?;
        let existing = connections.iter().find(|snapshot| snapshot.connection.name == self.connection_name);
        let GrantedConnection { connection, expected_revision, fact_detail } = match existing {
            None => self.new_connection(connection_id, settings, stamp)?,
            Some(existing) => grant_existing(existing, settings, stamp)?,
        };
        let request = Self(AccessRequestRecord {
            status: AccessRequestStatus::Granted,
            connection_id: Some(connection.connection_id),
            decided_by: Some(stamp.actor.clone()),
            decided_at: Some(stamp.at),
            revision: self.revision.next(),
            ..self.0.clone()
        });
        let mut connections_after: Vec<ConnectionWithExpiryState> =
            connections.iter().filter(|snapshot| snapshot.connection.name != self.connection_name).cloned().collect();
        connections_after.push(ConnectionWithExpiryState { connection: connection.clone(), is_expired: false });
        let (next_use_case, activates) = use_case.after_grant(&connections_after, stamp);
        let detail = json!({
            "use_case_id": self.use_case_id,
            "connection_id": connection.connection_id,
            "connection": fact_detail,
            "activates": activates,
        });
        let fact = self.fact(FactKind::AccessRequestGranted, stamp, detail);
        let grant = AccessGrantOutcome {
            request,
            connection,
            expected_connection_revision: expected_revision,
            use_case: next_use_case,
            expected_use_case_revision: use_case.revision,
        };
        Ok(Change::replace(grant, self.revision, fact))
    }

    fn new_connection(
        &self,
        id: ConnectionId,
        settings: GrantedSettings,
        stamp: &Stamp,
    ) -> Result<GrantedConnection, ConnectionRefusal> {
        let new_connection = settings.into_connection(self.connection_name.clone());
        let creation = Connection::create(id, self.workspace_id, new_connection, stamp)?.into_record();
        Ok(GrantedConnection {
            connection: creation.next,
            expected_revision: None,
            fact_detail: fact_detail("created", creation.fact.detail),
        })
    }

    /// Denies the request. The use case stays pending.
    ///
    /// # Errors
    /// When the request is not pending.
    pub fn deny(&self, reason: Option<Note>, stamp: &Stamp) -> Result<Change<Self>, AccessRequestRefusal> {
        self.check_pending()?;
        let next = Self(AccessRequestRecord {
            status: AccessRequestStatus::Denied,
            reason,
            decided_by: Some(stamp.actor.clone()),
            decided_at: Some(stamp.at),
            revision: self.revision.next(),
            ..self.0.clone()
        });
        let fact = self.fact(FactKind::AccessRequestDenied, stamp, json!({ "use_case_id": self.use_case_id }));
        Ok(Change::replace(next, self.revision, fact))
    }

    fn fact(&self, kind: FactKind, stamp: &Stamp, detail: serde_json::Value) -> Fact {
        let subject = FactSubject { kind: "access_request", id: self.access_request_id.uuid() };
        Fact::new(kind, subject, Some(self.workspace_id), stamp, detail)
            .with_notification_categories([NotificationCategory::Approvals])
    }
}

/// Decides on a grant whose connection already exists; the grant may change its settings.
fn grant_existing(
    existing: &ConnectionWithExpiryState,
    settings: GrantedSettings,
    stamp: &Stamp,
) -> Result<GrantedConnection, ConnectionRefusal> {
    let patch = settings.into_patch(existing);
    let existing = &existing.connection;
    let (connection, fact_detail) = match existing.apply_patch(patch, stamp)?.map(Change::into_record) {
        Some(changed) => (changed.next, fact_detail("changed", changed.fact.detail)),
        None => (existing.clone(), fact_detail("kept", Map::new())),
    };
    Ok(GrantedConnection { connection, expected_revision: Some(existing.revision), fact_detail })
}

/// The detail of the connection in the grant's fact: `change`, and the detail that the fact of this change would have
/// without a grant.
fn fact_detail(change: &'static str, mut detail: Map<String, Value>) -> Map<String, Value> {
    detail.insert("change".to_owned(), json!(change));
    detail
}

/// Stores access requests and the decisions on them.
#[async_trait]
pub trait AccessRequestStore: Send + Sync {
    /// Finds a request by its identifier; `None` if the tenant does not have it.
    async fn find(&self, scope: TenantScope, id: AccessRequestId) -> Result<Option<AccessRequest>, StoreError>;
    /// A page of a workspace's requests, newest first.
    async fn list(
        &self,
        scope: TenantScope,
        workspace: WorkspaceId,
        status: Option<AccessRequestStatus>,
        page: PageRequest,
    ) -> Result<Page<AccessRequest>, StoreError>;
    /// Stores a grant: the request, the connection and the use case. Other pending requests of a use case that
    /// becomes active are withdrawn. [`CommitError::Stale`] when the request, the connection or the use case changed
    /// since the decision.
    async fn commit_grant(
        &self,
        scope: TenantScope,
        change: Change<AccessGrantOutcome>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
    /// Stores a denial; [`CommitError::Stale`] when the request changed since the decision.
    async fn commit_denial(
        &self,
        scope: TenantScope,
        change: Change<AccessRequest>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
}
