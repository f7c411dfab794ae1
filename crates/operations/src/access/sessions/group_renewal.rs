//! Renewal of sessions: reads the groups of a session again with its refresh token, which a provider accepts only
//! once.
//!
//! A renewal runs in its own task, because a client that disconnects must not lose the new refresh token. Concurrent
//! requests of this process share the renewal. A claim in the database prevents other servers from using the same
//! refresh token; they wait for the result of the claiming server.

use super::{SessionFailure, Sessions, seal_tokens, unseal_tokens};
use crate::{Failure, cache::PendingLoads};
use fairway_domain::{
    access::{
        ActorRef,
        session::{MAX_GROUPS_AGE, RenewalLease, SessionEnd, SessionSnapshot, SessionToken},
        sign_in_provider::{IdentityProviderTokens, SignInError, SignInProvider, SignedInPerson},
    },
    id::{RequestId, SessionId},
    tenant::TenantScope,
};
use moka::sync::Cache;
use std::{fmt, sync::Arc, time::Duration};
use tokio::time::Instant;

/// Time for which all requests of a session receive the same failure of a renewal. Only one of them then waits for a
/// provider that does not respond.
const FAILURE_SHARED: Duration = Duration::from_secs(10);
/// Maximum time for which a request waits for a renewal by another server.
const MAX_WAIT: Duration = Duration::from_secs(15);
/// Interval at which a waiting request checks for the result of the other server.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum number of sessions whose failed renewal is remembered, which bounds the memory.
const MAX_FAILURES: u64 = 1_024;

/// The groups of a renewed session; `None` if the session has ended.
type Renewed = Option<Vec<ActorRef>>;

/// Renewals of this process. All clones of [`Sessions`] share them.
pub(crate) struct SessionRenewals {
    pending: PendingLoads<SessionId, Renewed>,
    failures: Cache<SessionId, (SignInError, Instant)>,
}

impl fmt::Debug for SessionRenewals {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("SessionRenewals").finish_non_exhaustive()
    }
}

impl SessionRenewals {
    pub(crate) fn new() -> Self {
        let failures = Cache::builder().max_capacity(MAX_FAILURES).time_to_live(FAILURE_SHARED).build();
        Self { pending: PendingLoads::new(), failures }
    }

    /// Returns the failure of a renewal that failed less than [`FAILURE_SHARED`] ago.
    fn failure(&self, session: SessionId) -> Option<SessionFailure> {
        let (error, at) = self.failures.get(&session)?;
        Some(SessionFailure::Provider { error, retry_after: FAILURE_SHARED.saturating_sub(at.elapsed()) })
    }

    fn fail(&self, session: SessionId, error: SignInError) -> SessionFailure {
        self.failures.insert(session, (error.clone(), Instant::now()));
        SessionFailure::Provider { error, retry_after: FAILURE_SHARED }
    }
}

impl Sessions {
    /// Reads the groups of a session again, in a separate task; `None` if the session has ended.
    pub(super) async fn renewed_groups(
        &self,
        provider: &Arc<dyn SignInProvider>,
        token: &SessionToken,
        session: SessionId,
        request_id: RequestId,
    ) -> Result<Renewed, SessionFailure> {
        let (sessions, provider, token) = (self.clone(), Arc::clone(provider), token.clone());
        let renewal = tokio::spawn(async move {
            let renewal = sessions.renew(provider.as_ref(), &token, request_id);
            sessions.renewals.pending.get_or_compute(session, renewal).await
        });
        renewal.await.unwrap_or(Err(Failure::Inconsistent("the renewal of a session was interrupted").into()))
    }

