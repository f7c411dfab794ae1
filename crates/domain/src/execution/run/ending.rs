//! Ends a run after its last step, or at an interruption.

use super::{
    FinishedRun, Interruption, MAX_RUN_VALUES_BYTES, Run, RunEnd,
    effects::{AwaitedResponse, PendingStep},
    interceptors::ActiveStep,
    reservation::PausePoint,
    schema_check::ResumePoint,
};
use crate::{
    execution::{RunError, StepRecord, progress::RunEvent},
    moment::Moment,
    redaction::Redactor,
};

impl Run<'_> {
    /// Ends the run in its current state, and fulfils its obligations.
    #[must_use]
    pub fn finish(self, moment: Moment, interruption: Option<Interruption>, redactor: &Redactor) -> RunEnd {
        let (finished, moment) = self.close(moment, interruption);
        finished.fulfil(moment, redactor)
    }

    /// Ends the run in its current state. The caller fulfils the obligations later, because that can be slow for a
    /// long answer.
    #[must_use]
    pub fn end_before_obligations(self, moment: Moment, interruption: Option<Interruption>) -> FinishedRun {
        self.close(moment, interruption).0
    }

    fn close(mut self, moment: Moment, interruption: Option<Interruption>) -> (FinishedRun, Moment) {
        self.moment = moment;
        if let Some(interruption) = interruption {
            let (status, outcome, code, message) = interruption.ending();
            (self.run_outcome.status, self.run_outcome.outcome, self.run_outcome.output) = (status, outcome, None);
            self.run_outcome.error = Some(RunError::new(code, message));
            self.record_interrupted_step(code);
        }
        let events = self.take_events();
        self.run_outcome.offered_turn = self.offered_turn();
        let finished = FinishedRun {
            events,
            execution_id: self.run_input.execution_id,
            value_bytes: MAX_RUN_VALUES_BYTES.saturating_sub(self.budget.remaining()),
            run_outcome: self.run_outcome,
            obligations: self.obligations,
            transcript: self.transcript,
            citable_documents: self.citable_documents,
        };
        (finished, self.moment)
    }

    /// Records the step that an interruption cut off, with this error code.
    fn record_interrupted_step(&mut self, code: &str) {
        let (step, started_at) = match self.pending_step.take() {
            Some(PendingStep { step, started_at, awaited: AwaitedResponse::Model(pending_request) }) => {
                self.record_unanswered(step, *pending_request);
                (step, started_at)
            }
            Some(PendingStep { step, started_at, awaited: AwaitedResponse::SchemaCheck(resume) }) => {
                if let ResumePoint::ModelResponse(pending_request, _) = *resume {
                    self.record_unanswered(step, *pending_request);
                }
                (step, started_at)
            }
            Some(PendingStep { step, started_at, awaited: AwaitedResponse::Documents(_) | AwaitedResponse::Tool }) => {
                (step, started_at)
            }
            None => match (self.take_step_awaiting_interceptor(), self.pause_point.take()) {
                (Some(step_and_start), _) => step_and_start,
                (None, Some(PausePoint::Output(ActiveStep { step, started_at }, _))) => (step, started_at),
                (None, Some(PausePoint::Step(_) | PausePoint::Return(_)) | None) => return,
            },
        };
        self.record_interrupted_call(step);
        self.emit(|| RunEvent::step_completed(&step.id, Some(code)));
        self.run_outcome.steps.push(StepRecord {
            step_id: step.id.clone(),
            step_type: step.kind.as_str(),
            failure: Some(code.to_owned()),
            duration: started_at.duration_until(self.moment.now()),
        });
    }
}
