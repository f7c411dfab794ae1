//! Run plans: everything that a run under a release needs, worked out once.

use crate::{Failure, Services};
use fairway_domain::{
    asset::{
        content::{self, CheckedContent, ModelPolicy},
        kind::AssetKind,
    },
    evidence::{Chain, Snapshot},
    flow::Flow,
    id::{ReleaseId, TenantId},
    policy::CompiledPolicy,
    prompt::composition::ComposedPrompt,
    release::Release,
    slug::Slug,
    store::Revision,
    tenant::TenantScope,
    workload::Workload,
};
use moka::sync::Cache;
use std::sync::Arc;

/// Bytes of plans that are kept: a quarter of what the server may have in all.
const PLAN_BYTES: u64 = 128 << 20;
/// A plan takes about so many times the text that it was made of. What is compiled from patterns and schemas is in no
/// proportion to its text and is counted besides.
const PARSED: usize = 4;
/// Workloads whose lanes are kept.
const ENTRIES: u64 = 10_000;

/// Everything that a run needs. A release that holds a lane never becomes a draft again, so its bindings and with them
/// its plan never change. The workload's revision is part of the key because the evidence shows its owner and slug, the
/// deployment's because the evidence shows verdicts, and one on an active release moves it.
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
    /// The governance chain, already kept.
    pub snapshot: Snapshot,
    /// Texts that policies read over and over.
    pub names: PlanNames,
    slugs: Vec<(AssetKind, String)>,
    weight: u32,
}

impl RunPlan {
    /// The slug of the asset bound in a role.
    #[must_use]
    pub fn bound_slug(&self, role: AssetKind) -> Option<String> {
        self.slugs.iter().find(|(bound, _)| *bound == role).map(|(_, slug)| slug.clone())
    }
}

/// Texts that policies read over and over.
#[derive(Debug)]
pub struct PlanNames {
    /// The release's identifier.
    pub release_id: String,
    /// The workload's identifier.
    pub workload_id: String,
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

/// What runs find without asking the database. Whatever is found here is proved by the accept statement, which stores
/// nothing when a revision has moved.
#[derive(Debug)]
pub struct PlanCache {
    plans: Cache<PlanKey, Arc<RunPlan>>,
    pub(crate) entries: Cache<EntryKey, Arc<fairway_domain::execution::ports::RuntimeEntry>>,
    pub(crate) callers: Cache<crate::access::Claims, Arc<fairway_domain::access::Caller>>,
}

impl PlanCache {
    pub(crate) fn new() -> Self {
        let weigh = |_: &PlanKey, plan: &Arc<RunPlan>| plan.weight;
        let plans = Cache::builder().max_capacity(PLAN_BYTES).weigher(weigh).build();
        Self { plans, entries: Cache::new(ENTRIES), callers: Cache::new(ENTRIES) }
    }
}

impl Services {
    /// The plan of a release, from the cache or made now.
    pub(crate) async fn plan(
        &self,
        scope: TenantScope,
        workload: &Workload,
        release: ReleaseId,
        deployment: Revision,
    ) -> Result<Arc<RunPlan>, Failure> {
        let key = PlanKey { tenant: scope.tenant(), release, workload: workload.revision, deployment };
        if let Some(plan) = self.plans.plans.get(&key) {
            return Ok(plan);
        }
        let placed = self.stores.releases.find(scope, release).await?.ok_or(Failure::Corrupt("no such release"))?;
        if !placed.release.state.holds_lanes() {
            // It lost its lane since the caches were filled; the accept would notice, so decide anew at once.
            return Err(Failure::Contended);
        }
        let plan = Arc::new(self.make_plan(scope, workload, &placed.release).await?);
        self.stores.executions.keep_snapshot(scope, &plan.snapshot).await?;
        self.plans.plans.insert(key, Arc::clone(&plan));
        Ok(plan)
    }

    async fn make_plan(&self, scope: TenantScope, workload: &Workload, release: &Release) -> Result<RunPlan, Failure> {
        let (mut policy, mut flow, mut prompt) = (None, None, None);
        let (mut model_policy, mut legacy_policy) = (None, None);
        let (mut text, mut compiled) = (1_024_usize, 0_usize);
        for binding in &release.bindings {
            let runs = matches!(
                binding.role,
                AssetKind::PolicyBundle
                    | AssetKind::OrchestrationFlow
                    | AssetKind::PromptTemplate
                    | AssetKind::ModelPolicy
                    | AssetKind::ModelConfig
            );
            if !runs {
                continue;
            }
            let content = self.bound_content(scope, binding).await?;
            text = text.saturating_add(content.to_string().len());
            let read = content::read(binding.role, &content);
            match read.map_err(|_| Failure::Corrupt("a bound version that cannot be read"))? {
                CheckedContent::PolicyBundle(content) => {
                    compiled = compiled.saturating_add(content.pattern_bytes());
                    policy = Some(content);
                }
                CheckedContent::Flow(content) => flow = Some(content),
                CheckedContent::PromptTemplate(content) => {
                    let composed = self.compose(scope, (release, binding), content).await?;
                    text = text.saturating_add(composed.included_bytes());
                    compiled = compiled.saturating_add(composed.schema_bytes());
                    prompt = Some(composed);
                }
                CheckedContent::ModelPolicy(content) if binding.role.is_legacy() => legacy_policy = Some(content),
                CheckedContent::ModelPolicy(content) => model_policy = Some(content),
                CheckedContent::Plain => {}
            }
        }
        Ok(RunPlan {
            policy: policy.ok_or(Failure::Corrupt("an active release without a policy"))?,
            flow: flow.unwrap_or_else(Flow::implicit),
            prompt,
            model_policy: model_policy.or(legacy_policy),
            snapshot: Chain::of(release, workload).snapshot(),
            names: PlanNames {
                release_id: release.release_id.to_string(),
                workload_id: workload.workload_id.to_string(),
            },
            slugs: release.bindings.iter().map(|binding| (binding.role, binding.asset_slug.to_string())).collect(),
            weight: weight(text, compiled),
        })
    }
}

/// Bytes that a plan takes which was made of so much text and holds so much that was compiled.
fn weight(text: usize, compiled: usize) -> u32 {
    u32::try_from(text.saturating_mul(PARSED).saturating_add(compiled)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_compiled_weighs_as_much_as_it_may_take() {
        assert_eq!(weight(1_000, 0), 4_000);
        assert_eq!(weight(1_000, 1 << 20), 4_000 + (1 << 20));
        assert_eq!(weight(usize::MAX, 1), u32::MAX, "what weighs too much is not kept, and never wraps around");
    }
}
