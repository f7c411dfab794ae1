//! The Model Context Protocol: both supported revisions, with handwritten messages and with third-party clients.

use crate::{
    share_link::query_number,
    support::workspace_fixture::{TENANT, WORKSPACE, WorkspaceFixture},
};
use fairway_testkit::{
    TestApp,
    app::{ActiveWorkload, Request, Response},
};
use serde_json::{Value, json};
use std::{collections::BTreeSet, env, process::Command};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// The environment variable with a Python interpreter that has the official client. The model gateway's environment
/// contains this client.
const PYTHON_VARIABLE: &str = "FAIRWAY_TEST_GATEWAY_PYTHON";
/// The environment variables with the Node executable and with the path of the MCP inspector.
const INSPECTOR_VARIABLES: [&str; 2] = ["FAIRWAY_TEST_NODE", "FAIRWAY_TEST_INSPECTOR"];
/// The supported protocol revisions: the last one with a handshake, and the one in which each request names its
/// revision instead.
const REVISIONS: [&str; 2] = ["2025-11-25", "2026-07-28"];

async fn start_with_form() -> (TestApp, ActiveWorkload) {
    let app = TestApp::start().await;
    let workload = app.active_workload("ticket-sorter").await;
    let path = format!("/v1/workloads/{}", workload.workload_id);
    app.patch(path, json!({ "interface_config": interface_form() })).await.expect(200);
    (app, workload)
}

fn interface_form() -> Value {
    json!({ "presentation_mode": "form", "input_fields": [{ "name": "ticket", "type": "text", "required": true }] })
}

fn mcp_request(app: &TestApp, revision: &str, method: &str, mut params: Value) -> Request {
    if revision == REVISIONS[1] {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": revision,
            "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": {},
        });
    }
    let name = params["name"].as_str().map(str::to_owned);
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let request = app.post("/mcp?environment=dev", body).header("Accept", "application/json, text/event-stream");
    let request = request.header("MCP-Protocol-Version", revision).header("Mcp-Method", method);
    match name {
        Some(name) => request.header("Mcp-Name", name),
        None => request,
    }
}

fn call_tool(app: &TestApp, revision: &str, tool: &str, arguments: Value) -> Request {
    mcp_request(app, revision, "tools/call", json!({ "name": tool, "arguments": arguments }))
}

fn result_of(response: &Response) -> Value {
    let body = response.expect(200);
    assert!(body["result"].is_object(), "{body}");
    body["result"].clone()
}

