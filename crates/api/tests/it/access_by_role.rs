//! Authorization: every operation with every role, compared with a handwritten table.

use crate::support::{
    documented_routes::routes,
    workspace_fixture::{TENANT, WorkspaceFixture},
};
use fairway_operations::access::Operation;
use fairway_testkit::TestApp;
use std::collections::BTreeSet;

/// The callers, in the order of the table's columns.
pub(crate) const CALLERS: [&str; 12] = [
    "user:viewer",
    "user:runtime-user",
    "user:author",
    "user:approver",
    "user:operator",
    "user:auditor",
    "user:workspace-admin",
    // The callers above have a role in the workspace. The next two have a tenant role and a platform role.
    "user:tenant-admin",
    "user:platform-admin",
    // The only role of this caller was revoked.
    "user:nobody",
    // These two administer another workspace of the tenant, and another tenant.
    "user:neighbour",
    "user:stranger",
];

/// The expected response for each of [`CALLERS`], in order: `+` success, `e` an empty list, `f` 403 with the missing
/// permission, `.` 404.
pub(crate) const EXPECTED_ACCESS: &[(&str, &str)] = &[
    // One column for each of `CALLERS`, in the same order:
    //                         V R A P O U W T G n x s
    ("list_tenants", "f f f f f f f f + f f f"),
    ("create_tenant", "f f f f f f f f + f f f"),
    ("read_tenant_settings", "f f f f f f f + + f f ."),
    ("change_tenant_settings", "f f f f f f f + + f f ."),
    ("change_tenant_public_hosts", "f f f f f f f f + f f ."),
    ("list_erasures", "f f f f f f f + + f f e"),
    ("read_erasure", "f f f f f f f + + f f ."),
    ("request_erasure", "f f f f f f f + + f f +"),
    ("approve_erasure", "f f f f f f f + + f f ."),
    ("refuse_erasure", "f f f f f f f + + f f ."),
    ("list_workspaces", "+ + + + + + + + + f + e"),
    ("create_workspace", "f f f f f f f + + f f +"),
    ("read_workspace", "+ + + + + + + + + f + ."),
    ("read_environment_settings", "f f f f f f + + + . f ."),
    ("change_environment_settings", "f f f f f f + + + . f ."),
    ("read_session", "+ + + + + + + + + + + +"),
    ("explain_access", "+ + + + + + + + + + + +"),
    ("read_sign_in_settings", "+ + + + + + + + + + + +"),
    ("end_session", "+ + + + + + + + + + + +"),
    ("list_roles", "+ + + + + + + + + f + +"),
    ("list_role_bindings", "f f f f f f + + + . f ."),
    ("create_role_binding", "f f f f f f + + + . f ."),
    ("delete_role_binding", ". . . . . . + + + . . ."),
    ("list_principal_bindings", "f f f f f f + + + . . ."),
    ("set_principal_binding", "f f f f f f + + + . . ."),
    ("delete_principal_binding", "f f f f f f + + + . . ."),
    ("list_assets", "+ f + + + + + + + f . ."),
    ("create_asset", "f f + f f f + + + f f ."),
    ("generate_asset_draft", "f f + f f f + + + f f ."),
    ("read_asset", "+ . + + + + + + + . . ."),
    ("list_asset_versions", "+ . + + + + + + + . . ."),
    ("read_asset_version", "+ . + + + + + + + . . ."),
    ("create_asset_version", "f . + f f f + + + . . ."),
    ("preview_prompt", "+ . + + + + + + + . . ."),
    ("try_policy", "+ . + + + + + + + . . ."),
    ("list_asset_kinds", "+ + + + + + + + + f + +"),
    ("read_asset_kind_schema", "+ + + + + + + + + f + +"),
    ("diff_asset_versions", "+ . + + + + + + + . . ."),
    ("read_blast_radius", "+ . + + + + + + + . . ."),
    ("activate_asset", "f . + f f f + + + . . ."),
    ("retire_asset", "f . + f f f + + + . . ."),
    ("archive_asset", "f . + f f f + + + . . ."),
    ("list_asset_grants", "f . + f f f + + + . . ."),
    ("create_asset_grant", "f . + f f f + + + . . ."),
    ("delete_asset_grant", "f . + f f f + + + . . ."),
    ("add_documents", "f . + f f f + + + . . ."),
    ("reembed_documents", "f . + f f f + + + . . ."),
    ("fetch_documents", "f . f f f f + + + . . ."),
    ("list_documents", "+ . + + + + + + + . . ."),
    ("revoke_access_contract", "f . + f f f + + + . . ."),
    ("list_flows", "+ f + + + + + + + f . ."),
    ("create_flow", "f f + f f f + + + f f ."),
    ("read_flow", "+ . + + + + + + + . . ."),
    ("create_flow_version", "f . + f f f + + + . . ."),
    ("validate_flow", "+ . + + + + + + + . . ."),
    ("list_workloads", "+ + + + + + + + + f . ."),
    ("create_workload", "f f + f f f + + + f f ."),
    ("read_workload", "+ + + + + + + + + . . ."),
    ("change_workload", "f f + f + f + + + . . ."),
    ("change_workload_status", "f f f f + f + + + . . ."),
    ("change_workload_access", "f f f f + f + + + . . ."),
    ("list_runtime_workloads", "+ + + + + + + + + f e e"),
    ("read_runtime_workload", "+ + + + + + + + + . . ."),
    ("list_share_links", "f f f f + f + + + . . ."),
    ("read_share_link", "f f f f + f + + + . . ."),
    ("create_share_link", "f f f f + f + + + . . ."),
    ("revoke_share_link", "f f f f + f + + + . . ."),
    ("list_releases", "+ f + + + + + + + f e e"),
    ("list_workload_releases", "+ f + + + + + + + . . ."),
    ("read_active_release", "+ f + + + + + + + . . ."),
    ("create_release", "f f + f f f + + + . . ."),
    ("read_release", "+ f + + + + + + + . . ."),
    ("bind_version", "f f + f f f + + + . . ."),
    ("read_release_gates", "+ f + + + + + + + . . ."),
    ("unbind_version", "f f + f f f + + + . . ."),
    ("list_lanes", "+ f + + + + + + + . . ."),
    ("submit_release", "f f + f f f + + + . . ."),
    ("transition_release", "f f f f + f + + + . . ."),
    ("review_release", "f f f + f f + + + . . ."),
    ("advance_rollout", "f f f f + f + + + . . ."),
    ("read_rollout", "+ f + + + + + + + . . ."),
    ("roll_back_release", "f f f f + f + + + . . ."),
    ("read_rollback_recommendation", "+ f + + + + + + + . . ."),
    ("list_release_artifacts", "+ f + + + + + + + . . ."),
    ("read_release_artifact", "+ f + + + + + + + . . ."),
    ("read_release_bundle", "+ f + + + + + + + . . ."),
    ("list_approvals", "+ f + + + + + + + . . ."),
    ("execute_workload", "f + + f + f + + + . . ."),
    ("run_code", "f + + f + f + + + . . ."),
    ("execute_workload_on_lane", "f f f f + f + + + . . ."),
    ("read_session_memory", "+ + + + + + + + + . . ."),
    ("erase_session_memory", "+ + + + + + + + + . . ."),
    ("erase_session_memory_of_others", "f f f f + f + + + . . ."),
    ("list_executions", "+ f + + + + + + + f e e"),
    ("read_usage", "+ f + + + + + + + f e e"),
    ("read_execution", "+ . + + + + + + + . . ."),
    ("read_execution_events", "+ . + + + + + + + . . ."),
    ("cancel_execution", "f . f f + f + + + . . ."),
    ("settle_execution", "f . f f + f + + + . . ."),
    ("read_execution_review", "f . f + f f + + + . . ."),
    ("review_execution", "f . f + f f + + + . . ."),
    ("read_evidence_graph", "+ . + + + + + + + . . ."),
    ("read_evidence_artifact", "+ . + + + + + + + . . ."),
    ("read_evidence_bundle", "+ . + + + + + + + . . ."),
    ("read_context_lineage", "+ . + + + + + + + . . ."),
    // One column for each of `CALLERS`, in the same order:
    //                         V R A P O U W T G n x s
    ("list_connections", "f f + + + + + + + f . ."),
    ("create_connection", "f f f f + f + + + f f ."),
    ("read_connection", ". . + + + + + + + . . ."),
    ("change_connection", ". . f f + f + + + . . ."),
    ("delete_connection", ". . f f + f + + + . . ."),
    ("check_connection", ". . f f + f + + + . . ."),
    ("list_access_requests", "f f + + + + + + + f . ."),
    ("grant_access_request", ". . f f + f + + + . . ."),
    ("deny_access_request", ". . f f + f + + + . . ."),
    ("generate_use_case", "f f + f f f + + + f f ."),
    ("refine_use_case", "f f + f f f + + + . . ."),
    ("create_use_case", "f f + f f f + + + f f ."),
    ("list_use_cases", "+ + + + + + + + + f . ."),
    ("read_use_case", "+ + + + + + + + + . . ."),
    ("read_use_case_bundle", "+ . + + + + + + + . . ."),
    ("read_use_case_changes", "+ . + + + + + + + . . ."),
    ("publish_use_case", "f f + f f f + + + . . ."),
    ("activate_use_case", "f f + f f f + + + . . ."),
    ("archive_use_case", "f f + f f f + + + . . ."),
    ("reopen_use_case", "f f + f f f + + + . . ."),
    ("list_audit_events", "f f f f f + + + + . f ."),
    ("list_inbox", "+ + + + + + + + + f + +"),
    // A notification belongs to its recipient, so no role of another caller gives access.
    ("change_inbox_status", ". . . . . . . . . f . ."),
    ("mark_inbox_read", "+ + + + + + + + + f + +"),
    ("read_preferences", "e e e e e e e e e f e e"),
    ("change_preferences", "+ + + + + + + + + f + +"),
    ("read_effective_preferences", "+ + + + + + + + + f + ."),
    ("read_workspace_preferences", "e e e e e e e e e . f ."),
    ("change_workspace_preferences", "+ + + + + + + + + . f ."),
    ("read_workload_preferences", "e e e e e e e e e . . ."),
    ("change_workload_preferences", "+ + + + + + + + + . . ."),
    ("read_environment_preferences", "e e e e e e e e e . . ."),
    ("change_environment_preferences", "+ + + + + + + + + . . ."),
    ("list_workload_environments", "+ + + + + + + + + . . ."),
    ("read_default_profiles", "f f f f f f f e e f f e"),
    ("change_default_profiles", "f f f f f f f + + f f +"),
    ("list_organization_destinations", "f f f f f f f + + f f e"),
    ("create_organization_destination", "f f f f f f f + + f f +"),
    ("read_organization_destination", "f f f f f f f + + f f ."),
    ("change_organization_destination", "f f f f f f f + + f f ."),
    ("delete_organization_destination", "f f f f f f f + + f f ."),
    ("list_workspace_destinations", "f f f f f f + + + . f ."),
    ("create_workspace_destination", "f f f f f f + + + . f ."),
    ("read_workspace_destination", "f f f f f f + + + . f ."),
    ("change_workspace_destination", "f f f f f f + + + . f ."),
    ("delete_workspace_destination", "f f f f f f + + + . f ."),
    ("test_organization_destination", "f f f f f f f + + f f ."),
    ("test_workspace_destination", "f f f f f f + + + . f ."),
    ("list_deliveries", "f f f f e e e e e f f ."),
    ("retry_delivery", ". . . . f f + + + . . ."),
    ("read_inbox_stream", "+ + + + + + + + + f + +"),
    ("read_notification_profile", "+ + + + + + + + + f + +"),
    ("change_notification_profile", "+ + + + + + + + + f + +"),
    ("make_announcement", "f f f f f f f + + f f +"),
    ("read_announcement", "f f f f f f f + + f f +"),
    ("list_suppressed_decisions", "f f f f f e e e e f f ."),
    // Every auditor of any scope in a tenant reads the hashes of the tenant's log, and proofs for the events of its
    // own scope.
    ("read_checkpoint", "f f f f f + + + + f + +"),
    ("read_checkpoint_keys", "f f f f f + + + + f + +"),
    ("read_consistency_proof", "f f f f f + + + + f + +"),
    ("read_log_tile", "f f f f f + + + + f + +"),
    ("read_inclusion_proof", "f f f f f + + + + f . ."),
    ("call_tool", "f + + f + f + + + . . ."),
    ("read_runtime_plugins", "+ + + + + + + + + f . ."),
    ("read_runtime_system_meta", "+ + + + + + + + + f . ."),
    ("read_runtime_mcp_manifest", "+ + + + + + + + + f . ."),
    ("read_page", "+ + + + + + + + + . . ."),
    ("read_document", "+ + + + + + + + + + + +"),
    ("read_reference", "+ + + + + + + + + + + +"),
    ("healthz", "+ + + + + + + + + + + +"),
    ("readyz", "+ + + + + + + + + + + +"),
    ("metrics", "+ + + + + + + + + + + +"),
];

