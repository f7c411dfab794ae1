//! Assets and their immutable versions.

pub mod canonical;
pub mod content;
pub mod diff;
pub mod grant;
pub mod impact;
pub mod integrity;
pub mod kind;
pub mod ledger;
pub mod ports;
pub mod reference;

use crate::{
    access::{ActorRef, OwnerRef},
    audit::{Fact, FactKind, Stamp, Subject},
    id::{AssetId, AssetVersionId, NamespaceId, WorkspaceId},
    notification::Category,
    slug::Slug,
    store::{Change, Revision},
    text::is_prose,
    time::Timestamp,
};
use canonical::{Canonical, Checksum};
use kind::AssetKind;
use ports::ArtifactPath;
use reference::AssetReference;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use std::fmt;

/// Where an asset is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lifecycle {
    /// Not yet offered to releases.
    Draft,
    /// Can be bound.
    Active,
    /// Takes no new bindings; existing releases go on.
    Retired,
    /// Over for good.
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

    /// The state of that spelling.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }

    /// The states that can follow, as people are told. Archived is the end.
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
    pub const fn takes_versions(self) -> bool {
        match self {
            Self::Draft | Self::Active | Self::Retired => true,
            Self::Archived => false,
        }
    }
}

/// Who an asset belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OwnershipTier {
    /// A workspace's own.
    Workspace,
    /// Comes with Fairway and is seen everywhere.
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

    /// The tier of that spelling.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Workspace, Self::PlatformBuiltin].into_iter().find(|tier| tier.as_str() == text)
    }
}

/// A governed configuration object; what it says is in its versions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Asset {
    /// Its identifier.
    pub asset_id: AssetId,
    /// Unique in the tenant, over all kinds.
    pub slug: Slug,
    /// What sort of content its versions hold.
    pub kind: AssetKind,
    /// Who answers for it.
    pub owner_ref: OwnerRef,
    /// Where it is in its life.
    pub lifecycle: Lifecycle,
    /// Whose it is.
    pub ownership_tier: OwnershipTier,
    /// The workspace that it was made in.
    pub workspace_id: WorkspaceId,
    /// That workspace's namespace when it was made; visibility follows it.
    pub namespace_id: NamespaceId,
    /// When it was made.
    pub created_at: Timestamp,
    /// Who made it.
    pub created_by: ActorRef,
    /// Counts its changes.
    pub revision: Revision,
}

/// A human-readable label of a version, unique in its asset: `[A-Za-z0-9._-]{1,64}`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VersionLabel(String);

impl VersionLabel {
    /// Checks a text from outside.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let fits = (1..=64).contains(&text.len()) && text.bytes().all(allowed);
        fits.then(|| Self(text.to_owned()))
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

/// Longest note on a change, in characters.
pub const MAX_CHANGE_NOTE: usize = 2_000;

/// What an author says of a version: why it is there. Kept apart from the version, because it is free text and may
/// have to be erased.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChangeNote(String);

impl ChangeNote {
    /// Checks a text from outside: at most [`MAX_CHANGE_NOTE`] characters, of which none but line breaks and tabs do not
    /// show.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        is_prose(text, MAX_CHANGE_NOTE).then(|| Self(text.to_owned()))
    }

