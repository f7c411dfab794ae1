//! Bindings of principals to workloads.

use super::Operation;
use crate::{
    Failure, MaybeReplayed, Stores,
    commit_context::CommitContext,
    idempotency::{KeyedRequests, MAX_ATTEMPTS, keyed_outcome},
    services::{CommonOperations, SharedState},
    workload::Workloads,
};
use fairway_domain::{
    access::{
        ActorRef, Caller,
        principal_binding::{PrincipalBinding, PrincipalBindingStore},
    },
    audit::FactKind,
    id::{PrincipalBindingId, WorkloadId},
    idempotency::RequestKey,
    release::lane::Lane,
    store::{CommitError, Page, PageRequest},
    tenant::TenantScope,
    workload::Workload,
};
use std::sync::Arc;

/// A principal to bind to a workload, with the lane that serves it.
#[derive(Clone, Debug)]
pub struct RequestedBinding {
    /// The user, group or service to bind.
    pub principal: ActorRef,
    /// The lane that serves the principal; `None` selects the default lane.
    pub lane: Option<Lane>,
}

/// Lists, sets and deletes the bindings of principals to workloads.
#[derive(Clone)]
pub struct PrincipalBindings {
    context: CommitContext,
    principal_binding_store: Arc<dyn PrincipalBindingStore>,
    keyed_requests: Arc<KeyedRequests>,
    workloads: Arc<Workloads>,
}

impl PrincipalBindings {
    pub(crate) fn new(
        stores: &Stores,
        shared: &SharedState,
        common: &CommonOperations,
        workloads: &Arc<Workloads>,
    ) -> Self {
        Self {
            context: shared.context.clone(),
            principal_binding_store: Arc::clone(&stores.principal_bindings),
            keyed_requests: Arc::clone(&common.keyed_requests),
            workloads: Arc::clone(workloads),
        }
    }
}

impl PrincipalBindings {
    /// Lists the principals that are bound to a workload, newest first.
    ///
    /// # Errors
    /// Not found when the caller does not see the workload; forbidden when the caller does not manage the workspace.
    pub async fn list_principal_bindings(
        &self,
        caller: &Caller,
        workload: WorkloadId,
        page: PageRequest,
    ) -> Result<Page<PrincipalBinding>, Failure> {
        let (scope, workload) =
            self.workloads.authorize_workload(caller, Operation::ListPrincipalBindings, workload).await?;
        Ok(self.principal_binding_store.list(scope, workload.workload_id, page).await?)
    }

    /// Binds a principal to a workload, or changes its lane. The change applies to the next request.
    ///
    /// # Errors
    /// As [`Self::list_principal_bindings`]; also when the principal cannot be bound.
    pub async fn set_principal_binding(
        &self,
        caller: &Caller,
        workload: WorkloadId,
        requested: RequestedBinding,
        key: Option<&RequestKey>,
    ) -> Result<MaybeReplayed<PrincipalBinding>, Failure> {
        let (scope, workload) =
            self.workloads.authorize_workload(caller, Operation::SetPrincipalBinding, workload).await?;
        self.keyed_requests
            .idempotent(
                scope,
                key,
                async || self.bind_principal(caller, scope, &workload, &requested, key).await,
                async |id| {
                    let binding =
                        self.principal_binding_store.find(scope, workload.workload_id, &requested.principal).await?;
                    binding.filter(|binding| binding.principal_binding_id.uuid() == id).ok_or(Failure::NotFound)
                },
            )
            .await
    }

    async fn bind_principal(
        &self,
        caller: &Caller,
        scope: TenantScope,
        workload: &Workload,
        RequestedBinding { principal, lane }: &RequestedBinding,
        key: Option<&RequestKey>,
    ) -> Result<PrincipalBinding, Failure> {
        for _ in 0..MAX_ATTEMPTS {
            let binding = self.principal_binding_store.find(scope, workload.workload_id, principal).await?;
            let change = match binding {
                // Only a commit with a fact stores an idempotency key. A request with a key therefore commits even if
                // the binding is unchanged.
                Some(binding) if binding.lane == *lane && key.is_none() => return Ok(binding),
                Some(binding) => binding.change_lane(workload, *lane, &self.context.stamp(caller)),
                None => {
                    let id: PrincipalBindingId = self.context.new_id();
                    PrincipalBinding::bind(id, workload, principal.clone(), *lane, &self.context.stamp(caller))?
                }
            };
            let binding = change.next.clone();
            let outcome = keyed_outcome(key, 200, binding.principal_binding_id.uuid());
            match self.principal_binding_store.commit_binding(scope, change, outcome.as_ref()).await {
                Err(CommitError::Stale) => {}
                committed => return Ok(committed.map(|()| binding)?),
            }
        }
        Err(Failure::Contended)
    }

    /// Deletes a binding. The deletion applies to the next request.
    ///
    /// # Errors
    /// As [`Self::list_principal_bindings`]; also not found when the principal is not bound to the workload.
    pub async fn delete_principal_binding(
        &self,
        caller: &Caller,
        workload: WorkloadId,
        principal: &ActorRef,
    ) -> Result<(), Failure> {
        let (scope, workload) =
            self.workloads.authorize_workload(caller, Operation::DeletePrincipalBinding, workload).await?;
        for _ in 0..MAX_ATTEMPTS {
            let stored = self.principal_binding_store.find(scope, workload.workload_id, principal).await?;
            let binding = stored.ok_or(Failure::NotFound)?;
            let fact = binding.fact(FactKind::PrincipalBindingDeleted, &workload, &self.context.stamp(caller));
            match self.principal_binding_store.commit_removal(scope, &binding, fact).await {
                Err(CommitError::Stale) => continue,
                committed => committed?,
            }
            self.context.notify_facts();
            return Ok(());
        }
        Err(Failure::Contended)
    }
}
