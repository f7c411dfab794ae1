//! Execution of one run under its lease: its task, the lease renewal, its deadline, and the commit of its end.

use super::{
    active_runs::ActiveGuard,
    engine::{CheckpointPolicy, MAX_RETRY_DELAY, MIN_RETRY_DELAY, ProgressRecorder, Replay, run_to_end},
    inline_run_slots::InlineRunSlot,
    large_runs::Reservation,
    plan::CachedPlan,
    retrieval::{RetrievalContext, principals_of},
    script::RunWork,
};
use crate::{
    blocking::{ProcessorWait, run_blocking},
    execution::engine::RunEngine,
};
use fairway_domain::{
    access::ActorRef,
    audit::Stamp,
    evidence::{RecordedDecision, run_records::RunRecords},
    execution::{
        Acceptance, Execution, ExecutionOutcome, FinishRecord, Payload, RunRef, Status,
        dispatch::{LeaseRef, QueuedStart, StartOutcome},
        plan::RunPolicyAttributes,
        ports::ExpectedRevisions,
        progress::ProgressRecord,
        run::{FinishedRun, Interruption, Run, RunEnd, RunInput},
        run_metrics_observer::ObservedWorkload,
        usage::ModelUsage,
    },
    id::ShareLinkId,
    memory::{ConversationKey, Writeback},
    policy::{Obligation, PolicyDecision},
    store::CommitError,
    tenant::TenantScope,
    time::Timestamp,
    wakeup::Wakeup,
};
use serde_json::{Map, Value};
use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{sync::Notify, task::JoinHandle};
use tracing::Instrument as _;
use uuid::Uuid;

/// Maximum number of bytes that a serving thread processes itself, in some milliseconds. The blocking pool takes more.
pub(super) const MAX_INLINE_BYTES: usize = 16 << 10;

/// A run under a lease.
pub(super) struct ActiveRun {
    pub(super) engine: Arc<RunEngine>,
    pub(super) scope: TenantScope,
    pub(super) plan: Arc<CachedPlan>,
    pub(super) policy_attributes: RunPolicyAttributes,
    pub(super) lease: Uuid,
    pub(super) decision: PolicyDecision,
    /// The stored decisions that precede `decision`, such as that of the acceptance.
    pub(super) earlier_decisions: Vec<RecordedDecision>,
    pub(super) acceptance: Acceptance,
    pub(super) inputs: Map<String, Value>,
    pub(super) input_digest: [u8; 32],
    /// Remaining time until the run's deadline.
    pub(super) time_left: Duration,
    pub(super) checkpoint_policy: CheckpointPolicy,
    /// The memory reservation of a run with large inputs or values, until its end is stored.
    pub(super) reservation: OnceLock<Arc<Reservation>>,
    /// The stored progress of earlier workers, which the run replays.
    pub(super) replay: Replay,
    /// The revisions to verify at the start, and the share link of the run; `None` if the run has already started.
    pub(super) pending_start: Option<(ExpectedRevisions, Option<ShareLinkId>)>,
    /// Whether the caller no longer waits for the end. A detached caller may read the run's events from any process, so
    /// they must be stored.
    pub(super) is_detached: Arc<AtomicBool>,
    /// The principal that requested the cancellation of the run.
    pub(super) cancelled_by: OnceLock<ActorRef>,
}

/// Parts of a run that the accepting process executes itself.
pub(super) struct InlineRun {
    pub(super) work: RunWork,
    /// The run slot that the run occupies in this process.
    pub(super) slot: InlineRunSlot,
    /// The registration as an active run of this process.
    pub(super) active_guard: ActiveGuard,
}

/// A handle to a run that this process executes.
pub(super) struct RunHandle {
    /// The run as it was accepted, for a caller that stops waiting.
    pub(super) accepted: Execution,
    is_detached: Arc<AtomicBool>,
    task: JoinHandle<RunResult>,
}

