//! Tenants and workspaces: ownership and isolation.

use crate::support::workspace_fixture::{TENANT, WORKSPACE, WorkspaceFixture};
use fairway_testkit::{
    TestApp,
    app::{Request, Response},
};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// An identifier that no resource has.
pub(crate) const UNKNOWN_ID: &str = "0190f000-0000-7000-8000-00000000dead";

#[tokio::test]
async fn creates_and_configures_tenants() {
    let app = TestApp::start().await;
    let created = app.post("/v1/tenants", json!({ "slug": "acme", "name": "Acme Ltd." })).await;
    let tenant = created.expect(201);
    let id = tenant["tenant_id"].as_str().unwrap();
    let expected = json!({
        "tenant_id": id, "slug": "acme", "name": "Acme Ltd.", "created_at": tenant["created_at"],
        "created_by": "user:local",
    });
    assert_eq!(tenant, expected);
    app.post("/v1/tenants", json!({ "slug": "acme", "name": "Again" })).await.expect_refusal(409, "duplicate_slug");
    let listed = app.get("/v1/tenants").await.expect(200);
    assert_eq!(listed[0], tenant, "newest first");
    assert_eq!(listed[1]["tenant_id"], TENANT);

    let path = format!("/v1/tenants/{id}/settings");
    // The creator can read the tenant at `Location` without selecting the tenant.
    assert_eq!(created.header("location"), Some(path.as_str()));
    assert_eq!(app.get(&path).await.expect(200)["tenant_id"], id);
    // Callers of other tenants get 404.
    app.get(&path).as_actor("user:ada").await.expect_refusal(404, "not_found");
    let response = app.get(&path).in_tenant(id).await;
    let defaults = json!({
        "tenant_id": id, "notifications_enabled": true, "advanced_notifications_enabled": false, "public_hosts": [],
    });
    assert_eq!(response.expect(200), defaults);
    let hosts = json!({ "public_hosts": ["acme.example"] });
    let change_response =
        app.patch(&path, hosts.clone()).in_tenant(id).header("If-Match", response.header("etag").unwrap()).await;
    assert_eq!(change_response.expect(200)["public_hosts"], json!(["acme.example"]));
    assert_eq!(change_response.expect(200)["notifications_enabled"], true, "omitted fields stay unchanged");
    let stale = app.patch(&path, json!({ "notifications_enabled": false })).in_tenant(id);
    stale.header("If-Match", response.header("etag").unwrap()).await.expect_refusal(412, "precondition_failed");
    // A host can belong to only one tenant.
    let own_path = format!("/v1/tenants/{TENANT}/settings");
    app.patch(&own_path, hosts).await.expect_refusal(409, "host_taken");
    for host in ["Acme.example", "acme.example:80", "", "a b", "acme..example"] {
        let refusal =
            app.patch(&own_path, json!({ "public_hosts": [host] })).await.expect_refusal(422, "validation_error");
        assert!(refusal["fields"][0]["path"].as_str().unwrap().starts_with("public_hosts"), "{refusal}");
    }
}

/// An omitted field remains unchanged. `null` is not a valid value of a setting.
#[tokio::test]
async fn rejects_null_settings() {
    let app = TestApp::start().await;
    let path = format!("/v1/tenants/{TENANT}/settings");
    let response_before = app.get(&path).await;
    for field in ["notifications_enabled", "advanced_notifications_enabled", "public_hosts"] {
        let refusal = app.patch(&path, json!({ field: null })).await.expect_refusal(422, "validation_error");
        assert_eq!((&refusal["fields"][0]["path"], &refusal["fields"][0]["code"]), (&json!(field), &json!("invalid")));
    }
    let all_null =
        json!({ "notifications_enabled": null, "advanced_notifications_enabled": null, "public_hosts": null });
    let refusal = app.patch(&path, all_null).await.expect_refusal(422, "validation_error");
    assert_eq!(refusal["fields"].as_array().unwrap().len(), 3, "{refusal}");
    assert_eq!(app.get(&path).await.header("etag"), response_before.header("etag"));
}

