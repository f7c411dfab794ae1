//! Reference resolution. When a release leaves the draft state, every reference in its bound contents is resolved to
//! one version. So are the references in the versions found. The resolved references are stored with the release.

use crate::{
    Failure,
    prompt::include::{body_of, label_of, refusal_of},
    release::Releases,
    resolve_reference::ResolutionFailure,
};
use fairway_domain::{
    access::{Caller, ResourcePosition},
    asset::{
        Asset, AssetVersion, Lifecycle, VersionLabel, canonical::Checksum, kind::AssetKind, reference::find_references,
    },
    id::{AssetId, AssetVersionId},
    prompt::{IncludedAsset, PromptRefusal, PromptTemplate, composition::IncludeRefusal},
    release::{
        Release,
        frozen_reference::{FrozenReference, MAX_REFERENCES, REFERENCE_UNRESOLVED, UnresolvedReference},
    },
    slug::Slug,
    tenant::TenantScope,
};
use futures_util::future::join_all;
use std::collections::{BTreeSet, HashMap, VecDeque};

/// Maximum number of content bytes that one resolution reads.
const MAX_BYTES: usize = 16 << 20;

/// The resolved references, or all references that do not resolve.
pub(crate) type ResolvedReferences = Result<Vec<FrozenReference>, Vec<UnresolvedReference>>;

/// The asset and version to which a slug and label resolve.
#[derive(Clone)]
struct ResolvedTarget {
    asset_id: AssetId,
    kind: AssetKind,
    lifecycle: Lifecycle,
    asset_version_id: AssetVersionId,
    version_label: VersionLabel,
    checksum: Checksum,
    /// The reason why a prompt cannot include the version; `None` if it can.
    body: Option<IncludeRefusal>,
}

/// State of a resolution. Contents are read one after another to limit memory.
struct ReferenceResolution {
    pending: VecDeque<AssetVersionId>,
    enqueued: BTreeSet<AssetVersionId>,
    /// INVARIANT: each name is looked up once. Otherwise a version that is created during the resolution could give
    /// equal references different targets.
    targets: HashMap<(Slug, Option<VersionLabel>), Result<ResolvedTarget, ResolutionFailure>>,
    bytes: usize,
    resolved: Vec<FrozenReference>,
    unresolved: Vec<UnresolvedReference>,
}

impl ReferenceResolution {
    fn enqueue(&mut self, version: AssetVersionId) {
        if self.enqueued.insert(version) {
            self.pending.push_back(version);
        }
    }

    fn add_unresolved(&mut self, slug: &Slug, pointer: &str, offset: Option<usize>, reason: &UnresolvedReason) {
        let (asset_slug, pointer) = (slug.clone(), pointer.to_owned());
        self.unresolved.push(UnresolvedReference {
            code: reason.code,
            message: reason.message,
            asset_slug,
            pointer,
            offset,
        });
    }

    fn add_resolved(&mut self, from_version_id: AssetVersionId, slug: &Slug, is_pinned: bool, target: ResolvedTarget) {
        self.enqueue(target.asset_version_id);
        self.resolved.push(FrozenReference {
            from_version_id,
            slug: slug.clone(),
            label: is_pinned.then(|| target.version_label.clone()),
            asset_id: target.asset_id,
            kind: target.kind,
            asset_version_id: target.asset_version_id,
            version_label: target.version_label,
            checksum: target.checksum,
        });
    }

    /// Whether the limits permit further references. A release that exceeds a limit is refused, because its list of
    /// references would be incomplete.
    const fn is_within_limits(&self) -> bool {
        self.resolved.len() < MAX_REFERENCES && self.unresolved.len() < MAX_REFERENCES && self.bytes <= MAX_BYTES
    }
}

/// Reason why a reference does not resolve.
struct UnresolvedReason {
    code: &'static str,
    message: &'static str,
}

impl UnresolvedReason {
    const fn unresolved(message: &'static str) -> Self {
        Self { code: REFERENCE_UNRESOLVED, message }
    }
}

const TOO_MANY: UnresolvedReason = UnresolvedReason::unresolved("the release has too many references");
const NOT_FOUND: UnresolvedReason = UnresolvedReason::unresolved(
    "the asset or its version does not exist, or is not visible from the release's workspace",
);
const WRONG_KIND: UnresolvedReason = UnresolvedReason::unresolved("an asset of this kind is not allowed here");
const NOT_ACTIVE: UnresolvedReason = UnresolvedReason::unresolved("the asset takes no new bindings");

impl Releases {
    /// Resolves every reference in the contents of a release among the assets that are visible from its workspace. If
    /// references do not resolve, returns all of these references instead.
    pub(crate) async fn resolve_references(
        &self,
        caller: &Caller,
        position: &ResourcePosition,
        release: &Release,
    ) -> Result<ResolvedReferences, Failure> {
        let mut resolution = ReferenceResolution {
            pending: VecDeque::new(),
            enqueued: BTreeSet::new(),
            targets: HashMap::new(),
            bytes: 0,
            resolved: Vec::new(),
            unresolved: Vec::new(),
        };
        // The store records whether a content has references. Contents without references need not be read.
        let scope = TenantScope::for_caller(caller);
        let reference_checks =
            release.bindings.iter().map(|binding| self.version_store.has_references(scope, binding.asset_version_id));
        for (binding, has_references) in release.bindings.iter().zip(join_all(reference_checks).await) {
            if has_references? {
                resolution.enqueue(binding.asset_version_id);
            }
        }
        while let Some(id) = resolution.pending.pop_front() {
            let stored = self.version_store.find_version(TenantScope::for_caller(caller), id).await?;
            let (asset, version) = stored.ok_or(Failure::Inconsistent("the version of a binding is missing"))?;
            resolution.bytes = resolution.bytes.saturating_add(version.canonical.len());
            if !resolution.is_within_limits() {
                resolution.add_unresolved(&asset.slug, "", None, &TOO_MANY);
                break;
            }
            if asset.kind == AssetKind::PromptTemplate {
                self.resolve_includes(caller, position, &asset, &version, &mut resolution).await?;
            } else {
                self.resolve_content_references(caller, position, &asset, &version, &mut resolution).await?;
            }
        }
        Ok(if resolution.unresolved.is_empty() { Ok(resolution.resolved) } else { Err(resolution.unresolved) })
    }

