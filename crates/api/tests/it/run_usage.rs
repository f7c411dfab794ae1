//! Usage of runs: tokens and cost in the list of runs, its filters, totals, and metrics of ended runs.

use crate::{
    dispatch::submit_queued_run,
    execution::{run, wait_until_ended},
    support::workspace_fixture::{WORKSPACE, WorkspaceFixture},
};
use fairway_domain::execution::provider::{
    Completion, DeltaListener, EmbeddingCall, Embeddings, Provider, ProviderCall, ProviderError, ProviderFailure,
};
use fairway_testkit::TestApp;
use serde_json::{Value, json};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// A provider that refuses, or answers with three input tokens, two output tokens and a cost of seven.
#[derive(Default)]
struct PricedProvider {
    refuses: AtomicBool,
}

#[async_trait::async_trait]
impl Provider for PricedProvider {
    async fn complete(
        &self,
        _call: &ProviderCall,
        _listener: Option<&dyn DeltaListener>,
    ) -> Result<Completion, ProviderFailure> {
        if self.refuses.load(Ordering::SeqCst) {
            return Err(ProviderError::Refused.into());
        }
        let text = "billing".to_owned();
        Ok(Completion { text, tokens_in: 3, tokens_out: 2, cost_micros: Some(7), ..Completion::default() })
    }

    async fn embed(&self, _call: &EmbeddingCall) -> Result<Embeddings, ProviderFailure> {
        Err(ProviderError::Unsupported.into())
    }

    fn residency(&self, _account_slot: &str) -> Option<&str> {
        None
    }
}

async fn start() -> (TestApp, Arc<PricedProvider>) {
    let provider = Arc::new(PricedProvider::default());
    (TestApp::builder().provider(provider.clone()).start().await, provider)
}

async fn rows(app: &TestApp, path: &str) -> Vec<Value> {
    app.get(path).await.expect(200).as_array().unwrap().clone()
}

/// The value of a series in `/metrics`, or zero if the series is absent.
async fn metric(app: &TestApp, series: &str) -> u64 {
    let text = app.get("/metrics").await.text();
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.map_or(0, |value| value.parse().unwrap())
}

#[tokio::test]
async fn lists_show_and_filter_runs_by_their_properties() {
    let (app, provider) = start().await;
    let (first_workload, second_workload) = (app.active_workload("one").await, app.active_workload("two").await);
    let id = |response: Value| response["execution_id"].as_str().unwrap().to_owned();
    let completed_run = id(run(&app, &first_workload).await.expect(200));
    let other_run = id(run(&app, &second_workload).as_actor("user:ada").await.expect(200));
    provider.refuses.store(true, Ordering::SeqCst);
    let failed = id(run(&app, &first_workload).as_actor("user:ada").await.expect(200));

    let listed = rows(&app, "/v1/executions").await;
    assert_eq!(
        listed.iter().map(|row| row["execution_id"].as_str().unwrap()).collect::<Vec<_>>(),
        [&failed, &other_run, &completed_run]
    );
    let execution = app.get(format!("/v1/executions/{completed_run}")).await.expect(200);
    for row in [&listed[2], &execution] {
        let parts = ["workload_slug", "tokens_in", "tokens_out", "cost_micros"].map(|name| row[name].clone());
        assert_eq!(parts, [json!("one"), json!(3), json!(2), json!(7)], "{row}");
        assert!(row["duration_ms"].is_u64(), "{row}");
    }
    assert_eq!((&listed[0]["tokens_in"], &listed[0]["error"]["code"]), (&Value::Null, &json!("provider_refused")));
    for (query, expected) in [
        ("environment=dev", vec![&failed, &other_run, &completed_run]),
        ("environment=production", vec![]),
        ("lane=standard&submitted_by=user:ada", vec![&failed, &other_run]),
        ("lane=guided", vec![]),
        ("error_code=provider_refused", vec![&failed]),
        ("error_code=provider_refused&status=failed&environment=dev", vec![&failed]),
        ("error_code=provider_refused&status=completed", vec![]),
        ("error_code=interrupted", vec![]),
        ("submitted_by=user:ada&status=completed", vec![&other_run]),
        ("submitted_by=user:ada&status=failed", vec![&failed]),
        ("submitted_by=user:ada&status=running", vec![]),
        ("submitted_by=user:nobody", vec![]),
    ] {
        let found = rows(&app, &format!("/v1/executions?{query}")).await;
        let found: Vec<&str> = found.iter().map(|row| row["execution_id"].as_str().unwrap()).collect();
        assert_eq!(found, expected, "{query}");
        let first_usage =
            rows(&app, &format!("/v1/executions?{query}&workload_id={}", first_workload.workload_id)).await;
        assert_eq!(first_usage.len(), expected.iter().filter(|id| **id != &other_run).count(), "{query}");
    }
    for (name, value) in [
        ("environment", ""),
        ("environment", "Dev"),
        ("lane", "slow"),
        ("error_code", ""),
        ("error_code", "Timeout"),
        ("error_code", "a'--"),
        ("submitted_by", "ada"),
        ("submitted_by", "user:"),
    ] {
        let refusal = app.get(format!("/v1/executions?{name}={value}")).await.expect_refusal(422, "validation_error");
        assert_eq!(refusal["fields"][0]["path"], name, "{value}");
    }
}

