//! Principal bindings of a workload: one for each principal, listed newest first to callers with `workspace.manage`.

use crate::support::workspace_fixture::{TENANT, WORKSPACE, WorkspaceFixture};
use fairway_testkit::{
    TestApp,
    app::{Request, Response},
};
use futures_util::future::{join, join_all};
use serde_json::{Value, json};
use std::future::IntoFuture as _;

fn bindings_path(workload: &str) -> String {
    format!("/v1/workloads/{workload}/principal-bindings")
}

async fn query_number(app: &TestApp, sql: &str) -> i64 {
    app.database().connect_as_owner().await.unwrap().query_one(sql, &[]).await.unwrap().get(0)
}

const COUNT_FACTS: &str = "SELECT count(*) FROM fact WHERE kind LIKE 'principal\\_binding.%'";

async fn access_revision(app: &TestApp) -> i64 {
    query_number(app, &format!("SELECT access_revision FROM tenant WHERE tenant_id = '{TENANT}'")).await
}

#[tokio::test]
async fn binding_a_principal_again_updates_its_binding() {
    let app = TestApp::start().await;
    let workload = app.fixtures().workload("main").await;
    let bindings = bindings_path(&workload);
    assert_eq!(app.get(&bindings).await.expect(200), json!([]));
    let first_response = app.put(&bindings, json!({ "principal": "user:ada", "lane": "guided" })).await.expect(200);
    let id = first_response["principal_binding_id"].as_str().unwrap().to_owned();
    let created_at = first_response["created_at"].clone();
    assert_eq!(
        first_response,
        json!({
            "principal_binding_id": id, "workload_id": workload, "principal": "user:ada", "lane": "guided",
            "created_at": created_at, "created_by": "user:local", "updated_at": created_at, "updated_by": "user:local",
        })
    );
    let (revision, facts) = (access_revision(&app).await, query_number(&app, COUNT_FACTS).await);
    // A request that repeats the binding changes nothing.
    assert_eq!(
        app.put(&bindings, json!({ "principal": "user:ada", "lane": "guided" })).await.expect(200),
        first_response
    );
    assert_eq!((access_revision(&app).await, query_number(&app, COUNT_FACTS).await), (revision, facts));
    let body = json!({ "principal": "user:ada", "lane": "restricted" });
    let second_response = app.put(&bindings, body).as_actor("user:grace").await.expect(200);
    assert_eq!(
        (
            &second_response["principal_binding_id"],
            &second_response["lane"],
            &second_response["created_at"],
            &second_response["created_by"]
        ),
        (&json!(id), &json!("restricted"), &created_at, &json!("user:local"))
    );
    assert_eq!(second_response["updated_by"], "user:grace");
    assert!(second_response["updated_at"].as_str() > created_at.as_str(), "{second_response}");
    assert_eq!((access_revision(&app).await, query_number(&app, COUNT_FACTS).await), (revision + 1, facts + 1));
    for body in [json!({ "principal": "group:a.b", "lane": null }), json!({ "principal": "service:ci+1@x" })] {
        let binding = app.put(&bindings, body).await.expect(200);
        assert_eq!((&binding["lane"], binding["principal"].is_string()), (&Value::Null, true));
    }
    let listed = app.get(&bindings).await.expect(200);
    let rows: Vec<(&Value, &Value)> =
        listed.as_array().unwrap().iter().map(|row| (&row["principal"], &row["lane"])).collect();
    assert_eq!(
        rows,
        [
            (&json!("service:ci+1@x"), &Value::Null),
            (&json!("group:a.b"), &Value::Null),
            (&json!("user:ada"), &json!("restricted")),
        ]
    );
    assert_eq!(listed[2], second_response);
    // Omitting the lane removes the lane of the binding.
    let binding = app.put(&bindings, json!({ "principal": "user:ada" })).await.expect(200);
    assert_eq!(binding["lane"], Value::Null);
}

