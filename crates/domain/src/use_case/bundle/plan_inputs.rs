//! The inputs of a bundle plan: those that the trigger of its flow declares, or else those that its texts read.

use crate::workload::interface::{FieldType, is_field_name};
use serde_json::Value;
use std::collections::BTreeSet;

/// The type of an input that no trigger declares.
pub(super) const DEFAULT_TYPE: &str = "string";

/// An input that a run of the use case needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlanInput {
    /// The name of the input in the flow and in the prompt.
    pub name: String,
    /// The type of the input in the flow.
    pub input_type: String,
}

impl PlanInput {
    pub(super) fn text(name: &str) -> Self {
        Self { name: name.to_owned(), input_type: DEFAULT_TYPE.to_owned() }
    }

    /// Whether the input's name can be the name of a form field.
    pub(super) fn has_field_name(&self) -> bool {
        is_field_name(&self.name)
    }

    /// The type of the form field for the input; `None` if no type of field suits it.
    #[must_use]
    pub fn field_type(&self) -> Option<FieldType> {
        match self.input_type.as_str() {
            "string" | "text" => Some(FieldType::Textarea),
            "number" | "integer" => Some(FieldType::Number),
            "boolean" => Some(FieldType::Boolean),
            "date" => Some(FieldType::Date),
            _ => None,
        }
    }

    /// The type of the prompt variable that receives the input.
    fn variable_type(&self) -> &'static str {
        match self.input_type.as_str() {
            "number" | "integer" => "number",
            "boolean" => "boolean",
            "array" => "array",
            _ => "string",
        }
    }
}

/// The distinct inputs that a flow and its prompt read. Without a declaration their types are unknown, so all count as
/// texts.
pub(super) fn read_inputs(flow: &Value, arguments: &[String]) -> Vec<PlanInput> {
    let mut names = BTreeSet::new();
    trigger_inputs(flow, &mut names);
    names.extend(arguments.iter().cloned());
    names.iter().filter(|name| !name.is_empty()).map(|name| PlanInput::text(name)).collect()
}

/// The inputs that the trigger of a flow declares; `None` if the flow has no trigger.
pub(super) fn declared_inputs(flow: &Value) -> Option<Vec<PlanInput>> {
    let declared = flow.get("trigger")?.get("inputs_schema").and_then(Value::as_object);
    let input = |(name, kind): (&String, &Value)| PlanInput {
        name: name.clone(),
        input_type: kind.as_str().unwrap_or_default().to_owned(),
    };
    Some(declared.into_iter().flatten().map(input).collect())
}

/// The type of a prompt argument: that of the value that a step passes, or else that of the input with the same name.
pub(super) fn argument_type(flow: &Value, inputs: &[PlanInput], name: &str) -> &'static str {
    let mut steps = flow.get("steps").and_then(Value::as_array).into_iter().flatten();
    let passed_value = steps.find_map(|step| step.get("inputs")?.get(name));
    let source = match passed_value {
        None => Some(name),
        Some(Value::String(text)) => referenced_input(text),
        Some(Value::Number(_)) => return "number",
        Some(Value::Bool(_)) => return "boolean",
        Some(Value::Array(_)) => return "array",
        Some(Value::Null | Value::Object(_)) => None,
    };
    let input = source.and_then(|source| inputs.iter().find(|input| input.name == source));
    input.map_or(DEFAULT_TYPE, PlanInput::variable_type)
}

/// The name of the input, if the text consists only of a reference to an input.
fn referenced_input(text: &str) -> Option<&str> {
    text.strip_prefix("{{")?.strip_suffix("}}")?.trim().strip_prefix("trigger.")
}

/// Collects the inputs that the texts of a flow read: the names after `{{trigger.`.
fn trigger_inputs(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::String(text) => {
            for tail in text.split("{{").skip(1) {
                let Some(rest) = tail.trim_start().strip_prefix("trigger.") else { continue };
                let name: String = rest
                    .chars()
                    .take_while(|character| character.is_ascii_alphanumeric() || *character == '_')
                    .collect();
                names.insert(name);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| trigger_inputs(item, names)),
        Value::Object(members) => members.values().for_each(|member| trigger_inputs(member, names)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
