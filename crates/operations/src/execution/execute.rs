//! Execution of a workload by slug. Decisions use cached state, whose revisions the accept statement verifies.

use super::{
    engine::MAX_DECISION_ATTEMPTS,
    execute_request::{ExecuteRequest, ExecuteResponse},
};
use crate::{
    Failure, Settings, Stores,
    access::{CallerResolver, IdentityClaims, IdentityMode, ScopeResolver},
    anonymous_rate_limit::RateLimits,
    commit_context::CommitContext,
    execution::{
        active_runs::ActiveRuns,
        engine::RunEngine,
        execution_reader::ExecutionReader,
        inline_run_slots::InlineRunSlots,
        large_runs::LargeRuns,
        plan::{ExecutionCache, RunPlans},
        script::ScriptSlots,
    },
    failure::RunRefusal,
    services::{CommonOperations, SharedState},
    workload::unknown_slug_refusal,
};
use fairway_domain::{
    access::{Caller, identity::IdentityStore, principal_binding::PrincipalBindingStore},
    execution::{
        ports::{RunStore, WorkloadWithDeployment},
        script::ScriptGateway,
    },
    id::RequestId,
    idempotency::{IdempotencyStore, RequestKey},
    release::ports::DeploymentStore,
    share_link::{ShareLinkStore, ShareTokenRefusal},
    tenant::TenantScope,
    workload::interface::AccessMode,
};
use std::sync::Arc;

/// The state on which one attempt to start a run is based.
pub(super) struct AttemptState {
    /// The principal under whose rights the run executes.
    pub(super) caller: Arc<Caller>,
    /// The service that submits the run on behalf of `caller`; `None` without delegation.
    pub(super) delegate: Option<Arc<Caller>>,
    pub(super) entry: Arc<WorkloadWithDeployment>,
    /// Whether `entry` was read from the store for this attempt instead of taken from the cache.
    pub(super) is_entry_read: bool,
    pub(super) is_fresh: bool,
}

/// Accepts and starts runs for requests.
pub struct Executions {
    pub(crate) context: CommitContext,
    pub(crate) active_runs: Arc<ActiveRuns>,
    pub(crate) code_gateway: Arc<dyn ScriptGateway>,
    pub(crate) large_runs: Arc<LargeRuns>,
    pub(crate) plans: Arc<ExecutionCache>,
    pub(crate) run_limit: Arc<InlineRunSlots>,
    pub(crate) scripts: Arc<ScriptSlots>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) run_store: Arc<dyn RunStore>,
    pub(crate) deployment_store: Arc<dyn DeploymentStore>,
    pub(crate) key_store: Arc<dyn IdempotencyStore>,
    pub(crate) principal_binding_store: Arc<dyn PrincipalBindingStore>,
    pub(crate) share_link_store: Arc<dyn ShareLinkStore>,
    pub(crate) scope_resolver: Arc<ScopeResolver>,
    pub(crate) identities: Arc<CallerResolver>,
    identity_store: Arc<dyn IdentityStore>,
    pub(crate) rate_limits: Arc<RateLimits>,
    pub(crate) execution_reader: Arc<ExecutionReader>,
    pub(crate) run_engine: Arc<RunEngine>,
    pub(crate) run_plans: Arc<RunPlans>,
}

impl Executions {
    pub(crate) fn new(
        stores: &Stores,
        shared: &SharedState,
        common: &CommonOperations,
        execution_reader: &Arc<ExecutionReader>,
        run_engine: &Arc<RunEngine>,
        run_plans: &Arc<RunPlans>,
    ) -> Self {
        Self {
            context: shared.context.clone(),
            active_runs: Arc::clone(&shared.active_runs),
            code_gateway: Arc::clone(&shared.code_gateway),
            large_runs: Arc::clone(&shared.large_runs),
            plans: Arc::clone(&shared.plans),
            run_limit: Arc::clone(&shared.run_limit),
            scripts: Arc::clone(&shared.scripts),
            settings: Arc::clone(&shared.settings),
            run_store: Arc::clone(&stores.runs),
            deployment_store: Arc::clone(&stores.deployments),
            key_store: Arc::clone(&stores.idempotency),
            principal_binding_store: Arc::clone(&stores.principal_bindings),
            share_link_store: Arc::clone(&stores.share_links),
            scope_resolver: Arc::clone(&common.scope_resolver),
            identities: Arc::clone(&common.identities),
            identity_store: Arc::clone(&stores.identities),
            rate_limits: Arc::clone(&common.rate_limits),
            execution_reader: Arc::clone(execution_reader),
            run_engine: Arc::clone(run_engine),
            run_plans: Arc::clone(run_plans),
        }
    }
}

