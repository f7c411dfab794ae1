//! The list of runtime workloads, and reading a workload by its slug.

use fairway_testkit::TestApp;
use serde_json::{Value, json};

async fn create_workload(app: &TestApp, slug: &str, body: Value) -> String {
    let workload = app.fixtures().workload(slug).await;
    app.patch(format!("/v1/workloads/{workload}"), body).await.expect(200);
    workload
}

fn chat_interface(description: &str) -> Value {
    json!({ "presentation_mode": "chat", "description": description })
}

async fn listed_slugs(app: &TestApp, query: &str) -> Vec<String> {
    let workloads = app.get(format!("/v1/workloads/runtime-enabled?{query}")).await.expect(200);
    workloads.as_array().unwrap().iter().map(|entry| entry["slug"].as_str().unwrap().to_owned()).collect()
}

/// The text as a query value in which every byte is percent-encoded.
fn percent_encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

#[tokio::test]
async fn lists_workloads_with_an_interface_that_can_run() {
    let app = TestApp::start().await;
    let form = json!({ "presentation_mode": "form" });
    create_workload(
        &app,
        "sorter",
        json!({
            "name": "Ticket sorter", "description": "For the desk.", "owner_ref": "team:desk",
            "interface_config": form,
        }),
    )
    .await;
    let helper = create_workload(
        &app,
        "helper",
        json!({ "name": "Helper", "interface_config": chat_interface("Answers questions.") }),
    )
    .await;
    let block = json!({ "interface_config": { "presentation_mode": "block" } });
    let suspended = create_workload(&app, "asleep", block.clone()).await;
    let retired = create_workload(&app, "over", block).await;
    app.fixtures().workload("plain").await;
    app.patch(format!("/v1/workloads/{suspended}"), json!({ "status": "suspended" })).await.expect(200);
    app.patch(format!("/v1/workloads/{retired}"), json!({ "status": "retired" })).await.expect(200);
    let workloads = app.get("/v1/workloads/runtime-enabled").await;
    assert_eq!(workloads.header("x-total-count"), Some("2"));
    let entries = workloads.expect(200);
    let updated = app.get(format!("/v1/workloads/{helper}")).await.expect(200)["updated_at"].clone();
    assert_eq!(
        entries[0],
        json!({
            "slug": "helper", "name": "Helper", "description": "Answers questions.", "presentation_mode": "chat",
            "owner_ref": "team:tests", "updated_at": updated,
        })
    );
    assert_eq!((&entries[1]["slug"], &entries[1]["description"]), (&json!("sorter"), &json!("For the desk.")));
    for (query, slugs) in [
        ("presentation_mode=form", vec!["sorter"]),
        ("presentation_mode=chat", vec!["helper"]),
        ("presentation_mode=block", vec![]),
        ("owner_ref=team:desk", vec!["sorter"]),
        ("owner_ref=user:desk", vec![]),
        ("presentation_mode=form&owner_ref=team:tests", vec![]),
        ("q=", vec!["helper", "sorter"]),
        ("q=%20", vec!["helper", "sorter"]),
        ("limit=1", vec!["helper"]),
        ("limit=1&offset=1", vec!["sorter"]),
    ] {
        assert_eq!(listed_slugs(&app, query).await, slugs, "{query}");
    }
    let first_response = app.get("/v1/workloads/runtime-enabled?limit=1").await;
    assert!(first_response.header("link").unwrap().contains("rel=\"next\""), "{first_response}");
    for (query, field) in [
        ("presentation_mode=window", "presentation_mode"),
        ("presentation_mode=", "presentation_mode"),
        ("owner_ref=nobody", "owner_ref"),
        ("owner_ref=", "owner_ref"),
        ("q=a&q=b", "q"),
        ("query=a", "query"),
        ("workspace_id=x", "workspace_id"),
        ("limit=0", "limit"),
    ] {
        let response = app.get(format!("/v1/workloads/runtime-enabled?{query}")).await;
        assert_eq!(response.expect_refusal(422, "validation_error")["fields"][0]["path"], field, "{query}");
    }
}

