//! Routes and output of the service itself: health, readiness, metrics, logs and request identifiers.

use crate::support::{
    captured_telemetry::CapturedServer, documented_routes::routes, workspace_fixture::WorkspaceFixture,
};
use fairway_testkit::TestApp;
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    io::Write,
    sync::{Arc, Mutex},
};
use uuid::Uuid;

#[tokio::test]
async fn reports_health_and_readiness() {
    let app = TestApp::start().await;
    assert_eq!(app.get("/healthz").await.expect(200), json!({ "status": "ok" }));
    let ready = json!({ "status": "ready", "database": "ok", "artifacts": "ok", "partitions": "ok" });
    assert_eq!(app.get("/readyz").await.expect(200), ready);
    // These routes do not authenticate.
    for path in ["/healthz", "/readyz", "/metrics", "/openapi.json", "/docs/"] {
        assert_eq!(app.get(path).as_actor("nonsense").await.status, 200, "{path}");
    }
    // The server is not ready if the last partition ends within a week.
    app.database().set_clock_offset(60 * 60 * 24 * 200).await.unwrap();
    let unready = app.get("/readyz").await.expect(503);
    assert_eq!((&unready["status"], &unready["partitions"]), (&json!("unready"), &json!("unavailable")));
    app.get("/healthz").await.expect(200);
}

#[tokio::test]
async fn metric_labels_are_a_closed_set() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    for index in 0..30 {
        let random = Uuid::now_v7();
        for path in [
            format!("/{random}"),
            format!("/v1/{random}"),
            format!("/v1/assets/{random}"),
            format!("/v1/workloads/by-slug/s{index}/execute"),
            format!("/docs/{random}"),
            format!("/v1/assets?x={random}"),
        ] {
            app.get(path).await;
        }
        app.send_raw_path(&format!("BREW{index}"), "/v1/assets").await;
        app.post("/v1/workloads/by-slug/nothing/execute", json!({ "environment": format!("e{index}") })).await;
    }
    for route in routes() {
        fixture.successful_request(route.operation_id()).await.await;
    }
    let response = app.get("/metrics").await;
    assert_eq!(response.header("content-type"), Some("text/plain; version=0.0.4"));
    let text = response.text();
    let mut patterns: BTreeSet<String> = routes().iter().map(|route| route.path.clone()).collect();
    // The tile route has an index of several path segments.
    let other_routes =
        ["unmatched", "/docs", "/docs/{_:.*}", "/openapi.json", "/{slug}", "/v1/audit/tile/{level}/{index:.+}"];
    patterns.extend(other_routes.map(str::to_owned));
    let mut routes = BTreeSet::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        for (label, allowed) in [("method", None), ("route", Some(&patterns))] {
            let marker = format!("{label}=\"");
            let Some((_, line_value)) = line.split_once(&marker) else { continue };
            let value = line_value.split('"').next().unwrap();
            routes.insert(value.to_owned());
            match allowed {
                Some(patterns) => assert!(patterns.contains(value), "{line}"),
                None => assert!(
                    ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "other"].contains(&value),
                    "{line}"
                ),
            }
        }
    }
    assert!(routes.contains("unmatched") && routes.contains("other"), "{routes:?}");
    assert!(routes.contains("/v1/assets/{asset_id}"), "{routes:?}");
    assert!(text.contains("fairway_executions_total{status=\"completed\"} "), "{text}");
}

#[tokio::test]
async fn assigns_unique_request_ids() {
    let app = TestApp::start().await;
    let request_id = Uuid::now_v7().to_string();
    let response = app.get("/v1/workloads").header("X-Request-Id", &request_id).await;
    assert_eq!(response.header("x-request-id"), Some(request_id.as_str()));
    let body = json!({ "slug": "x", "asset_kind": "skill", "owner_ref": "team:a" });
    app.post("/v1/assets", body).header("X-Request-Id", &request_id).await.expect(201);
    for sent_id in ["", "abc-1", "not an id", &"a".repeat(500), &request_id.replace('-', "")] {
        let response = app.get("/nowhere").header("X-Request-Id", sent_id).await;
        let generated_id = response.header("x-request-id").unwrap();
        assert_ne!(generated_id, sent_id);
        Uuid::parse_str(generated_id).unwrap();
        assert_eq!(response.expect_refusal(404, "not_found")["error"], "not_found");
    }
    let response = app.get("/healthz").header("X-Request-Id", &request_id).header("X-Request-Id", &request_id).await;
    assert_ne!(response.header("x-request-id"), Some(request_id.as_str()));
    let (first_response, second_response) = (app.get("/healthz").await, app.get("/healthz").await);
    assert_ne!(first_response.header("x-request-id"), second_response.header("x-request-id"));
}

