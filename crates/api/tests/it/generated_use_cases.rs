//! Generated bundle plans and refinements. The generator's output is untrusted data.

use crate::support::workspace_fixture::{WORKSPACE, WorkspaceFixture};
use fairway_testkit::{
    PermissionsByActorName, ProviderBehaviour, StubProvider, TestApp,
    app::{Client, Request},
};
use futures_util::future::join_all;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const DESCRIPTION: &str = "Answer a `letter` of a customer in a friendly tone.";

fn generate(app: &Client, description: &str) -> Request {
    app.post(format!("/v1/use-cases/generate?workspace_id={WORKSPACE}"), json!({ "description": description }))
}

fn create(app: &Client, description: &str, bundle: &Value) -> Request {
    let body = json!({ "source_description": description, "bundle": bundle });
    app.post(format!("/v1/use-cases?workspace_id={WORKSPACE}"), body)
}

fn refine(app: &Client, use_case: &str, notes: &[&str], key: &str) -> Request {
    let notes: Vec<Value> = notes.iter().map(|note| json!({ "note": note })).collect();
    let body = json!({ "description": DESCRIPTION, "refinement_context": notes, "idempotency_key": key });
    app.post(format!("/v1/use-cases/{use_case}/refine?workspace_id={WORKSPACE}"), body)
}

async fn query_count(app: &TestApp, sql: &str) -> i64 {
    app.database().connect_as_owner().await.unwrap().query_one(sql, &[]).await.unwrap().get(0)
}

async fn draft(app: &TestApp) -> String {
    let bundle = generate(app, DESCRIPTION).await.expect(200)["bundle"].clone();
    let created = create(app, DESCRIPTION, &bundle).await.expect(201);
    created["use_case_id"].as_str().unwrap().to_owned()
}

/// A new server has no model policy of a workspace. The built-in model policy suffices for `dev`.
#[tokio::test]
async fn ten_sentences_become_ten_workloads_that_run() {
    let app = TestApp::start().await;
    app.services().draft_generator.provision_generators().await.unwrap();
    let mut bundles = BTreeSet::new();
    for topic in
        ["tickets", "letters", "invoices", "minutes", "offers", "claims", "orders", "reviews", "notes", "calls"]
    {
        let description = format!("Summarize {topic} in two sentences.");
        let counts = "SELECT (SELECT count(*) FROM use_case) + (SELECT count(*) FROM asset)";
        let counts_before = query_count(&app, counts).await;
        let generated = generate(&app, &description).await.expect(200);
        assert_eq!(query_count(&app, counts).await, counts_before, "nothing is kept");
        assert_eq!(generated["needs_clarification"], false);
        let members: BTreeSet<&str> = generated["bundle"].as_object().unwrap().keys().map(String::as_str).collect();
        let six = ["name", "summary", "flow", "prompt_template", "model_policy_ref", "connections"];
        assert_eq!(members, six.into());
        assert!(bundles.insert(generated["bundle"].to_string()), "{description}");
        let use_case = create(&app, &description, &generated["bundle"]).await.expect(201);
        let path =
            format!("/v1/use-cases/{}/publish?workspace_id={WORKSPACE}", use_case["use_case_id"].as_str().unwrap());
        let published = app.post(path, json!({})).await.expect(200);
        assert_eq!(published["status"], "active");
        let release = published["release_id"].as_str().unwrap();
        app.fixtures().transition(release, "review_ready").await;
        let verdict = json!({ "outcome": "approved", "subject_kind": "release", "subject_ref": release });
        app.post(format!("/v1/releases/{release}/approvals"), verdict).await.expect(201);
        app.fixtures().transition(release, "approved").await;
        app.fixtures().transition(release, "active").await;
        let workload =
            app.get(format!("/v1/workloads/{}", published["workload_id"].as_str().unwrap())).await.expect(200);
        let run = format!("/v1/workloads/by-slug/{}/execute", workload["slug"].as_str().unwrap());
        let response =
            app.post(run, json!({ "environment": "dev", "inputs": { "input": "A text." } })).await.expect(200);
        assert_eq!(response["status"], "completed", "{response}");
    }
}

