//! The worker claims queued runs and runs with an expired lease, and executes them to their end.

mod lost_claims;
mod slots;

use super::{
    end_without_steps::{EndWithoutSteps, RunWithoutSteps},
    engine::{CheckpointPolicy, MAX_DECISION_ATTEMPTS, Replay},
    run::{ActiveRun, RunResult},
    run_decision::{RunDecision, RunDecisionRefusal, RunDecisionRequest, policy_attributes},
    script::RunWork,
};
use crate::{
    Failure, Settings, Stores,
    access::{CallerResolver, IdentityClaims},
    commit_context::CommitContext,
    execution::{
        active_runs::ActiveRuns,
        engine::RunEngine,
        large_runs::LargeRuns,
        plan::{ExecutionCache, RunPlans},
    },
    services::{CommonOperations, SharedState},
    wakeups::Wakeups,
};
use fairway_domain::{
    access::Caller,
    evidence::RecordedDecision,
    execution::{
        Acceptance, AdditionalAccess, AdmissionDecision, ExecutionOutcome, Payload, RunRef, Status,
        dispatch::{Claim, ClaimedRun, MAX_RECLAIMS, RequestContext},
        ports::{LeaseStore, RunStore, WorkloadWithDeployment},
        run::{Interruption, SMALL_RUN_BYTES},
    },
    id::TenantId,
    policy::{self, Obligation, PolicyDecision},
    share_link::ShareLinkStore,
    workload::ports::WorkloadStore,
};
use lost_claims::LostClaims;
use serde_json::{Map, Value};
use slots::{RunCounts, WorkerSlot};
use std::{
    sync::{Arc, OnceLock, PoisonError},
    time::Duration,
};
use tokio::{
    sync::{Notify, OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep_until, timeout},
};

/// Maximum number of concurrent runs of a worker. It is high because runs mostly wait for models.
const MAX_RUNS: u16 = 128;
/// Maximum number of concurrent runs of one tenant, so that slow runs of one tenant do not block others.
const MAX_RUNS_PER_TENANT: u16 = 64;
/// Maximum number of runs in one claim.
const CLAIM_LIMIT: u16 = 32;
/// Maximum number of one tenant's queued runs in one claim, and of all resumed runs in one claim.
const CLAIM_LIMIT_PER_TENANT: u16 = 16;
/// Number of active runs above which claims exclude a tenant. A claim may consist only of runs of one tenant, and they
/// must not exceed [`MAX_RUNS_PER_TENANT`].
const SATURATION: u16 = MAX_RUNS_PER_TENANT - CLAIM_LIMIT;
/// Minimum time between claims. Runs that are queued within this time share a claim and its statements.
const CLAIM_WINDOW: Duration = Duration::from_millis(6);
/// Interval between claims if no wakeup arrives.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Delay after the second and each further failure of a claim in succession.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Claims runs and executes them until the process shuts down. Active runs then continue until their leases are
/// released. Several processes may run this task concurrently.
pub async fn run_worker(worker: Arc<RunWorker>) {
    let slots = Arc::new(Semaphore::new(usize::from(MAX_RUNS)));
    let counts: RunCounts = Arc::default();
    let mut last_tenant: Option<TenantId> = None;
    let (mut lost_claims, mut failures) = (LostClaims::default(), 0_u32);
    loop {
        let free_slots = u16::try_from(slots.available_permits()).unwrap_or(MAX_RUNS);
        if free_slots == 0 {
            // No slot is free, so this waits until a run ends.
            drop(slots.acquire().await);
            continue;
        }
        let Some(claim_guard) = worker.active_runs.begin_claim() else { return };
        let claim = worker.new_claim(free_slots, &mut lost_claims, last_tenant, &counts);
        let claimed = match worker.lease_store.claim(&claim).await {
            Ok(claimed) => claimed,
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    lease_token = %claim.lease,
                    "failed to claim queued runs; the next claim takes over runs that this claim may have leased"
                );
                drop(claim_guard);
                lost_claims.add(claim.lease, claim.lease_for);
                failures = failures.saturating_add(1);
                // After the first failure, the next claim starts at once, because it may get another connection. The
                // pooled connection of the failed claim may have been broken.
                if failures > 1 {
                    tokio::time::sleep(RETRY_DELAY).await;
                }
                continue;
            }
        };
        failures = 0;
        let next_claim_at = Instant::now() + CLAIM_WINDOW;
        // Tenants take turns across claims. The next claim therefore continues after the last tenant of this claim.
        let last_run = claimed.iter().filter(|run| run.round_position > 0).max_by_key(|run| run.round_position);
        last_tenant = last_run.map(|run| run.scope.tenant()).or(last_tenant);
        let is_empty = claimed.is_empty();
        for run in claimed {
            let Ok(permit) = Arc::clone(&slots).acquire_owned().await else { return };
            spawn_claimed(&worker, run, &counts, permit);
        }
        drop(claim_guard);
        if is_empty {
            let _woken = timeout(POLL_INTERVAL, worker.wakeups.wait_for_work()).await;
        } else {
            sleep_until(next_claim_at).await;
        }
    }
}

