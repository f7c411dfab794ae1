//! HTTP tool calls: requests, accepted responses, failures, and refusals before the request is sent.

use crate::{acme, caller};
use fairway_domain::{
    execution::http_call::{HttpCall, HttpCallError, HttpCaller as _, HttpMethod, MAX_RESPONSE_BYTES},
    secret::SecretRef,
    slug::Slug,
};
use fairway_testkit::{ScriptedEndpoint, ScriptedResponse};
use serde_json::{Map, Value, json};
use std::time::Duration;

fn call(address: String) -> HttpCall {
    HttpCall {
        address,
        path: String::new(),
        method: HttpMethod::Post,
        arguments: Map::from_iter([("city".to_owned(), json!("Köln & Bonn"))]),
        secret: None,
        call_id: "run-1".to_owned(),
        timeout: Duration::from_secs(10),
        allowed_hosts: None,
    }
}

async fn call_result(endpoint: &ScriptedEndpoint, script: ScriptedResponse) -> Result<Value, HttpCallError> {
    endpoint.respond_with(script);
    caller(&["127.0.0.0/8"]).call(&acme(), &call(endpoint.url("/"))).await
}

#[tokio::test]
async fn posts_json_and_gets_with_a_query() {
    let endpoint = ScriptedEndpoint::start().await;
    endpoint.respond_in_sequence([ScriptedResponse::json(&json!({"ok": 1})), ScriptedResponse::json(&json!([2]))]);
    let caller = caller(&["127.0.0.0/8"]);
    let secret = Some(SecretRef::parse("env:KEY").unwrap());
    let mut call = HttpCall { path: "/v1/we ather".to_owned(), secret, ..call(endpoint.url("/base")) };
    assert_eq!(caller.call(&acme(), &call).await, Ok(json!({"ok": 1})));
    call.method = HttpMethod::Get;
    call.arguments.insert("days".to_owned(), json!(3));
    assert_eq!(caller.call(&acme(), &call).await, Ok(json!([2])));
    let requests = endpoint.requests();
    assert_eq!((requests[0].method.as_str(), requests[0].path.as_str()), ("POST", "/base/v1/we%20ather"));
    assert_eq!(requests[0].json(), json!({"city": "Köln & Bonn"}));
    assert_eq!(requests[0].header("authorization"), Some("Bearer s3cret"));
    assert_eq!(requests[0].header("idempotency-key"), Some("run-1"));
    assert_eq!(requests[1].path, "/base/v1/we%20ather?city=K%C3%B6ln+%26+Bonn&days=3");
    assert!(requests[1].body.is_empty(), "the query contains the parameters");
}

#[tokio::test]
async fn accepts_text_json_and_empty_responses_only() {
    let endpoint = ScriptedEndpoint::start().await;
    let text = |kind: &str, text: &str| ScriptedResponse::status(200, text).header("content-type", kind);
    assert_eq!(call_result(&endpoint, text("text/plain; charset=utf-8", "sunny")).await, Ok(json!("sunny")));
    assert_eq!(call_result(&endpoint, text("text/plain", "")).await, Ok(Value::Null));
    assert_eq!(call_result(&endpoint, text("application/json", "{broken")).await, Err(HttpCallError::Malformed));
    assert_eq!(
        call_result(&endpoint, text("application/json", r#"{"a": 1, "a": 2}"#)).await,
        Err(HttpCallError::Malformed)
    );
    assert_eq!(call_result(&endpoint, text("image/png", "bytes")).await, Err(HttpCallError::Malformed));
    let packed = ScriptedResponse::json(&json!({"ok": 1})).header("content-encoding", "gzip");
    assert_eq!(call_result(&endpoint, packed).await, Err(HttpCallError::Malformed));
    let request = endpoint.requests();
    assert!(
        request.iter().all(|request| request.header("accept-encoding") == Some("identity")),
        "the client accepts no content coding"
    );
}

#[tokio::test]
async fn failures_have_codes_and_are_not_retried() {
    let endpoint = ScriptedEndpoint::start().await;
    let long = "x".repeat(MAX_RESPONSE_BYTES + 1);
    for (script, error) in [
        (ScriptedResponse::status(500, "s3cret <html>"), HttpCallError::ErrorStatus),
        (ScriptedResponse::status(404, ""), HttpCallError::ErrorStatus),
        (ScriptedResponse::redirect("http://169.254.169.254/"), HttpCallError::ErrorStatus),
        (ScriptedResponse::status(200, &long).header("content-type", "text/plain"), HttpCallError::TooLong),
        (ScriptedResponse::reset(), HttpCallError::Truncated),
        (ScriptedResponse::json(&json!({"a": "long enough to be broken off"})).truncated(), HttpCallError::Truncated),
    ] {
        let requests = endpoint.request_count();
        assert_eq!(call_result(&endpoint, script).await, Err(error));
        assert_eq!(endpoint.request_count(), requests + 1, "{error}");
    }
}

#[tokio::test]
async fn times_out_after_the_timeout_of_the_call() {
    let endpoint = ScriptedEndpoint::start().await;
    endpoint.respond_with(ScriptedResponse::hang());
    let call = HttpCall { timeout: Duration::from_millis(200), ..call(endpoint.url("/")) };
    assert_eq!(caller(&["127.0.0.0/8"]).call(&acme(), &call).await, Err(HttpCallError::TimedOut));
}

#[tokio::test]
async fn refused_calls_are_not_sent() {
    let endpoint = ScriptedEndpoint::start().await;
    endpoint.respond_with(ScriptedResponse::json(&json!({})));
    // Loopback addresses are refused unless an egress allowance permits them.
    assert_eq!(caller(&[]).call(&acme(), &call(endpoint.url("/"))).await, Err(HttpCallError::Forbidden));
    let client = caller(&["127.0.0.0/8"]);
    let with_other_hosts =
        HttpCall { allowed_hosts: Some(vec!["api.example.com".to_owned()]), ..call(endpoint.url("/")) };
    assert_eq!(client.call(&acme(), &with_other_hosts).await, Err(HttpCallError::Forbidden));
    // If its secret cannot be read, a call is not sent. For other tenants, this secret does not exist.
    let secret = Some(SecretRef::parse("env:KEY").unwrap());
    let with_secret = HttpCall { secret, ..call(endpoint.url("/")) };
    assert_eq!(client.call(&Slug::parse("other").unwrap(), &with_secret).await, Err(HttpCallError::SecretUnavailable));
    assert_eq!(endpoint.request_count(), 0);
}
