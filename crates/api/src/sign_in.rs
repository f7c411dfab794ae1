//! Sign-in and sign-out of people in browsers: plain pages without scripts, and the routes that clients read.

mod logout;
mod pending_sign_in;
mod sign_in_test_page;

#[cfg(test)]
pub(crate) use logout::EndSessionRequest;
pub(crate) use logout::{END_SESSION_PATH, backchannel_logout_route, end_session, sign_out_route};
pub(crate) use sign_in_test_page::sign_in_test_route;

use crate::{
    compose::Api,
    error::ApiError,
    http::{
        authentication::{Authenticator, CliClient, session_token},
        html_page::{self, escape},
        query,
        request_id_log_and_metrics::request_id_or_new,
    },
    openapi::ReadRefusals,
    response::ResourceResponse,
};
use actix_web::{
    HttpRequest, HttpResponse,
    cookie::{Cookie, SameSite, time::Duration as CookieDuration},
    get, guard,
    http::{StatusCode, header},
    web,
};
use fairway_domain::access::{
    identity::IdentityRefusal,
    session::{SessionEnd, SessionToken},
    sign_in_provider::{SignInError, SignInProvider},
};
use fairway_operations::Failure;
use pending_sign_in::PendingSignIn;
use serde::{Deserialize, Serialize};
use url::{Url, form_urlencoded};
use utoipa::ToSchema;

/// The cookie of a session. Browsers refuse a cookie with this prefix if it lacks `Secure`, has a domain, or comes
/// from a subdomain.
pub(crate) const SESSION_COOKIE: &str = "__Host-fairway-session";
/// The path patterns of sign-in and sign-out in browsers.
#[cfg(test)]
pub(crate) const SIGN_IN_PATTERNS: [&str; 5] =
    [SIGN_IN_PATH, CALLBACK_PATH, sign_in_test_page::TEST_PATH, logout::SIGN_OUT_PATH, logout::BACKCHANNEL_PATH];
const SIGN_IN_PATH: &str = "/sign-in";
/// Path that identity providers send browsers back to.
const CALLBACK_PATH: &str = "/sign-in/callback";
/// Maximum length of a return target, in bytes.
const MAX_RETURN_BYTES: usize = 2_048;

/// How clients sign in on this server.
#[derive(Serialize, ToSchema)]
#[schema(as = SignInSettings)]
pub(crate) struct SignInSettingsView {
    /// `local` if there is no sign-in, else `oidc`.
    mode: &'static str,
    /// The first issuer; null in local mode.
    issuer: Option<String>,
    /// The client of the command line at that issuer; null if none is configured.
    cli_client_id: Option<String>,
    /// The scopes that a sign-in requests.
    scopes: Vec<String>,
    /// Every issuer, in the order of the configuration; empty in local mode.
    issuers: Vec<SignInIssuerView>,
}

/// How clients sign in at an issuer.
#[derive(Serialize, ToSchema)]
#[schema(as = SignInIssuer)]
pub(crate) struct SignInIssuerView {
    issuer: String,
    /// The issuer's name for people.
    name: String,
    /// The client of the command line; null if none is configured.
    cli_client_id: Option<String>,
    /// The scopes that a sign-in requests.
    scopes: Vec<String>,
}

impl SignInIssuerView {
    fn of(client: &CliClient) -> Self {
        Self {
            issuer: client.issuer.clone(),
            name: client.name.clone(),
            cli_client_id: client.client_id.clone(),
            scopes: client.scopes.clone(),
        }
    }
}

/// Reads how clients sign in. Requires no identity.
#[utoipa::path(
    operation_id = "read_sign_in_settings",
    tag = "tenants",
    responses((status = 200, description = "The settings of sign-in", body = SignInSettingsView), ReadRefusals)
)]
#[get("/v1/sign-in")]
pub(crate) async fn read_sign_in_settings(api: web::Data<Api>) -> HttpResponse {
    let clients = api.authentication.as_ref().map_or(&[][..], Authenticator::cli_clients);
    let client = clients.first();
    let view = SignInSettingsView {
        mode: api.mode.as_str(),
        issuer: client.map(|client| client.issuer.clone()),
        cli_client_id: client.and_then(|client| client.client_id.clone()),
        scopes: client.map(|client| client.scopes.clone()).unwrap_or_default(),
        issuers: clients.iter().map(SignInIssuerView::of).collect(),
    };
    ResourceResponse::ok(&view).into_response()
}

