//! Creates the activation report: facts about the bound contents that the activation rules evaluate.

use crate::{Failure, release::Releases};
use fairway_domain::{
    asset::{
        content::{self, BindingPath, CheckedContent, Tool, tool::ToolBinding},
        kind::AssetKind,
    },
    execution::{
        plan::{SUPPORTED_OBLIGATIONS, is_supported_action},
        routing::Routing,
    },
    field_path,
    flow::{Flow, StepKind, ToolChoice},
    guardrail, hook,
    memory::MemoryConfig,
    release::{
        Binding, Release,
        activate::{ActivationReport, FlowStatus, RouteStatus, UnenforcedControl},
        missing_policy_input::{UndeclaredInput, undeclared_inputs},
        provider_account_gate::RouteAccount,
        review::ApprovalRule,
        tool_requirements::ToolStatus,
        vector_gate::{EmbeddingStatus, VectorIndexStatus},
    },
    slug::Slug,
    tenant::TenantScope,
    workload::interface::{InputField, InterfaceConfig},
};
use serde_json::Value;
use std::{collections::BTreeSet, sync::Arc};

/// The role of a binding must equal the kind of its asset. A mismatch is an error, because a control could be
/// skipped.
const ROLE_MISMATCH: Failure = Failure::Inconsistent("the role of a binding differs from the kind of its asset");

const UNREADABLE: Failure = Failure::Inconsistent("a stored control cannot be parsed");

