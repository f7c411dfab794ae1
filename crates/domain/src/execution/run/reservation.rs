//! Memory reservations. A run pauses before it creates large values, until its driver has reserved memory.
//!
//! A process has memory for many small runs and for a few large runs. A run measures each step before the step copies
//! values, so a paused run uses little memory.

use super::{
    MAX_RUN_VALUES_BYTES, Run, RunEffect,
    interceptors::{ActiveStep, Continuation},
    reference_values::RunScope,
};
use crate::{
    flow::{Step, StepKind, StepOutputMapping, reference::ResolveError, value_budget::ValueBudget},
    moment::Moment,
};
use serde_json::{Value, json};

/// The maximum size of a run without a reservation, in bytes. It applies to the inputs, and to all values together.
pub const SMALL_RUN_BYTES: usize = 128 << 10;

/// The maximum length of a policy's reason code in bytes. The measurement of a policy step assumes this length.
const MAX_REASON_CODE_BYTES: usize = 128;

/// The point at which a run waits for a memory reservation, and from which it resumes.
pub(super) enum PausePoint<'a> {
    /// Before the step executes.
    Step(&'a Step),
    /// Before the output of the step is mapped.
    Output(ActiveStep<'a>, Value),
    /// Before the run returns its answer.
    Return(Value),
}

impl<'a> Run<'a> {
    /// Marks the run as holding a reservation. A driver that already reserved memory calls this before the start.
    #[must_use]
    pub const fn with_reservation(mut self) -> Self {
        self.is_reserved = true;
        self
    }

    /// Resumes the run after its driver has reserved memory. Returns [`RunEffect::Ended`] if the run requested no
    /// reservation.
    pub fn on_reservation(&mut self, moment: Moment) -> RunEffect {
        self.moment = moment;
        self.is_reserved = true;
        match self.pause_point.take() {
            Some(PausePoint::Step(step)) => self.run_steps(step),
            Some(PausePoint::Output(active_step, value)) => self.finish_step(active_step, value),
            Some(PausePoint::Return(value)) => self.intercept_value(value, Continuation::Return),
            None => RunEffect::Ended,
        }
    }

    pub(super) fn pause(&mut self, pause_point: PausePoint<'a>) -> RunEffect {
        self.pause_point = Some(pause_point);
        RunEffect::Reserve
    }

    /// Maps the output of a step and continues with the next step, unless the run must first pause for a
    /// reservation.
    pub(super) fn finish_step(&mut self, active_step: ActiveStep<'a>, value: Value) -> RunEffect {
        let ActiveStep { step, started_at } = active_step;
        let (is_large, value) = self.measure_output(step, value);
        if is_large {
            return self.pause(PausePoint::Output(active_step, value));
        }
        let result = self.map_output(step, value);
        self.end_step_and_continue(step, started_at, result)
    }

    /// Whether the current values of the run exceed the limit for runs without a reservation.
    pub(super) fn is_large(&self) -> bool {
        !self.is_reserved && self.used_bytes() > SMALL_RUN_BYTES
    }

    /// Whether the run needs a reservation before it executes this step.
    pub(super) fn needs_reservation_before(&self, step: &Step) -> bool {
        if self.is_reserved {
            return false;
        }
        self.is_large() || matches!(self.measure_step(step), Err(ResolveError::TooLarge(_)))
    }

    fn used_bytes(&self) -> usize {
        MAX_RUN_VALUES_BYTES.saturating_sub(self.budget.remaining())
    }

    /// The number of bytes that the run can still use without a reservation.
    fn small_run_budget(&self) -> ValueBudget {
        ValueBudget::new(SMALL_RUN_BYTES.saturating_sub(self.used_bytes()))
    }

    /// Measures the values that a step will copy against the budget of a small run, without copying them. Fails if they
    /// exceed it.
    fn measure_step(&self, step: &Step) -> Result<(), ResolveError> {
        let mut budget = self.small_run_budget();
        let mut scope =
            RunScope { plan: self.run_input.plan, inputs: &self.inputs, outputs: &self.outputs, own_output: None };
        for template in step.inputs.values() {
            template.charge_budget(&scope, &mut budget)?;
        }
        match &step.kind {
            StepKind::Return { output } => output.charge_budget(&scope, &mut budget),
            StepKind::LlmCall { .. } | StepKind::Agent { .. } => {
                let values = self.inputs.values().chain(self.outputs.values());
                let longest_bytes = values.map(text_bytes).max().unwrap_or_default();
                let prompt_bytes =
                    self.run_input.plan.prompt.as_ref().map_or(0, |prompt| prompt.max_rendered_bytes(longest_bytes));
                Ok(budget.charge_bytes(prompt_bytes)?)
            }
            StepKind::Task { .. } => match &step.output {
                Some(StepOutputMapping::Mapped(template)) => {
                    let decision = json!({ "outcome": "allow_with_obligations", "reason_code": "x".repeat(MAX_REASON_CODE_BYTES) });
                    scope.own_output = Some((&step.id, decision));
                    template.charge_budget(&scope, &mut budget)
                }
                None | Some(StepOutputMapping::Named(_)) => Ok(()),
            },
            StepKind::Embedding { .. } => Ok(()),
        }
    }

    /// Returns the value, and whether the mapping of the step's output needs a reservation.
    fn measure_output(&self, step: &Step, value: Value) -> (bool, Value) {
        let Some(StepOutputMapping::Mapped(template)) = &step.output else { return (self.is_large(), value) };
        if self.is_reserved || self.is_large() {
            return (!self.is_reserved, value);
        }
        let own_output = Some((step.id.as_str(), value));
        let scope = RunScope { plan: self.run_input.plan, inputs: &self.inputs, outputs: &self.outputs, own_output };
        let measured = template.charge_budget(&scope, &mut self.small_run_budget());
        let value = scope.own_output.map_or(Value::Null, |(_, value)| value);
        (matches!(measured, Err(ResolveError::TooLarge(_))), value)
    }
}

/// The length of a value in a prompt, in bytes. Above [`SMALL_RUN_BYTES`], the result is one byte more than that limit.
fn text_bytes(value: &Value) -> usize {
    let mut budget = ValueBudget::new(SMALL_RUN_BYTES);
    match budget.charge(value) {
        Ok(()) => SMALL_RUN_BYTES.saturating_sub(budget.remaining()),
        Err(_) => SMALL_RUN_BYTES.saturating_add(1),
    }
}
