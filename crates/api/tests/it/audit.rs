//! The audit log: one entry for each change, in a total order, without text that people wrote.

use crate::support::{
    documented_routes::{Route, routes},
    workspace_fixture::WorkspaceFixture,
};
use fairway_operations::access::Operation;
use fairway_testkit::TestApp;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeSet;

/// Waits until every committed fact is sequenced, and returns the whole log, newest first.
pub(crate) async fn audit_log(app: &TestApp) -> Vec<Value> {
    let owner = app.database().connect_as_owner().await.unwrap();
    let wait_for_log = async {
        loop {
            let pending: i64 = owner.query_one("SELECT count(*) FROM fact_pending", &[]).await.unwrap().get(0);
            if pending == 0 {
                return;
            }
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), wait_for_log).await.unwrap();
    read_log(app, crate::support::workspace_fixture::TENANT).await
}

/// The sequenced entries of a tenant's log, newest first. Unlike [`audit_log`], does not wait for pending facts.
async fn read_log(app: &TestApp, tenant: &str) -> Vec<Value> {
    let mut events = Vec::new();
    loop {
        let page = app.get(format!("/v1/audit/events?limit=200&offset={}", events.len()));
        let page = page.in_tenant(tenant).await.expect(200);
        let page = page.as_array().unwrap().clone();
        if page.is_empty() {
            return events;
        }
        events.extend(page);
    }
}

#[tokio::test]
async fn entries_have_a_total_order_without_gaps() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    for _ in 0..3 {
        fixture.successful_request("execute_workload").await.await.expect(200);
        fixture.successful_request("create_asset").await.await.expect(201);
        fixture.successful_request("create_workspace").await.await.expect(201);
    }
    let events = audit_log(&app).await;
    let indices: Vec<u64> = events.iter().map(|event| event["index"].as_u64().unwrap()).collect();
    let expected: Vec<u64> = (0..u64::try_from(events.len()).unwrap()).rev().collect();
    assert_eq!(indices, expected, "newest first, from zero, without gaps");
    assert!(events.len() > 20, "{}", events.len());
    let owner = app.database().connect_as_owner().await.unwrap();
    for event in &events {
        let members: Vec<&str> = event.as_object().unwrap().keys().map(String::as_str).collect();
        let expected: BTreeSet<&str> = [
            "event_id",
            "index",
            "kind",
            "subject",
            "actor",
            "occurred_at",
            "request_id",
            "categories",
            "leaf_hash",
            "workspace_id",
            "detail",
        ]
        .into();
        assert_eq!(members.into_iter().collect::<BTreeSet<_>>(), expected);
        let id = event["event_id"].as_str().unwrap();
        let row = owner.query_one("SELECT body FROM fact WHERE fact_id = $1::text::uuid", &[&id]).await.unwrap();
        let body: Vec<u8> = row.get(0);
        let leaf = Sha256::new().chain_update([0]).chain_update(&body).finalize();
        let hex: String = leaf.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(event["leaf_hash"], hex);
        // The hashed bytes are canonical JSON, and equal to the event in the API response.
        let fact: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(fact.to_string().as_bytes(), body, "{fact}");
        assert_eq!((&fact["kind"], &fact["workspace_id"]), (&event["kind"], &event["workspace_id"]));
        let is_disclosed = event["kind"] == "notification.suppressed";
        assert_eq!(event["detail"], if is_disclosed { fact["detail"].clone() } else { Value::Null }, "{fact}");
    }
    // The entries of a workspace are a subset of the tenant's entries.
    let path = format!("/v1/audit/events?limit=200&workspace_id={}", fixture.workspace);
    let log = app.get(path).await.expect(200);
    assert!(!log.as_array().unwrap().is_empty());
    assert!(log.as_array().unwrap().iter().all(|event| events.contains(event)));
    assert!(log.as_array().unwrap().len() < events.len());
}

