//! Sign-in of people: the authorization code flow with PKCE (OpenID Connect Core 3.1, RFC 7636), userinfo, and logout.

mod discovery;
mod distributed_claims;

use crate::{
    TokenVerifier,
    config::{IssuerConfig, IssuerConfigError},
    issuer_fetcher::IssuerFetcher,
    key_cache::KeyCache,
    sealing,
};
use async_trait::async_trait;
use discovery::{DiscoveredAddresses, IssuerEndpoints};
use fairway_domain::{
    access::{
        identity::{GroupsClaim, InvalidToken, TokenRefusal, TokenUse, UnverifiedToken},
        sign_in_provider::{
            BackchannelLogout, IdentityProviderTokens, RenewedTokens, SignInAttempt, SignInError, SignInIssuer,
            SignInProvider, SignedInPerson,
        },
    },
    clock::Clock,
    json,
    secret::{SecretReader, ServerSecretRef},
};
use fairway_egress::{
    EgressRequest, Guard, Method,
    header::{self, HeaderMap, HeaderValue},
};
use futures_util::future::BoxFuture;
use oauth2::{
    AsyncHttpClient, AuthUrl, AuthorizationCode, Client, ClientId, ClientSecret, CsrfToken, ExtraTokenFields,
    HttpRequest, HttpResponse, PkceCodeChallenge, PkceCodeVerifier, RedirectUrl, RefreshToken, RequestTokenError,
    Scope, StandardRevocableToken, StandardTokenResponse, TokenResponse as _, TokenUrl,
    basic::{
        BasicErrorResponse, BasicErrorResponseType, BasicRevocationErrorResponse, BasicTokenIntrospectionResponse,
        BasicTokenType,
    },
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{fmt, sync::Arc};
use url::Url;

/// An issuer, and the OAuth client under which the portal signs people in.
pub struct SignInConfig {
    /// The issuer.
    pub issuer: IssuerConfig,
    /// The display name of the issuer.
    pub name: String,
    /// The identifier of the OAuth client.
    pub client_id: String,
    /// Reference to the client's secret; `None` for a public client.
    pub secret_ref: Option<ServerSecretRef>,
    /// The requested scopes.
    pub scopes: Vec<String>,
}

/// Signs people in with the configured issuers.
pub struct OidcSignIn {
    clients: Vec<PortalClient>,
    issuers: Vec<SignInIssuer>,
    secrets: Arc<dyn SecretReader>,
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for OidcSignIn {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("OidcSignIn").field("issuers", &self.issuers).finish_non_exhaustive()
    }
}

/// The portal's OAuth client at one issuer.
struct PortalClient {
    config: SignInConfig,
    keys: Arc<KeyCache>,
    addresses: IssuerEndpoints,
}

/// The member that OpenID Connect adds to token responses.
#[derive(Clone, Serialize, Deserialize)]
struct IdTokenField {
    id_token: Option<String>,
}

impl fmt::Debug for IdTokenField {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("IdTokenField(…)")
    }
}

impl ExtraTokenFields for IdTokenField {}

type TokenResponse = StandardTokenResponse<IdTokenField, BasicTokenType>;
type OAuthClient<AuthUrlState, TokenUrlState> = Client<
    BasicErrorResponse,
    TokenResponse,
    BasicTokenIntrospectionResponse,
    StandardRevocableToken,
    BasicRevocationErrorResponse,
    AuthUrlState,
    oauth2::EndpointNotSet,
    oauth2::EndpointNotSet,
    oauth2::EndpointNotSet,
    TokenUrlState,
>;

impl OidcSignIn {
    /// Creates the sign-in with these issuers. It shares the keys of `verifier`. The issuers' addresses are
    /// discovered at the first sign-in.
    ///
    /// # Errors
    /// When the configuration of an issuer is invalid, or `verifier` does not have the issuer.
    pub fn new(
        verifier: &TokenVerifier,
        guard: &Guard,
        clock: Arc<dyn Clock>,
        secrets: Arc<dyn SecretReader>,
        configs: Vec<SignInConfig>,
    ) -> Result<Self, IssuerConfigError> {
        let issuers = configs
            .iter()
            .map(|config| SignInIssuer { issuer: config.issuer.rules.issuer.clone(), name: config.name.clone() })
            .collect();
        let client = |config: SignInConfig| {
            config.issuer.check()?;
            let keys = verifier.keys_of(&config.issuer.rules.issuer).ok_or(IssuerConfigError::NoIssuer)?;
            let addresses = IssuerEndpoints::new(IssuerFetcher::new(guard, &config.issuer)?);
            Ok(PortalClient { config, keys, addresses })
        };
        let clients = configs.into_iter().map(client).collect::<Result<_, _>>()?;
        Ok(Self { clients, issuers, secrets, clock })
    }