impl RunHandle {
    /// Waits for the end of the run within the wait budget. After the budget, returns the run as it was accepted; the
    /// run continues.
    pub(super) async fn wait(self, budget: Duration) -> Execution {
        let outcome = tokio::time::timeout(budget, self.task).await;
        self.is_detached.store(true, Ordering::Relaxed);
        match outcome {
            Ok(Ok(RunResult::Ended(execution))) => *execution,
            Ok(Ok(RunResult::LeaseLost | RunResult::Stale) | Err(_)) | Err(_) => {
                Execution { status: Status::Queued, ..self.accepted }
            }
        }
    }
}

/// The result of executing a run in this process.
pub(super) enum RunResult {
    /// The run ended, and its end is stored.
    Ended(Box<Execution>),
    /// The lease was lost, or the end could not be stored. The caller must not receive this end.
    LeaseLost,
    /// An expected revision changed before the start, so the run did not start.
    Stale,
}

/// Reason why this process did not end a run.
enum EndFailure {
    Stale,
    LeaseLost,
}

impl ActiveRun {
    /// Executes the run in a separate task, so that it continues if the client disconnects.
    pub(super) fn spawn(self, inline: InlineRun) -> RunHandle {
        let InlineRun { work, slot, active_guard } = inline;
        let (accepted, is_detached) =
            (accepted_execution(&self.acceptance, Status::Running, None), Arc::clone(&self.is_detached));
        let run_future = async move {
            let result = self.run(work, &active_guard.recheck).await;
            drop((slot, active_guard));
            result
        };
        RunHandle { accepted, is_detached, task: tokio::spawn(run_future.in_current_span()) }
    }

    /// Sets the memory reservation of the run.
    pub(super) fn with_reservation(mut self, reservation: Option<Arc<Reservation>>) -> Self {
        self.reservation = reservation.map_or_else(OnceLock::new, OnceLock::from);
        self
    }

    /// Executes the run and stores its end.
    pub(super) async fn run(mut self, work: RunWork, recheck: &Notify) -> RunResult {
        match self.run_work(work, recheck).await {
            Ok((run_outcome, last_record, writeback)) => {
                // The inputs may be large and are no longer needed, so this frees their memory.
                (self.inputs, self.acceptance.inputs.body) = (Map::new(), "".into());
                let finished_at = self.engine.context.clock.now();
                let finish_record = FinishRecord { writeback, ..self.build_end(run_outcome, last_record, finished_at) };
                if self.store_end(&finish_record).await {
                    self.observe_end(&finish_record);
                    RunResult::Ended(Box::new(self.ended_execution(finish_record)))
                } else {
                    RunResult::LeaseLost
                }
            }
            Err(EndFailure::Stale) => RunResult::Stale,
            Err(EndFailure::LeaseLost) => RunResult::LeaseLost,
        }
    }

