//! Test sign-ins by an administrator: a page with the claims, the verdict of each mapping rule and the resulting
//! roles. A test creates no session.

use super::{CALLBACK_PATH, SIGN_IN_PATH, error_page, oidc_of, pending_sign_in::PendingSignIn, see_other};
use crate::{
    compose::Api,
    error::ApiError,
    http::{
        authentication::{Authenticator, session_of},
        html_page::{self, escape},
        query,
        request_id_log_and_metrics::request_id_or_new,
    },
};
use actix_web::{HttpRequest, HttpResponse, guard, http::StatusCode, web};
use fairway_domain::access::{
    Caller, GrantSource, Permission,
    identity::{InvalidToken, MappingOutcome, MappingRule},
    sign_in_provider::{SignInError, SignInProvider, SignedInPerson},
};
use fairway_operations::access::{ClockDifference, TestSignInReport, TestedPrincipal};
use serde::Deserialize;
use serde_json::Value;
use std::fmt::Write as _;
use url::Url;

/// Path of the page on which an administrator tests the sign-in.
pub(super) const TEST_PATH: &str = "/sign-in/test";

/// Explains the tolerated difference between the clocks of server and provider.
const CLOCK_HINT: &str = "Differences of up to 60 s are tolerated.";

/// The route of the page that starts a test sign-in.
pub(crate) fn sign_in_test_route() -> actix_web::Resource {
    web::resource(TEST_PATH).guard(guard::Get()).to(start)
}

#[derive(Deserialize)]
struct TestQuery {
    /// The index of the chosen issuer.
    issuer: Option<usize>,
}

/// Lists the issuers, or sends the browser to the chosen one.
async fn start(request: HttpRequest, api: web::Data<Api>) -> Result<HttpResponse, ApiError> {
    let (authentication, provider) = oidc_of(&api)?;
    let TestQuery { issuer } = query::parse_query(request.query_string())?;
    if let Err(page) = administrator(&request, &api).await? {
        return Ok(page);
    }
    let Some(selected_issuer) = issuer.and_then(|index| provider.issuers().get(index)) else {
        return Ok(html_page::page(StatusCode::OK, "Test sign-in", &introduction(provider)));
    };
    let attempt = provider.new_attempt();
    let redirect = format!("{}{CALLBACK_PATH}", authentication.base_url());
    match provider.authorization_url(&selected_issuer.issuer, &redirect, &attempt).await {
        Ok(url) => {
            let pending = PendingSignIn::test(attempt, selected_issuer.issuer.clone(), api.clock.now());
            let key = api.sign_in_key().await?;
            let cookie = pending.to_cookie(provider, &key).ok_or_else(ApiError::internal)?;
            let mut response = see_other(&with_prompt(&url)?);
            response.add_cookie(&cookie).map_err(|_| ApiError::internal())?;
            Ok(response)
        }
        Err(error) => {
            let retry = format!("{TEST_PATH}?issuer={}", issuer.unwrap_or_default());
            Ok(error_page(authentication, &error, "", &retry))
        }
    }
}

/// Makes the provider ask for the account (OpenID Connect Core 3.1.2.1), because the administrator may test the
/// account of another person.
fn with_prompt(url: &str) -> Result<String, ApiError> {
    let mut url = Url::parse(url).map_err(|_| ApiError::internal())?;
    url.query_pairs_mut().append_pair("prompt", "login");
    Ok(url.into())
}

fn introduction(provider: &dyn SignInProvider) -> String {
    let link =
        |(index, name): (usize, &str)| format!("<li><a href=\"{TEST_PATH}?issuer={index}\">{}</a></li>", escape(name));
    let names = provider.issuers().iter().map(|issuer| issuer.name.as_str()).enumerate();
    format!(
        "<p>A test sign-in shows the claims of an account, the verdict of each rule and the resulting roles. It makes no \
         session, and yours continues.</p>\n<p>Sign in with:</p>\n<ul>{}</ul>",
        names.map(link).collect::<String>()
    )
}

/// The administrator whose session the request has; else the page that refuses the request.
async fn administrator(request: &HttpRequest, api: &Api) -> Result<Result<Caller, HttpResponse>, ApiError> {
    let Some(authentication) = &api.authentication else { return Err(ApiError::not_found()) };
    let Some(session) = session_of(api, authentication, request).await? else {
        let text = format!(
            "<p>Only a signed-in administrator of the platform can test sign-ins.</p>\n\
             <p><a href=\"{SIGN_IN_PATH}?return_to={TEST_PATH}\">Sign in</a></p>"
        );
        return Ok(Err(html_page::page(StatusCode::UNAUTHORIZED, "Sign in first", &text)));
    };
    let caller = api.services.identities.resolve_caller(api.mode, &session.active.claims, request_id_or_new()).await?;
    match api.services.test_sign_ins.authorize(&caller) {
        Ok(()) => Ok(Ok(caller)),
        Err(failure) => {
            let error = ApiError::from(failure);
            let text = format!(
                "<p>Only an administrator of the platform can test sign-ins: the permission <code>{}</code> is \
                 missing.</p>\n<p>Error code: <code>{}</code></p>",
                Permission::PlatformManage.as_str(),
                error.code()
            );
            Ok(Err(html_page::page(error.status(), "Test sign-in is refused", &text)))
        }
    }
}

