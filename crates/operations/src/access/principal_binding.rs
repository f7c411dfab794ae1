//! Binding principals to workloads.

use super::Operation;
use crate::{
    Done, Failure, Services,
    once::{ATTEMPTS, keyed},
};
use fairway_domain::{
    access::{ActorRef, Caller, principal_binding::PrincipalBinding},
    audit::FactKind,
    id::{PrincipalBindingId, WorkloadId},
    idempotency::RequestKey,
    release::lane::Lane,
    store::{CommitError, Listed, Paging},
    tenant::TenantScope,
    workload::Workload,
};

/// A principal, and the lane that is to serve it.
#[derive(Clone, Debug)]
pub struct WantedBinding {
    /// Who.
    pub principal: ActorRef,
    /// The lane; `None` for none of its own.
    pub lane: Option<Lane>,
}

impl Services {
    /// The principals that are bound to a workload, newest first.
    ///
    /// # Errors
    /// Not found when the caller does not see the workload; when it does not manage its workspace.
    pub async fn list_principal_bindings(
        &self,
        caller: &Caller,
        workload: WorkloadId,
        page: Paging,
    ) -> Result<Listed<PrincipalBinding>, Failure> {
        let (scope, workload) = self.enter_workload(caller, Operation::ListPrincipalBindings, workload).await?;
        Ok(self.stores.principal_bindings.list(scope, workload.workload_id, page).await?)
    }

    /// Binds a principal to a workload, or settles the lane of one that is bound. It counts with the next request.
    ///
    /// # Errors
    /// As [`Self::list_principal_bindings`]; besides when the principal is none that can be bound.
    pub async fn set_principal_binding(
        &self,
        caller: &Caller,
        workload: WorkloadId,
        wanted: WantedBinding,
        key: Option<&RequestKey>,
    ) -> Result<Done<PrincipalBinding>, Failure> {
        let (scope, workload) = self.enter_workload(caller, Operation::SetPrincipalBinding, workload).await?;
        self.once(
            scope,
            key,
            async || self.bind_principal(caller, (scope, &workload), &wanted, key).await,
            async |id| {
                let held = self.stores.principal_bindings.find(scope, workload.workload_id, &wanted.principal).await?;
                held.filter(|held| held.principal_binding_id.uuid() == id).ok_or(Failure::NotFound)
            },
        )
        .await
    }

    async fn bind_principal(
        &self,
        caller: &Caller,
        (scope, workload): (TenantScope, &Workload),
        WantedBinding { principal, lane }: &WantedBinding,
        key: Option<&RequestKey>,
    ) -> Result<PrincipalBinding, Failure> {
        for _ in 0..ATTEMPTS {
            let held = self.stores.principal_bindings.find(scope, workload.workload_id, principal).await?;
            let change = match held {
                // A key is kept beside a fact alone, so whoever sends one has the same written once more.
                Some(held) if held.lane == *lane && key.is_none() => return Ok(held),
                Some(held) => held.rebind(workload, *lane, &self.stamp(caller)),
                None => {
                    let id: PrincipalBindingId = self.id();
                    PrincipalBinding::bind(id, workload, (principal.clone(), *lane), &self.stamp(caller))?
                }
            };
            let binding = change.next.clone();
            let outcome = keyed(key, 200, binding.principal_binding_id.uuid());
            match self.stores.principal_bindings.commit_principal(scope, change, outcome.as_ref()).await {
                Err(CommitError::Stale) => {}
                committed => return Ok(committed.map(|()| binding)?),
            }
        }
        Err(Failure::Contended)
    }

    /// Ends a binding. It counts no more with the next request.
    ///
    /// # Errors
    /// As [`Self::list_principal_bindings`]; besides not found when the principal is not bound to the workload.
    pub async fn delete_principal_binding(
        &self,
        caller: &Caller,
        workload: WorkloadId,
        principal: &ActorRef,
    ) -> Result<(), Failure> {
        let (scope, workload) = self.enter_workload(caller, Operation::DeletePrincipalBinding, workload).await?;
        for _ in 0..ATTEMPTS {
            let found = self.stores.principal_bindings.find(scope, workload.workload_id, principal).await?;
            let held = found.ok_or(Failure::NotFound)?;
            let fact = held.fact(FactKind::PrincipalBindingDeleted, &workload, &self.stamp(caller));
            match self.stores.principal_bindings.commit_end(scope, &held, fact).await {
                Err(CommitError::Stale) => continue,
                committed => committed?,
            }
            self.wake.facts();
            return Ok(());
        }
        Err(Failure::Contended)
    }
}
