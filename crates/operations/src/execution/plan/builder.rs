//! Builds the plan of a release from the content of its bindings.

use super::{CachedPlan, EMPTY_PLAN_TEXT_BYTES, RunPlans, is_read_by_runs, plan_bytes, source_version};
use crate::{
    Failure,
    blocking::{ProcessorWait, run_blocking},
};
use fairway_domain::{
    asset::content::{ModelPolicy, SovereigntyProfile},
    asset::{
        content::{
            self, CheckedContent,
            tool::{Tool, ToolBinding},
        },
        kind::AssetKind,
    },
    evidence::GovernanceChain,
    execution::{
        plan::{BoundAsset, BoundTool, RunPlan, SourceVersion},
        retrieval::BoundKnowledgeBase,
        routing::Routing,
        script::SandboxProfile,
    },
    flow::Flow,
    guardrail::Guardrails,
    hook::{Hook, Hooks},
    knowledge::KnowledgeBase,
    memory::{BoundMemory, MemoryConfig},
    policy::CompiledPolicy,
    prompt::composition::ComposedPrompt,
    release::{Binding, Release},
    tenant::TenantScope,
    workload::Workload,
};
use serde_json::Value;
use std::{mem, sync::Arc};

/// Refusal for a bound version that cannot be parsed although its activation accepted it.
const UNPARSABLE: Failure = Failure::Inconsistent("a bound version cannot be parsed");

/// The parts of a plan, collected from one binding after another.
#[derive(Default)]
struct PlanParts {
    policy: Option<CompiledPolicy>,
    flow: Option<Flow>,
    prompt: Option<ComposedPrompt>,
    model_policy: Option<ModelPolicy>,
    /// The model policy that a legacy model configuration implies. It applies if the release binds no model policy.
    legacy_policy: Option<ModelPolicy>,
    sovereignty: Option<SovereigntyProfile>,
    bound_assets: Vec<BoundAsset>,
    included: Vec<SourceVersion>,
    knowledge: Vec<BoundKnowledgeBase>,
    /// The bound memory assets; `None` for an asset that this server does not support.
    memories: Vec<Option<BoundMemory>>,
    tools: Vec<BoundTool>,
    guardrails: Guardrails,
    hooks: Vec<Hook>,
    sandbox: Option<SandboxProfile>,
    /// Bytes of source text of all bindings.
    text_bytes: usize,
    /// Memory of compiled patterns and schemas, in bytes.
    compiled_bytes: usize,
}

/// A binding of a release, with the bound version and its parsed content.
struct BoundVersion<'b> {
    scope: TenantScope,
    release: &'b Release,
    binding: &'b Binding,
    content: Value,
    source: SourceVersion,
}

impl RunPlans {
    /// Builds the plan of a release.
    pub(super) async fn build(
        &self,
        scope: TenantScope,
        workload: &Workload,
        release: &Release,
    ) -> Result<CachedPlan, Failure> {
        let mut parts = PlanParts { text_bytes: EMPTY_PLAN_TEXT_BYTES, ..PlanParts::default() };
        for binding in &release.bindings {
            self.add_binding(&mut parts, scope, release, binding).await?;
        }
        self.finish(parts, workload, release)
    }

    async fn add_binding(
        &self,
        parts: &mut PlanParts,
        scope: TenantScope,
        release: &Release,
        binding: &Binding,
    ) -> Result<(), Failure> {
        let mut asset = BoundAsset { role: binding.role, slug: binding.asset_slug.to_string(), source: None };
        if !is_read_by_runs(binding.role) {
            parts.bound_assets.push(asset);
            return Ok(());
        }
        let version = self.releases.bound_version(scope, binding).await?;
        let content = version.content().map_err(|_| Failure::Inconsistent("the content of a version is not JSON"))?;
        let guardrails = mem::take(&mut parts.guardrails);
        let (content, checked, guardrails) = compile_binding(scope, binding, content, guardrails).await?;
        parts.guardrails = guardrails;
        parts.text_bytes = parts.text_bytes.saturating_add(version.canonical.len());
        let source = source_version(&binding.asset_slug, &version);
        asset.source = Some(source.clone());
        parts.bound_assets.push(asset);
        let version = BoundVersion { scope, release, binding, content, source };
        self.add_parsed(parts, &version).await?;
        self.add_checked(parts, &version, checked).await
    }