    fn recorder(&self) -> ProgressRecorder<'_> {
        ProgressRecorder::new(&self.engine, self.scope, self.lease_ref(), self.checkpoint_policy, self.replay.clone())
            .with_reservation(&self.reservation)
    }

    const fn lease_ref(&self) -> LeaseRef {
        LeaseRef { execution_id: self.acceptance.execution_id, lease: self.lease }
    }

    async fn run_work(
        &self,
        work: RunWork,
        recheck: &Notify,
    ) -> Result<(RunEnd, Option<ProgressRecord>, Option<Writeback>), EndFailure> {
        match work {
            RunWork::Steps => self.run_steps(recheck).await,
            RunWork::Script(ready) => {
                let finished_run = self.run_script(ready, recheck).await;
                let run_outcome = self.fulfil(finished_run, recheck).await;
                let mut recorder = self.recorder();
                let last_record = add_review_event(&mut recorder, None, &run_outcome);
                Ok((run_outcome, last_record, None))
            }
        }
    }

    async fn run_steps(
        &self,
        recheck: &Notify,
    ) -> Result<(RunEnd, Option<ProgressRecord>, Option<Writeback>), EndFailure> {
        let engine = &self.engine;
        let acceptance = &self.acceptance;
        let run_input = RunInput {
            execution_id: acceptance.execution_id,
            plan: &self.plan.plan,
            policy_attributes: &self.policy_attributes,
            inputs: &self.inputs,
            stored_inputs: &acceptance.inputs,
            input_digest: self.input_digest,
        };
        let mut run = Run::new(run_input, self.decision.clone(), engine.context.moment());
        let conversation = self.conversation();
        if conversation.is_some() {
            run = run.with_conversation();
        }
        if self.checkpoint_policy == CheckpointPolicy::WithEvents {
            run = run.with_events();
        }
        if self.reservation.get().is_some() {
            run = run.with_reservation();
        }
        let mut recorder = self.recorder();
        // The first steps have no external effect. If the stored start fails, their results can be discarded.
        let first_effect = run.start();
        if let Some((expected_revisions, share_link)) = self.pending_start {
            let progress = recorder.next_record(run.take_events());
            let acceptance = self.acceptance.without_inputs();
            self.start(QueuedStart { acceptance, expected_revisions, lease: self.lease, progress, share_link }).await?;
        }
        let reader = RetrievalContext {
            scope: self.scope,
            execution_id: acceptance.execution_id,
            plan: &self.plan.plan,
            workspace: acceptance.workspace_id,
            release: acceptance.release_id,
            environment: &acceptance.environment,
            conversation,
            sender: (acceptance.submitter.clone(), acceptance.request_context.request_id),
            principals: principals_of(&self.policy_attributes),
        };
        let interruption = if self.cancelled_by.get().is_some() {
            Some(Interruption::Cancelled)
        } else {
            let driver = run_to_end(&mut run, first_effect, &mut recorder, &reader);
            tokio::select! {
                outcome = tokio::time::timeout(self.time_left, driver) => {
                    outcome.unwrap_or(Err(Interruption::DeadlineExceeded)).err()
                }
                interruption = self.renew_lease(recheck) => Some(interruption),
            }
        };
        let mut finished_run = run.end_before_obligations(engine.context.moment(), interruption);
        if finished_run.fulfilment_bytes() > MAX_INLINE_BYTES && recorder.store_pending_answer().await.is_err() {
            return Err(EndFailure::LeaseLost);
        }
        let last_record = recorder.last_record(std::mem::take(&mut finished_run.events));
        let mut run_outcome = self.fulfil(finished_run, recheck).await;
        let last_record = add_review_event(&mut recorder, last_record, &run_outcome);
        let writeback = engine.prepare_writeback(&mut run_outcome, acceptance.execution_id, &reader).await;
        Ok((run_outcome, last_record, writeback))
    }

    /// Returns the conversation of the run; `None` without a session, or for a submitter without an identity.
    fn conversation(&self) -> Option<ConversationKey> {
        let Acceptance { workload_id, submitter, request_context, .. } = &self.acceptance;
        ConversationKey::for_caller(*workload_id, submitter, request_context.session_id()?)
    }

    async fn start(&self, start: QueuedStart) -> Result<(), EndFailure> {
        match self.engine.run_store.start(self.scope, &start).await {
            Ok(StartOutcome::Started) => {
                self.engine.wakeup_sender.publish(Wakeup::RunProgress(self.acceptance.execution_id));
                Ok(())
            }
            Ok(StartOutcome::Stale) => Err(EndFailure::Stale),
            // The statement may have been committed despite the error, so this worker must not execute the run.
            Err(error) => {
                tracing::warn!(
                    tenant_id = %self.scope.tenant(),
                    execution_id = %self.acceptance.execution_id,
                    error = &error as &dyn std::error::Error,
                    "failed to start a run; a worker resumes it when its lease expires"
                );
                Err(EndFailure::LeaseLost)
            }
        }
    }

    /// Fulfils the run's obligations, such as masking its output. Long work runs on the blocking pool, with lease
    /// renewal. If the work fails or the lease is lost, the run has no output.
    async fn fulfil(&self, finished_run: FinishedRun, recheck: &Notify) -> RunEnd {
        let engine = &self.engine;
        if finished_run.fulfilment_bytes() <= MAX_INLINE_BYTES {
            return finished_run.fulfil(engine.context.moment(), &engine.settings.redactor);
        }
        let unfulfilled = finished_run.without_fulfilment();
        let (context, redactor) = (engine.context.clone(), Arc::clone(&engine.settings.redactor));
        let fulfil = move || finished_run.fulfil(context.moment(), &redactor);
        let work = run_blocking(self.scope, ProcessorWait::Run, fulfil);
        tokio::select! {
            fulfilled = work => fulfilled.unwrap_or(unfulfilled),
            _ = self.renew_lease(recheck) => unfulfilled,
        }
    }

    /// Renews the lease after each third of its duration and on each `recheck`. Returns only when the run must stop.
    pub(super) async fn renew_lease(&self, recheck: &Notify) -> Interruption {
        self.engine.renew_lease(self.scope, self.lease_ref(), recheck, &self.cancelled_by).await
    }

    fn build_end(&self, ended: RunEnd, progress: Option<ProgressRecord>, finished_at: Timestamp) -> FinishRecord {
        let output = ended.output.map(|(output, metadata)| Payload {
            // The output may be large, so it is moved instead of copied.
            body: Value::from_iter([("output", output), ("metadata", Value::Object(metadata))]).to_string().into(),
            salt: self.engine.context.ids.salt(),
        });
        let acceptance = &self.acceptance;
        let run = RunRef {
            execution_id: acceptance.execution_id,
            workload_id: acceptance.workload_id,
            workspace_id: acceptance.workspace_id,
            release_id: acceptance.release_id,
            environment: &acceptance.environment,
            input_digest: self.input_digest,
        };
        let actor = match ended.outcome {
            ExecutionOutcome::Cancelled => self.cancelled_by.get().unwrap_or(&acceptance.submitter),
            ExecutionOutcome::Success
            | ExecutionOutcome::Failure
            | ExecutionOutcome::Denied
            | ExecutionOutcome::Timeout
            | ExecutionOutcome::Unknown => &acceptance.submitter,
        };
        let stamp = Stamp {
            fact_id: self.engine.context.new_id(),
            at: finished_at,
            actor: actor.clone(),
            request_id: acceptance.request_context.request_id,
        };
        let awaits_review = ended.status == Status::AwaitingReview;
        let mut fact = match (ended.outcome, ended.decisions.last()) {
            (ExecutionOutcome::Denied, Some(decision)) => run.denied_fact(decision, &stamp),
            _ if awaits_review => run.review_requested_fact(output.as_ref(), &stamp),
            (outcome, _) => {
                let code = ended.error.as_ref().map(|error| error.code.as_str());
                run.ended_fact(outcome, code, output.as_ref(), &stamp)
            }
        };
        let decisions = self.earlier_decisions.iter().chain([&acceptance.decision]).chain(&ended.decisions);
        fact = fact.with_records_digest(&RunRecords::for_commit(decisions, &ended.artifacts, &ended.lineage));
        if ended.fulfilled.iter().any(|(obligation, _)| *obligation == Obligation::NotifyOwner) {
            fact = fact.notifying_owner(&self.policy_attributes.owner_ref);
        }
        FinishRecord {
            execution_id: acceptance.execution_id,
            lease: self.lease,
            status: ended.status,
            outcome: ended.outcome,
            review_timeout: awaits_review.then_some(self.engine.settings.review_deadline),
            error: ended.error,
            output,
            steps: ended.steps,
            decisions: ended.decisions,
            artifacts: ended.artifacts,
            lineage: ended.lineage,
            fulfilled: ended.fulfilled,
            progress,
            writeback: None,
            finished_at,
            fact,
        }
    }

    /// Stores the end of the run. Retries for at most the duration of a lease.
    async fn store_end(&self, finish_record: &FinishRecord) -> bool {
        let run_store = &self.engine.run_store;
        let deadline = tokio::time::Instant::now() + self.engine.settings.lease;
        let (mut pause, mut attempt) = (MIN_RETRY_DELAY, 0_u32);
        loop {
            attempt = attempt.saturating_add(1);
            match run_store.finish(self.scope, finish_record).await {
                Ok(()) => {
                    self.engine.context.notify_fact(&finish_record.fact);
                    let wakeup = Wakeup::RunEnded(finish_record.execution_id);
                    if self.checkpoint_policy == CheckpointPolicy::WithEvents
                        || self.is_detached.load(Ordering::Relaxed)
                    {
                        self.engine.wakeup_sender.publish(wakeup);
                    } else {
                        self.engine.wakeup_sender.deliver(wakeup);
                    }
                    return true;
                }
                // The lease no longer exists: an earlier attempt was committed, or another process ended the run.
                Err(CommitError::Stale) => return self.is_stored(finish_record).await,
                Err(CommitError::Store(error)) if tokio::time::Instant::now() + pause < deadline => {
                    tracing::warn!(
                        tenant_id = %self.scope.tenant(),
                        execution_id = %finish_record.execution_id,
                        attempt,
                        error = &error as &dyn std::error::Error,
                        "failed to store the end of a run; retrying with backoff"
                    );
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(MAX_RETRY_DELAY);
                }
                Err(error) => {
                    tracing::error!(
                        tenant_id = %self.scope.tenant(),
                        execution_id = %finish_record.execution_id,
                        attempt,
                        error = &error as &dyn std::error::Error,
                        "failed to store the end of a run; after the lease expires, a worker resumes the run or \
                         recovery ends it"
                    );
                    return false;
                }
            }
        }
    }

    fn observe_end(&self, finish_record: &FinishRecord) {
        let run_metrics_observer = &self.engine.run_metrics_observer;
        let workload = ObservedWorkload {
            id: self.acceptance.workload_id,
            slug: Some(self.policy_attributes.workload_slug.as_str()),
        };
        run_metrics_observer.models_called(workload, ModelUsage::of_artifacts(&finish_record.artifacts));
        // A run whose answer awaits a review has not ended yet.
        if finish_record.review_timeout.is_none() {
            let duration = self.acceptance.started_at.duration_until(finish_record.finished_at);
            run_metrics_observer.run_ended(workload, finish_record.status, duration);
        }
    }

    async fn is_stored(&self, finish_record: &FinishRecord) -> bool {
        let stored = self.engine.execution_store.find(self.scope, finish_record.execution_id).await;
        stored.is_ok_and(|stored| {
            stored.is_some_and(|stored| match finish_record.review_timeout {
                Some(_) => stored.status == Status::AwaitingReview,
                None => stored.finished_at == Some(finish_record.finished_at),
            })
        })
    }

    fn ended_execution(&self, finish_record: FinishRecord) -> Execution {
        if finish_record.review_timeout.is_some() {
            // The answer is withheld from the caller until the review.
            return accepted_execution(&self.acceptance, finish_record.status, None);
        }
        let mut execution = accepted_execution(
            &self.acceptance,
            finish_record.status,
            Some((finish_record.outcome, finish_record.finished_at)),
        );
        if let (ExecutionOutcome::Denied, Some(decision)) = (finish_record.outcome, finish_record.decisions.last()) {
            execution.reason_code.clone_from(&decision.reason_code);
        }
        execution.error = finish_record.error;
        execution.output = finish_record.output.map(|output| output.body);
        execution
    }
}

