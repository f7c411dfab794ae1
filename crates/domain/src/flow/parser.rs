//! Parses content into a flow, and reports all problems of all steps at once.

use super::{
    Action, Flow, MAX_AGENT_TURNS, MAX_STEPS, Step, StepKind, StepOutputMapping, SuccessTarget, ToolChoice, Trigger,
    problems::{LocatedProblem, Path, ProblemList},
    reference::{ReferenceRefusal, Template, TextTemplate, ValueReference, is_name, is_step_id},
    step_rules,
};
use crate::number;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// The trigger of a flow that declares none.
pub(super) const DEFAULT_TRIGGER: &str = "api_request";
/// The maximum number of values in a flow, both in YAML and in JSON.
pub(super) const MAX_VALUES: usize = 20_000;
/// The maximum length of a flow's name, in bytes; `MAX_DESCRIPTION` limits its description.
const MAX_FLOW_NAME: usize = 200;
const MAX_DESCRIPTION: usize = 4_000;
/// The types that the declaration of an input can name.
const INPUT_TYPES: [&str; 8] = ["string", "text", "number", "integer", "boolean", "date", "array", "object"];

const FLOW_KEYS: [&str; 6] = ["name", "description", "labels", "trigger", "entry_step", "steps"];
const TASK_KEYS: [&str; 8] = ["id", "type", "action", "inputs", "on_success", "on_failure", "next", "output"];
const CALL_KEYS: [&str; 8] = ["id", "type", "model_policy", "inputs", "on_success", "on_failure", "next", "output"];
const AGENT_KEYS: [&str; 10] =
    ["id", "type", "model_policy", "tools", "max_steps", "inputs", "on_success", "on_failure", "next", "output"];
const RETURN_KEYS: [&str; 3] = ["id", "type", "output"];
/// All keys of all step types, which are allowed in a step of unknown type.
const STEP_KEYS: [&str; 11] = [
    "id",
    "type",
    "action",
    "model_policy",
    "tools",
    "max_steps",
    "inputs",
    "on_success",
    "on_failure",
    "next",
    "output",
];

/// The types of steps as content names them. The allowed and required keys of a step depend only on its type, so they
/// are checked even if other parts are unreadable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StepType {
    Task,
    LlmCall,
    Agent,
    Embedding,
    Return,
}

impl StepType {
    pub(super) fn parse(text: &str) -> Option<Self> {
        match text {
            "task" => Some(Self::Task),
            "llm_call" => Some(Self::LlmCall),
            "agent" => Some(Self::Agent),
            "embedding" => Some(Self::Embedding),
            "return" => Some(Self::Return),
            _ => None,
        }
    }

    const fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Task => &TASK_KEYS,
            Self::LlmCall | Self::Embedding => &CALL_KEYS,
            Self::Agent => &AGENT_KEYS,
            Self::Return => &RETURN_KEYS,
        }
    }

    /// The input that a step of this type must have, if any.
    const fn required_input(self) -> Option<&'static str> {
        match self {
            Self::LlmCall | Self::Agent => Some("prompt"),
            Self::Embedding => Some("text"),
            Self::Task | Self::Return => None,
        }
    }
}

/// Reads a flow from content.
///
/// # Errors
/// Returns the problems of all steps, at most 1000.
pub(super) fn read(content: &Value) -> Result<Flow, Vec<LocatedProblem>> {
    let mut findings = ProblemList::default();
    match flow(content, &mut findings) {
        Some(flow) if findings.is_empty() => Ok(flow),
        Some(_) | None => Err(findings.0),
    }
}

fn flow(content: &Value, findings: &mut ProblemList) -> Option<Flow> {
    let root = Path::default();
    if !is_bounded(content, &mut { MAX_VALUES }) {
        findings.report(&root, "flow_too_large", "a flow has at most 20,000 values");
        return None;
    }
    let map = findings.read_object(content, &root, &FLOW_KEYS)?;
    let name = bounded_text(map, "name", MAX_FLOW_NAME, findings);
    let description = bounded_text(map, "description", MAX_DESCRIPTION, findings);
    let labels = labels(map, findings);
    let trigger = trigger(map, findings);
    let entry_step = findings.read_required_text(map, "entry_step", &root).map(str::to_owned);
    let steps = steps(map, findings);
    step_rules::check(map, findings);
    Some(Flow { name, description, labels, trigger, entry_step: entry_step?, steps: steps? })
}