/// Platform operators read and change settings of a tenant without selecting the tenant.
#[tokio::test]
async fn platform_operators_change_the_settings_that_they_read() {
    let app = TestApp::start().await;
    let id = app.fixtures().tenant("acme").await;
    let path = format!("/v1/tenants/{id}/settings");
    let response = app.get(&path).await;
    let change = json!({ "notifications_enabled": false, "public_hosts": ["acme.example"] });
    let change_response = app.patch(&path, change.clone()).header("If-Match", response.header("etag").unwrap()).await;
    assert_eq!(change_response.expect(200)["public_hosts"], json!(["acme.example"]));
    let foreign_response = app.get(&path).in_tenant(&id).await;
    assert_eq!(
        (foreign_response.expect(200), foreign_response.header("etag")),
        (change_response.expect(200), change_response.header("etag"))
    );
    // The fact about the change is in the audit log of the changed tenant.
    let owner = app.database().connect_as_owner().await.unwrap();
    let logs = "SELECT tenant_id::text FROM fact WHERE kind = 'tenant.configured'";
    let logs: Vec<String> = owner.query(logs, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
    assert_eq!(logs, std::slice::from_ref(&id));
    // Administrators of another tenant can neither read nor change these settings.
    app.fixtures().bind_role("user:tenant-admin", "tenant_admin", "tenant", Some(TENANT)).await;
    app.patch(&path, change).as_actor("user:tenant-admin").await.expect_refusal(404, "not_found");
    let unknown_path = format!("/v1/tenants/{UNKNOWN_ID}/settings");
    app.patch(unknown_path, json!({ "notifications_enabled": false })).await.expect_refusal(404, "not_found");
}

/// A public host determines the tenant of anonymous callers. Only platform operators assign hosts, and only hosts
/// that no tenant has.
#[tokio::test]
async fn platform_operators_assign_public_hosts_within_bounds() {
    let app = TestApp::builder()
        .setting("VAULT_ADDR", "https://Vault.house.example:8200")
        .setting("VAULT_TOKEN", "x")
        .config_file("[[providers]]\naccount_slot = \"a\"\nkind = \"openai\"\nbase_url = \"https://models.example/v1\"")
        .start()
        .await;
    let path = format!("/v1/tenants/{TENANT}/settings");
    app.fixtures().bind_role("user:tenant-admin", "tenant_admin", "tenant", Some(TENANT)).await;
    let set_hosts = |hosts: Value| app.patch(&path, json!({ "public_hosts": hosts }));
    let hosts = |count: usize| (0..count).map(|number| format!("h{number}.example")).collect::<Vec<_>>();
    for hosts in [json!(["acme.example"]), json!([]), json!(["localhost"])] {
        let refusal = set_hosts(hosts).as_actor("user:tenant-admin").await.expect_refusal(403, "forbidden");
        assert_eq!(refusal["permission"], "platform.manage");
    }
    let other_settings = json!({ "notifications_enabled": false });
    app.patch(&path, other_settings).as_actor("user:tenant-admin").await.expect(200);
    let assert_refused = async |hosts: Value, code: &str| {
        let detail = set_hosts(hosts.clone()).await.expect_refusal(422, "validation_error");
        assert_eq!(
            (&detail["fields"][0]["path"], &detail["fields"][0]["code"]),
            (&json!("public_hosts"), &json!(code))
        );
    };
    for host in ["localhost", "a.localhost", "127.0.0.1", "127.1", "2130706433", "0x7f000001", "203.0.113.7"] {
        assert_refused(json!(["forms.example", host]), "host_not_public").await;
    }
    for host in ["::1", "[::1]", "[::1]:80", "localhost.", "LOCALHOST"] {
        assert_refused(json!([host]), "invalid_host").await;
    }
    for host in ["vault.house.example", "models.example"] {
        assert_refused(json!([host]), "host_of_operator").await;
    }
    assert_refused(json!(hosts(51)), "too_many_hosts").await;
    assert_refused(json!(["forms.example", "other.example", "forms.example"]), "duplicate_item").await;
    assert_eq!(set_hosts(json!(hosts(50))).await.expect(200)["public_hosts"], json!(hosts(50)));
    // A host that was stored before this rule existed has no effect.
    let owner = app.database().connect_as_owner().await.unwrap();
    let other_tenant = app.fixtures().tenant("abroad").await;
    let insert_host_sql =
        format!("INSERT INTO tenant_public_host (tenant_id, host) VALUES ('{other_tenant}', '127.0.0.1')");
    owner.execute(&insert_host_sql, &[]).await.unwrap();
    let workload = crate::public_workloads::create_public_workload(&app, "main").await;
    app.get(format!("/v1/workloads/by-slug/{}", workload.slug)).as_actor("anonymous").await.expect(200);
}

#[tokio::test]
async fn workspaces_share_a_namespace() {
    let app = TestApp::start().await;
    let body = json!({ "slug": "one", "name": "One", "namespace": "shared" });
    let first_workspace = app.post("/v1/workspaces", body.clone()).await.expect(201);
    assert_eq!(
        (&first_workspace["slug"], &first_workspace["name"], &first_workspace["namespace"]),
        (&json!("one"), &json!("One"), &json!("shared"))
    );
    app.post("/v1/workspaces", body).await.expect_refusal(409, "duplicate_slug");
    let second_body = json!({ "slug": "two", "name": "Two", "namespace": "shared" });
    let second_workspace = app.post("/v1/workspaces", second_body).await.expect(201);
    assert_eq!(first_workspace["namespace_id"], second_workspace["namespace_id"]);
    assert_eq!(
        app.get(format!("/v1/workspaces/{}", first_workspace["workspace_id"].as_str().unwrap())).await.expect(200),
        first_workspace
    );
    let listed = app.get("/v1/workspaces?limit=2").await;
    assert_eq!(listed.expect(200), json!([second_workspace, first_workspace]));
    assert_eq!(listed.header("x-total-count"), Some("3"));
    let next_link = listed.header("link").unwrap();
    let cursor =
        next_link.strip_prefix("</v1/workspaces?limit=2&cursor=").unwrap().strip_suffix(">; rel=\"next\"").unwrap();
    let second_page = app.get(format!("/v1/workspaces?limit=2&cursor={cursor}")).await;
    assert_eq!(second_page.expect(200)[0]["slug"], "default");
    assert_eq!((second_page.header("link"), second_page.header("x-total-count")), (None, Some("3")));
    let long_body = json!({ "slug": "a".repeat(44), "name": "Long", "namespace": "shared" });
    let refusal = app.post("/v1/workspaces", long_body).await.expect_refusal(422, "validation_error");
    assert_eq!(refusal["fields"][0]["path"], "slug");

    // An asset is visible from every workspace of its namespace, and from no workspace outside it.
    let (first_id, second_id) =
        (first_workspace["workspace_id"].as_str().unwrap(), second_workspace["workspace_id"].as_str().unwrap());
    let asset = app.fixtures().in_workspace(first_id).asset_without_versions("skill", "shared-skill").await;
    for (workspace, status) in [(first_id, 200), (second_id, 200), (WORKSPACE, 404), (UNKNOWN_ID, 404)] {
        let response = app.get(format!("/v1/assets/{asset}?workspace_id={workspace}")).await;
        assert_eq!(response.status, status, "{response}");
    }
    for (workspace, count) in [(first_id, 1), (second_id, 1), (WORKSPACE, 0)] {
        let listed = app.get(format!("/v1/assets?workspace_id={workspace}")).await.expect(200);
        assert_eq!(listed.as_array().unwrap().len(), count);
    }
}

#[tokio::test]
async fn requests_use_one_tenant() {
    let app = TestApp::start().await;
    let tenant = app.fixtures().tenant("acme").await;
    let foreign_fixtures = app.fixtures().in_tenant(&tenant, "");
    let foreign_workspace = foreign_fixtures.workspace("there", "there").await;
    let slugs = async |request: Request| -> Vec<String> {
        let listed = request.await.expect(200);
        listed.as_array().unwrap().iter().map(|row| row["slug"].as_str().unwrap().to_owned()).collect()
    };
    // For an actor with roles in only one tenant, this tenant is the default.
    foreign_fixtures.bind_role("user:eve", "tenant_admin", "tenant", Some(&tenant)).await;
    assert_eq!(slugs(app.get("/v1/workspaces").as_actor("user:eve")).await, ["there"]);
    assert_eq!(slugs(app.get("/v1/workspaces").as_actor("user:eve").in_tenant(&tenant)).await, ["there"]);
    // An actor with roles in several tenants can select one of them. Without a selection, the tenant `default` is used.
    foreign_fixtures.bind_role("user:both", "viewer", "workspace", Some(&foreign_workspace)).await;
    app.fixtures().bind_role("user:both", "viewer", "workspace", Some(WORKSPACE)).await;
    assert_eq!(slugs(app.get("/v1/workspaces").as_actor("user:both")).await, ["default"]);
    assert_eq!(slugs(app.get("/v1/workspaces").as_actor("user:both").in_tenant(TENANT)).await, ["default"]);
    assert_eq!(slugs(app.get("/v1/workspaces").as_actor("user:both").in_tenant(&tenant)).await, ["there"]);
    // A foreign, an unknown and an invalid tenant cause the same response.
    app.fixtures().bind_role("user:home", "tenant_admin", "tenant", Some(TENANT)).await;
    for actor in ["user:home", "user:never-bound"] {
        for requested_tenant in [tenant.as_str(), UNKNOWN_ID, "acme", ""] {
            let response = app.get("/v1/workspaces").as_actor(actor).in_tenant(requested_tenant).await;
            response.expect_refusal(404, "not_found");
        }
    }
    let response = app.get("/v1/workspaces").in_tenant(&tenant).in_tenant(TENANT).await;
    response.expect_refusal(422, "validation_error");
}

#[tokio::test]
async fn tenants_have_separate_slugs_and_rows() {
    let app = TestApp::start().await;
    let tenant = app.fixtures().tenant("acme").await;
    let foreign_fixtures = app.fixtures().in_tenant(&tenant, "");
    let foreign_workspace = foreign_fixtures.workspace("there", "there").await;
    let own_workload = app.active_workload("twin").await;
    let foreign_workload = foreign_fixtures.in_tenant(&tenant, &foreign_workspace).active_workload("twin").await;
    let body = json!({ "environment": "dev", "inputs": { "ticket": "x" } });
    for (tenant, workload) in [(TENANT, &own_workload), (&tenant, &foreign_workload)] {
        let response = app.post(workload.execute_path(), body.clone()).in_tenant(tenant).await.expect(200);
        let path = format!("/v1/executions/{}", response["execution_id"].as_str().unwrap());
        let workload_view = app.get(&path).in_tenant(tenant).await.expect(200);
        assert_eq!(workload_view["workload_id"], workload.workload_id);
    }
    for path in ["/v1/assets", "/v1/flows", "/v1/workloads", "/v1/releases", "/v1/audit/events", "/v1/role-bindings"] {
        let (own_list, foreign_list) =
            (app.get(path).await.expect(200), app.get(path).in_tenant(&tenant).await.expect(200));
        for row in own_list.as_array().unwrap() {
            assert!(!foreign_list.as_array().unwrap().contains(row), "{path}: {row}");
        }
    }
    // The list contains the tenant's workload and the built-in assistant of its workspace.
    assert_eq!(app.get("/v1/workloads").in_tenant(&tenant).await.expect(200).as_array().unwrap().len(), 2);
}

/// Status, headers and body of a response, without the parts that differ in every response.
pub(crate) fn comparable_response(response: &Response) -> (u16, BTreeMap<String, String>, Value) {
    let headers =
        response.headers.iter().filter(|(name, _)| !["date", "x-request-id", "server-timing"].contains(&name.as_str()));
    let headers = headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect();
    let mut body = response.json();
    if let Some(members) = body.as_object_mut() {
        members.remove("request_id").unwrap();
    }
    (response.status, headers, body)
}

#[tokio::test]
async fn foreign_identifiers_in_queries_and_bodies_look_unknown() {
    let app = TestApp::start().await;
    let (own_fixture, foreign_fixture) =
        (WorkspaceFixture::create(&app).await, WorkspaceFixture::in_other_tenant(&app).await);
    own_fixture.fixtures.bind_role("user:neighbour", "workspace_admin", "workspace", Some(WORKSPACE)).await;
    let draft = own_fixture.fixtures.draft(&own_fixture.workload.workload_id, &[]).await;
    let foreign_workload = &foreign_fixture.workload;
    let policy = foreign_workload.versions.iter().find(|version| version.kind == "policy_bundle").unwrap();
    let bind_path = format!("/v1/releases/{draft}/bindings");
    let post_with = |path: &str, body: Value, field: &'static str, foreign: &str| {
        let ask = |id: &str| {
            let mut body = body.clone();
            body[field] = json!(id);
            app.post(path, body)
        };
        (ask(foreign), ask(UNKNOWN_ID))
    };
    let asset = json!({ "slug": "mine", "asset_kind": "skill", "owner_ref": "team:a" });
    let flow =
        json!({ "slug": "mine", "owner_ref": "team:a", "content_yaml": crate::support::workspace_fixture::ECHO_FLOW });
    let workload = json!({ "slug": "mine", "owner_ref": "team:a", "invocation_mode": "chat" });
    let release = json!({ "workload_id": own_fixture.workload.workload_id, "environment": "dev" });
    let grant = |kind: &str| json!({ "principal": "user:x", "role": "viewer", "scope_kind": kind });
    let pairs = [
        post_with("/v1/assets", asset, "workspace_id", &foreign_fixture.workspace),
        post_with("/v1/flows", flow, "workspace_id", &foreign_fixture.workspace),
        post_with("/v1/workloads", workload, "workspace_id", &foreign_fixture.workspace),
        post_with("/v1/releases", release.clone(), "workload_id", &foreign_workload.workload_id),
        post_with("/v1/releases", release, "policy_bundle_id", &policy.asset_id),
        post_with(&bind_path, json!({ "role": "policy_bundle" }), "asset_version_id", &policy.asset_version_id),
        post_with("/v1/role-bindings", grant("workspace"), "scope_ref", &foreign_fixture.workspace),
        post_with("/v1/role-bindings", grant("workload"), "scope_ref", &foreign_workload.workload_id),
        post_with("/v1/role-bindings", grant("tenant"), "scope_ref", &foreign_fixture.tenant),
    ];
    for (foreign, unknown_request) in pairs {
        let (foreign, unknown_response) =
            (foreign.as_actor("user:boss").await, unknown_request.as_actor("user:boss").await);
        foreign.expect_refusal(404, "not_found");
        assert_eq!(comparable_response(&foreign), comparable_response(&unknown_response), "{foreign}");
    }
    // Within a tenant, a workload in an invisible workspace is also indistinguishable from an unknown one.
    let grant = |id: &str| {
        let body = json!({ "principal": "user:x", "role": "viewer", "scope_kind": "workload", "scope_ref": id });
        app.post("/v1/role-bindings", body).as_actor("user:neighbour")
    };
    let (hidden, unknown) = (grant(&own_fixture.workload.workload_id).await, grant(UNKNOWN_ID).await);
    hidden.expect_refusal(404, "not_found");
    assert_eq!(comparable_response(&hidden), comparable_response(&unknown));
    for path in ["/v1/assets", "/v1/flows", "/v1/workloads", "/v1/role-bindings", "/v1/audit/events"] {
        let ask = |id: &str| app.get(format!("{path}?workspace_id={id}")).as_actor("user:boss");
        let (foreign, unknown) = (ask(&foreign_fixture.workspace).await, ask(UNKNOWN_ID).await);
        foreign.expect_refusal(404, "not_found");
        assert_eq!(comparable_response(&foreign), comparable_response(&unknown), "{path}");
    }
    let ask = |id: &str| app.get(format!("/v1/releases?workload_id={id}")).as_actor("user:boss");
    assert_eq!(ask(&foreign_workload.workload_id).await.expect(200), json!([]));
    assert_eq!(ask(UNKNOWN_ID).await.expect(200), json!([]));
}
