//! Share links: creation, lists, revocation, and the verification of requests that present one.

use crate::{
    Failure, MaybeReplayed, Settings, Stores,
    access::{IdentityClaims, Operation},
    anonymous_rate_limit::RateLimits,
    commit_context::CommitContext,
    idempotency::{KeyedRequests, MAX_ATTEMPTS, keyed_outcome},
    services::{CommonOperations, SharedState},
    workload::Workloads,
};
use fairway_domain::{
    access::{ActorKind, Caller},
    anonymous_rate_limit::{Quota, RateLimitKey},
    client_address::ClientAddress,
    id::{ShareLinkId, TenantId, WorkloadId},
    idempotency::RequestKey,
    share_link::{
        NewShareLink, ShareLink, ShareLinkSnapshot, ShareLinkStore, ShareTerms, ShareToken, ShareTokenRefusal,
    },
    store::{CommitError, Page, PageRequest},
    tenant::{TenantScope, TenantStore, can_be_tenant_host},
    workload::{Workload, WorkloadRefusal},
};
use std::sync::Arc;

/// A share link, with its token if this request created the link. No later response contains the token.
#[derive(Clone, Debug)]
pub struct CreatedLink {
    /// The share link without its token.
    pub link: ShareLink,
    /// The token of the link; `None` for a replayed request.
    pub token: Option<ShareToken>,
}

/// A request to a runtime interface, before the verification of its share token.
#[derive(Clone, Debug)]
pub struct RuntimeRequest {
    /// The identity claims of the request.
    pub claims: IdentityClaims,
    /// Whether the request itself claims an identity, instead of only presenting a share token.
    pub has_identity: bool,
    /// The share token that the request presents, if any.
    pub token: Option<PresentedShareToken>,
    /// The client's address, for rate limits.
    pub address: ClientAddress,
    /// The host name of the request; for an anonymous caller it may determine the tenant.
    pub host: Option<String>,
}

/// The share token of a request, as presented.
#[derive(Clone, Debug)]
pub enum PresentedShareToken {
    /// A well-formed token.
    Token(ShareToken),
    /// A token that is refused without a lookup: its form is invalid, or the path percent-encodes its workload.
    Malformed,
}

/// The caller of a runtime interface, after the verification of its share token.
#[derive(Clone, Debug)]
pub struct RuntimeCaller {
    /// The claims of the request. If it claims no identity, these are the claims of the share link's holder.
    pub claims: IdentityClaims,
    /// The verified share link, if the request presents one.
    pub link: Option<VerifiedLink>,
    /// The client's address, for rate limits.
    pub address: ClientAddress,
}

/// A share link that was open when its request arrived. The verification is valid for this request only, because the
/// accept statement repeats it.
#[derive(Clone, Debug)]
pub struct VerifiedLink {
    tenant: TenantId,
    snapshot: ShareLinkSnapshot,
}

impl VerifiedLink {
    /// Returns the share link.
    pub(crate) const fn link(&self) -> &ShareLink {
        &self.snapshot.link
    }

    /// Checks that the link opens this workload, in the tenant of the caller.
    pub(crate) fn check_belongs_to(&self, caller: &Caller, workload: &Workload) -> Result<(), ShareTokenRefusal> {
        let is_same_workload = self.tenant == caller.tenant && self.snapshot.link.workload_id == workload.workload_id;
        if is_same_workload { Ok(()) } else { Err(ShareTokenRefusal::Invalid) }
    }

    /// Checks that the link may start a run.
    pub(crate) fn check_starts_run(&self) -> Result<(), ShareTokenRefusal> {
        self.snapshot.check_can_start_run()
    }
}

/// Operations on share links, and the verification of requests that present one.
#[derive(Clone)]
pub struct ShareLinks {
    context: CommitContext,
    settings: Arc<Settings>,
    share_link_store: Arc<dyn ShareLinkStore>,
    tenant_store: Arc<dyn TenantStore>,
    keyed_requests: Arc<KeyedRequests>,
    rate_limits: Arc<RateLimits>,
    workloads: Arc<Workloads>,
}

