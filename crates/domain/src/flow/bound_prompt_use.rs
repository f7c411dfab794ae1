//! The use of the bound prompt by steps: which steps render the prompt, and which arguments they pass to it.

use super::{
    Step, StepKind,
    reference::{Template, ValueReference},
};
use crate::asset::kind::AssetKind;

/// The step inputs that form the conversation; all other inputs are prompt arguments.
pub const CONVERSATION_INPUTS: [&str; 3] = ["prompt", "message", "messages"];

/// Whether a step with this `prompt` template uses the bound prompt: it has no template, or one that refers to the
/// bound prompt.
#[must_use]
pub fn is_bound_prompt_template(template: Option<&Template>) -> bool {
    let is_bound =
        |reference: &ValueReference| matches!(reference, ValueReference::Release { role: AssetKind::PromptTemplate });
    template.is_none_or(|template| template.references().into_iter().any(is_bound))
}

impl Step {
    /// Whether the step calls a model with the prompt that the release binds.
    #[must_use]
    pub fn renders_bound_prompt(&self) -> bool {
        let calls_model = match &self.kind {
            StepKind::LlmCall { .. } | StepKind::Agent { .. } => true,
            StepKind::Task { .. } | StepKind::Embedding { .. } | StepKind::Return { .. } => false,
        };
        calls_model && is_bound_prompt_template(self.inputs.get("prompt"))
    }

    /// The names of the inputs that the step passes to its prompt as arguments.
    pub fn prompt_arguments(&self) -> impl Iterator<Item = &str> {
        self.inputs.keys().map(String::as_str).filter(|name| !CONVERSATION_INPUTS.contains(name))
    }
}
