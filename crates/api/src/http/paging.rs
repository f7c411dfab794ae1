//! Pagination of all lists. Input: filters, `limit`, `offset` and `cursor`; output: `X-Total-Count` and `Link`.

mod cursor;

use super::query;
use crate::{
    compose::Api,
    error::{ApiError, FieldProblem},
};
use actix_web::{
    FromRequest, HttpRequest, HttpResponse,
    dev::Payload,
    http::{
        StatusCode,
        header::{self, HeaderName},
    },
    web,
};
pub(crate) use cursor::CursorSeal;
pub use cursor::CursorSealKey;
use fairway_domain::store::{Cursor, Page, PageRequest, PageStart};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{collections::BTreeMap, future::Future, pin::Pin};
use url::form_urlencoded;

/// Header with the length of the whole list.
pub const TOTAL_COUNT: HeaderName = HeaderName::from_static("x-total-count");
/// Header that marks the total count as capped.
pub const TOTAL_COUNT_CAPPED: HeaderName = HeaderName::from_static("x-total-count-capped");

/// Number of rows of a page if the request has no `limit`.
const DEFAULT_LIMIT: u32 = 50;
/// Maximum value of `limit`, the number of rows of a page.
const MAX_LIMIT: u32 = 200;
/// Maximum offset, and the largest exact count.
const MAX_OFFSET: u32 = 10_000;
/// Message for every invalid `limit`.
const LIMIT_RULE: &str = "`limit` must be 1 to 200";
/// Message for every invalid `offset`; a too large one also has its own code.
const OFFSET_RULE: &str = "`offset` must be 0 to 10000";
/// Share token parameter: accepted by every list and never repeated in a response.
const SHARE_TOKEN_PARAMETER: &str = "token";
/// The parameters that select a page; all others are filters.
const PAGE_PARAMETERS: [&str; 3] = ["limit", "offset", "cursor"];

/// The filters of a list that has none.
#[derive(Deserialize, Debug)]
pub struct NoFilter {}

/// Extractor of a list request with filters `Q`.
///
/// Errors: 422 for a repeated parameter, a `limit` outside 1 to 200, an `offset` below 0, a `cursor` of another
/// list, or `offset` and `cursor` together. 422 `offset_too_deep` beyond 10,000. The strict query middleware has
/// already refused unknown parameters.
#[derive(Debug)]
pub struct ListRequest<Q> {
    /// The list's own filters, deserialized from the query.
    pub filter: Q,
    paging: PageRequest,
    seal: CursorSeal,
    /// The request path, for the link to the next page.
    path: String,
    filters: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct PageQuery {
    limit: Option<u64>,
    offset: Option<u64>,
    cursor: Option<String>,
}

impl<Q> ListRequest<Q> {
    /// The limit, offset and cursor of the request, for the stores.
    #[must_use]
    pub const fn paging(&self) -> PageRequest {
        self.paging
    }

    /// Responds with the rows of this page, the total count, and a link to the next page.
    pub fn respond<T: Serialize>(&self, page: &Page<T>) -> HttpResponse {
        self.respond_with(&page.rows, page.total, page.next)
    }

    /// A response with `resource`, which contains one page of a list with `total` rows. The response links to the page
    /// that the cursor `next` selects.
    pub fn respond_with(&self, resource: &impl Serialize, total: u64, next: Option<Cursor>) -> HttpResponse {
        let mut response = HttpResponse::build(StatusCode::OK);
        if total > u64::from(MAX_OFFSET) {
            response.insert_header((TOTAL_COUNT, MAX_OFFSET)).insert_header((TOTAL_COUNT_CAPPED, "true"));
        } else {
            response.insert_header((TOTAL_COUNT, total));
        }
        if let Some(link) = next.map(|next| self.next_link(next)) {
            response.insert_header(link);
        }
        response.json(resource)
    }

