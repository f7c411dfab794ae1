//! The versions that a release binds, and the versions to which their references were resolved.

use crate::{
    Failure,
    blocking::{ProcessorWait, run_blocking},
    release::Releases,
};
use fairway_domain::{
    asset::{
        AssetVersion, VersionLabel,
        content::{self, CheckedContent, mcp_server::McpServer},
        kind::AssetKind,
        reference::find_references,
    },
    execution::plan::BoundServer,
    hook::Hook,
    release::{Binding, Release, frozen_reference::find_frozen_reference},
    tenant::TenantScope,
};
use serde_json::Value;

impl Releases {
    /// Returns the MCP server of a bound tool, at the version to which the release resolved the reference.
    pub(crate) async fn resolve_mcp_server(
        &self,
        scope: TenantScope,
        release: &Release,
        binding: &Binding,
        content: &Value,
    ) -> Result<Option<BoundServer>, Failure> {
        let references = find_references(AssetKind::ToolDefinition, content);
        let Some(reference) = references.first() else { return Ok(None) };
        let label = reference.version.as_ref().map(VersionLabel::as_str);
        // Releases that were activated before references were frozen have no resolved reference.
        let Some(frozen) = find_frozen_reference(&release.references, binding, &reference.slug, label) else {
            return Ok(None);
        };
        let stored = self.version_store.find_version(scope, frozen.asset_version_id).await?;
        let (asset, version) = stored.ok_or(Failure::Inconsistent("the version of a resolved reference is missing"))?;
        if asset.kind != AssetKind::McpServer {
            return Ok(None);
        }
        let content = version.content().map_err(|_| Failure::Inconsistent("the content of a version is not JSON"))?;
        let server =
            McpServer::parse(&content).map_err(|_| Failure::Inconsistent("a stored MCP server cannot be parsed"))?;
        let reference = format!("{}@{}", asset.slug, version.version_label);
        Ok(Some(BoundServer { asset: asset.asset_id, reference, server }))
    }

    /// Returns a bound hook with the policy bundle of its handler, and the size of the bundle in bytes.
    pub(crate) async fn resolve_hook(
        &self,
        scope: TenantScope,
        release: &Release,
        binding: &Binding,
        content: &Value,
    ) -> Result<(Hook, usize), Failure> {
        let references = find_references(AssetKind::HookDefinition, content);
        let mut policy = (None, 0);
        if let Some(reference) = references.first() {
            let label = reference.version.as_ref().map(VersionLabel::as_str);
            let frozen = find_frozen_reference(&release.references, binding, &reference.slug, label);
            let frozen = frozen.ok_or(Failure::Inconsistent("a release on a lane has an unresolved reference"))?;
            let stored = self.version_store.find_version(scope, frozen.asset_version_id).await?;
            let (asset, version) =
                stored.ok_or(Failure::Inconsistent("the version of a resolved reference is missing"))?;
            let content =
                version.content().map_err(|_| Failure::Inconsistent("the content of a version is not JSON"))?;
            let (kind, parse) = (asset.kind, move || content::parse_existing(asset.kind, &content));
            // This server can evaluate only policy bundles as handlers.
            if kind == AssetKind::PolicyBundle
                && let Ok(CheckedContent::PolicyBundle(compiled_policy)) =
                    run_blocking(scope, ProcessorWait::Request, parse).await?
            {
                policy = (Some(compiled_policy), version.canonical.len());
            }
        }
        let hook = Hook::parse(binding.asset_slug.as_str(), content, policy.0);
        Ok((hook.map_err(|_| Failure::Inconsistent("a bound version cannot be parsed"))?, policy.1))
    }

    /// Returns the version that a binding names.
    pub(crate) async fn bound_version(&self, scope: TenantScope, binding: &Binding) -> Result<AssetVersion, Failure> {
        let stored = self.version_store.find_version(scope, binding.asset_version_id).await?;
        stored.map(|(_, version)| version).ok_or(Failure::Inconsistent("the version of a binding is missing"))
    }
}
