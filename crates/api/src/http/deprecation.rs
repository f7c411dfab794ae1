//! Deprecated routes. Their responses carry the date of deprecation (`Deprecation`, RFC 9745), the date of removal
//! (`Sunset`, RFC 8594) and the successor (`Link`). No `/v1` route is removed before its sunset.

use actix_web::http::{
    Method,
    header::{self, HeaderMap, HeaderName, HeaderValue, HttpDate},
};
use std::time::{Duration, SystemTime};

/// Header with the deprecation date of a route (RFC 9745).
const DEPRECATION: HeaderName = HeaderName::from_static("deprecation");
/// Header with the removal date of a route (RFC 8594).
const SUNSET: HeaderName = HeaderName::from_static("sunset");

/// The deprecated routes of this version. The handler of each entry must be marked `#[deprecated]`, so that the OpenAPI
/// document shows it. The sunset must be at least half a year after the deprecation.
pub const DEPRECATIONS: &[Deprecation] = &[];

/// A deprecated route. Times are Unix seconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deprecation {
    /// HTTP method, such as `GET` or `POST`.
    pub method: &'static str,
    /// Path pattern, as in the OpenAPI document: `/v1/things/{thing_id}`.
    pub pattern: &'static str,
    /// Time of the deprecation, in seconds since 1970.
    pub since: u64,
    /// Time of the removal, in seconds since 1970. The route is not removed earlier.
    pub sunset: u64,
    /// URL of the successor, relative to the server.
    pub successor: &'static str,
}

impl Deprecation {
    /// The deprecation of a route, if any.
    #[must_use]
    pub fn find<'a>(deprecations: &'a [Self], method: &Method, pattern: &str) -> Option<&'a Self> {
        deprecations.iter().find(|deprecation| deprecation.method == method.as_str() && deprecation.pattern == pattern)
    }

    /// Adds `Deprecation`, `Sunset` and `Link` to a response of this route.
    pub fn add_headers(&self, headers: &mut HeaderMap) {
        let sunset = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(self.sunset)).map(HttpDate::from);
        let link = format!("<{}>; rel=\"successor-version\"", self.successor);
        let values = [
            (DEPRECATION, Some(format!("@{}", self.since))),
            (SUNSET, sunset.map(|date| date.to_string())),
            (header::LINK, Some(link)),
        ];
        for (name, value) in values {
            if let Some(value) = value.and_then(|value| HeaderValue::from_str(&value).ok()) {
                headers.append(name, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{HttpState, request_id_log_and_metrics::identify_and_record_request, test_support};
    use actix_web::{App, HttpResponse, middleware::from_fn, test, web};

    const OLD: &[Deprecation] = &[Deprecation {
        method: "GET",
        pattern: "/v1/things/{thing_id}",
        since: 1_688_169_599,
        sunset: 1_719_791_999,
        successor: "/v1/items",
    }];

    #[actix_web::test]
    async fn adds_deprecation_headers_to_responses() {
        let handler = || async { HttpResponse::Ok().append_header(("Link", "</v1/things?x>; rel=\"next\"")).finish() };
        let app = App::new()
            .app_data(web::Data::new(HttpState { deprecations: OLD, ..test_support::http_state() }))
            .service(web::resource("/v1/things/{thing_id}").get(handler).post(handler))
            .wrap(from_fn(identify_and_record_request));
        let app = test::init_service(app).await;
        let response = test::call_service(&app, test::TestRequest::get().uri("/v1/things/7").to_request()).await;
        let header =
            |name: &str| response.headers().get_all(name).map(|value| value.to_str().unwrap()).collect::<Vec<_>>();
        assert_eq!(header("deprecation"), ["@1688169599"]);
        assert_eq!(header("sunset"), ["Sun, 30 Jun 2024 23:59:59 GMT"]);
        assert_eq!(header("link"), ["</v1/things?x>; rel=\"next\"", "</v1/items>; rel=\"successor-version\""]);
        let post_response = test::call_service(&app, test::TestRequest::post().uri("/v1/things/7").to_request()).await;
        assert!(!post_response.headers().contains_key("deprecation"));
    }

    #[::core::prelude::v1::test]
    fn deprecations_match_openapi_document() {
        let document = crate::openapi::document();
        let mut documented: Vec<(String, &str)> = Vec::new();
        for (pattern, item) in &document.paths.paths {
            for (method, operation) in crate::openapi::operations(item) {
                if matches!(operation.deprecated, Some(utoipa::openapi::Deprecated::True)) {
                    documented.push((pattern.clone(), method));
                }
            }
        }
        let listed: Vec<(String, &str)> =
            DEPRECATIONS.iter().map(|route| (route.pattern.to_owned(), route.method)).collect();
        assert_eq!(documented, listed);
        for route in DEPRECATIONS {
            assert!(route.sunset >= route.since + 180 * 86_400, "{route:?}: the sunset is less than 180 days away");
        }
    }
}
