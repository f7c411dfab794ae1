//! Operations on workloads and their runtime interfaces.

use crate::{
    Failure, MaybeReplayed, Precondition, Stores,
    access::{Operation, ScopeResolver, authorize},
    anonymous_rate_limit::RateLimits,
    commit_context::CommitContext,
    execution::run_access,
    idempotency::{KeyedRequests, MAX_ATTEMPTS, keyed_outcome},
    services::{CommonOperations, SharedState},
    share_link::{RuntimeCaller, VerifiedLink},
    wakeups::WakeupSender,
};
use fairway_domain::{
    access::{Caller, OwnerRef, ResourcePosition},
    id::{WorkloadId, WorkspaceId},
    idempotency::RequestKey,
    search_words::{MAX_QUERY_CHARS, WordSet},
    share_link::ShareTokenRefusal,
    slug::Slug,
    store::{CommitError, ConstraintConflict, Page, PageRequest},
    tenant::TenantScope,
    wakeup::Wakeup,
    workload::{
        BuiltinManagementSource, IntendedUse, NewWorkload, Workload, WorkloadPatch, WorkloadRefusal, WorkloadStatus,
        interface::PresentationMode,
        ports::{RuntimeInterfaceFilter, WorkloadFilter, WorkloadStore},
    },
};
use std::sync::Arc;

/// The parameters of a new workload.
#[derive(Clone, Debug)]
pub struct CreateWorkloadParams {
    /// The slug under which callers run the workload.
    pub slug: Slug,
    /// The name of the workload; `None` derives it from the slug.
    pub name: Option<String>,
    /// The description of the workload, if any.
    pub description: Option<String>,
    /// The principal that is responsible for the workload.
    pub owner_ref: OwnerRef,
    /// How the workload is meant to be used.
    pub invocation_mode: IntendedUse,
    /// The workspace of the workload; `None` selects the workspace that the caller's roles determine.
    pub workspace_id: Option<WorkspaceId>,
}

/// Filter of a list of runtime interfaces.
#[derive(Clone, Debug, Default)]
pub struct InterfaceFilter {
    /// Only interfaces with this presentation mode.
    pub presentation_mode: Option<PresentationMode>,
    /// Only workloads of this owner.
    pub owner: Option<OwnerRef>,
    /// Only workloads whose name or description contains all words of this text. Letters and digits form words; other
    /// characters separate them.
    pub text: Option<String>,
}

/// A workload that has a runtime interface.
#[derive(Clone, Debug)]
pub struct RuntimeWorkload {
    /// The workload with its interface configuration.
    pub workload: Workload,
    /// The environments in which a release of the workload serves, by name.
    pub environments: Vec<Slug>,
}

/// Returns the resource position of a workload.
pub(crate) fn position_of(caller: &Caller, workload: &Workload) -> ResourcePosition {
    match workload.management_source {
        // Only platform operators see and change built-in workloads.
        Some(BuiltinManagementSource::PlatformBuiltin) => ResourcePosition::INSTALLATION,
        Some(BuiltinManagementSource::WorkspaceBuiltin) | None => {
            ResourcePosition::workspace(caller.tenant, workload.namespace_id, workload.workspace_id)
                .for_workload(workload.workload_id)
        }
    }
}

/// Returns the refusal for an unknown slug. The bearer of a share link learns only that the link is invalid for this
/// slug, not whether the workload exists.
pub(crate) fn unknown_slug_refusal(presented_link: Option<&VerifiedLink>) -> Failure {
    presented_link.map_or(Failure::NotFound, |_| Failure::ShareToken(ShareTokenRefusal::Invalid))
}

/// Creates, reads, lists and changes workloads, and reads their runtime interfaces.
#[derive(Clone)]
pub struct Workloads {
    context: CommitContext,
    wakeups: WakeupSender,
    workload_store: Arc<dyn WorkloadStore>,
    scope_resolver: Arc<ScopeResolver>,
    keyed_requests: Arc<KeyedRequests>,
    rate_limits: Arc<RateLimits>,
}

impl Workloads {
    pub(crate) fn new(stores: &Stores, shared: &SharedState, common: &CommonOperations) -> Self {
        Self {
            context: shared.context.clone(),
            wakeups: shared.wakeups.clone(),
            workload_store: Arc::clone(&stores.workloads),
            scope_resolver: Arc::clone(&common.scope_resolver),
            keyed_requests: Arc::clone(&common.keyed_requests),
            rate_limits: Arc::clone(&common.rate_limits),
        }
    }
}

