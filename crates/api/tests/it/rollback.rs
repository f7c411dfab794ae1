//! Rollback: the release to which a lane returns, and the record of a rollback.

use crate::{list_pagination::all_rows, support::workspace_fixture::WORKSPACE};
use fairway_testkit::{
    MovableClock, TestApp,
    app::{Response, Version},
};
use futures_util::future::join_all;
use serde_json::{Value, json};
use std::{collections::BTreeSet, sync::Arc};

async fn activate(app: &TestApp, release: &str, lane: Option<&str>) -> Response {
    let body = json!({ "to_state": "active", "lane": lane });
    app.post(format!("/v1/releases/{release}/transition"), body).await
}

async fn roll_back(app: &TestApp, release: &str, body: Value) -> Response {
    app.post(format!("/v1/releases/{release}/rollback"), body).await
}

fn rollback_body() -> Value {
    json!({ "reason": "It answers in riddles." })
}

async fn release_state(app: &TestApp, release: &str) -> Value {
    app.get(format!("/v1/releases/{release}")).await.expect(200)["state"].clone()
}

async fn lane_holders(app: &TestApp, workload: &str) -> Vec<Value> {
    let lanes = app.get(format!("/v1/workloads/{workload}/lanes?environment=dev")).await.expect(200);
    lanes.as_array().unwrap().iter().map(|lane| lane["holder"].clone()).collect()
}

/// A workload with `count` approved releases. Returns the workload, the releases and their versions.
async fn approved_releases(app: &TestApp, count: usize) -> (String, Vec<String>, Vec<Version>) {
    let fixtures = app.fixtures();
    let versions = vec![
        fixtures.allow_all_policy("policy").await,
        fixtures.ticket_prompt("prompt").await,
        fixtures.model_policy("model").await,
    ];
    let workload = fixtures.workload("main").await;
    let mut releases = Vec::new();
    for _ in 0..count {
        releases.push(fixtures.approved_release(&workload, &versions).await);
    }
    (workload, releases, versions)
}

#[tokio::test]
async fn rollback_restores_the_previous_release() {
    let app = TestApp::start().await;
    let (workload, releases, _) = approved_releases(&app, 2).await;
    let [first_release, second_release] = releases.as_slice() else { panic!() };
    activate(&app, first_release, None).await.expect(200);
    let refusal = roll_back(&app, first_release, rollback_body()).await.expect_refusal(409, "no_previous_release");
    assert!(refusal["message"].as_str().unwrap().starts_with("no earlier release can hold"), "{refusal}");
    activate(&app, second_release, None).await.expect(200);
    assert_eq!(release_state(&app, first_release).await, "superseded");

    let keyed = |body| app.post(format!("/v1/releases/{second_release}/rollback"), body).idempotency_key("back");
    let result = keyed(rollback_body()).await.expect(200);
    let artifact = result["artifact_id"].as_str().unwrap();
    let rolled_back = |lane| json!({ "lane": lane, "rolled_back_to": first_release });
    assert_eq!(
        result,
        json!({
            "release_id": second_release, "rolled_back_to": first_release, "lane": "standard", "warnings": [], "artifact_id": artifact,
            "lanes": [rolled_back("standard"), rolled_back("guided"), rolled_back("restricted")],
        })
    );
    assert_eq!(
        (release_state(&app, first_release).await, release_state(&app, second_release).await),
        (json!("active"), json!("superseded"))
    );
    assert_eq!(lane_holders(&app, &workload).await, [json!(first_release), json!(first_release), json!(first_release)]);
    let second_response = keyed(rollback_body()).await;
    assert_eq!(
        (second_response.expect(200), second_response.header("idempotency-replayed")),
        (result.clone(), Some("true"))
    );

    // The previous release serves the next run.
    let body = json!({ "environment": "dev", "inputs": { "ticket": "a refund" } });
    let response = app.post("/v1/workloads/by-slug/main/execute", body).await.expect(200);
    let path = format!("/v1/executions/{}", response["execution_id"].as_str().unwrap());
    assert_eq!(app.get(path).await.expect(200)["release_id"], json!(first_release));

    // A lane never returns to a release that was itself rolled back.
    roll_back(&app, first_release, rollback_body()).await.expect_refusal(409, "no_previous_release");
    roll_back(&app, second_release, rollback_body()).await.expect_refusal(409, "invalid_transition");

    let path = format!("/v1/releases/{second_release}/evidence-artifacts");
    let listed = app.get(&path).await.expect(200);
    assert_eq!(listed.as_array().unwrap().len(), 1);
    assert_eq!(listed[0]["storage_ref"], format!("evidence/releases/{second_release}/{artifact}/rollback.json"));
    let document = app.get(format!("{path}/{artifact}")).await;
    assert_eq!(document.expect(200)["reason"], "It answers in riddles.");
    assert_eq!(listed[0]["checksum"], format!("blake3:{}", blake3::hash(&document.body).to_hex()));
    app.get(format!("/v1/releases/{first_release}/evidence-artifacts/{artifact}"))
        .await
        .expect_refusal(404, "not_found");
    // Facts never contain the reason of a rollback.
    let owner = app.database().connect_as_owner().await.unwrap();
    let count = "SELECT count(*) FROM fact WHERE position('riddles'::bytea IN body) > 0";
    assert_eq!(owner.query_one(count, &[]).await.unwrap().get::<_, i64>(0), 0);
}

