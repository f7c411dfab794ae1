//! Resolved references of a release's contents.
//!
//! References are resolved when the release leaves draft, and are part of the approved digest. Later versions of a
//! referenced asset do not affect the release.

use super::Binding;
use crate::{
    asset::{VersionLabel, canonical::Checksum, kind::AssetKind},
    id::{AssetId, AssetVersionId},
    slug::Slug,
};

/// The maximum number of frozen references of a release, including transitive ones.
pub const MAX_REFERENCES: usize = 500;

/// A reference in bound or referenced content, with the resolved version.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FrozenReference {
    /// The version that contains the reference.
    pub from_version_id: AssetVersionId,
    /// The referenced asset's slug.
    pub slug: Slug,
    /// The referenced label; `None` leaves the version open.
    pub label: Option<VersionLabel>,
    /// The referenced asset.
    pub asset_id: AssetId,
    /// Its kind.
    pub kind: AssetKind,
    /// The resolved version.
    pub asset_version_id: AssetVersionId,
    /// The resolved version's label.
    pub version_label: VersionLabel,
    /// The resolved version's checksum.
    pub checksum: Checksum,
}

impl FrozenReference {
    /// The reference's line in the approved digest.
    pub(super) fn digest_line(&self) -> String {
        let label = self.label.as_ref().map_or("*", VersionLabel::as_str);
        format!("reference {} {} {label} {} {}", self.from_version_id, self.slug, self.asset_version_id, self.checksum)
    }
}

/// A reference without a matching version.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnresolvedReference {
    /// The stable code: from the prompt grammar for prompt includes, else `reference_unresolved`.
    pub code: &'static str,
    /// The message for people; it never repeats the content.
    pub message: &'static str,
    /// The asset whose content contains the reference.
    pub asset_slug: Slug,
    /// JSON pointer into the content.
    pub pointer: String,
    /// The token's byte offset, for prompt includes.
    pub offset: Option<usize>,
}

/// The code of an unresolved reference outside prompts.
pub const REFERENCE_UNRESOLVED: &str = "reference_unresolved";

/// The version to which a reference in a binding's content resolves.
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
