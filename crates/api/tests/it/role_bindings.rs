//! Caller identity, role bindings, and how soon a change of roles takes effect.

use crate::support::workspace_fixture::{TENANT, WORKSPACE};
use fairway_testkit::TestApp;
use serde_json::json;

#[tokio::test]
async fn local_server_trusts_the_actor_header() {
    let app = TestApp::start().await;
    let asset = |slug: &str| json!({ "slug": slug, "asset_kind": "skill", "owner_ref": "team:a" });
    // The default local actor holds every permission.
    let created = app.post("/v1/assets", asset("by-local")).await.expect(201);
    assert_eq!(created["created_by"], "user:local");
    app.fixtures().tenant("acme").await;
    // An actor without any role binding, past or present, administers the default tenant only.
    for actor in ["user:ada", "service:deploy", "user:a.b_c@d+e-f"] {
        let created = app.post("/v1/assets", asset(&format!("by-{}", actor.len()))).as_actor(actor).await.expect(201);
        assert_eq!(created["created_by"], actor);
        app.get(format!("/v1/tenants/{TENANT}/settings")).as_actor(actor).await.expect(200);
        app.get("/v1/tenants").as_actor(actor).await.expect_refusal(403, "forbidden");
    }
    // The anonymous actor has no role.
    let refusal = app.get("/v1/workloads").as_actor("anonymous").await.expect_refusal(403, "forbidden");
    assert_eq!(refusal["permission"], "workload.view");
    app.post("/v1/assets", asset("by-nobody")).as_actor("anonymous").await.expect_refusal(403, "forbidden");
    // These actor references are malformed, or have a kind that a caller cannot claim.
    let long_actor = format!("user:{}", "a".repeat(128));
    for actor in [
        "",
        "ada",
        "user:",
        "User:ada",
        "user:Ada",
        "user: ada",
        "user:-ada",
        "group:ops",
        "system:cron",
        "share_link:1",
        "team:a",
        "user:ada,user:root",
        "user:a/b",
        "admin",
        "user:é",
        &long_actor,
    ] {
        let refusal = app.get("/v1/workloads").as_actor(actor).await.expect_refusal(422, "validation_error");
        assert_eq!(refusal["fields"][0]["path"], "X-Actor-Ref", "{actor}");
    }
    let response = app.get("/v1/workloads").as_actor("user:ada").as_actor("user:ada").await;
    response.expect_refusal(422, "validation_error");
}

#[tokio::test]
async fn ignores_headers_that_resemble_the_actor_header() {
    let app = TestApp::start().await;
    app.fixtures().bind_role("user:weak", "viewer", "workspace", Some(WORKSPACE)).await;
    // A proxy may fold underscores in header names into hyphens. This header would then be a second, unchecked
    // identity.
    let address = app.address();
    let body = r#"{"slug":"twin","asset_kind":"skill","owner_ref":"team:a"}"#;
    let request = format!(
        "POST /v1/assets HTTP/1.1\r\nHost: {address}\r\nX-Actor-Ref: user:weak\r\nX_Actor_Ref: user:local\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    app.send_raw_bytes(request).await.expect_refusal(403, "forbidden");
    for name in ["actor_ref", "X-Actor", "X-Forwarded-User", "X-Tenant", "Authorization"] {
        let request = app.post("/v1/assets", json!({ "slug": "x", "asset_kind": "skill", "owner_ref": "team:a" }));
        request.as_actor("user:weak").header(name, "user:local").await.expect_refusal(403, "forbidden");
    }
}

#[tokio::test]
async fn former_role_holder_keeps_only_remaining_permissions() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    app.get("/v1/assets").as_actor("user:ada").await.expect(200);
    let viewer = fixtures.bind_role("user:ada", "viewer", "workspace", Some(WORKSPACE)).await;
    app.get("/v1/assets").as_actor("user:ada").await.expect(200);
    let body = json!({ "slug": "x", "asset_kind": "skill", "owner_ref": "team:a" });
    let refusal = app.post("/v1/assets", body.clone()).as_actor("user:ada").await.expect_refusal(403, "forbidden");
    assert_eq!(refusal["permission"], "asset.create");
    let author = fixtures.bind_role("user:ada", "author", "workspace", Some(WORKSPACE)).await;
    app.post("/v1/assets", body).as_actor("user:ada").await.expect(201);
    for binding in [viewer, author] {
        let path = format!("/v1/role-bindings/{binding}");
        app.delete(&path).await.expect(204);
        app.delete(&path).await.expect_refusal(404, "not_found");
    }
    app.get("/v1/assets").as_actor("user:ada").await.expect_refusal(403, "forbidden");
    app.get("/v1/roles").as_actor("user:ada").await.expect_refusal(403, "forbidden");
}

