//! Delegation: runs that a trusted service submits on behalf of a subject (the principal that it acts for).

use crate::{dispatch::execution_path, execution::wait_until_ended, share_link::query_number};
use fairway_testkit::{
    ProviderBehaviour, StubProvider, TestApp,
    app::{ActiveWorkload, Request},
};
use serde_json::{Value, json};

const WORKSPACE: &str = "00000000-0000-7000-8000-000000000003";

fn delegated_body(subject: &str) -> Value {
    json!({
        "environment": "dev", "inputs": { "ticket": "a refund" }, "execution_mode": "on_behalf_of", "actor_ref": subject,
        "actor_type": subject.split(':').next().unwrap(), "actor_auth_mode": "local",
    })
}

fn submit_delegated(app: &TestApp, workload: &ActiveWorkload, subject: &str) -> Request {
    app.post(workload.execute_path(), delegated_body(subject)).as_actor("service:portal")
}

async fn start() -> (TestApp, ActiveWorkload) {
    let provider = StubProvider::new(ProviderBehaviour::Answers("billing".to_owned()));
    let app = TestApp::builder().setting("FAIRWAY_INTERNAL_CLIENTS", "service:portal").provider(provider).start().await;
    let fixtures = app.fixtures();
    let workload = fixtures.active_workload("main").await;
    fixtures.bind_role("service:portal", "runtime_user", "workspace", Some(WORKSPACE)).await;
    fixtures.bind_role("user:mia", "runtime_user", "workspace", Some(WORKSPACE)).await;
    (app, workload)
}

async fn bind_principal(app: &TestApp, workload: &ActiveWorkload, principal: &str) {
    let bindings = format!("/v1/workloads/{}/principal-bindings", workload.workload_id);
    app.put(bindings, json!({ "principal": principal })).await.expect(200);
}

#[tokio::test]
async fn delegated_run_belongs_to_its_subject_and_records_both() {
    let (app, workload) = start().await;
    bind_principal(&app, &workload, "user:mia").await;
    let inline_run = submit_delegated(&app, &workload, "user:mia").await.expect(200)["execution_id"].clone();
    let queued_run = submit_delegated(&app, &workload, "user:mia").header("prefer", "respond-async").await.expect(202);
    for id in [&inline_run, &queued_run["execution_id"]] {
        wait_until_ended(&app, id).await;
        let run_view = app.get(execution_path(id, "")).as_actor("user:mia").await.expect(200);
        assert_eq!(
            (&run_view["submitted_by"], &run_view["delegated_by"]),
            (&json!("user:mia"), &json!("service:portal"))
        );
        assert_eq!(run_view["queued_result"]["result"], "billing");
        app.get(execution_path(id, "")).as_actor("service:portal").await.expect_refusal(404, "not_found");
        let evidence = app.get(execution_path(id, "/evidence-graph")).await.expect(200);
        let execution = &evidence["execution"];
        assert_eq!(execution["submitted_by"], "user:mia");
        assert_eq!(execution["delegated_by"], "service:portal");
    }
}

#[tokio::test]
async fn roles_of_the_groups_of_a_subject_count() {
    let (app, workload) = start().await;
    bind_principal(&app, &workload, "user:noa").await;
    let owner = app.database().connect_as_owner().await.unwrap();
    let signed_in = "INSERT INTO identity (tenant_id, identity_id, issuer, subject, actor, groups, first_seen_at,
            last_seen_at)
        SELECT tenant_id, gen_random_uuid(), 'https://issuer.example', 'noa', 'user:noa', '{group:ops}', fairway_now(),
            fairway_now() FROM tenant";
    owner.execute(signed_in, &[]).await.unwrap();
    app.fixtures().bind_role("user:noa", "viewer", "workspace", Some(WORKSPACE)).await;
    submit_delegated(&app, &workload, "user:noa").await.expect_refusal(403, "forbidden");
    app.fixtures().bind_role("group:ops", "runtime_user", "workspace", Some(WORKSPACE)).await;
    submit_delegated(&app, &workload, "user:noa").await.expect(200);
}

#[tokio::test]
async fn a_role_of_a_refused_subject_counts_on_its_next_run() {
    let (app, workload) = start().await;
    bind_principal(&app, &workload, "user:mia").await;
    for _ in 0..2 {
        submit_delegated(&app, &workload, "user:mia").await.expect(200);
        let roles = app.get("/v1/role-bindings?limit=200").await.expect(200);
        let own_role = roles.as_array().unwrap().iter().find(|role| role["principal"] == "user:mia").unwrap();
        app.delete(format!("/v1/role-bindings/{}", own_role["role_binding_id"].as_str().unwrap())).await.expect(204);
        for _ in 0..2 {
            submit_delegated(&app, &workload, "user:mia").await.expect_refusal(403, "principal_not_bound");
        }
        app.fixtures().bind_role("user:mia", "runtime_user", "workspace", Some(WORKSPACE)).await;
    }
}