#[tokio::test]
async fn gaps_say_who_can_close_them() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    fixture.create_connection("crm").await;
    fixture.fixtures.bind_role("user:author", "author", "workspace", Some(&fixture.workspace)).await;
    let body = json!({ "description": "Draft a reply from the crm, and send it with the `mailer` connection." });
    let generate = app.post(fixture.use_case_path("/generate"), body);
    let response = generate.clone().as_actor("user:author").await.expect(200);
    assert_eq!(response["bundle"]["connections"], json!(["crm", "mailer"]));
    assert_eq!(response["bundle"]["model_policy_ref"], "main-model");
    let gaps = &response["gaps"];
    assert_eq!(
        gaps["connections"],
        json!([{ "kind": "reused", "ref": "crm" }, { "kind": "needs_access", "ref": "mailer" }])
    );
    assert_eq!(gaps["model_policy"], json!({ "kind": "reused", "ref": "main-model" }));
    assert_eq!((&gaps["policy_bundle"]["kind"], &gaps["redacted"]), (&json!("reused"), &json!(false)));
    assert_eq!(generate.await.expect(200)["gaps"]["connections"][1]["kind"], "mint_fresh");
}

#[tokio::test]
async fn callers_without_connection_read_get_redacted_plans() {
    let app = TestApp::builder().decorate_access_store(PermissionsByActorName::decorator()).start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    fixture.create_connection("crm").await;
    let caller = PermissionsByActorName::lacking(&["connection.read"]);
    fixture.fixtures.bind_role(&caller, "viewer", "platform", None).await;
    let description = "Draft a reply and send it with the `mailer` connection.";
    let generate = app.post(fixture.use_case_path("/generate"), json!({ "description": description }));
    let redacted = generate.as_actor(&caller).await.expect(200);
    assert_eq!(redacted["gaps"]["connections"], json!([{ "kind": "needs_admin", "ref": null }]));
    assert_eq!(redacted["gaps"]["redacted"], true);
    let body = json!({ "source_description": description, "bundle": redacted["bundle"] });
    let created = app.post(fixture.use_case_path(""), body).as_actor(&caller).await;
    created.expect_refusal(422, "redacted_bundle");
    assert!(!created.text().contains("mailer") && !redacted["gaps"].to_string().contains("mailer"));
}

#[tokio::test]
async fn short_descriptions_get_one_question() {
    let app = TestApp::start().await;
    let question = generate(&app, "Invoices").await.expect(200);
    assert_eq!(question["needs_clarification"], true);
    assert!(question["question"].is_string() && question["generation_id"].is_string(), "{question}");
    assert!(question.get("bundle").is_none());
    for blank in ["", " ", "a\u{202e}b"] {
        generate(&app, blank).await.expect_refusal(422, "validation_error");
    }
}

#[tokio::test]
async fn refinement_replaces_the_draft_once_per_key() {
    let app = TestApp::start().await;
    let first_draft = draft(&app).await;
    let refined = refine(&app, &first_draft, &["Mention the `deadline`."], "k1").await;
    let successor = refined.expect(201)["use_case"].clone();
    assert_eq!((&successor["status"], &successor["supersedes"]), (&json!("draft"), &json!(first_draft)));
    let use_case = app.get(format!("/v1/use-cases/{first_draft}?workspace_id={WORKSPACE}")).await.expect(200);
    assert_eq!((&use_case["status"], &use_case["superseded_by"]), (&json!("archived"), &successor["use_case_id"]));
    let second_response = refine(&app, &first_draft, &["Mention the `deadline`."], "k1").await;
    assert_eq!(second_response.expect(200)["use_case"], successor);
    assert_eq!((refined.header("etag"), refined.header("idempotency-replayed")), (Some("\"1\""), None));
    assert_eq!(
        (second_response.header("etag"), second_response.header("idempotency-replayed")),
        (Some("\"1\""), Some("true"))
    );
    refine(&app, &first_draft, &["Another note."], "k1").await.expect_refusal(409, "idempotency_key_conflict");
    let next_draft = successor["use_case_id"].as_str().unwrap();
    refine(&app, next_draft, &["Mention the `deadline`."], "k1").await.expect_refusal(409, "idempotency_key_conflict");
    let replaced = refine(&app, &first_draft, &[], "k2").await.expect_refusal(409, "invalid_transition");
    assert_eq!((&replaced["current_state"], &replaced["valid_transitions"]), (&json!("archived"), &json!([])));
    let body =
        json!({ "description": "Another description of it.", "refinement_context": [], "idempotency_key": "k3" });
    let response = app.post(format!("/v1/use-cases/{next_draft}/refine?workspace_id={WORKSPACE}"), body).await;
    assert_eq!(response.expect_refusal(422, "validation_error")["fields"][0]["code"], "description_changed");
}

