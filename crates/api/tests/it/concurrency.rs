//! Concurrent requests: no update is lost, and every lane has exactly one holder.

use crate::support::workspace_fixture::WORKSPACE;
use fairway_testkit::{TestApp, app::Response, is_long_form_requested};
use futures_util::future::join_all;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const LANES: [&str; 3] = ["restricted", "guided", "standard"];

#[tokio::test]
async fn entity_tags_guard_updates() {
    let app = TestApp::start().await;
    let workload = app.fixtures().workload("main").await;
    let path = format!("/v1/workloads/{workload}");
    let response = app.get(&path).await;
    let tag = response.header("etag").unwrap().to_owned();
    let patch = |text: &str| app.patch(&path, json!({ "description": text }));
    for stale in ["\"999\"", "W/\"1\"", "\"0\"", "\"x\""] {
        patch("stale").header("If-Match", stale).await.expect_refusal(412, "precondition_failed");
    }
    for invalid_tag in ["1", "", "\"1"] {
        patch("garbled").header("If-Match", invalid_tag).await.expect_refusal(422, "validation_error");
    }
    let response = patch("one").header("If-Match", &tag).await;
    assert_eq!(response.expect(200)["description"], "one");
    assert_ne!(response.header("etag"), Some(tag.as_str()));
    patch("two").header("If-Match", &tag).await.expect_refusal(412, "precondition_failed");
    patch("three").header("If-Match", "*").await.expect(200);
    let tag_list = format!("{tag}, {}", app.get(&path).await.header("etag").unwrap());
    patch("four").header("If-Match", tag_list).await.expect(200);
    // A patch that repeats the current value changes nothing.
    let response_before = app.get(&path).await;
    let unchanged = patch("four").await;
    assert_eq!(unchanged.expect(200), response_before.json());
    assert_eq!(unchanged.header("etag"), response_before.header("etag"));
    // A patch replaces the fields that it contains. The other fields remain.
    let renamed = app.patch(&path, json!({ "name": "Renamed" })).await.expect(200);
    assert_eq!((&renamed["name"], &renamed["description"]), (&json!("Renamed"), &json!("four")));

    let fixtures = app.fixtures();
    let policy = fixtures.allow_all_policy("policy").await;
    let release = fixtures.draft(&workload, &[policy]).await;
    let path = format!("/v1/releases/{release}");
    let tag = app.get(&path).await.header("etag").unwrap().to_owned();
    let transition = |state: &str| app.post(format!("{path}/transition"), json!({ "to_state": state }));
    transition("review_ready").header("If-Match", "\"999\"").await.expect_refusal(412, "precondition_failed");
    transition("review_ready").header("If-Match", &tag).await.expect(200);
    transition("draft").header("If-Match", &tag).await.expect_refusal(412, "precondition_failed");
}

#[tokio::test]
async fn concurrent_increments_are_not_lost() {
    let (clients, rounds) = if is_long_form_requested() { (50, 1_000) } else { (20, 20) };
    let app = TestApp::start().await;
    let workload = app.fixtures().workload("main").await;
    let path = format!("/v1/workloads/{workload}");
    app.patch(&path, json!({ "description": "0" })).await.expect(200);
    let client = async || {
        let mut increments = 0_u32;
        for _ in 0..rounds {
            let current = app.get(&path).await;
            let count: u32 = current.expect(200)["description"].as_str().unwrap().parse().unwrap();
            let body = json!({ "description": (count + 1).to_string() });
            let response = app.patch(&path, body).header("If-Match", current.header("etag").unwrap()).await;
            match response.status {
                200 => increments += 1,
                _ => drop(response.expect_refusal(412, "precondition_failed")),
            }
        }
        increments
    };
    let successes: u32 = join_all((0..clients).map(|_| client())).await.into_iter().sum();
    let final_state = app.get(&path).await.expect(200);
    assert_eq!(final_state["description"], successes.to_string());
    assert!(successes >= rounds, "only {successes} updates succeeded");
}

#[tokio::test]
async fn concurrent_changes_of_different_fields_are_all_kept() {
    let app = TestApp::start().await;
    let workload = app.fixtures().workload("main").await;
    let path = format!("/v1/workloads/{workload}");
    let changes = [json!({ "name": "Name" }), json!({ "description": "Text" }), json!({ "invocation_mode": "batch" })];
    let responses = join_all(changes.map(|change| app.patch(&path, change).into_future())).await;
    for response in &responses {
        response.expect(200);
    }
    let final_state = app.get(&path).await.expect(200);
    assert_eq!((&final_state["name"], &final_state["description"]), (&json!("Name"), &json!("Text")));
    assert_eq!(final_state["invocation_mode"], "batch");
}

/// The release that holds each lane, according to the API.
async fn holders(app: &TestApp, workload: &str) -> BTreeMap<&'static str, String> {
    let mut holders = BTreeMap::new();
    for lane in LANES {
        let path = format!("/v1/workloads/{workload}/active-release?environment=dev&lane={lane}");
        let response = app.get(path).await;
        if response.status == 200 {
            holders.insert(lane, response.json()["release_id"].as_str().unwrap().to_owned());
        }
    }
    holders
}

#[track_caller]
fn is_activated(response: &Response) -> bool {
    match response.status {
        200 => true,
        409 => {
            let detail = response.expect_refusal(409, "invalid_transition");
            let state = detail["current_state"].as_str().unwrap();
            assert!(["active", "superseded", "approved"].contains(&state), "{response}");
            assert!(detail["valid_transitions"].is_array(), "{response}");
            false
        }
        _ => panic!("neither a success nor a refusal with the current state\n{response}"),
    }
}

