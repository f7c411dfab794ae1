//! References of what a release binds: which exact version each of them means.
//!
//! They are looked up once, when the release leaves draft, and are part of what reviewers approve. From then on a new
//! version of a referenced asset changes nothing for this release.

use super::Binding;
use crate::{
    asset::{VersionLabel, canonical::Checksum, kind::AssetKind},
    id::{AssetId, AssetVersionId},
    slug::Slug,
};

/// Most references that one release freezes, those inside of referenced contents included.
pub const MAX_REFERENCES: usize = 500;

/// A reference inside a bound content, or inside one that such a content refers to, with the version that it means.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FrozenReference {
    /// The version whose content holds the reference.
    pub from: AssetVersionId,
    /// The asset that it names.
    pub slug: Slug,
    /// The label that it names; `None` where it leaves the version open.
    pub label: Option<VersionLabel>,
    /// That asset.
    pub asset_id: AssetId,
    /// Its kind.
    pub kind: AssetKind,
    /// The version that it means.
    pub asset_version_id: AssetVersionId,
    /// That version's label.
    pub version_label: VersionLabel,
    /// That version's checksum.
    pub checksum: Checksum,
}

impl FrozenReference {
    /// The line that stands for it in what reviewers approve.
    pub(super) fn line(&self) -> String {
        let label = self.label.as_ref().map_or("*", VersionLabel::as_str);
        format!("reference {} {} {label} {} {}", self.from, self.slug, self.asset_version_id, self.checksum)
    }
}

/// A reference for which there is no version.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnresolvedReference {
    /// The stable code: of the prompt grammar for what prompts include, else `reference_unresolved`.
    pub code: &'static str,
    /// Why, for people; never repeats what was written.
    pub message: &'static str,
    /// The asset whose content holds the reference.
    pub asset_slug: Slug,
    /// JSON pointer into that content.
    pub pointer: String,
    /// The token's byte offset, for what prompts include.
    pub offset: Option<usize>,
}

/// The code of a reference of any other kind than a prompt's.
pub const REFERENCE_UNRESOLVED: &str = "reference_unresolved";

/// The version that a binding's content means by a reference.
#[must_use]
pub fn meant_by<'r>(
    frozen: &'r [FrozenReference],
    binding: &Binding,
    slug: &Slug,
    label: Option<&str>,
) -> Option<&'r FrozenReference> {
    frozen.iter().find(|reference| {
        reference.from == binding.asset_version_id
            && reference.slug == *slug
            && reference.label.as_ref().map(VersionLabel::as_str) == label
    })
}
