//! The list of runs: visibility, filters, and pagination while new runs arrive.

use crate::{
    execution::run,
    fixture::{WORKSPACE, WorkspaceFixture},
    list_pagination::all_rows,
};
use fairway_domain::execution::provider::ProviderError;
use fairway_testkit::{ProviderBehaviour, StubProvider, TestApp, app::ActiveWorkload};
use serde_json::{Value, json};

async fn execute_run(app: &TestApp, workload: &ActiveWorkload) -> String {
    run(app, workload).await.expect(200)["execution_id"].as_str().unwrap().to_owned()
}

fn execution_ids(rows: &[Value]) -> Vec<&str> {
    rows.iter().map(|row| row["execution_id"].as_str().unwrap()).collect()
}

async fn ids_visible_to(app: &TestApp, actor: &str, query: &str) -> Vec<String> {
    let list = app.get(format!("/v1/executions{query}")).as_actor(actor).await.expect(200);
    execution_ids(list.as_array().unwrap()).into_iter().map(str::to_owned).collect()
}

#[tokio::test]
async fn callers_see_the_runs_of_their_scopes_without_results() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let next_door = fixtures.workspace("next-door", "next-door").await;
    let (one, two) = (fixtures.active_workload("one").await, fixtures.active_workload("two").await);
    let three = fixtures.in_workspace(&next_door).active_workload("three").await;
    let abroad = WorkspaceFixture::in_other_tenant(&app).await;
    let (first, second, third) =
        (execute_run(&app, &one).await, execute_run(&app, &two).await, execute_run(&app, &three).await);

    fixtures.bind_role("user:here", "viewer", "workspace", Some(WORKSPACE)).await;
    fixtures.bind_role("user:there", "viewer", "workspace", Some(&next_door)).await;
    fixtures.bind_role("user:single", "viewer", "workload", Some(&two.workload_id)).await;
    fixtures.bind_role("user:both", "viewer", "workspace", Some(WORKSPACE)).await;
    fixtures.bind_role("user:both", "viewer", "workload", Some(&one.workload_id)).await;
    fixtures.bind_role("user:both", "viewer", "workload", Some(&three.workload_id)).await;
    fixtures.bind_role("user:runs", "runtime_user", "workspace", Some(WORKSPACE)).await;
    for (actor, seen) in [
        ("user:local", vec![&third, &second, &first]),
        ("user:here", vec![&second, &first]),
        ("user:there", vec![&third]),
        ("user:single", vec![&second]),
        ("user:both", vec![&third, &second, &first]),
    ] {
        assert_eq!(ids_visible_to(&app, actor, "").await.iter().collect::<Vec<_>>(), seen, "{actor}");
        for (workload, id) in [(&one, &first), (&two, &second), (&three, &third)] {
            let seen = if seen.contains(&id) { vec![id.clone()] } else { Vec::new() };
            for query in [
                format!("?workload_id={}", workload.workload_id),
                format!("?release_id={}", workload.release_id),
                format!("?workload_id={}&release_id={}", workload.workload_id, workload.release_id),
                format!("?release_id={}&status=completed", workload.release_id),
            ] {
                assert_eq!(ids_visible_to(&app, actor, &query).await, seen, "{actor} {query}");
            }
        }
        let apart = format!("?workload_id={}&release_id={}", one.workload_id, two.release_id);
        assert!(ids_visible_to(&app, actor, &apart).await.is_empty(), "the release belongs to another workload");
    }
    // A runtime user may read its own runs individually, but may not list runs.
    app.get("/v1/executions").as_actor("user:runs").await.expect_refusal(403, "forbidden");
    app.get("/v1/executions").as_actor("anonymous").await.expect_refusal(403, "forbidden");
    // Another tenant sees only its own runs.
    let theirs = app.get("/v1/executions").in_tenant(&abroad.tenant).await.expect(200);
    assert_eq!(execution_ids(theirs.as_array().unwrap()), [&abroad.execution]);
    let foreign = format!("/v1/executions?release_id={}", one.release_id);
    assert_eq!(app.get(foreign).in_tenant(&abroad.tenant).await.expect(200), json!([]));
    let foreign = format!("/v1/executions?workload_id={}", abroad.workload.workload_id);
    assert_eq!(app.get(foreign).await.expect(200), json!([]));

    for query in ["since=9999-12-31T23:59:59-00:01", "until=9999-12-31T23:59:59-23:59", "since=10000-01-01T00:00:00Z"] {
        app.get(format!("/v1/executions?{query}")).await.expect_refusal(422, "validation_error");
    }

    let list = app.get("/v1/executions").await.expect(200);
    for row in list.as_array().unwrap() {
        let mut read = app.get(format!("/v1/executions/{}", row["execution_id"].as_str().unwrap())).await.expect(200);
        assert!(read["queued_result"]["result"].is_string(), "the submitter reads the result of a single run");
        (read["queued_result"], read["steps"]) = (Value::Null, Value::Null);
        assert_eq!(*row, read);
    }
}

