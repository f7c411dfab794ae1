//! Execution of a workload by slug. Decisions use cached state, and the accept statement verifies its revisions.

use super::{
    engine::{CheckpointPolicy, MAX_DECISIONS, Replay},
    execute_request::{ExecuteRequest, ExecuteResult, WaitMode},
    large_runs::{REQUEST_WAIT, is_large},
    plan::CachedPlan,
    run::ActiveRun,
    run_access,
    run_limit::Placement,
    script::{RunPayload, RunWork, limits_of},
    submit::{Submission, SubmitOutcome},
};
use crate::{
    Failure, Settings, Stores,
    access::{Authorizer, Claims, Identities, IdentityMode},
    blocking::busy,
    context::OperationContext,
    execution::{
        active_runs::ActiveRuns,
        engine::RunEngine,
        evidence::ExecutionReader,
        large_runs::LargeRuns,
        plan::{PlanCache, RunPlans},
        run_limit::RunSlots,
        script::ScriptSlots,
    },
    failure::RunRefusal,
    rate_limit::RateLimits,
    services::{CommonOperations, SharedState},
    workload::{scope_of, unknown_slug},
};
use fairway_domain::{
    access::{ActorRef, Caller, principal_binding::PrincipalBindingStore},
    evidence::RecordedDecision,
    execution::{
        Acceptance, Admission, DelegatedAccess, Payload, RunRef,
        dispatch::RequestContext,
        plan::PolicyAttributes,
        ports::{AcceptOutcome, ExpectedRevisions, RunStore, WorkloadWithDeployment},
        script::ScriptGateway,
    },
    id::{DecisionId, ExecutionId, RequestId},
    idempotency::{IdempotencyStore, KeyState, RequestKey},
    memory::SessionId,
    policy,
    release::lane::Lane,
    share_link::{ShareLinkStore, TokenRefusal},
    slug::Slug,
    store::{StoreError, StoreFault},
    tenant::TenantScope,
    workload::{Status, interface::AccessMode},
};
use serde_json::{Map, Value};
use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};
use tokio::time::timeout;

/// Timeout of the lookup of a run whose accept statement got no response: the caller has already waited.
const LOOKUP_TIMEOUT: Duration = Duration::from_millis(100);

/// The state that an attempt is decided on.
struct RunContext {
    /// The principal of the run.
    caller: Arc<Caller>,
    /// The service that submits the run on behalf of the caller.
    delegate: Option<Arc<Caller>>,
    entry: Arc<WorkloadWithDeployment>,
    /// Whether `entry` was read for this attempt instead of cached.
    is_entry_read: bool,
    is_fresh: bool,
}

/// Accepts runs from requests and starts them.
pub struct Executions {
    pub(crate) context: OperationContext,
    pub(crate) active_runs: Arc<ActiveRuns>,
    pub(crate) code_gateway: Arc<dyn ScriptGateway>,
    pub(crate) large_runs: Arc<LargeRuns>,
    pub(crate) plans: Arc<PlanCache>,
    pub(crate) run_limit: Arc<RunSlots>,
    pub(crate) scripts: Arc<ScriptSlots>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) run_store: Arc<dyn RunStore>,
    pub(crate) key_store: Arc<dyn IdempotencyStore>,
    pub(crate) principal_binding_store: Arc<dyn PrincipalBindingStore>,
    pub(crate) share_link_store: Arc<dyn ShareLinkStore>,
    pub(crate) authorizer: Arc<Authorizer>,
    pub(crate) identities: Arc<Identities>,
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
            key_store: Arc::clone(&stores.idempotency),
            principal_binding_store: Arc::clone(&stores.principal_bindings),
            share_link_store: Arc::clone(&stores.share_links),
            authorizer: Arc::clone(&common.authorizer),
            identities: Arc::clone(&common.identities),
            rate_limits: Arc::clone(&common.rate_limits),
            execution_reader: Arc::clone(execution_reader),
            run_engine: Arc::clone(run_engine),
            run_plans: Arc::clone(run_plans),
        }
    }
}

