//! Rollouts: manual advances and the rollout controller.

use fairway_testkit::{
    MovableClock, TestApp,
    app::{Response, Version},
};
use futures_util::future::join_all;
use serde_json::{Value, json};
use std::sync::Arc;

/// One day in seconds.
const DAY: i64 = 86_400;

async fn approved_releases(app: &TestApp, count: usize) -> (String, Vec<String>) {
    let fixtures = app.fixtures();
    let versions = vec![
        fixtures.allow_all_policy("policy").await,
        fixtures.ticket_prompt("prompt").await,
        fixtures.model_policy("model").await,
    ];
    let workload = fixtures.workload("main").await;
    (workload.clone(), approve_releases(app, &workload, &versions, count).await)
}

async fn approve_releases(app: &TestApp, workload: &str, versions: &[Version], count: usize) -> Vec<String> {
    let mut releases = Vec::new();
    for _ in 0..count {
        releases.push(app.fixtures().approved_release(workload, versions).await);
    }
    releases
}

fn rollout_plan(lanes: &[&str], minutes: i64, auto_advance: bool) -> Value {
    json!({ "lane_sequence": lanes, "soak_duration_minutes": minutes, "auto_advance": auto_advance })
}

async fn activate(app: &TestApp, release: &str, body: Value) -> Response {
    let mut body = body;
    body["to_state"] = json!("active");
    app.post(format!("/v1/releases/{release}/transition"), body).await
}

async fn start_rollout(app: &TestApp, release: &str, plan: Value) -> Value {
    activate(app, release, json!({ "rollout_plan": plan })).await.expect(200)
}

async fn advance(app: &TestApp, release: &str) -> Response {
    app.post(format!("/v1/releases/{release}/rollout/advance"), json!({})).await
}

async fn read_rollout(app: &TestApp, release: &str) -> Value {
    app.get(format!("/v1/releases/{release}/rollout")).await.expect(200)
}

async fn rollout_status(app: &TestApp, release: &str) -> Value {
    app.get(format!("/v1/releases/{release}")).await.expect(200)["rollout_state"]["status"].clone()
}

async fn lane_holders(app: &TestApp, workload: &str) -> Vec<Value> {
    let lanes = app.get(format!("/v1/workloads/{workload}/lanes?environment=dev")).await.expect(200);
    lanes.as_array().unwrap().iter().map(|lane| lane["holder"].clone()).collect()
}

async fn execute_status(app: &TestApp, inputs: Value) -> u16 {
    let body = json!({ "environment": "dev", "inputs": inputs });
    app.post("/v1/workloads/by-slug/main/execute", body).await.status
}

/// The details of all facts of this kind, oldest first.
async fn facts_of_kind(app: &TestApp, kind: &str) -> Vec<Value> {
    let owner = app.database().connect_as_owner().await.unwrap();
    let sql = "SELECT convert_from(body, 'UTF8') FROM fact WHERE kind = $1 ORDER BY fact_id";
    let rows = owner.query(sql, &[&kind]).await.unwrap();
    rows.iter().map(|row| serde_json::from_str(row.get::<_, &str>(0)).unwrap()).collect()
}

