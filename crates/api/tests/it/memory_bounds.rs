//! Bounds on server memory that callers influence: pages of lists, manifests, large bodies, and responses that are
//! read slowly.

use crate::support::workspace_fixture::WORKSPACE;
use fairway_testkit::{TestApp, app::Response};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    net::SocketAddr,
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    task::JoinSet,
    time::timeout,
};

/// A time longer than any step of these tests, and much shorter than the timeout of a body.
const DEADLINE: Duration = Duration::from_secs(15);

/// An interface of about 50 KiB as JSON.
fn large_interface() -> Value {
    let options: Vec<String> = (0..200).map(|number| format!("{number:03}")).collect();
    let field = |number: usize| json!({ "name": format!("s{number}"), "type": "select", "options": options });
    json!({ "presentation_mode": "form", "input_fields": (0..40).map(field).collect::<Vec<_>>() })
}

/// Creates `count` workloads with large interfaces, and returns their slugs.
async fn create_large_workloads(app: &TestApp, count: usize) -> BTreeSet<String> {
    let mut slugs = BTreeSet::new();
    for number in 0..count {
        let slug = format!("large-{number}");
        let workload = app.fixtures().workload(&slug).await;
        let body = json!({ "interface_config": large_interface() });
        app.patch(format!("/v1/workloads/{workload}"), body).await.expect(200);
        slugs.insert(slug);
    }
    slugs
}

fn next_page(response: &Response) -> Option<String> {
    let link = response.header("link")?;
    Some(link.split_once('<').unwrap().1.split_once('>').unwrap().0.to_owned())
}

#[tokio::test]
async fn pages_of_workloads_end_at_one_mebibyte() {
    let app = TestApp::start().await;
    let workloads = create_large_workloads(&app, 30).await;
    for list_path in ["/v1/workloads", "/v1/workloads/runtime-enabled"] {
        let (mut found, mut path) = (BTreeSet::new(), Some(format!("{list_path}?limit=200")));
        while let Some(page) = path {
            let response = app.get(page).await;
            assert!(response.body.len() <= 1_200_000, "{list_path}: {} bytes on a page", response.body.len());
            let rows = response.expect(200);
            found.extend(rows.as_array().unwrap().iter().map(|row| row["slug"].as_str().unwrap().to_owned()));
            path = next_page(&response);
        }
        assert!(found.is_superset(&workloads), "{list_path}");
    }
}

#[tokio::test]
async fn tool_manifest_comes_in_pages() {
    let app = TestApp::start().await;
    let created_workloads = create_large_workloads(&app, 30).await;
    let (mut pages, mut tools, mut totals) = (0, BTreeSet::new(), BTreeSet::new());
    let mut path = Some(format!("/v1/runtime/mcp-manifest?workspace_id={WORKSPACE}&limit=200"));
    while let Some(page) = path {
        let response = app.get(page).await;
        assert!(response.body.len() <= 1_200_000, "{} bytes on a page", response.body.len());
        let manifest = response.expect(200);
        let names = manifest["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned());
        tools.extend(names);
        path = next_page(&response);
        totals.insert(response.header("x-total-count").unwrap().to_owned());
        assert_eq!(manifest["truncated"], path.is_some());
        pages += 1;
    }
    assert!(pages > 1);
    for slug in created_workloads {
        assert!(tools.contains(&format!("run_{}", slug.replace('-', "_"))), "{slug}");
    }
    assert!(tools.contains("execute_flow"));
    // The total of each page counts the workloads of the whole list.
    let workloads = tools.iter().filter(|name| name.starts_with("run_")).count();
    assert_eq!(totals, BTreeSet::from([workloads.to_string()]));
}

#[tokio::test]
async fn rejects_interface_config_beyond_64_kib() {
    let app = TestApp::start().await;
    let workload = app.fixtures().workload("large").await;
    let mut config = large_interface();
    config["input_fields"][0] = json!({ "name": "text", "type": "textarea", "default": "x".repeat(30_000) });
    let response = app.patch(format!("/v1/workloads/{workload}"), json!({ "interface_config": config })).await;
    let fields = response.expect_refusal(422, "validation_error")["fields"].clone();
    assert_eq!((&fields[0]["path"], &fields[0]["code"]), (&json!("interface_config"), &json!("too_long")));
}

/// Sends a request that announces a body of `bytes` bytes but contains none of it. Returns the response status.
async fn status_of_announced_body(app: &TestApp, path: &str, actor: &str, bytes: usize) -> Option<u16> {
    let mut stream = tokio::net::TcpStream::connect(app.address()).await.unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         X-Actor-Ref: {actor}\r\nContent-Length: {bytes}\r\n\r\n",
        app.address()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut received = Vec::new();
    timeout(DEADLINE, stream.read_to_end(&mut received)).await.ok()?.ok()?;
    String::from_utf8_lossy(&received).split(' ').nth(1)?.parse().ok()
}

#[tokio::test]
async fn authorizes_caller_before_reading_a_large_body() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    fixtures.bind_role("user:vera", "viewer", "workspace", Some(WORKSPACE)).await;
    let prompt = fixtures.asset_without_versions("prompt_template", "prompt").await;
    let base = fixtures.asset_without_versions("knowledge_base", "base").await;
    let flow = fixtures.asset_without_versions("orchestration_flow", "flow").await;
    let query = format!("?workspace_id={WORKSPACE}");
    let unknown_id = "00000000-0000-7000-8000-0000000000ff";
    for (path, status) in [
        (format!("/v1/assets/{prompt}/versions"), 403),
        (format!("/v1/assets/{unknown_id}/versions"), 404),
        (format!("/v1/assets/{base}/documents{query}"), 403),
        (format!("/v1/assets/{base}/documents"), 403),
        (format!("/v1/flows{query}"), 403),
        ("/v1/flows".to_owned(), 403),
        (format!("/v1/flows/{flow}/versions"), 403),
        (format!("/v1/flows/{unknown_id}/validate"), 404),
    ] {
        assert_eq!(status_of_announced_body(&app, &path, "user:vera", 3_900_000).await, Some(status), "{path}");
    }
}