    /// Adds content that needs only parsing: knowledge bases, memory, sandbox profiles and hooks.
    async fn add_parsed(&self, parts: &mut PlanParts, version: &BoundVersion<'_>) -> Result<(), Failure> {
        let BoundVersion { scope, release, binding, content, .. } = version;
        let slug = || binding.asset_slug.to_string();
        match binding.role {
            AssetKind::KnowledgeBase => {
                let base = KnowledgeBase::parse(content).map_err(|_| UNPARSABLE)?;
                parts.knowledge.push(BoundKnowledgeBase { asset: binding.asset_id, slug: slug(), base });
            }
            AssetKind::Memory => {
                // A memory asset that an older server accepted may require unsupported features. The run then has no
                // memory.
                let config = MemoryConfig::parse(content).ok();
                parts.memories.push(config.map(|config| BoundMemory { asset: binding.asset_id, slug: slug(), config }));
            }
            AssetKind::SandboxProfile => {
                parts.sandbox = Some(SandboxProfile::parse(content).map_err(|_| UNPARSABLE)?);
            }
            AssetKind::HookDefinition => {
                let (hook, bytes) = self.releases.resolve_hook(*scope, release, binding, content).await?;
                parts.compiled_bytes = parts.compiled_bytes.saturating_add(hook.compiled_bytes());
                parts.text_bytes = parts.text_bytes.saturating_add(bytes);
                parts.hooks.push(hook);
            }
            AssetKind::PolicyBundle
            | AssetKind::OrchestrationFlow
            | AssetKind::PromptTemplate
            | AssetKind::ModelPolicy
            | AssetKind::ModelConfig
            | AssetKind::SovereigntyProfile
            | AssetKind::ToolDefinition
            | AssetKind::GuardrailConfig
            | AssetKind::McpServer
            | AssetKind::Skill
            | AssetKind::Agent
            | AssetKind::EvaluationSuite
            | AssetKind::ConnectorDefinition
            | AssetKind::WorkloadProfile
            | AssetKind::WorkloadHarness => {}
        }
        Ok(())
    }

    /// Adds content that [`compile_binding`] already validated and compiled.
    async fn add_checked(
        &self,
        parts: &mut PlanParts,
        version: &BoundVersion<'_>,
        checked: CheckedContent,
    ) -> Result<(), Failure> {
        let BoundVersion { scope, release, binding, .. } = version;
        match checked {
            CheckedContent::PolicyBundle(content) => {
                parts.compiled_bytes = parts.compiled_bytes.saturating_add(content.compiled_pattern_bytes());
                parts.policy = Some(content);
            }
            CheckedContent::Flow(content) => parts.flow = Some(content),
            CheckedContent::PromptTemplate(content) => {
                let (composed, sources) = self.assets.compose_prompt(*scope, release, binding, content).await?;
                parts.included = sources;
                parts.text_bytes = parts.text_bytes.saturating_add(composed.included_bytes());
                parts.compiled_bytes = parts.compiled_bytes.saturating_add(composed.compiled_response_schema_bytes());
                parts.prompt = Some(composed);
            }
            CheckedContent::ModelPolicy(content) if binding.role.is_legacy() => parts.legacy_policy = Some(content),
            CheckedContent::ModelPolicy(content) => parts.model_policy = Some(content),
            CheckedContent::Sovereignty(content) => parts.sovereignty = Some(content),
            CheckedContent::Tool(tool) => {
                let tool = self.bound_tool(version, *tool).await?;
                parts.compiled_bytes = parts.compiled_bytes.saturating_add(tool_bytes(&tool));
                parts.tools.push(tool);
            }
            CheckedContent::Untyped => {}
        }
        Ok(())
    }

    async fn bound_tool(&self, version: &BoundVersion<'_>, tool: Tool) -> Result<BoundTool, Failure> {
        let BoundVersion { scope, release, binding, content, source } = version;
        let server = match tool.binding {
            ToolBinding::Mcp(_) => self.releases.resolve_mcp_server(*scope, release, binding, content).await?,
            ToolBinding::Http(_) | ToolBinding::Builtin(_) | ToolBinding::Unavailable => None,
        };
        Ok(BoundTool { slug: binding.asset_slug.to_string(), source: source.clone(), tool, server })
    }

