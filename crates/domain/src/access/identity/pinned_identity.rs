//! Pinned identities: the actor name that an issuer's subject keeps in a tenant.
//!
//! The first request of a subject pins its name. From then on the name belongs to that subject, whatever later tokens
//! claim, so that grants to a name never pass to another person.

use super::{GroupsClaim, IdentityKind, NameHolder, TenantClaim, VerifiedIdentity};
use crate::{
    access::{ActorKind, ActorRef},
    audit::{Fact, FactKind, Stamp, Subject},
    id::{IdentityId, TenantId},
    notification_category::NotificationCategory,
    slug::Slug,
    store::{CommitError, StoreError},
    tenant::TenantScope,
};
use async_trait::async_trait;
use serde_json::json;
use std::fmt;

/// Maximum groups of a subject. More would make each permission check slow.
const MAX_GROUPS: usize = 500;
/// Prefix of the names of subjects without a usable name claim.
const SUBJECT_PREFIX: &str = "sub-";
/// Hexadecimal digits after [`SUBJECT_PREFIX`].
const SUBJECT_DIGITS: usize = 16;

/// An issuer's subject with the actor name that it has in a tenant. `Debug` output omits the person.
#[derive(Clone, PartialEq, Eq)]
pub struct PinnedIdentity {
    /// The identifier of the pin.
    pub identity_id: IdentityId,
    /// The issuer.
    pub issuer: String,
    /// The subject at the issuer.
    pub subject: String,
    /// The actor name that the subject permanently has in the tenant.
    pub actor: ActorRef,
    /// The groups that the subject presented last.
    pub groups: Vec<ActorRef>,
    /// The verified e-mail address of the last sign-in.
    pub email: Option<String>,
}

impl fmt::Debug for PinnedIdentity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("PinnedIdentity").field("identity_id", &self.identity_id).finish_non_exhaustive()
    }
}

/// The fields of a pinned identity that a newly verified identity replaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplacedFields {
    /// The groups.
    pub groups: bool,
    /// The e-mail address.
    pub email: bool,
}

impl ReplacedFields {
    /// For a sign-in, which presents groups and e-mail address.
    pub const BY_SIGN_IN: Self = Self { groups: true, email: true };

    /// For an access token, which does not update the e-mail address and may omit the groups.
    #[must_use]
    pub const fn by_access_token(groups: &GroupsClaim) -> Self {
        Self { groups: !matches!(groups, GroupsClaim::Absent), email: false }
    }
}

/// Reason why a verified identity is not served.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum IdentityRefusal {
    /// Another subject has the name.
    #[error("another subject has the actor name of this identity")]
    NameTaken,
    /// The configured tenant claim is absent.
    #[error("the token has no usable tenant claim")]
    TenantMissing {
        /// The name of the claim.
        claim: String,
    },
    /// The named tenant does not exist, or it differs from the tenant to which the configuration binds the issuer.
    #[error("the token names no tenant of its issuer")]
    TenantUnknown {
        /// The name of the claim; `None` if the configuration names the tenant.
        claim: Option<String>,
    },
    /// The token does not list all groups of its subject.
    #[error("the token does not list all groups of its subject")]
    GroupsIncomplete,
    /// The token lists too many groups.
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

    /// The claim from which no valid tenant could be read; `None` for refusals that concern no tenant claim.
    #[must_use]
    pub fn tenant_claim(&self) -> Option<&str> {
        match self {
            Self::TenantMissing { claim } | Self::TenantUnknown { claim: Some(claim) } => Some(claim),
            Self::NameTaken | Self::TenantUnknown { claim: None } | Self::GroupsIncomplete | Self::TooManyGroups => {
                None
            }
        }
    }
}

/// The slug of the tenant that an identity belongs to; `None` for the default tenant.
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

/// The name under which a subject is pinned: the configured claim in lower case, or the client of a service. If the
/// claim is not a valid actor name or imitates a reserved name, the name is derived from issuer and subject.
#[must_use]
pub fn name_to_pin(identity: &VerifiedIdentity) -> ActorRef {
    claimed_name(identity).unwrap_or_else(|kind| ActorRef::of_subject(kind, &subject_digest(identity)))
}

/// Whether a claim gives the actor name.
pub(super) fn is_claimed_name(identity: &VerifiedIdentity) -> bool {
    claimed_name(identity).is_ok()
}

/// The actor name from the claim; without a usable claim, an error with the kind of the actor.
fn claimed_name(identity: &VerifiedIdentity) -> Result<ActorRef, ActorKind> {
    let (kind, claim) = match &identity.kind {
        IdentityKind::Person => (ActorKind::User, identity.name.as_deref()),
        IdentityKind::Service { client_id } => (ActorKind::Service, Some(client_id.as_str())),
    };
    let claim = claim.map(str::to_lowercase).filter(|name| !is_reserved(name));
    claim.and_then(|name| ActorRef::parse(&format!("{}:{name}", kind.as_str())).ok()).ok_or(kind)
}

