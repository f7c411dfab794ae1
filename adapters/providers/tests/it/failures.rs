//! Failures of the OpenAI and Anthropic adapters: their classification. Failed requests are never retried.

use crate::support::{Protocol, complete_streaming, keys, minimal_call};
use fairway_domain::{
    execution::provider::{ProviderError, ProviderFailure},
    secret::SecretError,
};
use fairway_testkit::{ScriptedEndpoint, ScriptedResponse, unused_address};
use serde_json::json;
use std::time::Duration;

/// The failures of a call without streaming and of a call with streaming.
async fn failure(protocol: Protocol, script: ScriptedResponse) -> [ProviderFailure; 2] {
    let endpoint = ScriptedEndpoint::start().await;
    endpoint.respond_with(script);
    let provider = protocol.over(&endpoint);
    let complete = provider.complete(&minimal_call(), None).await.unwrap_err();
    let streamed = complete_streaming(&*provider, &minimal_call()).await.0.unwrap_err();
    assert_eq!(endpoint.request_count(), 2, "the provider does not retry");
    [complete, streamed]
}

#[tokio::test]
async fn maps_statuses_to_errors() {
    for protocol in Protocol::ALL {
        for (status, error) in [
            (408, ProviderError::TimedOut),
            (409, ProviderError::Unavailable),
            (429, ProviderError::Busy),
            (500, ProviderError::Unavailable),
            (503, ProviderError::Unavailable),
            (529, ProviderError::Unavailable),
            (400, ProviderError::Refused),
            (401, ProviderError::KeyRefused),
            (403, ProviderError::KeyRefused),
            (404, ProviderError::Refused),
            (422, ProviderError::Refused),
        ] {
            let script = ScriptedResponse::status(status, "{\"error\": {\"message\": \"sk-test\"}}");
            let expected = ProviderFailure { status: Some(status), ..error.into() };
            assert_eq!(failure(protocol, script).await, [expected; 2], "{protocol:?} {status}");
        }
    }
}

#[tokio::test]
async fn distinguishes_unknown_models_and_refused_content() {
    for protocol in Protocol::ALL {
        for (status, body, error) in [
            (404, json!({ "error": { "message": "model: small" } }), ProviderError::UnknownModel),
            (400, json!({ "error": { "code": "content_filter" } }), ProviderError::ContentRefused),
        ] {
            let failed = failure(protocol, ScriptedResponse::status(status, &body.to_string())).await;
            assert_eq!(failed, [ProviderFailure { status: Some(status), ..error.into() }; 2], "{protocol:?}");
        }
        // The body only adds an explanation. An endless body must not delay the failure for long, and a malformed
        // body must not change it.
        for script in [
            ScriptedResponse::status(404, "{\"error\": ").hanging_at_end(),
            ScriptedResponse::status(404, "{").reset_before_end(),
        ] {
            assert_eq!(failure(protocol, script).await.map(|failed| failed.error), [ProviderError::Refused; 2]);
        }
    }
}