/// Whether a value contains at most `remaining` values. YAML text is limited before it is parsed, but JSON content can
/// be sixteen times as long.
fn is_bounded(value: &Value, remaining: &mut usize) -> bool {
    let Some(reduced) = remaining.checked_sub(1) else { return false };
    *remaining = reduced;
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
        Value::Array(items) => items.iter().all(|item| is_bounded(item, remaining)),
        Value::Object(members) => members.values().all(|member| is_bounded(member, remaining)),
    }
}

fn bounded_text(map: &Map<String, Value>, key: &str, limit: usize, findings: &mut ProblemList) -> Option<String> {
    let text = findings.read_text(map, key, &Path::default())?;
    if text.len() > limit {
        findings.invalid(&Path::default().key(key), "the text is too long");
    }
    Some(text.to_owned())
}

fn labels(map: &Map<String, Value>, findings: &mut ProblemList) -> Map<String, Value> {
    let path = Path::default().key("labels");
    let Some(value) = map.get("labels") else { return Map::new() };
    let Some(labels) = value.as_object() else {
        findings.wrong_type(&path);
        return Map::new();
    };
    for (key, _) in labels.iter().filter(|(_, label)| !label.is_string()) {
        findings.wrong_type(&path.key(key));
    }
    labels.clone()
}

fn trigger(map: &Map<String, Value>, findings: &mut ProblemList) -> Trigger {
    let path = Path::default().key("trigger");
    let mut trigger = Trigger { kind: DEFAULT_TRIGGER.to_owned(), inputs: BTreeMap::new() };
    let Some(map) = map.get("trigger").and_then(|value| findings.read_object(value, &path, &["type", "inputs_schema"]))
    else {
        return trigger;
    };
    if let Some(kind) = findings.read_text(map, "type", &path) {
        if !is_name(kind) {
            findings.invalid(&path.key("type"), "expected a short name such as `api_request`");
        }
        kind.clone_into(&mut trigger.kind);
    }
    let path = path.key("inputs_schema");
    let Some(inputs) = map.get("inputs_schema") else { return trigger };
    let Some(inputs) = inputs.as_object() else {
        findings.wrong_type(&path);
        return trigger;
    };
    for (name, kind) in inputs {
        let path = path.key(name);
        // Names with two leading underscores are reserved for host languages.
        if !is_name(name) || name.starts_with("__") {
            findings.invalid(&path, "an input has a name of letters, digits and underscores");
        }
        match kind.as_str() {
            None => findings.wrong_type(&path),
            Some(kind) if !INPUT_TYPES.contains(&kind) => {
                let message = "an input is a string, text, number, integer, boolean, date, array or object";
                findings.invalid(&path, message);
            }
            Some(_) => {}
        }
        // An invalid input still counts as declared, so that references to it cause no further problems.
        trigger.inputs.insert(name.clone(), kind.as_str().unwrap_or_default().to_owned());
    }
    trigger
}

/// Reads the steps; `None` if any step is unreadable.
fn steps(map: &Map<String, Value>, findings: &mut ProblemList) -> Option<Vec<Step>> {
    let path = Path::default().key("steps");
    let Some(value) = map.get("steps") else {
        findings.missing(&path);
        return None;
    };
    let Some(list) = value.as_array() else {
        findings.wrong_type(&path);
        return None;
    };
    if list.is_empty() {
        findings.invalid(&path, "a flow has at least one step");
    }
    if list.len() > MAX_STEPS {
        findings.report(&path, "too_many_steps", "a flow has at most 200 steps");
    }
    let read: Vec<Option<Step>> =
        list.iter().enumerate().map(|(index, value)| step(value, &path.index(index), findings)).collect();
    read.into_iter().collect()
}

