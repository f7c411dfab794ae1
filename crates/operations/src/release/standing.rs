//! What the activation rules need to know of the bound contents.

use crate::{Failure, Services};
use fairway_domain::{
    asset::{
        Lifecycle,
        content::{self, CheckedContent},
        kind::AssetKind,
    },
    flow::{Flow, StepKind},
    policy::Obligation,
    release::{
        Binding, Release,
        activate::{FlowStanding, RouteStanding, Standing, UnenforcedControl},
    },
    tenant::TenantScope,
};
use serde_json::Value;
use std::collections::BTreeSet;

/// Obligations that this server fulfils. A policy that may impose another one is not activated: a control that is not
/// enforced must not look as if it were.
pub(crate) const FULFILLED: &[Obligation] = &[];

/// The step types and actions of a flow that this server cannot run, by name.
pub(crate) fn unavailable_steps(flow: &Flow) -> Vec<String> {
    let mut names: Vec<String> = flow
        .steps()
        .iter()
        .filter_map(|step| match &step.kind {
            StepKind::Task { action } if !crate::execution::engine::runs(*action) => Some(action.as_str()),
            StepKind::Agent { .. } | StepKind::Embedding { .. } => Some(step.kind.as_str()),
            StepKind::Task { .. } | StepKind::LlmCall { .. } | StepKind::Return { .. } => None,
        })
        .map(str::to_owned)
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// How much of the bound contents is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Depth {
    /// What an activation is decided on.
    ToDecide,
    /// What people are told besides.
    ToTell,
}

impl Services {
    /// Reads the bound contents and says how they stand: everything, or what an activation is decided on.
    pub(crate) async fn standing(
        &self,
        scope: TenantScope,
        release: &Release,
        depth: Depth,
    ) -> Result<Standing, Failure> {
        let unenforced_controls = match depth {
            Depth::ToDecide if !release.is_for_production() => Vec::new(),
            Depth::ToDecide | Depth::ToTell => self.unenforced_controls(scope, release).await?,
        };
        let mut standing = Standing {
            primary_route: None,
            flow: FlowStanding::Absent,
            unavailable_obligations: Vec::new(),
            unenforced_controls,
        };
        let mut legacy = None;
        for binding in &release.bindings {
            match binding.role {
                AssetKind::OrchestrationFlow => standing.flow = self.flow_standing(scope, binding).await?,
                AssetKind::ModelPolicy => standing.primary_route = Some(self.route_standing(scope, binding).await?),
                AssetKind::PolicyBundle => {
                    standing.unavailable_obligations = self.unfulfilled(scope, binding).await?;
                }
                AssetKind::ModelConfig => legacy = Some(binding),
                AssetKind::PromptTemplate
                | AssetKind::KnowledgeBase
                | AssetKind::ToolDefinition
                | AssetKind::HookDefinition
                | AssetKind::McpServer
                | AssetKind::Skill
                | AssetKind::Agent
                | AssetKind::Memory
                | AssetKind::EvaluationSuite
                | AssetKind::GuardrailConfig
                | AssetKind::ConnectorDefinition
                | AssetKind::SovereigntyProfile
                | AssetKind::WorkloadProfile
                | AssetKind::SandboxProfile
                | AssetKind::WorkloadHarness => {}
            }
        }
        if let (None, Some(binding)) = (standing.primary_route, legacy) {
            // Runs are then routed by what the configuration says.
            standing.primary_route = Some(self.route_standing(scope, binding).await?);
        }
        Ok(standing)
    }

    /// What promises to fail closed and is not enforced, in the versions that the release binds and in those that their
    /// frozen references mean: a control behind a reference looks just as strict.
    async fn unenforced_controls(
        &self,
        scope: TenantScope,
        release: &Release,
    ) -> Result<Vec<UnenforcedControl>, Failure> {
        let mut controls = Vec::new();
        let bound = release.bindings.iter().map(|binding| binding.asset_version_id);
        let meant = release.references.iter().map(|reference| reference.asset_version_id);
        let mut seen = BTreeSet::new();
        for version in bound.chain(meant).filter(|version| seen.insert(*version)) {
            let found = self.stores.assets.find_version(scope, version).await?;
            let (asset, version) = found.ok_or(Failure::Corrupt("a release refers to no version"))?;
            let content = version.content().map_err(|_| Failure::Corrupt("a version that is no JSON"))?;
            let promises = content::unenforced_promises(asset.kind, &content).into_iter();
            controls.extend(promises.map(|pointer| UnenforcedControl {
                kind: asset.kind,
                asset: asset.slug.clone(),
                pointer,
            }));
        }
        Ok(controls)
    }

    async fn flow_standing(&self, scope: TenantScope, binding: &Binding) -> Result<FlowStanding, Failure> {
        let content = self.bound_content(scope, binding).await?;
        let Ok(flow) = Flow::from_content(&content) else {
            return Ok(FlowStanding::Broken);
        };
        Ok(FlowStanding::Sound {
            provider_routed: flow.uses_provider_routes(),
            refers_to: flow.release_roles().into_iter().collect(),
            unavailable: unavailable_steps(&flow),
        })
    }

    /// A route stands if the bound version approves it, its asset is active, and no later version takes it back.
    async fn route_standing(&self, scope: TenantScope, binding: &Binding) -> Result<RouteStanding, Failure> {
        let found = self.stores.assets.find_version(scope, binding.asset_version_id).await?;
        let (asset, version) = found.ok_or(Failure::Corrupt("a binding without a version"))?;
        let content = version.content().map_err(|_| Failure::Corrupt("a version that is no JSON"))?;
        let Ok(CheckedContent::ModelPolicy(policy)) = content::read(asset.kind, &content) else {
            return Ok(RouteStanding::NotApproved);
        };
        let route = &policy.provider_route;
        if !route.is_approved() || asset.lifecycle != Lifecycle::Active {
            return Ok(RouteStanding::NotApproved);
        }
        let (asset, version) = (asset.asset_id, version.asset_version_id);
        if self.stores.assets.withdraws_route_after(scope, asset, version, &route.route_id).await? {
            return Ok(RouteStanding::NotApproved);
        }
        Ok(RouteStanding::Approved)
    }

    async fn unfulfilled(&self, scope: TenantScope, binding: &Binding) -> Result<Vec<String>, Failure> {
        let content = self.bound_content(scope, binding).await?;
        let Ok(CheckedContent::PolicyBundle(policy)) = content::read(AssetKind::PolicyBundle, &content) else {
            return Err(Failure::Corrupt("a stored policy bundle that does not compile"));
        };
        let mut names: Vec<String> = policy
            .obligations()
            .filter(|obligation| !FULFILLED.contains(obligation))
            .map(|obligation| obligation.as_str().to_owned())
            .collect();
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    pub(crate) async fn bound_content(&self, scope: TenantScope, binding: &Binding) -> Result<Value, Failure> {
        let found = self.stores.assets.find_version(scope, binding.asset_version_id).await?;
        let (_, version) = found.ok_or(Failure::Corrupt("a binding without a version"))?;
        version.content().map_err(|_| Failure::Corrupt("a version that is no JSON"))
    }
}
