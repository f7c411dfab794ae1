//! Browser sessions: sign-in, sign-out, and the claims of a session's requests.

mod group_renewal;

pub(crate) use group_renewal::SessionRenewals;

use super::{IdentityClaims, IdentityResolver};
use crate::{Failure, Settings, Stores, commit_context::CommitContext, services::SharedState};
use fairway_domain::{
    access::{
        ActorRef,
        session::{
            self, MAX_GROUPS_AGE, NewSession, SessionEnd, SessionSnapshot, SessionStore, SessionToken,
            USE_RECORD_INTERVAL,
        },
        sign_in_provider::{BackchannelLogout, IdentityProviderTokens, SignInError, SignInProvider, SignedInPerson},
    },
    audit::Stamp,
    id::RequestId,
    store::CommitError,
    tenant::TenantScope,
};
use serde::{Deserialize, Serialize};
use std::{sync::Arc, time::Duration};

/// Context that authenticates the encrypted tokens of a session, so that text encrypted for another purpose is refused.
const TOKENS_PURPOSE: &str = "session tokens";

/// A valid session that authenticates a request.
#[derive(Clone, Debug)]
pub struct ActiveSession {
    /// The stored session.
    pub snapshot: SessionSnapshot,
    /// The claims of the session's requests in its own tenant.
    pub claims: IdentityClaims,
}

impl ActiveSession {
    /// Creates the active session from the stored one; the cookie's token names the tenant.
    #[must_use]
    pub fn of(snapshot: SessionSnapshot, token: &SessionToken) -> Self {
        let claims = IdentityClaims {
            actor: snapshot.actor.clone(),
            groups: snapshot.groups.clone(),
            tenant: Some(token.tenant()),
        };
        Self { snapshot, claims }
    }
}

/// Tokens of the identity provider that a session stores encrypted.
#[derive(Serialize, Deserialize)]
struct StoredTokens {
    refresh_token: Option<String>,
    id_token: String,
}

/// Starts, finds, renews and ends browser sessions.
#[derive(Clone)]
pub struct Sessions {
    context: CommitContext,
    settings: Arc<Settings>,
    session_store: Arc<dyn SessionStore>,
    identity_resolver: Arc<IdentityResolver>,
    renewals: Arc<SessionRenewals>,
}

impl Sessions {
    pub(crate) fn new(stores: &Stores, shared: &SharedState, identity_resolver: &Arc<IdentityResolver>) -> Self {
        Self {
            context: shared.context.clone(),
            settings: Arc::clone(&shared.settings),
            session_store: Arc::clone(&stores.sessions),
            identity_resolver: Arc::clone(identity_resolver),
            renewals: Arc::clone(&shared.session_renewals),
        }
    }

    /// Starts a session for a person whom an identity provider authenticated. Each sign-in creates a new token, which
    /// prevents session fixation.
    ///
    /// # Errors
    /// When the identity is refused, or the store fails.
    pub async fn start(
        &self,
        provider: &dyn SignInProvider,
        person: &SignedInPerson,
        request_id: RequestId,
    ) -> Result<SessionToken, Failure> {
        let (tenant, pin) = self.identity_resolver.pin_signed_in_identity(&person.identity, request_id).await?;
        let token = SessionToken::from_random_bytes(tenant, self.context.ids.secret());
        let name = pin.actor.to_string();
        let name = name.split_once(':').map_or(name.as_str(), |(_, name)| name);
        let session = NewSession {
            session_id: self.context.new_id(),
            identity_id: pin.identity_id,
            actor: pin.actor.clone(),
            display_name: person.display_name.clone().unwrap_or_else(|| name.to_owned()),
            groups: pin.groups.clone(),
            issuer_session: person.issuer_session.clone(),
            sealed_tokens: seal_tokens(provider, &token, &person.tokens)?,
        };
        let fact = session.started_fact(&self.stamp(&pin.actor, request_id));
        let scope = TenantScope::for_session(&token);
        self.session_store.commit_new(scope, &session, &token.hash(), self.settings.session_lifetime, fact).await?;
        self.context.notify_facts();
        Ok(token)
    }

    /// Returns the session of a cookie; `None` if the session is unknown or has ended. If the groups are outdated, this
    /// method first reads them from the identity provider again. If the provider refuses, the session ends.
    ///
    /// # Errors
    /// When the store or the identity provider does not respond.
    pub async fn find_with_fresh_groups(
        &self,
        provider: &Arc<dyn SignInProvider>,
        token: &SessionToken,
        request_id: RequestId,
    ) -> Result<Option<ActiveSession>, SessionFailure> {
        let scope = TenantScope::for_session(token);
        let stored_session = self.session_store.find(scope, &token.hash()).await.map_err(Failure::from)?;
        let Some(mut snapshot) = stored_session.filter(|session| session.is_live(self.settings.session_lifetime))
        else {
            return Ok(None);
        };
        if snapshot.groups_age >= MAX_GROUPS_AGE {
            match self.renewed_groups(provider, token, snapshot.session_id, request_id).await? {
                Some(groups) => snapshot.groups = groups,
                None => return Ok(None),
            }
        }
        if snapshot.unused_for >= USE_RECORD_INTERVAL {
            self.session_store.record_use(scope, snapshot.session_id).await.map_err(Failure::from)?;
        }
        Ok(Some(ActiveSession::of(snapshot, token)))
    }

