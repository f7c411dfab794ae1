//! The embeddable page of a workload's runtime interface, the only page that another site may frame. Errors are
//! static pages without scripts.

use crate::{
    caller::RuntimeClient,
    compose::Api,
    error::ApiError,
    http::{
        HttpState, fallback::not_found, html_page, request_id_log_and_metrics::request_id_or_new,
        route_origins::RouteOrigins,
    },
    portal::page::{PageKind, PortalPage},
};
use actix_web::{
    FromRequest as _, HttpRequest, HttpResponse, ResponseError as _,
    dev::Payload,
    guard,
    http::{
        StatusCode,
        header::{self, HeaderValue},
    },
    web,
};
use fairway_domain::{
    slug::Slug,
    workload::{Workload, interface::InterfaceConfig},
};
use fairway_operations::access::IdentityMode;
use std::fmt;

/// The workload that always has an embeddable page.
pub(crate) const BUILTIN_SLUG: &str = "ticket-classifier";
/// The path pattern of the pages.
pub(crate) const EMBED_PATTERN: &str = "/{slug}";

/// The workloads with an embeddable page, and the origins that may embed it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EmbedPolicy {
    slugs: Vec<Slug>,
    ancestors: FrameAncestors,
}

/// The origins that may embed a page: the value of `frame-ancestors` (Content Security Policy, level 3).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FrameAncestors(String);

impl FrameAncestors {
    /// Parses `'none'`, or a list of `'self'` and origins such as `https://portal.example` or `https://*.example:8443`,
    /// separated by commas or spaces; `None` for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let sources: Vec<&str> = text.split([',', ' ']).map(str::trim).filter(|source| !source.is_empty()).collect();
        let is_valid = match sources.as_slice() {
            [] => false,
            ["'none'"] => true,
            sources => sources.iter().all(|source| *source == "'self'" || is_origin(source)),
        };
        is_valid.then(|| Self(sources.join(" ")))
    }
}

impl fmt::Display for FrameAncestors {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// Whether a text is an origin: a scheme and a host, with an optional leading wildcard label and an optional port.
fn is_origin(text: &str) -> bool {
    let Some(authority) = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")) else { return false };
    let (host, port) = authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port)));
    let host = host.strip_prefix("*.").unwrap_or(host);
    let label = |label: &str| {
        let is_label_byte = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        !label.is_empty() && label.bytes().all(is_label_byte) && !label.starts_with('-') && !label.ends_with('-')
    };
    let number =
        |port: &str| port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse().is_ok_and(|port: u16| port > 0);
    host.split('.').all(label) && port.is_none_or(number)
}

impl EmbedPolicy {
    /// Creates the configuration for these workloads, in addition to [`BUILTIN_SLUG`].
    #[must_use]
    pub const fn new(slugs: Vec<Slug>, ancestors: FrameAncestors) -> Self {
        Self { slugs, ancestors }
    }

    fn has_page(&self, slug: &str) -> bool {
        slug == BUILTIN_SLUG || self.slugs.iter().any(|allowed| allowed.as_str() == slug)
    }

    pub(crate) const fn ancestors(&self) -> &FrameAncestors {
        &self.ancestors
    }

    fn content_security_policy(&self) -> String {
        let ancestors = RouteOrigins::of(EMBED_PATTERN).frame_ancestors(self);
        format!("default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors {ancestors}")
    }
}

/// The route of embeddable pages, for GET only: other methods get a 404.
pub(crate) fn embeddable_page_route() -> actix_web::Resource {
    web::resource(EMBED_PATTERN).guard(guard::Get()).to(embed)
}

async fn embed(request: HttpRequest, api: web::Data<Api>, base: web::Data<HttpState>) -> HttpResponse {
    let embed_policy = &base.embed_policy;
    // The slug comes from the raw path, because a percent-encoded slug is invalid.
    let slug = request.uri().path().strip_prefix('/').filter(|slug| embed_policy.has_page(slug));
    let Some(slug) = slug.and_then(|slug| Slug::parse(slug).ok()) else {
        return not_found(&request);
    };
    match load_workload(&request, &api, &slug).await {
        Ok(workload) => PortalPage {
            status: StatusCode::OK,
            kind: PageKind::Embed,
            title: &workload.name,
            description: workload.display_description(),
            slug: Some(slug.as_str()),
            auth_mode: api.mode.as_str(),
            theme: workload.interface_config.iter().flat_map(InterfaceConfig::css_variables).collect(),
            ancestors: &RouteOrigins::of(EMBED_PATTERN).frame_ancestors(embed_policy),
        }
        .render(&base.portal),
        Err(refusal) => error_page(&request, embed_policy, &refusal, api.mode.as_str(), &slug),
    }
}

