//! The store ports of connections.

use super::{
    CheckedConnection, Connection, ConnectionCheck, ConnectionWithExpiryState,
    expiry_notice::{DueNotice, ExpiryNotice},
};
use crate::{
    id::{ConnectionId, TenantId, WorkspaceId},
    idempotency::KeyedOutcome,
    store::{Change, CommitError, Page, PageRequest, Revision, StoreError},
    tenant::TenantScope,
};
use async_trait::async_trait;
use std::time::Duration;

/// The time between the last check or change of a connection and its next check.
pub const CHECK_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

/// A connection whose check is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DueCheck {
    /// The tenant that owns the connection.
    pub tenant: TenantId,
    /// The connection whose endpoint must be checked.
    pub connection_id: ConnectionId,
    /// The revision of the connection when it was listed as due. Every check and every change increments it, so a
    /// result for an older revision is refused.
    pub revision: Revision,
}

/// Stores connections and their checks.
#[async_trait]
pub trait ConnectionStore: Send + Sync {
    /// Finds a connection by its identifier; `None` if the tenant does not have it.
    async fn find(&self, scope: TenantScope, id: ConnectionId) -> Result<Option<Connection>, StoreError>;
    /// The connections of a workspace that have one of these names. The database's clock decides which of them are
    /// expired.
    async fn find_named(
        &self,
        scope: TenantScope,
        workspace: WorkspaceId,
        names: &[String],
    ) -> Result<Vec<ConnectionWithExpiryState>, StoreError>;
    /// A page of a workspace's connections, newest first.
    async fn list(
        &self,
        scope: TenantScope,
        workspace: WorkspaceId,
        page: PageRequest,
    ) -> Result<Page<Connection>, StoreError>;
    /// The latest checks of a connection, newest first.
    async fn checks(
        &self,
        scope: TenantScope,
        id: ConnectionId,
        limit: u32,
    ) -> Result<Vec<ConnectionCheck>, StoreError>;
    /// Stores a new connection; [`CommitError::Conflict`] when the workspace already has one of this name.
    async fn commit_new(
        &self,
        scope: TenantScope,
        change: Change<Connection>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
    /// Stores a changed connection; [`CommitError::Stale`] when it changed since the decision.
    async fn commit_change(&self, scope: TenantScope, change: Change<Connection>) -> Result<(), CommitError>;
    /// Deletes a connection; [`CommitError::Stale`] when it changed since the decision.
    async fn commit_deletion(&self, scope: TenantScope, change: Change<Connection>) -> Result<(), CommitError>;
    /// Stores a check, and the connection with its new health; [`CommitError::Stale`] when the connection changed since
    /// the decision.
    async fn commit_check(
        &self,
        scope: TenantScope,
        change: Change<CheckedConnection>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
}

/// Finds the connections for which a background task has work, and stores notices of expiry.
#[async_trait]
pub trait ConnectionTaskStore: Send + Sync {
    /// The active connections with an endpoint, in all tenants, whose last check or change is at least
    /// [`CHECK_INTERVAL`] ago by the database's clock. The oldest comes first.
    async fn due_checks(&self, limit: u32) -> Result<Vec<DueCheck>, StoreError>;
    /// The active connections of all tenants for which an expiry notice is due by the database's clock. The earliest
    /// expiry comes first.
    async fn due_expiry_notices(&self, limit: u32) -> Result<Vec<DueNotice>, StoreError>;
    /// Stores an expiry notice; [`CommitError::Stale`] when the connection changed since the decision, or people were
    /// already notified.
    async fn commit_expiry_notice(&self, scope: TenantScope, change: Change<ExpiryNotice>) -> Result<(), CommitError>;
}