/// Executes a claimed run in a separate task that occupies a slot.
fn spawn_claimed(worker: &Arc<RunWorker>, run: ClaimedRun, counts: &RunCounts, permit: OwnedSemaphorePermit) {
    let tenant = run.scope.tenant();
    *counts.lock().unwrap_or_else(PoisonError::into_inner).entry(tenant).or_default() += 1;
    let slot = WorkerSlot { counts: Arc::clone(counts), tenant, _permit: permit };
    let active_guard = worker.active_runs.register(run.scope, run.execution.execution_id, run.lease);
    let worker = Arc::clone(worker);
    tokio::spawn(async move {
        worker.process_claimed(run, &active_guard.recheck).await;
        drop((active_guard, slot));
    });
}

fn saturated_tenants(counts: &RunCounts) -> Vec<TenantId> {
    let counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
    counts.iter().filter(|(_, count)| **count > SATURATION).map(|(tenant, _)| *tenant).collect()
}

/// The next action for a claimed run.
enum NextAction {
    Run(Box<ActiveRun>),
    End(EndWithoutSteps),
    Retry,
}

/// Claims queued and expired runs, and executes them in the slots of this worker.
pub struct RunWorker {
    pub(super) context: CommitContext,
    pub(super) active_runs: Arc<ActiveRuns>,
    pub(super) large_runs: Arc<LargeRuns>,
    pub(super) plans: Arc<ExecutionCache>,
    pub(super) settings: Arc<Settings>,
    pub(super) wakeups: Arc<Wakeups>,
    pub(super) run_store: Arc<dyn RunStore>,
    pub(super) lease_store: Arc<dyn LeaseStore>,
    pub(super) share_link_store: Arc<dyn ShareLinkStore>,
    pub(super) workload_store: Arc<dyn WorkloadStore>,
    pub(super) identities: Arc<CallerResolver>,
    pub(super) run_engine: Arc<RunEngine>,
    pub(super) run_plans: Arc<RunPlans>,
}

impl RunWorker {
    /// Creates a claim for at most as many runs as slots are free.
    fn new_claim(&self, free_slots: u16, lost: &mut LostClaims, after: Option<TenantId>, counts: &RunCounts) -> Claim {
        let large_claims = self.large_runs.allowed_claims();
        let mut saturated = saturated_tenants(counts);
        saturated.extend(large_claims.saturated);
        Claim {
            lease: self.context.ids.new_id(),
            lost_leases: lost.tokens(),
            lease_for: self.settings.lease,
            deadline_after: self.settings.execution_deadline,
            limit: free_slots.min(CLAIM_LIMIT),
            per_tenant_limit: CLAIM_LIMIT_PER_TENANT,
            after_tenant: after,
            saturated,
            max_input_bytes: SMALL_RUN_BYTES,
            takes_large: large_claims.is_allowed,
            no_large_tenants: large_claims.excluded,
        }
    }

    pub(crate) fn new(
        stores: &Stores,
        shared: &SharedState,
        common: &CommonOperations,
        run_engine: &Arc<RunEngine>,
        run_plans: &Arc<RunPlans>,
    ) -> Self {
        Self {
            context: shared.context.clone(),
            active_runs: Arc::clone(&shared.active_runs),
            large_runs: Arc::clone(&shared.large_runs),
            plans: Arc::clone(&shared.plans),
            settings: Arc::clone(&shared.settings),
            wakeups: shared.wakeups.subscriptions(),
            run_store: Arc::clone(&stores.runs),
            lease_store: Arc::clone(&stores.leases),
            share_link_store: Arc::clone(&stores.share_links),
            workload_store: Arc::clone(&stores.workloads),
            identities: Arc::clone(&common.identities),
            run_engine: Arc::clone(run_engine),
            run_plans: Arc::clone(run_plans),
        }
    }
}

