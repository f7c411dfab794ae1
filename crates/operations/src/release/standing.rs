//! The activation report: the facts about bound content that the activation rules evaluate.

use crate::{Failure, Services};
use fairway_domain::{
    asset::{
        AssetVersion,
        content::{self, CheckedContent, Reach, Tool, tool::ToolBinding},
        kind::AssetKind,
    },
    execution::{
        plan::{SUPPORTED_OBLIGATIONS, runs},
        routing::Routing,
    },
    field_path,
    flow::{Flow, StepKind, ToolChoice},
    guardrail, hook,
    memory::MemoryConfig,
    release::{
        Binding, Release,
        activate::{FlowStatus, RouteStatus, Standing, UnenforcedControl},
        review::ApprovalRule,
        tool::ToolStatus,
        vector_gate::{EmbeddingStatus, VectorIndexStatus},
    },
    tenant::TenantScope,
    workload::Status,
};
use serde_json::Value;
use std::{collections::BTreeSet, sync::Arc};

/// The role of a binding equals the kind of its asset. A mismatch is an error, because a control could be skipped.
const ROLE_MISMATCH: Failure = Failure::Corrupt("the role of a binding differs from the kind of its asset");

const UNREADABLE: Failure = Failure::Corrupt("a stored control cannot be parsed");