impl ShareLinks {
    pub(crate) fn new(
        stores: &Stores,
        shared: &SharedState,
        common: &CommonOperations,
        workloads: &Arc<Workloads>,
    ) -> Self {
        Self {
            context: shared.context.clone(),
            settings: Arc::clone(&shared.settings),
            share_link_store: Arc::clone(&stores.share_links),
            tenant_store: Arc::clone(&stores.tenants),
            keyed_requests: Arc::clone(&common.keyed_requests),
            rate_limits: Arc::clone(&common.rate_limits),
            workloads: Arc::clone(workloads),
        }
    }
}

impl ShareLinks {
    /// Creates a share link to a workload.
    ///
    /// # Errors
    /// Not found when the caller does not see the workload; refused when the caller may not manage its share links,
    /// the terms are invalid, or the workload is retired.
    pub async fn create_share_link(
        &self,
        caller: &Caller,
        workload: WorkloadId,
        terms: ShareTerms,
        key: Option<&RequestKey>,
    ) -> Result<MaybeReplayed<CreatedLink>, Failure> {
        let (scope, workload) = self.workloads.authorize_workload(caller, Operation::CreateShareLink, workload).await?;
        self.keyed_requests
            .idempotent(
                scope,
                key,
                async || {
                    workload.check_accepts_releases_and_links()?;
                    let id: ShareLinkId = self.context.new_id();
                    let change = NewShareLink::create(id, &workload, terms, &self.context.stamp(caller))?;
                    let new_link = change.next.clone();
                    let token = ShareToken::from_random_bytes(scope.tenant(), self.context.ids.secret());
                    let outcome = keyed_outcome(key, 201, id.uuid());
                    let links = &self.share_link_store;
                    let expires_at = match links.commit_new(scope, change, &token.hash(), outcome.as_ref()).await {
                        // The statement writes nothing, because the workload was retired after this request read it.
                        Err(CommitError::Stale) => return Err(WorkloadRefusal::Retired.into()),
                        committed => committed?,
                    };
                    Ok(CreatedLink { link: new_link.into_stored(expires_at), token: Some(token) })
                },
                async |id| {
                    let stored = self.share_link_store.find(scope, workload.workload_id, id.into()).await?;
                    Ok(CreatedLink { link: stored.ok_or(Failure::NotFound)?.link, token: None })
                },
            )
            .await
    }

    /// Lists the share links of a workload, newest first, including closed ones.
    ///
    /// # Errors
    /// As [`Self::create_share_link`].
    pub async fn list_share_links(
        &self,
        caller: &Caller,
        workload: WorkloadId,
        page: PageRequest,
    ) -> Result<Page<ShareLink>, Failure> {
        let (scope, workload) = self.workloads.authorize_workload(caller, Operation::ListShareLinks, workload).await?;
        Ok(self.share_link_store.list(scope, workload.workload_id, page).await?)
    }

    /// Returns one share link of a workload, open or closed.
    ///
    /// # Errors
    /// As [`Self::create_share_link`]; also not found when the workload has no such share link.
    pub async fn read_share_link(
        &self,
        caller: &Caller,
        workload: WorkloadId,
        id: ShareLinkId,
    ) -> Result<ShareLink, Failure> {
        let (scope, workload) = self.workloads.authorize_workload(caller, Operation::ReadShareLink, workload).await?;
        let stored = self.share_link_store.find(scope, workload.workload_id, id).await?;
        Ok(stored.ok_or(Failure::NotFound)?.link)
    }

    /// Revokes a share link. From the commit on, no process accepts the link.
    ///
    /// # Errors
    /// As [`Self::create_share_link`]; also not found when the workload has no such share link, or the link is
    /// already revoked.
    pub async fn revoke_share_link(
        &self,
        caller: &Caller,
        workload: WorkloadId,
        id: ShareLinkId,
    ) -> Result<(), Failure> {
        let (scope, workload) = self.workloads.authorize_workload(caller, Operation::RevokeShareLink, workload).await?;
        for _ in 0..MAX_ATTEMPTS {
            let stored = self.share_link_store.find(scope, workload.workload_id, id).await?;
            let link = stored.map(|snapshot| snapshot.link).filter(|link| !link.is_revoked).ok_or(Failure::NotFound)?;
            let fact = link.revocation_fact(&workload, &self.context.stamp(caller));
            match self.share_link_store.commit_revocation(scope, &link, fact).await {
                Err(CommitError::Stale) => continue,
                committed => committed?,
            }
            self.context.notify_facts();
            return Ok(());
        }
        Err(Failure::Contended)
    }

