//! The bundle plan of a use case: a checked value with exactly six members.
//!
//! Callers and models write plans, so every new plan is checked completely. A problem names the member, but does not
//! contain its value.

mod plan_inputs;

use crate::{
    asset::{
        content::{self, CheckedContent, ContentRefusal},
        kind::AssetKind,
        reference::find_references,
    },
    connection,
    field_path::{from_pointer, push_index},
    prompt::argument_names,
    secret::contains_likely_credential,
    slug::Slug,
    text::{is_blank_or_prose, is_name},
};
pub use plan_inputs::PlanInput;
use plan_inputs::{argument_type, declared_inputs, read_inputs};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The maximum length of a use case's name, in characters.
pub const MAX_NAME_CHARS: usize = 200;
/// The maximum length of a use case's summary, in characters.
pub const MAX_SUMMARY_CHARS: usize = 2_000;
/// The maximum number of connections in a plan.
pub const MAX_CONNECTIONS: usize = 20;
/// The maximum length of a plan as JSON, in bytes.
pub const MAX_PLAN_BYTES: usize = 256 << 10;
/// The text that replaces the name of a connection that the reader may not see. No connection can have this name.
pub const REDACTED_CONNECTION: &str = "[redacted]";

const MEMBERS: [&str; 6] = ["name", "summary", "flow", "prompt_template", "model_policy_ref", "connections"];
/// The paths of the plan's members, as problems report them.
const MEMBER_PATHS: [&str; 6] = [
    "bundle.name",
    "bundle.summary",
    "bundle.flow",
    "bundle.prompt_template",
    "bundle.model_policy_ref",
    "bundle.connections",
];

/// A problem of a bundle plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BundleProblem {
    /// The path of the member, such as `bundle.flow.steps[0].id`.
    pub path: String,
    /// The stable code of the problem.
    pub code: &'static str,
    /// The description of the problem, for people.
    pub message: String,
}

impl BundleProblem {
    /// The path of the plan's member in which the problem is. Unlike the full path, it contains no name that the author
    /// chose.
    #[must_use]
    pub fn member_path(&self) -> &'static str {
        let is_below = |path: &&&str| {
            self.path.strip_prefix(**path).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        MEMBER_PATHS.iter().find(is_below).copied().unwrap_or("bundle")
    }
}

/// The reason why a plan is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BundleRefusal {
    /// The plan is not valid, because of these problems.
    #[error("the bundle is invalid")]
    Invalid(Vec<BundleProblem>),
    /// The plan was generated for a reader that may not see its references, and they are redacted.
    #[error("the bundle has redacted references")]
    Redacted,
}

/// A bundle plan that passed all checks.
#[derive(Clone, PartialEq, Debug)]
pub struct BundlePlan {
    name: String,
    summary: String,
    flow: Value,
    template: String,
    model_policy_ref: Slug,
    connections: Vec<String>,
    steps: Vec<(String, String)>,
    inputs: Vec<PlanInput>,
}

impl BundlePlan {
    /// Checks a plan: its members, the rules of flows, the grammar of prompts, and the names. The plan must not contain
    /// references to other assets, commands, markup, or secrets. A form must be able to ask for all its inputs.
    ///
    /// # Errors
    /// Returns every problem, or an error if the plan is redacted.
    pub fn parse(document: &Value) -> Result<Self, BundleRefusal> {
        let mut problems = Problems::default();
        let Some(members) = problems.members(document, "bundle", &MEMBERS) else {
            return Err(BundleRefusal::Invalid(problems.0));
        };
        if is_redacted(members) {
            return Err(BundleRefusal::Redacted);
        }
        if document.to_string().len() > MAX_PLAN_BYTES {
            problems.push("bundle", "too_long", "a bundle has at most 256 KiB");
            return Err(BundleRefusal::Invalid(problems.0));
        }
        let name = problems.text(members, "name", |text| is_name(text, MAX_NAME_CHARS));
        let summary = problems.text(members, "summary", |text| is_blank_or_prose(text, MAX_SUMMARY_CHARS));
        let model_policy_ref = problems.slug(members);
        let connections = problems.connections(members);
        let template = problems.template(members);
        let arguments = template.as_deref().map(argument_names).and_then(Result::ok).unwrap_or_default();
        let flow = problems.flow(members, &arguments);
        if !problems.0.is_empty() {
            return Err(BundleRefusal::Invalid(problems.0));
        }
        let plan = || {
            let (flow, steps, inputs) = flow?;
            Some(Self {
                name: name?,
                summary: summary?,
                flow,
                template: template?,
                model_policy_ref: model_policy_ref?,
                connections: connections?,
                steps,
                inputs,
            })
        };
        plan().ok_or_else(|| {
            // Each missing part has already reported a problem. This one ensures that a refusal always has a problem.
            problems.push("bundle", "invalid", "the bundle is invalid");
            BundleRefusal::Invalid(problems.0)
        })
    }

