//! Operations that list, read and create workspaces.

use crate::{
    Failure, MaybeReplayed, Stores,
    access::{Operation, authorize::authorize},
    commit_context::CommitContext,
    idempotency::{KeyedRequests, keyed_outcome},
    services::{CommonOperations, SharedState},
};
use fairway_domain::{
    access::{Caller, ResourcePosition},
    id::WorkspaceId,
    idempotency::RequestKey,
    store::{Page, PageRequest},
    tenant::{Workspace, WorkspaceIds, WorkspaceStore},
};
use std::sync::Arc;

/// Creates, reads and lists the workspaces of a tenant.
#[derive(Clone)]
pub struct Workspaces {
    context: CommitContext,
    workspace_store: Arc<dyn WorkspaceStore>,
    keyed_requests: Arc<KeyedRequests>,
}

impl Workspaces {
    pub(crate) fn new(stores: &Stores, shared: &SharedState, common: &CommonOperations) -> Self {
        Self {
            context: shared.context.clone(),
            workspace_store: Arc::clone(&stores.workspaces),
            keyed_requests: Arc::clone(&common.keyed_requests),
        }
    }
}

impl Workspaces {
    /// Lists the tenant's workspaces, newest first.
    ///
    /// # Errors
    /// When the caller has no role in the tenant.
    pub async fn list_workspaces(&self, caller: &Caller, page: PageRequest) -> Result<Page<Workspace>, Failure> {
        let scope = authorize(caller, Operation::ListWorkspaces, &ResourcePosition::tenant(caller.tenant))?;
        Ok(self.workspace_store.list(scope, page).await?)
    }

    /// Returns one workspace.
    ///
    /// # Errors
    /// When the caller has no role in the tenant, or the workspace does not exist in the tenant.
    pub async fn read_workspace(&self, caller: &Caller, id: WorkspaceId) -> Result<Workspace, Failure> {
        let scope = authorize(caller, Operation::ReadWorkspace, &ResourcePosition::tenant(caller.tenant))?;
        self.workspace_store.find(scope, id).await?.ok_or(Failure::NotFound)
    }

    /// Creates a workspace with its built-in assistant, and its namespace if that does not exist.
    ///
    /// # Errors
    /// When the caller does not manage the tenant, or the slug, the name or the namespace is invalid.
    pub async fn create_workspace(
        &self,
        caller: &Caller,
        slug: &str,
        name: &str,
        namespace: &str,
        key: Option<&RequestKey>,
    ) -> Result<MaybeReplayed<Workspace>, Failure> {
        let scope = authorize(caller, Operation::CreateWorkspace, &ResourcePosition::tenant(caller.tenant))?;
        self.keyed_requests
            .idempotent(
                scope,
                key,
                async || {
                    let ids = WorkspaceIds {
                        workspace_id: self.context.new_id(),
                        namespace_id: self.context.new_id(),
                        assistant_id: self.context.new_id(),
                    };
                    let change = Workspace::create(ids, slug, name, namespace, &self.context.stamp(caller))?;
                    let outcome = keyed_outcome(key, 201, ids.workspace_id.uuid());
                    Ok(self.workspace_store.commit_new(scope, change, outcome.as_ref()).await?)
                },
                async |id| self.read_workspace(caller, id.into()).await,
            )
            .await
    }
}
