//! Resource usage when clients create, read and compare large content within the limits.

use crate::support::{resource_measurement::assert_bounded, workspace_fixture::WORKSPACE};
use fairway_testkit::TestApp;
use serde_json::json;
use std::net::SocketAddr;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// The status and the first 2,000 bytes of a response. The measured memory is that of the whole process, so the
/// client stores neither the rest of the response nor a copy of the request.
struct PartialResponse {
    status: u16,
    beginning: String,
}

impl PartialResponse {
    /// The identifier of the new version.
    fn version_id(&self) -> String {
        let (_, after_marker) = self.beginning.split_once("\"asset_version_id\":\"").unwrap();
        after_marker[..36].to_owned()
    }
}

async fn send(address: SocketAddr, method: &str, path: &str, body: &[u8]) -> PartialResponse {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    // The server can respond and close before it has read the whole body.
    let _ = stream.write_all(body).await;
    let (mut beginning, mut buffer) = (Vec::new(), vec![0; 16 << 10]);
    loop {
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(count) => beginning.extend(buffer[..count].iter().take(2_000_usize.saturating_sub(beginning.len()))),
        }
    }
    let beginning = String::from_utf8_lossy(&beginning).into_owned();
    let status = beginning.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
    PartialResponse { status, beginning }
}

/// A request body for a version with a list of items. It is built in one buffer: otherwise the server could reuse
/// memory that temporary buffers freed, and the measured memory would not increase.
fn version_with_items(items: impl Iterator<Item = usize>, item: impl Fn(usize) -> String) -> String {
    let mut body = String::with_capacity(4 << 20);
    body.push_str(r#"{"content":{"provider":"stub","model":"echo","params":{"l":["#);
    for (index, number) in items.enumerate() {
        body.push_str(if index == 0 { "" } else { "," });
        body.push_str(&item(number));
    }
    body.push_str("]}}}");
    body
}

/// Content with the maximum number of short texts.
fn version_with_texts(order: impl Iterator<Item = usize>) -> String {
    version_with_items(order, |number| format!("\"{number:070}\""))
}

#[tokio::test]
async fn large_content_is_created_and_compared_within_memory_limits() {
    let app = TestApp::start().await;
    let (fixtures, address) = (app.fixtures(), app.address());
    let asset = fixtures
        .asset_with_version("model_config", "config", json!({ "provider": "stub", "model": "echo" }))
        .await
        .asset_id;
    let path = format!("/v1/assets/{asset}/versions");
    let mut versions = Vec::new();
    for body in [version_with_texts(0..49_900), version_with_texts((0..49_900).rev())] {
        let response = assert_bounded("making", send(address, "POST", &path, body.as_bytes())).await;
        assert_eq!(response.status, 201, "{}", response.beginning);
        versions.push(response.version_id());
    }
    let (first_version, second_version) = (&versions[0], &versions[1]);
    let read_path = format!("{path}/{first_version}?workspace_id={WORKSPACE}");
    let response = assert_bounded("reading", send(address, "GET", &read_path, b"")).await;
    assert_eq!(response.status, 200, "{}", response.beginning);
    let diff = format!("{path}/{first_version}/diff/{second_version}?workspace_id={WORKSPACE}");
    let compared = assert_bounded("comparing", send(address, "GET", &diff, b"")).await;
    assert_eq!(compared.status, 200, "{}", compared.beginning);
}

#[tokio::test]
async fn limits_content_by_its_size_in_memory() {
    let app = TestApp::start().await;
    let (fixtures, address) = (app.fixtures(), app.address());
    let asset = fixtures
        .asset_with_version("model_config", "config", json!({ "provider": "stub", "model": "echo" }))
        .await
        .asset_id;
    let path = format!("/v1/assets/{asset}/versions");
    for (object_count, status) in [(7_000, 201), (24_000, 413), (49_000, 413)] {
        let body = version_with_items(0..object_count, |_| r#"{"a":1}"#.to_owned());
        let response =
            assert_bounded(&format!("{object_count} objects"), send(address, "POST", &path, body.as_bytes())).await;
        assert_eq!(response.status, status, "{object_count}: {}", response.beginning);
    }
}