#[tokio::test]
async fn rollback_of_a_lane_skips_retired_releases() {
    let app = TestApp::start().await;
    let (workload, releases, _) = approved_releases(&app, 4).await;
    let [first_release, second_release, third_release, fourth_release] = releases.as_slice() else { panic!() };
    for release in [first_release, second_release, third_release] {
        activate(&app, release, None).await.expect(200);
    }
    app.post(format!("/v1/releases/{second_release}/transition"), json!({ "to_state": "retired" })).await.expect(200);
    activate(&app, fourth_release, Some("guided")).await.expect(200);
    activate(&app, fourth_release, Some("restricted")).await.expect(200);
    // The fourth release does not hold `standard`.
    let lane = json!({ "reason": "x", "lane": "standard" });
    let refusal = roll_back(&app, fourth_release, lane).await.expect_refusal(409, "no_previous_release");
    assert_eq!(refusal["message"], "the release does not hold this lane", "another cause than no earlier release");
    let result = roll_back(&app, fourth_release, json!({ "reason": "x", "lane": "guided" })).await.expect(200);
    assert_eq!((&result["lane"], &result["rolled_back_to"]), (&json!("guided"), &json!(third_release)));
    assert_eq!(
        lane_holders(&app, &workload).await,
        [json!(fourth_release), json!(third_release), json!(third_release)]
    );
    assert_eq!(
        (release_state(&app, third_release).await, release_state(&app, fourth_release).await),
        (json!("active"), json!("active"))
    );

    // The second release is retired, so both lanes of the third release return to the first.
    let result = roll_back(&app, third_release, rollback_body()).await.expect(200);
    let lanes: Vec<&Value> = result["lanes"].as_array().unwrap().iter().map(|lane| &lane["lane"]).collect();
    assert_eq!(lanes, ["guided", "standard"]);
    assert_eq!(result["rolled_back_to"], json!(first_release));
    assert_eq!(
        lane_holders(&app, &workload).await,
        [json!(fourth_release), json!(first_release), json!(first_release)]
    );
    let history = app.get(format!("/v1/workloads/{workload}/lanes?environment=dev")).await.expect(200);
    let reasons: Vec<&Value> =
        history[1]["history"].as_array().unwrap().iter().map(|holding| &holding["reason"]).collect();
    assert_eq!(reasons, ["rollback", "rollback", "activation", "activation", "activation", "activation"]);
}

#[tokio::test]
async fn archived_assets_do_not_block_a_rollback() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let workload = fixtures.workload("main").await;
    let old_policy = fixtures.allow_all_policy("old").await;
    let first_release = fixtures.approved_release(&workload, std::slice::from_ref(&old_policy)).await;
    let second_release = fixtures.approved_release(&workload, &[fixtures.allow_all_policy("new").await]).await;
    activate(&app, &first_release, None).await.expect(200);
    activate(&app, &second_release, None).await.expect(200);
    app.post(
        format!("/v1/assets/{}/archive", old_policy.asset_id),
        json!({ "workspace_id": crate::support::workspace_fixture::WORKSPACE }),
    )
    .await
    .expect(200);
    let result = roll_back(&app, &second_release, rollback_body()).await.expect(200);
    let warning = &result["warnings"][0];
    assert_eq!((&warning["code"], &warning["asset_slug"]), (&json!("asset_archived"), &json!("old")));
    assert_eq!(lane_holders(&app, &workload).await, [json!(first_release), json!(first_release), json!(first_release)]);
}

