//! Threat T5 in `docs/security.md`: the server refuses requests with ambiguous framing and closes their connection.
//! Otherwise it could parse a part of one request as another request.

use fairway_testkit::TestApp;
use serde_json::Value;
use std::time::Duration;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

/// The time limit for the server to close the connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(20);

/// Sends `bytes`, and returns everything that the server sends until it closes the connection.
async fn send_raw(app: &TestApp, bytes: &str) -> String {
    let mut stream = TcpStream::connect(app.address()).await.unwrap();
    stream.write_all(bytes.as_bytes()).await.unwrap();
    let mut received = Vec::new();
    // Closing a connection with unread bytes causes a reset, which `read_to_end` reports as an error.
    let _ = timeout(CLOSE_TIMEOUT, stream.read_to_end(&mut received)).await.unwrap();
    String::from_utf8_lossy(&received).into_owned()
}

fn statuses(spoken: &str) -> Vec<&str> {
    spoken.split("HTTP/1.1 ").skip(1).filter_map(|response| response.get(..3)).collect()
}

#[tokio::test]
async fn ambiguous_framing_is_refused_and_smuggles_no_request() {
    let app = TestApp::start().await;
    let head = format!("POST /v1/assets HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n", app.address());
    // A server that determines the body's length differently would process this smuggled request and respond with 200.
    let smuggled_request = format!("GET /healthz HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", app.address());
    let chunked = "Transfer-Encoding: chunked\r\n";
    for (description, request) in [
        ("both lengths", format!("Content-Length: 5\r\n{chunked}\r\n0\r\n\r\n")),
        ("both lengths, the other way round", format!("{chunked}Content-Length: 5\r\n\r\n0\r\n\r\n")),
        ("two lengths", "Content-Length: 0\r\nContent-Length: 5\r\n\r\n".to_owned()),
        ("a list of lengths", "Content-Length: 0, 5\r\n\r\n".to_owned()),
        ("a length with a sign", "Content-Length: +0\r\n\r\n".to_owned()),
        ("a negative length", "Content-Length: -1\r\n\r\n".to_owned()),
        ("a length in hexadecimal", "Content-Length: 0x0\r\n\r\n".to_owned()),
        ("a length beyond 64 bits", "Content-Length: 18446744073709551616\r\n\r\n".to_owned()),
        ("a blank before the colon", "Transfer-Encoding : chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n".to_owned()),
        ("a folded header", "Transfer-Encoding:\r\n chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n".to_owned()),
        ("another coding", "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n".to_owned()),
        ("a coding twice", format!("{chunked}{chunked}\r\n0\r\n\r\n")),
        ("a chunk size that is none", format!("{chunked}\r\nzz\r\n{{}}\r\n0\r\n\r\n")),
        ("a negative chunk size", format!("{chunked}\r\n-1\r\n{{}}\r\n0\r\n\r\n")),
        ("a chunk size beyond 64 bits", format!("{chunked}\r\n1ffffffffffffffff\r\n{{}}\r\n0\r\n\r\n")),
        ("a chunk that is longer than its size", format!("{chunked}\r\n1\r\n{{}}\r\n0\r\n\r\n")),
        ("an unknown expectation", "Expect: bogus\r\nContent-Length: 2\r\n\r\n{}".to_owned()),
        ("two expectations", "Expect: 100-continue, bogus\r\n\r\n".to_owned()),
    ] {
        let received = send_raw(&app, &format!("{head}{request}{smuggled_request}")).await;
        let statuses = statuses(&received);
        assert_eq!(statuses, ["400"], "{description}: {received}");
        let (head, body) = received.split_once("\r\n\r\n").unwrap();
        assert!(head.to_lowercase().contains("\r\nconnection: close"), "{description}: {head}");
        let body: Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["detail"]["error"], "bad_request", "{description}");
    }
    app.get("/healthz").await.expect(200);
}

#[tokio::test]
async fn expect_headers_do_not_desynchronize_the_connection() {
    let app = TestApp::start().await;
    let head = format!("POST /v1/assets HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n", app.address());
    let last_request = format!("GET /healthz HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", app.address());
    let body = r#"{"slug":"expected","asset_kind":"skill","owner_ref":"team:a"}"#;
    // Each request gets one final response. An interim 100 response may precede the first one.
    let length = body.len();
    let valid_response =
        send_raw(&app, &format!("{head}Expect: 100-continue\r\nContent-Length: {length}\r\n\r\n{body}{last_request}"))
            .await;
    let final_statuses: Vec<&str> = statuses(&valid_response).into_iter().filter(|status| *status != "100").collect();
    assert_eq!(final_statuses, ["201", "200"], "{valid_response}");
    // A request with an invalid head is refused before the client sends the body.
    let refused_response =
        send_raw(&app, &format!("{head}Expect: 100-continue\r\nContent-Length: 50000000\r\n\r\n")).await;
    let final_statuses: Vec<&str> = statuses(&refused_response).into_iter().filter(|status| *status != "100").collect();
    assert_eq!(final_statuses, ["413"], "{refused_response}");
    // An unknown `Expect` value is refused, and the connection is closed, although the request is valid otherwise.
    let unknown_expectation =
        send_raw(&app, &format!("{head}Expect: the-moon\r\nContent-Length: {length}\r\n\r\n{body}{last_request}"))
            .await;
    assert_eq!(statuses(&unknown_expectation), ["400"], "{unknown_expectation}");
    assert!(unknown_expectation.contains("no expectation except `100-continue`"), "{unknown_expectation}");
}

#[tokio::test]
async fn refusal_of_a_long_request_line_names_its_length() {
    let app = TestApp::start().await;
    for (target_bytes, expected) in [(65_534, None), (65_535, Some("400")), (100_000, Some("400"))] {
        let target = format!("/healthz?{}", "a".repeat(target_bytes - "/healthz?".len()));
        let request = format!("GET {target} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", app.address());
        let received = send_raw(&app, &request).await;
        assert_eq!(received.contains("the request line is too long"), expected.is_some(), "{target_bytes}: {received}");
        assert_eq!(statuses(&received), [expected.unwrap_or("200")], "{target_bytes}: {received}");
    }
}