/// An auditor below tenant scope reads the events of its namespace, workspaces or workloads.
#[tokio::test]
async fn auditors_read_the_events_of_their_scope() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let (workspace_id, other_workspace) =
        (fixtures.workspace("here", "one").await, fixtures.workspace("there", "two").await);
    let namespace = |workspace: &str| app.get(format!("/v1/workspaces/{workspace}"));
    let namespace = namespace(&workspace_id).await.expect(200)["namespace_id"].as_str().unwrap().to_owned();
    let own_workload = fixtures.in_workspace(&workspace_id).active_workload("ours").await;
    let other_workload = fixtures.in_workspace(&other_workspace).active_workload("theirs").await;
    let sibling_workload = fixtures.in_workspace(&other_workspace).workload("sibling").await;
    for workload in [&own_workload, &other_workload] {
        let body = json!({ "environment": "dev", "inputs": { "ticket": "x" } });
        app.post(workload.execute_path(), body).await.expect(200);
    }
    for (actor, kind, scope) in [
        ("user:of-namespace", "namespace", namespace.as_str()),
        ("user:of-workspace", "workspace", &workspace_id),
        ("user:of-workload", "workload", &other_workload.workload_id),
        ("user:of-both", "workspace", &workspace_id),
        ("user:of-both", "workload", &other_workload.workload_id),
    ] {
        fixtures.bind_role(actor, "auditor", kind, Some(scope)).await;
    }
    fixtures.bind_role("user:viewer", "viewer", "workspace", Some(&workspace_id)).await;
    let all_events = audit_log(&app).await;
    let events_of = async |query: String, actor: &str| -> Vec<Value> {
        let page = app.get(format!("/v1/audit/events?limit=200{query}")).as_actor(actor).await;
        let events = page.expect(200).as_array().unwrap().clone();
        assert_eq!(page.header("x-total-count"), Some(events.len().to_string().as_str()), "{query} {actor}");
        events
    };
    let of_workspace = async |id: &str| events_of(format!("&workspace_id={id}"), "user:local").await;
    let (own_events, other_events) = (of_workspace(&workspace_id).await, of_workspace(&other_workspace).await);
    assert!(
        own_events.len() > 10 && other_events.len() > 10 && all_events.len() > own_events.len() + other_events.len()
    );
    for actor in ["user:of-namespace", "user:of-workspace"] {
        assert_eq!(events_of(String::new(), actor).await, own_events, "{actor}");
        assert_eq!(events_of(format!("&workspace_id={workspace_id}"), actor).await, own_events, "{actor}");
    }
    // The scope of a workload covers its releases, runs and role bindings, and no other workload.
    let of_workload = events_of(String::new(), "user:of-workload").await;
    let kinds: BTreeSet<&str> = of_workload.iter().map(|event| event["kind"].as_str().unwrap()).collect();
    let expected =
        ["workload.created", "release.created", "release.transitioned", "execution.ended", "role_binding.created"];
    assert!(expected.iter().all(|kind| kinds.contains(kind)), "{kinds:?}");
    assert!(!kinds.contains("asset.created"), "{kinds:?}");
    assert!(!of_workload.iter().any(|event| event["subject"]["id"] == sibling_workload.as_str()));
    let is_role_binding = |event: &&Value| event["kind"] == "role_binding.created";
    assert_eq!(of_workload.iter().filter(is_role_binding).count(), 2);
    let workload_scope_events: Vec<Value> =
        of_workload.iter().filter(|event| event["kind"] != "role_binding.created").cloned().collect();
    assert!(workload_scope_events.iter().all(|event| other_events.contains(event)));
    assert_eq!(events_of(format!("&workspace_id={other_workspace}"), "user:of-workload").await, workload_scope_events);
    assert_eq!(events_of(format!("&workspace_id={workspace_id}"), "user:of-workload").await, Vec::<Value>::new());
    let mut events_of_both: Vec<Value> = own_events.iter().chain(&of_workload).cloned().collect();
    events_of_both.sort_by_key(|event| std::cmp::Reverse(event["index"].as_u64()));
    assert_eq!(events_of(String::new(), "user:of-both").await, events_of_both);
    // The limit applies to the combined list of both scopes.
    let first_response = app.get("/v1/audit/events?limit=3").as_actor("user:of-both").await;
    assert_eq!(first_response.expect(200).as_array().unwrap()[..], events_of_both[..3]);
    // A caller without the permission gets 403 with the permission's name, also for a workspace that it cannot see.
    for (query, actor) in [
        (String::new(), "user:viewer"),
        (format!("?workspace_id={workspace_id}"), "user:viewer"),
        (format!("?workspace_id={other_workspace}"), "user:of-workspace"),
    ] {
        let refusal =
            app.get(format!("/v1/audit/events{query}")).as_actor(actor).await.expect_refusal(403, "forbidden");
        assert_eq!(refusal["permission"], "audit.view", "{query} {actor}");
    }
}