#[tokio::test]
async fn concurrent_refinements_with_one_key_have_one_successor() {
    let app = TestApp::start().await;
    let first_draft = draft(&app).await;
    let requests = (0..100).map(async |_| {
        loop {
            let response = refine(&app, &first_draft, &["Be brief."], "k").await;
            // On a busy machine, a request may wait too long for a connection and get 503. The test repeats it with
            // the same key.
            if response.status != 503 {
                return response;
            }
        }
    });
    let responses = join_all(requests).await;
    let ids: BTreeSet<String> = responses
        .iter()
        .map(|response| {
            assert!([200, 201].contains(&response.status), "{response}");
            response.json()["use_case"]["use_case_id"].to_string()
        })
        .collect();
    assert_eq!(ids.len(), 1);
    assert_eq!(query_count(&app, "SELECT count(*) FROM use_case WHERE status = 'draft'").await, 1);
    assert_eq!(query_count(&app, "SELECT count(*) FROM use_case").await, 2);
}

#[tokio::test]
async fn questions_do_not_consume_the_key() {
    let app = TestApp::start().await;
    let bundle = generate(&app, DESCRIPTION).await.expect(200)["bundle"].clone();
    let created = create(&app, "Invoices", &bundle).await.expect(201);
    let path = format!("/v1/use-cases/{}/refine?workspace_id={WORKSPACE}", created["use_case_id"].as_str().unwrap());
    let refine = |notes: Value| {
        app.post(&path, json!({ "description": "Invoices", "refinement_context": notes, "idempotency_key": "k" }))
    };
    let question = refine(json!([])).await.expect(200);
    assert!(question["use_case"].is_null() && question["question"].is_string(), "{question}");
    assert_eq!(query_count(&app, "SELECT count(*) FROM use_case").await, 1);
    let refined = refine(json!([{ "note": "Find the total amount in each." }])).await.expect(201);
    assert_eq!(refined["use_case"]["status"], "draft");
}

#[tokio::test]
async fn redacted_refinements_are_refused_without_values() {
    let app = TestApp::builder().decorate_access_store(PermissionsByActorName::decorator()).start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    let caller = PermissionsByActorName::lacking(&["connection.read"]);
    fixture.fixtures.bind_role(&caller, "viewer", "platform", None).await;
    let draft = fixture.create_use_case(&[]).await;
    let body = json!({
        "description": "Sort tickets by their urgency.", "idempotency_key": "k",
        "refinement_context": [{ "note": "Send it with the `mailer` connection." }],
    });
    let response = app.post(fixture.use_case_path(&format!("/{draft}/refine")), body).as_actor(&caller).await;
    response.expect_refusal(422, "redacted_bundle");
    assert!(!response.text().contains("mailer"), "{response}");
    assert_eq!(query_count(&app, "SELECT count(*) FROM use_case").await, 1);
}

