//! Estimated size of a release's run plan, which is checked before the release is submitted for review.

use crate::{
    Failure,
    blocking::{ProcessorWait, run_blocking},
    cache::MAX_CACHED_PLAN_BYTES,
    execution::{EMPTY_PLAN_TEXT_BYTES, is_read_by_runs, plan_bytes},
    prompt::include::body_of,
    release::Releases,
};
use fairway_domain::{
    asset::{
        AssetVersion,
        content::{self, CheckedContent, estimate_compiled_bytes, may_contain_patterns},
        kind::AssetKind,
    },
    id::AssetVersionId,
    release::{Binding, Release, ReleaseRefusal, frozen_reference::FrozenReference},
    tenant::TenantScope,
};
use serde_json::Value;
use std::collections::BTreeSet;

/// Maximum memory of a release's compiled patterns and schemas, in bytes. The plan cache has 40 MiB; the difference
/// remains for the policy and the texts.
const MAX_COMPILED_BYTES: usize = 32 << 20;

/// Estimated size of a run plan: its text and its compiled parts, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlanSize {
    text_bytes: usize,
    compiled_bytes: usize,
}

impl PlanSize {
    fn add(&mut self, text_bytes: usize, compiled_bytes: usize) -> Result<(), ReleaseRefusal> {
        self.text_bytes = self.text_bytes.saturating_add(text_bytes);
        self.compiled_bytes = self.compiled_bytes.saturating_add(compiled_bytes);
        if plan_bytes(self.text_bytes, self.compiled_bytes) > MAX_CACHED_PLAN_BYTES {
            Err(ReleaseRefusal::TooLarge)
        } else {
            Ok(())
        }
    }
}

impl Releases {
    /// Checks that the run plan of the bindings fits into the plan cache. A plan that does not fit would be compiled
    /// for each run. [`Self::check_referenced_size`] adds the targets of references.
    ///
    /// # Errors
    /// When the plan does not fit, or a binding cannot be read.
    pub(crate) async fn check_bound_size(&self, scope: TenantScope, release: &Release) -> Result<PlanSize, Failure> {
        let (mut size, mut schemas) = (PlanSize { text_bytes: EMPTY_PLAN_TEXT_BYTES, compiled_bytes: 0 }, 0_usize);
        for binding in release.bindings.iter().filter(|binding| is_read_by_runs(binding.role)) {
            let version = self.version_for_size(scope, binding.asset_version_id).await?;
            let mut compiled_bytes = 0;
            if may_contain_patterns(binding.role) {
                compiled_bytes = estimate_compiled_bytes(binding.role, &content_of(&version)?);
                schemas = schemas.saturating_add(compiled_bytes);
                if schemas > MAX_COMPILED_BYTES {
                    return Err(ReleaseRefusal::TooLarge.into());
                }
            }
            if binding.role == AssetKind::PolicyBundle {
                compiled_bytes = policy_bytes(scope, content_of(&version)?).await?;
            }
            size.add(version.canonical.len(), compiled_bytes)?;
        }
        Ok(size)
    }

    /// Checks the plan size again, including the targets of references: MCP servers, prompt includes and policies of
    /// hooks.
    ///
    /// # Errors
    /// When the plan does not fit, or a target cannot be read.
    pub(crate) async fn check_referenced_size(
        &self,
        scope: TenantScope,
        release: &Release,
        frozen: &[FrozenReference],
        mut size: PlanSize,
    ) -> Result<(), Failure> {
        let release = release.with_frozen_references(frozen.to_vec());
        for binding in &release.bindings {
            let (text_bytes, compiled_bytes) = self.referenced_bytes(scope, &release, binding).await?;
            size.add(text_bytes, compiled_bytes)?;
        }
        Ok(())
    }

    /// Returns the bytes of text and of compiled parts that the references of a binding add to the plan.
    async fn referenced_bytes(
        &self,
        scope: TenantScope,
        release: &Release,
        binding: &Binding,
    ) -> Result<(usize, usize), Failure> {
        let referenced: BTreeSet<AssetVersionId> = release
            .references
            .iter()
            .filter(|reference| reference.from_version_id == binding.asset_version_id)
            .map(|reference| reference.asset_version_id)
            .collect();
        if binding.role == AssetKind::PromptTemplate {
            let mut text_bytes = 0_usize;
            for id in referenced {
                let stored = self.version_store.find_version(scope, id).await?;
                let (asset, version) =
                    stored.ok_or(Failure::Inconsistent("the version of a resolved reference is missing"))?;
                text_bytes = text_bytes.saturating_add(body_of(&asset, &version)?.map_or(0, |body| body.bytes()));
            }
            return Ok((text_bytes, 0));
        }
        // The condition and the matcher of a hook are compiled even if the hook has no policy.
        let is_hook = binding.role == AssetKind::HookDefinition;
        if !is_hook && (binding.role != AssetKind::ToolDefinition || referenced.is_empty()) {
            return Ok((0, 0));
        }
        let content = content_of(&self.version_for_size(scope, binding.asset_version_id).await?)?;
        if is_hook {
            let (hook, text_bytes) = self.resolve_hook(scope, release, binding, &content).await?;
            return Ok((text_bytes, hook.compiled_bytes()));
        }
        let server = self.resolve_mcp_server(scope, release, binding, &content).await?;
        Ok((0, server.map_or(0, |bound| bound.server.heap_bytes())))
    }

    async fn version_for_size(&self, scope: TenantScope, id: AssetVersionId) -> Result<AssetVersion, Failure> {
        let stored = self.version_store.find_version(scope, id).await?;
        Ok(stored.ok_or(Failure::Inconsistent("the version of a binding is missing"))?.1)
    }
}

fn content_of(version: &AssetVersion) -> Result<Value, Failure> {
    version.content().map_err(|_| Failure::Inconsistent("the content of a version is not JSON"))
}

/// Compiles a policy on the blocking pool; returns the bytes of its compiled patterns.
async fn policy_bytes(scope: TenantScope, content: Value) -> Result<usize, Failure> {
    let compile = move || match content::parse_existing(AssetKind::PolicyBundle, &content) {
        Ok(CheckedContent::PolicyBundle(policy)) => policy.compiled_pattern_bytes(),
        _ => 0,
    };
    run_blocking(scope, ProcessorWait::Request, compile).await
}