#[tokio::test]
async fn reports_the_retry_delay() {
    for protocol in Protocol::ALL {
        for status in [429, 503] {
            let script = ScriptedResponse::status(status, "").header("Retry-After", "7");
            for failure in failure(protocol, script).await {
                assert_eq!(failure.retry_after, Some(Duration::from_secs(7)));
            }
        }
        let script = ScriptedResponse::status(429, "").header("Retry-After", "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(failure(protocol, script).await[0].retry_after, Some(Duration::ZERO), "a past date");
    }
}

#[tokio::test]
async fn invalid_responses_are_malformed() {
    let long = json!({ "x": "x".repeat(8 * 1024 * 1024) });
    for protocol in Protocol::ALL {
        for script in [
            ScriptedResponse::status(200, "<html>nonsense</html>"),
            ScriptedResponse::status(200, ""),
            ScriptedResponse::status(200, "{}"),
            ScriptedResponse::status(200, "{\"choices\": []}"),
            ScriptedResponse::status(200, "{\"choices\": [{\"message\": {\"content\": \"half").truncated(),
            ScriptedResponse::status(200, "{\"content\": [").reset_before_end(),
            ScriptedResponse::json(&long),
            ScriptedResponse::redirect("http://169.254.169.254/latest"),
        ] {
            let failed = failure(protocol, script.clone()).await.map(|failed| failed.error);
            assert_eq!(failed, [ProviderError::Malformed; 2], "{protocol:?}");
        }
    }
}

#[tokio::test]
async fn unreachable_servers_are_unavailable() {
    for protocol in Protocol::ALL {
        let failed = ProviderFailure::caused_by(ProviderError::Unavailable, "egress_broken");
        assert_eq!(failure(protocol, ScriptedResponse::reset()).await, [failed; 2]);
        let address = unused_address().unwrap();
        let provider = protocol.at(&format!("http://{address}/v1"), Duration::from_secs(30), None);
        let failed = ProviderFailure::caused_by(ProviderError::Unavailable, "egress_unreachable");
        assert_eq!(provider.complete(&minimal_call(), None).await, Err(failed));
    }
}

#[tokio::test]
async fn slow_servers_time_out() {
    let hanging_stream =
        || ScriptedResponse::events(["data: {\"type\": \"ping\", \"choices\": []}\n\n"]).hanging_at_end();
    for protocol in Protocol::ALL {
        for script in [ScriptedResponse::hang(), ScriptedResponse::status(200, "{").hanging_at_end(), hanging_stream()]
        {
            let endpoint = ScriptedEndpoint::start().await;
            endpoint.respond_with(script);
            let provider = protocol.at(&endpoint.url("/v1"), Duration::from_millis(200), None);
            let failed = complete_streaming(&*provider, &minimal_call()).await.0;
            assert_eq!(failed.map_err(|failed| failed.error), Err(ProviderError::TimedOut), "{protocol:?}");
        }
    }
}

#[tokio::test]
async fn calls_without_a_key_are_not_sent() {
    for protocol in Protocol::ALL {
        let endpoint = ScriptedEndpoint::start().await;
        let keys = keys("sk\n-broken");
        let provider = protocol.at(&endpoint.url("/v1"), Duration::from_secs(30), Some(keys.clone()));
        let unavailable = |error: SecretError| ProviderFailure::caused_by(ProviderError::Unavailable, error.code());
        assert_eq!(provider.complete(&minimal_call(), None).await, Err(unavailable(SecretError::Malformed)));
        for error in SecretError::ALL {
            *keys.0.lock().unwrap() = Err(error);
            assert_eq!(provider.complete(&minimal_call(), None).await, Err(unavailable(error)));
        }
        assert_eq!(endpoint.request_count(), 0);
        // Each call reads the key anew. A key that is available again, or a replaced key, applies to the next call.
        for key in ["first", "second"] {
            *keys.0.lock().unwrap() = Ok(key);
            let refused = ProviderFailure { status: Some(404), ..ProviderError::Refused.into() };
            assert_eq!(provider.complete(&minimal_call(), None).await, Err(refused));
        }
        let name = if protocol == Protocol::OpenAi { "authorization" } else { "x-api-key" };
        let key_headers: Vec<String> =
            endpoint.requests().iter().map(|request| request.header(name).unwrap().to_owned()).collect();
        assert!(key_headers[0].ends_with("first") && key_headers[1].ends_with("second"), "{key_headers:?}");
    }
}

#[tokio::test]
async fn one_connection_serves_many_calls() {
    let endpoint = ScriptedEndpoint::start().await;
    endpoint.respond_with(ScriptedResponse::json(&json!({ "choices": [{ "message": { "content": "Yes." } }] })));
    let provider = Protocol::OpenAi.over(&endpoint);
    for _ in 0..5 {
        provider.complete(&minimal_call(), None).await.unwrap();
    }
    let requests = endpoint.requests();
    assert!(requests.iter().all(|request| request.connection == 1), "{requests:?}");
}