impl Workloads {
    /// Lists workloads with a form that the caller may run without a share link, newest first. The list covers the
    /// named workspace, or else all workloads that the caller sees. A page may contain fewer entries than its limit
    /// even if the list continues.
    ///
    /// # Errors
    /// When the caller may view no workloads, or the named workspace is not found.
    pub async fn list_runnable_interfaces(
        &self,
        caller: &Caller,
        workspace: Option<WorkspaceId>,
        page: PageRequest,
    ) -> Result<Page<Workload>, Failure> {
        let (scope, visible_scopes) =
            self.scope_resolver.authorize_list_of(caller, Operation::ReadManifest, workspace).await?;
        let filter = RuntimeInterfaceFilter { workspace, visible_scopes, ..RuntimeInterfaceFilter::default() };
        let mut workloads = self.workload_store.list_runtime(scope, &filter, page).await?;
        let may_run = |workload: &Workload| {
            run_access::authorize_run(caller, None, workload).is_ok()
                && run_access::check_link_allows_start(None, workload).is_ok()
        };
        workloads.rows.retain(may_run);
        Ok(workloads)
    }

    /// Creates a workload.
    ///
    /// # Errors
    /// When the caller may not create workloads in the workspace, a text is invalid, or the slug is taken.
    pub async fn create_workload(
        &self,
        caller: &Caller,
        draft: CreateWorkloadParams,
        key: Option<&RequestKey>,
    ) -> Result<MaybeReplayed<Workload>, Failure> {
        let position = self
            .scope_resolver
            .position_for_new_resource(caller, Operation::CreateWorkload, draft.workspace_id)
            .await?;
        let scope = authorize::authorize(caller, Operation::CreateWorkload, &position)?;
        let workspace_with_namespace = position.workspace.zip(position.namespace);
        let (workspace_id, namespace_id) =
            workspace_with_namespace.ok_or(Failure::Inconsistent("a workspace without a namespace"))?;
        self.keyed_requests
            .idempotent(
                scope,
                key,
                async || {
                    let workload_id: WorkloadId = self.context.new_id();
                    let CreateWorkloadParams { slug, name, description, owner_ref, invocation_mode, workspace_id: _ } =
                        draft;
                    let new_workload = NewWorkload {
                        workload_id,
                        slug,
                        name,
                        description,
                        owner_ref,
                        invocation_mode,
                        workspace_id,
                        namespace_id,
                    };
                    let slug = new_workload.slug.clone();
                    let change = match Workload::create(new_workload, &self.context.stamp(caller)) {
                        // A built-in workload already has the reserved slug, so the refusal is the same as for any slug
                        // that is taken.
                        Err(WorkloadRefusal::ReservedSlug)
                            if self.workload_store.find_by_slug(scope, &slug).await?.is_some() =>
                        {
                            return Err(Failure::Conflict(ConstraintConflict::DuplicateSlug));
                        }
                        created => created?,
                    };
                    let workload = change.next.clone();
                    let outcome = keyed_outcome(key, 201, workload_id.uuid());
                    self.workload_store.commit_new(scope, change, outcome.as_ref()).await?;
                    Ok(workload)
                },
                async |id| self.read_workload(caller, id.into()).await,
            )
            .await
    }

    /// Lists workloads, newest first: those of the named workspace, or else all that the caller sees.
    ///
    /// # Errors
    /// When the caller may view no workloads, or the named workspace is not found.
    pub async fn list_workloads(
        &self,
        caller: &Caller,
        workspace: Option<WorkspaceId>,
        status: Option<WorkloadStatus>,
        page: PageRequest,
    ) -> Result<Page<Workload>, Failure> {
        let (scope, visible_scopes) =
            self.scope_resolver.authorize_list_of(caller, Operation::ListWorkloads, workspace).await?;
        let filter = WorkloadFilter { workspace, status, visible_scopes };
        Ok(self.workload_store.list(scope, &filter, page).await?)
    }

    /// Returns one workload.
    ///
    /// # Errors
    /// Not found when the caller does not see the workload.
    pub async fn read_workload(&self, caller: &Caller, id: WorkloadId) -> Result<Workload, Failure> {
        self.authorize_workload(caller, Operation::ReadWorkload, id).await.map(|(_, workload)| workload)
    }

