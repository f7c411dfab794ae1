//! Assets that prompts include: looked up when a version is made, and put together for runs.

use crate::{Failure, Services, execution::source, reference::Unresolved};
use fairway_domain::{
    access::{Caller, Place},
    asset::{Asset, AssetVersion, Lifecycle, VersionLabel},
    execution::plan::Source,
    prompt::{
        AssetReference, MAX_RENDERED, PromptRefusal, PromptTemplate,
        composition::{Body, BodyRefusal, ComposedPrompt},
    },
    release::{Binding, Release, reference::meant_by},
    tenant::TenantScope,
};
use std::collections::BTreeMap;

impl Services {
    /// Whether everything that a new version of a prompt includes is there, can be included, and includes nothing
    /// itself. Bodies are read one after the other and let go again, so that many long ones never lie in memory at once.
    pub(crate) async fn check_included(
        &self,
        caller: &Caller,
        own: &Asset,
        prompt: &PromptTemplate,
    ) -> Result<(), Failure> {
        let from = Place::workspace(caller.tenant, own.namespace_id, own.workspace_id);
        let mut bytes = 0_usize;
        for (reference, offset) in prompt.included() {
            // Whatever version of itself it means, a prompt that includes itself has no end.
            if reference.slug == own.slug {
                return Err(Failure::prompt(PromptRefusal::NestedReference { offset }));
            }
            let (_, _, body) = self.included(caller, &from, reference, offset).await?.map_err(Failure::prompt)?;
            bytes = bytes.saturating_add(body.bytes());
            if bytes > MAX_RENDERED {
                return Err(Failure::prompt(PromptRefusal::TooLarge { offset }));
            }
        }
        Ok(())
    }

    /// The asset and version that a prompt's reference means, with its body.
    pub(crate) async fn included(
        &self,
        caller: &Caller,
        from: &Place,
        reference: &AssetReference,
        offset: usize,
    ) -> Result<Result<(Asset, AssetVersion, Body), PromptRefusal>, Failure> {
        let label = match label_of(reference, offset) {
            Ok(label) => label,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let (asset, version) = match self.resolve(caller, from, (&reference.slug, label.as_ref())).await? {
            Ok(found) => found,
            Err(unresolved) => return Ok(Err(refusal_of(unresolved, offset))),
        };
        if asset.lifecycle == Lifecycle::Archived {
            return Ok(Err(PromptRefusal::UnknownAsset { offset }));
        }
        let body = body_of(&asset, &version)?.map_err(|refusal| refusal.at(offset));
        Ok(body.map(|body| (asset, version, body)))
    }

    /// The prompt that a release binds, with the bodies of exactly the versions that were frozen for it, and those versions.
    pub(crate) async fn compose(
        &self,
        scope: TenantScope,
        (release, binding): (&Release, &Binding),
        prompt: PromptTemplate,
    ) -> Result<(ComposedPrompt, Vec<Source>), Failure> {
        let mut bodies: BTreeMap<AssetReference, Body> = BTreeMap::new();
        let mut sources: Vec<Source> = Vec::new();
        for (reference, _) in prompt.included() {
            let frozen = meant_by(&release.references, binding, &reference.slug, reference.label.as_deref());
            let frozen = frozen.ok_or(Failure::Corrupt("a live release with an open reference"))?;
            let found = self.stores.assets.find_version(scope, frozen.asset_version_id).await?;
            let (asset, version) = found.ok_or(Failure::Corrupt("a frozen reference without a version"))?;
            let body = body_of(&asset, &version)?;
            let source = source(&asset.slug, &version);
            if !sources.contains(&source) {
                sources.push(source);
            }
            bodies.insert(reference.clone(), body.map_err(|_| Failure::Corrupt("a frozen reference without a body"))?);
        }
        let composed = prompt.compose(|reference| bodies.get(reference).cloned());
        Ok((composed.map_err(|_| Failure::Corrupt("a frozen prompt that cannot be composed"))?, sources))
    }
}

/// The label that a prompt's reference names. What the grammar takes for one is one; the two are read by the same rule.
pub(crate) fn label_of(reference: &AssetReference, offset: usize) -> Result<Option<VersionLabel>, PromptRefusal> {
    let parsed = |label: &String| VersionLabel::parse(label).ok_or(PromptRefusal::UnknownAsset { offset });
    reference.label.as_ref().map(parsed).transpose()
}

/// What is said of a prompt's reference that means nothing.
pub(crate) const fn refusal_of(unresolved: Unresolved, offset: usize) -> PromptRefusal {
    match unresolved {
        Unresolved::Unknown => PromptRefusal::UnknownAsset { offset },
        Unresolved::Elsewhere => PromptRefusal::CrossWorkspace { offset },
    }
}

pub(crate) fn body_of(asset: &Asset, version: &AssetVersion) -> Result<Result<Body, BodyRefusal>, Failure> {
    let content = version.content().map_err(|_| Failure::Corrupt("a version that is no JSON"))?;
    Ok(Body::of(asset.kind, &content))
}