/// Returns the names of the step types and actions of a flow that this server cannot execute.
pub(crate) fn unavailable_steps(flow: &Flow) -> Vec<String> {
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

/// The extent of the checks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CheckScope<'a> {
    /// Only the checks that decide about an activation.
    Decisive,
    /// All checks, including those for display only, with the state of the vector searches of bound knowledge bases.
    All(&'a [VectorIndexStatus]),
}

impl Releases {
    /// Creates the activation report from the bound contents, to the extent of `depth`.
    pub(crate) async fn activation_report(
        &self,
        scope: TenantScope,
        release: &Release,
        depth: CheckScope<'_>,
    ) -> Result<ActivationReport, Failure> {
        let unenforced_controls = match depth {
            CheckScope::Decisive if !release.is_for_production() => Vec::new(),
            CheckScope::Decisive | CheckScope::All(_) => self.unenforced_controls(scope, release).await?,
        };
        let mut report = ActivationReport {
            primary_route: None,
            route_accounts: Vec::new(),
            flow: FlowStatus::Absent,
            tools: Vec::new(),
            unsupported_obligations: Vec::new(),
            undeclared_inputs: Vec::new(),
            unsupported_memory: Vec::new(),
            unsupported_controls: Vec::new(),
            unenforced_controls,
            has_no_route: match depth {
                CheckScope::Decisive => false,
                CheckScope::All(searches) => self.lacks_route(scope, release, searches).await?,
            },
            is_workload_retired: self.is_workload_retired(scope, release).await?,
            is_use_case_inactive: self.is_use_case_inactive(scope, release).await?,
        };
        for binding in &release.bindings {
            self.check_binding(scope, release, binding, &mut report).await?;
        }
        let model_config = release.bindings.iter().rfind(|binding| binding.role == AssetKind::ModelConfig);
        if let (None, Some(binding)) = (report.primary_route, model_config) {
            // Without a model policy, the model configuration determines the route of runs.
            report.primary_route = Some(self.route_status(scope, binding).await?);
        }
        if depth != CheckScope::Decisive {
            report.undeclared_inputs = self.undeclared_inputs(scope, release, &report.flow).await?;
        }
        if release.bindings.iter().filter(|binding| binding.role == AssetKind::Memory).count() > 1 {
            report.unsupported_memory.push("more than one `memory` is bound".to_owned());
        }
        Ok(report)
    }

    /// Returns the state of the flow of a binding.
    async fn flow_status(&self, scope: TenantScope, binding: &Binding) -> Result<FlowStatus, Failure> {
        let summary = self.content_summary(scope, binding).await?;
        let ContentSummary::Flow(flow) = &*summary else { return Err(ROLE_MISMATCH) };
        Ok(flow.clone())
    }

    /// Adds the facts about the content of a binding to the report.
    async fn check_binding(
        &self,
        scope: TenantScope,
        release: &Release,
        binding: &Binding,
        report: &mut ActivationReport,
    ) -> Result<(), Failure> {
        match binding.role {
            AssetKind::OrchestrationFlow => report.flow = self.flow_status(scope, binding).await?,
            AssetKind::ModelPolicy => {
                report.primary_route = Some(self.route_status(scope, binding).await?);
                report.route_accounts = self.route_accounts(scope, &release.environment, binding).await?;
            }
            AssetKind::PolicyBundle => {
                let summary = self.content_summary(scope, binding).await?;
                let ContentSummary::Policy { unsupported_obligations, .. } = &*summary else {
                    return Err(ROLE_MISMATCH);
                };
                report.unsupported_obligations.clone_from(unsupported_obligations);
            }
            AssetKind::Memory => {
                let summary = self.content_summary(scope, binding).await?;
                let ContentSummary::Memory(beyond) = &*summary else { return Err(ROLE_MISMATCH) };
                let named = |pointer: &&'static str| {
                    let path = field_path::from_pointer("content", pointer);
                    format!("`{path}` of the `memory` `{}`", binding.asset_slug)
                };
                report.unsupported_memory.extend(beyond.iter().map(named));
            }
            AssetKind::GuardrailConfig | AssetKind::HookDefinition => {
                let summary = self.content_summary(scope, binding).await?;
                let ContentSummary::Controls(pointers) = &*summary else { return Err(ROLE_MISMATCH) };
                report.unsupported_controls.extend(pointers.iter().map(|pointer| UnenforcedControl {
                    kind: binding.role,
                    asset: binding.asset_slug.clone(),
                    pointer: pointer.clone(),
                }));
            }
            AssetKind::ToolDefinition => {
                let summary = self.content_summary(scope, binding).await?;
                let ContentSummary::Tool { name, backend: behind } = &*summary else { return Err(ROLE_MISMATCH) };
                let is_available = match behind {
                    ToolBackend::Local => true,
                    ToolBackend::Unavailable => false,
                    ToolBackend::McpServer => self.server_offers(scope, release, binding, name).await?,
                };
                let (slug, name) = (binding.asset_slug.to_string(), name.clone());
                report.tools.push(ToolStatus { slug, name, is_available });
            }
            AssetKind::ModelConfig
            | AssetKind::PromptTemplate
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
        Ok(())
    }

    /// Returns the inputs that rules of the bound policy require and that are not declared. Inputs are declared by
    /// the interface of the workload or the trigger of the flow.
    async fn undeclared_inputs(
        &self,
        scope: TenantScope,
        release: &Release,
        flow: &FlowStatus,
    ) -> Result<Vec<UndeclaredInput>, Failure> {
        let bound = release.bindings.iter().find(|binding| binding.role == AssetKind::PolicyBundle);
        let Some(binding) = bound else { return Ok(Vec::new()) };
        let summary = self.content_summary(scope, binding).await?;
        let ContentSummary::Policy { required_inputs, .. } = &*summary else { return Err(ROLE_MISMATCH) };
        if required_inputs.is_empty() {
            return Ok(Vec::new());
        }
        let workload = self.workloads.workload_of(scope, release.workload_id).await?;
        let fields = workload.interface_config.as_ref().map(InterfaceConfig::input_fields).unwrap_or_default();
        let interface: Vec<&str> = fields.iter().map(InputField::name).collect();
        let trigger = match flow {
            FlowStatus::Valid { declared_inputs, .. } => declared_inputs.as_slice(),
            FlowStatus::Absent | FlowStatus::Invalid => &[],
        };
        Ok(undeclared_inputs(required_inputs, &interface, trigger))
    }

    /// Returns the controls that are marked as fail-closed but are not enforced, in the bound versions and in the
    /// targets of resolved references.
    async fn unenforced_controls(
        &self,
        scope: TenantScope,
        release: &Release,
    ) -> Result<Vec<UnenforcedControl>, Failure> {
        let mut controls = Vec::new();
        let bound = release.bindings.iter().map(|binding| (binding.asset_version_id, BindingPath::Bound));
        let resolved = release.references.iter().map(|reference| (reference.asset_version_id, BindingPath::Referenced));
        let mut visited = BTreeSet::new();
        for (version, path) in bound.chain(resolved).filter(|(version, _)| visited.insert(*version)) {
            let stored = self.version_store.find_version(scope, version).await?;
            let (asset, version) =
                stored.ok_or(Failure::Inconsistent("a version that a release refers to is missing"))?;
            let content =
                version.content().map_err(|_| Failure::Inconsistent("the content of a version is not JSON"))?;
            let promises = content::unenforced_controls(asset.kind, &content, path).into_iter();
            controls.extend(promises.map(|pointer| UnenforcedControl {
                kind: asset.kind,
                asset: asset.slug.clone(),
                pointer,
            }));
        }
        Ok(controls)
    }

    /// Whether an MCP server is reachable and allows the tool.
    async fn server_offers(
        &self,
        scope: TenantScope,
        release: &Release,
        binding: &Binding,
        tool: &str,
    ) -> Result<bool, Failure> {
        if !release.references.iter().any(|reference| reference.from_version_id == binding.asset_version_id) {
            // The reference to the MCP server of a draft's tool is resolved when the release leaves the draft state.
            return Ok(true);
        }
        let content = self.bound_version(scope, binding).await?.content();
        let content = content.map_err(|_| Failure::Inconsistent("the content of a version is not JSON"))?;
        let bound = self.resolve_mcp_server(scope, release, binding, &content).await?;
        Ok(bound.is_some_and(|bound| bound.server.connection.is_some() && bound.server.allows(tool)))
    }

    /// Returns the state of the primary route. A route is approved if the bound version approves it, its asset is
    /// active, and no later version withdraws it.
    async fn route_status(&self, scope: TenantScope, binding: &Binding) -> Result<RouteStatus, Failure> {
        let summary = self.content_summary(scope, binding).await?;
        let ContentSummary::Routes { approved_primary: Some(route), .. } = &*summary else {
            return Ok(RouteStatus::NotApproved);
        };
        let is_effective =
            self.version_store.is_route_effective(scope, binding.asset_id, binding.asset_version_id, route).await?;
        Ok(if is_effective { RouteStatus::Approved } else { RouteStatus::NotApproved })
    }

    /// Returns the approved routes of a model policy with their accounts on this server.
    async fn route_accounts(
        &self,
        scope: TenantScope,
        environment: &Slug,
        binding: &Binding,
    ) -> Result<Vec<RouteAccount>, Failure> {
        let refuses_local = self.settings.refuses_local_provider(environment);
        let summary = self.content_summary(scope, binding).await?;
        let ContentSummary::Routes { approved, .. } = &*summary else { return Err(ROLE_MISMATCH) };
        let account = |(route_id, account_slot): &(String, String)| RouteAccount {
            route_id: route_id.clone(),
            account_slot: account_slot.clone(),
            is_configured: self.provider.has_account(account_slot)
                && !(refuses_local && self.provider.is_local(account_slot)),
        };
        Ok(approved.iter().map(account).collect())
    }

    /// Whether the release needs a route but no permitted route exists.
    async fn lacks_route(
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
            let content = content.map_err(|_| Failure::Inconsistent("the content of a version is not JSON"))?;
            match content::parse_existing(binding.role, &content) {
                Ok(CheckedContent::ModelPolicy(read)) => policy = Some(read),
                Ok(CheckedContent::Sovereignty(read)) => profile = Some(read),
                Ok(_) | Err(_) => return Err(ROLE_MISMATCH),
            }
        }
        let residency = |slot: &str| self.provider.residency(slot);
        let has_refused_search_route = searches.iter().any(|search| search.embedding == EmbeddingStatus::RouteRefused);
        let refuses_local = self.settings.refuses_local_provider(&release.environment);
        let is_refused = |slot: &str| refuses_local && self.provider.is_local(slot);
        let has_no_allowed_route = policy.is_some_and(|policy| {
            let routing = Routing::for_policy(&policy, profile.as_ref(), residency);
            routing.refuse_local_accounts(&policy, is_refused).allowed.is_empty()
        });
        Ok(has_refused_search_route || has_no_allowed_route)
    }

    /// Returns the approval rule of a workload profile.
    pub(crate) async fn profile_rule(&self, scope: TenantScope, binding: &Binding) -> Result<ApprovalRule, Failure> {
        let summary = self.content_summary(scope, binding).await?;
        let ContentSummary::Profile(rule) = &*summary else { return Err(ROLE_MISMATCH) };
        Ok(*rule)
    }

    /// Returns the content summary of a bound version. It is cached, because a version never changes.
    async fn content_summary(&self, scope: TenantScope, binding: &Binding) -> Result<Arc<ContentSummary>, Failure> {
        let key = (scope.tenant(), binding.asset_version_id);
        if let Some(summary) = self.summaries.get(&key) {
            return Ok(summary);
        }
        let stored = self.version_store.find_version(scope, binding.asset_version_id).await?;
        let (asset, version) = stored.ok_or(Failure::Inconsistent("the version of a binding is missing"))?;
        let content = version.content().map_err(|_| Failure::Inconsistent("the content of a version is not JSON"))?;
        let summary = Arc::new(ContentSummary::summarize(asset.kind, &content)?);
        self.summaries.insert(key, Arc::clone(&summary));
        Ok(summary)
    }

    /// Returns the approval rule of a release: the stricter of the rules of its environment and of its workload
    /// profile.
    pub(crate) async fn approval_rule(&self, scope: TenantScope, release: &Release) -> Result<ApprovalRule, Failure> {
        let rule =
            self.environments.settings_of(scope, release.workspace_id, &release.environment).await?.approval_rule();
        let Some(profile) = release.bindings.iter().find(|binding| binding.role == AssetKind::WorkloadProfile) else {
            return Ok(rule);
        };
        Ok(rule.combine(self.profile_rule(scope, profile).await?))
    }
}

