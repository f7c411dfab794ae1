//! Flows: the steps of a run.
//!
//! A `Flow` is valid by construction: step identifiers are unique, targets exist, all steps are reachable, and there is
//! no cycle. Every path ends in a `return` step or in an uncaught failure.

pub mod bound_prompt_use;
mod parser;
mod problems;
pub mod reference;
mod step_rules;
pub mod value_budget;
mod yaml;

use crate::asset::kind::AssetKind;
use problems::LocatedProblem;
use reference::{Template, TextTemplate, ValueReference};
use serde_json::{Map, Value, json};
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};
use yaml::MemberPart;

/// The maximum number of steps of a flow.
pub const MAX_STEPS: usize = 200;
/// The maximum number of turns of an agent step.
pub const MAX_AGENT_TURNS: u64 = 50;

/// A validated flow: the steps of a run with their order.
#[derive(Clone, PartialEq, Debug)]
pub struct Flow {
    name: Option<String>,
    description: Option<String>,
    labels: Map<String, Value>,
    trigger: Trigger,
    entry_step: String,
    steps: Vec<Step>,
}

/// The trigger of a flow, with the inputs that it declares.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trigger {
    /// The kind of trigger, such as `api_request`.
    pub kind: String,
    /// The declared inputs: the type of each, by name.
    pub inputs: BTreeMap<String, String>,
}

/// A step of a flow.
#[derive(Clone, PartialEq, Debug)]
pub struct Step {
    /// The identifier, unique in the flow.
    pub id: String,
    /// The type of the step, with the settings of that type.
    pub kind: StepKind,
    /// The templates of the step's inputs, by name.
    pub inputs: BTreeMap<String, Template>,
    /// The next step after success; `None` continues with the next step of the list.
    pub on_success: Option<SuccessTarget>,
    /// The identifier of the next step after a failure; `None` ends the run.
    pub on_failure: Option<String>,
    /// How later steps see the output; `None` leaves it as it is.
    pub output: Option<StepOutputMapping>,
}

/// The next step after success, with the content key that names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SuccessTarget {
    /// The content key `next` names this step.
    Next(String),
    /// The content key `on_success` names this step.
    OnSuccess(String),
}

impl SuccessTarget {
    /// The identifier of the next step.
    #[must_use]
    pub fn step(&self) -> &str {
        match self {
            Self::Next(step) | Self::OnSuccess(step) => step,
        }
    }

    const fn key(&self) -> &'static str {
        match self {
            Self::Next(_) => "next",
            Self::OnSuccess(_) => "on_success",
        }
    }
}

/// The type of a step.
#[derive(Clone, PartialEq, Debug)]
pub enum StepKind {
    /// A task that Fairway performs without a model.
    Task {
        /// The action of the task.
        action: Action,
    },
    /// One call of a model.
    LlmCall {
        /// Reference to the model policy; `None` uses the model policy of the release.
        model_policy: Option<TextTemplate>,
    },
    /// A model that calls tools until it gives a final answer.
    Agent {
        /// Reference to the model policy; `None` uses the model policy of the release.
        model_policy: Option<TextTemplate>,
        /// The tools that the model may call.
        tools: ToolChoice,
        /// The maximum number of turns; `None` uses the default.
        max_steps: Option<u64>,
    },
    /// The computation of a text's embedding vector.
    Embedding {
        /// Reference to the model policy; `None` uses the model policy of the release.
        model_policy: Option<TextTemplate>,
    },
    /// The end of the run, with its answer.
    Return {
        /// The template of the run's answer.
        output: Template,
    },
}

impl StepKind {
    /// Every step type as content spells it, in the order of declaration.
    pub const WIRE_FORMS: [&str; 5] = ["task", "llm_call", "agent", "embedding", "return"];