#[tokio::test]
async fn deletes_a_binding_and_creates_a_new_one() {
    let app = TestApp::start().await;
    let workload = app.fixtures().workload("main").await;
    let bindings = bindings_path(&workload);
    let put_binding =
        async || app.put(&bindings, json!({ "principal": "user:ada", "lane": "guided" })).await.expect(200);
    let first_binding = put_binding().await;
    app.put(&bindings, json!({ "principal": "user:adam" })).await.expect(200);
    let (revision, facts) = (access_revision(&app).await, query_number(&app, COUNT_FACTS).await);
    // The colon of the principal may be percent-encoded in the path.
    app.delete(format!("{bindings}/user%3Aada")).await.expect(204);
    assert_eq!((access_revision(&app).await, query_number(&app, COUNT_FACTS).await), (revision + 1, facts + 1));
    for principal in ["user:ada", "user%3aada", "group:ada", "user:nobody", "ada", "user", "system:x", "anonymous"] {
        app.delete(format!("{bindings}/{principal}")).await.expect_refusal(404, "not_found");
    }
    assert_eq!((access_revision(&app).await, query_number(&app, COUNT_FACTS).await), (revision + 1, facts + 1));
    assert_eq!(app.get(&bindings).await.expect(200)[0]["principal"], "user:adam");
    let second_binding = put_binding().await;
    assert_ne!(first_binding["principal_binding_id"], second_binding["principal_binding_id"]);
    app.delete(format!("{bindings}/user:ada")).await.expect(204);
    // The audit log records each change, with the fields of the binding only.
    let sql = "SELECT kind, convert_from(body, 'UTF8') FROM fact WHERE kind LIKE 'principal\\_binding.%'
        AND convert_from(body, 'UTF8') LIKE '%user:ada\"%' ORDER BY fact_id";
    let rows = app.database().connect_as_owner().await.unwrap().query(sql, &[]).await.unwrap();
    let kinds: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
    let expected_facts = ["principal_binding.created", "principal_binding.deleted"];
    assert_eq!(kinds, [expected_facts, expected_facts].concat());
    for row in &rows {
        let fact: Value = serde_json::from_str(row.get(1)).unwrap();
        assert_eq!(fact["detail"], json!({ "workload_id": workload, "principal": "user:ada", "lane": "guided" }));
        assert_eq!((&fact["subject"]["kind"], &fact["workspace_id"]), (&json!("principal_binding"), &json!(WORKSPACE)));
    }
}

#[tokio::test]
async fn rejects_invalid_principals_and_lanes_with_their_field() {
    let app = TestApp::start().await;
    let bindings = bindings_path(&app.fixtures().workload("main").await);
    for principal in
        ["", "ada", "user:", "user:Ada", "team:a", "system:sequencer", "share_link:0", "anonymous", "group:"]
    {
        let refusal =
            app.put(&bindings, json!({ "principal": principal })).await.expect_refusal(422, "validation_error");
        let field = &refusal["fields"][0];
        assert_eq!((&field["path"], &field["code"]), (&json!("principal"), &json!("invalid_principal")), "{principal}");
    }
    for lane in ["", "all", "Guided", "canary"] {
        let body = json!({ "principal": "user:ada", "lane": lane });
        let refusal = app.put(&bindings, body).await.expect_refusal(422, "validation_error");
        assert_eq!(refusal["fields"][0]["path"], "lane", "{lane}");
    }
    for body in [
        json!({}),
        json!({ "lane": "guided" }),
        json!({ "principal": null }),
        json!({ "principal": "user:ada", "lane": 1 }),
        json!({ "principal": "user:ada", "lane": ["guided"] }),
    ] {
        app.put(&bindings, body).await.expect_refusal(422, "validation_error");
    }
    // The response reports the errors of both fields.
    let refusal =
        app.put(&bindings, json!({ "principal": "ada", "lane": "x" })).await.expect_refusal(422, "validation_error");
    assert_eq!(refusal["fields"].as_array().unwrap().len(), 2, "{refusal}");
    assert_eq!(app.get(&bindings).await.expect(200), json!([]));
}

#[tokio::test]
async fn bindings_require_workspace_manage() {
    let app = TestApp::start().await;
    let foreign_fixture = WorkspaceFixture::in_other_tenant(&app).await;
    let fixtures = app.fixtures();
    let bindings = bindings_path(&fixtures.workload("main").await);
    app.put(&bindings, json!({ "principal": "user:ada", "lane": "guided" })).await.expect(200);
    fixtures.bind_role("user:viewer", "viewer", "workspace", Some(WORKSPACE)).await;
    fixtures.bind_role("user:operator", "operator", "workspace", Some(WORKSPACE)).await;
    fixtures.bind_role("user:boss", "workspace_admin", "workspace", Some(WORKSPACE)).await;
    let other_workspace = fixtures.workspace("next-door", "next-door").await;
    fixtures.bind_role("user:neighbour", "workspace_admin", "workspace", Some(&other_workspace)).await;
    let body = json!({ "principal": "user:eve", "lane": "restricted" });
    let requests = || {
        let ended = format!("{bindings}/user:ada");
        [app.get(&bindings), app.put(&bindings, body.clone()), app.delete(ended)]
    };
    for request in requests().into_iter().flat_map(|request| [(request.clone(), "viewer"), (request, "operator")]) {
        let (request, actor) = request;
        let refusal = request.as_actor(&format!("user:{actor}")).await.expect_refusal(403, "forbidden");
        assert_eq!(refusal["permission"], "workspace.manage", "{actor}");
    }
    for request in requests() {
        request.as_actor("user:neighbour").await.expect_refusal(404, "not_found");
    }
    // A workload of another tenant and an unknown workload get the same response.
    for workload in [foreign_fixture.workload.workload_id.as_str(), "00000000-0000-7000-8000-0000000000aa"] {
        let bindings = bindings_path(workload);
        for request in
            [app.get(&bindings), app.put(&bindings, body.clone()), app.delete(format!("{bindings}/user:ada"))]
        {
            request.as_actor("user:boss").await.expect_refusal(404, "not_found");
        }
    }
    assert_eq!(app.get(&bindings).as_actor("user:boss").await.expect(200)[0]["principal"], "user:ada");
    let [read, bind, unbind] = requests();
    read.as_actor("user:boss").await.expect(200);
    bind.as_actor("user:boss").await.expect(200);
    unbind.as_actor("user:boss").await.expect(204);
    // The binding does not apply to the principal of the same name in another tenant.
    let foreign_path = bindings_path(&foreign_fixture.workload.workload_id);
    assert_eq!(app.get(&foreign_path).in_tenant(&foreign_fixture.tenant).await.expect(200), json!([]));
}

