//! The resolved references in the contents of a release.
//!
//! References are resolved when the release leaves draft, and are part of the approved digest. Therefore later
//! versions of a referenced asset do not affect the release.

use super::Binding;
use crate::{
    asset::{VersionLabel, canonical::Checksum, kind::AssetKind},
    id::{AssetId, AssetVersionId},
    slug::Slug,
};

/// The maximum number of frozen references of a release, including references of referenced contents.
pub const MAX_REFERENCES: usize = 500;

/// A reference in bound or referenced content, together with the version to which it was resolved.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FrozenReference {
    /// The version that contains the reference.
    pub from_version_id: AssetVersionId,
    /// The slug of the referenced asset.
    pub slug: Slug,
    /// The label in the reference; `None` if the reference leaves the version open.
    pub label: Option<VersionLabel>,
    /// The referenced asset.
    pub asset_id: AssetId,
    /// The kind of the referenced asset.
    pub kind: AssetKind,
    /// The resolved version.
    pub asset_version_id: AssetVersionId,
    /// The resolved version's label.
    pub version_label: VersionLabel,
    /// The resolved version's checksum.
    pub checksum: Checksum,
}

impl FrozenReference {
    /// The line of this reference in the text of the bindings digest.
    pub(super) fn digest_line(&self) -> String {
        let label = self.label.as_ref().map_or("*", VersionLabel::as_str);
        format!("reference {} {} {label} {} {}", self.from_version_id, self.slug, self.asset_version_id, self.checksum)
    }
}

/// A reference for which no matching version exists.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnresolvedReference {
    /// The stable code: a code of the prompt grammar for prompt includes, otherwise `reference_unresolved`.
    pub code: &'static str,
    /// The message for people, which contains no part of the content.
    pub message: &'static str,
    /// The asset whose content contains the reference.
    pub asset_slug: Slug,
    /// The JSON pointer to the reference in the content.
    pub pointer: String,
    /// The byte offset of the token; only for prompt includes.
    pub offset: Option<usize>,
}

/// The code of an unresolved reference outside of prompts.
pub const REFERENCE_UNRESOLVED: &str = "reference_unresolved";

/// The version to which a reference in the content of a version resolves.
#[must_use]
pub fn resolve<'r>(
    frozen: &'r [FrozenReference],
    binding: &Binding,
    slug: &Slug,
    label: Option<&str>,
) -> Option<&'r FrozenReference> {
    frozen.iter().find(|reference| {
        reference.from_version_id == binding.asset_version_id
            && reference.slug == *slug
            && reference.label.as_ref().map(VersionLabel::as_str) == label
    })
}