/// The report on a person who signed in for a test. The rights of the administrator are checked again, because the
/// session may have ended meanwhile.
pub(super) async fn respond_with_report(
    request: &HttpRequest,
    api: &Api,
    person: &SignedInPerson,
) -> Result<HttpResponse, ApiError> {
    let caller = match administrator(request, api).await? {
        Ok(caller) => caller,
        Err(page) => return Ok(page),
    };
    let report = api.services.test_sign_ins.report(&caller, person).await?;
    tracing::info!(issuer = person.identity.issuer, administrator = %caller.actor, "tested a sign-in");
    Ok(html_page::page(StatusCode::OK, "Test sign-in", &report_text(person, &report)))
}

/// The page for a test whose token is refused. It shows the difference between the clocks, which the page of an
/// ordinary sign-in omits. It shows no claims, because a refused token proves none.
pub(super) async fn respond_with_token_refusal(
    request: &HttpRequest,
    api: &Api,
    authentication: &Authenticator,
    error: &SignInError,
    retry: &str,
) -> Result<HttpResponse, ApiError> {
    if let Err(page) = administrator(request, api).await? {
        return Ok(page);
    }
    let details = match error {
        SignInError::Token(InvalidToken::Expired { seconds_ago }) => {
            format!("<p>By this server's clock the token expired {seconds_ago} s ago. {CLOCK_HINT}</p>\n")
        }
        SignInError::Token(InvalidToken::NotYetValid { seconds_ahead }) => {
            format!("<p>By this server's clock the token is valid in {seconds_ahead} s only. {CLOCK_HINT}</p>\n")
        }
        SignInError::Token(_)
        | SignInError::UnknownIssuer
        | SignInError::Unavailable
        | SignInError::Refused
        | SignInError::Malformed
        | SignInError::Client
        | SignInError::ClientSecret => String::new(),
    };
    Ok(error_page(authentication, error, &details, retry))
}

/// The comparison of the clocks, as a paragraph.
fn clock_text(clock: Option<ClockDifference>) -> String {
    match clock {
        None => "<p>Clocks: the ID token has no time of issue.</p>\n".to_owned(),
        Some(ClockDifference::Ahead(seconds)) => {
            format!("<p>Clocks: the provider's clock is {seconds} s ahead of this server's. {CLOCK_HINT}</p>\n")
        }
        Some(ClockDifference::Behind(seconds)) => {
            format!("<p>Clocks: the provider's clock is {seconds} s behind this server's. {CLOCK_HINT}</p>\n")
        }
    }
}

fn report_text(person: &SignedInPerson, report: &TestSignInReport) -> String {
    let outcome = if report.principal.is_some() { "A sign-in would succeed." } else { "A sign-in would be refused." };
    let mut text = format!("<p><strong>{outcome}</strong> No session was made.</p>\n<h2>Rules</h2>\n");
    text.push_str(
        "<table>\n<tr><th scope=\"col\">Rule</th><th scope=\"col\">Verdict</th><th scope=\"col\">Effect</th></tr>\n",
    );
    for (rule, verdict) in &report.verdicts {
        write_rule(&mut text, *rule, verdict);
    }
    text.push_str("</table>\n");
    text.push_str(&clock_text(report.clock));
    if let Some(principal) = &report.principal {
        write_roles(&mut text, principal);
    }
    text.push_str("<h2>Claims</h2>\n<table>\n<tr><th scope=\"col\">Claim</th><th scope=\"col\">Value</th></tr>\n");
    for (name, value) in &person.claims {
        let rendered = match value {
            Value::String(value) => value.clone(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
        };
        let _ = writeln!(text, "<tr><td><code>{}</code></td><td>{}</td></tr>", escape(name), escape(&rendered));
    }
    let _ = write!(text, "</table>\n<p><a href=\"{TEST_PATH}\">Test again</a></p>");
    text
}

fn write_rule(text: &mut String, rule: MappingRule, verdict: &MappingOutcome) {
    let (label, effect) = match verdict {
        MappingOutcome::Applied(effect) => ("applied", escape(effect)),
        MappingOutcome::Ignored(effect) => ("ignored", escape(effect)),
        MappingOutcome::Refused(refusal) => {
            let claim = refusal.tenant_claim_name().map(|claim| format!("; claim <code>{}</code>", escape(claim)));
            let claim = claim.unwrap_or_default();
            ("refused", format!("{} (<code>{}</code>){claim}", escape(&refusal.to_string()), refusal.code()))
        }
    };
    let _ = writeln!(text, "<tr><td>{}</td><td>{label}</td><td>{effect}</td></tr>", rule.as_str());
}

fn write_roles(text: &mut String, principal: &TestedPrincipal) {
    let TestedPrincipal { actor, tenant, grants, .. } = principal;
    let _ = writeln!(
        text,
        "<h2>Roles</h2>\n<p>{} in tenant <code>{}</code></p>",
        escape(&actor.to_string()),
        tenant.uuid()
    );
    if grants.is_empty() {
        text.push_str("<p>No roles: neither the name nor a group has a role binding.</p>\n");
        return;
    }
    text.push_str("<ul>\n");
    for grant in grants {
        let reference = grant.scope.reference().map(|id| format!(" <code>{id}</code>")).unwrap_or_default();
        let source = match grant.source {
            GrantSource::BindingOrRule => "",
            GrantSource::BootstrapAdmins => ", by the setting <code>FAIRWAY_BOOTSTRAP_ADMINS</code>",
        };
        let _ = writeln!(text, "<li>{} on {}{reference}{source}</li>", grant.role.as_str(), grant.scope.kind());
    }
    text.push_str("</ul>\n");
}
