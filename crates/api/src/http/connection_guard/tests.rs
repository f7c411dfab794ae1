use super::*;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

const BARE_RESPONSE: &str = "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\
    date: Sat, 01 Jan 2028 00:00:00 GMT\r\n\r\n";

async fn written_to_client(bytes: &str) -> String {
    // A narrow pipe, so that writes are partial.
    let (mut client, server) = duplex(16);
    let mut guarded = GuardedConnection::new(server, Duration::from_secs(60));
    let text = bytes.to_owned();
    let writing = async move {
        guarded.write_all(text.as_bytes()).await.unwrap();
        guarded.shutdown().await.unwrap();
    };
    let reading = async {
        let mut received = String::new();
        client.read_to_string(&mut received).await.unwrap();
        received
    };
    tokio::join!(writing, reading).1
}

#[actix_web::test]
async fn replaces_bare_framework_response_with_error_body() {
    let before = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx-request-id: x\r\n\r\n{}";
    for prefix in ["", before] {
        let response = written_to_client(&format!("{prefix}{BARE_RESPONSE}")).await;
        let response = response.strip_prefix(prefix).unwrap();
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{response}");
        assert!(head.contains("date: Sat, 01 Jan 2028 00:00:00 GMT"), "{response}");
        assert!(head.contains("connection: close") && head.contains("x-content-type-options: nosniff"), "{response}");
        assert!(head.contains(&format!("content-length: {}", body.len())), "{response}");
        let body: Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["detail"]["error"], "bad_request");
        assert!(head.contains(&format!("x-request-id: {}", body["request_id"].as_str().unwrap())), "{response}");
    }
}

/// The bytes that the framework reads, when the client sends `part_length` bytes at a time.
async fn read_by_framework(bytes: &str, part_length: usize) -> Vec<u8> {
    let (mut client, server) = duplex(part_length);
    let mut guarded = GuardedConnection::new(server, Duration::from_secs(60));
    let text = bytes.to_owned();
    let writing = async move {
        client.write_all(text.as_bytes()).await.unwrap();
        client.shutdown().await.unwrap();
    };
    let reading = async {
        let (mut received, mut part) = (Vec::new(), [0; 64]);
        loop {
            let messages = guarded.framing.messages();
            let read = guarded.read(&mut part).await.unwrap();
            received.extend_from_slice(&part[..read]);
            if read == 0 {
                return received;
            }
            for _ in messages..guarded.framing.messages() {
                drop(guarded.activity().start_request());
            }
        }
    };
    tokio::join!(writing, reading).1
}