    fn client(&self, issuer: &str) -> Result<&PortalClient, SignInError> {
        let client = self.clients.iter().find(|client| client.config.issuer.rules.issuer == issuer);
        client.ok_or(SignInError::UnknownIssuer)
    }

    /// The OAuth client for token requests, authenticated by its secret.
    async fn token_client(
        &self,
        client: &PortalClient,
        addresses: &DiscoveredAddresses,
    ) -> Result<OAuthClient<oauth2::EndpointNotSet, oauth2::EndpointSet>, SignInError> {
        let token_url = TokenUrl::new(addresses.token.to_string()).map_err(|_| SignInError::Malformed)?;
        let oauth = Client::new(ClientId::new(client.config.client_id.clone())).set_token_uri(token_url);
        let Some(reference) = &client.config.secret_ref else { return Ok(oauth) };
        let secret = self.secrets.read_server_secret(reference).await.map_err(|error| {
            tracing::error!(
                issuer = client.config.issuer.rules.issuer,
                error = &error as &dyn std::error::Error,
                "failed to read the secret of the sign-in client; failing the sign-in or the session renewal"
            );
            SignInError::ClientSecret
        })?;
        Ok(oauth.set_client_secret(ClientSecret::new(secret.expose().to_owned())))
    }

    /// The person whose identity the tokens prove. `nonce` is `None` for a renewed ID token, which has no nonce
    /// (OpenID Connect Core 12.2).
    async fn person(
        &self,
        client: &PortalClient,
        addresses: &DiscoveredAddresses,
        renewed: &RenewedTokens,
        nonce: Option<&str>,
    ) -> Result<SignedInPerson, SignInError> {
        let is_new = renewed.id_token.is_some();
        let id_token = renewed.id_token.as_ref().unwrap_or(&renewed.tokens.id_token).clone();
        let token = UnverifiedToken::parse_as(&id_token, TokenUse::IdToken)?;
        let (rules, now) = (&client.config.issuer.rules, self.clock.now());
        let mut identity = if is_new {
            let _ = rules.check_id_token(&token, &client.config.client_id, nonce, now)?;
            verify_signature(client, &token).await?;
            rules.check_id_token(&token, &client.config.client_id, nonce, now)?.assume_signature_verified()
        } else {
            // The provider renewed only the access token. The earlier ID token was verified when it was new, and
            // was stored sealed. It still proves issuer and subject, but no claims that may have changed since.
            rules.check_earlier_id_token(&token, &client.config.client_id)?.assume_signature_verified()
        };
        let issued_at = token.issued_at();
        let mut claims = token.into_claims();
        match userinfo(client, addresses, &renewed.access_token, &identity.subject).await? {
            Some(userinfo) => {
                // If only the earlier ID token named the groups, they cannot be read again, so the renewal is
                // refused.
                if !is_new && rules.claims_mention_groups(&claims) && !rules.claims_mention_groups(&userinfo) {
                    return Err(SignInError::Refused);
                }
                identity = rules.add_userinfo(identity, &userinfo)?;
                for (name, value) in userinfo {
                    claims.entry(name).or_insert(value);
                }
            }
            // Without a new ID token and without userinfo, nothing proves that the provider's session continues.
            None if !is_new => return Err(SignInError::Refused),
            None => {}
        }
        if let GroupsClaim::Overage { source: Some(source) } = identity.groups.clone()
            && let Some(group_claims) = distributed_claims::read_claims(&client.addresses, &source).await?
        {
            identity = rules.add_overage_groups(identity, &group_claims)?;
        }
        // A test sign-in displays the claims, and `_claim_sources` may contain access tokens.
        claims.remove("_claim_sources");
        let text = |name: &str| claims.get(name).and_then(Value::as_str).map(str::to_owned);
        Ok(SignedInPerson {
            display_name: text("name").filter(|name| !name.trim().is_empty()),
            issuer_session: text("sid"),
            tokens: IdentityProviderTokens { refresh_token: renewed.tokens.refresh_token.clone(), id_token },
            issued_at,
            claims,
            identity,
        })
    }
}

/// The tokens of a response. A renewal response may omit the refresh token; then the earlier one stays valid.
fn renewed_tokens(response: &TokenResponse, earlier: &IdentityProviderTokens) -> RenewedTokens {
    let refresh_token = response.refresh_token().map(|token| token.secret().clone());
    RenewedTokens {
        tokens: IdentityProviderTokens {
            refresh_token: refresh_token.or_else(|| earlier.refresh_token.clone()),
            id_token: earlier.id_token.clone(),
        },
        id_token: response.extra_fields().id_token.clone(),
        access_token: response.access_token().secret().clone(),
    }
}