    fn finish(&self, parts: PlanParts, workload: &Workload, release: &Release) -> Result<CachedPlan, Failure> {
        let compiled_bytes = parts.compiled_bytes.saturating_add(parts.guardrails.compiled_bytes());
        let model_policy = parts.model_policy.or(parts.legacy_policy);
        let residency = |slot: &str| self.provider.residency(slot);
        let routing = model_policy.as_ref().map(|policy| {
            let routing = Routing::for_policy(policy, parts.sovereignty.as_ref(), residency);
            if self.settings.refuses_local_provider(&release.environment) {
                return routing.refuse_local_accounts(policy, |slot| self.provider.is_local(slot));
            }
            routing
        });
        Ok(CachedPlan {
            plan: RunPlan {
                policy: parts.policy.ok_or(Failure::Inconsistent("an active release has no policy"))?,
                flow: parts.flow.unwrap_or_else(Flow::implicit),
                prompt: parts.prompt,
                model_policy,
                routing: routing.unwrap_or_default(),
                sovereignty: parts.sovereignty,
                knowledge: parts.knowledge,
                memory: match <[Option<BoundMemory>; 1]>::try_from(parts.memories) {
                    Ok([memory]) => memory,
                    Err(_) => None,
                },
                tools: parts.tools,
                guardrails: Arc::new(parts.guardrails),
                hooks: Hooks::in_execution_order(parts.hooks),
                sandbox: parts.sandbox,
                bound_assets: parts.bound_assets,
                included: parts.included,
                release_id: release.release_id.to_string(),
                workload_id: workload.workload_id.to_string(),
            },
            snapshot: GovernanceChain::for_release(release, workload).to_snapshot(),
            bytes: plan_bytes(parts.text_bytes, compiled_bytes),
        })
    }
}

/// Compiles the content of a binding on the blocking pool, because it may contain hundreds of patterns that take a
/// millisecond each. Returns the content, its parsed form, and the guardrails including those of the binding.
async fn compile_binding(
    scope: TenantScope,
    binding: &Binding,
    content: Value,
    mut guardrails: Guardrails,
) -> Result<(Value, CheckedContent, Guardrails), Failure> {
    let (role, slug) = (binding.role, binding.asset_slug.clone());
    let compile = move || {
        let added = if role == AssetKind::GuardrailConfig { guardrails.add(slug.as_str(), &content) } else { Ok(()) };
        let parsed = content::parse_existing(role, &content).ok().filter(|_| added.is_ok());
        parsed.map(|parsed| (content, parsed, guardrails))
    };
    let compiled = run_blocking(scope, ProcessorWait::Request, compile).await?;
    compiled.ok_or(Failure::Inconsistent("a bound version cannot be parsed"))
}

/// Returns the memory of a bound tool that its text does not include, in bytes: its compiled schemas and its own copy
/// of its MCP server's definition.
fn tool_bytes(tool: &BoundTool) -> usize {
    let server = tool.server.as_ref().map_or(0, |bound_server| bound_server.server.heap_bytes());
    tool.tool.schema_bytes().saturating_add(server)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairway_domain::{
        asset::{
            canonical::Checksum,
            content::{mcp_server::McpServer, tool::Tool},
        },
        execution::plan::BoundServer,
    };
    use serde_json::{Map, json};
    use uuid::Uuid;

    #[test]
    fn tool_size_includes_its_server() {
        let tool = json!({ "name": "look", "input_schema": { "type": "object" },
            "annotations": { "read_only": true }, "binding": { "kind": "builtin", "ref": "query_knowledge_base" } });
        let server = |pins: usize| {
            let digest = "a".repeat(64);
            let pins: Map<String, Value> = (0..pins).map(|pin| (format!("tool-{pin}"), json!(digest))).collect();
            let transport = json!({ "type": "streamable-http", "url": "https://a.example/mcp" });
            let content = json!({ "name": "server", "transport": transport, "tool_pins": pins });
            let (asset, reference) = (Uuid::nil().into(), "server@v1".to_owned());
            BoundServer { asset, reference, server: McpServer::parse(&content).unwrap() }
        };
        let bytes = |server| {
            let source =
                SourceVersion { reference: "look@v1".to_owned(), checksum: Checksum::blake3_of(b"{}"), size_bytes: 2 };
            tool_bytes(&BoundTool { slug: "look".to_owned(), source, tool: Tool::parse(&tool).unwrap(), server })
        };
        let (without_server, one_pin, many_pins) = (bytes(None), bytes(Some(server(1))), bytes(Some(server(1_000))));
        assert!(without_server < one_pin, "{without_server} and {one_pin}");
        // Each added tool has a pin of 64 characters and a name.
        assert!(many_pins - one_pin > 64_000, "{one_pin} and {many_pins}");
    }
}
