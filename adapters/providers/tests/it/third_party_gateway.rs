//! The adapters for OpenAI and Anthropic with a third-party model gateway.

use crate::support::{Protocol, complete_streaming, keys, minimal_call, route, tool_call};
use fairway_domain::execution::provider::{EmbeddingCall, Provider, ProviderCall, ProviderError, RouteTarget};
use fairway_testkit::{LITELLM_API_KEY, LiteLlmGateway};
use std::{sync::Arc, time::Duration};

/// A timeout that suffices for a gateway on a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The same call, but for another model.
fn with_model(model: &str, call: &ProviderCall) -> ProviderCall {
    ProviderCall {
        route: RouteTarget { model: model.to_owned(), ..route() },
        conversation: Arc::clone(&call.conversation),
    }
}

/// A single test covers everything, because the gateway takes long to start.
#[tokio::test]
async fn supports_a_third_party_gateway() {
    let gateway = tokio::task::spawn_blocking(|| LiteLlmGateway::start().unwrap()).await.unwrap();
    let openai = Protocol::OpenAi.at(&gateway.url("/v1"), TIMEOUT, Some(keys(LITELLM_API_KEY)));
    let anthropic = Protocol::Anthropic.at(&gateway.url(""), TIMEOUT, Some(keys(LITELLM_API_KEY)));

    let completion = openai.complete(&with_model("small", &minimal_call()), None).await.unwrap();
    assert_eq!((completion.text.as_str(), completion.metadata["model"].as_str()), ("Good day to you.", Some("small")));
    assert_eq!(completion.metadata["finish_reason"], "stop");
    assert!(completion.tokens_in > 0 && completion.tokens_out > 0, "{completion:?}");
    let tool_calls = openai.complete(&with_model("tools", &tool_call()), None).await.unwrap().tool_calls;
    assert_eq!((tool_calls[0].name.as_str(), tool_calls[0].arguments.as_str()), ("weather", "{\"city\": \"Ulm\"}"));

    let completion = anthropic.complete(&with_model("small", &minimal_call()), None).await.unwrap();
    assert_eq!(
        (completion.text.as_str(), &completion.metadata["finish_reason"]),
        ("Good day to you.", &"end_turn".into())
    );
    assert!(completion.tokens_in > 0 && completion.tokens_out > 0, "{completion:?}");

    for (provider, model) in [(&openai, "small"), (&openai, "relayed"), (&anthropic, "relayed")] {
        let (completion, parts) = complete_streaming(&**provider, &with_model(model, &minimal_call())).await;
        let completion = completion.unwrap();
        assert_eq!(
            (completion.text.as_str(), parts.concat()),
            ("Good day to you.", completion.text.clone()),
            "{model}"
        );
        assert!(parts.len() > 1, "{model}: {parts:?}");
        assert!(completion.tokens_in > 0 && completion.tokens_out > 0, "{completion:?}");
    }

    let call = EmbeddingCall { route: with_model("vectors", &minimal_call()).route, texts: vec!["one".to_owned()] };
    let embeddings = openai.embed(&call).await.unwrap();
    assert_eq!(embeddings.vectors, [[0.25, -0.5]]);
    assert_failures(&*openai, &*anthropic).await;
    let provider_with_unknown_key = Protocol::OpenAi.at(&gateway.url("/v1"), TIMEOUT, Some(keys("sk-nobody")));
    let failed = provider_with_unknown_key.complete(&with_model("small", &minimal_call()), None).await.unwrap_err();
    assert!(matches!(failed.error, ProviderError::KeyRefused | ProviderError::Refused), "{failed:?}");
}

/// Failures of the gateway's own providers are classified like direct failures.
async fn assert_failures(openai: &dyn Provider, anthropic: &dyn Provider) {
    for provider in [openai, anthropic] {
        for (model, error) in
            [("busy", ProviderError::Busy), ("broken", ProviderError::Unavailable), ("nobody", ProviderError::Refused)]
        {
            let failed = provider.complete(&with_model(model, &minimal_call()), None).await.unwrap_err();
            assert_eq!(failed.error, error, "{model}");
        }
    }
}
