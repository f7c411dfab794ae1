//! Signs in at the identity provider of a server, and renews and revokes tokens. People sign in by device
//! authorization (RFC 8628), pipelines by client credentials.

mod identity_provider;

use crate::{
    failure::Failure,
    http_client::ServerClient,
    output::eprint,
    profile::{Configuration, Profile},
    terminal_text::sanitize,
};
use identity_provider::{Endpoint, Provider, ProviderChoice, ProviderError, send_request};
use oauth2::{
    AuthType, ClientId, ClientSecret, DeviceAuthorizationUrl, ErrorResponseType, RefreshToken, RequestTokenError,
    Scope, StandardDeviceAuthorizationResponse, StandardErrorResponse, TokenResponse as _, TokenUrl,
    basic::{BasicClient, BasicTokenResponse},
};
use serde::{Deserialize, Serialize};
use std::{
    env, fmt, thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// The environment variable with the OAuth client identifier of a pipeline. With it and [`SECRET_VARIABLE`], each
/// command requests its own token.
const CLIENT_VARIABLE: &str = "FAIRWAY_CLIENT_ID";
/// The environment variable with the secret of the pipeline's OAuth client.
const SECRET_VARIABLE: &str = "FAIRWAY_CLIENT_SECRET";
/// The environment variable with the issuer of the pipeline's OAuth client, if the server accepts several issuers.
const ISSUER_VARIABLE: &str = "FAIRWAY_CLIENT_ISSUER";
/// Seconds before its expiry at which a token is renewed, so that it does not expire during a request.
const RENEWAL_SECONDS: u64 = 60;
/// Maximum time that a command waits for a person to confirm a sign-in.
const MAX_WAIT: Duration = Duration::from_mins(15);

/// A sign-in as stored in a profile, next to its access token.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StoredSignIn {
    /// The issuer URL of the identity provider.
    issuer: String,
    /// The identifier of the OAuth client at the provider that represents `fairway`.
    client_id: String,
    /// The provider's endpoint that renews tokens.
    token_endpoint: Endpoint,
    /// The provider's endpoint that revokes tokens, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    revocation_endpoint: Option<Endpoint>,
    /// The token with which the access token is renewed, if the provider issued one.
    #[serde(skip_serializing_if = "Option::is_none")]
    refresh_token: Option<String>,
    /// The expiry of the access token, in seconds since 1970, if the provider reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<u64>,
}

/// Signs a person in: prints the address at which the person confirms the sign-in, and waits. Returns `None` if the
/// server is in local mode, which needs no sign-in. `issuer` is the address or the name of an accepted issuer.
///
/// # Errors
/// When the server does not accept the issuer, or the person refuses. When the server or the provider cannot be
/// reached, or the provider lacks device authorization.
pub(crate) fn sign_in_person(
    server: &ServerClient,
    issuer: Option<&str>,
) -> Result<Option<(String, StoredSignIn)>, Failure> {
    let choice = issuer.map_or(ProviderChoice::ForPeople, ProviderChoice::Named);
    let Some(provider) = Provider::of(server, choice)? else { return Ok(None) };
    let client_id = provider.cli_client_id()?.to_owned();
    let Some(device) = provider.device_endpoint()? else {
        let message = "the identity provider has no device authorization: pass a token by --token-stdin";
        return Err(Failure::Usage(message.to_owned()));
    };
    let client = BasicClient::new(ClientId::new(client_id.clone()))
        .set_auth_type(AuthType::RequestBody)
        .set_token_uri(TokenUrl::from_url(provider.token_endpoint()?.url()))
        .set_device_authorization_url(DeviceAuthorizationUrl::from_url(device.url()));
    let scopes = provider.scopes().map(|scope| Scope::new(scope.to_owned()));
    let authorization = client.exchange_device_code().add_scopes(scopes).request(&send_request);
    let authorization: StandardDeviceAuthorizationResponse =
        authorization.map_err(|error| token_failure(&provider.issuer, error))?;
    // The addresses come from the provider, so control characters are removed before they are printed.
    let complete_address = authorization.verification_uri_complete().map(|address| sanitize(address.secret()));
    let address = sanitize(authorization.verification_uri().as_str());
    eprint(&format!("open {} in a browser", complete_address.unwrap_or(address)));
    eprint(&format!("and confirm the code {}", sanitize(authorization.user_code().secret())));
    let tokens =
        client.exchange_device_access_token(&authorization).request(&send_request, thread::sleep, Some(MAX_WAIT));
    let tokens = tokens.map_err(|error| token_failure(&provider.issuer, error))?;
    let stored = StoredSignIn {
        issuer: provider.issuer.clone(),
        client_id,
        token_endpoint: provider.token_endpoint()?,
        revocation_endpoint: provider.revocation_endpoint()?,
        refresh_token: None,
        expires_at: None,
    };
    Ok(Some(stored.with_tokens(&tokens)))
}

/// Whether an environment variable for client credentials is set.
pub(crate) fn has_pipeline_variables() -> bool {
    [CLIENT_VARIABLE, SECRET_VARIABLE].into_iter().any(|name| env::var_os(name).is_some_and(|value| !value.is_empty()))
}