    /// Changes those fields of a workload that the patch contains. After a suspension, the next request to run the
    /// workload is refused.
    ///
    /// # Errors
    /// In these cases: the caller may not change the workload; a text is invalid; the status transition is invalid; the
    /// revision differs from the expected one.
    pub async fn change_workload(
        &self,
        caller: &Caller,
        id: WorkloadId,
        patch: &WorkloadPatch,
        expected: &Precondition,
    ) -> Result<Workload, Failure> {
        for _ in 0..MAX_ATTEMPTS {
            let (scope, workload) = self.authorize_workload(caller, Operation::ReadWorkload, id).await?;
            let position = position_of(caller, &workload);
            let changes_description = patch.name.is_some()
                || patch.description.is_some()
                || patch.owner_ref.is_some()
                || patch.invocation_mode.is_some()
                || patch.interface_config.is_some();
            if changes_description || patch.status.is_none() {
                authorize::authorize(caller, Operation::ChangeWorkload, &position)?;
            }
            if patch.status.is_some() {
                authorize::authorize(caller, Operation::SuspendWorkload, &position)?;
            }
            if workload.is_access_mode_changed_by(patch) {
                authorize::authorize(caller, Operation::ExposeWorkload, &position)?;
            }
            expected.check(workload.revision)?;
            let Some(change) = workload.apply_patch(patch.clone(), &self.context.stamp(caller))? else {
                return Ok(workload);
            };
            let changed_workload = change.next.clone();
            match self.workload_store.commit_change(scope, change).await {
                Err(CommitError::Stale) => match expected.stale_failure() {
                    Some(failure) => return Err(failure),
                    None => continue,
                },
                committed => committed?,
            }
            self.context.notify_facts();
            if changed_workload.status != WorkloadStatus::Registered {
                self.wakeups.publish(Wakeup::RecheckAll);
            }
            return Ok(changed_workload);
        }
        Err(Failure::Contended)
    }

    /// Lists the runtime interfaces that the caller sees, newest first. The list contains workloads that have an
    /// interface and accept runs.
    ///
    /// # Errors
    /// When the caller may view no workloads, or the search text is too long.
    pub async fn list_runtime_workloads(
        &self,
        caller: &Caller,
        filter: InterfaceFilter,
        page: PageRequest,
    ) -> Result<Page<Workload>, Failure> {
        let (scope, visible_scopes) = authorize::authorize_list(caller, Operation::ListRuntimeWorkloads)?;
        let InterfaceFilter { presentation_mode, owner, text } = filter;
        let words = match text.filter(|text| !text.trim().is_empty()) {
            Some(text) if text.chars().count() > MAX_QUERY_CHARS => {
                return Err(Failure::invalid_field("q", "too_long", "a search has at most 256 characters"));
            }
            Some(text) => Some(WordSet::from_texts([text.as_str()])),
            None => None,
        };
        // A search text without any word matches no workload.
        if words.as_ref().is_some_and(WordSet::is_empty) {
            return Ok(Page { rows: Vec::new(), total: 0, next: None });
        }
        let filter = RuntimeInterfaceFilter { workspace: None, presentation_mode, owner, words, visible_scopes };
        Ok(self.workload_store.list_runtime(scope, &filter, page).await?)
    }

    /// Returns the runtime interface of a workload.
    ///
    /// # Errors
    /// Not found when the caller does not see the workload, or the workload has no interface. Refused when the
    /// workload requires a share link and the request presents none, or one of another workload. Throttled when the
    /// client exceeds the rate limit of a public workload.
    pub async fn read_runtime_workload(
        &self,
        caller: &Caller,
        runtime_caller: &RuntimeCaller,
        slug: &Slug,
    ) -> Result<RuntimeWorkload, Failure> {
        let presented_link = runtime_caller.link.as_ref();
        let stored = self.workload_store.find_by_slug(TenantScope::for_caller(caller), slug).await?;
        let workload = stored.ok_or_else(|| unknown_slug_refusal(presented_link))?;
        let scope =
            run_access::authorize_interface_view(caller, presented_link, &workload, Operation::ReadRuntimeWorkload)?;
        if workload.interface_config.is_none() {
            return Err(Failure::NotFound);
        }
        self.rate_limits.count_workload_request(caller, &workload, Some(runtime_caller.address)).await?;
        run_access::check_link_presence(presented_link, workload.effective_access_mode())?;
        let environments = self.workload_store.serving_environments(scope, workload.workload_id).await?;
        Ok(RuntimeWorkload { workload, environments })
    }

    pub(crate) async fn authorize_workload(
        &self,
        caller: &Caller,
        operation: Operation,
        id: WorkloadId,
    ) -> Result<(TenantScope, Workload), Failure> {
        let workload = self.workload_store.find(TenantScope::for_caller(caller), id).await?.ok_or(Failure::NotFound)?;
        let scope = authorize::authorize(caller, operation, &position_of(caller, &workload))?;
        Ok((scope, workload))
    }

    pub(crate) async fn workload_of(&self, scope: TenantScope, workload: WorkloadId) -> Result<Workload, Failure> {
        let workload = self.workload_store.find(scope, workload).await?;
        workload.ok_or(Failure::Inconsistent("the workload of a release is missing"))
    }
}
