//! The artifact store: verification against the index, and garbage collection of unreferenced artifacts.

use crate::support::workspace_fixture::{WORKSPACE, knowledge_content};
use fairway_domain::asset::artifact_store::ArtifactPath;
use fairway_testkit::{ArtifactFault, FaultyArtifactStore, MovableClock, TestApp};
use futures_util::future::join_all;
use serde_json::{Value, json};
use std::{fs, future::IntoFuture as _, path::PathBuf, sync::Arc};

const HOUR: i64 = 60 * 60;
const DAY: i64 = 24 * HOUR;

fn artifact_file(app: &TestApp, version: &fairway_testkit::app::Version) -> PathBuf {
    let (asset, version) = (&version.asset_id, &version.asset_version_id);
    app.data_dir().join(format!("artifacts/assets/{asset}/{version}/content.json"))
}

/// Stores an artifact at the path of an asset version that has no row.
fn create_orphan(app: &TestApp, number: u128) -> PathBuf {
    let (asset, version) = (uuid::Uuid::from_u128(number), uuid::Uuid::from_u128(number + 1));
    let path = ArtifactPath::of_version(asset.into(), version.into());
    let file = app.data_dir().join("artifacts").join(path.as_str());
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, b"{}").unwrap();
    file
}

#[tokio::test]
async fn verification_reports_every_difference() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let intact = fixtures.ticket_prompt("sound").await;
    let services = app.services();
    let verified = services.artifacts.verify_version_artifacts().await.unwrap();
    assert_eq!((verified.versions, verified.discrepancies.len()), (1, 0));
    let (changed, missing, row) = (
        fixtures.ticket_prompt("changed").await,
        fixtures.ticket_prompt("missing").await,
        fixtures.ticket_prompt("row").await,
    );
    fs::write(artifact_file(&app, &changed), b"{\"system_prompt\":\"other\"}").unwrap();
    fs::remove_file(artifact_file(&app, &missing)).unwrap();
    // The test disables the append-only trigger to simulate a corrupted row.
    let owner = app.database().connect_as_owner().await.unwrap();
    let damage_sql = format!(
        "ALTER TABLE asset_version DISABLE TRIGGER append_only;
         UPDATE asset_version SET content = '{{}}', artifact_ref = 'elsewhere' WHERE asset_version_id = '{}';
         ALTER TABLE asset_version ENABLE TRIGGER append_only",
        row.asset_version_id
    );
    owner.batch_execute(&damage_sql).await.unwrap();
    let verified = services.artifacts.verify_version_artifacts().await.unwrap();
    assert_eq!(verified.versions, 4);
    let found: Vec<(String, Vec<&str>)> = verified
        .discrepancies
        .iter()
        .map(|(version, differences)| {
            (
                version.asset_version_id.to_string(),
                differences.iter().map(|difference| difference.description()).collect(),
            )
        })
        .collect();
    let expected = vec![
        (changed.asset_version_id.clone(), vec!["the artifact holds other bytes than the row"]),
        (missing.asset_version_id.clone(), vec!["the artifact is missing"]),
        (
            row.asset_version_id.clone(),
            vec![
                "the row names another path",
                "the row's checksum is not that of its content",
                "the artifact holds other bytes than the row",
            ],
        ),
    ];
    assert_eq!(found, expected);
    assert!(artifact_file(&app, &intact).exists());
}