/// The step types and actions of a flow that this server cannot run, by name.
pub(crate) fn unavailable_steps(flow: &Flow) -> Vec<String> {
    let mut names: Vec<String> = flow
        .steps()
        .iter()
        .filter_map(|step| match &step.kind {
            StepKind::Task { action } if !runs(*action) => Some(action.as_str()),
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

/// The scope of the checks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Depth<'a> {
    /// The checks that decide an activation.
    ToDecide,
    /// Also the checks that are only shown, with the state of the bound vector searches.
    ToTell(&'a [VectorIndexStatus]),
}

impl Services {
    /// Evaluates the bound content: all checks, or those that decide an activation.
    pub(crate) async fn standing(
        &self,
        scope: TenantScope,
        release: &Release,
        depth: Depth<'_>,
    ) -> Result<Standing, Failure> {
        let unenforced_controls = match depth {
            Depth::ToDecide if !release.is_for_production() => Vec::new(),
            Depth::ToDecide | Depth::ToTell(_) => self.unenforced_controls(scope, release).await?,
        };
        let mut standing = Standing {
            primary_route: None,
            flow: FlowStatus::Absent,
            tools: Vec::new(),
            unavailable_obligations: Vec::new(),
            unavailable_memory: Vec::new(),
            unavailable_controls: Vec::new(),
            unenforced_controls,
            has_no_route: match depth {
                Depth::ToDecide => false,
                Depth::ToTell(searches) => self.has_no_route(scope, release, searches).await?,
            },
            is_workload_retired: self.is_workload_retired(scope, release).await?,
        };
        let mut legacy = None;
        for binding in &release.bindings {
            match binding.role {
                AssetKind::OrchestrationFlow => {
                    let summary = self.said(scope, binding).await?;
                    let Said::Flow(flow) = &*summary else { return Err(ROLE_MISMATCH) };
                    standing.flow = flow.clone();
                }
                AssetKind::ModelPolicy => standing.primary_route = Some(self.route_status(scope, binding).await?),
                AssetKind::PolicyBundle => {
                    let summary = self.said(scope, binding).await?;
                    let Said::Obligations(names) = &*summary else { return Err(ROLE_MISMATCH) };
                    standing.unavailable_obligations.clone_from(names);
                }
                AssetKind::Memory => {
                    let summary = self.said(scope, binding).await?;
                    let Said::Memory(beyond) = &*summary else { return Err(ROLE_MISMATCH) };
                    let named = |pointer: &&'static str| {
                        let path = field_path::from_pointer("content", pointer);
                        format!("`{path}` of the `memory` `{}`", binding.asset_slug)
                    };
                    standing.unavailable_memory.extend(beyond.iter().map(named));
                }
                AssetKind::GuardrailConfig | AssetKind::HookDefinition => {
                    let summary = self.said(scope, binding).await?;
                    let Said::Controls(pointers) = &*summary else { return Err(ROLE_MISMATCH) };
                    standing.unavailable_controls.extend(pointers.iter().map(|pointer| UnenforcedControl {
                        kind: binding.role,
                        asset: binding.asset_slug.clone(),
                        pointer: pointer.clone(),
                    }));
                }
                AssetKind::ModelConfig => legacy = Some(binding),
                AssetKind::ToolDefinition => {
                    let summary = self.said(scope, binding).await?;
                    let Said::Tool { name, behind } = &*summary else { return Err(ROLE_MISMATCH) };
                    let is_available = match behind {
                        Behind::Here => true,
                        Behind::Nothing => false,
                        Behind::Server => self.offers(scope, (release, binding), name).await?,
                    };
                    let (slug, name) = (binding.asset_slug.to_string(), name.clone());
                    standing.tools.push(ToolStatus { slug, name, is_available });
                }
                AssetKind::PromptTemplate
                | AssetKind::KnowledgeBase
                | AssetKind::McpServer
                | AssetKind::Skill
                | AssetKind::Agent
                | AssetKind::EvaluationSuite
                | AssetKind::ConnectorDefinition
                | AssetKind::SovereigntyProfile
                | AssetKind::WorkloadProfile
                | AssetKind::SandboxProfile
                | AssetKind::WorkloadHarness => {}
            }
        }
        if let (None, Some(binding)) = (standing.primary_route, legacy) {
            // Runs are then routed by the model configuration.
            standing.primary_route = Some(self.route_status(scope, binding).await?);
        }
        if release.bindings.iter().filter(|binding| binding.role == AssetKind::Memory).count() > 1 {
            standing.unavailable_memory.push("more than one `memory` is bound".to_owned());
        }
        Ok(standing)
    }

    /// Whether the workload of a release is retired.
    pub(crate) async fn is_workload_retired(&self, scope: TenantScope, release: &Release) -> Result<bool, Failure> {
        Ok(self.workload_of(scope, release.workload_id).await?.status == Status::Retired)
    }

    /// Controls that claim to fail closed and are not enforced, in the bound versions and in the targets of resolved
    /// references.
    async fn unenforced_controls(
        &self,
        scope: TenantScope,
        release: &Release,
    ) -> Result<Vec<UnenforcedControl>, Failure> {
        let mut controls = Vec::new();
        let bound = release.bindings.iter().map(|binding| (binding.asset_version_id, Reach::Bound));
        let resolved = release.references.iter().map(|reference| (reference.asset_version_id, Reach::Meant));
        let mut seen = BTreeSet::new();
        for (version, reach) in bound.chain(resolved).filter(|(version, _)| seen.insert(*version)) {
            let found = self.stores.assets.find_version(scope, version).await?;
            let (asset, version) = found.ok_or(Failure::Corrupt("a version that a release refers to is missing"))?;
            let content = version.content().map_err(|_| Failure::Corrupt("the content of a version is not JSON"))?;
            let promises = content::unenforced_controls(asset.kind, &content, reach).into_iter();
            controls.extend(promises.map(|pointer| UnenforcedControl {
                kind: asset.kind,
                asset: asset.slug.clone(),
                pointer,
            }));
        }
        Ok(controls)
    }

    /// Whether an MCP server is reachable and allows this tool.
    async fn offers(
        &self,
        scope: TenantScope,
        (release, binding): (&Release, &Binding),
        tool: &str,
    ) -> Result<bool, Failure> {
        if !release.references.iter().any(|reference| reference.from == binding.asset_version_id) {
            // The server of a draft's tool is resolved when the release leaves draft.
            return Ok(true);
        }
        let content = self.bound_version(scope, binding).await?.content();
        let content = content.map_err(|_| Failure::Corrupt("the content of a version is not JSON"))?;
        let bound = self.server(scope, (release, binding), &content).await?;
        Ok(bound.is_some_and(|bound| bound.server.way.is_some() && bound.server.allows(tool)))
    }

    /// A route is approved if the bound version approves it, its asset is active, and no later version revokes it.
    async fn route_status(&self, scope: TenantScope, binding: &Binding) -> Result<RouteStatus, Failure> {
        let summary = self.said(scope, binding).await?;
        let Said::Route(Some(route)) = &*summary else { return Ok(RouteStatus::NotApproved) };
        let stands = self.stores.assets.route_stands(scope, binding.asset_id, binding.asset_version_id, route).await?;
        Ok(if stands { RouteStatus::Approved } else { RouteStatus::NotApproved })
    }

    /// Whether runs would find no permitted route although they need one.
    async fn has_no_route(
        &self,
        scope: TenantScope,
        release: &Release,
        searches: &[VectorIndexStatus],
    ) -> Result<bool, Failure> {
        let (mut policy, mut profile) = (None, None);
        for binding in &release.bindings {
            if !matches!(binding.role, AssetKind::ModelPolicy | AssetKind::SovereigntyProfile) {
                continue;
            }
            let content = self.bound_version(scope, binding).await?.content();
            let content = content.map_err(|_| Failure::Corrupt("the content of a version is not JSON"))?;
            match content::read(binding.role, &content) {
                Ok(CheckedContent::ModelPolicy(read)) => policy = Some(read),
                Ok(CheckedContent::Sovereignty(read)) => profile = Some(read),
                Ok(_) | Err(_) => return Err(ROLE_MISMATCH),
            }
        }
        let residency = |slot: &str| self.provider.residency(slot);
        let is_blind = searches.iter().any(|search| search.embedding == EmbeddingStatus::NoRoute);
        let is_mute = policy.is_some_and(|policy| Routing::of(&policy, profile.as_ref(), residency).open.is_empty());
        Ok(is_blind || is_mute)
    }

    /// The approval rule of a workload profile.
    pub(crate) async fn profile_rule(&self, scope: TenantScope, binding: &Binding) -> Result<ApprovalRule, Failure> {
        let summary = self.said(scope, binding).await?;
        let Said::Profile(rule) = &*summary else { return Err(ROLE_MISMATCH) };
        Ok(*rule)
    }

    /// The version of a binding.
    pub(crate) async fn bound_version(&self, scope: TenantScope, binding: &Binding) -> Result<AssetVersion, Failure> {
        let found = self.stores.assets.find_version(scope, binding.asset_version_id).await?;
        found.map(|(_, version)| version).ok_or(Failure::Corrupt("the version of a binding is missing"))
    }

    /// The content summary of a bound version, cached because a version never changes.
    async fn said(&self, scope: TenantScope, binding: &Binding) -> Result<Arc<Said>, Failure> {
        let key = (scope.tenant(), binding.asset_version_id);
        if let Some(summary) = self.said.get(&key) {
            return Ok(summary);
        }
        let found = self.stores.assets.find_version(scope, binding.asset_version_id).await?;
        let (asset, version) = found.ok_or(Failure::Corrupt("the version of a binding is missing"))?;
        let content = version.content().map_err(|_| Failure::Corrupt("the content of a version is not JSON"))?;
        let summary = Arc::new(Said::of(asset.kind, &content)?);
        self.said.insert(key, Arc::clone(&summary));
        Ok(summary)
    }
}

/// The part of a version's content that the release rules evaluate.
#[derive(Clone, Debug)]
pub(crate) enum Said {
    /// The state of a flow.
    Flow(FlowStatus),
    /// The primary route of a model policy, if the version approves it.
    Route(Option<String>),
    /// Obligations that a policy may impose and this server cannot fulfil.
    Obligations(Vec<String>),
    /// A tool with its backend.
    Tool { name: String, behind: Behind },
    /// JSON pointers to parts of guardrails or a hook that this server cannot enforce.
    Controls(Vec<String>),
    /// The approval rule of a workload profile.
    Profile(ApprovalRule),
    /// JSON pointers to requirements of a memory asset that this server cannot meet.
    Memory(Vec<&'static str>),
    /// No relevant content.
    Nothing,
}

/// The backend of a tool, as far as its own content determines it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Behind {
    /// This server calls it.
    Here,
    /// An MCP server, which determines the rest.
    Server,
    /// This server cannot call it.
    Nothing,
}

/// Heap memory of a short text besides its bytes.
const TEXT_OVERHEAD: usize = size_of::<String>() + 16;

impl Said {
    /// Estimated memory of the summary, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let texts = |texts: &[String]| -> usize { texts.iter().map(|text| text.len() + TEXT_OVERHEAD).sum() };
        let inside = match self {
            Self::Flow(FlowStatus::Sound { unavailable, agents, refers_to, .. }) => {
                let agents = agents.iter().map(|tools| match tools {
                    ToolChoice::All => size_of::<ToolChoice>(),
                    ToolChoice::Named(names) => size_of::<ToolChoice>() + texts(names),
                });
                texts(unavailable) + agents.sum::<usize>() + refers_to.len()
            }
            Self::Route(Some(text)) => text.len(),
            Self::Obligations(names) => texts(names),
            Self::Controls(pointers) => texts(pointers),
            Self::Tool { name, .. } => name.len(),
            Self::Memory(pointers) => size_of_val(pointers.as_slice()),
            Self::Flow(FlowStatus::Absent | FlowStatus::Broken)
            | Self::Route(None)
            | Self::Profile(_)
            | Self::Nothing => 0,
        };
        size_of::<Self>().saturating_add(inside)
    }

    fn of(kind: AssetKind, content: &Value) -> Result<Self, Failure> {
        Ok(match kind {
            AssetKind::OrchestrationFlow => Self::Flow(flow_status(content)),
            AssetKind::ModelPolicy | AssetKind::ModelConfig => Self::Route(approved_route(kind, content)),
            AssetKind::PolicyBundle => Self::Obligations(unfulfilled_obligations(content)?),
            AssetKind::GuardrailConfig => Self::Controls(guardrail::unavailable(content).map_err(|_| UNREADABLE)?),
            AssetKind::HookDefinition => Self::Controls(hook::unavailable(content).map_err(|_| UNREADABLE)?),
            AssetKind::WorkloadProfile => Self::Profile(ApprovalRule::from_profile(content)),
            AssetKind::Memory => Self::Memory(MemoryConfig::read(content).err().unwrap_or_default()),
            AssetKind::ToolDefinition => tool(content)?,
            AssetKind::PromptTemplate
            | AssetKind::KnowledgeBase
            | AssetKind::McpServer
            | AssetKind::Skill
            | AssetKind::Agent
            | AssetKind::EvaluationSuite
            | AssetKind::ConnectorDefinition
            | AssetKind::SovereigntyProfile
            | AssetKind::SandboxProfile
            | AssetKind::WorkloadHarness => Self::Nothing,
        })
    }
}

fn flow_status(content: &Value) -> FlowStatus {
    let Ok(flow) = Flow::from_content(content) else { return FlowStatus::Broken };
    FlowStatus::Sound {
        provider_routed: flow.uses_provider_routes(),
        refers_to: flow.release_roles().into_iter().collect(),
        unavailable: unavailable_steps(&flow),
        agents: flow.agents().cloned().collect(),
    }
}

fn tool(content: &Value) -> Result<Said, Failure> {
    let tool = Tool::parse(content).map_err(|_| Failure::Corrupt("a stored tool cannot be parsed"))?;
    let behind = match tool.binding {
        ToolBinding::Http(_) | ToolBinding::Builtin(_) => Behind::Here,
        ToolBinding::Mcp(_) => Behind::Server,
        ToolBinding::Unavailable => Behind::Nothing,
    };
    Ok(Said::Tool { name: tool.name, behind })
}

fn approved_route(kind: AssetKind, content: &Value) -> Option<String> {
    let Ok(CheckedContent::ModelPolicy(policy)) = content::read(kind, content) else { return None };
    let route = policy.provider_route;
    route.is_approved().then_some(route.route_id)
}

fn unfulfilled_obligations(content: &Value) -> Result<Vec<String>, Failure> {
    let Ok(CheckedContent::PolicyBundle(policy)) = content::read(AssetKind::PolicyBundle, content) else {
        return Err(Failure::Corrupt("a stored policy bundle that does not compile"));
    };
    let mut names: Vec<String> = policy
        .obligations()
        .filter(|obligation| !SUPPORTED_OBLIGATIONS.contains(obligation))
        .map(|obligation| obligation.as_str().to_owned())
        .collect();
    names.sort_unstable();
    names.dedup();
    Ok(names)
}