#[tokio::test]
async fn lists_compute_the_usage_of_runs_that_ended_without_stored_usage() {
    let (app, _provider) = start().await;
    let workload = app.active_workload("main").await;
    for _ in 0..2 {
        run(&app, &workload).await.expect(200);
    }
    let listed_with_stored_usage = rows(&app, "/v1/executions").await;
    let counts = |rows: &[Value]| rows.iter().map(|row| row["tokens_in"].as_u64()).collect::<Vec<_>>();
    assert_eq!(counts(&listed_with_stored_usage), [Some(3), Some(3)]);

    let newest = listed_with_stored_usage[0]["execution_id"].as_str().unwrap();
    // As for a run that ended before the migration that added stored usage.
    let forget = format!(
        "UPDATE execution SET has_stored_usage = NULL, total_tokens_in = NULL, total_tokens_out = NULL,
            total_cost_micros = NULL
         WHERE execution_id = '{newest}'"
    );
    let owner = app.database().connect_as_owner().await.unwrap();
    owner.batch_execute(&forget).await.unwrap();
    assert_eq!(rows(&app, "/v1/executions").await, listed_with_stored_usage);
    // As for a run that a server of the previous version put into review: it has evidence, but no end.
    let review = format!(
        "UPDATE execution SET status = 'awaiting_review', outcome = NULL, finished_at = NULL
         WHERE execution_id = '{newest}'"
    );
    owner.batch_execute(&review).await.unwrap();
    assert_eq!(counts(&rows(&app, "/v1/executions").await), [Some(3), Some(3)]);
    // Stored usage is shown without a look at the evidence.
    let change = "UPDATE execution SET total_tokens_in = 4 WHERE has_stored_usage";
    owner.batch_execute(change).await.unwrap();
    assert_eq!(counts(&rows(&app, "/v1/executions").await), [Some(3), Some(4)]);
}

#[tokio::test]
async fn submitters_without_view_see_no_tokens_of_their_runs() {
    let (app, _provider) = start().await;
    let workload = app.active_workload("main").await;
    app.fixtures().bind_role("user:runs", "runtime_user", "workspace", Some(WORKSPACE)).await;
    let completed_run = run(&app, &workload).as_actor("user:runs").await.expect(200);
    let path = format!("/v1/executions/{}", completed_run["execution_id"].as_str().unwrap());
    let own_usage = app.get(&path).as_actor("user:runs").await.expect(200);
    assert_eq!(
        [&own_usage["tokens_in"], &own_usage["cost_micros"], &own_usage["workload_slug"]],
        [&Value::Null; 3],
        "{own_usage}"
    );
    assert!(own_usage["duration_ms"].is_u64(), "{own_usage}");
}

