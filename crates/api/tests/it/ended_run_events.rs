//! Events of ended runs: the server sends them page by page, and bounds the memory for slow clients.

use crate::{
    dispatch::execution_path,
    execution::{run, wait_until_ended},
    run_events::{Event, EventStream, parse_event_stream},
};
use fairway_testkit::{ProviderBehaviour, StubProvider, TestApp};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    time::{sleep, timeout},
};

/// Number of events that the run streams itself, before the events that a test inserts.
const FIRST_EVENTS: u64 = 6;

/// Creates an ended run with `parts` additional `output.delta` events of `bytes` bytes, each stored in its own row.
async fn run_with_many_events(app: &TestApp, parts: i32, bytes: i32) -> Value {
    let workload = app.active_workload("main").await;
    let events = parse_event_stream(&run(app, &workload).header("accept", "text/event-stream").await);
    assert_eq!(events.len() as u64, FIRST_EVENTS + 1);
    let id = events[0].data["execution_id"].clone();
    let insert = "INSERT INTO execution_progress (tenant_id, execution_id, position, events)
        SELECT tenant_id, execution_id, last + number, format('[{\"kind\":\"output.delta\",\"data\":{\"delta\":\"%s\"}}]', repeat('x', $3))
        FROM (SELECT tenant_id, execution_id, max(position) AS last FROM execution_progress
            WHERE execution_id::text = $1 GROUP BY 1, 2) AS said, generate_series(1, $2::integer) AS number";
    let owner = app.database().connect_as_owner().await.unwrap();
    owner.execute(insert, &[&id.as_str().unwrap(), &parts, &bytes]).await.unwrap();
    id
}

fn answering_provider() -> std::sync::Arc<StubProvider> {
    StubProvider::new(ProviderBehaviour::Answers("billing".to_owned()))
}

#[tokio::test]
async fn event_pages_are_numbered_and_resume_at_any_event() {
    let app = TestApp::builder().provider(answering_provider()).start().await;
    let id = run_with_many_events(&app, 300, 1_000).await;
    let all_events = parse_event_stream(&app.get(execution_path(&id, "/events")).await);
    assert!(all_events.iter().map(|event| event.id).eq(1..=FIRST_EVENTS + 301));
    let is_added_delta = |event: &&Event| event.data["delta"].as_str().is_some_and(|text| text.len() == 1_000);
    assert_eq!(all_events.iter().filter(is_added_delta).count(), 300);
    assert_eq!(all_events.last().unwrap().data["output"], "billing");
    for last_event_id in [1, 20, 33, 34, 35, 200, FIRST_EVENTS + 300] {
        let remaining_events = parse_event_stream(
            &app.get(execution_path(&id, "/events")).header("last-event-id", last_event_id.to_string()).await,
        );
        assert_eq!(
            remaining_events,
            all_events[usize::try_from(last_event_id).unwrap()..],
            "after event {last_event_id}"
        );
    }
    let after_end =
        app.get(execution_path(&id, "/events")).header("last-event-id", (FIRST_EVENTS + 301).to_string()).await;
    assert_eq!((after_end.status, after_end.body.len()), (204, 0));
}

/// Opens a stream after the run's own events, and reads only the status line of the response.
async fn open_without_reading(app: &TestApp, path: &str) -> (String, TcpStream) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4 << 10).unwrap();
    let mut stream = socket.connect(app.address()).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\nLast-Event-ID: {FIRST_EVENTS}\r\n\r\n", app.address());
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = [0; 12];
    timeout(Duration::from_secs(20), stream.read_exact(&mut head)).await.unwrap().unwrap();
    (String::from_utf8_lossy(&head).into_owned(), stream)
}

#[tokio::test]
async fn unread_events_count_against_response_memory() {
    let app = TestApp::builder().provider(answering_provider()).start().await;
    // One event is larger than the socket buffers. Nine events occupy half of the memory budget.
    let id = run_with_many_events(&app, 3, 3_500_000).await;
    let events_path = execution_path(&id, "/events");
    let mut streams = Vec::new();
    let response = loop {
        let (head, stream) = open_without_reading(&app, &events_path).await;
        if head != "HTTP/1.1 200" {
            break head;
        }
        streams.push(stream);
    };
    // The refusal comes from the memory budget, because the stream limit would respond with 429.
    assert_eq!(response, "HTTP/1.1 503", "{} clients hold events that they do not take", streams.len());
    // Small responses need no memory permit. Large responses get a permit after the slow clients have disconnected.
    assert_eq!(app.send_raw_path("GET", &execution_path(&id, "")).await.expect(200)["status"], "completed");
    drop(streams);
    let response = loop {
        let response = app.get(&events_path).header("last-event-id", FIRST_EVENTS.to_string()).await;
        // A stream that gets no memory for its next page ends early, so the test reads again.
        if response.status != 503 && parse_event_stream(&response).len() == 4 {
            break parse_event_stream(&response);
        }
        sleep(Duration::from_millis(50)).await;
    };
    assert!(response.iter().map(|event| event.id).eq(FIRST_EVENTS + 1..=FIRST_EVENTS + 4));
}

#[tokio::test]
async fn streams_of_ended_runs_count_against_the_stream_limit() {
    let provider = answering_provider();
    let app = TestApp::builder().setting("FAIRWAY_PUBLIC_RATE_BURST", "100").provider(provider.clone()).start().await;
    let workload = app.active_workload("main").await;
    let public_interface = json!({ "interface_config": { "presentation_mode": "form", "access_mode": "public",
        "input_fields": [{ "name": "ticket", "type": "text" }] } });
    app.patch(format!("/v1/workloads/{}", workload.workload_id), public_interface).await.expect(200);
    let queued = || run(&app, &workload).as_actor("anonymous").header("prefer", "respond-async");
    let ended_run = queued().await.expect(202);
    wait_until_ended(&app, &ended_run["execution_id"]).await;
    let request_events = || {
        let token = ended_run["result_token"].as_str().unwrap();
        app.get(execution_path(&ended_run["execution_id"], "/events"))
            .as_actor("anonymous")
            .header("X-Result-Token", token)
    };
    let replay = parse_event_stream(&request_events().await);
    provider.set_behaviour(ProviderBehaviour::Blocks);
    let blocked_run = queued().await.expect(202);
    let token = blocked_run["result_token"].as_str().unwrap();
    let headers = format!("X-Actor-Ref: anonymous\r\nX-Result-Token: {token}\r\n");
    let mut streams = Vec::new();
    for _ in 0..8 {
        let mut stream =
            EventStream::open(&app, &execution_path(&blocked_run["execution_id"], "/events"), &headers).await;
        assert_eq!(stream.next_event().await.0, "execution.started");
        streams.push(stream);
    }
    request_events().await.expect_refusal(429, "too_many_streams");
    // A client that already has the last event gets 204 and needs no stream permit.
    let last_id = replay.last().unwrap().id.to_string();
    assert_eq!(request_events().header("last-event-id", last_id).await.status, 204);
    provider.set_behaviour(ProviderBehaviour::Answers("billing".to_owned()));
    for stream in &mut streams {
        while stream.next_event().await.0 != "execution.completed" {}
    }
    drop(streams);
    while request_events().await.status == 429 {
        sleep(Duration::from_millis(50)).await;
    }
}
