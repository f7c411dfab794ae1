//! The mapping of a verified identity to an actor and its groups. It has one verdict for each rule, for an
//! administrator who tests a sign-in.

use super::{
    GroupsClaim, IdentityRefusal, TenantClaim, VerifiedIdentity, group_actor, group_actors, name_to_pin,
    pinned_identity,
};
use crate::access::ActorRef;

/// A rule that derives one attribute of the caller from the claims.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MappingRule {
    /// The name claim determines the actor name.
    Name,
    /// The groups claim determines the groups.
    Groups,
    /// The tenant claim, or the configuration, determines the tenant.
    Tenant,
    /// An actor name belongs to one subject of an issuer permanently.
    Pin,
    /// The e-mail claim determines the address for mail, if the issuer verified the address.
    Email,
}

impl MappingRule {
    /// The name of the rule in the report of a test sign-in.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Groups => "groups",
            Self::Tenant => "tenant",
            Self::Pin => "pin",
            Self::Email => "email",
        }
    }
}

/// The effect of one rule on an identity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MappingOutcome {
    /// The claim is valid and was used. The text describes the result.
    Applied(String),
    /// The claim is absent or unusable and has no effect, for the reason in the text. The sign-in continues.
    Ignored(String),
    /// The rule refuses the sign-in for this reason.
    Refused(IdentityRefusal),
}

/// The owner of an actor name in a tenant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NameHolder {
    /// Neither the name nor the subject is pinned.
    Nobody,
    /// The subject already has this permanent actor name.
    Subject(ActorRef),
    /// The name belongs to another subject.
    Another,
}

/// The verdicts of the rules that read only the claims. This function changes no state.
#[must_use]
pub fn evaluate_claim_mappings(identity: &VerifiedIdentity) -> Vec<(MappingRule, MappingOutcome)> {
    vec![
        (MappingRule::Name, name_verdict(identity)),
        (MappingRule::Groups, groups_verdict(&identity.groups)),
        (MappingRule::Tenant, tenant_verdict(identity)),
        (MappingRule::Email, email_verdict(identity)),
    ]
}

/// The verdict of [`MappingRule::Pin`]. It refuses the sign-in if the actor name belongs to another subject.
#[must_use]
pub fn evaluate_pin_rule(identity: &VerifiedIdentity, holder: &NameHolder) -> MappingOutcome {
    match holder {
        NameHolder::Nobody => MappingOutcome::Applied(format!("the first sign-in pins {}", name_to_pin(identity))),
        NameHolder::Subject(actor) => MappingOutcome::Applied(format!("the subject is pinned as {actor}")),
        NameHolder::Another => MappingOutcome::Refused(IdentityRefusal::NameTaken),
    }
}

fn name_verdict(identity: &VerifiedIdentity) -> MappingOutcome {
    let actor = name_to_pin(identity);
    if pinned_identity::is_claimed_name(identity) {
        MappingOutcome::Applied(actor.to_string())
    } else {
        let reason = if identity.name.is_some() { "is no actor name" } else { "is absent" };
        MappingOutcome::Ignored(format!("the claim {reason}; issuer and subject give {actor}"))
    }
}

fn groups_verdict(groups: &GroupsClaim) -> MappingOutcome {
    let actors = match group_actors(groups) {
        Ok(actors) => actors,
        Err(refusal) => return MappingOutcome::Refused(refusal),
    };
    let GroupsClaim::Listed(group_names) = groups else {
        return MappingOutcome::Ignored("the claim is absent; the person has no groups".to_owned());
    };
    let dropped_count = group_names.iter().filter(|name| group_actor(name).is_none()).count();
    let names: Vec<String> = actors.iter().map(ToString::to_string).collect();
    let group_list = if names.is_empty() { "no groups".to_owned() } else { names.join(", ") };
    if dropped_count == 0 {
        MappingOutcome::Applied(group_list)
    } else {
        MappingOutcome::Applied(format!(
            "{group_list}; {dropped_count} left out, because no role can be bound to their names"
        ))
    }
}

