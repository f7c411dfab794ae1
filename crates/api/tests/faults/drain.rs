//! R22: a server that is told to end answers what it has begun, and then ends.

use crate::{
    process::{Place, until},
    remote::{inputs, policy},
    wire::{Question, Wire},
};
use fairway_testkit::TestDatabase;
use serde_json::json;
use std::{net::SocketAddr, time::Duration};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
};

const PATIENCE: Duration = Duration::from_secs(10);
/// How long the whole end may take.
const END: Duration = Duration::from_secs(30);
/// Requests under way.
const UNDER_WAY: usize = 12;

/// A connection that has sent a request but for its last bytes.
struct Begun {
    stream: TcpStream,
    rest: Vec<u8>,
}

impl Begun {
    async fn new(address: SocketAddr, path: &str) -> Self {
        let body = inputs().to_string().into_bytes();
        let (start, rest) = body.split_at(body.len() - 2);
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(start).await.unwrap();
        Self { stream, rest: rest.to_vec() }
    }

    /// Sends the rest and reads the answer; the connection stays open unless the server closes it.
    async fn end(mut self) -> (String, TcpStream) {
        self.stream.write_all(&self.rest).await.unwrap();
        let text = read_answer(&mut self.stream).await;
        (text, self.stream)
    }
}

/// Head and body of one answer.
async fn read_answer(stream: &mut TcpStream) -> String {
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
        let read = stream.read(&mut buffer).await.unwrap();
        assert!(read > 0, "closed in the middle of an answer: {text}");
        received.extend_from_slice(&buffer[..read]);
    }
}

#[tokio::test]
async fn what_has_begun_is_answered_and_then_the_server_ends_well() {
    let database = TestDatabase::create().await.unwrap();
    let place = Place::new(&database.url());
    let mut server = place.start().await;
    let path = server.remote.runnable().await;
    let versions = format!("/v1/assets/{}/versions", server.remote.asset("policy_bundle").await);

    // One connection lies idle after its answer, one never finishes its head: neither may hold the end up.
    let (answer, _idle) = Begun::new(place.address, &path).await.end().await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let mut stuck = TcpStream::connect(place.address).await.unwrap();
    stuck.write_all(b"GET /healthz HTTP/1.1\r\nHost: ").await.unwrap();

    let mut begun = Vec::new();
    for _ in 0..UNDER_WAY {
        begun.push(Begun::new(place.address, &path).await);
    }
    // And one is in the middle of its commit.
    let holder = database.owner().await.unwrap();
    holder.batch_execute("BEGIN; SELECT FROM asset FOR UPDATE").await.unwrap();
    let (remote, body) = (server.remote.clone(), json!({ "content": policy() }));
    let committing = tokio::spawn(async move { remote.post(&versions, &body, None).await });
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
        AND wait_event_type = 'Lock' AND application_name = 'fairway'";
    let owner = database.owner().await.unwrap();
    until("the commit waits", PATIENCE, async || owner.query_one(waits, &[]).await.unwrap().get::<_, i64>(0) == 1)
        .await;

    server.terminate();
    until("nobody new is let in", PATIENCE, async || TcpStream::connect(place.address).await.is_err()).await;
    holder.batch_execute("ROLLBACK").await.unwrap();
    let mut answers = JoinSet::new();
    for request in begun {
        answers.spawn(request.end());
    }
    for (answer, _) in answers.join_all().await {
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.contains("\"completed\""), "{answer}");
    }
    let made = committing.await.unwrap().unwrap();
    assert_eq!(made.status, 201, "{made:?}");
    let status = server.ended_within(END).await;
    assert!(status.success(), "{status}: {}", server.said());
    let open = "SELECT count(*) FROM execution_lease";
    assert_eq!(owner.query_one(open, &[]).await.unwrap().get::<_, i64>(0), 0, "nothing is left for recovery");
}

#[tokio::test]
async fn clients_are_told_to_go_before_they_are_cut_off() {
    const LOOK: Question<'static> = Question { path: "/readyz", posts: None };
    let database = TestDatabase::create().await.unwrap();
    let place = Place::new(&database.url());
    let mut server = place.start().await;
    let (mut idle, mut busy) = (Wire::open(place.address).await.unwrap(), Wire::open(place.address).await.unwrap());
    let ready = idle.ask(&LOOK).await.unwrap();
    assert_eq!((ready.status, ready.says_goodbye), (200, false), "{ready:?}");

    server.terminate();
    let goodbye = loop {
        let answer = busy.ask(&LOOK).await.expect("closed without a word");
        assert_eq!(answer.status == 503, answer.says_goodbye, "{answer:?}");
        if answer.says_goodbye {
            break answer;
        }
    };
    assert_eq!(goodbye.body["status"], "leaving", "{goodbye:?}");
    busy.ends().await;
    // Who was silent until now is heard all the same, and so is who comes only now.
    let mut late = Wire::open(place.address).await.expect("nobody listens any more");
    for wire in [&mut idle, &mut late] {
        let answer = wire.ask(&Question { path: "/v1/workspaces", posts: None }).await.expect("closed without a word");
        assert_eq!((answer.status, answer.says_goodbye), (200, true), "{answer:?}");
    }
    idle.ends().await;
    late.ends().await;
    let status = server.ended_within(PATIENCE).await;
    assert!(status.success(), "{status}: {}", server.said());
}

#[tokio::test]
async fn an_idle_server_ends_at_once() {
    let database = TestDatabase::create().await.unwrap();
    let place = Place::new(&database.url());
    let mut server = place.start().await;
    server.terminate();
    let status = server.ended_within(PATIENCE).await;
    assert!(status.success(), "{status}: {}", server.said());
}