/// Each fact contains its notification categories, so that notifiers need no rules of their own.
#[tokio::test]
async fn facts_carry_notification_categories() {
    let app = TestApp::start().await;
    let workload = app.active_workload("main").await;
    let ticket = |ticket: Value| json!({ "environment": "dev", "inputs": ticket });
    app.post(workload.execute_path(), ticket(json!({}))).await.expect_refusal(422, "prompt_argument_missing");
    app.post(workload.execute_path(), ticket(json!({ "ticket": "a refund" }))).await.expect(200);
    let next_release = app.fixtures().approved_release(&workload.workload_id, &workload.versions).await;
    app.fixtures().transition(&next_release, "active").await;
    app.post(format!("/v1/releases/{next_release}/rollback"), json!({ "reason": "x" })).await.expect(200);
    let settings = format!("/v1/workspaces/{}/environments/dev/settings", crate::support::workspace_fixture::WORKSPACE);
    app.put(settings, json!({ "min_approvals": 1, "allow_self_approval": false, "pin_documents": false }))
        .await
        .expect(200);
    let own_release = app.fixtures().draft(&workload.workload_id, &workload.versions).await;
    let verdict = json!({ "outcome": "approved", "subject_kind": "release", "subject_ref": own_release });
    let response = app.post(format!("/v1/releases/{own_release}/approvals"), verdict).await;
    response.expect_refusal(403, "self_approval_not_allowed");
    app.patch(format!("/v1/workloads/{}", workload.workload_id), json!({ "status": "suspended" })).await.expect(200);

    let events = audit_log(&app).await;
    let categories_of = |kind: &str| -> BTreeSet<String> {
        events.iter().filter(|event| event["kind"] == kind).map(|event| event["categories"].to_string()).collect()
    };
    let expected = |categories: &[Value]| categories.iter().map(Value::to_string).collect::<BTreeSet<_>>();
    for (kind, categories) in [
        ("execution.ended", vec![json!([]), json!(["executions"])]),
        ("asset_version.created", vec![json!([]), json!(["policy_changes"])]),
        ("release.transitioned", vec![json!([]), json!(["approvals"])]),
        ("release.reviewed", vec![json!(["approvals"])]),
        ("release.rolled_back", vec![json!(["incidents", "reports"])]),
        ("release.self_approval_refused", vec![json!(["compliance_findings"])]),
        ("environment.configured", vec![json!(["policy_changes"])]),
        ("workload.changed", vec![json!(["incidents"])]),
        ("workload.created", vec![json!([])]),
    ] {
        assert_eq!(categories_of(kind), expected(&categories), "{kind}");
    }
}

