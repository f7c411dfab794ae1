//! Slow clients and malformed HTTP. The server disconnects such clients with the standard error body, and serves
//! other clients.

use fairway_testkit::TestApp;
use serde_json::Value;
use std::time::{Duration, Instant};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// A time limit that is well above the timeouts of these tests, and well below the default timeouts.
const DEADLINE: Duration = Duration::from_secs(8);

async fn start_with_short_timeouts() -> TestApp {
    TestApp::builder().setting("FAIRWAY_HEADER_TIMEOUT", "1s").setting("FAIRWAY_BODY_TIMEOUT", "1s").start().await
}

/// Sends `start`, then `part` every 50 ms, and reads until the server closes the connection. Returns the received
/// text and the elapsed time.
async fn trickle(app: &TestApp, start: &str, part: &str) -> (String, Duration) {
    let started_at = Instant::now();
    let stream = TcpStream::connect(app.address()).await.unwrap();
    let (mut reading, mut writing) = stream.into_split();
    writing.write_all(start.as_bytes()).await.unwrap();
    let chunk = part.to_owned();
    let sending = tokio::spawn(async move {
        let mut interval = tokio::time::interval(Duration::from_millis(50));
        loop {
            interval.tick().await;
            if writing.write_all(chunk.as_bytes()).await.is_err() {
                return;
            }
        }
    });
    let mut received = Vec::new();
    // If the server closes the connection while data arrives, the read ends with a reset, which is ignored.
    let _ = tokio::time::timeout(DEADLINE, reading.read_to_end(&mut received)).await.unwrap();
    sending.abort();
    (String::from_utf8_lossy(&received).into_owned(), started_at.elapsed())
}

#[tokio::test]
async fn disconnects_slow_clients_and_serves_others() {
    let app = start_with_short_timeouts().await;
    let address = app.address();
    let head = format!("GET /v1/workloads HTTP/1.1\r\nHost: {address}\r\nX-Slow: ");
    let request = format!("GET /healthz HTTP/1.1\r\nHost: {address}\r\n\r\n");
    let post = format!(
        "POST /v1/workloads HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{{"
    );
    let slow_requests: [(&str, &str, &str); 6] = [
        ("", "", "no data"),
        (&head, "a", "a first head"),
        (&format!("{request}{head}"), "a", "a second head that starts in the packet of the first request"),
        (&request, "G", "a second head"),
        (&post, " ", "a body"),
        (&format!("{request}{post}"), " ", "a second request's body"),
    ];
    let other_requests = async {
        // Each request uses a new connection, because the short timeouts close idle connections.
        for _ in 0..100 {
            app.send_raw_path("GET", "/v1/workloads").await.expect(200);
        }
    };
    let closed_connections = slow_requests.map(|(start, chunk, description)| {
        let app = &app;
        async move {
            let (received, took) = trickle(app, start, chunk).await;
            assert!(took < DEADLINE, "{description}: {took:?}");
            if description.contains("body") {
                assert!(received.contains("408 Request Timeout"), "{description}: {received}");
                assert!(received.contains("\"request_timeout\""), "{description}: {received}");
            }
            assert!(!received.contains(" 400 "), "{description}: {received}");
        }
    });
    tokio::join!(other_requests, futures_util::future::join_all(closed_connections));
    app.get("/healthz").await.expect(200);
}

#[tokio::test]
async fn idle_connections_do_not_block_other_clients() {
    let app = TestApp::start().await;
    let mut idle_connections = Vec::new();
    for _ in 0..300 {
        let mut stream = TcpStream::connect(app.address()).await.unwrap();
        stream.write_all(b"POST /v1/workloads HTTP/1.1\r\nHost: localhost\r\n").await.unwrap();
        idle_connections.push(stream);
    }
    for _ in 0..20 {
        app.get("/v1/workloads").await.expect(200);
    }
    assert_eq!(idle_connections.len(), 300);
}