    /// Parses a stored plan. It passed the checks when it was created, so rules that became stricter since do not
    /// apply. `None` if a member is missing or malformed.
    #[must_use]
    pub fn from_stored(document: &Value) -> Option<Self> {
        let text = |name: &str| document.get(name).and_then(Value::as_str).map(str::to_owned);
        let flow = document.get("flow")?.clone();
        let template = document.pointer("/prompt_template/template")?.as_str()?.to_owned();
        let connections = document.get("connections")?.as_array()?.iter();
        let connections = connections.map(|name| name.as_str().map(str::to_owned)).collect::<Option<_>>()?;
        let arguments = argument_names(&template).unwrap_or_default();
        let inputs = declared_inputs(&flow).unwrap_or_else(|| read_inputs(&flow, &arguments));
        Some(Self {
            name: text("name")?,
            summary: text("summary")?,
            steps: steps_of(&flow),
            flow,
            template,
            model_policy_ref: Slug::parse(&text("model_policy_ref")?).ok()?,
            connections,
            inputs,
        })
    }

    /// The name of the use case.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The summary of the use case.
    #[must_use]
    pub fn summary(&self) -> &str {
        &self.summary
    }

    /// The slug of the model policy that the use case uses.
    #[must_use]
    pub const fn model_policy_ref(&self) -> &Slug {
        &self.model_policy_ref
    }

    /// The distinct names of the connections that the use case needs.
    #[must_use]
    pub fn connections(&self) -> &[String] {
        &self.connections
    }

    /// The identifier and type of each step of the flow, in the order of the plan.
    #[must_use]
    pub fn flow_steps(&self) -> &[(String, String)] {
        &self.steps
    }

    /// The inputs that a run of the flow must provide.
    #[must_use]
    pub fn inputs(&self) -> &[PlanInput] {
        &self.inputs
    }

    /// The plan as JSON with its six members.
    #[must_use]
    pub fn to_document(&self) -> Value {
        json!({
            "name": self.name,
            "summary": self.summary,
            "flow": self.flow,
            "prompt_template": { "template": self.template },
            "model_policy_ref": self.model_policy_ref.as_str(),
            "connections": self.connections,
        })
    }

    /// The plan as JSON in which the names of connections are redacted, for a reader that may not see them.
    #[must_use]
    pub fn to_redacted_document(&self) -> Value {
        let mut document = self.to_document();
        if let Some(Value::Array(names)) = document.get_mut("connections") {
            names.iter_mut().for_each(|name| *name = json!(REDACTED_CONNECTION));
        }
        document
    }

    /// The content of the flow that publication creates.
    #[must_use]
    pub fn flow_content(&self) -> Value {
        flow_content(&self.flow, &self.inputs)
    }

    /// The content of the prompt template that publication creates.
    #[must_use]
    pub fn prompt_content(&self) -> Value {
        prompt_content(&self.template, &self.flow, &self.inputs)
    }
}

/// Whether a reference of the plan is the text that replaces redacted names.
fn is_redacted(members: &Map<String, Value>) -> bool {
    let names = members.get("connections").and_then(Value::as_array).into_iter().flatten();
    names.chain(members.get("model_policy_ref")).any(|name| name.as_str() == Some(REDACTED_CONNECTION))
}

/// Converts the flow of a plan to the content of a version. A flow without a trigger receives one that declares the
/// inputs that the flow and the prompt read.
fn flow_content(flow: &Value, inputs: &[PlanInput]) -> Value {
    let mut content = flow.clone();
    if let Value::Object(members) = &mut content
        && !members.contains_key("trigger")
    {
        let schema: BTreeMap<&str, &str> =
            inputs.iter().map(|input| (input.name.as_str(), input.input_type.as_str())).collect();
        members.insert("trigger".to_owned(), json!({ "type": "api_request", "inputs_schema": schema }));
    }
    content
}