impl Executions {
    /// Accepts a run of a workload, and waits for the event that `request.wait` names, at most for the wait budget.
    ///
    /// # Errors
    /// In these cases: the workload is not found, suspended or retired; the caller is not authorized; no active release
    /// serves the lane. For an accepted run, the method succeeds regardless of the run's outcome.
    pub async fn execute(
        &self,
        mode: IdentityMode,
        claims: &IdentityClaims,
        request_id: RequestId,
        request: &ExecuteRequest,
        key: Option<&RequestKey>,
    ) -> Result<ExecuteResponse, Failure> {
        if self.settings.dispatch.should_queue(request.wait.requested_dispatch()).is_none() {
            return Err(RunRefusal::AsyncUnavailable.into());
        }
        let (mut bypass_cache, mut is_counted) = (false, false);
        for _ in 0..MAX_DECISION_ATTEMPTS {
            // The accept statement verifies the rights of one caller only: the principal. The rights of a delegating
            // service are therefore read from the store for every request.
            let bypass_caller_cache = bypass_cache || request.on_behalf_of.is_some();
            let sender = self.caller_for_run(mode, claims, request_id, bypass_caller_cache).await?;
            let (caller, client) = match &request.on_behalf_of {
                None => (sender, None),
                Some(subject) => {
                    let groups = self.identity_store.groups_of(TenantScope::for_caller(&sender), subject).await?;
                    let subject = IdentityClaims { actor: subject.clone(), groups, tenant: Some(sender.tenant) };
                    let principal = self.caller_for_run(mode, &subject, request_id, bypass_cache).await;
                    let has_rights = match &principal {
                        Err(Failure::NotFound) => false,
                        Ok(subject) => !subject.rights.is_empty(),
                        Err(_) => true,
                    };
                    match principal {
                        principal if has_rights => (principal?, Some(sender)),
                        // The principal may have received its first role after the caller was cached.
                        _ if !bypass_cache => {
                            bypass_cache = true;
                            continue;
                        }
                        // A principal without rights in the tenant cannot be bound to a workload there.
                        _ => return Err(RunRefusal::PrincipalNotBound.into()),
                    }
                }
            };
            if client.as_ref().is_some_and(|client| client.access_revision != caller.access_revision) {
                bypass_cache = true;
                continue;
            }
            let (entry, is_entry_read) = match self.runtime_entry(&caller, request, bypass_cache).await {
                // The cached rights may come from a role or tenant that the caller has lost, so the next attempt reads
                // them.
                Err(failure) if !bypass_cache && may_be_stale(&failure) => {
                    bypass_cache = true;
                    continue;
                }
                Err(Failure::NotFound) => return Err(unknown_slug_refusal(request.link.as_ref())),
                found => found?,
            };
            if !is_counted {
                match self.rate_limits.count_workload_request(&caller, &entry.workload, request.address).await {
                    // The cached entry may be outdated: the workload may no longer be public, and rate limits apply
                    // only to public ones.
                    Err(Failure::Throttled(_))
                        if !bypass_cache && self.rate_limits.is_access_check_due(entry.workload.workload_id) =>
                    {
                        bypass_cache = true;
                        continue;
                    }
                    outcome => outcome?,
                }
                is_counted = entry.workload.effective_access_mode() == AccessMode::Public;
            }
            let attempt = AttemptState { caller, delegate: client, entry, is_entry_read, is_fresh: bypass_cache };
            match self.attempt_execute(&attempt, request, key).await {
                Ok(Some(result)) => return Ok(result),
                // A revision changed between the decision and the accept statement.
                Ok(None) => bypass_cache = true,
                // The refusal may result from outdated cached state, so the next attempt reads the state.
                Err(failure) if !attempt.is_fresh && may_be_stale(&failure) => bypass_cache = true,
                Err(failure) => return Err(failure),
            }
        }
        Err(Failure::Contended)
    }

    async fn caller_for_run(
        &self,
        mode: IdentityMode,
        claims: &IdentityClaims,
        request_id: RequestId,
        bypass_cache: bool,
    ) -> Result<Arc<Caller>, Failure> {
        if !bypass_cache && let Some(caller) = self.identities.cached_caller(claims) {
            return Ok(Arc::new(Caller { request_id, ..Caller::clone(&caller) }));
        }
        Ok(Arc::new(self.identities.resolve_caller(mode, claims, request_id).await?))
    }

    /// Returns the workload with its deployment, and whether it was read from the store. [`Self::attempt_execute`] adds
    /// it to the cache after it authorizes the caller.
    async fn runtime_entry(
        &self,
        caller: &Caller,
        request: &ExecuteRequest,
        bypass_cache: bool,
    ) -> Result<(Arc<WorkloadWithDeployment>, bool), Failure> {
        let key = request.workload_cache_key(caller);
        // A hidden workload is read again like an unknown slug, so that the response time does not reveal that it
        // exists.
        let is_visible = |entry: &WorkloadWithDeployment| {
            request.payload.authorize_workload_view(caller, request.link.as_ref(), &entry.workload).is_ok()
        };
        if !bypass_cache && let Some(entry) = self.plans.workloads_by_slug.get(&key).filter(|entry| is_visible(entry)) {
            return Ok((entry, false));
        }
        if bypass_cache {
            self.plans.workloads_by_slug.invalidate(&key);
        }
        let scope = TenantScope::for_caller(caller);
        let entry = self.run_store.find_workload_with_deployment(scope, &request.slug, &request.environment).await?;
        Ok((Arc::new(entry.ok_or(Failure::NotFound)?), true))
    }
}

/// Whether a refusal may result from outdated cache entries about rights, existence or activation. The caller then
/// tries again without the cache.
const fn may_be_stale(failure: &Failure) -> bool {
    matches!(
        failure,
        Failure::NotFound
            | Failure::Forbidden(_)
            | Failure::Anonymous(_)
            | Failure::Contended
            | Failure::InvalidInputs(_)
            | Failure::ShareToken(ShareTokenRefusal::Required | ShareTokenRefusal::Invalid)
            | Failure::Run(
                RunRefusal::Suspended
                    | RunRefusal::Retired
                    | RunRefusal::NoActiveRelease { .. }
                    | RunRefusal::NothingToRun
                    | RunRefusal::LanguageNotAllowed
                    | RunRefusal::SandboxUnavailable
                    | RunRefusal::PrincipalNotBound
            )
    )
}