/// The route of the sign-in page.
pub(crate) fn sign_in_route() -> actix_web::Resource {
    web::resource(SIGN_IN_PATH).guard(guard::Get()).to(sign_in)
}

/// The route to which identity providers send browsers back.
pub(crate) fn sign_in_callback_route() -> actix_web::Resource {
    web::resource(CALLBACK_PATH).guard(guard::Get()).to(finish_sign_in)
}

#[derive(Deserialize)]
struct SignInQuery {
    /// The page to show after the sign-in.
    return_to: Option<String>,
    /// The index of the chosen issuer.
    issuer: Option<usize>,
    /// Present after a sign-out, so that the page does not sign in again at once.
    signed_out: Option<String>,
}

/// Sends the browser to the identity provider, or lists the providers if there are several.
async fn sign_in(request: HttpRequest, api: web::Data<Api>) -> Result<HttpResponse, ApiError> {
    let SignInQuery { return_to, issuer, signed_out } = query::parse_query(request.query_string())?;
    let return_to = return_to.filter(|path| is_own_path(path)).unwrap_or_else(|| "/".to_owned());
    let Some(authentication) = &api.authentication else { return Ok(see_other(&return_to)) };
    let Some(provider) = authentication.sign_in() else {
        let text = "<p>No identity provider is configured for browsers: set <code>FAIRWAY_OIDC_CLIENT_ID</code>.</p>";
        return Ok(html_page::page(StatusCode::SERVICE_UNAVAILABLE, "Sign-in is not configured", text));
    };
    let issuers = provider.issuers();
    let selected_issuer = match (issuer, issuers) {
        (Some(index), issuers) => issuers.get(index),
        (None, [single]) if signed_out.is_none() => Some(single),
        (None, _) => None,
    };
    let Some(selected_issuer) = selected_issuer else {
        let title = if signed_out.is_some() { "You are signed out" } else { "Sign in" };
        return Ok(html_page::page(StatusCode::OK, title, &issuer_list(provider, &return_to)));
    };
    let attempt = provider.new_attempt();
    let redirect = callback_url(authentication);
    match provider.authorization_url(&selected_issuer.issuer, &redirect, &attempt).await {
        Ok(url) => {
            let pending = PendingSignIn::new(attempt, selected_issuer.issuer.clone(), return_to, api.clock.now());
            let key = api.sign_in_key().await?;
            let cookie = pending.to_cookie(provider, &key).ok_or_else(ApiError::internal)?;
            let mut response = see_other(&url);
            response.add_cookie(&cookie).map_err(|_| ApiError::internal())?;
            Ok(response)
        }
        Err(error) => Ok(error_page(authentication, &error, "", SIGN_IN_PATH)),
    }
}

fn issuer_list(provider: &dyn SignInProvider, return_to: &str) -> String {
    let return_to: String = form_urlencoded::byte_serialize(return_to.as_bytes()).collect();
    let link = |(index, name): (usize, &str)| {
        format!("<li><a href=\"{SIGN_IN_PATH}?issuer={index}&amp;return_to={return_to}\">{}</a></li>", escape(name))
    };
    let names = provider.issuers().iter().map(|issuer| issuer.name.as_str()).enumerate();
    format!("<p>Sign in with:</p>\n<ul>{}</ul>", names.map(link).collect::<String>())
}

#[derive(Deserialize)]
struct CallbackQuery {
    code: Option<String>,
    state: Option<String>,
    iss: Option<String>,
    error: Option<String>,
}