    /// The step type as content spells it, such as `task`.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Task { .. } => "task",
            Self::LlmCall { .. } => "llm_call",
            Self::Agent { .. } => "agent",
            Self::Embedding { .. } => "embedding",
            Self::Return { .. } => "return",
        }
    }

    /// Whether the step calls a model provider, which requires a route.
    #[must_use]
    pub const fn is_provider_routed(&self) -> bool {
        match self {
            Self::LlmCall { .. } | Self::Agent { .. } | Self::Embedding { .. } => true,
            Self::Task { .. } | Self::Return { .. } => false,
        }
    }

    const fn model_policy(&self) -> Option<&TextTemplate> {
        match self {
            Self::LlmCall { model_policy } | Self::Agent { model_policy, .. } | Self::Embedding { model_policy } => {
                model_policy.as_ref()
            }
            Self::Task { .. } | Self::Return { .. } => None,
        }
    }
}

/// The tools that an agent may call, among those that the release binds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ToolChoice {
    /// All tools that the release binds.
    All,
    /// The tools with these names. A name is the one that models see, or an asset slug.
    Named(Vec<String>),
}

/// The action of a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Evaluates the policy again, with the step's inputs merged over the run's inputs.
    EvaluatePolicy,
    /// Searches a bound knowledge base.
    RetrieveDocuments,
}

impl Action {
    /// Every action, in the order of declaration.
    pub const ALL: [Self; 2] = [Self::EvaluatePolicy, Self::RetrieveDocuments];

    /// The wire form in content, such as `evaluate_policy`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::EvaluatePolicy => "evaluate_policy",
            Self::RetrieveDocuments => "retrieve_documents",
        }
    }

    /// Parses the content form; `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.as_str() == text)
    }
}

/// How later steps refer to the output of a step.
#[derive(Clone, PartialEq, Debug)]
pub enum StepOutputMapping {
    /// The output has this name: `{{steps.<id>.output}}` and `{{steps.<id>.output.<name>}}` both resolve to the whole
    /// output.
    Named(String),
    /// This template computes the output; it can refer to the step's own raw output.
    Mapped(Template),
}

/// The continuation of a run after a step.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum NextStep<'f> {
    /// The run continues with this step.
    Step(&'f Step),
    /// The run returns its answer, because the step is a `return`.
    Returns,
    /// The run fails, because no step catches the failure of this step.
    Fails,
}

/// A problem in the content of a flow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowProblem {
    /// The line in the YAML text, from 1; `None` for content that is not YAML.
    pub line: Option<u32>,
    /// The column in the YAML text, from 1; `None` for content that is not YAML.
    pub column: Option<u32>,
    /// The JSON pointer to the problem in the content.
    pub pointer: String,
    /// The stable code of the problem.
    pub code: &'static str,
    /// The message for people, which contains no part of the content.
    pub message: Cow<'static, str>,
    /// The keys that are valid in place of an unknown key; empty for other problems.
    pub valid_names: &'static [&'static str],
}

impl FlowProblem {
    const fn new(code: &'static str, message: &'static str) -> Self {
        let message = Cow::Borrowed(message);
        Self { line: None, column: None, pointer: String::new(), code, message, valid_names: &[] }
    }
}

impl From<LocatedProblem> for FlowProblem {
    fn from(finding: LocatedProblem) -> Self {
        let pointer = finding.pointer();
        let LocatedProblem { code, message, valid_names, .. } = finding;
        Self { line: None, column: None, pointer, code, message, valid_names }
    }
}

/// Parses a flow from YAML text.
///
/// # Errors
/// Returns the problems with line and column, at most 1000. It omits further problems of values that are already
/// reported as broken.
pub fn parse_yaml(text: &str) -> Result<Flow, Vec<FlowProblem>> {
    let document = yaml::parse(text)?;
    let findings = match parser::read(&document.value()) {
        Ok(flow) if document.problems.is_empty() => return Ok(flow),
        Ok(_) => Vec::new(),
        Err(findings) => findings,
    };
    let to_flow_problem = |finding: LocatedProblem| {
        // An unknown key is reported at the position of the key; any other problem is reported at the position of the
        // value.
        let part = if finding.code == problems::UNKNOWN_KEY { MemberPart::Key } else { MemberPart::Value };
        let position = document.position(&finding.path, part)?;
        Some(FlowProblem { line: Some(position.line), column: Some(position.column), ..finding.into() })
    };
    let located: Vec<FlowProblem> = findings.into_iter().filter_map(to_flow_problem).collect();
    let mut problems = document.problems;
    problems.extend(located);
    problems.truncate(problems::MAX_PROBLEMS);
    Err(problems)
}