#[tokio::test]
async fn manual_advances_roll_a_release_out_to_three_lanes() {
    let app = TestApp::start().await;
    let (workload, releases) = approved_releases(&app, 2).await;
    let [old_release, new_release] = releases.as_slice() else { panic!() };
    activate(&app, old_release, json!({})).await.expect(200);
    assert_eq!(app.get(format!("/v1/releases/{old_release}")).await.expect(200).get("rollout_state"), None);
    app.get(format!("/v1/releases/{old_release}/rollout")).await.expect_refusal(404, "not_found");
    advance(&app, old_release).await.expect_refusal(409, "rollout_not_in_progress");

    let result = start_rollout(&app, new_release, rollout_plan(&["restricted", "guided", "standard"], 60, false)).await;
    assert_eq!((&result["lane"], &result["state"]), (&json!("restricted"), &json!("active")));
    let state = &result["rollout_state"];
    let first_step = json!({
        "status": "in_progress", "lane_sequence": ["restricted", "guided", "standard"], "current_lane_index": 0,
        "soak_started_at": state["soak_started_at"],
    });
    assert_eq!(*state, first_step);
    assert_eq!(app.get(format!("/v1/releases/{new_release}")).await.expect(200)["rollout_state"], first_step);
    assert_eq!(lane_holders(&app, &workload).await, [json!(new_release), json!(old_release), json!(old_release)]);
    let status = read_rollout(&app, new_release).await;
    assert_eq!((&status["current_lane"], &status["next_lane"]), (&json!("restricted"), &json!("guided")));
    assert_eq!((&status["hold_reason"], &status["auto_advance"]), (&Value::Null, &json!(false)));
    let remaining_soak = status["observed"]["soak_left_seconds"].as_u64().unwrap();
    assert!((3_500..=3_600).contains(&remaining_soak), "{remaining_soak}");
    activate(&app, new_release, json!({ "rollout_plan": rollout_plan(&["standard"], 0, false) }))
        .await
        .expect_refusal(409, "rollout_in_progress");

    for (index, lane) in [(1, "guided"), (2, "standard")] {
        let result = advance(&app, new_release).await.expect(200);
        assert_eq!(
            (&result["advanced_to_lane"], &result["rollout_state"]["current_lane_index"]),
            (&json!(lane), &json!(index))
        );
        assert_eq!(result["rollout_state"]["status"], "in_progress");
    }
    assert_eq!(lane_holders(&app, &workload).await, vec![json!(new_release); 3]);
    let result = advance(&app, new_release).await.expect(200);
    assert_eq!((&result["advanced_to_lane"], &result["rollout_state"]["status"]), (&Value::Null, &json!("completed")));
    advance(&app, new_release).await.expect_refusal(409, "rollout_not_in_progress");
    let status = read_rollout(&app, new_release).await;
    assert_eq!((&status["next_lane"], &status["observed"]), (&Value::Null, &Value::Null));

    // The facts record the remaining soak time and the superseded release.
    let facts = facts_of_kind(&app, "rollout.advanced").await;
    assert_eq!(facts.len(), 3);
    for fact in &facts {
        assert!((3_500..=3_600).contains(&fact["detail"]["soak_left_seconds"].as_u64().unwrap()), "{fact}");
    }
    assert_eq!(facts[1]["detail"]["superseded"], json!([old_release]));
    assert_eq!(facts[2]["detail"]["to_lane"], Value::Null);
    let history = app.get(format!("/v1/workloads/{workload}/lanes?environment=dev")).await.expect(200);
    assert_eq!(history[1]["history"][0]["reason"], "advance");

    // A completed rollout stays completed after a rollback.
    let rollback_body = json!({ "reason": "It answers in riddles." });
    app.post(format!("/v1/releases/{new_release}/rollback"), rollback_body).await.expect(200);
    assert_eq!(rollout_status(&app, new_release).await, "completed");
}

