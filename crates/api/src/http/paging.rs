//! Pages of lists: `limit` and `offset` in, `X-Total-Count` and `Link` out.

use super::query;
use crate::error::{ApiError, FieldProblem};
use actix_web::{
    FromRequest, HttpRequest, HttpResponse,
    dev::Payload,
    http::{
        StatusCode,
        header::{self, HeaderName},
    },
};
use fairway_domain::store::Paging;
use serde::{Deserialize, Serialize};
use std::future::{Ready, ready};
use url::form_urlencoded;

/// The header with the length of the whole list.
pub const TOTAL_COUNT: HeaderName = HeaderName::from_static("x-total-count");
/// The header that says that the list is longer than is counted.
pub const TOTAL_COUNT_CAPPED: HeaderName = HeaderName::from_static("x-total-count-capped");

/// Rows of a page that does not ask for a number.
const DEFAULT_LIMIT: u32 = 50;
/// Most rows of a page.
const LARGEST_LIMIT: u32 = 200;
/// Deepest page that can be asked for by number, and the largest exact count.
const DEEPEST_OFFSET: u32 = 10_000;
/// What is said of every `limit` that is none, too small, too large or no number alike.
const LIMIT_RULE: &str = "`limit` must be 1 to 200";
/// The same for `offset`; one that is too deep has a code of its own.
const OFFSET_RULE: &str = "`offset` must be 0 to 10000";
/// A parameter that never goes into an answer: the token of a share link.
const SECRET_PARAMETER: &str = "token";

/// Which page of a list is asked for.
///
/// Refusals: 422 for a `limit` outside 1 to 200 or an `offset` below 0; 422 `offset_too_deep` beyond 10 000.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page {
    limit: u32,
    offset: u32,
    /// Path and query of the request, for the link to the next page.
    path: String,
    query: String,
}

#[derive(Deserialize)]
struct Parameters {
    limit: Option<u64>,
    offset: Option<u64>,
}

impl Page {
    /// The page, as stores know it.
    #[must_use]
    pub const fn paging(&self) -> Paging {
        Paging { limit: self.limit, offset: self.offset }
    }

    /// Answers with the items of this page, out of `total`. A total beyond 10 000 need not be exact.
    pub fn answer<T: Serialize>(&self, items: &[T], total: u64) -> HttpResponse {
        let mut answer = HttpResponse::build(StatusCode::OK);
        if total > u64::from(DEEPEST_OFFSET) {
            answer.insert_header((TOTAL_COUNT, DEEPEST_OFFSET)).insert_header((TOTAL_COUNT_CAPPED, "true"));
        } else {
            answer.insert_header((TOTAL_COUNT, total));
        }
        let next = self.offset.saturating_add(self.limit);
        if next <= DEEPEST_OFFSET && u64::from(next) < total {
            answer.insert_header((header::LINK, format!("<{}>; rel=\"next\"", self.address(next))));
        }
        answer.json(items)
    }

    /// The address of this list at another offset, relative to the server.
    fn address(&self, offset: u32) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        for (name, value) in form_urlencoded::parse(self.query.as_bytes()) {
            if name != "limit" && name != "offset" && name != SECRET_PARAMETER {
                query.append_pair(&name, &value);
            }
        }
        query.append_pair("limit", &self.limit.to_string()).append_pair("offset", &offset.to_string());
        format!("{}?{}", self.path, query.finish())
    }
}

impl FromRequest for Page {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(read(request))
    }
}

fn read(request: &HttpRequest) -> Result<Page, ApiError> {
    let asked: Parameters =
        query::read(request.query_string()).map_err(|problem| ApiError::invalid_field(with_bounds(problem)))?;
    let limit = match asked.limit.map(u32::try_from) {
        None => DEFAULT_LIMIT,
        Some(Ok(limit)) if (1..=LARGEST_LIMIT).contains(&limit) => limit,
        Some(Ok(_) | Err(_)) => {
            return Err(ApiError::invalid_field(FieldProblem::new("limit", "invalid", LIMIT_RULE)));
        }
    };
    let offset = match asked.offset.map(u32::try_from) {
        None => 0,
        Some(Ok(offset)) if offset <= DEEPEST_OFFSET => offset,
        Some(Ok(_) | Err(_)) => {
            let rule = "lists cannot be read by offset beyond 10000";
            return Err(ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "offset_too_deep", rule));
        }
    };
    Ok(Page { limit, offset, path: request.path().to_owned(), query: request.query_string().to_owned() })
}

