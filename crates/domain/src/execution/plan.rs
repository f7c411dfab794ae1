//! The run plan: the bound contents of a release, parsed once and shared by all of its runs. It evaluates policies for
//! a run.

use crate::{
    asset::{
        canonical::Checksum,
        content::{ModelPolicy, SovereigntyProfile, Tool, mcp_server::McpServer},
        kind::AssetKind,
    },
    execution::{retrieval::BoundKnowledgeBase, routing::Routing, script::SandboxProfile},
    flow::{Action, Flow},
    guardrail::Guardrails,
    hook::{Hook, HookHandler, Hooks},
    id::AssetId,
    memory::BoundMemory,
    policy::{CompiledPolicy, Obligation, PolicyActor, PolicyDecision, PolicyInput, PolicyRelease, PolicyWorkload},
    prompt::composition::ComposedPrompt,
    release::lane::Lane,
    time::Timestamp,
};
use serde_json::{Map, Value};
use std::sync::Arc;

/// The obligations that a run can fulfil. If the policy of a release may impose another one, the release cannot be
/// activated, because the obligation would not be enforced.
pub const SUPPORTED_OBLIGATIONS: &[Obligation] = &[
    Obligation::RecordTranscript,
    Obligation::RedactOutput,
    Obligation::RequireCitation,
    Obligation::NotifyOwner,
    Obligation::HumanReview,
];

/// Whether runs can execute this action of a task step.
#[must_use]
pub const fn is_supported_action(action: Action) -> bool {
    match action {
        Action::EvaluatePolicy | Action::RetrieveDocuments => true,
    }
}

/// The parsed contents that all runs of a release share.
#[derive(Debug)]
pub struct RunPlan {
    /// The bound policy, which admits or denies each run.
    pub policy: CompiledPolicy,
    /// The bound flow; without one, the implicit flow with one model step.
    pub flow: Flow,
    /// The bound prompt, with the bodies of its includes.
    pub prompt: Option<ComposedPrompt>,
    /// The bound model policy, or a model policy derived from a bound legacy configuration.
    pub model_policy: Option<ModelPolicy>,
    /// The routes of the model policy, split into those that may be called and those that are refused.
    pub routing: Routing,
    /// The bound sovereignty profile, which decides which accounts may embed a query.
    pub sovereignty: Option<SovereigntyProfile>,
    /// The bound knowledge bases, in the order of their bindings.
    pub knowledge: Vec<BoundKnowledgeBase>,
    /// The bound memory; `None` without one. An unsupported configuration also yields `None`, which disables memory.
    pub memory: Option<BoundMemory>,
    /// The bound tools, in the order of their bindings.
    pub tools: Vec<BoundTool>,
    /// The bound guardrails, which check the values of a run.
    pub guardrails: Arc<Guardrails>,
    /// The bound hooks, which intercept parts of a run.
    pub hooks: Hooks,
    /// The bound sandbox profile, which limits scripts.
    pub sandbox: Option<SandboxProfile>,
    /// All bound assets, each with the role in which the release binds it.
    pub bound_assets: Vec<BoundAsset>,
    /// The versions that the prompt includes, each once.
    pub included: Vec<SourceVersion>,
    /// The identifier of the release as text, for policies.
    pub release_id: String,
    /// The identifier of the workload as text, for policies.
    pub workload_id: String,
}

/// A bound tool, with its version and the MCP server that provides it.
#[derive(Clone, PartialEq, Debug)]
pub struct BoundTool {
    /// The slug of the tool's asset.
    pub slug: String,
    /// The bound version of the tool's asset.
    pub source: SourceVersion,
    /// The parsed content of the bound version.
    pub tool: Tool,
    /// The MCP server that provides the tool; `None` if the tool needs no server.
    pub server: Option<BoundServer>,
}

/// An MCP server of a bound tool, at the version that the release froze.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BoundServer {
    /// The asset that defines the server.
    pub asset: AssetId,
    /// The frozen version as slug and label, such as `crm@v2`.
    pub reference: String,
    /// The parsed content of the frozen version.
    pub server: McpServer,
}

