//! One attempt to start a run: access check, decision, admission and submission. If an earlier request with the same
//! idempotency key started a run, the response is that run instead of certain refusals.

use super::{
    engine::{CheckpointPolicy, Replay},
    execute::{AttemptState, Executions},
    execute_request::{ExecuteRequest, ExecuteResponse, WaitMode},
    inline_run_slots::Placement,
    large_runs::{REQUEST_WAIT, is_large},
    run::{ActiveRun, InlineRun},
    run_access,
    run_decision::{RunDecision, RunDecisionRefusal, RunDecisionRequest},
    run_payload::RunPayload,
    script::{RunWork, limits_of},
    submit::{Submission, SubmitOutcome},
};
use crate::{
    Failure,
    access::{Operation, authorize},
    blocking::permit_failure,
    failure::RunRefusal,
    workload::position_of,
};
use fairway_domain::{
    access::ActorRef,
    evidence::run_records::RunRecords,
    execution::{
        Acceptance, AdditionalAccess, AdmissionDecision, Execution, Payload, RunRef, dispatch::RequestContext,
    },
    id::ExecutionId,
    idempotency::{KeyState, RequestKey},
    memory::ConversationSessionId,
    policy,
    release::lane::Lane,
    share_link::ResultToken,
    tenant::TenantScope,
    workload::WorkloadStatus,
};
use serde_json::{Map, Value};
use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};
use uuid::Uuid;

/// Maximum number of serving environments that a refusal lists.
const MAX_LISTED_ENVIRONMENTS: u32 = 20;

/// One attempt to start a run, based on one read of the state.
#[derive(Clone, Copy)]
struct Attempt<'a> {
    state: &'a AttemptState,
    request: &'a ExecuteRequest,
    key: Option<&'a RequestKey>,
    scope: TenantScope,
}

/// Reason why an attempt starts no run.
enum NotStarted {
    /// A revision on which the decision is based has changed.
    Stale,
    /// Another request has used the idempotency key. The response is the run of that request, if it is found.
    Replayed(Option<Box<ExecuteResponse>>),
    /// The request is refused, even if an earlier request with the key was accepted.
    Refused(Failure),
    /// The request is refused, unless an earlier request with the key was accepted. In that case, the response is the
    /// run of the earlier request.
    RefusedUnlessReplayed(Failure),
}

impl From<Failure> for NotStarted {
    fn from(failure: Failure) -> Self {
        Self::Refused(failure)
    }
}

impl From<RunDecisionRefusal> for NotStarted {
    fn from(refusal: RunDecisionRefusal) -> Self {
        match refusal {
            RunDecisionRefusal::NoActiveRelease => {
                Self::RefusedUnlessReplayed(RunRefusal::NoActiveRelease { active_environments: None }.into())
            }
            RunDecisionRefusal::NothingToRun => Self::Refused(RunRefusal::NothingToRun.into()),
            RunDecisionRefusal::Stale => Self::Stale,
            RunDecisionRefusal::Failed(failure) => Self::Refused(failure),
        }
    }
}

impl Executions {
    /// Performs one attempt to decide on, accept and start a run. Returns `None` if a revision on which the decision is
    /// based changed.
    pub(super) async fn attempt_execute(
        &self,
        state: &AttemptState,
        request: &ExecuteRequest,
        key: Option<&RequestKey>,
    ) -> Result<Option<ExecuteResponse>, Failure> {
        let scope =
            request.payload.authorize_workload_view(&state.caller, request.link.as_ref(), &state.entry.workload)?;
        let attempt = Attempt { state, request, key, scope };
        match self.start(attempt).await {
            Ok(result) => Ok(Some(result)),
            Err(NotStarted::Stale) => Ok(None),
            Err(NotStarted::Replayed(replayed)) => Ok(replayed.map(|replayed| *replayed)),
            Err(NotStarted::Refused(failure)) => Err(failure),
            Err(NotStarted::RefusedUnlessReplayed(failure)) => match self.replayed_run(attempt).await? {
                Some(replayed) => Ok(Some(replayed)),
                None => Err(failure),
            },
        }
    }

