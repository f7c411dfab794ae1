//! `fairway-server verify-artifacts` with an artifact store in a directory and in an S3 bucket.

use crate::{api_client::allow_all_policy, server_process::ServerSetup};
use fairway_testkit::{S3_ACCESS_KEY, S3Server, TestDatabase};
use serde_json::json;
use std::{fs, process::Output};

/// Returns the exit code and the standard output of a command.
///
/// # Panics
/// When the exit code is 2 or higher, or missing.
fn code_and_stdout(output: &Output) -> (Option<i32>, String) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.code().is_some_and(|code| code < 2), "{stdout}\n{stderr}");
    (output.status.code(), stdout)
}

#[tokio::test]
async fn verifies_a_directory_and_reports_changed_bytes() {
    let database = TestDatabase::create().await.unwrap();
    let setup = ServerSetup::new(&database.url_for_owner());
    let server = setup.start().await;
    let path = format!("/v1/assets/{}/versions", server.client.create_asset("policy_bundle").await);
    let created = server.client.create(&path, &json!({ "content": allow_all_policy() })).await;
    let (code, stdout) = code_and_stdout(&setup.run_command("verify-artifacts"));
    assert_eq!((code, stdout.as_str()), (Some(0), "1 versions compared, 0 with something wrong\n"));
    let artifact = setup.artifacts_dir().join(created.body["artifact_ref"].as_str().unwrap());
    fs::write(&artifact, b"{}").unwrap();
    let (code, stdout) = code_and_stdout(&setup.run_command("verify-artifacts"));
    assert_eq!(code, Some(1));
    let version = created.required_id("asset_version_id").to_string();
    let line = stdout.lines().find(|line| line.contains(&version)).unwrap();
    assert!(line.ends_with("the artifact holds other bytes than the row"), "{stdout}");
    assert!(stdout.ends_with("1 versions compared, 1 with something wrong\n"), "{stdout}");
}

#[tokio::test]
async fn verification_fails_without_a_readable_store() {
    let database = TestDatabase::create().await.unwrap();
    let setup = ServerSetup::new(&database.url_for_owner());
    let server = setup.start().await;
    let path = format!("/v1/assets/{}/versions", server.client.create_asset("policy_bundle").await);
    server.client.create(&path, &json!({ "content": allow_all_policy() })).await;
    fs::remove_dir_all(setup.artifacts_dir()).unwrap();
    fs::write(setup.artifacts_dir(), "no directory").unwrap();
    let (code, stdout) = code_and_stdout(&setup.run_command("verify-artifacts"));
    assert_eq!(code, Some(1));
    assert!(!stdout.contains(", 0 with something wrong"), "{stdout}");
}

#[tokio::test]
async fn stores_and_verifies_artifacts_in_a_bucket() {
    let bucket = S3Server::start().unwrap();
    let location = bucket.create_bucket("whole").await.unwrap();
    let database = TestDatabase::create().await.unwrap();
    let setup = ServerSetup::new(&database.url_for_owner())
        .setting("FAIRWAY_ARTIFACTS_URL", location)
        .setting("AWS_ACCESS_KEY_ID", S3_ACCESS_KEY)
        .setting("AWS_SECRET_ACCESS_KEY", S3_ACCESS_KEY);
    let server = setup.start().await;
    let path = format!("/v1/assets/{}/versions", server.client.create_asset("policy_bundle").await);
    let created = server.client.create(&path, &json!({ "content": allow_all_policy() })).await;
    let (code, stdout) = code_and_stdout(&setup.run_command("verify-artifacts"));
    assert_eq!(code, Some(0), "{stdout}");
    assert!(!setup.artifacts_dir().exists(), "artifacts were written to the local directory");
    bucket.overwrite("whole", created.body["artifact_ref"].as_str().unwrap(), b"{}").await.unwrap();
    let (code, stdout) = code_and_stdout(&setup.run_command("verify-artifacts"));
    assert_eq!(code, Some(1));
    assert!(stdout.contains(&created.required_id("asset_version_id").to_string()), "{stdout}");
}