#[tokio::test]
async fn replays_a_keyed_request_without_repeating_the_change() {
    let app = TestApp::start().await;
    let bindings = bindings_path(&app.fixtures().workload("main").await);
    let body = |lane: &str| json!({ "principal": "user:ada", "lane": lane });
    let first_response = app.put(&bindings, body("guided")).idempotency_key("once").await.expect(200);
    app.put(&bindings, body("restricted")).await.expect(200);
    // A replay returns the current binding, and does not restore the lane of the original request.
    let replay = app.put(&bindings, body("guided")).idempotency_key("once").await;
    assert_eq!(replay.header("idempotency-replayed"), Some("true"));
    let replayed = replay.expect(200);
    assert_eq!(
        (&replayed["lane"], &replayed["principal_binding_id"]),
        (&json!("restricted"), &first_response["principal_binding_id"])
    );
    // A request that changes nothing also stores its idempotency key.
    app.put(&bindings, body("restricted")).idempotency_key("same").await.expect(200);
    app.put(&bindings, body("standard")).idempotency_key("same").await.expect_refusal(409, "idempotency_key_conflict");
    app.delete(format!("{bindings}/user:ada")).await.expect(204);
    app.put(&bindings, body("guided")).idempotency_key("once").await.expect_refusal(404, "not_found");
    app.put(&bindings, body("standard")).await.expect(200);
    // A new binding of the same principal is a different resource, so the old key does not find it.
    app.put(&bindings, body("guided")).idempotency_key("once").await.expect_refusal(404, "not_found");
}

/// Sends the requests concurrently. A table lock blocks all writes until all requests have decided.
async fn send_concurrently(app: &TestApp, requests: Vec<Request>) -> Vec<Response> {
    let owner = app.database().connect_as_owner().await.unwrap();
    owner.batch_execute("BEGIN; LOCK TABLE principal_binding IN SHARE MODE").await.unwrap();
    let request_count = i64::try_from(requests.len()).unwrap();
    let all_wait = async {
        let waiting_sql =
            "SELECT count(*) FROM pg_locks WHERE relation = 'principal_binding'::regclass AND NOT granted";
        while query_number(app, waiting_sql).await < request_count {
            tokio::task::yield_now().await;
        }
        owner.batch_execute("COMMIT").await.unwrap();
    };
    join(join_all(requests.into_iter().map(Request::into_future)), all_wait).await.0
}

#[tokio::test]
async fn concurrent_bindings_of_one_principal_leave_one_row() {
    let app = TestApp::start().await;
    let bindings = bindings_path(&app.fixtures().workload("main").await);
    let lanes = ["restricted", "guided", "standard"];
    let put_binding = |lane| app.put(&bindings, json!({ "principal": "user:ada", "lane": lane }));
    let responses = send_concurrently(&app, lanes.into_iter().map(put_binding).collect()).await;
    for response in &responses {
        response.expect(200);
    }
    let listed = app.get(&bindings).await.expect(200);
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    assert!(responses.iter().any(|response| response.json() == listed[0]), "{listed}");
    assert_eq!(query_number(&app, COUNT_FACTS).await, 3);
    let path = format!("{bindings}/user:ada");
    let ended = send_concurrently(&app, (0..3).map(|_| app.delete(&path)).collect()).await;
    let mut statuses: Vec<u16> = ended.iter().map(|response| response.status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [204, 404, 404], "{ended:?}");
    assert_eq!(query_number(&app, COUNT_FACTS).await, 4);
}