/// Verifies the callback and starts a session.
async fn finish_sign_in(request: HttpRequest, api: web::Data<Api>) -> Result<HttpResponse, ApiError> {
    let (authentication, provider) = oidc_of(&api)?;
    let callback: CallbackQuery = match query::parse_query(request.query_string()) {
        Ok(callback) => callback,
        Err(_) => return Ok(stale_page(SIGN_IN_PATH)),
    };
    let key = api.sign_in_key().await?;
    let Some(pending) = PendingSignIn::of_request(&request, provider, &key) else {
        return Ok(stale_page(SIGN_IN_PATH));
    };
    let retry = pending.retry_path(provider);
    let is_answered = pending.is_answered_by(callback.state.as_deref(), callback.iss.as_deref());
    if !is_answered || !pending.is_open(api.clock.now()) {
        return Ok(stale_page(&retry));
    }
    let redirect = callback_url(authentication);
    let attempt = pending.attempt();
    let exchange = match (&callback.code, callback.error) {
        (Some(code), None) => {
            provider.exchange_code(&pending.issuer, &redirect, &attempt, code, callback.iss.as_deref()).await
        }
        _ => Err(SignInError::Refused),
    };
    let person = match exchange {
        Ok(person) => person,
        Err(error) => {
            let clock_seconds = error.seconds_outside_validity();
            tracing::warn!(
                issuer = pending.issuer,
                code = error.code(),
                clock_seconds,
                "sign-in failed; showing an error page"
            );
            return without_attempt(match pending.is_test {
                true => {
                    sign_in_test_page::respond_with_token_refusal(&request, &api, authentication, &error, &retry)
                        .await?
                }
                false => error_page(authentication, &error, "", &retry),
            });
        }
    };
    if pending.is_test {
        return without_attempt(sign_in_test_page::respond_with_report(&request, &api, &person).await?);
    }
    match api.services.sessions.start(provider, &person, request_id_or_new()).await {
        Ok(token) => {
            // The earlier session ends only now, because a refused sign-in must change nothing.
            end_earlier_session(&request, &api).await?;
            let mut response = see_other(&pending.return_to);
            let cookie = session_cookie(&token, authentication.session_lifetime().total);
            response.add_cookie(&cookie).map_err(|_| ApiError::internal())?;
            without_attempt(response)
        }
        Err(failure) => without_attempt(refusal_page(failure)),
    }
}

/// The page for a verified person that the server refuses. It names the claim that an administrator has to
/// configure, and never the claim's value.
fn refusal_page(failure: Failure) -> HttpResponse {
    let claim = if let Failure::Identity(refusal) = &failure { tenant_claim_text(refusal) } else { String::new() };
    let error = ApiError::from(failure);
    let text = format!("<p>{}</p>\n{claim}<p>Error code: <code>{}</code></p>", escape(error.message()), error.code());
    html_page::page(error.status(), "Sign-in is refused", &text)
}

/// Describes the problem with the claim of the tenant, as a paragraph; empty for other refusals.
fn tenant_claim_text(refusal: &IdentityRefusal) -> String {
    let Some(claim) = refusal.tenant_claim_name().map(escape) else { return String::new() };
    let problem = if matches!(refusal, IdentityRefusal::TenantMissing { .. }) {
        "the identity provider sent no text in it"
    } else {
        "no tenant that this identity provider serves has its value as slug"
    };
    format!("<p>The claim <code>{claim}</code> must name the tenant: {problem}.</p>\n")
}

/// The authentication with its browser sign-in; 404 if one of them is not configured.
fn oidc_of(api: &Api) -> Result<(&Authenticator, &dyn SignInProvider), ApiError> {
    let authentication = api.authentication.as_ref().ok_or_else(ApiError::not_found)?;
    Ok((authentication, authentication.sign_in().ok_or_else(ApiError::not_found)?))
}

/// Ends the earlier session of the browser, because the cookie of the new session replaces its cookie.
async fn end_earlier_session(request: &HttpRequest, api: &Api) -> Result<(), ApiError> {
    let Some(token) = session_token(request) else { return Ok(()) };
    if let Some(snapshot) = api.services.sessions.find_stored(&token).await? {
        api.services.sessions.end(&token, &snapshot, SessionEnd::SignedOut, request_id_or_new()).await?;
    }
    Ok(())
}