fn prompt_content(template: &str, flow: &Value, inputs: &[PlanInput]) -> Value {
    let names = argument_names(template).unwrap_or_default();
    let variable = |name: &String| json!({ "name": name, "type": argument_type(flow, inputs, name) });
    json!({ "system_prompt": template, "variables": names.iter().map(variable).collect::<Vec<_>>() })
}

/// The identifier and type of each step of a flow.
fn steps_of(flow: &Value) -> Vec<(String, String)> {
    let text_of = |step: &Value, name: &str| step.get(name).and_then(Value::as_str).map(str::to_owned);
    let steps = flow.get("steps").and_then(Value::as_array).into_iter().flatten();
    steps.filter_map(|step| Some((text_of(step, "id")?, text_of(step, "type")?))).collect()
}

/// Whether a text contains markup: a tag, a comment or a declaration.
pub(crate) fn has_markup(text: &str) -> bool {
    let starts_markup =
        |rest: &str| rest.starts_with(|next: char| next.is_ascii_alphabetic() || matches!(next, '/' | '!' | '?'));
    text.split('<').skip(1).any(starts_markup)
}

fn any_text(value: &Value, predicate: &impl Fn(&str) -> bool) -> bool {
    match value {
        Value::String(text) => predicate(text),
        Value::Array(items) => items.iter().any(|item| any_text(item, predicate)),
        Value::Object(members) => members.iter().any(|(name, member)| predicate(name) || any_text(member, predicate)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// The problems found so far.
#[derive(Default)]
struct Problems(Vec<BundleProblem>);

impl Problems {
    fn push(&mut self, path: &str, code: &'static str, message: &str) {
        self.0.push(BundleProblem { path: path.to_owned(), code, message: message.to_owned() });
    }

    /// Returns the members of an object, which must have exactly these names. Differences are reported as problems.
    fn members<'v>(&mut self, value: &'v Value, path: &str, member_names: &[&str]) -> Option<&'v Map<String, Value>> {
        let Some(members) = value.as_object() else {
            self.push(path, "invalid", "must be an object");
            return None;
        };
        for name in member_names.iter().filter(|name| !members.contains_key(**name)) {
            self.push(&format!("{path}.{name}"), "missing", "this member is required");
        }
        if members.keys().any(|name| !member_names.contains(&name.as_str())) {
            self.push(path, "unknown_field", "the object has a member that a bundle does not have");
        }
        Some(members)
    }

    /// Reads a text that people see in lists, and reports its problems.
    fn text(
        &mut self,
        members: &Map<String, Value>,
        name: &'static str,
        is_valid: impl Fn(&str) -> bool,
    ) -> Option<String> {
        let path = format!("bundle.{name}");
        let value = members.get(name)?;
        let Some(text) = value.as_str() else {
            self.push(&path, "invalid", "must be a text");
            return None;
        };
        if !is_valid(text) || has_markup(text) {
            self.push(&path, "invalid_text", "must be plain text of the allowed length, without markup");
            return None;
        }
        self.refuse_secret(&path, value)?;
        Some(text.to_owned())
    }

    fn refuse_secret(&mut self, path: &str, value: &Value) -> Option<()> {
        if any_text(value, &contains_likely_credential) {
            self.push(path, "contains_secret", "a bundle contains no credentials");
            return None;
        }
        Some(())
    }

    fn slug(&mut self, members: &Map<String, Value>) -> Option<Slug> {
        let slug = members.get("model_policy_ref")?.as_str().and_then(|text| Slug::parse(text).ok());
        if slug.is_none() {
            self.push("bundle.model_policy_ref", "invalid_slug", "must be the slug of a model policy");
        }
        slug
    }

    fn connections(&mut self, members: &Map<String, Value>) -> Option<Vec<String>> {
        const PATH: &str = "bundle.connections";
        let Some(items) = members.get("connections")?.as_array() else {
            self.push(PATH, "invalid", "must be a list of names");
            return None;
        };
        if items.len() > MAX_CONNECTIONS {
            self.push(PATH, "too_many", "a bundle names at most 20 connections");
            return None;
        }
        let mut names: Vec<String> = Vec::new();
        for (position, item) in items.iter().enumerate() {
            let mut path = PATH.to_owned();
            push_index(&mut path, position);
            let name = item.as_str().filter(|name| connection::check_name(name).is_ok());
            match name {
                None => self.push(&path, "invalid_name", "must be the name of a connection"),
                Some(name) if names.iter().any(|existing| existing == name) => {
                    self.push(&path, "duplicate_item", "the list has this name twice");
                }
                Some(name) => {
                    self.refuse_secret(&path, item);
                    names.push(name.to_owned());
                }
            }
        }
        Some(names)
    }

    fn template(&mut self, members: &Map<String, Value>) -> Option<String> {
        const PATH: &str = "bundle.prompt_template";
        let template = self.members(members.get("prompt_template")?, PATH, &["template"])?.get("template")?;
        let Some(text) = template.as_str() else {
            self.push("bundle.prompt_template.template", "invalid", "must be a text");
            return None;
        };
        self.refuse_secret("bundle.prompt_template.template", template)?;
        let content = prompt_content(text, &Value::Null, &[]);
        match content::check(AssetKind::PromptTemplate, &content) {
            Ok(CheckedContent::PromptTemplate(prompt)) if prompt.references().next().is_none() => Some(text.to_owned()),
            Ok(_) => {
                let message = "the template of a bundle refers to no other asset";
                self.push("bundle.prompt_template.template", "reference_not_allowed", message);
                None
            }
            Err(ContentRefusal::Prompt(refusal)) => {
                self.push("bundle.prompt_template.template", "invalid_prompt", &refusal.to_string());
                None
            }
            Err(ContentRefusal::Invalid(_)) => {
                let message = "the template is not the content of a prompt template";
                self.push("bundle.prompt_template.template", "invalid_prompt", message);
                None
            }
        }
    }

    /// Reads the flow. Returns it with the identifier and type of each step, and with its inputs.
    #[expect(clippy::type_complexity, reason = "three parts of one flow")]
    fn flow(
        &mut self,
        members: &Map<String, Value>,
        arguments: &[String],
    ) -> Option<(Value, Vec<(String, String)>, Vec<PlanInput>)> {
        const PATH: &str = "bundle.flow";
        let flow = members.get("flow")?;
        if !flow.is_object() {
            self.push(PATH, "invalid", "must be an object");
            return None;
        }
        self.refuse_secret(PATH, flow)?;
        let inputs = declared_inputs(flow).unwrap_or_else(|| read_inputs(flow, arguments));
        let content = flow_content(flow, &inputs);
        if let Err(ContentRefusal::Invalid(problems)) = content::check(AssetKind::OrchestrationFlow, &content) {
            for problem in problems {
                self.push(&from_pointer(PATH, &problem.pointer), "invalid_flow", &problem.message);
            }
            return None;
        }
        if !find_references(AssetKind::OrchestrationFlow, &content).is_empty() {
            self.push(PATH, "reference_not_allowed", "the flow of a bundle refers to no other asset");
            return None;
        }
        self.refuse_inputs(&inputs, flow.get("trigger").is_some())?;
        Some((flow.clone(), steps_of(flow), inputs))
    }

    /// Reports inputs for which no form can ask, because publication creates a workload with a form.
    fn refuse_inputs(&mut self, inputs: &[PlanInput], are_declared: bool) -> Option<()> {
        const PATH: &str = "bundle.flow";
        let problem_count = self.0.len();
        for input in inputs {
            let mut path = PATH.to_owned();
            if are_declared {
                path = format!("{PATH}.trigger.inputs_schema.{}", input.name);
            }
            if !input.has_field_name() {
                let message = "an input has the name of a form field: a lower-case letter, then lower-case letters, digits and `_`";
                self.push(&path, "invalid_field_name", message);
            } else if input.field_type().is_none() {
                let message = "an input of a bundle is a string, text, number, integer, boolean or date";
                self.push(&path, "not_one_of", message);
            }
        }
        (self.0.len() == problem_count).then_some(())
    }
}

#[cfg(test)]
pub(crate) mod tests;
