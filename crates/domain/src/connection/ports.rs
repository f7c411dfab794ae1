//! The store port of connections.

use super::{
    CheckedConnection, Connection, ConnectionCheck, ConnectionSnapshot,
    expiry::{DueNotice, ExpiryNotice},
};
use crate::{
    id::{ConnectionId, TenantId, WorkspaceId},
    idempotency::KeyedOutcome,
    store::{Change, CommitError, Page, PageRequest, Revision, StoreError},
    tenant::TenantScope,
};
use async_trait::async_trait;
use std::time::Duration;

/// How long after its last check or change a connection is checked again.
pub const CHECK_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

/// A connection whose check is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DueCheck {
    /// The tenant.
    pub tenant: TenantId,
    /// The connection.
    pub connection_id: ConnectionId,
    /// Its revision, which every check increments.
    pub revision: Revision,
}

/// Stores connections.
#[async_trait]
pub trait ConnectionStore: Send + Sync {
    /// Finds a connection.
    async fn find(&self, scope: TenantScope, id: ConnectionId) -> Result<Option<Connection>, StoreError>;
    /// The connections of a workspace with these names. The clock of the database says which of them are expired.
    async fn find_named(
        &self,
        scope: TenantScope,
        workspace: WorkspaceId,
        names: &[String],
    ) -> Result<Vec<ConnectionSnapshot>, StoreError>;
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
    /// Stores a new connection.
    async fn commit_new(
        &self,
        scope: TenantScope,
        change: Change<Connection>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
    /// Stores a changed connection. Stale when it changed since the decision.
    async fn commit_change(&self, scope: TenantScope, change: Change<Connection>) -> Result<(), CommitError>;
    /// Deletes a connection. Stale when it changed since the decision.
    async fn commit_deletion(&self, scope: TenantScope, change: Change<Connection>) -> Result<(), CommitError>;
    /// Stores a check with the connection's new health. Stale when the connection changed since the decision.
    async fn commit_check(
        &self,
        scope: TenantScope,
        change: Change<CheckedConnection>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
    /// Active connections of any tenant with an endpoint, whose last check or change is [`CHECK_INTERVAL`] old by the
    /// clock of the database, oldest first.
    async fn due_checks(&self, limit: u32) -> Result<Vec<DueCheck>, StoreError>;
    /// Active connections of any tenant whose notice of expiry is due by the clock of the database, earliest expiry first.
    async fn due_expiry_notices(&self, limit: u32) -> Result<Vec<DueNotice>, StoreError>;
    /// Stores a notice of expiry. Stale when the connection changed since the decision, or the notice was given before.
    async fn commit_expiry_notice(&self, scope: TenantScope, change: Change<ExpiryNotice>) -> Result<(), CommitError>;
}