    /// Resolves the `@asset-ref` includes of a prompt. Its errors have the same codes and offsets as the validation of
    /// prompts.
    async fn resolve_includes(
        &self,
        caller: &Caller,
        position: &ResourcePosition,
        asset: &Asset,
        version: &AssetVersion,
        resolution: &mut ReferenceResolution,
    ) -> Result<(), Failure> {
        let content = version.content().map_err(|_| Failure::Inconsistent("the content of a version is not JSON"))?;
        let prompt =
            PromptTemplate::parse(&content).map_err(|_| Failure::Inconsistent("a stored prompt cannot be parsed"))?;
        for (reference, offset) in prompt.distinct_references() {
            match self.include_target(caller, position, reference, offset, resolution).await? {
                Ok(target) if target.lifecycle != Lifecycle::Active => {
                    resolution.add_unresolved(&asset.slug, "/system_prompt", Some(offset), &NOT_ACTIVE);
                }
                Ok(target) => {
                    let is_pinned = reference.label.is_some();
                    resolution.add_resolved(version.asset_version_id, &reference.slug, is_pinned, target);
                }
                Err(refusal) => {
                    let message = "the included asset does not exist, is not visible, or has includes itself";
                    let reason = UnresolvedReason { code: refusal.code(), message };
                    resolution.add_unresolved(&asset.slug, "/system_prompt", Some(offset), &reason);
                }
            }
        }
        Ok(())
    }

    /// Resolves the `{slug, version?}` references in content other than prompts.
    async fn resolve_content_references(
        &self,
        caller: &Caller,
        position: &ResourcePosition,
        asset: &Asset,
        version: &AssetVersion,
        resolution: &mut ReferenceResolution,
    ) -> Result<(), Failure> {
        let content = version.content().map_err(|_| Failure::Inconsistent("the content of a version is not JSON"))?;
        for reference in find_references(asset.kind, &content) {
            if !resolution.is_within_limits() {
                resolution.add_unresolved(&asset.slug, &reference.pointer, None, &TOO_MANY);
                return Ok(());
            }
            match self
                .reference_target(caller, position, &reference.slug, reference.version.as_ref(), resolution)
                .await?
            {
                Ok(target) if !reference.can_target_kind(target.kind) => {
                    resolution.add_unresolved(&asset.slug, &reference.pointer, None, &WRONG_KIND);
                }
                Ok(target) if target.lifecycle != Lifecycle::Active => {
                    resolution.add_unresolved(&asset.slug, &reference.pointer, None, &NOT_ACTIVE);
                }
                Ok(target) => {
                    let is_pinned = reference.version.is_some();
                    resolution.add_resolved(version.asset_version_id, &reference.slug, is_pinned, target);
                }
                Err(_) => resolution.add_unresolved(&asset.slug, &reference.pointer, None, &NOT_FOUND),
            }
        }
        Ok(())
    }

    /// Returns the target of an include, or the reason why the prompt cannot include it.
    async fn include_target(
        &self,
        caller: &Caller,
        position: &ResourcePosition,
        reference: &IncludedAsset,
        offset: usize,
        resolution: &mut ReferenceResolution,
    ) -> Result<Result<ResolvedTarget, PromptRefusal>, Failure> {
        let label = match label_of(reference, offset) {
            Ok(label) => label,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let target = self.reference_target(caller, position, &reference.slug, label.as_ref(), resolution).await?;
        Ok(match target {
            Err(unresolved) => Err(refusal_of(unresolved, offset)),
            Ok(target) if target.lifecycle == Lifecycle::Archived => Err(PromptRefusal::UnknownAsset { offset }),
            Ok(ResolvedTarget { body: Some(refusal), .. }) => Err(refusal.to_prompt_refusal(offset)),
            Ok(target) => Ok(target),
        })
    }

    /// Returns the target of a slug and label, which is the same for all references of the release.
    async fn reference_target(
        &self,
        caller: &Caller,
        position: &ResourcePosition,
        slug: &Slug,
        label: Option<&VersionLabel>,
        resolution: &mut ReferenceResolution,
    ) -> Result<Result<ResolvedTarget, ResolutionFailure>, Failure> {
        let key = (slug.clone(), label.cloned());
        if let Some(resolved) = resolution.targets.get(&key) {
            return Ok(resolved.clone());
        }
        let target = match self.assets.resolve(caller, position, slug, label).await? {
            Ok((asset, version)) => Ok(ResolvedTarget {
                body: body_of(&asset, &version)?.err(),
                asset_id: asset.asset_id,
                kind: asset.kind,
                lifecycle: asset.lifecycle,
                asset_version_id: version.asset_version_id,
                version_label: version.version_label,
                checksum: version.checksum,
            }),
            Err(unresolved) => Err(unresolved),
        };
        resolution.targets.insert(key, target.clone());
        Ok(target)
    }
}