#[tokio::test]
async fn sweeps_orphans_after_one_day_of_database_time() {
    let app = TestApp::start().await;
    let stored_prompt = app.fixtures().ticket_prompt("kept").await;
    let services = app.services();
    let orphans = [create_orphan(&app, 100), create_orphan(&app, 200)];
    // The sweep ignores files that do not match the path layout of artifacts.
    let unrelated = app.data_dir().join("artifacts/assets/readme.txt");
    fs::write(&unrelated, "x").unwrap();
    let report = services.artifacts.collect_garbage().await.unwrap();
    assert_eq!((report.deleted, orphans.iter().all(|path| path.exists())), (0, true), "younger than a day");
    app.database().set_clock_offset(DAY - 60).await.unwrap();
    assert_eq!(services.artifacts.collect_garbage().await.unwrap().deleted, 0);
    app.database().set_clock_offset(DAY + 60).await.unwrap();
    let report = services.artifacts.collect_garbage().await.unwrap();
    assert_eq!(report.deleted, 2, "{report:?}");
    assert!(orphans.iter().all(|path| !path.exists()));
    assert!(artifact_file(&app, &stored_prompt).exists() && unrelated.exists());
    assert_eq!(services.artifacts.verify_version_artifacts().await.unwrap().discrepancies, []);
    assert_eq!(services.artifacts.collect_garbage().await.unwrap().deleted, 0);
}

#[tokio::test]
async fn only_one_process_sweeps_when_due() {
    let app = TestApp::start().await;
    let second_server = TestApp::builder().sharing_storage_of(&app).start().await;
    let due = async |app: &TestApp| app.services().artifacts.collect_garbage_when_due().await.unwrap().is_some();
    // The servers may already have swept at their start, so the first result is ignored.
    due(&app).await;
    assert!(!due(&app).await && !due(&second_server).await);
    app.database().set_clock_offset(7 * 60 * 60).await.unwrap();
    let (first_report, second_report) = futures_util::future::join(due(&app), due(&second_server)).await;
    assert!(first_report != second_report, "exactly one process sweeps");
    assert!(!due(&app).await && !due(&second_server).await);
}

/// Two installations share one artifact store. The index of the second installation does not contain the artifacts
/// of the first.
#[tokio::test]
async fn refuses_to_sweep_the_store_of_another_installation() {
    let app = TestApp::start().await;
    let stored_prompt = app.fixtures().ticket_prompt("kept").await;
    app.services().artifacts.collect_garbage().await.unwrap();
    let other_server = TestApp::builder()
        .setting("FAIRWAY_ARTIFACTS_URL", format!("file://{}", app.data_dir().join("artifacts").display()));
    let other_server = other_server.start().await;
    let owner = other_server.database().connect_as_owner().await.unwrap();
    owner.batch_execute("UPDATE installation SET installation_id = gen_random_uuid()").await.unwrap();
    other_server.database().set_clock_offset(2 * DAY).await.unwrap();
    let error = other_server.services().artifacts.collect_garbage().await.unwrap_err();
    assert!(error.to_string().contains("another installation"), "{error}");
    assert!(artifact_file(&app, &stored_prompt).exists());
}

/// A request that fails between storing the artifact and committing the row leaves an orphaned artifact.
#[tokio::test]
async fn sweeps_artifacts_of_uncommitted_versions() {
    let app = TestApp::start().await;
    let asset = app.fixtures().asset_without_versions("prompt_template", "prompt").await;
    let path = format!("/v1/assets/{asset}/versions");
    let body = json!({ "content": { "system_prompt": "x" }, "version_label": "v1" });
    app.post(&path, body.clone()).await.expect(201);
    app.post(&path, body).await.expect_refusal(409, "duplicate_version_label");
    app.database().set_clock_offset(DAY + 60).await.unwrap();
    assert_eq!(app.services().artifacts.collect_garbage().await.unwrap().deleted, 1);
    assert_eq!(app.services().artifacts.verify_version_artifacts().await.unwrap().versions, 1);
}

