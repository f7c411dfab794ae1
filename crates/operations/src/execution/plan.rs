//! Run plans: the compiled form of a release, built once and shared by its runs.

use crate::{
    Failure, Stores,
    asset::Assets,
    blocking::{WorkDeadline, run_blocking},
    cache::{MAX_BYTES, PendingLoads, entry_bytes, weighted_cache},
    release::Releases,
    services::SharedState,
};
use fairway_domain::{
    asset::{
        AssetVersion,
        content::{self, CheckedContent, tool::ToolBinding},
        kind::AssetKind,
    },
    evidence::{GovernanceChain, Snapshot, SnapshotDigest},
    execution::{
        plan::{BoundAsset, BoundTool, RunPlan, SourceVersion},
        ports::{RunStore, WorkloadWithDeployment},
        provider::Provider,
        retrieval::BoundKnowledgeBase,
        routing::Routing,
        script::SandboxProfile,
    },
    flow::Flow,
    guardrail::Guardrails,
    hook::Hooks,
    id::{ReleaseId, TenantId, WorkloadId},
    knowledge::KnowledgeBase,
    memory::{BoundMemory, MemoryConfig},
    release::{Binding, Release, ports::ReleaseStore},
    slug::Slug,
    store::Revision,
    tenant::TenantScope,
    workload::Workload,
};
use moka::sync::Cache;
use serde_json::Value;
use std::sync::Arc;

/// Estimated memory of a plan per byte of its source text. Compiled patterns and schemas are unrelated to their text
/// size and count separately.
const TEXT_FACTOR: usize = 4;
/// Memory of a plan besides its bound content, in bytes of text.
pub(crate) const BASE_TEXT_BYTES: usize = 1_024;
/// Approximate heap memory of a slug, in bytes.
const SLUG_BYTES: usize = 48;