/// The cookie of a session. Scripts cannot read it, and other sites cannot make a browser send it with a change.
fn session_cookie(token: &SessionToken, lifetime: std::time::Duration) -> Cookie<'static> {
    let seconds = i64::try_from(lifetime.as_secs()).unwrap_or(i64::MAX);
    host_cookie(SESSION_COOKIE, token.reveal().to_owned(), CookieDuration::seconds(seconds))
}

/// A cookie of this host alone.
fn host_cookie(name: &'static str, value: String, max_age: CookieDuration) -> Cookie<'static> {
    Cookie::build(name, value).path("/").secure(true).http_only(true).same_site(SameSite::Lax).max_age(max_age).finish()
}

/// A cookie that removes the cookie with this name.
fn removal_cookie(name: &'static str) -> Cookie<'static> {
    host_cookie(name, String::new(), CookieDuration::ZERO)
}

fn without_attempt(mut response: HttpResponse) -> Result<HttpResponse, ApiError> {
    response.add_cookie(&removal_cookie(pending_sign_in::COOKIE)).map_err(|_| ApiError::internal())?;
    Ok(response)
}

fn see_other(location: &str) -> HttpResponse {
    HttpResponse::SeeOther().insert_header((header::LOCATION, location)).finish()
}

fn callback_url(authentication: &Authenticator) -> String {
    format!("{}{CALLBACK_PATH}", authentication.base_url())
}

/// Whether a return target is a path of this server, and short enough for the sign-in cookie that contains it.
/// Browsers drop cookies of more than 4 KiB, and the sign-in would be lost. Browsers interpret `//host` and
/// `/\host` as other hosts.
fn is_own_path(path: &str) -> bool {
    const BASE: &str = "http://fairway.invalid";
    let resolved = Url::parse(BASE).and_then(|base| base.join(path));
    let has_own_origin = resolved.is_ok_and(|url| url.origin().ascii_serialization() == BASE);
    path.len() <= MAX_RETURN_BYTES
        && path.starts_with('/')
        && has_own_origin
        && path.bytes().all(|byte| byte.is_ascii_graphic())
}

/// The page for a callback that belongs to no sign-in of this browser, with a link to another attempt.
fn stale_page(retry: &str) -> HttpResponse {
    let text = format!(
        "<p>This sign-in has expired, or it was started in another browser.</p>\n\
         <p><a href=\"{}\">Sign in again</a></p>",
        escape(retry)
    );
    html_page::page(StatusCode::BAD_REQUEST, "Sign-in failed", &text)
}

/// The page for a failed sign-in. It shows the values that an administrator has to compare with the provider's
/// settings, the paragraph `details`, and a link to another attempt.
fn error_page(authentication: &Authenticator, error: &SignInError, details: &str, retry: &str) -> HttpResponse {
    let status = match error {
        SignInError::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        SignInError::UnknownIssuer => StatusCode::NOT_FOUND,
        SignInError::Refused | SignInError::Token(_) => StatusCode::FORBIDDEN,
        SignInError::Malformed | SignInError::Client | SignInError::ClientSecret => StatusCode::BAD_GATEWAY,
    };
    let text = format!(
        "<p>{}</p>\n<p>Error code: <code>{}</code></p>\n{details}\
         <p>Administrators: the redirect address of this server is <code>{}</code>.</p>\n\
         <p><a href=\"{}\">Try again</a></p>",
        escape(&error.to_string()),
        error.code(),
        escape(&callback_url(authentication)),
        escape(retry),
    );
    html_page::page(status, "Sign-in failed", &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_only_to_own_paths() {
        for valid in ["/", "/workload-runtime/x?environment=dev", "/console#a"] {
            assert!(is_own_path(valid), "{valid}");
        }
        assert!(is_own_path(&format!("/{}", "a".repeat(MAX_RETURN_BYTES - 1))));
        assert!(!is_own_path(&format!("/{}", "a".repeat(MAX_RETURN_BYTES))));
        for invalid in [
            "",
            "x",
            "//evil.example",
            "/\\evil.example",
            "\\\\evil.example",
            "https://evil.example",
            "javascript:alert(1)",
            "/\t/evil.example",
            "/\n/evil.example",
            " /",
            "/a b",
            "/ä",
        ] {
            assert!(!is_own_path(invalid), "{invalid}");
        }
    }
}
