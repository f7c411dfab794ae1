//! Lane selection: the caller's chosen lane, else the lane of its binding, else `standard`. If no release holds the
//! selected lane, the next more general lane with a holder serves the run.

use crate::support::workspace_fixture::WORKSPACE;
use fairway_domain::{access::ActorRef, slug::Slug};
use fairway_operations::{
    Failure, RunRefusal,
    access::{IdentityClaims, IdentityMode},
    execution::{ExecuteRequest, RunPayload, WaitMode},
};
use fairway_testkit::{
    TestApp,
    app::{Response, Version},
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use uuid::Uuid;

const LANES: [&str; 3] = ["restricted", "guided", "standard"];

/// A workload on which some lanes have a holder, each a different release.
struct LanedWorkload {
    workload_id: String,
    slug: String,
    releases: BTreeMap<&'static str, String>,
}

impl LanedWorkload {
    async fn create(app: &TestApp, versions: &[Version], slug: &str, lanes: &[&'static str]) -> Self {
        let workload_id = app.fixtures().workload(slug).await;
        let mut releases = BTreeMap::new();
        for &lane in lanes {
            let release = app.fixtures().approved_release(&workload_id, versions).await;
            let body = json!({ "to_state": "active", "lane": lane });
            app.post(format!("/v1/releases/{release}/transition"), body).await.expect(200);
            releases.insert(lane, release);
        }
        Self { workload_id, slug: slug.to_owned(), releases }
    }

    fn bindings_path(&self) -> String {
        format!("/v1/workloads/{}/principal-bindings", self.workload_id)
    }

    async fn bind(&self, app: &TestApp, principal: &str, lane: Option<&str>) {
        app.put(self.bindings_path(), json!({ "principal": principal, "lane": lane })).await.expect(200);
    }

    async fn execute(&self, app: &TestApp, actor: &str, chosen: Option<&str>) -> Response {
        let mut body = json!({ "environment": "dev", "inputs": { "ticket": "a refund" } });
        if let Some(lane) = chosen {
            body["lane"] = lane.into();
        }
        app.post(format!("/v1/workloads/by-slug/{}/execute", self.slug), body).as_actor(actor).await
    }

    /// The lane that served a run. Asserts that the run, its evidence, the release that holds the lane and the policy's
    /// reason code agree on the lane.
    async fn assert_serving_lane(&self, app: &TestApp, ran: &Response) -> String {
        let id = ran.expect(200)["execution_id"].as_str().unwrap().to_owned();
        let execution = app.get(format!("/v1/executions/{id}")).await.expect(200);
        let lane = execution["lane"].as_str().unwrap().to_owned();
        assert_eq!(
            (&execution["reason_code"], &execution["release_id"]),
            (&json!(lane), &json!(self.releases[lane.as_str()]))
        );
        let evidence = app.get(format!("/v1/executions/{id}/evidence-graph")).await.expect(200);
        assert_eq!(evidence["policy_decision"]["reason_code"], lane.as_str(), "{evidence}");
        assert_eq!(evidence["execution"]["release_id"], execution["release_id"], "{evidence}");
        lane
    }
}

/// The versions that a release binds. Their policy returns the lane as its reason code.
async fn lane_reporting_versions(app: &TestApp) -> Vec<Version> {
    let fixtures = app.fixtures();
    let rule = |lane: &str| json!({ "id": lane, "condition": format!("lane == '{lane}'"), "outcome": "allow", "reason_code": lane });
    let policy = fixtures.policy_with_rules("policy", LANES.map(rule).into_iter().collect()).await;
    vec![fixtures.ticket_prompt("prompt").await, fixtures.model_policy("model").await, policy]
}

#[tokio::test]
async fn routes_a_run_to_the_next_more_general_lane_only() {
    let app = TestApp::start().await;
    let versions = lane_reporting_versions(&app).await;
    // Iterates over every non-empty subset of lanes with a holder; each bit of the number stands for one lane.
    for held_lanes in 1_u8..8 {
        let lanes: Vec<&str> = LANES
            .into_iter()
            .enumerate()
            .filter(|(index, _)| held_lanes & (1 << index) != 0)
            .map(|(_, lane)| lane)
            .collect();
        let workload = LanedWorkload::create(&app, &versions, &format!("w-{held_lanes}"), &lanes).await;
        for (index, requested) in LANES.into_iter().enumerate() {
            let expected = LANES.into_iter().skip(index).find(|lane| lanes.contains(lane));
            let bound_actor = format!("user:{requested}");
            workload.bind(&app, &bound_actor, Some(requested)).await;
            let mut runs = vec![
                workload.execute(&app, &bound_actor, None).await,
                workload.execute(&app, "user:local", Some(requested)).await,
            ];
            if requested == "standard" {
                // Callers without a binding, or with a binding without a lane, use `standard`.
                workload.bind(&app, "user:open", None).await;
                runs.push(workload.execute(&app, "user:open", None).await);
                runs.push(workload.execute(&app, "user:unbound", None).await);
            }
            for run in runs {
                match expected {
                    Some(lane) => {
                        assert_eq!(workload.assert_serving_lane(&app, &run).await, lane, "{requested} of {lanes:?}")
                    }
                    None => drop(run.expect_refusal(409, "no_active_release")),
                }
            }
        }
    }
}

#[tokio::test]
async fn choosing_a_lane_requires_a_permission_on_the_workload() {
    let app = TestApp::start().await;
    let versions = lane_reporting_versions(&app).await;
    let workload = LanedWorkload::create(&app, &versions, "main", &LANES).await;
    let other_workload = LanedWorkload::create(&app, &versions, "other", &LANES).await;
    let fixtures = app.fixtures();
    fixtures.bind_role("user:runner", "runtime_user", "workspace", Some(WORKSPACE)).await;
    fixtures.bind_role("user:runner", "operator", "workload", Some(&other_workload.workload_id)).await;
    workload.bind(&app, "user:runner", Some("guided")).await;
    // Without the lane permission, a caller may not even choose the lane that its binding selects.
    for lane in LANES {
        let refusal = workload.execute(&app, "user:runner", Some(lane)).await.expect_refusal(403, "forbidden");
        assert_eq!(refusal["permission"], "release.transition", "{lane}");
        let response = other_workload.execute(&app, "user:runner", Some(lane)).await;
        assert_eq!(other_workload.assert_serving_lane(&app, &response).await, lane);
    }
    let runs = "SELECT count(*) FROM execution JOIN workload USING (tenant_id, workload_id) WHERE slug = 'main'";
    let owner = app.database().connect_as_owner().await.unwrap();
    assert_eq!(owner.query_one(runs, &[]).await.unwrap().get::<_, i64>(0), 0);
    let response = workload.execute(&app, "user:runner", None).await;
    assert_eq!(workload.assert_serving_lane(&app, &response).await, "guided");
    // A lane that the caller chooses overrides the lane of its binding.
    workload.bind(&app, "user:local", Some("restricted")).await;
    let response = workload.execute(&app, "user:local", Some("standard")).await;
    assert_eq!(workload.assert_serving_lane(&app, &response).await, "standard");
    // For a caller that may not see the workload, the response reveals nothing about its lanes.
    app.fixtures().bind_role("user:stranger", "runtime_user", "workload", Some(&other_workload.workload_id)).await;
    workload.execute(&app, "user:stranger", Some("guided")).await.expect_refusal(404, "not_found");
    workload.execute(&app, "anonymous", Some("guided")).await.expect_refusal(404, "not_found");
}

#[tokio::test]
async fn rejects_unknown_lanes_and_ignores_null() {
    let app = TestApp::start().await;
    let workload =
        LanedWorkload::create(&app, &lane_reporting_versions(&app).await, "main", &["restricted", "standard"]).await;
    workload.bind(&app, "user:local", Some("restricted")).await;
    for lane in ["", "all", "Standard", "standard ", "canary"] {
        let refusal = workload.execute(&app, "user:local", Some(lane)).await.expect_refusal(422, "validation_error");
        assert_eq!((&refusal["fields"][0]["path"], &refusal["fields"][0]["code"]), (&json!("lane"), &json!("invalid")));
    }
    let path = format!("/v1/workloads/by-slug/{}/execute", workload.slug);
    let response = app.post(&path, json!({ "environment": "-", "lane": "canary" })).await;
    let fields = response.expect_refusal(422, "validation_error")["fields"].clone();
    assert_eq!((&fields[0]["path"], &fields[1]["path"]), (&json!("environment"), &json!("lane")), "{fields}");
    let body = json!({ "environment": "dev", "inputs": { "ticket": "a refund" }, "lane": null });
    assert_eq!(workload.assert_serving_lane(&app, &app.post(&path, body.clone()).await).await, "restricted");
    // An idempotency key covers the whole request, including the lane.
    let first_response = app.post(&path, body.clone()).idempotency_key("once").await;
    assert_eq!(app.post(&path, body).idempotency_key("once").await.expect(200), first_response.expect(200));
    let chosen = json!({ "environment": "dev", "inputs": { "ticket": "a refund" }, "lane": "standard" });
    app.post(&path, chosen).idempotency_key("once").await.expect_refusal(409, "idempotency_key_conflict");
}

#[tokio::test]
async fn binding_changes_apply_to_the_next_request_on_every_server() {
    let app = TestApp::start().await;
    let second_server = TestApp::builder().sharing_storage_of(&app).start().await;
    let workload = LanedWorkload::create(&app, &lane_reporting_versions(&app).await, "main", &LANES).await;
    let assert_next_lane = async |expected: &str| {
        // Runs twice on each server, alternating. The second decision on a server uses the caches that the first one
        // filled.
        for server in [&app, &second_server, &app, &second_server] {
            let response = workload.execute(server, "user:ada", None).await;
            assert_eq!(workload.assert_serving_lane(server, &response).await, expected);
        }
    };
    assert_next_lane("standard").await;
    for round in 0..2 {
        let (writing_server, reading_server) = if round == 0 { (&app, &second_server) } else { (&second_server, &app) };
        workload.bind(writing_server, "user:ada", Some("restricted")).await;
        assert_next_lane("restricted").await;
        workload.bind(reading_server, "user:ada", Some("guided")).await;
        assert_next_lane("guided").await;
        workload.bind(writing_server, "user:ada", None).await;
        assert_next_lane("standard").await;
        workload.bind(reading_server, "user:ada", Some("restricted")).await;
        assert_next_lane("restricted").await;
        // A binding of another user does not apply to `user:ada`.
        workload.bind(reading_server, "user:grace", Some("guided")).await;
        assert_next_lane("restricted").await;
        writing_server.delete(format!("{}/user:ada", workload.bindings_path())).await.expect(204);
        assert_next_lane("standard").await;
    }
}

#[tokio::test]
async fn bindings_apply_to_their_workload_only() {
    let app = TestApp::start().await;
    let versions = lane_reporting_versions(&app).await;
    let first_workload = LanedWorkload::create(&app, &versions, "one", &LANES).await;
    let second_workload = LanedWorkload::create(&app, &versions, "two", &LANES).await;
    first_workload.bind(&app, "user:ada", Some("restricted")).await;
    second_workload.bind(&app, "user:ada", Some("guided")).await;
    first_workload.bind(&app, "service:ada", Some("guided")).await;
    for (workload, actor, expected) in [
        (&first_workload, "user:ada", "restricted"),
        (&second_workload, "user:ada", "guided"),
        (&first_workload, "service:ada", "guided"),
        (&second_workload, "service:ada", "standard"),
    ] {
        let response = workload.execute(&app, actor, None).await;
        assert_eq!(workload.assert_serving_lane(&app, &response).await, expected, "{actor} {}", workload.slug);
    }
}

#[tokio::test]
async fn actor_binding_precedes_groups_and_the_narrowest_group_lane_wins() {
    let app = TestApp::start().await;
    let workload = LanedWorkload::create(&app, &lane_reporting_versions(&app).await, "main", &LANES).await;
    // Local mode has no groups, so the test calls the operation directly with the claims of a token.
    let served = async |actor: &str, groups: &[&str]| {
        let reference = |text: &str| ActorRef::parse(text).unwrap();
        let claims = IdentityClaims {
            actor: reference(actor),
            groups: groups.iter().map(|group| reference(group)).collect(),
            tenant: None,
        };
        let inputs: Value = json!({ "ticket": "a refund" });
        let request = ExecuteRequest {
            slug: Slug::parse("main").unwrap(),
            environment: Slug::parse("dev").unwrap(),
            payload: RunPayload::Inputs(inputs.as_object().unwrap().clone()),
            session: None,
            lane: None,
            wait: WaitMode::End(None),
            on_behalf_of: None,
            link: None,
            address: None,
        };
        app.services()
            .executions
            .execute(IdentityMode::Local, &claims, Uuid::now_v7().into(), &request, None)
            .await
            .map(|served_run| served_run.execution.lane.as_str())
    };
    workload.bind(&app, "group:bold", Some("standard")).await;
    workload.bind(&app, "group:calm", Some("guided")).await;
    workload.bind(&app, "group:wary", Some("restricted")).await;
    workload.bind(&app, "group:open", None).await;
    workload.bind(&app, "user:ada", Some("standard")).await;
    workload.bind(&app, "user:open", None).await;
    for (actor, groups, expected) in [
        ("user:ada", &["group:wary", "group:calm"][..], "standard"),
        ("user:grace", &["group:bold", "group:wary", "group:calm"], "restricted"),
        ("user:grace", &["group:calm", "group:bold", "group:open"], "guided"),
        ("user:grace", &["group:open"], "standard"),
        ("user:grace", &["group:others"], "standard"),
        // For an actor whose binding has no lane, the bindings of its groups select the lane.
        ("user:open", &["group:calm"], "guided"),
    ] {
        assert_eq!(served(actor, groups).await.unwrap(), expected, "{actor} {groups:?}");
    }
    app.post(format!("/v1/releases/{}/transition", workload.releases["standard"]), json!({ "to_state": "retired" }))
        .await
        .expect(200);
    let error = served("user:ada", &["group:wary"]).await.unwrap_err();
    assert!(matches!(error, Failure::Run(RunRefusal::NoActiveRelease { .. })), "{error:?}");
}
