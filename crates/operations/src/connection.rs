//! Connections: their settings, and the checks of their endpoints.

mod expiry;
mod scheduled_checks;

pub use expiry::run_expiry_notices;
pub use scheduled_checks::run_connection_checks;

use crate::{
    Failure, MaybeReplayed, Precondition, Stores,
    access::{Operation, ScopeResolver, authorize},
    asset::workspace_and_namespace,
    commit_context::CommitContext,
    idempotency::{KeyedRequests, MAX_ATTEMPTS, convert_failure_after_commit, keyed_outcome},
    services::{CommonOperations, SharedState},
};
use fairway_domain::{
    access::{Caller, ResourcePosition},
    connection::{
        Connection, ConnectionCheck, ConnectionPatch, ConnectionStore, ConnectionTaskStore, MAX_LISTED_CHECKS,
        NewConnection,
        probe::{EndpointProber, Probe, ProbeError, health_of},
    },
    id::{ConnectionCheckId, ConnectionId, WorkspaceId},
    idempotency::RequestKey,
    store::{CommitError, Page, PageRequest},
    tenant::{TenantScope, TenantStore},
};
use std::sync::Arc;

/// Creates, reads, changes, deletes and checks the connections of a workspace.
#[derive(Clone)]
pub struct Connections {
    context: CommitContext,
    connection_store: Arc<dyn ConnectionStore>,
    connection_task_store: Arc<dyn ConnectionTaskStore>,
    tenant_store: Arc<dyn TenantStore>,
    endpoint_probe: Arc<dyn EndpointProber>,
    scope_resolver: Arc<ScopeResolver>,
    keyed_requests: Arc<KeyedRequests>,
}

impl Connections {
    pub(crate) fn new(stores: &Stores, shared: &SharedState, common: &CommonOperations) -> Self {
        Self {
            context: shared.context.clone(),
            connection_store: Arc::clone(&stores.connections),
            connection_task_store: Arc::clone(&stores.connection_tasks),
            tenant_store: Arc::clone(&stores.tenants),
            endpoint_probe: Arc::clone(&shared.endpoint_probe),
            scope_resolver: Arc::clone(&common.scope_resolver),
            keyed_requests: Arc::clone(&common.keyed_requests),
        }
    }
}

impl Connections {
    /// Lists the connections of a workspace, newest first. If `workspace` is `None`, the caller's roles determine the
    /// workspace.
    ///
    /// # Errors
    /// When the caller may not read connections in the workspace, or the workspace is not found.
    pub async fn list_connections(
        &self,
        caller: &Caller,
        workspace: Option<WorkspaceId>,
        page: PageRequest,
    ) -> Result<Page<Connection>, Failure> {
        let (scope, workspace) =
            self.scope_resolver.authorize_workspace_list(caller, Operation::ListConnections, workspace).await?;
        Ok(self.connection_store.list(scope, workspace, page).await?)
    }

    /// Creates a connection.
    ///
    /// # Errors
    /// When the caller may not manage connections in the workspace, a field is invalid, or the name is taken.
    pub async fn create_connection(
        &self,
        caller: &Caller,
        workspace: Option<WorkspaceId>,
        new_connection: NewConnection,
        key: Option<&RequestKey>,
    ) -> Result<MaybeReplayed<Connection>, Failure> {
        let position =
            self.scope_resolver.position_for_new_resource(caller, Operation::CreateConnection, workspace).await?;
        let scope = authorize::authorize(caller, Operation::CreateConnection, &position)?;
        let (workspace_id, _) = workspace_and_namespace(&position)?;
        self.keyed_requests
            .idempotent(
                scope,
                key,
                async || {
                    let id: ConnectionId = self.context.new_id();
                    let change = Connection::create(id, workspace_id, new_connection, &self.context.stamp(caller))?;
                    let connection = change.next.clone();
                    let outcome = keyed_outcome(key, 201, id.uuid());
                    self.connection_store.commit_new(scope, change, outcome.as_ref()).await?;
                    Ok(connection)
                },
                async |id| {
                    let read = Operation::ReadConnection;
                    self.authorize_connection(caller, read, id.into(), None).await.map(|(_, connection)| connection)
                },
            )
            .await
    }

    /// Returns one connection with its latest checks.
    ///
    /// # Errors
    /// Not found when the caller does not see the connection.
    pub async fn read_connection(
        &self,
        caller: &Caller,
        id: ConnectionId,
        workspace: Option<WorkspaceId>,
    ) -> Result<(Connection, Vec<ConnectionCheck>), Failure> {
        let (scope, connection) = self.authorize_connection(caller, Operation::ReadConnection, id, workspace).await?;
        let checks = self.connection_store.checks(scope, id, MAX_LISTED_CHECKS).await?;
        Ok((connection, checks))
    }

