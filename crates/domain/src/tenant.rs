//! Tenants, namespaces and workspaces, which bound the visibility of resources.

use crate::{
    access::{ActorRef, Caller, session::SessionToken},
    audit::{Fact, FactKind, FactSubject, Stamp},
    id::{NamespaceId, TenantId, WorkloadId, WorkspaceId},
    idempotency::KeyedOutcome,
    notification_category::NotificationCategory,
    share_link::ShareToken,
    slug::{Slug, SlugRefusal},
    store::{Change, CommitError, Page, PageRequest, Revision, StoreError, aggregate},
    text::is_name,
    time::Timestamp,
    workload::Workload,
};
use async_trait::async_trait;
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeSet;
use uuid::Uuid;

/// The identifier of the tenant that the first start of an installation creates.
pub const DEFAULT_TENANT_ID: Uuid = Uuid::from_u128(0x0000_0000_0000_7000_8000_0000_0000_0001);
/// The identifier of the namespace that the first start of an installation creates.
pub const DEFAULT_NAMESPACE_ID: Uuid = Uuid::from_u128(0x0000_0000_0000_7000_8000_0000_0000_0002);
/// The identifier of the workspace that the first start of an installation creates.
pub const DEFAULT_WORKSPACE_ID: Uuid = Uuid::from_u128(0x0000_0000_0000_7000_8000_0000_0000_0003);

/// The maximum length of a workspace slug, in characters. It leaves room for longer slugs that contain it.
pub const MAX_WORKSPACE_SLUG: usize = 43;
/// The maximum number of public hosts of a tenant.
pub const MAX_PUBLIC_HOSTS: usize = 50;
/// The names that hosts files commonly assign to loopback addresses.
const LOOPBACK_NAMES: [&str; 5] =
    ["localhost", "localhost.localdomain", "localhost6.localdomain6", "ip6-localhost", "ip6-loopback"];
/// The maximum length of a display name, in characters.
pub const MAX_DISPLAY_NAME_CHARS: usize = 200;

/// The tenant boundary that every store operation requires.
///
/// A scope comes from one of these sources: a [`Caller`], a share or session token for its own lookup, a verified
/// identity for its pin, a platform operator, or a background task. `cargo xtask check` compares the callers of each
/// constructor except [`TenantScope::for_caller`] with a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TenantScope(TenantId);

impl TenantScope {
    /// The scope of a request: the tenant in which its caller works.
    #[must_use]
    pub const fn for_caller(caller: &Caller) -> Self {
        Self(caller.tenant)
    }

    /// The scope of the tenant in a share token. It may only be used to look up the link of this token.
    #[must_use]
    pub const fn for_share_token_lookup(token: &ShareToken) -> Self {
        Self(token.tenant())
    }

    /// The scope of another tenant, for a platform operator that is authorized for it.
    #[must_use]
    pub const fn for_platform_operator(tenant: TenantId) -> Self {
        Self(tenant)
    }

    /// The default tenant, in which attempts with unknown share tokens are counted. The tenant that such a token
    /// contains cannot be trusted.
    #[must_use]
    pub fn for_rate_limiting_unknown_tokens() -> Self {
        Self(DEFAULT_TENANT_ID.into())
    }

    /// The scope in which a verified identity is pinned: the tenant that the identity's token names.
    #[must_use]
    pub const fn for_identity(tenant: TenantId) -> Self {
        Self(tenant)
    }

    /// The scope of a session: the tenant that the session token contains.
    #[must_use]
    pub const fn for_session(token: &SessionToken) -> Self {
        Self(token.tenant())
    }

    /// The scope in which a background task processes the rows of one tenant.
    #[must_use]
    pub const fn for_background_task(tenant: TenantId) -> Self {
        Self(tenant)
    }

    /// The tenant whose rows the store operation may read and write.
    #[must_use]
    pub const fn tenant(self) -> TenantId {
        self.0
    }
}

/// The settings of a tenant: its notifications and its public hosts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct TenantSettings {
    /// Whether facts produce notifications.
    pub notifications_enabled: bool,
    /// Whether the tenant has digests, announcements, and preferences for workloads and environments.
    pub advanced_notifications_enabled: bool,
    /// The host names whose unauthenticated requests belong to the tenant.
    pub public_hosts: Vec<String>,
}

impl Default for TenantSettings {
    fn default() -> Self {
        Self { notifications_enabled: true, advanced_notifications_enabled: false, public_hosts: Vec::new() }
    }
}

/// An organization: an isolated customer of the installation, which owns all other resources.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tenant(pub(crate) TenantRecord);

