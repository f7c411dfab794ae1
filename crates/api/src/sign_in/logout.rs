//! Sign-out. A person ends the session here and at the identity provider, or the identity provider ends sessions
//! here.

use super::{SESSION_COOKIE, removal_cookie, see_other};
use crate::{
    compose::Api,
    error::ApiError,
    http::{
        authentication::{BrowserSession, session_token},
        body::Body,
        request_id_log_and_metrics::request_id_or_new,
    },
    openapi::WriteRefusals,
};
use actix_web::{
    HttpMessage as _, HttpRequest, HttpResponse,
    error::UrlencodedError,
    guard,
    http::{StatusCode, header},
    post,
    web::{self, FormConfig},
};
use fairway_domain::access::{session::SessionEnd, sign_in_provider::SignInError};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;
use validator::Validate;

pub(super) const SIGN_OUT_PATH: &str = "/sign-out";
/// Path of the API route that ends a browser session.
pub(crate) const END_SESSION_PATH: &str = "/v1/session/logout";
/// Path of the logout by an identity provider.
pub(super) const BACKCHANNEL_PATH: &str = "/sign-out/backchannel";
/// Path to which a sign-out leads. Its page does not start another sign-in by itself.
const SIGNED_OUT_PATH: &str = "/sign-in?signed_out=1";

/// Empty body of a sign-out.
#[derive(Debug, Deserialize, Serialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub(crate) struct EndSessionRequest {}

/// Ends the browser session of the request. A caller without a session gets 204 too.
#[utoipa::path(
    operation_id = "end_session",
    tag = "tenants",
    request_body = EndSessionRequest,
    responses((status = 204, description = "The session has ended"), WriteRefusals)
)]
#[post("/v1/session/logout")]
pub(crate) async fn end_session(
    request: HttpRequest,
    api: web::Data<Api>,
    _body: Body<EndSessionRequest>,
) -> Result<HttpResponse, ApiError> {
    let session = request.extensions().get::<BrowserSession>().cloned();
    let mut response = HttpResponse::NoContent().finish();
    if let Some(BrowserSession { token, active }) = session {
        api.services.sessions.end(&token, &active.snapshot, SessionEnd::SignedOut, request_id_or_new()).await?;
        response.add_cookie(&removal_cookie(SESSION_COOKIE)).map_err(|_| ApiError::internal())?;
    }
    Ok(response)
}

#[derive(Deserialize)]
struct SignOutForm {
    /// The session's CSRF token, which a request of another site lacks. Not needed without a session.
    csrf_token: Option<String>,
}

/// The route of the sign-out form.
pub(crate) fn sign_out_route() -> actix_web::Resource {
    web::resource(SIGN_OUT_PATH).guard(guard::Post()).app_data(form_config()).to(sign_out)
}

/// Error responses for malformed forms, because the default ones of the API describe JSON bodies.
fn form_config() -> FormConfig {
    FormConfig::default().error_handler(|error, _| {
        let refusal = if matches!(error, UrlencodedError::ContentType) {
            ApiError::form_expected()
        } else if matches!(error, UrlencodedError::Overflow { .. }) {
            ApiError::payload_too_large()
        } else {
            ApiError::malformed_form()
        };
        refusal.into()
    })
}

/// Ends the session here, and sends the browser to the identity provider, which ends its own (OpenID Connect
/// RP-Initiated Logout 1.0).
async fn sign_out(
    request: HttpRequest,
    api: web::Data<Api>,
    form: web::Form<SignOutForm>,
) -> Result<HttpResponse, ApiError> {
    let Some(authentication) = &api.authentication else { return Ok(redirect_after_sign_out(&request, "/")) };
    let mut location = SIGNED_OUT_PATH.to_owned();
    // Reads the stored session without its groups, because a sign-out must work while the identity provider is
    // unavailable.
    let sessions = &api.services.sessions;
    if let Some(token) = session_token(&request)
        && let Some(snapshot) = sessions.find_stored(&token).await?
    {
        match &form.csrf_token {
            Some(csrf_token) if token.is_csrf_token(csrf_token) => {}
            Some(_) => {
                return Err(ApiError::csrf_field_invalid("the form field `csrf_token` is not that of the session"));
            }
            None => return Err(ApiError::csrf_field_invalid("the form field `csrf_token` is missing")),
        }
        // The session ends first. The provider may not respond, or the browser may not wait for the provider's
        // address.
        sessions.end(&token, &snapshot, SessionEnd::SignedOut, request_id_or_new()).await?;
        if let Some(provider) = authentication.sign_in()
            && let Some(id_token) = sessions.id_token(provider, &token, &snapshot)
        {
            let return_to = format!("{}{SIGNED_OUT_PATH}", authentication.base_url());
            let url = provider.end_session_url(&snapshot.issuer, &id_token, &return_to).await;
            location = url.unwrap_or(location);
        }
    }
    let mut response = redirect_after_sign_out(&request, &location);
    response.add_cookie(&removal_cookie(SESSION_COOKIE)).map_err(|_| ApiError::internal())?;
    Ok(response)
}

/// The address to which a script of the portal sends the browser after a sign-out.
#[derive(Serialize)]
struct SignedOut<'a> {
    location: &'a str,
}

/// Redirects the browser. A script receives the address instead, because it cannot follow a redirect to another site.
/// Pages need this script, because their content security policy forbids forms.
fn redirect_after_sign_out(request: &HttpRequest, location: &str) -> HttpResponse {
    let accept = request.headers().get_all(header::ACCEPT).filter_map(|value| value.to_str().ok());
    if accept.into_iter().any(|accept| accept == "application/json") {
        HttpResponse::Ok().json(SignedOut { location })
    } else {
        see_other(location)
    }
}

#[derive(Deserialize)]
struct LogoutForm {
    logout_token: Option<String>,
}

/// The route by which an identity provider ends sessions (back-channel logout).
pub(crate) fn backchannel_logout_route() -> actix_web::Resource {
    web::resource(BACKCHANNEL_PATH).guard(guard::Post()).app_data(form_config()).to(end_by_provider)
}

/// Ends the sessions that a logout token names (OpenID Connect Back-Channel Logout 2.5 to 2.8).
async fn end_by_provider(api: web::Data<Api>, form: web::Form<LogoutForm>) -> Result<HttpResponse, ApiError> {
    let provider = api.authentication.as_ref().and_then(|authentication| authentication.sign_in());
    let provider = provider.ok_or_else(ApiError::not_found)?;
    let Some(token) = &form.logout_token else {
        tracing::warn!("refused a logout without the form field logout_token; responding 400");
        return Ok(invalid_logout());
    };
    match provider.verify_logout(token).await {
        Ok(logout) => {
            let ended = api.services.sessions.end_by_provider(&logout, request_id_or_new()).await?;
            tracing::info!(issuer = logout.issuer, ended, "the identity provider ended sessions");
            Ok(HttpResponse::Ok().finish())
        }
        // After this 503, the provider repeats the logout.
        Err(error @ SignInError::Unavailable) => Err(ApiError::unavailable().log_cause(&error)),
        Err(error) => {
            tracing::warn!(
                code = error.code(),
                clock_seconds = error.seconds_outside_validity(),
                "refused a logout token; responding 400"
            );
            Ok(invalid_logout())
        }
    }
}

/// The response to a logout without a valid token (OpenID Connect Back-Channel Logout 2.8).
fn invalid_logout() -> HttpResponse {
    HttpResponse::build(StatusCode::BAD_REQUEST).json(json!({ "error": "invalid_request" }))
}