impl Flow {
    /// Parses a flow from the content of an asset version.
    ///
    /// # Errors
    /// Returns the problems with their JSON pointers, at most 1000.
    pub fn from_content(content: &Value) -> Result<Self, Vec<FlowProblem>> {
        parser::read(content).map_err(|findings| findings.into_iter().map(FlowProblem::from).collect())
    }

    /// The flow of a release that binds no flow: one call of a model with the bound prompt and model policy, whose
    /// answer the run returns.
    #[must_use]
    pub fn implicit() -> Self {
        let bound = |role| TextTemplate::from_reference(ValueReference::Release { role });
        let answer = ValueReference::Step { step: "answer".to_owned(), fields: Vec::new() };
        let call = Step {
            id: "answer".to_owned(),
            kind: StepKind::LlmCall { model_policy: Some(bound(AssetKind::ModelPolicy)) },
            inputs: BTreeMap::from([("prompt".to_owned(), Template::Text(bound(AssetKind::PromptTemplate)))]),
            on_success: None,
            on_failure: None,
            output: None,
        };
        let end = Step {
            id: "done".to_owned(),
            kind: StepKind::Return { output: Template::Text(TextTemplate::from_reference(answer)) },
            inputs: BTreeMap::new(),
            on_success: None,
            on_failure: None,
            output: None,
        };
        Self {
            name: None,
            description: None,
            labels: Map::new(),
            trigger: Trigger { kind: parser::DEFAULT_TRIGGER.to_owned(), inputs: BTreeMap::new() },
            entry_step: call.id.clone(),
            steps: vec![call, end],
        }
    }

    /// Makes every step lead back to the entry step. Validation would reject this cycle.
    #[cfg(test)]
    pub(crate) fn with_cycle_to_entry(mut self) -> Self {
        let entry = self.entry_step.clone();
        for step in &mut self.steps {
            step.on_success = Some(SuccessTarget::Next(entry.clone()));
        }
        self
    }

    /// The name that the content gives the flow, if any.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The description in the content, if any.
    #[must_use]
    pub fn description(&self) -> Option<&str> {
        self.description.as_deref()
    }

    /// The trigger that starts the flow, with the inputs that it declares.
    #[must_use]
    pub const fn trigger(&self) -> &Trigger {
        &self.trigger
    }

    /// The steps, in list order.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The first step of a run. INVARIANT: a validated flow has an entry step.
    #[must_use]
    pub fn entry(&self) -> Option<&Step> {
        self.step(&self.entry_step)
    }

    /// Finds a step by its identifier.
    #[must_use]
    pub fn step(&self, id: &str) -> Option<&Step> {
        self.steps.iter().find(|step| step.id == id)
    }

