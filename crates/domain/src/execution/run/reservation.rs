//! Memory reservations: a run pauses before it creates large values, until its driver holds a reservation.
//!
//! A process has memory for a few large runs and many small ones. Each step is measured before it copies values, so a
//! paused run holds little memory.

use super::{
    Run, Turn, VALUE_BYTES,
    passage::{Then, Walking},
    scope::Known,
};
use crate::flow::{Output, Step, StepKind, allowance::Allowance, reference::Unresolvable};
use serde_json::{Value, json};

/// The maximum size of a run's inputs, and of its values, without a reservation, in bytes.
pub const SMALL_RUN_BYTES: usize = 128 << 10;

/// The maximum length of a policy's reason code, in bytes.
const REASON_CODE: usize = 128;

/// The point at which a run waits for a reservation.
pub(super) enum Paused<'a> {
    /// Before a step.
    Step(&'a Step),
    /// Before mapping the output of a step.
    Output(Walking<'a>, Value),
    /// Before the run returns.
    Return(Value),
}

impl<'a> Run<'a> {
    /// Marks the run as reserved, for a driver that already holds a reservation.
    #[must_use]
    pub const fn with_reservation(mut self) -> Self {
        self.is_reserved = true;
        self
    }

    /// Resumes a run that requested a reservation. A run that requested none ends.
    pub fn reserved(&mut self) -> Turn {
        self.is_reserved = true;
        match self.paused.take() {
            Some(Paused::Step(step)) => self.walk(step),
            Some(Paused::Output(walking, value)) => self.finish_step(walking, value),
            Some(Paused::Return(value)) => self.pass_with(value, Then::Return),
            None => Turn::Ended,
        }
    }

    pub(super) fn pause(&mut self, at: Paused<'a>) -> Turn {
        self.paused = Some(at);
        Turn::Reserve
    }

    /// Maps the output of a step, and continues with the next step.
    pub(super) fn finish_step(&mut self, walking: Walking<'a>, value: Value) -> Turn {
        let Walking { step, began } = walking;
        let (is_large, value) = self.measure_output(step, value);
        if is_large {
            return self.pause(Paused::Output(walking, value));
        }
        let produced = self.produced(step, value);
        self.go_on(step, began, produced)
    }

    /// Whether the run's current values need a reservation.
    pub(super) fn is_large(&self) -> bool {
        !self.is_reserved && self.used() > SMALL_RUN_BYTES
    }

    /// Whether the run needs a reservation before this step.
    pub(super) fn is_large_at(&self, step: &Step) -> bool {
        if self.is_reserved {
            return false;
        }
        self.is_large() || matches!(self.measure_step(step), Err(Unresolvable::TooLarge(_)))
    }

    fn used(&self) -> usize {
        VALUE_BYTES.saturating_sub(self.allowance.left())
    }

    /// The remaining budget of a run without a reservation.
    fn small_room(&self) -> Allowance {
        Allowance::of(SMALL_RUN_BYTES.saturating_sub(self.used()))
    }

    /// Measures the values that a step copies before its first effect.
    fn measure_step(&self, step: &Step) -> Result<(), Unresolvable> {
        let mut room = self.small_room();
        let mut known = Known { plan: self.subject.plan, inputs: &self.inputs, outputs: &self.outputs, own: None };
        for template in step.inputs.values() {
            template.measure(&known, &mut room)?;
        }
        match &step.kind {
            StepKind::Return { output } => output.measure(&known, &mut room),
            StepKind::LlmCall { .. } | StepKind::Agent { .. } => {
                let values = self.inputs.values().chain(self.outputs.values());
                let longest = values.map(text_bytes).max().unwrap_or_default();
                let prompt = self.subject.plan.prompt.as_ref().map_or(0, |prompt| prompt.max_bytes(longest));
                Ok(room.take_bytes(prompt)?)
            }
            StepKind::Task { .. } => match &step.output {
                Some(Output::Mapped(template)) => {
                    let decision =
                        json!({ "outcome": "allow_with_obligations", "reason_code": "x".repeat(REASON_CODE) });
                    known.own = Some((&step.id, decision));
                    template.measure(&known, &mut room)
                }
                None | Some(Output::Named(_)) => Ok(()),
            },
            StepKind::Embedding { .. } => Ok(()),
        }
    }

    /// Whether the mapped output needs a reservation; returns the value.
    fn measure_output(&self, step: &Step, value: Value) -> (bool, Value) {
        let Some(Output::Mapped(template)) = &step.output else { return (self.is_large(), value) };
        if self.is_reserved || self.is_large() {
            return (!self.is_reserved, value);
        }
        let own = Some((step.id.as_str(), value));
        let known = Known { plan: self.subject.plan, inputs: &self.inputs, outputs: &self.outputs, own };
        let measured = template.measure(&known, &mut self.small_room());
        let value = known.own.map_or(Value::Null, |(_, value)| value);
        (matches!(measured, Err(Unresolvable::TooLarge(_))), value)
    }
}

/// The length of a value in a prompt, in bytes; capped just above the limit of small runs.
fn text_bytes(value: &Value) -> usize {
    let mut room = Allowance::of(SMALL_RUN_BYTES);
    match room.take_for(value) {
        Ok(()) => SMALL_RUN_BYTES.saturating_sub(room.left()),
        Err(_) => SMALL_RUN_BYTES.saturating_add(1),
    }
}
