//! Workloads: named AI applications that callers run.

pub mod interface;
pub mod ports;

use crate::{
    access::{ActorRef, OwnerRef},
    asset::canonical::Canonical,
    audit::{Fact, FactKind, FactSubject, Stamp},
    generator,
    id::{NamespaceId, WorkloadId, WorkspaceId},
    notification_category::NotificationCategory,
    search_words::WordSet,
    slug::Slug,
    store::{Change, Revision, aggregate},
    tenant::{Workspace, is_display_name},
    text::is_blank_or_prose,
    time::Timestamp,
};
use interface::{AccessMode, InterfaceConfig};
use serde_json::json;

/// The maximum length of a workload's description, in characters.
pub const MAX_DESCRIPTION: usize = 2_000;

/// The status of a workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkloadStatus {
    /// The workload accepts runs.
    Registered,
    /// An operator suspended the workload, so it accepts no runs until it is resumed.
    Suspended,
    /// The workload is retired permanently and accepts no runs.
    Retired,
}

impl WorkloadStatus {
    /// Every status, in the order of declaration.
    pub const ALL: [Self; 3] = [Self::Registered, Self::Suspended, Self::Retired];

    /// The wire form, such as `registered`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Registered => "registered",
            Self::Suspended => "suspended",
            Self::Retired => "retired",
        }
    }

    /// Parses the wire form; `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }

    /// The statuses to which a workload in this status can change.
    #[must_use]
    pub const fn valid_transitions(self) -> &'static [Self] {
        match self {
            Self::Registered => &[Self::Suspended, Self::Retired],
            Self::Suspended => &[Self::Registered, Self::Retired],
            Self::Retired => &[],
        }
    }
}

/// How a workload is meant to be used. Its wire name is `invocation_mode`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IntendedUse {
    /// People use the workload as a conversation.
    Chat,
    /// People fill in a form.
    Form,
    /// Another page embeds the workload as a block.
    Block,
    /// Programs call the workload over the API.
    Api,
    /// Programs submit batches of inputs.
    Batch,
    /// Events start the workload.
    Event,
}

impl IntendedUse {
    /// Every mode, in the order of declaration.
    pub const ALL: [Self; 6] = [Self::Chat, Self::Form, Self::Block, Self::Api, Self::Batch, Self::Event];

    /// The wire form, such as `chat`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Form => "form",
            Self::Block => "block",
            Self::Api => "api",
            Self::Batch => "batch",
            Self::Event => "event",
        }
    }

    /// Parses the wire form; `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == text)
    }
}

/// The prefix of the slugs of built-in assistants; the slug of the workspace follows. The prefix is reserved, because a
/// workload with such a slug would prevent the creation of the workspace.
pub const ASSISTANT_SLUG_PREFIX: &str = "knowledge-assistant-";

/// The origin of a built-in workload; it determines who manages the workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BuiltinManagementSource {
    /// The creation of the workspace created the workload, which cannot be retired.
    WorkspaceBuiltin,
    /// The workload is a part of Fairway, and platform operators manage it.
    PlatformBuiltin,
}

impl BuiltinManagementSource {
    /// The wire form, such as `workspace_builtin`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::WorkspaceBuiltin => "workspace_builtin",
            Self::PlatformBuiltin => "platform_builtin",
        }
    }

    /// Parses the wire form; `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::WorkspaceBuiltin, Self::PlatformBuiltin].into_iter().find(|source| source.as_str() == text)
    }
}

/// An AI application of a workspace, which callers run by its name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Workload(pub(crate) WorkloadRecord);

/// The fields of [`Workload`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkloadRecord {
    /// The identifier of the workload, which never changes.
    pub workload_id: WorkloadId,
    /// The slug of the workload, unique among the workloads of the tenant.
    pub slug: Slug,
    /// The display name of the workload.
    pub name: String,
    /// The description of the workload, for people.
    pub description: String,
    /// The principal that is responsible for the workload.
    pub owner_ref: OwnerRef,
    /// Whether the workload accepts runs.
    pub status: WorkloadStatus,
    /// How the workload is meant to be used.
    pub invocation_mode: IntendedUse,
    /// The origin of a built-in workload; `None` for any other workload.
    pub management_source: Option<BuiltinManagementSource>,
    /// The configuration of the user interface; `None` if the workload has no interface.
    pub interface_config: Option<InterfaceConfig>,
    /// The workspace that contains the workload.
    pub workspace_id: WorkspaceId,
    /// The namespace of that workspace.
    pub namespace_id: NamespaceId,
    /// When the workload was created.
    pub created_at: Timestamp,
    /// The actor that created the workload.
    pub created_by: ActorRef,
    /// When the workload last changed.
    pub updated_at: Timestamp,
    /// Increments with each change.
    pub revision: Revision,
}

