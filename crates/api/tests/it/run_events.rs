//! The server-sent events of runs.

use crate::{
    dispatch::{async_run, execution_path},
    execution::{run, wait_until_ended},
    public_workloads::create_public_workload,
};
use fairway_testkit::{
    FaultProxy, ProviderBehaviour, ProxyFault, StubProvider, TestApp,
    app::{Client, Response},
};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    time::timeout,
};

/// A parsed event of an event stream.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Event {
    pub(crate) id: u64,
    pub(crate) kind: String,
    pub(crate) data: Value,
}

/// Parses the events of a response body.
fn parse_events(text: &str) -> Vec<Event> {
    let parse_block = |block: &str| {
        let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
        Some(Event {
            id: field("id: ")?.parse().unwrap(),
            kind: field("event: ").unwrap(),
            data: serde_json::from_str(&field("data: ").unwrap()).unwrap(),
        })
    };
    text.split("\n\n").filter_map(parse_block).collect()
}

pub(crate) fn parse_event_stream(response: &Response) -> Vec<Event> {
    response.header("content-type").filter(|kind| kind.starts_with("text/event-stream")).unwrap();
    assert_eq!(response.status, 200, "{response}");
    parse_events(&response.text())
}

pub(crate) fn kinds_of(events: &[Event]) -> Vec<&str> {
    events.iter().map(|event| event.kind.as_str()).collect()
}

const COMPLETED_RUN_EVENTS: [&str; 7] = [
    "execution.started",
    "step.started",
    "output.delta",
    "step.completed",
    "step.started",
    "step.completed",
    "execution.completed",
];

/// An event stream that the test reads event by event.
pub(crate) struct EventStream {
    lines: Lines<BufReader<OwnedReadHalf>>,
    /// The write half of the connection. It is stored because dropping it would close the connection.
    _write: OwnedWriteHalf,
}

impl EventStream {
    pub(crate) async fn open(client: &Client, path: &str, headers: &str) -> Self {
        Self::send(client, &format!("GET {path}"), headers, "").await
    }

    /// Sends a request with this request line (without version), headers and body.
    async fn send(client: &Client, request_line: &str, headers: &str, body: &str) -> Self {
        let (read_half, mut write_half) = TcpStream::connect(client.address()).await.unwrap().into_split();
        let head = format!("{request_line} HTTP/1.1\r\nHost: {}\r\n{headers}\r\n{body}", client.address());
        write_half.write_all(head.as_bytes()).await.unwrap();
        Self { lines: BufReader::new(read_half).lines(), _write: write_half }
    }

    /// The value of a response header. It can be read before the first event.
    async fn response_header(&mut self, name: &str) -> String {
        let value = async {
            loop {
                let line = self.lines.next_line().await.unwrap().unwrap();
                if let Some(value) = line.split_once(": ").filter(|(header, _)| header.eq_ignore_ascii_case(name)) {
                    return value.1.to_owned();
                }
            }
        };
        timeout(Duration::from_secs(20), value).await.unwrap()
    }

    /// The kind and the data of the next event, within 20 s.
    pub(crate) async fn next_event(&mut self) -> (String, Value) {
        let kind = self.next_kind().await;
        let line = timeout(Duration::from_secs(20), self.lines.next_line()).await.unwrap().unwrap().unwrap();
        (kind, serde_json::from_str(line.strip_prefix("data: ").unwrap()).unwrap())
    }

    /// The kind of the next event, within 20 s.
    async fn next_kind(&mut self) -> String {
        let next_kind = async {
            loop {
                let line = self.lines.next_line().await.unwrap().unwrap();
                if let Some(kind) = line.strip_prefix("event: ") {
                    return kind.to_owned();
                }
            }
        };
        timeout(Duration::from_secs(20), next_kind).await.unwrap()
    }
}

