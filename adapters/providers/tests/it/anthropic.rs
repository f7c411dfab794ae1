//! The adapter for Anthropic's API.

use crate::support::{ForwardingListener, Protocol, call, complete_streaming, keys, minimal_call, route, tool_call};
use fairway_domain::execution::provider::{
    Completion, CompletionInput, EmbeddingCall, Provider, ProviderError, ToolCall,
};
use fairway_testkit::{ScriptedEndpoint, ScriptedResponse};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};

fn reply(content: Value) -> Value {
    json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "small-2026", "content": content,
        "stop_reason": "end_turn", "stop_sequence": null,
        "usage": { "input_tokens": 12, "cache_creation_input_tokens": 5, "cache_read_input_tokens": 2,
                   "output_tokens": 3, "service_tier": "standard" },
    })
}

async fn serve(script: ScriptedResponse) -> (ScriptedEndpoint, Arc<dyn Provider>) {
    let endpoint = ScriptedEndpoint::start().await;
    endpoint.respond_with(script);
    let provider = Protocol::Anthropic.over(&endpoint);
    (endpoint, provider)
}

#[tokio::test]
async fn sends_a_request_and_parses_the_response() {
    let content = json!([
        { "type": "thinking", "thinking": "hm", "signature": "x" }, { "type": "text", "text": "Good " },
        { "type": "text", "text": "day." },
    ]);
    let (endpoint, provider) = serve(ScriptedResponse::json(&reply(content))).await;
    let completion = provider.complete(&minimal_call(), None).await.unwrap();
    let metadata = json!({ "provider": "acme", "model": "small-2026", "finish_reason": "end_turn" });
    let expected = Completion {
        text: "Good day.".to_owned(),
        tokens_in: 19,
        tokens_out: 3,
        metadata: metadata.as_object().unwrap().clone(),
        ..Completion::default()
    };
    assert_eq!(completion, expected);
    let request = &endpoint.requests()[0];
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/v1/messages"));
    assert_eq!((request.header("x-api-key"), request.header("authorization")), (Some("sk-test"), None));
    assert_eq!(request.header("anthropic-version"), Some("2023-06-01"));
    let messages = json!([{ "role": "user", "content": [{ "type": "text", "text": "Hello?" }] }]);
    assert_eq!(
        request.json(),
        json!({ "model": "small", "max_tokens": 4096, "system": "Be brief.", "messages": messages })
    );
}

#[tokio::test]
async fn base_address_may_include_the_api_version() {
    let endpoint = ScriptedEndpoint::start().await;
    endpoint.respond_with(ScriptedResponse::json(&reply(json!([]))));
    for base in ["", "/", "/v1", "/v1/", "/team", "/team/v1"] {
        let provider = Protocol::Anthropic.at(&endpoint.url(base), Duration::from_secs(30), Some(keys("k")));
        provider.complete(&minimal_call(), None).await.unwrap();
    }
    let paths: Vec<String> = endpoint.requests().into_iter().map(|request| request.path).collect();
    let (path, team_path) = ("/v1/messages", "/team/v1/messages");
    assert_eq!(paths, [path, path, path, path, team_path, team_path]);
}