    /// Changes those fields of a connection that the patch contains.
    ///
    /// # Errors
    /// In these cases: the caller may not manage the connection; a field is invalid; the name is taken; the revision
    /// differs from the expected one.
    pub async fn change_connection(
        &self,
        caller: &Caller,
        id: ConnectionId,
        workspace: Option<WorkspaceId>,
        patch: &ConnectionPatch,
        expected: &Precondition,
    ) -> Result<Connection, Failure> {
        for _ in 0..MAX_ATTEMPTS {
            let (scope, connection) =
                self.authorize_connection(caller, Operation::ChangeConnection, id, workspace).await?;
            expected.check(connection.revision)?;
            let Some(change) = connection.apply_patch(patch.clone(), &self.context.stamp(caller))? else {
                return Ok(connection);
            };
            let changed_connection = change.next.clone();
            match self.connection_store.commit_change(scope, change).await {
                Err(CommitError::Stale) => match expected.stale_failure() {
                    Some(failure) => return Err(failure),
                    None => continue,
                },
                committed => committed?,
            }
            self.context.notify_facts();
            return Ok(changed_connection);
        }
        Err(Failure::Contended)
    }

    /// Deletes a connection. It is then unresolved in the use cases that refer to it.
    ///
    /// # Errors
    /// When the caller may not manage the connection.
    pub async fn delete_connection(
        &self,
        caller: &Caller,
        id: ConnectionId,
        workspace: Option<WorkspaceId>,
    ) -> Result<(), Failure> {
        for _ in 0..MAX_ATTEMPTS {
            let (scope, connection) =
                self.authorize_connection(caller, Operation::DeleteConnection, id, workspace).await?;
            let change = connection.delete(&self.context.stamp(caller));
            match self.connection_store.commit_deletion(scope, change).await {
                Err(CommitError::Stale) => continue,
                committed => committed?,
            }
            self.context.notify_facts();
            return Ok(());
        }
        Err(Failure::Contended)
    }

    /// Checks the endpoint of a connection through the egress guard, and records the result.
    ///
    /// # Errors
    /// When the caller may not manage the connection.
    pub async fn check_connection(
        &self,
        caller: &Caller,
        id: ConnectionId,
        workspace: Option<WorkspaceId>,
        key: Option<&RequestKey>,
    ) -> Result<MaybeReplayed<(Connection, Vec<ConnectionCheck>)>, Failure> {
        let (scope, connection) = self.authorize_connection(caller, Operation::CheckConnection, id, workspace).await?;
        let checked = self.keyed_requests.idempotent(
            scope,
            key,
            async || {
                // The endpoint may be slow, so the key is reserved before the check. Otherwise a repeated request could
                // run a second check concurrently.
                let check = self.probe_and_record(caller, scope, connection, key);
                self.keyed_requests.with_reserved_key(scope, key, id.uuid(), check).await
            },
            async |_| Ok(()),
        );
        let checked = checked.await?;
        let detail = convert_failure_after_commit(self.read_connection(caller, id, workspace).await, key)?;
        Ok(checked.with_value(detail))
    }

    async fn probe_and_record(
        &self,
        caller: &Caller,
        scope: TenantScope,
        mut connection: Connection,
        key: Option<&RequestKey>,
    ) -> Result<(), Failure> {
        let id = connection.connection_id;
        for _ in 0..MAX_ATTEMPTS {
            let (health, code) = health_of(self.probe(scope, &connection).await?);
            let check_id: ConnectionCheckId = self.context.new_id();
            let change = connection.record_check(check_id, health, code, &self.context.stamp(caller));
            let outcome = keyed_outcome(key, 200, id.uuid());
            match self.connection_store.commit_check(scope, change, outcome.as_ref()).await {
                // The connection changed during the check, so the next attempt checks its current endpoint.
                Err(CommitError::Stale) => {
                    connection = self.connection_store.find(scope, id).await?.ok_or(Failure::NotFound)?;
                }
                committed => return Ok(committed?),
            }
        }
        Err(Failure::Contended)
    }

    /// Checks the endpoint of a connection; returns `None` if the connection has nothing to check.
    async fn probe(
        &self,
        scope: TenantScope,
        connection: &Connection,
    ) -> Result<Option<Result<(), ProbeError>>, Failure> {
        let Some(probe) = Probe::of(connection) else { return Ok(None) };
        let tenant = self.tenant_store.find(scope).await?.ok_or(Failure::NotFound)?;
        Ok(Some(self.endpoint_probe.probe(&tenant.slug, &probe).await))
    }

    async fn authorize_connection(
        &self,
        caller: &Caller,
        operation: Operation,
        id: ConnectionId,
        workspace: Option<WorkspaceId>,
    ) -> Result<(TenantScope, Connection), Failure> {
        let tenant_scope = TenantScope::for_caller(caller);
        let stored = self.connection_store.find(tenant_scope, id).await?;
        let stored =
            stored.filter(|connection| workspace.is_none_or(|workspace_id| workspace_id == connection.workspace_id));
        let Some(connection) = stored else {
            // Authorizing access to an existing connection takes one lookup of its position. A missing connection makes
            // an equal lookup, so that the response time does not reveal whether a connection exists.
            self.scope_resolver.workspace_position(caller, WorkspaceId::from(id.uuid())).await?;
            return Err(Failure::NotFound);
        };
        let position: ResourcePosition =
            self.scope_resolver.workspace_position(caller, connection.workspace_id).await?;
        Ok((authorize::authorize(caller, operation, &position)?, connection))
    }
}
