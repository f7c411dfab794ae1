//! Workloads.

use crate::{
    Done, Expected, Failure, Services,
    access::{Operation, gate},
    execution::admission,
    once::{ATTEMPTS, keyed},
    share_link::{Pass, Visit},
};
use fairway_domain::{
    access::{Caller, OwnerRef, Place},
    id::{WorkloadId, WorkspaceId},
    idempotency::RequestKey,
    search::{MAX_QUESTION, Words},
    share_link::TokenRefusal,
    signal::Signal,
    slug::Slug,
    store::{CommitError, Conflict, Listed, Paging},
    tenant::TenantScope,
    workload::{
        InvocationMode, ManagementSource, NewWorkload, Status, Workload, WorkloadPatch, WorkloadRefusal,
        interface::PresentationMode,
        ports::{RuntimeFilter, WorkloadFilter},
    },
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

/// Which runtime interfaces are asked for.
#[derive(Clone, Debug, Default)]
pub struct RuntimeQuestion {
    /// Those of this look.
    pub presentation_mode: Option<PresentationMode>,
    /// Those that this owner answers for.
    pub owner: Option<OwnerRef>,
    /// Those with these words in their name or description. Everything but letters and digits only parts words.
    pub text: Option<String>,
}

/// Where a workload is.
pub(crate) fn place_of(caller: &Caller, workload: &Workload) -> Place {
    match workload.management_source {
        // What comes with Fairway is seen and changed by those who run it.
        Some(ManagementSource::PlatformBuiltin) => Place::PLATFORM,
        Some(ManagementSource::WorkspaceBuiltin) | None => {
            Place::workspace(caller.tenant, workload.namespace_id, workload.workspace_id)
                .of_workload(workload.workload_id)
        }
    }
}

/// What a slug that names nothing is answered with. Whoever brings a link learns no more of other slugs than that the link
/// does not open them.
pub(crate) fn nothing(pass: Option<&Pass>) -> Failure {
    pass.map_or(Failure::NotFound, |_| Failure::Token(TokenRefusal::Invalid))
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
                let slug = new.slug.clone();
                let change = match Workload::create(new, &self.stamp(caller)) {
                    // A reserved slug that a built-in workload has is taken, as any other slug would be.
                    Err(WorkloadRefusal::ReservedSlug)
                        if self.stores.workloads.find_by_slug(scope, &slug).await?.is_some() =>
                    {
                        return Err(Failure::Conflict(Conflict::DuplicateSlug));
                    }
                    created => created?,
                };
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
                || patch.invocation_mode.is_some()
                || patch.interface_config.is_some();
            if describes || patch.status.is_none() {
                gate::enter(caller, Operation::ChangeWorkload, &place)?;
            }
            if patch.status.is_some() {
                gate::enter(caller, Operation::SuspendWorkload, &place)?;
            }
            if workload.is_exposed_by(patch) {
                gate::enter(caller, Operation::ExposeWorkload, &place)?;
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
            if next.status != Status::Registered {
                self.signal(Signal::LookAtAll);
            }
            return Ok(next);
        }
        Err(Failure::Contended)
    }

    /// Runtime interfaces that the caller sees, newest first: of workloads that have one and take executions.
    ///
    /// # Errors
    /// When the caller sees no workloads at all, or the search text is too long.
    pub async fn list_runtime_workloads(
        &self,
        caller: &Caller,
        asked: RuntimeQuestion,
        page: Paging,
    ) -> Result<Listed<Workload>, Failure> {
        let (scope, reach) = gate::enter_list(caller, Operation::ListRuntimeWorkloads)?;
        let RuntimeQuestion { presentation_mode, owner, text } = asked;
        let words = match text.filter(|text| !text.trim().is_empty()) {
            Some(text) if text.chars().count() > MAX_QUESTION => {
                return Err(Failure::field("q", "too_long", "a search has at most 256 characters"));
            }
            Some(text) => Some(Words::of([text.as_str()])),
            None => None,
        };
        // Marks alone are in no text: nothing holds no word, and so nothing is found.
        if words.as_ref().is_some_and(Words::is_empty) {
            return Ok(Listed { rows: Vec::new(), total: 0, next: None });
        }
        let filter = RuntimeFilter { workspace: None, presentation_mode, owner, words, reach };
        Ok(self.stores.workloads.list_runtime(scope, &filter, page).await?)
    }

    /// The runtime interface of a workload, as people see it.
    ///
    /// # Errors
    /// Not found when the caller does not see the workload, or it has no interface. When it is reached by a share link
    /// and the visitor brings none, or the one that it brings opens something else. When a public one is asked for too
    /// often.
    pub async fn read_runtime_workload(
        &self,
        caller: &Caller,
        visit: &Visit,
        slug: &Slug,
    ) -> Result<Workload, Failure> {
        let pass = visit.pass.as_ref();
        let found = self.stores.workloads.find_by_slug(TenantScope::of(caller), slug).await?;
        let workload = found.ok_or_else(|| nothing(pass))?;
        let scope = admission::see(caller, pass, &workload, Operation::ReadRuntimeWorkload)?;
        if workload.interface_config.is_none() {
            return Err(Failure::NotFound);
        }
        self.count_visit(scope, &workload, Some(visit.address)).await?;
        admission::is_shown(pass, workload.access_mode())?;
        Ok(workload)
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
