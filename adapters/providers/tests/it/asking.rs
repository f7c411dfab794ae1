//! Accounts for a test endpoint, and calls.

use async_trait::async_trait;
use fairway_domain::{
    execution::provider::{
        Completion, Conversation, DeltaListener, Message, MessageRole, Provider, ProviderCall, ProviderFailure, RoutePoint,
        ToolCall, ToolDefinition,
    },
    secret::{Secret, SecretError, SecretRef, SecretReader, ServerSecretRef},
    slug::Slug,
};
use fairway_egress::{Guard, Reach, Url};
use fairway_providers::{Anthropic, Connection, OpenAi};
use fairway_testkit::FaultyEndpoint;
use serde_json::json;
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::sync::mpsc;

/// A store with one key, which can be replaced by an error.
pub(crate) struct Keys(pub(crate) Mutex<Result<&'static str, SecretError>>);

#[async_trait]
impl SecretReader for Keys {
    async fn read(&self, _tenant: &Slug, _reference: &SecretRef) -> Result<Secret, SecretError> {
        Err(SecretError::Foreign)
    }

    async fn read_own(&self, reference: &ServerSecretRef) -> Result<Secret, SecretError> {
        assert_eq!(reference, &ServerSecretRef::Env("KEY".to_owned()));
        self.0.lock().unwrap().map(|key| Secret::new(key.to_owned()))
    }
}

pub(crate) fn keys(key: &'static str) -> Arc<Keys> {
    Arc::new(Keys(Mutex::new(Ok(key))))
}

/// The APIs, for tests that apply to both.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Protocol {
    OpenAi,
    Anthropic,
}

impl Protocol {
    pub(crate) const ALL: [Self; 2] = [Self::OpenAi, Self::Anthropic];

    /// A provider for this address.
    pub(crate) fn at(self, base_url: &str, time: Duration, keys: Option<Arc<Keys>>) -> Arc<dyn Provider> {
        fairway_testkit::init();
        let url = Url::parse(base_url).unwrap();
        let key = keys.map(|keys| (keys as Arc<dyn SecretReader>, ServerSecretRef::Env("KEY".to_owned())));
        let connection = Connection::new(&Guard::new(Reach::Remote, Vec::new()), &url, time, key).unwrap();
        match self {
            Self::OpenAi => Arc::new(OpenAi::new(connection, &url)),
            Self::Anthropic => Arc::new(Anthropic::new(connection, &url)),
        }
    }

    /// A provider for this endpoint with a long timeout.
    pub(crate) fn over(self, endpoint: &FaultyEndpoint) -> Arc<dyn Provider> {
        self.at(&endpoint.url("/v1"), Duration::from_secs(30), Some(keys("sk-test")))
    }
}

pub(crate) fn route() -> RoutePoint {
    RoutePoint {
        route_id: "primary".to_owned(),
        provider: "acme".to_owned(),
        model: "small".to_owned(),
        account_slot: "first".to_owned(),
    }
}

pub(crate) fn call(conversation: Conversation) -> ProviderCall {
    ProviderCall { route: route(), conversation: Arc::new(conversation) }
}

/// A minimal conversation.
pub(crate) fn plain() -> ProviderCall {
    call(Conversation {
        system_prompt: "Be brief.".to_owned(),
        messages: vec![Message::of(MessageRole::User, "Hello?".to_owned())],
        ..Conversation::default()
    })
}

/// A conversation with tools, two parallel calls and their results.
pub(crate) fn rich() -> ProviderCall {
    let called = |id: &str, arguments: &str| ToolCall {
        id: id.to_owned(),
        name: "weather".to_owned(),
        arguments: arguments.to_owned(),
    };
    let answered = |id: &str, text: &str| Message {
        answers: Some(id.to_owned()),
        ..Message::of(MessageRole::Tool, text.to_owned())
    };
    call(Conversation {
        system_prompt: "Be brief.".to_owned(),
        messages: vec![
            Message::of(MessageRole::User, "Is it warm in Lyon and in Ulm?".to_owned()),
            Message {
                tool_calls: vec![called("c1", "{\"city\":\"Lyon\"}"), called("c2", "Ulm")],
                ..Message::of(MessageRole::Assistant, String::new())
            },
            answered("c1", "21"),
            answered("c2", "no such city"),
            Message::of(MessageRole::User, "And?".to_owned()),
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

/// Forwards the received parts.
pub(crate) struct ForwardingListener(mpsc::UnboundedSender<String>);

impl ForwardingListener {
    pub(crate) fn open() -> (Self, mpsc::UnboundedReceiver<String>) {
        let (said, heard) = mpsc::unbounded_channel();
        (Self(said), heard)
    }
}

impl DeltaListener for ForwardingListener {
    fn said(&self, part: &str) {
        let _ = self.0.send(part.to_owned());
    }
}

/// A completion with all its streamed parts.
pub(crate) async fn heard(
    provider: &dyn Provider,
    call: &ProviderCall,
) -> (Result<Completion, ProviderFailure>, Vec<String>) {
    let (ears, mut said) = ForwardingListener::open();
    let completion = provider.complete(call, Some(&ears)).await;
    drop(ears);
    let mut parts = Vec::new();
    while let Some(part) = said.recv().await {
        parts.push(part);
    }
    (completion, parts)
}
