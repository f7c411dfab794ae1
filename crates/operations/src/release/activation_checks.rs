//! Creates the activation report: the facts about bound contents that the activation rules evaluate.

use super::evaluated_content::{EvaluatedContent, ToolBackend};
use crate::{Failure, release::Releases};
use fairway_domain::{
    asset::{
        content::{self, BindingPath, CheckedContent},
        kind::AssetKind,
    },
    execution::routing::Routing,
    field_path,
    id::AssetVersionId,
    release::{
        Binding, Release,
        activate::{ActivationReport, FlowStatus, PrimaryRouteApproval, UnenforcedControl},
        provider_account_gate::RouteAccount,
        review::ApprovalRule,
        tool_requirements::ToolStatus,
        vector_search_warnings::{QueryEmbeddingStatus, VectorIndexStatus},
    },
    slug::Slug,
    tenant::TenantScope,
    workload::WorkloadStatus,
};
use std::{collections::BTreeSet, sync::Arc};

/// Refusal for a binding whose role differs from the kind of its asset. The mismatch is an error, because the checks of
/// a control could otherwise be skipped.
pub(super) const ROLE_MISMATCH: Failure =
    Failure::Inconsistent("the role of a binding differs from the kind of its asset");

/// How many of the checks the activation report contains.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CheckScope<'a> {
    /// Only the checks that decide about an activation.
    Decisive,
    /// All checks, including those for display only. The vector searches of the bound knowledge bases were checked
    /// before.
    All(&'a [VectorIndexStatus]),
}

impl Releases {
    /// Whether the workload of a release is retired.
    pub(crate) async fn is_workload_retired(&self, scope: TenantScope, release: &Release) -> Result<bool, Failure> {
        Ok(self.workloads.workload_of(scope, release.workload_id).await?.status == WorkloadStatus::Retired)
    }