/// The kind of the fact that an operation writes, and the kind of the fact's subject.
fn expected_kinds(operation: &str) -> (&'static str, &'static str) {
    match operation {
        "create_tenant" => ("tenant.created", "tenant"),
        "change_tenant_settings" | "change_tenant_public_hosts" => ("tenant.configured", "tenant"),
        "request_erasure" => ("erasure.requested", "erasure"),
        "approve_erasure" => ("erasure.approved", "erasure"),
        "refuse_erasure" => ("erasure.refused", "erasure"),
        "create_workspace" => ("workspace.created", "workspace"),
        "change_environment_settings" => ("environment.configured", "workspace"),
        "create_role_binding" => ("role_binding.created", "role_binding"),
        "delete_role_binding" => ("role_binding.deleted", "role_binding"),
        "set_principal_binding" => ("principal_binding.created", "principal_binding"),
        "delete_principal_binding" => ("principal_binding.deleted", "principal_binding"),
        "create_share_link" => ("share_link.created", "share_link"),
        "erase_session_memory" | "erase_session_memory_of_others" => ("memory.erased", "workload"),
        "revoke_share_link" => ("share_link.revoked", "share_link"),
        "create_asset" => ("asset.created", "asset"),
        "generate_asset_draft" | "generate_use_case" => ("execution.ended", "execution"),
        "refine_use_case" => ("use_case.refined", "use_case"),
        "activate_asset" | "retire_asset" | "archive_asset" => ("asset.moved", "asset"),
        "create_asset_grant" => ("asset_grant.created", "asset_grant"),
        "delete_asset_grant" => ("asset_grant.deleted", "asset_grant"),
        "create_asset_version" | "create_flow_version" => ("asset_version.created", "asset_version"),
        "add_documents" => ("knowledge.documents_added", "asset"),
        "reembed_documents" => ("knowledge.documents_reembedded", "asset"),
        "revoke_access_contract" => ("access_contract.revoked", "asset"),
        "create_flow" => ("flow.created", "asset"),
        "create_workload" => ("workload.created", "workload"),
        "change_workload" | "change_workload_access" => ("workload.changed", "workload"),
        "create_release" => ("release.created", "release"),
        "bind_version" => ("release.binding_added", "release"),
        "unbind_version" => ("release.binding_removed", "release"),
        "submit_release" | "transition_release" => ("release.transitioned", "release"),
        "review_release" => ("release.reviewed", "release"),
        "review_execution" => ("execution.reviewed", "execution"),
        "advance_rollout" => ("rollout.advanced", "release"),
        "roll_back_release" => ("release.rolled_back", "release"),
        "create_connection" => ("connection.created", "connection"),
        "change_connection" => ("connection.changed", "connection"),
        "delete_connection" => ("connection.deleted", "connection"),
        "check_connection" => ("connection.checked", "connection"),
        "grant_access_request" => ("access_request.granted", "access_request"),
        "deny_access_request" => ("access_request.denied", "access_request"),
        "create_use_case" => ("use_case.created", "use_case"),
        "publish_use_case" => ("use_case.published", "use_case"),
        "activate_use_case" => ("use_case.activated", "use_case"),
        "archive_use_case" => ("use_case.archived", "use_case"),
        "reopen_use_case" => ("use_case.reopened", "use_case"),
        "settle_execution" => ("execution.settled", "execution"),
        "run_code" | "execute_workload" | "execute_workload_on_lane" | "call_tool" | "cancel_execution" => {
            ("execution.ended", "execution")
        }
        operation => expected_notification_kinds(operation),
    }
}

/// Like [`expected_kinds`], for operations on notifications.
fn expected_notification_kinds(operation: &str) -> (&'static str, &'static str) {
    match operation {
        "change_inbox_status" => ("notification.marked", "notification"),
        "mark_inbox_read" => ("notification.inbox_read", "tenant"),
        "change_preferences"
        | "change_workspace_preferences"
        | "change_workload_preferences"
        | "change_environment_preferences" => ("notification.preferences_changed", "notification_preferences"),
        "create_organization_destination" | "create_workspace_destination" => {
            ("notification.destination_created", "notification_destination")
        }
        "change_organization_destination" | "change_workspace_destination" => {
            ("notification.destination_changed", "notification_destination")
        }
        "delete_organization_destination" | "delete_workspace_destination" => {
            ("notification.destination_deleted", "notification_destination")
        }
        "change_default_profiles" => ("notification.default_profiles_changed", "tenant"),
        "test_organization_destination" | "test_workspace_destination" => {
            ("notification.destination_tested", "notification_destination")
        }
        "retry_delivery" => ("notification.delivery_retried", "notification_delivery"),
        "change_notification_profile" => ("notification.profile_changed", "notification_profile"),
        "make_announcement" => ("notification.announcement_made", "announcement"),
        operation => panic!("no fact is specified for the operation {operation}"),
    }
}

