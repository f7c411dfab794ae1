//! Workloads.

use crate::{
    Done, Expected, Failure, Services,
    access::{Operation, gate},
    once::{ATTEMPTS, keyed},
};
use fairway_domain::{
    access::{Caller, OwnerRef, Place},
    id::{WorkloadId, WorkspaceId},
    idempotency::RequestKey,
    slug::Slug,
    store::{CommitError, Listed, Paging},
    tenant::TenantScope,
    workload::{InvocationMode, NewWorkload, Status, Workload, WorkloadFilter, WorkloadPatch},
};

/// A workload to make.
#[derive(Clone, Debug)]
pub struct WorkloadDraft {
    /// Its slug.
    pub slug: Slug,
    /// Its name; the slug in words if left out.
    pub name: Option<String>,
    /// Its description.
    pub description: Option<String>,
    /// Who answers for it.
    pub owner_ref: OwnerRef,
    /// How it is meant to be called.
    pub invocation_mode: InvocationMode,
    /// Where; the caller's home if left out.
    pub workspace_id: Option<WorkspaceId>,
}

/// Where a workload is.
pub(crate) fn place_of(caller: &Caller, workload: &Workload) -> Place {
    Place::workspace(caller.tenant, workload.namespace_id, workload.workspace_id).of_workload(workload.workload_id)
}

impl Services {
    /// Makes a workload.
    ///
    /// # Errors
    /// When the caller may not make workloads there, a text is not allowed, or the slug is taken.
    pub async fn create_workload(
        &self,
        caller: &Caller,
        draft: WorkloadDraft,
        key: Option<&RequestKey>,
    ) -> Result<Done<Workload>, Failure> {
        let place = self.place_for(caller, Operation::CreateWorkload, draft.workspace_id).await?;
        let scope = gate::enter(caller, Operation::CreateWorkload, &place)?;
        let home = place.workspace.zip(place.namespace);
        let (workspace_id, namespace_id) = home.ok_or(Failure::Corrupt("a workspace without a namespace"))?;
        self.once(
            scope,
            key,
            async || {
                let workload_id: WorkloadId = self.id();
                let WorkloadDraft { slug, name, description, owner_ref, invocation_mode, workspace_id: _ } = draft;
                let new = NewWorkload {
                    workload_id,
                    slug,
                    name,
                    description,
                    owner_ref,
                    invocation_mode,
                    workspace_id,
                    namespace_id,
                };
                let change = Workload::create(new, &self.stamp(caller))?;
                let workload = change.next.clone();
                let outcome = keyed(key, 201, workload_id.uuid());
                self.stores.workloads.commit_new(scope, change, outcome.as_ref()).await?;
                Ok(workload)
            },
            async |id| self.read_workload(caller, id.into()).await,
        )
        .await
    }

    /// Workloads, newest first: of one workspace if named, else all that the caller sees.
    ///
    /// # Errors
    /// When the caller sees no workloads at all, or the named workspace is not found.
    pub async fn list_workloads(
        &self,
        caller: &Caller,
        workspace: Option<WorkspaceId>,
        status: Option<Status>,
        page: Paging,
    ) -> Result<Listed<Workload>, Failure> {
        let (scope, reach) = self.enter_list_of(caller, Operation::ListWorkloads, workspace).await?;
        let filter = WorkloadFilter { workspace, status, reach };
        Ok(self.stores.workloads.list(scope, &filter, page).await?)
    }

    /// One workload.
    ///
    /// # Errors
    /// Not found when the caller does not see it.
    pub async fn read_workload(&self, caller: &Caller, id: WorkloadId) -> Result<Workload, Failure> {
        self.enter_workload(caller, Operation::ReadWorkload, id).await.map(|(_, workload)| workload)
    }

    /// Changes a workload: the fields that the patch names. Suspending it stops new runs with the next request.
    ///
    /// # Errors
    /// When the caller may not, a text is not allowed, the status does not follow, or the workload moved.
    pub async fn change_workload(
        &self,
        caller: &Caller,
        id: WorkloadId,
        patch: &WorkloadPatch,
        expected: &Expected,
    ) -> Result<Workload, Failure> {
        for _ in 0..ATTEMPTS {
            let (scope, workload) = self.enter_workload(caller, Operation::ReadWorkload, id).await?;
            let place = place_of(caller, &workload);
            let describes = patch.name.is_some()
                || patch.description.is_some()
                || patch.owner_ref.is_some()
                || patch.invocation_mode.is_some();
            if describes || patch.status.is_none() {
                gate::enter(caller, Operation::ChangeWorkload, &place)?;
            }
            if patch.status.is_some() {
                gate::enter(caller, Operation::SuspendWorkload, &place)?;
            }
            expected.check(workload.revision)?;
            let Some(change) = workload.amend(patch.clone(), &self.stamp(caller))? else {
                return Ok(workload);
            };
            let next = change.next.clone();
            match self.stores.workloads.commit(scope, change).await {
                Err(CommitError::Stale) => match expected.on_stale() {
                    Some(failure) => return Err(failure),
                    None => continue,
                },
                committed => committed?,
            }
            self.wake.facts();
            return Ok(next);
        }
        Err(Failure::Contended)
    }

    pub(crate) async fn enter_workload(
        &self,
        caller: &Caller,
        operation: Operation,
        id: WorkloadId,
    ) -> Result<(TenantScope, Workload), Failure> {
        let workload = self.stores.workloads.find(TenantScope::of(caller), id).await?.ok_or(Failure::NotFound)?;
        let scope = gate::enter(caller, operation, &place_of(caller, &workload))?;
        Ok((scope, workload))
    }
}
