//! The rollback advisor: recommends a rollback of a release whose runs fail more often than its threshold.

use fairway_testkit::{ProviderBehaviour, StubProvider, TestApp};
use serde_json::{Value, json};

#[tokio::test]
async fn failures_above_the_threshold_recommend_a_rollback() {
    let provider = StubProvider::new(ProviderBehaviour::Answers("billing".to_owned()));
    let app = TestApp::builder().provider(provider.clone()).start().await;
    let workload = app.active_workload("main").await;
    let config = json!({ "interface_config": {
        "presentation_mode": "form", "input_fields": [{ "name": "ticket", "type": "text" }],
        "rollout_config": { "sample_size": 4, "error_threshold": 0.5 },
    } });
    app.patch(format!("/v1/workloads/{}", workload.workload_id), config).await.expect(200);
    let path = format!("/v1/releases/{}/rollback-recommendation", workload.release_id);
    let none = json!({ "recommended": false, "error_rate": 0.0, "sample_size": 0, "threshold": 0.5 });
    assert_eq!(app.get(&path).await.expect(200), none);
    let run = async |inputs: Value| {
        let body = json!({ "environment": "dev", "inputs": inputs });
        app.post(workload.execute_path(), body).await.status
    };
    for _ in 0..3 {
        assert_eq!(run(json!({})).await, 422);
    }
    // All three runs failed, but the sample is too small for a recommendation.
    let recommendation = app.get(&path).await.expect(200);
    assert_eq!((&recommendation["recommended"], &recommendation["sample_size"]), (&json!(false), &json!(3)));
    assert_eq!(run(json!({ "ticket": "a refund" })).await, 200);
    let recommendation = app.get(&path).await.expect(200);
    assert_eq!(recommendation, json!({ "recommended": true, "error_rate": 0.75, "sample_size": 4, "threshold": 0.5 }));
    // The rollback advisor records a recommendation once, as an incident. It also records the end of the
    // recommendation.
    for _ in 0..2 {
        app.services().releases.advise_rollbacks().await.unwrap();
    }
    // An error rate equal to the threshold causes no recommendation.
    assert_eq!(run(json!({ "ticket": "a refund" })).await, 200);
    let recommendation = app.get(&path).await.expect(200);
    assert_eq!((&recommendation["recommended"], &recommendation["error_rate"]), (&json!(false), &json!(0.5)));
    app.services().releases.advise_rollbacks().await.unwrap();
    let owner = app.database().connect_as_owner().await.unwrap();
    let sql = "SELECT convert_from(body, 'UTF8') FROM fact WHERE kind = 'release.rollback_advised' ORDER BY fact_id";
    let facts: Vec<Value> = owner
        .query(sql, &[])
        .await
        .unwrap()
        .iter()
        .map(|row| serde_json::from_str(row.get::<_, &str>(0)).unwrap())
        .collect();
    assert_eq!(facts.len(), 2);
    assert_eq!((&facts[0]["categories"], &facts[0]["detail"]["error_rate"]), (&json!(["incidents"]), &json!(0.75)));
    assert_eq!((facts[1].get("categories"), &facts[1]["detail"]["recommended"]), (None, &json!(false)));
    assert_eq!(facts[0]["actor"], "system:adviser");
}

#[tokio::test]
async fn release_that_cannot_be_evaluated_does_not_stop_others() {
    let app = TestApp::start().await;
    let [broken_workload, failing_workload] =
        [app.active_workload("broken").await, app.active_workload("failing").await];
    let config = json!({ "interface_config": {
        "presentation_mode": "form", "input_fields": [{ "name": "ticket", "type": "text" }],
        "rollout_config": { "sample_size": 1, "error_threshold": 0.5 },
    } });
    app.patch(format!("/v1/workloads/{}", failing_workload.workload_id), config).await.expect(200);
    // Corrupts the release that the advisor evaluates first, so that no server version can read it.
    let owner = app.database().connect_as_owner().await.unwrap();
    owner.batch_execute("SET session_replication_role = replica").await.unwrap();
    let id: uuid::Uuid = broken_workload.release_id.parse().unwrap();
    assert!(broken_workload.release_id < failing_workload.release_id);
    let change = "UPDATE release SET created_by = 'nobody' WHERE release_id = $1";
    assert_eq!(owner.execute(change, &[&id]).await.unwrap(), 1);
    let body = json!({ "environment": "dev", "inputs": {} });
    assert_eq!(app.post(failing_workload.execute_path(), body).await.status, 422);
    app.services().releases.advise_rollbacks().await.unwrap();
    let advice_sql = "SELECT count(*) FROM fact WHERE kind = 'release.rollback_advised'
        AND position($1 IN convert_from(body, 'UTF8')) > 0";
    let advice_row = owner.query_one(advice_sql, &[&failing_workload.release_id]).await.unwrap();
    assert_eq!(advice_row.get::<_, i64>(0), 1);
}