    /// Creates the activation report of a release from its bound contents.
    pub(crate) async fn activation_report(
        &self,
        scope: TenantScope,
        release: &Release,
        check_scope: CheckScope<'_>,
    ) -> Result<ActivationReport, Failure> {
        let unenforced_controls = match check_scope {
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
            unpassed_variables: Vec::new(),
            unsupported_memory: Vec::new(),
            unsupported_controls: Vec::new(),
            unenforced_controls,
            has_no_route: match check_scope {
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
            // If the release binds no model policy, its model configuration determines the route of runs.
            report.primary_route = Some(self.route_status(scope, binding).await?);
        }
        if check_scope != CheckScope::Decisive {
            let declared = self.declared_inputs(scope, release, &report.flow).await?;
            report.undeclared_inputs = self.undeclared_inputs(scope, release, &declared).await?;
            report.unpassed_variables = self.unpassed_variables(scope, release, &declared).await?;
        }
        if release.bindings.iter().filter(|binding| binding.role == AssetKind::Memory).count() > 1 {
            report.unsupported_memory.push("more than one `memory` is bound".to_owned());
        }
        Ok(report)
    }

    /// Returns the facts about the flow of a binding that the activation rules evaluate.
    async fn flow_status(&self, scope: TenantScope, binding: &Binding) -> Result<FlowStatus, Failure> {
        let summary = self.evaluated_content(scope, binding).await?;
        let EvaluatedContent::Flow { status, .. } = &*summary else { return Err(ROLE_MISMATCH) };
        Ok(status.clone())
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
                let summary = self.evaluated_content(scope, binding).await?;
                let EvaluatedContent::Policy { unsupported_obligations, .. } = &*summary else {
                    return Err(ROLE_MISMATCH);
                };
                report.unsupported_obligations.clone_from(unsupported_obligations);
            }
            AssetKind::Memory => {
                let summary = self.evaluated_content(scope, binding).await?;
                let EvaluatedContent::Memory(unsupported_pointers) = &*summary else { return Err(ROLE_MISMATCH) };
                let describe = |pointer: &&'static str| {
                    let path = field_path::from_pointer("content", pointer);
                    format!("`{path}` of the `memory` `{}`", binding.asset_slug)
                };
                report.unsupported_memory.extend(unsupported_pointers.iter().map(describe));
            }
            AssetKind::GuardrailConfig | AssetKind::HookDefinition => {
                let summary = self.evaluated_content(scope, binding).await?;
                let EvaluatedContent::Controls(pointers) = &*summary else { return Err(ROLE_MISMATCH) };
                report.unsupported_controls.extend(pointers.iter().map(|pointer| UnenforcedControl {
                    kind: binding.role,
                    asset: binding.asset_slug.clone(),
                    pointer: pointer.clone(),
                }));
            }
            AssetKind::ToolDefinition => {
                let summary = self.evaluated_content(scope, binding).await?;
                let EvaluatedContent::Tool { name, backend } = &*summary else { return Err(ROLE_MISMATCH) };
                let is_available = match backend {
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

    /// Returns the fail-closed controls that are recorded but not enforced, in the bound versions and in the targets of
    /// resolved references.
    async fn unenforced_controls(
        &self,
        scope: TenantScope,
        release: &Release,
    ) -> Result<Vec<UnenforcedControl>, Failure> {
        let mut controls = Vec::new();
        let bound_versions = release.bindings.iter().map(|binding| (binding.asset_version_id, BindingPath::Bound));
        let referenced_versions =
            release.references.iter().map(|reference| (reference.asset_version_id, BindingPath::Referenced));
        let mut visited = BTreeSet::new();
        for (version, path) in bound_versions.chain(referenced_versions).filter(|(version, _)| visited.insert(*version))
        {
            let stored = self.version_store.find_version(scope, version).await?;
            let (asset, version) =
                stored.ok_or(Failure::Inconsistent("a version that a release refers to is missing"))?;
            let content =
                version.content().map_err(|_| Failure::Inconsistent("the content of a version is not JSON"))?;
            let pointers = content::unenforced_controls(asset.kind, &content, path).into_iter();
            controls.extend(pointers.map(|pointer| UnenforcedControl {
                kind: asset.kind,
                asset: asset.slug.clone(),
                pointer,
            }));
        }
        Ok(controls)
    }

    /// Whether the MCP server of a tool is reachable from this server and allows the tool.
    async fn server_offers(
        &self,
        scope: TenantScope,
        release: &Release,
        binding: &Binding,
        tool: &str,
    ) -> Result<bool, Failure> {
        if !release.references.iter().any(|reference| reference.from_version_id == binding.asset_version_id) {
            // The reference of a draft's tool to its MCP server is resolved only when the release leaves the draft
            // state.
            return Ok(true);
        }
        let content = self.bound_version(scope, binding).await?.content();
        let content = content.map_err(|_| Failure::Inconsistent("the content of a version is not JSON"))?;
        let bound_server = self.resolve_mcp_server(scope, release, binding, &content).await?;
        Ok(bound_server.is_some_and(|bound| bound.server.connection.is_some() && bound.server.allows(tool)))
    }

    /// Returns the state of the primary route. A route is approved if the bound version approves it, its asset is
    /// active, and no later version withdraws it.
    async fn route_status(&self, scope: TenantScope, binding: &Binding) -> Result<PrimaryRouteApproval, Failure> {
        let summary = self.evaluated_content(scope, binding).await?;
        let EvaluatedContent::Routes { approved_primary: Some(route), .. } = &*summary else {
            return Ok(PrimaryRouteApproval::NotApproved);
        };
        let is_effective =
            self.version_store.is_route_effective(scope, binding.asset_id, binding.asset_version_id, route).await?;
        Ok(if is_effective { PrimaryRouteApproval::Approved } else { PrimaryRouteApproval::NotApproved })
    }

    /// Returns the approved routes of a model policy, each with the state of its account on this server.
    async fn route_accounts(
        &self,
        scope: TenantScope,
        environment: &Slug,
        binding: &Binding,
    ) -> Result<Vec<RouteAccount>, Failure> {
        let refuses_local = self.settings.refuses_local_provider(environment);
        let summary = self.evaluated_content(scope, binding).await?;
        let EvaluatedContent::Routes { approved, .. } = &*summary else { return Err(ROLE_MISMATCH) };
        let account = |(route_id, account_slot): &(String, String)| RouteAccount {
            route_id: route_id.clone(),
            account_slot: account_slot.clone(),
            is_configured: self.provider.has_account(account_slot)
                && !(refuses_local && self.provider.is_local(account_slot)),
        };
        Ok(approved.iter().map(account).collect())
    }

    /// Whether the release needs a model route, but the sovereignty profile and the accounts permit none.
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
                Ok(CheckedContent::ModelPolicy(parsed)) => policy = Some(parsed),
                Ok(CheckedContent::Sovereignty(parsed)) => profile = Some(parsed),
                Ok(_) | Err(_) => return Err(ROLE_MISMATCH),
            }
        }
        let residency = |slot: &str| self.provider.residency(slot);
        let has_refused_search_route =
            searches.iter().any(|search| search.embedding == QueryEmbeddingStatus::RouteRefused);
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
        let summary = self.evaluated_content(scope, binding).await?;
        let EvaluatedContent::Profile(rule) = &*summary else { return Err(ROLE_MISMATCH) };
        Ok(*rule)
    }

    /// Returns the summary of a bound version's content for the release rules.
    pub(super) async fn evaluated_content(
        &self,
        scope: TenantScope,
        binding: &Binding,
    ) -> Result<Arc<EvaluatedContent>, Failure> {
        self.version_summary(scope, binding.asset_version_id).await
    }

    /// Returns the summary of a version's content for the release rules. It is cached, because a version never changes.
    pub(super) async fn version_summary(
        &self,
        scope: TenantScope,
        version_id: AssetVersionId,
    ) -> Result<Arc<EvaluatedContent>, Failure> {
        let key = (scope.tenant(), version_id);
        if let Some(summary) = self.summaries.get(&key) {
            return Ok(summary);
        }
        let stored = self.version_store.find_version(scope, version_id).await?;
        let (asset, version) = stored.ok_or(Failure::Inconsistent("a version that a release refers to is missing"))?;
        let content = version.content().map_err(|_| Failure::Inconsistent("the content of a version is not JSON"))?;
        let summary = Arc::new(EvaluatedContent::summarize(asset.kind, &content)?);
        self.summaries.insert(key, Arc::clone(&summary));
        Ok(summary)
    }

    /// Returns the approval rule of a release: the stricter of the rule of its environment and the rule of its workload
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
