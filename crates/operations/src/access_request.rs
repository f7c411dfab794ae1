//! Access requests, which the platform team grants or denies.

use crate::{
    Failure, MaybeReplayed, Precondition, Stores,
    access::{Operation, ScopeResolver, authorize},
    commit_context::CommitContext,
    idempotency::{KeyedRequests, MAX_ATTEMPTS, keyed_outcome},
    services::{CommonOperations, SharedState},
};
use fairway_domain::{
    access::Caller,
    access_request::{AccessRequest, AccessRequestStatus, AccessRequestStore, GrantedSettings},
    connection::ConnectionStore,
    id::{AccessRequestId, WorkspaceId},
    idempotency::RequestKey,
    note::Note,
    store::{CommitError, Page, PageRequest},
    tenant::TenantScope,
    use_case::ports::UseCaseStore,
};
use std::sync::Arc;

/// Lists, grants and denies access requests.
#[derive(Clone)]
pub struct AccessRequests {
    context: CommitContext,
    access_request_store: Arc<dyn AccessRequestStore>,
    connection_store: Arc<dyn ConnectionStore>,
    use_case_store: Arc<dyn UseCaseStore>,
    scope_resolver: Arc<ScopeResolver>,
    keyed_requests: Arc<KeyedRequests>,
}

impl AccessRequests {
    pub(crate) fn new(stores: &Stores, shared: &SharedState, common: &CommonOperations) -> Self {
        Self {
            context: shared.context.clone(),
            access_request_store: Arc::clone(&stores.access_requests),
            connection_store: Arc::clone(&stores.connections),
            use_case_store: Arc::clone(&stores.use_cases),
            scope_resolver: Arc::clone(&common.scope_resolver),
            keyed_requests: Arc::clone(&common.keyed_requests),
        }
    }
}

impl AccessRequests {
    /// Lists the access requests of a workspace, newest first. If `workspace` is `None`, the caller's roles determine
    /// the workspace.
    ///
    /// # Errors
    /// When the caller may not read connections in the workspace, or the workspace is not found.
    pub async fn list_access_requests(
        &self,
        caller: &Caller,
        workspace: Option<WorkspaceId>,
        status: Option<AccessRequestStatus>,
        page: PageRequest,
    ) -> Result<Page<AccessRequest>, Failure> {
        let (scope, workspace) =
            self.scope_resolver.authorize_workspace_list(caller, Operation::ListAccessRequests, workspace).await?;
        Ok(self.access_request_store.list(scope, workspace, status, page).await?)
    }

    /// Grants a request. The grant creates the connection, or changes the settings of an existing one. The grant of
    /// the last pending request activates the use case in the same commit.
    ///
    /// # Errors
    /// In these cases: the request is not found; the caller may not grant it; its revision differs from the expected
    /// one; it is no longer pending; the connection is invalid.
    pub async fn grant_access_request(
        &self,
        caller: &Caller,
        id: AccessRequestId,
        workspace: Option<WorkspaceId>,
        granted: GrantedSettings,
        expected: &Precondition,
        key: Option<&RequestKey>,
    ) -> Result<MaybeReplayed<AccessRequest>, Failure> {
        let (scope, _) = self.authorize_request(caller, Operation::GrantAccessRequest, id, workspace).await?;
        self.keyed_requests
            .idempotent(
                scope,
                key,
                async || {
                    for _ in 0..MAX_ATTEMPTS {
                        let request = self.find_request(scope, id).await?;
                        // A concurrent change of the use case also makes the commit stale, so each attempt checks the
                        // request again.
                        expected.check(request.revision)?;
                        request.check_pending()?;
                        // The use case is read before the connections. A concurrent grant between the two reads
                        // raises the revision of the use case, so the commit becomes stale.
                        let use_case = self.use_case_store.find(scope, request.use_case_id).await?;
                        let use_case = use_case.ok_or(Failure::Inconsistent("the use case of a request is missing"))?;
                        let names = use_case.plan.connections();
                        let connections = self.connection_store.find_named(scope, request.workspace_id, names).await?;
                        let (new_id, stamp) = (self.context.new_id(), self.context.stamp(caller));
                        let change = request.grant(new_id, granted.clone(), &connections, &use_case, &stamp)?;
                        let granted_request = change.next.request.clone();
                        let outcome = keyed_outcome(key, 200, id.uuid());
                        match self.access_request_store.commit_grant(scope, change, outcome.as_ref()).await {
                            Err(CommitError::Stale) => {}
                            committed => {
                                committed?;
                                return Ok(granted_request);
                            }
                        }
                    }
                    Err(Failure::Contended)
                },
                async |_| self.find_request(scope, id).await,
            )
            .await
    }

    /// Denies a request. Its use case stays pending.
    ///
    /// # Errors
    /// In these cases: the request is not found; the caller may not deny it; its revision differs from the expected
    /// one; it is no longer pending.
    pub async fn deny_access_request(
        &self,
        caller: &Caller,
        id: AccessRequestId,
        workspace: Option<WorkspaceId>,
        reason: Option<Note>,
        expected: &Precondition,
        key: Option<&RequestKey>,
    ) -> Result<MaybeReplayed<AccessRequest>, Failure> {
        let (scope, _) = self.authorize_request(caller, Operation::DenyAccessRequest, id, workspace).await?;
        self.keyed_requests
            .idempotent(
                scope,
                key,
                async || {
                    for _ in 0..MAX_ATTEMPTS {
                        let request = self.find_request(scope, id).await?;
                        expected.check(request.revision)?;
                        let change = request.deny(reason.clone(), &self.context.stamp(caller))?;
                        let denied_request = change.next.clone();
                        let outcome = keyed_outcome(key, 200, id.uuid());
                        match self.access_request_store.commit_denial(scope, change, outcome.as_ref()).await {
                            Err(CommitError::Stale) => {}
                            committed => {
                                committed?;
                                return Ok(denied_request);
                            }
                        }
                    }
                    Err(Failure::Contended)
                },
                async |_| self.find_request(scope, id).await,
            )
            .await
    }

    async fn find_request(&self, scope: TenantScope, id: AccessRequestId) -> Result<AccessRequest, Failure> {
        self.access_request_store.find(scope, id).await?.ok_or(Failure::NotFound)
    }

    async fn authorize_request(
        &self,
        caller: &Caller,
        operation: Operation,
        id: AccessRequestId,
        workspace: Option<WorkspaceId>,
    ) -> Result<(TenantScope, AccessRequest), Failure> {
        let stored = self.access_request_store.find(TenantScope::for_caller(caller), id).await?;
        let stored = stored.filter(|request| workspace.is_none_or(|named| named == request.workspace_id));
        let Some(request) = stored else {
            // Authorizing access to an existing request takes one lookup of its position. A missing request makes an
            // equal lookup, so that the response time does not reveal whether a request exists.
            self.scope_resolver.workspace_position(caller, WorkspaceId::from(id.uuid())).await?;
            return Err(Failure::NotFound);
        };
        let position = self.scope_resolver.workspace_position(caller, request.workspace_id).await?;
        Ok((authorize::authorize(caller, operation, &position)?, request))
    }
}