#[tokio::test]
async fn replay_returns_the_streamed_events_from_any_position() {
    let app =
        TestApp::builder().provider(StubProvider::new(ProviderBehaviour::Answers("billing".to_owned()))).start().await;
    let workload = app.active_workload("main").await;
    let streamed = parse_event_stream(&run(&app, &workload).header("accept", "text/event-stream").await);
    assert_eq!(kinds_of(&streamed), COMPLETED_RUN_EVENTS);
    assert!(streamed.iter().map(|event| event.id).eq(1..=7));
    assert_eq!(streamed[2].data["delta"], "billing");
    let id = streamed[0].data["execution_id"].clone();
    let last_data = &streamed[6].data;
    assert_eq!(
        (&last_data["execution_id"], &last_data["output"], &last_data["status"]),
        (&id, &json!("billing"), &json!("completed"))
    );
    let by_worker = async_run(&app, &workload).await.expect(202)["execution_id"].clone();
    wait_until_ended(&app, &by_worker).await;
    assert_eq!(
        kinds_of(&parse_event_stream(&app.get(execution_path(&by_worker, "/events")).await)),
        COMPLETED_RUN_EVENTS
    );
    for last_event_id in 0..=6 {
        let remaining_events = parse_event_stream(
            &app.get(execution_path(&id, "/events")).header("last-event-id", last_event_id.to_string()).await,
        );
        assert_eq!(remaining_events, streamed[last_event_id..], "after event {last_event_id}");
    }
    // A client that already has the last event gets 204, which tells it not to reconnect.
    for last_event_id in [7, 8, 9_999_999_999_999_999_999_u64] {
        let ended_stream =
            app.get(execution_path(&id, "/events")).header("last-event-id", last_event_id.to_string()).await;
        assert_eq!((ended_stream.status, ended_stream.body.len()), (204, 0), "after event {last_event_id}");
    }
    for invalid_id in ["x", "-1", "+1", "1.0", "10000000000000000000"] {
        app.get(execution_path(&id, "/events"))
            .header("last-event-id", invalid_id)
            .await
            .expect_refusal(422, "validation_error");
    }
    for empty in ["", " "] {
        let all_events =
            parse_event_stream(&app.get(execution_path(&id, "/events")).header("last-event-id", empty).await);
        assert_eq!(all_events, streamed, "an empty value counts as none");
    }
    // The events of a run without a stream contain its steps, and the last event contains the output.
    let plain_run = run(&app, &workload).await.expect(200)["execution_id"].clone();
    let replay = parse_event_stream(&app.get(execution_path(&plain_run, "/events")).await);
    let without_deltas: Vec<&str> = COMPLETED_RUN_EVENTS.into_iter().filter(|kind| *kind != "output.delta").collect();
    assert_eq!(kinds_of(&replay), without_deltas);
    assert_eq!(replay.last().unwrap().data["output"], "billing");
}

#[tokio::test]
async fn other_readers_get_steps_without_output() {
    let app =
        TestApp::builder().provider(StubProvider::new(ProviderBehaviour::Answers("canary".to_owned()))).start().await;
    let workload = app.active_workload("main").await;
    let streamed = parse_event_stream(&run(&app, &workload).header("accept", "text/event-stream").await);
    let id = streamed[0].data["execution_id"].clone();
    let stream = app.get(execution_path(&id, "/events")).as_actor("user:eve").await;
    assert_eq!(kinds_of(&parse_event_stream(&stream)), COMPLETED_RUN_EVENTS);
    assert!(!stream.text().contains("canary"), "{}", stream.text());
    let fixtures = app.fixtures();
    fixtures.bind_role("user:elsewhere", "viewer", "workload", Some(&fixtures.workload("other").await)).await;
    app.get(execution_path(&id, "/events")).as_actor("user:elsewhere").await.expect_refusal(404, "not_found");
}

/// Stored deltas expire together with the result, according to the database's clock.
#[tokio::test]
async fn deltas_expire_with_the_result() {
    let app =
        TestApp::builder().provider(StubProvider::new(ProviderBehaviour::Answers("canary".to_owned()))).start().await;
    let workload = app.active_workload("main").await;
    let streamed = parse_event_stream(&run(&app, &workload).header("accept", "text/event-stream").await);
    let id = streamed[0].data["execution_id"].clone();
    let day = 24 * 60 * 60;
    app.database().set_clock_offset(30 * day - 60).await.unwrap();
    assert_eq!(parse_event_stream(&app.get(execution_path(&id, "/events")).await), streamed);
    app.database().set_clock_offset(30 * day + 60).await.unwrap();
    assert_eq!(app.get(execution_path(&id, "")).await.expect(200)["queued_result"], Value::Null);
    let expired = app.get(execution_path(&id, "/events")).await;
    assert_eq!(kinds_of(&parse_event_stream(&expired)), COMPLETED_RUN_EVENTS);
    assert!(!expired.text().contains("canary"), "{}", expired.text());
    let response = app.get(execution_path(&id, "/events")).header("last-event-id", "2").await;
    assert_eq!(
        (parse_event_stream(&response)[0].id, &parse_event_stream(&response)[0].data["delta"]),
        (3, &Value::Null)
    );
}

