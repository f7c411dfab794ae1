//! Every answer that a test sees is one that the OpenAPI document tells of: whichever test meets a status first, it ends
//! there until the handler says it.

#![expect(clippy::panic, reason = "a test that cannot read the document ends here")]

use reqwest::header::HeaderMap;
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

/// Headers of answers that are told of; all others say something of HTTP, or of how the service does.
const TOLD: [&str; 12] = [
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

/// One method of one path, and the statuses that it is said to answer, each with its headers.
struct Operation {
    method: String,
    segments: Vec<String>,
    statuses: BTreeMap<String, BTreeSet<String>>,
}

static OPERATIONS: LazyLock<Vec<Operation>> = LazyLock::new(|| {
    let Ok(document) = fairway_api::document::as_json().and_then(|text| serde_json::from_str::<Value>(&text)) else {
        panic!("the OpenAPI document is no JSON")
    };
    let paths = document.get("paths").and_then(Value::as_object).into_iter().flatten();
    let operations: Vec<Operation> = paths.flat_map(|(path, item)| of_path(path, item)).collect();
    assert!(!operations.is_empty(), "the OpenAPI document names routes");
    operations
});

fn of_path(path: &str, item: &Value) -> Vec<Operation> {
    let operation = |(method, operation): (&String, &Value)| {
        let headers = |response: &Value| -> BTreeSet<String> {
            response
                .get("headers")
                .and_then(Value::as_object)
                .into_iter()
                .flatten()
                .map(|(name, _)| name.clone())
                .collect()
        };
        let responses = operation.get("responses")?.as_object()?;
        let statuses = responses.iter().map(|(status, response)| (status.clone(), headers(response))).collect();
        Some(Operation { method: method.to_uppercase(), segments: segments(path), statuses })
    };
    item.as_object().into_iter().flatten().filter_map(operation).collect()
}

fn segments(path: &str) -> Vec<String> {
    path.split('/').map(str::to_owned).collect()
}

impl Operation {
    /// How many segments are the same, where all others are placeholders.
    fn likeness(&self, segments: &[String]) -> Option<usize> {
        let same = |(ours, asked): (&String, &String)| {
            let filled = ours.starts_with('{') && !asked.is_empty();
            (ours == asked || filled).then(|| usize::from(ours == asked))
        };
        let comparable = self.segments.len() == segments.len();
        comparable.then(|| self.segments.iter().zip(segments).map(same).sum())?
    }
}

/// Holds the status and the headers of an answer against the document. What is no route has nothing to be held against.
///
/// # Panics
/// When the route answers what the document does not tell.
#[track_caller]
pub fn assert_documented(method: &str, path: &str, status: u16, headers: &HeaderMap) {
    let path = path.split('?').next().unwrap_or_default();
    // The one leads to the pages, and is none of its own; the messages of the other have a document of their own.
    if ["/docs", "/mcp"].contains(&path) {
        return;
    }
    // Whoever answers GET answers HEAD.
    let (method, asked) = (if method == "HEAD" { "GET" } else { method }, segments(path));
    let alike = || OPERATIONS.iter().filter_map(|one| Some((one.likeness(&asked)?, one)));
    // The nearest path, whatever it knows; then its method.
    let nearest = alike().map(|(likeness, _)| likeness).max();
    if let Some((_, operation)) = alike().find(|(likeness, one)| Some(*likeness) == nearest && one.method == method) {
        let Some(told) = operation.statuses.get(&status.to_string()) else {
            panic!("{method} {path} answered {status}, which the OpenAPI document does not tell")
        };
        for name in TOLD.into_iter().filter(|name| headers.contains_key(*name)) {
            assert!(
                told.contains(name),
                "{method} {path} answered {status} with `{name}`, which the document does not tell"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_passes() {
        assert_documented("GET", "/v1/assets?limit=1", 200, &HeaderMap::new());
        assert_documented("HEAD", "/healthz", 200, &HeaderMap::new());
        // No routes of ours, and methods that the path does not know.
        assert_documented("GET", "/v1/nothing", 418, &HeaderMap::new());
        assert_documented("GET", "/v1/assets//versions", 418, &HeaderMap::new());
        assert_documented("PUT", "/v1/assets", 405, &HeaderMap::new());
        assert_documented("PATCH", "/v1/workloads/runtime-enabled", 405, &HeaderMap::new());
        // The nearest path counts: the other one with a placeholder there knows no share tokens.
        assert_documented("GET", "/v1/workloads/by-slug/one", 401, &HeaderMap::new());
    }

    #[test]
    #[should_panic(expected = "GET /v1/assets answered 200 with `etag`")]
    fn what_comes_untold_ends_the_test() {
        let tag = [(reqwest::header::ETAG, reqwest::header::HeaderValue::from_static("x"))];
        assert_documented("GET", "/v1/assets", 200, &tag.into_iter().collect());
    }

    #[test]
    #[should_panic(expected = "GET /v1/assets/1 answered 418")]
    fn what_is_not_told_ends_the_test() {
        assert_documented("GET", "/v1/assets/1", 418, &HeaderMap::new());
    }
}