#[tokio::test]
async fn usage_totals_the_ended_runs_by_workload_model_and_day() {
    let (app, provider) = start().await;
    let (first_workload, second_workload) = (app.active_workload("one").await, app.active_workload("two").await);
    for workload in [&first_workload, &first_workload, &second_workload] {
        run(&app, workload).await.expect(200);
    }
    provider.refuses.store(true, Ordering::SeqCst);
    run(&app, &first_workload).await.expect(200);

    let by_workload = rows(&app, "/v1/usage").await;
    let numbers = |row: &Value| {
        ["runs", "failures", "tokens_in", "tokens_out", "cost_micros"].map(|name| row[name].as_u64().unwrap())
    };
    assert_eq!(by_workload.len(), 2, "{by_workload:?}");
    assert_eq!((&by_workload[0]["workload_slug"], numbers(&by_workload[0])), (&json!("one"), [3, 1, 6, 4, 14]));
    assert_eq!((&by_workload[1]["workload_slug"], numbers(&by_workload[1])), (&json!("two"), [1, 0, 3, 2, 7]));
    assert_eq!(by_workload[0]["workload_id"], first_workload.workload_id);
    for row in &by_workload {
        assert!(row["p50_ms"].as_u64().unwrap() <= row["p95_ms"].as_u64().unwrap(), "{row}");
        assert_eq!((&row["model"], &row["day"]), (&Value::Null, &Value::Null));
    }

    let usage = rows(&app, "/v1/usage?group_by=day,model").await;
    assert_eq!(usage.len(), 1, "{usage:?}");
    assert_eq!((numbers(&usage[0]), usage[0]["model"].is_string()), ([4, 1, 9, 6, 21], true));
    let today = app.get("/v1/executions?limit=1").await.expect(200)[0]["started_at"].as_str().unwrap()[..10].to_owned();
    assert_eq!(usage[0]["day"], today.as_str());

    for (query, expected) in [
        (format!("workload_id={}", second_workload.workload_id), Some(1)),
        (format!("workspace_id={WORKSPACE}&group_by=model"), Some(4)),
        ("environment=dev&group_by=model".to_owned(), Some(4)),
        ("environment=production".to_owned(), None),
        ("since=2020-01-01T00:00:00Z&until=2020-02-01T00:00:00Z".to_owned(), None),
        ("since=2030-01-01T00:00:00Z&until=2020-02-01T00:00:00Z".to_owned(), None),
    ] {
        let found = rows(&app, &format!("/v1/usage?{query}")).await;
        assert_eq!(found.first().map(|row| row["runs"].as_u64().unwrap()), expected, "{query}");
    }
    for (query, path, code) in [
        ("group_by=hour", "group_by", "invalid"),
        ("group_by=", "group_by", "invalid"),
        ("group_by=day,day", "group_by", "invalid"),
        ("since=yesterday", "since", "invalid"),
        ("since=2026-01-01T00:00:00Z&until=2026-04-04T00:00:01Z", "since", "range_too_long"),
        ("since=2020-01-01T00:00:00Z", "since", "range_too_long"),
        ("workload_id=x", "workload_id", "invalid"),
        ("workspace_id=x", "workspace_id", "invalid"),
        ("cursor=x", "cursor", "unknown_parameter"),
    ] {
        let refusal = app.get(format!("/v1/usage?{query}")).await.expect_refusal(422, "validation_error");
        assert_eq!(
            (&refusal["fields"][0]["path"], &refusal["fields"][0]["code"]),
            (&json!(path), &json!(code)),
            "{query}"
        );
    }
}

