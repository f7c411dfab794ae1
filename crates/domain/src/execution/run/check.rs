//! Schema checks of a run: a short check runs at once, a long one is offloaded from the serving threads.

use super::{
    Run, Turn,
    call::Asked,
    passage::ActiveStep,
    turn::{AwaitedResponse, Waiting},
};
use crate::{
    asset::content::embedded::{EmbeddedSchema, SchemaRejection},
    execution::routing::Answer,
    flow::{Step, StepKind},
};
use serde_json::Value;

/// The result of a schema check.
pub(super) type SchemaResult = Result<(), SchemaRejection>;

/// A schema check that is too long for a serving thread.
#[derive(Clone, Debug)]
pub struct SchemaCheck {
    schema: EmbeddedSchema,
    checked: SchemaSubject,
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
        match &self.checked {
            SchemaSubject::Value(value) => self.schema.check(value),
            SchemaSubject::Text(text) => self.schema.check_text(text),
        }
    }
}

/// The point at which a run resumes after a schema check.
pub(super) enum Resume {
    /// A model response.
    Answered(Box<Asked>, Answer),
    /// The pending tool calls of an agent.
    Works,
    /// The arguments of a tool.
    UseTool(Value),
    /// The result of a tool.
    ToolAnswered(Value),
    /// The result of a tool after guardrails and hooks.
    ToolGave(Value),
}

impl<'a> Run<'a> {
    /// Checks a value, or takes the result of the offloaded check. The error is the effect that requests an offloaded
    /// check.
    pub(super) fn check_schema(
        &mut self,
        ActiveStep { step, began }: ActiveStep<'a>,
        schema: Option<&EmbeddedSchema>,
        (value, resume): (Value, impl FnOnce(Value) -> Resume),
    ) -> Result<SchemaResult, Turn> {
        if let Some(verdict) = self.verdict.take() {
            return Ok(verdict);
        }
        let Some(schema) = schema else { return Ok(Ok(())) };
        if schema.is_brief(&value) {
            return Ok(schema.check(&value));
        }
        let check = SchemaCheck { schema: schema.clone(), checked: SchemaSubject::Value(value.clone()) };
        self.waiting = Some(Waiting { step, began, awaits: AwaitedResponse::Check(Box::new(resume(value))) });
        Err(Turn::CheckSchema(Box::new(check)))
    }

    /// The check of an answer against the bound prompt's schema, if it must be offloaded.
    pub(super) fn long_answer_check(&self, step: &Step, answer: &Answer) -> Option<SchemaCheck> {
        let completion = answer.completion.as_ref().ok().filter(|completion| completion.tool_calls.is_empty())?;
        if !matches!(step.kind, StepKind::LlmCall { .. } | StepKind::Agent { .. }) {
            return None;
        }
        let schema = self.bound_prompt_for(step)?.answer_schema()?;
        let check = || SchemaCheck { schema: schema.clone(), checked: SchemaSubject::Text(completion.text.clone()) };
        (!schema.is_brief_text(&completion.text)).then(check)
    }

    /// Resumes with the result of an offloaded check. A result without a request has no effect.
    pub fn on_schema_check(&mut self, verdict: Result<(), SchemaRejection>) -> Turn {
        let Some(Waiting { step, began, awaits }) = self.waiting.take() else { return Turn::Ended };
        let AwaitedResponse::Check(resume) = awaits else { return Turn::Ended };
        let walking = ActiveStep { step, began };
        self.verdict = Some(verdict);
        match *resume {
            Resume::Answered(asked, answer) => {
                self.waiting = Some(Waiting { step, began, awaits: AwaitedResponse::Answer(asked) });
                self.answered(answer)
            }
            Resume::Works => self.run_pending_calls(walking),
            Resume::UseTool(arguments) => self.use_tool(walking, arguments),
            Resume::ToolAnswered(given) => self.intercept_tool_result(walking, given),
            Resume::ToolGave(given) => self.accept_tool_result(walking, given),
        }
    }
}