impl RunWorker {
    /// Executes a claimed run, or ends it. If this fails, the lease of the run expires and another worker retries.
    async fn process_claimed(&self, claimed: ClaimedRun, recheck: &Notify) {
        let (tenant_id, execution_id) = (claimed.scope.tenant(), claimed.execution.execution_id);
        if let Err(error) = self.try_process_claimed(claimed, recheck).await {
            let error: &dyn std::error::Error = &error;
            tracing::warn!(%tenant_id, %execution_id, error, "failed to process a claimed run; another worker retries");
        }
    }

    async fn try_process_claimed(&self, mut claimed: ClaimedRun, recheck: &Notify) -> Result<(), Failure> {
        if claimed.execution.status == Status::Queued && claimed.cancelled_by.is_some() {
            // The cancellation was already confirmed to its requester, so the run must not start.
            return self.end_run(&claimed, EndWithoutSteps::cancelled("cancelled", "the run was cancelled")).await;
        }
        if claimed.reclaims > MAX_RECLAIMS {
            let message = "the workers of the run failed repeatedly";
            return self.end_run(&claimed, EndWithoutSteps::failed("interrupted", message)).await;
        }
        let reservation = match self.reserve_claimed(&mut claimed, recheck).await {
            Ok(reservation) => reservation,
            Err(Interruption::LeaseLost) => return Ok(()),
            Err(interruption) => return self.end_run(&claimed, EndWithoutSteps::interrupted(interruption)).await,
        };
        let inputs_and_context = self.read_inputs(&mut claimed).await?.zip(claimed.request_context.clone());
        let Some((inputs, request_context)) = inputs_and_context else {
            let message = "the inputs of the run are no longer stored";
            return self.end_run(&claimed, EndWithoutSteps::failed("interrupted", message)).await;
        };
        for attempt in 0..MAX_DECISION_ATTEMPTS {
            let action = match claimed.execution.status {
                Status::Running => self.resume(&claimed, &inputs, &request_context).await?,
                Status::Queued => self.prepare_start(&claimed, &inputs, &request_context, attempt > 0).await?,
                Status::AwaitingReview
                | Status::Completed
                | Status::Failed
                | Status::Denied
                | Status::Cancelled
                | Status::Unknown => return Err(Failure::Inconsistent("an ended run has a lease")),
            };
            match action {
                NextAction::End(end) => return self.end_run(&claimed, end).await,
                NextAction::Retry => {}
                NextAction::Run(active_run) => {
                    match active_run.with_reservation(reservation.clone()).run(RunWork::Steps, recheck).await {
                        RunResult::Ended(_) | RunResult::LeaseLost => return Ok(()),
                        RunResult::Stale => {}
                    }
                }
            }
        }
        Err(Failure::Contended)
    }

    /// Resumes a run that another worker started. The run continues with its original release.
    async fn resume(
        &self,
        claimed: &ClaimedRun,
        inputs: &Payload,
        request_context: &RequestContext,
    ) -> Result<NextAction, Failure> {
        let run = &claimed.execution;
        let stored = self.workload_store.find(claimed.scope, run.workload_id).await?;
        let workload = stored.ok_or(Failure::Inconsistent("the workload of a run is missing"))?;
        if let Some(end) = EndWithoutSteps::for_workload_status(workload.status) {
            return Ok(NextAction::End(end));
        }
        let entry = WorkloadWithDeployment { workload, deployment: None };
        let caller = self.submitter_of(claimed, request_context, true).await?;
        let plan =
            self.run_plans.plan_of_started(claimed.scope, &entry.workload, run.release_id, claimed.snapshot).await?;
        let decision = combined_decision(&claimed.decisions).ok_or(Failure::Inconsistent("a run has no decision"))?;
        let policy_attributes = policy_attributes(&caller, &entry, &run.environment, run.lane);
        let first = claimed.decisions.first().cloned().ok_or(Failure::Inconsistent("a run has no decision"))?;
        let acceptance = self.current_acceptance(claimed, inputs, request_context, run.release_id, run.lane, first);
        Ok(NextAction::Run(Box::new(ActiveRun {
            engine: Arc::clone(&self.run_engine),
            scope: claimed.scope,
            plan,
            policy_attributes,
            lease: claimed.lease,
            decision,
            earlier_decisions: claimed.decisions.iter().skip(1).cloned().collect(),
            acceptance: Acceptance { snapshot: claimed.snapshot, ..acceptance },
            inputs: parse_object(inputs)?,
            input_digest: claimed.input_digest,
            time_left: claimed.time_left,
            checkpoint_policy: CheckpointPolicy::WithEvents,
            reservation: OnceLock::new(),
            replay: Replay::of(claimed.progress.clone()),
            pending_start: None,
            is_detached: Arc::default(),
            cancelled_by: cancel_requester(claimed),
        })))
    }

