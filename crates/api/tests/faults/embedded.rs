//! `serve` alone on an empty directory: it brings its own PostgreSQL, takes a stale one over, and stops it.

use crate::{
    process::Place,
    remote::{WORKSPACE, policy},
};
use fairway_testkit::TestDatabase;
use futures_util::future::join_all;
use nix::{sys::signal::kill, unistd::Pid};
use serde_json::json;
use std::{fs, path::Path, time::Duration};

const END: Duration = Duration::from_secs(30);
/// As many as connections of two threads, and some more.
const CLIENTS: usize = 24;
/// What they may cost the server's processor together: half of what hashing alone takes where it is not optimised.
const COLD: Duration = Duration::from_millis(500);

/// The process of the PostgreSQL in a data directory, while its file is there.
fn postgres_of(place: &Place) -> Option<Pid> {
    let file = place.home.path().join("data/postgres/cluster/postmaster.pid");
    read_pid(&file)
}

fn read_pid(file: &Path) -> Option<Pid> {
    let text = fs::read_to_string(file).ok()?;
    text.lines().next()?.trim().parse().ok().map(Pid::from_raw)
}

fn lives(process: Pid) -> bool {
    kill(process, None).is_ok()
}

#[tokio::test]
async fn an_empty_directory_is_enough_and_a_killed_server_s_database_is_taken_over() {
    let place = Place::new("embedded");
    let mut server = place.start().await;
    let body = json!({ "slug": "kept", "name": "Kept", "namespace": "kept" });
    let workspace = server.remote.make("/v1/workspaces", &body).await.id("workspace_id");
    let path = format!("/v1/workspaces/{workspace}");
    assert!(postgres_of(&place).is_some_and(lives));
    server.kill();

    let mut server = place.start().await;
    let found = server.remote.get(&path).await.unwrap();
    assert_eq!((found.status, found.body["slug"].as_str()), (200, Some("kept")), "{found:?}");
    let postgres = postgres_of(&place).unwrap();
    assert!(lives(postgres));
    server.terminate();
    let status = server.ended_within(END).await;
    assert!(status.success(), "{status}: {}", server.said());
    assert!(!lives(postgres), "PostgreSQL outlived its server");
    assert_eq!(postgres_of(&place), None);
}

/// `verify-artifacts` with its exit code, what it printed and what it complained of.
fn verify(place: &Place) -> (Option<i32>, String, String) {
    let output = place.command("verify-artifacts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[tokio::test]
async fn artifacts_are_verified_beside_a_running_server_and_after_it() {
    let sound = (Some(0), "1 versions compared, 0 with something wrong\n".to_owned(), String::new());
    let place = Place::new("embedded");
    let mut server = place.start().await;
    let path = format!("/v1/assets/{}/versions", server.remote.asset("policy_bundle").await);
    server.remote.make(&path, &json!({ "content": policy() })).await;
    assert_eq!(verify(&place), sound);
    // It was a look, and the server goes on.
    assert_eq!(server.remote.get("/readyz").await.unwrap().status, 200);
    server.terminate();
    assert!(server.ended_within(END).await.success());
    assert_eq!(verify(&place), sound);
    assert_eq!(postgres_of(&place), None);
}

#[tokio::test]
async fn where_nothing_is_verified_nothing_is_made() {
    let place = Place::new("embedded");
    let (code, told, complained) = verify(&place);
    assert_eq!((code, told.as_str()), (Some(1), ""));
    assert!(complained.contains("FAIRWAY_DATA_DIR") && complained.contains("holds no PostgreSQL"), "{complained}");
    assert!(!place.home.path().join("data").exists());

    // A database without anything in it, likewise; what its roles are called is nobody's business here.
    let database = TestDatabase::create().await.unwrap();
    database.owner().await.unwrap().batch_execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public").await.unwrap();
    let place = Place::new(&database.url());
    let (code, told, complained) = verify(&place);
    assert_eq!((code, told.as_str()), (Some(1), ""));
    assert!(complained.contains("holds nothing of Fairway"), "{complained}");
    assert!(!place.home.path().join("data").exists());
}

/// The first requests of all find no connections, and each new one exchanges a password by thousands of hashes. Where those
/// are not optimised, a thread has no time for anything else until most of those who wait have given up.
#[tokio::test]
async fn connections_cost_a_cold_server_little() {
    let place = Place::new("embedded");
    let server = place.start().await;
    let before = server.processor_time();
    let body = |number| json!({ "slug": format!("a{number}"), "asset_kind": "skill", "owner_ref": "team:x", "workspace_id": WORKSPACE });
    let (server, body) = (&server, &body);
    let made = (0..CLIENTS).map(|number| async move { server.remote.post("/v1/assets", &body(number), None).await });
    let answers = join_all(made).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    let taken = server.processor_time() - before;
    assert!(taken < COLD, "{taken:?}");
}
