//! Pinned identities: the permanent actor name of an issuer's subject in a tenant.
//!
//! The first request of a subject pins its name. From then on, the name belongs to that subject even if later tokens
//! claim another name. Therefore the grants of a name never pass to another person.

use super::{GroupsClaim, IdentityKind, NameHolder, TenantClaim, VerifiedIdentity};
use crate::{
    access::{ActorKind, ActorRef},
    audit::{Fact, FactKind, FactSubject, Stamp},
    id::{IdentityId, TenantId},
    notification_category::NotificationCategory,
    slug::Slug,
    store::{CommitError, StoreError},
    tenant::TenantScope,
};
use async_trait::async_trait;
use serde_json::json;
use std::fmt;

/// The maximum number of groups of a subject. More groups would make each permission check slow.
const MAX_GROUPS: usize = 500;
/// The prefix of derived names, for subjects without a usable name claim.
const SUBJECT_PREFIX: &str = "sub-";
/// The number of hexadecimal digits after [`SUBJECT_PREFIX`] in a derived name.
const SUBJECT_DIGITS: usize = 16;

/// A subject of an issuer, with its permanent actor name in a tenant. `Debug` output omits the person.
#[derive(Clone, PartialEq, Eq)]
pub struct PinnedIdentity {
    /// The identifier of the pinned identity.
    pub identity_id: IdentityId,
    /// The issuer that knows the subject.
    pub issuer: String,
    /// The subject, which is unique within the issuer.
    pub subject: String,
    /// The permanent actor name of the subject in the tenant.
    pub actor: ActorRef,
    /// The groups that the newest token or sign-in of the subject presented.
    pub groups: Vec<ActorRef>,
    /// The verified e-mail address that the newest sign-in presented, if any.
    pub email: Option<String>,
}

impl fmt::Debug for PinnedIdentity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("PinnedIdentity").field("identity_id", &self.identity_id).finish_non_exhaustive()
    }
}

/// The fields of a pinned identity that a newer token or sign-in replaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplacedFields {
    /// Whether the groups are replaced.
    pub groups: bool,
    /// Whether the e-mail address is replaced.
    pub email: bool,
}

impl ReplacedFields {
    /// A sign-in replaces groups and e-mail address, because it presents both.
    pub const BY_SIGN_IN: Self = Self { groups: true, email: true };

    /// An access token replaces the groups if it has a groups claim. It never replaces the e-mail address.
    #[must_use]
    pub const fn by_access_token(groups: &GroupsClaim) -> Self {
        Self { groups: !matches!(groups, GroupsClaim::Absent), email: false }
    }
}

/// The reason why requests of a verified identity are refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum IdentityRefusal {
    /// The actor name already belongs to another subject.
    #[error("another subject has the actor name of this identity")]
    NameTaken,
    /// The token has no usable value for the configured tenant claim.
    #[error("the token has no usable tenant claim")]
    TenantMissing {
        /// The name of the tenant claim.
        claim: String,
    },
    /// The named tenant does not exist, or the configuration binds the issuer to another tenant.
    #[error("the token names no tenant of its issuer")]
    TenantUnknown {
        /// The name of the tenant claim; `None` if the configuration names the tenant.
        claim: Option<String>,
    },
    /// The token states an overage, so it does not list all groups of the subject.
    #[error("the token does not list all groups of its subject")]
    GroupsIncomplete,
    /// The token lists more groups than a subject may have.
    #[error("the token lists more than 500 groups")]
    TooManyGroups,
}

impl IdentityRefusal {
    /// The stable code of the refusal.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NameTaken => "actor_name_taken",
            Self::TenantMissing { .. } => "tenant_claim_missing",
            Self::TenantUnknown { .. } => "tenant_unknown",
            Self::GroupsIncomplete => "groups_incomplete",
            Self::TooManyGroups => "too_many_groups",
        }
    }

    /// The claim that gives no valid tenant; `None` for a refusal that does not concern a tenant claim.
    #[must_use]
    pub fn tenant_claim_name(&self) -> Option<&str> {
        match self {
            Self::TenantMissing { claim } | Self::TenantUnknown { claim: Some(claim) } => Some(claim),
            Self::NameTaken | Self::TenantUnknown { claim: None } | Self::GroupsIncomplete | Self::TooManyGroups => {
                None
            }
        }
    }
}

