//! SQL inserts a year of runs for the benchmark. These runs must read like runs that the API created.

use crate::{
    execution::run,
    support::workspace_fixture::{TENANT, WORKSPACE, knowledge_content},
};
use fairway_testkit::{TestApp, app::ActiveWorkload};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio_postgres::Client;

const FILL_SQL: &str = include_str!("../../../bench/src/fill.sql");
const RUNS: i64 = 8_000;

/// A workload with one run from the API, and `RUNS` inserted runs of one year for this workload and others.
async fn fill_history(app: &TestApp) -> (ActiveWorkload, Client) {
    let workload = app.active_workload("main").await;
    run(app, &workload).await.expect(200);
    let owner = app.database().connect_as_owner().await.unwrap();
    let settings_sql =
        format!("SET fairway_fill.runs = {RUNS}; SET fairway_fill.days = 364; SET fairway_fill.name = 'grown'");
    owner.batch_execute(&settings_sql).await.unwrap();
    owner.batch_execute(FILL_SQL).await.unwrap();
    (workload, owner)
}

async fn query_count(owner: &Client, sql: &str) -> i64 {
    owner.query_one(sql, &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn lists_a_year_of_runs_and_reads_their_evidence() {
    let app = TestApp::start().await;
    let (workload, owner) = fill_history(&app).await;
    let all_runs = app.get("/v1/executions?limit=1").await;
    assert_eq!(all_runs.header("x-total-count"), Some((RUNS / 2 + 1).to_string().as_str()));
    let runs_of_workload = app.get(format!("/v1/executions?limit=1&workload_id={}", workload.workload_id)).await;
    assert_eq!(runs_of_workload.header("x-total-count"), all_runs.header("x-total-count"));
    for status in ["completed", "failed", "denied", "cancelled"] {
        let runs = app.get(format!("/v1/executions?limit=5&status={status}")).as_actor("user:fill").await.expect(200);
        let runs = runs.as_array().unwrap();
        assert!(runs.len() > 1, "{status}");
        // The run from the API has another submitter, so it is excluded.
        for row in runs.iter().filter(|row| row["submitted_by"] == "user:fill") {
            assert_eq!(row["status"], status);
            let path = format!("/v1/executions/{}", row["execution_id"].as_str().unwrap());
            let mut evidence_view = app.get(&path).as_actor("user:fill").await.expect(200);
            assert_eq!(
                evidence_view["queued_result"]["result"]["class"].is_string(),
                status == "completed",
                "{evidence_view}"
            );
            assert_eq!(evidence_view["steps"].as_array().unwrap().is_empty(), status == "denied");
            (evidence_view["queued_result"], evidence_view["steps"]) = (Value::Null, Value::Null);
            assert_eq!(evidence_view, *row);
            let evidence = app.get(format!("{path}/evidence-graph")).await.expect(200);
            assert_eq!(evidence["execution"]["status"], status);
            assert_eq!(evidence["policy_decision"]["outcome"], if status == "denied" { "deny" } else { "allow" });
            assert_eq!(evidence["release"]["release_id"], workload.release_id);
            assert_eq!(evidence["workload"]["slug"], "main");
            let (bindings, approvals) = (&evidence["bindings"], &evidence["approvals"]);
            assert_eq!((bindings.as_array().unwrap().len(), approvals.as_array().unwrap().len()), (3, 1));
            let artifacts = evidence["evidence_artifacts"].as_array().unwrap();
            assert_eq!(artifacts.len(), usize::from(status != "denied"));
            let lineage = format!("{path}/context-lineage?workspace_id={WORKSPACE}");
            let items = app.get(lineage).await.expect(200)["total"].as_u64().unwrap();
            assert_eq!(items >= 2, status != "denied", "{items}");
        }
    }
    // Runs that are older than the retention time are complete except for their payloads.
    let end_time_sql =
        "SELECT to_char((now() - interval '300 days') AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')";
    let end_time: String = owner.query_one(end_time_sql, &[]).await.unwrap().get(0);
    let old_runs = app.get(format!("/v1/executions?limit=3&status=completed&until={end_time}")).await.expect(200);
    for row in old_runs.as_array().unwrap() {
        let path = format!("/v1/executions/{}", row["execution_id"].as_str().unwrap());
        let evidence = app.get(&path).as_actor("user:fill").await.expect(200);
        assert_eq!((&evidence["queued_result"], &evidence["status"]), (&Value::Null, &json!("completed")));
        app.get(format!("{path}/evidence-graph")).await.expect(200);
    }
    assert_eq!(old_runs.as_array().unwrap().len(), 3);
    let recommendation =
        app.get(format!("/v1/releases/{}/rollback-recommendation", workload.release_id)).await.expect(200);
    assert_eq!(recommendation["recommended"], false);
    // Every run is in the partition of its month, and there are at least twelve partitions.
    assert_eq!(query_count(&owner, "SELECT count(*) FROM execution").await, RUNS + 1);
    assert!(query_count(&owner, "SELECT count(DISTINCT tableoid) FROM execution").await >= 12);
    let tenants = "SELECT count(DISTINCT tenant_id) FROM execution";
    assert_eq!(query_count(&owner, tenants).await, 50);
}

#[tokio::test]
async fn audit_log_of_a_year_is_consistent_and_continues() {
    let app = TestApp::start().await;
    let (workload, owner) = fill_history(&app).await;
    let wrong_sizes = "SELECT count(*) FROM fact_log WHERE size <> (
        SELECT count(*) FROM fact_order WHERE fact_order.tenant_id = fact_log.tenant_id)";
    let gaps = "SELECT count(*) FROM fact_log WHERE size <> (
        SELECT coalesce(max(index), -1) + 1 FROM fact_order WHERE fact_order.tenant_id = fact_log.tenant_id)";
    let wrong_hashes = "SELECT count(*) FROM fact WHERE leaf_hash <> sha256('\\x00'::bytea || body)";
    for sql in [
        wrong_sizes,
        gaps,
        wrong_hashes,
        "SELECT count(*) FROM fact_order LEFT JOIN fact USING (tenant_id, fact_id)
        WHERE fact.fact_id IS NULL OR fact.workspace_id IS DISTINCT FROM fact_order.workspace_id",
    ] {
        assert_eq!(query_count(&owner, sql).await, 0, "{sql}");
    }
    run(&app, &workload).await.expect(200);
    let mut newest_events = app.get("/v1/audit/events?limit=200").await.expect(200);
    // The sequencer runs in the background, so it assigns the index of the last run's fact after a short delay.
    let size = format!("SELECT size FROM fact_log WHERE tenant_id = '{TENANT}'");
    while query_count(&owner, "SELECT count(*) FROM fact_pending").await > 0 {
        tokio::task::yield_now().await;
    }
    if newest_events[0]["index"].as_i64() != Some(query_count(&owner, &size).await - 1) {
        newest_events = app.get("/v1/audit/events?limit=200").await.expect(200);
    }
    let events = newest_events.as_array().unwrap();
    assert_eq!(events[0]["index"].as_i64().unwrap(), query_count(&owner, &size).await - 1);
    assert_eq!((&events[0]["kind"], &events[0]["actor"]), (&json!("execution.ended"), &json!("user:local")));
    assert!(events.windows(2).all(|pair| pair[0]["index"].as_u64().unwrap() == pair[1]["index"].as_u64().unwrap() + 1));
    assert!(events.iter().any(|event| event["kind"] == "execution.denied" || !event["categories"][0].is_null()));
    for event in events {
        let id = event["event_id"].as_str().unwrap();
        let row = owner.query_one("SELECT body FROM fact WHERE fact_id = $1::text::uuid", &[&id]).await.unwrap();
        let body: Vec<u8> = row.get(0);
        let leaf = Sha256::new().chain_update([0]).chain_update(&body).finalize();
        let hex: String = leaf.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(event["leaf_hash"], hex);
        let fact: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(fact.to_string().as_bytes(), body, "the hashed bytes are canonical JSON");
    }
}

