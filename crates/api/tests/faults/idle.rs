//! T4: ten thousand connections on which nothing happens, on a server that was started with room for a thousand.

use crate::process::Place;
use fairway_testkit::TestDatabase;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::time::{Duration, Instant};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

const MANY: u64 = 10_000;
/// What programs are started with on many systems.
const USUAL: u64 = 1_024;
/// What else this process needs.
const SPARE: u64 = 500;
/// How long the head of a request may take, and some time to be told so.
const PATIENCE: Duration = Duration::from_secs(30);
/// Most memory that the server may ever hold, in KiB.
const MEMORY: u64 = 512 << 10;

#[tokio::test]
async fn ten_thousand_that_do_nothing_leave_room_for_others() {
    let (_, allowed) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    let many = MANY.min(allowed.saturating_sub(SPARE));
    assert!(many > 2 * USUAL, "this machine allows {allowed} open files, which shows nothing");
    let database = TestDatabase::create().await.unwrap();
    let place = Place::new(&database.url());
    setrlimit(Resource::RLIMIT_NOFILE, USUAL, allowed).unwrap();
    let server = place.start().await;
    setrlimit(Resource::RLIMIT_NOFILE, allowed, allowed).unwrap();

    let mut idle = Vec::new();
    for at in 0..many {
        let opened = timeout(PATIENCE, TcpStream::connect(place.address)).await;
        let mut stream = opened.unwrap_or_else(|_| panic!("connection {at} is not taken")).unwrap();
        if at % 2 == 0 {
            stream.write_all(b"POST /v1/workloads HTTP/1.1\r\nHost: localhost\r\n").await.unwrap();
        }
        idle.push(stream);
    }
    let since = Instant::now();
    for _ in 0..50 {
        assert_eq!(server.remote.get("/v1/workloads").await.unwrap().status, 200);
    }
    assert!(since.elapsed() < PATIENCE / 3, "others waited: {:?}", since.elapsed());
    let memory = server.memory();
    assert!(memory.peak < MEMORY, "{} KiB for {many} connections", memory.peak);
    // Whoever does nothing for long is told so, or just cut.
    let mut rest = Vec::new();
    for stream in [0, idle.len() / 2, idle.len() - 1] {
        rest.clear();
        let cut = timeout(PATIENCE, idle[stream].read_to_end(&mut rest)).await;
        assert!(cut.is_ok(), "connection {stream} is still there");
    }
}
