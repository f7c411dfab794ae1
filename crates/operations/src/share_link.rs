//! Share links: made, listed and taken back by those who manage them, and brought along by those who were sent one.

use crate::{
    Done, Failure, Services,
    access::{Claims, Operation},
    once::{ATTEMPTS, keyed},
};
use fairway_domain::{
    access::{ActorKind, Caller},
    id::{ShareLinkId, TenantId, WorkloadId},
    idempotency::RequestKey,
    share_link::{NewShareLink, SeenLink, ShareLink, ShareTerms, ShareToken, TokenRefusal},
    store::{CommitError, Listed, Paging},
    tenant::{DEFAULT_TENANT, TenantScope, is_public_host},
    throttle::{ClientAddress, Counted, Quota},
    workload::{Workload, WorkloadRefusal},
};

/// A link, and its token where this request made it: it is shown once.
#[derive(Clone, Debug)]
pub struct MadeLink {
    /// The link.
    pub link: ShareLink,
    /// Its token; `None` where an earlier request made the link.
    pub token: Option<ShareToken>,
}

/// Who comes to a runtime interface, before anything was looked up.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// Who the request says that it is from.
    pub claims: Claims,
    /// Whether it says so itself, or nothing.
    pub named: bool,
    /// The share token that it carries.
    pub brought: Option<Brought>,
    /// Where it comes from.
    pub address: ClientAddress,
    /// The name of the host that it is for.
    pub host: Option<String>,
}

/// What stands where a share token belongs.
#[derive(Clone, Debug)]
pub enum Brought {
    /// Something that has the form of one.
    Token(ShareToken),
    /// Something that cannot be one.
    Nonsense,
}

/// Who comes to a runtime interface, with the link that opens it where there is one.
#[derive(Clone, Debug)]
pub struct Visit {
    /// Who it is: the link's holder where the request names nobody.
    pub claims: Claims,
    /// The link.
    pub pass: Option<Pass>,
    /// Where the request comes from.
    pub address: ClientAddress,
}

/// A link that was open when its request came. It is good for that request alone, and its accept proves it again.
#[derive(Clone, Debug)]
pub struct Pass {
    tenant: TenantId,
    seen: SeenLink,
}

impl Pass {
    /// The link.
    pub(crate) const fn link(&self) -> &ShareLink {
        &self.seen.link
    }

    /// Whether it opens this workload, and so no other.
    pub(crate) fn opens(&self, caller: &Caller, workload: &Workload) -> Result<(), TokenRefusal> {
        let same = self.tenant == caller.tenant && self.seen.link.workload_id == workload.workload_id;
        if same { Ok(()) } else { Err(TokenRefusal::Invalid) }
    }

    /// Whether it starts a run.
    pub(crate) fn starts_a_run(&self) -> Result<(), TokenRefusal> {
        self.seen.starts_a_run()
    }
}

impl Services {
    /// Makes a link to a workload.
    ///
    /// # Errors
    /// Not found when the caller does not see the workload; when it may not manage its links, what it wants of the link is
    /// not allowed, or the workload is retired.
    pub async fn create_share_link(
        &self,
        caller: &Caller,
        workload: WorkloadId,
        terms: ShareTerms,
        key: Option<&RequestKey>,
    ) -> Result<Done<MadeLink>, Failure> {
        let (scope, workload) = self.enter_workload(caller, Operation::CreateShareLink, workload).await?;
        self.once(
            scope,
            key,
            async || {
                workload.check_accepts_new()?;
                let id: ShareLinkId = self.id();
                let change = NewShareLink::create(id, &workload, terms, &self.stamp(caller))?;
                let new = change.next.clone();
                let token = ShareToken::of(scope.tenant(), self.ids.secret());
                let outcome = keyed(key, 201, id.uuid());
                let links = &self.stores.share_links;
                let expires_at = match links.commit_new(scope, change, &token.hash(), outcome.as_ref()).await {
                    // The statement writes nothing for a workload that was retired since it was read.
                    Err(CommitError::Stale) => return Err(WorkloadRefusal::Retired.into()),
                    committed => committed?,
                };
                Ok(MadeLink { link: new.kept(expires_at), token: Some(token) })
            },
            async |id| {
                let found = self.stores.share_links.find(scope, workload.workload_id, id.into()).await?;
                Ok(MadeLink { link: found.ok_or(Failure::NotFound)?.link, token: None })
            },
        )
        .await
    }

    /// The links of a workload, newest first, those that open nothing any more among them.
    ///
    /// # Errors
    /// As [`Self::create_share_link`].
    pub async fn list_share_links(
        &self,
        caller: &Caller,
        workload: WorkloadId,
        page: Paging,
    ) -> Result<Listed<ShareLink>, Failure> {
        let (scope, workload) = self.enter_workload(caller, Operation::ListShareLinks, workload).await?;
        Ok(self.stores.share_links.list(scope, workload.workload_id, page).await?)
    }