    /// Returns the session of a cookie as stored, without renewing its groups. Sign-out uses it, because it needs no
    /// groups.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn find_stored(&self, token: &SessionToken) -> Result<Option<SessionSnapshot>, Failure> {
        let stored_session = self.session_store.find(TenantScope::for_session(token), &token.hash()).await?;
        Ok(stored_session.filter(|session| session.is_live(self.settings.session_lifetime)))
    }

    /// Ends a session. Later requests with its cookie are unauthenticated.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn end(
        &self,
        token: &SessionToken,
        snapshot: &SessionSnapshot,
        end: SessionEnd,
        request_id: RequestId,
    ) -> Result<(), Failure> {
        let fact = snapshot.ended_fact(end, &self.stamp(&snapshot.actor, request_id));
        match self.session_store.commit_end(TenantScope::for_session(token), snapshot.session_id, fact).await {
            // A concurrent request has ended the session.
            Ok(()) | Err(CommitError::Stale) => {}
            Err(error) => return Err(error.into()),
        }
        self.context.notify_facts();
        Ok(())
    }

    /// Returns the ID token of a session, by which the provider recognizes its own session at sign-out.
    #[must_use]
    pub fn id_token(
        &self,
        provider: &dyn SignInProvider,
        token: &SessionToken,
        snapshot: &SessionSnapshot,
    ) -> Option<String> {
        unseal_tokens(provider, token, &snapshot.sealed_tokens).map(|tokens| tokens.id_token)
    }

    /// Ends the sessions that an identity provider ended; returns their number.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn end_by_provider(&self, logout: &BackchannelLogout, request_id: RequestId) -> Result<usize, Failure> {
        let sessions = self.session_store.list_for_logout(&logout.issuer, &logout.target).await?;
        for ended_session in &sessions {
            let stamp = self.stamp(&ended_session.actor, request_id);
            let fact =
                session::ended_fact(ended_session.session_id, &ended_session.actor, SessionEnd::ByProvider, &stamp);
            match self
                .session_store
                .commit_end(TenantScope::for_identity(ended_session.tenant), ended_session.session_id, fact)
                .await
            {
                Ok(()) | Err(CommitError::Stale) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.context.notify_facts();
        Ok(sessions.len())
    }

    /// Deletes sessions that ended more than a day ago; returns their number.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn delete_expired_sessions(&self) -> Result<u64, Failure> {
        Ok(self.session_store.delete_expired().await?)
    }

    fn stamp(&self, actor: &ActorRef, request_id: RequestId) -> Stamp {
        Stamp { fact_id: self.context.new_id(), at: self.context.clock.now(), actor: actor.clone(), request_id }
    }
}

/// Reason why a session cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SessionFailure {
    /// The store failed, or the request was refused.
    #[error(transparent)]
    Failure(#[from] Failure),
    /// The identity provider does not respond, so the server cannot renew the groups of the session.
    #[error("the groups of the session cannot be read again: {error}")]
    Provider {
        /// The error of the request to the provider.
        error: SignInError,
        /// The time after which the client should retry.
        retry_after: Duration,
    },
}

fn seal_tokens(
    provider: &dyn SignInProvider,
    token: &SessionToken,
    tokens: &IdentityProviderTokens,
) -> Result<Vec<u8>, Failure> {
    let stored = StoredTokens { refresh_token: tokens.refresh_token.clone(), id_token: tokens.id_token.clone() };
    let plaintext = serde_json::to_vec(&stored).map_err(|_| Failure::Inconsistent("provider tokens are not JSON"))?;
    let sealed = provider.seal(&token.sealing_key(), TOKENS_PURPOSE, &plaintext);
    sealed.ok_or(Failure::Inconsistent("provider tokens cannot be encrypted"))
}

fn unseal_tokens(provider: &dyn SignInProvider, token: &SessionToken, sealed: &[u8]) -> Option<IdentityProviderTokens> {
    let plaintext = provider.unseal(&token.sealing_key(), TOKENS_PURPOSE, sealed)?;
    let stored: StoredTokens = serde_json::from_slice(&plaintext).ok()?;
    Some(IdentityProviderTokens { refresh_token: stored.refresh_token, id_token: stored.id_token })
}
