//! The list of runs: visibility, filters, and pagination while new runs arrive.

use crate::{
    execution::run,
    list_pagination::all_rows,
    support::workspace_fixture::{WORKSPACE, WorkspaceFixture},
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
    let runs = app.get(format!("/v1/executions{query}")).as_actor(actor).await.expect(200);
    execution_ids(runs.as_array().unwrap()).into_iter().map(str::to_owned).collect()
}

#[tokio::test]
async fn callers_see_the_runs_of_their_scopes_without_results() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let other_workspace = fixtures.workspace("next-door", "next-door").await;
    let (first_workload, second_workload) =
        (fixtures.active_workload("one").await, fixtures.active_workload("two").await);
    let third_workload = fixtures.in_workspace(&other_workspace).active_workload("three").await;
    let foreign_fixture = WorkspaceFixture::in_other_tenant(&app).await;
    let (first_run, second_run, third_run) = (
        execute_run(&app, &first_workload).await,
        execute_run(&app, &second_workload).await,
        execute_run(&app, &third_workload).await,
    );

    fixtures.bind_role("user:here", "viewer", "workspace", Some(WORKSPACE)).await;
    fixtures.bind_role("user:there", "viewer", "workspace", Some(&other_workspace)).await;
    fixtures.bind_role("user:single", "viewer", "workload", Some(&second_workload.workload_id)).await;
    fixtures.bind_role("user:both", "viewer", "workspace", Some(WORKSPACE)).await;
    fixtures.bind_role("user:both", "viewer", "workload", Some(&first_workload.workload_id)).await;
    fixtures.bind_role("user:both", "viewer", "workload", Some(&third_workload.workload_id)).await;
    fixtures.bind_role("user:runs", "runtime_user", "workspace", Some(WORKSPACE)).await;
    for (actor, visible_runs) in [
        ("user:local", vec![&third_run, &second_run, &first_run]),
        ("user:here", vec![&second_run, &first_run]),
        ("user:there", vec![&third_run]),
        ("user:single", vec![&second_run]),
        ("user:both", vec![&third_run, &second_run, &first_run]),
    ] {
        assert_eq!(ids_visible_to(&app, actor, "").await.iter().collect::<Vec<_>>(), visible_runs, "{actor}");
        for (workload, id) in
            [(&first_workload, &first_run), (&second_workload, &second_run), (&third_workload, &third_run)]
        {
            let visible_ids = if visible_runs.contains(&id) { vec![id.clone()] } else { Vec::new() };
            for query in [
                format!("?workload_id={}", workload.workload_id),
                format!("?release_id={}", workload.release_id),
                format!("?workload_id={}&release_id={}", workload.workload_id, workload.release_id),
                format!("?release_id={}&status=completed", workload.release_id),
            ] {
                assert_eq!(ids_visible_to(&app, actor, &query).await, visible_ids, "{actor} {query}");
            }
        }
        let contradicting_filters =
            format!("?workload_id={}&release_id={}", first_workload.workload_id, second_workload.release_id);
        assert!(
            ids_visible_to(&app, actor, &contradicting_filters).await.is_empty(),
            "the release belongs to another workload"
        );
    }
    // A runtime user may read its own runs individually, but may not list runs.
    app.get("/v1/executions").as_actor("user:runs").await.expect_refusal(403, "forbidden");
    app.get("/v1/executions").as_actor("anonymous").await.expect_refusal(403, "forbidden");
    // Another tenant sees only its own runs.
    let foreign_runs = app.get("/v1/executions").in_tenant(&foreign_fixture.tenant).await.expect(200);
    assert_eq!(execution_ids(foreign_runs.as_array().unwrap()), [&foreign_fixture.execution]);
    let foreign = format!("/v1/executions?release_id={}", first_workload.release_id);
    assert_eq!(app.get(foreign).in_tenant(&foreign_fixture.tenant).await.expect(200), json!([]));
    let foreign = format!("/v1/executions?workload_id={}", foreign_fixture.workload.workload_id);
    assert_eq!(app.get(foreign).await.expect(200), json!([]));

    for query in ["since=9999-12-31T23:59:59-00:01", "until=9999-12-31T23:59:59-23:59", "since=10000-01-01T00:00:00Z"] {
        app.get(format!("/v1/executions?{query}")).await.expect_refusal(422, "validation_error");
    }

    let runs = app.get("/v1/executions").await.expect(200);
    for row in runs.as_array().unwrap() {
        let mut execution =
            app.get(format!("/v1/executions/{}", row["execution_id"].as_str().unwrap())).await.expect(200);
        assert!(execution["queued_result"]["result"].is_string(), "the submitter reads the result of a single run");
        (execution["queued_result"], execution["steps"]) = (Value::Null, Value::Null);
        assert_eq!(*row, execution);
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
    let denied_run = refusal["execution_id"].as_str().unwrap().to_owned();
    let by_status = [("completed", vec![&completed]), ("running", vec![]), ("queued", vec![]), ("unknown", vec![])];
    for (status, expected) in by_status {
        let visible_ids = ids_visible_to(&app, "user:local", &format!("?status={status}")).await;
        assert_eq!(visible_ids.iter().collect::<Vec<_>>(), expected, "{status}");
    }

    let runs = app.get("/v1/executions").await.expect(200);
    let start_times: Vec<&str> =
        runs.as_array().unwrap().iter().map(|row| row["started_at"].as_str().unwrap()).collect();
    assert_eq!(start_times.len(), 3);
    for (query, expected) in [
        (format!("?since={}", "2020-01-01T00:00:00Z"), vec![&denied_run, &failed, &completed]),
        (format!("?until={}", "2020-01-01T00:00:00%2B02:00"), vec![]),
        (format!("?since={}", "9999-12-31T23:59:59Z"), vec![]),
        (format!("?until={}", "9999-12-31T23:59:59.999999999Z"), vec![&denied_run, &failed, &completed]),
        ("?since=2016-12-31T23:59:60Z&until=2017-01-01T00:00:00z".to_owned(), vec![]),
        ("?since=2016-12-31t23:59:60z".to_owned(), vec![&denied_run, &failed, &completed]),
        ("?since=2020-03-29T02:30:00%2B01:00".to_owned(), vec![&denied_run, &failed, &completed]),
        ("?since=1960-01-01T00:00:00Z".to_owned(), vec![&denied_run, &failed, &completed]),
        ("?since=2030-01-01T00:00:00Z&until=2020-01-01T00:00:00Z".to_owned(), vec![]),
    ] {
        let visible_ids = ids_visible_to(&app, "user:local", &query).await;
        assert_eq!(visible_ids.iter().collect::<Vec<_>>(), expected, "{query}");
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
    let refusal = app.get("/v1/executions?since=x&until=y&status=z").await.expect_refusal(422, "validation_error");
    assert_eq!(refusal["fields"].as_array().unwrap().len(), 3, "the refusal reports all errors");
}

/// The end of one time window is the start of the next. Each run is in exactly one of them.
#[tokio::test]
async fn adjacent_time_windows_neither_overlap_nor_miss_runs() {
    let app = TestApp::start().await;
    let workload = app.active_workload("main").await;
    for _ in 0..6 {
        execute_run(&app, &workload).await;
    }
    let runs = app.get("/v1/executions").await.expect(200);
    for row in runs.as_array().unwrap() {
        let start_time = row["started_at"].as_str().unwrap();
        let earlier = ids_visible_to(&app, "user:local", &format!("?until={start_time}")).await;
        let later_runs = ids_visible_to(&app, "user:local", &format!("?since={start_time}")).await;
        let all_runs: Vec<&str> = later_runs.iter().chain(&earlier).map(String::as_str).collect();
        assert_eq!(all_runs, execution_ids(runs.as_array().unwrap()), "{start_time}");
    }
}

#[tokio::test]
async fn pagination_of_runs_is_stable_while_runs_arrive() {
    let app = TestApp::start().await;
    let (first_workload, second_workload) = (app.active_workload("one").await, app.active_workload("two").await);
    let mut old_runs = Vec::new();
    for number in 0..7 {
        old_runs.push(execute_run(&app, if number % 2 == 0 { &first_workload } else { &second_workload }).await);
    }
    old_runs.reverse();
    for filter in ["limit=3".to_owned(), format!("limit=2&workload_id={}", first_workload.workload_id)] {
        let first_response = app.get(format!("/v1/executions?{filter}")).await;
        let mut seen_rows = first_response.expect(200).as_array().unwrap().clone();
        let newest_id = execution_ids(&seen_rows).first().map(|id| (*id).to_owned()).unwrap();
        execute_run(&app, &first_workload).await;
        execute_run(&app, &second_workload).await;
        let link = first_response.header("link").unwrap();
        let next_path = link.strip_prefix('<').unwrap().strip_suffix(">; rel=\"next\"").unwrap();
        seen_rows.extend(all_rows(&app, next_path.to_owned()).await);
        let whole_list =
            app.get(format!("/v1/executions?{}&limit=200", filter.split_once('&').map_or("", |parts| parts.1))).await;
        let all_rows = whole_list.expect(200);
        let remaining_rows =
            all_rows.as_array().unwrap().iter().skip_while(|row| row["execution_id"] != newest_id.as_str());
        assert_eq!(seen_rows, remaining_rows.cloned().collect::<Vec<_>>(), "{filter}");
    }
    assert_eq!(app.get("/v1/executions").await.header("x-total-count"), Some("11"));
}

#[tokio::test]
async fn submitter_reads_its_result_until_the_retention_ends() {
    let app = TestApp::start().await;
    let workload = app.active_workload("main").await;
    let path = format!("/v1/executions/{}", execute_run(&app, &workload).await);
    let day = 24 * 60 * 60;
    let page_before = app.get(&path).await.expect(200);
    assert!(page_before["queued_result"]["result"].is_string());
    app.database().set_clock_offset(30 * day - 60).await.unwrap();
    assert_eq!(app.get(&path).await.expect(200), page_before);
    app.database().set_clock_offset(30 * day + 60).await.unwrap();
    let page_after = app.get(&path).await.expect(200);
    assert_eq!((&page_after["queued_result"], &page_after["status"]), (&Value::Null, &json!("completed")));
    app.get(format!("{path}/evidence-graph")).await.expect(200);
}
