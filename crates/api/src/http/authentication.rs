//! Authentication of requests on a server with identity providers: by the access token of the request, or by the
//! session of a browser.
//!
//! The middleware verifies the credential once and stores the identity in the request; all later code reads the
//! identity from there. In local mode it does nothing. A credential that is present is always verified, and an
//! invalid credential is never ignored.

use crate::{
    caller::{RESULT_TOKEN, has_share_token},
    compose::Api,
    error::ApiError,
    http::{path, request_id_log_and_metrics::request_id_or_new},
    sign_in::{END_SESSION_PATH, SESSION_COOKIE},
};
use actix_web::{
    Error, HttpMessage as _, HttpRequest, ResponseError as _,
    body::{EitherBody, MessageBody},
    dev::{ServiceRequest, ServiceResponse},
    http::{
        Method, StatusCode,
        header::{self, HeaderName, HeaderValue, InvalidHeaderValue},
    },
    middleware::Next,
    web,
};
use fairway_domain::{
    access::{
        identity::{IdentityProvider, TokenRefusal},
        session::{SessionLifetime, SessionToken},
        sign_in_provider::SignInProvider,
    },
    id::TenantId,
};
use fairway_operations::access::{ActiveSession, IdentityClaims, IdentityMode, SessionFailure};
use std::{fmt, sync::Arc, time::Duration};

const ACTOR: HeaderName = HeaderName::from_static("x-actor-ref");
const TENANT: HeaderName = HeaderName::from_static("x-tenant-id");
const CSRF: HeaderName = HeaderName::from_static("x-csrf-token");
const API_PREFIX: &str = "/v1/";
/// Paths whose responses do not depend on the caller. Probes of load balancers send no credentials.
const PUBLIC_PATHS: [&str; 8] =
    ["/healthz", "/readyz", "/metrics", "/openapi.json", "/docs", "/.well-known", "/sign-in", "/sign-out"];
/// The scheme of access tokens (RFC 6750).
const SCHEME: &str = "bearer ";

tokio::task_local! {
    /// The `WWW-Authenticate` challenge for a 401 of the current request. Unset in local mode, which cannot verify
    /// identities.
    static CHALLENGE: HeaderValue;
    /// A copy of `CHALLENGE`, set only if the current request has no credential of any kind.
    static MISSING_CREDENTIAL: HeaderValue;
}

/// The challenge for a caller without identity; `None` in local mode.
pub(crate) fn challenge() -> Option<HeaderValue> {
    CHALLENGE.try_with(Clone::clone).ok()
}

/// The challenge for a request without any credential; `None` in local mode. A resource that is hidden from such a
/// request gets 401 with this challenge instead of 404. With a credential, or after a new sign-in, the client may
/// see the resource.
pub(crate) fn missing_credential_challenge() -> Option<HeaderValue> {
    MISSING_CREDENTIAL.try_with(Clone::clone).ok()
}

/// The sender of a request, as identity providers prove it. Absent in local mode.
#[derive(Clone, Debug)]
pub(crate) enum RequestIdentity {
    /// The request has no credentials.
    Anonymous {
        /// The tenant that the request selects. Only requests with an identity may select one.
        tenant: Option<TenantId>,
    },
    /// The request has this verified identity.
    Verified(IdentityClaims),
}

/// How a server authenticates requests.
#[derive(Clone)]
pub struct Authenticator {
    provider: Arc<dyn IdentityProvider>,
    sign_in: Option<Arc<dyn SignInProvider>>,
    session_lifetime: SessionLifetime,
    cli_clients: Arc<[CliClient]>,
    /// The challenge for callers without credentials (RFC 6750, RFC 9728).
    challenge: HeaderValue,
    /// The challenge for an invalid token.
    invalid_token: HeaderValue,
    base_url: Arc<str>,
    issuers: Arc<[String]>,
}

