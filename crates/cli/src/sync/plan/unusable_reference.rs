//! Finds references to assets and versions that the server would refuse in a new release.

use super::{
    super::{
        apply::next_label,
        directory::{DesiredAsset, Directory},
        manifest_files::ReleaseManifest,
        remote_state::{RemoteState, string_or_empty},
    },
    AssetAction, AssetStep,
};
use crate::{failure::Finding, unknown_names_in_files::similar_hint, untrusted_file::LocatedValue};
use fairway_domain::{
    asset::{
        Lifecycle,
        kind::AssetKind,
        reference::{AssetReference, find_references},
    },
    release::ReleaseRefusal,
};
use std::collections::BTreeSet;

/// The location of a finding: a file, and a JSON pointer into it.
type FindingLocation<'p> = (&'p LocatedValue, String);

/// Traverses references, starting from new versions and from releases that will be submitted.
pub(super) struct ReferenceValidator<'p> {
    desired: &'p Directory,
    remote_state: &'p RemoteState,
    /// Slugs and labels of the visited contents.
    visited: BTreeSet<(String, Option<String>)>,
    /// Contents to visit by slug and label, each with the location for its findings.
    queue: Vec<(&'p str, Option<String>, FindingLocation<'p>)>,
}

impl<'p> ReferenceValidator<'p> {
    pub(super) const fn new(desired: &'p Directory, remote_state: &'p RemoteState) -> Self {
        Self { desired, remote_state, visited: BTreeSet::new(), queue: Vec::new() }
    }

    /// Checks the references of an asset's new version. A reused version is not checked, because it may already
    /// serve and then stays valid.
    pub(super) fn check_asset(&self, asset: &'p DesiredAsset, step: &AssetStep, findings: &mut Vec<Finding>) {
        match step.action {
            AssetAction::Create | AssetAction::Version => {
                findings.extend(asset.references.iter().filter_map(|reference| {
                    let location = (&asset.located, format!("/content{}", reference.pointer));
                    self.inactive_reference(reference, &location)
                }));
            }
            AssetAction::Reuse => {}
        }
    }

    /// Checks all assets that a release includes, at any depth. The server resolves them only at submission.
    pub(super) fn check_release(
        &mut self,
        release: &'p ReleaseManifest,
        located: &'p LocatedValue,
        findings: &mut Vec<Finding>,
    ) {
        for (index, binding) in release.bindings.iter().enumerate() {
            self.queue.push((&binding.asset, binding.version.clone(), (located, format!("/bindings/{index}/asset"))));
        }
        while let Some((slug, label, location)) = self.queue.pop() {
            if !self.visited.insert((slug.to_owned(), label.clone())) {
                continue;
            }
            match local_asset(self.desired, slug).filter(|_| label.is_none()) {
                Some(asset) => {
                    for reference in &asset.references {
                        let location = (&asset.located, format!("/content{}", reference.pointer));
                        findings.extend(self.inactive_reference(reference, &location));
                        self.enqueue(reference, location);
                    }
                }
                None => self.visit_remote(slug, label.as_deref(), &location, findings),
            }
        }
    }

    /// Visits content on the server. Findings have the location of the directory's reference that leads to the content.
    fn visit_remote(
        &mut self,
        slug: &str,
        label: Option<&str>,
        location: &FindingLocation<'p>,
        findings: &mut Vec<Finding>,
    ) {
        let kind = self
            .remote_state
            .assets
            .get(slug)
            .and_then(|remote_asset| AssetKind::parse(string_or_empty(remote_asset, "asset_kind")));
        let content = self.remote_state.version_labelled(slug, label).and_then(|version| version.get("content"));
        let Some((kind, content)) = kind.zip(content) else { return };
        for reference in find_references(kind, content) {
            findings.extend(self.inactive_reference(&reference, location));
            self.enqueue(&reference, location.clone());
        }
    }

    fn enqueue(&mut self, reference: &AssetReference, location: FindingLocation<'p>) {
        let slug = reference.slug.as_str();
        let known_slug = local_asset(self.desired, slug).map(|asset| asset.slug.as_str());
        let known_slug =
            known_slug.or_else(|| self.remote_state.assets.get_key_value(slug).map(|(slug, _)| slug.as_str()));
        let label = reference.version.as_ref().map(|label| label.as_str().to_owned());
        self.queue.extend(known_slug.map(|slug| (slug, label, location)));
    }

