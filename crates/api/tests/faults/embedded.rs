//! `serve` alone on an empty directory: it brings its own PostgreSQL, takes a stale one over, and stops it.

use crate::process::Place;
use nix::{sys::signal::kill, unistd::Pid};
use serde_json::json;
use std::{fs, path::Path, time::Duration};

const END: Duration = Duration::from_secs(30);

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
