//! Assets (governed configuration objects) and their immutable versions.

pub mod artifact_integrity;
pub mod artifact_maintenance;
pub mod artifact_store;
pub mod canonical;
pub mod content;
pub mod diff;
pub mod grant;
pub mod impact;
pub mod kind;
pub mod ports;
pub mod reference;

use crate::{
    access::{ActorRef, OwnerRef},
    audit::{Fact, FactKind, FactSubject, Stamp},
    id::{AssetId, AssetVersionId, NamespaceId, WorkspaceId},
    note::Note,
    notification_category::NotificationCategory,
    slug::Slug,
    store::{Change, Revision, aggregate},
    time::Timestamp,
};
use artifact_store::ArtifactPath;
use canonical::{Canonical, Checksum};
use kind::AssetKind;
use reference::AssetReference;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use std::fmt;

/// The lifecycle of an asset: whether releases may bind its versions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lifecycle {
    /// Releases cannot bind its versions yet.
    Draft,
    /// Releases can bind its versions.
    Active,
    /// Releases cannot bind its versions anew; existing bindings remain valid.
    Retired,
    /// The asset accepts no versions and no bindings, and its state can no longer change.
    Archived,
}

impl Lifecycle {
    /// Every state.
    pub const ALL: [Self; 4] = [Self::Draft, Self::Active, Self::Retired, Self::Archived];

    /// The wire form, such as `draft`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Draft => "draft",
            Self::Active => "active",
            Self::Retired => "retired",
            Self::Archived => "archived",
        }
    }

    /// Parses the wire form; `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }

    /// The states to which an asset in this state can change. No state follows `Archived`.
    #[must_use]
    pub const fn valid_transitions(self) -> &'static [Self] {
        match self {
            Self::Draft | Self::Retired => &[Self::Active, Self::Archived],
            Self::Active => &[Self::Retired, Self::Archived],
            Self::Archived => &[],
        }
    }

    /// Whether an asset in this state accepts new versions.
    #[must_use]
    pub const fn accepts_versions(self) -> bool {
        match self {
            Self::Draft | Self::Active | Self::Retired => true,
            Self::Archived => false,
        }
    }
}

/// Whether an asset belongs to a workspace or to Fairway.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OwnershipTier {
    /// A workspace created the asset and owns it.
    Workspace,
    /// The asset ships with Fairway, and every workspace sees it.
    PlatformBuiltin,
}

impl OwnershipTier {
    /// The wire form, such as `workspace`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Workspace => "workspace",
            Self::PlatformBuiltin => "platform_builtin",
        }
    }

    /// Parses the wire form; `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Workspace, Self::PlatformBuiltin].into_iter().find(|tier| tier.as_str() == text)
    }
}

/// A governed configuration object of one kind. Its versions contain the content.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Asset(pub(crate) AssetRecord);

/// The fields of [`Asset`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AssetRecord {
    /// The identifier of the asset.
    pub asset_id: AssetId,
    /// The slug of the asset, which is unique in the tenant across all kinds.
    pub slug: Slug,
    /// The kind of content that the versions have.
    pub kind: AssetKind,
    /// The team or user that owns the asset.
    pub owner_ref: OwnerRef,
    /// Whether releases may bind the versions.
    pub lifecycle: Lifecycle,
    /// Whether the asset belongs to a workspace or to Fairway.
    pub ownership_tier: OwnershipTier,
    /// The workspace that created the asset.
    pub workspace_id: WorkspaceId,
    /// The namespace of that workspace at the creation. All workspaces of this namespace see the asset.
    pub namespace_id: NamespaceId,
    /// The time at which the asset was created.
    pub created_at: Timestamp,
    /// The actor that created the asset.
    pub created_by: ActorRef,
    /// The change counter, which increments with each change.
    pub revision: Revision,
}

aggregate!(Asset, AssetRecord);

/// The label of a version for people, such as `v2`. It matches `[A-Za-z0-9._-]{1,64}` and is unique in its asset.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VersionLabel(String);

impl VersionLabel {
    /// The maximum length of a label, in characters.
    pub const MAX_CHARS: usize = 64;

    /// Parses an untrusted text as a label; `None` if it does not match the pattern.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let is_valid = (1..=Self::MAX_CHARS).contains(&text.len()) && text.bytes().all(allowed);
        is_valid.then(|| Self(text.to_owned()))
    }

    /// The label as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for VersionLabel {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl Serialize for VersionLabel {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

/// One immutable version of an asset, as it is stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AssetVersion {
    /// The identifier of the version.
    pub asset_version_id: AssetVersionId,
    /// The asset to which the version belongs.
    pub asset_id: AssetId,
    /// The label of the version, which is unique in the asset.
    pub version_label: VersionLabel,
    /// The canonical form of the content. The artifact contains the same bytes.
    pub canonical: String,
    /// The path at which the artifact store has the canonical bytes.
    pub artifact_ref: ArtifactPath,
    /// The BLAKE3 checksum of the canonical bytes.
    pub checksum: Checksum,
    /// The author's reason for the version; `None` if it is absent or erased.
    pub change_note: Option<Note>,
    /// The time at which the version was created.
    pub created_at: Timestamp,
    /// The actor that created the version.
    pub created_by: ActorRef,
}