#[tokio::test]
async fn inserted_versions_count_like_created_ones() {
    let app = TestApp::start().await;
    let (_, owner) = fill_history(&app).await;
    let asset = "SELECT asset_id::text FROM asset WHERE slug = 'grown-7'";
    let asset: String = owner.query_one(asset, &[]).await.unwrap().get(0);
    let path = format!("/v1/assets/{asset}/versions");
    let versions = app.get(format!("{path}?limit=200&workspace_id={}", WORKSPACE)).await;
    assert_eq!(versions.header("x-total-count"), Some("40"));
    assert_eq!(versions.expect(200)[0]["version_label"], "v40");
    let next_version = app.post(path, json!({ "content": { "system_prompt": "One more." } })).await.expect(201);
    assert_eq!(next_version["version_label"], "v41");
}

const CHUNKS_SQL: &str = include_str!("../../../bench/src/million.sql");

/// A flow that searches documents with the ticket as the query, and returns the found chunks.
const SEARCH_FLOW: &str = "\
name: Look up
description: Returns what it finds.
trigger: { type: api_request, inputs_schema: { ticket: string } }
entry_step: find
steps:
  - id: find
    type: task
    action: retrieve_documents
    inputs: { query: '{{trigger.ticket}}', knowledge_base: '{{release.knowledge_base}}' }
  - id: done
    type: return
    output: '{{steps.find.output}}'
