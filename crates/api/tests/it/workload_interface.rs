//! Interfaces of workloads: replacement, validation with the path of every error, and validation of run inputs.

use fairway_testkit::{
    TestApp,
    app::{ActiveWorkload, Response},
};
use serde_json::{Value, json};

/// A flow that returns its inputs.
const ECHO_INPUTS_FLOW: &str = "\
name: Show
description: Returns what it was given.
trigger: { type: api_request, inputs_schema: { ticket: string, tone: string } }
entry_step: answer
steps:
  - id: answer
    type: return
    output: { ticket: '{{trigger.ticket}}', tone: '{{trigger.tone}}' }
";

fn full_interface() -> Value {
    json!({
        "presentation_mode": "form",
        "description": "Sorts tickets.",
        "input_fields": [
            { "name": "ticket", "label": "Ticket", "type": "textarea", "required": true, "rows": 8 },
            { "name": "tone", "label": "Tone", "type": "select", "options": ["dry", "warm"], "default": "dry" },
            { "name": "amount", "label": "Amount", "type": "number", "min": 0, "max": 10 },
            { "name": "urgent", "label": "Urgent", "type": "boolean" },
            { "name": "due", "label": "Due", "type": "date" },
        ],
        "output_display": "markdown",
        "theme": { "accent_color": "#0af", "font_family": "system-ui, sans-serif", "border_radius": "8px" },
        "rollout_config": { "sample_size": 50, "error_threshold": 0.25 },
    })
}

async fn workload_with_echo_flow(app: &TestApp, slug: &str) -> ActiveWorkload {
    let flow = app.fixtures().flow(&format!("{slug}-flow"), ECHO_INPUTS_FLOW).await;
    let policy = app.fixtures().allow_all_policy(&format!("{slug}-policy")).await;
    app.fixtures().active_workload_with_bindings(slug, vec![flow, policy]).await
}

fn workload_path(workload: &ActiveWorkload) -> String {
    format!("/v1/workloads/{}", workload.workload_id)
}

/// The paths and codes of the refused fields, in order.
fn refused_fields(response: &Response) -> Vec<(String, String)> {
    let refusal = response.expect_refusal(422, "validation_error");
    let field = |field: &Value| {
        assert!(field["message"].as_str().is_some_and(|text| !text.is_empty()), "{response}");
        (field["path"].as_str().unwrap().to_owned(), field["code"].as_str().unwrap().to_owned())
    };
    refusal["fields"].as_array().unwrap().iter().map(field).collect()
}

#[tokio::test]
async fn interface_is_replaced_as_a_whole_and_removed_by_null() {
    let app = TestApp::start().await;
    let workload = app.fixtures().workload("main").await;
    let path = format!("/v1/workloads/{workload}");
    let set_interface = |config: Value| app.patch(&path, json!({ "interface_config": config }));
    let first_response = set_interface(full_interface()).await;
    assert_eq!(first_response.expect(200)["interface_config"], full_interface());
    assert_eq!(first_response.header("etag"), Some("\"2\""));
    assert_eq!(app.get(&path).await.expect(200)["interface_config"], full_interface());
    // An update replaces the whole interface.
    let small_interface = json!({ "presentation_mode": "chat" });
    assert_eq!(set_interface(small_interface.clone()).await.expect(200)["interface_config"], small_interface);
    // An update that repeats the interface changes nothing.
    let unchanged = set_interface(small_interface.clone()).await;
    assert_eq!((unchanged.status, unchanged.header("etag")), (200, Some("\"3\"")));
    // Fields that the request omits stay unchanged.
    let renamed = app.patch(&path, json!({ "name": "Another" })).await.expect(200);
    assert_eq!((&renamed["interface_config"], &renamed["name"]), (&small_interface, &json!("Another")));
    let conditional_response = set_interface(full_interface()).header("If-Match", "\"3\"").await;
    conditional_response.expect_refusal(412, "precondition_failed");
    for invalid_tag in ["3", "\"3", "nonsense", "*, \"4\""] {
        assert_eq!(
            refused_fields(&set_interface(full_interface()).header("If-Match", invalid_tag).await)[0].0,
            "If-Match"
        );
    }
    let none = set_interface(Value::Null).header("If-Match", "\"4\"").await.expect(200);
    assert_eq!(none["interface_config"], Value::Null);
    app.get("/v1/workloads/by-slug/main").await.expect_refusal(404, "not_found");
    assert_eq!(app.get("/v1/workloads/runtime-enabled").await.expect(200), json!([]));
}

