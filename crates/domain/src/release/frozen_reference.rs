//! Frozen references: the references in a release's contents, resolved to versions.
//!
//! The references are resolved when the release leaves draft, and are part of the bindings digest. Therefore later
//! versions of a referenced asset do not change the release.

use super::Binding;
use crate::{
    asset::{VersionLabel, canonical::Checksum, kind::AssetKind},
    id::{AssetId, AssetVersionId},
    slug::Slug,
};

/// The maximum number of frozen references of a release, including the references in referenced contents.
pub const MAX_REFERENCES: usize = 500;

/// A reference in bound or referenced content, with the version to which it is resolved.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FrozenReference {
    /// The version whose content contains the reference.
    pub from_version_id: AssetVersionId,
    /// The slug of the referenced asset.
    pub slug: Slug,
    /// The version label in the reference; `None` if the reference names no version.
    pub label: Option<VersionLabel>,
    /// The asset that the reference names.
    pub asset_id: AssetId,
    /// The kind of the asset that the reference names.
    pub kind: AssetKind,
    /// The version to which the reference is resolved.
    pub asset_version_id: AssetVersionId,
    /// The label of the version to which the reference is resolved.
    pub version_label: VersionLabel,
    /// The checksum of the version to which the reference is resolved.
    pub checksum: Checksum,
}

impl FrozenReference {
    /// The line that represents this reference in the text of the bindings digest.
    pub(super) fn digest_line(&self) -> String {
        let label = self.label.as_ref().map_or("*", VersionLabel::as_str);
        format!("reference {} {} {label} {} {}", self.from_version_id, self.slug, self.asset_version_id, self.checksum)
    }
}

/// A reference for which the store has no matching version.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnresolvedReference {
    /// The stable code: for a prompt include a code of the prompt grammar, otherwise `reference_unresolved`.
    pub code: &'static str,
    /// The text for people. It contains no part of the content.
    pub message: &'static str,
    /// The asset whose content contains the reference.
    pub asset_slug: Slug,
    /// The JSON pointer to the reference within the content.
    pub pointer: String,
    /// The byte offset of the include token within the prompt; `None` outside of prompts.
    pub offset: Option<usize>,
}

/// The code of an unresolved reference outside of prompts.
pub const REFERENCE_UNRESOLVED: &str = "reference_unresolved";

/// The frozen version to which a reference in the content of a binding is resolved.
#[must_use]
pub fn find_frozen_reference<'r>(
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