    /// Starts a run: checks the access, decides on the run, admits it and submits it.
    async fn start(&self, attempt: Attempt<'_>) -> Result<ExecuteResponse, NotStarted> {
        let Attempt { state: AttemptState { caller, entry: workload, .. }, request, scope, .. } = attempt;
        let requested_lane = self.check_access(attempt).await?;
        let inputs = request.payload.inputs(&workload.workload).map_err(NotStarted::RefusedUnlessReplayed)?;
        let execution_id: ExecutionId = self.context.new_id();
        let run_decision = self.run_plans.decide_run(RunDecisionRequest {
            scope,
            caller,
            workload,
            environment: &request.environment,
            lane: requested_lane,
            inputs: &inputs,
            has_steps: request.payload.has_steps(),
        });
        let run_decision = match run_decision.await {
            Err(RunDecisionRefusal::NoActiveRelease) => {
                return Err(self.no_active_release(attempt, requested_lane).await);
            }
            run_decision => run_decision?,
        };
        let stored_inputs =
            Payload { body: Value::Object(Map::clone(&inputs)).to_string().into(), salt: self.context.ids.salt() };
        let input_digest = stored_inputs.digest();
        let run = RunRef {
            execution_id,
            workload_id: workload.workload.workload_id,
            workspace_id: workload.workload.workspace_id,
            release_id: run_decision.release_id,
            environment: &request.environment,
            input_digest,
        };
        let lease = self.context.ids.new_id();
        let (admission, inline) = self.admit(attempt, &run_decision, &run, lease).await?;
        let (acceptance, result_token) =
            self.acceptance(attempt, &run_decision, execution_id, requested_lane, stored_inputs, admission);
        let reservation = OnceLock::new();
        if inline.is_some() && is_large(&acceptance.inputs.body) {
            let reserved = self.large_runs.reserve(scope, REQUEST_WAIT).await.map_err(permit_failure)?;
            reservation.get_or_init(|| Arc::new(reserved));
        }
        let is_followed = request.wait == WaitMode::Acceptance;
        let run = ActiveRun {
            engine: Arc::clone(&self.run_engine),
            scope,
            plan: run_decision.plan,
            policy_attributes: run_decision.attributes,
            lease,
            decision: run_decision.decision,
            earlier_decisions: Vec::new(),
            acceptance,
            // The worker that claims a queued run reads the inputs from the store.
            inputs: if inline.is_some() { inputs.into_owned() } else { Map::new() },
            reservation,
            input_digest,
            time_left: self.settings.execution_deadline,
            checkpoint_policy: if is_followed { CheckpointPolicy::WithEvents } else { CheckpointPolicy::BeforeCalls },
            replay: Replay::default(),
            pending_start: None,
            is_detached: Arc::default(),
            cancelled_by: OnceLock::new(),
        };
        let key = attempt.key.cloned();
        let submission = Submission { run, inline, expected_revisions: run_decision.expected_revisions, key };
        let execution = self.await_outcome(attempt, submission.submit().await?).await?;
        let is_queued_only = request.wait == WaitMode::Queued;
        Ok(ExecuteResponse { execution, replayed: false, result_token, is_queued_only })
    }

    /// Returns the refusal of a run without an active release. If the caller may view the releases of the workload, the
    /// refusal lists the serving environments. They are read only for fresh state, because a refusal on cached state
    /// leads to another attempt.
    async fn no_active_release(&self, attempt: Attempt<'_>, lane: Lane) -> NotStarted {
        let Attempt { state: AttemptState { caller, entry, is_fresh, .. }, request, scope, .. } = attempt;
        let position = position_of(caller, &entry.workload);
        let is_allowed =
            request.link.is_none() && authorize::authorize(caller, Operation::ReadActiveRelease, &position).is_ok();
        let active_environments = if *is_fresh && is_allowed {
            let limit = MAX_LISTED_ENVIRONMENTS;
            let environments =
                self.deployment_store.environments_serving(scope, entry.workload.workload_id, lane, limit);
            match environments.await {
                Ok(environments) => Some(environments),
                Err(error) => return NotStarted::Refused(error.into()),
            }
        } else {
            None
        };
        NotStarted::RefusedUnlessReplayed(RunRefusal::NoActiveRelease { active_environments }.into())
    }

