//! What models say, told while they say it.

use crate::{
    dispatch::{path, queued},
    events::{Stream, events},
    execution::ended,
};
use fairway_domain::execution::provider::{
    Completion, EmbeddingCall, Embeddings, Listener, Provider, ProviderCall, ProviderError, ProviderFailure,
};
use fairway_testkit::app::{ActiveWorkload, TestApp};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::{Mutex, mpsc};

/// What a speaker does next.
enum Does {
    Says(&'static str),
    Fails(ProviderError),
    Ends,
}

/// Says what the test has it say.
struct Speaker {
    script: Mutex<mpsc::UnboundedReceiver<Does>>,
}

impl Speaker {
    fn new() -> (mpsc::UnboundedSender<Does>, Arc<Self>) {
        let (does, script) = mpsc::unbounded_channel();
        (does, Arc::new(Self { script: Mutex::new(script) }))
    }
}

#[async_trait::async_trait]
impl Provider for Speaker {
    async fn complete(&self, _: &ProviderCall, listener: Option<&dyn Listener>) -> Result<Completion, ProviderFailure> {
        let (mut text, mut script) = (String::new(), self.script.lock().await);
        loop {
            match script.recv().await {
                Some(Does::Says(part)) => {
                    text.push_str(part);
                    if let Some(listener) = listener {
                        listener.said(part);
                    }
                }
                Some(Does::Fails(error)) => return Err(error.into()),
                Some(Does::Ends) | None => return Ok(Completion { text, ..Completion::default() }),
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
    let given = app.given();
    let route = |id: &str| json!({ "route_id": id, "provider": "acme", "model": "m", "account_slot": "local", "state": "approved" });
    let models = json!({ "provider_route": route("first"), "fallback_routes": [route("second")],
        "supports_streaming": streams });
    let outcome = if obligations.is_empty() { "allow" } else { "allow_with_obligations" };
    let mut rule = json!({ "id": "all", "condition": "always", "outcome": outcome, "reason_code": "fine" });
    if !obligations.is_empty() {
        rule["obligations"] = json!(obligations);
    }
    let versions = vec![
        given.prompt("prompt").await,
        given.policy_of("policy", json!([rule])).await,
        given.version("model_policy", "models", models).await,
    ];
    given.active_with("main", versions).await
}

async fn followed(app: &TestApp, workload: &ActiveWorkload) -> (Value, Stream) {
    let id = queued(app, workload).await.expect(202)["execution_id"].clone();
    let stream = Stream::open(app, &path(&id, "/events"), "").await;
    (id, stream)
}

/// The next events, each as its kind and what was said.
async fn next(stream: &mut Stream, count: usize) -> Vec<(String, Value)> {
    let mut told = Vec::new();
    for _ in 0..count {
        let (kind, data) = stream.told().await;
        told.push((kind, data["delta"].clone()));
    }
    told
}

fn kind(name: &str) -> (String, Value) {
    (name.to_owned(), Value::Null)
}

fn delta(text: &str) -> (String, Value) {
    ("output.delta".to_owned(), json!(text))
}

#[tokio::test]
async fn an_answer_is_told_while_it_comes_and_the_same_afterwards() {
    let (does, speaker) = Speaker::new();
    let app = TestApp::builder().provider(speaker).start().await;
    let workload = workload(&app, true, &[]).await;
    let (id, mut stream) = followed(&app, &workload).await;
    assert_eq!(next(&mut stream, 2).await, [kind("execution.started"), kind("step.started")]);
    // Each part is heard before the next one is said.
    for part in ["bil", "li", "ng"] {
        does.send(Does::Says(part)).unwrap();
        assert_eq!(next(&mut stream, 1).await, [delta(part)]);
    }
    does.send(Does::Ends).unwrap();
    let rest = next(&mut stream, 4).await;
    assert_eq!(rest[0], kind("step.completed"));
    assert_eq!(rest[3], kind("execution.completed"));
    assert_eq!(ended(&app, &id).await["queued_result"]["result"], "billing");
    let again = events(&app.get(path(&id, "/events")).await);
    let said: String = again.iter().filter_map(|event| event.data["delta"].as_str()).collect();
    assert_eq!((said.as_str(), again.len()), ("billing", 9), "nothing is told twice");
}

#[tokio::test]
async fn what_a_route_said_before_it_failed_is_void() {
    let (does, speaker) = Speaker::new();
    let app = TestApp::builder().provider(speaker).start().await;
    let workload = workload(&app, true, &[]).await;
    let (id, mut stream) = followed(&app, &workload).await;
    assert_eq!(next(&mut stream, 2).await, [kind("execution.started"), kind("step.started")]);
    does.send(Does::Says("wrong")).unwrap();
    assert_eq!(next(&mut stream, 1).await, [delta("wrong")]);
    does.send(Does::Fails(ProviderError::Malformed)).unwrap();
    does.send(Does::Says("right")).unwrap();
    assert_eq!(next(&mut stream, 2).await, [kind("step.started"), delta("right")], "the step begins anew");
    does.send(Does::Ends).unwrap();
    assert_eq!(ended(&app, &id).await["queued_result"]["result"], "right");
}

#[tokio::test]
async fn nothing_is_told_before_the_end_where_it_may_be_held_back() {
    for (streams, obligations) in [(false, &[][..]), (true, &["redact_output"][..])] {
        let (does, speaker) = Speaker::new();
        let app = TestApp::builder().provider(speaker).start().await;
        let workload = workload(&app, streams, obligations).await;
        let (id, mut stream) = followed(&app, &workload).await;
        assert_eq!(next(&mut stream, 2).await, [kind("execution.started"), kind("step.started")]);
        does.send(Does::Says("mail ada@example.com")).unwrap();
        does.send(Does::Ends).unwrap();
        ended(&app, &id).await;
        let told = events(&app.get(path(&id, "/events")).await);
        let said: Vec<&str> = told.iter().filter_map(|event| event.data["delta"].as_str()).collect();
        let expected: &[&str] = if obligations.is_empty() { &["mail ada@example.com"] } else { &[] };
        assert_eq!(said, expected, "as one part behind the answer, or not at all");
    }
}