/// Sends a body without its last byte. Returns the status that the server sends before the body is complete.
async fn status_of_withheld_body(address: SocketAddr, actor: &'static str, bytes: usize) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST /v1/workloads HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         X-Actor-Ref: {actor}\r\nContent-Length: {bytes}\r\n\r\n"
    );
    // While the body waits for memory, the server reads nothing. It may refuse the body before its end.
    let _ = stream.write_all(&[head.as_bytes(), &vec![b' '; bytes - 1]].concat()).await;
    let mut received = Vec::new();
    let _ = stream.read_to_end(&mut received).await;
    String::from_utf8_lossy(&received).split(' ').nth(1).unwrap_or_default().to_owned()
}

#[tokio::test]
async fn serves_named_callers_while_anonymous_ones_at_the_same_address_withhold_bodies() {
    let app = TestApp::start().await;
    let mut withheld_requests = JoinSet::new();
    for _ in 0..40 {
        withheld_requests.spawn(status_of_withheld_body(app.address(), "anonymous", 900_000));
    }
    // A refusal shows that the sender's share of memory is exhausted. The accepted bodies occupy it until their
    // timeout.
    let response = timeout(DEADLINE, withheld_requests.join_next()).await.expect("the server accepted every body");
    assert_eq!(response.unwrap().unwrap(), "503");
    for bytes in [200_000, 700_000] {
        let text = json!({ "slug": "x", "note": "x".repeat(bytes) });
        app.post("/v1/workloads", text).await.expect_refusal(422, "validation_error");
    }
    withheld_requests.abort_all();
}