    /// Checks that the caller may currently start a run of the workload. Returns the lane that the run requests.
    async fn check_access(&self, attempt: Attempt<'_>) -> Result<Lane, NotStarted> {
        let Attempt { state: AttemptState { caller, entry, delegate, is_entry_read, .. }, request, .. } = attempt;
        let (workload, link) = (&entry.workload, request.link.as_ref());
        match workload.status {
            WorkloadStatus::Registered => {}
            WorkloadStatus::Suspended => return Err(NotStarted::RefusedUnlessReplayed(RunRefusal::Suspended.into())),
            WorkloadStatus::Retired => return Err(NotStarted::RefusedUnlessReplayed(RunRefusal::Retired.into())),
        }
        request.payload.authorize_run(caller, link, workload)?;
        if let Some(client) = delegate {
            self.authorize_delegation(client, caller, request.lane, workload).await?;
        }
        let lane = run_access::select_lane(caller, link, request.lane, workload)?;
        run_access::check_link_allows_start(link, workload)
            .map_err(|refusal| NotStarted::RefusedUnlessReplayed(refusal.into()))?;
        if *is_entry_read {
            self.plans.cache_workload(request.workload_cache_key(caller), entry);
        }
        Ok(lane)
    }

    /// Admits a run after the decision: stores a denial, queues the run, or acquires a run slot in this process.
    async fn admit(
        &self,
        attempt: Attempt<'_>,
        run_decision: &RunDecision,
        run: &RunRef<'_>,
        lease: Uuid,
    ) -> Result<(AdmissionDecision, Option<InlineRun>), NotStarted> {
        let Attempt { state, request, key, scope } = attempt;
        if run_decision.decision.outcome == policy::DecisionOutcome::Deny {
            let denied_fact = run.denied_fact(&run_decision.recorded, &self.context.stamp(&state.caller));
            let denied_fact =
                denied_fact.with_records_digest(&RunRecords::for_commit([&run_decision.recorded], &[], &[]));
            return Ok((AdmissionDecision::Deny(Box::new(denied_fact)), None));
        }
        let slot = match self.placement(scope, request).await.map_err(NotStarted::RefusedUnlessReplayed)? {
            Placement::Queue => return Ok((AdmissionDecision::Queue { limit: self.settings.queue_cap }, None)),
            Placement::Inline(slot) => slot,
        };
        let (lease_for, deadline_in) = (self.settings.lease, self.settings.execution_deadline);
        let (admission, work) = match &request.payload {
            RunPayload::Inputs(_) | RunPayload::Form(_) => {
                (AdmissionDecision::Run { lease, lease_for, deadline_in }, RunWork::Steps)
            }
            RunPayload::Script { script, .. } => {
                // If an earlier request with the same key was accepted, its run is the response and no script slot is
                // needed.
                if let Some(replayed) = self.replayed_run(attempt).await? {
                    return Err(NotStarted::Replayed(Some(Box::new(replayed))));
                }
                let work = limits_of(run_decision.plan.plan.sandbox.as_ref(), script)
                    .and_then(|limits| self.prepare_script(scope, script, limits, key))
                    .map_err(|refusal| NotStarted::RefusedUnlessReplayed(refusal.into()))?;
                let fact = Box::new(run.code_accepted_fact(script.language, &self.context.stamp(&state.caller)));
                (AdmissionDecision::Script { lease, lease_for, deadline_in, fact }, work)
            }
        };
        // The run is registered before the commit, because a wakeup before the registration would be lost.
        let active_guard = self.active_runs.register(scope, run.execution_id, lease);
        Ok((admission, Some(InlineRun { work, slot, active_guard })))
    }