/// The OAuth client of the command line at one issuer.
#[derive(Clone, Debug)]
pub struct CliClient {
    /// The issuer's URL, as in the claim `iss`.
    pub issuer: String,
    /// The issuer's name on the sign-in page.
    pub name: String,
    /// The client's identifier; `None` if no client is configured.
    pub client_id: Option<String>,
    /// The scopes that a sign-in requests.
    pub scopes: Vec<String>,
}

/// The browser session that sent a request.
#[derive(Clone, Debug)]
pub(crate) struct BrowserSession {
    pub(crate) token: SessionToken,
    pub(crate) active: ActiveSession,
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Authenticator").finish_non_exhaustive()
    }
}

impl Authenticator {
    /// Creates the authentication by the tokens that `provider` verifies. `base_url` is the server's public
    /// address.
    ///
    /// # Errors
    /// When the address cannot be part of a header.
    pub fn new(
        provider: Arc<dyn IdentityProvider>,
        base_url: &str,
        issuers: Vec<String>,
        session_lifetime: SessionLifetime,
    ) -> Result<Self, InvalidHeaderValue> {
        let metadata = format!("resource_metadata=\"{base_url}/.well-known/oauth-protected-resource\"");
        Ok(Self {
            provider,
            sign_in: None,
            session_lifetime,
            cli_clients: Arc::default(),
            base_url: base_url.into(),
            issuers: issuers.into(),
            challenge: HeaderValue::from_str(&format!("Bearer {metadata}"))?,
            invalid_token: HeaderValue::from_str(&format!("Bearer error=\"invalid_token\", {metadata}"))?,
        })
    }

    /// Adds the browser sign-in, and the command line's OAuth client at each issuer.
    #[must_use]
    pub fn with_sign_in(mut self, sign_in: Option<Arc<dyn SignInProvider>>, cli_clients: Vec<CliClient>) -> Self {
        self.sign_in = sign_in;
        self.cli_clients = cli_clients.into();
        self
    }

    /// The browser sign-in; `None` if no issuer is configured for it.
    pub(crate) fn sign_in(&self) -> Option<&dyn SignInProvider> {
        self.sign_in.as_deref()
    }

    /// Shares the browser sign-in with a task that outlives the request.
    const fn shared_sign_in(&self) -> Option<&Arc<dyn SignInProvider>> {
        self.sign_in.as_ref()
    }

    pub(crate) const fn session_lifetime(&self) -> SessionLifetime {
        self.session_lifetime
    }

    /// The command line's OAuth client at each issuer, in the order of the configuration.
    pub(crate) fn cli_clients(&self) -> &[CliClient] {
        &self.cli_clients
    }

    /// The public address of the server, without a slash at the end.
    pub(crate) fn base_url(&self) -> &str {
        &self.base_url
    }

    pub(crate) fn issuers(&self) -> &[String] {
        &self.issuers
    }

    async fn identify(&self, api: &Api, request: &HttpRequest) -> Result<RequestIdentity, ApiError> {
        let selected_tenant = chosen_tenant(request)?;
        let Some(token) = self.bearer_token(request)? else {
            if request.headers().contains_key(&ACTOR) {
                return Err(actor_ref_not_allowed());
            }
            return self.identify_session(api, request, selected_tenant).await;
        };
        let identity = match self.provider.verify(token).await {
            Ok(identity) => identity,
            Err(TokenRefusal::Invalid(reason)) => {
                tracing::info!(
                    reason = reason.code(),
                    clock_seconds = reason.seconds_outside_validity(),
                    "refused an access token; responding 401"
                );
                return Err(self.invalid_token());
            }
            Err(refusal @ TokenRefusal::Unavailable { retry_after }) => {
                return Err(unavailable_provider(retry_after).log_cause(&refusal));
            }
        };
        let claims =
            api.services.identity_resolver.resolve_claims(&identity, selected_tenant, request_id_or_new()).await?;
        let may_name_actor =
            api.services.executions.is_delegating_client(&claims) && accepts_delegation(request.path());
        if request.headers().contains_key(&ACTOR) && !may_name_actor {
            return Err(actor_ref_not_allowed());
        }
        Ok(RequestIdentity::Verified(claims))
    }

