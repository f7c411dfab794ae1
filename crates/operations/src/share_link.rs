//! Share links: creating, listing, revoking and verifying them.

use crate::{
    Done, Failure, Services,
    access::{Claims, Operation},
    once::{ATTEMPTS, keyed},
};
use fairway_domain::{
    access::{ActorKind, Caller},
    id::{ShareLinkId, TenantId, WorkloadId},
    idempotency::RequestKey,
    share_link::{NewShareLink, ShareLinkSnapshot, ShareLink, ShareTerms, ShareToken, TokenRefusal},
    store::{CommitError, Page, PageRequest},
    tenant::{DEFAULT_TENANT, TenantScope, is_public_host},
    throttle::{ClientAddress, Counted, Quota},
    workload::{Workload, WorkloadRefusal},
};

/// A link, with its token if this request created it: the token is shown once.
#[derive(Clone, Debug)]
pub struct CreatedLink {
    /// The link.
    pub link: ShareLink,
    /// Its token; `None` on a replay.
    pub token: Option<ShareToken>,
}

/// A request to a runtime interface, before any lookup.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// The identity claims of the request.
    pub claims: Claims,
    /// Whether the request itself claims an identity.
    pub named: bool,
    /// The share token of the request.
    pub brought: Option<PresentedToken>,
    /// The client's address.
    pub address: ClientAddress,
    /// The requested host name.
    pub host: Option<String>,
}

/// The content of a request's share token field.
#[derive(Clone, Debug)]
pub enum PresentedToken {
    /// A well-formed token.
    Token(ShareToken),
    /// A malformed token.
    Nonsense,
}

/// The caller of a runtime interface, with its verified share link.
#[derive(Clone, Debug)]
pub struct RuntimeCaller {
    /// The claims: the link's holder if the request claims no identity.
    pub claims: Claims,
    /// The verified share link.
    pub pass: Option<Pass>,
    /// The client's address.
    pub address: ClientAddress,
}

/// A share link that was open when its request arrived. It applies to that request only, and the accept statement
/// verifies it again.
#[derive(Clone, Debug)]
pub struct Pass {
    tenant: TenantId,
    seen: ShareLinkSnapshot,
}

impl Pass {
    /// The link.
    pub(crate) const fn link(&self) -> &ShareLink {
        &self.seen.link
    }

    /// Checks that the link belongs to this workload.
    pub(crate) fn opens(&self, caller: &Caller, workload: &Workload) -> Result<(), TokenRefusal> {
        let same = self.tenant == caller.tenant && self.seen.link.workload_id == workload.workload_id;
        if same { Ok(()) } else { Err(TokenRefusal::Invalid) }
    }

    /// Checks that the link may start a run.
    pub(crate) fn starts_a_run(&self) -> Result<(), TokenRefusal> {
        self.seen.starts_a_run()
    }
}

impl Services {
    /// Creates a link to a workload.
    ///
    /// # Errors
    /// Not found when the caller does not see the workload; refused when it may not manage its links, the terms are
    /// invalid, or the workload is retired.
    pub async fn create_share_link(
        &self,
        caller: &Caller,
        workload: WorkloadId,
        terms: ShareTerms,
        key: Option<&RequestKey>,
    ) -> Result<Done<CreatedLink>, Failure> {
        let (scope, workload) = self.authorize_workload(caller, Operation::CreateShareLink, workload).await?;
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
                    // The statement writes nothing if the workload was retired since it was read.
                    Err(CommitError::Stale) => return Err(WorkloadRefusal::Retired.into()),
                    committed => committed?,
                };
                Ok(CreatedLink { link: new.kept(expires_at), token: Some(token) })
            },
            async |id| {
                let found = self.stores.share_links.find(scope, workload.workload_id, id.into()).await?;
                Ok(CreatedLink { link: found.ok_or(Failure::NotFound)?.link, token: None })
            },
        )
        .await
    }

    /// The links of a workload, newest first, including closed ones.
    ///
    /// # Errors
    /// As [`Self::create_share_link`].
    pub async fn list_share_links(
        &self,
        caller: &Caller,
        workload: WorkloadId,
        page: PageRequest,
    ) -> Result<Page<ShareLink>, Failure> {
        let (scope, workload) = self.authorize_workload(caller, Operation::ListShareLinks, workload).await?;
        Ok(self.stores.share_links.list(scope, workload.workload_id, page).await?)
    }

    /// One link of a workload, open or closed.
    ///
    /// # Errors
    /// As [`Self::create_share_link`]; also not found when the workload has no such link.
    pub async fn read_share_link(
        &self,
        caller: &Caller,
        workload: WorkloadId,
        id: ShareLinkId,
    ) -> Result<ShareLink, Failure> {
        let (scope, workload) = self.authorize_workload(caller, Operation::ReadShareLink, workload).await?;
        let found = self.stores.share_links.find(scope, workload.workload_id, id).await?;
        Ok(found.ok_or(Failure::NotFound)?.link)
    }

    /// Revokes a link. It opens nothing from then on, in any process.
    ///
    /// # Errors
    /// As [`Self::create_share_link`]; also not found when the workload has no such link, or it is revoked already.
    pub async fn revoke_share_link(
        &self,
        caller: &Caller,
        workload: WorkloadId,
        id: ShareLinkId,
    ) -> Result<(), Failure> {
        let (scope, workload) = self.authorize_workload(caller, Operation::RevokeShareLink, workload).await?;
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

    /// The claims of an `anonymous` caller with the tenant of the requested host; other claims are unchanged.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn with_tenant_of_host(&self, claims: Claims, host: Option<&str>) -> Result<Claims, Failure> {
        // Other hosts belong to no tenant, even if an older rule allowed to store them or the operator took the name
        // later.
        let is_tenants =
            |host: &str| is_public_host(host) && !self.settings.operator_hosts.iter().any(|own| own == host);
        match host.filter(|host| claims.actor.kind() == ActorKind::Anonymous && is_tenants(host)) {
            Some(host) => Ok(Claims { tenant: self.stores.tenants.of_host(host).await?, ..claims }),
            None => Ok(claims),
        }
    }

    /// Verifies the share token of a request, and determines the tenant of an anonymous caller: that of the token,
    /// else of the host, else the default tenant. A presented token is always verified, and an invalid one is never
    /// ignored.
    ///
    /// # Errors
    /// When the token is unknown, its link is revoked or expired, or the client has guessed too often; not found
    /// when the request names another tenant than the token.
    pub async fn receive(&self, arrival: Arrival) -> Result<RuntimeCaller, Failure> {
        let Arrival { claims, named, brought, address, host } = arrival;
        let nobody = claims.actor.kind() == ActorKind::Anonymous;
        // An anonymous caller cannot choose a tenant.
        if nobody && claims.tenant.is_some() {
            return Err(Failure::NotFound);
        }
        let Some(brought) = brought else {
            return Ok(RuntimeCaller { claims: self.with_tenant_of_host(claims, host.as_deref()).await?, pass: None, address });
        };
        self.check_cached_refusal(&Counted::Guesses(address))?;
        let PresentedToken::Token(token) = brought else { return Err(self.guessed(address).await) };
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
        Ok(RuntimeCaller { claims, pass: Some(Pass { tenant, seen }), address })
    }

    /// The refusal of an unknown token. Guesses are counted to limit them; the tenant of an unknown token is
    /// unknown, so the default tenant counts all.
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