#[tokio::test]
async fn rejects_invalid_rollback_bodies() {
    let app = TestApp::start().await;
    let (workload, releases, _) = approved_releases(&app, 2).await;
    for release in &releases {
        activate(&app, release, None).await.expect(200);
    }
    for body in [
        json!({}),
        json!({ "reason": "" }),
        json!({ "reason": " \n" }),
        json!({ "reason": "\u{a0}\u{3000}" }),
        json!({ "reason": "\u{2800}" }),
        json!({ "reason": "\u{fe0f}" }),
        json!({ "reason": "a\u{202e}b" }),
        json!({ "reason": "x".repeat(2_001) }),
        json!({ "reason": 7 }),
        json!({ "reason": "x", "lane": "express" }),
        json!({ "reason": "x", "to": releases[0] }),
    ] {
        roll_back(&app, &releases[1], body).await.expect_refusal(422, "validation_error");
    }
    assert_eq!(lane_holders(&app, &workload).await, vec![json!(releases[1]); 3]);
}

/// The later of two concurrent rollbacks is refused: the lane has no previous release, or the release is no longer
/// active.
#[tokio::test]
async fn concurrent_rollbacks_roll_each_lane_back_once() {
    let app = TestApp::start().await;
    let (workload, releases, _) = approved_releases(&app, 3).await;
    for release in &releases {
        activate(&app, release, None).await.expect(200);
    }
    let attempts = (0..9).map(|client| {
        let lane = ["restricted", "guided", "standard"][client % 3];
        roll_back(&app, &releases[2], json!({ "reason": "x", "lane": lane }))
    });
    let mut successful_releases = BTreeSet::new();
    for response in join_all(attempts).await {
        match response.status {
            200 => assert!(successful_releases.insert(response.json()["lane"].to_string()), "{response}"),
            409 => {
                assert!(["invalid_transition", "no_previous_release"].contains(&response.code().as_str()), "{response}")
            }
            _ => panic!("{response}"),
        }
    }
    assert_eq!(successful_releases.len(), 3);
    assert_eq!(lane_holders(&app, &workload).await, vec![json!(releases[1]); 3]);
    assert_eq!(release_state(&app, &releases[2]).await, "superseded");
    let path = format!("/v1/releases/{}/evidence-artifacts", releases[2]);
    let rollbacks = app.get(&path).await.expect(200);
    assert_eq!(rollbacks.as_array().unwrap().len(), 3);
    for limit in 1..=3 {
        assert_eq!(json!(all_rows(&app, format!("{path}?limit={limit}")).await), rollbacks);
    }
}

#[tokio::test]
async fn withholds_damaged_rollback_records_and_records_an_incident() {
    let clock = Arc::new(MovableClock::default());
    let app = TestApp::builder().clock(clock.clone()).start().await;
    let (_, releases, _) = approved_releases(&app, 2).await;
    let [first_release, second_release] = releases.as_slice() else { panic!() };
    for release in [first_release, second_release] {
        activate(&app, release, None).await.expect(200);
    }
    let roll_back =
        || app.post(format!("/v1/releases/{second_release}/rollback"), rollback_body()).idempotency_key("back");
    let artifact = roll_back().await.expect(200)["artifact_id"].clone();
    let path = format!("/v1/releases/{second_release}/evidence-artifacts/{}", artifact.as_str().unwrap());
    app.get(path.clone()).await.expect(200);

    let owner = app.database().connect_as_owner().await.unwrap();
    let damage = "ALTER TABLE release_artifact DISABLE TRIGGER ALL;
        UPDATE release_artifact SET content = replace(content, '\"reason\"', '\"canary\"');
        ALTER TABLE release_artifact ENABLE TRIGGER ALL";
    owner.batch_execute(damage).await.unwrap();
    // A server records an integrity mismatch at most once an hour.
    for (hour, request) in [(0, app.get(path)), (1, roll_back())] {
        clock.set_offset(hour * 60 * 60);
        let response = request.await;
        response.expect_refusal(503, "integrity_mismatch");
        assert!(response.header("retry-after").is_some() && !response.text().contains("canary"), "{response}");
    }
    let facts = "SELECT body FROM fact WHERE kind = 'release.integrity_mismatch' ORDER BY fact_id";
    let facts = owner.query(facts, &[]).await.unwrap();
    assert_eq!(facts.len(), 2);
    for row in facts {
        let fact: Value = serde_json::from_slice(row.get(0)).unwrap();
        assert_eq!((&fact["subject"]["id"], &fact["detail"]["artifact_id"]), (&json!(second_release), &artifact));
        assert_eq!(fact["categories"], json!(["incidents", "compliance_findings"]));
        assert_eq!((&fact["detail"]["defect"], &fact["workspace_id"]), (&json!("different"), &json!(WORKSPACE)));
    }
}
