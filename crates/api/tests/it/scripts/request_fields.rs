//! The fields of a script request are validated before all other checks.

use super::{query_count, script_body, start_app};
use fairway_testkit::{StubScriptGateway, TestApp};
use serde_json::{Value, json};

#[tokio::test]
async fn validates_fields_before_every_other_check() {
    let gateway = StubScriptGateway::succeeding();
    let app = start_app(&gateway).await;
    for (name, value) in [
        ("workspace_id", json!("main")),
        ("workload_slug", json!("Main!")),
        ("environment", json!("")),
        ("language", json!("python")),
        ("code", json!(1)),
        ("code", json!("x".repeat((256 << 10) + 1))),
        ("lane", json!("standard")),
        ("inputs", json!({})),
    ] {
        let mut body = script_body("main");
        body[name] = value;
        let refusal = app.post("/v1/runtime/code", body).await.expect_refusal(422, "validation_error");
        assert_eq!(refusal["fields"][0]["path"], name, "{refusal}");
    }
    assert_eq!(gateway.script_count(), 0);
}

/// Threats T22 and T23 in `docs/security.md`: every spelling of a field that could name an identity is refused.
#[tokio::test]
async fn rejects_fields_that_name_an_identity() {
    let gateway = StubScriptGateway::succeeding();
    let app =
        TestApp::builder().gateway(gateway.clone()).setting("FAIRWAY_INTERNAL_CLIENTS", "service:portal").start().await;
    app.active_workload("main").await;
    let plain_body = script_body("main").to_string();
    let body_with = |member: &str| format!("{},{member}}}", plain_body.trim_end_matches('}'));
    for member in [
        r#""actor":"S3CRET""#,
        r#""actor":null"#,
        r#""actor":["S3CRET"]"#,
        r#""actor":{"ref":"S3CRET"}"#,
        r#""\u0061ctor":"S3CRET""#,
        r#""ACTOR_REF":"S3CRET""#,
        r#""actorType":"S3CRET""#,
        r#""actor-auth-mode":"S3CRET""#,
        r#""execution_mode":"on_behalf_of""#,
        r#""tenant":"S3CRET""#,
        r#""tenant_id":"S3CRET""#,
        r#""principal":"S3CRET""#,
        r#""delegation":"S3CRET""#,
        r#""delegated_by":"S3CRET""#,
        r#""on_behalf_of":"S3CRET""#,
        r#""context.actor":"S3CRET""#,
        r#""context.actor_ref":"S3CRET""#,
        r#""Execution.Mode":"S3CRET""#,
        r#""my-actor-ref":"S3CRET""#,
        r#""run_as":"S3CRET""#,
        r#""runAs":null"#,
        r#""user":"S3CRET""#,
        r#""sub":"S3CRET""#,
        r#""\uff41\uff43\uff54\uff4f\uff52":"S3CRET""#,
        r#""ａｃｔｏｒ":"S3CRET""#,
        r#""аctor":"S3CRET""#,
        r#""ac\u200btor":"S3CRET""#,
        r#""options":[[{"a":{"Run-As":"S3CRET"}}]]"#,
        r#""language":{"user":"S3CRET"}"#,
        r#""metadata":{"deep":[{"actor":"S3CRET"}]}"#,
        r#""code":"1","actor":"S3CRET""#,
        r#""actor":"one","actor":"S3CRET""#,
    ] {
        for actor in ["user:local", "service:portal"] {
            let request = app.post("/v1/runtime/code", Value::Null).with_body("application/json", body_with(member));
            let response = request.as_actor(actor).await;
            response.expect_refusal(422, "forbidden_field");
            assert!(!response.text().contains("S3CRET") && !response.text().contains("actor"), "{response}");
        }
    }
    let form = app.post("/v1/runtime/code", Value::Null);
    let form = form.with_body(
        "multipart/form-data; boundary=x",
        "--x\r\nContent-Disposition: form-data; name=\"actor\"\r\n\r\nroot\r\n--x--\r\n",
    );
    form.await.expect_refusal(415, "unsupported_media_type");
    app.post("/v1/runtime/code?actor_ref=user:root", script_body("main")).await.expect_refusal(422, "validation_error");
    // A request with a duplicate member is malformed JSON.
    let duplicate = app.post("/v1/runtime/code", Value::Null).with_body("application/json", body_with(r#""code":"2""#));
    duplicate.await.expect_refusal(400, "malformed_json");
    assert_eq!(gateway.script_count(), 0);
    assert_eq!(query_count(&app, "SELECT count(*) FROM execution").await, 0);
    // The code of a script may contain the forbidden names.
    let mut mentioning = script_body("main");
    mentioning["code"] = json!("{\"actor\": null}");
    app.post("/v1/runtime/code", mentioning).await.expect(200);
}

/// The search for forbidden names runs on a worker thread, so it is bounded. A body that exceeds the bound is refused.
#[tokio::test]
async fn bounds_the_search_for_forbidden_names() {
    let gateway = StubScriptGateway::succeeding();
    let app = start_app(&gateway).await;
    let plain_body = script_body("main").to_string();
    let body_with = |name: &dyn Fn(usize) -> String, count: usize| {
        let members: String = (0..count).map(|index| format!(",{:?}:0", name(index))).collect();
        app.post("/v1/runtime/code", Value::Null)
            .with_body("application/json", format!("{}{members}}}", plain_body.trim_end_matches('}')))
    };
    body_with(&|index| format!("0{index:04}{}", "bB".repeat(112)), 8).await.expect_refusal(422, "validation_error");
    body_with(&|index| format!("0{index:04}{}", "bB".repeat(112)), 4_000).await.expect_refusal(422, "forbidden_field");
    body_with(&|index| format!("{index:04}{}", "\u{fdfa}".repeat(72)), 4_000)
        .await
        .expect_refusal(422, "forbidden_field");
    body_with(&|index| if index < 4_000 { format!("n{index}") } else { "actor".into() }, 4_001)
        .await
        .expect_refusal(422, "forbidden_field");
    body_with(&|index| format!("n{index}"), 90_000).await.expect_refusal(413, "payload_too_large");
    // A request with a duplicate member is malformed JSON.
    body_with(&|_| "n".repeat(200), 4_000).await.expect_refusal(400, "malformed_json");
    assert_eq!(gateway.script_count(), 0);
}