#[tokio::test]
async fn every_validation_error_is_reported_with_its_path() {
    let app = TestApp::start().await;
    let workload = app.fixtures().workload("main").await;
    let path = format!("/v1/workloads/{workload}");
    let body = json!({
        "name": "a\u{202e}b",
        "status": "gone",
        "owner_ref": "nobody",
        "interface_config": {
            "input_fields": [{ "name": "a", "type": "colour" }, { "name": "a", "type": "text", "min": 1 }],
            "theme": { "accent_color": "canary{}" },
            "rollout_config": { "sample_size": 0 },
            "shadow": "canary",
        },
    });
    let response = app.patch(&path, body).await;
    let mut reported = refused_fields(&response);
    reported.sort();
    let expected = [
        ("interface_config.input_fields[0].type", "not_one_of"),
        ("interface_config.input_fields[1].min", "not_for_this_type"),
        ("interface_config.input_fields[1].name", "duplicate_name"),
        ("interface_config.presentation_mode", "missing"),
        ("interface_config.rollout_config.sample_size", "out_of_bounds"),
        ("interface_config.shadow", "unknown_field"),
        ("interface_config.theme.accent_color", "invalid_color"),
        ("name", "invalid_name"),
        ("owner_ref", "invalid"),
        ("status", "invalid"),
    ];
    assert_eq!(reported, expected.map(|(path, code)| (path.to_owned(), code.to_owned())));
    assert!(!response.text().contains("canary"), "{response}");
    let current = app.get(&path).await;
    assert_eq!((current.header("etag"), &current.expect(200)["interface_config"]), (Some("\"1\""), &Value::Null));
    for invalid_value in [json!("form"), json!([]), json!(1), json!(true)] {
        let response = app.patch(&path, json!({ "interface_config": invalid_value })).await;
        assert_eq!(refused_fields(&response), [("interface_config".to_owned(), "invalid".to_owned())]);
    }
    // `null` is refused for fields that cannot be null.
    for name in ["name", "description", "owner_ref", "invocation_mode", "status"] {
        let response = app.patch(&path, json!({ name: null })).await;
        assert_eq!(refused_fields(&response), [(name.to_owned(), "invalid".to_owned())]);
    }
}

#[tokio::test]
async fn themes_accept_only_colours_fonts_and_lengths() {
    let app = TestApp::start().await;
    let workload = app.fixtures().workload("main").await;
    let path = format!("/v1/workloads/{workload}");
    let themed = |theme: Value| {
        let config = json!({ "presentation_mode": "form", "theme": theme });
        app.patch(&path, json!({ "interface_config": config }))
    };
    let long_text = "a".repeat(900_000);
    let corpus = [
        "red;} body{background:url(//x)",
        "expression(alert(1))",
        "var(--x, url())",
        "var(--x)",
        "url(//x)",
        "</style><script>alert(1)</script>",
        "\\3b color:red",
        "re\\64 ",
        "red/*",
        "red/**/",
        "\"",
        "'",
        "red!important",
        "rgb(1,2,3",
        "}",
        "@import url(//x)",
        "javascript:alert(1)",
        "red\u{200b}",
        "red\nblue",
        "",
        &long_text,
    ];
    for value in corpus {
        for property in ["accent_color", "background_color", "font_family", "border_radius"] {
            // Font names have a separate limit, which is tested below.
            if property == "font_family" && value == long_text {
                continue;
            }
            let response = themed(json!({ property: value })).await;
            let code = match property {
                "font_family" => "invalid_font_family",
                "border_radius" => "invalid_length",
                _ => "invalid_color",
            };
            let expected = [(format!("interface_config.theme.{property}"), code.to_owned())];
            assert_eq!(refused_fields(&response), expected, "{property}: {value:.40?}");
        }
    }
    assert_eq!(refused_fields(&themed(json!({ "font_family": long_text })).await)[0].1, "invalid_font_family");
    for invalid_value in [json!({ "accent_color": 1 }), json!({ "accent_color": ["red"] }), json!([])] {
        assert_eq!(refused_fields(&themed(invalid_value).await)[0].1, "invalid");
    }
    for theme in [json!({}), json!({ "background_color": "rgb(1 2 3 / 50%)" }), json!({ "border_radius": "0" })] {
        assert_eq!(themed(theme.clone()).await.expect(200)["interface_config"]["theme"], theme);
        let detail = app.get("/v1/workloads/by-slug/main").await.expect(200);
        assert_eq!(detail["interface_config"]["theme"], theme);
    }
}

