//! Refusals before the server has read the request body. After a short body the connection stays open, and a long
//! body closes it.

use fairway_testkit::TestApp;
use std::time::Duration;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::{sleep, timeout},
};

/// Sends two requests on one connection. Returns the received text, and whether the second request got a response.
async fn send_two_requests(app: &TestApp, head: &str, body: &[u8]) -> (String, bool) {
    let address = app.address();
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(format!("{head}\r\nHost: {address}\r\n\r\n").as_bytes()).await.unwrap();
    // The pause lets the server refuse the head before the body arrives.
    sleep(Duration::from_millis(50)).await;
    stream.write_all(body).await.unwrap();
    sleep(Duration::from_millis(50)).await;
    // The write fails if the server has already closed the connection, which is ignored.
    let _ = stream.write_all(format!("GET /healthz HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes()).await;
    let mut received = Vec::new();
    let mut part = [0; 4096];
    while let Ok(Ok(length @ 1..)) = timeout(Duration::from_millis(500), stream.read(&mut part)).await {
        received.extend_from_slice(&part[..length]);
    }
    let text = String::from_utf8(received).unwrap();
    let has_second_response = text.contains("HTTP/1.1 200 OK");
    (text, has_second_response)
}

#[tokio::test]
async fn refusals_drain_short_bodies_and_close_on_long_ones() {
    let app = TestApp::start().await;
    let json = "Content-Type: application/json";
    let short_body = r#"{"slug":"a","asset_kind":"prompt"}"#;
    let length = short_body.len();
    let chunked = format!("{length:x}\r\n{short_body}\r\n0\r\n\r\n");
    // These heads are refused because of the path, the caller, the tenant, the media type, an unknown parameter, and
    // the method.
    let heads = [
        (format!("POST /v1/nowhere HTTP/1.1\r\n{json}"), "404"),
        (format!("POST /v1/assets HTTP/1.1\r\n{json}\r\nX-Actor-Ref: nobody"), "422"),
        (format!("POST /v1/assets HTTP/1.1\r\n{json}\r\nX-Tenant-Id: nobody"), "404"),
        ("POST /v1/assets HTTP/1.1\r\nContent-Type: text/plain".to_owned(), "415"),
        (format!("POST /v1/assets?colour=red HTTP/1.1\r\n{json}"), "422"),
        (format!("PUT /v1/assets HTTP/1.1\r\n{json}"), "405"),
    ];
    for (head, status) in &heads {
        let (text, has_second_response) =
            send_two_requests(&app, &format!("{head}\r\nContent-Length: {length}"), short_body.as_bytes()).await;
        assert!(text.starts_with(&format!("HTTP/1.1 {status}")), "{head}: {text}");
        assert!(has_second_response, "{head}: {text}");
        let (text, has_second_response) =
            send_two_requests(&app, &format!("{head}\r\nTransfer-Encoding: chunked"), chunked.as_bytes()).await;
        assert!(text.starts_with(&format!("HTTP/1.1 {status}")), "{head}: {text}");
        assert!(has_second_response, "{head}: {text}");
    }
    // The server waits neither for a long body, nor for a short body that never arrives.
    for length in [1 << 20, 500] {
        let head = format!("POST /v1/nowhere HTTP/1.1\r\n{json}\r\nContent-Length: {length}");
        let (text, has_second_response) = send_two_requests(&app, &head, b"{").await;
        assert!(text.starts_with("HTTP/1.1 404"), "{text}");
        assert!(!has_second_response, "{text}");
    }
}
