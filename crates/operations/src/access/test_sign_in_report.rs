//! Test sign-ins: show an administrator who configures an identity provider the effect that a sign-in would have.

use super::{CallerResolver, IdentityResolver};
use crate::{
    Failure, Stores, access::authorize::missing_permission, commit_context::CommitContext, services::SharedState,
};
use fairway_domain::{
    access::{
        ActorRef, Caller, Grant, Permission, ResourcePosition,
        identity::{
            IdentityStore, MappingOutcome, MappingRule, NameHolder, PinnedIdentity, VerifiedIdentity,
            evaluate_claim_mappings, evaluate_pin_rule, group_actors, name_to_pin,
        },
        sign_in_provider::SignedInPerson,
    },
    id::TenantId,
    tenant::TenantScope,
    time::Timestamp,
};
use std::sync::Arc;

/// The effect that a sign-in would have, for the administrator who configures the provider.
#[derive(Clone, Debug)]
pub struct TestSignInReport {
    /// Each mapping rule with its verdict, in the order in which a sign-in applies the rules.
    pub verdicts: Vec<(MappingRule, MappingOutcome)>,
    /// The principal that would sign in; `None` if a rule refuses the identity.
    pub principal: Option<TestedPrincipal>,
    /// The provider's clock compared with this server's clock; `None` if the ID token has no time of issue.
    pub clock: Option<ClockDifference>,
}

/// The difference between two clocks, in whole seconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClockDifference {
    /// The provider's clock is this far ahead, possibly zero.
    Ahead(u64),
    /// The provider's clock is this far behind.
    Behind(u64),
}

impl ClockDifference {
    /// Computes the difference from the issue time of a token that the provider has just issued.
    fn of_new_token(issued_at: Timestamp, now: Timestamp) -> Self {
        match issued_at.duration_until(now).as_secs() {
            0 => Self::Ahead(now.duration_until(issued_at).as_secs()),
            seconds => Self::Behind(seconds),
        }
    }
}

/// The principal that a sign-in would yield.
#[derive(Clone, Debug)]
pub struct TestedPrincipal {
    /// The actor that the sign-in would yield.
    pub actor: ActorRef,
    /// The groups to which the actor would belong.
    pub groups: Vec<ActorRef>,
    /// The home tenant of the actor.
    pub tenant: TenantId,
    /// The roles of the actor and its groups.
    pub grants: Vec<Grant>,
}

/// Operations on test sign-ins. They store no session, no pinned identity and no groups.
#[derive(Clone)]
pub struct TestSignIns {
    context: CommitContext,
    identity_store: Arc<dyn IdentityStore>,
    identities: Arc<CallerResolver>,
    identity_resolver: Arc<IdentityResolver>,
}

impl TestSignIns {
    pub(crate) fn new(
        stores: &Stores,
        shared: &SharedState,
        identities: &Arc<CallerResolver>,
        identity_resolver: &Arc<IdentityResolver>,
    ) -> Self {
        Self {
            context: shared.context.clone(),
            identity_store: Arc::clone(&stores.identities),
            identities: Arc::clone(identities),
            identity_resolver: Arc::clone(identity_resolver),
        }
    }

    /// Checks that a caller may test sign-ins. A test requires management of the platform, because identity providers
    /// serve the whole platform. Its report also shows the claims of the person who signs in.
    ///
    /// # Errors
    /// Forbidden without `platform.manage` on the platform.
    pub fn authorize(&self, caller: &Caller) -> Result<(), Failure> {
        if caller.rights.allow(Permission::PlatformManage, &ResourcePosition::INSTALLATION) {
            Ok(())
        } else {
            Err(missing_permission(caller, Permission::PlatformManage))
        }
    }

    /// Reports the effect that a sign-in of this person would have. A rule that refuses the identity is part of the
    /// report, not an error.
    ///
    /// # Errors
    /// As [`Self::authorize`], and when the store fails.
    pub async fn report(&self, caller: &Caller, person: &SignedInPerson) -> Result<TestSignInReport, Failure> {
        self.authorize(caller)?;
        let now = self.context.clock.now();
        let clock = person.issued_at.map(|issued_at| ClockDifference::of_new_token(issued_at, now));
        let (verdicts, principal) = self.map(&person.identity).await?;
        Ok(TestSignInReport { verdicts, principal, clock })
    }

    /// Returns the verdict of each mapping rule, and the principal if every rule accepts the identity.
    async fn map(
        &self,
        identity: &VerifiedIdentity,
    ) -> Result<(Vec<(MappingRule, MappingOutcome)>, Option<TestedPrincipal>), Failure> {
        let mut verdicts = evaluate_claim_mappings(identity);
        let tenant = match self.identity_resolver.tenant_of(identity).await {
            Ok(tenant) => tenant,
            Err(Failure::Identity(refusal)) => {
                // The claim may name a tenant that does not exist. Only this query of the store detects that.
                verdicts.retain(|(rule, _)| *rule != MappingRule::Tenant);
                verdicts.push((MappingRule::Tenant, MappingOutcome::Refused(refusal)));
                return Ok((verdicts, None));
            }
            Err(failure) => return Err(failure),
        };
        let groups = group_actors(&identity.groups);
        let presented = PinnedIdentity::pin(self.context.new_id(), identity, groups.clone().unwrap_or_default());
        let holder = self.identity_store.name_holder(TenantScope::for_identity(tenant), &presented).await?;
        verdicts.push((MappingRule::Pin, evaluate_pin_rule(identity, &holder)));
        let actor = match holder {
            NameHolder::Nobody => name_to_pin(identity),
            NameHolder::Subject(actor) => actor,
            NameHolder::Another => return Ok((verdicts, None)),
        };
        let Ok(groups) = groups else { return Ok((verdicts, None)) };
        let principals: Vec<ActorRef> = std::iter::once(&actor).chain(&groups).cloned().collect();
        let grants = self.identities.grants_in_home_tenant(tenant, &principals).await?;
        Ok((verdicts, Some(TestedPrincipal { actor, groups, tenant, grants })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_of_clocks_have_a_direction() {
        let at = |seconds: u8| Timestamp::parse(&format!("2026-11-28T10:00:{seconds:02}Z")).unwrap();
        assert_eq!(ClockDifference::of_new_token(at(10), at(10)), ClockDifference::Ahead(0));
        assert_eq!(ClockDifference::of_new_token(at(17), at(10)), ClockDifference::Ahead(7));
        assert_eq!(ClockDifference::of_new_token(at(10), at(52)), ClockDifference::Behind(42));
    }
}