#[tokio::test]
async fn changing_access_requires_workload_expose() {
    let app = TestApp::start().await;
    let workload = workload_with_echo_flow(&app, "main").await;
    let fixtures = app.fixtures();
    for (actor, role) in [("user:ada", "author"), ("user:otto", "operator")] {
        fixtures.bind_role(actor, role, "workspace", Some(crate::support::workspace_fixture::WORKSPACE)).await;
    }
    let set_interface = |actor: &str, config: Value| {
        app.patch(workload_path(&workload), json!({ "interface_config": config })).as_actor(actor)
    };
    let interface_with = |mode: &str| json!({ "presentation_mode": "form", "access_mode": mode });
    // An author can edit the interface but cannot change the access mode.
    set_interface("user:ada", full_interface()).await.expect(200);
    set_interface("user:ada", interface_with("authenticated")).await.expect(200);
    for mode in ["public", "link_shared"] {
        let refusal = set_interface("user:ada", interface_with(mode)).await.expect_refusal(403, "forbidden");
        assert_eq!(refusal["permission"], "workload.expose");
    }
    set_interface("user:otto", interface_with("public")).await.expect(200);
    set_interface("user:ada", json!({ "presentation_mode": "chat", "access_mode": "public" })).await.expect(200);
    // Removing the access mode or the interface restricts access, which needs the same permission as opening it.
    for config in [json!({ "presentation_mode": "form" }), Value::Null, interface_with("authenticated")] {
        set_interface("user:ada", config).await.expect_refusal(403, "forbidden");
    }
    set_interface("user:otto", Value::Null).await.expect(200);
    let facts = "SELECT convert_from(body, 'UTF8') FROM fact WHERE kind = 'workload.changed' ORDER BY fact_id";
    let rows = app.database().connect_as_owner().await.unwrap().query(facts, &[]).await.unwrap();
    let recorded: Vec<Value> = rows.iter().map(|row| serde_json::from_str(row.get(0)).unwrap()).collect();
    let modes: Vec<_> = recorded
        .iter()
        .map(|fact| (fact["actor"].as_str().unwrap(), &fact["detail"]))
        .filter(|(_, detail)| detail["keys"].as_array().unwrap().contains(&json!("access_mode")))
        .map(|(actor, detail)| (actor, detail["previous_access_mode"].clone(), detail["access_mode"].clone()))
        .collect();
    assert_eq!(
        modes,
        [
            ("user:otto", json!("authenticated"), json!("public")),
            ("user:otto", json!("public"), json!("authenticated")),
        ]
    );
    assert!(recorded.iter().all(|fact| !fact.to_string().contains("Sorts tickets")), "facts hold no texts");
}

#[tokio::test]
async fn link_shared_workload_requires_a_share_link() {
    let app = TestApp::start().await;
    let workload = workload_with_echo_flow(&app, "main").await;
    let body = json!({ "environment": "dev", "inputs": { "ticket": "a", "tone": "b" } });
    app.post(workload.execute_path(), body.clone()).await.expect(200);
    let shared = json!({ "interface_config": { "presentation_mode": "form", "access_mode": "link_shared" } });
    app.patch(workload_path(&workload), shared).await.expect(200);
    // The server validates cached decisions by revision, so the change applies to the next request.
    let response = app.post(workload.execute_path(), body).await;
    response.expect_refusal(401, "share_token_required");
    assert_eq!(response.header("www-authenticate"), Some("Bearer"));
    app.get("/v1/workloads/by-slug/main").await.expect_refusal(401, "share_token_required");
    app.get(workload_path(&workload)).await.expect(200);
}

