//! Routes that will go away: their answers say since when nobody should begin to use them (`Deprecation`, RFC 9745), when
//! they end (`Sunset`, RFC 8594), and where to go instead (`Link`). Within `/v1` nothing is taken away before its sunset.

use actix_web::http::{
    Method,
    header::{self, HeaderMap, HeaderName, HeaderValue, HttpDate},
};
use std::time::{Duration, SystemTime};

/// Since when a route is deprecated (RFC 9745).
const DEPRECATION: HeaderName = HeaderName::from_static("deprecation");
/// When a route ends (RFC 8594).
const SUNSET: HeaderName = HeaderName::from_static("sunset");

/// The routes of this version that will go away. Whoever adds one marks its handler `#[deprecated]`, so that the OpenAPI
/// document says it too, and gives people half a year.
pub const DEPRECATIONS: &[Deprecation] = &[];

/// A route that will go away. Times are seconds since 1970, UTC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deprecation {
    /// `GET`, `POST` and so on.
    pub method: &'static str,
    /// As in the OpenAPI document: `/v1/things/{thing_id}`.
    pub pattern: &'static str,
    /// When it was deprecated.
    pub since: u64,
    /// When it ends.
    pub sunset: u64,
    /// What to use instead: an address, relative to the server's.
    pub successor: &'static str,
}

impl Deprecation {
    /// The one of a route.
    #[must_use]
    pub fn of<'a>(all: &'a [Self], method: &Method, pattern: &str) -> Option<&'a Self> {
        all.iter().find(|one| one.method == method.as_str() && one.pattern == pattern)
    }

    /// Says it on an answer.
    pub fn announce(&self, headers: &mut HeaderMap) {
        let sunset = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(self.sunset)).map(HttpDate::from);
        let link = format!("<{}>; rel=\"successor-version\"", self.successor);
        let said = [
            (DEPRECATION, Some(format!("@{}", self.since))),
            (SUNSET, sunset.map(|date| date.to_string())),
            (header::LINK, Some(link)),
        ];
        for (name, value) in said {
            if let Some(value) = value.and_then(|value| HeaderValue::from_str(&value).ok()) {
                headers.append(name, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{HttpBase, request_context::request_context, trial};
    use actix_web::{App, HttpResponse, middleware::from_fn, test, web};

    const OLD: &[Deprecation] = &[Deprecation {
        method: "GET",
        pattern: "/v1/things/{thing_id}",
        since: 1_688_169_599,
        sunset: 1_719_791_999,
        successor: "/v1/items",
    }];

    #[actix_web::test]
    async fn a_route_that_goes_away_says_when_and_where_to() {
        let thing = || async { HttpResponse::Ok().append_header(("Link", "</v1/things?x>; rel=\"next\"")).finish() };
        let app = App::new()
            .app_data(web::Data::new(HttpBase { deprecations: OLD, ..trial::base() }))
            .service(web::resource("/v1/things/{thing_id}").get(thing).post(thing))
            .wrap(from_fn(request_context));
        let app = test::init_service(app).await;
        let answer = test::call_service(&app, test::TestRequest::get().uri("/v1/things/7").to_request()).await;
        let header = |name: &str| answer.headers().get_all(name).map(|one| one.to_str().unwrap()).collect::<Vec<_>>();
        assert_eq!(header("deprecation"), ["@1688169599"]);
        assert_eq!(header("sunset"), ["Sun, 30 Jun 2024 23:59:59 GMT"]);
        assert_eq!(header("link"), ["</v1/things?x>; rel=\"next\"", "</v1/items>; rel=\"successor-version\""]);
        let other = test::call_service(&app, test::TestRequest::post().uri("/v1/things/7").to_request()).await;
        assert!(!other.headers().contains_key("deprecation"));
    }

    #[::core::prelude::v1::test]
    fn the_document_and_the_table_agree() {
        let document = crate::document::document();
        let mut marked: Vec<(String, &str)> = Vec::new();
        for (pattern, item) in &document.paths.paths {
            for (method, operation) in crate::document::operations(item) {
                if matches!(operation.deprecated, Some(utoipa::openapi::Deprecated::True)) {
                    marked.push((pattern.clone(), method));
                }
            }
        }
        let listed: Vec<(String, &str)> = DEPRECATIONS.iter().map(|one| (one.pattern.to_owned(), one.method)).collect();
        assert_eq!(marked, listed);
        for one in DEPRECATIONS {
            assert!(one.sunset >= one.since + 180 * 86_400, "{one:?}: people get half a year");
        }
    }
}