impl Executions {
    /// Runs a workload and waits for its end, but not longer than the wait budget.
    ///
    /// # Errors
    /// When the workload is not found, not authorized, suspended, retired, or has no active release. An accepted run
    /// is a success of this function, whatever its outcome.
    pub async fn execute(
        &self,
        mode: IdentityMode,
        claims: &Claims,
        request_id: RequestId,
        request: &ExecuteRequest,
        key: Option<&RequestKey>,
    ) -> Result<ExecuteResult, Failure> {
        if self.settings.dispatch.should_queue(request.wait.dispatch_mode()).is_none() {
            return Err(RunRefusal::AsyncUnavailable.into());
        }
        let (mut fresh, mut counted) = (false, false);
        for _ in 0..MAX_DECISIONS {
            // The accept statement verifies the rights of one caller only, so a delegating service is read for every
            // request.
            let proved = fresh || request.on_behalf_of.is_some();
            let sender = self.caller_for_run(mode, claims, request_id, proved).await?;
            let (caller, client) = match &request.on_behalf_of {
                None => (sender, None),
                Some(subject) => {
                    let subject = Claims { actor: subject.clone(), groups: Vec::new(), tenant: Some(sender.tenant) };
                    match self.caller_for_run(mode, &subject, request_id, fresh).await {
                        // A principal without rights in the tenant is bound to no workload there.
                        Err(Failure::NotFound) => return Err(RunRefusal::PrincipalNotBound.into()),
                        subject => (subject?, Some(sender)),
                    }
                }
            };
            if client.as_ref().is_some_and(|client| client.access_revision != caller.access_revision) {
                fresh = true;
                continue;
            }
            let (entry, is_entry_read) = match self.runtime_entry(&caller, request, fresh).await {
                // The cached caller may name its former tenant.
                Err(failure) if !fresh && may_be_stale(&failure) => {
                    fresh = true;
                    continue;
                }
                Err(Failure::NotFound) => return Err(unknown_slug(request.link.as_ref())),
                found => found?,
            };
            if !counted {
                match self
                    .rate_limits
                    .count_workload_request(TenantScope::for_caller(&caller), &entry.workload, request.address)
                    .await
                {
                    // The cached workload may be outdated and no longer public.
                    Err(Failure::Throttled(_))
                        if !fresh && self.rate_limits.is_access_check_due(entry.workload.workload_id) =>
                    {
                        fresh = true;
                        continue;
                    }
                    visit => visit?,
                }
                counted = entry.workload.effective_access_mode() == AccessMode::Public;
            }
            let decided = RunContext { caller, delegate: client, entry, is_entry_read, is_fresh: fresh };
            match self.attempt_execute(&decided, request, key).await {
                Ok(Some(answer)) => return Ok(answer),
                // A revision changed between the decision and the accept.
                Ok(None) => fresh = true,
                // A refusal on cached state is decided again on fresh state.
                Err(failure) if !decided.is_fresh && may_be_stale(&failure) => fresh = true,
                Err(failure) => return Err(failure),
            }
        }
        Err(Failure::Contended)
    }

    async fn caller_for_run(
        &self,
        mode: IdentityMode,
        claims: &Claims,
        request_id: RequestId,
        fresh: bool,
    ) -> Result<Arc<Caller>, Failure> {
        if !fresh && let Some(caller) = self.identities.cached(claims) {
            return Ok(Arc::new(Caller { request_id, ..Caller::clone(&caller) }));
        }
        Ok(Arc::new(self.identities.identify(mode, claims, request_id).await?))
    }

    /// The workload with its deployment, and whether it was read now. [`Self::attempt_execute`] caches it, for authorized
    /// callers only.
    async fn runtime_entry(
        &self,
        caller: &Caller,
        request: &ExecuteRequest,
        fresh: bool,
    ) -> Result<(Arc<WorkloadWithDeployment>, bool), Failure> {
        let key = request.entry_key(caller);
        // A hidden workload costs the same read as an unknown slug, so that the response time reveals nothing.
        let sees = |entry: &WorkloadWithDeployment| {
            request.payload.authorize_view(caller, request.link.as_ref(), &entry.workload).is_ok()
        };
        if !fresh && let Some(entry) = self.plans.entries.get(&key).filter(|entry| sees(entry)) {
            return Ok((entry, false));
        }
        if fresh {
            self.plans.entries.invalidate(&key);
        }
        let scope = TenantScope::for_caller(caller);
        let entry = self.run_store.find_workload_with_deployment(scope, &request.slug, &request.environment).await?;
        Ok((Arc::new(entry.ok_or(Failure::NotFound)?), true))
    }