#[tokio::test]
async fn cancelled_queued_run_has_only_its_end_event() {
    let server = TestApp::builder().without_worker().start().await;
    let workload = server.active_workload("main").await;
    let id = async_run(&server, &workload).await.expect(202)["execution_id"].clone();
    server.post(execution_path(&id, "/cancel"), json!({})).await.expect(200);
    let replay = parse_event_stream(&server.get(execution_path(&id, "/events")).await);
    assert_eq!(kinds_of(&replay), ["execution.failed"]);
    assert_eq!((replay[0].id, &replay[0].data["status"]), (2, &json!("cancelled")));
    // A client that has event 1 gets the remaining events. A client that has the last event gets 204.
    let response = server.get(execution_path(&id, "/events")).header("last-event-id", "1").await;
    assert_eq!(parse_event_stream(&response), replay);
    assert_eq!(server.get(execution_path(&id, "/events")).header("last-event-id", "2").await.status, 204);
}

/// If a client disconnects while its run is queued, it already knows the path to reconnect to.
#[tokio::test]
async fn stream_names_its_run_before_the_first_event() {
    let provider = StubProvider::new(ProviderBehaviour::Answers("billing".to_owned()));
    let queues = || TestApp::builder().setting("FAIRWAY_DISPATCH", "queued").provider(provider.clone());
    let server = queues().without_worker().start().await;
    let workload = server.active_workload("main").await;
    let body = json!({ "environment": "dev", "inputs": { "ticket": "a refund" } }).to_string();
    let headers =
        format!("Accept: text/event-stream\r\nContent-Type: application/json\r\nContent-Length: {}\r\n", body.len());
    let request_line = format!("POST {}", workload.execute_path());
    let events_path =
        EventStream::send(&server, &request_line, &headers, &body).await.response_header("content-location").await;
    let runs = server.get("/v1/executions").await.expect(200);
    assert_eq!(events_path, execution_path(&runs[0]["execution_id"], "/events"));
    let worker = queues().sharing_storage_of(&server).start().await;
    let mut second_stream = EventStream::open(&server, &events_path, "").await;
    for expected in COMPLETED_RUN_EVENTS {
        assert_eq!(second_stream.next_kind().await, expected);
    }
    worker.shut_down_gracefully().await;
}

/// Promise R3 in `docs/security.md`: the caller of an accepted run always gets the run's identifier.
#[tokio::test]
async fn failed_stream_returns_202_with_the_run() {
    let direct = TestApp::builder().start().await;
    let workload = create_public_workload(&direct, "main").await;
    let proxy = FaultProxy::start_for_database(direct.database(), 1);
    let proxied = TestApp::builder().sharing_storage_of(&direct).through_proxy(&proxy).start().await;
    proxy.set_fault(ProxyFault::Matching("SELECT position, events"));
    let body = json!({ "environment": "dev", "inputs": { "ticket": "a refund" } });
    let execute = || proxied.post(workload.execute_path(), body.clone()).header("accept", "text/event-stream");
    let named_run = execute().as_actor("user:ada").idempotency_key("k").await;
    let anonymous = execute().as_actor("anonymous").await;
    for response in [&named_run, &anonymous] {
        let accepted = response.expect(202);
        assert_eq!(response.header("location"), Some(execution_path(&accepted["execution_id"], "").as_str()));
    }
    proxy.set_fault(ProxyFault::None);
    wait_until_ended(&direct, &named_run.expect(202)["execution_id"]).await;
    // The idempotency key still identifies the run, and a new stream works.
    let replay = execute().as_actor("user:ada").idempotency_key("k").await;
    assert_eq!(parse_event_stream(&replay)[0].data["execution_id"], named_run.expect(202)["execution_id"]);
    let token = anonymous.expect(202)["result_token"].as_str().unwrap().to_owned();
    let id = anonymous.expect(202)["execution_id"].clone();
    let read_request = direct.get(execution_path(&id, "")).as_actor("anonymous").header("X-Result-Token", token);
    assert_eq!(read_request.await.expect(200)["execution_id"], id);
}