/// Promise R20 in `docs/security.md`: ingestion uses only bytes that match the version's checksum, whatever the store
/// returns.
#[tokio::test]
async fn ingestion_rejects_mismatched_artifacts_and_records_an_incident() {
    let faults = FaultyArtifactStore::new(ArtifactFault::None);
    let clock = Arc::new(MovableClock::default());
    let app = TestApp::builder().faulty_artifacts(&faults).clock(clock.clone()).start().await;
    let fixtures = app.fixtures();
    let mut base = knowledge_content("manuals");
    base["source_type"] = json!("artifact");
    base["source_ref"] = json!("assets");
    let base = fixtures.asset_with_version("knowledge_base", "manuals", base).await;
    let skill = |text: &str| json!({ "name": "leave", "description": "x", "body": text });
    let source = fixtures.asset_with_version("skill", "leave", skill("Thirty days of leave.")).await;
    let secret_skill = fixtures.asset_with_version("skill", "secret", skill("canary of another object")).await;
    // The store confirms a truncated write. The server detects the defect at the first read.
    faults.set_fault(ArtifactFault::TruncatedPut);
    let truncated = fixtures.asset_with_version("skill", "halved", skill("Stored by halves.")).await;
    let documents = format!("/v1/assets/{}/documents?workspace_id={WORKSPACE}", base.asset_id);
    let reference = |version: &fairway_testkit::app::Version| {
        let path = format!("assets/{}/{}/content.json", version.asset_id, version.asset_version_id);
        json!({ "documents": [{ "document_id": "a", "source_ref": path }] })
    };
    let cases = [
        (ArtifactFault::TruncatedRead, &source, "different"),
        (ArtifactFault::StaleRead, &source, "missing"),
        (ArtifactFault::WrongBytes, &source, "different"),
        (ArtifactFault::OtherObject, &source, "different"),
        (ArtifactFault::None, &truncated, "different"),
    ];
    for (hours, (fault, version, _)) in (0..).zip(cases) {
        clock.set_offset(hours * HOUR);
        faults.set_fault(fault);
        let response = app.post(documents.clone(), reference(version)).idempotency_key("once").await;
        response.expect_refusal(503, "integrity_mismatch");
        assert!(response.header("retry-after").is_some(), "{fault:?}: {response}");
        assert!(!response.text().contains("leave") && !response.text().contains("canary"), "{fault:?}: {response}");
        let listed = app.get(documents.clone()).await.expect(200);
        assert_eq!(listed, json!([]), "{fault:?}");
    }

    let owner = app.database().connect_as_owner().await.unwrap();
    let facts = "SELECT body FROM fact WHERE kind = 'asset_version.integrity_mismatch' ORDER BY fact_id";
    let facts: Vec<Value> = owner.query(facts, &[]).await.unwrap().iter().map(|row| parse_fact(row.get(0))).collect();
    let recorded: Vec<Value> = facts
        .iter()
        .map(|fact| json!([fact["subject"]["id"], fact["detail"]["defect"], fact["categories"], fact["workspace_id"]]))
        .collect();
    let expected: Vec<Value> = cases
        .iter()
        .map(|(_, version, defect)| {
            json!([version.asset_version_id, defect, ["incidents", "compliance_findings"], WORKSPACE])
        })
        .collect();
    assert_eq!(recorded, expected);
    assert!(
        !json!(facts).to_string().contains(&secret_skill.asset_version_id),
        "the audit log must not name the version of the other bytes"
    );

    // The same request with the same key succeeds once the store returns the right bytes.
    faults.set_fault(ArtifactFault::None);
    app.post(documents.clone(), reference(&source)).idempotency_key("once").await.expect(201);
    let discrepancies = app.services().artifacts.verify_version_artifacts().await.unwrap().discrepancies;
    let damaged_versions: Vec<String> =
        discrepancies.iter().map(|(version, _)| version.asset_version_id.to_string()).collect();
    assert_eq!(damaged_versions, [truncated.asset_version_id]);
}

