//! Large content that keeps within every bound: what making, reading and comparing it takes of the process.

use crate::{burden::bounded, stage::WORKSPACE};
use fairway_testkit::TestApp;
use serde_json::json;
use std::net::SocketAddr;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// The status of an answer, and how it begins. The rest is not kept, nor a second copy of what is sent: memory is
/// counted over the whole process, and what the client held would hide what the server takes.
struct Heard {
    status: u16,
    beginning: String,
}

impl Heard {
    /// The new version's.
    fn id(&self) -> String {
        let (_, behind) = self.beginning.split_once("\"asset_version_id\":\"").unwrap();
        behind[..36].to_owned()
    }
}

async fn send(address: SocketAddr, method: &str, path: &str, body: &[u8]) -> Heard {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    // The server may answer and close before it has read everything.
    let _ = stream.write_all(body).await;
    let (mut beginning, mut portion) = (Vec::new(), vec![0; 16 << 10]);
    loop {
        match stream.read(&mut portion).await {
            Ok(0) | Err(_) => break,
            Ok(read) => beginning.extend(portion[..read].iter().take(2_000_usize.saturating_sub(beginning.len()))),
        }
    }
    let beginning = String::from_utf8_lossy(&beginning).into_owned();
    let status = beginning.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
    Heard { status, beginning }
}

/// A new version with a list of so many items. It is written at once, because what was only used to write it would lie
/// there for the server to be used again, uncounted.
fn config(items: impl Iterator<Item = usize>, item: impl Fn(usize) -> String) -> String {
    let mut body = String::with_capacity(4 << 20);
    body.push_str(r#"{"content":{"provider":"stub","model":"echo","params":{"l":["#);
    for (place, number) in items.enumerate() {
        body.push_str(if place == 0 { "" } else { "," });
        body.push_str(&item(number));
    }
    body.push_str("]}}}");
    body
}

/// As many short texts as one content may hold.
fn texts(order: impl Iterator<Item = usize>) -> String {
    config(order, |number| format!("\"{number:070}\""))
}

#[tokio::test]
async fn content_within_its_bounds_is_made_and_compared_within_memory() {
    let app = TestApp::start().await;
    let (given, address) = (app.given(), app.address());
    let asset = given.version("model_config", "config", json!({ "provider": "stub", "model": "echo" })).await.asset_id;
    let path = format!("/v1/assets/{asset}/versions");
    let mut made = Vec::new();
    for body in [texts(0..49_900), texts((0..49_900).rev())] {
        let answer = bounded("making", send(address, "POST", &path, body.as_bytes())).await;
        assert_eq!(answer.status, 201, "{}", answer.beginning);
        made.push(answer.id());
    }
    let (one, other) = (&made[0], &made[1]);
    let read = format!("{path}/{one}?workspace_id={WORKSPACE}");
    let read = bounded("reading", send(address, "GET", &read, b"")).await;
    assert_eq!(read.status, 200, "{}", read.beginning);
    let diff = format!("{path}/{one}/diff/{other}?workspace_id={WORKSPACE}");
    let compared = bounded("comparing", send(address, "GET", &diff, b"")).await;
    assert_eq!(compared.status, 200, "{}", compared.beginning);
}

#[tokio::test]
async fn values_that_take_more_room_than_text_are_bounded_by_their_room() {
    let app = TestApp::start().await;
    let (given, address) = (app.given(), app.address());
    let asset = given.version("model_config", "config", json!({ "provider": "stub", "model": "echo" })).await.asset_id;
    let path = format!("/v1/assets/{asset}/versions");
    for (many, status) in [(7_000, 201), (24_000, 413), (49_000, 413)] {
        let body = config(0..many, |_| r#"{"a":1}"#.to_owned());
        let answer = bounded(&format!("{many} objects"), send(address, "POST", &path, body.as_bytes())).await;
        assert_eq!(answer.status, status, "{many}: {}", answer.beginning);
    }
}