#[tokio::test]
async fn converts_tools_calls_and_results() {
    let content = json!([
        { "type": "text", "text": "Let me see." },
        { "type": "tool_use", "id": "c3", "name": "weather", "input": { "city": "Bern" } },
    ]);
    let (endpoint, provider) = serve(ScriptedResponse::json(&reply(content))).await;
    let completion = provider.complete(&tool_call(), None).await.unwrap();
    let expected_call =
        ToolCall { id: "c3".to_owned(), name: "weather".to_owned(), arguments: "{\"city\":\"Bern\"}".to_owned() };
    assert_eq!((completion.text.as_str(), completion.tool_calls), ("Let me see.", vec![expected_call]));
    let body = endpoint.requests()[0].json();
    let text = |text: &str| json!({ "type": "text", "text": text });
    let tool_use = |id: &str, input: Value| json!({ "type": "tool_use", "id": id, "name": "weather", "input": input });
    let tool_result = |id: &str, text: &str| json!({ "type": "tool_result", "tool_use_id": id, "content": text });
    assert_eq!(
        body["messages"],
        json!([
            { "role": "user", "content": [text("Is it warm in Lyon and in Ulm?")] },
            { "role": "assistant", "content": [
                tool_use("c1", json!({ "city": "Lyon" })), tool_use("c2", json!({ "unreadable_arguments": "Ulm" })),
            ] },
            { "role": "user", "content": [tool_result("c1", "21"), tool_result("c2", "no such city"), text("And?")] },
        ])
    );
    let schema = json!({ "type": "object", "properties": { "city": { "type": "string" } } });
    let tool = json!({ "name": "weather", "description": "Tells the temperature.", "input_schema": schema });
    assert_eq!(body["tools"], json!([tool]));
    assert_eq!((&body["temperature"], &body["max_tokens"]), (&json!(1.0), &json!(100)));
}

#[tokio::test]
async fn system_prompt_alone_is_sent_as_user_message() {
    let (endpoint, provider) = serve(ScriptedResponse::json(&reply(json!([])))).await;
    let system_prompt_only =
        call(CompletionInput { system_prompt: "Is it so?".to_owned(), ..CompletionInput::default() });
    assert_eq!(provider.complete(&system_prompt_only, None).await.unwrap().text, "");
    let body = endpoint.requests()[0].json();
    let messages = json!([{ "role": "user", "content": [{ "type": "text", "text": "Is it so?" }] }]);
    assert_eq!((&body["messages"], &body["system"]), (&messages, &Value::Null));
}

fn event(name: &str, members: Value) -> String {
    let mut data = json!({ "type": name });
    data.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    format!("event: {name}\ndata: {data}\n\n")
}

fn start() -> String {
    let usage = json!({ "input_tokens": 12, "cache_read_input_tokens": 2, "output_tokens": 1 });
    event(
        "message_start",
        json!({ "message": { "id": "msg_1", "model": "small-2026", "content": [], "usage": usage } }),
    )
}

fn text(index: u64, text: &str) -> String {
    event("content_block_delta", json!({ "index": index, "delta": { "type": "text_delta", "text": text } }))
}

fn end(reason: &str) -> [String; 2] {
    let delta = json!({ "stop_reason": reason, "stop_sequence": null });
    [
        event("message_delta", json!({ "delta": delta, "usage": { "output_tokens": 9 } })),
        event("message_stop", json!({})),
    ]
}

#[tokio::test]
async fn forwards_stream_parts_as_they_arrive() {
    let [delta, stop] = end("end_turn");
    let events = [
        start(),
        event("content_block_start", json!({ "index": 0, "content_block": { "type": "text", "text": "" } })),
        event("ping", json!({})),
        text(0, "Good "),
        text(0, "dáy."),
        event("content_block_stop", json!({ "index": 0 })),
        event("new_kind_of_event", json!({ "anything": [1] })),
        delta,
        stop,
    ];
    let (endpoint, provider) = serve(ScriptedResponse::events(events).with_pauses()).await;
    let (listener, mut parts) = ForwardingListener::open();
    let completion_task = tokio::spawn(async move { provider.complete(&minimal_call(), Some(&listener)).await });
    endpoint.release_pauses(3);
    assert_eq!(parts.recv().await.unwrap(), "Good ");
    assert!(parts.try_recv().is_err() && !completion_task.is_finished());
    endpoint.release_pauses(5);
    let completion = completion_task.await.unwrap().unwrap();
    assert_eq!((completion.text.as_str(), completion.tokens_in, completion.tokens_out), ("Good dáy.", 14, 9));
    assert_eq!(completion.metadata["finish_reason"], "end_turn");
    assert_eq!(parts.recv().await.as_deref(), Some("dáy."));
    assert_eq!(endpoint.requests()[0].json()["stream"], json!(true));
}