    fn next_link(&self, next: Cursor) -> (HeaderName, String) {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(&self.filters).append_pair("limit", &self.paging.limit.to_string());
        query.append_pair("cursor", &self.seal.seal(next));
        (header::LINK, format!("<{}?{}>; rel=\"next\"", self.path, query.finish()))
    }
}

impl<Q: DeserializeOwned + 'static> FromRequest for ListRequest<Q> {
    type Error = ApiError;
    type Future = Pin<Box<dyn Future<Output = Result<Self, ApiError>>>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let api = request.app_data::<web::Data<Api>>().cloned();
        let (path, query) = (request.path().to_owned(), request.query_string().to_owned());
        Box::pin(async move {
            let key = api.ok_or_else(ApiError::internal)?.cursor_seal_key().await?;
            parse_list(path, &query, key)
        })
    }
}

fn parse_list<Q: DeserializeOwned>(path: String, query: &str, key: CursorSealKey) -> Result<ListRequest<Q>, ApiError> {
    let mut filters = query::parameters(query)?;
    filters.remove(SHARE_TOKEN_PARAMETER);
    let page: PageQuery = query::deserialize_parameters(filters.iter().filter(|(name, _)| is_page_parameter(name)))
        .map_err(with_bounds_message)?;
    filters.retain(|name, _| !is_page_parameter(name));
    let filter = query::deserialize_parameters(&filters)?;
    let seal = CursorSeal::new(key, &path, &filters);
    let paging = PageRequest {
        limit: parse_limit(page.limit)?,
        start: parse_start(page.offset, page.cursor.as_deref(), &seal)?,
    };
    Ok(ListRequest { filter, paging, seal, path, filters })
}

fn is_page_parameter(name: &str) -> bool {
    PAGE_PARAMETERS.contains(&name)
}

fn parse_limit(limit: Option<u64>) -> Result<u32, ApiError> {
    match limit.map(u32::try_from) {
        None => Ok(DEFAULT_LIMIT),
        Some(Ok(limit)) if (1..=MAX_LIMIT).contains(&limit) => Ok(limit),
        Some(Ok(_) | Err(_)) => Err(FieldProblem::new("limit", "invalid", LIMIT_RULE).into()),
    }
}

fn parse_start(offset: Option<u64>, cursor: Option<&str>, seal: &CursorSeal) -> Result<PageStart, ApiError> {
    match (offset.map(u32::try_from), cursor) {
        (Some(_), Some(_)) => {
            Err(FieldProblem::new("offset", "invalid", "`offset` and `cursor` cannot be combined").into())
        }
        (None, Some(cursor)) => seal.open(cursor).map(PageStart::After).ok_or_else(|| {
            FieldProblem::new("cursor", "invalid", "the cursor does not belong to this list with these filters").into()
        }),
        (None, None) => Ok(PageStart::Skip(0)),
        (Some(Ok(offset)), None) if offset <= MAX_OFFSET => Ok(PageStart::Skip(offset)),
        (Some(Ok(_) | Err(_)), None) => {
            let rule = "`offset` must be 0 to 10000; follow the cursor in `Link` for later pages";
            Err(ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "offset_too_deep", rule))
        }
    }
}

/// Validates limit and offset of a list without a cursor that a resource contains.
pub(crate) fn parse_limit_and_offset(limit: Option<u64>, offset: Option<u64>) -> Result<(u32, u32), ApiError> {
    let limit = parse_limit(limit)?;
    match offset.map(u32::try_from) {
        None => Ok((limit, 0)),
        Some(Ok(offset)) if offset <= MAX_OFFSET => Ok((limit, offset)),
        Some(Ok(_) | Err(_)) => Err(ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "offset_too_deep", OFFSET_RULE)),
    }
}