/// Usage covers only runs in the caller's scopes: its workspace, its workload, or its tenant.
#[tokio::test]
async fn usage_counts_only_the_runs_that_the_caller_may_view() {
    let (app, _provider) = start().await;
    let fixtures = app.fixtures();
    let other_workspace = fixtures.workspace("next-door", "next-door").await;
    let (first_workload, second_workload) =
        (fixtures.active_workload("one").await, fixtures.active_workload("two").await);
    let third_workload = fixtures.in_workspace(&other_workspace).active_workload("three").await;
    let foreign_fixture = WorkspaceFixture::in_other_tenant(&app).await;
    for workload in [&first_workload, &second_workload, &third_workload] {
        run(&app, workload).await.expect(200);
    }
    fixtures.bind_role("user:here", "viewer", "workspace", Some(WORKSPACE)).await;
    fixtures.bind_role("user:there", "viewer", "workspace", Some(&other_workspace)).await;
    fixtures.bind_role("user:single", "viewer", "workload", Some(&second_workload.workload_id)).await;
    fixtures.bind_role("user:both", "viewer", "workspace", Some(WORKSPACE)).await;
    fixtures.bind_role("user:both", "viewer", "workload", Some(&third_workload.workload_id)).await;
    fixtures.bind_role("user:runs", "runtime_user", "workspace", Some(WORKSPACE)).await;
    for (actor, expected) in [
        ("user:local", vec!["one", "three", "two"]),
        ("user:here", vec!["one", "two"]),
        ("user:there", vec!["three"]),
        ("user:single", vec!["two"]),
        ("user:both", vec!["one", "three", "two"]),
    ] {
        let report = app.get("/v1/usage").as_actor(actor).await.expect(200);
        let mut visible_slugs: Vec<&str> =
            report.as_array().unwrap().iter().map(|row| row["workload_slug"].as_str().unwrap()).collect();
        visible_slugs.sort_unstable();
        assert_eq!(visible_slugs, expected, "{actor}");
        for (workload, slug) in [(&first_workload, "one"), (&second_workload, "two"), (&third_workload, "three")] {
            let path = format!("/v1/usage?workload_id={}&group_by=model", workload.workload_id);
            let report = app.get(path).as_actor(actor).await.expect(200);
            assert_eq!(report.as_array().unwrap().len(), usize::from(expected.contains(&slug)), "{actor} {slug}");
        }
    }
    app.get("/v1/usage").as_actor("user:runs").await.expect_refusal(403, "forbidden");
    app.get("/v1/usage").as_actor("anonymous").await.expect_refusal(403, "forbidden");
    let foreign = app.get(format!("/v1/usage?workspace_id={other_workspace}")).as_actor("user:here").await;
    assert!(matches!(foreign.status, 403 | 404), "{foreign}");
    // Another tenant sees only its own usage. Its workspace is unknown to this tenant.
    let foreign_usage = app.get("/v1/usage").in_tenant(&foreign_fixture.tenant).await.expect(200);
    assert_eq!(foreign_usage.as_array().unwrap().len(), 1, "{foreign_usage}");
    assert_eq!(foreign_usage[0]["workload_id"], foreign_fixture.workload.workload_id);
    let path = format!("/v1/usage?workload_id={}", foreign_fixture.workload.workload_id);
    assert_eq!(app.get(path).await.expect(200), json!([]));
    app.get(format!("/v1/usage?workspace_id={}", foreign_fixture.workspace)).await.expect_refusal(404, "not_found");
}

/// Each run is counted once: a run that a worker ends after its caller has disconnected, a synchronous run, and a
/// denied run.
#[tokio::test]
async fn metrics_count_each_ended_run_once_whoever_waits() {
    let (app, provider) = start().await;
    let workload = app.active_workload("main").await;
    let queued = submit_queued_run(&app, &workload).await;
    wait_until_ended(&app, &queued).await;
    let key = "once";
    for _ in 0..2 {
        run(&app, &workload).header("idempotency-key", key).await.expect(200);
    }
    provider.refuses.store(true, Ordering::SeqCst);
    run(&app, &workload).await.expect(200);
    for (series, expected) in [
        (r#"fairway_executions_total{status="completed"}"#, 2),
        (r#"fairway_executions_total{status="failed"}"#, 1),
        (r#"fairway_execution_duration_seconds_count{status="completed",workload="main"}"#, 2),
        (r#"fairway_execution_duration_seconds_count{status="failed",workload="main"}"#, 1),
        (r#"fairway_execution_tokens_total{direction="input",workload="main"}"#, 6),
        (r#"fairway_execution_tokens_total{direction="output",workload="main"}"#, 4),
        (r#"fairway_execution_cost_micros_total{workload="main"}"#, 14),
    ] {
        // The end of a run is stored before it is counted, so the metrics are polled.
        let mut counted = 0;
        for _ in 0..100 {
            counted = metric(&app, series).await;
            if counted >= expected {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        assert_eq!(counted, expected, "{series}");
    }
    let text = app.get("/metrics").await.text();
    assert!(!text.contains(r#"status="queued""#) && !text.contains(r#"status="running""#), "{text}");
}

#[tokio::test]
async fn metrics_count_a_queued_run_that_is_cancelled_once() {
    let app = TestApp::builder().without_worker().start().await;
    let workload = app.active_workload("main").await;
    let queued = submit_queued_run(&app, &workload).await;
    let path = format!("/v1/executions/{}/cancel", queued.as_str().unwrap());
    app.post(&path, json!({})).await.expect(200);
    app.post(&path, json!({})).await.expect_refusal(409, "execution_not_cancellable");
    assert_eq!(metric(&app, r#"fairway_executions_total{status="cancelled"}"#).await, 1);
}
