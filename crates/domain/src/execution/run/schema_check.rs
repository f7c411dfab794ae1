//! Schema checks of a run. The run makes a short check itself and offloads a long one, so that the check does not block
//! a request thread.

use super::{
    Run, RunEffect,
    effects::{AwaitedResponse, PendingStep},
    interceptors::ActiveStep,
    model_call::PendingRequest,
};
use crate::{
    asset::content::embedded_schema::{EmbeddedSchema, SchemaCheckFailure},
    execution::routing::ModelResponse,
    flow::{Step, StepKind},
    moment::Moment,
};
use serde_json::Value;

pub(super) type SchemaResult = Result<(), SchemaCheckFailure>;

/// A schema check that the driver executes on another thread, because it takes too long for a request thread.
#[derive(Clone, Debug)]
pub struct SchemaCheck {
    schema: EmbeddedSchema,
    subject: SchemaSubject,
}

#[derive(Clone, Debug)]
enum SchemaSubject {
    Value(Value),
    /// A text that must be parsed as JSON before the check.
    Text(String),
}

impl SchemaCheck {
    /// Checks the value within the evaluation budget of the schema.
    ///
    /// # Errors
    /// If the value does not satisfy the schema, or the check exceeds the budget.
    pub fn run(&self) -> Result<(), SchemaCheckFailure> {
        match &self.subject {
            SchemaSubject::Value(value) => self.schema.check_value(value),
            SchemaSubject::Text(text) => self.schema.check_text(text),
        }
    }
}

/// The point at which a run resumes after a schema check.
pub(super) enum ResumePoint {
    /// Continue with a model response whose text was checked.
    ModelResponse(Box<PendingRequest>, ModelResponse),
    /// Continue with the pending tool calls of an agent.
    PendingCalls,
    /// Continue with the checked arguments of a tool call.
    ToolArguments(Value),
    /// Continue with the checked result of a tool.
    ToolResult(Value),
    /// Continue with the checked result of a tool after guardrails and hooks processed it.
    InterceptedToolResult(Value),
}

impl<'a> Run<'a> {
    /// Checks a value, or returns the result of the check that was offloaded before. The error is the effect by which
    /// the run offloads the check.
    pub(super) fn check_schema(
        &mut self,
        ActiveStep { step, started_at }: ActiveStep<'a>,
        schema: Option<&EmbeddedSchema>,
        value: Value,
        resume: impl FnOnce(Value) -> ResumePoint,
    ) -> Result<SchemaResult, RunEffect> {
        if let Some(result) = self.schema_result.take() {
            return Ok(result);
        }
        let Some(schema) = schema else { return Ok(Ok(())) };
        if schema.is_cheap_to_check(&value) {
            return Ok(schema.check_value(&value));
        }
        let check = SchemaCheck { schema: schema.clone(), subject: SchemaSubject::Value(value.clone()) };
        self.pending_step =
            Some(PendingStep { step, started_at, awaited: AwaitedResponse::SchemaCheck(Box::new(resume(value))) });
        Err(RunEffect::CheckSchema(Box::new(check)))
    }

    /// The check of an answer against the bound prompt's schema, if that check must be offloaded.
    pub(super) fn long_answer_check(&self, step: &Step, response: &ModelResponse) -> Option<SchemaCheck> {
        let completion = response.completion.as_ref().ok().filter(|completion| completion.tool_calls.is_empty())?;
        if !matches!(step.kind, StepKind::LlmCall { .. } | StepKind::Agent { .. }) {
            return None;
        }
        let schema = self.bound_prompt_for(step)?.response_schema()?;
        let check = || SchemaCheck { schema: schema.clone(), subject: SchemaSubject::Text(completion.text.clone()) };
        (!schema.is_cheap_text(&completion.text)).then(check)
    }

    /// Resumes with the result of an offloaded check. Returns [`RunEffect::Ended`] if no check is pending.
    pub fn on_schema_check(&mut self, moment: Moment, result: Result<(), SchemaCheckFailure>) -> RunEffect {
        self.moment = moment;
        let Some(PendingStep { step, started_at, awaited }) = self.pending_step.take() else {
            return RunEffect::Ended;
        };
        let AwaitedResponse::SchemaCheck(resume) = awaited else { return RunEffect::Ended };
        let active_step = ActiveStep { step, started_at };
        self.schema_result = Some(result);
        match *resume {
            ResumePoint::ModelResponse(pending_request, response) => {
                self.pending_step =
                    Some(PendingStep { step, started_at, awaited: AwaitedResponse::Model(pending_request) });
                self.resume_with_model(response)
            }
            ResumePoint::PendingCalls => self.run_pending_calls(active_step),
            ResumePoint::ToolArguments(arguments) => self.call_tool(active_step, arguments),
            ResumePoint::ToolResult(result) => self.intercept_tool_result(active_step, result),
            ResumePoint::InterceptedToolResult(result) => self.accept_tool_result(active_step, result),
        }
    }
}