#[tokio::test]
async fn searches_by_words_only() {
    let app = TestApp::start().await;
    create_workload(
        &app,
        "one",
        json!({ "name": "Ticket sorter", "interface_config": chat_interface("Sorts e-mail & more, 100%.") }),
    )
    .await;
    create_workload(&app, "two", json!({
        "name": "Café planner", "description": "Tickets for lunch.", "interface_config": chat_interface("Plans O'Brien's day."),
    }))
    .await;
    create_workload(&app, "three", json!({ "name": "Überblick 分類", "interface_config": chat_interface("") })).await;
    for (text, slugs) in [
        ("ticket", vec!["two", "one"]),
        ("TICK", vec!["two", "one"]),
        ("tickets", vec!["two"]),
        ("ticket sorter", vec!["one"]),
        ("sorter ticket", vec!["one"]),
        ("ticket unknown", vec![]),
        ("orter", vec![]),
        ("café", vec!["two"]),
        ("cafe\u{301}", vec!["two"]),
        ("überblick", vec!["three"]),
        ("分", vec!["three"]),
        ("100%", vec!["one"]),
        ("e-mail", vec!["one"]),
        ("o'brien", vec!["two"]),
        // Operators of SQL patterns and query languages have no special meaning in a search.
        ("%", vec![]),
        ("_", vec![]),
        ("*", vec![]),
        ("!ticket", vec!["two", "one"]),
        ("ticket | unknown", vec![]),
        ("ticket & sorter", vec!["one"]),
        ("ticket <-> sorter", vec!["one"]),
        ("(ticket", vec!["two", "one"]),
        ("ticket:*", vec!["two", "one"]),
        ("ticket:A", vec![]),
        ("'; DROP TABLE workload; --", vec![]),
        ("' OR '1'='1", vec![]),
        ("\\", vec![]),
        ("ticket\\", vec!["two", "one"]),
        ("''", vec![]),
        (".*", vec![]),
        ("00000000-0000-7000-8000-000000000001", vec![]),
        ("00000000-0000-7000-8000-000000000001/ticket", vec![]),
        ("\u{1}\u{7f}\u{202e}", vec![]),
    ] {
        assert_eq!(listed_slugs(&app, &format!("q={}", percent_encoded(text))).await, slugs, "{text:?}");
    }
    let longest_term = "ticket ".repeat(36);
    assert_eq!(listed_slugs(&app, &format!("q={}", percent_encoded(&longest_term))).await, ["two", "one"]);
    for long_term in ["x".repeat(257), "ticket ".repeat(2_000)] {
        let response = app.get(format!("/v1/workloads/runtime-enabled?q={}", percent_encoded(&long_term))).await;
        let refusal = response.expect_refusal(422, "validation_error");
        assert_eq!((&refusal["fields"][0]["path"], &refusal["fields"][0]["code"]), (&json!("q"), &json!("too_long")));
    }
    app.get("/v1/workloads/runtime-enabled?q=%00").await.expect_refusal(422, "validation_error");
    // After the texts of a workload change, its old words no longer match.
    let second_workload =
        app.get("/v1/workloads/by-slug/two").await.expect(200)["workload_id"].as_str().unwrap().to_owned();
    app.patch(format!("/v1/workloads/{second_workload}"), json!({ "name": "Meals", "description": "" }))
        .await
        .expect(200);
    assert_eq!(listed_slugs(&app, "q=ticket").await, ["one"]);
    assert_eq!(listed_slugs(&app, "q=meal").await, ["two"]);
}