/// Reads a workload with the rights of the client that requests the page.
pub(crate) async fn load_workload(request: &HttpRequest, api: &Api, slug: &Slug) -> Result<Workload, ApiError> {
    let RuntimeClient(runtime_request) = RuntimeClient::from_request(request, &mut Payload::None).await?;
    let runtime_caller = api.services.share_links.resolve_runtime_caller(runtime_request).await?;
    let caller = api.services.identities.resolve_caller(api.mode, &runtime_caller.claims, request_id_or_new()).await?;
    Ok(api.services.workloads.read_runtime_workload(&caller, &runtime_caller, slug).await?.workload)
}

/// Builds an error page without scripts or subresources.
fn embeddable_page(embed_policy: &EmbedPolicy, status: StatusCode, title: &str, body: &str) -> HttpResponse {
    let mut page = html_page::page(status, title, body);
    if let Ok(policy) = HeaderValue::from_str(&embed_policy.content_security_policy()) {
        page.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    page
}

/// Builds the error page for an embedded page, with the headers of the error, such as `Retry-After`.
fn error_page(
    request: &HttpRequest,
    embed_policy: &EmbedPolicy,
    refusal: &ApiError,
    auth_mode: &str,
    slug: &Slug,
) -> HttpResponse {
    let no_access = no_access_text(auth_mode, slug);
    let (title, text) = match refusal.status() {
        StatusCode::UNAUTHORIZED => ("No access", no_access.as_str()),
        StatusCode::TOO_MANY_REQUESTS => {
            ("Too many requests", "<p>This page received too many requests. Try again later.</p>")
        }
        // The same response as for a slug without a page, so that it does not reveal whether the workload exists.
        StatusCode::NOT_FOUND => return not_found(request),
        status if !status.is_server_error() => return refusal.error_response(),
        _ => ("Not available", "<p>This page cannot be shown at the moment. Try again later.</p>"),
    };
    let mut page = embeddable_page(embed_policy, refusal.status(), title, text);
    for (name, value) in refusal.headers() {
        page.headers_mut().insert(name.clone(), value.clone());
    }
    page
}

/// The text for a client without access. A frame of another site receives no cookies, so the sign-in link opens the
/// page outside the frame.
fn no_access_text(auth_mode: &str, slug: &Slug) -> String {
    let mut text = "<p>You have no access to this page. Ask the sender of the link for a new one.</p>".to_owned();
    if auth_mode != IdentityMode::Local.as_str() {
        text += &format!(
            "\n<p><a href=\"/sign-in?return_to=%2Fworkload-runtime%2F{slug}\" target=\"_blank\" \
             rel=\"noopener noreferrer\">Sign in</a> in a new window.</p>"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_access_text_offers_sign_in_in_oidc_mode_only() {
        let slug = Slug::parse("desk").unwrap();
        assert!(!no_access_text("local", &slug).contains("href"));
        let expected = "<a href=\"/sign-in?return_to=%2Fworkload-runtime%2Fdesk\" target=\"_blank\"";
        assert!(no_access_text("oidc", &slug).contains(expected));
    }

    #[test]
    fn parses_only_valid_frame_ancestors() {
        for (text, expected) in [
            ("'self'", "'self'"),
            ("'none'", "'none'"),
            ("'self', https://a.example", "'self' https://a.example"),
            ("https://*.a.example:8443 http://127.0.0.1:3000", "https://*.a.example:8443 http://127.0.0.1:3000"),
        ] {
            assert_eq!(FrameAncestors::parse(text).unwrap().to_string(), expected);
        }
        for invalid in [
            "",
            ",",
            "*",
            "self",
            "'none' 'self'",
            "https:",
            "https://",
            "https://*",
            "https://a/b",
            "https://a;script-src *",
            "https://a\r\nX: y",
            "https://a:0",
            "https://a:99999",
            "https://a:+1",
            "https://u@a",
            "https://-a",
            "javascript://a",
            "https://a..b",
        ] {
            assert_eq!(FrameAncestors::parse(invalid), None, "{invalid}");
        }
    }
}