    /// One link of a workload, also when it opens nothing any more.
    ///
    /// # Errors
    /// As [`Self::create_share_link`]; besides not found when the workload has no such link.
    pub async fn read_share_link(
        &self,
        caller: &Caller,
        workload: WorkloadId,
        id: ShareLinkId,
    ) -> Result<ShareLink, Failure> {
        let (scope, workload) = self.enter_workload(caller, Operation::ReadShareLink, workload).await?;
        let found = self.stores.share_links.find(scope, workload.workload_id, id).await?;
        Ok(found.ok_or(Failure::NotFound)?.link)
    }

    /// Takes a link back. From then on it opens nothing, in any process.
    ///
    /// # Errors
    /// As [`Self::create_share_link`]; besides not found when the workload has no such link, or it was taken back.
    pub async fn revoke_share_link(
        &self,
        caller: &Caller,
        workload: WorkloadId,
        id: ShareLinkId,
    ) -> Result<(), Failure> {
        let (scope, workload) = self.enter_workload(caller, Operation::RevokeShareLink, workload).await?;
        for _ in 0..ATTEMPTS {
            let found = self.stores.share_links.find(scope, workload.workload_id, id).await?;
            let link = found.map(|seen| seen.link).filter(|link| !link.revoked).ok_or(Failure::NotFound)?;
            let fact = link.revocation(&workload, &self.stamp(caller));
            match self.stores.share_links.commit_revocation(scope, &link, fact).await {
                Err(CommitError::Stale) => continue,
                committed => committed?,
            }
            self.wake.facts();
            return Ok(());
        }
        Err(Failure::Contended)
    }

    /// The claims with the tenant that an `anonymous` caller comes to by the host that it asks for; others name their own.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn at_host(&self, claims: Claims, host: Option<&str>) -> Result<Claims, Failure> {
        // Other hosts are no tenant's, whatever was stored before that was a rule, or before the operator used the name.
        let is_tenants =
            |host: &str| is_public_host(host) && !self.settings.operator_hosts.iter().any(|own| own == host);
        match host.filter(|host| claims.actor.kind() == ActorKind::Anonymous && is_tenants(host)) {
            Some(host) => Ok(Claims { tenant: self.stores.tenants.of_host(host).await?, ..claims }),
            None => Ok(claims),
        }
    }

    /// Looks up the link of the token that somebody brings, and whose tenant somebody without an identity comes to: that of
    /// the token, else the one that answers to the host, else the first. Whoever brings one uses it, needed or not, and one that opens
    /// nothing is never passed over.
    ///
    /// # Errors
    /// When no link has the token, its link was revoked or has expired, or its bearer tries too many; not found when the
    /// request is about another tenant than the token.
    pub async fn receive(&self, arrival: Arrival) -> Result<Visit, Failure> {
        let Arrival { claims, named, brought, address, host } = arrival;
        let nobody = claims.actor.kind() == ActorKind::Anonymous;
        // Who holds no role anywhere has no tenant to choose.
        if nobody && claims.tenant.is_some() {
            return Err(Failure::NotFound);
        }
        let Some(brought) = brought else {
            return Ok(Visit { claims: self.at_host(claims, host.as_deref()).await?, pass: None, address });
        };
        self.is_not_refused(&Counted::Guesses(address))?;
        let Brought::Token(token) = brought else { return Err(self.guessed(address).await) };
        let tenant = token.tenant();
        let found = self.stores.share_links.find_by_token(TenantScope::of_token(&token), &token.hash()).await?;
        let Some(seen) = found.filter(|seen| seen.hash == token.hash()) else {
            return Err(self.guessed(address).await);
        };
        seen.is_open()?;
        let claims = if named && nobody {
            Claims { tenant: Some(tenant), ..claims }
        } else if named {
            claims
        } else if claims.tenant.is_some_and(|wanted| wanted != tenant) {
            return Err(Failure::NotFound);
        } else {
            Claims { actor: seen.link.holder(), groups: Vec::new(), tenant: Some(tenant) }
        };
        Ok(Visit { claims, pass: Some(Pass { tenant, seen }), address })
    }

    /// The refusal of a token that no link has. It is counted, so that nobody tries many: of a token that is nobody's it is
    /// not known whose it was to be, so all are counted with the first tenant.
    async fn guessed(&self, address: ClientAddress) -> Failure {
        let Quota { per_minute, .. } = self.settings.public_rate;
        let quota = Quota { per_minute, burst: per_minute };
        let scope = TenantScope::for_relay(DEFAULT_TENANT.into());
        match self.count(scope, Counted::Guesses(address), quota).await {
            Ok(()) => Failure::Token(TokenRefusal::Invalid),
            Err(refused) => refused,
        }
    }
}