/// Threat T5 in `docs/security.md`: the server must never see two requests where a proxy in front of it sees one.
#[tokio::test]
async fn refuses_bare_line_feeds_in_every_head_of_a_connection() {
    let app = TestApp::start().await;
    let address = app.address();
    let get = format!("GET /healthz HTTP/1.1\r\nHost: {address}\r\n\r\n");
    let post = |framing: &str, body: &str| {
        let head = format!("POST /v1/assets HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n");
        format!("{head}{framing}\r\n\r\n{body}")
    };
    let with_length = post("Content-Length: 5", "{\n\n}\n");
    let chunked = post("Transfer-Encoding: chunked", "5\r\n{\n\n}\n\r\n0\r\n\r\n");
    // Bodies may contain bare line feeds, and requests may be pipelined.
    let in_order = [&with_length, &chunked, &with_length, &chunked, &get].map(String::as_str).concat();
    let closing = format!("GET /healthz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    assert_eq!(statuses(&app, &[in_order.as_str(), &closing].concat()).await, [422, 422, 422, 422, 200, 200]);
    for malformed in [
        format!("GET /healthz HTTP/1.1\nHost: {address}\n\n"),
        format!("GET /healthz HTTP/1.1\r\nHost: {address}\n\r\n"),
        format!("GET /healthz HTTP/1.1\r\nHost: {address}\r\nX: y\n\r\n"),
        format!("\n{get}"),
        post("Transfer-Encoding: chunked", "2\r\n{}\r\n0\r\nX: y\n\r\n\r\n"),
    ] {
        for earlier_request in [String::new(), "\r\n\r\n".to_owned(), get.clone(), with_length.clone(), chunked.clone()]
        {
            let received = statuses(&app, &format!("{earlier_request}{malformed}{get}")).await;
            let expected_responses = usize::from(earlier_request.contains("HTTP"));
            assert_eq!(received.len(), expected_responses + 1, "{earlier_request:?} {malformed:?}: {received:?}");
            assert_eq!(received.last(), Some(&400), "{earlier_request:?} {malformed:?}: {received:?}");
        }
    }
}

/// Threat T5 in `docs/security.md`: the server refuses TRACE and closes the connection.
#[tokio::test]
async fn trace_closes_its_connection() {
    let app = TestApp::start().await;
    let address = app.address();
    let get = format!("GET /healthz HTTP/1.1\r\nHost: {address}\r\n\r\n");
    for path in ["/healthz", "/v1/assets", "/nothing", "/docs/"] {
        let trace = format!("TRACE {path} HTTP/1.1\r\nHost: {address}\r\n\r\n");
        let status = if path == "/nothing" { 404 } else { 405 };
        let received = app.send_raw_bytes(format!("{trace}{get}")).await;
        assert_eq!((received.status, received.header("connection")), (status, Some("close")), "{received}");
        assert_eq!(statuses(&app, &format!("{get}{trace}{get}")).await, [200, status], "{path}");
    }
}

/// The statuses of all responses on one connection, until the server closes it.
async fn statuses(app: &TestApp, requests: &str) -> Vec<u16> {
    let mut stream = TcpStream::connect(app.address()).await.unwrap();
    stream.write_all(requests.as_bytes()).await.unwrap();
    let mut received = Vec::new();
    tokio::time::timeout(DEADLINE, stream.read_to_end(&mut received)).await.unwrap().unwrap();
    let text = String::from_utf8(received).unwrap();
    text.split("HTTP/1.1 ").skip(1).map(|response| response[..3].parse().unwrap()).collect()
}

#[tokio::test]
async fn malformed_http_gets_the_standard_error_body() {
    let app = TestApp::start().await;
    let address = app.address();
    let get = |headers: &str| format!("GET /healthz HTTP/1.1\r\nHost: {address}\r\n{headers}\r\n");
    let post = format!("POST /v1/assets HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n");
    let cases: [Vec<u8>; 12] = [
        b"nonsense\r\n\r\n".to_vec(),
        b"GET /healthz\r\n\r\n".to_vec(),
        b"GET /healthz HTTP/9.9\r\n\r\n".to_vec(),
        b"GET / healthz HTTP/1.1\r\n\r\n".to_vec(),
        b"G\x00T /healthz HTTP/1.1\r\n\r\n".to_vec(),
        get("X-A: a\u{1}b\r\n").into_bytes(),
        get("X-A: a\0b\r\n").into_bytes(),
        get("X A: b\r\n").into_bytes(),
        get("X-A\r\n").into_bytes(),
        format!("{post}Content-Length: 2\r\nContent-Length: 3\r\n\r\n{{}}").into_bytes(),
        format!("{post}Content-Length: -1\r\n\r\n").into_bytes(),
        format!("{post}Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n").into_bytes(),
    ];
    for bytes in cases {
        let response = app.send_raw_bytes(&bytes).await;
        let detail = response.expect_refusal(400, "bad_request");
        assert_eq!(detail.as_object().unwrap().len(), 2, "{response}");
        assert_eq!(response.header("connection"), Some("close"));
        assert_eq!(response.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(response.header("cache-control"), Some("no-store"));
    }
    // Malformed data is also refused after a valid request on the same connection.
    let two_requests = format!("GET /healthz HTTP/1.1\r\nHost: {address}\r\n\r\nnonsense\r\n\r\n");
    let text = app.send_raw_bytes(two_requests).await;
    assert_eq!(text.status, 200);
    let (_, refusal) = text
        .text()
        .split_once("HTTP/1.1 400")
        .map(|(before_refusal, refusal_text)| (before_refusal.to_owned(), refusal_text.to_owned()))
        .unwrap();
    let body: Value = serde_json::from_str(refusal.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert_eq!(body["detail"]["error"], "bad_request");
    let long_head = get(&format!("X: {}\r\n", "a".repeat(300_000)));
    app.send_raw_bytes(long_head).await.expect_refusal(431, "bad_request");
    app.get("/healthz").await.expect(200);
}
