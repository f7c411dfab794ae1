//! Promise R14 in `docs/security.md`: every operation requires exactly the permissions that the contract lists. The
//! test sends a request that succeeds with all permissions. The callers have single permissions, or all permissions but
//! one.

use crate::support::workspace_fixture::WorkspaceFixture;
use fairway_operations::access::Operation;
use fairway_testkit::{
    PermissionsByActorName, TestApp,
    app::{Request, Response},
};
use std::collections::BTreeSet;

/// The permissions that the contract requires for an operation, and the refusal without them.
#[derive(Clone, Copy)]
enum RequiredPermissions {
    /// The operation requires no permission.
    Nothing,
    /// The operation requires any role in the tenant.
    Membership,
    /// A permission. Without it, the response is 403 and names the permission.
    Permission(&'static str),
    /// All of these permissions. Without one of them, the response is 403 and names the missing one.
    AllOf(&'static [&'static str]),
    /// One of these two permissions. With neither, the response is 403 and names the first.
    OneOf(&'static str, &'static str),
    /// A permission that makes the resource visible. Without it, the response is 404.
    Visibility(&'static str),
    /// Below a visible resource. Without the first permission, the response is 404.
    /// Without one of the other permissions, the response is 403 and names the missing one.
    Below(&'static str, &'static [&'static str]),
    /// On a release, which is below its workload: `release.view` and these permissions. Without one of them, the
    /// response is 403 and names the missing one. Without both `release.view` and `workload.view`, it is 404.
    Release(&'static [&'static str]),
}

use RequiredPermissions::{AllOf, Below, Membership, Nothing, OneOf, Permission, Release, Visibility};

/// All permissions of the contract.
const PERMISSIONS: [&str; 31] = [
    "asset.create",
    "asset.edit",
    "asset.view",
    "workload.create",
    "workload.edit",
    "workload.view",
    "workload.suspend",
    "workload.expose",
    "release.create",
    "release.view",
    "release.transition",
    "release.approve",
    "release.rollback",
    "share_link.manage",
    "execution.run",
    "execution.view",
    "execution.kill",
    "connection.read",
    "connection.manage",
    "use_case.author",
    "use_case.publish",
    "access_request.grant",
    "notification.read",
    "notification.preference.self_manage",
    "notification.destination.manage",
    "notification.delivery.view",
    "notification.audit.view",
    "audit.view",
    "workspace.manage",
    "tenant.manage",
    "platform.manage",
];

/// Operations on tenants, workspaces and bindings. A workspace is visible to every caller with a role in its tenant.
const TENANCY: &[(&str, RequiredPermissions)] = &[
    ("list_tenants", Permission("platform.manage")),
    ("create_tenant", Permission("platform.manage")),
    ("read_tenant_settings", OneOf("tenant.manage", "platform.manage")),
    ("change_tenant_settings", Permission("tenant.manage")),
    ("change_tenant_public_hosts", AllOf(&["tenant.manage", "platform.manage"])),
    ("list_erasures", Permission("tenant.manage")),
    ("read_erasure", Permission("tenant.manage")),
    ("request_erasure", Permission("tenant.manage")),
    ("approve_erasure", Permission("tenant.manage")),
    ("refuse_erasure", Permission("tenant.manage")),
    ("list_workspaces", Membership),
    ("create_workspace", Permission("tenant.manage")),
    ("read_workspace", Membership),
    ("read_environment_settings", Permission("workspace.manage")),
    ("change_environment_settings", Permission("workspace.manage")),
    ("read_session", Nothing),
    ("explain_access", Nothing),
    ("read_sign_in_settings", Nothing),
    ("end_session", Nothing),
    ("list_roles", Membership),
    ("list_role_bindings", Permission("workspace.manage")),
    ("delete_role_binding", Visibility("workspace.manage")),
    ("list_principal_bindings", Below("workload.view", &["workspace.manage"])),
    ("set_principal_binding", Below("workload.view", &["workspace.manage"])),
    ("delete_principal_binding", Below("workload.view", &["workspace.manage"])),
    ("list_audit_events", Permission("audit.view")),
    ("read_checkpoint", Permission("audit.view")),
    ("read_checkpoint_keys", Permission("audit.view")),
    ("read_consistency_proof", Permission("audit.view")),
    ("read_log_tile", Permission("audit.view")),
    ("read_inclusion_proof", Permission("audit.view")),
    ("read_document", Nothing),
    ("read_reference", Nothing),
    ("healthz", Nothing),
    ("readyz", Nothing),
    ("metrics", Nothing),
];

/// Operations on assets and flows.
const ASSETS: &[(&str, RequiredPermissions)] = &[
    ("list_assets", Permission("asset.view")),
    ("create_asset", Permission("asset.create")),
    ("generate_asset_draft", Permission("asset.create")),
    ("read_asset", Visibility("asset.view")),
    ("list_asset_versions", Visibility("asset.view")),
    ("read_asset_version", Visibility("asset.view")),
    ("create_asset_version", Below("asset.view", &["asset.edit"])),
    ("preview_prompt", Visibility("asset.view")),
    ("try_policy", Visibility("asset.view")),
    ("list_asset_kinds", Membership),
    ("read_asset_kind_schema", Membership),
    ("diff_asset_versions", Visibility("asset.view")),
    ("read_blast_radius", Visibility("asset.view")),
    ("activate_asset", Below("asset.view", &["asset.edit"])),
    ("retire_asset", Below("asset.view", &["asset.edit"])),
    ("archive_asset", Below("asset.view", &["asset.edit"])),
    ("list_asset_grants", Below("asset.view", &["asset.edit"])),
    ("create_asset_grant", Below("asset.view", &["asset.edit"])),
    ("delete_asset_grant", Below("asset.view", &["asset.edit"])),
    ("add_documents", Below("asset.view", &["asset.edit"])),
    ("reembed_documents", Below("asset.view", &["asset.edit"])),
    ("fetch_documents", Below("asset.view", &["asset.edit", "connection.manage"])),
    ("list_documents", Visibility("asset.view")),
    ("revoke_access_contract", Below("asset.view", &["asset.edit"])),
    ("list_flows", Permission("asset.view")),
    ("create_flow", Permission("asset.create")),
    ("read_flow", Visibility("asset.view")),
    ("create_flow_version", Below("asset.view", &["asset.edit"])),
    ("validate_flow", Visibility("asset.view")),
];

/// Operations on workloads, share links and releases.
const WORKLOADS: &[(&str, RequiredPermissions)] = &[
    ("list_workloads", Permission("workload.view")),
    ("create_workload", Permission("workload.create")),
    ("read_workload", Visibility("workload.view")),
    ("change_workload", Below("workload.view", &["workload.edit"])),
    ("change_workload_status", Below("workload.view", &["workload.suspend"])),
    ("change_workload_access", Below("workload.view", &["workload.edit", "workload.expose"])),
    ("list_runtime_workloads", Permission("workload.view")),
    ("read_runtime_workload", Visibility("workload.view")),
    ("list_share_links", Below("workload.view", &["share_link.manage"])),
    ("read_share_link", Below("workload.view", &["share_link.manage"])),
    ("create_share_link", Below("workload.view", &["share_link.manage"])),
    ("revoke_share_link", Below("workload.view", &["share_link.manage"])),
    ("read_page", Visibility("workload.view")),
    ("list_releases", Permission("release.view")),
    ("list_workload_releases", Below("workload.view", &["release.view"])),
    ("read_active_release", Below("workload.view", &["release.view"])),
    ("list_lanes", Below("workload.view", &["release.view"])),
    ("create_release", Below("workload.view", &["release.create"])),
    ("read_release", Release(&[])),
    ("read_release_gates", Release(&[])),
    ("bind_version", Release(&["release.create"])),
    ("unbind_version", Release(&["release.create"])),
    ("submit_release", Release(&["release.create"])),
    ("transition_release", Release(&["release.transition"])),
    ("review_release", Release(&["release.approve"])),
    ("advance_rollout", Release(&["release.transition"])),
    ("read_rollout", Release(&[])),
    ("roll_back_release", Release(&["release.rollback"])),
    ("read_rollback_recommendation", Release(&[])),
    ("list_release_artifacts", Release(&[])),
    ("read_release_artifact", Release(&[])),
    ("list_approvals", Release(&[])),
    ("read_release_bundle", Release(&["asset.view"])),
];

/// Operations on runs, sessions and runtime information. The callers are not the submitters of the requested runs.
const RUNS: &[(&str, RequiredPermissions)] = &[
    ("execute_workload", Below("workload.view", &["execution.run"])),
    ("execute_workload_on_lane", Below("workload.view", &["execution.run", "release.transition"])),
    ("run_code", Below("workload.view", &["execution.run"])),
    ("call_tool", Below("workload.view", &["execution.run"])),
    ("read_session_memory", Visibility("workload.view")),
    ("erase_session_memory", Visibility("workload.view")),
    ("erase_session_memory_of_others", Below("workload.view", &["execution.kill"])),
    ("list_executions", Permission("execution.view")),
    ("read_usage", Permission("execution.view")),
    ("read_execution", Visibility("execution.view")),
    ("read_execution_events", Visibility("execution.view")),
    ("cancel_execution", Below("execution.view", &["execution.kill"])),
    ("settle_execution", Below("execution.view", &["execution.kill"])),
    ("read_execution_review", Below("execution.view", &["release.approve"])),
    ("review_execution", Below("execution.view", &["release.approve"])),
    ("read_evidence_graph", Visibility("execution.view")),
    ("read_evidence_artifact", Visibility("execution.view")),
    ("read_evidence_bundle", Below("execution.view", &["asset.view"])),
    ("read_context_lineage", Visibility("execution.view")),
    ("read_runtime_plugins", Permission("workload.view")),
    ("read_runtime_system_meta", Permission("workload.view")),
    ("read_runtime_mcp_manifest", Permission("workload.view")),
];

/// Operations on notifications. A workload is visible with `workload.view`.
const NOTIFICATIONS: &[(&str, RequiredPermissions)] = &[
    ("list_inbox", Permission("notification.read")),
    ("change_inbox_status", Permission("notification.read")),
    ("mark_inbox_read", Permission("notification.read")),
    ("read_preferences", Permission("notification.preference.self_manage")),
    ("change_preferences", Permission("notification.preference.self_manage")),
    ("read_effective_preferences", Permission("notification.preference.self_manage")),
    ("read_workspace_preferences", Permission("notification.preference.self_manage")),
    ("change_workspace_preferences", Permission("notification.preference.self_manage")),
    ("read_workload_preferences", Below("workload.view", &["notification.preference.self_manage"])),
    ("change_workload_preferences", Below("workload.view", &["notification.preference.self_manage"])),
    ("read_environment_preferences", Below("workload.view", &["notification.preference.self_manage"])),
    ("change_environment_preferences", Below("workload.view", &["notification.preference.self_manage"])),
    ("list_workload_environments", Below("workload.view", &["notification.preference.self_manage"])),
    ("read_default_profiles", Permission("notification.destination.manage")),
    ("change_default_profiles", Permission("notification.destination.manage")),
    ("list_organization_destinations", Permission("notification.destination.manage")),
    ("create_organization_destination", Permission("notification.destination.manage")),
    ("read_organization_destination", Permission("notification.destination.manage")),
    ("change_organization_destination", Permission("notification.destination.manage")),
    ("delete_organization_destination", Permission("notification.destination.manage")),
    ("list_workspace_destinations", Permission("notification.destination.manage")),
    ("create_workspace_destination", Permission("notification.destination.manage")),
    ("read_workspace_destination", Permission("notification.destination.manage")),
    ("change_workspace_destination", Permission("notification.destination.manage")),
    ("delete_workspace_destination", Permission("notification.destination.manage")),
    ("test_organization_destination", Permission("notification.destination.manage")),
    ("test_workspace_destination", Permission("notification.destination.manage")),
    ("list_deliveries", Permission("notification.delivery.view")),
    ("retry_delivery", Below("notification.delivery.view", &["notification.destination.manage"])),
    ("read_inbox_stream", Permission("notification.read")),
    ("read_notification_profile", Permission("notification.preference.self_manage")),
    ("change_notification_profile", Permission("notification.preference.self_manage")),
    ("make_announcement", Permission("notification.destination.manage")),
    ("read_announcement", Permission("notification.destination.manage")),
    ("list_suppressed_decisions", Permission("notification.audit.view")),
];

/// Operations on use cases, connections and access requests.
const USE_CASES: &[(&str, RequiredPermissions)] = &[
    ("list_connections", Permission("connection.read")),
    ("create_connection", Permission("connection.manage")),
    ("read_connection", Visibility("connection.read")),
    ("change_connection", Below("connection.read", &["connection.manage"])),
    ("delete_connection", Below("connection.read", &["connection.manage"])),
    ("check_connection", Below("connection.read", &["connection.manage"])),
    ("list_access_requests", Permission("connection.read")),
    ("grant_access_request", Below("connection.read", &["access_request.grant"])),
    ("deny_access_request", Below("connection.read", &["access_request.grant"])),
    ("generate_use_case", AllOf(&["use_case.author", "asset.create"])),
    ("refine_use_case", Below("workload.view", &["use_case.author"])),
    ("create_use_case", AllOf(&["use_case.author", "asset.create"])),
    ("list_use_cases", Permission("workload.view")),
    ("read_use_case", Visibility("workload.view")),
    ("read_use_case_bundle", Visibility("asset.view")),
    ("read_use_case_changes", Visibility("asset.view")),
    ("publish_use_case", Below("workload.view", &["use_case.publish"])),
    ("activate_use_case", Below("workload.view", &["use_case.publish"])),
    ("archive_use_case", Below("workload.view", &["use_case.author"])),
    ("reopen_use_case", Below("workload.view", &["use_case.author"])),
];

/// The permission that makes releases visible.
const RELEASE_VISIBILITY: &str = "release.view";

/// This operation also requires every permission of the granted role. A separate test below covers this.
const GRANT_OPERATION: &str = "create_role_binding";

impl RequiredPermissions {
    fn all_permissions(self) -> Vec<&'static str> {
        match self {
            Nothing | Membership => Vec::new(),
            Permission(permission) | Visibility(permission) | OneOf(permission, _) => vec![permission],
            AllOf(all) => all.to_vec(),
            Below(sight, others) => std::iter::once(sight).chain(others.iter().copied()).collect(),
            Release(others) => std::iter::once(RELEASE_VISIBILITY).chain(others.iter().copied()).collect(),
        }
    }

    /// The expected outcome for a caller with these permissions.
    fn expected_outcome(self, held_permissions: &BTreeSet<&str>) -> Outcome {
        match self {
            Nothing | Membership => Outcome::Success,
            Visibility(sight) | Below(sight, _) if !held_permissions.contains(sight) => Outcome::NotFound,
            Visibility(_) => Outcome::Success,
            Release(_)
                if !held_permissions.contains(RELEASE_VISIBILITY) && !held_permissions.contains("workload.view") =>
            {
                Outcome::NotFound
            }
            Release(_) if !held_permissions.contains(RELEASE_VISIBILITY) => {
                Outcome::MissingPermission(RELEASE_VISIBILITY.to_owned())
            }
            Permission(needed) if !held_permissions.contains(needed) => Outcome::MissingPermission(needed.to_owned()),
            Permission(_) => Outcome::Success,
            OneOf(one, other) if held_permissions.contains(one) || held_permissions.contains(other) => Outcome::Success,
            OneOf(one, _) => Outcome::MissingPermission(one.to_owned()),
            AllOf(needed) | Below(_, needed) | Release(needed) => needed
                .iter()
                .find(|needed| !held_permissions.contains(**needed))
                .map_or(Outcome::Success, |needed| Outcome::MissingPermission((*needed).to_owned())),
        }
    }
}

#[derive(PartialEq, Eq, Debug)]
enum Outcome {
    Success,
    NotFound,
    MissingPermission(String),
    OtherStatus(u16),
}

impl Outcome {
    fn of_response(operation: &str, response: &Response) -> Self {
        match response.status {
            200 | 201 | 204 => Self::Success,
            // Authorization succeeded. The server then refuses to fetch from the address.
            422 if operation == "fetch_documents" && response.text().contains("source_not_fetched") => Self::Success,
            // Authorization succeeded. The notification belongs to another recipient.
            404 if operation == "change_inbox_status" => Self::Success,
            403 => Self::MissingPermission(
                response.expect_refusal(403, "forbidden")["permission"].as_str().unwrap().to_owned(),
            ),
            404 => {
                response.expect_refusal(404, "not_found");
                Self::NotFound
            }
            status => Self::OtherStatus(status),
        }
    }
}

/// Callers as pairs of an actor name and the permissions of that actor.
fn callers(needs: RequiredPermissions) -> Vec<(String, BTreeSet<&'static str>)> {
    let exactly = |held: &[&'static str]| (PermissionsByActorName::holding(held), held.iter().copied().collect());
    let mut callers = vec![exactly(&[]), exactly(&needs.all_permissions())];
    callers.extend(PERMISSIONS.iter().map(|permission| exactly(&[permission])));
    callers.extend(PERMISSIONS.iter().map(|missing| {
        let held_permissions = PERMISSIONS.iter().copied().filter(|permission| permission != missing);
        (PermissionsByActorName::lacking(&[missing]), held_permissions.collect())
    }));
    callers
}

/// Sends every operation of a table as every caller, and compares the responses with the table.
async fn assert_table(table: &[(&str, RequiredPermissions)]) {
    let app = TestApp::builder().decorate_access_store(PermissionsByActorName::decorator()).start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    let mut bound_callers = BTreeSet::new();
    let mut differences = Vec::new();
    for &(operation, needs) in table {
        let mut request: Option<Request> = None;
        let mut changes = 0;
        for (caller, held_permissions) in callers(needs) {
            let expected = needs.expected_outcome(&held_permissions);
            let prepared = match request.take() {
                Some(request) => request,
                None => fixture.successful_request(operation).await,
            };
            let is_read = prepared.method() == "GET";
            if expected == Outcome::Success && !is_read {
                // Each successful change needs its own target resource, which is slow to create. The short form
                // makes the change with the exact permissions and a few larger sets. The long form makes it for each
                // permission that is not required.
                changes += 1;
                if changes > 3 && !fairway_testkit::is_long_form_requested() {
                    request = Some(prepared);
                    continue;
                }
            }
            if bound_callers.insert(caller.clone()) {
                // The role binding makes the actor known. Its permissions come from its name, not from the role.
                fixture.fixtures.bind_role(&caller, "viewer", "platform", None).await;
            }
            let response = prepared.clone().as_actor(&caller).await;
            let outcome = Outcome::of_response(operation, &response);
            if is_read || outcome != Outcome::Success {
                request = Some(prepared);
            }
            if outcome != expected {
                differences
                    .push(format!("{operation} by {caller}: expected {expected:?}, got {outcome:?}: {response}"));
            }
        }
        assert!(has_success(operation, needs, changes), "{operation} never succeeds");
    }
    assert!(differences.is_empty(), "{} differences\n{}", differences.len(), differences.join("\n"));
}

/// Whether the operation is a read, or was executed successfully as a change at least once.
fn has_success(operation: &str, needs: RequiredPermissions, changes: usize) -> bool {
    let reads = ["read_", "list_", "diff_", "healthz", "readyz", "metrics"];
    changes > 0 || reads.iter().any(|prefix| operation.starts_with(prefix)) || matches!(needs, Nothing)
}

#[tokio::test]
async fn tenancy_operations_need_exactly_their_permissions() {
    assert_table(TENANCY).await;
}

#[tokio::test]
async fn asset_operations_need_exactly_their_permissions() {
    assert_table(ASSETS).await;
}

#[tokio::test]
async fn workload_and_release_operations_need_exactly_their_permissions() {
    assert_table(WORKLOADS).await;
}

#[tokio::test]
async fn run_operations_need_exactly_their_permissions() {
    assert_table(RUNS).await;
}

#[tokio::test]
async fn notification_operations_need_exactly_their_permissions() {
    assert_table(NOTIFICATIONS).await;
}

#[tokio::test]
async fn use_case_operations_need_exactly_their_permissions() {
    assert_table(USE_CASES).await;
}

#[test]
fn every_operation_has_a_row() {
    let rows = [TENANCY, ASSETS, WORKLOADS, RUNS, NOTIFICATIONS, USE_CASES].concat();
    let operations: BTreeSet<&str> = rows.iter().map(|(operation, _)| *operation).chain([GRANT_OPERATION]).collect();
    assert_eq!(operations.len(), rows.len() + 1, "an operation is in the tables twice");
    let all_operations: BTreeSet<&str> = Operation::ALL.iter().map(|operation| operation.id()).collect();
    assert_eq!(operations, all_operations);
}

/// `viewer` has six permissions. Granting this role requires each of them and `workspace.manage`.
#[tokio::test]
async fn granting_a_role_requires_its_permissions_and_workspace_manage() {
    const VIEWER: [&str; 6] = [
        "asset.view",
        "workload.view",
        "release.view",
        "execution.view",
        "notification.read",
        "notification.preference.self_manage",
    ];
    let app = TestApp::builder().decorate_access_store(PermissionsByActorName::decorator()).start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    let needed: Vec<&str> = std::iter::once("workspace.manage").chain(VIEWER).collect();
    for permission in PERMISSIONS {
        let caller = PermissionsByActorName::lacking(&[permission]);
        fixture.fixtures.bind_role(&caller, "viewer", "platform", None).await;
        let response = fixture.successful_request(GRANT_OPERATION).await.as_actor(&caller).await;
        let expected = if needed.contains(&permission) {
            Outcome::MissingPermission(permission.to_owned())
        } else {
            Outcome::Success
        };
        assert_eq!(Outcome::of_response(GRANT_OPERATION, &response), expected, "{permission}: {response}");
    }
}