/// Every documented operation that changes state, and the operations of the access table that have no route of their
/// own. The flag tells whether the route accepts an idempotency key.
fn changing_operations() -> Vec<(String, bool)> {
    // Excludes the end of a session, because local mode has no sessions.
    let changes = |route: &Route| route.method != "get" && !route.is_dry_run() && route.operation_id() != "end_session";
    let changing_routes = routes().into_iter().filter(changes);
    let mut operations: Vec<(String, bool)> = changing_routes
        .map(|route| (route.operation_id().to_owned(), route.has_parameter("Idempotency-Key")))
        .collect();
    // `SuspendWorkload` repeats the current status, and `FetchDocuments` fetches nothing in this test.
    let no_change = [Operation::SuspendWorkload, Operation::FetchDocuments];
    let parts = Operation::WITHOUT_OWN_ROUTE.iter().filter(|part| !no_change.contains(part));
    operations.extend(parts.map(|part| (part.id().to_owned(), false)));
    assert!(operations.len() >= 30, "{operations:?}");
    operations
}

#[tokio::test]
async fn every_change_has_one_entry_that_names_its_request() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    let mut known_events: BTreeSet<String> = BTreeSet::new();
    for (operation, keyed) in changing_operations() {
        let mut request = fixture.successful_request(&operation).await;
        if operation == "change_tenant_settings" {
            // Fixtures of notification operations may already have turned on the advanced tier. The request must
            // change the setting.
            request.clone().json(json!({ "advanced_notifications_enabled": false })).await.expect(200);
            request = request.json(json!({ "advanced_notifications_enabled": true }));
        }
        if keyed {
            request = request.idempotency_key("once");
        }
        // Excludes the facts that the fixtures of this operation wrote.
        known_events.extend(audit_log(&app).await.iter().map(|event| event["event_id"].to_string()));
        let response = request.clone().as_actor("user:local").await;
        assert!((200..300).contains(&response.status), "{response}");
        if keyed {
            let second_response = request.as_actor("user:local").await;
            assert_eq!(second_response.header("idempotency-replayed"), Some("true"), "{second_response}");
        }
        let mut log = audit_log(&app).await;
        if operation == "create_tenant" {
            // The creation of a tenant is the first fact of the new tenant's log. The log of the creator's tenant
            // has no such fact.
            assert!(log.iter().all(|event| known_events.contains(&event["event_id"].to_string())), "{log:?}");
            log = read_log(&app, response.expect(201)["tenant_id"].as_str().unwrap()).await;
        }
        let mut new_events: Vec<Value> =
            log.into_iter().filter(|event| !known_events.contains(&event["event_id"].to_string())).collect();
        if operation == "run_code" {
            // Before the script is dispatched, a fact about its acceptance is committed. It is not counted here.
            assert_eq!(new_events.pop().unwrap()["kind"], "execution.code_accepted");
        }
        if operation == "refine_use_case" {
            // The generator's run ends before the refinement and writes a fact. It is not counted here.
            assert_eq!(new_events.pop().unwrap()["actor"], "system:generator");
        }
        assert_eq!(new_events.len(), 1, "{operation}: {new_events:?}");
        let (event, (kind, subject)) = (&new_events[0], expected_kinds(&operation));
        assert_eq!(event["request_id"].as_str(), response.header("x-request-id"), "{operation}");
        let is_generation = ["generate_asset_draft", "generate_use_case"].contains(&operation.as_str());
        let actor = if is_generation { "system:generator" } else { "user:local" };
        assert_eq!(event["actor"], actor, "{operation}");
        assert_eq!((&event["kind"], &event["subject"]["kind"]), (&json!(kind), &json!(subject)), "{operation}");
    }
    // Requests that change nothing and refused requests write no entry.
    let events_before = audit_log(&app).await.len();
    fixture.successful_request("change_workload_status").await.await.expect(200);
    app.post("/v1/assets", json!({ "slug": "-" })).await.expect_refusal(422, "validation_error");
    app.post("/v1/assets", fixture.successful_body("create_asset"))
        .as_actor("anonymous")
        .await
        .expect_refusal(403, "forbidden");
    for operation in ["read_asset", "list_assets", "read_evidence_graph", "list_audit_events"] {
        fixture.successful_request(operation).await.await.expect(200);
    }
    assert_eq!(audit_log(&app).await.len(), events_before);
}

