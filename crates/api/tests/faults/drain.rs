//! Promise R22 in `docs/security.md`: graceful shutdown. The server completes the active requests and then exits.

use crate::{
    api_client::{allow_all_policy, execute_body},
    raw_connection::{RawConnection, RawRequest},
    server_process::{ServerSetup, wait_until},
};
use fairway_testkit::TestDatabase;
use serde_json::json;
use std::{net::SocketAddr, time::Duration};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
};

const STEP_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for the whole shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(30);
/// Number of concurrent active requests.
const CONCURRENT_REQUESTS: usize = 12;

/// A connection whose request is sent except for its last bytes.
struct PartialRequest {
    stream: TcpStream,
    last_bytes: Vec<u8>,
}

impl PartialRequest {
    async fn new(address: SocketAddr, path: &str) -> Self {
        let body = execute_body().to_string().into_bytes();
        let (start, last_bytes) = body.split_at(body.len() - 2);
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(start).await.unwrap();
        Self { stream, last_bytes: last_bytes.to_vec() }
    }

    /// Sends the remaining bytes and reads the response. The connection stays open unless the server closes it.
    async fn complete(mut self) -> (String, TcpStream) {
        self.stream.write_all(&self.last_bytes).await.unwrap();
        let text = read_response(&mut self.stream).await;
        (text, self.stream)
    }
}

/// Reads the head and body of one response.
async fn read_response(stream: &mut TcpStream) -> String {
    let mut received = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&received).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().unwrap())
            });
            if length.is_some_and(|length| body.len() >= length) {
                return text;
            }
        }
        let mut buffer = [0; 4096];
        let count = stream.read(&mut buffer).await.unwrap();
        assert!(count > 0, "closed in the middle of a response: {text}");
        received.extend_from_slice(&buffer[..count]);
    }
}

#[tokio::test]
async fn completes_started_requests_and_exits_successfully() {
    let database = TestDatabase::create().await.unwrap();
    let setup = ServerSetup::new(&database.url_for_owner());
    let mut server = setup.start().await;
    let path = server.client.create_active_workload().await;
    let versions = format!("/v1/assets/{}/versions", server.client.create_asset("policy_bundle").await);

    // An idle connection and an incomplete request head must not delay the shutdown.
    let (response, _idle) = PartialRequest::new(setup.address, &path).await.complete().await;
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    let mut stalled_connection = TcpStream::connect(setup.address).await.unwrap();
    stalled_connection.write_all(b"GET /healthz HTTP/1.1\r\nHost: ").await.unwrap();

    let mut requests = Vec::new();
    for _ in 0..CONCURRENT_REQUESTS {
        requests.push(PartialRequest::new(setup.address, &path).await);
    }
    // The commit of one more request waits for a row lock.
    let lock_owner = database.connect_as_owner().await.unwrap();
    lock_owner.batch_execute("BEGIN; SELECT FROM asset FOR UPDATE").await.unwrap();
    let (remote, body) = (server.client.clone(), json!({ "content": allow_all_policy() }));
    let committing = tokio::spawn(async move { remote.post(&versions, &body, None).await });
    let waiting_commits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
        AND wait_event_type = 'Lock' AND application_name = 'fairway'";
    let owner = database.connect_as_owner().await.unwrap();
    wait_until("the commit waits for the lock", STEP_TIMEOUT, async || {
        owner.query_one(waiting_commits, &[]).await.unwrap().get::<_, i64>(0) == 1
    })
    .await;

    server.terminate();
    wait_until("new connections are refused", STEP_TIMEOUT, async || TcpStream::connect(setup.address).await.is_err())
        .await;
    lock_owner.batch_execute("ROLLBACK").await.unwrap();
    let mut responses = JoinSet::new();
    for request in requests {
        responses.spawn(request.complete());
    }
    for (response, _) in responses.join_all().await {
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
        assert!(response.contains("\"completed\""), "{response}");
    }
    let created = committing.await.unwrap().unwrap();
    assert_eq!(created.status, 201, "{created:?}");
    let status = server.wait_for_exit(SHUTDOWN_TIMEOUT).await;
    assert!(status.success(), "{status}: {}", server.read_log());
    let leases = "SELECT count(*) FROM execution_lease";
    assert_eq!(owner.query_one(leases, &[]).await.unwrap().get::<_, i64>(0), 0, "no lease is left for recovery");
}

#[tokio::test]
async fn announces_the_close_before_it_closes_connections() {
    const READINESS: RawRequest<'static> = RawRequest { path: "/readyz", body_and_key: None };
    let database = TestDatabase::create().await.unwrap();
    let setup = ServerSetup::new(&database.url_for_owner());
    let mut server = setup.start().await;
    let (mut idle_connection, mut busy_connection) =
        (RawConnection::open(setup.address).await.unwrap(), RawConnection::open(setup.address).await.unwrap());
    let ready = idle_connection.send(&READINESS).await.unwrap();
    assert_eq!((ready.status, ready.closes_connection), (200, false), "{ready:?}");

    server.terminate();
    let announcement = loop {
        let response = busy_connection.send(&READINESS).await.expect("closed without an announcement");
        assert_eq!(response.status == 503, response.closes_connection, "{response:?}");
        if response.closes_connection {
            break response;
        }
    };
    assert_eq!(announcement.body["status"], "leaving", "{announcement:?}");
    busy_connection.wait_for_close().await;
    // During the announcement of the shutdown, an idle connection and a new connection still get a response, with
    // `Connection: close`.
    let mut late_connection =
        RawConnection::open(setup.address).await.expect("connection refused during the announcement");
    for connection in [&mut idle_connection, &mut late_connection] {
        let response = connection
            .send(&RawRequest { path: "/v1/workspaces", body_and_key: None })
            .await
            .expect("closed without an announcement");
        assert_eq!((response.status, response.closes_connection), (200, true), "{response:?}");
    }
    idle_connection.wait_for_close().await;
    late_connection.wait_for_close().await;
    let status = server.wait_for_exit(STEP_TIMEOUT).await;
    assert!(status.success(), "{status}: {}", server.read_log());
}

#[tokio::test]
async fn an_idle_server_exits_immediately() {
    let database = TestDatabase::create().await.unwrap();
    let setup = ServerSetup::new(&database.url_for_owner());
    let mut server = setup.start().await;
    server.terminate();
    let status = server.wait_for_exit(STEP_TIMEOUT).await;
    assert!(status.success(), "{status}: {}", server.read_log());
}