/// The part of a version's content that the release rules evaluate.
#[derive(Clone, Debug)]
pub(crate) enum ContentSummary {
    /// The state of a flow.
    Flow(FlowStatus),
    /// The routes of a model policy.
    Routes {
        /// The primary route, if the version approves it.
        approved_primary: Option<String>,
        /// Every approved route with its account.
        approved: Vec<(String, String)>,
    },
    /// A policy bundle.
    Policy {
        /// Obligations that the policy may impose but that this server cannot fulfil.
        unsupported_obligations: Vec<String>,
        /// The inputs that each rule requires.
        required_inputs: Vec<(String, Vec<String>)>,
    },
    /// A tool with its backend.
    Tool { name: String, backend: ToolBackend },
    /// JSON pointers to parts of guardrails or a hook that this server cannot enforce.
    Controls(Vec<String>),
    /// The approval rule of a workload profile.
    Profile(ApprovalRule),
    /// JSON pointers to requirements of a memory asset that this server cannot meet.
    Memory(Vec<&'static str>),
    /// The content is not relevant for the release rules.
    Irrelevant,
}

/// Backend of a tool, as far as the content of the tool determines it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ToolBackend {
    /// This server calls the tool itself.
    Local,
    /// An MCP server provides the tool, and its content determines whether the tool is available.
    McpServer,
    /// This server cannot call the tool.
    Unavailable,
}