";

#[tokio::test]
async fn inserted_chunks_are_found_like_ingested_ones() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let base = fixtures.asset_with_version("knowledge_base", "base", knowledge_content("base")).await;
    let documents = format!("/v1/assets/{}/documents?workspace_id={WORKSPACE}", base.asset_id);
    let first_document = json!({ "documents": [{ "document_id": "first", "text": "unmistakable" }] });
    app.post(&documents, first_document).await.expect(201);
    let owner = app.database().connect_as_owner().await.unwrap();
    let index = "SELECT pg_get_indexdef('knowledge_chunk_by_word'::regclass)";
    let index_before: String = owner.query_one(index, &[]).await.unwrap().get(0);
    let prefix = "SELECT split_part((tsvector_to_array(words))[1], '/', 1) FROM knowledge_chunk";
    let prefix: String = owner.query_one(prefix, &[]).await.unwrap().get(0);
    let settings_sql = format!(
        "SET fairway_fill.base = '{}'; SET fairway_fill.prefix = '{prefix}'; SET fairway_fill.pieces = '3000'",
        base.asset_id
    );
    owner.batch_execute(&settings_sql).await.unwrap();
    owner.batch_execute(CHUNKS_SQL).await.unwrap();
    let index_after: String = owner.query_one(index, &[]).await.unwrap().get(0);
    assert_eq!(index_before, index_after);
    let miscounts_sql = format!(
        "SELECT count(*) FROM knowledge_word AS counted WHERE word IN ('often', 'sometimes7', 'rarely7', 'word3')
            AND chunks <> (SELECT count(*) FROM knowledge_chunk WHERE words @@ format('''{prefix}/%s''', word)::tsquery)"
    );
    assert_eq!(query_count(&owner, &miscounts_sql).await, 0);
    let counted = "SELECT count(*) FROM knowledge_word WHERE word IN ('often', 'sometimes7', 'rarely7', 'word3')";
    assert_eq!(query_count(&owner, counted).await, 4);

    let versions = vec![
        fixtures.ticket_prompt("prompt").await,
        fixtures.model_policy("models").await,
        fixtures.allow_all_policy("policy").await,
        base.clone(),
        fixtures.flow("flow", SEARCH_FLOW).await,
    ];
    let workload = fixtures.active_workload_with_bindings("desk", versions).await;
    let search = async |query: &str| {
        let body = json!({ "environment": "dev", "inputs": { "ticket": query } });
        let response = app.post(workload.execute_path(), body).await.expect(200);
        assert_eq!(response["status"], "completed", "{response}");
        response["output"].as_array().unwrap().clone()
    };
    for query in ["rarely7", "sometimes7", "often", "rarely7 often"] {
        let found = search(query).await;
        assert_eq!(found.len(), 5, "{query}");
        let word = query.split(' ').next().unwrap();
        assert!(found.iter().all(|piece| piece["text"].as_str().unwrap().contains(word)), "{query}: {found:?}");
    }
    assert_eq!(search("unmistakable").await.len(), 1);
    let listed = app.get(&documents).await;
    assert_eq!(listed.header("x-total-count"), Some("31"));
}