#[test]
fn every_operation_is_in_the_authorization_table() {
    let documented: BTreeSet<String> = routes().iter().map(|route| route.operation_id().to_owned()).collect();
    let parts: Vec<&str> = Operation::WITHOUT_OWN_ROUTE.iter().map(|operation| operation.id()).collect();
    let guarded: BTreeSet<String> =
        Operation::ALL.iter().map(|operation| operation.id().to_owned()).filter(|id| !parts.contains(&&**id)).collect();
    assert_eq!(documented, guarded, "routes and the authorization table differ");
    let all: BTreeSet<&str> = Operation::ALL.iter().map(|operation| operation.id()).collect();
    let expected: BTreeSet<&str> = EXPECTED_ACCESS.iter().map(|(operation, _)| *operation).collect();
    assert_eq!(all, expected, "this table and the authorization table differ");
}

#[tokio::test]
async fn every_role_gets_the_access_of_the_table() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    bind_roles(&fixture).await;
    let mut differences = Vec::new();
    for &(operation, expected) in EXPECTED_ACCESS {
        for (caller, expected) in CALLERS.iter().zip(expected.split(' ')) {
            let response = fixture.successful_request(operation).await.as_actor(caller).await;
            let access = match response.status {
                // Requests for other operations may have notified the caller, so the inbox may or may not be empty.
                200 if response.body == b"[]" && operation != "list_inbox" => "e",
                200 | 201 | 204 => "+",
                // Authorization succeeded. The server refuses the source address afterwards.
                422 if operation == "fetch_documents" => {
                    let detail = response.expect_refusal(422, "validation_error");
                    if detail["fields"][0]["code"] == "source_not_fetched" { "+" } else { "?" }
                }
                // Authorization succeeded. The tenant's setting refuses the operation afterwards.
                403 if response.code() == "enterprise_capability_required" => "+",
                403 => {
                    let permission = response.expect_refusal(403, "forbidden")["permission"].clone();
                    assert!(permission.as_str().is_some_and(|name| name.contains('.')), "{response}");
                    "f"
                }
                404 => {
                    response.expect_refusal(404, "not_found");
                    "."
                }
                _ => "?",
            };
            if access != expected {
                differences.push(format!("{operation} by {caller}: expected {expected}, got {access}: {response}"));
            }
        }
    }
    assert!(differences.is_empty(), "{} differences\n{}", differences.len(), differences.join("\n"));
}

