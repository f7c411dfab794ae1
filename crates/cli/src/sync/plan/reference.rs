//! What contents refer to, where that cannot become a part of a release any more.

use super::{
    super::{
        apply::next_label,
        directory::{Directory, WantedAsset},
        estate::{Estate, word},
        manifest::ReleaseManifest,
    },
    AssetAction, AssetStep,
};
use crate::{failure::Finding, file::Located};
use fairway_domain::{
    asset::{
        Lifecycle,
        kind::AssetKind,
        reference::{AssetReference, references},
    },
    release::ReleaseRefusal,
};
use std::collections::BTreeSet;

/// Where something is told: a file, and the JSON pointer into it.
type At<'p> = (&'p Located, String);

/// A walk along what contents refer to, from what is made and what is handed in later.
pub(super) struct Looking<'p> {
    wanted: &'p Directory,
    estate: &'p Estate,
    /// Slugs and labels of the contents that were looked into.
    seen: BTreeSet<(String, Option<String>)>,
    /// Contents that are still to be looked into, and where what is wrong inside of them is told.
    waiting: Vec<(&'p str, Option<String>, At<'p>)>,
}

impl<'p> Looking<'p> {
    pub(super) const fn new(wanted: &'p Directory, estate: &'p Estate) -> Self {
        Self { wanted, estate, seen: BTreeSet::new(), waiting: Vec::new() }
    }

    /// What an asset refers to and nothing new may stand on: told where the asset gets a version. One that stays as it is may
    /// serve, and what serves goes on.
    pub(super) fn at_version(&self, (asset, step): (&'p WantedAsset, &AssetStep), findings: &mut Vec<Finding>) {
        match step.action {
            AssetAction::Create | AssetAction::Version => {
                findings.extend(asset.references.iter().filter_map(|reference| {
                    let at = (&asset.located, format!("/content{}", reference.pointer));
                    self.inactive(reference, &at)
                }));
            }
            AssetAction::Reuse => {}
        }
    }

    /// What a release gets inside, however deep, when it is handed in. The server looks it up only then.
    pub(super) fn within(
        &mut self,
        (release, located): (&'p ReleaseManifest, &'p Located),
        findings: &mut Vec<Finding>,
    ) {
        for (index, binding) in release.bindings.iter().enumerate() {
            self.waiting.push((&binding.asset, binding.version.clone(), (located, format!("/bindings/{index}/asset"))));
        }
        while let Some((slug, label, at)) = self.waiting.pop() {
            if !self.seen.insert((slug.to_owned(), label.clone())) {
                continue;
            }
            match own(self.wanted, slug).filter(|_| label.is_none()) {
                Some(asset) => {
                    for reference in &asset.references {
                        let at = (&asset.located, format!("/content{}", reference.pointer));
                        findings.extend(self.inactive(reference, &at));
                        self.follow(reference, at);
                    }
                }
                None => self.look_into((slug, label.as_deref()), &at, findings),
            }
        }
    }

    /// Looks into a content of the server's. What is wrong there is told where the directory leads to it.
    fn look_into(&mut self, (slug, label): (&str, Option<&str>), at: &At<'p>, findings: &mut Vec<Finding>) {
        let kind = self.estate.assets.get(slug).and_then(|live| AssetKind::parse(word(live, "asset_kind")));
        let content = self.estate.labelled(slug, label).and_then(|version| version.get("content"));
        let Some((kind, content)) = kind.zip(content) else { return };
        for reference in references(kind, content) {
            findings.extend(self.inactive(&reference, at));
            self.follow(&reference, at.clone());
        }
    }

    fn follow(&mut self, reference: &AssetReference, at: At<'p>) {
        let slug = reference.slug.as_str();
        let named = own(self.wanted, slug).map(|asset| asset.slug.as_str());
        let named = named.or_else(|| self.estate.assets.get_key_value(slug).map(|(slug, _)| slug.as_str()));
        let label = reference.version.as_ref().map(|label| label.as_str().to_owned());
        self.waiting.extend(named.map(|slug| (slug, label, at)));
    }

    /// That an asset of the server takes no new bindings. Of the directory's own assets that is told in their files.
    fn inactive(&self, reference: &AssetReference, (located, pointer): &At<'p>) -> Option<Finding> {
        let slug = reference.slug.as_str();
        let live = self.estate.assets.get(slug).filter(|_| own(self.wanted, slug).is_none())?;
        let state = match Lifecycle::parse(word(live, "lifecycle_state")) {
            Some(Lifecycle::Active) | None => return None,
            Some(Lifecycle::Draft) => "has no version on the server",
            Some(Lifecycle::Retired) => "is retired on the server: activate it there, or refer to another asset",
            Some(Lifecycle::Archived) => "is archived on the server, and that for good: refer to another asset",
        };
        let message = format!("this leads to `{slug}`, which {state}");
        Some(located.finding(pointer, ReleaseRefusal::AssetNotActive.code(), message))
    }
}

/// What of a reference can never be, whatever becomes of the asset that it names: another kind than may stand there, and a
/// version that neither is there nor is made by this plan. What prompts include has codes and checks of its own.
pub(super) fn ruled_out(
    (asset, reference): (&WantedAsset, &AssetReference),
    (wanted, estate): (&Directory, &Estate),
    steps: &[AssetStep],
) -> Option<Finding> {
    let slug = reference.slug.as_str();
    let found = |member: &str, code: &str, message: &str| {
        asset.located.finding(&format!("/content{}{member}", reference.pointer), code, message)
    };
    let live = || estate.assets.get(slug).and_then(|live| AssetKind::parse(word(live, "asset_kind")));
    let Some(kind) = own(wanted, slug).map(|other| other.kind).or_else(live) else {
        let message = "neither the directory nor the server has the asset that is referred to";
        return Some(found("", "unknown_asset", message));
    };
    if asset.kind == AssetKind::PromptTemplate {
        return None;
    }
    if !reference.may_name(kind) {
        let message = "the asset that is referred to is of a kind that cannot stand here";
        return Some(found("/slug", ReleaseRefusal::RoleKindMismatch.code(), message));
    }
    let label = reference.version.as_ref()?.as_str();
    let is_made = steps.iter().any(|step| {
        let known = estate.versions.get(slug).map_or(&[][..], Vec::as_slice);
        step.slug == slug && step.action != AssetAction::Reuse && next_label(known) == label
    });
    if is_made || estate.labelled(slug, Some(label)).is_some() {
        return None;
    }
    Some(found("/version", "unknown_version", "the server has no such version of the asset that is referred to"))
}

fn own<'p>(wanted: &'p Directory, slug: &str) -> Option<&'p WantedAsset> {
    wanted.assets.iter().find(|asset| asset.slug == slug)
}