#[tokio::test]
async fn concurrent_activations_leave_one_holder_per_lane() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let (policy, prompt) = (fixtures.allow_all_policy("policy").await, fixtures.ticket_prompt("prompt").await);
    let versions = vec![policy, prompt, fixtures.model_policy("model").await];
    for round in 0..6 {
        let workload = fixtures.workload(&format!("round-{round}")).await;
        let releases = [
            fixtures.approved_release(&workload, &versions).await,
            fixtures.approved_release(&workload, &versions).await,
        ];
        // There are eight clients, four for each release. In odd rounds, each client activates on one lane.
        let by_lane = round % 2 == 1;
        let attempts = (0..8).map(|client| {
            let release = releases[client % 2].clone();
            let body = if by_lane {
                json!({ "to_state": "active", "lane": LANES[client % 3] })
            } else {
                json!({ "to_state": "active" })
            };
            let request = app.post(format!("/v1/releases/{release}/transition"), body);
            async move { (release, request.await) }
        });
        let mut activations: BTreeMap<String, usize> = BTreeMap::new();
        for (release, response) in join_all(attempts).await {
            if is_activated(&response) {
                *activations.entry(release).or_default() += 1;
            }
        }
        let lane_holders = holders(&app, &workload).await;
        assert_eq!(lane_holders.len(), 3, "round {round}: every lane has a holder: {lane_holders:?}");
        let states: BTreeMap<String, Value> = {
            let mut states = BTreeMap::new();
            for release in &releases {
                let release_view = app.get(format!("/v1/releases/{release}")).await.expect(200);
                states.insert(release.clone(), release_view["state"].clone());
            }
            states
        };
        for (release, state) in &states {
            let holds = lane_holders.values().any(|holder| holder == release);
            let expected = match (holds, activations.contains_key(release)) {
                (true, _) => "active",
                (false, true) => "superseded",
                (false, false) => "approved",
            };
            assert_eq!(state, expected, "round {round}");
        }
        if !by_lane {
            assert!(
                activations.values().all(|times| *times == 1),
                "a release is activated once for all lanes: {activations:?}"
            );
            assert_eq!(lane_holders.values().collect::<std::collections::BTreeSet<_>>().len(), 1);
        }
        // The history of each lane is an unbroken chain of holders.
        let owner = app.database().connect_as_owner().await.unwrap();
        let sql = "SELECT count(*) FROM deployment WHERE workload_id = $1::text::uuid";
        let rows: i64 = owner.query_one(sql, &[&workload]).await.unwrap().get(0);
        assert_eq!(rows, 1);
        let sql = "SELECT lane, from_release_id::text, to_release_id::text FROM deployment_history
            WHERE workload_id = $1::text::uuid ORDER BY lane, revision";
        let mut last_holders: BTreeMap<String, Option<String>> = BTreeMap::new();
        for row in owner.query(sql, &[&workload]).await.unwrap() {
            let (lane, from_id, to_id): (String, Option<String>, Option<String>) = (row.get(0), row.get(1), row.get(2));
            assert_eq!(last_holders.get(&lane).cloned().flatten(), from_id, "round {round}, {lane}");
            last_holders.insert(lane, to_id);
        }
        for lane in LANES {
            assert_eq!(last_holders[lane].as_ref(), lane_holders.get(lane), "round {round}, {lane}");
        }
    }
}

#[tokio::test]
async fn concurrent_creations_keep_roles_slugs_and_labels_unique() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let workload = fixtures.workload("main").await;
    let (first_policy, second_policy) =
        (fixtures.allow_all_policy("one").await, fixtures.allow_all_policy("two").await);
    let release = fixtures.draft(&workload, &[]).await;
    let path = format!("/v1/releases/{release}/bindings");
    let bind = |version: &fairway_testkit::app::Version| {
        let body = json!({ "asset_version_id": version.asset_version_id, "role": "policy_bundle" });
        app.post(&path, body).into_future()
    };
    let responses =
        join_all([bind(&first_policy), bind(&second_policy), bind(&first_policy), bind(&second_policy)]).await;
    assert_eq!(responses.iter().filter(|response| response.status == 201).count(), 1, "{responses:?}");
    for response in responses.iter().filter(|response| response.status != 201) {
        response.expect_refusal(409, "duplicate_role");
    }
    let release_view = app.get(format!("/v1/releases/{release}")).await.expect(200);
    assert_eq!(release_view["bindings"].as_array().unwrap().len(), 1);
    // Concurrent creations with one slug: exactly one succeeds.
    let body = json!({ "slug": "raced", "asset_kind": "skill", "owner_ref": "team:a" });
    let responses = join_all((0..10).map(|_| app.post("/v1/assets", body.clone()).into_future())).await;
    assert_eq!(responses.iter().filter(|response| response.status == 201).count(), 1);
    for response in responses.iter().filter(|response| response.status != 201) {
        response.expect_refusal(409, "duplicate_slug");
    }
    // Concurrent versions get unique generated labels.
    let prompt = fixtures.asset_without_versions("prompt_template", "labels").await;
    let body = json!({ "content": { "system_prompt": "x" } });
    let path = format!("/v1/assets/{prompt}/versions");
    let responses = join_all((0..20).map(|_| app.post(&path, body.clone()).into_future())).await;
    let mut labels: Vec<String> = responses
        .iter()
        .map(|response| response.expect(201)["version_label"].as_str().unwrap()[1..].to_owned())
        .collect();
    labels.sort_by_key(|label| label.parse::<u32>().unwrap());
    assert_eq!(labels, (1..=20).map(|number| number.to_string()).collect::<Vec<_>>());
    let listed = app.get(format!("{path}?workspace_id={WORKSPACE}")).await;
    assert_eq!(listed.header("x-total-count"), Some("20"));
}