aggregate!(Workload, WorkloadRecord);

/// The properties with which a workload is created.
#[derive(Clone, Debug)]
pub struct NewWorkload {
    /// The identifier that the workload receives.
    pub workload_id: WorkloadId,
    /// The slug under which callers run the workload.
    pub slug: Slug,
    /// The name; `None` derives the name from the slug.
    pub name: Option<String>,
    /// The description; `None` means an empty description.
    pub description: Option<String>,
    /// The principal that is responsible for the workload.
    pub owner_ref: OwnerRef,
    /// How the workload is meant to be used.
    pub invocation_mode: IntendedUse,
    /// The workspace that contains the workload.
    pub workspace_id: WorkspaceId,
    /// The namespace of that workspace.
    pub namespace_id: NamespaceId,
}

/// Changes to a workload; `None` leaves a field unchanged.
#[derive(Clone, Debug, Default)]
pub struct WorkloadPatch {
    /// The new display name.
    pub name: Option<String>,
    /// The new description, for people.
    pub description: Option<String>,
    /// The principal that is responsible from now on.
    pub owner_ref: Option<OwnerRef>,
    /// How the workload is meant to be used from now on.
    pub invocation_mode: Option<IntendedUse>,
    /// The status to which the workload changes.
    pub status: Option<WorkloadStatus>,
    /// The new interface; `Some(None)` removes the interface.
    pub interface_config: Option<Option<InterfaceConfig>>,
}

/// The reason why a change of a workload is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WorkloadRefusal {
    /// The name is empty, too long, or contains invisible characters.
    #[error("a name has 1 to 200 visible characters")]
    Name,
    /// The description is too long, or contains invisible characters.
    #[error("a description has at most 2000 characters, and no invisible ones except line breaks and tabs")]
    Description,
    /// The slug is reserved for a built-in workload.
    #[error("this slug is reserved for built-in workloads")]
    ReservedSlug,
    /// The workload is retired, so it accepts no new releases and share links.
    #[error("the workload is retired")]
    Retired,
    /// The workload is built in, so it cannot be retired.
    #[error("a built-in workload cannot be retired")]
    Builtin,
    /// The status cannot change to the requested status.
    #[error("no transition from {} to {}", from.as_str(), attempted.as_str())]
    Transition {
        /// The status that the workload has.
        from: WorkloadStatus,
        /// The status that the request demands.
        attempted: WorkloadStatus,
    },
}

impl WorkloadRefusal {
    /// The stable code of the refusal.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Name => "invalid_name",
            Self::Description => "invalid_description",
            Self::ReservedSlug => "reserved_slug",
            Self::Retired => "workload_retired",
            Self::Builtin => "builtin_workload",
            Self::Transition { .. } => "invalid_transition",
        }
    }

    /// The field of the request that the refusal concerns, if any.
    #[must_use]
    pub const fn field(self) -> Option<&'static str> {
        match self {
            Self::Name => Some("name"),
            Self::Description => Some("description"),
            Self::ReservedSlug => Some("slug"),
            Self::Retired | Self::Builtin | Self::Transition { .. } => None,
        }
    }
}

/// All problems of a workload's name and description.
pub fn text_refusals(name: Option<&str>, description: Option<&str>) -> impl Iterator<Item = WorkloadRefusal> {
    let name = name.filter(|name| !is_display_name(name)).map(|_| WorkloadRefusal::Name);
    let description = description.filter(|text| !is_blank_or_prose(text, MAX_DESCRIPTION));
    name.into_iter().chain(description.map(|_| WorkloadRefusal::Description))
}

