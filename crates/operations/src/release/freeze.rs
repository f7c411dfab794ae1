//! Freezing references: when a release leaves draft, every reference inside of what it binds, and inside of what those
//! refer to, gets the one version that it means.

use crate::{Failure, Services};
use fairway_domain::{
    access::{Caller, Place},
    asset::{Asset, AssetVersion, Lifecycle, kind::AssetKind, reference::references},
    id::AssetVersionId,
    prompt::PromptTemplate,
    release::{
        Release,
        reference::{FrozenReference, MAX_REFERENCES, REFERENCE_UNRESOLVED, UnresolvedReference},
    },
    slug::Slug,
    tenant::TenantScope,
};
use std::collections::{BTreeSet, VecDeque};

/// Most bytes of contents that are read for one release.
const MAX_BYTES: usize = 16 << 20;

/// What freezing found.
pub(crate) type Frozen = Result<Vec<FrozenReference>, Vec<UnresolvedReference>>;

/// The contents that are still to be looked into, and what was found in the others. Contents are read one at a time.
struct Freezing {
    waiting: VecDeque<AssetVersionId>,
    seen: BTreeSet<AssetVersionId>,
    bytes: usize,
    frozen: Vec<FrozenReference>,
    unresolved: Vec<UnresolvedReference>,
}

impl Freezing {
    fn visit(&mut self, version: AssetVersionId) {
        if self.seen.insert(version) {
            self.waiting.push_back(version);
        }
    }

    fn note(
        &mut self,
        within: &Slug,
        pointer: &str,
        offset: Option<usize>,
        (code, message): (&'static str, &'static str),
    ) {
        let (asset_slug, pointer) = (within.clone(), pointer.to_owned());
        self.unresolved.push(UnresolvedReference { code, message, asset_slug, pointer, offset });
    }

    fn settle(&mut self, from: AssetVersionId, (slug, pinned): (&Slug, bool), (asset, meant): (Asset, AssetVersion)) {
        self.visit(meant.asset_version_id);
        self.frozen.push(FrozenReference {
            from,
            slug: slug.clone(),
            label: pinned.then(|| meant.version_label.clone()),
            asset_id: asset.asset_id,
            asset_version_id: meant.asset_version_id,
            version_label: meant.version_label,
            checksum: meant.checksum,
        });
    }

    /// Whether more may be looked at. A release that refers to more than this is refused, not cut short.
    const fn has_room(&self) -> bool {
        self.frozen.len() < MAX_REFERENCES && self.unresolved.len() < MAX_REFERENCES && self.bytes <= MAX_BYTES
    }
}

const TOO_MANY: (&str, &str) = (REFERENCE_UNRESOLVED, "the release refers to too much");
const NOT_THERE: (&str, &str) =
    (REFERENCE_UNRESOLVED, "the asset or its version is not there, or not visible from the release's workspace");
const NOT_ACTIVE: (&str, &str) = (REFERENCE_UNRESOLVED, "the asset takes no new bindings");

impl Services {
    /// What every reference of the release's contents means now, seen from the release's workspace; or all of those that
    /// mean nothing.
    pub(crate) async fn freeze(&self, caller: &Caller, place: &Place, release: &Release) -> Result<Frozen, Failure> {
        let mut freezing = Freezing {
            waiting: VecDeque::new(),
            seen: BTreeSet::new(),
            bytes: 0,
            frozen: Vec::new(),
            unresolved: Vec::new(),
        };
        release.bindings.iter().for_each(|binding| freezing.visit(binding.asset_version_id));
        while let Some(id) = freezing.waiting.pop_front() {
            let found = self.stores.assets.find_version(TenantScope::of(caller), id).await?;
            let (asset, version) = found.ok_or(Failure::Corrupt("a binding without a version"))?;
            freezing.bytes = freezing.bytes.saturating_add(version.canonical.len());
            if !freezing.has_room() {
                freezing.note(&asset.slug, "", None, TOO_MANY);
                break;
            }
            if asset.kind == AssetKind::PromptTemplate {
                self.freeze_prompt(caller, place, (&asset, &version), &mut freezing).await?;
            } else {
                self.freeze_others(caller, place, (&asset, &version), &mut freezing).await?;
            }
        }
        Ok(if freezing.unresolved.is_empty() { Ok(freezing.frozen) } else { Err(freezing.unresolved) })
    }

    /// `@asset-ref` of a prompt, with the codes and offsets that they have when the prompt is made.
    async fn freeze_prompt(
        &self,
        caller: &Caller,
        place: &Place,
        (asset, version): (&Asset, &AssetVersion),
        freezing: &mut Freezing,
    ) -> Result<(), Failure> {
        let content = version.content().map_err(|_| Failure::Corrupt("a version that is no JSON"))?;
        let prompt = PromptTemplate::parse(&content).map_err(|_| Failure::Corrupt("a stored prompt that is none"))?;
        for (reference, offset) in prompt.included() {
            match self.included(caller, place, reference, offset).await? {
                Ok((found, _, _)) if found.lifecycle != Lifecycle::Active => {
                    freezing.note(&asset.slug, "/system_prompt", Some(offset), NOT_ACTIVE);
                }
                Ok((found, meant, _)) => {
                    let pinned = reference.label.is_some();
                    freezing.settle(version.asset_version_id, (&reference.slug, pinned), (found, meant));
                }
                Err(refusal) => {
                    let reason =
                        (refusal.code(), "what the prompt includes is not there, not visible, or includes more");
                    freezing.note(&asset.slug, "/system_prompt", Some(offset), reason);
                }
            }
        }
        Ok(())
    }

    /// `{slug, version?}` of every other kind.
    async fn freeze_others(
        &self,
        caller: &Caller,
        place: &Place,
        (asset, version): (&Asset, &AssetVersion),
        freezing: &mut Freezing,
    ) -> Result<(), Failure> {
        let content = version.content().map_err(|_| Failure::Corrupt("a version that is no JSON"))?;
        for reference in references(asset.kind, &content) {
            if !freezing.has_room() {
                freezing.note(&asset.slug, &reference.pointer, None, TOO_MANY);
                return Ok(());
            }
            match self.resolve(caller, place, (&reference.slug, reference.version.as_ref())).await? {
                Ok((found, _)) if found.lifecycle != Lifecycle::Active => {
                    freezing.note(&asset.slug, &reference.pointer, None, NOT_ACTIVE);
                }
                Ok(found) => {
                    let pinned = reference.version.is_some();
                    freezing.settle(version.asset_version_id, (&reference.slug, pinned), found);
                }
                Err(_) => freezing.note(&asset.slug, &reference.pointer, None, NOT_THERE),
            }
        }
        Ok(())
    }
}