/// The slug of the tenant to which an identity belongs; `None` for the default tenant.
///
/// # Errors
/// When the configured claim is absent or not a slug, or names a tenant other than the issuer's.
pub fn tenant_slug(identity: &VerifiedIdentity) -> Result<Option<Slug>, IdentityRefusal> {
    let slug = match &identity.tenant {
        TenantClaim::NotConfigured => return Ok(identity.bound_tenant.clone()),
        TenantClaim::Missing { claim } => return Err(IdentityRefusal::TenantMissing { claim: claim.clone() }),
        TenantClaim::Named { claim, tenant } => {
            let unknown = || IdentityRefusal::TenantUnknown { claim: Some(claim.clone()) };
            let slug = Slug::parse(tenant).map_err(|_| unknown())?;
            if identity.bound_tenant.as_ref().is_some_and(|bound| *bound != slug) {
                return Err(unknown());
            }
            slug
        }
    };
    Ok(Some(slug))
}

/// The name under which a subject is pinned: the name claim in lower case, or the client identifier of a service. If
/// that is not a valid actor name or imitates a reserved name, the name is derived from issuer and subject.
#[must_use]
pub fn name_to_pin(identity: &VerifiedIdentity) -> ActorRef {
    claimed_name(identity).unwrap_or_else(|kind| ActorRef::of_subject(kind, &subject_digest(identity)))
}

/// Whether the actor name comes from the claim, and not from a digest of issuer and subject.
pub(super) fn is_claimed_name(identity: &VerifiedIdentity) -> bool {
    claimed_name(identity).is_ok()
}

/// The actor name from the claim. Without a usable claim, the error is the kind of the actor.
fn claimed_name(identity: &VerifiedIdentity) -> Result<ActorRef, ActorKind> {
    let (kind, claim) = match &identity.kind {
        IdentityKind::Person => (ActorKind::User, identity.name.as_deref()),
        IdentityKind::Service { client_id } => (ActorKind::Service, Some(client_id.as_str())),
    };
    let claim = claim.map(str::to_lowercase).filter(|name| !is_reserved(name));
    claim.and_then(|name| ActorRef::parse(&format!("{}:{name}", kind.as_str())).ok()).ok_or(kind)
}

/// Whether a claimed name imitates a derived name, or the name of a visitor from another tenant (`ada@<tenant>`).
/// E-mail addresses are not reserved, because their domain contains a dot.
fn is_reserved(name: &str) -> bool {
    let is_derived = name
        .strip_prefix(SUBJECT_PREFIX)
        .is_some_and(|suffix| suffix.len() == SUBJECT_DIGITS && suffix.bytes().all(|byte| byte.is_ascii_hexdigit()));
    is_derived || is_visitor_name(name)
}

fn is_visitor_name(name: &str) -> bool {
    name.rsplit_once('@').is_some_and(|(_, suffix)| !suffix.contains('.'))
}

/// The digest of issuer and subject. The length of the issuer comes first, so that two different pairs never yield the
/// same bytes.
fn subject_digest(identity: &VerifiedIdentity) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&(identity.issuer.len() as u64).to_be_bytes());
    hasher.update(identity.issuer.as_bytes()).update(identity.subject.as_bytes());
    let digest = hasher.finalize().to_hex();
    digest.as_str().get(..SUBJECT_DIGITS).unwrap_or_default().to_owned()
}

/// The groups of an identity as principals, in lower case and without a leading `/`. Groups without a valid actor name
/// are omitted, because no role can be assigned to them.
///
/// # Errors
/// When the token does not list all groups, or lists too many.
pub fn group_actors(groups: &GroupsClaim) -> Result<Vec<ActorRef>, IdentityRefusal> {
    let names = match groups {
        GroupsClaim::Absent => return Ok(Vec::new()),
        GroupsClaim::Listed(names) if names.len() > MAX_GROUPS => return Err(IdentityRefusal::TooManyGroups),
        GroupsClaim::Listed(names) => names,
        GroupsClaim::Overage { .. } => return Err(IdentityRefusal::GroupsIncomplete),
    };
    let mut actors: Vec<ActorRef> = names.iter().filter_map(|name| group_actor(name)).collect();
    actors.sort();
    actors.dedup();
    Ok(actors)
}