#[tokio::test]
async fn filters_runs_by_status_and_time() {
    let provider = StubProvider::new(ProviderBehaviour::Answers("billing".to_owned()));
    let app = TestApp::builder().provider(provider.clone()).start().await;
    let fixtures = app.fixtures();
    let rules = json!([
        { "id": "yes", "condition": "always", "outcome": "allow", "reason_code": "usual" },
        { "id": "no", "condition": "inputs.ticket == 'no'", "outcome": "deny", "reason_code": "no" },
    ]);
    let workload =
        fixtures.active_workload_with_policy("main", fixtures.policy_with_rules("strict", rules).await).await;
    let completed = execute_run(&app, &workload).await;
    provider.set_behaviour(ProviderBehaviour::Fails(ProviderError::Unavailable));
    let failed = execute_run(&app, &workload).await;
    let no = json!({ "environment": "dev", "inputs": { "ticket": "no" } });
    let refusal = app.post(workload.execute_path(), no).await.expect_refusal(403, "policy_denied");
    let denied = refusal["execution_id"].as_str().unwrap().to_owned();
    let by_status = [("completed", vec![&completed]), ("running", vec![]), ("queued", vec![]), ("unknown", vec![])];
    for (status, expected) in by_status {
        let seen = ids_visible_to(&app, "user:local", &format!("?status={status}")).await;
        assert_eq!(seen.iter().collect::<Vec<_>>(), expected, "{status}");
    }

    let list = app.get("/v1/executions").await.expect(200);
    let began: Vec<&str> = list.as_array().unwrap().iter().map(|row| row["started_at"].as_str().unwrap()).collect();
    assert_eq!(began.len(), 3);
    for (query, expected) in [
        (format!("?since={}", "2020-01-01T00:00:00Z"), vec![&denied, &failed, &completed]),
        (format!("?until={}", "2020-01-01T00:00:00%2B02:00"), vec![]),
        (format!("?since={}", "9999-12-31T23:59:59Z"), vec![]),
        (format!("?until={}", "9999-12-31T23:59:59.999999999Z"), vec![&denied, &failed, &completed]),
        ("?since=2016-12-31T23:59:60Z&until=2017-01-01T00:00:00z".to_owned(), vec![]),
        ("?since=2016-12-31t23:59:60z".to_owned(), vec![&denied, &failed, &completed]),
        ("?since=2020-03-29T02:30:00%2B01:00".to_owned(), vec![&denied, &failed, &completed]),
        ("?since=1960-01-01T00:00:00Z".to_owned(), vec![&denied, &failed, &completed]),
        ("?since=2030-01-01T00:00:00Z&until=2020-01-01T00:00:00Z".to_owned(), vec![]),
    ] {
        let seen = ids_visible_to(&app, "user:local", &query).await;
        assert_eq!(seen.iter().collect::<Vec<_>>(), expected, "{query}");
    }
    for (name, value) in [
        ("status", "done"),
        ("status", ""),
        ("since", "yesterday"),
        ("since", "2026-01-01"),
        ("since", "2026-01-01T00:00:00"),
        ("until", "1767225600"),
        ("until", "2026-02-30T00:00:00Z"),
        ("until", "2026-01-01T00:00:00+02:00"),
        ("workload_id", "x"),
        ("release_id", "x"),
    ] {
        let refusal = app.get(format!("/v1/executions?{name}={value}")).await.expect_refusal(422, "validation_error");
        assert_eq!(refusal["fields"][0]["path"], name, "{value}");
    }
    let both = app.get("/v1/executions?since=x&until=y&status=z").await.expect_refusal(422, "validation_error");
    assert_eq!(both["fields"].as_array().unwrap().len(), 3, "the refusal reports all errors");
}