/// The cached plan of a release. A release that held a lane never becomes a draft again, so its bindings never
/// change. The key includes the workload's revision for owner and slug in the evidence, and the deployment's for its
/// approvals.
#[derive(Debug)]
pub struct CachedPlan {
    /// The compiled plan.
    pub plan: RunPlan,
    /// The governance chain, already stored.
    pub snapshot: Snapshot,
    /// Estimated memory of the plan, in bytes.
    bytes: usize,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct PlanKey {
    tenant: TenantId,
    release: ReleaseId,
    workload: Revision,
    deployment: Revision,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct EntryKey {
    pub(crate) tenant: TenantId,
    pub(crate) slug: Slug,
    pub(crate) environment: Slug,
}

/// State that runs use without a database read. The accept statement verifies its revisions and stores nothing if
/// one changed.
#[derive(Debug)]
pub struct PlanCache {
    plans: Cache<PlanKey, Arc<CachedPlan>>,
    plans_in_flight: PendingLoads<PlanKey, Arc<CachedPlan>>,
    pub(crate) entries: Cache<EntryKey, Arc<WorkloadWithDeployment>>,
    pub(crate) entries_by_workload: Cache<(TenantId, WorkloadId, Slug), Arc<WorkloadWithDeployment>>,
}

impl PlanCache {
    pub(crate) fn new() -> Self {
        Self {
            plans: weighted_cache(MAX_BYTES.plans, |_: &PlanKey, kept: &Arc<CachedPlan>| kept.bytes).build(),
            plans_in_flight: PendingLoads::new(),
            entries: weighted_cache(MAX_BYTES.entries, |_: &EntryKey, entry: &Arc<WorkloadWithDeployment>| {
                SLUG_BYTES.saturating_mul(2).saturating_add(entry_bytes(entry))
            })
            .build(),
            entries_by_workload: weighted_cache(
                MAX_BYTES.entries,
                |_: &(TenantId, WorkloadId, Slug), entry: &Arc<WorkloadWithDeployment>| {
                    SLUG_BYTES.saturating_add(entry_bytes(entry))
                },
            )
            .build(),
        }
    }

    /// Caches the workload and deployment behind an authorized caller's run. Environments without a deployment are
    /// not cached: callers can invent their names.
    pub(crate) fn cache_entry(&self, key: EntryKey, entry: &Arc<WorkloadWithDeployment>) {
        if entry.deployment.is_some() {
            self.entries.insert(key, Arc::clone(entry));
        }
    }
}

/// Builds and caches the plans of runs.
pub struct RunPlans {
    plans: Arc<PlanCache>,
    provider: Arc<dyn Provider>,
    run_store: Arc<dyn RunStore>,
    release_store: Arc<dyn ReleaseStore>,
    assets: Arc<Assets>,
    releases: Arc<Releases>,
}

impl RunPlans {
    pub(crate) fn new(stores: &Stores, shared: &SharedState, assets: &Arc<Assets>, releases: &Arc<Releases>) -> Self {
        Self {
            plans: Arc::clone(&shared.plans),
            provider: Arc::clone(&shared.provider),
            run_store: Arc::clone(&stores.runs),
            release_store: Arc::clone(&stores.releases),
            assets: Arc::clone(assets),
            releases: Arc::clone(releases),
        }
    }
}

impl RunPlans {
    /// The plan of a release, cached or built now.
    pub(crate) async fn plan(
        &self,
        scope: TenantScope,
        workload: &Workload,
        release: ReleaseId,
        deployment: Revision,
    ) -> Result<Arc<CachedPlan>, Failure> {
        let key = PlanKey { tenant: scope.tenant(), release, workload: workload.revision, deployment };
        if let Some(plan) = self.plans.plans.get(&key) {
            return Ok(plan);
        }
        // Boxed: most runs find a cached plan, and would carry the size of this future.
        let make = Box::pin(self.build_current_plan(scope, workload, release, key.clone()));
        self.plans.plans_in_flight.get_or_compute(key.clone(), make).await
    }

    /// Builds and caches the plan of a release on a lane.
    async fn build_current_plan(
        &self,
        scope: TenantScope,
        workload: &Workload,
        release: ReleaseId,
        key: PlanKey,
    ) -> Result<Arc<CachedPlan>, Failure> {
        let placed = self.release_store.find(scope, release).await?.ok_or(Failure::Inconsistent("no such release"))?;
        if !placed.release.state.holds_lanes() {
            // The release lost its lane after the caches were filled. The accept would fail too, so the decision is
            // retried at once.
            return Err(Failure::Contended);
        }
        let plan = Arc::new(self.build_plan(scope, workload, &placed.release).await?);
        self.run_store.store_snapshot(scope, &plan.snapshot).await?;
        self.plans.plans.insert(key, Arc::clone(&plan));
        Ok(plan)
    }

    /// The plan of a started run: its release may have lost its lane since, and its snapshot is the stored one.
    pub(crate) async fn plan_of_started(
        &self,
        scope: TenantScope,
        workload: &Workload,
        release: ReleaseId,
        snapshot: SnapshotDigest,
    ) -> Result<Arc<CachedPlan>, Failure> {
        let placed = self.release_store.find(scope, release).await?.ok_or(Failure::Inconsistent("no such release"))?;
        let mut plan = Box::pin(self.build_plan(scope, workload, &placed.release)).await?;
        plan.snapshot.digest = snapshot;
        Ok(Arc::new(plan))
    }

    async fn build_plan(
        &self,
        scope: TenantScope,
        workload: &Workload,
        release: &Release,
    ) -> Result<CachedPlan, Failure> {
        let (mut policy, mut flow, mut prompt) = (None, None, None);
        let (mut model_policy, mut legacy_policy, mut sovereignty) = (None, None, None);
        let (mut bound, mut included, mut knowledge) = (Vec::new(), Vec::new(), Vec::new());
        let mut memories = Vec::new();
        let mut tools = Vec::new();
        let (mut guardrails, mut hooks, mut sandbox) = (Guardrails::default(), Vec::new(), None);
        let (mut text, mut compiled) = (BASE_TEXT_BYTES, 0_usize);
        for binding in &release.bindings {
            let mut asset = BoundAsset { role: binding.role, slug: binding.asset_slug.to_string(), source: None };
            if !is_in_plan(binding.role) {
                bound.push(asset);
                continue;
            }
            let version = self.releases.bound_version(scope, binding).await?;
            let content =
                version.content().map_err(|_| Failure::Inconsistent("the content of a version is not JSON"))?;
            let (content, read, added) = compile_binding(scope, binding, content, guardrails).await?;
            guardrails = added;
            text = text.saturating_add(version.canonical.len());
            asset.source = Some(source(&binding.asset_slug, &version));
            bound.push(asset);
            if binding.role == AssetKind::KnowledgeBase {
                let base = KnowledgeBase::parse(&content);
                let base = base.map_err(|_| Failure::Inconsistent("a bound version cannot be parsed"))?;
                let slug = binding.asset_slug.to_string();
                knowledge.push(BoundKnowledgeBase { asset: binding.asset_id, slug, base });
            }
            if binding.role == AssetKind::Memory {
                // A memory asset that was activated before it was checked may require unavailable features: the run
                // has no memory then.
                let remembering = MemoryConfig::parse(&content).ok();
                memories.push(remembering.map(|remembering| BoundMemory {
                    asset: binding.asset_id,
                    slug: binding.asset_slug.to_string(),
                    config: remembering,
                }));
            }
            if binding.role == AssetKind::SandboxProfile {
                let profile = SandboxProfile::parse(&content);
                sandbox = Some(profile.map_err(|_| Failure::Inconsistent("a bound version cannot be parsed"))?);
            }
            if binding.role == AssetKind::HookDefinition {
                let (hook, bytes) = self.releases.resolve_hook(scope, release, binding, &content).await?;
                compiled = compiled.saturating_add(hook.compiled_bytes());
                text = text.saturating_add(bytes);
                hooks.push(hook);
            }
            match read {
                CheckedContent::PolicyBundle(content) => {
                    compiled = compiled.saturating_add(content.pattern_bytes());
                    policy = Some(content);
                }
                CheckedContent::Flow(content) => flow = Some(content),
                CheckedContent::PromptTemplate(content) => {
                    let (composed, sources) = self.assets.compose(scope, release, binding, content).await?;
                    included = sources;
                    text = text.saturating_add(composed.included_bytes());
                    compiled = compiled.saturating_add(composed.schema_bytes());
                    prompt = Some(composed);
                }
                CheckedContent::ModelPolicy(content) if binding.role.is_legacy() => legacy_policy = Some(content),
                CheckedContent::ModelPolicy(content) => model_policy = Some(content),
                CheckedContent::Sovereignty(content) => sovereignty = Some(content),
                CheckedContent::Tool(tool) => {
                    let server = match tool.binding {
                        ToolBinding::Mcp(_) => self.releases.resolve_server(scope, release, binding, &content).await?,
                        ToolBinding::Http(_) | ToolBinding::Builtin(_) | ToolBinding::Unavailable => None,
                    };
                    let slug = binding.asset_slug.to_string();
                    let source = source(&binding.asset_slug, &version);
                    let tool = BoundTool { slug, source, tool: *tool, server };
                    compiled = compiled.saturating_add(tool_bytes(&tool));
                    tools.push(tool);
                }
                CheckedContent::Untyped => {}
            }
        }
        compiled = compiled.saturating_add(guardrails.compiled_bytes());
        let model_policy = model_policy.or(legacy_policy);
        let residency = |slot: &str| self.provider.residency(slot);
        let routing = model_policy.as_ref().map(|policy| Routing::for_policy(policy, sovereignty.as_ref(), residency));
        Ok(CachedPlan {
            plan: RunPlan {
                policy: policy.ok_or(Failure::Inconsistent("an active release has no policy"))?,
                flow: flow.unwrap_or_else(Flow::implicit),
                prompt,
                model_policy,
                routing: routing.unwrap_or_default(),
                sovereignty,
                knowledge,
                memory: match <[Option<BoundMemory>; 1]>::try_from(memories) {
                    Ok([memory]) => memory,
                    Err(_) => None,
                },
                tools,
                guardrails: Arc::new(guardrails),
                hooks: Hooks::sorted(hooks),
                sandbox,
                bound_assets: bound,
                included,
                release_id: release.release_id.to_string(),
                workload_id: workload.workload_id.to_string(),
            },
            snapshot: GovernanceChain::for_release(release, workload).to_snapshot(),
            bytes: plan_bytes(text, compiled),
        })
    }
}

/// Whether runs read the content of this kind of binding.
pub(crate) const fn is_in_plan(kind: AssetKind) -> bool {
    matches!(
        kind,
        AssetKind::PolicyBundle
            | AssetKind::OrchestrationFlow
            | AssetKind::PromptTemplate
            | AssetKind::ModelPolicy
            | AssetKind::ModelConfig
            | AssetKind::SovereigntyProfile
            | AssetKind::KnowledgeBase
            | AssetKind::Memory
            | AssetKind::ToolDefinition
            | AssetKind::GuardrailConfig
            | AssetKind::HookDefinition
            | AssetKind::SandboxProfile
    )
}

/// Compiles the content of a binding on the blocking pool: one content may hold hundreds of patterns, of a
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
        let read = content::read(role, &content).ok().filter(|_| added.is_ok());
        read.map(|read| (content, read, guardrails))
    };
    let compiled = run_blocking(scope, WorkDeadline::Request, compile).await?;
    compiled.ok_or(Failure::Inconsistent("a bound version cannot be parsed"))
}