    /// Decides, accepts and runs once. `None` when a revision of the decision changed.
    async fn attempt_execute(
        &self,
        decided: &RunContext,
        request: &ExecuteRequest,
        key: Option<&RequestKey>,
    ) -> Result<Option<ExecuteResult>, Failure> {
        let RunContext { caller, entry, .. } = decided;
        let workload = &entry.workload;
        let pass = request.link.as_ref();
        let scope = request.payload.authorize_view(caller, pass, workload)?;
        match workload.status {
            Status::Registered => {}
            Status::Suspended => {
                return self.replay_or_refuse(scope, caller, request, key, RunRefusal::Suspended).await;
            }
            Status::Retired => return self.replay_or_refuse(scope, caller, request, key, RunRefusal::Retired).await,
        }
        request.payload.authorize_run(caller, pass, workload)?;
        if let Some(client) = &decided.delegate {
            self.authorize_delegation(client, caller, request.lane, workload).await?;
        }
        let wanted = run_access::select_lane(caller, pass, request.lane, workload)?;
        if let Err(refusal) = run_access::check_start(pass, workload) {
            return self.replay_or_refuse(scope, caller, request, key, refusal).await;
        }
        if decided.is_entry_read {
            self.plans.cache_entry(request.entry_key(caller), entry);
        }
        let inputs = match request.payload.inputs(workload) {
            Ok(inputs) => inputs,
            Err(failure) => return self.replay_or_refuse(scope, caller, request, key, failure).await,
        };
        let serving = entry.deployment.as_ref().and_then(|lanes| lanes.serving_release(wanted).zip(Some(lanes)));
        let Some(((lane, release_id), deployment)) = serving else {
            return self.replay_or_refuse(scope, caller, request, key, RunRefusal::NoActiveRelease).await;
        };
        let plan = match self.run_plans.plan(scope, workload, release_id, deployment.revision).await {
            Err(Failure::Contended) => return Ok(None),
            plan => plan?,
        };
        if matches!(request.payload, RunPayload::Inputs(_) | RunPayload::Form(_)) && !plan.plan.is_runnable() {
            return Err(RunRefusal::NothingToRun.into());
        }
        let facts = policy_attributes(caller, entry, &request.environment, lane);
        let decision = facts.decide(&plan.plan, &inputs, self.context.clock.now());
        let execution_id: ExecutionId = self.context.new_id();
        let started_at = self.context.clock.now();
        let recorded = RecordedDecision::from_decision(self.context.new_id::<DecisionId>(), &decision, started_at);
        let sent = Payload { body: Value::Object(Map::clone(&inputs)).to_string(), salt: self.context.ids.salt() };
        let input_digest = sent.digest();
        let run = RunRef {
            execution_id,
            workload_id: workload.workload_id,
            workspace_id: workload.workspace_id,
            release_id,
            environment: &request.environment,
            input_digest,
        };
        let lease = self.context.ids.new_id();
        let place = match self.placement(scope, &decision, request).await {
            Ok(place) => place,
            Err(failure) => return self.replay_or_refuse(scope, caller, request, key, failure).await,
        };
        let queues = matches!(place, Some(Placement::Queue));
        let (lease_for, deadline_in) = (self.settings.lease, self.settings.execution_deadline);
        let (admission, work) = match (decision.outcome, &request.payload) {
            (policy::Outcome::Deny, _) => {
                (Admission::Deny(Box::new(run.denied_fact(&recorded, &self.context.stamp(caller)))), RunWork::Steps)
            }
            (
                policy::Outcome::Allow | policy::Outcome::AllowWithObligations,
                RunPayload::Inputs(_) | RunPayload::Form(_),
            ) if queues => (Admission::Queue { limit: self.settings.queue_cap }, RunWork::Steps),
            (
                policy::Outcome::Allow | policy::Outcome::AllowWithObligations,
                RunPayload::Inputs(_) | RunPayload::Form(_),
            ) => (Admission::Run { lease, lease_for, deadline_in }, RunWork::Steps),
            (policy::Outcome::Allow | policy::Outcome::AllowWithObligations, RunPayload::Script { script, .. }) => {
                // A replay takes no script slot.
                if let Some(known) = self.replayed_run(scope, caller, request, key).await? {
                    return Ok(Some(known));
                }
                let limits = limits_of(plan.plan.sandbox.as_ref(), script);
                let work = match limits.and_then(|limits| self.prepare_script(scope, script, limits, key)) {
                    Ok(work) => work,
                    Err(refusal) => return self.replay_or_refuse(scope, caller, request, key, refusal).await,
                };
                let fact = Box::new(run.code_accepted_fact(script.language, &self.context.stamp(caller)));
                (Admission::Script { lease, lease_for, deadline_in, fact }, work)
            }
        };
        let sender = RequestContext {
            request_id: caller.request_id,
            groups: caller.groups.iter().map(ActorRef::to_string).collect(),
            lane: wanted.as_str().to_owned(),
            session: request.session.as_ref().map(SessionId::to_string),
        };
        let (guest, result_token) = run_access::guest_of(self.context.ids.as_ref(), caller, pass);
        let guest = DelegatedAccess { delegate: decided.delegate.as_ref().map(|client| client.actor.clone()), ..guest };
        let acceptance = Acceptance {
            execution_id,
            workload_id: workload.workload_id,
            workspace_id: workload.workspace_id,
            release_id,
            environment: request.environment.clone(),
            lane,
            submitter: caller.actor.clone(),
            snapshot: plan.snapshot.digest,
            decision: recorded,
            inputs: sent,
            request_context: sender,
            started_at,
            admission,
            delegated_access: guest,
        };
        let on = ExpectedRevisions {
            deployment: deployment.revision,
            workload: workload.revision,
            access: caller.access_revision,
        };
        // Registered before the commit: a wakeup in between would be lost.
        let at_work = acceptance.admission.is_inline().then(|| self.active_runs.register(scope, execution_id, lease));
        let followed = request.wait == WaitMode::Acceptance;
        let reservation = OnceLock::new();
        if acceptance.admission.is_inline() && is_large(&acceptance.inputs.body) {
            let reserved = self.large_runs.reserve(scope, REQUEST_WAIT).await.map_err(busy)?;
            reservation.get_or_init(|| Arc::new(reserved));
        }
        let running = ActiveRun {
            engine: Arc::clone(&self.run_engine),
            scope,
            plan: Arc::<CachedPlan>::clone(&plan),
            facts,
            lease,
            decision,
            acceptance,
            // A worker reads a queued run's inputs from the queue.
            inputs: if at_work.is_some() { inputs.into_owned() } else { Map::new() },
            reservation,
            slot: place.and_then(Placement::into_slot),
            input_digest,
            time_left: self.settings.execution_deadline,
            checkpoint_policy: if followed { CheckpointPolicy::WithEvents } else { CheckpointPolicy::BeforeCalls },
            replay: Replay::default(),
            pending_start: None,
            is_detached: Arc::default(),
            cancelled_by: OnceLock::new(),
        };
        let execution = match (
            Submission { run: running, work, active_guard: at_work, expected_revisions: on, key: key.cloned() }
                .submit()
                .await?,
            request.wait,
        ) {
            (SubmitOutcome::Stale, _) => return Ok(None),
            (SubmitOutcome::KeyTaken, _) => return self.replayed_run(scope, caller, request, key).await,
            (SubmitOutcome::QueueFull, _) => return Err(RunRefusal::QueueFull.into()),
            (SubmitOutcome::LinkClosed, _) => {
                let pass = pass
                    .ok_or(Failure::Inconsistent("the accept statement refused a share link for a run without one"))?;
                return Err(self.closed_link_refusal(scope, workload, pass).await?.into());
            }
            (SubmitOutcome::Denied(denied), _) => denied,
            (SubmitOutcome::Queued(queued), WaitMode::Queued | WaitMode::Acceptance) => queued,
            (SubmitOutcome::Queued(queued), WaitMode::End(budget)) => {
                self.execution_reader.wait_for_end_of(scope, queued, self.wait_budget(budget)).await
            }
            (SubmitOutcome::Started(run), WaitMode::Queued | WaitMode::Acceptance) => run.accepted,
            (SubmitOutcome::Started(run), WaitMode::End(budget)) => run.wait(self.wait_budget(budget)).await,
        };
        let in_line = request.wait == WaitMode::Queued;
        Ok(Some(ExecuteResult { execution, replayed: false, result_token, is_queued_only: in_line }))
    }