#[tokio::test]
async fn invalid_rollout_plans_change_no_lane() {
    let app = TestApp::start().await;
    let (workload, releases) = approved_releases(&app, 1).await;
    for body in [
        json!({ "rollout_plan": {} }),
        json!({ "rollout_plan": rollout_plan(&[], 0, false) }),
        json!({ "rollout_plan": rollout_plan(&["express"], 0, false) }),
        json!({ "rollout_plan": rollout_plan(&["guided", "guided"], 0, false) }),
        json!({ "rollout_plan": rollout_plan(&["restricted", "guided", "standard", "guided"], 0, false) }),
        json!({ "rollout_plan": rollout_plan(&["guided"], -1, false) }),
        json!({ "rollout_plan": rollout_plan(&["guided"], 43_201, false) }),
        json!({ "rollout_plan": rollout_plan(&["guided"], 4_294_967_296, false) }),
        json!({ "rollout_plan": { "lane_sequence": ["guided"], "soak_duration_minutes": 1.5 } }),
        json!({ "rollout_plan": { "lane_sequence": ["guided"], "soak_duration_minutes": 0, "pace": "fast" } }),
        json!({ "rollout_plan": rollout_plan(&["guided", "standard"], 0, false), "lane": "standard" }),
    ] {
        activate(&app, &releases[0], body).await.expect_refusal(422, "validation_error");
    }
    let retired_body = json!({ "to_state": "retired", "rollout_plan": rollout_plan(&["guided"], 0, false) });
    app.post(format!("/v1/releases/{}/transition", releases[0]), retired_body)
        .await
        .expect_refusal(422, "validation_error");
    assert_eq!(lane_holders(&app, &workload).await, vec![Value::Null; 3]);
    // The activation request may name the first lane of its own rollout plan.
    let body = json!({ "rollout_plan": rollout_plan(&["guided", "standard"], 43_200, false), "lane": "guided" });
    activate(&app, &releases[0], body).await.expect(200);
    app.post(format!("/v1/releases/{}/rollout/advance", releases[0]), json!({ "to": "standard" }))
        .await
        .expect_refusal(422, "validation_error");

    let body = json!({ "workload_id": workload, "environment": "dev", "target_lane": "guided" });
    let narrow_release = app.post("/v1/releases", body).await.expect(201)["release_id"].as_str().unwrap().to_owned();
    let policy = app.fixtures().allow_all_policy("narrow").await;
    let body = json!({ "asset_version_id": policy.asset_version_id, "role": "policy_bundle" });
    app.post(format!("/v1/releases/{narrow_release}/bindings"), body).await.expect(201);
    app.fixtures().transition(&narrow_release, "review_ready").await;
    let verdict = json!({ "outcome": "approved", "subject_kind": "release", "subject_ref": narrow_release });
    app.post(format!("/v1/releases/{narrow_release}/approvals"), verdict).await.expect(201);
    app.fixtures().transition(&narrow_release, "approved").await;
    let beyond = json!({ "rollout_plan": rollout_plan(&["guided", "standard"], 0, false) });
    activate(&app, &narrow_release, beyond).await.expect_refusal(422, "lane_not_targeted");
    start_rollout(&app, &narrow_release, rollout_plan(&["guided"], 0, false)).await;
    assert_eq!(rollout_status(&app, &releases[0]).await, "rolled_back", "it lost the current lane of its rollout");
}

#[tokio::test]
async fn losing_the_current_lane_ends_a_rollout() {
    let app = TestApp::start().await;
    let (workload, releases) = approved_releases(&app, 5).await;
    let [base, first_release, second_release, third_release, fourth_release] = releases.as_slice() else { panic!() };
    activate(&app, base, json!({})).await.expect(200);
    start_rollout(&app, first_release, rollout_plan(&["restricted", "guided", "standard"], 0, false)).await;
    advance(&app, first_release).await.expect(200);
    // The second release takes a lane that the rollout of the first has already passed. That rollout continues, and
    // does not take the lane again.
    start_rollout(&app, second_release, rollout_plan(&["restricted", "standard"], 0, false)).await;
    assert_eq!(
        (rollout_status(&app, first_release).await, rollout_status(&app, second_release).await),
        (json!("in_progress"), json!("in_progress"))
    );
    // The third release takes the lane at which the rollout of the first currently is, so that rollout ends.
    activate(&app, third_release, json!({ "lane": "guided" })).await.expect(200);
    assert_eq!(rollout_status(&app, first_release).await, "rolled_back");
    assert_eq!(app.get(format!("/v1/releases/{first_release}")).await.expect(200)["state"], "superseded");
    advance(&app, first_release).await.expect_refusal(409, "rollout_not_in_progress");
    // A rollback of a release ends its rollout. Retiring a release does so as well.
    app.post(format!("/v1/releases/{second_release}/rollback"), json!({ "reason": "x" })).await.expect(200);
    assert_eq!(rollout_status(&app, second_release).await, "rolled_back");
    advance(&app, second_release).await.expect_refusal(409, "rollout_not_in_progress");
    start_rollout(&app, fourth_release, rollout_plan(&["standard", "guided"], 0, false)).await;
    app.fixtures().transition(fourth_release, "retired").await;
    assert_eq!(rollout_status(&app, fourth_release).await, "rolled_back");
    assert_eq!(read_rollout(&app, fourth_release).await["hold_reason"], Value::Null);
    assert_eq!(lane_holders(&app, &workload).await, [json!(first_release), json!(third_release), Value::Null]);
    // After the rollback, the first release holds a lane again, so it may start a new rollout.
    start_rollout(&app, first_release, rollout_plan(&["standard"], 0, false)).await;
    assert_eq!(rollout_status(&app, first_release).await, "in_progress");
    assert_eq!(advance(&app, first_release).await.expect(200)["rollout_state"]["status"], "completed");
}