    /// The identity of a browser session. Only requests to the API use sessions. Pages do not depend on the caller, and
    /// a framed page must not use the session of its viewer.
    async fn identify_session(
        &self,
        api: &Api,
        request: &HttpRequest,
        selected_tenant: Option<TenantId>,
    ) -> Result<RequestIdentity, ApiError> {
        if !request.path().starts_with(API_PREFIX) || request.cookie(SESSION_COOKIE).is_none() {
            return Ok(RequestIdentity::Anonymous { tenant: selected_tenant });
        }
        // A browser sends the cookie of an ended session automatically, so the request counts as one without
        // credentials.
        let session = match request.path() {
            // Ending a session must work while the identity provider is unavailable, so its groups are not read
            // again.
            END_SESSION_PATH => stored_session_of(api, request).await?,
            _ => session_of(api, self, request).await?,
        };
        let Some(session) = session else {
            return Ok(RequestIdentity::Anonymous { tenant: selected_tenant });
        };
        let is_change = !matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
        if is_change && !has_csrf_token(request, &session.token) {
            return Err(ApiError::csrf_token_invalid());
        }
        let session_claims = session.active.claims.clone();
        let claims = api.services.identity_resolver.claims_in(session_claims, selected_tenant).await?;
        request.extensions_mut().insert(session);
        Ok(RequestIdentity::Verified(claims))
    }

    /// The token of the `Authorization` header. Repeated headers and other schemes are refused, because a credential
    /// that is present must never be ignored.
    fn bearer_token<'r>(&self, request: &'r HttpRequest) -> Result<Option<&'r str>, ApiError> {
        let mut values = request.headers().get_all(header::AUTHORIZATION);
        let text = match (values.next(), values.next()) {
            (None, _) => return Ok(None),
            (Some(value), None) => value.to_str().ok(),
            (Some(_), Some(_)) => None,
        };
        let token = text.and_then(|text| {
            let (scheme, token) = text.split_at_checked(SCHEME.len())?;
            scheme.eq_ignore_ascii_case(SCHEME).then_some(token)
        });
        token.map(Some).ok_or_else(|| self.invalid_token())
    }

    /// Builds a 401 without a reason, because the sender of a forged token must not learn which rule it breaks.
    fn invalid_token(&self) -> ApiError {
        ApiError::unauthenticated(self.invalid_token.clone())
    }
}

/// The session of a request's cookie; `None` if there is no cookie or the session has ended.
pub(crate) async fn session_of(
    api: &Api,
    authentication: &Authenticator,
    request: &HttpRequest,
) -> Result<Option<BrowserSession>, ApiError> {
    let (Some(token), Some(provider)) = (session_token(request), authentication.shared_sign_in()) else {
        return Ok(None);
    };
    match api.services.sessions.find_with_fresh_groups(provider, &token, request_id_or_new()).await {
        Ok(active) => Ok(active.map(|active| BrowserSession { token, active })),
        Err(SessionFailure::Failure(failure)) => Err(failure.into()),
        Err(failure @ SessionFailure::Provider { retry_after, .. }) => {
            Err(unavailable_provider(retry_after).log_cause(&failure))
        }
    }
}

/// The stored session of a request's cookie, without reading its groups from the issuer again.
async fn stored_session_of(api: &Api, request: &HttpRequest) -> Result<Option<BrowserSession>, ApiError> {
    let Some(token) = session_token(request) else { return Ok(None) };
    let snapshot = api.services.sessions.find_stored(&token).await?;
    Ok(snapshot.map(|snapshot| BrowserSession { active: ActiveSession::of(snapshot, &token), token }))
}