#[tokio::test]
async fn role_changes_take_effect_on_the_next_request() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let workload = app.active_workload("main").await;
    let active = format!("/v1/workloads/{}/active-release?environment=dev", workload.workload_id);
    let body = json!({ "environment": "dev", "inputs": { "ticket": "x" } });
    let workspace = Some(WORKSPACE);
    let keep = fixtures.bind_role("user:ada", "auditor", "workspace", workspace).await;
    for _ in 0..3 {
        let operator = fixtures.bind_role("user:ada", "operator", "workspace", workspace).await;
        // Each request is sent twice. The second response uses the caches that the first request filled.
        for _ in 0..2 {
            app.get(&active).as_actor("user:ada").await.expect(200);
            app.post(workload.execute_path(), body.clone()).as_actor("user:ada").await.expect(200);
        }
        app.delete(format!("/v1/role-bindings/{operator}")).await.expect(204);
        app.post(workload.execute_path(), body.clone()).as_actor("user:ada").await.expect_refusal(403, "forbidden");
        app.get(&active).as_actor("user:ada").await.expect(200);
    }
    app.delete(format!("/v1/role-bindings/{keep}")).await.expect(204);
    app.get(&active).as_actor("user:ada").await.expect_refusal(404, "not_found");
    app.post(workload.execute_path(), body).as_actor("user:ada").await.expect_refusal(404, "not_found");
}

#[tokio::test]
async fn first_role_in_another_tenant_ends_default_permissions() {
    let app = TestApp::start().await;
    let workload = app.active_workload("main").await;
    let active = format!("/v1/workloads/{}/active-release?environment=dev", workload.workload_id);
    let body = json!({ "environment": "dev", "inputs": { "ticket": "x" } });
    let tenant = app.fixtures().tenant("acme").await;
    for (actor, chosen) in [("user:ada", None), ("user:grace", Some(TENANT))] {
        let with_caller = |request: fairway_testkit::app::Request| match chosen {
            Some(tenant) => request.as_actor(actor).in_tenant(tenant),
            None => request.as_actor(actor),
        };
        for _ in 0..2 {
            with_caller(app.get(&active)).await.expect(200);
            with_caller(app.post(workload.execute_path(), body.clone())).await.expect(200);
        }
        // The actor's first role is in another tenant, and the role bindings of this tenant do not change.
        app.fixtures().in_tenant(&tenant, "").bind_role(actor, "tenant_admin", "tenant", Some(&tenant)).await;
        with_caller(app.get(&active)).await.expect_refusal(404, "not_found");
        with_caller(app.post(workload.execute_path(), body.clone())).await.expect_refusal(404, "not_found");
    }
}

#[tokio::test]
async fn revoked_platform_role_ends_in_every_tenant() {
    let app = TestApp::start().await;
    let tenant = app.fixtures().tenant("acme").await;
    let foreign_workspace = app.fixtures().in_tenant(&tenant, "").workspace("there", "there").await;
    let workload = app.fixtures().in_tenant(&tenant, &foreign_workspace).active_workload("main").await;
    let active = format!("/v1/workloads/{}/active-release?environment=dev", workload.workload_id);
    let body = json!({ "environment": "dev", "inputs": { "ticket": "x" } });
    let binding = app.fixtures().bind_role("user:roamer", "operator", "platform", None).await;
    for _ in 0..2 {
        app.get(&active).as_actor("user:roamer").in_tenant(&tenant).await.expect(200);
        let run = app.post(workload.execute_path(), body.clone()).as_actor("user:roamer").in_tenant(&tenant);
        run.await.expect(200);
    }
    app.delete(format!("/v1/role-bindings/{binding}")).await.expect(204);
    app.get(&active).as_actor("user:roamer").in_tenant(&tenant).await.expect_refusal(404, "not_found");
    let run = app.post(workload.execute_path(), body).as_actor("user:roamer").in_tenant(&tenant);
    run.await.expect_refusal(404, "not_found");
}

