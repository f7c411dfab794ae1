//! Provider accounts for a test endpoint, and model calls.

use async_trait::async_trait;
use fairway_domain::{
    execution::provider::{
        Completion, CompletionInput, DeltaListener, Message, MessageRole, Provider, ProviderCall, ProviderFailure,
        RouteTarget, ToolCall, ToolDefinition,
    },
    secret::{Secret, SecretError, SecretReader, SecretRef, ServerSecretRef},
    slug::Slug,
};
use fairway_egress::{Guard, ServerMode, Url};
use fairway_providers::{AccountConnection, Anthropic, OpenAi};
use fairway_testkit::ScriptedEndpoint;
use serde_json::json;
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::sync::mpsc;

/// A secret store with one key. A test can replace the key with an error.
pub(crate) struct KeyStore(pub(crate) Mutex<Result<&'static str, SecretError>>);

#[async_trait]
impl SecretReader for KeyStore {
    async fn read(&self, _tenant: &Slug, _reference: &SecretRef) -> Result<Secret, SecretError> {
        Err(SecretError::OtherTenant)
    }

    async fn read_server_secret(&self, reference: &ServerSecretRef) -> Result<Secret, SecretError> {
        assert_eq!(reference, &ServerSecretRef::Env("KEY".to_owned()));
        self.0.lock().unwrap().map(|key| Secret::new(key.to_owned()))
    }
}

pub(crate) fn keys(key: &'static str) -> Arc<KeyStore> {
    Arc::new(KeyStore(Mutex::new(Ok(key))))
}

/// The two provider APIs, for tests that apply to each of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Protocol {
    OpenAi,
    Anthropic,
}

impl Protocol {
    pub(crate) const ALL: [Self; 2] = [Self::OpenAi, Self::Anthropic];

    /// Creates a provider for this base URL.
    pub(crate) fn at(self, base_url: &str, timeout: Duration, keys: Option<Arc<KeyStore>>) -> Arc<dyn Provider> {
        fairway_testkit::install_crypto_provider();
        let url = Url::parse(base_url).unwrap();
        let key = keys.map(|keys| (keys as Arc<dyn SecretReader>, ServerSecretRef::Env("KEY".to_owned())));
        let guard = Guard::new(ServerMode::Remote, Vec::new());
        let connection = AccountConnection::new("first", &guard, &url, timeout, key).unwrap();
        match self {
            Self::OpenAi => Arc::new(OpenAi::new(connection, &url)),
            Self::Anthropic => Arc::new(Anthropic::new(connection, &url)),
        }
    }

    /// Creates a provider for this endpoint with a long timeout.
    pub(crate) fn over(self, endpoint: &ScriptedEndpoint) -> Arc<dyn Provider> {
        self.at(&endpoint.url("/v1"), Duration::from_secs(30), Some(keys("sk-test")))
    }
}

pub(crate) fn route() -> RouteTarget {
    RouteTarget {
        route_id: "primary".to_owned(),
        provider: "acme".to_owned(),
        model: "small".to_owned(),
        account_slot: "first".to_owned(),
    }
}

pub(crate) fn call(conversation: CompletionInput) -> ProviderCall {
    ProviderCall { route: route(), conversation: Arc::new(conversation) }
}

pub(crate) fn minimal_call() -> ProviderCall {
    call(CompletionInput {
        system_prompt: "Be brief.".to_owned(),
        messages: vec![Message::text(MessageRole::User, "Hello?".to_owned())],
        ..CompletionInput::default()
    })
}

/// A conversation with tools, two parallel calls and their results.
pub(crate) fn tool_call() -> ProviderCall {
    let requested_call = |id: &str, arguments: &str| ToolCall {
        id: id.to_owned(),
        name: "weather".to_owned(),
        arguments: arguments.to_owned(),
    };
    let tool_result = |id: &str, text: &str| Message {
        tool_call_id: Some(id.to_owned()),
        ..Message::text(MessageRole::Tool, text.to_owned())
    };
    call(CompletionInput {
        system_prompt: "Be brief.".to_owned(),
        messages: vec![
            Message::text(MessageRole::User, "Is it warm in Lyon and in Ulm?".to_owned()),
            Message {
                tool_calls: vec![requested_call("c1", "{\"city\":\"Lyon\"}"), requested_call("c2", "Ulm")],
                ..Message::text(MessageRole::Assistant, String::new())
            },
            tool_result("c1", "21"),
            tool_result("c2", "no such city"),
            Message::text(MessageRole::User, "And?".to_owned()),
        ],
        tools: vec![ToolDefinition {
            name: "weather".to_owned(),
            description: "Tells the temperature.".to_owned(),
            input_schema: json!({ "type": "object", "properties": { "city": { "type": "string" } } }).into(),
        }],
        temperature: Some(1.5),
        max_tokens: Some(100),
    })
}

/// A listener that forwards the received parts of an answer to the test.
pub(crate) struct ForwardingListener(mpsc::UnboundedSender<String>);

impl ForwardingListener {
    pub(crate) fn open() -> (Self, mpsc::UnboundedReceiver<String>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self(sender), receiver)
    }
}

impl DeltaListener for ForwardingListener {
    fn on_delta(&self, part: &str) {
        let _ = self.0.send(part.to_owned());
    }
}

/// Executes a call with streaming. Returns the completion and all its streamed parts.
pub(crate) async fn complete_streaming(
    provider: &dyn Provider,
    call: &ProviderCall,
) -> (Result<Completion, ProviderFailure>, Vec<String>) {
    let (listener, mut receiver) = ForwardingListener::open();
    let completion = provider.complete(call, Some(&listener)).await;
    drop(listener);
    let mut parts = Vec::new();
    while let Some(part) = receiver.recv().await {
        parts.push(part);
    }
    (completion, parts)
}
