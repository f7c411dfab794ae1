//! The assets that references from the directory reach, and which of these references name a slug alone. A reference by
//! slug alone resolves to the newest version.
//!
//! The server resolves references at submission. Therefore a release includes the directory's content of such an asset
//! only if the asset's newest version has this content.

use super::{directory::Directory, remote_state::RemoteState};
use fairway_domain::asset::{
    kind::AssetKind,
    reference::{AssetReference, find_references},
};
use serde_json::Value;
use std::collections::BTreeSet;

/// The assets that the contents of a directory reference, directly or indirectly.
#[derive(Default)]
pub(super) struct ReachableAssets {
    /// Assets that are referenced by slug alone.
    pub(super) by_slug: BTreeSet<String>,
    /// Assets whose versions must be loaded before the traversal can continue.
    pub(super) unknown: BTreeSet<String>,
}

impl ReachableAssets {
    /// Follows references from the directory's contents, and from the versions that its releases pin. Uses the
    /// server's versions of assets outside the directory.
    pub(super) fn from(desired: &Directory, remote_state: &RemoteState) -> Self {
        let mut walk = ReferenceWalk {
            desired,
            remote_state,
            visited: BTreeSet::new(),
            queue: Vec::new(),
            reached: Self::default(),
        };
        for (release, _) in &desired.releases {
            let pinned =
                release.bindings.iter().filter_map(|binding| Some((&binding.asset, binding.version.as_ref()?)));
            pinned.for_each(|(slug, label)| walk.visit(slug, Some(label)));
        }
        desired.assets.iter().flat_map(|asset| &asset.references).for_each(|reference| walk.follow(reference));
        while let Some((kind, content)) = walk.queue.pop() {
            find_references(kind, content).iter().for_each(|reference| walk.follow(reference));
        }
        walk.reached
    }
}

/// The state of the traversal of references.
struct ReferenceWalk<'w> {
    desired: &'w Directory,
    remote_state: &'w RemoteState,
    /// Visited slugs and labels. References between server assets may form cycles.
    visited: BTreeSet<(String, Option<String>)>,
    queue: Vec<(AssetKind, &'w Value)>,
    reached: ReachableAssets,
}

impl ReferenceWalk<'_> {
    fn follow(&mut self, reference: &AssetReference) {
        let slug = reference.slug.as_str();
        let label = reference.version.as_ref().map(|label| label.as_str());
        if label.is_none() {
            self.reached.by_slug.insert(slug.to_owned());
        }
        self.visit(slug, label);
    }

    /// Visits a version on the server. Skips contents of the directory, from which the traversal starts.
    fn visit(&mut self, slug: &str, label: Option<&str>) {
        let is_local = label.is_none() && self.desired.assets.iter().any(|asset| asset.slug == slug);
        if is_local || !self.visited.insert((slug.to_owned(), label.map(str::to_owned))) {
            return;
        }
        let Some(asset) = self.remote_state.assets.get(slug) else { return };
        if !self.remote_state.versions.contains_key(slug) {
            self.reached.unknown.insert(slug.to_owned());
            return;
        }
        let kind = AssetKind::parse(super::remote_state::string_or_empty(asset, "asset_kind"));
        let content = self.remote_state.version_labelled(slug, label).and_then(|version| version.get("content"));
        self.queue.extend(kind.zip(content));
    }
}