/// The principal for one group name; `None` if no role can be assigned to that name.
#[must_use]
pub fn group_actor(name: &str) -> Option<ActorRef> {
    let name = name.strip_prefix('/').unwrap_or(name).to_lowercase();
    if is_visitor_name(&name) { None } else { ActorRef::parse(&format!("group:{name}")).ok() }
}

impl PinnedIdentity {
    /// Creates a pinned identity with the actor name that [`actor_name`] determines.
    #[must_use]
    pub fn pin(identity_id: IdentityId, identity: &VerifiedIdentity, groups: Vec<ActorRef>) -> Self {
        Self {
            identity_id,
            issuer: identity.issuer.clone(),
            subject: identity.subject.clone(),
            actor: name_to_pin(identity),
            groups,
            email: identity.email.clone(),
        }
    }

    /// Builds the fact that the identity was pinned. The fact contains the actor name and omits the claims.
    #[must_use]
    pub fn pinned_fact(&self, stamp: &Stamp) -> Fact {
        let stamp = Stamp { actor: self.actor.clone(), ..stamp.clone() };
        Fact::new(FactKind::IdentityPinned, self.subject(), None, &stamp, json!({ "actor": self.actor }))
    }

    /// Builds the fact that the identity was refused, because its name belongs to another subject.
    #[must_use]
    pub fn name_conflict_fact(&self, stamp: &Stamp) -> Fact {
        let detail = json!({ "actor": self.actor, "reason_code": IdentityRefusal::NameTaken.code() });
        Fact::new(FactKind::IdentityRefused, self.subject(), None, stamp, detail)
            .with_notification_categories([NotificationCategory::ComplianceFindings])
    }

    /// Builds the fact that a bootstrap administrator was authenticated. The fact exists because no role binding shows
    /// the rights of such an administrator.
    #[must_use]
    pub fn bootstrap_fact(&self, stamp: &Stamp) -> Fact {
        let stamp = Stamp { actor: self.actor.clone(), ..stamp.clone() };
        Fact::new(FactKind::BootstrapAdminSeen, self.subject(), None, &stamp, json!({ "actor": self.actor }))
            .with_notification_categories([NotificationCategory::PolicyChanges])
    }

    fn subject(&self) -> FactSubject {
        FactSubject { kind: "identity", id: self.identity_id.uuid() }
    }
}

/// Stores pinned identities.
#[async_trait]
pub trait IdentityStore: Send + Sync {
    /// Finds the tenant with this slug.
    async fn find_tenant(&self, slug: &Slug) -> Result<Option<TenantId>, StoreError>;
    /// Finds the slug of a tenant.
    async fn find_tenant_slug(&self, tenant: TenantId) -> Result<Option<Slug>, StoreError>;
    /// Stores the presented fields that `replaces` selects, and returns the pinned identity with the presented groups
    /// and e-mail address. `None` if the subject is not pinned.
    async fn refresh(
        &self,
        scope: TenantScope,
        presented: &PinnedIdentity,
        replaces: ReplacedFields,
    ) -> Result<Option<PinnedIdentity>, StoreError>;
    /// Finds the owner of an identity's actor name. It changes no stored state.
    async fn name_holder(&self, scope: TenantScope, presented: &PinnedIdentity) -> Result<NameHolder, StoreError>;
    /// Reads the groups that an actor presented last, by a sign-in or an access token. They are empty if no identity
    /// has the name.
    async fn groups_of(&self, scope: TenantScope, actor: &ActorRef) -> Result<Vec<ActorRef>, StoreError>;
    /// Pins an identity. [`CommitError::Conflict`] means that the name belongs to another subject.
    /// [`CommitError::Stale`] means that this subject was pinned concurrently.
    async fn commit_pin(&self, scope: TenantScope, pin: &PinnedIdentity, fact: Fact) -> Result<(), CommitError>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Timestamp;
    use time::OffsetDateTime;

    fn identity(subject: &str, name: Option<&str>) -> VerifiedIdentity {
        VerifiedIdentity {
            issuer: "https://idp.example".into(),
            subject: subject.into(),
            kind: IdentityKind::Person,
            name: name.map(str::to_owned),
            groups: GroupsClaim::Absent,
            tenant: TenantClaim::NotConfigured,
            email: None,
            expires_at: Timestamp::new(OffsetDateTime::UNIX_EPOCH),
            bound_tenant: None,
        }
    }