/// The fields of [`Tenant`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TenantRecord {
    /// The identifier of the tenant, which leads every key.
    pub tenant_id: TenantId,
    /// The slug of the tenant, unique in the installation.
    pub slug: Slug,
    /// The display name of the tenant.
    pub name: String,
    /// Notification settings and public hosts of the tenant.
    pub settings: TenantSettings,
    /// When the tenant was created.
    pub created_at: Timestamp,
    /// The actor that created the tenant.
    pub created_by: ActorRef,
    /// The change counter, which increments with each change.
    pub revision: Revision,
}

aggregate!(Tenant, TenantRecord);

/// A container of assets and workloads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Workspace(pub(crate) WorkspaceRecord);

/// The fields of [`Workspace`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkspaceRecord {
    /// The identifier of the workspace, which never changes.
    pub workspace_id: WorkspaceId,
    /// The slug of the workspace, unique in the tenant.
    pub slug: Slug,
    /// The display name of the workspace.
    pub name: String,
    /// The identifier of the namespace. Workspaces of one namespace can see each other's assets.
    pub namespace_id: NamespaceId,
    /// The slug of that namespace.
    pub namespace: Slug,
    /// When the workspace was created.
    pub created_at: Timestamp,
    /// The actor that created the workspace.
    pub created_by: ActorRef,
}

aggregate!(Workspace, WorkspaceRecord);

/// The reason why a change of a tenant or workspace is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TenantRefusal {
    /// A slug in the request is invalid.
    #[error("{refusal}")]
    Slug {
        /// The field of the request that contains the slug.
        field: &'static str,
        /// The reason why the slug is refused.
        refusal: SlugRefusal,
    },
    /// The workspace slug is too long. Slugs that contain it would exceed their own limit.
    #[error("a workspace slug has at most 43 characters")]
    SlugTooLong,
    /// The name is empty, too long, or contains invisible characters.
    #[error("a name has 1 to 200 visible characters")]
    Name,
    /// The text is not a host name.
    #[error("a public host is a lower-case host name without a port")]
    Host,
    /// The host is a loopback name or an IP address.
    #[error("a public host is neither a loopback name nor an address")]
    HostNotPublic,
    /// The operator uses the host name for its own services.
    #[error("a public host is not one of the operator's own names")]
    HostOfOperator,
    /// The list has more than [`MAX_PUBLIC_HOSTS`] names.
    #[error("a tenant has at most {MAX_PUBLIC_HOSTS} public hosts")]
    TooManyHosts,
    /// The same host occurs twice in the list.
    #[error("public hosts are distinct")]
    DuplicateHost,
}

fn parse_slug(field: &'static str, text: &str) -> Result<Slug, TenantRefusal> {
    Slug::parse(text).map_err(|refusal| TenantRefusal::Slug { field, refusal })
}

/// All problems in the fields of a new tenant.
pub fn tenant_refusals(slug: &str, name: &str) -> impl Iterator<Item = TenantRefusal> {
    let name = (!is_display_name(name)).then_some(TenantRefusal::Name);
    parse_slug("slug", slug).err().into_iter().chain(name)
}

/// All problems in the fields of a new workspace.
pub fn workspace_refusals(slug: &str, name: &str, namespace: &str) -> impl Iterator<Item = TenantRefusal> {
    let too_long = (slug.len() > MAX_WORKSPACE_SLUG).then_some(TenantRefusal::SlugTooLong);
    let slug = parse_slug("slug", slug).err().or(too_long);
    let name = (!is_display_name(name)).then_some(TenantRefusal::Name);
    [slug, parse_slug("namespace", namespace).err(), name].into_iter().flatten()
}

impl TenantRefusal {
    /// The stable code of the refusal.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Slug { refusal, .. } => refusal.code(),
            Self::SlugTooLong => "slug_too_long",
            Self::Name => "invalid_name",
            Self::Host => "invalid_host",
            Self::HostNotPublic => "host_not_public",
            Self::HostOfOperator => "host_of_operator",
            Self::TooManyHosts => "too_many_hosts",
            Self::DuplicateHost => "duplicate_item",
        }
    }

    /// The field of the request that the refusal concerns.
    #[must_use]
    pub const fn field(&self) -> &'static str {
        match self {
            Self::Slug { field, .. } => field,
            Self::SlugTooLong => "slug",
            Self::Name => "name",
            Self::Host | Self::HostNotPublic | Self::HostOfOperator | Self::TooManyHosts | Self::DuplicateHost => {
                "public_hosts"
            }
        }
    }
}

/// Whether a text is a valid display name of a tenant or workspace.
#[must_use]
pub fn is_display_name(text: &str) -> bool {
    is_name(text, MAX_DISPLAY_NAME_CHARS)
}