/// Builds the 503 for a request whose identity provider is unavailable.
fn unavailable_provider(retry_after: Duration) -> ApiError {
    let seconds = retry_after.as_millis().div_ceil(1_000).max(1);
    let seconds = u64::try_from(seconds).unwrap_or(u64::MAX);
    ApiError::unavailable().with_header(header::RETRY_AFTER, HeaderValue::from(seconds))
}

/// The session token in the cookie of a request; `None` without a well-formed cookie.
pub(crate) fn session_token(request: &HttpRequest) -> Option<SessionToken> {
    request.cookie(SESSION_COOKIE).and_then(|cookie| SessionToken::parse(cookie.value()))
}

/// Whether the CSRF header of a request contains the session's token.
fn has_csrf_token(request: &HttpRequest, token: &SessionToken) -> bool {
    let mut values = request.headers().get_all(CSRF);
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().is_ok_and(|text| token.is_csrf_token(text)),
        (None, _) | (Some(_), Some(_)) => false,
    }
}

fn actor_ref_not_allowed() -> ApiError {
    let message = "the access token names the caller; `X-Actor-Ref` is for local mode and for internal clients";
    ApiError::new(StatusCode::FORBIDDEN, "actor_ref_not_allowed", message)
}

/// Whether a route accepts on-behalf-of fields. The actor header must then agree with these fields.
fn accepts_delegation(path: &str) -> bool {
    path.ends_with("/execute") || path.starts_with("/v1/runtime/tools/")
}

/// The tenant that a request selects by its `X-Tenant-Id` header.
fn chosen_tenant(request: &HttpRequest) -> Result<Option<TenantId>, ApiError> {
    let mut values = request.headers().get_all(&TENANT);
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        // A malformed identifier cannot name a tenant, so the response is 404.
        (Some(value), None) => {
            let id = value.to_str().ok().and_then(path::parse_uuid);
            id.map(|id| Some(id.into())).ok_or_else(ApiError::not_found)
        }
        (Some(_), Some(_)) => Err(ApiError::repeated_header("X-Tenant-Id")),
    }
}

/// Middleware that verifies the credential of a request, and stores the caller's identity in the request.
///
/// # Errors
/// The errors of the inner service.
pub(crate) async fn authenticate<B: MessageBody + 'static>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<B>>, Error> {
    let api = request.app_data::<web::Data<Api>>().cloned();
    let Some((api, authentication)) = api.and_then(|api| {
        let authentication = api.authentication.clone()?;
        Some((api, authentication))
    }) else {
        return Ok(next.call(request).await?.map_into_left_body());
    };
    debug_assert_eq!(api.mode, IdentityMode::Oidc, "only OIDC mode authenticates");
    if PUBLIC_PATHS.iter().any(|prefix| request.path().strip_prefix(prefix).is_some_and(is_path_end)) {
        request.extensions_mut().insert(RequestIdentity::Anonymous { tenant: None });
        return Ok(next.call(request).await?.map_into_left_body());
    }
    let challenge = authentication.challenge.clone();
    match CHALLENGE.scope(challenge.clone(), authentication.identify(&api, request.request())).await {
        Ok(identity) => {
            let is_missing = matches!(identity, RequestIdentity::Anonymous { .. })
                && !has_share_token(request.request())
                && !request.headers().contains_key(&RESULT_TOKEN);
            request.extensions_mut().insert(identity);
            let result = CHALLENGE.scope(challenge.clone(), next.call(request));
            let result = if is_missing { MISSING_CREDENTIAL.scope(challenge, result).await } else { result.await };
            Ok(result?.map_into_left_body())
        }
        Err(refusal) => {
            let (request, _) = request.into_parts();
            Ok(ServiceResponse::new(request, refusal.error_response()).map_into_right_body())
        }
    }
}

fn is_path_end(suffix: &str) -> bool {
    suffix.is_empty() || suffix.starts_with('/')
}
