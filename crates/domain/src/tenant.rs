//! Tenants, namespaces and workspaces: who can see what at all.

use crate::{
    access::{ActorRef, Caller},
    audit::{Fact, FactKind, Stamp, Subject},
    id::{NamespaceId, TenantId, WorkloadId, WorkspaceId},
    idempotency::KeyedOutcome,
    notification::Category,
    share_link::ShareToken,
    slug::{Slug, SlugRefusal},
    store::{Change, CommitError, Listed, Paging, Revision, StoreError},
    text::is_name,
    time::Timestamp,
    workload::Workload,
};
use async_trait::async_trait;
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeSet;
use uuid::Uuid;

/// The tenant that the first start makes.
pub const DEFAULT_TENANT: Uuid = Uuid::from_u128(0x0000_0000_0000_7000_8000_0000_0000_0001);
/// The namespace that the first start makes.
pub const DEFAULT_NAMESPACE: Uuid = Uuid::from_u128(0x0000_0000_0000_7000_8000_0000_0000_0002);
/// The workspace that the first start makes.
pub const DEFAULT_WORKSPACE: Uuid = Uuid::from_u128(0x0000_0000_0000_7000_8000_0000_0000_0003);

/// Longest workspace slug, so that names derived from it stay slugs.
pub const MAX_WORKSPACE_SLUG: usize = 43;
/// Most public hosts of a tenant.
pub const MAX_PUBLIC_HOSTS: usize = 50;
/// Names that systems give to loopback addresses in their file of hosts.
const LOOPBACK_NAMES: [&str; 5] =
    ["localhost", "localhost.localdomain", "localhost6.localdomain6", "ip6-localhost", "ip6-loopback"];
/// Longest display name, in characters.
pub const MAX_NAME: usize = 200;

/// The boundary that every store handle demands: no row is read or written without one.
///
/// It is had from a [`Caller`], whose tenant was settled by authentication, from a share token that is to be looked up,
/// or by a relay that works through a tenant's own log; nothing else makes one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TenantScope(TenantId);

impl TenantScope {
    /// The scope of a request.
    #[must_use]
    pub const fn of(caller: &Caller) -> Self {
        Self(caller.tenant)
    }

    /// The tenant that a share token names: whoever brings one says nothing else of where it belongs. Nothing is asked
    /// there but for the link of that very token.
    #[must_use]
    pub const fn of_token(token: &ShareToken) -> Self {
        Self(token.tenant())
    }

    /// The scope of background work on one tenant's rows.
    #[must_use]
    pub const fn for_relay(tenant: TenantId) -> Self {
        Self(tenant)
    }

    /// The tenant whose rows may be touched.
    #[must_use]
    pub const fn tenant(self) -> TenantId {
        self.0
    }
}

/// What a tenant may switch for itself.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct TenantSettings {
    /// Whether facts become notifications.
    pub notifications_enabled: bool,
    /// Whether digests, announcements and deeper preference scopes are available.
    pub advanced_notifications_enabled: bool,
    /// Host names whose unauthenticated requests belong to this tenant.
    pub public_hosts: Vec<String>,
}

impl Default for TenantSettings {
    fn default() -> Self {
        Self { notifications_enabled: true, advanced_notifications_enabled: false, public_hosts: Vec::new() }
    }
}

/// An organization.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tenant {
    /// Its identifier.
    pub tenant_id: TenantId,
    /// Unique over the whole installation.
    pub slug: Slug,
    /// For people.
    pub name: String,
    /// What it has switched.
    pub settings: TenantSettings,
    /// When it was made.
    pub created_at: Timestamp,
    /// Who made it.
    pub created_by: ActorRef,
    /// Counts its changes.
    pub revision: Revision,
}

/// Where assets and workloads live.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Workspace {
    /// Its identifier.
    pub workspace_id: WorkspaceId,
    /// Unique in the tenant.
    pub slug: Slug,
    /// For people.
    pub name: String,
    /// The namespace's identifier: workspaces of one namespace see one another's assets.
    pub namespace_id: NamespaceId,
    /// The namespace's slug.
    pub namespace: Slug,
    /// When it was made.
    pub created_at: Timestamp,
    /// Who made it.
    pub created_by: ActorRef,
}