#[tokio::test]
async fn callers_see_the_workloads_of_their_roles() {
    let app = TestApp::start().await;
    let own_workload =
        create_workload(&app, "here", json!({ "interface_config": chat_interface("shared word") })).await;
    let other_workspace = app.fixtures().workspace("elsewhere", "elsewhere").await;
    let other_workload = app.fixtures().in_workspace(&other_workspace).workload("there").await;
    app.patch(format!("/v1/workloads/{other_workload}"), json!({ "interface_config": chat_interface("shared word") }))
        .await
        .expect(200);
    let tenant = app.fixtures().tenant("abroad").await;
    let fixtures = app.fixtures().in_tenant(&tenant, crate::support::workspace_fixture::WORKSPACE);
    let foreign = fixtures.workspace("foreign", "foreign").await;
    let away = app.fixtures().in_tenant(&tenant, &foreign).workload("away").await;
    let config = json!({ "interface_config": chat_interface("shared word") });
    app.patch(format!("/v1/workloads/{away}"), config).in_tenant(&tenant).await.expect(200);
    app.fixtures()
        .bind_role("user:near", "runtime_user", "workspace", Some(crate::support::workspace_fixture::WORKSPACE))
        .await;
    app.fixtures().bind_role("user:far", "viewer", "workspace", Some(&other_workspace)).await;
    app.fixtures().bind_role("user:one", "runtime_user", "workload", Some(&own_workload)).await;
    for (actor, slugs, unseen) in
        [("user:near", ["here"], "there"), ("user:far", ["there"], "here"), ("user:one", ["here"], "there")]
    {
        for query in ["", "?q=shared", "?presentation_mode=chat&owner_ref=team:tests"] {
            let workloads = app.get(format!("/v1/workloads/runtime-enabled{query}")).as_actor(actor).await;
            assert_eq!(workloads.header("x-total-count"), Some("1"));
            let found: Vec<Value> = workloads.expect(200).as_array().unwrap().clone();
            assert!(found.iter().map(|entry| entry["slug"].as_str().unwrap()).eq(slugs), "{actor} {query}");
        }
        app.get(format!("/v1/workloads/by-slug/{}", slugs[0])).as_actor(actor).await.expect(200);
        app.get(format!("/v1/workloads/by-slug/{unseen}")).as_actor(actor).await.expect_refusal(404, "not_found");
    }
    app.get("/v1/workloads/by-slug/away").await.expect_refusal(404, "not_found");
    assert_eq!(listed_slugs(&app, "q=shared").await, ["there", "here"]);
    let foreign_list = app.get("/v1/workloads/runtime-enabled?q=shared").in_tenant(&tenant).await.expect(200);
    assert_eq!((foreign_list.as_array().unwrap().len(), &foreign_list[0]["slug"]), (1, &json!("away")));
}

#[tokio::test]
async fn reads_a_runtime_workload_by_its_slug() {
    let app = TestApp::start().await;
    let config = json!({
        "presentation_mode": "form", "input_fields": [{ "name": "ticket", "type": "text" }],
        "rollout_config": { "sample_size": 5 },
    });
    let id = create_workload(&app, "sorter", json!({ "name": "Sorter", "interface_config": config })).await;
    assert_eq!(
        app.get("/v1/workloads/by-slug/sorter").await.expect(200),
        json!({
            "slug": "sorter", "workload_id": id, "name": "Sorter",
            "interface_config": {
                "presentation_mode": "form", "description": "", "output_display": "text", "theme": {},
                "input_fields": [{ "name": "ticket", "type": "text" }], "rollout_config": { "sample_size": 5 },
                "access_mode": "authenticated",
            },
            "environments": [],
        })
    );
    // A suspended workload can still be read, so that a page can report the suspension.
    app.patch(format!("/v1/workloads/{id}"), json!({ "status": "suspended" })).await.expect(200);
    app.get("/v1/workloads/by-slug/sorter").await.expect(200);
    // A slug may be the last segment of another path below `/v1/workloads/{workload_id}/`.
    for slug in ["active-release", "releases", "lanes"] {
        let body = json!({ "interface_config": { "presentation_mode": "chat" } });
        let id = create_workload(&app, slug, body).await;
        assert_eq!(app.get(format!("/v1/workloads/by-slug/{slug}")).await.expect(200)["workload_id"], json!(id));
    }
    app.fixtures().workload("plain").await;
    for slug in ["plain", "unknown", "Sorter", "sorter%00", "by-slug", "%2e%2e", "sorter%2f"] {
        app.get(format!("/v1/workloads/by-slug/{slug}")).await.expect_refusal(404, "not_found");
    }
}
