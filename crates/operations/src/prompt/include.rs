//! Included assets of prompts. Includes are checked when a version is created, and composed into the prompt of a run.

use crate::{Failure, asset::Assets, execution::source_version, resolve_reference::ResolutionFailure};
use fairway_domain::{
    access::{Caller, ResourcePosition},
    asset::{Asset, AssetVersion, Lifecycle, VersionLabel},
    execution::plan::SourceVersion,
    prompt::{
        IncludedAsset, MAX_RENDERED_BYTES, PromptRefusal, PromptTemplate,
        composition::{ComposedPrompt, IncludeRefusal, IncludedBody},
    },
    release::{Binding, Release, frozen_reference::find_frozen_reference},
    tenant::TenantScope,
};
use std::collections::BTreeMap;

impl Assets {
    /// Checks each include of a new prompt version: the asset exists, can be included, and includes no further asset.
    /// The bodies are read one after another, so that only one is in memory.
    pub(crate) async fn check_includes(
        &self,
        caller: &Caller,
        asset: &Asset,
        prompt: &PromptTemplate,
    ) -> Result<(), Failure> {
        let position = ResourcePosition::workspace(caller.tenant, asset.namespace_id, asset.workspace_id);
        let mut bytes = 0_usize;
        for (reference, offset) in prompt.distinct_references() {
            // A version of the same asset may have includes too, so it counts as a nested include.
            if reference.slug == asset.slug {
                return Err(Failure::from_prompt_refusal(PromptRefusal::NestedReference { offset }));
            }
            let (_, _, body) = self
                .resolve_include(caller, &position, reference, offset)
                .await?
                .map_err(Failure::from_prompt_refusal)?;
            bytes = bytes.saturating_add(body.bytes());
            if bytes > MAX_RENDERED_BYTES {
                return Err(Failure::from_prompt_refusal(PromptRefusal::TooLarge { offset }));
            }
        }
        Ok(())
    }

    /// Returns the asset and version to which an include refers, with the body to insert.
    pub(crate) async fn resolve_include(
        &self,
        caller: &Caller,
        position: &ResourcePosition,
        reference: &IncludedAsset,
        offset: usize,
    ) -> Result<Result<(Asset, AssetVersion, IncludedBody), PromptRefusal>, Failure> {
        let (asset, version) = match self.find_include(caller, position, reference, offset).await? {
            Ok(target) => target,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let body = body_of(&asset, &version)?.map_err(|refusal| refusal.to_prompt_refusal(offset));
        Ok(body.map(|body| (asset, version, body)))
    }

    /// Returns the asset and version to which an include refers, without checking that the version can be included.
    pub(crate) async fn find_include(
        &self,
        caller: &Caller,
        position: &ResourcePosition,
        reference: &IncludedAsset,
        offset: usize,
    ) -> Result<Result<(Asset, AssetVersion), PromptRefusal>, Failure> {
        let label = match label_of(reference, offset) {
            Ok(label) => label,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let target = self.resolve(caller, position, &reference.slug, label.as_ref()).await?;
        Ok(match target {
            Ok((asset, _)) if asset.lifecycle == Lifecycle::Archived => Err(PromptRefusal::UnknownAsset { offset }),
            Ok(target) => Ok(target),
            Err(unresolved) => Err(refusal_of(unresolved, offset)),
        })
    }

    /// Composes the prompt that a release binds, from the versions to which its references were resolved. Returns the
    /// composed prompt with these versions.
    pub(crate) async fn compose_prompt(
        &self,
        scope: TenantScope,
        release: &Release,
        binding: &Binding,
        prompt: PromptTemplate,
    ) -> Result<(ComposedPrompt, Vec<SourceVersion>), Failure> {
        let mut bodies: BTreeMap<IncludedAsset, IncludedBody> = BTreeMap::new();
        let mut sources: Vec<SourceVersion> = Vec::new();
        for (reference, _) in prompt.distinct_references() {
            let frozen =
                find_frozen_reference(&release.references, binding, &reference.slug, reference.label.as_deref());
            let frozen = frozen.ok_or(Failure::Inconsistent("a release on a lane has an unresolved reference"))?;
            let stored = self.version_store.find_version(scope, frozen.asset_version_id).await?;
            let (asset, version) =
                stored.ok_or(Failure::Inconsistent("the version of a resolved reference is missing"))?;
            let body = body_of(&asset, &version)?;
            let source = source_version(&asset.slug, &version);
            if !sources.contains(&source) {
                sources.push(source);
            }
            bodies.insert(
                reference.clone(),
                body.map_err(|_| Failure::Inconsistent("the version of a resolved reference has no body"))?,
            );
        }
        let composed = prompt.compose(|reference| bodies.get(reference).cloned());
        Ok((composed.map_err(|_| Failure::Inconsistent("a resolved prompt cannot be composed"))?, sources))
    }
}

/// Returns the version label of an include. It always parses, because the prompt grammar and [`VersionLabel`] accept
/// the same labels.
pub(crate) fn label_of(reference: &IncludedAsset, offset: usize) -> Result<Option<VersionLabel>, PromptRefusal> {
    let parse_label = |label: &String| VersionLabel::parse(label).ok_or(PromptRefusal::UnknownAsset { offset });
    reference.label.as_ref().map(parse_label).transpose()
}

/// Converts the reason why an include does not resolve into a refusal of the prompt at this offset.
pub(crate) const fn refusal_of(unresolved: ResolutionFailure, offset: usize) -> PromptRefusal {
    match unresolved {
        ResolutionFailure::Unknown => PromptRefusal::UnknownAsset { offset },
        ResolutionFailure::OtherWorkspace => PromptRefusal::CrossWorkspace { offset },
    }
}

pub(crate) fn body_of(asset: &Asset, version: &AssetVersion) -> Result<Result<IncludedBody, IncludeRefusal>, Failure> {
    let content = version.content().map_err(|_| Failure::Inconsistent("the content of a version is not JSON"))?;
    Ok(IncludedBody::of(asset.kind, &content))
}
