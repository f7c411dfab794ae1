//! The adapter for OpenAI's API.

use crate::support::{ForwardingListener, Protocol, call, complete_streaming, minimal_call, route, tool_call};
use fairway_domain::execution::provider::{
    Completion, CompletionInput, EmbeddingCall, Message, MessageRole, Provider, ProviderError, ToolCall,
};
use fairway_testkit::{ScriptedEndpoint, ScriptedResponse};
use serde_json::{Value, json};
use std::sync::Arc;

fn reply(message: &Value) -> Value {
    json!({
        "id": "chatcmpl-1", "object": "chat.completion", "model": "small-2026", "system_fingerprint": "x",
        "choices": [{ "index": 0, "finish_reason": "stop", "message": message, "logprobs": null }],
        "usage": { "prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15 },
    })
}

async fn serve(script: ScriptedResponse) -> (ScriptedEndpoint, Arc<dyn Provider>) {
    let endpoint = ScriptedEndpoint::start().await;
    endpoint.respond_with(script);
    let provider = Protocol::OpenAi.over(&endpoint);
    (endpoint, provider)
}

#[tokio::test]
async fn sends_a_request_and_parses_the_response() {
    let message = json!({ "role": "assistant", "content": "Good day.", "refusal": null });
    let (endpoint, provider) = serve(ScriptedResponse::json(&reply(&message))).await;
    let completion = provider.complete(&minimal_call(), None).await.unwrap();
    let metadata = json!({ "provider": "acme", "model": "small-2026", "finish_reason": "stop" });
    let expected = Completion {
        text: "Good day.".to_owned(),
        tokens_in: 12,
        tokens_out: 3,
        metadata: metadata.as_object().unwrap().clone(),
        ..Completion::default()
    };
    assert_eq!(completion, expected);
    let request = &endpoint.requests()[0];
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/v1/chat/completions"));
    assert_eq!(request.header("authorization"), Some("Bearer sk-test"));
    assert_eq!(request.header("content-type"), Some("application/json"));
    let messages = json!([{ "role": "system", "content": "Be brief." }, { "role": "user", "content": "Hello?" }]);
    assert_eq!(request.json(), json!({ "model": "small", "messages": messages }));
}

#[tokio::test]
async fn converts_tools_calls_and_results() {
    let tool_calls = json!([
        { "id": "c3", "type": "function", "function": { "name": "weather", "arguments": "{\"city\":" } },
    ]);
    let message = json!({ "role": "assistant", "content": null, "tool_calls": tool_calls });
    let (endpoint, provider) = serve(ScriptedResponse::json(&reply(&message))).await;
    let completion = provider.complete(&tool_call(), None).await.unwrap();
    let expected_call =
        ToolCall { id: "c3".to_owned(), name: "weather".to_owned(), arguments: "{\"city\":".to_owned() };
    assert_eq!((completion.text.as_str(), completion.tool_calls), ("", vec![expected_call]));
    let call_json = |id: &str, arguments: &str| json!({ "id": id, "type": "function", "function": { "name": "weather", "arguments": arguments } });
    let body = endpoint.requests()[0].json();
    assert_eq!(
        body["messages"],
        json!([
            { "role": "system", "content": "Be brief." },
            { "role": "user", "content": "Is it warm in Lyon and in Ulm?" },
            { "role": "assistant", "content": null,
              "tool_calls": [call_json("c1", "{\"city\":\"Lyon\"}"), call_json("c2", "Ulm")] },
            { "role": "tool", "content": "21", "tool_call_id": "c1" },
            { "role": "tool", "content": "no such city", "tool_call_id": "c2" },
            { "role": "user", "content": "And?" },
        ])
    );
    let schema = json!({ "type": "object", "properties": { "city": { "type": "string" } } });
    let function = json!({ "name": "weather", "description": "Tells the temperature.", "parameters": schema });
    assert_eq!(body["tools"], json!([{ "type": "function", "function": function }]));
    assert_eq!((&body["temperature"], &body["max_tokens"]), (&json!(1.5), &json!(100)));
}

#[tokio::test]
async fn refuses_tool_calls_without_id_or_name() {
    for (id, name) in [("", "weather"), ("c1", "")] {
        let calls = json!([{ "id": id, "type": "function", "function": { "name": name, "arguments": "{}" } }]);
        let (_endpoint, provider) =
            serve(ScriptedResponse::json(&reply(&json!({ "content": null, "tool_calls": calls })))).await;
        assert_eq!(provider.complete(&tool_call(), None).await, Err(ProviderError::Malformed.into()), "{id} {name}");
    }
}

#[tokio::test]
async fn missing_token_counts_are_zero() {
    let mut uncounted = reply(&json!({ "content": "Yes." }));
    uncounted["usage"] = json!({ "prompt_tokens": null, "completion_tokens": 2 });
    let (_endpoint, provider) = serve(ScriptedResponse::json(&uncounted)).await;
    let completion = provider.complete(&minimal_call(), None).await.unwrap();
    assert_eq!((completion.tokens_in, completion.tokens_out), (0, 2));
}

#[tokio::test]
async fn system_prompt_alone_is_sent_as_user_message() {
    let (endpoint, provider) = serve(ScriptedResponse::json(&reply(&json!({ "content": "Yes." })))).await;
    let system_prompt_only =
        call(CompletionInput { system_prompt: "Is it so?".to_owned(), ..CompletionInput::default() });
    provider.complete(&system_prompt_only, None).await.unwrap();
    let messages = vec![Message::text(MessageRole::User, "Is it so?".to_owned())];
    provider.complete(&call(CompletionInput { messages, ..CompletionInput::default() }), None).await.unwrap();
    for request in endpoint.requests() {
        assert_eq!(request.json()["messages"], json!([{ "role": "user", "content": "Is it so?" }]));
    }
}

fn stream_chunk(delta: &Value, finish_reason: Option<&str>) -> String {
    let choices = json!([{ "index": 0, "delta": delta, "finish_reason": finish_reason }]);
    let chunk = json!({ "object": "chat.completion.chunk", "model": "small-2026", "choices": choices, "usage": null });
    format!("data: {chunk}\n\n")
}

fn usage() -> String {
    let usage = json!({ "prompt_tokens": 12, "completion_tokens": 3 });
    format!("data: {}\n\n", json!({ "model": "small-2026", "choices": [], "usage": usage }))
}

const DONE: &str = "data: [DONE]\n\n";

#[tokio::test]
async fn forwards_stream_parts_as_they_arrive() {
    let events = [
        ": keep-alive\n\n".to_owned(),
        stream_chunk(&json!({ "role": "assistant", "content": "" }), None),
        stream_chunk(&json!({ "content": "Good " }), None),
        stream_chunk(&json!({ "content": "dáy." }), None),
        stream_chunk(&json!({}), Some("stop")),
        usage(),
        DONE.to_owned(),
    ];
    let (endpoint, provider) = serve(ScriptedResponse::events(events).with_pauses()).await;
    let (listener, mut parts) = ForwardingListener::open();
    let completion_task = tokio::spawn(async move { provider.complete(&minimal_call(), Some(&listener)).await });
    // The endpoint has not sent any later part when the first part arrives.
    endpoint.release_pauses(2);
    assert_eq!(parts.recv().await.unwrap(), "Good ");
    assert!(parts.try_recv().is_err() && !completion_task.is_finished());
    endpoint.release_pauses(1);
    assert_eq!(parts.recv().await.unwrap(), "dáy.");
    endpoint.release_pauses(3);
    let completion = completion_task.await.unwrap().unwrap();
    assert_eq!(completion.text, "Good dáy.");
    assert_eq!((completion.tokens_in, completion.tokens_out), (12, 3));
    assert_eq!(completion.metadata["finish_reason"], "stop");
    assert!(parts.recv().await.is_none());
    let body = endpoint.requests()[0].json();
    assert_eq!((&body["stream"], &body["stream_options"]), (&json!(true), &json!({ "include_usage": true })));
    assert_eq!(endpoint.requests()[0].header("accept"), Some("text/event-stream"));
}

#[tokio::test]
async fn assembles_streamed_tool_calls() {
    let call_delta = |index: u64, members: Value| json!({ "tool_calls": [merged(json!({ "index": index }), members)] });
    let events = [
        stream_chunk(
            &call_delta(0, json!({ "id": "c1", "type": "function", "function": { "name": "a", "arguments": "" } })),
            None,
        ),
        stream_chunk(&call_delta(0, json!({ "function": { "arguments": "{\"x\":" } })), None),
        stream_chunk(&call_delta(1, json!({ "id": "c2", "function": { "name": "b", "arguments": "{}" } })), None),
        stream_chunk(&call_delta(0, json!({ "function": { "arguments": "1}" } })), None),
        stream_chunk(&json!({}), Some("tool_calls")),
        DONE.to_owned(),
    ];
    let (_endpoint, provider) = serve(ScriptedResponse::events(events)).await;
    let (completion, parts) = complete_streaming(&*provider, &tool_call()).await;
    let call = |id: &str, name: &str, arguments: &str| ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments: arguments.to_owned(),
    };
    assert_eq!(completion.unwrap().tool_calls, [call("c1", "a", "{\"x\":1}"), call("c2", "b", "{}")]);
    assert_eq!(parts, [""; 0]);
}

