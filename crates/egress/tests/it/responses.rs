//! T37 of docs/security.md: responses that redirect, never end, or exceed their limits.

use crate::counting_listener::{CountingListener, Reply, get};
use fairway_egress::{EgressError, EgressRequest, EndpointClient, Guard, Method, ResponseLimits, ServerMode, Url};
use std::time::{Duration, Instant};

fn endpoint(canary: &CountingListener, limits: ResponseLimits) -> EndpointClient {
    let address = format!("http://{}/", canary.address);
    // The guard has no allowance other than the configured origin.
    Guard::new(ServerMode::Local, Vec::new())
        .with_allowed_origin(&Url::parse(&address).unwrap())
        .endpoint(&address, limits)
        .unwrap()
}

async fn read_len(endpoint: &EndpointClient) -> Result<usize, EgressError> {
    Ok(endpoint.send(get()).await?.read_all().await?.len())
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let target = CountingListener::start(Reply::fine()).await;
    for status in ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"] {
        for location in [target.address.to_string(), "169.254.169.254".to_owned()] {
            let text = format!(
                "HTTP/1.1 {status}\r\nLocation: http://{location}/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            );
            let canary = CountingListener::start(Reply::Text(text)).await;
            let call = EgressRequest { method: Method::POST, body: "payload".into(), ..get() };
            let result = endpoint(&canary, ResponseLimits::default()).send(call).await;
            assert_eq!(result.unwrap_err(), EgressError::Redirected, "{status}");
            assert_eq!(canary.connection_count(), 1);
        }
    }
    assert_eq!(target.connection_count(), 0);
}

#[tokio::test]
async fn endless_responses_are_cut_at_their_limit() {
    let limits = ResponseLimits { max_body: 100_000, timeout: Duration::from_secs(30) };
    for head in [
        "HTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 10737418240\r\n\r\n",
        "HTTP/1.1 500 Oh\r\nConnection: close\r\n\r\n",
    ] {
        let canary = CountingListener::start(Reply::Endless(head.to_owned())).await;
        assert_eq!(read_len(&endpoint(&canary, limits)).await, Err(EgressError::TooLong), "{head}");
    }
}

#[tokio::test]
async fn slow_responses_time_out() {
    let limits = ResponseLimits { timeout: Duration::from_millis(300), ..ResponseLimits::default() };
    for head in
        ["HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", "HTTP/1.1 200 OK\r\nA: "]
    {
        let canary = CountingListener::start(Reply::Slow(head.to_owned())).await;
        assert_eq!(read_len(&endpoint(&canary, limits)).await, Err(EgressError::TimedOut), "{head}");
    }
}

/// The listener never accepts its connections, so the TLS handshake receives no response.
#[tokio::test]
async fn connection_attempts_have_a_shorter_limit_than_requests() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("https://{}/", listener.local_addr().unwrap());
    let endpoint = Guard::new(ServerMode::Local, Vec::new())
        .with_allowed_origin(&Url::parse(&address).unwrap())
        .with_connect_timeout(Duration::from_millis(100))
        .endpoint(&address, ResponseLimits { timeout: Duration::from_secs(120), ..ResponseLimits::default() })
        .unwrap();
    let start = Instant::now();
    assert_eq!(read_len(&endpoint).await, Err(EgressError::TimedOut));
    assert!(start.elapsed() < Duration::from_secs(60));
}

/// The client requests unencoded bodies and refuses encoded ones.
#[tokio::test]
async fn refuses_encoded_responses() {
    let limits = ResponseLimits::default;
    for (header, read) in [
        ("Content-Encoding: gzip\r\n", Err(EgressError::Encoded)),
        ("content-encoding: BR\r\n", Err(EgressError::Encoded)),
        ("Content-Encoding: identity, gzip\r\n", Err(EgressError::Encoded)),
        ("Content-Encoding: identity\r\nContent-Encoding: deflate\r\n", Err(EgressError::Encoded)),
        ("Content-Encoding: Identity\r\n", Ok(2)),
        ("Content-Encoding: \r\n", Ok(2)),
        ("Content-Encoding:\r\nContent-Encoding: gzip\r\n", Err(EgressError::Encoded)),
        ("", Ok(2)),
    ] {
        let text = format!("HTTP/1.1 200 OK\r\n{header}Content-Length: 2\r\nConnection: close\r\n\r\nok");
        let canary = CountingListener::start(Reply::Text(text)).await;
        assert_eq!(read_len(&endpoint(&canary, limits())).await, read, "{header}");
    }
}

#[tokio::test]
async fn limits_response_heads() {
    let headers: String = (0..1000).map(|number| format!("H-{number}: x\r\n")).collect();
    let canary = CountingListener::start(Reply::Text(format!("HTTP/1.1 200 OK\r\n{headers}\r\n"))).await;
    assert_eq!(read_len(&endpoint(&canary, ResponseLimits::default())).await, Err(EgressError::Incomplete));
    let canary = CountingListener::start(Reply::Endless("HTTP/1.1 200 OK\r\nA: ".to_owned())).await;
    assert_eq!(read_len(&endpoint(&canary, ResponseLimits::default())).await, Err(EgressError::Incomplete));
}

#[tokio::test]
async fn malformed_responses_fail() {
    for (text, error) in [
        ("", EgressError::Incomplete),
        ("SSH-2.0-OpenSSH_9\r\n", EgressError::Incomplete),
        ("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", EgressError::Incomplete),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n", EgressError::Incomplete),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnonsense", EgressError::Incomplete),
    ] {
        let canary = CountingListener::start(Reply::Text(text.to_owned())).await;
        assert_eq!(read_len(&endpoint(&canary, ResponseLimits::default())).await, Err(error), "{text}");
    }
    let stopped_listener = CountingListener::start(Reply::fine()).await;
    let endpoint = endpoint(&stopped_listener, ResponseLimits::default());
    drop(stopped_listener);
    // The aborted listener task may still serve a request, so the test waits for the first failure.
    let mut last_result = read_len(&endpoint).await;
    while last_result.is_ok() {
        last_result = read_len(&endpoint).await;
    }
    assert_eq!(last_result, Err(EgressError::Unreachable));
}