#[tokio::test]
async fn delegation_requires_both_permissions_and_a_binding() {
    let (app, workload) = start().await;
    let fixtures = app.fixtures();
    submit_delegated(&app, &workload, "user:mia").await.expect_refusal(403, "principal_not_bound");
    bind_principal(&app, &workload, "user:mia").await;
    bind_principal(&app, &workload, "user:leo").await;
    fixtures.bind_role("user:leo", "viewer", "workspace", Some(WORKSPACE)).await;
    let refusal = submit_delegated(&app, &workload, "user:leo").await.expect_refusal(403, "forbidden");
    assert_eq!(refusal["permission"], "execution.run");
    submit_delegated(&app, &workload, "user:mia").await.expect(200);
    // A delegated request with an explicit lane requires the lane permission of both the service and the subject.
    let mut body_with_lane = delegated_body("user:mia");
    body_with_lane["lane"] = json!("standard");
    let refusal = app
        .post(workload.execute_path(), body_with_lane)
        .as_actor("service:portal")
        .await
        .expect_refusal(403, "forbidden");
    assert_eq!(refusal["permission"], "release.transition");
    // A removed binding and a revoked role take effect at once.
    let bindings = format!("/v1/workloads/{}/principal-bindings/user:mia", workload.workload_id);
    app.delete(bindings).await.expect(204);
    submit_delegated(&app, &workload, "user:mia").await.expect_refusal(403, "principal_not_bound");
    bind_principal(&app, &workload, "user:new").await;
    fixtures.bind_role("user:new", "runtime_user", "workspace", Some(WORKSPACE)).await;
    let roles = app.get("/v1/role-bindings?limit=200").await.expect(200);
    let service = roles.as_array().unwrap().iter().find(|role| role["principal"] == "service:portal").unwrap();
    app.delete(format!("/v1/role-bindings/{}", service["role_binding_id"].as_str().unwrap())).await.expect(204);
    // The rights of this subject are not cached. The cached rights of the service must not admit the run.
    submit_delegated(&app, &workload, "user:new").await.expect_refusal(404, "not_found");
}

/// Operations other than runs always use the service's own identity, so they refuse the on-behalf-of fields.
#[tokio::test]
async fn only_runs_accept_on_behalf_of_fields() {
    let (app, workload) = start().await;
    app.fixtures().bind_role("service:portal", "workspace_admin", "workspace", Some(WORKSPACE)).await;
    let links = format!("/v1/workloads/{}/share-links", workload.workload_id);
    for path in ["/v1/workloads", "/v1/releases", &links] {
        for (field, value) in delegated_body("user:mia").as_object().unwrap() {
            if ["environment", "inputs"].contains(&field.as_str()) {
                continue;
            }
            let send = |actor: &str| app.post(path, json!({ field: value })).as_actor(actor);
            send("service:portal").await.expect_refusal(403, "forbidden_field");
            let refusal = send("service:other").await.expect_refusal(422, "validation_error");
            let problems = refusal["fields"].as_array().unwrap();
            assert!(problems.iter().any(|problem| problem["path"] == *field && problem["code"] == "unknown_field"));
        }
    }
}

#[tokio::test]
async fn rejects_on_behalf_of_fields_from_other_callers() {
    let (app, workload) = start().await;
    bind_principal(&app, &workload, "user:mia").await;
    for actor in ["user:local", "user:mia", "service:other"] {
        let request = app.post(workload.execute_path(), delegated_body("user:mia")).as_actor(actor);
        request.await.expect_refusal(422, "forbidden_field");
        let body = json!({ "environment": "dev", "inputs": { "ticket": "x" }, "actor_ref": "user:mia" });
        app.post(workload.execute_path(), body).as_actor(actor).await.expect_refusal(422, "forbidden_field");
    }
    // Other callers may not send any of the fields. An internal client must send either all of them or none.
    let tool = json!({ "workload_slug": "main", "environment": "dev", "inputs": { "ticket": "x" } });
    for (path, plain_body) in [
        (workload.execute_path(), json!({ "environment": "dev", "inputs": { "ticket": "x" } })),
        ("/v1/runtime/tools/execute_flow".to_owned(), json!({ "arguments": tool })),
        ("/v1/runtime/tools/inspect_evidence".to_owned(), json!({ "arguments": { "execution_id": WORKSPACE } })),
    ] {
        for field in ["execution_mode", "actor_ref", "actor_type", "actor_auth_mode"] {
            for value in [Value::Null, json!(1), json!(["user:mia"]), json!({}), json!("")] {
                let mut body = plain_body.clone();
                body[field] = value;
                for actor in ["user:local", "service:other", "anonymous"] {
                    app.post(&path, body.clone()).as_actor(actor).await.expect_refusal(422, "forbidden_field");
                }
                let response = app.post(&path, body.clone()).as_actor("service:portal").await;
                let fields = response.expect_refusal(422, "validation_error")["fields"].clone();
                assert!(fields.as_array().unwrap().iter().any(|problem| problem["path"] == field), "{field}: {fields}");
            }
        }
    }
    assert_eq!(query_number(&app, "SELECT count(*) FROM execution").await, 0);
    for (field, invalid_value) in [
        ("execution_mode", json!("as")),
        ("execution_mode", Value::Null),
        ("actor_ref", json!("group:care")),
        ("actor_ref", json!("anonymous")),
        ("actor_type", json!("service")),
        ("actor_auth_mode", json!("oidc")),
    ] {
        let mut body = delegated_body("user:mia");
        body[field] = invalid_value;
        let response = app.post(workload.execute_path(), body).as_actor("service:portal").await;
        let fields = response.expect_refusal(422, "validation_error")["fields"].clone();
        assert!(fields.as_array().unwrap().iter().any(|problem| problem["path"] == field), "{field}: {fields}");
    }
}
