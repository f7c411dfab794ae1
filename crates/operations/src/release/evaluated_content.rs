//! Summaries of contents: the parts of a version's content that the release rules evaluate.

use crate::Failure;
use fairway_domain::{
    asset::{
        content::{self, CheckedContent, Tool, tool::ToolBinding},
        kind::AssetKind,
    },
    execution::plan::{SUPPORTED_OBLIGATIONS, is_supported_action},
    flow::{Flow, StepKind, ToolChoice},
    guardrail, hook,
    memory::MemoryConfig,
    prompt::PromptTemplate,
    release::{activate::FlowStatus, review::ApprovalRule, unpassed_prompt_variable::PromptStep},
};
use serde_json::Value;
use std::collections::BTreeSet;

const UNREADABLE: Failure = Failure::Inconsistent("a stored control cannot be parsed");

/// Returns the names of the step types and actions of a flow that this server cannot execute.
fn unavailable_steps(flow: &Flow) -> Vec<String> {
    let mut names: Vec<String> = flow
        .steps()
        .iter()
        .filter_map(|step| match &step.kind {
            StepKind::Task { action } if !is_supported_action(*action) => Some(action.as_str()),
            StepKind::Task { .. }
            | StepKind::LlmCall { .. }
            | StepKind::Agent { .. }
            | StepKind::Embedding { .. }
            | StepKind::Return { .. } => None,
        })
        .map(str::to_owned)
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The part of a version's content that the release rules evaluate.
#[derive(Clone, Debug)]
pub(crate) enum EvaluatedContent {
    /// The content is a flow.
    Flow {
        /// The facts about the flow that the activation rules evaluate.
        status: FlowStatus,
        /// The steps that render the bound prompt.
        prompt_steps: Vec<PromptStep>,
    },
    /// The content is a prompt template.
    Prompt {
        /// The names of the arguments that the template's own text needs, without its includes.
        arguments: Vec<String>,
    },
    /// The content is a model policy.
    Routes {
        /// The identifier of the primary route, if this version approves the route.
        approved_primary: Option<String>,
        /// Every approved route: its identifier and its account.
        approved: Vec<(String, String)>,
    },
    /// The content is a policy bundle.
    Policy {
        /// Obligations that the policy may impose but that this server cannot fulfil.
        unsupported_obligations: Vec<String>,
        /// Each rule with the inputs that it requires.
        required_inputs: Vec<(String, Vec<String>)>,
    },
    /// The content is a tool; its backend determines how it is called.
    Tool { name: String, backend: ToolBackend },
    /// The content is a guardrail or hook: JSON pointers to the parts that this server cannot enforce.
    Controls(Vec<String>),
    /// The content is a workload profile with this approval rule.
    Profile(ApprovalRule),
    /// The content is a memory asset: JSON pointers to the requirements that this server cannot meet.
    Memory(Vec<&'static str>),
    /// The release rules do not evaluate content of this kind.
    Irrelevant,
}

/// The component that executes a tool, as far as the tool's content determines it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ToolBackend {
    /// This server calls the tool itself.
    Local,
    /// An MCP server provides the tool. Whether the tool is available depends on the content of that server's asset.
    McpServer,
    /// This server cannot call the tool.
    Unavailable,
}

/// Heap memory of a short text in addition to its characters, in bytes.
const TEXT_OVERHEAD: usize = size_of::<String>() + 16;

impl EvaluatedContent {
    /// Estimated memory of the summary, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let heap_bytes = match self {
            Self::Flow { status, prompt_steps } => {
                let step = |step: &PromptStep| step.step_id.len() + TEXT_OVERHEAD + texts(&step.arguments);
                flow_bytes(status) + prompt_steps.iter().map(step).sum::<usize>()
            }
            Self::Prompt { arguments } => texts(arguments),
            Self::Routes { approved_primary, approved } => {
                let accounts = approved.iter().map(|(route, account)| route.len() + account.len() + 2 * TEXT_OVERHEAD);
                approved_primary.as_ref().map_or(0, String::len) + accounts.sum::<usize>()
            }
            Self::Policy { unsupported_obligations, required_inputs } => {
                let rule_bytes = |(rule, inputs): &(String, Vec<String>)| rule.len() + TEXT_OVERHEAD + texts(inputs);
                texts(unsupported_obligations) + required_inputs.iter().map(rule_bytes).sum::<usize>()
            }
            Self::Controls(pointers) => texts(pointers),
            Self::Tool { name, .. } => name.len(),
            Self::Memory(pointers) => size_of_val(pointers.as_slice()),
            Self::Profile(_) | Self::Irrelevant => 0,
        };
        size_of::<Self>().saturating_add(heap_bytes)
    }

    pub(super) fn summarize(kind: AssetKind, content: &Value) -> Result<Self, Failure> {
        Ok(match kind {
            AssetKind::OrchestrationFlow => summarize_flow(content),
            AssetKind::PromptTemplate => summarize_prompt(content),
            AssetKind::ModelPolicy | AssetKind::ModelConfig => approved_routes(kind, content),
            AssetKind::PolicyBundle => summarize_policy(content)?,
            AssetKind::GuardrailConfig => {
                Self::Controls(guardrail::unsupported_parts(content).map_err(|_| UNREADABLE)?)
            }
            AssetKind::HookDefinition => Self::Controls(hook::unsupported_parts(content).map_err(|_| UNREADABLE)?),
            AssetKind::WorkloadProfile => Self::Profile(ApprovalRule::from_profile(content)),
            AssetKind::Memory => Self::Memory(MemoryConfig::parse(content).err().unwrap_or_default()),
            AssetKind::ToolDefinition => summarize_tool(content)?,
            AssetKind::KnowledgeBase
            | AssetKind::McpServer
            | AssetKind::Skill
            | AssetKind::Agent
            | AssetKind::EvaluationSuite
            | AssetKind::ConnectorDefinition
            | AssetKind::SovereigntyProfile
            | AssetKind::SandboxProfile
            | AssetKind::WorkloadHarness => Self::Irrelevant,
        })
    }
}