/// A parameter that is no number at all is told the same as one that is out of bounds. One that is given twice is not
/// wrong in itself, and keeps its own message.
fn with_bounds(problem: FieldProblem) -> FieldProblem {
    if problem.message != FieldProblem::invalid("").message {
        return problem;
    }
    match problem.path.as_str() {
        "limit" => FieldProblem::new("limit", "invalid", LIMIT_RULE),
        "offset" => FieldProblem::new("offset", "invalid", OFFSET_RULE),
        _ => problem,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::test::TestRequest;

    async fn page(uri: &str) -> Result<Page, ApiError> {
        Page::extract(&TestRequest::with_uri(uri).to_http_request()).await
    }

    #[actix_web::test]
    async fn bounds_the_page() {
        for (query, limit, offset) in [
            ("", 50, 0),
            ("limit=1", 1, 0),
            ("limit=200&offset=10000", 200, 10_000),
            ("workspace_id=x&offset=5", 50, 5),
        ] {
            let page = page(&format!("/v1/assets?{query}")).await.unwrap();
            assert_eq!(page.paging(), Paging { limit, offset }, "{query}");
        }
        for (query, code) in [
            ("limit=0", "validation_error"),
            ("limit=201", "validation_error"),
            ("limit=-1", "validation_error"),
            ("limit=1000000000000", "validation_error"),
            ("limit=x", "validation_error"),
            ("limit=1&limit=2", "validation_error"),
            ("offset=-1", "validation_error"),
            ("offset=10001", "offset_too_deep"),
            ("offset=1000000000000000000", "offset_too_deep"),
        ] {
            let refusal = page(&format!("/v1/assets?{query}")).await.unwrap_err();
            assert_eq!(refusal.code(), code, "{query}");
            assert_eq!(refusal.status(), StatusCode::UNPROCESSABLE_ENTITY);
        }
    }

    #[actix_web::test]
    async fn every_wrong_limit_is_told_the_same() {
        let mut told = std::collections::BTreeSet::new();
        for limit in ["0", "-1", "201", "1e1", "x", "", "99999999999999999999"] {
            let refusal = page(&format!("/v1/assets?limit={limit}")).await.unwrap_err();
            let mut body = refusal.body();
            body["request_id"].take();
            told.insert(body.to_string());
        }
        assert_eq!(told.len(), 1, "{told:?}");
    }

    #[actix_web::test]
    async fn links_to_the_next_page() {
        let uri = "/v1/assets?q=a%22%3E%20b&token=secret&limit=2&offset=2";
        for (total, count, capped, link) in [
            (4, "4", None, None),
            (5, "5", None, Some("</v1/assets?q=a%22%3E+b&limit=2&offset=4>; rel=\"next\"")),
            (10_000, "10000", None, Some("</v1/assets?q=a%22%3E+b&limit=2&offset=4>; rel=\"next\"")),
            (10_001, "10000", Some("true"), Some("</v1/assets?q=a%22%3E+b&limit=2&offset=4>; rel=\"next\"")),
        ] {
            let answer = page(uri).await.unwrap().answer(&["x"], total);
            let header = |name: &str| answer.headers().get(name).map(|value| value.to_str().unwrap());
            assert_eq!(header("x-total-count"), Some(count));
            assert_eq!(header("x-total-count-capped"), capped);
            assert_eq!(header("link"), link);
        }
        let deepest = page("/v1/assets?limit=200&offset=9900").await.unwrap().answer(&["x"], 20_000);
        assert!(deepest.headers().get("link").is_none());
    }
}
