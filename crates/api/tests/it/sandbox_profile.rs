//! Scripts whose limits come from a `sandbox_profile` that the release binds.

use crate::{guardrail::evidence_documents, support::workspace_fixture::WORKSPACE};
use fairway_domain::execution::script::{
    Language, Script, ScriptFailure, ScriptGateway, ScriptLimits, ScriptRequest, ScriptResult,
};
use fairway_sandbox::EmbeddedGateway;
use fairway_testkit::{StubScriptGateway, TestApp, app::Response};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use uuid::Uuid;

fn embedded_gateway() -> EmbeddedGateway {
    EmbeddedGateway::with_program(env!("CARGO_BIN_EXE_fairway-server").into())
}

/// Starts a server whose workload binds a sandbox profile. `changes` overrides members of the profile.
async fn start_with_profile(gateway: Arc<dyn ScriptGateway>, changes: Value) -> TestApp {
    let app = TestApp::builder().gateway(gateway).start().await;
    let fixtures = app.fixtures();
    let mut profile = json!({ "runtime": "process", "limits": {}, "network": { "mode": "none" } });
    profile.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    let versions = vec![
        fixtures.ticket_prompt("prompt").await,
        fixtures.allow_all_policy("policy").await,
        fixtures.model_policy("models").await,
        fixtures.asset_with_version("sandbox_profile", "walls", profile).await,
    ];
    fixtures.active_workload_with_bindings("walled", versions).await;
    app
}

async fn run_script(app: &TestApp, language: &str, code: &str) -> Response {
    let body = json!({ "workspace_id": WORKSPACE, "workload_slug": "walled", "environment": "dev",
        "language": language, "code": code });
    app.post("/v1/runtime/code", body).await
}

#[tokio::test]
async fn passes_the_limits_of_the_profile_to_the_gateway() {
    let gateway = StubScriptGateway::succeeding();
    let limits = json!({ "wall_ms": 1_500, "cpu_ms": 700, "memory_mb": 16, "output_bytes": 1_000, "pids": 4 });
    let app = start_with_profile(gateway.clone(), json!({ "limits": limits, "languages": ["starlark"] })).await;
    let response = run_script(&app, "starlark", "result = 1").await.expect(200);
    let lower_limits = ScriptLimits {
        wall_time: Duration::from_millis(1_500),
        cpu_time: Duration::from_millis(700),
        memory_bytes: 16 << 20,
        output_bytes: 1_000,
    };
    assert_eq!(gateway.received_limits(), [lower_limits]);
    let evidence = evidence_documents(&app, &response["execution_id"], "code_run").await;
    assert_eq!(evidence[0]["limits"], lower_limits.as_json());
    // Without a profile, the maximum limits apply.
    app.active_workload("main").await;
    let body = json!({ "workspace_id": WORKSPACE, "workload_slug": "main", "environment": "dev",
        "language": "javascript", "code": "1" });
    app.post("/v1/runtime/code", body).await.expect(200);
    assert_eq!(gateway.received_limits(), [lower_limits, ScriptLimits::MAXIMUM]);
}

#[tokio::test]
async fn refuses_unlisted_languages_before_any_write() {
    let gateway = StubScriptGateway::succeeding();
    let app = start_with_profile(gateway.clone(), json!({ "languages": ["python", "javascript"] })).await;
    run_script(&app, "starlark", "result = 1").await.expect_refusal(422, "language_not_allowed");
    assert_eq!((gateway.script_count(), gateway.prepared_and_waiting_sandboxes().0), (0, 0));
    assert_eq!(app.get("/v1/executions").await.expect(200), json!([]));
    run_script(&app, "javascript", "1").await.expect(200);
    assert_eq!(gateway.script_count(), 1);
}

#[tokio::test]
async fn refuses_unsupported_runtimes_and_images() {
    for changes in [json!({ "runtime": "gvisor" }), json!({ "image": "registry.example.com/python" })] {
        let gateway = StubScriptGateway::succeeding();
        let app = start_with_profile(gateway.clone(), changes).await;
        run_script(&app, "starlark", "result = 1").await.expect_refusal(409, "sandbox_unavailable");
        assert_eq!(gateway.script_count(), 0);
    }
}

#[tokio::test]
async fn scripts_end_at_the_limits_of_their_profile() {
    for (limits, language, code, expected) in [
        (json!({ "output_bytes": 20 }), "starlark", "print('more than twenty bytes')", "script_output_too_long"),
        (json!({ "output_bytes": 20 }), "javascript", "'x'.repeat(30)", "script_output_too_long"),
        (json!({ "memory_mb": 4 }), "javascript", "new Uint8Array(8 << 20).length", "script_memory"),
        (json!({ "memory_mb": 4 }), "starlark", "result = len('x' * (48 << 20))", "script_memory"),
        (json!({ "wall_ms": 100 }), "javascript", "while (true) {}", "script_timeout"),
    ] {
        let app = start_with_profile(Arc::new(embedded_gateway()), json!({ "limits": limits })).await;
        let failed = run_script(&app, language, code).await.expect(200);
        assert_eq!((&failed["status"], &failed["error"]["code"]), (&json!("failed"), &json!(expected)), "{code}");
    }
    // The same scripts succeed under the maximum limits.
    let app = start_with_profile(Arc::new(embedded_gateway()), json!({})).await;
    for (language, code) in [("javascript", "new Uint8Array(8 << 20).length"), ("starlark", "result = 'x' * 30")] {
        let response = run_script(&app, language, code).await.expect(200);
        assert_eq!(response["status"], "completed", "{response}");
    }
}

/// A script with a limit of two minutes of wall time and 100 ms of CPU time.
#[tokio::test]
async fn cpu_limit_ends_a_script_before_the_wall_limit() {
    let limits = ScriptLimits {
        wall_time: Duration::from_secs(120),
        cpu_time: Duration::from_millis(100),
        ..ScriptLimits::MAXIMUM
    };
    for (language, code) in [
        (Language::JavaScript, "while (true) {}"),
        (Language::Starlark, "def f():\n  for x in range(1 << 30):\n    pass\nf()"),
    ] {
        let script = Script { language, code: code.to_owned() };
        let request = ScriptRequest { execution_id: Uuid::now_v7().into(), script: &script, limits };
        let outcome = embedded_gateway().prepare(language, limits).run(request).await.unwrap();
        assert_eq!(outcome, ScriptResult { result: Err(ScriptFailure::TimedOut), stdout: String::new() }, "{code}");
    }
}