/// Estimated memory of texts, in bytes.
fn texts(texts: &[String]) -> usize {
    texts.iter().map(|text| text.len() + TEXT_OVERHEAD).sum()
}

/// Estimated memory of a flow's state, in bytes.
fn flow_bytes(status: &FlowStatus) -> usize {
    match status {
        FlowStatus::Valid { provider_routed: _, referenced_roles, unsupported_steps, agent_tools, declared_inputs } => {
            let agents = agent_tools.iter().map(|tools| match tools {
                ToolChoice::All => size_of::<ToolChoice>(),
                ToolChoice::Named(names) => size_of::<ToolChoice>() + texts(names),
            });
            texts(unsupported_steps) + texts(declared_inputs) + agents.sum::<usize>() + referenced_roles.len()
        }
        FlowStatus::Absent | FlowStatus::Invalid => 0,
    }
}

/// Summarizes a prompt. A prompt that cannot be parsed counts as needing no arguments, because its runs fail with
/// another error anyway.
fn summarize_prompt(content: &Value) -> EvaluatedContent {
    let prompt = PromptTemplate::parse(content);
    let arguments = prompt.map(|prompt| prompt.own_argument_names().into_iter().map(str::to_owned).collect());
    EvaluatedContent::Prompt { arguments: arguments.unwrap_or_default() }
}

fn summarize_flow(content: &Value) -> EvaluatedContent {
    let Ok(flow) = Flow::from_content(content) else {
        return EvaluatedContent::Flow { status: FlowStatus::Invalid, prompt_steps: Vec::new() };
    };
    let status = FlowStatus::Valid {
        provider_routed: flow.uses_provider_routes(),
        referenced_roles: flow.referenced_release_roles().into_iter().collect(),
        unsupported_steps: unavailable_steps(&flow),
        agent_tools: flow.agent_tool_choices().cloned().collect(),
        declared_inputs: flow.trigger().inputs.keys().cloned().collect(),
    };
    EvaluatedContent::Flow { status, prompt_steps: PromptStep::of_flow(&flow) }
}

fn summarize_tool(content: &Value) -> Result<EvaluatedContent, Failure> {
    let tool = Tool::parse(content).map_err(|_| Failure::Inconsistent("a stored tool cannot be parsed"))?;
    let backend = match tool.binding {
        ToolBinding::Http(_) | ToolBinding::Builtin(_) => ToolBackend::Local,
        ToolBinding::Mcp(_) => ToolBackend::McpServer,
        ToolBinding::Unavailable => ToolBackend::Unavailable,
    };
    Ok(EvaluatedContent::Tool { name: tool.name, backend })
}

fn approved_routes(kind: AssetKind, content: &Value) -> EvaluatedContent {
    let Ok(CheckedContent::ModelPolicy(policy)) = content::parse_existing(kind, content) else {
        return EvaluatedContent::Routes { approved_primary: None, approved: Vec::new() };
    };
    let approved = policy.routes().filter(|route| route.is_approved());
    let approved = approved.map(|route| (route.route_id.clone(), route.account_slot.clone())).collect();
    let primary = policy.provider_route;
    EvaluatedContent::Routes { approved_primary: primary.is_approved().then_some(primary.route_id), approved }
}

fn summarize_policy(content: &Value) -> Result<EvaluatedContent, Failure> {
    let Ok(CheckedContent::PolicyBundle(policy)) = content::parse_existing(AssetKind::PolicyBundle, content) else {
        return Err(Failure::Inconsistent("a stored policy bundle that does not compile"));
    };
    let unsupported = policy.obligations().filter(|obligation| !SUPPORTED_OBLIGATIONS.contains(obligation));
    let names: BTreeSet<String> = unsupported.map(|obligation| obligation.as_str().to_owned()).collect();
    let names = names.into_iter().collect();
    let required =
        policy.inputs_assumed_present().map(|(rule, inputs)| (rule.to_owned(), inputs.into_iter().collect()));
    Ok(EvaluatedContent::Policy { unsupported_obligations: names, required_inputs: required.collect() })
}