#[tokio::test]
async fn workload_role_reveals_only_that_workload() {
    let app = TestApp::start().await;
    let (first_workload, second_workload) = (app.active_workload("one").await, app.active_workload("two").await);
    app.fixtures().bind_role("user:guest", "runtime_user", "workload", Some(&first_workload.workload_id)).await;
    let body = json!({ "environment": "dev", "inputs": { "ticket": "x" } });
    app.post(first_workload.execute_path(), body.clone()).as_actor("user:guest").await.expect(200);
    app.post(second_workload.execute_path(), body).as_actor("user:guest").await.expect_refusal(404, "not_found");
    let listed = app.get("/v1/workloads").as_actor("user:guest").await.expect(200);
    let slugs: Vec<_> = listed.as_array().unwrap().iter().map(|row| row["slug"].clone()).collect();
    assert_eq!(slugs, ["one"]);
    app.get(format!("/v1/workloads/{}", second_workload.workload_id))
        .as_actor("user:guest")
        .await
        .expect_refusal(404, "not_found");
}

#[tokio::test]
async fn callers_grant_roles_only_within_their_own_scope() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let roles = app.get("/v1/roles").await.expect(200);
    let names: Vec<_> = roles.as_array().unwrap().iter().map(|role| role["role"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "viewer",
            "runtime_user",
            "author",
            "approver",
            "operator",
            "auditor",
            "workspace_admin",
            "tenant_admin",
            "platform_admin",
        ]
    );
    assert_eq!(
        roles[1]["permissions"],
        json!(["workload.view", "execution.run", "notification.read", "notification.preference.self_manage"])
    );
    fixtures.bind_role("user:boss", "workspace_admin", "workspace", Some(WORKSPACE)).await;
    let grant = |role: &str, kind: &str, reference: Option<&str>| {
        let body = json!({ "principal": "user:new", "role": role, "scope_kind": kind, "scope_ref": reference });
        app.post("/v1/role-bindings", body)
    };
    let namespace = Some(crate::support::workspace_fixture::NAMESPACE);
    let role_binding = grant("operator", "workspace", Some(WORKSPACE)).as_actor("user:boss").await.expect(201);
    let expected = json!({
        "role_binding_id": role_binding["role_binding_id"], "principal": "user:new", "role": "operator",
        "scope_kind": "workspace", "scope_ref": WORKSPACE, "created_at": role_binding["created_at"],
        "created_by": "user:boss",
    });
    assert_eq!(role_binding, expected);
    let listed = app.get(format!("/v1/role-bindings?workspace_id={WORKSPACE}")).as_actor("user:boss").await;
    assert_eq!(listed.expect(200)[0], role_binding, "newest first");
    grant("operator", "workspace", Some(WORKSPACE)).await.expect_refusal(409, "duplicate_role_binding");
    for (role, kind, reference, permission) in [
        ("viewer", "namespace", namespace, "workspace.manage"),
        ("viewer", "tenant", Some(TENANT), "tenant.manage"),
        ("viewer", "platform", None, "platform.manage"),
    ] {
        let refusal = grant(role, kind, reference).as_actor("user:boss").await.expect_refusal(403, "forbidden");
        assert_eq!(refusal["permission"], permission);
    }
    // Tenant-wide and platform-wide roles cannot be bound to a narrower scope.
    for (role, kind, reference) in [
        ("tenant_admin", "workspace", Some(WORKSPACE)),
        ("tenant_admin", "namespace", namespace),
        ("platform_admin", "tenant", Some(TENANT)),
    ] {
        grant(role, kind, reference).await.expect_refusal(422, "validation_error");
    }
    for body in [
        json!({ "principal": "anonymous", "role": "viewer", "scope_kind": "platform" }),
        json!({ "principal": "share_link:x", "role": "viewer", "scope_kind": "platform" }),
        json!({ "principal": "user:x", "role": "owner", "scope_kind": "platform" }),
        json!({ "principal": "user:x", "role": "viewer", "scope_kind": "galaxy" }),
        json!({ "principal": "user:x", "role": "viewer", "scope_kind": "platform", "scope_ref": TENANT }),
        json!({ "principal": "user:x", "role": "viewer", "scope_kind": "tenant" }),
        json!({ "principal": "user:x", "role": "viewer", "scope_kind": "tenant", "scope_ref": "x" }),
    ] {
        app.post("/v1/role-bindings", body).await.expect_refusal(422, "validation_error");
    }
}