#[actix_web::test]
async fn refuses_bare_lf_in_every_head_but_not_in_bodies() {
    let valid_request = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 12\r\n\r\n{\n\"a\": 1\n}\n\n";
    for part_length in [1, 3, 1024] {
        assert_eq!(read_by_framework(valid_request, part_length).await, valid_request.as_bytes());
        for invalid_head in ["GET / HTTP/1.1\n\n", "GET / HTTP/1.1\r\nHost: x\n\r\n", "\nGET / HTTP/1.1\r\n\r\n"] {
            for prefix in ["", valid_request, "\r\n\r\n"] {
                let bytes = format!("{prefix}{invalid_head}GET / HTTP/1.1\r\nHost: x\r\n\r\n");
                let read = read_by_framework(&bytes, part_length).await;
                assert!(
                    read.starts_with(prefix.as_bytes()) && read.ends_with(b"\r\0"),
                    "{prefix:?} {invalid_head:?}: {read:?}"
                );
            }
        }
    }
}

/// The framework parses each head into a request, and all these requests would occupy memory at once.
#[actix_web::test]
async fn reads_no_further_request_before_response() {
    let request = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    let (mut client, server) = duplex(64 << 10);
    let mut guarded = GuardedConnection::new(server, Duration::from_secs(60));
    client.write_all(request.repeat(1_000).as_bytes()).await.unwrap();
    let mut part = vec![0; 64 << 10];
    for _ in 0..3 {
        assert_eq!(guarded.read(&mut part).await.unwrap(), request.len());
        let serving = guarded.activity().start_request();
        let next = tokio::time::timeout(Duration::from_millis(50), guarded.read(&mut part)).await;
        assert!(next.is_err(), "the guard read the next request while this one is served");
        drop(serving);
    }
    // The read-ahead after a request is bounded, too.
    assert!(guarded.read_ahead.len() <= READ_BYTES + READ_AHEAD_BYTES);
}

#[actix_web::test]
async fn reads_body_only_while_handler_awaits_it() {
    let (mut client, server) = duplex(1 << 20);
    let mut guarded = GuardedConnection::new(server, Duration::from_secs(60));
    let activity = guarded.activity();
    let head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 900000\r\n\r\n";
    client.write_all(head.as_bytes()).await.unwrap();
    client.write_all(&[b'x'; 500_000]).await.unwrap();
    let mut part = vec![0; 1 << 20];
    let mut serving = None;
    let mut total = 0;
    let mut read_available = async |guarded: &mut GuardedConnection<_>| {
        while let Ok(read) = tokio::time::timeout(Duration::from_millis(50), guarded.read(&mut part)).await {
            serving.get_or_insert_with(|| activity.start_request());
            total += read.unwrap();
        }
        total
    };
    let unread = read_available(&mut guarded).await;
    assert!((1..=14 << 10).contains(&unread), "the framework buffers {unread} bytes");
    guarded.activity().reset_read_ahead();
    let read = read_available(&mut guarded).await;
    assert!((unread + 1..=64 << 10).contains(&read), "{read} bytes, {unread} before");
}

#[actix_web::test]
async fn detects_disconnect_during_request() {
    let (mut client, server) = duplex(1 << 10);
    let mut guarded = GuardedConnection::new(server, Duration::from_secs(60));
    client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut part = [0; 64];
    assert!(guarded.read(&mut part).await.unwrap() > 0);
    let _serving = guarded.activity().start_request();
    drop(client);
    assert_eq!(guarded.read(&mut part).await.unwrap(), 0);
}

#[actix_web::test]
async fn keeps_own_responses_unchanged() {
    for response in [
        "HTTP/1.1 204 No Content\r\nx-request-id: x\r\n\r\n",
        "HTTP/1.1 404 Not Found\r\ncontent-length: 90\r\nX-Request-Id: x\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        "{\"text\": \"HTTP/1.1 400 Bad Request\"}",
        "\r\n\r\n",
        "HTTP/1.1 400\r\n\r\n x",
    ] {
        assert_eq!(written_to_client(response).await, response);
    }
    let long = format!("HTTP/1.1 400 Bad Request\r\nx: {}\r\n\r\n", "a".repeat(MAX_FRAMEWORK_RESPONSE));
    assert_eq!(written_to_client(&long).await, long);
}

#[tokio::test(start_paused = true)]
async fn closes_idle_connection() {
    let idle_timeout = Duration::from_secs(15);
    let (mut client, server) = duplex(64);
    let mut guarded = GuardedConnection::new(server, idle_timeout);
    let activity = guarded.activity();
    let start = Instant::now();
    let mut byte = [0];
    // Incomplete requests do not restart the timer. Only a complete request or a response that the client reads
    // does.
    client.write_all(b"xx").await.unwrap();
    guarded.read_exact(&mut byte).await.unwrap();
    tokio::time::advance(Duration::from_secs(14)).await;
    guarded.read_exact(&mut byte).await.unwrap();
    assert_eq!(guarded.read(&mut byte).await.unwrap(), 0);
    assert_eq!(start.elapsed().as_secs(), 15);
    assert_eq!(guarded.write(b"x").await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    drop(activity);
}

#[tokio::test(start_paused = true)]
async fn excludes_processing_time_from_idle_timeout() {
    let idle_timeout = Duration::from_secs(15);
    let (mut client, server) = duplex(64);
    let mut guarded = GuardedConnection::new(server, idle_timeout);
    let serving = guarded.activity().start_request();
    let start = Instant::now();
    let mut byte = [0];
    let outcome = tokio::time::timeout(Duration::from_secs(100), guarded.read(&mut byte)).await;
    assert!(outcome.is_err(), "a request may take long");
    drop(serving);
    tokio::time::advance(Duration::from_secs(14)).await;
    guarded.write_all(b"answer").await.unwrap();
    client.read_exact(&mut [0; 6]).await.unwrap();
    assert_eq!(guarded.read(&mut byte).await.unwrap(), 0);
    assert_eq!(start.elapsed().as_secs(), 100 + 14 + 15);
}

/// Each read restarts the idle timer, so only the throughput limit detects this client.
#[tokio::test(start_paused = true)]
async fn closes_connection_of_slow_reader() {
    let (mut client, server) = duplex(1 << 10);
    let mut guarded = GuardedConnection::new(server, Duration::from_secs(2));
    let _serving = guarded.activity().start_request();
    let reading = tokio::spawn(async move {
        let mut buffer = [0; 1 << 10];
        while client.read(&mut buffer).await.is_ok_and(|read| read > 0) {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    });
    let written = guarded.write_all(&[b'x'; 100 << 10]).await;
    assert_eq!(written.unwrap_err().kind(), io::ErrorKind::TimedOut);
    reading.abort();
}