fn check_texts(name: Option<&str>, description: Option<&str>) -> Result<(), WorkloadRefusal> {
    text_refusals(name, description).next().map_or(Ok(()), Err)
}

impl Workload {
    /// Creates a workload with the status `registered`.
    ///
    /// # Errors
    /// When the name or the description is invalid, or the slug is reserved.
    pub fn create(new: NewWorkload, stamp: &Stamp) -> Result<Change<Self>, WorkloadRefusal> {
        check_texts(new.name.as_deref(), new.description.as_deref())?;
        if new.slug.as_str().starts_with(ASSISTANT_SLUG_PREFIX) || generator::is_reserved_slug(new.slug.as_str()) {
            return Err(WorkloadRefusal::ReservedSlug);
        }
        Ok(Self::creation_change(Self::registered(new, None, stamp), stamp))
    }

    /// Creates a workload that is a part of Fairway itself.
    pub fn create_builtin(new: NewWorkload, stamp: &Stamp) -> Change<Self> {
        Self::creation_change(Self::registered(new, Some(BuiltinManagementSource::PlatformBuiltin), stamp), stamp)
    }

    fn creation_change(next: Self, stamp: &Stamp) -> Change<Self> {
        let detail = json!({ "slug": next.slug.as_str(), "invocation_mode": next.invocation_mode.as_str() });
        let fact = Fact::new(FactKind::WorkloadCreated, next.subject(), Some(next.workspace_id), stamp, detail);
        Change::create(next, fact)
    }

    /// The built-in assistant of a new workspace. It has no fact of its own, because the fact of the workspace names
    /// it. `None` if the slug of the workspace is too long, which validation excludes.
    pub(crate) fn assistant(workload_id: WorkloadId, workspace: &Workspace, stamp: &Stamp) -> Option<Self> {
        let new = NewWorkload {
            workload_id,
            slug: Slug::parse(&format!("{ASSISTANT_SLUG_PREFIX}{}", workspace.slug)).ok()?,
            name: None,
            description: None,
            owner_ref: OwnerRef::parse(&format!("team:{}", workspace.slug)).ok()?,
            invocation_mode: IntendedUse::Chat,
            workspace_id: workspace.workspace_id,
            namespace_id: workspace.namespace_id,
        };
        Some(Self::registered(new, Some(BuiltinManagementSource::WorkspaceBuiltin), stamp))
    }

    fn registered(new: NewWorkload, management_source: Option<BuiltinManagementSource>, stamp: &Stamp) -> Self {
        Self(WorkloadRecord {
            workload_id: new.workload_id,
            name: new.name.unwrap_or_else(|| new.slug.to_display_name()),
            description: new.description.unwrap_or_default(),
            slug: new.slug,
            owner_ref: new.owner_ref,
            status: WorkloadStatus::Registered,
            invocation_mode: new.invocation_mode,
            management_source,
            interface_config: None,
            workspace_id: new.workspace_id,
            namespace_id: new.namespace_id,
            created_at: stamp.at,
            created_by: stamp.actor.clone(),
            updated_at: stamp.at,
            revision: Revision::FIRST,
        })
    }