#[tokio::test]
async fn limits_concurrent_streams_of_anonymous_callers() {
    let provider = StubProvider::new(ProviderBehaviour::Blocks);
    let app = TestApp::builder().setting("FAIRWAY_PUBLIC_RATE_BURST", "100").provider(provider.clone()).start().await;
    let workload = app.active_workload("main").await;
    let public_interface = json!({ "interface_config": { "presentation_mode": "form", "access_mode": "public",
        "input_fields": [{ "name": "ticket", "type": "text" }] } });
    app.patch(format!("/v1/workloads/{}", workload.workload_id), public_interface).await.expect(200);
    let response = run(&app, &workload).as_actor("anonymous").header("prefer", "respond-async").await.expect(202);
    let (id, token) = (&response["execution_id"], response["result_token"].as_str().unwrap());
    let headers = format!("X-Actor-Ref: anonymous\r\nX-Result-Token: {token}\r\n");
    let mut streams = Vec::new();
    for _ in 0..8 {
        let mut stream = EventStream::open(&app, &execution_path(id, "/events"), &headers).await;
        assert_eq!(stream.next_kind().await, COMPLETED_RUN_EVENTS[0]);
        streams.push(stream);
    }
    let response = app.get(execution_path(id, "/events")).as_actor("anonymous").header("X-Result-Token", token).await;
    response.expect_refusal(429, "too_many_streams");
    assert!(response.header("retry-after").is_some(), "{response}");
    // The limit refuses the stream of a further run, so the response contains its identifier and its result token.
    let started = run(&app, &workload).as_actor("anonymous").header("accept", "text/event-stream").await.expect(202);
    assert!(started["result_token"].is_string() && started["execution_id"].is_string(), "{started}");
    provider.set_behaviour(ProviderBehaviour::Answers("billing".to_owned()));
    for stream in &mut streams {
        while stream.next_kind().await != COMPLETED_RUN_EVENTS[6] {}
    }
}

#[tokio::test]
async fn redacted_output_is_not_streamed() {
    let output = "write to ada@example.com";
    let app =
        TestApp::builder().provider(StubProvider::new(ProviderBehaviour::Answers(output.to_owned()))).start().await;
    let fixtures = app.fixtures();
    let rules = json!([{ "id": "all", "condition": "always", "outcome": "allow_with_obligations",
        "reason_code": "usual", "obligations": ["redact_output"] }]);
    let policy = fixtures.policy_with_rules("careful", rules).await;
    let workload = fixtures.active_workload_with_policy("main", policy).await;
    let streamed = run(&app, &workload).header("accept", "text/event-stream").await;
    assert!(!kinds_of(&parse_event_stream(&streamed)).contains(&"output.delta"));
    assert!(!streamed.text().contains("ada@example.com"), "{}", streamed.text());
}

#[tokio::test]
async fn refusals_are_plain_errors_and_failures_are_events() {
    let app =
        TestApp::builder().provider(StubProvider::new(ProviderBehaviour::Answers("billing".to_owned()))).start().await;
    let fixtures = app.fixtures();
    let deny_rule = json!([{ "id": "no", "condition": "always", "outcome": "deny", "reason_code": "never" }]);
    let policy = fixtures.policy_with_rules("strict", deny_rule).await;
    let denied_workload = fixtures.active_workload_with_policy("denied", policy).await;
    run(&app, &denied_workload).header("accept", "text/event-stream").await.expect_refusal(403, "policy_denied");
    let workload = fixtures.active_workload("main").await;
    let without = json!({ "environment": "dev", "inputs": {} });
    let stream =
        parse_event_stream(&app.post(workload.execute_path(), without).header("accept", "text/event-stream").await);
    let last_event = stream.last().unwrap();
    assert_eq!(
        (last_event.kind.as_str(), &last_event.data["error"]["code"]),
        ("execution.failed", &json!("prompt_argument_missing"))
    );
}

#[tokio::test]
async fn stream_sends_heartbeats_and_ends_with_the_run_on_any_server() {
    let provider = StubProvider::new(ProviderBehaviour::Blocks);
    let server = TestApp::builder().without_worker().provider(provider.clone()).start().await;
    let workload = server.active_workload("main").await;
    let id = async_run(&server, &workload).await.expect(202)["execution_id"].clone();
    let mut stream = EventStream::open(&server, &execution_path(&id, "/events"), "").await;
    let worker = TestApp::builder().sharing_storage_of(&server).provider(provider.clone()).start().await;
    assert_eq!(
        (stream.next_kind().await.as_str(), stream.next_kind().await.as_str()),
        (COMPLETED_RUN_EVENTS[0], COMPLETED_RUN_EVENTS[1])
    );
    // Heartbeats keep the stream open beyond the idle timeout of connections.
    let mut idle_stream = EventStream::open(&server, &execution_path(&id, "/events"), "Last-Event-ID: 2\r\n").await;
    let wait_for_heartbeat = async { while idle_stream.lines.next_line().await.unwrap().unwrap() != ":" {} };
    timeout(Duration::from_secs(20), wait_for_heartbeat).await.unwrap();
    provider.set_behaviour(ProviderBehaviour::Answers("billing".to_owned()));
    for expected in &COMPLETED_RUN_EVENTS[2..] {
        assert_eq!(stream.next_kind().await, *expected);
        assert_eq!(idle_stream.next_kind().await, *expected);
    }
    worker.shut_down_gracefully().await;
}