    /// A note that was kept. It was judged when it came, by the rules of that day.
    #[must_use]
    pub fn kept(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The note as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// One immutable version, as stored and read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AssetVersion {
    /// Its identifier.
    pub asset_version_id: AssetVersionId,
    /// The asset that it belongs to.
    pub asset_id: AssetId,
    /// The label.
    pub version_label: VersionLabel,
    /// The canonical bytes' text: exactly what the artifact holds.
    pub canonical: String,
    /// Where the artifact is.
    pub artifact_ref: ArtifactPath,
    /// BLAKE3 of the canonical bytes.
    pub checksum: Checksum,
    /// What its author said of it, unless erased.
    pub change_note: Option<ChangeNote>,
    /// When it was made.
    pub created_at: Timestamp,
    /// Who made it.
    pub created_by: ActorRef,
}

/// A version about to be stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewVersion {
    /// Its identifier.
    pub asset_version_id: AssetVersionId,
    /// The asset that it belongs to.
    pub asset_id: AssetId,
    /// The label asked for; `None` lets the store give the next `vN` when it commits.
    pub version_label: Option<VersionLabel>,
    /// Canonical bytes and checksum.
    pub canonical: Canonical,
    /// The text that the content was parsed from, where there is one to keep (a flow's YAML).
    pub source_text: Option<String>,
    /// What its author says of it.
    pub change_note: Option<ChangeNote>,
    /// The assets that the content refers to.
    pub references: Vec<AssetReference>,
    /// Where the artifact is.
    pub artifact_ref: ArtifactPath,
    /// When it was made.
    pub created_at: Timestamp,
    /// Who made it.
    pub created_by: ActorRef,
}

/// What a new version says, checked and ready to be stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VersionContent {
    /// Canonical bytes and checksum.
    pub canonical: Canonical,
    /// The text that it was parsed from, where there is one to keep.
    pub source_text: Option<String>,
    /// What its author says of it.
    pub change_note: Option<ChangeNote>,
    /// The assets that it refers to.
    pub references: Vec<AssetReference>,
}

impl From<Canonical> for VersionContent {
    /// Content without anything beside it.
    fn from(canonical: Canonical) -> Self {
        Self { canonical, source_text: None, change_note: None, references: Vec::new() }
    }
}

impl NewVersion {
    fn of(
        asset_id: AssetId,
        (asset_version_id, version_label): (AssetVersionId, Option<VersionLabel>),
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

/// Why an asset cannot be as asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AssetRefusal {
    /// An archived asset takes no versions.
    #[error("the asset is archived")]
    Archived,
    /// That state does not follow the present one.
    #[error("the present state does not lead there")]
    Transition {
        /// The present state.
        from: Lifecycle,
        /// The state asked for.
        attempted: Lifecycle,
    },
    /// Only users, groups and services are granted anything.
    #[error("only users, groups and services are granted anything")]
    Principal,
}

impl AssetRefusal {
    /// The stable code of the refusal.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Archived => "asset_archived",
            Self::Transition { .. } => "invalid_transition",
            Self::Principal => "invalid_principal",
        }
    }
}

/// What a new asset is made of.
#[derive(Clone, Debug)]
pub struct NewAsset {
    /// Its identifier.
    pub asset_id: AssetId,
    /// Its slug.
    pub slug: Slug,
    /// Its kind.
    pub kind: AssetKind,
    /// Who answers for it.
    pub owner_ref: OwnerRef,
    /// Where it is made.
    pub workspace_id: WorkspaceId,
    /// That workspace's namespace.
    pub namespace_id: NamespaceId,
}

impl Asset {
    /// A new asset; it is active from the start.
    pub fn create(new: NewAsset, stamp: &Stamp) -> Change<Self> {
        Self::of_tier(new, OwnershipTier::Workspace, stamp)
    }

    /// A new asset that comes with Fairway.
    pub fn create_builtin(new: NewAsset, stamp: &Stamp) -> Change<Self> {
        Self::of_tier(new, OwnershipTier::PlatformBuiltin, stamp)
    }

    fn of_tier(new: NewAsset, ownership_tier: OwnershipTier, stamp: &Stamp) -> Change<Self> {
        let next = Self {
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
        };
        let detail = json!({ "slug": next.slug.as_str(), "asset_kind": next.kind.as_str() });
        let fact = Fact::new(FactKind::AssetCreated, next.subject(), Some(next.workspace_id), stamp, detail);
        Change::creating(next, fact)
    }