    /// Applies the changes; `None` if they change nothing.
    ///
    /// # Errors
    /// When a text is invalid, or the status cannot change to the requested status.
    pub fn apply_patch(&self, patch: WorkloadPatch, stamp: &Stamp) -> Result<Option<Change<Self>>, WorkloadRefusal> {
        check_texts(patch.name.as_deref(), patch.description.as_deref())?;
        let attempted = patch.status.unwrap_or(self.status);
        if attempted != self.status && !self.status.valid_transitions().contains(&attempted) {
            return Err(WorkloadRefusal::Transition { from: self.status, attempted });
        }
        if self.management_source.is_some() && attempted == WorkloadStatus::Retired {
            return Err(WorkloadRefusal::Builtin);
        }
        let mut next = Self(WorkloadRecord {
            name: patch.name.unwrap_or_else(|| self.name.clone()),
            description: patch.description.unwrap_or_else(|| self.description.clone()),
            owner_ref: patch.owner_ref.unwrap_or_else(|| self.owner_ref.clone()),
            invocation_mode: patch.invocation_mode.unwrap_or(self.invocation_mode),
            status: attempted,
            interface_config: patch.interface_config.unwrap_or_else(|| self.interface_config.clone()),
            ..self.0.clone()
        });
        let changed: Vec<&str> = [
            ("name", next.name != self.name),
            ("description", next.description != self.description),
            ("owner_ref", next.owner_ref != self.owner_ref),
            ("invocation_mode", next.invocation_mode != self.invocation_mode),
            ("status", next.status != self.status),
            ("interface_config", next.interface_config != self.interface_config),
            ("access_mode", next.effective_access_mode() != self.effective_access_mode()),
        ]
        .into_iter()
        .filter_map(|(name, differs)| differs.then_some(name))
        .collect();
        if changed.is_empty() {
            return Ok(None);
        }
        next.0.updated_at = stamp.at;
        next.0.revision = self.revision.next();
        let detail = json!({
            "keys": changed,
            "status": next.status.as_str(),
            "access_mode": next.effective_access_mode().as_str(),
            "previous_access_mode": self.effective_access_mode().as_str(),
            "interface_digest": next.interface_digest(),
            "previous_interface_digest": self.interface_digest(),
        });
        let suspended = next.status == WorkloadStatus::Suspended && self.status != WorkloadStatus::Suspended;
        let fact = Fact::new(FactKind::WorkloadChanged, self.subject(), Some(self.workspace_id), stamp, detail)
            .with_notification_categories(suspended.then_some(NotificationCategory::Incidents));
        Ok(Some(Change::replace(next, self.revision, fact)))
    }

    /// Checks that the workload accepts new releases and share links.
    ///
    /// # Errors
    /// When the workload is retired.
    pub const fn check_accepts_releases_and_links(&self) -> Result<(), WorkloadRefusal> {
        match self.0.status {
            WorkloadStatus::Registered | WorkloadStatus::Suspended => Ok(()),
            WorkloadStatus::Retired => Err(WorkloadRefusal::Retired),
        }
    }

    /// The callers that the workload admits. A workload without an interface admits authenticated callers only.
    #[must_use]
    pub fn effective_access_mode(&self) -> AccessMode {
        self.interface_config.as_ref().map_or(AccessMode::Authenticated, InterfaceConfig::access_mode)
    }

    /// Whether the changes set another access mode. Removing the interface counts as the mode `authenticated`.
    #[must_use]
    pub fn is_access_mode_changed_by(&self, patch: &WorkloadPatch) -> bool {
        patch.interface_config.as_ref().is_some_and(|config| {
            let mode = config.as_ref().map_or(AccessMode::Authenticated, InterfaceConfig::access_mode);
            mode != self.effective_access_mode()
        })
    }

    /// The description for people: that of the interface, or else that of the workload.
    #[must_use]
    pub fn display_description(&self) -> &str {
        let interface_description = self.interface_config.as_ref().map(InterfaceConfig::description);
        interface_description.filter(|text| !text.is_empty()).unwrap_or(&self.description)
    }

    /// The words by which a search finds the workload.
    #[must_use]
    pub fn search_words(&self) -> WordSet {
        let interface_description =
            self.interface_config.as_ref().map(InterfaceConfig::description).unwrap_or_default();
        WordSet::from_texts([self.name.as_str(), &self.description, interface_description])
    }

    /// The digest of the interface configuration, for facts about the workload.
    fn interface_digest(&self) -> Option<String> {
        let document = self.interface_config.as_ref()?.to_document();
        // A configuration without a canonical form has no digest, because the digest covers that form.
        Canonical::of(&document).ok().map(|canonical| canonical.checksum().to_string())
    }

    const fn subject(&self) -> FactSubject {
        FactSubject { kind: "workload", id: self.0.workload_id.uuid() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tabulates_workload_transitions() {
        let table: Vec<String> = WorkloadStatus::ALL
            .into_iter()
            .map(|from| {
                let to: Vec<_> = from.valid_transitions().iter().map(|status| status.as_str()).collect();
                format!("{} -> {}", from.as_str(), to.join(", "))
            })
            .collect();
        insta::assert_snapshot!(table.join("\n"), @r"
        registered -> suspended, retired
        suspended -> registered, retired
        retired -> 
        ");
    }
}
