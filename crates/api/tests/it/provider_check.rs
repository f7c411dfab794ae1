//! `fairway-server providers test`, the default settings file, and reports about accounts that cannot be called.

use crate::support::captured_telemetry::CapturedServer;
use fairway_testkit::{ScriptedEndpoint, ScriptedResponse, TestApp, unused_address};
use serde_json::{Value, json};
use std::{
    env, fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener},
    process::{Command, Output},
};
use tempfile::TempDir;

/// A secret that no output may contain.
const KEY: &str = "sk-live-CANARYqxzw7782";

/// Runs `fairway-server` in a folder with this settings file and these environment variables.
pub(crate) async fn server(settings: Option<&str>, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let folder = TempDir::new().unwrap();
    if let Some(settings) = settings {
        fs::write(folder.path().join("fairway.toml"), settings).unwrap();
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_fairway-server"));
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name.starts_with("FAIRWAY_") || name.starts_with("OTEL_") {
            command.env_remove(name);
        }
    }
    command.args(arguments).envs(variables.iter().copied()).current_dir(folder.path());
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    drop(folder);
    output
}

/// Runs `providers test`. Returns its success and its output. Asserts that the output contains no key.
async fn check(settings: &str, arguments: &[&str], variables: &[(&str, &str)]) -> (bool, String) {
    let output = server(Some(settings), &[&["providers", "test"], arguments].concat(), variables).await;
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(!text.contains("CANARY"), "{text}");
    (output.status.success(), text)
}

fn account(slot: &str, kind: &str, base_url: &str, settings: &str) -> String {
    format!("[[providers]]\naccount_slot = \"{slot}\"\nkind = \"{kind}\"\nbase_url = \"{base_url}\"\n{settings}\n")
}

/// Starts a server that responds to a TLS handshake in plain HTTP.
fn server_without_tls() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        // Waits for the client to close, because a reset would discard the response.
        let _ = stream.read(&mut [0; 4096]);
    });
    address
}

fn chat_response() -> ScriptedResponse {
    ScriptedResponse::json(&json!({ "choices": [{ "message": { "content": "ready" } }] }))
}

#[tokio::test]
async fn reports_the_cause_of_each_account_failure() {
    let endpoint = ScriptedEndpoint::start().await;
    let settings = account("first", "openai", &endpoint.url("/v1"), "secret_ref = \"env:KEY\"\ntest_model = \"small\"");
    let error = |message: &str| json!({ "error": { "message": message } }).to_string();
    for (script, sentence) in [
        (
            ScriptedResponse::status(401, &error(KEY)),
            "the provider refused the key (HTTP 401): check the value of `env:KEY`",
        ),
        (
            ScriptedResponse::status(404, &error("the model `small` does not exist")),
            "the provider does not have the model `small` (HTTP 404): check its name, and your access to it",
        ),
        (
            ScriptedResponse::status(404, "<html>"),
            "the address has no API of the kind `openai` (HTTP 404): check `base_url`",
        ),
        (
            ScriptedResponse::status(429, &error("slow down")),
            "the rate limit or the quota of the account is exhausted (HTTP 429): wait, or raise it",
        ),
        (ScriptedResponse::status(503, "no"), "the provider is not available (HTTP 503): try again later"),
        (
            ScriptedResponse::status(200, "<html>"),
            "the response is not one of the kind `openai`: check `kind` and `base_url`",
        ),
        (ScriptedResponse::reset(), "the server at `base_url` closed the connection without a response"),
    ] {
        endpoint.respond_with(script);
        assert_eq!(check(&settings, &[], &[("KEY", KEY)]).await, (false, format!("first: {sentence}\n")));
    }
    endpoint.respond_with(chat_response());
    let (is_success, text) = check(&settings, &[], &[("KEY", KEY)]).await;
    assert!(is_success && text.starts_with("first: model `small` answered in "), "{text}");
    let request = endpoint.requests().pop().unwrap();
    assert_eq!(request.header("authorization"), Some(&*format!("Bearer {KEY}")));
    assert_eq!((&request.json()["model"], request.json()["messages"].as_array().unwrap().len()), (&json!("small"), 1));
}