    /// Returns the acceptance of an admitted run, and the result token for an anonymous submitter.
    fn acceptance(
        &self,
        attempt: Attempt<'_>,
        run_decision: &RunDecision,
        execution_id: ExecutionId,
        requested_lane: Lane,
        inputs: Payload,
        admission: AdmissionDecision,
    ) -> (Acceptance, Option<ResultToken>) {
        let Attempt { state: AttemptState { caller, entry: workload, delegate, .. }, request, .. } = attempt;
        let request_context = RequestContext {
            request_id: caller.request_id,
            groups: caller.groups.iter().map(ActorRef::to_string).collect(),
            lane: requested_lane.as_str().to_owned(),
            session: request.session.as_ref().map(ConversationSessionId::to_string),
        };
        let (guest_access, result_token) =
            run_access::guest_access(self.context.ids.as_ref(), caller, request.link.as_ref());
        let delegate = delegate.as_ref().map(|client| client.actor.clone());
        let acceptance = Acceptance {
            execution_id,
            workload_id: workload.workload.workload_id,
            workspace_id: workload.workload.workspace_id,
            release_id: run_decision.release_id,
            environment: request.environment.clone(),
            lane: run_decision.lane,
            submitter: caller.actor.clone(),
            snapshot: run_decision.plan.snapshot.digest,
            decision: run_decision.recorded.clone(),
            inputs,
            request_context,
            started_at: run_decision.recorded.evaluated_at,
            admission,
            delegated_access: AdditionalAccess { delegate, ..guest_access },
        };
        (acceptance, result_token)
    }

    /// Returns the execution after the event for which the caller waits.
    async fn await_outcome(&self, attempt: Attempt<'_>, outcome: SubmitOutcome) -> Result<Execution, NotStarted> {
        let Attempt { state, request, scope, .. } = attempt;
        Ok(match (outcome, request.wait) {
            (SubmitOutcome::Stale, _) => return Err(NotStarted::Stale),
            (SubmitOutcome::KeyTaken, _) => {
                return Err(NotStarted::Replayed(self.replayed_run(attempt).await?.map(Box::new)));
            }
            (SubmitOutcome::QueueFull, _) => {
                return Err(Failure::from(RunRefusal::QueueFull { limit: self.settings.queue_cap }).into());
            }
            (SubmitOutcome::LinkClosed, _) => {
                let link = request.link.as_ref();
                let link = link
                    .ok_or(Failure::Inconsistent("the accept statement refused a share link for a run without one"))?;
                let refusal = self.closed_link_refusal(scope, &state.entry.workload, link).await?;
                return Err(Failure::from(refusal).into());
            }
            (SubmitOutcome::Denied(denied), _) => denied,
            (SubmitOutcome::Queued(queued), WaitMode::Queued | WaitMode::Acceptance) => queued,
            (SubmitOutcome::Queued(queued), WaitMode::End(budget)) => {
                self.execution_reader.wait_for_end_of(scope, queued, self.wait_budget(budget)).await
            }
            (SubmitOutcome::Started(run), WaitMode::Queued | WaitMode::Acceptance) => run.accepted,
            (SubmitOutcome::Started(run), WaitMode::End(budget)) => run.wait(self.wait_budget(budget)).await,
        })
    }

    /// Returns the time for which a caller waits: the requested time, at most the limit of the installation.
    fn wait_budget(&self, requested: Option<Duration>) -> Duration {
        requested.map_or(self.settings.sync_wait, |requested| requested.min(self.settings.sync_wait))
    }

    /// Returns the run that an earlier request with this key started, without an output that the caller may not read
    /// now.
    async fn replayed_run(&self, attempt: Attempt<'_>) -> Result<Option<ExecuteResponse>, Failure> {
        let Attempt { state, request, key, scope } = attempt;
        let Some(key) = key else { return Ok(None) };
        match self.key_store.key_state(scope, key).await? {
            KeyState::Unknown => Ok(None),
            KeyState::DifferentBody => Err(Failure::KeyReused),
            KeyState::Completed(_) | KeyState::Reserved => {
                Err(Failure::Inconsistent("another route holds an idempotency key of execute"))
            }
            KeyState::InUse(id) => {
                let execution = self.execution_reader.run_of_key(scope, &state.caller, id.into()).await?;
                let is_queued_only = request.wait == WaitMode::Queued;
                match request.wait {
                    WaitMode::End(_) if execution.is_active() => Err(Failure::KeyInProgress),
                    WaitMode::End(_) | WaitMode::Acceptance | WaitMode::Queued => {
                        Ok(Some(ExecuteResponse { execution, replayed: true, result_token: None, is_queued_only }))
                    }
                }
            }
        }
    }
}