    /// How long a caller waits, at most the deployment's limit.
    fn wait_budget(&self, asked: Option<Duration>) -> Duration {
        asked.map_or(self.settings.sync_wait, |asked| asked.min(self.settings.sync_wait))
    }

    /// A refusal, unless an earlier request with the key was accepted: then that run is the response.
    async fn replay_or_refuse(
        &self,
        scope: TenantScope,
        caller: &Caller,
        request: &ExecuteRequest,
        key: Option<&RequestKey>,
        refusal: impl Into<Failure>,
    ) -> Result<Option<ExecuteResult>, Failure> {
        match self.replayed_run(scope, caller, request, key).await? {
            Some(answer) => Ok(Some(answer)),
            None => Err(refusal.into()),
        }
    }

    /// The run that an earlier request with this key started, as the caller may read it now.
    async fn replayed_run(
        &self,
        scope: TenantScope,
        caller: &Caller,
        request: &ExecuteRequest,
        key: Option<&RequestKey>,
    ) -> Result<Option<ExecuteResult>, Failure> {
        let Some(key) = key else { return Ok(None) };
        match self.key_store.key_state(scope, key).await? {
            KeyState::Unknown => Ok(None),
            KeyState::DifferentBody => Err(Failure::KeyReused),
            KeyState::Completed(_) | KeyState::Reserved => {
                Err(Failure::Inconsistent("another route holds an idempotency key of execute"))
            }
            KeyState::InUse(id) => {
                let execution = self.execution_reader.run_of_key(scope, caller, id.into()).await?;
                let in_line = request.wait == WaitMode::Queued;
                match request.wait {
                    WaitMode::End(_) if execution.is_active() => Err(Failure::KeyInProgress),
                    WaitMode::End(_) | WaitMode::Acceptance | WaitMode::Queued => Ok(Some(ExecuteResult {
                        execution,
                        replayed: true,
                        result_token: None,
                        is_queued_only: in_line,
                    })),
                }
            }
        }
    }
}

