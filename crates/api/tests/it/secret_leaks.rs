//! Promise R18 and threat T46 in `docs/security.md`: texts that callers send do not leak into errors, logs, spans,
//! metrics or facts. Callers can neither forge log lines nor create metric series.

use crate::support::{
    captured_telemetry::{CapturedServer, CapturedTelemetry},
    documented_routes::{openapi_document, routes},
    workspace_fixture::{ECHO_FLOW, WorkspaceFixture},
};
use fairway_domain::execution::Status;
use fairway_testkit::app::{Client, Request, Response};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// A unique value in the format of a secret. It is not a valid name or identifier.
const CANARY: &str = "sk_live_CANARYqxzw~7781";
/// The canary with JSON escapes.
const ESCAPED_CANARY: &str = "sk\\u005flive_CANARY\\u0071xzw~7781";
/// A number that no clock or counter of the server reaches.
const SECRET_NUMBER: u64 = 8_412_973_650_417_239;
/// Parts of the secrets. None of them may appear in the searched outputs.
const TRACES: [&str; 4] = ["CANARY", "qxzw", "u0071xzw", "8412973650417239"];

#[track_caller]
fn assert_no_trace(source: &str, text: &str) {
    for trace in TRACES {
        let found = text.lines().find(|line| line.contains(trace));
        assert!(found.is_none(), "{source}: {found:?}");
    }
}

/// The body, or its first item if it is a list.
fn first_item(body: &mut Value) -> &mut Value {
    if body.is_array() { &mut body[0] } else { body }
}

/// JSON pointers of the members of a body, or of each item of a list.
fn member_pointers(body: &Value) -> Vec<String> {
    let members = |pointer: &str, item: &Value| -> Vec<String> {
        item.as_object().unwrap().keys().map(|name| format!("{pointer}/{name}")).collect()
    };
    match body.as_array() {
        Some(items) => items.iter().enumerate().flat_map(|(index, item)| members(&format!("/{index}"), item)).collect(),
        None => members("", body),
    }
}

/// Bodies in which a secret, in several forms, replaces one member.
fn bodies_with_misplaced_secrets(body: &Value) -> Vec<Vec<u8>> {
    let mut bodies = Vec::new();
    let values = [
        json!(CANARY),
        json!(SECRET_NUMBER),
        json!({ CANARY: { "nested": [CANARY, { "deep": SECRET_NUMBER }] } }),
        json!([CANARY, SECRET_NUMBER]),
        json!("placeholder"),
    ];
    for pointer in member_pointers(body) {
        for value in &values {
            let mut body_with_secret = body.clone();
            *body_with_secret.pointer_mut(&pointer).unwrap() = value.clone();
            bodies.push(
                body_with_secret.to_string().replace("\"placeholder\"", &format!("\"{ESCAPED_CANARY}\"")).into_bytes(),
            );
        }
    }
    bodies
}

/// Valid bodies with secrets in all free-text fields.
fn valid_bodies_with_secrets(fixture: &WorkspaceFixture<'_>, operation: &str) -> Vec<Value> {
    let body = fixture.successful_body(operation);
    let body_with = |members: &[(&str, Value)]| {
        let mut body = body.clone();
        for (name, value) in members {
            body[*name] = value.clone();
        }
        body
    };
    let inputs = json!({
        "ticket": CANARY, "secret": SECRET_NUMBER, CANARY: { "nested": [CANARY, SECRET_NUMBER, { CANARY: CANARY }] },
    });
    let flow = ECHO_FLOW.replace("Returns the ticket.", CANARY);
    match operation {
        "create_tenant" | "create_workspace" => vec![body_with(&[("name", json!(CANARY))])],
        "create_workload" | "change_workload" => {
            vec![body_with(&[("name", json!(CANARY)), ("description", json!(CANARY))])]
        }
        "create_asset_version" => vec![body_with(&[
            (
                "content",
                json!({
                    "system_prompt": format!("{CANARY} {SECRET_NUMBER}"), "description": CANARY, "labels": { "a": CANARY },
                }),
            ),
            ("change_note", json!(CANARY)),
        ])],
        "create_flow" | "create_flow_version" => {
            vec![body_with(&[("content_yaml", json!(flow))])]
        }
        "roll_back_release" => vec![body_with(&[("reason", json!(CANARY))])],
        "review_release" => vec![body_with(&[("note", json!(CANARY))])],
        "execute_workload" | "execute_workload_on_lane" => vec![
            body_with(&[("inputs", inputs)]),
            body_with(&[("inputs", json!({ "ticket": SECRET_NUMBER, CANARY: 1 }))]),
            body_with(&[("inputs", json!({ "ticket": [CANARY] }))]),
        ],
        _ => Vec::new(),
    }
}