pub(crate) async fn bind_roles(fixture: &WorkspaceFixture<'_>) {
    let workspace = Some(fixture.workspace.as_str());
    let fixtures = &fixture.fixtures;
    for role in ["viewer", "runtime_user", "author", "approver", "operator", "auditor", "workspace_admin"] {
        fixtures.bind_role(&format!("user:{}", role.replace('_', "-")), role, "workspace", workspace).await;
    }
    fixtures.bind_role("user:tenant-admin", "tenant_admin", "tenant", Some(TENANT)).await;
    fixtures.bind_role("user:platform-admin", "platform_admin", "platform", None).await;
    let revoked = fixtures.bind_role("user:nobody", "workspace_admin", "workspace", workspace).await;
    fixture.app.delete(format!("/v1/role-bindings/{revoked}")).await.expect(204);
    let other_workspace = fixtures.workspace("next-door", "next-door").await;
    fixtures.bind_role("user:neighbour", "workspace_admin", "workspace", Some(&other_workspace)).await;
    let other_tenant = fixtures.tenant("elsewhere").await;
    let foreign_fixtures = fixture.app.fixtures().in_tenant(&other_tenant, "");
    foreign_fixtures.bind_role("user:stranger", "tenant_admin", "tenant", Some(&other_tenant)).await;
}