fn tenant_verdict(identity: &VerifiedIdentity) -> MappingOutcome {
    match (pinned_identity::tenant_slug(identity), &identity.tenant) {
        (Err(refusal), _) => MappingOutcome::Refused(refusal),
        (Ok(None), _) => MappingOutcome::Applied("default; no tenant claim is configured".to_owned()),
        (Ok(Some(slug)), TenantClaim::Named { .. }) => MappingOutcome::Applied(slug.to_string()),
        (Ok(Some(slug)), TenantClaim::NotConfigured | TenantClaim::Missing { .. }) => {
            MappingOutcome::Applied(format!("{slug}; the issuer is bound to it"))
        }
    }
}

fn email_verdict(identity: &VerifiedIdentity) -> MappingOutcome {
    match &identity.email {
        Some(email) => MappingOutcome::Applied(email.clone()),
        None => MappingOutcome::Ignored("no verified address; the person receives no mail".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{access::identity::IdentityKind, slug::Slug, time::Timestamp};
    use time::OffsetDateTime;

    fn identity() -> VerifiedIdentity {
        VerifiedIdentity {
            issuer: "https://idp.example".into(),
            subject: "1".into(),
            kind: IdentityKind::Person,
            name: Some("Ada".into()),
            groups: GroupsClaim::Listed(vec!["/Ops".into(), "no spaces".into()]),
            tenant: TenantClaim::NotConfigured,
            email: Some("ada@people.example".into()),
            expires_at: Timestamp::new(OffsetDateTime::UNIX_EPOCH),
            bound_tenant: None,
        }
    }

    fn verdict(identity: &VerifiedIdentity, rule: MappingRule) -> MappingOutcome {
        evaluate_claim_mappings(identity).into_iter().find(|(found, _)| *found == rule).unwrap().1
    }

    #[test]
    fn applied_rules_show_their_effect() {
        let expected = [
            "user:ada",
            "group:ops; 1 left out, because no role can be bound to their names",
            "default; no tenant claim is configured",
            "ada@people.example",
        ];
        let applied = evaluate_claim_mappings(&identity()).into_iter().map(|(_, verdict)| verdict);
        assert_eq!(applied.collect::<Vec<_>>(), expected.map(|text| MappingOutcome::Applied(text.to_owned())));
    }

    #[test]
    fn unusable_claims_are_ignored_or_refused() {
        let unusable = VerifiedIdentity {
            name: Some("a b".into()),
            groups: GroupsClaim::Overage { source: None },
            tenant: TenantClaim::Missing { claim: "org".into() },
            email: None,
            ..identity()
        };
        let is_ignored = |rule| matches!(verdict(&unusable, rule), MappingOutcome::Ignored(_));
        assert!(is_ignored(MappingRule::Name) && is_ignored(MappingRule::Email));
        let assert_refused = |rule, refusal| assert_eq!(verdict(&unusable, rule), MappingOutcome::Refused(refusal));
        assert_refused(MappingRule::Groups, IdentityRefusal::GroupsIncomplete);
        assert_refused(MappingRule::Tenant, IdentityRefusal::TenantMissing { claim: "org".into() });
        let bound_identity = VerifiedIdentity { bound_tenant: Slug::parse("acme").ok(), ..identity() };
        assert_eq!(
            verdict(&bound_identity, MappingRule::Tenant),
            MappingOutcome::Applied("acme; the issuer is bound to it".to_owned())
        );
    }

    #[test]
    fn a_name_belongs_to_one_subject() {
        let verdict_for = |holder| evaluate_pin_rule(&identity(), &holder);
        assert_eq!(verdict_for(NameHolder::Another), MappingOutcome::Refused(IdentityRefusal::NameTaken));
        let pinned_subject = NameHolder::Subject(ActorRef::parse("user:countess").unwrap());
        assert_eq!(
            verdict_for(pinned_subject),
            MappingOutcome::Applied("the subject is pinned as user:countess".to_owned())
        );
        assert_eq!(
            verdict_for(NameHolder::Nobody),
            MappingOutcome::Applied("the first sign-in pins user:ada".to_owned())
        );
    }
}
