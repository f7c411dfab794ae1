//! `fairway-server seed` creates the demo data. A repeated call changes nothing.

use crate::support::workspace_fixture::WORKSPACE;
use fairway_testkit::{TestApp, TestDatabase};
use serde_json::{Value, json};
use std::{collections::BTreeMap, env, path::Path, process::Command};
use tempfile::TempDir;

const EXECUTE_PATH: &str = "/v1/workloads/by-slug/ticket-classifier/execute";

/// Runs `fairway-server seed` and returns its output.
async fn seed(database: &TestDatabase, data: &Path) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fairway-server"));
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name.starts_with("FAIRWAY_") || name.starts_with("OTEL_") {
            command.env_remove(name);
        }
    }
    let folder = TempDir::new().unwrap();
    command
        .arg("seed")
        .current_dir(folder.path())
        .env("FAIRWAY_DATABASE_URL", database.url_for_owner())
        .env("FAIRWAY_DATA_DIR", data);
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {err}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// The number of rows of each table.
async fn row_counts(database: &TestDatabase) -> BTreeMap<String, i64> {
    let owner = database.connect_as_owner().await.unwrap();
    let sql = "SELECT quote_ident(relname) FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
        WHERE nspname = 'public' AND relkind = 'r'";
    let mut rows = BTreeMap::new();
    for table in owner.query(sql, &[]).await.unwrap() {
        let table: String = table.get(0);
        let count = owner.query_one(&format!("SELECT count(*) FROM {table}"), &[]).await.unwrap().get(0);
        rows.insert(table, count);
    }
    rows
}

async fn execute_ticket(app: &TestApp) -> Value {
    let inputs = json!({ "ticket": "I was charged twice this month, please send me a refund." });
    app.post(EXECUTE_PATH, json!({ "environment": "dev", "inputs": inputs })).await.expect(200)
}

#[tokio::test]
async fn seeding_twice_has_no_effect() {
    let (database, data) = (TestDatabase::create().await.unwrap(), TempDir::new().unwrap());
    let first_output = seed(&database, data.path()).await;
    assert!(first_output.contains("user:demo-approver approved and activated release"), "{first_output}");
    assert!(
        first_output.contains("curl -sS 'http://127.0.0.1:8080/v1/workloads/by-slug/ticket-classifier/execute'"),
        "{first_output}"
    );
    let seeded = row_counts(&database).await;
    assert_eq!((seeded["asset"], seeded["asset_version"], seeded["release"]), (14, 14, 3));
    let second_output = seed(&database, data.path()).await;
    assert!(second_output.contains("nothing was changed"), "{second_output}");
    assert_eq!(row_counts(&database).await, seeded);
}

#[tokio::test]
async fn seeds_next_to_a_running_server_and_keeps_changes() {
    let app = TestApp::start().await;
    seed(app.database(), app.data_dir()).await;
    let response = execute_ticket(&app).await;
    assert_eq!(response["output"], json!({ "category": "billing" }), "{response}");
    let evidence = app.get(format!("/v1/executions/{}/evidence-graph", response["execution_id"].as_str().unwrap()));
    let evidence = evidence.await.expect(200);
    assert_eq!(evidence["approvals"][0]["approved_by"], "user:demo-approver");
    // Changes the workload's release and name, which the next seed must preserve.
    let bindings = evidence["bindings"].as_array().unwrap().clone();
    let workload = app.get("/v1/workloads/by-slug/ticket-classifier").await.expect(200);
    let workload = workload["workload_id"].as_str().unwrap();
    app.patch(format!("/v1/workloads/{workload}"), json!({ "name": "Sorter" })).await.expect(200);
    let release = app.post("/v1/releases", json!({ "workload_id": workload, "environment": "dev" })).await.expect(201);
    let release = release["release_id"].as_str().unwrap().to_owned();
    for binding in bindings {
        let body = json!({ "asset_version_id": binding["asset_version_id"], "role": binding["role"] });
        app.post(format!("/v1/releases/{release}/bindings"), body).await.expect(201);
    }
    app.fixtures().transition(&release, "review_ready").await;
    let verdict = json!({ "outcome": "approved", "subject_kind": "release", "subject_ref": release });
    app.post(format!("/v1/releases/{release}/approvals"), verdict).as_actor("user:approver").await.expect(201);
    for state in ["approved", "active"] {
        app.fixtures().transition(&release, state).await;
    }
    let output = seed(app.database(), app.data_dir()).await;
    assert!(output.contains(&release) && output.contains("nothing was changed"), "{output}");
    let workload_view = app.get(format!("/v1/workloads/{workload}")).await.expect(200);
    assert_eq!(workload_view["name"], "Sorter");
}

#[tokio::test]
async fn completes_an_interrupted_seeding() {
    let app = TestApp::start().await;
    let by_author = |path: &str, body: Value| app.post(path, body).as_actor("user:demo-author");
    let workload = json!({ "slug": "ticket-classifier", "owner_ref": "team:support", "invocation_mode": "form" });
    by_author("/v1/workloads", workload).await.expect(201);
    let asset = json!({ "slug": "ticket-prompt", "asset_kind": "prompt_template", "owner_ref": "team:support" });
    by_author("/v1/assets", asset).await.expect(201);
    seed(app.database(), app.data_dir()).await;
    assert_eq!(execute_ticket(&app).await["output"], json!({ "category": "billing" }));
    let prompts = app.get(format!("/v1/assets?asset_kind=prompt_template&workspace_id={WORKSPACE}")).await.expect(200);
    let is_ticket_prompt = |asset: &&Value| asset["slug"] == "ticket-prompt";
    assert_eq!(prompts.as_array().unwrap().iter().filter(is_ticket_prompt).count(), 1);
    let workload_view = app.get("/v1/workloads/by-slug/ticket-classifier").await.expect(200);
    assert_eq!(workload_view["interface_config"]["presentation_mode"], "form");
}