fn merged(mut object: Value, members: Value) -> Value {
    object.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    object
}

#[tokio::test]
async fn accepts_a_document_instead_of_a_stream() {
    let (_endpoint, provider) = serve(ScriptedResponse::json(&reply(&json!({ "content": "All of it." })))).await;
    let (completion, parts) = complete_streaming(&*provider, &minimal_call()).await;
    assert_eq!((completion.unwrap().text.as_str(), parts), ("All of it.", vec!["All of it.".to_owned()]));
}

#[tokio::test]
async fn incomplete_streams_fail_after_their_parts() {
    let part = || stream_chunk(&json!({ "content": "Good " }), None);
    let error = |code: Value| format!("data: {}\n\n", json!({ "error": { "message": "no", "code": code } }));
    for (script, error) in [
        (ScriptedResponse::events([part()]), ProviderError::Malformed),
        (ScriptedResponse::events([part()]).truncated(), ProviderError::Malformed),
        (ScriptedResponse::events([part()]).reset_before_end(), ProviderError::Malformed),
        (ScriptedResponse::events([part(), "data: {\"choices\":\n\n".to_owned()]), ProviderError::Malformed),
        (
            ScriptedResponse::events([part(), "data: nonsense\n\n".to_owned(), DONE.to_owned()]),
            ProviderError::Malformed,
        ),
        (ScriptedResponse::events([part(), error(json!(429))]), ProviderError::Busy),
        (ScriptedResponse::events([part(), error(json!("503"))]), ProviderError::Unavailable),
        (ScriptedResponse::events([part(), error(json!("overloaded"))]), ProviderError::Unavailable),
        (ScriptedResponse::events([part(), error(json!(400))]), ProviderError::Refused),
    ] {
        let (_endpoint, provider) = serve(script.clone()).await;
        let (completion, parts) = complete_streaming(&*provider, &minimal_call()).await;
        assert_eq!(completion.unwrap_err().error, error, "{script:?}");
        assert_eq!(parts, ["Good "]);
    }
    // A stream may also end with the response itself, without an end marker.
    let (_endpoint, provider) =
        serve(ScriptedResponse::events([part(), stream_chunk(&json!({}), Some("length"))])).await;
    assert_eq!(complete_streaming(&*provider, &minimal_call()).await.0.unwrap().text, "Good ");
}

