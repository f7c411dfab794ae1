//! Promise R20 in `docs/security.md`: under faults of the artifact store, every asset version still has an artifact
//! with matching bytes.

use crate::{
    api_client::{ApiClient, Response, allow_all_policy},
    server_process::ServerSetup,
};
use fairway_domain::id::IdSource;
use fairway_testkit::{ArtifactFault, FaultyArtifactStore, TestApp, TestDatabase};
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    thread,
};
use tokio_postgres::Client;
use uuid::Uuid;

/// Asserts that every asset version has an artifact with equal bytes and digest. Artifacts without a version are
/// allowed.
pub(crate) async fn assert_rows_match_artifacts(owner: &Client, artifacts: &Path) {
    let rows = owner.query("SELECT artifact_ref, content, checksum FROM asset_version", &[]).await.unwrap();
    for row in rows {
        let (path, content, checksum): (String, String, String) = (row.get(0), row.get(1), row.get(2));
        let bytes = fs::read(artifacts.join(&path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        assert_eq!(bytes, content.as_bytes(), "{path}");
        assert_eq!(checksum, format!("blake3:{}", blake3::hash(&bytes).to_hex()), "{path}");
    }
}

async fn version_count(owner: &Client) -> i64 {
    owner.query_one("SELECT count(*) FROM asset_version", &[]).await.unwrap().get(0)
}

fn assert_unavailable(response: &Response) {
    assert!(response.is_unavailable_with_retry_after(), "{response:?}");
    assert_eq!(response.body.pointer("/detail/error").and_then(Value::as_str), Some("unavailable"), "{response:?}");
}

#[tokio::test]
async fn unwritable_store_is_a_503_and_a_retry_succeeds_later() {
    let database = TestDatabase::create().await.unwrap();
    let setup = ServerSetup::new(&database.url_for_owner());
    let server = setup.start().await;
    let remote: &ApiClient = &server.client;
    let owner = database.connect_as_owner().await.unwrap();
    let path = format!("/v1/assets/{}/versions", remote.create_asset("policy_bundle").await);
    let (body, key) = (json!({ "content": allow_all_policy() }), Uuid::now_v7().to_string());

    // Replacing the directory with a file makes the store unwritable for root too; permissions would not.
    let (artifacts, moved_artifacts) = (setup.artifacts_dir(), setup.work_dir.path().join("aside"));
    fs::rename(&artifacts, &moved_artifacts).unwrap();
    fs::write(&artifacts, "no directory").unwrap();
    for key in [Some(key.as_str()), None] {
        assert_unavailable(&remote.post(&path, &body, key).await.unwrap());
    }
    assert_eq!(remote.get("/readyz").await.unwrap().status, 503);
    assert_eq!(remote.get("/healthz").await.unwrap().status, 200);
    assert_eq!(version_count(&owner).await, 0);

    fs::remove_file(&artifacts).unwrap();
    fs::rename(&moved_artifacts, &artifacts).unwrap();
    assert_eq!(remote.get("/readyz").await.unwrap().status, 200);
    let created = remote.post(&path, &body, Some(&key)).await.unwrap();
    assert_eq!(created.status, 201, "{created:?}");
    assert_eq!(version_count(&owner).await, 1);
    assert_rows_match_artifacts(&owner, &artifacts).await;
}

#[tokio::test]
async fn store_faults_leave_no_row_without_artifact() {
    let faults = FaultyArtifactStore::new(ArtifactFault::None);
    let app = TestApp::builder().faulty_artifacts(&faults).start().await;
    let owner = app.database().connect_as_owner().await.unwrap();
    let asset = app.fixtures().asset_without_versions("policy_bundle", "things").await;
    let path = format!("/v1/assets/{asset}/versions");
    let (mut versions_made, mut refusals) = (0, 0);
    for round in 0..24 {
        let fault = match round % 4 {
            0 => ArtifactFault::Unavailable,
            1 => ArtifactFault::FailsAfterPut,
            _ => ArtifactFault::None,
        };
        faults.set_fault(fault);
        let (body, key) = (json!({ "content": allow_all_policy() }), Uuid::now_v7().to_string());
        let first_response = app.post(path.clone(), body.clone()).idempotency_key(&key).await;
        if fault == ArtifactFault::None {
            first_response.expect(201);
        } else {
            first_response.expect_refusal(503, "unavailable");
            refusals += 1;
            faults.set_fault(ArtifactFault::None);
            app.post(path.clone(), body).idempotency_key(&key).await.expect(201);
        }
        versions_made += 1;
        assert_eq!(version_count(&owner).await, versions_made);
        assert_rows_match_artifacts(&owner, &app.data_dir().join("artifacts")).await;
    }
    assert_eq!(refusals, 12);
}

/// An identifier source that can rewind, so that request threads receive the same identifiers again. Other threads
/// receive new identifiers, because their order is not deterministic.
#[derive(Default)]
struct RewindableIds {
    issued: Mutex<(Vec<Uuid>, usize)>,
}

impl RewindableIds {
    fn position(&self) -> usize {
        self.issued.lock().unwrap().1
    }

    fn rewind_to(&self, mark: usize) {
        self.issued.lock().unwrap().1 = mark;
    }
}

impl IdSource for RewindableIds {
    fn new_id(&self) -> Uuid {
        let is_request_thread = thread::current().name().is_some_and(|name| name.starts_with("actix"));
        if !is_request_thread {
            return Uuid::now_v7();
        }
        let mut issued = self.issued.lock().unwrap();
        let position = issued.1;
        if position == issued.0.len() {
            issued.0.push(Uuid::now_v7());
        }
        issued.1 += 1;
        issued.0[position]
    }

    fn salt(&self) -> [u8; 16] {
        [0; 16]
    }

    fn secret(&self) -> [u8; 32] {
        [0; 32]
    }
}

/// All artifact files below a directory.
fn artifact_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(artifact_files(&path));
        } else if path.ends_with("content.json") {
            found.push(path);
        }
    }
    found
}