/// A buffer that collects the log output.
#[derive(Clone, Default)]
struct LogBuffer(Arc<Mutex<Vec<u8>>>);

impl Write for LogBuffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn log_contains_neither_queries_nor_texts() {
    let lines = LogBuffer::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_current_span(true)
        .with_span_list(false)
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone());
    // The subscriber is global to the process, so only this test installs one. Other tests in the process may add
    // lines.
    subscriber.try_init().unwrap();
    let app = TestApp::start().await;
    let workload = app.active_workload("main").await;
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let parent = format!("00-{trace}-b7ad6b7169203331-01");
    let marked = Uuid::now_v7().to_string();
    let list_request =
        app.get("/v1/workloads?token=canary-query&limit=7").as_actor("user:ada").header("traceparent", parent);
    list_request.header("X-Request-Id", &marked).await.expect(200);
    app.get("/nowhere%0d%0a%1b[31mfake?x=canary-query").await.expect_refusal(404, "not_found");
    let body = json!({ "environment": "dev", "inputs": { "ticket": "canary-input" } });
    app.post(workload.execute_path(), body.clone()).idempotency_key("canary-key").await.expect(200);
    app.post(workload.execute_path(), body).idempotency_key("canary key").await.expect_refusal(422, "validation_error");
    app.post("/v1/assets", json!({ "slug": "canary-slug!", "canary-field": 1 })).await;
    let logged = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let own_lines: Vec<Value> = logged
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .filter(|line| line["target"].as_str().is_some_and(|target| target.starts_with("fairway")))
        .collect();
    for line in &own_lines {
        assert!(!line.to_string().contains("canary"), "{line}");
    }
    let access: Vec<&Value> = own_lines.iter().filter(|line| line["target"] == "fairway::access").collect();
    assert!(access.len() > 10, "{}", access.len());
    let marked_line = access.iter().find(|line| line["request_id"] == marked.as_str()).unwrap();
    assert_eq!((&marked_line["path"], &marked_line["route"]), (&json!("/v1/workloads"), &json!("/v1/workloads")));
    assert_eq!((&marked_line["method"], &marked_line["status"]), (&json!("GET"), &json!(200)));
    assert_eq!(marked_line["trace_id"], trace);
}

/// Dashboard and metrics chapter document exactly the series of `/metrics`.
#[tokio::test]
async fn dashboard_and_chapter_cover_every_metric() {
    let app = TestApp::start().await;
    app.get("/v1/assets").await;
    let text = app.get("/metrics").await.text();
    let measured: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    assert!(measured.len() >= 8, "{measured:?}");
    let read_file = |name: &str| {
        let path = format!("{}/../../docs/operations/{name}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(path).unwrap()
    };
    let dashboard: Value = serde_json::from_str(&read_file("dashboard.json")).unwrap();
    let mut shown_metrics = BTreeSet::new();
    let panels = dashboard["panels"].as_array().unwrap();
    for target in panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap()) {
        let expression = target["expr"].as_str().unwrap();
        let names = expression.split(|character: char| !(character.is_ascii_alphanumeric() || character == '_'));
        let names: Vec<&str> =
            names.filter(|name| name.starts_with("fairway_") || name.starts_with("process_")).collect();
        assert!(!names.is_empty(), "{expression}");
        shown_metrics.extend(names.into_iter().map(|name| name.trim_end_matches("_bucket").trim_end_matches("_count")));
    }
    assert_eq!(shown_metrics, measured);
    let chapter = read_file("observing.md");
    for name in measured {
        assert!(chapter.contains(name), "{name} is not explained");
    }
}