#[tokio::test]
async fn assembles_streamed_tool_calls() {
    let json = |index: u64, text: &str| {
        let delta = json!({ "type": "input_json_delta", "partial_json": text });
        event("content_block_delta", json!({ "index": index, "delta": delta }))
    };
    let tool = |index: u64, id: &str| {
        let block = json!({ "type": "tool_use", "id": id, "name": "weather", "input": {} });
        event("content_block_start", json!({ "index": index, "content_block": block }))
    };
    let [delta, stop] = end("tool_use");
    let events = [
        start(),
        text(0, "Let me see."),
        tool(1, "c1"),
        json(1, "{\"city\":"),
        json(1, "\"Bern\"}"),
        tool(2, "c2"),
        event("content_block_delta", json!({ "index": 3, "delta": { "type": "signature_delta", "signature": "x" } })),
        delta,
        stop,
    ];
    let (_endpoint, provider) = serve(ScriptedResponse::events(events)).await;
    let (completion, parts) = complete_streaming(&*provider, &tool_call()).await;
    let call = |id: &str, arguments: &str| ToolCall {
        id: id.to_owned(),
        name: "weather".to_owned(),
        arguments: arguments.to_owned(),
    };
    assert_eq!(completion.unwrap().tool_calls, [call("c1", "{\"city\":\"Bern\"}"), call("c2", "{}")]);
    assert_eq!(parts, ["Let me see."]);
}

#[tokio::test]
async fn incomplete_streams_fail_after_their_parts() {
    let error = |name: &str| event("error", json!({ "error": { "type": name, "message": "no" } }));
    let [delta, _] = end("end_turn");
    for (last_events, error) in [
        (vec![], ProviderError::Malformed),
        (vec![delta], ProviderError::Malformed),
        (vec!["data: {\"type\":\n\n".to_owned()], ProviderError::Malformed),
        (vec!["data: {\"no\": \"type\"}\n\n".to_owned()], ProviderError::Malformed),
        (vec![error("overloaded_error")], ProviderError::Unavailable),
        (vec![error("api_error")], ProviderError::Unavailable),
        (vec![error("rate_limit_error")], ProviderError::Busy),
        (vec![error("timeout_error")], ProviderError::TimedOut),
        (vec![error("invalid_request_error")], ProviderError::Refused),
    ] {
        let script = ScriptedResponse::events([start(), text(0, "Good ")].into_iter().chain(last_events));
        for script in [script.clone(), script.truncated()] {
            let (_endpoint, provider) = serve(script.clone()).await;
            let (completion, parts) = complete_streaming(&*provider, &minimal_call()).await;
            assert_eq!(completion.unwrap_err().error, error, "{script:?}");
            assert_eq!(parts, ["Good "]);
        }
    }
}

#[tokio::test]
async fn embeddings_are_unsupported() {
    let (endpoint, provider) = serve(ScriptedResponse::status(500, "")).await;
    let call = EmbeddingCall { route: route(), texts: vec!["one".to_owned()] };
    assert_eq!(provider.embed(&call).await, Err(ProviderError::Unsupported.into()));
    assert_eq!(endpoint.request_count(), 0);
}

/// NUL characters are replaced in complete texts and in streamed texts.
#[tokio::test]
async fn replaces_nul_in_streams() {
    let [delta, stop] = end("end_turn");
    let (_endpoint, provider) = serve(ScriptedResponse::events([start(), text(0, "a\0b"), delta, stop])).await;
    let (completion, parts) = complete_streaming(&*provider, &tool_call()).await;
    assert_eq!((completion.unwrap().text.as_str(), parts), ("a\u{fffd}b", vec!["a\u{fffd}b".to_owned()]));
}