fn check_public_hosts(hosts: &[String], operator_hosts: &[String]) -> Result<(), TenantRefusal> {
    if hosts.len() > MAX_PUBLIC_HOSTS {
        return Err(TenantRefusal::TooManyHosts);
    }
    let mut unique_hosts = BTreeSet::new();
    hosts.iter().try_for_each(|host| match host {
        host if !is_host_name(host) => Err(TenantRefusal::Host),
        host if !can_be_tenant_host(host) => Err(TenantRefusal::HostNotPublic),
        host if operator_hosts.contains(host) => Err(TenantRefusal::HostOfOperator),
        host if !unique_hosts.insert(host) => Err(TenantRefusal::DuplicateHost),
        _ => Ok(()),
    })
}

fn is_host_name(text: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= 253 && !text.is_empty() && text.split('.').all(is_label)
}

/// Whether a host name can belong to a tenant. Loopback names (RFC 6761, section 6.3) and IP addresses in any notation
/// cannot. A name whose last label is a number counts as an address (WHATWG URL, "ends in a number").
#[must_use]
pub fn can_be_tenant_host(name: &str) -> bool {
    let is_loopback = LOOPBACK_NAMES.contains(&name) || name.ends_with(".localhost");
    let last_label = name.rsplit('.').next().unwrap_or_default();
    let is_decimal = last_label.bytes().all(|byte| byte.is_ascii_digit());
    let is_hexadecimal =
        last_label.strip_prefix("0x").is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_hexdigit()));
    is_host_name(name) && !is_loopback && !is_decimal && !is_hexadecimal
}

impl Tenant {
    /// Creates a tenant with default settings.
    ///
    /// # Errors
    /// When the slug or the name is invalid.
    pub fn create(tenant_id: TenantId, slug: &str, name: &str, stamp: &Stamp) -> Result<Change<Self>, TenantRefusal> {
        if let Some(refusal) = tenant_refusals(slug, name).next() {
            return Err(refusal);
        }
        let slug = parse_slug("slug", slug)?;
        let subject = FactSubject { kind: "tenant", id: tenant_id.uuid() };
        let fact = Fact::new(FactKind::TenantCreated, subject, None, stamp, json!({ "slug": slug.as_str() }));
        let next = Self(TenantRecord {
            tenant_id,
            slug,
            name: name.to_owned(),
            settings: TenantSettings::default(),
            created_at: stamp.at,
            created_by: stamp.actor.clone(),
            revision: Revision::FIRST,
        });
        Ok(Change::create(next, fact))
    }

    /// Replaces the settings of the tenant. `operator_hosts` contains the host names that no tenant may use.
    ///
    /// # Errors
    /// When a changed list of public hosts is too long, or contains an invalid or forbidden name.
    pub fn configure(
        &self,
        settings: TenantSettings,
        operator_hosts: &[String],
        stamp: &Stamp,
    ) -> Result<Change<Self>, TenantRefusal> {
        if settings.public_hosts != self.settings.public_hosts {
            check_public_hosts(&settings.public_hosts, operator_hosts)?;
        }
        let changed: Vec<&str> = [
            ("notifications_enabled", settings.notifications_enabled != self.settings.notifications_enabled),
            (
                "advanced_notifications_enabled",
                settings.advanced_notifications_enabled != self.settings.advanced_notifications_enabled,
            ),
            ("public_hosts", settings.public_hosts != self.settings.public_hosts),
        ]
        .into_iter()
        .filter_map(|(name, differs)| differs.then_some(name))
        .collect();
        let subject = FactSubject { kind: "tenant", id: self.tenant_id.uuid() };
        let fact = Fact::new(FactKind::TenantConfigured, subject, None, stamp, json!({ "keys": changed }));
        let fact = fact.with_notification_categories([NotificationCategory::PolicyChanges]);
        let next = Self(TenantRecord { settings, revision: self.revision.next(), ..self.0.clone() });
        Ok(Change::replace(next, self.revision, fact))
    }
}

/// A new workspace together with its built-in assistant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkspaceWithAssistant {
    /// The workspace itself.
    pub workspace: Workspace,
    /// The workload that is its built-in assistant.
    pub assistant: Workload,
}

/// The identifiers of the resources that creating a workspace creates.
#[derive(Clone, Copy, Debug)]
pub struct WorkspaceIds {
    /// The identifier of the new workspace.
    pub workspace_id: WorkspaceId,
    /// The identifier of the namespace if it does not exist yet; otherwise unused.
    pub namespace_id: NamespaceId,
    /// The identifier of the workload that is the built-in assistant.
    pub assistant_id: WorkloadId,
}

