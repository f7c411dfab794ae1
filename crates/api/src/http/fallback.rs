//! The fallback for unmatched requests: 404, or 405 with `Allow` if the path has other methods.

use crate::{
    embeddable_page::EMBED_PATTERN,
    error::ApiError,
    http::{HttpState, html_page, path::decoded_path},
    openapi::operations,
    portal::routes::PORTAL_PATTERNS,
};
use actix_web::{
    HttpRequest, HttpResponse, ResponseError as _,
    http::{StatusCode, header::HeaderValue},
    web,
};
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};
use utoipa::openapi::OpenApi;

/// Path patterns of the documentation pages.
const DOCS_PATTERNS: [&str; 2] = ["/docs", "/docs/{_:.*}"];

/// HTTP methods of each path pattern, for 405 responses.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KnownMethods(BTreeMap<String, BTreeSet<&'static str>>);

impl KnownMethods {
    /// Collects the methods from the OpenAPI document, which contains every route.
    #[must_use]
    pub fn of(document: &OpenApi) -> Self {
        let mut known_methods = Self::default();
        DOCS_PATTERNS.iter().chain(&PORTAL_PATTERNS).for_each(|pattern| known_methods.add(pattern, "GET"));
        // A 405 of an embeddable page would reveal which slugs have one, so this pattern is excluded.
        for (pattern, item) in document.paths.paths.iter().filter(|(pattern, _)| *pattern != EMBED_PATTERN) {
            for (method, _) in operations(item) {
                known_methods.add(pattern, method);
            }
        }
        known_methods
    }

    /// Adds the method of a route pattern.
    pub fn add(&mut self, pattern: &str, method: &'static str) {
        let methods = self.0.entry(openapi_path(pattern).into_owned()).or_default();
        methods.insert(method);
        if method == "GET" {
            methods.insert("HEAD");
        }
    }

    /// The value of the `Allow` header for a pattern; `None` for an unknown pattern.
    pub(super) fn allow(&self, pattern: &str) -> Option<HeaderValue> {
        let methods: Vec<&str> = self.0.get(&*openapi_path(pattern))?.iter().copied().collect();
        HeaderValue::from_str(&methods.join(", ")).ok()
    }
}

/// The OpenAPI form of a route pattern. A pattern may bound a segment by an expression: `{index:.+}` is documented
/// as `{index}`.
pub(super) fn openapi_path(pattern: &str) -> Cow<'_, str> {
    if !pattern.contains(':') {
        return Cow::Borrowed(pattern);
    }
    let segments = pattern.split('/').map(|segment| match segment.split_once(':') {
        Some((name, _)) if name.starts_with('{') => Cow::Owned(format!("{name}}}")),
        Some(_) | None => Cow::Borrowed(segment),
    });
    Cow::Owned(segments.collect::<Vec<_>>().join("/"))
}

/// Handles requests that match no route: 404, or 405 with `Allow`.
pub async fn fallback(request: HttpRequest) -> HttpResponse {
    let base = request.app_data::<web::Data<HttpState>>();
    // The framework's route table matches patterns without methods: each pair of pattern and method is a separate
    // route.
    let pattern = request.resource_map().match_pattern(decoded_path(&request));
    let allow = pattern.and_then(|pattern| base.and_then(|base| base.known_methods.allow(&pattern)));
    match allow {
        Some(allow) => ApiError::method_not_allowed(Some(allow)).error_response(),
        None => not_found(&request),
    }
}

/// Builds a 404, as a page for browsers and as JSON for other clients.
pub(crate) fn not_found(request: &HttpRequest) -> HttpResponse {
    if html_page::prefers_html(request.headers()) {
        return html_page::page(StatusCode::NOT_FOUND, "Not found", "<p>This page does not exist.</p>");
    }
    ApiError::not_found().error_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::test_support;
    use actix_web::{App, get, post, test};
    use utoipa::openapi::{
        HttpMethod, PathItem,
        path::{OperationBuilder, PathsBuilder},
    };

    #[get("/things/{thing}")]
    async fn read() -> HttpResponse {
        HttpResponse::Ok().finish()
    }

    #[post("/things/{thing}")]
    async fn change() -> HttpResponse {
        HttpResponse::Ok().finish()
    }

    #[::core::prelude::v1::test]
    fn collects_methods_from_openapi_document() {
        let operation = OperationBuilder::new().build();
        let item = PathItem::from_http_methods([HttpMethod::Get, HttpMethod::Delete], operation);
        let mut document = OpenApi::default();
        document.paths = PathsBuilder::new().path("/x/{id}", item).build();
        let known_methods = KnownMethods::of(&document);
        assert_eq!(known_methods.allow("/x/{id}").unwrap(), "DELETE, GET, HEAD");
        assert_eq!(known_methods.allow("/x"), None);
    }

    #[actix_web::test]
    async fn distinguishes_unknown_paths_from_wrong_methods() {
        let mut known_methods = KnownMethods::default();
        known_methods.add("/things/{thing}", "GET");
        known_methods.add("/things/{thing}", "POST");
        let base = web::Data::new(HttpState { known_methods, ..test_support::http_state() });
        let app = App::new().app_data(base).service(read).service(change).default_service(web::to(fallback));
        let app = test::init_service(app).await;
        for (method, path, status, allow) in [
            ("GET", "/things/1", StatusCode::OK, None),
            ("POST", "/things/1", StatusCode::OK, None),
            ("DELETE", "/things/1", StatusCode::METHOD_NOT_ALLOWED, Some("GET, HEAD, POST")),
            ("TRACE", "/things/1", StatusCode::METHOD_NOT_ALLOWED, Some("GET, HEAD, POST")),
            ("GET", "/things", StatusCode::NOT_FOUND, None),
            ("GET", "/things/1/", StatusCode::NOT_FOUND, None),
            ("GET", "//things/1", StatusCode::NOT_FOUND, None),
        ] {
            let request = test::TestRequest::with_uri(path).method(method.parse().unwrap()).to_request();
            let response = test::call_service(&app, request).await;
            assert_eq!(response.status(), status, "{method} {path}");
            assert_eq!(response.headers().get("allow").map(|value| value.to_str().unwrap()), allow, "{method} {path}");
        }
    }
}