#[tokio::test]
async fn reports_keys_models_and_addresses_before_the_provider_is_asked() {
    let endpoint = ScriptedEndpoint::start().await;
    endpoint.respond_with(chat_response());
    let unused = unused_address().unwrap();
    let plain_url = endpoint.url("/v1");
    let settings = [
        account("keyless", "openai", &plain_url, "secret_ref = \"env:KEY\"\ntest_model = \"small\""),
        account("modelless", "anthropic", &plain_url, ""),
        account("closed", "openai", &format!("http://{unused}/v1"), "test_model = \"small\""),
        account("plain", "openai", &format!("https://{}/v1", server_without_tls()), "test_model = \"small\""),
        account("unknown", "openai", "https://models.invalid/v1", "test_model = \"small\""),
        account("good", "openai", &plain_url, "test_model = \"small\""),
    ]
    .concat();
    let (is_success, text) = check(&settings, &[], &[]).await;
    assert!(!is_success, "{text}");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[..5],
        [
            "keyless: the key is missing: `env:KEY` does not exist where the server runs",
            "modelless: no model to ask: set its `test_model`, or pass `--model`",
            "closed: nothing accepts connections at `base_url`",
            "plain: TLS failed: the certificate of `base_url` is not trusted, or its server does not use TLS (a private \
             authority is added by `SSL_CERT_FILE`)",
            "unknown: the host name of `base_url` cannot be resolved",
        ]
    );
    assert!(lines[5].starts_with("good: model `small` answered in "), "{text}");
    // Tests a single account, with another model.
    let (is_success, text) = check(&settings, &["good", "--model", "large"], &[]).await;
    assert!(is_success && text.starts_with("good: model `large` answered in "), "{text}");
    assert_eq!(endpoint.requests().pop().unwrap().json()["model"], "large");
    assert!(check(&settings, &["local"], &[]).await.0);
    let (is_success, text) = check(&settings, &["goood"], &[]).await;
    assert!(!is_success && text.contains("no provider account `goood` is configured; did you mean `good`?"), "{text}");
    let (is_success, text) = check("", &[], &[]).await;
    assert!(!is_success && text.contains("add one to `fairway.toml`"), "{text}");
}

#[tokio::test]
async fn reads_the_default_file_and_refuses_a_missing_named_one() {
    async fn printed(settings: Option<&str>, arguments: &[&str], variables: &[(&str, &str)]) -> (bool, String) {
        let output = server(settings, &[&["config", "check"], arguments].concat(), variables).await;
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    }
    let (is_success, text) = printed(Some("bind = \"127.0.0.1:1\""), &[], &[]).await;
    assert!(is_success && text.contains("bind = 127.0.0.1:1 (file)\n"), "{text}");
    let (is_success, text) = printed(None, &[], &[]).await;
    assert!(is_success && text.contains("bind = 127.0.0.1:8080 (default)\n"), "{text}");
    let (is_success, text) = printed(Some("bind = \"127.0.0.1:1\""), &["--config", "other.toml"], &[]).await;
    assert!(!is_success && text.contains("other.toml cannot be read"), "{text}");
    let (is_success, text) = printed(Some("[[provider]]"), &[], &[]).await;
    assert!(!is_success && text.contains("did you mean `providers`?"), "{text}");
    let variables =
        [("FAIRWAY_PROVIDERS__HOUSE__KIND", "openai"), ("FAIRWAY_PROVIDERS__HOUSE__BASE_URL", "http://h/v1")];
    let (is_success, text) = printed(None, &[], &variables).await;
    assert!(
        is_success && text.contains("[[providers]] house: openai http://h, timeout 60 s, no secret (environment)\n"),
        "{text}"
    );
}

/// A model policy with a route to the account `primary` and, if set, a fallback route to `fallback`.
fn model_policy(primary: &str, fallback: Option<&str>) -> Value {
    let route = |account: &str| {
        json!({ "route_id": format!("to-{account}"), "provider": "acme", "model": "small", "account_slot": account,
            "state": "approved" })
    };
    let fallbacks: Vec<Value> = fallback.into_iter().map(route).collect();
    json!({ "provider_route": route(primary), "fallback_routes": fallbacks })
}