#[tokio::test]
async fn requests_need_exactly_one_workspace() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let asset = fixtures.asset_without_versions("skill", "probe").await;
    let flow = fixtures.flow("probe-flow", crate::support::workspace_fixture::ECHO_FLOW).await.asset_id;
    for path in [format!("/v1/assets/{asset}"), format!("/v1/assets/{asset}/versions"), format!("/v1/flows/{flow}")] {
        for query in ["", "?workspace_id=", "?workspace_id=x"] {
            let refusal = app.get(format!("{path}{query}")).await.expect_refusal(422, "validation_error");
            assert_eq!(refusal["fields"][0]["path"], "workspace_id", "{path}{query}");
        }
        let path_with_two = format!("{path}?workspace_id={WORKSPACE}&workspace_id={WORKSPACE}");
        app.get(path_with_two).await.expect_refusal(422, "validation_error");
    }
    let other_workspace = fixtures.workspace("other", "other").await;
    let body = |slug: &str| json!({ "slug": slug, "asset_kind": "skill", "owner_ref": "team:a" });
    let body_for = |slug: &str| json!({ "slug": slug, "asset_kind": "skill", "owner_ref": "team:a", "workspace_id": other_workspace });
    let workload =
        json!({ "slug": "w", "owner_ref": "team:a", "invocation_mode": "api", "workspace_id": other_workspace });
    let flow = json!({
        "slug": "f", "owner_ref": "team:a", "workspace_id": other_workspace,
        "content_yaml": crate::support::workspace_fixture::ECHO_FLOW,
    });
    for (path, body) in [("/v1/assets", body_for("a")), ("/v1/workloads", workload), ("/v1/flows", flow)] {
        let response = app.post(format!("{path}?workspace_id={WORKSPACE}"), body).await;
        assert_eq!(response.expect_refusal(422, "validation_error")["fields"][0]["path"], "workspace_id");
    }
    let doubled =
        app.post(format!("/v1/assets?workspace_id={other_workspace}&workspace_id={WORKSPACE}"), body("b")).await;
    doubled.expect_refusal(422, "validation_error");
    let agreed = app.post(format!("/v1/assets?workspace_id={other_workspace}"), body_for("c")).await.expect(201);
    assert_eq!(agreed["workspace_id"], other_workspace);
    let by_query = app.post(format!("/v1/assets?workspace_id={other_workspace}"), body("d")).await.expect(201);
    assert_eq!(by_query["workspace_id"], other_workspace);
    // Without an explicit workspace, the server uses the workspace of the caller's roles if there is only one.
    fixtures.bind_role("user:at-home", "author", "workspace", Some(&other_workspace)).await;
    let home_asset = app.post("/v1/assets", body("e")).as_actor("user:at-home").await.expect(201);
    assert_eq!(home_asset["workspace_id"], other_workspace);
    fixtures.bind_role("user:at-home", "author", "workspace", Some(WORKSPACE)).await;
    // If the roles name several workspaces, a server in local mode uses the default workspace.
    let asset_without_workspace = app.post("/v1/assets", body("f")).as_actor("user:at-home").await.expect(201);
    assert_eq!(asset_without_workspace["workspace_id"], WORKSPACE);
    assert_eq!(app.post("/v1/assets", body("g")).await.expect(201)["workspace_id"], WORKSPACE);
    // In other tenants, no workspace is the default.
    let tenant = fixtures.tenant("acme").await;
    let other_tenant = fixtures.in_tenant(&tenant, "");
    other_tenant.bind_role("user:eve", "tenant_admin", "tenant", Some(&tenant)).await;
    other_tenant.workspace("only", "only").await;
    app.post("/v1/assets", body("h")).as_actor("user:eve").await.expect_refusal(422, "workspace_required");
}

#[tokio::test]
async fn rejected_role_binding_names_every_invalid_field() {
    let app = TestApp::start().await;
    let valid_body =
        json!({ "principal": "user:ada", "role": "viewer", "scope_kind": "workspace", "scope_ref": WORKSPACE });
    for (changes, at_fault) in [
        (json!({ "scope_kind": "galaxy" }), vec![("scope_kind", "invalid")]),
        (json!({ "scope_ref": null }), vec![("scope_ref", "missing")]),
        (json!({ "scope_kind": "platform" }), vec![("scope_ref", "invalid")]),
        (json!({ "principal": "ada" }), vec![("principal", "invalid_principal")]),
        (json!({ "role": "king" }), vec![("role", "invalid")]),
        (
            json!({ "principal": "ada", "role": "king", "scope_kind": "tenant", "scope_ref": null }),
            vec![("principal", "invalid_principal"), ("role", "invalid"), ("scope_ref", "missing")],
        ),
    ] {
        let mut body = valid_body.clone();
        body.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        let refusal = app.post("/v1/role-bindings", body).await.expect_refusal(422, "validation_error");
        let fields = refusal["fields"].as_array().unwrap();
        let reported: Vec<_> =
            fields.iter().map(|field| (field["path"].as_str().unwrap(), field["code"].as_str().unwrap())).collect();
        assert_eq!(reported, at_fault, "{changes}");
    }
    app.post("/v1/role-bindings", valid_body).await.expect(201);
}