/// The stored plan of a use case, read from the database because no response contains all of it.
async fn stored_plan(app: &TestApp, use_case: &str) -> Value {
    let owner = app.database().connect_as_owner().await.unwrap();
    let sql = format!("SELECT bundle FROM use_case WHERE use_case_id = '{use_case}'");
    owner.query_one(&sql, &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn refinement_shows_its_changes_and_keeps_untouched_steps() {
    let app = TestApp::start().await;
    let first_draft = draft(&app).await;
    let refined = async |predecessor: &str, note: &str| {
        let successor =
            refine(&app, predecessor, &[note], predecessor).await.expect(201)["use_case"]["use_case_id"].clone();
        successor.as_str().unwrap().to_owned()
    };
    let compare =
        async |id: &str| app.get(format!("/v1/use-cases/{id}/changes?workspace_id={WORKSPACE}")).await.expect(200);
    let none = json!({ "predecessor_id": null, "changes": [], "unchanged_steps": [], "redacted": false });
    assert_eq!(compare(&first_draft).await, none);
    let second_draft = refined(&first_draft, "Be brief.").await;
    let compared = compare(&second_draft).await;
    let (first_plan, second_plan) = (stored_plan(&app, &first_draft).await, stored_plan(&app, &second_draft).await);
    let template = json!({
        "path": "prompt_template", "before": first_plan["prompt_template"], "after": second_plan["prompt_template"],
    });
    assert_eq!(
        compared,
        json!({
            "predecessor_id": first_draft, "changes": [template], "unchanged_steps": ["answer", "done"], "redacted": false,
        })
    );
    assert_eq!(first_plan["flow"], second_plan["flow"]);
    let third_draft = refined(&second_draft, "Mention the `deadline`.").await;
    let compared = compare(&third_draft).await;
    assert_eq!(compared["changes"][0]["path"], "flow.steps.answer");
    assert_eq!(compared["unchanged_steps"], json!(["done"]));
    assert_eq!(stored_plan(&app, &third_draft).await["flow"]["steps"][1], second_plan["flow"]["steps"][1]);
}

#[tokio::test]
async fn changes_are_as_visible_as_the_bundle() {
    let app = TestApp::builder().decorate_access_store(PermissionsByActorName::decorator()).start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    let caller = async |missing: &str| {
        let caller = PermissionsByActorName::lacking(&[missing]);
        fixture.fixtures.bind_role(&caller, "viewer", "platform", None).await;
        caller
    };
    let (connection_reader, asset_viewer) = (caller("connection.read").await, caller("asset.view").await);
    let body = json!({
        "description": "Sort tickets by their urgency.", "refinement_context": [{ "note": "Ask the `crm` connection." }],
        "idempotency_key": "k",
    });
    let path = fixture.use_case_path(&format!("/{}/refine", fixture.create_use_case(&[]).await));
    let successor = app.post(path, body).await.expect(201)["use_case"]["use_case_id"].clone();
    let path = fixture.use_case_path(&format!("/{}/changes", successor.as_str().unwrap()));
    assert!(app.get(&path).await.expect(200)["changes"].to_string().contains("crm"));
    let use_case = app.get(&path).as_actor(&connection_reader).await.expect(200);
    assert_eq!((&use_case["changes"], &use_case["unchanged_steps"]), (&json!([]), &json!([])));
    assert_eq!(use_case["redacted"], true);
    app.get(&path).as_actor(&asset_viewer).await.expect_refusal(404, "not_found");
}

/// For a refinement, the generator receives the current plan only if the caller may read that plan.
#[tokio::test]
async fn generator_learns_no_more_than_the_caller() {
    let provider = StubProvider::new(ProviderBehaviour::Answers("billing".to_owned()));
    let app = TestApp::builder()
        .decorate_access_store(PermissionsByActorName::decorator())
        .provider(provider.clone())
        .start()
        .await;
    let fixture = WorkspaceFixture::create(&app).await;
    fixture.create_connection("crm-canary").await;
    let mut bundle = fixture.bundle(&[]);
    bundle["model_policy_ref"] = json!("fairway-generator-model");
    provider.set_behaviour(ProviderBehaviour::Answers(bundle.to_string()));
    for (missing, is_told) in [("audit.view", true), ("asset.view", false), ("connection.read", false)] {
        let caller = PermissionsByActorName::lacking(&[missing]);
        fixture.fixtures.bind_role(&caller, "viewer", "platform", None).await;
        let body = json!({
            "description": "Sort tickets by their urgency.", "refinement_context": [{ "note": "Be brief." }],
            "idempotency_key": missing,
        });
        let path = fixture.use_case_path(&format!("/{}/refine", fixture.create_use_case(&[]).await));
        app.post(path, body).as_actor(&caller).await.expect(201);
        let calls = provider.calls();
        let message = &calls.last().unwrap().conversation.messages[0].content;
        assert!(message.contains("Be brief."));
        assert_eq!(message.contains("Sort this ticket by urgency"), is_told, "{missing}");
        assert_eq!(message.contains("main-model"), missing != "asset.view", "{missing}");
        assert_eq!(message.contains("crm-canary"), missing != "connection.read", "{missing}");
    }
}

/// To use a model policy that is not built in, an author needs `asset.view` (threat T17 in `docs/security.md`).
#[tokio::test]
async fn model_policies_resolve_by_the_visibility_of_the_author() {
    let app = TestApp::builder().decorate_access_store(PermissionsByActorName::decorator()).start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    let author = PermissionsByActorName::lacking(&["asset.view"]);
    fixture.fixtures.bind_role(&author, "viewer", "platform", None).await;
    let create = async |policy: &str| {
        let mut bundle = fixture.bundle(&[]);
        bundle["model_policy_ref"] = json!(policy);
        let body = json!({ "source_description": "Sort tickets.", "bundle": bundle });
        app.post(fixture.use_case_path(""), body).as_actor(&author).await
    };
    let body = json!({ "description": "Sort tickets with the main model." });
    let generated = app.post(fixture.use_case_path("/generate"), body).as_actor(&author).await;
    let gaps = generated.expect(200)["gaps"].clone();
    assert_eq!(gaps["model_policy"], json!({ "kind": "reused", "ref": "fairway-generator-model" }));
    assert_eq!(gaps["policy_bundle"], json!({ "kind": "needs_admin", "ref": null }));
    assert!(!generated.text().contains("main-model") && !generated.text().contains("main-policy"), "{generated}");
    let (hidden, unknown) = (create("main-model").await, create("no-such-model").await);
    for response in [&hidden, &unknown] {
        response.expect_refusal(422, "validation_error");
    }
    assert_eq!(hidden.json()["detail"], unknown.json()["detail"]);
    assert!(!hidden.text().contains("main-model"), "{hidden}");
    assert_eq!(query_count(&app, "SELECT count(*) FROM use_case").await, 0);
    assert_eq!(create("fairway-generator-model").await.status, 201);
}