/// The end of one time window is the start of the next. Each run is in exactly one of them.
#[tokio::test]
async fn adjacent_time_windows_neither_overlap_nor_miss_runs() {
    let app = TestApp::start().await;
    let workload = app.active_workload("main").await;
    for _ in 0..6 {
        execute_run(&app, &workload).await;
    }
    let list = app.get("/v1/executions").await.expect(200);
    for row in list.as_array().unwrap() {
        let edge = row["started_at"].as_str().unwrap();
        let earlier = ids_visible_to(&app, "user:local", &format!("?until={edge}")).await;
        let later = ids_visible_to(&app, "user:local", &format!("?since={edge}")).await;
        let all: Vec<&str> = later.iter().chain(&earlier).map(String::as_str).collect();
        assert_eq!(all, execution_ids(list.as_array().unwrap()), "{edge}");
    }
}

#[tokio::test]
async fn pagination_of_runs_is_stable_while_runs_arrive() {
    let app = TestApp::start().await;
    let (one, two) = (app.active_workload("one").await, app.active_workload("two").await);
    let mut old = Vec::new();
    for number in 0..7 {
        old.push(execute_run(&app, if number % 2 == 0 { &one } else { &two }).await);
    }
    old.reverse();
    for filter in ["limit=3".to_owned(), format!("limit=2&workload_id={}", one.workload_id)] {
        let first_response = app.get(format!("/v1/executions?{filter}")).await;
        let mut seen = first_response.expect(200).as_array().unwrap().clone();
        let newest = execution_ids(&seen).first().map(|id| (*id).to_owned()).unwrap();
        execute_run(&app, &one).await;
        execute_run(&app, &two).await;
        let link = first_response.header("link").unwrap();
        let next = link.strip_prefix('<').unwrap().strip_suffix(">; rel=\"next\"").unwrap();
        seen.extend(all_rows(&app, next.to_owned()).await);
        let whole = app.get(format!("/v1/executions?{}&limit=200", filter.split_once('&').map_or("", |of| of.1))).await;
        let whole = whole.expect(200);
        let behind = whole.as_array().unwrap().iter().skip_while(|row| row["execution_id"] != newest.as_str());
        assert_eq!(seen, behind.cloned().collect::<Vec<_>>(), "{filter}");
    }
    assert_eq!(app.get("/v1/executions").await.header("x-total-count"), Some("11"));
}

#[tokio::test]
async fn submitter_reads_its_result_until_the_retention_ends() {
    let app = TestApp::start().await;
    let workload = app.active_workload("main").await;
    let path = format!("/v1/executions/{}", execute_run(&app, &workload).await);
    let day = 24 * 60 * 60;
    let before = app.get(&path).await.expect(200);
    assert!(before["queued_result"]["result"].is_string());
    app.database().move_clock(30 * day - 60).await.unwrap();
    assert_eq!(app.get(&path).await.expect(200), before);
    app.database().move_clock(30 * day + 60).await.unwrap();
    let after = app.get(&path).await.expect(200);
    assert_eq!((&after["queued_result"], &after["status"]), (&Value::Null, &json!("completed")));
    app.get(format!("{path}/evidence-graph")).await.expect(200);
}