#[tokio::test]
async fn lists_and_calls_tools_in_both_revisions() {
    let (app, workload) = start_with_form().await;
    for revision in REVISIONS {
        let list_result = result_of(&mcp_request(&app, revision, "tools/list", json!({})).await);
        let tools = list_result["tools"].as_array().unwrap();
        let names: BTreeSet<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        let expected = ["execute_flow", "inspect_evidence", "query_knowledge_base", "run_ticket_sorter"];
        assert!(names.is_superset(&BTreeSet::from(expected)), "{names:?}");
        let tool = tools.iter().find(|tool| tool["name"] == "run_ticket_sorter").unwrap();
        assert!(tool["title"].as_str().unwrap().contains("ticket-sorter"), "{tool}");
        assert_eq!(tool["inputSchema"]["required"], json!(["ticket"]));
        let response = call_tool(&app, revision, "run_ticket_sorter", json!({ "ticket": "a refund" })).await;
        let call_result = result_of(&response);
        assert_eq!(call_result["isError"], json!(false), "{call_result}");
        let content = &call_result["structuredContent"];
        assert_eq!((&content["status"], &content["result"]["status"]), (&json!("success"), &json!("completed")));
        // The text content equals the structured content.
        let text: Value = serde_json::from_str(call_result["content"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(&text, content);
        // The evidence names the caller as the submitter. One fact records the end of the run.
        let execution = content["result"]["execution_id"].as_str().unwrap();
        let evidence = app.get(format!("/v1/executions/{execution}/evidence-graph")).await.expect(200);
        assert_eq!(evidence["workload"]["slug"], json!(workload.slug));
        assert_eq!(evidence["execution"]["submitted_by"], "user:local");
        let request = response.header("x-request-id").unwrap();
        let facts = format!(
            "SELECT count(*) FROM fact WHERE kind = 'execution.ended'
                AND convert_from(body, 'UTF8')::jsonb ->> 'request_id' = '{request}'"
        );
        assert_eq!(query_number(&app, &facts).await, 1, "{revision}");
        let inspected =
            result_of(&call_tool(&app, revision, "inspect_evidence", json!({ "execution_id": execution })).await);
        assert_eq!(inspected["structuredContent"]["result"], evidence);
    }
    let initialize = json!({
        "protocolVersion": REVISIONS[0], "capabilities": {}, "clientInfo": { "name": "test", "version": "1" },
    });
    let response = mcp_request(&app, REVISIONS[0], "initialize", initialize).await;
    assert_eq!(result_of(&response)["protocolVersion"], REVISIONS[0]);
    assert_eq!(response.header("mcp-session-id"), None, "the server issues no session that could be hijacked");
    let found = result_of(&mcp_request(&app, REVISIONS[1], "server/discover", json!({})).await);
    assert_eq!(found["supportedVersions"], json!(REVISIONS));
}

/// A cursor is valid only for the list and the tenant that issued it.
#[tokio::test]
async fn rejects_cursors_that_the_list_did_not_issue() {
    let (app, workload) = start_with_form().await;
    let copies = format!(
        "INSERT INTO workload SELECT (jsonb_populate_record(original, jsonb_build_object(
             'workload_id', '0190f000-0000-7000-8000-' || lpad(to_hex(number), 12, '0'), 'slug', 'copy-' || number))).*
         FROM workload AS original, generate_series(1, 220) AS number WHERE slug = '{}'",
        workload.slug
    );
    assert_eq!(app.database().connect_as_owner().await.unwrap().execute(&copies, &[]).await.unwrap(), 220);
    let list = |cursor: Option<&str>| {
        let params = cursor.map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor }));
        mcp_request(&app, REVISIONS[0], "tools/list", params)
    };
    let first_page = result_of(&list(None).await);
    let cursor = first_page["nextCursor"].as_str().unwrap().to_owned();
    let second_page = result_of(&list(Some(&cursor)).await);
    assert!(second_page["nextCursor"].is_null(), "{second_page}");
    let names = |page: &Value| -> BTreeSet<String> {
        page["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    };
    let workloads = names(&first_page).union(&names(&second_page)).filter(|name| name.starts_with("run_")).count();
    assert_eq!(workloads, 221);
    let other_last = if cursor.ends_with('0') { "1" } else { "0" };
    let link = app.get("/v1/workloads?limit=1").await.header("link").unwrap().to_owned();
    let of_workloads = link.split("cursor=").nth(1).unwrap().split('>').next().unwrap();
    for forged in
        ["5", "0", "", &cursor[..32], &format!("{}{other_last}", &cursor[..cursor.len() - 1]), of_workloads, "x"]
    {
        let error_response = list(Some(forged)).await.expect(200);
        assert_eq!(error_response["error"]["code"], -32602, "{forged}: {error_response}");
    }
    let foreign_fixture = WorkspaceFixture::in_other_tenant(&app).await;
    let error_response = list(Some(&cursor)).in_tenant(&foreign_fixture.tenant).await.expect(200);
    assert_eq!(error_response["error"]["code"], -32602, "{error_response}");
    // A caller without a role sees only the built-in tools, which fit on one page, so the cursor is invalid for it.
    let error_response = list(Some(&cursor)).as_actor("anonymous").await.expect(200);
    assert_eq!(error_response["error"]["code"], -32602, "{error_response}");
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": { "cursor": cursor } });
    let staging_request =
        app.post("/mcp?environment=staging", body).header("Accept", "application/json, text/event-stream");
    let error_response = staging_request.header("MCP-Protocol-Version", REVISIONS[0]).await.expect(200);
    assert_eq!(error_response["error"]["code"], -32602, "{error_response}");
}

/// The protocol's schema declares `cursor?: string`, so a cursor is either absent or a string.
#[tokio::test]
async fn rejects_cursors_that_are_not_strings() {
    let app = TestApp::start().await;
    for revision in REVISIONS {
        for invalid_cursor in [json!(5), json!(null), json!(true), json!([]), json!({}), json!(["x"])] {
            let error_response =
                mcp_request(&app, revision, "tools/list", json!({ "cursor": invalid_cursor })).await.expect(200);
            assert_eq!(error_response["error"]["code"], -32602, "{invalid_cursor}: {error_response}");
            assert_eq!(
                (&error_response["id"], &error_response["result"]),
                (&json!(1), &Value::Null),
                "{error_response}"
            );
        }
        result_of(&mcp_request(&app, revision, "tools/list", json!({})).await);
    }
}

/// The host selects the tenant of an anonymous caller, as on every other route.
#[tokio::test]
async fn serves_anonymous_callers_in_the_tenant_of_their_host() {
    let app = crate::local_mode_behind_proxy::exposed_server().start().await;
    let own_workload = crate::public_workloads::create_public_workload(&app, "main").await;
    let foreign_fixture = WorkspaceFixture::in_other_tenant(&app).await;
    let foreign_workload = foreign_fixture.fixtures.active_workload("main").await;
    let public = json!({ "interface_config": { "presentation_mode": "form", "access_mode": "public",
        "input_fields": [{ "name": "ticket", "type": "text" }] } });
    app.patch(format!("/v1/workloads/{}", foreign_workload.workload_id), public)
        .in_tenant(&foreign_fixture.tenant)
        .await
        .expect(200);
    let settings = format!("/v1/tenants/{}/settings", foreign_fixture.tenant);
    let hosts = json!({ "public_hosts": ["forms.example"] });
    app.patch(settings, hosts).in_tenant(&foreign_fixture.tenant).await.expect(200);
    for (host, workload, tenant) in [
        ("forms.example", &foreign_workload.workload_id, foreign_fixture.tenant.as_str()),
        ("localhost", &own_workload.workload_id, TENANT),
    ] {
        let inputs = json!({ "ticket": "a refund" });
        let flow = json!({ "workload_slug": "main", "environment": "dev", "inputs": inputs });
        let tool = app.post("/v1/runtime/tools/execute_flow", json!({ "arguments": flow }));
        let by_mcp = [
            result_of(
                &call_tool(&app, REVISIONS[0], "run_main", inputs).as_actor("anonymous").header("Host", host).await,
            ),
            result_of(
                &call_tool(&app, REVISIONS[1], "execute_flow", flow).as_actor("anonymous").header("Host", host).await,
            ),
        ];
        let by_route = tool.as_actor("anonymous").header("Host", host).await.expect(200);
        for result in by_mcp.iter().map(|call| &call["structuredContent"]).chain([&by_route]) {
            let id = result["result"]["execution_id"].as_str().unwrap_or_else(|| panic!("{host}: {result}"));
            let execution = app.get(format!("/v1/executions/{id}")).in_tenant(tenant).await.expect(200);
            assert_eq!(&execution["workload_id"], workload, "{host}");
        }
    }
}

#[tokio::test]
async fn rejects_invalid_messages_without_echoing_them() {
    let (app, _) = start_with_form().await;
    let raw = |body: Value| {
        app.post("/mcp?environment=dev", body)
            .header("Accept", "application/json, text/event-stream")
            .header("MCP-Protocol-Version", REVISIONS[0])
    };
    for body in [json!([]), json!(null), json!(1), json!({ "jsonrpc": "1.0", "id": 1, "method": "ping" })] {
        let response = raw(body.clone()).await;
        assert_eq!((response.status, &response.json()["error"]["code"]), (400, &json!(-32600)), "{body}");
    }
    let request =
        |method: &str, params: Value| raw(json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }));
    for (method, params) in [("tools/call", json!({ "name": "x", "arguments": [] })), ("tools/call", json!({}))] {
        assert_eq!(request(method, params).await.expect(200)["error"]["code"], -32602, "{method}");
    }
    let response = request("tools/SEKRET", json!({})).await;
    assert_eq!(response.expect(200)["error"]["code"], -32601);
    assert!(!response.text().contains("SEKRET"), "{response}");
    // A caller that sees no workloads gets only the built-in tools.
    let list_response = request("tools/list", json!({})).as_actor("anonymous").await;
    assert_eq!(result_of(&list_response)["tools"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn refusals_carry_their_code_and_no_input() {
    let (app, _) = start_with_form().await;
    let [old_revision, new_revision] = REVISIONS;
    for (tool, arguments, code) in [
        ("run_ticket_sorter", json!({}), "validation_error"),
        ("run_nothing", json!({}), "not_found"),
        (
            "execute_flow",
            json!({ "workload_slug": "ticket-sorter", "environment": "elsewhere", "inputs": { "ticket": "x" } }),
            "no_active_release",
        ),
        ("query_knowledge_base", json!({ "knowledge_base_slug": "canary", "query": "canary" }), "not_found"),
        ("inspect_evidence", json!({ "execution_id": WORKSPACE }), "not_found"),
        ("inspect_evidence", json!({ "execution_id": "canary" }), "validation_error"),
    ] {
        let refusal = result_of(&call_tool(&app, new_revision, tool, arguments).await);
        assert_eq!(
            (&refusal["isError"], &refusal["structuredContent"]["error"]),
            (&json!(true), &json!(code)),
            "{refusal}"
        );
        assert!(!refusal.to_string().contains("canary"), "{refusal}");
    }
    assert_eq!(call_tool(&app, old_revision, "canary", json!({})).await.json()["error"]["code"], -32602);
    // Permissions are those of the actor in the request. No session or handle carries permissions.
    app.fixtures().bind_role("user:viewer", "viewer", "workspace", Some(WORKSPACE)).await;
    let viewer = |request: Request| request.as_actor("user:viewer");
    let list_result = result_of(&viewer(mcp_request(&app, new_revision, "tools/list", json!({}))).await);
    assert_eq!(list_result["tools"].as_array().unwrap().len(), 3, "{list_result}");
    let refusal =
        result_of(&viewer(call_tool(&app, new_revision, "run_ticket_sorter", json!({ "ticket": "x" }))).await);
    assert_eq!(refusal["structuredContent"]["permission"], "execution.run", "{refusal}");
    call_tool(&app, old_revision, "execute_flow", json!({}))
        .header("Mcp-Session-Id", "somebody-elses")
        .await
        .expect_refusal(404, "not_found");
    // The server refuses cross-site requests, host names of DNS rebinding, and malformed messages.
    let list = || mcp_request(&app, new_revision, "tools/list", json!({}));
    list().header("Origin", "https://evil.example").await.expect_refusal(403, "cross_site_request");
    list().header("Host", "evil.example").await.expect_refusal(421, "misdirected_request");
    // The server offers no permanent event stream to open, and no sessions to delete.
    for method in ["GET", "DELETE"] {
        let response = app.send_raw_path(method, "/mcp").await;
        response.expect_refusal(405, "method_not_allowed");
        assert_eq!(response.header("allow"), Some("POST"));
    }
    let body_with_two_methods = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","method":"tools/call"}"#;
    list().with_body("application/json", body_with_two_methods).await.expect_refusal(400, "malformed_json");
}

/// Only listed tools can be called. A workload without a form is not listed.
#[tokio::test]
async fn workload_without_a_form_is_not_a_tool() {
    let (app, workload) = start_with_form().await;
    let path = format!("/v1/workloads/{}", workload.workload_id);
    let sort = |revision: &'static str| call_tool(&app, revision, "run_ticket_sorter", json!({ "ticket": "a refund" }));
    for revision in REVISIONS {
        assert_eq!(result_of(&sort(revision).await)["isError"], json!(false));
        app.patch(&path, json!({ "interface_config": null })).await.expect(200);
        let list_result = result_of(&mcp_request(&app, revision, "tools/list", json!({})).await);
        assert_eq!(list_result["tools"].as_array().unwrap().len(), 3, "{list_result}");
        let refusal = result_of(&sort(revision).await);
        assert_eq!(
            (&refusal["isError"], &refusal["structuredContent"]["error"]),
            (&json!(true), &json!("not_found")),
            "{refusal}"
        );
        // `execute_flow` still executes this workload by its slug.
        let arguments = json!({ "workload_slug": "ticket-sorter", "environment": "dev", "inputs": { "ticket": "x" } });
        assert_eq!(result_of(&call_tool(&app, revision, "execute_flow", arguments).await)["isError"], json!(false));
        app.patch(&path, json!({ "interface_config": interface_form() })).await.expect(200);
    }
    assert_eq!(query_number(&app, "SELECT count(*) FROM execution").await, 4);
}

/// A field error names the path at which the client sent the field. The message is the same on every route.
#[tokio::test]
async fn reports_field_errors_at_the_paths_of_the_call() {
    let (app, workload) = start_with_form().await;
    let inputs = json!({ "x": 1 });
    let by_slug = json!({ "workload_slug": "ticket-sorter", "environment": "dev", "inputs": inputs });
    let field_errors = |fields: &Value, prefix: &str| -> BTreeSet<(String, String, String)> {
        let text = |field: &Value, name: &str| field[name].as_str().unwrap().to_owned();
        let error_of = |field: &Value| {
            let path = text(field, "path");
            let path = path.strip_prefix(prefix).unwrap_or_else(|| panic!("{path} is not below {prefix}"));
            (path.to_owned(), text(field, "code"), text(field, "message"))
        };
        fields.as_array().unwrap().iter().map(error_of).collect()
    };
    let route_response = app.post(workload.execute_path(), json!({ "environment": "dev", "inputs": inputs })).await;
    let route_errors = field_errors(&route_response.expect_refusal(422, "validation_error")["fields"], "inputs.");
    assert_eq!(route_errors.len(), 2, "{route_errors:?}");
    let tool = app.post("/v1/runtime/tools/execute_flow", json!({ "arguments": by_slug })).await;
    assert_eq!(
        field_errors(&tool.expect_refusal(422, "validation_error")["fields"], "arguments.inputs."),
        route_errors
    );
    for revision in REVISIONS {
        for (name, arguments, prefix) in [
            ("execute_flow", by_slug.clone(), "arguments.inputs."),
            ("run_ticket_sorter", inputs.clone(), "arguments."),
        ] {
            let refusal = result_of(&call_tool(&app, revision, name, arguments).await);
            assert_eq!(field_errors(&refusal["structuredContent"]["fields"], prefix), route_errors, "{name}");
        }
    }
    // Unknown arguments of a tool cause the same error as unknown fields of a form.
    let unknown = json!({ "execution_id": WORKSPACE, "x": 1 });
    let response = app.post("/v1/runtime/tools/inspect_evidence", json!({ "arguments": unknown })).await;
    let fields = response.expect_refusal(422, "validation_error")["fields"].clone();
    let result = result_of(&call_tool(&app, REVISIONS[0], "inspect_evidence", unknown).await);
    assert_eq!(result["structuredContent"]["fields"], fields);
    assert_eq!((&fields[0]["path"], &fields[0]["code"]), (&json!("arguments.x"), &json!("unknown_field")));
}

#[tokio::test]
async fn rejects_unsupported_protocol_revisions() {
    let (app, _) = start_with_form().await;
    let both_types = "application/json, text/event-stream";
    let list = |method: &str| json!({ "jsonrpc": "2.0", "id": "a name", "method": method });
    for method in ["tools/list", "ping", "tools/call", "nothing"] {
        for (header_revision, repeated) in [
            ("2025-06-18", json!("2025-06-18")),
            ("2025-03-26", json!("2025-03-26")),
            ("2024-11-05", json!("2024-11-05")),
            ("2027-01-01", json!("2027-01-01")),
            ("S3CRET", Value::Null),
            ("2025-11-25, 2026-07-28", Value::Null),
            ("", Value::Null),
        ] {
            let request = app
                .post("/mcp", list(method))
                .header("Accept", both_types)
                .header("MCP-Protocol-Version", header_revision);
            let response = request.await;
            assert_eq!(response.header("content-type"), Some("application/json"));
            let error_body = response.expect(400);
            assert_eq!((&error_body["jsonrpc"], &error_body["id"]), (&json!("2.0"), &json!("a name")), "{error_body}");
            let error = &error_body["error"];
            assert_eq!(
                (&error["code"], &error["data"]["supported"]),
                (&json!(-32022), &json!(REVISIONS)),
                "{error_body}"
            );
            assert_eq!(error["data"]["requested"], repeated, "{error_body}");
            assert!(!response.text().contains("S3CRET"), "{error_body}");
        }
    }
    // Notifications with an unsupported revision are refused as well.
    let notification = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let notification = |named: &'static str| {
        app.post("/mcp", notification.clone()).header("Accept", both_types).header("MCP-Protocol-Version", named)
    };
    assert_eq!(notification("2025-06-18").await.status, 400);
    assert_eq!(notification(REVISIONS[0]).await.status, 202);
    // A request that names no revision uses the revision that permits this omission.
    let unnamed = app.post("/mcp", list("tools/list")).header("Accept", both_types).await;
    assert!(result_of(&unnamed)["tools"].is_array());
}

/// Whatever revision a client offers, the server responds with the handshake revision that it supports.
#[tokio::test]
async fn handshake_negotiates_a_supported_revision() {
    let (app, _) = start_with_form().await;
    let initialize = |offered: &str| {
        let client = json!({ "name": "test", "version": "1" });
        let params = json!({ "protocolVersion": offered, "capabilities": {}, "clientInfo": client });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params });
        app.post("/mcp", body).header("Accept", "application/json, text/event-stream")
    };
    for offered in ["2024-11-05", "2025-06-18", "2025-11-25", "2026-07-28", "2099-01-01", "anything"] {
        assert_eq!(result_of(&initialize(offered).await)["protocolVersion"], REVISIONS[0], "{offered}");
        let response = initialize(offered).header("MCP-Protocol-Version", offered).await;
        assert_eq!(result_of(&response)["protocolVersion"], REVISIONS[0], "{offered}");
    }
    let conflicting = initialize(REVISIONS[0]).header("MCP-Protocol-Version", "S3CRET").await;
    assert_eq!(conflicting.expect(400)["error"]["code"], -32020);
    assert!(!conflicting.text().contains("S3CRET"), "{conflicting}");
}