impl RunEngine {
    /// Determines whether a statement without a response accepted the run. An absent run may still be committed, so
    /// the refusal names its identifier.
    pub(super) async fn find_accepted(
        &self,
        scope: TenantScope,
        id: ExecutionId,
        error: StoreError,
    ) -> Result<AcceptOutcome, Failure> {
        match (timeout(LOOKUP_TIMEOUT, self.execution_store.find(scope, id)).await, error.fault) {
            (Ok(Ok(Some(_))), _) => Ok(AcceptOutcome::Accepted),
            (Ok(Ok(None)), StoreFault::Inconsistent) => Err(Failure::Store(error)),
            (Ok(Ok(None) | Err(_)) | Err(_), StoreFault::Unavailable | StoreFault::OutcomeUnknown)
            | (Ok(Err(_)) | Err(_), StoreFault::Inconsistent) => {
                tracing::warn!(
                    execution_id = %id,
                    error = &error as &dyn std::error::Error,
                    "no response to an accept; its outcome is unknown"
                );
                Err(RunRefusal::AcceptanceUnknown(id).into())
            }
        }
    }
}

/// Whether a refusal may result from outdated cache entries: rights, existence or activation.
const fn may_be_stale(failure: &Failure) -> bool {
    matches!(
        failure,
        Failure::NotFound
            | Failure::Forbidden(_)
            | Failure::Anonymous(_)
            | Failure::Contended
            | Failure::InvalidInputs(_)
            | Failure::ShareToken(TokenRefusal::Required | TokenRefusal::Invalid)
            | Failure::Run(
                RunRefusal::Suspended
                    | RunRefusal::Retired
                    | RunRefusal::NoActiveRelease
                    | RunRefusal::NothingToRun
                    | RunRefusal::LanguageNotAllowed
                    | RunRefusal::SandboxUnavailable
                    | RunRefusal::PrincipalNotBound
            )
    )
}

/// The attributes that the policy of a run evaluates.
pub(super) fn policy_attributes(
    caller: &Caller,
    entry: &WorkloadWithDeployment,
    environment: &Slug,
    lane: Lane,
) -> PolicyAttributes {
    let place = scope_of(caller, &entry.workload);
    PolicyAttributes {
        actor: caller.actor.to_string(),
        actor_kind: caller.actor.kind().as_str(),
        groups: caller.groups.iter().map(ActorRef::to_string).collect(),
        roles: caller.rights.roles_at(&place).iter().map(|role| role.as_str().to_owned()).collect(),
        workload_slug: entry.workload.slug.to_string(),
        owner_ref: entry.workload.owner_ref.to_string(),
        environment: environment.to_string(),
        lane,
    }
}
