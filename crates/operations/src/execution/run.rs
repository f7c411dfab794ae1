//! One active run from acceptance to its end: its task, lease renewal and deadline, and the commit of its end.

use super::{
    code::Work,
    documents::Reader,
    engine::{Came, FIRST_PAUSE, ProgressRecorder, CheckpointPolicy, LONGEST_PAUSE, run_to_end},
    large_runs::Reservation,
    live::ActiveGuard,
    plan::CachedPlan,
    run_limit::RunSlot,
};
use crate::{
    Services,
    aside::{WorkDeadline, aside},
};
use fairway_domain::{
    access::ActorRef,
    audit::Stamp,
    execution::{
        Acceptance, Ending, Execution, Outcome, Payload, RunRef, Status,
        dispatch::{Held, Start, Started},
        plan::RunFacts,
        ports::{AcceptedOn, LeaseState},
        progress::Progress,
        run::{Closed, Cut, Ended, Outside, Run, Subject},
    },
    id::ShareLinkId,
    memory::{MemoryPlace, Writeback},
    policy::{Obligation, PolicyDecision},
    signal::Wakeup,
    store::CommitError,
    tenant::TenantScope,
    time::Timestamp,
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

/// Maximum bytes that a serving thread processes itself: some milliseconds of work.
pub(super) const MAX_INLINE_BYTES: usize = 16 << 10;

/// A run under a lease.
pub(super) struct Running {
    pub(super) services: Services,
    pub(super) scope: TenantScope,
    pub(super) plan: Arc<CachedPlan>,
    pub(super) facts: RunFacts,
    pub(super) lease: Uuid,
    pub(super) decision: PolicyDecision,
    pub(super) acceptance: Acceptance,
    pub(super) inputs: Map<String, Value>,
    pub(super) input_digest: [u8; 32],
    /// The time until the run's deadline.
    pub(super) time_left: Duration,
    pub(super) keeping: CheckpointPolicy,
    /// The memory reservation of a run with large inputs or values, until its end is stored.
    pub(super) reservation: OnceLock<Arc<Reservation>>,
    /// The run slot of a request's run; a worker counts its claimed runs itself.
    #[expect(dead_code, reason = "released with the run")]
    pub(super) place: Option<RunSlot>,
    /// The progress of earlier workers, to be replayed.
    pub(super) came: Came,
    /// The revisions to verify at the start, for a run that has not started.
    pub(super) to_start: Option<(AcceptedOn, Option<ShareLinkId>)>,
    /// Whether the caller stopped waiting before the end, and may follow the run on any process.
    pub(super) left: Arc<AtomicBool>,
    /// The principal that requested the cancellation.
    pub(super) cancelled_by: OnceLock<ActorRef>,
}

/// A handle on a run of this process.
pub(super) struct UnderWay {
    /// The run as accepted.
    pub(super) accepted: Execution,
    left: Arc<AtomicBool>,
    running: JoinHandle<Ran>,
}

impl UnderWay {
    /// Waits for the end within the wait budget. After it, returns the run as accepted while the run continues.
    pub(super) async fn end(self, budget: Duration) -> Execution {
        let in_time = tokio::time::timeout(budget, self.running).await;
        self.left.store(true, Ordering::Relaxed);
        match in_time {
            Ok(Ok(Ran::Ended(execution))) => *execution,
            Ok(Ok(Ran::Lost | Ran::Moved) | Err(_)) | Err(_) => Execution { status: Status::Queued, ..self.accepted },
        }
    }
}

/// The result of executing a run.
pub(super) enum Ran {
    /// The run ended, and its end is stored.
    Ended(Box<Execution>),
    /// The lease was lost or the end could not be stored: no end may be reported.
    Lost,
    /// The start found a changed revision.
    Moved,
}

/// Reason why a run has no end.
enum NoEnd {
    Moved,
    Lost,
}

impl Running {
    /// Executes the run in a task of its own, so that it survives a client's disconnect.
    pub(super) fn begin(self, work: Work, at_work: ActiveGuard) -> UnderWay {
        let (accepted, left) = (accepted_execution(&self.acceptance, Status::Running, None), Arc::clone(&self.left));
        let running = async move {
            let ran = self.run(work, &at_work.look).await;
            drop(at_work);
            ran
        };
        UnderWay { accepted, left, running: tokio::spawn(running.in_current_span()) }
    }

    /// The same run with a memory reservation.
    pub(super) fn reserved(mut self, reservation: Option<Arc<Reservation>>) -> Self {
        self.reservation = reservation.map_or_else(OnceLock::new, OnceLock::from);
        self
    }

    /// Executes the run to its end and stores it.
    pub(super) async fn run(mut self, work: Work, look: &Notify) -> Ran {
        match self.to_end(work, look).await {
            Ok((ended, last, remembered)) => {
                // The inputs may be large and are no longer needed.
                (self.inputs, self.acceptance.inputs.body) = (Map::new(), String::new());
                let finished_at = self.services.clock.now();
                let ending = Ending { memory: remembered, ..self.ending(ended, last, finished_at) };
                if self.store(&ending).await { Ran::Ended(Box::new(self.ended_execution(ending))) } else { Ran::Lost }
            }
            Err(NoEnd::Moved) => Ran::Moved,
            Err(NoEnd::Lost) => Ran::Lost,
        }
    }

    fn keeper(&self) -> ProgressRecorder<'_> {
        let held = (self.scope, self.held());
        ProgressRecorder::new(&self.services, held, self.keeping, self.came.clone()).with_reservation(&self.reservation)
    }

    const fn held(&self) -> Held {
        Held { execution_id: self.acceptance.execution_id, lease: self.lease }
    }

    async fn to_end(&self, work: Work, look: &Notify) -> Result<(Ended, Option<Progress>, Option<Writeback>), NoEnd> {
        match work {
            Work::Steps => self.steps(look).await,
            Work::Script(ready) => {
                let closed = self.script(ready, look).await;
                let ended = self.fulfil(closed, look).await;
                let mut recorder = self.keeper();
                let last = with_review_event(&mut recorder, None, &ended);
                Ok((ended, last, None))
            }
        }
    }

    async fn steps(&self, look: &Notify) -> Result<(Ended, Option<Progress>, Option<Writeback>), NoEnd> {
        let services = &self.services;
        let outside = Outside {
            clock: services.clock.as_ref(),
            ids: services.ids.as_ref(),
            redactor: &services.settings.redactor,
        };
        let accepted = &self.acceptance;
        let subject = Subject {
            execution_id: accepted.execution_id,
            plan: &self.plan.plan,
            facts: &self.facts,
            given: &self.inputs,
            sent: &accepted.inputs,
            sent_digest: self.input_digest,
        };
        let mut run = Run::new(subject, self.decision.clone(), outside);
        let conversation = self.conversation();
        if conversation.is_some() {
            run = run.with_conversation();
        }
        if self.keeping == CheckpointPolicy::Telling {
            run = run.telling();
        }
        if self.reservation.get().is_some() {
            run = run.with_reservation();
        }
        let mut recorder = self.keeper();
        // The first steps have no external effects, so they can be discarded if the start fails.
        let turn = run.start();
        if let Some((on, share_link)) = self.to_start {
            let progress = recorder.piece(run.take_events());
            let acceptance = self.acceptance.without_inputs();
            self.start(Start { acceptance, on, lease: self.lease, progress, share_link }).await?;
        }
        let place = (self.scope, accepted.workspace_id);
        let under = (accepted.release_id, &accepted.environment);
        let sender = (accepted.submitter.clone(), accepted.sender.request_id);
        let reader = Reader::new(place, under, &self.plan.plan, (&self.facts, conversation), sender);
        let cut = if self.cancelled_by.get().is_some() {
            Some(Cut::Cancelled)
        } else {
            let drive = run_to_end(&mut run, turn, &mut recorder, &reader);
            tokio::select! {
                in_time = tokio::time::timeout(self.time_left, drive) => in_time.unwrap_or(Some(Cut::Overdue)),
                cut = self.renew_lease(look) => Some(cut),
            }
        };
        let mut closed = run.close(cut);
        if closed.work() > MAX_INLINE_BYTES && recorder.store_pending_answer().await.is_err() {
            return Err(NoEnd::Lost);
        }
        let last = recorder.last_record(std::mem::take(&mut closed.events));
        let mut ended = self.fulfil(closed, look).await;
        let last = with_review_event(&mut recorder, last, &ended);
        let remembered = services.write_back(&mut ended, accepted.execution_id, &reader).await;
        Ok((ended, last, remembered))
    }

    /// The conversation of the run, if the submitter has an identity.
    fn conversation(&self) -> Option<MemoryPlace> {
        let Acceptance { workload_id, submitter, sender, .. } = &self.acceptance;
        MemoryPlace::of(*workload_id, submitter, sender.session()?)
    }

    async fn start(&self, start: Start) -> Result<(), NoEnd> {
        match self.services.stores.executions.start(self.scope, &start).await {
            Ok(Started::Yes) => {
                self.services.signal(Wakeup::Progress(self.acceptance.execution_id));
                Ok(())
            }
            Ok(Started::Moved) => Err(NoEnd::Moved),
            // If the start was committed, the lease expires and another worker resumes the run.
            Err(error) => {
                tracing::warn!(
                    execution_id = %self.acceptance.execution_id,
                    error = &error as &dyn std::error::Error,
                    "failed to start a run; another worker resumes it"
                );
                Err(NoEnd::Lost)
            }
        }
    }

    /// Fulfils the run's obligations. Long work runs on the blocking pool, under the lease. If it fails or the lease
    /// is lost, the run has no output.
    async fn fulfil(&self, closed: Closed, look: &Notify) -> Ended {
        let services = &self.services;
        if closed.work() <= MAX_INLINE_BYTES {
            let outside = Outside {
                clock: services.clock.as_ref(),
                ids: services.ids.as_ref(),
                redactor: &services.settings.redactor,
            };
            return closed.fulfil(outside);
        }
        let unfulfilled = closed.unfulfilled();
        let (clock, ids) = (Arc::clone(&services.clock), Arc::clone(&services.ids));
        let redactor = Arc::clone(&services.settings.redactor);
        let fulfil = move || closed.fulfil(Outside { clock: clock.as_ref(), ids: ids.as_ref(), redactor: &redactor });
        let work = aside((self.scope, WorkDeadline::Run), fulfil);
        tokio::select! {
            done = work => done.unwrap_or(unfulfilled),
            _ = self.renew_lease(look) => unfulfilled,
        }
    }

    /// Renews the lease every third of its duration, and on every wakeup. Returns only when the run has to stop.
    pub(super) async fn renew_lease(&self, look: &Notify) -> Cut {
        self.services.renew_lease((self.scope, self.held()), look, &self.cancelled_by).await
    }

    fn ending(&self, ended: Ended, progress: Option<Progress>, finished_at: Timestamp) -> Ending {
        let output = ended.output.map(|(output, metadata)| Payload {
            // Moved instead of copied: the output may be large.
            body: Value::from_iter([("output", output), ("metadata", Value::Object(metadata))]).to_string(),
            salt: self.services.ids.salt(),
        });
        let accepted = &self.acceptance;
        let run = RunRef {
            execution_id: accepted.execution_id,
            workload_id: accepted.workload_id,
            workspace_id: accepted.workspace_id,
            release_id: accepted.release_id,
            environment: &accepted.environment,
            input_digest: self.input_digest,
        };
        let actor = match ended.outcome {
            Outcome::Cancelled => self.cancelled_by.get().unwrap_or(&accepted.submitter),
            Outcome::Success | Outcome::Failure | Outcome::Denied | Outcome::Timeout | Outcome::Unknown => {
                &accepted.submitter
            }
        };
        let stamp = Stamp {
            fact_id: self.services.id(),
            at: finished_at,
            actor: actor.clone(),
            request_id: accepted.sender.request_id,
        };
        let awaits_review = ended.status == Status::AwaitingReview;
        let mut fact = match (ended.outcome, ended.decisions.last()) {
            (Outcome::Denied, Some(decision)) => run.denied(decision, &stamp),
            _ if awaits_review => run.review_requested_fact(output.as_ref(), &stamp),
            (outcome, _) => {
                let code = ended.error.as_ref().map(|error| error.code.as_str());
                run.ended(outcome, code, output.as_ref(), &stamp)
            }
        };
        if ended.fulfilled.iter().any(|(obligation, _)| *obligation == Obligation::NotifyOwner) {
            fact = fact.notifying(&self.facts.owner_ref);
        }
        Ending {
            execution_id: accepted.execution_id,
            lease: self.lease,
            status: ended.status,
            outcome: ended.outcome,
            review_within: awaits_review.then_some(self.services.settings.review_deadline),
            error: ended.error,
            output,
            steps: ended.steps,
            decisions: ended.decisions,
            artifacts: ended.artifacts,
            lineage: ended.lineage,
            fulfilled: ended.fulfilled,
            progress,
            memory: None,
            finished_at,
            fact,
        }
    }

    /// Stores the end, with retries for the duration of a lease.
    async fn store(&self, ending: &Ending) -> bool {
        let stores = &self.services.stores.executions;
        let until = tokio::time::Instant::now() + self.services.settings.lease;
        let mut pause = FIRST_PAUSE;
        loop {
            match stores.finish(self.scope, ending).await {
                Ok(()) => {
                    self.services.wake.facts();
                    let end = Wakeup::Ended(ending.execution_id);
                    if self.keeping == CheckpointPolicy::Telling || self.left.load(Ordering::Relaxed) {
                        self.services.signal(end);
                    } else {
                        self.services.deliver_wakeup(end);
                    }
                    return true;
                }
                // A missing lease means that an earlier attempt was committed, or that another process ended the
                // run.
                Err(CommitError::Stale) => return self.is_stored(ending).await,
                Err(CommitError::Store(error)) if tokio::time::Instant::now() + pause < until => {
                    tracing::warn!(
                        execution_id = %ending.execution_id,
                        error = &error as &dyn std::error::Error,
                        "failed to store the end of a run; retrying"
                    );
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                Err(error) => {
                    tracing::error!(
                        execution_id = %ending.execution_id,
                        error = &error as &dyn std::error::Error,
                        "failed to store the end of a run; leaving it to recovery"
                    );
                    return false;
                }
            }
        }
    }

    async fn is_stored(&self, ending: &Ending) -> bool {
        let found = self.services.stores.executions.find(self.scope, ending.execution_id).await;
        found.is_ok_and(|found| {
            found.is_some_and(|found| match ending.review_within {
                Some(_) => found.status == Status::AwaitingReview,
                None => found.finished_at == Some(ending.finished_at),
            })
        })
    }

    fn ended_execution(&self, ending: Ending) -> Execution {
        if ending.review_within.is_some() {
            // The answer is withheld until its review.
            return accepted_execution(&self.acceptance, ending.status, None);
        }
        let mut execution = accepted_execution(&self.acceptance, ending.status, Some((ending.outcome, ending.finished_at)));
        if let (Outcome::Denied, Some(decision)) = (ending.outcome, ending.decisions.last()) {
            execution.reason_code.clone_from(&decision.reason_code);
        }
        execution.error = ending.error;
        execution.output = ending.output.map(|output| output.body);
        execution
    }
}

impl Services {
    /// Renews the lease of a run every third of its duration, and whenever `look` is notified. Returns only when the
    /// run has to stop.
    pub(super) async fn renew_lease(
        &self,
        (scope, held): (TenantScope, Held),
        look: &Notify,
        cancelled_by: &OnceLock<ActorRef>,
    ) -> Cut {
        let interval = self.settings.lease / 3;
        loop {
            let _beat_or_look = tokio::time::timeout(interval, look.notified()).await;
            match self.stores.executions.renew(scope, held.execution_id, held.lease).await {
                Ok(LeaseState::Held) => {}
                Ok(LeaseState::Lost) => return Cut::LeaseLost,
                Ok(LeaseState::WorkloadStopped) => return Cut::Suspended,
                Ok(LeaseState::Cancelled(by)) => {
                    cancelled_by.get_or_init(|| by);
                    return Cut::Cancelled;
                }
                Err(error) => {
                    tracing::warn!(
                        execution_id = %held.execution_id,
                        error = &error as &dyn std::error::Error,
                        "failed to renew a lease; retrying"
                    );
                }
            }
        }
    }
}

/// The last progress of a run, with an event if its answer awaits a review.
fn with_review_event(recorder: &mut ProgressRecorder<'_>, last: Option<Progress>, ended: &Ended) -> Option<Progress> {
    if ended.status == Status::AwaitingReview { Some(recorder.review_record(last, &ended.steps)) } else { last }
}

/// The execution of an acceptance, in a given state.
pub(super) fn accepted_execution(acceptance: &Acceptance, status: Status, end: Option<(Outcome, Timestamp)>) -> Execution {
    Execution {
        execution_id: acceptance.execution_id,
        workload_id: acceptance.workload_id,
        workspace_id: acceptance.workspace_id,
        release_id: acceptance.release_id,
        environment: acceptance.environment.clone(),
        lane: acceptance.lane,
        submitter: acceptance.submitter.clone(),
        delegate: acceptance.guest.delegate.clone(),
        status,
        outcome: end.map(|(outcome, _)| outcome),
        error: None,
        output: None,
        reason_code: acceptance.decision.reason_code.clone(),
        started_at: acceptance.started_at,
        finished_at: end.map(|(_, at)| at),
    }
}