impl Workspace {
    /// Creates a workspace with its built-in assistant. The namespace is created on first use; if it exists already,
    /// the store ignores `namespace_id`.
    ///
    /// # Errors
    /// When a slug or the name is invalid.
    pub fn create(
        ids: WorkspaceIds,
        slug: &str,
        name: &str,
        namespace: &str,
        stamp: &Stamp,
    ) -> Result<Change<WorkspaceWithAssistant>, TenantRefusal> {
        if let Some(refusal) = workspace_refusals(slug, name, namespace).next() {
            return Err(refusal);
        }
        let (slug, namespace) = (parse_slug("slug", slug)?, parse_slug("namespace", namespace)?);
        let WorkspaceIds { workspace_id, namespace_id, assistant_id } = ids;
        let subject = FactSubject { kind: "workspace", id: workspace_id.uuid() };
        let detail = json!({
            "slug": slug.as_str(), "namespace": namespace.as_str(), "assistant_workload_id": assistant_id,
        });
        let fact = Fact::new(FactKind::WorkspaceCreated, subject, Some(workspace_id), stamp, detail);
        let workspace = Self(WorkspaceRecord {
            workspace_id,
            slug,
            name: name.to_owned(),
            namespace_id,
            namespace,
            created_at: stamp.at,
            created_by: stamp.actor.clone(),
        });
        let assistant = Workload::assistant(assistant_id, &workspace, stamp).ok_or(TenantRefusal::SlugTooLong)?;
        Ok(Change::create(WorkspaceWithAssistant { workspace, assistant }, fact))
    }
}

/// Stores tenants. `list` has no scope, because platform operators see all tenants. `find_by_host` has none, because
/// its result determines the tenant.
#[async_trait]
pub trait TenantStore: Send + Sync {
    /// Finds the tenant of the scope; `None` if it does not exist.
    async fn find(&self, scope: TenantScope) -> Result<Option<Tenant>, StoreError>;
    /// Finds the tenant that uses this public host, if any.
    async fn find_by_host(&self, host: &str) -> Result<Option<TenantId>, StoreError>;
    /// Lists all tenants, newest first.
    async fn list(&self, page: PageRequest) -> Result<Page<Tenant>, StoreError>;
    /// Creates a tenant. The fact is the first entry in the audit log of the tenant `created`. The idempotency key
    /// belongs to the tenant of the creator.
    async fn commit_new(
        &self,
        creator: TenantScope,
        created: TenantScope,
        change: Change<Tenant>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
    /// Stores changed settings of a tenant; [`CommitError::Stale`] when the tenant changed since the decision.
    async fn commit_settings(&self, scope: TenantScope, change: Change<Tenant>) -> Result<(), CommitError>;
}

/// Stores workspaces and their namespaces.
#[async_trait]
pub trait WorkspaceStore: Send + Sync {
    /// Finds a workspace by its identifier; `None` if the tenant does not have it.
    async fn find(&self, scope: TenantScope, id: WorkspaceId) -> Result<Option<Workspace>, StoreError>;
    /// Lists the workspaces of the tenant, newest first.
    async fn list(&self, scope: TenantScope, page: PageRequest) -> Result<Page<Workspace>, StoreError>;
    /// Creates a workspace with its assistant and, if it does not exist, its namespace. Returns the stored
    /// workspace.
    async fn commit_new(
        &self,
        scope: TenantScope,
        change: Change<WorkspaceWithAssistant>,
        key: Option<&KeyedOutcome>,
    ) -> Result<Workspace, CommitError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognizes_host_names() {
        for name in ["example.org", "a", "x-y.example"] {
            assert!(is_host_name(name), "{name}");
        }
        for name in ["", "Example.org", "a:80", "-a", "a..b", "a/b", "a b"] {
            assert!(!is_host_name(name), "{name}");
        }
    }

    #[test]
    fn loopback_names_and_addresses_are_not_public() {
        for name in ["forms.example", "a", "1.example", "0x7f.example", "localhost.example", "x0", "0xfg"] {
            assert!(can_be_tenant_host(name), "{name}");
        }
        for name in [
            "localhost",
            "a.localhost",
            "localhost.localdomain",
            "ip6-localhost",
            "127.0.0.1",
            "127.1",
            "0x7f000001",
            "0x7f.1",
            "127.0.0.0x1",
            "a.0x",
            "2130706433",
            "017700000001",
            "203.0.113.7",
            "example.1",
            "[::1]",
            "::1",
            "localhost.",
            "LOCALHOST",
        ] {
            assert!(!can_be_tenant_host(name), "{name}");
        }
    }
}