async fn verify_signature(client: &PortalClient, token: &UnverifiedToken<'_>) -> Result<(), SignInError> {
    let keys = client.keys.key_set_containing(token.key_id()).await.map_err(|refusal| match refusal {
        TokenRefusal::Invalid(reason) => SignInError::Token(reason),
        TokenRefusal::Unavailable { .. } => SignInError::Unavailable,
    })?;
    Ok(keys.verify(token)?)
}

/// The claims of the userinfo response, if the provider has a userinfo endpoint. The response must name the same
/// subject (OpenID Connect Core 5.3.2).
async fn userinfo(
    client: &PortalClient,
    addresses: &DiscoveredAddresses,
    access_token: &str,
    subject: &str,
) -> Result<Option<Map<String, Value>>, SignInError> {
    let Some(url) = &addresses.userinfo else { return Ok(None) };
    let authorization = bearer(access_token)?;
    let accept = (header::ACCEPT, HeaderValue::from_static("application/json"));
    let headers = HeaderMap::from_iter([(header::AUTHORIZATION, authorization), accept]);
    let request = EgressRequest { method: Method::GET, path: String::new(), headers, body: Default::default() };
    let (status, body) = client.addresses.send(url, request).await?;
    match status {
        200 => {}
        401 | 403 => return Err(SignInError::Refused),
        _ => return Err(SignInError::Unavailable),
    }
    // Signed responses are not supported: providers send plain JSON unless the client's registration requires a
    // signature.
    let Ok(Value::Object(claims)) = json::read(&body) else { return Err(SignInError::Malformed) };
    if claims.get("sub").and_then(Value::as_str) != Some(subject) {
        return Err(SignInError::Token(InvalidToken::Subject));
    }
    Ok(Some(claims))
}

/// The value of the `Authorization` header for an access token (RFC 6750, 2.1).
fn bearer(token: &str) -> Result<HeaderValue, SignInError> {
    let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| SignInError::Malformed)?;
    value.set_sensitive(true);
    Ok(value)
}

/// Sends the requests of the OAuth library through the egress guard.
struct GuardedClient<'a>(&'a IssuerEndpoints);

impl<'c> AsyncHttpClient<'c> for GuardedClient<'_> {
    type Error = SignInError;
    type Future = BoxFuture<'c, Result<HttpResponse, SignInError>>;

    fn call(&'c self, request: HttpRequest) -> Self::Future {
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let url = Url::parse(&parts.uri.to_string()).map_err(|_| SignInError::Malformed)?;
            let request =
                EgressRequest { method: parts.method, path: String::new(), headers: parts.headers, body: body.into() };
            let (status, body) = self.0.send(&url, request).await?;
            let mut response = HttpResponse::new(body);
            *response.status_mut() = http::StatusCode::from_u16(status).map_err(|_| SignInError::Malformed)?;
            let content_type = HeaderValue::from_static("application/json");
            response.headers_mut().insert(header::CONTENT_TYPE, content_type);
            Ok(response)
        })
    }
}

/// Converts the failure of a token request to an issuer.
fn token_failure(issuer: &str, error: RequestTokenError<SignInError, BasicErrorResponse>) -> SignInError {
    match error {
        RequestTokenError::ServerResponse(response) => {
            let code = response.error();
            match code {
                // The authorization code or the refresh token is invalid or has expired.
                BasicErrorResponseType::InvalidGrant => SignInError::Refused,
                BasicErrorResponseType::Extension(_) => {
                    tracing::warn!(
                        issuer,
                        %code,
                        "identity provider cannot issue tokens; failing the sign-in or the session renewal"
                    );
                    SignInError::Unavailable
                }
                BasicErrorResponseType::InvalidClient
                | BasicErrorResponseType::InvalidRequest
                | BasicErrorResponseType::InvalidScope
                | BasicErrorResponseType::UnauthorizedClient
                | BasicErrorResponseType::UnsupportedGrantType => {
                    tracing::error!(
                        issuer,
                        %code,
                        "identity provider rejects the configured client; failing the sign-in or the session renewal"
                    );
                    SignInError::Client
                }
            }
        }
        RequestTokenError::Request(error) => error,
        RequestTokenError::Parse(..) | RequestTokenError::Other(_) => SignInError::Malformed,
    }
}

#[async_trait]
impl SignInProvider for OidcSignIn {
    fn issuers(&self) -> &[SignInIssuer] {
        &self.issuers
    }

    fn new_attempt(&self) -> SignInAttempt {
        let (_, verifier) = PkceCodeChallenge::new_random_sha256();
        SignInAttempt {
            state: CsrfToken::new_random_len(32).into_secret(),
            nonce: CsrfToken::new_random_len(32).into_secret(),
            pkce_verifier: verifier.into_secret(),
        }
    }