    /// Prepares a queued run for execution with the release that now serves its lane. The policy is evaluated again,
    /// and may deny the run.
    async fn prepare_start(
        &self,
        claimed: &ClaimedRun,
        inputs: &Payload,
        request_context: &RequestContext,
        bypass_cache: bool,
    ) -> Result<NextAction, Failure> {
        let (scope, run) = (claimed.scope, &claimed.execution);
        let entry = self.runtime_entry_of(claimed, bypass_cache).await?;
        if let Some(end) = EndWithoutSteps::for_workload_status(entry.workload.status) {
            return Ok(NextAction::End(end));
        }
        if claimed.share_link.is_some() && self.share_link_store.is_run_revoked(scope, run.execution_id).await? {
            return Ok(NextAction::End(EndWithoutSteps::denied("share_token_revoked", "the share link was revoked")));
        }
        let caller = self.submitter_of(claimed, request_context, bypass_cache).await?;
        let parsed_inputs = parse_object(inputs)?;
        let run_decision = self.run_plans.decide_run(RunDecisionRequest {
            scope,
            caller: &caller,
            workload: &entry,
            environment: &run.environment,
            lane: request_context.requested_lane(),
            inputs: &parsed_inputs,
            has_steps: true,
        });
        let run_decision = match run_decision.await {
            Ok(run_decision) => run_decision,
            Err(RunDecisionRefusal::Stale) => return Ok(NextAction::Retry),
            Err(RunDecisionRefusal::NoActiveRelease) if !bypass_cache => return Ok(NextAction::Retry),
            Err(RunDecisionRefusal::NoActiveRelease) => {
                return Ok(NextAction::End(EndWithoutSteps::failed("no_active_release", "no release is active")));
            }
            Err(RunDecisionRefusal::NothingToRun) => {
                let message = "the release binds neither a flow nor a prompt with a model policy";
                return Ok(NextAction::End(EndWithoutSteps::failed("nothing_to_run", message)));
            }
            Err(RunDecisionRefusal::Failed(failure)) => return Err(failure),
        };
        if run_decision.decision.outcome == policy::DecisionOutcome::Deny {
            // The denial may result from outdated cached state, so the decision is repeated on fresh state.
            if !bypass_cache {
                return Ok(NextAction::Retry);
            }
            let denial = EndWithoutSteps::denied("policy_denied", "the policy no longer allows this run");
            return Ok(NextAction::End(EndWithoutSteps { decision: Some(run_decision.recorded), ..denial }));
        }
        let accepted = combined_decision(&claimed.decisions).ok_or(Failure::Inconsistent("a run has no decision"))?;
        let RunDecision { lane, release_id, plan, attributes, decision, recorded, expected_revisions } = run_decision;
        let acceptance = self.current_acceptance(claimed, inputs, request_context, release_id, lane, recorded);
        Ok(NextAction::Run(Box::new(ActiveRun {
            engine: Arc::clone(&self.run_engine),
            scope,
            policy_attributes: attributes,
            lease: claimed.lease,
            decision: policy::stricter_decision(accepted, decision),
            earlier_decisions: claimed.decisions.clone(),
            acceptance: Acceptance { snapshot: plan.snapshot.digest, ..acceptance },
            plan,
            inputs: parsed_inputs,
            input_digest: claimed.input_digest,
            time_left: claimed.time_left,
            checkpoint_policy: CheckpointPolicy::WithEvents,
            reservation: OnceLock::new(),
            replay: Replay::default(),
            pending_start: Some((expected_revisions, claimed.share_link)),
            is_detached: Arc::default(),
            cancelled_by: cancel_requester(claimed),
        })))
    }

    /// Returns the submitter of the run with its current rights.
    async fn submitter_of(
        &self,
        claimed: &ClaimedRun,
        request_context: &RequestContext,
        bypass_cache: bool,
    ) -> Result<Caller, Failure> {
        let claims = IdentityClaims {
            actor: claimed.execution.submitter.clone(),
            groups: request_context.group_actors(),
            tenant: Some(claimed.scope.tenant()),
        };
        self.identities.submitter(self.settings.identity, &claims, request_context.request_id, bypass_cache).await
    }

