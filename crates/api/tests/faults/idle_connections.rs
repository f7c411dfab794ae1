//! Threat T4 in `docs/security.md`: a server holds ten thousand idle connections although it started with a limit of
//! 1,024 open files.

use crate::server_process::ServerSetup;
use fairway_testkit::TestDatabase;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::time::{Duration, Instant};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

const MAX_CONNECTIONS: u64 = 10_000;
/// The default soft limit of open files on many systems.
const DEFAULT_FILE_LIMIT: u64 = 1_024;
/// Number of open files that the test process itself needs.
const RESERVED_FILES: u64 = 500;
/// Time limit for the server to close idle connections; longer than its timeout for a request head.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(30);
/// Limit of the server's peak resident memory, in KiB.
const MAX_PEAK_KIB: u64 = 512 << 10;

#[tokio::test]
async fn serves_requests_beside_ten_thousand_idle_connections() {
    let (_, allowed) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    let connection_count = MAX_CONNECTIONS.min(allowed.saturating_sub(RESERVED_FILES));
    assert!(connection_count > 2 * DEFAULT_FILE_LIMIT, "the limit of {allowed} open files is too low for this test");
    let database = TestDatabase::create().await.unwrap();
    let setup = ServerSetup::new(&database.url_for_owner());
    setrlimit(Resource::RLIMIT_NOFILE, DEFAULT_FILE_LIMIT, allowed).unwrap();
    let server = setup.start().await;
    setrlimit(Resource::RLIMIT_NOFILE, allowed, allowed).unwrap();

    let mut connections = Vec::new();
    for index in 0..connection_count {
        let connected = timeout(CLOSE_TIMEOUT, TcpStream::connect(setup.address)).await;
        let mut stream = connected.unwrap_or_else(|_| panic!("connection {index} was not accepted")).unwrap();
        if index % 2 == 0 {
            stream.write_all(b"POST /v1/workloads HTTP/1.1\r\nHost: localhost\r\n").await.unwrap();
        }
        connections.push(stream);
    }
    let started_at = Instant::now();
    for _ in 0..50 {
        assert_eq!(server.client.get("/v1/workloads").await.unwrap().status, 200);
    }
    assert!(started_at.elapsed() < CLOSE_TIMEOUT / 3, "active requests took {:?}", started_at.elapsed());
    let memory = server.memory();
    assert!(memory.peak_kib < MAX_PEAK_KIB, "{} KiB for {connection_count} connections", memory.peak_kib);
    // The server closes idle connections, with or without a response.
    let mut received = Vec::new();
    for stream in [0, connections.len() / 2, connections.len() - 1] {
        received.clear();
        let read_result = timeout(CLOSE_TIMEOUT, connections[stream].read_to_end(&mut received)).await;
        assert!(read_result.is_ok(), "connection {stream} is still open");
    }
}