#[tokio::test]
async fn disconnects_a_client_that_reads_below_the_minimum_throughput() {
    let app = TestApp::start().await;
    let strict_server =
        TestApp::builder().sharing_storage_of(&app).setting("FAIRWAY_HEADER_TIMEOUT", "1s").start().await;
    let texts: Vec<String> = (0..49_000).map(|number| format!("{number:070}")).collect();
    let content = json!({ "provider": "stub", "model": "echo", "params": { "texts": texts } });
    let version = app.fixtures().asset_with_version("model_config", "large", content).await;
    let (asset, version) = (version.asset_id, version.asset_version_id);
    let path = format!("/v1/assets/{asset}/versions/{version}?workspace_id={WORKSPACE}");
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4 << 10).unwrap();
    let mut stream = socket.connect(strict_server.address()).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", strict_server.address());
    stream.write_all(request.as_bytes()).await.unwrap();
    // The client reads 5 KiB per second, and at full speed after the deadline. Data in the kernel's buffers still
    // arrives after the server has closed the connection.
    let (started_at, mut received, mut buffer) = (Instant::now(), 0, vec![0; 16 << 10]);
    loop {
        let is_slow = started_at.elapsed() < DEADLINE;
        let read_length = if is_slow { 512 } else { buffer.len() };
        match stream.read(&mut buffer[..read_length]).await {
            Ok(0) | Err(_) => break,
            Ok(count) => received += count,
        }
        if is_slow {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    assert!(received < 3_000_000, "{received}");
    // A client that reads at full speed gets the whole response.
    assert!(app.get(path).await.expect(200).to_string().len() > 3_000_000);
}

/// A draft release with `count` verdicts of different reviewers, each with a note of maximum length.
async fn reviewed_draft(app: &TestApp, count: i32) -> String {
    let (workload, policy) = (app.fixtures().workload("main").await, app.fixtures().allow_all_policy("policy").await);
    let release = app.fixtures().draft(&workload, &[policy]).await;
    let owner = app.database().connect_as_owner().await.unwrap();
    let insert = "WITH said AS (
            INSERT INTO approval (tenant_id, approval_id, release_id, outcome, subject_digest, approved_by, approved_at,
                release_revision)
            SELECT tenant_id, fairway_uuid_floor(now() + number * interval '1 ms'), release_id, 'rejected', 'x',
                'user:reviewer-' || number, now(), 1000 + number
            FROM release, generate_series(1, $2::integer) AS number WHERE release_id::text = $1
            RETURNING tenant_id, approval_id
        )
        INSERT INTO approval_note (tenant_id, approval_id, body)
        SELECT tenant_id, approval_id, repeat('\u{1F600}', 2000) FROM said";
    owner.execute(insert, &[&release, &count]).await.unwrap();
    release
}

#[tokio::test]
async fn pages_of_verdicts_end_at_one_mebibyte() {
    let app = TestApp::start().await;
    let release = reviewed_draft(&app, 300).await;
    let (mut reviewers, mut pages) = (Vec::new(), 0);
    let mut path = Some(format!("/v1/releases/{release}/approvals?limit=200"));
    while let Some(page) = path {
        let response = app.get(page).await;
        assert!(response.body.len() <= 1_200_000, "{} bytes on a page", response.body.len());
        assert_eq!(response.header("x-total-count"), Some("300"));
        for verdict in response.expect(200).as_array().unwrap() {
            assert_eq!(verdict["note"].as_str().unwrap().chars().count(), 2_000);
            reviewers.push(verdict["approved_by"].as_str().unwrap().to_owned());
        }
        path = next_page(&response);
        pages += 1;
    }
    let newest_first: Vec<String> = (1..=300).rev().map(|number| format!("user:reviewer-{number}")).collect();
    assert_eq!(reviewers, newest_first);
    assert!(pages > 2, "{pages} pages");
}

#[tokio::test]
async fn release_has_at_most_500_verdicts_and_replays_show_the_note() {
    let app = TestApp::start().await;
    let release = reviewed_draft(&app, 499).await;
    let path = format!("/v1/releases/{release}/approvals");
    let verdict =
        json!({ "outcome": "rejected", "subject_kind": "release", "subject_ref": release, "note": "not like this" });
    let last_verdict = app.post(&path, verdict.clone()).idempotency_key("last").await.expect(201);
    app.post(&path, verdict.clone()).await.expect_refusal(409, "too_many_verdicts");
    let mut approval = verdict.clone();
    approval["outcome"] = json!("approved");
    app.post(&path, approval).as_actor("user:eve").await.expect_refusal(409, "too_many_verdicts");
    let replayed = app.post(&path, verdict.clone()).idempotency_key("last").await;
    assert_eq!(replayed.header("idempotency-replayed"), Some("true"));
    assert_eq!(replayed.expect(201), last_verdict);
    assert_eq!(last_verdict["note"], "not like this");
    // A reviewer without an earlier rejection may still reject.
    app.post(&path, verdict.clone()).as_actor("user:eve").await.expect(201);
    app.post(&path, verdict).as_actor("user:eve").await.expect_refusal(409, "too_many_verdicts");
}