/// Both requests read the rollout before either advances it. One request succeeds, and the other is refused.
#[tokio::test]
async fn one_of_two_concurrent_advances_succeeds() {
    let app = TestApp::start().await;
    let (workload, releases) = approved_releases(&app, 1).await;
    start_rollout(&app, &releases[0], rollout_plan(&["restricted", "guided", "standard"], 0, false)).await;
    let (holder, owner) =
        (app.database().connect_as_owner().await.unwrap(), app.database().connect_as_owner().await.unwrap());
    holder.batch_execute("BEGIN").await.unwrap();
    let lock_sql = format!("SELECT FROM deployment WHERE workload_id = '{workload}' FOR UPDATE");
    holder.batch_execute(&lock_sql).await.unwrap();
    let advances = join_all((0..2).map(|_| advance(&app, &releases[0])));
    let commit_when_both_wait = async {
        let waiting_sql =
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
        while owner.query_one(waiting_sql, &[]).await.unwrap().get::<_, i64>(0) < 2 {}
        holder.batch_execute("COMMIT").await.unwrap();
    };
    let (responses, ()) = tokio::join!(advances, commit_when_both_wait);
    let mut statuses: Vec<u16> = responses.iter().map(|response| response.status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 409]);
    for response in responses.iter().filter(|response| response.status == 409) {
        assert_eq!(response.code(), "invalid_transition", "{response}");
    }
    assert_eq!(read_rollout(&app, &releases[0]).await["current_lane"], "guided");
    assert_eq!(facts_of_kind(&app, "rollout.advanced").await.len(), 1);
}

#[tokio::test]
async fn stale_if_match_refuses_lane_changes() {
    let app = TestApp::start().await;
    let (_, releases) = approved_releases(&app, 2).await;
    activate(&app, &releases[0], json!({})).await.expect(200);
    start_rollout(&app, &releases[1], rollout_plan(&["restricted", "standard"], 0, false)).await;
    let response = app.get(format!("/v1/releases/{}", releases[1])).await;
    let seen_tag = response.header("etag").unwrap().to_owned();
    let advanced = format!("/v1/releases/{}/rollout/advance", releases[1]);
    let first_response = app.post(&advanced, json!({})).header("If-Match", &seen_tag).await;
    first_response.expect(200);
    assert_ne!(first_response.header("etag"), Some(seen_tag.as_str()));
    app.post(&advanced, json!({})).header("If-Match", &seen_tag).await.expect_refusal(412, "precondition_failed");
    let rollback_path = format!("/v1/releases/{}/rollback", releases[1]);
    app.post(&rollback_path, json!({ "reason": "x" }))
        .header("If-Match", &seen_tag)
        .await
        .expect_refusal(412, "precondition_failed");
    let verdict = json!({ "outcome": "approved", "subject_kind": "release", "subject_ref": releases[1] });
    let approvals = format!("/v1/releases/{}/approvals", releases[1]);
    app.post(&approvals, verdict).header("If-Match", &seen_tag).await.expect_refusal(412, "precondition_failed");
    let current_tag = first_response.header("etag").unwrap().to_owned();
    app.post(&rollback_path, json!({ "reason": "x" })).header("If-Match", &current_tag).await.expect(200);
}

/// The controller does not advance the rollout of a suspended workload, although its earlier runs meet the criteria.
#[tokio::test]
async fn controller_holds_rollouts_of_suspended_workloads() {
    let app = TestApp::start().await;
    let (workload, releases) = approved_releases(&app, 1).await;
    let config = json!({ "interface_config": { "presentation_mode": "form",
        "input_fields": [{ "name": "ticket", "type": "text" }], "rollout_config": { "sample_size": 1 } } });
    app.patch(format!("/v1/workloads/{workload}"), config).await.expect(200);
    start_rollout(&app, &releases[0], rollout_plan(&["standard", "guided"], 0, true)).await;
    assert_eq!(execute_status(&app, json!({ "ticket": "a refund" })).await, 200);
    app.patch(format!("/v1/workloads/{workload}"), json!({ "status": "suspended" })).await.expect(200);
    assert_eq!(app.services().rollouts.control_rollouts().await.unwrap().held, 1);
    assert_eq!(read_rollout(&app, &releases[0]).await["hold_reason"], "workload_stopped");
    // Recording a hold reason does not change the entity tag of the release.
    let response = app.get(format!("/v1/releases/{}", releases[0])).await;
    app.patch(format!("/v1/workloads/{workload}"), json!({ "status": "registered" })).await.expect(200);
    let advanced = app.post(format!("/v1/releases/{}/rollout/advance", releases[0]), json!({}));
    advanced.header("If-Match", response.header("etag").unwrap()).await.expect(200);
}