/// Policy denials at acceptance, after an evaluation error, and during the run each write one entry. A replayed
/// denial writes none.
#[tokio::test]
async fn every_denial_has_one_entry_that_names_its_request() {
    const POLICY_CHECK_FLOW: &str = "\
name: Asks
description: Asks the policy about what it sends on.
trigger: { type: api_request, inputs_schema: { ticket: string } }
entry_step: check
steps:
  - id: check
    type: task
    action: evaluate_policy
    inputs: { stage: checked }
    on_success: answer
    on_failure: answer
  - id: answer
    type: return
    output: done
";
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let rule = |id: &str, condition: &str, outcome: &str| json!({ "id": id, "condition": condition, "outcome": outcome, "reason_code": id });
    let mut expected = Vec::new();
    for (slug, condition, flow, reason) in [
        ("door", "inputs.ticket == 'x'", false, "no"),
        ("unclear", "inputs.nothing > 3", false, "policy_evaluation_error"),
        ("half-way", "has(inputs.stage)", true, "no"),
    ] {
        let rules = json!([rule("yes", "always", "allow"), rule("no", condition, "deny")]);
        let mut versions = vec![fixtures.policy_with_rules(&format!("{slug}-policy"), rules).await];
        if flow {
            versions.push(fixtures.flow(&format!("{slug}-flow"), POLICY_CHECK_FLOW).await);
        } else {
            versions.push(fixtures.ticket_prompt(&format!("{slug}-prompt")).await);
            versions.push(fixtures.model_policy(&format!("{slug}-model")).await);
        }
        let workload = fixtures.active_workload_with_bindings(slug, versions).await;
        let body = json!({ "environment": "dev", "inputs": { "ticket": "x" } });
        for key in [None, Some("once")] {
            let run = app.post(workload.execute_path(), body.clone());
            let run = key.map_or_else(|| run.clone(), |key| run.clone().idempotency_key(key));
            let response = run.clone().await;
            let detail = response.expect_refusal(403, "policy_denied");
            assert_eq!(detail["reason_code"], reason, "{slug}");
            expected.push((detail["execution_id"].clone(), response.header("x-request-id").unwrap().to_owned()));
            if key.is_some() {
                assert_eq!(run.await.expect_refusal(403, "policy_denied"), detail, "{slug}");
            }
        }
    }
    let mut denials: Vec<(Value, String)> = audit_log(&app)
        .await
        .into_iter()
        .filter(|event| event["kind"] == "execution.denied")
        .map(|event| (event["subject"]["id"].clone(), event["request_id"].as_str().unwrap().to_owned()))
        .collect();
    denials.reverse();
    assert_eq!(denials, expected);
    let owner = app.database().connect_as_owner().await.unwrap();
    let denials_sql = "SELECT count(*) FROM policy_decision WHERE outcome = 'deny'";
    let denial_count: i64 = owner.query_one(denials_sql, &[]).await.unwrap().get(0);
    assert_eq!(usize::try_from(denial_count).unwrap(), expected.len());
}