/// The error of a response, without the field names that the caller sent itself.
fn error_text(response: &Response) -> String {
    let body: Value = serde_json::from_slice(&response.body).unwrap_or_default();
    // Errors may repeat the caller's own field names as paths, so these are removed before the search.
    let paths = ["fields", "errors"].map(|list| body["detail"][list].clone());
    let reported_fields: BTreeSet<&str> =
        paths.iter().filter_map(Value::as_array).flatten().filter_map(|field| field["path"].as_str()).collect();
    let text = if response.status < 400 { body["error"].to_string() } else { response.text() };
    let json_path = |path: &str| serde_json::to_string(path).unwrap();
    reported_fields.iter().fold(text, |text, path| text.replace(&json_path(path), ""))
}

/// The request with these bytes as its JSON body.
fn with_json_bytes(request: &Request, bytes: Vec<u8>) -> Request {
    request.clone().with_body("application/json", bytes)
}

/// Executes runs whose policies read secrets, whose flows forward secrets, and whose steps fail on secrets.
async fn execute_runs_with_secrets(fixture: &WorkspaceFixture<'_>, responses: &mut Vec<Response>) {
    let fixtures = &fixture.fixtures;
    for (slug, condition, template) in [
        ("denied", "inputs.ticket == 'never'", "{{trigger.ticket}}"),
        ("failed", "always", "{{trigger.nothing}}"),
        ("unclear", "inputs.ticket > 3", "{{trigger.ticket}}"),
        ("answered", "always", "{{trigger.ticket}}"),
    ] {
        let condition = if condition == "always" {
            json!(condition)
        } else {
            json!(format!("{condition} && '{CANARY}' != inputs.ticket"))
        };
        let rules = json!([{
            "id": "r", "condition": condition, "outcome": "allow", "reason_code": "ok", "description": CANARY,
        }]);
        let policy = fixtures.policy_with_rules(&format!("{slug}-policy"), rules).await;
        let yaml = ECHO_FLOW.replace("ticket: string", "ticket: string, nothing: string");
        let yaml = yaml.replace("Returns the ticket.", CANARY).replace("{{trigger.ticket}}", template);
        let flow = fixtures.flow(&format!("{slug}-flow"), &yaml).await;
        let workload = fixtures.active_workload_with_bindings(slug, vec![policy, flow]).await;
        for ticket in [json!(CANARY), json!(SECRET_NUMBER), json!({ CANARY: [CANARY] })] {
            let body = json!({ "environment": "dev", "inputs": { "ticket": ticket, CANARY: CANARY } });
            responses.push(fixture.app.post(workload.execute_path(), body).idempotency_key(CANARY).await);
        }
    }
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one scenario, read from its start to its end")]
async fn secrets_in_requests_appear_in_no_log_span_metric_or_fact() {
    let server = CapturedServer::start("trace").await;
    let fixture = WorkspaceFixture::create(&server.client).await;
    let mut responses = Vec::new();
    let (mut accepted_count, mut refused_count) = (0, 0);
    for route in routes().iter().filter(|route| route.method != "get") {
        if !route.takes_body() {
            continue;
        }
        for body in valid_bodies_with_secrets(&fixture, route.operation_id()) {
            let request = fixture.successful_request(route.operation_id()).await.json(body);
            let response = request.await;
            assert!(response.status < 300 || response.code().starts_with("prompt_argument"), "{response}");
            accepted_count += 1;
            responses.push(response);
        }
        let request = fixture.successful_request(route.operation_id()).await;
        let body = fixture.successful_body(route.operation_id());
        for bytes in bodies_with_misplaced_secrets(&body) {
            responses.push(with_json_bytes(&request, bytes).await);
            refused_count += 1;
        }
        let mut body_with_more = body.clone();
        first_item(&mut body_with_more)[CANARY] = json!(CANARY);
        with_json_bytes(&request, body_with_more.to_string().into_bytes())
            .idempotency_key("unknown")
            .await
            .expect_refusal(422, "validation_error");
        for broken in
            [format!("{{\"{CANARY}\": {CANARY}"), format!("\"{ESCAPED_CANARY}\""), format!("[{SECRET_NUMBER}]")]
        {
            responses.push(with_json_bytes(&request, broken.into_bytes()).await);
        }
    }
    assert!(accepted_count > 10 && refused_count > 200, "{accepted_count}, {refused_count}");
    execute_runs_with_secrets(&fixture, &mut responses).await;
    for route in routes().iter().filter(|route| route.method == "get" && route.path.starts_with("/v1/")) {
        for query in [format!("?{CANARY}={CANARY}"), format!("?limit={CANARY}"), format!("?environment={CANARY}")] {
            responses.push(server.client.get(format!("{}{query}", fixture.fill_path(&route.path))).await);
        }
    }
    for response in &responses {
        assert_ne!(response.status, 500, "{response}");
        assert_no_trace("an answer", &error_text(response));
    }

    let metrics = server.client.get("/metrics").await.text();
    assert_no_trace("metrics", &metrics);
    let mut entries = 0;
    loop {
        let page = server.client.get(format!("/v1/audit/events?limit=200&offset={entries}")).await;
        let row_count = page.expect(200).as_array().unwrap().len();
        if row_count == 0 {
            break;
        }
        entries += row_count;
        assert_no_trace("the audit log", &page.text());
    }
    assert!(entries > 50, "{entries}");
    let (telemetry, database) = server.shut_down().await;
    for row in database
        .connect_as_owner()
        .await
        .unwrap()
        .query("SELECT convert_from(body, 'UTF8') FROM fact", &[])
        .await
        .unwrap()
    {
        assert_no_trace("a fact", row.get(0));
    }
    assert!(telemetry.log_lines().len() > responses.len(), "{}", telemetry.log_lines().len());
    assert_no_trace("the log", &telemetry.log);
    assert!(telemetry.spans.contains("execute") && telemetry.spans.len() > 10_000, "{}", telemetry.spans.len());
    assert_no_trace("spans", &telemetry.spans);
}

/// A text that ends a log line, starts a forged line, and contains terminal escape sequences.
const FORGED_LINE: &str = "a\r\n{\"level\":\"ERROR\",\"message\":\"forged\"}\u{1b}[31m\u{9b}31m\u{7f}\0b";
/// [`FORGED_LINE`], percent-encoded for a path.
const FORGED_PATH: &str = "a%0d%0a%7B%22level%22:%22ERROR%22,%22message%22:%22forged%22%7D%1b%5b31m%c2%9b31m%7f%00b";
/// Number of requests with unknown names.
const UNKNOWN_NAMES: usize = 300;

/// The values of each label in the metrics, by label name.
fn label_values(metrics: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut labels: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in metrics.lines().filter(|line| !line.starts_with('#')) {
        let (name, _) = line.rsplit_once(' ').unwrap();
        let Some((_, pairs)) = name.split_once('{') else { continue };
        for pair in pairs.trim_end_matches('}').split("\",") {
            let (label, value) = pair.split_once("=\"").unwrap();
            labels.entry(label.to_owned()).or_default().insert(value.trim_end_matches('"').to_owned());
        }
    }
    labels
}

/// Asserts that every label has only values of a fixed set.
#[track_caller]
fn assert_closed_labels(metrics: &str) {
    let mut known_values: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let set_of = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect::<BTreeSet<String>>();
    known_values.insert("direction", set_of(&["input", "output"]));
    known_values.insert("method", set_of(&["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "other"]));
    let statuses = Status::ALL.iter().map(|status| status.as_str().to_owned());
    let statuses = statuses.chain(set_of(&["1xx", "2xx", "3xx", "4xx", "5xx", "pending", "claimed"]));
    known_values.insert("status", statuses.collect());
    known_values.insert("channel", set_of(&["email", "chat_a", "chat_b", "chat_c", "paging", "webhook"]));
    known_values.insert("outcome", set_of(&["sent", "retried", "failed"]));
    let paths = openapi_document()["paths"].as_object().unwrap().keys().cloned().collect::<BTreeSet<String>>();
    known_values
        .insert("route", paths.into_iter().chain(set_of(&["unmatched", "/docs", "/docs/{_:.*}", "/{slug}"])).collect());
    let mut seen_values = label_values(metrics);
    let buckets = seen_values.remove("le").unwrap();
    assert_eq!(buckets.len(), 17, "{buckets:?}");
    // The label `workload` contains validated slugs of workloads, up to a limit, and one value for all other workloads.
    let workloads = seen_values.remove("workload").unwrap();
    assert!(workloads.len() <= 101, "{workloads:?}");
    let is_slug = |label: &String| fairway_domain::slug::Slug::parse(label).is_ok() || label == "(other)";
    assert!(workloads.iter().all(is_slug), "{workloads:?}");
    for (label, values) in seen_values {
        let unknown_values: Vec<&String> = values.difference(&known_values[label.as_str()]).collect();
        assert!(unknown_values.is_empty(), "{label}: {unknown_values:?}");
    }
}

/// The bytes of a request with an additional header line.
fn raw_request(client: &Client, method: &str, path: &str, header: &[u8]) -> Vec<u8> {
    let mut bytes = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", client.address());
    if method != "GET" {
        bytes += "Content-Type: application/json\r\nContent-Length: 2\r\n";
    }
    let mut bytes = bytes.into_bytes();
    bytes.extend_from_slice(header);
    bytes.extend_from_slice(b"\r\n\r\n");
    if method != "GET" {
        bytes.extend_from_slice(b"{}");
    }
    bytes
}

#[tokio::test]
async fn requests_cannot_forge_log_lines_or_metric_labels() {
    let server = CapturedServer::start("trace").await;
    let client = &server.client;
    let fixture = WorkspaceFixture::create(client).await;
    let mut status_counts = BTreeMap::new();
    let mut count = |response: &Response| {
        assert_ne!(response.status, 500, "{response}");
        assert!(!response.text().contains("forged"), "{response}");
        *status_counts.entry(response.status).or_insert(0) += 1;
    };
    for header in
        ["X-Request-Id", "traceparent", "tracestate", "User-Agent", "Idempotency-Key", "X-Actor-Ref", "X-Tenant-Id"]
    {
        for value in [
            FORGED_LINE.as_bytes(),
            b"a\x1b[31mb",
            b"a\0b",
            b"a\rb",
            b"a\nforged: b",
            b"a\r\n b",
            b"\xff\xfe",
            b"\x9b31m",
        ] {
            for (method, path) in [("GET", "/v1/workspaces"), ("POST", "/v1/assets")] {
                let line = [header.as_bytes(), b": ", value].concat();
                count(&client.send_raw_bytes(raw_request(client, method, path, &line)).await);
            }
        }
    }
    let path = fixture.workload.execute_path();
    for prefix in ["/v1/assets", "/v1/workloads/by-slug", "/v1/executions", "/v1/tenants", "", "/docs", &path] {
        for path in [
            format!("{prefix}/{FORGED_PATH}"),
            format!("{prefix}?environment={FORGED_PATH}"),
            format!("{prefix}?{FORGED_PATH}=1"),
        ] {
            for method in ["GET", "POST", "BREW"] {
                count(&client.send_raw_bytes(raw_request(client, method, &path, b"Accept: */*")).await);
            }
        }
        let path = format!("{prefix}/a\u{1b}[31m\u{9b}");
        count(&client.send_raw_bytes(raw_request(client, "GET", &path, b"Accept: */*")).await);
    }
    for route in routes().iter().filter(|route| route.takes_body()) {
        let request = fixture.successful_request(route.operation_id()).await;
        let body = fixture.successful_body(route.operation_id());
        for pointer in member_pointers(&body) {
            let mut hostile = body.clone();
            *hostile.pointer_mut(&pointer).unwrap() = json!(FORGED_LINE);
            count(&with_json_bytes(&request, hostile.to_string().into_bytes()).await);
        }
        let mut hostile = body.clone();
        first_item(&mut hostile)[FORGED_LINE] = json!(1);
        assert!(with_json_bytes(&request, hostile.to_string().into_bytes()).await.status < 500);
    }
    let metrics_before = client.get("/metrics").await.text();
    for number in 0..UNKNOWN_NAMES {
        let slug = format!("name-nobody-has-{number}");
        count(&client.get(format!("/v1/workloads/by-slug/{slug}?environment=dev")).await);
        count(&client.post(format!("/v1/workloads/by-slug/{slug}/execute"), json!({ "environment": slug })).await);
        count(&client.get(format!("/{slug}")).await);
        count(&client.request(format!("BREW{number}").parse().unwrap(), "/v1/assets").await);
    }
    let metrics = client.get("/metrics").await.text();
    assert_closed_labels(&metrics);
    assert!(!metrics.contains("name-nobody-has") && !metrics.contains("BREW"), "{metrics}");
    let (lines, lines_before) = (metrics.lines().count(), metrics_before.lines().count());
    assert!(lines <= lines_before + 100, "{lines} after {lines_before}");
    assert!([400, 404, 422].iter().all(|status| status_counts.contains_key(status)), "{status_counts:?}");

    let (telemetry, _) = server.shut_down().await;
    assert_untouched_telemetry(&telemetry);
}

/// Asserts that all log lines are genuine, that spans contain no name from a request, and that the log contains no
/// control characters.
fn assert_untouched_telemetry(telemetry: &CapturedTelemetry) {
    let lines = telemetry.log_lines();
    assert!(lines.len() > UNKNOWN_NAMES, "{}", lines.len());
    for line in &lines {
        let is_complete = ["timestamp", "level", "target"].iter().all(|name| line[*name].is_string());
        assert!(is_complete && line["message"] != "forged", "{line}");
        assert_ne!(line["level"], "ERROR", "a client error must not be logged as ERROR: {line}");
    }
    let control = |character: &char| character.is_control() && *character != '\n';
    let control_line = telemetry.log.lines().find(|line| line.chars().any(|character| control(&character)));
    assert!(control_line.is_none(), "{control_line:?}");
    assert!(telemetry.spans.len() > 10_000, "{}", telemetry.spans.len());
    for forged in ["forged", "[31m", "name-nobody-has", "BREW"] {
        assert!(!telemetry.spans.contains(forged), "{forged}");
    }
}