    /// A finding if an asset on the server accepts no new bindings. Assets of the directory are excluded, because they
    /// have findings in their own files.
    fn inactive_reference(
        &self,
        reference: &AssetReference,
        (located, pointer): &FindingLocation<'p>,
    ) -> Option<Finding> {
        let slug = reference.slug.as_str();
        let remote_asset = self.remote_state.assets.get(slug).filter(|_| local_asset(self.desired, slug).is_none())?;
        let state = match Lifecycle::parse(string_or_empty(remote_asset, "lifecycle_state")) {
            Some(Lifecycle::Active) | None => return None,
            Some(Lifecycle::Draft) => "has no version on the server",
            Some(Lifecycle::Retired) => "is retired on the server: activate it there or reference another asset",
            Some(Lifecycle::Archived) => "is permanently archived on the server: reference another asset",
        };
        let message = format!("the reference leads to `{slug}`, which {state}");
        Some(located.finding(pointer, ReleaseRefusal::AssetNotActive.code(), message))
    }
}

/// Checks a reference for permanent errors: a wrong kind, and a version that neither exists nor is planned. Excludes
/// inclusions of prompts, which have their own codes and checks.
pub(super) fn find_permanent_error(
    asset: &DesiredAsset,
    reference: &AssetReference,
    desired: &Directory,
    remote_state: &RemoteState,
    steps: &[AssetStep],
) -> Option<Finding> {
    let slug = reference.slug.as_str();
    let new_finding = |member: &str, code: &str, message: &str| {
        asset.located.finding(&format!("/content{}{member}", reference.pointer), code, message)
    };
    let remote_kind = || {
        let remote_asset = remote_state.assets.get(slug);
        remote_asset.and_then(|remote_asset| AssetKind::parse(string_or_empty(remote_asset, "asset_kind")))
    };
    let Some(kind) = local_asset(desired, slug).map(|asset| asset.kind).or_else(remote_kind) else {
        let candidates =
            permitted_slugs(reference, desired, remote_state).into_iter().filter(|candidate| *candidate != asset.slug);
        let hint = similar_hint(slug, candidates);
        let message = format!("the referenced asset `{slug}` exists neither in the directory nor on the server{hint}");
        return Some(new_finding("/slug", "unknown_asset", &message).with_offset(token_offset(asset, slug)));
    };
    if asset.kind == AssetKind::PromptTemplate {
        return None;
    }
    if !reference.can_target_kind(kind) {
        let message = "the referenced asset's kind is not allowed here";
        return Some(new_finding("/slug", ReleaseRefusal::RoleKindMismatch.code(), message));
    }
    let label = reference.version.as_ref()?.as_str();
    let is_planned = steps.iter().any(|step| {
        let known_versions = remote_state.versions.get(slug).map_or(&[][..], Vec::as_slice);
        step.slug == slug && step.action != AssetAction::Reuse && next_label(known_versions) == label
    });
    if is_planned || remote_state.version_labelled(slug, Some(label)).is_some() {
        return None;
    }
    Some(new_finding("/version", "unknown_version", "the server has no such version of the referenced asset"))
}

/// The slugs that a reference may name: of assets in the directory, and of assets on the server.
fn permitted_slugs<'p>(
    reference: &AssetReference,
    desired: &'p Directory,
    remote_state: &'p RemoteState,
) -> BTreeSet<&'p str> {
    let local = desired.assets.iter().map(|asset| (asset.slug.as_str(), Some(asset.kind)));
    let kind = |remote_asset| AssetKind::parse(string_or_empty(remote_asset, "asset_kind"));
    let remote = remote_state.assets.iter().map(|(slug, remote_asset)| (slug.as_str(), kind(remote_asset)));
    let permitted = local.chain(remote).filter(|(_, kind)| kind.is_some_and(|kind| reference.can_target_kind(kind)));
    permitted.map(|(slug, _)| slug).collect()
}

/// The byte offset of the token in a prompt that includes an asset; `None` in other kinds of content, where the file
/// has the position of the reference.
fn token_offset(asset: &DesiredAsset, slug: &str) -> Option<usize> {
    if asset.kind != AssetKind::PromptTemplate {
        return None;
    }
    let text = asset.content.get("system_prompt")?.as_str()?;
    let token = format!("@asset-ref:{slug}");
    let is_slug_character = |character: char| character.is_ascii_alphanumeric() || character == '-';
    let is_complete =
        |offset: &usize| text.get(offset + token.len()..).is_some_and(|after| !after.starts_with(is_slug_character));
    text.match_indices(&token).map(|(offset, _)| offset).find(is_complete)
}

fn local_asset<'p>(desired: &'p Directory, slug: &str) -> Option<&'p DesiredAsset> {
    desired.assets.iter().find(|asset| asset.slug == slug)
}