/// Reads a step. All keys are checked, even if some of them are unreadable.
fn step(value: &Value, path: &Path, findings: &mut ProblemList) -> Option<Step> {
    let Some(map) = value.as_object() else {
        findings.wrong_type(path);
        return None;
    };
    let id = findings.read_required_text(map, "id", path);
    if id.is_some_and(|id| !is_step_id(id)) {
        findings.invalid(&path.key("id"), "a step's id has letters, digits, underscores and hyphens");
    }
    let inputs = inputs(map, path, findings);
    let type_name = findings.read_required_text(map, "type", path);
    let step_type = type_name.and_then(StepType::parse);
    if type_name.is_some() && step_type.is_none() {
        findings.report(
            &path.key("type"),
            "unknown_step_type",
            "a step has the type task, llm_call, agent, embedding or return",
        );
    }
    let kind = step_type.and_then(|step_type| kind(step_type, map, path, findings));
    findings.read_object(value, path, step_type.map_or(&STEP_KEYS, StepType::keys));
    let given_inputs = map.get("inputs").and_then(Value::as_object);
    let required = step_type.and_then(StepType::required_input);
    if let Some(required) =
        required.filter(|required| !given_inputs.is_some_and(|given_inputs| given_inputs.contains_key(*required)))
    {
        findings.missing(&path.key("inputs").key(required));
    }
    let output = match step_type {
        Some(StepType::Task | StepType::LlmCall | StepType::Agent | StepType::Embedding) => output(map, path, findings),
        // The key `output` of a `return` step belongs to its step type, so it is no output for later steps.
        Some(StepType::Return) => None,
        None => {
            check_untyped_step(map, path, findings);
            None
        }
    };
    let on_success = success_target(map, path, findings);
    let on_failure = findings.read_text(map, "on_failure", path).map(str::to_owned);
    Some(Step { id: id?.to_owned(), kind: kind?, inputs, on_success, on_failure, output })
}

/// Checks a step of unknown type, by the rules that apply to all types.
fn check_untyped_step(map: &Map<String, Value>, path: &Path, findings: &mut ProblemList) {
    model_policy(map, path, findings);
    tools(map, path, findings);
    max_steps(map, path, findings);
    if let Some(output) = map.get("output") {
        template(output, &path.key("output"), findings);
    }
}

fn success_target(map: &Map<String, Value>, path: &Path, findings: &mut ProblemList) -> Option<SuccessTarget> {
    let next = findings.read_text(map, "next", path).map(str::to_owned).map(SuccessTarget::Next);
    let on_success = findings.read_text(map, "on_success", path).map(str::to_owned).map(SuccessTarget::OnSuccess);
    if next.is_some() && on_success.is_some() {
        findings.report(&path.key("next"), "next_and_on_success", "a step has `next` or `on_success`, not both");
    }
    next.or(on_success)
}

fn kind(step_type: StepType, map: &Map<String, Value>, path: &Path, findings: &mut ProblemList) -> Option<StepKind> {
    match step_type {
        StepType::Task => {
            let action = Action::parse(findings.read_required_text(map, "action", path)?);
            if action.is_none() {
                findings.report(&path.key("action"), "unknown_action", "this action is not known");
            }
            Some(StepKind::Task { action: action? })
        }
        StepType::LlmCall => Some(StepKind::LlmCall { model_policy: model_policy(map, path, findings) }),
        StepType::Embedding => Some(StepKind::Embedding { model_policy: model_policy(map, path, findings) }),
        StepType::Agent => Some(StepKind::Agent {
            model_policy: model_policy(map, path, findings),
            tools: tools(map, path, findings),
            max_steps: max_steps(map, path, findings),
        }),
        StepType::Return => {
            let path = path.key("output");
            let Some(output) = map.get("output") else {
                findings.missing(&path);
                return None;
            };
            Some(StepKind::Return { output: template(output, &path, findings)? })
        }
    }
}

fn model_policy(map: &Map<String, Value>, path: &Path, findings: &mut ProblemList) -> Option<TextTemplate> {
    let source = findings.read_text(map, "model_policy", path)?;
    let path = path.key("model_policy");
    let text = parse_text(source, &path, findings)?;
    let role = |reference: &ValueReference| match reference {
        ValueReference::Release { role } => matches!(role.as_str(), "model_policy" | "model_config"),
        ValueReference::Trigger { .. } | ValueReference::Step { .. } => false,
    };
    // Only a reference to the bound model policy is allowed, because the caller of a run must not choose the route.
    if text.references().count() != 1 || !text.references().all(role) || !is_single_reference(source) {
        findings.invalid(&path, "expected `{{release.model_policy}}`");
    }
    Some(text)
}

