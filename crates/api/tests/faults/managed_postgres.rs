//! The managed PostgreSQL of `fairway-server serve`. It starts in an empty directory, preserves its data when the
//! server is killed, and stops with its server.

use crate::{
    api_client::{WORKSPACE, allow_all_policy},
    server_process::ServerSetup,
};
use fairway_testkit::TestDatabase;
use futures_util::future::join_all;
use nix::{sys::signal::kill, unistd::Pid};
use serde_json::json;
use std::{fs, path::Path, time::Duration};

const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(30);
/// Number of clients. They send requests at once, so that more than two worker threads open database connections.
const CLIENTS: usize = 24;
/// Maximum processor time of the server for the first requests of all clients: half the time that unoptimised
/// password hashing takes.
const MAX_PROCESSOR_TIME: Duration = Duration::from_millis(500);

/// The process of the managed PostgreSQL; `None` if its PID file does not exist.
fn postgres_pid(setup: &ServerSetup) -> Option<Pid> {
    let file = setup.work_dir.path().join("data/postgres/cluster/postmaster.pid");
    read_pid(&file)
}

fn read_pid(file: &Path) -> Option<Pid> {
    let text = fs::read_to_string(file).ok()?;
    text.lines().next()?.trim().parse().ok().map(Pid::from_raw)
}

fn is_alive(process: Pid) -> bool {
    kill(process, None).is_ok()
}

#[tokio::test]
async fn starts_in_an_empty_directory_and_takes_over_a_stale_database() {
    let setup = ServerSetup::new("embedded");
    let mut server = setup.start().await;
    let body = json!({ "slug": "kept", "name": "Kept", "namespace": "kept" });
    let workspace = server.client.create("/v1/workspaces", &body).await.required_id("workspace_id");
    let path = format!("/v1/workspaces/{workspace}");
    assert!(postgres_pid(&setup).is_some_and(is_alive));
    server.kill();

    let mut server = setup.start().await;
    let found = server.client.get(&path).await.unwrap();
    assert_eq!((found.status, found.body["slug"].as_str()), (200, Some("kept")), "{found:?}");
    let postgres = postgres_pid(&setup).unwrap();
    assert!(is_alive(postgres));
    server.terminate();
    let status = server.wait_for_exit(SHUTDOWN_TIMEOUT).await;
    assert!(status.success(), "{status}: {}", server.read_log());
    assert!(!is_alive(postgres), "PostgreSQL still runs after its server");
    assert_eq!(postgres_pid(&setup), None);
}

/// Runs `fairway-server verify-artifacts`. Returns the exit code, standard output and standard error.
fn run_verify_artifacts(setup: &ServerSetup) -> (Option<i32>, String, String) {
    let output = setup.run_command("verify-artifacts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[tokio::test]
async fn verifies_artifacts_with_and_without_a_running_server() {
    let success = (Some(0), "1 versions compared, 0 with something wrong\n".to_owned(), String::new());
    let setup = ServerSetup::new("embedded");
    let mut server = setup.start().await;
    let path = format!("/v1/assets/{}/versions", server.client.create_asset("policy_bundle").await);
    server.client.create(&path, &json!({ "content": allow_all_policy() })).await;
    assert_eq!(run_verify_artifacts(&setup), success);
    // The server still responds after a verification.
    assert_eq!(server.client.get("/readyz").await.unwrap().status, 200);
    server.terminate();
    assert!(server.wait_for_exit(SHUTDOWN_TIMEOUT).await.success());
    assert_eq!(run_verify_artifacts(&setup), success);
    assert_eq!(postgres_pid(&setup), None);
}

#[tokio::test]
async fn failed_verification_creates_nothing() {
    let setup = ServerSetup::new("embedded");
    let (code, stdout, stderr) = run_verify_artifacts(&setup);
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    assert!(stderr.contains("FAIRWAY_DATA_DIR") && stderr.contains("has no PostgreSQL cluster"), "{stderr}");
    assert!(!setup.work_dir.path().join("data").exists());

    // The command also refuses an empty database.
    let database = TestDatabase::create().await.unwrap();
    database
        .connect_as_owner()
        .await
        .unwrap()
        .batch_execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        .await
        .unwrap();
    let setup = ServerSetup::new(&database.url_for_owner());
    let (code, stdout, stderr) = run_verify_artifacts(&setup);
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    assert!(stderr.contains("holds nothing of Fairway"), "{stderr}");
    assert!(!setup.work_dir.path().join("data").exists());
}

/// The first requests open database connections, whose authentication takes thousands of hash rounds each.
/// Unoptimised hashing blocks a thread until most waiting requests time out.
#[tokio::test]
async fn first_connections_take_little_processor_time() {
    let setup = ServerSetup::new("embedded");
    let server = setup.start().await;
    let before = server.processor_time();
    let body = |number| json!({ "slug": format!("a{number}"), "asset_kind": "skill", "owner_ref": "team:x", "workspace_id": WORKSPACE });
    let (server, body) = (&server, &body);
    let requests =
        (0..CLIENTS).map(|number| async move { server.client.post("/v1/assets", &body(number), None).await });
    let responses = join_all(requests).await;
    assert!(responses.iter().all(Result::is_ok), "{responses:?}");
    let processor_time = server.processor_time() - before;
    assert!(processor_time < MAX_PROCESSOR_TIME, "{processor_time:?}");
}