#[tokio::test]
async fn rejects_clients_that_do_not_accept_the_response_type() {
    let (app, _) = start_with_form().await;
    for accepted in ["application/json", "text/html", "S3CRET", "*/*;q=0"] {
        let list = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/list" });
        let response =
            app.post("/mcp", list).header("Accept", accepted).header("MCP-Protocol-Version", REVISIONS[0]).await;
        let error_body = response.expect(406);
        assert_eq!(
            (&error_body["id"], &error_body["error"]["code"]),
            (&json!(7), &json!(-32600)),
            "{accepted}: {error_body}"
        );
        let message = error_body["error"]["message"].as_str().unwrap();
        assert!(message.contains("text/event-stream") && !response.text().contains("S3CRET"), "{error_body}");
    }
}

fn command_output(mut command: Command) -> String {
    let output = command.output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}\n{stderr}");
    stdout.into_owned()
}

#[tokio::test]
async fn official_client_lists_and_calls_tools() {
    let (app, workload) = start_with_form().await;
    let body = json!({ "environment": "dev", "inputs": { "ticket": "x" } });
    let execution =
        app.post(workload.execute_path(), body).await.expect(200)["execution_id"].as_str().unwrap().to_owned();
    let address = format!("http://{}/mcp?environment=dev", app.address());
    for mode in ["legacy", REVISIONS[1]] {
        let mut command = Command::new(env::var_os(PYTHON_VARIABLE).expect("run the tests by `cargo xtask test`"));
        command.arg(format!("{ROOT}/tools/mcp/official_client.py")).args([
            &address,
            mode,
            "run_ticket_sorter",
            &execution,
        ]);
        let output = tokio::task::spawn_blocking(move || command_output(command)).await.unwrap();
        for line in [
            "tools execute_flow inspect_evidence query_knowledge_base run_ticket_sorter",
            "run_ticket_sorter success completed",
            "inspect_evidence success",
            "execute_flow not_found",
        ] {
            assert!(output.lines().any(|output| output == line), "{mode} {line}: {output}");
        }
    }
    assert_eq!(query_number(&app, "SELECT count(*) FROM fact WHERE kind = 'execution.ended'").await, 3);
}

#[tokio::test]
async fn inspector_lists_and_calls_tools() {
    let (app, _) = start_with_form().await;
    let address = format!("http://{}/mcp?environment=dev", app.address());
    let inspect = |arguments: &'static [&'static str]| {
        let [node, inspector] =
            INSPECTOR_VARIABLES.map(|name| env::var_os(name).expect("run the tests by `cargo xtask test`"));
        let mut command = Command::new(node);
        command.arg(inspector).arg("--cli").arg(&address).args(["--transport", "http", "--method"]).args(arguments);
        tokio::task::spawn_blocking(move || command_output(command))
    };
    let tools: Value = serde_json::from_str(&inspect(&["tools/list"]).await.unwrap()).unwrap();
    assert!(tools["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == "run_ticket_sorter"), "{tools}");
    let called = inspect(&["tools/call", "--tool-name", "run_ticket_sorter", "--tool-arg", "ticket=refund"]);
    let called: Value = serde_json::from_str(&called.await.unwrap()).unwrap();
    assert_eq!(called["structuredContent"]["status"], "success", "{called}");
}