    /// Adds the tenant of the requested host to the claims of an `anonymous` caller. The claims of other callers are
    /// unchanged.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn add_host_tenant(&self, claims: IdentityClaims, host: Option<&str>) -> Result<IdentityClaims, Failure> {
        // Some host names denote no tenant: those that are not public, and those of the operator. A tenant may
        // nevertheless have such a name, if it was stored before this check existed or before the operator configured
        // the name.
        let is_tenant_host = |host: &str| {
            can_be_tenant_host(host) && !self.settings.operator_hosts.iter().any(|operator_host| operator_host == host)
        };
        match host.filter(|host| claims.actor.kind() == ActorKind::Anonymous && is_tenant_host(host)) {
            Some(host) => Ok(IdentityClaims { tenant: self.tenant_store.find_by_host(host).await?, ..claims }),
            None => Ok(claims),
        }
    }

    /// Verifies the share token of a request. Determines the tenant of an anonymous caller: that of the token, else
    /// that of the host, else the default tenant. A presented token is always verified, and an invalid token is always
    /// refused.
    ///
    /// # Errors
    /// When the token is unknown, its link is revoked or expired, or the client has sent too many unknown tokens; not
    /// found when the request names a tenant other than that of the token.
    pub async fn resolve_runtime_caller(&self, request: RuntimeRequest) -> Result<RuntimeCaller, Failure> {
        let RuntimeRequest { claims, has_identity, token: presented, address, host } = request;
        let is_anonymous = claims.actor.kind() == ActorKind::Anonymous;
        // An anonymous caller may not choose a tenant.
        if is_anonymous && claims.tenant.is_some() {
            return Err(Failure::NotFound);
        }
        let Some(presented) = presented else {
            return Ok(RuntimeCaller {
                claims: self.add_host_tenant(claims, host.as_deref()).await?,
                link: None,
                address,
            });
        };
        self.rate_limits.check_cached_refusal(&RateLimitKey::UnknownTokens(address))?;
        let PresentedShareToken::Token(token) = presented else { return Err(self.refuse_guess(address).await) };
        let tenant = token.tenant();
        let stored =
            self.share_link_store.find_by_token(TenantScope::for_share_token_lookup(&token), &token.hash()).await?;
        let Some(snapshot) = stored.filter(|snapshot| snapshot.hash == token.hash()) else {
            return Err(self.refuse_guess(address).await);
        };
        snapshot.check_open()?;
        let claims = if has_identity && is_anonymous {
            IdentityClaims { tenant: Some(tenant), ..claims }
        } else if has_identity {
            claims
        } else if claims.tenant.is_some_and(|claimed| claimed != tenant) {
            return Err(Failure::NotFound);
        } else {
            IdentityClaims { actor: snapshot.link.holder(), groups: Vec::new(), tenant: Some(tenant) }
        };
        Ok(RuntimeCaller { claims, link: Some(VerifiedLink { tenant, snapshot }), address })
    }

    /// Counts an unknown token against the client's rate limit, and returns the refusal, so that tokens cannot be
    /// guessed. An unknown token belongs to no known tenant, so the default tenant counts all of them.
    async fn refuse_guess(&self, address: ClientAddress) -> Failure {
        let Quota { per_minute, .. } = self.settings.public_rate;
        let quota = Quota { per_minute, burst: per_minute };
        let scope = TenantScope::for_rate_limiting_unknown_tokens();
        match self.rate_limits.count_request(scope, RateLimitKey::UnknownTokens(address), quota).await {
            Ok(()) => Failure::ShareToken(ShareTokenRefusal::Invalid),
            Err(failure) => failure,
        }
    }
}
