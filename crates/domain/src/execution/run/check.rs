//! Schema checks of a run: a brief one is done at once, a long one is asked for, so that it is done beside the threads that
//! serve.

use super::{
    Run, Turn,
    call::Asked,
    passage::Walking,
    turn::{Awaits, Waiting},
};
use crate::{
    asset::content::embedded::{EmbeddedSchema, SchemaRejection},
    execution::routing::Answer,
    flow::{Step, StepKind},
};
use serde_json::Value;

/// Whether a value satisfies a schema.
pub(super) type SchemaVerdict = Result<(), SchemaRejection>;

/// A schema check that takes longer than a thread that serves may compute.
#[derive(Clone, Debug)]
pub struct SchemaCheck {
    schema: EmbeddedSchema,
    checked: Checked,
}

#[derive(Clone, Debug)]
enum Checked {
    Value(Value),
    /// Read as JSON first.
    Text(String),
}

impl SchemaCheck {
    /// Checks, within the budget of the schema.
    ///
    /// # Errors
    /// When the value does not satisfy the schema, or the check would take more than its budget.
    pub fn run(&self) -> Result<(), SchemaRejection> {
        match &self.checked {
            Checked::Value(value) => self.schema.check(value),
            Checked::Text(text) => self.schema.check_text(text),
        }
    }
}

/// Where a run resumes with the verdict.
pub(super) enum Resume {
    /// With the answer of a model.
    Answered(Box<Asked>, Answer),
    /// With the calls that an agent wants.
    Works,
    /// With the arguments of a tool.
    UseTool(Value),
    /// With the result of a tool.
    ToolAnswered(Value),
    /// With what guardrails and hooks left of the result.
    ToolGave(Value),
}

impl<'a> Run<'a> {
    /// The verdict on a value: known already, or found at once. The error is the turn that asks for it.
    pub(super) fn schema_verdict(
        &mut self,
        Walking { step, began }: Walking<'a>,
        schema: Option<&EmbeddedSchema>,
        (value, resume): (Value, impl FnOnce(Value) -> Resume),
    ) -> Result<SchemaVerdict, Turn> {
        if let Some(verdict) = self.verdict.take() {
            return Ok(verdict);
        }
        let Some(schema) = schema else { return Ok(Ok(())) };
        if schema.is_brief(&value) {
            return Ok(schema.check(&value));
        }
        let check = SchemaCheck { schema: schema.clone(), checked: Checked::Value(value.clone()) };
        self.waiting = Some(Waiting { step, began, awaits: Awaits::Check(Box::new(resume(value))) });
        Err(Turn::CheckSchema(Box::new(check)))
    }

    /// The check of an answer against the schema of the bound prompt, where it takes long.
    pub(super) fn long_answer_check(&self, step: &Step, answer: &Answer) -> Option<SchemaCheck> {
        let completion = answer.completion.as_ref().ok().filter(|completion| completion.tool_calls.is_empty())?;
        if !matches!(step.kind, StepKind::LlmCall { .. } | StepKind::Agent { .. }) {
            return None;
        }
        let schema = self.prompt_for(step)?.answer_schema()?;
        let check = || SchemaCheck { schema: schema.clone(), checked: Checked::Text(completion.text.clone()) };
        (!schema.is_brief_text(&completion.text)).then(check)
    }

    /// Resumes with the verdict of the last check. A verdict that nobody waits for changes nothing.
    pub fn schema_checked(&mut self, verdict: Result<(), SchemaRejection>) -> Turn {
        let Some(Waiting { step, began, awaits }) = self.waiting.take() else { return Turn::Ended };
        let Awaits::Check(resume) = awaits else { return Turn::Ended };
        let walking = Walking { step, began };
        self.verdict = Some(verdict);
        match *resume {
            Resume::Answered(asked, answer) => {
                self.waiting = Some(Waiting { step, began, awaits: Awaits::Answer(asked) });
                self.answered(answer)
            }
            Resume::Works => self.agent_works(walking),
            Resume::UseTool(arguments) => self.use_tool(walking, arguments),
            Resume::ToolAnswered(given) => self.tool_answered(walking, given),
            Resume::ToolGave(given) => self.tool_gave(walking, given),
        }
    }
}