    async fn runtime_entry_of(
        &self,
        claimed: &ClaimedRun,
        bypass_cache: bool,
    ) -> Result<Arc<WorkloadWithDeployment>, Failure> {
        let (scope, run) = (claimed.scope, &claimed.execution);
        let key = (scope.tenant(), run.workload_id, run.environment.clone());
        if !bypass_cache && let Some(entry) = self.plans.workloads_by_id.get(&key) {
            return Ok(entry);
        }
        let workload = self.workload_store.find(scope, run.workload_id).await?;
        let slug = workload.ok_or(Failure::Inconsistent("the workload of a run is missing"))?.into_record().slug;
        let entry = self.run_store.find_workload_with_deployment(scope, &slug, &run.environment).await?;
        let entry = Arc::new(entry.ok_or(Failure::Inconsistent("the workload of a run is missing"))?);
        if entry.deployment.is_some() {
            self.plans.workloads_by_id.insert(key, Arc::clone(&entry));
        }
        Ok(entry)
    }

    /// Returns the acceptance of a claimed run with this release, lane and decision.
    fn current_acceptance(
        &self,
        claimed: &ClaimedRun,
        inputs: &Payload,
        request_context: &RequestContext,
        release_id: fairway_domain::id::ReleaseId,
        lane: fairway_domain::release::lane::Lane,
        decision: RecordedDecision,
    ) -> Acceptance {
        let run = &claimed.execution;
        Acceptance {
            execution_id: run.execution_id,
            workload_id: run.workload_id,
            workspace_id: run.workspace_id,
            release_id,
            environment: run.environment.clone(),
            lane,
            submitter: run.submitter.clone(),
            snapshot: claimed.snapshot,
            decision,
            inputs: inputs.clone(),
            request_context: request_context.clone(),
            delegated_access: AdditionalAccess { delegate: run.delegate.clone(), ..AdditionalAccess::default() },
            started_at: run.started_at,
            admission: AdmissionDecision::Run {
                lease: claimed.lease,
                lease_for: self.settings.lease,
                deadline_in: self.settings.execution_deadline,
            },
        }
    }

    /// Ends a run that executed no step, or whose steps cannot be resumed.
    async fn end_run(&self, claimed: &ClaimedRun, end: EndWithoutSteps) -> Result<(), Failure> {
        let run = &claimed.execution;
        let run_ref = RunRef {
            execution_id: run.execution_id,
            workload_id: run.workload_id,
            workspace_id: run.workspace_id,
            release_id: run.release_id,
            environment: &run.environment,
            input_digest: claimed.input_digest,
        };
        let obligations = claimed.decisions.iter().flat_map(|decision| &decision.obligations);
        let must_notify_owner = obligations.into_iter().any(|name| name == Obligation::NotifyOwner.as_str());
        let actor = match (end.outcome, &claimed.cancelled_by) {
            (ExecutionOutcome::Cancelled, Some(actor)) => actor.clone(),
            (_, Some(_) | None) => run.submitter.clone(),
        };
        let request_id =
            claimed.request_context.as_ref().map_or_else(|| self.context.new_id(), |context| context.request_id);
        let target = RunWithoutSteps {
            scope: claimed.scope,
            run: run_ref,
            lease: claimed.lease,
            workload_slug: None,
            started_at: run.started_at,
            decisions: claimed.decisions.iter().map(Into::into).collect(),
            must_notify_owner,
        };
        self.run_engine.end_without_steps(target, end, actor, request_id).await
    }
}

/// Returns a cell with the principal that requested the run's cancellation; the cell is empty without such a request.
fn cancel_requester(claimed: &ClaimedRun) -> OnceLock<fairway_domain::access::ActorRef> {
    claimed.cancelled_by.clone().map_or_else(OnceLock::new, OnceLock::from)
}

fn parse_object(inputs: &Payload) -> Result<Map<String, Value>, Failure> {
    serde_json::from_str(&inputs.body).map_err(|_| Failure::Inconsistent("the inputs of a run are not a JSON object"))
}

/// Returns the combined decision of a run: the strictest of its recorded decisions.
fn combined_decision(decisions: &[RecordedDecision]) -> Option<PolicyDecision> {
    let to_decision = |recorded: &RecordedDecision| PolicyDecision {
        outcome: recorded.outcome,
        reason_code: recorded.reason_code.clone(),
        obligations: recorded.obligations.iter().filter_map(|name| Obligation::parse(name)).collect(),
        matched_rules: recorded.rules.clone(),
        failed_rules: recorded.failed_rules.clone(),
    };
    decisions.iter().map(to_decision).reduce(policy::stricter_decision)
}