/// A version that is about to be stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewVersion {
    /// The identifier of the version.
    pub asset_version_id: AssetVersionId,
    /// The asset to which the version belongs.
    pub asset_id: AssetId,
    /// The requested label. If it is `None`, the store assigns the next `vN` at the commit.
    pub version_label: Option<VersionLabel>,
    /// The canonical form of the content, with its checksum.
    pub canonical: Canonical,
    /// The text from which the content was parsed, if that text is stored too (the YAML of a flow).
    pub source_text: Option<String>,
    /// The author's reason for the version, if any.
    pub change_note: Option<Note>,
    /// The references in the content to other assets.
    pub references: Vec<AssetReference>,
    /// The path at which the artifact store has the canonical bytes.
    pub artifact_ref: ArtifactPath,
    /// The time at which the version was created.
    pub created_at: Timestamp,
    /// The actor that created the version.
    pub created_by: ActorRef,
}

/// The validated content of a new version.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VersionContent {
    /// The canonical form of the content, with its checksum.
    pub canonical: Canonical,
    /// The text from which the content was parsed, if that text is stored too.
    pub source_text: Option<String>,
    /// The author's reason for the version, if any.
    pub change_note: Option<Note>,
    /// The references in the content to other assets.
    pub references: Vec<AssetReference>,
}

impl From<Canonical> for VersionContent {
    /// Creates content without source text, change note or references.
    fn from(canonical: Canonical) -> Self {
        Self { canonical, source_text: None, change_note: None, references: Vec::new() }
    }
}

impl NewVersion {
    fn of(
        asset_id: AssetId,
        asset_version_id: AssetVersionId,
        version_label: Option<VersionLabel>,
        content: VersionContent,
        stamp: &Stamp,
    ) -> Self {
        let VersionContent { canonical, source_text, change_note, references } = content;
        Self {
            asset_version_id,
            asset_id,
            version_label,
            canonical,
            source_text,
            change_note,
            references,
            artifact_ref: ArtifactPath::of_version(asset_id, asset_version_id),
            created_at: stamp.at,
            created_by: stamp.actor.clone(),
        }
    }
}

/// The reason why an operation on an asset is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AssetRefusal {
    /// The asset is archived, so it accepts no versions.
    #[error("the asset is archived")]
    Archived,
    /// The asset cannot change from its current state to the requested one.
    #[error("the current state does not lead to the requested state")]
    InvalidTransition {
        /// The current state of the asset.
        from: Lifecycle,
        /// The state that the request names.
        attempted: Lifecycle,
    },
    /// The principal of a grant is not a user, group or service.
    #[error("a grant requires a user, a group or a service as its principal")]
    InvalidPrincipal,
}

impl AssetRefusal {
    /// The stable code of the refusal.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Archived => "asset_archived",
            Self::InvalidTransition { .. } => "invalid_transition",
            Self::InvalidPrincipal => "invalid_principal",
        }
    }
}

/// The data from which an asset is created.
#[derive(Clone, Debug)]
pub struct NewAsset {
    /// The identifier of the asset.
    pub asset_id: AssetId,
    /// The slug, which must be unused in the tenant.
    pub slug: Slug,
    /// The kind of content that the versions will have.
    pub kind: AssetKind,
    /// The team or user that owns the asset.
    pub owner_ref: OwnerRef,
    /// The workspace that creates the asset.
    pub workspace_id: WorkspaceId,
    /// The namespace of that workspace.
    pub namespace_id: NamespaceId,
}

impl Asset {
    /// Creates an active asset that belongs to a workspace.
    pub fn create(new: NewAsset, stamp: &Stamp) -> Change<Self> {
        Self::of_tier(new, OwnershipTier::Workspace, stamp)
    }

    /// Creates an active asset that ships with Fairway.
    pub fn create_builtin(new: NewAsset, stamp: &Stamp) -> Change<Self> {
        Self::of_tier(new, OwnershipTier::PlatformBuiltin, stamp)
    }

    fn of_tier(new: NewAsset, ownership_tier: OwnershipTier, stamp: &Stamp) -> Change<Self> {
        let next = Self(AssetRecord {
            asset_id: new.asset_id,
            slug: new.slug,
            kind: new.kind,
            owner_ref: new.owner_ref,
            lifecycle: Lifecycle::Active,
            ownership_tier,
            workspace_id: new.workspace_id,
            namespace_id: new.namespace_id,
            created_at: stamp.at,
            created_by: stamp.actor.clone(),
            revision: Revision::FIRST,
        });
        let detail = json!({ "slug": next.slug.as_str(), "asset_kind": next.kind.as_str() });
        let fact = Fact::new(FactKind::AssetCreated, next.subject(), Some(next.workspace_id), stamp, detail);
        Change::create(next, fact)
    }