/// Gives a non-numeric page parameter the same message as one out of bounds. Other problems, such as a repeated
/// parameter, keep their message.
fn with_bounds_message(problem: FieldProblem) -> FieldProblem {
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

    #[derive(Deserialize, Debug)]
    struct Filter {
        q: Option<String>,
    }

    fn list(query: &str) -> Result<ListRequest<Filter>, ApiError> {
        parse_list("/v1/assets".to_owned(), query, CursorSealKey::new([7; 32]))
    }

    #[test]
    fn refuses_page_parameters_out_of_bounds() {
        for (query, limit, offset) in
            [("", 50, 0), ("limit=1", 1, 0), ("limit=200&offset=10000", 200, 10_000), ("q=x&offset=5", 50, 5)]
        {
            let expected = PageRequest { limit, start: PageStart::Skip(offset) };
            assert_eq!(list(query).unwrap().paging(), expected, "{query}");
        }
        for (query, code) in [
            ("limit=0", "validation_error"),
            ("limit=201", "validation_error"),
            ("limit=-1", "validation_error"),
            ("limit=1000000000000", "validation_error"),
            ("limit=x", "validation_error"),
            ("limit=1&limit=2", "validation_error"),
            ("q=1&q=1", "validation_error"),
            ("offset=-1", "validation_error"),
            ("offset=10001", "offset_too_deep"),
            ("offset=1000000000000000000", "offset_too_deep"),
            ("cursor=", "validation_error"),
            ("cursor=x", "validation_error"),
        ] {
            let refusal = list(query).unwrap_err();
            assert_eq!(refusal.code(), code, "{query}");
            assert_eq!(refusal.status(), StatusCode::UNPROCESSABLE_ENTITY);
        }
    }

    #[test]
    fn invalid_limits_share_one_message() {
        let mut bodies = std::collections::BTreeSet::new();
        for limit in ["0", "-1", "201", "1e1", "x", "", "99999999999999999999"] {
            let refusal = list(&format!("limit={limit}")).unwrap_err();
            let mut body = refusal.body();
            body["request_id"].take();
            bodies.insert(body.to_string());
        }
        assert_eq!(bodies.len(), 1, "{bodies:?}");
    }

    fn link(response: &HttpResponse) -> Option<&str> {
        response.headers().get("link").map(|value| value.to_str().unwrap())
    }

    fn page(total: u64, next: Option<u128>) -> Page<&'static str> {
        Page { rows: vec!["x"], total, next: next.map(Cursor::new) }
    }

    #[test]
    fn caps_total_count_at_ten_thousand() {
        for (total, count, capped) in [(4, "4", None), (10_000, "10000", None), (10_001, "10000", Some("true"))] {
            let response = list("").unwrap().respond(&page(total, None));
            let header = |name: &str| response.headers().get(name).map(|value| value.to_str().unwrap());
            assert_eq!(header("x-total-count"), Some(count));
            assert_eq!(header("x-total-count-capped"), capped);
            assert_eq!(link(&response), None);
        }
    }

    #[test]
    fn cursor_is_valid_for_its_list_only() {
        let first = list("q=a%22%3E%20b&token=secret&limit=2&offset=2").unwrap();
        let response = first.respond(&page(9, Some(0xabc)));
        let link_value = link(&response).unwrap();
        let next = link_value.strip_prefix("</v1/assets?").unwrap().strip_suffix(">; rel=\"next\"").unwrap();
        assert!(next.starts_with("q=a%22%3E+b&limit=2&cursor="), "{next}");
        assert_eq!(list(next).unwrap().filter.q.as_deref(), Some("a\"> b"));
        assert_eq!(list(next).unwrap().paging(), PageRequest { limit: 2, start: PageStart::After(Cursor::new(0xabc)) });
        // Another limit and an additional share token do not change the list.
        let cursor = next.rsplit('=').next().unwrap();
        let filter = "q=a%22%3E+b";
        assert!(list(&format!("cursor={cursor}&{filter}&limit=7&token=t")).is_ok());
        let other_byte = if cursor.starts_with('0') { "1" } else { "0" };
        for query in [
            format!("cursor={cursor}"),
            format!("cursor={cursor}&q=b"),
            format!("cursor={cursor}&{filter}&offset=1"),
            format!("cursor={cursor}0&{filter}"),
            format!("cursor={}&{filter}", cursor.to_uppercase()),
            format!("cursor={other_byte}{}&{filter}", &cursor[1..]),
            format!("cursor={}{other_byte}&{filter}", &cursor[..cursor.len() - 1]),
        ] {
            // A random replacement can produce the original query, which is valid.
            if !query.starts_with(&format!("cursor={cursor}&{filter}")) || query.contains("offset") {
                assert_eq!(list(&query).unwrap_err().code(), "validation_error", "{query}");
            }
        }
        let other_list = parse_list::<Filter>("/v1/flows".to_owned(), next, CursorSealKey::new([7; 32]));
        assert!(other_list.is_err(), "another list");
        let other_installation = parse_list::<Filter>("/v1/assets".to_owned(), next, CursorSealKey::new([8; 32]));
        assert!(other_installation.is_err(), "another installation");
    }
}
