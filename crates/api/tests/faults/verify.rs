//! `fairway-server verify-artifacts`, over a directory and over a bucket, and a server whose artifacts lie in one.

use crate::{process::Place, remote::policy};
use fairway_testkit::{ACCESS_KEY, BucketServer, TestDatabase};
use serde_json::json;
use std::{fs, process::Output};

/// Exit code and standard output.
fn said(output: &Output) -> (Option<i32>, String) {
    let complained = String::from_utf8_lossy(&output.stderr);
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.code().is_some_and(|code| code < 2), "{told}\n{complained}");
    (output.status.code(), told)
}

#[tokio::test]
async fn a_directory_is_verified() {
    let database = TestDatabase::create().await.unwrap();
    let place = Place::new(&database.url());
    let server = place.start().await;
    let path = format!("/v1/assets/{}/versions", server.remote.asset("policy_bundle").await);
    let made = server.remote.make(&path, &json!({ "content": policy() })).await;
    let (code, told) = said(&place.command("verify-artifacts"));
    assert_eq!((code, told.as_str()), (Some(0), "1 versions compared, 0 with something wrong\n"));
    let artifact = place.artifacts().join(made.body["artifact_ref"].as_str().unwrap());
    fs::write(&artifact, b"{}").unwrap();
    let (code, told) = said(&place.command("verify-artifacts"));
    assert_eq!(code, Some(1));
    let version = made.id("asset_version_id").to_string();
    let line = told.lines().find(|line| line.contains(&version)).unwrap();
    assert!(line.ends_with("the artifact holds other bytes than the row"), "{told}");
    assert!(told.ends_with("1 versions compared, 1 with something wrong\n"), "{told}");
}

#[tokio::test]
async fn a_store_that_does_not_answer_is_never_called_sound() {
    let database = TestDatabase::create().await.unwrap();
    let place = Place::new(&database.url());
    let server = place.start().await;
    let path = format!("/v1/assets/{}/versions", server.remote.asset("policy_bundle").await);
    server.remote.make(&path, &json!({ "content": policy() })).await;
    fs::remove_dir_all(place.artifacts()).unwrap();
    fs::write(place.artifacts(), "no directory").unwrap();
    let (code, told) = said(&place.command("verify-artifacts"));
    assert_eq!(code, Some(1));
    assert!(!told.contains(", 0 with something wrong"), "{told}");
}

#[tokio::test]
async fn a_server_over_a_bucket_stores_reads_and_verifies() {
    let bucket = BucketServer::start().unwrap();
    let location = bucket.bucket("whole").await.unwrap();
    let database = TestDatabase::create().await.unwrap();
    let place = Place::new(&database.url())
        .setting("FAIRWAY_ARTIFACTS_URL", location)
        .setting("AWS_ACCESS_KEY_ID", ACCESS_KEY)
        .setting("AWS_SECRET_ACCESS_KEY", ACCESS_KEY);
    let server = place.start().await;
    let path = format!("/v1/assets/{}/versions", server.remote.asset("policy_bundle").await);
    let made = server.remote.make(&path, &json!({ "content": policy() })).await;
    let (code, told) = said(&place.command("verify-artifacts"));
    assert_eq!(code, Some(0), "{told}");
    assert!(!place.artifacts().exists(), "nothing lies on this machine");
    bucket.overwrite("whole", made.body["artifact_ref"].as_str().unwrap(), b"{}").await.unwrap();
    let (code, told) = said(&place.command("verify-artifacts"));
    assert_eq!(code, Some(1));
    assert!(told.contains(&made.id("asset_version_id").to_string()), "{told}");
}