    /// Changes the lifecycle of the asset. The store refuses the archiving of an asset that a release still uses.
    ///
    /// # Errors
    /// Returns [`AssetRefusal::InvalidTransition`] when the requested state does not follow the current one.
    pub fn transition_to(&self, attempted: Lifecycle, stamp: &Stamp) -> Result<Change<Self>, AssetRefusal> {
        let from = self.lifecycle;
        if !from.valid_transitions().contains(&attempted) {
            return Err(AssetRefusal::InvalidTransition { from, attempted });
        }
        let next = Self(AssetRecord { lifecycle: attempted, revision: self.revision.next(), ..self.0.clone() });
        let detail = json!({ "from": from.as_str(), "to": attempted.as_str() });
        let fact = Fact::new(FactKind::AssetLifecycleChanged, self.subject(), Some(self.workspace_id), stamp, detail);
        Ok(Change::replace(next, self.revision, fact))
    }

    /// Creates a version of this asset. The caller has checked the content against the rules of the kind.
    ///
    /// # Errors
    /// Returns [`AssetRefusal::Archived`] when the asset is archived.
    pub fn add_version(
        &self,
        id: AssetVersionId,
        label: Option<VersionLabel>,
        content: VersionContent,
        stamp: &Stamp,
    ) -> Result<Change<NewVersion>, AssetRefusal> {
        if !self.lifecycle.accepts_versions() {
            return Err(AssetRefusal::Archived);
        }
        let subject = FactSubject { kind: "asset_version", id: id.uuid() };
        let detail = json!({ "asset_id": self.asset_id, "checksum": content.canonical.checksum().as_str() });
        let is_policy = matches!(self.kind, AssetKind::PolicyBundle | AssetKind::ModelPolicy);
        let fact = Fact::new(FactKind::AssetVersionCreated, subject, Some(self.workspace_id), stamp, detail)
            .with_notification_categories(is_policy.then_some(NotificationCategory::PolicyChanges));
        Ok(Change::create(NewVersion::of(self.asset_id, id, label, content, stamp), fact))
    }

    /// Creates a flow: an asset and its first version, recorded as one fact.
    pub fn create_flow(
        new: NewAsset,
        id: AssetVersionId,
        label: Option<VersionLabel>,
        content: VersionContent,
        stamp: &Stamp,
    ) -> Change<(Self, NewVersion)> {
        let asset = Self::create(new, stamp).next.clone();
        let detail = json!({ "slug": asset.slug.as_str(), "checksum": content.canonical.checksum().as_str() });
        let fact = Fact::new(FactKind::FlowCreated, asset.subject(), Some(asset.workspace_id), stamp, detail);
        let version = NewVersion::of(asset.asset_id, id, label, content, stamp);
        Change::create((asset, version), fact)
    }

    /// Whether the asset ships with Fairway.
    #[must_use]
    pub fn is_builtin(&self) -> bool {
        self.ownership_tier == OwnershipTier::PlatformBuiltin
    }

    /// Whether the workspaces of this namespace see the asset without a grant.
    #[must_use]
    pub fn is_visible_without_grant(&self, namespace: Option<NamespaceId>) -> bool {
        match self.ownership_tier {
            OwnershipTier::PlatformBuiltin => true,
            OwnershipTier::Workspace => namespace == Some(self.namespace_id),
        }
    }

    pub(crate) const fn subject(&self) -> FactSubject {
        FactSubject { kind: "asset", id: self.0.asset_id.uuid() }
    }
}

impl AssetVersion {
    /// Parses the canonical form of the content.
    ///
    /// # Errors
    /// Returns an error when the stored text is not valid JSON, which only a damaged database can cause.
    pub fn content(&self) -> Result<Value, serde_json::Error> {
        serde_json::from_str(&self.canonical)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_lifecycle_transitions() {
        let table: Vec<String> = Lifecycle::ALL
            .into_iter()
            .map(|from| {
                let to: Vec<_> = from.valid_transitions().iter().map(|state| state.as_str()).collect();
                format!("{} -> {}", from.as_str(), to.join(", "))
            })
            .collect();
        insta::assert_snapshot!(table.join("\n"), @r"
        draft -> active, archived
        active -> retired, archived
        retired -> active, archived
        archived -> 
        ");
    }

    #[test]
    fn accepts_only_the_label_alphabet() {
        for good in ["v1", "2026.11", "a_b-c", &"x".repeat(64)] {
            assert!(VersionLabel::parse(good).is_some(), "{good}");
        }
        for bad in ["", "v 1", "v/1", "é", &"x".repeat(65)] {
            assert!(VersionLabel::parse(bad).is_none(), "{bad}");
        }
    }
}