#[tokio::test]
async fn advance_requires_an_approved_release() {
    let app = TestApp::start().await;
    let (workload, releases) = approved_releases(&app, 1).await;
    let release = &releases[0];
    start_rollout(&app, release, rollout_plan(&["restricted", "standard"], 0, true)).await;
    let verdict = json!({ "outcome": "rejected", "subject_kind": "release", "subject_ref": release });
    app.post(format!("/v1/releases/{release}/approvals"), verdict).await.expect(201);
    advance(&app, release).await.expect_refusal(422, "approval_required");
    assert_eq!(lane_holders(&app, &workload).await, [json!(release), Value::Null, Value::Null]);
}

#[tokio::test]
async fn idempotency_key_replays_an_advance() {
    let app = TestApp::start().await;
    let (_, releases) = approved_releases(&app, 1).await;
    start_rollout(&app, &releases[0], rollout_plan(&["restricted", "guided", "standard"], 0, false)).await;
    let path = format!("/v1/releases/{}/rollout/advance", releases[0]);
    let first_response = app.post(&path, json!({})).idempotency_key("on").await;
    let replay = app.post(&path, json!({})).idempotency_key("on").await;
    assert_eq!((replay.expect(200), replay.header("idempotency-replayed")), (first_response.expect(200), Some("true")));
    assert_eq!(facts_of_kind(&app, "rollout.advanced").await.len(), 1);
}

/// The soak is measured by the database's clock, whatever the servers' clocks show.
#[tokio::test]
async fn controller_advances_after_the_soak_with_enough_good_runs() {
    let clock = Arc::new(MovableClock::default());
    let app = TestApp::builder().clock(clock.clone()).start().await;
    let (workload, releases) = approved_releases(&app, 1).await;
    let release = &releases[0];
    let config = json!({ "interface_config": {
        "presentation_mode": "form", "input_fields": [{ "name": "ticket", "type": "text" }],
        "rollout_config": { "sample_size": 4, "error_threshold": 0.25 },
    } });
    app.patch(format!("/v1/workloads/{workload}"), config).await.expect(200);
    start_rollout(&app, release, rollout_plan(&["standard", "guided"], 60, true)).await;
    let control_rollouts = async || {
        let report = app.services().rollouts.control_rollouts().await.unwrap();
        (report.advanced, report.held)
    };
    for _ in 0..3 {
        assert_eq!(execute_status(&app, json!({ "ticket": "a refund" })).await, 200);
    }
    assert_eq!(control_rollouts().await, (0, 0), "the soak has started");
    clock.set_offset(2 * DAY);
    assert_eq!(control_rollouts().await, (0, 0), "the server's clock does not count");
    clock.set_offset(-DAY);
    app.database().set_clock_offset(3_590).await.unwrap();
    assert_eq!(control_rollouts().await, (0, 0), "the soak has not ended");
    app.database().set_clock_offset(3_601).await.unwrap();
    assert_eq!(read_rollout(&app, release).await["hold_reason"], "too_few_runs");
    assert_eq!(control_rollouts().await, (0, 1));
    assert_eq!(control_rollouts().await, (0, 1), "the hold continues and is recorded once");
    assert_eq!(facts_of_kind(&app, "rollout.held").await.len(), 1);
    assert_eq!(execute_status(&app, json!({ "ticket": "a refund" })).await, 200);
    for _ in 0..2 {
        assert_eq!(execute_status(&app, json!({})).await, 422);
    }
    // Two of the newest four runs failed.
    let status = read_rollout(&app, release).await;
    assert_eq!(
        (&status["hold_reason"], &status["observed"]["error_rate"]),
        (&json!("rollback_recommended"), &json!(0.5))
    );
    assert_eq!(control_rollouts().await, (0, 1));
    let reasons: Vec<Value> =
        facts_of_kind(&app, "rollout.held").await.iter().map(|fact| fact["detail"]["hold_reason"].clone()).collect();
    assert_eq!(reasons, ["too_few_runs", "rollback_recommended"]);
    for _ in 0..3 {
        assert_eq!(execute_status(&app, json!({ "ticket": "a refund" })).await, 200);
    }
    assert_eq!(control_rollouts().await, (1, 0), "one failure in the newest four runs is tolerated");
    assert_eq!(lane_holders(&app, &workload).await, [Value::Null, json!(release), json!(release)]);
    let fact = &facts_of_kind(&app, "rollout.advanced").await[0];
    assert_eq!((&fact["actor"], &fact["detail"]["to_lane"]), (&json!("system:rollout-pilot"), &json!("guided")));
    assert_eq!(fact["detail"]["soak_left_seconds"], 0);
    // The soak of the next lane starts now, and this lane has no runs yet.
    assert_eq!(control_rollouts().await, (0, 0));
    let status = read_rollout(&app, release).await;
    assert_eq!((&status["observed"]["runs_ended"], &status["next_lane"]), (&json!(0), &Value::Null));
}

