//! The run plan: the bound contents of a release, parsed once, and the attributes that policies read.

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

/// The obligations that a run can fulfil. A release whose policy may impose any other obligation cannot be
/// activated, because an unenforced control must not appear enforced.
pub const SUPPORTED_OBLIGATIONS: &[Obligation] = &[
    Obligation::RecordTranscript,
    Obligation::RedactOutput,
    Obligation::RequireCitation,
    Obligation::NotifyOwner,
    Obligation::HumanReview,
];

/// Whether runs support the action of a task step.
#[must_use]
pub const fn is_supported_action(action: Action) -> bool {
    match action {
        Action::EvaluatePolicy | Action::RetrieveDocuments => true,
    }
}

/// The parsed contents that all runs of a release share.
#[derive(Debug)]
pub struct RunPlan {
    /// The bound policy, which decides about runs.
    pub policy: CompiledPolicy,
    /// The bound flow, or the implicit one-step flow.
    pub flow: Flow,
    /// The bound prompt, with the bodies of its includes.
    pub prompt: Option<ComposedPrompt>,
    /// The bound model policy, or one derived from a bound legacy configuration.
    pub model_policy: Option<ModelPolicy>,
    /// The routes of the model policy that may be called.
    pub routing: Routing,
    /// The bound sovereignty profile; it decides which accounts may embed a query.
    pub sovereignty: Option<SovereigntyProfile>,
    /// The bound knowledge bases, in binding order.
    pub knowledge: Vec<BoundKnowledgeBase>,
    /// The bound memory; `None` when its configuration is unsupported, which disables memory.
    pub memory: Option<BoundMemory>,
    /// The bound tools, in binding order.
    pub tools: Vec<BoundTool>,
    /// The bound guardrails.
    pub guardrails: Arc<Guardrails>,
    /// The bound hooks.
    pub hooks: Hooks,
    /// The bound sandbox profile, for scripts.
    pub sandbox: Option<SandboxProfile>,
    /// The bound assets, by role.
    pub bound_assets: Vec<BoundAsset>,
    /// The prompt's includes, each version once.
    pub included: Vec<SourceVersion>,
    /// The release's identifier, in the form that policies read.
    pub release_id: String,
    /// The workload's identifier, in the form that policies read.
    pub workload_id: String,
}

/// A tool that the release binds, with its version and its server.
#[derive(Clone, PartialEq, Debug)]
pub struct BoundTool {
    /// The asset's slug.
    pub slug: String,
    /// The bound version.
    pub source: SourceVersion,
    /// The parsed content of the version.
    pub tool: Tool,
    /// The MCP server that provides the tool; `None` for a tool that no server provides.
    pub server: Option<BoundServer>,
}

/// An MCP server, at the version that the release froze.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BoundServer {
    /// The asset that defines the server.
    pub asset: AssetId,
    /// The version, as slug and label.
    pub reference: String,
    /// The parsed content of the version.
    pub server: McpServer,
}

impl BoundTool {
    /// Whether the name refers to this tool: the name that models see, or the slug of the asset.
    #[must_use]
    pub fn matches_name(&self, name: &str) -> bool {
        self.tool.name == name || self.slug == name
    }
}

/// A version bound in a role.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BoundAsset {
    /// The role, which is the kind of the asset.
    pub role: AssetKind,
    /// The asset's slug.
    pub slug: String,
    /// The version, if runs read the content of the asset.
    pub source: Option<SourceVersion>,
}

/// A version whose content runs read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceVersion {
    /// Slug and label, such as `triage-prompt@v2`.
    pub reference: String,
    /// The checksum of its content.
    pub checksum: Checksum,
    /// Length of its canonical form, in bytes.
    pub size_bytes: u64,
}

impl RunPlan {
    /// The asset bound in a role.
    #[must_use]
    pub fn bound_asset(&self, role: AssetKind) -> Option<&BoundAsset> {
        self.bound_assets.iter().find(|asset| asset.role == role)
    }

    /// Whether the plan is executable: the release binds a flow, or the prompt and model policy of the implicit
    /// one-step flow.
    #[must_use]
    pub fn is_runnable(&self) -> bool {
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

/// The attributes of a run that policies read.
#[derive(Clone, Debug)]
pub struct RunPolicyAttributes {
    /// The actor, such as `user:ada`.
    pub actor: String,
    /// The actor's kind, such as `user`.
    pub actor_kind: &'static str,
    /// The actor's groups.
    pub groups: Vec<String>,
    /// The actor's roles at the workload.
    pub roles: Vec<String>,
    /// The workload's slug.
    pub workload_slug: String,
    /// The workload's owner.
    pub owner_ref: String,
    /// The environment of the release.
    pub environment: String,
    /// The lane that serves the run.
    pub lane: Lane,
}

impl RunPolicyAttributes {
    /// Evaluates the policy of the plan for a run with these inputs.
    #[must_use]
    pub fn decide_by_plan(&self, plan: &RunPlan, inputs: &Map<String, Value>, now: Timestamp) -> PolicyDecision {
        self.decide_by_policy(&plan.policy, plan, inputs, now)
    }

    /// Evaluates another policy, such as the policy of a hook, for a run with these inputs.
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