/// Whether the text consists only of one reference. The caller has already checked that it contains exactly one.
fn is_single_reference(text: &str) -> bool {
    text.starts_with("{{") && text.ends_with("}}")
}

fn tools(map: &Map<String, Value>, path: &Path, findings: &mut ProblemList) -> ToolChoice {
    let Some(value) = map.get("tools") else { return ToolChoice::All };
    let names: Option<Vec<String>> =
        value.as_array().and_then(|list| list.iter().map(|tool| tool.as_str().map(str::to_owned)).collect());
    ToolChoice::Named(names.unwrap_or_else(|| {
        findings.wrong_type(&path.key("tools"));
        Vec::new()
    }))
}

fn max_steps(map: &Map<String, Value>, path: &Path, findings: &mut ProblemList) -> Option<u64> {
    let value = map.get("max_steps")?;
    let max_turns =
        value.as_number().and_then(number::as_whole).filter(|max_turns| (1..=MAX_AGENT_TURNS).contains(max_turns));
    if max_turns.is_none() {
        findings.invalid(&path.key("max_steps"), "an agent takes 1 to 50 steps");
    }
    max_turns
}

fn inputs(map: &Map<String, Value>, path: &Path, findings: &mut ProblemList) -> BTreeMap<String, Template> {
    let path = path.key("inputs");
    let Some(value) = map.get("inputs") else { return BTreeMap::new() };
    let Some(inputs) = value.as_object() else {
        findings.wrong_type(&path);
        return BTreeMap::new();
    };
    let mut read = BTreeMap::new();
    for (name, input) in inputs {
        let path = path.key(name);
        if !is_name(name) {
            findings.invalid(&path, "an input has a name of letters, digits and underscores");
        }
        if let Some(template) = template(input, &path, findings) {
            read.insert(name.clone(), template);
        }
    }
    read
}

fn output(map: &Map<String, Value>, path: &Path, findings: &mut ProblemList) -> Option<StepOutputMapping> {
    let value = map.get("output")?;
    let path = path.key("output");
    match value {
        Value::String(text) if is_name(text) => Some(StepOutputMapping::Named(text.clone())),
        Value::String(text) if text.contains("{{") => template(value, &path, findings).map(StepOutputMapping::Mapped),
        Value::Object(_) => template(value, &path, findings).map(StepOutputMapping::Mapped),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            findings.invalid(&path, "expected a name, a reference or a mapping");
            None
        }
    }
}

fn template(value: &Value, path: &Path, findings: &mut ProblemList) -> Option<Template> {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => Some(Template::Scalar(value.clone())),
        Value::String(text) => parse_text(text, path, findings).map(Template::Text),
        Value::Array(items) => {
            let read: Vec<_> =
                items.iter().enumerate().map(|(index, item)| template(item, &path.index(index), findings)).collect();
            read.into_iter().collect::<Option<_>>().map(Template::List)
        }
        Value::Object(members) => {
            let read: Vec<_> = members
                .iter()
                .map(|(key, member)| Some((key.clone(), template(member, &path.key(key), findings)?)))
                .collect();
            read.into_iter().collect::<Option<_>>().map(Template::Object)
        }
    }
}

fn parse_text(text: &str, path: &Path, findings: &mut ProblemList) -> Option<TextTemplate> {
    let parsed = TextTemplate::parse(text).ok();
    if parsed.is_none() {
        let refusals: BTreeSet<ReferenceRefusal> = TextTemplate::scan(text).filter_map(Result::err).collect();
        for refusal in refusals {
            let message = match refusal {
                ReferenceRefusal::UnknownRole => {
                    "a reference names an unknown role; the roles are asset kinds, such as `model_policy`"
                }
                ReferenceRefusal::Malformed => {
                    "double braces must hold `trigger.<input>`, `release.<role>` or `steps.<step>.output`"
                }
            };
            findings.report(path, refusal.code(), message);
        }
    }
    parsed
}
