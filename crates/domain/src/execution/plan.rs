//! What a run goes by: the bound contents, read once for a release, and who asks.

use crate::{
    asset::{
        canonical::Checksum,
        content::{ModelPolicy, SovereigntyProfile, Tool, mcp_server::McpServer},
        kind::AssetKind,
    },
    execution::{code::SandboxProfile, retrieval::BoundKnowledge, routing::Routing},
    flow::{Action, Flow},
    guardrail::Guardrails,
    hook::{Handler, Hook, Hooks},
    id::AssetId,
    memory::BoundMemory,
    policy::{CompiledPolicy, Obligation, PolicyActor, PolicyDecision, PolicyInput, PolicyRelease, PolicyWorkload},
    prompt::composition::ComposedPrompt,
    release::lane::Lane,
    time::Timestamp,
};
use serde_json::{Map, Value};
use std::sync::Arc;

/// Obligations that a run fulfils. A policy that may impose another one is not activated: a control that is not enforced
/// must not look as if it were.
pub const FULFILLED: &[Obligation] = &[
    Obligation::RecordTranscript,
    Obligation::RedactOutput,
    Obligation::RequireCitation,
    Obligation::NotifyOwner,
    Obligation::HumanReview,
];

/// Whether a run can do what a task asks for.
#[must_use]
pub const fn runs(action: Action) -> bool {
    match action {
        Action::EvaluatePolicy | Action::RetrieveDocuments => true,
    }
}

/// Everything that the runs of one release go by.
#[derive(Debug)]
pub struct RunPlan {
    /// The bound policy.
    pub policy: CompiledPolicy,
    /// The bound flow, or the one step that stands for none.
    pub flow: Flow,
    /// The bound prompt, with the bodies of what it includes.
    pub prompt: Option<ComposedPrompt>,
    /// The bound model policy; without one, what a bound legacy configuration says.
    pub model_policy: Option<ModelPolicy>,
    /// Which of its routes may be called.
    pub routing: Routing,
    /// The bound sovereignty profile: it decides which accounts may turn a query into a vector.
    pub sovereignty: Option<SovereigntyProfile>,
    /// The knowledge bases that the release binds, in the order of the bindings.
    pub knowledge: Vec<BoundKnowledge>,
    /// The memory that the release binds; `None` where it asks for what cannot be done: then nothing is remembered.
    pub memory: Option<BoundMemory>,
    /// The tools that the release binds, in the order of the bindings.
    pub tools: Vec<BoundTool>,
    /// The guardrails that the release binds.
    pub guardrails: Arc<Guardrails>,
    /// The hooks that it binds.
    pub hooks: Hooks,
    /// The sandbox profile that it binds: scripts go by it.
    pub sandbox: Option<SandboxProfile>,
    /// What the release binds, by role.
    pub bound: Vec<BoundAsset>,
    /// What the prompt includes, each version once.
    pub included: Vec<Source>,
    /// The release's identifier, as policies read it.
    pub release_id: String,
    /// The workload's identifier, as policies read it.
    pub workload_id: String,
}

/// A tool that a release binds.
#[derive(Clone, PartialEq, Debug)]
pub struct BoundTool {
    /// The asset's slug.
    pub slug: String,
    /// The version.
    pub source: Source,
    /// What it says.
    pub tool: Tool,
    /// The server that it is a tool of, where it is one of a server.
    pub server: Option<BoundServer>,
}

/// A server of tools, of the version that the release has frozen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BoundServer {
    /// The asset.
    pub asset: AssetId,
    /// The version, slug and label.
    pub reference: String,
    /// What it says.
    pub server: McpServer,
}

impl BoundTool {
    /// Whether an agent that names its tools may mean this one: by what models call it, or by its slug.
    #[must_use]
    pub fn is_called(&self, name: &str) -> bool {
        self.tool.name == name || self.slug == name
    }
}

/// A version that is bound in a role.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BoundAsset {
    /// The role.
    pub role: AssetKind,
    /// The asset's slug.
    pub slug: String,
    /// The version, where runs read what it says.
    pub source: Option<Source>,
}

/// A version whose text goes into runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Source {
    /// Slug and label, as in `triage-prompt@v2`.
    pub reference: String,
    /// The checksum of its content.
    pub checksum: Checksum,
    /// Length of its canonical bytes.
    pub size_bytes: u64,
}

impl RunPlan {
    /// What is bound in a role.
    #[must_use]
    pub fn bound(&self, role: AssetKind) -> Option<&BoundAsset> {
        self.bound.iter().find(|asset| asset.role == role)
    }

    /// Whether there is anything to run: a flow, or what its one step needs that stands for none.
    #[must_use]
    pub fn is_runnable(&self) -> bool {
        self.bound(AssetKind::OrchestrationFlow).is_some() || (self.prompt.is_some() && self.model_policy.is_some())
    }

    /// Whether some decision of a run may impose this.
    pub(super) fn may_impose(&self, obligation: Obligation) -> bool {
        let asked = self.hooks.iter().filter_map(|hook| match &hook.handler {
            Handler::Policy(policy) => Some(policy.as_ref()),
            Handler::Http(_) | Handler::Unavailable => None,
        });
        asked.chain([&self.policy]).any(|policy| policy.obligations().any(|imposed| imposed == obligation))
    }

    /// Whether a guardrail or a hook may change answers, hold them back, or let a person look at them first.
    pub(super) fn holds_answers_back(&self) -> bool {
        self.guardrails.hold_answers_back() || self.hooks.iter().any(Hook::holds_answers_back)
    }
}

/// Who runs what: the words that policies read.
#[derive(Clone, Debug)]
pub struct RunFacts {
    /// Who asks, such as `user:ada`.
    pub actor: String,
    /// What that is, such as `user`.
    pub actor_kind: &'static str,
    /// The groups of who asks.
    pub groups: Vec<String>,
    /// The roles of who asks, where the workload is.
    pub roles: Vec<String>,
    /// The workload's slug.
    pub workload_slug: String,
    /// Who answers for the workload.
    pub owner_ref: String,
    /// In which environment.
    pub environment: String,
    /// On which lane.
    pub lane: Lane,
}

impl RunFacts {
    /// Asks the policy of a plan about a run with these inputs.
    #[must_use]
    pub fn decide(&self, plan: &RunPlan, inputs: &Map<String, Value>, now: Timestamp) -> PolicyDecision {
        self.ask(&plan.policy, plan, inputs, now)
    }

    /// The same of another policy.
    #[must_use]
    pub fn ask(
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