#[tokio::test]
async fn returns_vectors_in_the_order_of_their_texts() {
    let vectors = |usage: u64, data: Value| json!({ "data": data, "usage": { "prompt_tokens": usage } });
    let first: Vec<Value> = (0..64).rev().map(|index| json!({ "index": index, "embedding": [index, 0.5] })).collect();
    let second = json!([{ "index": 0, "embedding": [64, 0.5] }]);
    let endpoint = ScriptedEndpoint::start().await;
    endpoint.respond_in_sequence([
        ScriptedResponse::json(&vectors(100, json!(first))),
        ScriptedResponse::json(&vectors(1, second)),
    ]);
    let provider = Protocol::OpenAi.over(&endpoint);
    let texts: Vec<String> = (0..65).map(|number| format!("text {number}")).collect();
    let embeddings = provider.embed(&EmbeddingCall { route: route(), texts }).await.unwrap();
    assert_eq!((embeddings.vectors.len(), embeddings.tokens_in), (65, 101));
    assert_eq!((&embeddings.vectors[3], &embeddings.vectors[64]), (&vec![3.0, 0.5], &vec![64.0, 0.5]));
    let requests = endpoint.requests();
    assert_eq!((requests.len(), requests[1].path.as_str()), (2, "/v1/embeddings"));
    assert_eq!(requests[1].json(), json!({ "model": "small", "input": ["text 64"], "encoding_format": "float" }));
    assert_eq!(requests[1].header("authorization"), Some("Bearer sk-test"));
}

#[tokio::test]
async fn refuses_invalid_vectors() {
    for data in [
        json!([]),
        json!([{ "index": 0, "embedding": [1] }]),
        json!([{ "index": 0, "embedding": [1] }, { "index": 0, "embedding": [1] }]),
        json!([{ "index": 0, "embedding": [1] }, { "index": 1, "embedding": [1, 2] }]),
        json!([{ "index": 0, "embedding": [] }, { "index": 1, "embedding": [] }]),
        json!([{ "index": 0, "embedding": [1] }, { "index": 1, "embedding": [1e300] }]),
        json!([{ "index": 0, "embedding": [1] }, { "index": 2, "embedding": [1] }]),
    ] {
        let (_endpoint, provider) = serve(ScriptedResponse::json(&json!({ "data": data }))).await;
        let texts = vec!["one".to_owned(), "two".to_owned()];
        let embeddings = provider.embed(&EmbeddingCall { route: route(), texts }).await;
        assert_eq!(embeddings, Err(ProviderError::Malformed.into()), "{data}");
    }
}

/// NUL characters are replaced in texts and tool calls.
#[tokio::test]
async fn replaces_nul_in_responses() {
    let tool_calls = json!([{ "id": "c\0", "type": "function", "function": { "name": "n\0", "arguments": "\0" } }]);
    let message = json!({ "role": "assistant", "content": "a\0b", "tool_calls": tool_calls });
    let (_endpoint, provider) = serve(ScriptedResponse::json(&reply(&message))).await;
    let completion = provider.complete(&minimal_call(), None).await.unwrap();
    assert_eq!(completion.text, "a\u{fffd}b");
    let call = &completion.tool_calls[0];
    assert_eq!([&call.id, &call.name, &call.arguments], ["c\u{fffd}", "n\u{fffd}", "\u{fffd}"]);
}