    /// The continuation of the run after this step, which depends on the success or failure of the step.
    #[must_use]
    pub fn next_after<'f>(&'f self, step: &Step, success: bool) -> NextStep<'f> {
        if let StepKind::Return { .. } = step.kind {
            return NextStep::Returns;
        }
        let following = if !success {
            step.on_failure.as_deref().and_then(|id| self.step(id))
        } else if let Some(successor) = &step.on_success {
            self.step(successor.step())
        } else {
            self.steps.iter().skip_while(|other| other.id != step.id).nth(1)
        };
        following.map_or(NextStep::Fails, NextStep::Step)
    }

    /// Whether any step calls a model provider, so that the run needs a model policy.
    #[must_use]
    pub fn uses_provider_routes(&self) -> bool {
        self.steps.iter().any(|step| step.kind.is_provider_routed())
    }

    /// The roles of bound assets to which the flow refers.
    #[must_use]
    pub fn referenced_release_roles(&self) -> BTreeSet<AssetKind> {
        let role = |reference: &ValueReference| match reference {
            ValueReference::Release { role } => Some(*role),
            ValueReference::Trigger { .. } | ValueReference::Step { .. } => None,
        };
        self.steps.iter().flat_map(Step::references).filter_map(|(_, _, reference)| role(reference)).collect()
    }

    /// The tool choice of each agent step.
    pub fn agent_tool_choices(&self) -> impl Iterator<Item = &ToolChoice> {
        self.steps.iter().filter_map(|step| match &step.kind {
            StepKind::Agent { tools, .. } => Some(tools),
            StepKind::Task { .. } | StepKind::LlmCall { .. } | StepKind::Embedding { .. } | StepKind::Return { .. } => {
                None
            }
        })
    }

    /// The flow as content of an asset version.
    #[must_use]
    pub fn to_content(&self) -> Value {
        let steps: Vec<Value> = self.steps.iter().map(Step::to_content).collect();
        let mut content = Map::from_iter([
            ("trigger".to_owned(), json!({"type": self.trigger.kind, "inputs_schema": self.trigger.inputs})),
            ("entry_step".to_owned(), json!(self.entry_step)),
            ("steps".to_owned(), Value::Array(steps)),
        ]);
        for (key, text) in [("name", &self.name), ("description", &self.description)] {
            if let Some(text) = text {
                content.insert(key.to_owned(), json!(text));
            }
        }
        if !self.labels.is_empty() {
            content.insert("labels".to_owned(), Value::Object(self.labels.clone()));
        }
        Value::Object(content)
    }
}

impl Step {
    /// Every reference of the step, with its content key. A reference in the inputs also has the name of the input.
    fn references(&self) -> Vec<(&'static str, Option<&str>, &ValueReference)> {
        let mut found = Vec::new();
        for (name, input) in &self.inputs {
            found.extend(input.references().into_iter().map(|reference| ("inputs", Some(name.as_str()), reference)));
        }
        if let Some(text) = self.kind.model_policy() {
            found.extend(text.references().map(|reference| ("model_policy", None, reference)));
        }
        let output = match (&self.kind, &self.output) {
            (StepKind::Return { output }, _) | (_, Some(StepOutputMapping::Mapped(output))) => Some(output),
            _ => None,
        };
        if let Some(output) = output {
            found.extend(output.references().into_iter().map(|reference| ("output", None, reference)));
        }
        found
    }

    fn to_content(&self) -> Value {
        let mut content =
            Map::from_iter([("id".to_owned(), json!(self.id)), ("type".to_owned(), json!(self.kind.as_str()))]);
        let mut put = |key: &str, value: Option<Value>| {
            if let Some(value) = value {
                content.insert(key.to_owned(), value);
            }
        };
        put("model_policy", self.kind.model_policy().map(|text| json!(text.source())));
        match &self.kind {
            StepKind::Task { action } => put("action", Some(json!(action.as_str()))),
            StepKind::Agent { tools, max_steps, .. } => {
                put(
                    "tools",
                    match tools {
                        ToolChoice::All => None,
                        ToolChoice::Named(names) => Some(json!(names)),
                    },
                );
                put("max_steps", max_steps.map(|limit| json!(limit)));
            }
            StepKind::Return { output } => put("output", Some(output.source())),
            StepKind::LlmCall { .. } | StepKind::Embedding { .. } => {}
        }
        let inputs: Map<String, Value> =
            self.inputs.iter().map(|(name, input)| (name.clone(), input.source())).collect();
        put("inputs", (!inputs.is_empty()).then_some(Value::Object(inputs)));
        if let Some(successor) = &self.on_success {
            put(successor.key(), Some(json!(successor.step())));
        }
        put("on_failure", self.on_failure.as_ref().map(|step| json!(step)));
        match &self.output {
            None => {}
            Some(StepOutputMapping::Named(name)) => put("output", Some(json!(name))),
            Some(StepOutputMapping::Mapped(template)) => put("output", Some(template.source())),
        }
        Value::Object(content)
    }
}

#[cfg(test)]
mod tests;