/// Heap memory of a short text in addition to its bytes.
const TEXT_OVERHEAD: usize = size_of::<String>() + 16;

impl ContentSummary {
    /// Estimated memory of the summary, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let texts = |texts: &[String]| -> usize { texts.iter().map(|text| text.len() + TEXT_OVERHEAD).sum() };
        let inside = match self {
            Self::Flow(FlowStatus::Valid {
                unsupported_steps: unavailable,
                agent_tools: agents,
                referenced_roles: refers_to,
                declared_inputs,
                ..
            }) => {
                let agents = agents.iter().map(|tools| match tools {
                    ToolChoice::All => size_of::<ToolChoice>(),
                    ToolChoice::Named(names) => size_of::<ToolChoice>() + texts(names),
                });
                texts(unavailable) + texts(declared_inputs) + agents.sum::<usize>() + refers_to.len()
            }
            Self::Routes { approved_primary, approved } => {
                let accounts = approved.iter().map(|(route, account)| route.len() + account.len() + 2 * TEXT_OVERHEAD);
                approved_primary.as_ref().map_or(0, String::len) + accounts.sum::<usize>()
            }
            Self::Policy { unsupported_obligations, required_inputs } => {
                let of_rule = |(rule, inputs): &(String, Vec<String>)| rule.len() + TEXT_OVERHEAD + texts(inputs);
                texts(unsupported_obligations) + required_inputs.iter().map(of_rule).sum::<usize>()
            }
            Self::Controls(pointers) => texts(pointers),
            Self::Tool { name, .. } => name.len(),
            Self::Memory(pointers) => size_of_val(pointers.as_slice()),
            Self::Flow(FlowStatus::Absent | FlowStatus::Invalid) | Self::Profile(_) | Self::Irrelevant => 0,
        };
        size_of::<Self>().saturating_add(inside)
    }

    fn summarize(kind: AssetKind, content: &Value) -> Result<Self, Failure> {
        Ok(match kind {
            AssetKind::OrchestrationFlow => Self::Flow(flow_status(content)),
            AssetKind::ModelPolicy | AssetKind::ModelConfig => approved_routes(kind, content),
            AssetKind::PolicyBundle => summarize_policy(content)?,
            AssetKind::GuardrailConfig => {
                Self::Controls(guardrail::unsupported_parts(content).map_err(|_| UNREADABLE)?)
            }
            AssetKind::HookDefinition => Self::Controls(hook::unsupported_parts(content).map_err(|_| UNREADABLE)?),
            AssetKind::WorkloadProfile => Self::Profile(ApprovalRule::from_profile(content)),
            AssetKind::Memory => Self::Memory(MemoryConfig::parse(content).err().unwrap_or_default()),
            AssetKind::ToolDefinition => summarize_tool(content)?,
            AssetKind::PromptTemplate
            | AssetKind::KnowledgeBase
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

fn flow_status(content: &Value) -> FlowStatus {
    let Ok(flow) = Flow::from_content(content) else { return FlowStatus::Invalid };
    FlowStatus::Valid {
        provider_routed: flow.uses_provider_routes(),
        referenced_roles: flow.release_roles().into_iter().collect(),
        unsupported_steps: unavailable_steps(&flow),
        agent_tools: flow.agent_tool_choices().cloned().collect(),
        declared_inputs: flow.trigger().inputs.keys().cloned().collect(),
    }
}

fn summarize_tool(content: &Value) -> Result<ContentSummary, Failure> {
    let tool = Tool::parse(content).map_err(|_| Failure::Inconsistent("a stored tool cannot be parsed"))?;
    let behind = match tool.binding {
        ToolBinding::Http(_) | ToolBinding::Builtin(_) => ToolBackend::Local,
        ToolBinding::Mcp(_) => ToolBackend::McpServer,
        ToolBinding::Unavailable => ToolBackend::Unavailable,
    };
    Ok(ContentSummary::Tool { name: tool.name, backend: behind })
}

fn approved_routes(kind: AssetKind, content: &Value) -> ContentSummary {
    let Ok(CheckedContent::ModelPolicy(policy)) = content::parse_existing(kind, content) else {
        return ContentSummary::Routes { approved_primary: None, approved: Vec::new() };
    };
    let approved = policy.routes().filter(|route| route.is_approved());
    let approved = approved.map(|route| (route.route_id.clone(), route.account_slot.clone())).collect();
    let primary = policy.provider_route;
    ContentSummary::Routes { approved_primary: primary.is_approved().then_some(primary.route_id), approved }
}

fn summarize_policy(content: &Value) -> Result<ContentSummary, Failure> {
    let Ok(CheckedContent::PolicyBundle(policy)) = content::parse_existing(AssetKind::PolicyBundle, content) else {
        return Err(Failure::Inconsistent("a stored policy bundle that does not compile"));
    };
    let unsupported = policy.obligations().filter(|obligation| !SUPPORTED_OBLIGATIONS.contains(obligation));
    let names: BTreeSet<String> = unsupported.map(|obligation| obligation.as_str().to_owned()).collect();
    let names = names.into_iter().collect();
    let required = policy.required_inputs().map(|(rule, inputs)| (rule.to_owned(), inputs.into_iter().collect()));
    Ok(ContentSummary::Policy { unsupported_obligations: names, required_inputs: required.collect() })
}
