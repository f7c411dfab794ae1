//! Assets and their immutable versions.

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
    audit::{Fact, FactKind, Stamp, Subject},
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

/// Lifecycle state of an asset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lifecycle {
    /// Not yet available to releases.
    Draft,
    /// Releases can bind its versions.
    Active,
    /// Releases cannot add bindings to its versions; existing bindings remain valid.
    Retired,
    /// Terminal state.
    Archived,
}

impl Lifecycle {
    /// Every state.
    pub const ALL: [Self; 4] = [Self::Draft, Self::Active, Self::Retired, Self::Archived];

    /// The spelling on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Draft => "draft",
            Self::Active => "active",
            Self::Retired => "retired",
            Self::Archived => "archived",
        }
    }

    /// Parses the wire spelling; `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }

    /// The states to which an asset in this state can change. `Archived` is terminal.
    #[must_use]
    pub const fn valid_transitions(self) -> &'static [Self] {
        match self {
            Self::Draft | Self::Retired => &[Self::Active, Self::Archived],
            Self::Active => &[Self::Retired, Self::Archived],
            Self::Archived => &[],
        }
    }

    /// Whether new versions may be added.
    #[must_use]
    pub const fn accepts_versions(self) -> bool {
        match self {
            Self::Draft | Self::Active | Self::Retired => true,
            Self::Archived => false,
        }
    }
}

/// Ownership tier of an asset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OwnershipTier {
    /// Owned by a workspace.
    Workspace,
    /// Ships with Fairway and is visible everywhere.
    PlatformBuiltin,
}

impl OwnershipTier {
    /// The spelling on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Workspace => "workspace",
            Self::PlatformBuiltin => "platform_builtin",
        }
    }

    /// Parses the wire spelling; `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Workspace, Self::PlatformBuiltin].into_iter().find(|tier| tier.as_str() == text)
    }
}

/// A governed configuration object; its versions contain the content.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Asset(pub(crate) AssetRecord);

/// The fields of [`Asset`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AssetRecord {
    /// Identifier.
    pub asset_id: AssetId,
    /// Slug, unique in the tenant across all kinds.
    pub slug: Slug,
    /// Kind of the content of its versions.
    pub kind: AssetKind,
    /// Owner.
    pub owner_ref: OwnerRef,
    /// Lifecycle state.
    pub lifecycle: Lifecycle,
    /// Ownership tier.
    pub ownership_tier: OwnershipTier,
    /// Workspace that created the asset.
    pub workspace_id: WorkspaceId,
    /// Namespace of that workspace at creation time. The asset is visible from workspaces of this namespace.
    pub namespace_id: NamespaceId,
    /// Creation time.
    pub created_at: Timestamp,
    /// Actor that created the asset.
    pub created_by: ActorRef,
    /// Change counter; every change increments it.
    pub revision: Revision,
}

aggregate!(Asset, AssetRecord);

/// Human-readable label of a version, unique in its asset: `[A-Za-z0-9._-]{1,64}`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VersionLabel(String);

impl VersionLabel {
    /// Maximum length, in characters.
    pub const MAX_CHARS: usize = 64;

    /// Parses an untrusted text; `None` if it does not match the pattern.
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

/// One immutable version, as stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AssetVersion {
    /// Identifier.
    pub asset_version_id: AssetVersionId,
    /// Asset that the version belongs to.
    pub asset_id: AssetId,
    /// Label.
    pub version_label: VersionLabel,
    /// Text of the canonical bytes, identical to the artifact.
    pub canonical: String,
    /// Path of the artifact.
    pub artifact_ref: ArtifactPath,
    /// BLAKE3 checksum of the canonical bytes.
    pub checksum: Checksum,
    /// Change note; `None` when absent or erased.
    pub change_note: Option<Note>,
    /// Creation time.
    pub created_at: Timestamp,
    /// Actor that created the version.
    pub created_by: ActorRef,
}

/// A version about to be stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewVersion {
    /// Identifier.
    pub asset_version_id: AssetVersionId,
    /// Asset that the version belongs to.
    pub asset_id: AssetId,
    /// Requested label; with `None` the store assigns the next `vN` at commit.
    pub version_label: Option<VersionLabel>,
    /// Canonical bytes and checksum.
    pub canonical: Canonical,
    /// Source text from which the content was parsed, if the source is stored (a flow's YAML).
    pub source_text: Option<String>,
    /// Change note.
    pub change_note: Option<Note>,
    /// Assets that the content refers to.
    pub references: Vec<AssetReference>,
    /// Path of the artifact.
    pub artifact_ref: ArtifactPath,
    /// Creation time.
    pub created_at: Timestamp,
    /// Actor that created the version.
    pub created_by: ActorRef,
}

/// Validated content of a new version, ready to be stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VersionContent {
    /// Canonical bytes and checksum.
    pub canonical: Canonical,
    /// Source text from which the content was parsed, if the source is stored.
    pub source_text: Option<String>,
    /// Change note.
    pub change_note: Option<Note>,
    /// Assets that the content refers to.
    pub references: Vec<AssetReference>,
}

impl From<Canonical> for VersionContent {
    /// Content without source text, change note or references.
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

/// Why an operation on an asset is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AssetRefusal {
    /// An archived asset accepts no versions.
    #[error("the asset is archived")]
    Archived,
    /// The requested state does not follow the current one.
    #[error("the current state does not lead to the requested state")]
    InvalidTransition {
        /// Current state.
        from: Lifecycle,
        /// Requested state.
        attempted: Lifecycle,
    },
    /// A grant accepts only users, groups and services as principals.
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

/// Input of [`Asset::create`].
#[derive(Clone, Debug)]
pub struct NewAsset {
    /// Identifier.
    pub asset_id: AssetId,
    /// Slug.
    pub slug: Slug,
    /// Kind.
    pub kind: AssetKind,
    /// Owner.
    pub owner_ref: OwnerRef,
    /// Workspace that creates the asset.
    pub workspace_id: WorkspaceId,
    /// Namespace of that workspace.
    pub namespace_id: NamespaceId,
}

impl Asset {
    /// Creates an active asset.
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

    /// Moves the asset to another lifecycle state. When the store archives an asset, it also checks whether a release
    /// still binds the asset.
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

    /// Adds a version. The caller has validated its content against the rules of the kind.
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
        let subject = Subject { kind: "asset_version", id: id.uuid() };
        let detail = json!({ "asset_id": self.asset_id, "checksum": content.canonical.checksum().as_str() });
        let is_policy = matches!(self.kind, AssetKind::PolicyBundle | AssetKind::ModelPolicy);
        let fact = Fact::new(FactKind::AssetVersionCreated, subject, Some(self.workspace_id), stamp, detail)
            .with_notification_categories(is_policy.then_some(NotificationCategory::PolicyChanges));
        Ok(Change::create(NewVersion::of(self.asset_id, id, label, content, stamp), fact))
    }

    /// Creates a flow: an asset with its first version, recorded as one fact.
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

    /// Whether the asset is visible from the workspaces of a namespace.
    #[must_use]
    pub fn is_visible_from(&self, namespace: Option<NamespaceId>) -> bool {
        match self.ownership_tier {
            OwnershipTier::PlatformBuiltin => true,
            OwnershipTier::Workspace => namespace == Some(self.namespace_id),
        }
    }

    pub(crate) const fn subject(&self) -> Subject {
        Subject { kind: "asset", id: self.0.asset_id.uuid() }
    }
}

impl AssetVersion {
    /// Parses the content as a JSON value.
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