    /// Renews a session, or waits for the renewal by another server.
    async fn renew(
        &self,
        provider: &dyn SignInProvider,
        token: &SessionToken,
        request_id: RequestId,
    ) -> Result<Renewed, SessionFailure> {
        let (scope, renewal_id) = (TenantScope::for_session(token), self.context.new_id());
        let started_at = Instant::now();
        loop {
            let Some(snapshot) = self.find_stored(token).await? else { return Ok(None) };
            if snapshot.groups_age < MAX_GROUPS_AGE {
                return Ok(Some(snapshot.groups));
            }
            let session = snapshot.session_id;
            if let Some(failure) = self.renewals.failure(session) {
                return Err(failure);
            }
            let claim = RenewalLease { session_id: session, renewal_id };
            let claimed = self.session_store.claim_renewal(scope, claim).await.map_err(Failure::from)?;
            if let Some(sealed_tokens) = claimed {
                let snapshot = SessionSnapshot { sealed_tokens, ..snapshot };
                let renewed = self.renew_claimed(provider, token, &snapshot, claim, request_id).await;
                if renewed.is_err()
                    && let Err(error) = self.session_store.release_renewal(scope, claim).await
                {
                    tracing::warn!(
                        tenant_id = %scope.tenant(),
                        session_id = %session,
                        error = &error as &dyn std::error::Error,
                        "failed to release the claim of a session renewal; no server renews the session until the \
                         claim expires, within 90 s"
                    );
                }
                return renewed;
            }
            if started_at.elapsed() >= MAX_WAIT {
                return Err(SessionFailure::Provider { error: SignInError::Unavailable, retry_after: FAILURE_SHARED });
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Renews a session whose renewal this server claimed. The session ends if its stored tokens are unreadable, or
    /// if the provider or this server refuses the renewal. It also ends if the person now has another name or tenant.
    async fn renew_claimed(
        &self,
        provider: &dyn SignInProvider,
        token: &SessionToken,
        snapshot: &SessionSnapshot,
        claim: RenewalLease,
        request_id: RequestId,
    ) -> Result<Renewed, SessionFailure> {
        let scope = TenantScope::for_session(token);
        let end_refused_session = async || {
            self.end(token, snapshot, SessionEnd::Refused, request_id).await?;
            Ok(None)
        };
        let renewed_person = match unseal_tokens(provider, token, &snapshot.sealed_tokens) {
            Some(tokens) => self.renew_identity(provider, token, &snapshot.issuer, claim, &tokens).await?,
            None => Err(SignInError::Refused),
        };
        let person = match renewed_person {
            Ok(person) if person.identity.subject == snapshot.subject => person,
            Ok(_) => return end_refused_session().await,
            Err(error @ (SignInError::Refused | SignInError::Token(_) | SignInError::UnknownIssuer)) => {
                let (issuer, clock_seconds) = (&snapshot.issuer, error.seconds_outside_validity());
                tracing::info!(
                    tenant_id = %scope.tenant(),
                    session_id = %snapshot.session_id,
                    issuer,
                    code = error.code(),
                    clock_seconds,
                    "failed to renew a session; ending the session"
                );
                return end_refused_session().await;
            }
            Err(
                error @ (SignInError::Unavailable
                | SignInError::Malformed
                | SignInError::Client
                | SignInError::ClientSecret),
            ) => return Err(self.renewals.fail(snapshot.session_id, error)),
        };
        let pin = match self.identity_resolver.pin_signed_in_identity(&person.identity, request_id).await {
            Ok((tenant, pin)) if tenant == token.tenant() && pin.actor == snapshot.actor => pin,
            Ok(_) | Err(Failure::Identity(_)) => return end_refused_session().await,
            Err(failure) => return Err(failure.into()),
        };
        let sealed = seal_tokens(provider, token, &person.tokens)?;
        self.session_store.complete_renewal(scope, claim, &pin.groups, &sealed).await.map_err(Failure::from)?;
        Ok(Some(pin.groups.clone()))
    }

    /// Exchanges the refresh token for new tokens, and returns the identity that the provider proves with them.
    async fn renew_identity(
        &self,
        provider: &dyn SignInProvider,
        token: &SessionToken,
        issuer: &str,
        claim: RenewalLease,
        tokens: &IdentityProviderTokens,
    ) -> Result<Result<SignedInPerson, SignInError>, Failure> {
        let renewed = match provider.renew(issuer, tokens).await {
            Ok(renewed) => renewed,
            Err(error) => return Ok(Err(error)),
        };
        // The new tokens are stored before any other step can fail, because the provider may no longer accept the old
        // refresh token.
        let sealed = seal_tokens(provider, token, &renewed.tokens)?;
        self.session_store.store_renewed_tokens(TenantScope::for_session(token), claim, &sealed).await?;
        Ok(provider.reread_identity(issuer, &renewed).await)
    }
}