/// Readers decide how often a damaged artifact is read, and facts are stored forever, so their number must be limited.
#[tokio::test]
async fn each_server_records_a_mismatch_once_per_hour() {
    let faults = FaultyArtifactStore::new(ArtifactFault::None);
    let clock = Arc::new(MovableClock::default());
    let app = TestApp::builder().faulty_artifacts(&faults).clock(clock.clone()).start().await;
    let fixtures = app.fixtures();
    let mut base = knowledge_content("manuals");
    base["source_type"] = json!("artifact");
    base["source_ref"] = json!("assets");
    let base = fixtures.asset_with_version("knowledge_base", "manuals", base).await;
    let skill = |text: &str| json!({ "name": "leave", "description": "x", "body": text });
    let first_skill = fixtures.asset_with_version("skill", "one", skill("one")).await;
    let second_skill = fixtures.asset_with_version("skill", "other", skill("other")).await;
    let documents = format!("/v1/assets/{}/documents?workspace_id={WORKSPACE}", base.asset_id);
    let read_repeatedly = async |times: usize, version: &fairway_testkit::app::Version| {
        let path = format!("assets/{}/{}/content.json", version.asset_id, version.asset_version_id);
        let body = json!({ "documents": [{ "document_id": "a", "source_ref": path }] });
        let requests = (0..times).map(|_| app.post(documents.clone(), body.clone()).into_future());
        for response in join_all(requests).await {
            response.expect_refusal(503, "integrity_mismatch");
        }
    };
    let recorded = async || {
        let facts = "SELECT count(*) FROM fact WHERE kind = 'asset_version.integrity_mismatch'";
        crate::share_link::query_number(&app, facts).await
    };
    faults.set_fault(ArtifactFault::WrongBytes);
    read_repeatedly(12, &first_skill).await;
    assert_eq!(recorded().await, 1);
    read_repeatedly(2, &second_skill).await;
    assert_eq!(recorded().await, 2);
    clock.set_offset(HOUR - 60);
    read_repeatedly(2, &first_skill).await;
    assert_eq!(recorded().await, 2);
    clock.set_offset(HOUR + 60);
    read_repeatedly(2, &first_skill).await;
    assert_eq!(recorded().await, 3);
}

/// Bytes that this process has read with system calls since its start. The server runs in the same process.
fn bytes_read() -> u64 {
    let counters = fs::read_to_string("/proc/self/io").unwrap();
    counters.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap()
}

#[tokio::test]
async fn refuses_oversized_artifact_without_reading_it() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let mut base = knowledge_content("manuals");
    base["source_type"] = json!("artifact");
    base["source_ref"] = json!("assets");
    let base = fixtures.asset_with_version("knowledge_base", "manuals", base).await;
    let skill = json!({ "name": "leave", "description": "x", "body": "Thirty days of leave." });
    let source = fixtures.asset_with_version("skill", "leave", skill).await;
    let documents = format!("/v1/assets/{}/documents?workspace_id={WORKSPACE}", base.asset_id);
    let path = format!("assets/{}/{}/content.json", source.asset_id, source.asset_version_id);
    let body = json!({ "documents": [{ "document_id": "a", "source_ref": path }] });
    let artifact = fs::OpenOptions::new().write(true).open(artifact_file(&app, &source)).unwrap();
    let stored = artifact.metadata().unwrap().len();
    artifact.set_len(1 << 30).unwrap();

    let before = bytes_read();
    let response = app.post(documents.clone(), body.clone()).await;
    response.expect_refusal(503, "integrity_mismatch");
    let discrepancies = app.services().artifacts.verify_version_artifacts().await.unwrap().discrepancies;
    let bytes = bytes_read() - before;
    assert!(bytes < 1 << 26, "{bytes} bytes were read");
    let problems_by_version: Vec<(String, Vec<&str>)> = discrepancies
        .iter()
        .map(|(version, problems)| {
            (version.asset_version_id.to_string(), problems.iter().map(|problem| problem.description()).collect())
        })
        .collect();
    assert_eq!(problems_by_version, [(source.asset_version_id, vec!["the artifact holds other bytes than the row"])]);

    artifact.set_len(stored).unwrap();
    app.post(documents, body).await.expect(201);
}

fn parse_fact(body: &[u8]) -> Value {
    serde_json::from_slice(body).unwrap()
}