/// Why a tenant or workspace cannot be as asked.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TenantRefusal {
    /// A slug that is none.
    #[error("{refusal}")]
    Slug {
        /// Which field held it.
        field: &'static str,
        /// Why.
        refusal: SlugRefusal,
    },
    /// A workspace's slug must leave room for names derived from it.
    #[error("a workspace slug has at most 43 characters")]
    SlugTooLong,
    /// Empty, too long, or with characters that do not show.
    #[error("a name has 1 to 200 characters, all of which show")]
    Name,
    /// Not a host name.
    #[error("a public host is a lower-case host name without a port")]
    Host,
    /// A name or an address that every client takes for its own machine, or any other address.
    #[error("a public host is neither a loopback name nor an address")]
    HostNotPublic,
    /// A name by which the operator knows the server or what it works with.
    #[error("a public host is none of the operator's own names")]
    HostOfOperator,
    /// More than [`MAX_PUBLIC_HOSTS`].
    #[error("a tenant has at most {MAX_PUBLIC_HOSTS} public hosts")]
    TooManyHosts,
    /// The same host twice.
    #[error("each public host stands in the list once")]
    DuplicateHost,
}

fn read_slug(field: &'static str, text: &str) -> Result<Slug, TenantRefusal> {
    Slug::parse(text).map_err(|refusal| TenantRefusal::Slug { field, refusal })
}

/// Everything that is wrong with the fields of a new tenant.
pub fn refused_tenant(slug: &str, name: &str) -> impl Iterator<Item = TenantRefusal> {
    let name = (!is_display_name(name)).then_some(TenantRefusal::Name);
    read_slug("slug", slug).err().into_iter().chain(name)
}

/// Everything that is wrong with the fields of a new workspace.
pub fn refused_workspace(slug: &str, name: &str, namespace: &str) -> impl Iterator<Item = TenantRefusal> {
    let too_long = (slug.len() > MAX_WORKSPACE_SLUG).then_some(TenantRefusal::SlugTooLong);
    let slug = read_slug("slug", slug).err().or(too_long);
    let name = (!is_display_name(name)).then_some(TenantRefusal::Name);
    [slug, read_slug("namespace", namespace).err(), name].into_iter().flatten()
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

    /// The request field that it concerns.
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

/// Whether a text can be shown to people as a name.
#[must_use]
pub fn is_display_name(text: &str) -> bool {
    is_name(text, MAX_NAME)
}

fn check_public_hosts(hosts: &[String], operator_hosts: &[String]) -> Result<(), TenantRefusal> {
    if hosts.len() > MAX_PUBLIC_HOSTS {
        return Err(TenantRefusal::TooManyHosts);
    }
    let mut seen = BTreeSet::new();
    hosts.iter().try_for_each(|host| match host {
        host if !is_host_name(host) => Err(TenantRefusal::Host),
        host if !is_public_host(host) => Err(TenantRefusal::HostNotPublic),
        host if operator_hosts.contains(host) => Err(TenantRefusal::HostOfOperator),
        host if !seen.insert(host) => Err(TenantRefusal::DuplicateHost),
        _ => Ok(()),
    })
}

fn is_host_name(text: &str) -> bool {
    let label = |part: &str| {
        !part.is_empty()
            && part.len() <= 63
            && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    text.len() <= 253 && !text.is_empty() && text.split('.').all(label)
}

/// Whether a host name can belong to a tenant: not to loopback names, which every machine has (RFC 6761 section 6.3), and to no
/// spelling of an address. A last label that is a number makes an address of a name (WHATWG URL, "ends in a number").
#[must_use]
pub fn is_public_host(name: &str) -> bool {
    let is_loopback = LOOPBACK_NAMES.contains(&name) || name.ends_with(".localhost");
    let last = name.rsplit('.').next().unwrap_or_default();
    let is_decimal = last.bytes().all(|byte| byte.is_ascii_digit());
    let is_hexadecimal = last.strip_prefix("0x").is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_hexdigit()));
    is_host_name(name) && !is_loopback && !is_decimal && !is_hexadecimal
}

impl Tenant {
    /// A new tenant.
    ///
    /// # Errors
    /// When slug or name are not allowed.
    pub fn create(tenant_id: TenantId, slug: &str, name: &str, stamp: &Stamp) -> Result<Change<Self>, TenantRefusal> {
        if let Some(refusal) = refused_tenant(slug, name).next() {
            return Err(refusal);
        }
        let slug = read_slug("slug", slug)?;
        let subject = Subject { kind: "tenant", id: tenant_id.uuid() };
        let fact = Fact::new(FactKind::TenantCreated, subject, None, stamp, json!({ "slug": slug.as_str() }));
        let next = Self {
            tenant_id,
            slug,
            name: name.to_owned(),
            settings: TenantSettings::default(),
            created_at: stamp.at,
            created_by: stamp.actor.clone(),
            revision: Revision::FIRST,
        };
        Ok(Change::creating(next, fact))
    }