#[tokio::test]
async fn refuses_different_bytes_at_the_artifact_path() {
    let (faults, ids) = (FaultyArtifactStore::new(ArtifactFault::None), Arc::new(RewindableIds::default()));
    let shared: Arc<dyn IdSource> = Arc::<RewindableIds>::clone(&ids);
    let app = TestApp::builder().faulty_artifacts(&faults).ids(shared).start().await;
    let owner = app.database().connect_as_owner().await.unwrap();
    let asset = app.fixtures().asset_without_versions("policy_bundle", "things").await;
    let (path, body) = (format!("/v1/assets/{asset}/versions"), json!({ "content": allow_all_policy() }));

    let position = ids.position();
    faults.set_fault(ArtifactFault::FailsAfterPut);
    app.post(path.clone(), body.clone()).await.expect_refusal(503, "unavailable");
    let orphans = artifact_files(&app.data_dir().join("artifacts"));
    assert_eq!(orphans.len(), 1, "expected one stored artifact: {orphans:?}");
    let original = fs::read(&orphans[0]).unwrap();
    fs::write(&orphans[0], b"{}").unwrap();

    faults.set_fault(ArtifactFault::None);
    ids.rewind_to(position);
    app.post(path.clone(), body.clone()).await.expect_refusal(503, "integrity_mismatch");
    let facts = "SELECT count(*) FROM fact WHERE kind = 'asset_version.integrity_mismatch'";
    assert_eq!(owner.query_one(facts, &[]).await.unwrap().get::<_, i64>(0), 1);
    assert_eq!(version_count(&owner).await, 0);
    assert_eq!(fs::read(&orphans[0]).unwrap(), b"{}", "the store overwrote the existing file");

    fs::write(&orphans[0], original).unwrap();
    ids.rewind_to(position);
    app.post(path, body).await.expect(201);
    assert_eq!(artifact_files(&app.data_dir().join("artifacts")), orphans);
    assert_rows_match_artifacts(&owner, &app.data_dir().join("artifacts")).await;
}