/// Returns the last progress record of a run; if the answer awaits a review, the record ends with the review event.
fn add_review_event(
    recorder: &mut ProgressRecorder<'_>,
    last_record: Option<ProgressRecord>,
    run_outcome: &RunEnd,
) -> Option<ProgressRecord> {
    if run_outcome.status == Status::AwaitingReview {
        Some(recorder.review_record(last_record, &run_outcome.steps))
    } else {
        last_record
    }
}

/// Returns the execution of an accepted run with the given status.
pub(super) fn accepted_execution(
    acceptance: &Acceptance,
    status: Status,
    end: Option<(ExecutionOutcome, Timestamp)>,
) -> Execution {
    Execution {
        execution_id: acceptance.execution_id,
        workload_id: acceptance.workload_id,
        workspace_id: acceptance.workspace_id,
        release_id: acceptance.release_id,
        environment: acceptance.environment.clone(),
        lane: acceptance.lane,
        submitter: acceptance.submitter.clone(),
        delegate: acceptance.delegated_access.delegate.clone(),
        status,
        outcome: end.map(|(outcome, _)| outcome),
        error: None,
        output: None,
        reason_code: acceptance.decision.reason_code.clone(),
        started_at: acceptance.started_at,
        finished_at: end.map(|(_, at)| at),
    }
}