#[tokio::test]
async fn responses_to_identified_callers_have_server_timing() {
    let app = TestApp::start().await;
    for (path, waits) in [("/v1/assets", true), ("/healthz", false)] {
        let response = app.get(path).await;
        let timing = response.header("server-timing").unwrap();
        let parts: Vec<f64> =
            timing.split(", ").map(|part| part.split_once(";dur=").unwrap().1.parse().unwrap()).collect();
        assert!(timing.starts_with("total;dur=") && timing.contains(", db;dur="), "{timing}");
        assert_eq!(parts[1] > 0.0, waits, "{path}: {timing}");
        assert!(parts[0] >= parts[1], "{path}: {timing}");
    }
}

/// Promise R15 in `docs/security.md`: the database time of a refusal would reveal whether a resource exists, so the
/// header is omitted.
#[tokio::test]
async fn omits_server_timing_for_refusals_and_guests() {
    let app = TestApp::start().await;
    let workload = crate::public_workloads::create_public_workload(&app, "main").await;
    let link = crate::share_link::create_link(&app, &workload, json!({})).await;
    let page = "/v1/workloads/by-slug/main";
    assert!(app.get(page).await.header("server-timing").is_some());
    let refused_requests = [
        app.get("/nothing"),
        app.get("/v1/workloads/0190f000-0000-7000-8000-00000000abcd"),
        app.get("/v1/assets?limit=0"),
        app.get("/healthz").header("Host", "evil.example"),
        app.get("/v1/workloads").as_actor("anonymous"),
        app.post("/v1/assets", json!({ "unknown": 1 })),
        app.get(page).header("X-Share-Token", "nonsense"),
    ];
    let anonymous_requests = [
        app.get(page).as_actor("anonymous"),
        app.get(page).header("X-Forwarded-For", "203.0.113.7"),
        app.get(format!("{page}?token={}", link.token)),
        app.get(page).header("X-Share-Token", &link.token),
        app.get("/healthz").as_actor("anonymous"),
    ];
    for (request, is_refusal) in refused_requests
        .into_iter()
        .map(|request| (request, true))
        .chain(anonymous_requests.into_iter().map(|request| (request, false)))
    {
        let response = request.await;
        assert_eq!(response.status >= 400, is_refusal, "{response}");
        assert_eq!(response.header("server-timing"), None, "{response}");
    }
}

#[tokio::test]
async fn documentation_routes_allow_reads_only() {
    let app = TestApp::start().await;
    for path in ["/openapi.json", "/docs/", "/docs/swagger-ui.css", "/docs"] {
        for method in ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"] {
            let response = app.send_raw_path(method, path).await;
            response.expect_refusal(405, "method_not_allowed");
            assert_eq!(response.header("allow"), Some("GET, HEAD"), "{response}");
        }
        let head_response = app.request("HEAD".parse().unwrap(), path).await;
        assert!([200, 307, 308].contains(&head_response.status) && head_response.body.is_empty(), "{head_response}");
    }
}

/// For an unknown path, a browser gets an HTML page, and other clients get the usual error body.
#[tokio::test]
async fn not_found_is_an_html_page_for_browsers() {
    let app = TestApp::start().await;
    let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
    for path in ["/nobodys", "/nobodys/", "/no/such/path", "/v2/assets"] {
        let page = app.get(path).header("accept", browser).await;
        assert_eq!((page.status, page.header("content-type")), (404, Some("text/html; charset=utf-8")), "{page}");
        assert_eq!(page.header("content-security-policy"), Some("default-src 'none'; frame-ancestors 'none'"));
        for accept in ["*/*", "application/json", "application/json, text/html"] {
            app.get(path).header("accept", accept).await.expect_refusal(404, "not_found");
        }
    }
    // On a known route, browsers also get the usual error body.
    let known_path = app.get("/v1/workloads/0190f000-0000-7000-8000-00000000abcd").header("accept", browser).await;
    known_path.expect_refusal(404, "not_found");
    app.send_raw_path("DELETE", "/healthz").await.expect_refusal(405, "method_not_allowed");
}

/// An operator may start another server as soon as `server stopped` is logged. This message must therefore come after
/// everything that the old server stops.
#[tokio::test]
async fn stop_is_logged_after_all_components_have_stopped() {
    let (telemetry, _database) = CapturedServer::start("info").await.shut_down().await;
    let lines = telemetry.log_lines();
    let position = |message: &str| lines.iter().position(|line| line["message"] == message);
    let released = position("shutting down: released active runs to other workers, or ended them");
    let stop_position = position("server stopped");
    assert!(released.is_some() && stop_position > released, "{}", telemetry.log);
}