    /// The same asset in another state of its life. Whether a release still needs it is for the store to find out, in
    /// the statement that archives it.
    ///
    /// # Errors
    /// When that state does not follow the present one.
    pub fn move_to(&self, attempted: Lifecycle, stamp: &Stamp) -> Result<Change<Self>, AssetRefusal> {
        let from = self.lifecycle;
        if !from.valid_transitions().contains(&attempted) {
            return Err(AssetRefusal::Transition { from, attempted });
        }
        let next = Self { lifecycle: attempted, revision: self.revision.next(), ..self.clone() };
        let detail = json!({ "from": from.as_str(), "to": attempted.as_str() });
        let fact = Fact::new(FactKind::AssetMoved, self.subject(), Some(self.workspace_id), stamp, detail);
        Ok(Change::replacing(next, self.revision, fact))
    }

    /// A new version of this asset. Its content has passed the checks of its kind.
    ///
    /// # Errors
    /// When the asset is archived.
    pub fn add_version(
        &self,
        id: AssetVersionId,
        label: Option<VersionLabel>,
        content: VersionContent,
        stamp: &Stamp,
    ) -> Result<Change<NewVersion>, AssetRefusal> {
        if !self.lifecycle.takes_versions() {
            return Err(AssetRefusal::Archived);
        }
        let subject = Subject { kind: "asset_version", id: id.uuid() };
        let detail = json!({ "asset_id": self.asset_id, "checksum": content.canonical.checksum().as_str() });
        let decides = matches!(self.kind, AssetKind::PolicyBundle | AssetKind::ModelPolicy);
        let fact = Fact::new(FactKind::AssetVersionCreated, subject, Some(self.workspace_id), stamp, detail)
            .concerning(decides.then_some(Category::PolicyChanges));
        Ok(Change::creating(NewVersion::of(self.asset_id, (id, label), content, stamp), fact))
    }

    /// A flow: an asset and its first version, made in one step and told as one fact.
    pub fn create_flow(
        new: NewAsset,
        id: AssetVersionId,
        label: Option<VersionLabel>,
        content: VersionContent,
        stamp: &Stamp,
    ) -> Change<(Self, NewVersion)> {
        let asset = Self::create(new, stamp).next;
        let detail = json!({ "slug": asset.slug.as_str(), "checksum": content.canonical.checksum().as_str() });
        let fact = Fact::new(FactKind::FlowCreated, asset.subject(), Some(asset.workspace_id), stamp, detail);
        let version = NewVersion::of(asset.asset_id, (id, label), content, stamp);
        Change::creating((asset, version), fact)
    }

    /// Whether it can be seen from the workspaces of a namespace.
    #[must_use]
    pub fn is_seen_from(&self, namespace: Option<NamespaceId>) -> bool {
        match self.ownership_tier {
            OwnershipTier::PlatformBuiltin => true,
            OwnershipTier::Workspace => namespace == Some(self.namespace_id),
        }
    }

    pub(crate) const fn subject(&self) -> Subject {
        Subject { kind: "asset", id: self.asset_id.uuid() }
    }
}

impl AssetVersion {
    /// The content as a JSON value.
    ///
    /// # Errors
    /// When the stored text is no JSON, which only a damaged database can cause.
    pub fn content(&self) -> Result<Value, serde_json::Error> {
        serde_json::from_str(&self.canonical)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_of_an_asset() {
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
    fn notes_are_bounded_by_characters() {
        assert!(ChangeNote::parse(&"ä".repeat(MAX_CHANGE_NOTE)).is_some());
        assert!(ChangeNote::parse(&"a".repeat(MAX_CHANGE_NOTE + 1)).is_none());
        assert!(ChangeNote::parse("a\0").is_none());
    }

    #[test]
    fn labels_have_a_narrow_alphabet() {
        for good in ["v1", "2026.11", "a_b-c", &"x".repeat(64)] {
            assert!(VersionLabel::parse(good).is_some(), "{good}");
        }
        for bad in ["", "v 1", "v/1", "é", &"x".repeat(65)] {
            assert!(VersionLabel::parse(bad).is_none(), "{bad}");
        }
    }
}