#[tokio::test]
async fn activation_needs_an_account_of_this_server() {
    let app = TestApp::builder().config_file(account("first", "openai", "http://127.0.0.1:9/v1", "")).start().await;
    let fixtures = app.fixtures();
    let (workload, policy) = (fixtures.workload("main").await, fixtures.allow_all_policy("policy").await);
    for (name, primary, fallback, verdicts, status) in [
        ("known", "first", None, &["pass"][..], 200),
        ("spare", "first", Some("second"), &["warn"], 200),
        ("other", "second", Some("local"), &["warn"], 200),
        ("none", "second", Some("third"), &["blocked", "blocked"], 422),
    ] {
        let model = fixtures.asset_with_version("model_policy", name, model_policy(primary, fallback)).await;
        let versions = [policy.clone(), model];
        let release = fixtures.draft(&workload, &versions).await;
        let early_gates = app.get(format!("/v1/releases/{release}/gates")).await.expect(200);
        let is_early = |gate: &&Value| gate["code"] == "provider_account_missing" && gate["verdict"] == "warn";
        let warning_count = verdicts.iter().filter(|verdict| **verdict != "pass").count();
        assert_eq!(
            early_gates.as_array().unwrap().iter().filter(is_early).count(),
            warning_count,
            "{name}: {early_gates}"
        );
        let release = fixtures.approved_release(&workload, &versions).await;
        let gates = app.get(format!("/v1/releases/{release}/gates")).await.expect(200);
        let found: Vec<&Value> =
            gates.as_array().unwrap().iter().filter(|gate| gate["gate"] == "provider_account").collect();
        let shown_verdicts: Vec<&str> = found.iter().map(|gate| gate["verdict"].as_str().unwrap()).collect();
        assert_eq!(shown_verdicts, verdicts, "{name}: {found:?}");
        let code = if status == 200 && verdicts == ["pass"] { "provider_account" } else { "provider_account_missing" };
        assert!(found.iter().all(|gate| gate["code"] == code), "{name}: {found:?}");
        let path = format!("/v1/releases/{release}/transition");
        let transition = app.post(path, json!({ "to_state": "active" })).await;
        let body = transition.expect(status);
        if status == 422 {
            assert_eq!(body["detail"]["missing"].as_array().unwrap().len(), 2, "{body}");
            assert_eq!(body["detail"]["missing"][0]["code"], "provider_account_missing");
            assert!(body.to_string().contains("`second`") && body.to_string().contains("`third`"), "{body}");
        }
    }
}

#[tokio::test]
async fn failures_keep_status_account_model_and_run() {
    let endpoint = ScriptedEndpoint::start().await;
    let settings = account("first", "openai", &endpoint.url("/v1"), "")
        + &account("keyless", "openai", &endpoint.url("/v1"), "secret_ref = \"env:FAIRWAY_TEST_NO_SUCH_KEY\"");
    let server = CapturedServer::start_with("warn", &settings).await;
    let fixtures = server.client.fixtures();
    let model = fixtures.asset_with_version("model_policy", "model", model_policy("first", None)).await;
    let (prompt, policy) = (fixtures.ticket_prompt("prompt").await, fixtures.allow_all_policy("policy").await);
    let workload = fixtures.active_workload_with_bindings("main", vec![model, prompt, policy]).await;
    let mut runs = Vec::new();
    for (status, body, code) in [
        (401, json!({}), "provider_key_refused"),
        (404, json!({ "error": { "code": "model_not_found" } }), "provider_unknown_model"),
        (400, json!({ "error": { "code": "content_filter" } }), "provider_content_refused"),
        (400, json!({}), "provider_refused"),
        (429, json!({}), "provider_busy"),
        (503, json!({}), "provider_unavailable"),
    ] {
        endpoint.respond_with(ScriptedResponse::status(status, &body.to_string()).header("Retry-After", "60"));
        let response = run_workload(&server, &workload).await;
        assert_eq!((&response["status"], &response["error"]["code"]), (&json!("failed"), &json!(code)));
        let id = response["execution_id"].as_str().unwrap().to_owned();
        let graph = server.client.get(format!("/v1/executions/{id}/evidence-graph")).await.expect(200);
        let artifact = graph["evidence_artifacts"][0]["artifact_id"].as_str().unwrap();
        let path = format!("/v1/executions/{id}/evidence-artifacts/{artifact}");
        let call = server.client.get(path).await.expect(200)["content"].clone();
        assert_eq!(
            (&call["attempts"][0]["result"], &call["attempts"][0]["http_status"]),
            (&json!(code), &json!(status))
        );
        runs.push((id, status, code));
    }
    let (telemetry, _) = server.shut_down().await;
    for (id, status, code) in runs {
        let mut lines = telemetry.log.lines().filter(|line| line.contains("a model call failed") && line.contains(&id));
        let line = lines.next().unwrap_or_else(|| panic!("no line for {code}: {}", telemetry.log));
        for part in [code, "first", "small", &status.to_string()] {
            assert!(line.contains(part), "{part}: {line}");
        }
    }
    let warning = telemetry.log.lines().find(|line| line.contains("the key of a provider account cannot be read"));
    let warning = warning.unwrap();
    assert!(warning.contains("keyless") && warning.contains("env:FAIRWAY_TEST_NO_SUCH_KEY"), "{warning}");
}

async fn run_workload(server: &CapturedServer, workload: &fairway_testkit::app::ActiveWorkload) -> Value {
    let body = json!({ "environment": "dev", "inputs": { "ticket": "a refund" } });
    server.client.post(workload.execute_path(), body).await.expect(200)
}