#[tokio::test]
async fn concurrent_controllers_advance_once_and_skip_manual_plans() {
    let app = TestApp::start().await;
    let (_, releases) = approved_releases(&app, 2).await;
    let config = json!({ "interface_config": { "presentation_mode": "form",
        "input_fields": [{ "name": "ticket", "type": "text" }], "rollout_config": { "sample_size": 1 } } });
    let workload = app.get(format!("/v1/releases/{}", releases[0])).await.expect(200)["workload_id"].clone();
    app.patch(format!("/v1/workloads/{}", workload.as_str().unwrap()), config).await.expect(200);
    start_rollout(&app, &releases[0], rollout_plan(&["standard", "guided", "restricted"], 0, false)).await;
    assert_eq!(execute_status(&app, json!({ "ticket": "a refund" })).await, 200);
    app.services().rollouts.control_rollouts().await.unwrap();
    assert_eq!(read_rollout(&app, &releases[0]).await["current_lane"], "standard");

    start_rollout(&app, &releases[1], rollout_plan(&["standard", "guided", "restricted"], 0, true)).await;
    assert_eq!(execute_status(&app, json!({ "ticket": "a refund" })).await, 200);
    let pilots = join_all((0..6).map(|_| app.services().rollouts.control_rollouts())).await;
    let advanced: u64 = pilots.into_iter().map(|report| report.unwrap().advanced).sum();
    assert_eq!(advanced, 1, "the next lane has no runs");
    assert_eq!(read_rollout(&app, &releases[1]).await["current_lane"], "guided");
    assert_eq!(read_rollout(&app, &releases[1]).await["hold_reason"], "too_few_runs");
}

#[tokio::test]
async fn blocked_gates_hold_a_rollout_until_it_ends() {
    let app = TestApp::start().await;
    let (workload, releases) = approved_releases(&app, 1).await;
    let release = &releases[0];
    let config = json!({ "interface_config": { "presentation_mode": "form",
        "input_fields": [{ "name": "ticket", "type": "text" }], "rollout_config": { "sample_size": 1 } } });
    app.patch(format!("/v1/workloads/{workload}"), config).await.expect(200);
    start_rollout(&app, release, rollout_plan(&["standard", "guided"], 0, true)).await;
    assert_eq!(execute_status(&app, json!({ "ticket": "a refund" })).await, 200);
    let verdict = json!({ "outcome": "rejected", "subject_kind": "release", "subject_ref": release });
    app.post(format!("/v1/releases/{release}/approvals"), verdict).await.expect(201);
    assert_eq!(read_rollout(&app, release).await["hold_reason"], "gate_blocked");
    assert_eq!(app.services().rollouts.control_rollouts().await.unwrap().held, 1);
    app.fixtures().transition(release, "retired").await;
    assert_eq!(app.services().rollouts.control_rollouts().await.unwrap(), Default::default());
}
