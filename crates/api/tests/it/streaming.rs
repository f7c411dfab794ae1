//! Streaming: events with partial model output while the model still generates.

use crate::{
    dispatch::{async_run, execution_path},
    execution::wait_until_ended,
    run_events::{EventStream, parse_event_stream},
};
use fairway_domain::execution::provider::{
    Completion, DeltaListener, EmbeddingCall, Embeddings, Provider, ProviderCall, ProviderError, ProviderFailure,
};
use fairway_testkit::app::{ActiveWorkload, TestApp};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::{Mutex, mpsc};

/// An action that the test sends to a [`ScriptedProvider`].
enum ProviderAction {
    Send(&'static str),
    Fail(ProviderError),
    Complete,
}

/// A provider that streams parts at the moment when the test sends them.
struct ScriptedProvider {
    script: Mutex<mpsc::UnboundedReceiver<ProviderAction>>,
}

impl ScriptedProvider {
    fn new() -> (mpsc::UnboundedSender<ProviderAction>, Arc<Self>) {
        let (actions, script) = mpsc::unbounded_channel();
        (actions, Arc::new(Self { script: Mutex::new(script) }))
    }
}

#[async_trait::async_trait]
impl Provider for ScriptedProvider {
    async fn complete(
        &self,
        _: &ProviderCall,
        listener: Option<&dyn DeltaListener>,
    ) -> Result<Completion, ProviderFailure> {
        let (mut text, mut script) = (String::new(), self.script.lock().await);
        loop {
            match script.recv().await {
                Some(ProviderAction::Send(part)) => {
                    text.push_str(part);
                    if let Some(listener) = listener {
                        listener.on_delta(part);
                    }
                }
                Some(ProviderAction::Fail(error)) => return Err(error.into()),
                Some(ProviderAction::Complete) | None => return Ok(Completion { text, ..Completion::default() }),
            }
        }
    }

    async fn embed(&self, _: &EmbeddingCall) -> Result<Embeddings, ProviderFailure> {
        Err(ProviderError::Unsupported.into())
    }

    fn residency(&self, _: &str) -> Option<&str> {
        None
    }
}

async fn workload(app: &TestApp, streams: bool, obligations: &[&str]) -> ActiveWorkload {
    let fixtures = app.fixtures();
    let route = |id: &str| json!({ "route_id": id, "provider": "acme", "model": "m", "account_slot": "local", "state": "approved" });
    let models = json!({ "provider_route": route("first"), "fallback_routes": [route("second")],
        "supports_streaming": streams });
    let outcome = if obligations.is_empty() { "allow" } else { "allow_with_obligations" };
    let mut rule = json!({ "id": "all", "condition": "always", "outcome": outcome, "reason_code": "fine" });
    if !obligations.is_empty() {
        rule["obligations"] = json!(obligations);
    }
    let versions = vec![
        fixtures.ticket_prompt("prompt").await,
        fixtures.policy_with_rules("policy", json!([rule])).await,
        fixtures.asset_with_version("model_policy", "models", models).await,
    ];
    fixtures.active_workload_with_bindings("main", versions).await
}

async fn open_event_stream(app: &TestApp, workload: &ActiveWorkload) -> (Value, EventStream) {
    let id = async_run(app, workload).await.expect(202)["execution_id"].clone();
    let stream = EventStream::open(app, &execution_path(&id, "/events"), "").await;
    (id, stream)
}

/// The next `count` events, each as its kind and its `delta`.
async fn next_events(stream: &mut EventStream, count: usize) -> Vec<(String, Value)> {
    let mut events = Vec::new();
    for _ in 0..count {
        let (kind, data) = stream.next_event().await;
        events.push((kind, data["delta"].clone()));
    }
    events
}

fn event_of_kind(name: &str) -> (String, Value) {
    (name.to_owned(), Value::Null)
}

fn delta_event(text: &str) -> (String, Value) {
    ("output.delta".to_owned(), json!(text))
}

#[tokio::test]
async fn streams_output_live_and_replays_the_same_events() {
    let (actions, provider) = ScriptedProvider::new();
    let app = TestApp::builder().provider(provider).start().await;
    let workload = workload(&app, true, &[]).await;
    let (id, mut stream) = open_event_stream(&app, &workload).await;
    assert_eq!(next_events(&mut stream, 2).await, [event_of_kind("execution.started"), event_of_kind("step.started")]);
    // The provider sends a part only after the client has received the previous part.
    for part in ["bil", "li", "ng"] {
        actions.send(ProviderAction::Send(part)).unwrap();
        assert_eq!(next_events(&mut stream, 1).await, [delta_event(part)]);
    }
    actions.send(ProviderAction::Complete).unwrap();
    let remaining_events = next_events(&mut stream, 4).await;
    assert_eq!(remaining_events[0], event_of_kind("step.completed"));
    assert_eq!(remaining_events[3], event_of_kind("execution.completed"));
    assert_eq!(wait_until_ended(&app, &id).await["queued_result"]["result"], "billing");
    let replay = parse_event_stream(&app.get(execution_path(&id, "/events")).await);
    let text: String = replay.iter().filter_map(|event| event.data["delta"].as_str()).collect();
    assert_eq!((text.as_str(), replay.len()), ("billing", 9), "the replay holds every event once");
}

#[tokio::test]
async fn discards_output_of_a_failed_route() {
    let (actions, provider) = ScriptedProvider::new();
    let app = TestApp::builder().provider(provider).start().await;
    let workload = workload(&app, true, &[]).await;
    let (id, mut stream) = open_event_stream(&app, &workload).await;
    assert_eq!(next_events(&mut stream, 2).await, [event_of_kind("execution.started"), event_of_kind("step.started")]);
    actions.send(ProviderAction::Send("wrong")).unwrap();
    assert_eq!(next_events(&mut stream, 1).await, [delta_event("wrong")]);
    actions.send(ProviderAction::Fail(ProviderError::Malformed)).unwrap();
    actions.send(ProviderAction::Send("right")).unwrap();
    assert_eq!(
        next_events(&mut stream, 2).await,
        [event_of_kind("step.started"), delta_event("right")],
        "the fallback route starts the step again"
    );
    actions.send(ProviderAction::Complete).unwrap();
    assert_eq!(wait_until_ended(&app, &id).await["queued_result"]["result"], "right");
}

#[tokio::test]
async fn sends_no_delta_before_the_end_if_output_may_be_withheld() {
    for (streams, obligations) in [(false, &[][..]), (true, &["redact_output"][..])] {
        let (actions, provider) = ScriptedProvider::new();
        let app = TestApp::builder().provider(provider).start().await;
        let workload = workload(&app, streams, obligations).await;
        let (id, mut stream) = open_event_stream(&app, &workload).await;
        assert_eq!(
            next_events(&mut stream, 2).await,
            [event_of_kind("execution.started"), event_of_kind("step.started")]
        );
        actions.send(ProviderAction::Send("mail ada@example.com")).unwrap();
        actions.send(ProviderAction::Complete).unwrap();
        wait_until_ended(&app, &id).await;
        let replay = parse_event_stream(&app.get(execution_path(&id, "/events")).await);
        let parts: Vec<&str> = replay.iter().filter_map(|event| event.data["delta"].as_str()).collect();
        let expected: &[&str] = if obligations.is_empty() { &["mail ada@example.com"] } else { &[] };
        assert_eq!(parts, expected, "one part after the response, or none if the output is redacted");
    }
}
