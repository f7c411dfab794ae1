//! Schema checks of a run: a short check runs at once, a long one is offloaded from the serving threads.

use super::{
    Run, RunEffect,
    effects::{AwaitedResponse, PendingStep},
    interceptors::ActiveStep,
    model_call::PendingRequest,
};
use crate::{
    asset::content::embedded::{EmbeddedSchema, SchemaRejection},
    execution::routing::ModelResponse,
    flow::{Step, StepKind},
    time_and_ids::Moment,
};
use serde_json::Value;

/// The result of a schema check.
pub(super) type SchemaResult = Result<(), SchemaRejection>;

/// A schema check that is too long for a serving thread.
#[derive(Clone, Debug)]
pub struct SchemaCheck {
    schema: EmbeddedSchema,
    subject: SchemaSubject,
}

#[derive(Clone, Debug)]
enum SchemaSubject {
    Value(Value),
    /// Text that must be parsed as JSON first.
    Text(String),
}

impl SchemaCheck {
    /// Runs the check within the schema's budget.
    ///
    /// # Errors
    /// When the value does not satisfy the schema, or the check exceeds its budget.
    pub fn run(&self) -> Result<(), SchemaRejection> {
        match &self.subject {
            SchemaSubject::Value(value) => self.schema.check(value),
            SchemaSubject::Text(text) => self.schema.check_text(text),
        }
    }
}

/// The point at which a run resumes after a schema check.
pub(super) enum ResumePoint {
    /// A model response.
    ModelResponse(Box<PendingRequest>, ModelResponse),
    /// The pending tool calls of an agent.
    PendingCalls,
    /// The arguments of a tool.
    ToolArguments(Value),
    /// The result of a tool.
    ToolResult(Value),
    /// The result of a tool after guardrails and hooks.
    InterceptedToolResult(Value),
}

impl<'a> Run<'a> {
    /// Checks a value, or takes the result of the offloaded check. The error is the effect that requests an offloaded
    /// check.
    pub(super) fn check_schema(
        &mut self,
        ActiveStep { step, started_at: began }: ActiveStep<'a>,
        schema: Option<&EmbeddedSchema>,
        value: Value,
        resume: impl FnOnce(Value) -> ResumePoint,
    ) -> Result<SchemaResult, RunEffect> {
        if let Some(verdict) = self.schema_result.take() {
            return Ok(verdict);
        }
        let Some(schema) = schema else { return Ok(Ok(())) };
        if schema.is_brief(&value) {
            return Ok(schema.check(&value));
        }
        let check = SchemaCheck { schema: schema.clone(), subject: SchemaSubject::Value(value.clone()) };
        self.pending_step = Some(PendingStep {
            step,
            started_at: began,
            awaited: AwaitedResponse::SchemaCheck(Box::new(resume(value))),
        });
        Err(RunEffect::CheckSchema(Box::new(check)))
    }

    /// The check of an answer against the bound prompt's schema, if it must be offloaded.
    pub(super) fn long_answer_check(&self, step: &Step, answer: &ModelResponse) -> Option<SchemaCheck> {
        let completion = answer.completion.as_ref().ok().filter(|completion| completion.tool_calls.is_empty())?;
        if !matches!(step.kind, StepKind::LlmCall { .. } | StepKind::Agent { .. }) {
            return None;
        }
        let schema = self.bound_prompt_for(step)?.response_schema()?;
        let check = || SchemaCheck { schema: schema.clone(), subject: SchemaSubject::Text(completion.text.clone()) };
        (!schema.is_brief_text(&completion.text)).then(check)
    }

    /// Resumes with the result of an offloaded check. A result without a request has no effect.
    pub fn on_schema_check(&mut self, moment: Moment, verdict: Result<(), SchemaRejection>) -> RunEffect {
        self.moment = moment;
        let Some(PendingStep { step, started_at: began, awaited: awaits }) = self.pending_step.take() else {
            return RunEffect::Ended;
        };
        let AwaitedResponse::SchemaCheck(resume) = awaits else { return RunEffect::Ended };
        let walking = ActiveStep { step, started_at: began };
        self.schema_result = Some(verdict);
        match *resume {
            ResumePoint::ModelResponse(asked, answer) => {
                self.pending_step =
                    Some(PendingStep { step, started_at: began, awaited: AwaitedResponse::Model(asked) });
                self.resume_with_model(answer)
            }
            ResumePoint::PendingCalls => self.run_pending_calls(walking),
            ResumePoint::ToolArguments(arguments) => self.call_tool(walking, arguments),
            ResumePoint::ToolResult(given) => self.intercept_tool_result(walking, given),
            ResumePoint::InterceptedToolResult(given) => self.accept_tool_result(walking, given),
        }
    }
}