/// Whether a claimed name imitates a derived name, or the name of a platform operator from another tenant
/// (`ada@<tenant>`). A domain name has a dot, so e-mail addresses are not reserved.
fn is_reserved(name: &str) -> bool {
    let is_derived = name
        .strip_prefix(SUBJECT_PREFIX)
        .is_some_and(|suffix| suffix.len() == SUBJECT_DIGITS && suffix.bytes().all(|byte| byte.is_ascii_hexdigit()));
    is_derived || is_visitor_name(name)
}

fn is_visitor_name(name: &str) -> bool {
    name.rsplit_once('@').is_some_and(|(_, suffix)| !suffix.contains('.'))
}

/// The digest of issuer and subject. The length prefix separates the two texts, so that different pairs hash
/// different bytes.
fn subject_digest(identity: &VerifiedIdentity) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&(identity.issuer.len() as u64).to_be_bytes());
    hasher.update(identity.issuer.as_bytes()).update(identity.subject.as_bytes());
    let digest = hasher.finalize().to_hex();
    digest.as_str().get(..SUBJECT_DIGITS).unwrap_or_default().to_owned()
}

/// The groups of an identity as principals. Group names are converted to lower case without a leading `/`. Names that
/// are not valid actor names are omitted, because no role can be bound to them.
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

/// The principal of one group name; `None` if no role can be bound to the name.
#[must_use]
pub fn group_actor(name: &str) -> Option<ActorRef> {
    let name = name.strip_prefix('/').unwrap_or(name).to_lowercase();
    if is_visitor_name(&name) { None } else { ActorRef::parse(&format!("group:{name}")).ok() }
}

impl PinnedIdentity {
    /// Pins an identity under its name.
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

    /// The fact of the pin. It contains the name, which other facts contain anyway, and omits the claims.
    #[must_use]
    pub fn pinned_fact(&self, stamp: &Stamp) -> Fact {
        let stamp = Stamp { actor: self.actor.clone(), ..stamp.clone() };
        Fact::new(FactKind::IdentityPinned, self.subject(), None, &stamp, json!({ "actor": self.actor }))
    }

    /// The fact of a refused pin: another subject has the name.
    #[must_use]
    pub fn refused_fact(&self, stamp: &Stamp) -> Fact {
        let detail = json!({ "actor": self.actor, "reason_code": IdentityRefusal::NameTaken.code() });
        Fact::new(FactKind::IdentityRefused, self.subject(), None, stamp, detail)
            .with_notification_categories([NotificationCategory::ComplianceFindings])
    }

    /// The fact that the server authenticated an administrator whom the configuration names. No role binding shows the
    /// rights of such an administrator.
    #[must_use]
    pub fn bootstrap_fact(&self, stamp: &Stamp) -> Fact {
        let stamp = Stamp { actor: self.actor.clone(), ..stamp.clone() };
        Fact::new(FactKind::BootstrapAdminSeen, self.subject(), None, &stamp, json!({ "actor": self.actor }))
            .with_notification_categories([NotificationCategory::PolicyChanges])
    }

    fn subject(&self) -> Subject {
        Subject { kind: "identity", id: self.identity_id.uuid() }
    }
}

/// Stores pinned identities.
#[async_trait]
pub trait IdentityStore: Send + Sync {
    /// The tenant with a slug.
    async fn find_tenant(&self, slug: &Slug) -> Result<Option<TenantId>, StoreError>;
    /// The slug of a tenant.
    async fn find_tenant_slug(&self, tenant: TenantId) -> Result<Option<Slug>, StoreError>;
    /// Returns the pinned identity of a subject with the presented groups and e-mail address, and stores the fields
    /// that `replaces` selects. `None` if the subject is not pinned.
    async fn refresh(
        &self,
        scope: TenantScope,
        presented: &PinnedIdentity,
        replaces: ReplacedFields,
    ) -> Result<Option<PinnedIdentity>, StoreError>;
    /// The holder of an identity's name. This method changes no stored state.
    async fn name_holder(&self, scope: TenantScope, presented: &PinnedIdentity) -> Result<NameHolder, StoreError>;
    /// The groups that an actor presented last, at a sign-in or with an access token; empty if no identity has the
    /// name.
    async fn groups_of(&self, scope: TenantScope, actor: &ActorRef) -> Result<Vec<ActorRef>, StoreError>;
    /// Pins an identity. [`CommitError::Conflict`] means that another subject has the name, and
    /// [`CommitError::Stale`] that this subject was pinned concurrently.
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
        // The length prefix separates issuer and subject.
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