/// Requests a token by client credentials, if the environment variables contain them.
///
/// # Errors
/// When only one of the two variables is set, the server has no sign-in, or the provider refuses.
pub(crate) fn pipeline_token(server: &ServerClient) -> Result<Option<String>, Failure> {
    let variable = |name| env::var(name).ok().filter(|value| !value.is_empty());
    let (client, secret) = match (variable(CLIENT_VARIABLE), variable(SECRET_VARIABLE)) {
        (None, None) => return Ok(None),
        (Some(client), Some(secret)) => (client, secret),
        (Some(_), None) | (None, Some(_)) => {
            let message = format!("a pipeline signs in with both {CLIENT_VARIABLE} and {SECRET_VARIABLE}");
            return Err(Failure::Usage(message));
        }
    };
    let issuer = variable(ISSUER_VARIABLE);
    let choice = issuer.as_deref().map_or(ProviderChoice::First, ProviderChoice::Named);
    let Some(provider) = Provider::of(server, choice)? else {
        let message = format!("the server identifies nobody (local mode): unset {CLIENT_VARIABLE}");
        return Err(Failure::Usage(message));
    };
    let client = BasicClient::new(ClientId::new(client))
        .set_client_secret(ClientSecret::new(secret))
        .set_token_uri(TokenUrl::from_url(provider.token_endpoint()?.url()));
    // Requests no scopes: those for people, such as `openid`, have no meaning for a client that acts on its own behalf.
    let tokens = client.exchange_client_credentials().request(&send_request);
    let tokens: BasicTokenResponse = tokens.map_err(|error| token_failure(&provider.issuer, error))?;
    Ok(Some(tokens.access_token().secret().clone()))
}

/// Returns the profile with a valid token; renews a token that expires soon. A lock ensures that only one process
/// renews at a time, because a provider may accept a refresh token only once.
///
/// # Errors
/// When the provider cannot be reached or refuses the renewal, or the configuration cannot be written.
pub(crate) fn renew_profile(profile: Profile, selected: Option<&str>) -> Result<Profile, Failure> {
    let is_due = |profile: &Profile| profile.sign_in.as_ref().is_some_and(StoredSignIn::is_due);
    if !is_due(&profile) {
        return Ok(profile);
    }
    let _lock = Configuration::lock()?;
    let mut configuration = Configuration::read()?;
    let name = configuration.selected_profile_name(selected);
    let mut profile = configuration.stored_profile(&name);
    // Checks again under the lock, because another process may have renewed the token meanwhile.
    if let Some(sign_in) = profile.sign_in.as_ref().filter(|sign_in| sign_in.is_due()) {
        let (token, renewed) = sign_in.renew()?;
        profile.token = Some(token);
        profile.sign_in = Some(renewed);
        configuration.replace(&name, profile.clone());
        configuration.write()?;
    }
    Ok(profile)
}

impl StoredSignIn {
    fn with_tokens(mut self, tokens: &BasicTokenResponse) -> (String, Self) {
        self.expires_at = tokens.expires_in().map(|lifetime| seconds_now().saturating_add(lifetime.as_secs()));
        // Retains the old refresh token if the response contains none, because not all providers rotate refresh tokens.
        if let Some(refresh) = tokens.refresh_token() {
            self.refresh_token = Some(refresh.secret().clone());
        }
        (tokens.access_token().secret().clone(), self)
    }

    fn is_due(&self) -> bool {
        self.expires_at.is_some_and(|expiry| expiry <= seconds_now().saturating_add(RENEWAL_SECONDS))
    }

    fn renew(&self) -> Result<(String, Self), Failure> {
        let Some(refresh) = &self.refresh_token else { return Err(ended_sign_in()) };
        let client = BasicClient::new(ClientId::new(self.client_id.clone()))
            .set_auth_type(AuthType::RequestBody)
            .set_token_uri(TokenUrl::from_url(self.token_endpoint.url()));
        let tokens = client.exchange_refresh_token(&RefreshToken::new(refresh.clone())).request(&send_request);
        match tokens {
            Ok(tokens) => Ok(self.clone().with_tokens(&tokens)),
            // The provider has ended the sign-in, or the refresh token was already used.
            Err(RequestTokenError::ServerResponse(_)) => Err(ended_sign_in()),
            Err(error) => Err(token_failure(&self.issuer, error)),
        }
    }

    /// Revokes the tokens at the provider. Does nothing if the provider has no revocation endpoint.
    ///
    /// # Errors
    /// When the provider does not confirm the revocation.
    pub(crate) fn revoke(&self, token: Option<&str>) -> Result<(), Failure> {
        let Some(endpoint) = &self.revocation_endpoint else { return Ok(()) };
        let (token, kind) = match (&self.refresh_token, token) {
            (Some(refresh), _) => (refresh.as_str(), "refresh_token"),
            (None, Some(access)) => (access, "access_token"),
            (None, None) => return Ok(()),
        };
        // Sends the request without the OAuth library, which revokes only over HTTPS: a provider on
        // loopback may use HTTP.
        let form = [("token", token), ("token_type_hint", kind), ("client_id", self.client_id.as_str())];
        endpoint
            .post_form(&form)
            .map_err(|error| Failure::Unreachable { server: self.issuer.clone(), cause: error.to_string() })
    }
}

fn seconds_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

fn ended_sign_in() -> Failure {
    Failure::WithNextStep {
        failure: Box::new(Failure::Failed("the sign-in has ended".to_owned())),
        next: "fairway login".to_owned(),
    }
}

/// The failure of a token request. The message contains the provider's error code, but not its description.
fn token_failure<T>(issuer: &str, error: RequestTokenError<ProviderError, StandardErrorResponse<T>>) -> Failure
where
    T: ErrorResponseType + AsRef<str> + fmt::Display + 'static,
{
    let cause = match error {
        RequestTokenError::ServerResponse(response) => {
            let code = sanitize(response.error().as_ref());
            return Failure::Failed(format!("the identity provider refused the sign-in: {code}"));
        }
        RequestTokenError::Request(error) => error.to_string(),
        RequestTokenError::Parse(..) | RequestTokenError::Other(_) => {
            "the response is not one of a token endpoint".to_owned()
        }
    };
    Failure::Unreachable { server: issuer.to_owned(), cause }
}
