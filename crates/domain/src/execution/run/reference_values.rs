//! Resolves the references in a step's templates to the values of a run.

use crate::{
    asset::kind::AssetKind,
    execution::plan::RunPlan,
    flow::{
        Flow, StepOutputMapping,
        reference::{ReferenceResolver, ValueReference},
    },
};
use serde_json::{Map, Value};
use std::{borrow::Cow, collections::BTreeMap};

/// All values to which the templates of a step can refer.
pub(super) struct RunScope<'r> {
    pub(super) plan: &'r RunPlan,
    pub(super) inputs: &'r Map<String, Value>,
    pub(super) outputs: &'r BTreeMap<String, Value>,
    /// The identifier and the raw output of the current step. It is set only while the step's `output` mapping is
    /// evaluated.
    pub(super) own_output: Option<(&'r str, Value)>,
}

impl ReferenceResolver for RunScope<'_> {
    fn value(&self, reference: &ValueReference) -> Option<Cow<'_, Value>> {
        match reference {
            ValueReference::Trigger { input } => self.inputs.get(input).map(Cow::Borrowed),
            ValueReference::Step { step, fields } => {
                let output = match &self.own_output {
                    Some((id, value)) if id == step => value,
                    Some(_) | None => self.outputs.get(step)?,
                };
                resolve_path(&self.plan.flow, step, output, fields).map(Cow::Borrowed)
            }
            // A reference to a role resolves to the slug of the asset that the release binds in that role.
            ValueReference::Release { role } => {
                self.plan.bound_asset(*role).map(|asset| Cow::Owned(Value::String(asset.slug.clone())))
            }
        }
    }
}

/// Finds the value at a path of field names in a step's output. The name of a named output refers to the whole output.
fn resolve_path<'v>(flow: &Flow, step: &str, output: &'v Value, fields: &[String]) -> Option<&'v Value> {
    let (mut value, mut remaining_fields) = (output, fields);
    if let Some((first, tail)) = fields.split_first() {
        let step_output = flow.step(step).and_then(|step| step.output.as_ref());
        if matches!(step_output, Some(StepOutputMapping::Named(name)) if name == first) {
            remaining_fields = tail;
        }
    }
    for field in remaining_fields {
        value = value.get(field)?;
    }
    Some(value)
}

/// The values of a [`RunScope`], except that a reference to the bound prompt yields the rendered prompt.
pub(super) struct ScopeWithRenderedPrompt<'r> {
    pub(super) run_scope: RunScope<'r>,
    pub(super) prompt: Value,
}

impl ReferenceResolver for ScopeWithRenderedPrompt<'_> {
    fn value(&self, reference: &ValueReference) -> Option<Cow<'_, Value>> {
        match reference {
            ValueReference::Release { role: AssetKind::PromptTemplate } => Some(Cow::Borrowed(&self.prompt)),
            ValueReference::Release { .. } | ValueReference::Trigger { .. } | ValueReference::Step { .. } => {
                self.run_scope.value(reference)
            }
        }
    }
}