#[tokio::test]
async fn facts_hold_no_user_text() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let canary = "canary-qxzw";
    let text = |field: &str| format!("{canary} {field} \u{e9}");
    app.post("/v1/tenants", json!({ "slug": "t", "name": text("tenant") })).await.expect(201);
    let body = json!({ "slug": "w", "name": text("workspace"), "namespace": "n" });
    app.post("/v1/workspaces", body).await.expect(201);
    let prompt = json!({ "system_prompt": text("prompt"), "description": text("description") });
    let prompt = fixtures.asset_with_version("prompt_template", "prompt", prompt).await;
    let rules = json!([
        { "id": "r", "condition": "inputs.secret != 'no'", "outcome": "allow", "reason_code": "ok",
          "description": text("rule") },
    ]);
    let policy = fixtures.policy_with_rules("policy", rules).await;
    let model = fixtures.model_policy("model").await;
    let yaml = crate::support::workspace_fixture::ECHO_FLOW.replace("Returns the ticket.", &text("flow"));
    let flow = fixtures.flow("flow", &yaml).await;
    let body = json!({
        "slug": "main", "owner_ref": "team:a", "invocation_mode": "form", "name": text("name"),
        "description": text("workload"),
    });
    let workload = app.post("/v1/workloads", body).await.expect(201);
    let workload = workload["workload_id"].as_str().unwrap();
    app.patch(format!("/v1/workloads/{workload}"), json!({ "description": text("changed") })).await.expect(200);
    let release = fixtures.draft(workload, &[prompt, policy, model, flow]).await;
    fixtures.transition(&release, "review_ready").await;
    for outcome in ["rejected", "approved"] {
        let verdict = json!({
            "outcome": outcome, "subject_kind": "release", "subject_ref": release, "note": text("note"),
        });
        app.post(format!("/v1/releases/{release}/approvals"), verdict).await.expect(201);
    }
    fixtures.transition(&release, "approved").await;
    fixtures.transition(&release, "active").await;
    for secret in ["yes", "no"] {
        let inputs = json!({ "ticket": text("ticket"), "secret": secret, canary: { "nested": [text("value")] } });
        let body = json!({ "environment": "dev", "inputs": inputs });
        let response = app.post("/v1/workloads/by-slug/main/execute", body).idempotency_key(canary).await;
        assert!([200, 403, 409].contains(&response.status), "{response}");
    }
    let tenants_host = json!({ "public_hosts": ["canary-qxzw.example"] });
    app.patch(format!("/v1/tenants/{}/settings", crate::support::workspace_fixture::TENANT), tenants_host)
        .await
        .expect(200);
    let owner = app.database().connect_as_owner().await.unwrap();
    let rows = owner.query("SELECT kind, convert_from(body, 'UTF8') FROM fact", &[]).await.unwrap();
    assert!(rows.len() > 15);
    for row in rows {
        let (kind, body): (String, String) = (row.get(0), row.get(1));
        assert!(!body.contains("canary") && !body.contains("qxzw"), "{kind}: {body}");
    }
    assert!(audit_log(&app).await.iter().all(|event| !event.to_string().contains("canary")));
}

#[tokio::test]
async fn history_tables_are_append_only() {
    let app = TestApp::start().await;
    WorkspaceFixture::create(&app).await;
    audit_log(&app).await;
    let owner = app.database().connect_as_owner().await.unwrap();
    for table in ["fact", "fact_order", "asset_version", "approval", "deployment_history"] {
        let count: i64 = owner.query_one(&format!("SELECT count(*) FROM {table}"), &[]).await.unwrap().get(0);
        assert!(count > 0, "{table} is empty, so the test proves nothing");
        for statement in [
            format!("UPDATE {table} SET tenant_id = tenant_id"),
            format!("DELETE FROM {table}"),
            format!("TRUNCATE {table} CASCADE"),
        ] {
            let error = owner.batch_execute(&statement).await.unwrap_err();
            assert_eq!(error.code().map(|code| code.code()), Some("FW003"), "{statement}: {error}");
            let as_service = format!("SET ROLE fairway_service; {statement}");
            assert!(owner.batch_execute(&as_service).await.is_err(), "{statement}");
            owner.batch_execute("RESET ROLE").await.unwrap();
        }
    }
}