/// The reference to a version in the evidence of runs.
pub(crate) fn source(slug: &Slug, version: &AssetVersion) -> SourceVersion {
    SourceVersion {
        reference: format!("{slug}@{}", version.version_label),
        checksum: version.checksum.clone(),
        size_bytes: u64::try_from(version.canonical.len()).unwrap_or(u64::MAX),
    }
}

/// Memory of a bound tool besides its text: its compiled schemas and its own copy of its MCP server's definition.
fn tool_bytes(bound: &BoundTool) -> usize {
    let server = bound.server.as_ref().map_or(0, |bound| bound.server.heap_bytes());
    bound.tool.schema_bytes().saturating_add(server)
}

/// Estimated memory of a plan, from the bytes of its text and of its compiled parts.
pub(crate) const fn plan_bytes(text: usize, compiled: usize) -> usize {
    text.saturating_mul(TEXT_FACTOR).saturating_add(compiled)
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
    fn plan_size_adds_compiled_bytes_and_saturates() {
        assert_eq!(plan_bytes(1_000, 0), 4_000);
        assert_eq!(plan_bytes(1_000, 1 << 20), 4_000 + (1 << 20));
        assert_eq!(plan_bytes(usize::MAX, 1), usize::MAX, "the estimate saturates");
    }

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
                SourceVersion { reference: "look@v1".to_owned(), checksum: Checksum::of(b"{}"), size_bytes: 2 };
            tool_bytes(&BoundTool { slug: "look".to_owned(), source, tool: Tool::parse(&tool).unwrap(), server })
        };
        let (alone, few, many) = (bytes(None), bytes(Some(server(1))), bytes(Some(server(1_000))));
        assert!(alone < few, "{alone} and {few}");
        // A pin has 64 characters, and its tool a name.
        assert!(many - few > 64_000, "{few} and {many}");
    }
}