    async fn authorization_url(
        &self,
        issuer: &str,
        redirect_uri: &str,
        attempt: &SignInAttempt,
    ) -> Result<String, SignInError> {
        let client = self.client(issuer)?;
        let addresses = client.addresses.get().await?;
        let url = |text: String| AuthUrl::new(text).map_err(|_| SignInError::Malformed);
        let redirect = RedirectUrl::new(redirect_uri.to_owned()).map_err(|_| SignInError::Malformed)?;
        let oauth: OAuthClient<oauth2::EndpointSet, oauth2::EndpointNotSet> =
            Client::new(ClientId::new(client.config.client_id.clone()))
                .set_auth_uri(url(addresses.authorization.to_string())?)
                .set_redirect_uri(redirect);
        let verifier = PkceCodeVerifier::new(attempt.pkce_verifier.clone());
        let state = CsrfToken::new(attempt.state.clone());
        let (url, _) = oauth
            .authorize_url(|| state)
            .add_scopes(client.config.scopes.iter().cloned().map(Scope::new))
            .add_extra_param("nonce", attempt.nonce.clone())
            .set_pkce_challenge(PkceCodeChallenge::from_code_verifier_sha256(&verifier))
            .url();
        Ok(url.to_string())
    }

    async fn exchange_code(
        &self,
        issuer: &str,
        redirect_uri: &str,
        attempt: &SignInAttempt,
        code: &str,
        named_issuer: Option<&str>,
    ) -> Result<SignedInPerson, SignInError> {
        let client = self.client(issuer)?;
        let addresses = client.addresses.get().await?;
        if named_issuer.map_or(addresses.names_issuer, |name| name != issuer) {
            return Err(SignInError::Refused);
        }
        let redirect = RedirectUrl::new(redirect_uri.to_owned()).map_err(|_| SignInError::Malformed)?;
        let oauth = self.token_client(client, &addresses).await?.set_redirect_uri(redirect);
        let response = oauth
            .exchange_code(AuthorizationCode::new(code.to_owned()))
            .set_pkce_verifier(PkceCodeVerifier::new(attempt.pkce_verifier.clone()))
            .request_async(&GuardedClient(&client.addresses))
            .await
            .map_err(|error| token_failure(issuer, error))?;
        let tokens = renewed_tokens(&response, &IdentityProviderTokens::default());
        if tokens.id_token.is_none() {
            return Err(SignInError::Malformed);
        }
        self.person(client, &addresses, &tokens, Some(&attempt.nonce)).await
    }

    async fn renew(&self, issuer: &str, tokens: &IdentityProviderTokens) -> Result<RenewedTokens, SignInError> {
        let client = self.client(issuer)?;
        let refresh_token = tokens.refresh_token.clone().ok_or(SignInError::Refused)?;
        let addresses = client.addresses.get().await?;
        let oauth = self.token_client(client, &addresses).await?;
        let response = oauth
            .exchange_refresh_token(&RefreshToken::new(refresh_token))
            .request_async(&GuardedClient(&client.addresses))
            .await
            .map_err(|error| token_failure(issuer, error))?;
        Ok(renewed_tokens(&response, tokens))
    }

    async fn reread_identity(&self, issuer: &str, renewed: &RenewedTokens) -> Result<SignedInPerson, SignInError> {
        let client = self.client(issuer)?;
        let addresses = client.addresses.get().await?;
        self.person(client, &addresses, renewed, None).await
    }

    async fn end_session_url(&self, issuer: &str, id_token: &str, return_to: &str) -> Option<String> {
        let client = self.client(issuer).ok()?;
        let mut url = client.addresses.get().await.ok()?.end_session.clone()?;
        url.query_pairs_mut()
            .append_pair("id_token_hint", id_token)
            .append_pair("client_id", &client.config.client_id)
            .append_pair("post_logout_redirect_uri", return_to);
        Some(url.into())
    }

    async fn verify_logout(&self, token: &str) -> Result<BackchannelLogout, SignInError> {
        let token = UnverifiedToken::parse_as(token, TokenUse::LogoutToken)?;
        let issuer = token.issuer().ok_or(InvalidToken::Issuer)?;
        let client = self.client(issuer).map_err(|_| InvalidToken::Issuer)?;
        let rules = &client.config.issuer.rules;
        let target = rules.check_logout_token(&token, &client.config.client_id, self.clock.now())?;
        verify_signature(client, &token).await?;
        Ok(BackchannelLogout { issuer: rules.issuer.clone(), target })
    }

    fn seal(&self, key: &[u8; 32], purpose: &str, plain: &[u8]) -> Option<Vec<u8>> {
        sealing::seal(key, purpose, plain)
    }

    fn unseal(&self, key: &[u8; 32], purpose: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        sealing::open(key, purpose, sealed)
    }
}