    /// The same tenant with other settings. `operator_hosts` are the names that no tenant may have.
    ///
    /// # Errors
    /// When a changed list of public hosts is too long, or holds a name that is none or that no tenant may have.
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
        let subject = Subject { kind: "tenant", id: self.tenant_id.uuid() };
        let fact = Fact::new(FactKind::TenantConfigured, subject, None, stamp, json!({ "keys": changed }));
        let fact = fact.concerning([Category::PolicyChanges]);
        let next = Self { settings, revision: self.revision.next(), ..self.clone() };
        Ok(Change::replacing(next, self.revision, fact))
    }
}

/// A workspace with what comes with it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewWorkspace {
    /// The workspace.
    pub workspace: Workspace,
    /// Its built-in assistant.
    pub assistant: Workload,
}

impl Workspace {
    /// A new workspace in a namespace that is made on first use, with its built-in assistant.
    ///
    /// `namespace_id` is what the namespace gets if it does not exist yet; the store keeps an existing one's.
    ///
    /// # Errors
    /// When a slug or the name are not allowed.
    pub fn create(
        ids: (WorkspaceId, NamespaceId, WorkloadId),
        slug: &str,
        name: &str,
        namespace: &str,
        stamp: &Stamp,
    ) -> Result<Change<NewWorkspace>, TenantRefusal> {
        if let Some(refusal) = refused_workspace(slug, name, namespace).next() {
            return Err(refusal);
        }
        let (slug, namespace) = (read_slug("slug", slug)?, read_slug("namespace", namespace)?);
        let (workspace_id, namespace_id, assistant_id) = ids;
        let subject = Subject { kind: "workspace", id: workspace_id.uuid() };
        let detail = json!({
            "slug": slug.as_str(), "namespace": namespace.as_str(), "assistant_workload_id": assistant_id,
        });
        let fact = Fact::new(FactKind::WorkspaceCreated, subject, Some(workspace_id), stamp, detail);
        let workspace = Self {
            workspace_id,
            slug,
            name: name.to_owned(),
            namespace_id,
            namespace,
            created_at: stamp.at,
            created_by: stamp.actor.clone(),
        };
        let assistant = Workload::assistant(assistant_id, &workspace, stamp).ok_or(TenantRefusal::SlugTooLong)?;
        Ok(Change::creating(NewWorkspace { workspace, assistant }, fact))
    }
}

/// Keeps tenants. Platform operators see all of them, so its list alone takes no scope.
#[async_trait]
pub trait TenantStore: Send + Sync {
    /// One tenant.
    async fn find(&self, scope: TenantScope) -> Result<Option<Tenant>, StoreError>;
    /// The tenant that answers to this host, if one does.
    async fn of_host(&self, host: &str) -> Result<Option<TenantId>, StoreError>;
    /// All tenants, newest first.
    async fn list(&self, page: Paging) -> Result<Listed<Tenant>, StoreError>;
    /// Makes a tenant. Fact and key belong to the tenant of who made it.
    async fn commit_new(
        &self,
        scope: TenantScope,
        change: Change<Tenant>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError>;
    /// Stores changed settings.
    async fn commit_settings(&self, scope: TenantScope, change: Change<Tenant>) -> Result<(), CommitError>;
}

/// Keeps workspaces.
#[async_trait]
pub trait WorkspaceStore: Send + Sync {
    /// One workspace of the tenant.
    async fn find(&self, scope: TenantScope, id: WorkspaceId) -> Result<Option<Workspace>, StoreError>;
    /// The tenant's workspaces, newest first.
    async fn list(&self, scope: TenantScope, page: Paging) -> Result<Listed<Workspace>, StoreError>;
    /// Makes a workspace with its assistant and, where needed, its namespace; answers with what is stored.
    async fn commit_new(
        &self,
        scope: TenantScope,
        change: Change<NewWorkspace>,
        key: Option<&KeyedOutcome>,
    ) -> Result<Workspace, CommitError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_host_names() {
        for good in ["example.org", "a", "x-y.example"] {
            assert!(is_host_name(good), "{good}");
        }
        for bad in ["", "Example.org", "a:80", "-a", "a..b", "a/b", "a b"] {
            assert!(!is_host_name(bad), "{bad}");
        }
    }

    #[test]
    fn loopback_names_and_addresses_are_not_public() {
        for good in ["forms.example", "a", "1.example", "0x7f.example", "localhost.example", "x0", "0xfg"] {
            assert!(is_public_host(good), "{good}");
        }
        for bad in [
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
            assert!(!is_public_host(bad), "{bad}");
        }
    }
}