    #[test]
    fn names_persons_by_claim_and_services_by_client() {
        assert_eq!(name_to_pin(&identity("1", Some("Ada"))).to_string(), "user:ada");
        assert_eq!(name_to_pin(&identity("1", Some("ada@corp.example"))).to_string(), "user:ada@corp.example");
        let service = IdentityKind::Service { client_id: "ci".into() };
        assert_eq!(name_to_pin(&VerifiedIdentity { kind: service, ..identity("ci", None) }).to_string(), "service:ci");
    }

    #[test]
    fn derives_names_that_no_claim_can_imitate() {
        let derived = name_to_pin(&identity("1", None)).to_string();
        assert!(derived.starts_with("user:sub-") && derived.len() == "user:sub-".len() + SUBJECT_DIGITS, "{derived}");
        let imitated = derived.strip_prefix("user:").unwrap();
        for name in [imitated, "ada@default", "", "a b", "ada:x", "-ada", "ädä"] {
            let actor = name_to_pin(&identity("2", Some(name))).to_string();
            assert!(actor.starts_with("user:sub-") && actor != derived, "{name}: {actor}");
        }
        let other_issuer = VerifiedIdentity { issuer: "https://idp".into(), ..identity(".example1", None) };
        assert_ne!(name_to_pin(&identity("1", None)), name_to_pin(&other_issuer));
        // The length of the issuer separates it from the subject, so these two pairs differ.
        let other_split = VerifiedIdentity { issuer: "https://idp.example1".into(), ..identity("", None) };
        assert_ne!(name_to_pin(&identity("1", None)), name_to_pin(&other_split));
    }

    #[test]
    fn takes_all_groups_or_none() {
        let listed = |names: &[&str]| GroupsClaim::Listed(names.iter().map(|name| (*name).to_owned()).collect());
        let groups = group_actors(&listed(&["/Ops", "ops", "team-a", "no spaces", "", "a/b", "ops@acme"])).unwrap();
        assert_eq!(groups.iter().map(ToString::to_string).collect::<Vec<_>>(), ["group:ops", "group:team-a"]);
        assert_eq!(group_actors(&GroupsClaim::Absent), Ok(Vec::new()));
        assert_eq!(group_actors(&GroupsClaim::Overage { source: None }), Err(IdentityRefusal::GroupsIncomplete));
        let many: Vec<String> = (0..=MAX_GROUPS).map(|number| format!("g{number}")).collect();
        assert_eq!(group_actors(&GroupsClaim::Listed(many)), Err(IdentityRefusal::TooManyGroups));
    }

    #[test]
    fn a_bound_issuer_names_no_other_tenant() {
        let claim = |tenant: &str| TenantClaim::Named { claim: "org".into(), tenant: tenant.into() };
        let tenant_slug_of = |tenant: TenantClaim, bound: Option<&str>| {
            let bound_tenant = bound.map(|slug| Slug::parse(slug).unwrap());
            tenant_slug(&VerifiedIdentity { tenant, bound_tenant, ..identity("1", None) })
        };
        let unknown = Err(IdentityRefusal::TenantUnknown { claim: Some("org".into()) });
        assert_eq!(tenant_slug_of(TenantClaim::NotConfigured, None), Ok(None));
        assert_eq!(tenant_slug_of(TenantClaim::NotConfigured, Some("acme")), Ok(Some(Slug::parse("acme").unwrap())));
        assert_eq!(tenant_slug_of(claim("acme"), None), Ok(Some(Slug::parse("acme").unwrap())));
        assert_eq!(tenant_slug_of(claim("acme"), Some("acme")), Ok(Some(Slug::parse("acme").unwrap())));
        assert_eq!(tenant_slug_of(claim("other"), Some("acme")), unknown);
        assert_eq!(tenant_slug_of(claim("No Slug"), None), unknown);
        let missing = TenantClaim::Missing { claim: "org".into() };
        assert_eq!(tenant_slug_of(missing, Some("acme")), Err(IdentityRefusal::TenantMissing { claim: "org".into() }));
    }
}
