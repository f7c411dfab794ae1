//! Flows: creation from YAML, validation with all errors, and the stored source text.

use crate::support::{
    resource_measurement::assert_bounded,
    workspace_fixture::{ECHO_FLOW, WORKSPACE},
};
use fairway_testkit::TestApp;
use serde_json::{Value, json};

fn with_workspace(path: &str) -> String {
    format!("{path}?workspace_id={WORKSPACE}")
}

fn error_codes(errors: &Value) -> Vec<&str> {
    errors.as_array().unwrap().iter().map(|error| error["code"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn flow_keeps_the_source_text_of_every_version() {
    let app = TestApp::start().await;
    let first_yaml = format!("# kept as it is\n{ECHO_FLOW}");
    let body = json!({
        "slug": "echo", "owner_ref": "team:a", "version_label": "first", "content_yaml": first_yaml, "change_note": "The first.",
    });
    let flow = app.post("/v1/flows", body).await.expect(201);
    assert_eq!(flow["version"]["change_note"], "The first.");
    let id = flow["asset_id"].as_str().unwrap();
    assert_eq!((&flow["asset_kind"], &flow["content_yaml"]), (&json!("orchestration_flow"), &json!(first_yaml)));
    assert_eq!(flow["version"]["version_label"], "first");
    assert!(flow["version"]["content"]["steps"].is_array(), "{flow}");
    // The flow's name is a recorded field: it is stored and not enforced, which a warning reports.
    let mut warnings = flow["version"]["warnings"].as_array().unwrap().iter();
    assert!(warnings.any(|warning| warning["code"] == "recorded_only" && warning["pointer"] == "/name"), "{flow}");

    let versions = format!("/v1/flows/{id}/versions");
    let second_yaml = ECHO_FLOW.replace("name: ", "name: 'Second' # was ");
    let body = json!({ "content_yaml": second_yaml, "change_note": "It has a name now." });
    let created = app.post(&versions, body.clone()).idempotency_key("second").await;
    let version = created.expect(201);
    assert_eq!((&version["version_label"], &version["content_yaml"]), (&json!("v1"), &json!(second_yaml)));
    assert_eq!((&version["asset_id"], &version["content"]["name"]), (&flow["asset_id"], &json!("Second")));
    assert_eq!(version["change_note"], "It has a name now.");
    let replay = app.post(&versions, body).idempotency_key("second").await;
    assert_eq!((replay.expect(201), replay.header("idempotency-replayed")), (version.clone(), Some("true")));
    let labelled = json!({ "content_yaml": second_yaml, "version_label": "first" });
    app.post(&versions, labelled).await.expect_refusal(409, "duplicate_version_label");

    // The flow shows its newest version; each version keeps its own text.
    let flow_view = app.get(with_workspace(&format!("/v1/flows/{id}"))).await.expect(200);
    assert_eq!(
        (&flow_view["asset_version_id"], &flow_view["content_yaml"]),
        (&version["asset_version_id"], &json!(second_yaml))
    );
    let version_path = format!("/v1/assets/{id}/versions/{}", version["asset_version_id"].as_str().unwrap());
    assert_eq!(created.header("location"), Some(with_workspace(&version_path).as_str()));
    assert_eq!(app.get(with_workspace(&version_path)).await.expect(200), version);
    let earlier = format!("/v1/assets/{id}/versions/{}", flow["asset_version_id"].as_str().unwrap());
    assert_eq!(app.get(with_workspace(&earlier)).await.expect(200)["content_yaml"], json!(first_yaml));
    let flows = app.get(with_workspace("/v1/flows")).await.expect(200);
    assert_eq!((flows.as_array().unwrap().len(), &flows[0]["asset_id"]), (1, &flow["asset_id"]));

    // A version that was created from JSON has no YAML source text.
    let content = version["content"].clone();
    let created = app.post(format!("/v1/assets/{id}/versions"), json!({ "content": content })).await.expect(201);
    assert_eq!((&created["content"], &created["checksum"]), (&version["content"], &version["checksum"]));
    let flow_view = app.get(with_workspace(&format!("/v1/flows/{id}"))).await.expect(200);
    assert_eq!(
        (&flow_view["asset_version_id"], &flow_view["content_yaml"]),
        (&created["asset_version_id"], &Value::Null)
    );
}

#[tokio::test]
async fn flow_can_exist_without_a_version() {
    let app = TestApp::start().await;
    let id = app.fixtures().asset_without_versions("orchestration_flow", "bare").await;
    let flow_view = app.get(with_workspace(&format!("/v1/flows/{id}"))).await.expect(200);
    assert_eq!(
        (&flow_view["version"], &flow_view["asset_version_id"], &flow_view["content_yaml"]),
        (&Value::Null, &Value::Null, &Value::Null)
    );
    let created = app.post(format!("/v1/flows/{id}/versions"), json!({ "content_yaml": ECHO_FLOW })).await;
    assert_eq!(created.expect(201)["version_label"], "v1");
}

/// A flow with an error on every line that can contain one.
const BROKEN: &str = "\
name: [1]
trigger: { type: api_request, inputs_schema: { ticket: string, __proto__: string } }
entry_step: nowhere
steps:
  - id: ask
    type: llm_call
    colour: blue
    inputs: { message: '{{trigger.gone}}' }
    next: answer
    on_success: answer
  - id: ask
    type: task
    action: evaluate_policy
    inputs: { x: '{{release.bogus}}', y: '{{steps.answer.output}}', z: '{{oops' }
  - id: answer
    type: return
    output: '{{steps.gone.output}}'
";

#[tokio::test]
async fn validation_reports_all_errors_and_stores_nothing() {
    let app = TestApp::start().await;
    let flow = app.fixtures().flow("echo", ECHO_FLOW).await;
    let path = format!("/v1/flows/{}/validate", flow.asset_id);
    let valid = app.post(&path, json!({ "content_yaml": ECHO_FLOW })).await.expect(200);
    assert_eq!(valid, json!({ "valid": true, "errors": [] }));
    let invalid = app.post(with_workspace(&path), json!({ "content_yaml": BROKEN })).await.expect(200);
    assert_eq!(invalid["valid"], false);
    let errors = &invalid["errors"];
    for code in [
        "wrong_type",
        "invalid_value",
        "unknown_key",
        "missing_key",
        "next_and_on_success",
        "unknown_role",
        "reference_malformed",
        "duplicate_step_id",
        "unknown_step",
        "unknown_input",
    ] {
        assert!(error_codes(errors).contains(&code), "{code} is missing: {errors}");
    }
    for error in errors.as_array().unwrap() {
        assert!(error["line"].as_u64().unwrap() > 0 && error["column"].as_u64().unwrap() > 0, "{error}");
        assert!(!error["message"].as_str().unwrap().contains("gone"), "errors must not echo content: {error}");
        assert_eq!(error.as_object().unwrap().len(), 4);
    }
    let error_of = |code: &str| errors.as_array().unwrap().iter().find(|error| error["code"] == code).unwrap().clone();
    assert_eq!((&error_of("unknown_key")["line"], &error_of("unknown_key")["column"]), (&json!(7), &json!(5)));
    // Creating the flow reports the same errors as validating it.
    let body = json!({ "slug": "broken", "owner_ref": "team:a", "content_yaml": BROKEN });
    let refusal = app.post("/v1/flows", body).await.expect_refusal(400, "invalid_flow");
    assert_eq!(&refusal["errors"], errors);
    let response = app.post(format!("/v1/flows/{}/versions", flow.asset_id), json!({ "content_yaml": BROKEN })).await;
    assert_eq!(&response.expect_refusal(400, "invalid_flow")["errors"], errors);
    // Corrected errors are no longer reported, and no new errors appear.
    let text = BROKEN.replace("name: [1]\n", "").replace("    colour: blue\n", "");
    let result = app.post(&path, json!({ "content_yaml": text })).await.expect(200);
    assert_eq!(error_codes(&result["errors"]).len() + 2, error_codes(errors).len(), "{result}");
    let listed = app.get(with_workspace(&format!("/v1/assets/{}/versions", flow.asset_id))).await.expect(200);
    assert_eq!(listed.as_array().unwrap().len(), 1);
    // Only flows that the workspace can see can be validated by identifier.
    let prompt = app.prompt("prompt").await;
    let body = json!({ "content_yaml": ECHO_FLOW });
    for path in [
        format!("/v1/flows/{}/validate", prompt.asset_id),
        format!("/v1/flows/{}/versions", prompt.asset_id),
        format!("/v1/flows/{}/validate?workspace_id={}", flow.asset_id, app.fixtures().workspace("far", "far").await),
    ] {
        app.post(path, body.clone()).await.expect_refusal(404, "not_found");
    }
    app.post(&path, json!({ "content_yaml": 1 })).await.expect_refusal(422, "validation_error");
    app.post(&path, json!({})).await.expect_refusal(422, "validation_error");
}

fn flow_with_steps(list: &str) -> String {
    format!("entry_step: a\nsteps:\n{list}")
}

/// Texts that attack a YAML parser (threat T13 in `docs/security.md`), with the error code of each.
fn hostile_texts() -> Vec<(&'static str, String, &'static str)> {
    let mut alias_bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..9 {
        let item = format!("*a{}", level - 1);
        alias_bomb.push_str(&format!("a{level}: &a{level} [{}]\n", vec![item; 9].join(", ")));
    }
    let mut chain = "a0: &a0 [x]\n".to_owned();
    for level in 1..5_000 {
        chain.push_str(&format!("a{level}: &a{level} [*a{}]\n", level - 1));
    }
    let anchored: String = (0..5_000).map(|level| format!("&n{level} [")).collect();
    vec![
        ("alias bomb", alias_bomb, "yaml_expansion"),
        ("chain of aliases", chain, "yaml_too_deep"),
        ("an anchor around itself", "a: &a [*a]\n".to_owned(), "yaml_expansion"),
        ("anchors at every level", anchored, "yaml_syntax"),
        ("many values", format!("[{}]", "0,".repeat(130_000)), "yaml_expansion"),
        ("just too many values", format!("[{}]", "0,".repeat(39_000)), "yaml_expansion"),
        ("many values in lines", "- 0\n".repeat(60_000), "yaml_expansion"),
        ("many keys", (0..22_000).map(|key| format!("k{key}: 1\n")).collect(), "yaml_expansion"),
        ("deep lists", "[".repeat(200_000), "yaml_expansion"),
        ("lists deeper than the parser goes", "[".repeat(30_000), "yaml_syntax"),
        ("deep maps", "{a: ".repeat(60_000), "yaml_expansion"),
        ("deep dashes", "- ".repeat(120_000), "yaml_too_deep"),
        ("deep questions", "? ".repeat(120_000), "yaml_key_no_text"),
        ("anchors in keys", "a: &k key\n*k : 1\n".to_owned(), "yaml_key_no_text"),
        ("a list as a key", "? [a, b]\n: 1\n".to_owned(), "yaml_key_no_text"),
        ("a tag", "a: !!python/object/apply:os.system ['id']\n".to_owned(), "yaml_tag"),
        ("a tag of our own", "a: !include /etc/passwd\n".to_owned(), "yaml_tag"),
        ("several documents", format!("{ECHO_FLOW}---\n{ECHO_FLOW}"), "yaml_syntax"),
        ("tabs", "a:\n\t- 1\n".to_owned(), "yaml_syntax"),
        ("a doubled key", format!("{ECHO_FLOW}entry_step: other\n"), "yaml_duplicate_key"),
        (
            "a doubled key further in",
            flow_with_steps("  - {id: a, id: b, type: return, output: x}\n"),
            "yaml_duplicate_key",
        ),
        ("a merge key", format!("<<: {{x: 1}}\n{ECHO_FLOW}"), "unknown_key"),
        ("the boolean of Norway", flow_with_steps("  - {id: a, type: return, output: x, next: no}\n"), "unknown_key"),
        ("a boolean as an id", flow_with_steps("  - {id: true, type: return, output: x}\n"), "wrong_type"),
        ("a number beyond doubles", flow_with_steps("  - {id: a, type: return, output: 1e999}\n"), "yaml_number"),
        (
            "a number that rounds",
            flow_with_steps("  - {id: a, type: return, output: 9007199254740993}\n"),
            "yaml_number",
        ),
        ("a NUL", flow_with_steps("  - {id: a, type: return, output: \"\\0\"}\n"), "yaml_nul"),
        ("a long scalar", format!("a: '{}'", "x".repeat(300 << 10)), "flow_too_large"),
        ("a long line of quotes", "'".repeat(200_001), "yaml_syntax"),
        ("references that are structure", format!("a: [{}", "{{trigger.a}},".repeat(18_000)), "yaml_key_no_text"),
        ("many comments", "#\n".repeat(120_000), "yaml_syntax"),
        ("nothing", String::new(), "yaml_syntax"),
    ]
}

/// Graphs that would run forever or read undefined values (threat T14 in `docs/security.md`), with the error code of
/// each.
fn hostile_graphs() -> Vec<(&'static str, String, &'static str)> {
    let task = |id: &str, fields: &str| format!("  - {{id: {id}, type: task, action: evaluate_policy{fields}}}\n");
    let end_step = "  - {id: end, type: return, output: x}\n";
    let returns = |output: &str| flow_with_steps(&format!("  - {{id: a, type: return, output: '{output}'}}\n"));
    let many_steps = |count: usize| (0..count).map(|index| format!("- {{id: s{index}}}\n")).collect::<String>();
    let dense: String =
        (0..199).map(|index| task(&format!("s{index}"), &format!(", on_failure: s{}", (index + 7) % 199))).collect();
    vec![
        ("a cycle", flow_with_steps(&(task("a", ", next: b") + &task("b", ", next: a"))), "cycle"),
        (
            "a cycle of failures",
            flow_with_steps(&(task("a", ", on_failure: b") + &task("b", ", on_failure: a") + end_step)),
            "cycle",
        ),
        ("a step that follows itself", flow_with_steps(&task("a", ", next: a")), "cycle"),
        ("cycles everywhere", format!("entry_step: s0\nsteps:\n{dense}{end_step}"), "cycle"),
        ("an unknown step", flow_with_steps(&(task("a", ", next: gone") + end_step)), "unknown_step"),
        ("an unknown entry", flow_with_steps(end_step), "unknown_step"),
        (
            "an unreachable step",
            flow_with_steps(&(task("a", ", next: end") + &task("b", "") + end_step)),
            "unreachable_step",
        ),
        ("an open end", flow_with_steps(&task("a", "")), "path_without_return"),
        ("twice the same id", flow_with_steps(&(task("a", "") + &task("a", "") + end_step)), "duplicate_step_id"),
        ("too many steps", format!("entry_step: s0\nsteps:\n{}", many_steps(300)), "too_many_steps"),
        ("far too many steps", format!("entry_step: s0\nsteps:\n{}", many_steps(10_000)), "yaml_expansion"),
        (
            "a later step",
            flow_with_steps(&(task("a", ", inputs: {x: '{{steps.end.output}}'}") + end_step)),
            "step_not_earlier",
        ),
        ("its own output", returns("{{steps.a.output}}"), "step_not_earlier"),
        ("an unknown role", returns("{{release.unbound}}"), "unknown_role"),
        ("an input of the language", returns("{{trigger.__proto__}}"), "unknown_input"),
        ("an input of the class", returns("{{trigger.constructor}}"), "unknown_input"),
        ("braces in braces", returns("{{ {{trigger.x}} }}"), "reference_malformed"),
        ("many braces", returns(&"{{".repeat(10_000)), "reference_malformed"),
    ]
}

#[tokio::test]
async fn hostile_flows_are_refused_within_bounds() {
    let app = TestApp::start().await;
    let flow = app.fixtures().flow("echo", ECHO_FLOW).await;
    let path = format!("/v1/flows/{}/validate", flow.asset_id);
    app.post(&path, json!({ "content_yaml": ECHO_FLOW })).await.expect(200);
    for (name, text, code) in hostile_texts().into_iter().chain(hostile_graphs()) {
        let body = json!({ "slug": "hostile", "owner_ref": "team:a", "content_yaml": text });
        let refusal = assert_bounded(name, app.post("/v1/flows", body)).await.expect_refusal(400, "invalid_flow");
        assert!(error_codes(&refusal["errors"]).contains(&code), "{name}: {}", refusal["errors"]);
        assert!(refusal["errors"].as_array().unwrap().iter().all(|error| error["line"].is_u64()), "{name}");
        let validation = app.post(&path, json!({ "content_yaml": text })).await.expect(200);
        assert_eq!(validation, json!({ "valid": false, "errors": refusal["errors"] }), "{name}");
    }
    let long_body = json!({ "slug": "x", "owner_ref": "team:a", "content_yaml": "x".repeat(10 << 20) });
    assert_bounded("ten megabytes", app.post("/v1/flows", long_body)).await.expect_refusal(413, "payload_too_large");
    // JSON content is bounded as well. The limit on the YAML text does not apply to it.
    let wide_flow = json!({ "entry_step": "a", "steps": [{ "id": "a", "type": "return", "output": vec![0; 30_000] }] });
    let versions = format!("/v1/assets/{}/versions", flow.asset_id);
    let body = json!({ "content": wide_flow });
    app.post(&versions, body).await.expect_refusal(400, "invalid_content");
    let listed = app.get(with_workspace("/v1/flows")).await.expect(200);
    assert_eq!(listed.as_array().unwrap().len(), 1);
}
