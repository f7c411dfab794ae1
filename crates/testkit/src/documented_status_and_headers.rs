//! Checks that the OpenAPI document lists the status and the headers of every response in tests. A test fails at the
//! first undocumented status or header. Bodies are not checked.

#![expect(clippy::panic, reason = "a test fails at an undocumented response")]

use reqwest::header::HeaderMap;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};
use utoipa::openapi::{PathItem, RefOr, Response};

/// Response headers that must be documented. All other headers belong to HTTP or to operations.
const DOCUMENTED_HEADERS: [&str; 12] = [
    "content-location",
    "etag",
    "idempotency-replayed",
    "link",
    "location",
    "ratelimit-limit",
    "ratelimit-remaining",
    "ratelimit-reset",
    "retry-after",
    "x-request-id",
    "x-total-count",
    "x-total-count-capped",
];

/// An OpenAPI operation (method and path) with its documented statuses and their headers.
struct Operation {
    method: &'static str,
    segments: Vec<String>,
    statuses: BTreeMap<String, BTreeSet<String>>,
}

// Uses the typed document. Serializing and parsing its text would take 0.2 s in every test process.
static OPERATIONS: LazyLock<Vec<Operation>> = LazyLock::new(|| {
    let document = fairway_api::openapi::document();
    let operations: Vec<Operation> =
        document.paths.paths.iter().flat_map(|(path, item)| operations_of_path(path, item)).collect();
    assert!(!operations.is_empty(), "the OpenAPI document has no routes");
    operations
});

fn operations_of_path(path: &str, item: &PathItem) -> Vec<Operation> {
    let operation = |(method, operation): (&'static str, &utoipa::openapi::path::Operation)| Operation {
        method,
        segments: segments(path),
        statuses: operation
            .responses
            .responses
            .iter()
            .map(|(status, response)| (status.clone(), headers(response)))
            .collect(),
    };
    fairway_api::openapi::operations(item).map(operation).collect()
}

fn headers(response: &RefOr<Response>) -> BTreeSet<String> {
    match response {
        RefOr::T(response) => response.headers.keys().cloned().collect(),
        RefOr::Ref(_) => BTreeSet::new(),
    }
}

fn segments(path: &str) -> Vec<String> {
    path.split('/').map(str::to_owned).collect()
}

impl Operation {
    /// The number of literally equal segments, or `None` if a remaining segment does not match a placeholder.
    fn matching_segments(&self, segments: &[String]) -> Option<usize> {
        let score = |(template, segment): (&String, &String)| {
            let is_placeholder = template.starts_with('{') && !segment.is_empty();
            (template == segment || is_placeholder).then(|| usize::from(template == segment))
        };
        let has_equal_length = self.segments.len() == segments.len();
        has_equal_length.then(|| self.segments.iter().zip(segments).map(score).sum())?
    }
}

/// Asserts that the OpenAPI document lists the status and the headers of a response. Ignores paths without a
/// documented route.
///
/// # Panics
/// When the document does not list the status or a header.
#[track_caller]
pub fn assert_documented_status_and_headers(method: &str, path: &str, status: u16, headers: &HeaderMap) {
    let path = path.split('?').next().unwrap_or_default();
    // Excluded: `/docs` redirects to the documentation pages, MCP documents `/mcp`, and browsers alone use the
    // sign-in pages.
    let is_page = ["/sign-in", "/sign-out"].iter().any(|page| path.starts_with(page));
    if is_page || ["/docs", "/mcp"].contains(&path) {
        return;
    }
    // Every GET route also accepts HEAD.
    let (method, segments) = (if method == "HEAD" { "GET" } else { method }, segments(path));
    let candidates = || OPERATIONS.iter().filter_map(|one| Some((one.matching_segments(&segments)?, one)));
    // Selects the most specific path first, then the method.
    let best_score = candidates().map(|(score, _)| score).max();
    if let Some((_, operation)) = candidates().find(|(score, one)| Some(*score) == best_score && one.method == method) {
        let Some(documented) = operation.statuses.get(&status.to_string()) else {
            panic!("{method} {path} answered {status}, which the OpenAPI document does not list")
        };
        for name in DOCUMENTED_HEADERS.into_iter().filter(|name| headers.contains_key(*name)) {
            assert!(
                documented.contains(name),
                "{method} {path} answered {status} with `{name}`, which the document does not list"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_documented_responses() {
        assert_documented_status_and_headers("GET", "/v1/assets?limit=1", 200, &HeaderMap::new());
        assert_documented_status_and_headers("HEAD", "/healthz", 200, &HeaderMap::new());
        // Unknown routes, and methods that the path does not support, are ignored.
        assert_documented_status_and_headers("GET", "/v1/nothing", 418, &HeaderMap::new());
        assert_documented_status_and_headers("GET", "/v1/assets//versions", 418, &HeaderMap::new());
        assert_documented_status_and_headers("PUT", "/v1/assets", 405, &HeaderMap::new());
        assert_documented_status_and_headers("PATCH", "/v1/workloads/runtime-enabled", 405, &HeaderMap::new());
        // Only the most specific path counts. Another path documents 401, but has a placeholder in this segment.
        assert_documented_status_and_headers("GET", "/v1/workloads/by-slug/one", 401, &HeaderMap::new());
    }

    #[test]
    #[should_panic(expected = "GET /v1/assets answered 200 with `etag`")]
    fn rejects_undocumented_headers() {
        let tag = [(reqwest::header::ETAG, reqwest::header::HeaderValue::from_static("x"))];
        assert_documented_status_and_headers("GET", "/v1/assets", 200, &tag.into_iter().collect());
    }

    #[test]
    #[should_panic(expected = "GET /v1/assets/1 answered 418")]
    fn rejects_undocumented_statuses() {
        assert_documented_status_and_headers("GET", "/v1/assets/1", 418, &HeaderMap::new());
    }
}