impl BoundTool {
    /// Whether the name refers to this tool. Both the name that models see and the slug of the asset match.
    #[must_use]
    pub fn matches_name(&self, name: &str) -> bool {
        self.tool.name == name || self.slug == name
    }
}

/// An asset that the release binds, with its role.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BoundAsset {
    /// The role of the binding, which is the kind of the asset.
    pub role: AssetKind,
    /// The slug of the bound asset.
    pub slug: String,
    /// The bound version; `None` if runs do not read the content of the asset.
    pub source: Option<SourceVersion>,
}

/// An asset version whose content a run reads, as evidence names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceVersion {
    /// Slug and label, such as `triage-prompt@v2`.
    pub reference: String,
    /// The checksum of the version's canonical form.
    pub checksum: Checksum,
    /// The length of the version's canonical form, in bytes.
    pub size_bytes: u64,
}

impl RunPlan {
    /// Finds the first asset that the release binds in this role.
    #[must_use]
    pub fn bound_asset(&self, role: AssetKind) -> Option<&BoundAsset> {
        self.bound_assets.iter().find(|asset| asset.role == role)
    }

    /// Whether the plan is executable: the release binds a flow, or the prompt and model policy of the implicit
    /// one-step flow.
    #[must_use]
    pub fn has_executable_content(&self) -> bool {
        self.bound_asset(AssetKind::OrchestrationFlow).is_some()
            || (self.prompt.is_some() && self.model_policy.is_some())
    }

    /// Whether the bound policy or the policy of a hook may impose the obligation.
    pub(super) fn may_impose(&self, obligation: Obligation) -> bool {
        let hook_policies = self.hooks.iter().filter_map(|hook| match &hook.handler {
            HookHandler::Policy(policy) => Some(policy.as_ref()),
            HookHandler::Http(_) | HookHandler::Unavailable => None,
        });
        hook_policies.chain([&self.policy]).any(|policy| policy.obligations().any(|imposed| imposed == obligation))
    }

    /// Whether a guardrail or a hook may change answers, withhold them, or require a review.
    pub(super) fn may_withhold_output(&self) -> bool {
        self.guardrails.requires_buffering() || self.hooks.iter().any(Hook::requires_buffering)
    }
}

/// The attributes of one run that a policy can read, beside its inputs.
#[derive(Clone, Debug)]
pub struct RunPolicyAttributes {
    /// The actor to whom the run is attributed, such as `user:ada`.
    pub actor: String,
    /// The actor's kind, such as `user`.
    pub actor_kind: &'static str,
    /// The groups to which the actor belongs.
    pub groups: Vec<String>,
    /// The roles that the actor has at the workload.
    pub roles: Vec<String>,
    /// The slug of the workload that the run executes.
    pub workload_slug: String,
    /// The owner of the workload, as an actor or team reference.
    pub owner_ref: String,
    /// The environment in which the release serves.
    pub environment: String,
    /// The lane that serves the run.
    pub lane: Lane,
}

impl RunPolicyAttributes {
    /// Decides about a run with these inputs by the bound policy of the plan.
    #[must_use]
    pub fn decide_by_plan(&self, plan: &RunPlan, inputs: &Map<String, Value>, now: Timestamp) -> PolicyDecision {
        self.decide_by_policy(&plan.policy, plan, inputs, now)
    }

    /// Decides about a run with these inputs by another policy, such as the policy of a hook.
    #[must_use]
    pub fn decide_by_policy(
        &self,
        policy: &CompiledPolicy,
        plan: &RunPlan,
        inputs: &Map<String, Value>,
        now: Timestamp,
    ) -> PolicyDecision {
        policy.decide(&PolicyInput {
            actor: PolicyActor {
                reference: &self.actor,
                kind: self.actor_kind,
                groups: &self.groups,
                roles: &self.roles,
            },
            workload: PolicyWorkload {
                slug: &self.workload_slug,
                owner_ref: &self.owner_ref,
                workload_id: &plan.workload_id,
            },
            release: PolicyRelease { release_id: &plan.release_id, state: "active", environment: &self.environment },
            inputs,
            environment: &self.environment,
            lane: self.lane.as_str(),
            now,
        })
    }
}
