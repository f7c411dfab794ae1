//! What contents refer to by a slug alone: the newest version, whatever that says.
//!
//! The server settles what a reference means when a release is handed in. So that a release has inside of it what the
//! directory says, the newest version of what is referred to like this has to say it.

use super::{directory::Directory, estate::Estate};
use fairway_domain::asset::{
    kind::AssetKind,
    reference::{AssetReference, references},
};
use serde_json::Value;
use std::collections::BTreeSet;

/// What the contents of a directory lead to.
#[derive(Default)]
pub(super) struct Reached {
    /// Assets that something names by their slug alone.
    pub(super) by_slug: BTreeSet<String>,
    /// Assets of the server whose versions are not known yet, and would lead on.
    pub(super) unknown: BTreeSet<String>,
}

impl Reached {
    /// Goes from the contents of the directory, and from the versions that its releases name by a label, as far as
    /// references lead. What the directory does not hold is what the server has.
    pub(super) fn from(wanted: &Directory, estate: &Estate) -> Self {
        let mut walk = Walk { wanted, estate, seen: BTreeSet::new(), waiting: Vec::new(), reached: Self::default() };
        for (release, _) in &wanted.releases {
            let named = release.bindings.iter().filter_map(|binding| Some((&binding.asset, binding.version.as_ref()?)));
            named.for_each(|(slug, label)| walk.version(slug, Some(label)));
        }
        wanted.assets.iter().flat_map(|asset| &asset.references).for_each(|reference| walk.follow(reference));
        while let Some((kind, content)) = walk.waiting.pop() {
            references(kind, content).iter().for_each(|reference| walk.follow(reference));
        }
        walk.reached
    }
}

/// A walk under way.
struct Walk<'w> {
    wanted: &'w Directory,
    estate: &'w Estate,
    /// Slugs and labels that were looked at. Assets of a server may refer to one another in a circle.
    seen: BTreeSet<(String, Option<String>)>,
    waiting: Vec<(AssetKind, &'w Value)>,
    reached: Reached,
}

impl Walk<'_> {
    fn follow(&mut self, reference: &AssetReference) {
        let slug = reference.slug.as_str();
        let label = reference.version.as_ref().map(|label| label.as_str());
        if label.is_none() {
            self.reached.by_slug.insert(slug.to_owned());
        }
        self.version(slug, label);
    }

    /// Goes on from a version of the server; what the directory says itself was begun with.
    fn version(&mut self, slug: &str, label: Option<&str>) {
        let is_here = label.is_none() && self.wanted.assets.iter().any(|asset| asset.slug == slug);
        if is_here || !self.seen.insert((slug.to_owned(), label.map(str::to_owned))) {
            return;
        }
        let Some(asset) = self.estate.assets.get(slug) else { return };
        if !self.estate.versions.contains_key(slug) {
            self.reached.unknown.insert(slug.to_owned());
            return;
        }
        let kind = AssetKind::parse(super::estate::word(asset, "asset_kind"));
        let content = self.estate.labelled(slug, label).and_then(|version| version.get("content"));
        self.waiting.extend(kind.zip(content));
    }
}