#[tokio::test]
async fn inputs_are_validated_against_the_form() {
    let app = TestApp::start().await;
    let workload = workload_with_echo_flow(&app, "main").await;
    app.patch(workload_path(&workload), json!({ "interface_config": full_interface() })).await.expect(200);
    let run = |inputs: Value| app.post(workload.execute_path(), json!({ "environment": "dev", "inputs": inputs }));
    // An omitted field gets its default.
    let response = run(json!({ "ticket": "a refund", "due": "2028-02-29", "amount": 10, "urgent": true })).await;
    assert_eq!(response.expect(200)["output"], json!({ "ticket": "a refund", "tone": "dry" }));
    let canary = "canary-value";
    for (inputs, expected) in [
        (json!({}), vec![("ticket", "missing")]),
        (json!({ "ticket": "" }), vec![("ticket", "missing")]),
        (json!({ "ticket": null }), vec![("ticket", "invalid")]),
        (json!({ "ticket": 1 }), vec![("ticket", "invalid")]),
        (json!({ "ticket": "x".repeat(32 * 1024 + 1) }), vec![("ticket", "too_long")]),
        (json!({ "ticket": "x", "tone": canary }), vec![("tone", "not_an_option")]),
        (json!({ "ticket": "x", "amount": -1 }), vec![("amount", "out_of_bounds")]),
        (json!({ "ticket": "x", "amount": "1" }), vec![("amount", "invalid")]),
        (json!({ "ticket": "x", "urgent": "true" }), vec![("urgent", "invalid")]),
        (json!({ "ticket": "x", "due": "2026-02-30" }), vec![("due", "invalid_date")]),
        (json!({ "ticket": "x", "due": "0000-01-01" }), vec![("due", "invalid_date")]),
        (json!({ "ticket": "x", "due": "2026-01-01T00:00:00+12:00" }), vec![("due", "invalid_date")]),
        (json!({ "ticket": "x", "__proto__": { "admin": true } }), vec![("__proto__", "unknown_field")]),
        (json!({ "ticket": "x", "constructor": canary }), vec![("constructor", "unknown_field")]),
        (
            json!({ "tone": canary, "amount": 11, "due": canary, "extra": canary }),
            vec![
                ("ticket", "missing"),
                ("tone", "not_an_option"),
                ("amount", "out_of_bounds"),
                ("due", "invalid_date"),
                ("extra", "unknown_field"),
            ],
        ),
    ] {
        let response = run(inputs).await;
        let expected: Vec<_> =
            expected.into_iter().map(|(name, code)| (format!("inputs.{name}"), code.to_owned())).collect();
        assert_eq!(refused_fields(&response), expected);
        assert!(!response.text().contains(canary), "{response}");
    }
    // The number of reported errors is bounded.
    let many_inputs: serde_json::Map<String, Value> =
        (0..50_000).map(|index| (format!("k{index}"), json!(1))).collect();
    assert_eq!(refused_fields(&run(Value::Object(many_inputs)).await).len(), 200);
    let owner = app.database().connect_as_owner().await.unwrap();
    let runs: i64 = owner.query_one("SELECT count(*) FROM execution", &[]).await.unwrap().get(0);
    assert_eq!(runs, 1, "refused requests must not run");
    // Cached plans do not delay a changed form: it applies to the next run.
    let mut strict_interface = full_interface();
    strict_interface["input_fields"][1]["options"] = json!(["dry"]);
    run(json!({ "ticket": "x", "tone": "warm" })).await.expect(200);
    app.patch(workload_path(&workload), json!({ "interface_config": strict_interface })).await.expect(200);
    assert_eq!(refused_fields(&run(json!({ "ticket": "x", "tone": "warm" })).await)[0].0, "inputs.tone");
    // Without a form, inputs are not validated.
    app.patch(workload_path(&workload), json!({ "interface_config": null })).await.expect(200);
    run(json!({ "ticket": "x", "tone": "loud", "extra": [1] })).await.expect(200);
}

#[tokio::test]
async fn replay_finds_its_run_after_the_form_changed() {
    let app = TestApp::start().await;
    let workload = workload_with_echo_flow(&app, "main").await;
    let body = json!({ "environment": "dev", "inputs": { "ticket": "x", "tone": "loud" } });
    let first_response = app.post(workload.execute_path(), body.clone()).idempotency_key("once").await.expect(200);
    app.patch(workload_path(&workload), json!({ "interface_config": full_interface() })).await.expect(200);
    app.post(workload.execute_path(), body.clone()).await.expect_refusal(422, "validation_error");
    let replay = app.post(workload.execute_path(), body).idempotency_key("once").await;
    assert_eq!(replay.expect(200)["execution_id"], first_response["execution_id"]);
    assert_eq!(replay.header("idempotency-replayed"), Some("true"));
}

#[tokio::test]
async fn runtime_interface_names_the_environments_in_which_a_release_serves() {
    let app = TestApp::start().await;
    let other_workload = workload_with_echo_flow(&app, "other").await;
    let workload_id = app.fixtures().workload("shown").await;
    let interface = json!({ "interface_config": full_interface() });
    for id in [&workload_id, &other_workload.workload_id] {
        app.patch(format!("/v1/workloads/{id}"), interface.clone()).await.expect(200);
    }
    let environments =
        async || app.get("/v1/workloads/by-slug/shown").await.expect(200)["environments"].as_array().unwrap().clone();
    assert_eq!(environments().await, [""; 0]);
    let release = app.fixtures().approved_release(&workload_id, &other_workload.versions).await;
    assert_eq!(environments().await, [""; 0], "an approved release does not serve");
    app.fixtures().transition(&release, "active").await;
    assert_eq!(environments().await, ["dev"]);
    app.fixtures().transition(&release, "retired").await;
    assert_eq!(environments().await, [""; 0], "a retired release does not serve");
}
